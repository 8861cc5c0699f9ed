"""Speed at a depth that was not measured, from pieces that were, and how far that is off.

    speed(n) = tokens(n) / step time(n),
    tokens(n) = 1 + a_1 + ... + a_n,
    step time(n) = draft(n) + head x pass(n + 1 rows) + catch up(n) + rest(n).

``a_k`` is read for each text from its drafts of other depths; positions that none of them reached
follow the log-odds line of the workload (:mod:`analysis.acceptance`). The trunk's pass as a
function of its rows is measured apart, with rows that nobody drafted. It is a straight line unless
the launches show a bend: where the F test for lack of fit (Fisher 1922) rejects the line at 5%, it
is interpolated between the measured numbers of rows. ``head`` is how much dearer the pass is in a
step that drafts: it comes after the head's own passes, which have used the caches, and hands its
hidden vectors over. It is read from other depths, as one factor. Draft, catching up and rest are
straight lines in depth. All layers are where they are in the measured runs.

Leaving a depth out means that nothing drafted at that depth is used. A stricter check leaves out
the pass of its number of rows as well. At depth 0 the pass of one row *is* the speed, measured a
second time.

Intervals are the delete-one jackknife's, over rounds and over prompts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special
from scipy import stats as scipy_stats

from analysis import acceptance
from analysis.pieces import PARTS, Pieces
from analysis.report import Sweep
from analysis.stats import LIKE_THESE, Component, Interval, Mean
from analysis.tables import interval

TOO_FEW = "it needs more drafted depths, rounds or prompts."
Values = npt.NDArray[np.float64]
Unit = tuple[str, object]


@dataclass(frozen=True)
class Pass:
    """The trunk's pass by its rows, in ms."""

    rows: tuple[float, ...]  # measured numbers of rows
    pass_ms: tuple[float, ...]  # of those rows
    line: tuple[float, float] | None  # its constant and slope, unless a bend was seen

    def __call__(self, rows: float) -> float:
        """Return the time of some rows; beyond those measured the last slope goes on."""
        if self.line is not None:
            return self.line[0] + self.line[1] * rows
        x, y = self.rows, self.pass_ms
        if rows > x[-1]:
            return y[-1] + (rows - x[-1]) * (y[-1] - y[-2]) / (x[-1] - x[-2])
        if rows < x[0]:
            return y[0] + (rows - x[0]) * (y[1] - y[0]) / (x[1] - x[0])
        return float(np.interp(rows, x, y))


@dataclass(frozen=True)
class Costs:
    """The parts of a step time as functions of depth, in ms; lines are a constant and a slope."""

    draft: tuple[float, float]
    catch_up: tuple[float, float]
    rest: tuple[float, float]
    rest_alone: float  # where nothing is drafted
    trunk: Pass
    head: float  # by how much a pass is dearer in a step that drafts

    def step_ms(self, depth: int) -> float:
        """Return the time of a step at a depth."""
        if not depth:
            return self.trunk(1) + self.rest_alone
        lines = (self.draft, self.catch_up, self.rest)
        return self.head * self.trunk(depth + 1) + sum(a + b * depth for a, b in lines)


def costs(pieces: Pieces, without: int | None = None, *, strict: bool = False) -> Costs:
    """Return the costs from all depths but one; `strict` also leaves out its number of rows.

    Raises
    ------
    ValueError
        If too few depths are left.
    """
    drafted = [d for d in pieces.depths if d > 0 and d != without]
    with_rows = sorted(int(d) for d in set(pieces.frame[pieces.frame["arm"] == "rows"]["depth"]))
    rows = [d for d in with_rows if not (strict and d == without)]
    if not drafted or len(rows) < 2:
        raise ValueError("two drafted depths and three numbers of rows are needed")
    trunk = _pass(pieces, rows)
    dearer = [math.log(pieces.mean("natural", d, "verify") / trunk(d + 1)) for d in drafted]
    draft, catch_up, rest = (
        _line(drafted, [pieces.mean("natural", d, part) for d in drafted])
        for part in ("draft", "catch up", "rest")
    )
    alone = pieces.mean("rows", rows[0], "rest")
    return Costs(draft, catch_up, rest, alone, trunk, math.exp(sum(dearer) / len(dearer)))


def _pass(pieces: Pieces, depths: list[int]) -> Pass:
    """Return the pass by its rows, as a line where the launches do not show a bend."""
    own = pieces.frame[(pieces.frame["arm"] == "rows") & pieces.frame["depth"].isin(depths)]
    logs = own.assign(log=np.log(own["verify"].to_numpy(dtype=float)))
    launches = logs.groupby(["depth", "round"])["log"].mean().unstack("round")
    table = np.exp(launches.loc[depths].to_numpy(dtype=float))
    x, y = np.array(depths, dtype=float) + 1, np.exp(np.nanmean(np.log(table), axis=1))
    line = _straight(x, y, table)
    return Pass(tuple(x.tolist()), tuple(y.tolist()), line)


def _straight(x: Values, y: Values, table: Values) -> tuple[float, float] | None:
    """Return the line through the means, or None where it does not fit the launches.

    Relative errors are taken as equal: each mean weighs as one over its square.
    """
    if len(x) < 3:
        return None
    slope, constant = np.polyfit(x, y, 1, w=1 / y)
    counts = (~np.isnan(table)).sum(axis=1)
    off = float((counts * ((constant + slope * x - y) / y) ** 2).sum()) / (len(x) - 2)
    spread = float(np.nansum((table / y[:, None] - 1) ** 2))
    freedom = int(counts.sum()) - len(x)
    if freedom < 1:
        return None
    noise = max(spread / freedom, 1e-12)
    bent = off / noise > float(scipy_stats.f.ppf(0.95, len(x) - 2, freedom))
    return None if bent else (float(constant), float(slope))


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Return the constant and slope of a straight line; through zero where there is one point."""
    if len(x) == 1:
        return 0.0, y[0] / x[0]
    slope, constant = np.polyfit(x, y, 1)
    return float(constant), float(slope)


def tokens(pieces: Pieces, depth: int, without: int | None = None) -> dict[tuple[str, str], float]:
    """Return tokens per step at a depth for each text, from its drafts of other depths."""
    found: dict[tuple[str, str], float] = {}
    natural = pieces.frame[(pieces.frame["arm"] == "natural") & (pieces.frame["depth"] > 0)]
    for workload in pieces.workloads:
        own = natural[(natural["workload"] == workload) & (natural["depth"] != without)]
        beyond = _conditional(own, depth) if depth else np.zeros(0)
        for prompt, text in own.groupby("prompt_id"):
            offered, accepted = _sums(text, depth)
            a, before = [], 1.0
            for k in range(depth):
                before = accepted[k] / offered[k] if offered[k] > 0 else before * float(beyond[k])
                a.append(before)
            found[workload, str(prompt)] = 1.0 + sum(a)
    return found


def _sums(text: pd.DataFrame, depth: int) -> tuple[Values, Values]:
    """Return the counts by position over some requests, up to a depth."""
    sums = np.zeros((2, depth))
    for row, name in enumerate(("offered", "accepted")):
        for counts in text[name]:
            known = min(len(counts), depth)
            sums[row, :known] += counts[:known]
    return sums[0], sums[1]


def _conditional(own: pd.DataFrame, depth: int) -> Values:
    """Return the conditional chance at each position by the log-odds line of a workload."""
    offered, accepted = _sums(own, depth)
    reached = np.concatenate([offered[:1], np.minimum(accepted[:-1], offered[1:])])
    first, slope = acceptance.log_odds_line(accepted[None, None], reached[None, None])
    return np.asarray(special.expit(first + slope * np.arange(depth)))


def predicted(
    pieces: Pieces, depth: int, without: int | None = None, *, strict: bool = False
) -> dict[tuple[str, str], float]:
    """Return the logarithm of the predicted speed in tok/s of each text at a depth."""
    step_ms = costs(pieces, without, strict=strict).step_ms(depth)
    return {
        text: math.log(1e3 * count / step_ms)
        for text, count in tokens(pieces, depth, without).items()
    }


def measured(pieces: Pieces, depth: int) -> dict[tuple[str, str], float]:
    """Return the mean logarithm of the measured speed of each text at a depth."""
    own = pieces.at("natural", depth)
    speed = 1e3 * own["tokens"] / own[list(PARTS)].sum(axis=1)
    found: dict[tuple[str, str], list[float]] = {}
    for workload, prompt, value in zip(own["workload"], own["prompt_id"], speed, strict=True):
        found.setdefault((workload, prompt), []).append(math.log(value))
    return {text: sum(logs) / len(logs) for text, logs in found.items()}


def _over_workloads(by_text: dict[tuple[str, str], float]) -> float:
    """Return the mean over the workloads of the mean over their texts."""
    own = pd.Series(by_text)
    return float(own.groupby(level=0).mean().mean())


@dataclass(frozen=True)
class Check:
    """One depth left out: logarithms of its predicted and measured speed, and of their ratio."""

    depth: int
    predicted: Mean
    measured: Mean
    error: Mean  # predicted against measured

    def interval(self, what: str, scope: str = LIKE_THESE) -> Interval:
        """Return ``predicted`` or ``measured`` in tok/s, or ``error`` as a ratio."""
        mean: Mean = getattr(self, what)
        return mean.interval(scope).map(math.exp)

    @property
    def off(self) -> float:
        """The size of the error, as a share of the measured speed."""
        return abs(math.expm1(self.error.estimate))


def leave_one_out(pieces: Pieces, *, strict: bool = False) -> list[Check]:
    """Predict each depth without itself, and compare with what was measured there."""
    return [_check(pieces, depth, strict=strict) for depth in pieces.depths]


def both(pieces: Pieces) -> tuple[list[Check], list[Check]] | None:
    """Return the check, and the stricter one; None where too few depths were measured for it."""
    try:
        return leave_one_out(pieces), leave_one_out(pieces, strict=True)
    except ValueError:
        return None


def _check(pieces: Pieces, depth: int, *, strict: bool) -> Check:
    def parts_of(own: Pieces) -> tuple[float, float, float]:
        guess = _over_workloads(predicted(own, depth, depth, strict=strict))
        truth = _over_workloads(measured(own, depth))
        return guess, truth, guess - truth

    whole = parts_of(pieces)
    left: dict[str, list[tuple[float, float, float]]] = {"round": [], "prompt": []}
    for unit in pieces.units():
        left[unit[0]].append(parts_of(pieces.without(unit)))
    means = []
    for place in range(3):
        parts = tuple(
            _jackknife([values[place] for values in own], unit) for unit, own in left.items()
        )
        means.append(Mean(whole[place], parts))
    return Check(depth, *means)


def _jackknife(values: list[float], unit: str) -> Component:
    """Return the variance of an estimate from its values with each unit left out."""
    n = len(values)
    if n < 2:
        return Component(math.inf, n - 1, unit)
    squares = float(((np.array(values) - np.mean(values)) ** 2).sum())
    return Component((n - 1) / n * squares, n - 1, unit)


def table(checks: list[Check], strict: list[Check], server: Sweep) -> pd.DataFrame:
    """Return the check by depth: predicted, measured, and how far off; llama-server's speed too."""
    rows = {}
    name = list(server.groups())[-1]
    for check, harder in zip(checks, strict, strict=True):
        there = server.has_speed(name, check.depth)
        rows[check.depth] = {
            "predicted tok/s": interval(check.interval("predicted")),
            "measured tok/s": interval(check.interval("measured")),
            "predicted / measured": interval(check.interval("error")),
            "its rows left out too": interval(harder.interval("error")),
            "llama-server tok/s": interval(
                server.cell(name, check.depth).interval("tok_s", LIKE_THESE) if there else None
            ),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def sentence(checks: list[Check], strict: list[Check]) -> str:
    """Return how far the prediction was off, as one sentence."""
    worst, harder = (max(own, key=lambda c: c.off) for own in (checks, strict))
    return (
        "Predicted from its pieces without itself, the tracer's speed at a depth is off by at "
        f"most {worst.off:.0%} (depth {worst.depth}: predicted / measured "
        f"{interval(worst.interval('error'))}); where its number of rows is left out as well, by "
        f"at most {harder.off:.0%} (depth {harder.depth}: {interval(harder.interval('error'))})."
    )
