/* The memory law of the planner page: what analysis/plan.py, memory.py, compute.py and leaving.py
   compute, for a browser. All numbers come from Python as `data` (analysis/planner_form.py); this
   file has the law alone and touches no page. Names are Python's; sizes are MiB, unless named
   bytes. tests/test_planner_page.py compares the two. */
"use strict";

const plannerLaw = (data) => {
  const MIB = 2 ** 20;
  const padded = (tokens) => Math.ceil(tokens / data.padding) * data.padding;
  const sum = (numbers) => numbers.reduce((total, one) => total + one, 0);

  /* Memory, from memory.py. */

  const copies = (layout, depth) => (layout.rolls_back ? 1 + depth : 1);

  const channels = (layout) => layout.linear_inner + 2 * layout.linear_groups * layout.linear_state;

  const stateMib = (layout, slots, depth) => {
    const delta = layout.linear_inner * layout.linear_state;
    const window = (layout.conv_kernel - 1) * channels(layout);
    const numbers = layout.linear_layers * (delta + window);
    return (slots * copies(layout, depth) * numbers * data.state_bytes) / MIB;
  };

  const cells = (pool) => {
    const parts = pool.unified ? 1 : pool.slots;
    return parts * padded(Math.floor(padded(pool.context) / parts));
  };

  const kvMib = (layout, pool, layers, typeK, typeV) => {
    const bytes = (type, size) => {
      const [numbers, blockBytes] = data.cache_types[type];
      return (layout.kv_heads * size * blockBytes) / numbers;
    };
    const token = bytes(typeK, layout.head_k) + bytes(typeV, layout.head_v);
    return (layers * cells(pool) * token) / MIB;
  };

  /* Buffers, from compute.py: an estimate. */

  const passMib = (numbers) => (numbers * data.pass_tokens * data.state_bytes) / MIB;

  const widthMib = (layout) =>
    passMib(
      Math.max(
        3 * layout.ffn + 2 * layout.width,
        3 * channels(layout) + 2 * layout.width,
        (2 * layout.experts_used + 1) * layout.width,
      ),
    );

  const statesMib = (layout, count) => {
    const states = (count * layout.linear_inner * layout.linear_state * data.state_bytes) / MIB;
    if (states < passMib(channels(layout))) return 0;
    const keys = layout.linear_groups * layout.linear_state;
    return passMib(4 * layout.linear_inner + 6 * keys + 2 * layout.width) + states;
  };

  const buffersMib = (layout, pool, depth) => {
    const held = cells(pool) / (pool.unified ? 1 : pool.slots);
    const mask = (data.pass_tokens * held * data.mask_bytes) / MIB;
    const width = widthMib(layout);
    const states = statesMib(layout, pool.slots * copies(layout, depth));
    const target = Math.max(width, states) + mask;
    return target + (depth ? Math.max(width, mask + data.mtp_share * width) : 0);
  };

  /* What leaves, from leaving.py: blocks from the first on; experts before, from the last on. */

  const span = (kind, [first, last]) => `${kind} ${first === last ? first : `${first}-${last}`}`;

  const leaving = (over, blocks, experts) => {
    let left = over;
    const named = [];
    let untouched = blocks.length; // blocks whose experts stay
    if (left <= 0) return { count: 0, text: "" };
    if (sum(experts) > 0) {
      while (left > 0 && untouched > 0) {
        untouched -= 1;
        left -= experts[untouched];
      }
      named.push(span("experts of blocks", [untouched, blocks.length - 1]));
      if (left <= 0) return { count: blocks.length - untouched, text: named[0] };
    }
    let gone = 0;
    while (left > 0 && gone < blocks.length) {
      left -= blocks[gone];
      gone += 1;
    }
    if (left > 0) return { count: blocks.length + 1, text: "all" };
    named.unshift(span("blocks", [0, gone - 1]));
    const count = gone + Math.max(0, blocks.length - Math.max(gone, untouched));
    return { count, text: named.join(", ") };
  };

  /* The plan, from plan.py. A pool has model, quantization, memory_mib, context, slots, unified,
     cache_type_k and cache_type_v. */

  const weightsOf = (pool) => {
    const held = data.models[pool.model].weights[pool.quantization];
    const mib = (bytes) => bytes.map((one) => one / MIB);
    return { blocks: mib(held.blocks), experts: mib(held.experts), output: held.output / MIB };
  };

  const parts = (pool, depth) => {
    const { layout } = data.models[pool.model];
    const held = weightsOf(pool);
    const trunk = held.blocks.length - layout.mtp_layers;
    const drafting = depth > 0;
    const { mtp_layers: mtp, attention_layers: attention } = layout;
    return {
      state_mib: stateMib(layout, pool.slots, depth),
      kv_mib: kvMib(layout, pool, attention, pool.cache_type_k, pool.cache_type_v),
      mtp_kv_mib: drafting ? kvMib(layout, pool, mtp, data.mtp_cache, data.mtp_cache) : 0,
      weights_mib: held.output + sum(held.blocks.slice(0, trunk)),
      mtp_weights_mib: drafting ? sum(held.blocks.slice(trunk)) : 0,
      compute_mib: buffersMib(layout, pool, depth),
    };
  };

  const totalMib = (need) =>
    need.state_mib + need.kv_mib + need.mtp_kv_mib +
    (need.weights_mib + need.mtp_weights_mib) + need.compute_mib;

  const loaded = (pool, need, depth) => {
    const { layout } = data.models[pool.model];
    const held = weightsOf(pool);
    const trunk = layout.linear_layers + layout.attention_layers;
    const count = held.blocks.length - (depth ? 0 : layout.mtp_layers);
    const rest = held.blocks.slice(0, count).map((block, index) => {
      const mib = block - held.experts[index];
      if (index >= trunk) return mib;
      const full = layout.linear_layers === 0 || (index + 1) % layout.full_every === 0;
      return mib + (full ? need.kv_mib / layout.attention_layers
        : need.state_mib / layout.linear_layers);
    });
    return [rest, held.experts.slice(0, count)];
  };

  const closedForm = (pool, depth) => {
    const need = parts(pool, depth);
    const total = totalMib(need);
    const off = leaving(total - pool.memory_mib, ...loaded(pool, need, depth));
    return {
      ...need,
      depth,
      total_mib: total,
      left_mib: pool.memory_mib - total,
      fits: total <= pool.memory_mib,
      layers_total: weightsOf(pool).blocks.length + 1,
      layers_off_device: off.count,
      off_device: off.text,
    };
  };

  /* The deepest depth that fits, or null. */
  const deepest = (pool) => {
    for (let depth = data.most.depth; depth >= 0; depth -= 1) {
      if (totalMib(parts(pool, depth)) <= pool.memory_mib) return depth;
    }
    return null;
  };

  /* Reading what was typed: a number, or null where it is of no use. */

  const memoryMib = (text) => {
    const found = /^(\d+\.?\d*|\.\d+)([a-z]+)$/.exec(text.toLowerCase().replaceAll(" ", ""));
    const mib = found ? Number(found[1]) * data.units_mib[found[2]] : 0; // NaN is above nothing
    return mib > 0 && mib < data.most.memory_mib ? mib : null;
  };

  const whole = (text, most) => {
    const value = /^\d+$/.test(text) ? Number(text) : 0;
    return value >= 1 && value <= most ? value : null;
  };

  return { closedForm, deepest, memoryMib, whole };
};
