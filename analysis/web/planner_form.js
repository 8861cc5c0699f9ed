/* The form of the planner page: reads the fields, asks the law (planner_law.js) and shows its
   answer. The fields' values stand behind the # of the address, so that an answer can be shared. */
"use strict";

(() => {
  const data = JSON.parse(document.getElementById("planner-data").textContent);
  const law = plannerLaw(data);
  const form = document.getElementById("planner-form");
  const part = (name) => document.getElementById(`planner-${name}`);
  const names = Object.keys(data.defaults);
  const PARTS = [ // in the order of the bars: what grows with depth comes last
    ["weights", "weights", (row) => row.weights_mib],
    ["kv", "KV cache", (row) => row.kv_mib],
    ["mtp", "MTP block", (row) => row.mtp_weights_mib + row.mtp_kv_mib],
    ["buffers", "buffers", (row) => row.compute_mib],
    ["state", "recurrent state", (row) => row.state_mib],
  ];

  const plain = (number) => number.toLocaleString("en-US");
  const mib = (value) => { // whole MiB, and a digit more where little is left of them
    const digits = Math.abs(value) < 10 ? 1 : 0;
    const shown = value.toLocaleString("en-US", {
      maximumFractionDigits: digits, roundingMode: "halfEven", // as Python rounds
    });
    return shown === "-0" ? "0" : shown.replace("-", "\u2212");
  };
  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
    made.append(...children);
    return made;
  };
  const layers = (row) => `${row.layers_off_device} of ${row.layers_total} layers`;
  const scrolled = () => form.scrollIntoView({ block: "start" });

  /* Fields: what is read from each, and what is said where it is of no use. */

  const chosen = (text) => text || null; // a list has no value where it lacks what it was set to
  const CHOOSE = "Not in the list: choose one.";
  const count = (most) => `A whole number from 1 to ${plain(most)}.`;
  const FIELDS = {
    shape: ["model", chosen, CHOOSE],
    quant: ["quantization", chosen, CHOOSE],
    memory: ["memory_mib", law.memoryMib, "An amount of memory is like 22GiB, 24GB or 21400MiB."],
    context: ["context", (text) => law.whole(text, data.most.context), count(data.most.context)],
    slots: ["slots", (text) => law.whole(text, data.most.slots), count(data.most.slots)],
    "cache-type-k": ["cache_type_k", chosen, CHOOSE],
    "cache-type-v": ["cache_type_v", chosen, CHOOSE],
  };
  const UNIFIED = "kv-unified";

  const texts = () => {
    const found = names.map((name) => {
      const field = part(name);
      return [name, name === UNIFIED ? String(Number(field.checked)) : field.value.trim()];
    });
    return Object.fromEntries(found);
  };

  const fill = (given) => {
    names.forEach((name) => {
      const value = given[name] ?? data.defaults[name];
      if (name === UNIFIED) part(name).checked = value === "1";
      else part(name).value = value;
    });
  };

  /* Return the pool that the fields describe, with what is wrong said beside them. */
  const read = (typed) => {
    const pool = { unified: typed[UNIFIED] === "1" };
    const wrong = [];
    Object.entries(FIELDS).forEach(([name, [key, reader, advice]]) => {
      pool[key] = reader(typed[name]);
      const bad = pool[key] === null;
      part(`${name}-said`).textContent = bad ? advice : "";
      part(name).setAttribute("aria-invalid", String(bad));
      if (bad) wrong.push(form.querySelector(`label[for="planner-${name}"]`).textContent);
    });
    return [pool, wrong];
  };

  /* Sentences. */

  const edge = (pool, deepest) => {
    const into = `into ${mib(pool.memory_mib)} MiB`;
    if (deepest === data.most.depth) return `Every depth up to ${deepest} fits ${into}.`;
    const over = law.closedForm(pool, deepest === null ? 0 : deepest + 1);
    const leave = `${mib(-over.left_mib)} MiB are missing, and ${layers(over)} would leave for ` +
      `the CPU (${over.off_device}).`;
    if (deepest === null) return `No depth fits ${into}: without drafting ${leave}`;
    const left = `with ${mib(law.closedForm(pool, deepest).left_mib)} MiB left`;
    const fits = deepest === 0 ? `Only depth 0, which is no drafting, fits ${into}, ${left}.`
      : `Depth ${deepest} is the deepest that fits ${into}, ${left}.`;
    return `${fits} At depth ${deepest + 1}, ${leave}`;
  };

  const near = (pool, deepest) => {
    const depths = [deepest, deepest === null ? 0 : deepest + 1].filter((d) => d !== null);
    const margins = depths.filter((d) => d <= data.most.depth)
      .map((d) => Math.abs(law.closedForm(pool, d).left_mib));
    return Math.min(...margins) > data.near_mib ? ""
      : `This edge lies within ${mib(data.near_mib)} MiB of a depth, closer than the closed form ` +
        "can tell: ask the engine.";
  };

  const cost = (rows) => {
    const [none, one] = rows;
    const step = one.state_mib - none.state_mib;
    return `Turning drafting on costs ${mib(one.total_mib - none.total_mib)} MiB: ` +
      `${mib(one.mtp_weights_mib + one.mtp_kv_mib)} for the MTP block and its cache, ` +
      `${mib(one.compute_mib - none.compute_mib)} for buffers, ${mib(step)} for one more copy of ` +
      `the state. Each further depth costs such a copy again.`;
  };

  const finding = (pool, rows) => {
    const fitting = rows.filter((row) => row.fits).map((row) => row.depth);
    const those = fitting.length === rows.length ? "every depth shown fits"
      : fitting.length === 0 ? "no depth fits"
        : fitting.length === 1 ? "only depth 0 fits"
          : `depths 0 to ${fitting.length - 1} fit, those beyond do not`;
    return `Device memory by draft depth against ${mib(pool.memory_mib)} MiB: ${those}.`;
  };

  const command = (typed) => {
    const more = Object.keys(FIELDS).filter((name) => !name.startsWith("cache") ||
      typed[name] !== data.mtp_cache);
    const words = more.map((name) => `--${name} ${typed[name].replaceAll(" ", "")}`);
    if (typed[UNIFIED] === "1") words.push(`--${UNIFIED}`);
    const all = [data.command, ...words, `--depths 0-${data.shown}`];
    // An option stays in one line with its value.
    return all.flatMap((word, index) => [index ? " " : "", element("span", {}, word)]);
  };

  /* Chart and table. */

  const draw = (pool, rows) => {
    const widest = Math.max(...rows.map((row) => row.total_mib));
    const scale = pool.memory_mib < 1.5 * widest ? Math.max(widest, pool.memory_mib) : widest;
    const share = (value) => `${(100 * value) / scale}%`;
    const line = pool.memory_mib <= scale;
    const chart = part("chart");
    chart.style.setProperty("--budget", share(Math.min(pool.memory_mib, scale)));
    chart.className = line ? "line" : "";
    const mark = element("span", { class: pool.memory_mib > scale / 2 ? "budget" : "budget left" },
      line ? `${mib(pool.memory_mib)} MiB` : `${mib(pool.memory_mib)} MiB lie beyond this chart`);
    const bars = rows.map((row) => {
      const bar = element("span", { class: "bar" });
      PARTS.forEach(([name, , size]) => {
        const piece = element("span", { class: name });
        piece.style.width = share(size(row));
        bar.append(piece);
      });
      return element("div", { class: row.fits ? "level" : "level over" },
        element("span", { class: "depth" }, String(row.depth)), bar,
        element("span", { class: "sum" }, mib(row.total_mib)),
        element("span", { class: "told" }, row.fits ? "fits" : `${row.layers_off_device} off`));
    });
    chart.replaceChildren(
      element("div", { class: "level heads" }, element("span", { class: "depth" }, "depth"),
        element("span", { class: "bar" }, mark), element("span", { class: "sum" }, "MiB"),
        element("span", { class: "told" }, "layers")),
      ...bars,
    );
  };

  const tabulate = (rows, deepest) => {
    const heads = ["depth", ...PARTS.map(([, title]) => title), "total", "left", "layers on",
      "off the device"];
    part("table").tHead.replaceChildren(
      element("tr", {}, ...heads.map((title) => element("th", { scope: "col" }, title))));
    part("table").tBodies[0].replaceChildren(...rows.map((row) => {
      const cells = [...PARTS.map(([, , size]) => mib(size(row))), mib(row.total_mib),
        mib(row.left_mib), `${row.layers_total - row.layers_off_device}/${row.layers_total}`,
        row.off_device || "nothing"];
      const kind = row.fits ? (row.depth === deepest ? "edge" : "") : "over";
      return element("tr", { class: kind }, element("th", { scope: "row" }, String(row.depth)),
        ...cells.map((text) => element("td", {}, text)));
    }));
  };

  /* Show the answer to what the fields say. */
  const show = () => {
    const typed = texts();
    const [pool, wrong] = read(typed);
    part("results").hidden = wrong.length > 0;
    if (wrong.length) {
      part("answer").textContent = `No plan yet; see: ${wrong.join(", ")}.`;
      return;
    }
    const rows = Array.from({ length: data.shown + 1 }, (_, depth) => law.closedForm(pool, depth));
    const deepest = law.deepest(pool);
    const told = [edge(pool, deepest), near(pool, deepest), cost(rows)].filter(Boolean);
    part("answer").replaceChildren(...told.map((text, index) =>
      element("p", index ? {} : { class: "edge" }, text)));
    part("finding").textContent = finding(pool, rows);
    part("command").replaceChildren(...command(typed));
    part("link").href = `#${new URLSearchParams(typed)}`;
    draw(pool, rows);
    tabulate(rows, deepest);
  };

  /* Take the fields from the address, where it has any: a link to a heading has none. */
  const take = () => {
    const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    const shared = names.some((name) => name in given);
    if (shared) fill(given);
    show();
    if (shared) scrolled();
  };

  const changed = () => {
    show();
    history.replaceState(null, "", `#${new URLSearchParams(texts())}`);
  };

  Object.entries(data.lists).forEach(([name, values]) =>
    part(name).append(...values.map((value) => element("option", {}, value))));
  form.parentElement.querySelector(".key").append(
    ...PARTS.map(([name, title]) => element("li", { class: name }, title)));
  fill({});
  take();
  form.addEventListener("input", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", take);
  part("reset").addEventListener("click", () => {
    fill({});
    changed();
  });
})();
