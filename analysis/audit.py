"""Ask the engine how close a decision was where two greedy texts part."""

from __future__ import annotations

from dataclasses import replace

from analysis import store
from analysis.engines.process import Engine
from analysis.launch import Bench
from analysis.lossless import divergences, pairs
from analysis.records import Divergence

CANDIDATES = 50  # how many of the likeliest tokens are searched for the two that differ


def audit(bench: Bench, writer: store.Writer, recorded: store.Recorded) -> None:
    """Record each new divergence with its margin, asked of an engine at depth 0."""
    known = {(d.workload, d.prompt_id, d.depth, d.arm) for d in recorded.divergences}
    new = [
        d for d in divergences(recorded)
        if (d.workload, d.prompt_id, d.depth, d.arm) not in known
    ]  # fmt: skip
    if not new:
        return
    prompts = {(e.prompt.workload, e.prompt.prompt_id): e.tokens for e in bench.encoded}
    base = {(z.workload, z.prompt_id): z.tokens for z, _ in pairs(recorded)}
    with bench.engine(0, "margins") as engine:
        for d in new:
            key = (d.workload, d.prompt_id)
            margin = _margin(engine, (*prompts[key], *base[key][: d.position]), d)
            writer.add(replace(d, margin=margin))


def _margin(engine: Engine, context: tuple[int, ...], d: Divergence) -> float | None:
    """Return the difference of the two tokens' log probabilities after `context`, or None."""
    likely = engine.likeliest(context, CANDIDATES)
    if d.token_depth_0 not in likely or d.token not in likely:
        return None
    return round(likely[d.token_depth_0] - likely[d.token], 6)
