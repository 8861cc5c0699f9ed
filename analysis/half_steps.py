"""What only the tracer can tell: the cost of half-steps, small probabilities, and its own truth."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pandas as pd

from analysis import stats
from analysis.report import Sweep
from analysis.stats import LIKE_THESE, ON_THESE, Interval
from analysis.tables import interval
from analysis.traces import Traces

HALF_STEPS = ("draft_ms", "verify_ms", "catch_up_ms", "rest_ms")


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


def against_server(sweep: Sweep, traces: Traces) -> pd.DataFrame:
    """Return how the tracer compares with the engine at each depth: texts, and speed.

    Texts are compared over the length that both decoded, speeds over the prompts and rounds that
    both have, each engine in its own launches.
    """
    rows = {}
    for depth in (d for d in sweep.depths if d in traces.main.depths):
        same, compared = 0, 0
        for own in traces.main.workloads:
            ours = _texts(traces.main, own, depth)
            theirs = _texts(sweep, own, depth)
            shared = ours.keys() & theirs.keys()
            compared += len(shared)
            same += sum(all(map(operator.eq, ours[k], theirs[k])) for k in shared)
        pairs = [
            (a[:, : b.shape[1]], b)
            for w in traces.main.workloads
            if w in sweep.workloads
            for a, b in [(sweep.table("tok_s", w, depth), traces.main.table("tok_s", w, depth))]
        ]
        rounds = min((min(len(a), len(b)) for a, b in pairs), default=0)
        row: dict[str, Any] = {"texts compared": compared, "the same text": same}
        if rounds:
            logs = [np.log(b[:rounds]) - np.log(a[:rounds]) for a, b in pairs]
            ratio = stats.mean(logs).interval(ON_THESE).map(math.exp)
            row["tracer's speed against the engine's"] = interval(ratio)
        rows[depth] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def _texts(sweep: Sweep, workload: str, depth: int) -> dict[str, tuple[int, ...]]:
    own = sweep.timed[
        (sweep.timed["workload"] == workload)
        & (sweep.timed["depth"] == depth)
        & (sweep.timed["round"] == 0)
    ]
    return dict(zip(own["prompt_id"], own["tokens"], strict=True))
