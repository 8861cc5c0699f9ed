// A heading of a table sorts by its column: by the first number where most cells are a number,
// with its unit or its interval, else by text, in which dates and versions have their order. What
// is no number comes last. A second press turns the order around, a third brings back the order
// of the page.
(() => {
  const UNITS = { KiB: 2 ** 10, MB: 1e6, MiB: 2 ** 20, GB: 1e9, GiB: 2 ** 30 };
  const NUMBER = /^(-?\d+(?:\.\d+)?)(?:\s?[%×]| of | to | [([]|(?: [A-Za-z/]+)?$)/;
  const text = (cell) => cell.textContent.trim();
  const number = (cell) => {
    const plain = text(cell).replace(/[−–]/g, "-").replace(/,(?=\d{3}(?!\d))/g, "");
    const found = NUMBER.exec(plain);
    const unit = /\b([KMG]i?B)\b/.exec(plain);
    return found ? parseFloat(found[1]) * ((unit && UNITS[unit[1]]) || 1) : NaN;
  };
  // The collator takes the digits after a point for a number of their own, which is right in a
  // version of three parts alone: 0.72 and 0.638 are compared with as many digits each.
  const collator = new Intl.Collator("en", { numeric: true });
  const DECIMAL = /(?<![\d.])(\d+)\.(\d+)(?!\d|\.\d)/g;
  const padded = (_, whole, part) => `${whole}.${part.padEnd(9, "0")}`;
  const byText = (a, b) => collator.compare(a.replace(DECIMAL, padded), b.replace(DECIMAL, padded));

  // A cell that spans rows is said once for all of them; sorted apart, each row says it.
  const spread = (body) => {
    [...body.rows].forEach((row, at) => {
      [...row.cells].forEach((cell) => {
        for (let i = 1, span = cell.rowSpan; i < span; i++) {
          const copy = cell.cloneNode(true);
          copy.rowSpan = 1;
          const below = body.rows[at + i];
          below.insertBefore(copy, below.cells[cell.cellIndex] ?? null);
        }
        cell.rowSpan = 1;
      });
    });
  };

  const order = (rows, column, down) => {
    const keyed = rows.map((row) => {
      const cell = row.cells[column];
      return { row, number: number(cell), text: text(cell) };
    });
    const numeric = keyed.filter((a) => !isNaN(a.number)).length * 2 >= keyed.length;
    const missing = (a) => (numeric ? isNaN(a.number) : /^[–-]?$/.test(a.text));
    const compare = (a, b) => {
      if (missing(a) || missing(b)) return missing(a) - missing(b);
      const first = (numeric && a.number - b.number) || byText(a.text, b.text);
      return down ? -first : first;
    };
    return keyed.sort(compare).map((a) => a.row);
  };

  const sortable = (table) => {
    const [head, body] = [table.tHead, table.tBodies[0]];
    if (!head || head.rows.length !== 1 || table.tBodies.length !== 1 || body.rows.length < 3) {
      return;
    }
    if (table.querySelector("[colspan]:not([colspan='1'])")) return;
    let rows = null; // in the order of the page
    [...head.rows[0].cells].forEach((cell, column) => {
      if (cell.tagName !== "TH" || !cell.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.title = "Sort by this column";
      const place = cell.querySelector(":scope > p:only-child") ?? cell;
      button.append(...place.childNodes);
      place.append(button);
      button.addEventListener("click", () => {
        if (rows === null) {
          spread(body);
          rows = [...body.rows];
        }
        const next = { none: "ascending", ascending: "descending", descending: "none" };
        const now = next[cell.getAttribute("aria-sort") ?? "none"];
        for (const other of head.rows[0].cells) other.removeAttribute("aria-sort");
        if (now !== "none") cell.setAttribute("aria-sort", now);
        body.append(...(now === "none" ? rows : order(rows, column, now === "descending")));
      });
    });
  };

  // On a phone a row of these tables is a card, each value beside its heading. The roles stay those
  // of a table, which a browser forgets where its parts are laid out otherwise.
  const carded = (table) => {
    const roles = { thead: "rowgroup", tbody: "rowgroup", tr: "row", td: "cell" };
    for (const [name, role] of Object.entries(roles)) {
      for (const part of table.querySelectorAll(name)) part.setAttribute("role", role);
    }
    table.setAttribute("role", "table");
    const heads = [...table.tHead.rows[0].cells];
    for (const head of heads) head.setAttribute("role", "columnheader");
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, i) => (cell.dataset.label = heads[i].textContent.trim()));
    }
    table.classList.add("carded");
  };

  const ready = () => {
    document.querySelectorAll(".bd-article .cards table").forEach(carded);
    for (const table of document.querySelectorAll(".bd-article table")) {
      if (!table.closest(".planner")) sortable(table); // which writes its rows anew
    }
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", ready);
  else ready();
})();
