"""Speed at a depth that was not measured, from pieces that were, and how far that is off.

    speed(n) = tokens(n) / step time(n),
    tokens(n) = 1 + a_1 + ... + a_n,
    step time(n) = draft(n) + verify(n + 1 rows) + catch up(n + 1 rows) + rest(n).

``a_k`` is read for each text from its drafts of other depths; positions that none of them reached
follow the log-odds line of the workload (:mod:`analysis.acceptance`). The verifying pass as a
function of its rows is measured apart, with rows that nobody drafted; between measured numbers of
rows it is a straight line. Draft, catching up and rest are straight lines in depth.

Leaving a depth out means that nothing drafted at that depth is used. A stricter check leaves out
the verifying pass of its number of rows as well. At depth 0 the pass of one row *is* the speed,
measured a second time.

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

from analysis import acceptance
from analysis.pieces import PARTS, Pieces
from analysis.stats import LIKE_THESE, Component, Interval, Mean
from analysis.tables import interval

Values = npt.NDArray[np.float64]
Unit = tuple[str, object]


@dataclass(frozen=True)
class Costs:
    """The parts of a step time as functions of depth, in ms."""

    draft: tuple[float, float]  # at no guess, and for each
    catch_up: tuple[float, float]
    rest: tuple[float, float]
    rows: tuple[float, ...]  # measured numbers of rows
    verify_ms: tuple[float, ...]  # of those rows

    def step_ms(self, depth: int) -> float:
        """Return the time of a step at a depth."""
        lines = [self.rest] + ([self.draft, self.catch_up] if depth else [])
        return self.verify(depth + 1) + sum(a + b * depth for a, b in lines)

    def verify(self, rows: int) -> float:
        """Return the verifying pass of some rows; beyond those measured the last slope goes on."""
        x, y = self.rows, self.verify_ms
        if len(x) > 1 and rows > x[-1]:
            return y[-1] + (rows - x[-1]) * (y[-1] - y[-2]) / (x[-1] - x[-2])
        if len(x) > 1 and rows < x[0]:
            return y[0] + (rows - x[0]) * (y[1] - y[0]) / (x[1] - x[0])
        return float(np.interp(rows, x, y))


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
    return Costs(
        _line(drafted, [_mean(pieces, "natural", d, "draft") for d in drafted]),
        _line(drafted, [_mean(pieces, "natural", d, "catch up") for d in drafted]),
        _line(rows, [_mean(pieces, "rows", d, "rest") for d in rows]),
        tuple(d + 1 for d in rows),
        tuple(_mean(pieces, "rows", d, "verify") for d in rows),
    )


def _mean(pieces: Pieces, arm: str, depth: int, part: str) -> float:
    """Return the geometric mean of a part over the requests of an arm at a depth."""
    values = pieces.at(arm, depth)[part].to_numpy(dtype=float)
    return float(np.exp(np.log(np.maximum(values, 1e-9)).mean()))


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


def table(checks: list[Check], strict: list[Check]) -> pd.DataFrame:
    """Return the check by depth: predicted, measured, and how far off."""
    rows = {}
    for check, harder in zip(checks, strict, strict=True):
        rows[check.depth] = {
            "predicted tok/s": interval(check.interval("predicted")),
            "measured tok/s": interval(check.interval("measured")),
            "predicted / measured": interval(check.interval("error")),
            "its rows left out too": interval(harder.interval("error")),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def sentence(checks: list[Check], strict: list[Check]) -> str:
    """Return how far the prediction was off, as one sentence."""
    worst, harder = (max(own, key=lambda c: c.off) for own in (checks, strict))
    return (
        f"Predicted from its pieces without itself, the speed of a depth is off by at most "
        f"{worst.off:.0%} (depth {worst.depth}); where its number of rows is left out as well, by "
        f"at most {harder.off:.0%} (depth {harder.depth})."
    )
