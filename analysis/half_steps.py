"""What only the tracer can tell: the cost of half-steps, small probabilities, and its own truth."""

from __future__ import annotations

import operator

import pandas as pd

from analysis import arms, stats
from analysis.findings import leading
from analysis.spec import BESIDE_ARM
from analysis.stats import LIKE_THESE, Interval
from analysis.tables import interval
from analysis.traces import Traces

HALF_STEPS = ("draft_ms", "verify_ms", "catch_up_ms", "rest_ms")
NAMES = {
    "draft_ms": "draft", "verify_ms": "verify", "catch_up_ms": "head catches up",
    "rest_ms": "accept, roll back",
}  # fmt: skip


def half_steps(traces: Traces) -> pd.DataFrame:
    """Return the mean cost of each part of a step by depth, in ms, for prompts like these."""
    frame = traces.steps()
    rows = {}
    for depth in sorted(frame["depth"].unique()):
        own = frame[frame["depth"] == depth]
        row = {
            part.removesuffix("_ms").replace("_", " "): interval(mean_ms(own, part))
            for part in (*HALF_STEPS, "step_ms")
        }
        rows[depth] = {"rows verified": str(depth + 1)} | row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def mean_ms(steps: pd.DataFrame, part: str) -> Interval:
    """Return the mean time of a part of some steps, or of all of it (``step_ms``), in ms."""
    values = steps[list(HALF_STEPS)].sum(axis=1) if part == "step_ms" else steps[part]
    by_text = steps.assign(value=values, text=steps["workload"] + "/" + steps["prompt_id"])
    sums = by_text.groupby(["round", "text"])["value"].agg(["sum", "count"])
    total, count = (sums[c].unstack("text").to_numpy(dtype=float) for c in ("sum", "count"))
    return stats.ratio(total, count).interval(LIKE_THESE)


def finding(steps: pd.DataFrame) -> str:
    """Return how long a step takes at both ends of the depths, and its largest part there.

    Parts whose intervals overlap with the largest's are named beside it.
    """
    first, last = int(steps["depth"].min()), int(steps["depth"].max())
    own = {depth: steps[steps["depth"] == depth] for depth in (first, last)}
    took = [f"{interval(mean_ms(own[d], 'step_ms'))} ms at depth {d}" for d in own]
    parts = leading({NAMES[part]: mean_ms(own[last], part) for part in HALF_STEPS})
    largest = f"the largest part there is {parts[0]}"
    if len(parts) > 1:
        largest = f"the largest part there is not distinguishable among {', '.join(parts)}"
    return f"A step takes {' and '.join(took)}, {LIKE_THESE}; {largest}."


def grid(traces: Traces) -> pd.DataFrame:
    """Return acceptance, tokens per step and speed by depth and smallest draft probability."""
    rows: dict[tuple[int, str], dict[str, str]] = {}
    asked = next(iter(traces.by_p_min.values())).depths
    asked = tuple(sorted(set(asked).intersection(*(s.depths for s in traces.by_p_min.values()))))
    for depth in (d for d in asked if d > 0):
        for p_min, sweep in traces.by_p_min.items():
            name = list(sweep.groups())[-1]
            if not (sweep.has_speed(name, depth) and sweep.has_speed(name, 0)):
                continue
            cell = sweep.cell(name, depth)
            rows[depth, f"{p_min:g}"] = {
                "acceptance rate": interval(cell.interval("acceptance", LIKE_THESE)),
                "tokens per step": interval(cell.interval("tokens_per_step", LIKE_THESE)),
                "speed against depth 0": interval(
                    sweep.relative("tok_s", name, depth, 0, LIKE_THESE)
                ),
            }
    table = pd.DataFrame.from_dict(rows, orient="index")
    if not table.empty:
        table.index = pd.MultiIndex.from_tuples(table.index, names=["depth", "p_min"])
    return table


def against_server(traces: Traces) -> pd.DataFrame:
    """Return how the tracer compares with llama-server at each depth: texts, counts and speed.

    Both answered the same requests in turns, in the same launches.
    """
    sweep = traces.main
    server = arms.of(sweep, BESIDE_ARM)
    keys = ["workload", "prompt_id", "depth", "round"]
    pairs = sweep.timed.merge(server.timed, on=keys, suffixes=("", "_server"))
    rows = {}
    for depth, own in pairs.groupby("depth"):
        rows[depth] = {
            "requests": len(own),
            "the same text": _equal(own, "tokens"),
            "the same counts by position": _equal(own, "accepted_per_position"),
            **{
                f"tracer's speed against the server's, {scope}": interval(
                    arms.ratio(sweep, server, int(str(depth)), scope)
                )
                for scope in stats.SCOPES
            },
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def _equal(pairs: pd.DataFrame, column: str) -> int:
    """Count pairs with equal values; both None, as without drafting, is equal too."""
    return sum(map(operator.eq, pairs[column].tolist(), pairs[f"{column}_server"].tolist()))
