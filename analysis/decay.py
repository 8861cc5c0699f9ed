"""The acceptance page's numbers: decay by position, rates by depth, the worth of a guess."""

from __future__ import annotations

import math

import pandas as pd

from analysis import acceptance, quotes, stats
from analysis.acceptance import Positions
from analysis.findings import named
from analysis.markup import escaped
from analysis.report import Sweep
from analysis.stats import LIKE_THESE, Interval, Mean
from analysis.tables import interval

FALLS, HOLDS, RISES = "falls", "not distinguishable from constant", "rises"


def positions(sweep: Sweep) -> dict[str, Positions]:
    """Return the counts by position of each workload, at the deepest depth that it has."""
    found = {}
    for workload in sweep.workloads:
        for depth in sorted(sweep.depths, reverse=True):
            counts = acceptance.of_samples(sweep.timed, workload, depth)
            if counts is not None:
                found[workload] = counts
                break
    return found


def scopes(counts: dict[str, Positions]) -> tuple[str, ...]:
    """Return the intervals that the data can give: one launch gives none on these prompts."""
    return stats.SCOPES if all(c.rounds > 1 for c in counts.values()) else (LIKE_THESE,)


def by_position(counts: dict[str, Positions]) -> pd.DataFrame:
    """Return acceptance by position with its intervals, and the geometric line beside it."""
    rows: dict[tuple[str, int], dict[str, str]] = {}
    for workload, own in counts.items():
        alpha = own.alpha()
        for k in range(1, own.depth + 1):
            row = {f"a, {s}": interval(own.interval(k, "a", s)) for s in scopes(counts)}
            row |= {f"c, {s}": interval(own.interval(k, "c", s)) for s in scopes(counts)}
            row["geometric a"] = "–" if alpha is None else f"{alpha.estimate**k:.3f}"
            rows[workload, k] = row
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(table.index, names=["workload", "position"])
    return table


def _in(mean: Mean | None, scope: str) -> Interval | None:
    return None if mean is None else mean.interval(scope)


def _share(mean: Mean | None) -> Interval | None:
    return None if mean is None else mean.share(LIKE_THESE)


def call(own: Positions) -> str:
    """Return whether conditional acceptance falls with position, for prompts like these."""
    slope = own.slope()
    if slope is None:
        return "too little was drafted"
    found = slope.interval(LIKE_THESE)
    return FALLS if found.high < 0 else RISES if found.low > 0 else HOLDS


def decay(counts: dict[str, Positions]) -> pd.DataFrame:
    """Return the two models by workload: constant chance, and log-odds that change by position."""
    rows = {}
    for workload, own in counts.items():
        gain, p = own.likelihood_ratio() if own.alpha() else (math.nan, math.nan)
        rows[workload] = {
            "constant chance": interval(_share(own.alpha())),
            "change of log-odds a position": interval(_in(own.slope(), LIKE_THESE)),
            "conditional chance": call(own),
            "likelihood ratio": f"{gain:.1f}",
            "p, if steps were independent": "below 1e-99" if p < 1e-99 else f"{p:.2g}",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("workload")


def by_depth(sweep: Sweep) -> pd.DataFrame:
    """Return acceptance rate and tokens per step by workload and depth, with the note's figures."""
    quoted = quotes.note_acceptance().set_index(["workload", "n_max"])["acceptance"]
    rows = {
        (cell.workload, cell.depth): {
            "acceptance rate": interval(cell.interval("acceptance", LIKE_THESE)),
            "tokens per step": interval(cell.interval("tokens_per_step", LIKE_THESE)),
            "the note's rate": f"{quoted[cell.workload, cell.depth]:.2f}"
            if (cell.workload, cell.depth) in quoted.index
            else "–",
        }
        for cell in sweep.cells()
        if cell.depth > 0
    }
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(table.index, names=["workload", "depth"])
    return table


def worth(measured: Sweep, traced: Sweep | None) -> pd.DataFrame:
    """Return what guess number k is worth: its chance to be kept, and the chance that it needs.

    Depths that follow each other are needed: of the sweep where it has them, else of the tracer.

    One deeper draft lengthens the step from ``t_(k-1)`` to ``t_k``; it pays where
    ``a_k > tokens_per_step_(k-1) * (t_k - t_(k-1)) / t_(k-1)``, which is the same as
    ``speed_k > speed_(k-1)``. The answer is that of the paired speeds.
    """
    gaps = set(range(max(measured.depths) + 1)) - set(measured.depths)
    sweep = traced if gaps and traced is not None else measured
    rows: dict[tuple[str, int], dict[str, str]] = {}
    for workload, own in positions(sweep).items():
        for k in range(1, own.depth + 1):
            if not {k - 1, k} <= set(sweep.depths) or not (
                sweep.has_speed(workload, k) and sweep.has_speed(workload, k - 1)
            ):
                continue
            before, after = sweep.cell(workload, k - 1), sweep.cell(workload, k)
            t = [math.exp(c.log_step_ms.estimate) for c in (before, after)]
            tokens = math.exp(before.log_tokens_per_step.estimate)
            ratio = sweep.relative("tok_s", workload, k, k - 1, LIKE_THESE)
            rows[workload, k] = {
                "chance to be kept": interval(own.interval(k, "a", LIKE_THESE)),
                "costs, ms a step": f"{t[1] - t[0]:.2f}",
                "chance that it needs": f"{tokens * (t[1] - t[0]) / t[0]:.2f}",
                "speed against one less": interval(ratio),
                "it pays": "–" if ratio is None else _pays(ratio),
            }
    table = pd.DataFrame.from_dict(rows, orient="index")
    if not table.empty:
        table.index = pd.MultiIndex.from_tuples(table.index, names=["workload", "guess"])
    return table


def _pays(ratio: Interval) -> str:
    if not math.isfinite(ratio.high):
        return "one launch can not tell"
    return "yes" if ratio.low > 1 else "no" if ratio.high < 1 else "not distinguishable"


def finding(counts: dict[str, Positions]) -> str:
    """Return where conditional acceptance changes with position, as one sentence."""
    words = {c: f"{c} with position" for c in (FALLS, RISES)} | {HOLDS: f"is {HOLDS}"}
    calls = {w: words.get(call(own), "is on too few drafts to tell") for w, own in counts.items()}
    return (
        f"Given that the guesses before it were kept, the chance of a guess {named(calls)} "
        f"({LIKE_THESE}, 95%)."
    )


def basis(sweep: Sweep) -> str:
    """Return what the engine's own numbers are read from, as one sentence."""
    run = sweep.recorded.run
    prompts = sweep.timed.groupby("workload")["prompt_id"].nunique().to_dict()
    counts = ", ".join(f"{w} {prompts[w]}" for w in sweep.workloads)
    taken = " It holds more than this page asks for." if run.notebook == "depth_sweep" else ""
    return (
        f"Read from {escaped(run.run)}: depths {sweep.depths[0]} to {sweep.depths[-1]}, "
        f"{sweep.timed['round'].nunique()} launches a depth, prompts: {counts}.{taken}"
    )


def sentences(counts: dict[str, Positions], machine: str) -> list[str]:
    """Return the finding by workload, its numbers computed from the counts."""
    found = []
    for workload, own in counts.items():
        n = own.depth
        first, last = (own.interval(k, "a", LIKE_THESE) for k in (1, n))
        text = (
            f"**{workload}** on {escaped(machine)}: the first guess is kept in {interval(first)} "
            f"of the drafts, all {n} in {interval(last)}. "
        )
        c = {k: own.interval(k, "c", LIKE_THESE) for k in range(1, n + 1)}
        there = [k for k, v in c.items() if v is not None]
        deepest = there[-1] if there else 1
        slope = _in(own.slope(), LIKE_THESE)
        how = {
            FALLS: "falls with position, faster than geometric",
            RISES: "rises with position",
            HOLDS: "is not distinguishable from a constant chance",
        }.get(call(own), "was measured on too few drafts")
        text += (
            f"Given the guesses before it, the chance {how}: {interval(c[1])} at position 1, "
            f"{interval(c[deepest])} at position {deepest} (log-odds {interval(slope)} a position)."
        )
        found.append(text)
    return found
