"""Intervals from rounds and prompts that are crossed: every round decodes every prompt.

Two questions, two intervals, both at 95%:

- *on these prompts*: how far would the number move if these prompts were launched again? The
  rounds (launches) are the units.
- *for prompts like these*: how far would it move with other prompts of the kind as well? Rounds
  and prompts are both units.

With `R` rounds and `P` prompts, the mean over a complete table has the variance
``s_R^2 / R + s_P^2 / P`` for the second question, where ``s_R^2`` and ``s_P^2`` are the variances
of the round means and of the prompt means; the first question has the first term alone. The sum
counts the interaction once too often, so it errs to the wide side, as the pigeonhole bootstrap
does (Owen, The pigeonhole bootstrap, 2007). Student's t replaces resampling because a bootstrap
of five launches is too narrow by a third; the degrees of freedom of a sum of variances are
Satterthwaite's (An approximate distribution of estimates of variance components, 1946).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats as scipy_stats

Table = npt.NDArray[np.float64]  # rounds x prompts
ON_THESE, LIKE_THESE = "on these prompts", "for prompts like these"
SCOPES = (ON_THESE, LIKE_THESE)
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95% interval; bounds are infinite where there is one unit only."""

    estimate: float
    low: float
    high: float

    def map(self, function: object) -> Interval:
        """Return the interval of an increasing function of the quantity."""
        f = function
        return Interval(f(self.estimate), f(self.low), f(self.high))  # type: ignore[operator]


@dataclass(frozen=True)
class Component:
    """One source of variance of a mean: its variance, degrees of freedom, and unit."""

    variance: float
    freedom: float
    unit: str  # "round" or "prompt"


@dataclass(frozen=True)
class Mean:
    """A mean and where its variance comes from."""

    estimate: float
    components: tuple[Component, ...]

    def spread(self, scope: str, rounds_factor: float = 1.0) -> tuple[float, float]:
        """Return standard error and degrees of freedom; infinite and 1 where a unit is single.

        `rounds_factor` tells what they would be with that many times the rounds.
        """
        units = ("round",) if scope == ON_THESE else ("round", "prompt")
        chosen = [c for c in self.components if c.unit in units]
        if any(c.freedom < 1 for c in chosen):
            return math.inf, 1.0
        scaled = [
            (c.variance / rounds_factor, (c.freedom + 1) * rounds_factor - 1)
            if c.unit == "round"
            else (c.variance, c.freedom)
            for c in chosen
        ]
        total = sum(v for v, _ in scaled)
        if total == 0:
            return 0.0, min(f for _, f in scaled)
        freedom = total**2 / sum(v**2 / f for v, f in scaled)
        return math.sqrt(total), freedom

    def bounds(self, scope: str, tail: float) -> tuple[float, float]:
        """Return lower and upper bound, each wrong with probability `tail`."""
        error, freedom = self.spread(scope)
        if math.isinf(error):
            return -math.inf, math.inf
        reach = float(scipy_stats.t.ppf(1 - tail, freedom)) * error
        return self.estimate - reach, self.estimate + reach

    def interval(self, scope: str) -> Interval:
        """Return the two-sided 95% interval."""
        return Interval(self.estimate, *self.bounds(scope, (1 - CONFIDENCE) / 2))


def mean(tables: Sequence[Table], weights: Sequence[float] | None = None) -> Mean:
    """Return the weighted mean of one table a workload, each of rounds x prompts.

    Rounds are shared by the workloads (a launch decodes them all), prompts are not. Cells that
    are missing (NaN) are filled from their round and prompt; rounds or prompts without any value
    are left out.

    Raises
    ------
    ValueError
        If a table has no value at all, or the tables have no round in common.
    """
    shares = np.asarray(weights if weights is not None else [1.0] * len(tables), dtype=float)
    if len(shares) != len(tables) or not len(tables) or (shares < 0).any() or shares.sum() <= 0:
        raise ValueError(f"one weight a table, not negative: {len(tables)} and {shares.tolist()}")
    shares = shares / shares.sum()
    present = np.all([~np.isnan(t).all(axis=1) for t in tables], axis=0)
    if not present.any():
        raise ValueError("the workloads have no round in common")
    filled = [_filled(t[present]) for t in tables]
    by_round = np.sum([w * t.mean(axis=1) for w, t in zip(shares, filled, strict=True)], axis=0)
    parts = [_component(by_round, 1.0, "round")]
    parts += [
        _component(t.mean(axis=0), float(w), "prompt")
        for w, t in zip(shares, filled, strict=True)
        if w > 0
    ]
    return Mean(float(by_round.mean()), tuple(parts))


def _component(values: Table, weight: float, unit: str) -> Component:
    n = len(values)
    variance = float(values.var(ddof=1)) / n if n > 1 else math.inf
    return Component(weight**2 * variance, n - 1, unit)


def _filled(table: Table) -> Table:
    """Drop prompts without a value and fill missing cells as round + prompt - all."""
    table = table[:, ~np.isnan(table).all(axis=0)]
    if table.size == 0:
        raise ValueError("no value at all")
    missing = np.isnan(table)
    if not missing.any():
        return table
    filled = np.where(missing, np.nanmean(table), table)
    for _ in range(100):
        additive = (
            filled.mean(axis=1, keepdims=True) + filled.mean(axis=0, keepdims=True) - filled.mean()
        )
        filled = np.where(missing, additive, table)
    return np.asarray(filled, dtype=float)


def ratio(numerator: Table, denominator: Table) -> Mean:
    """Return a ratio of sums, such as accepted / drafted, with its linearized variance.

    Both tables are rounds x prompts. The residuals ``numerator - ratio * denominator``, summed
    by round and by prompt, carry the variance (Cochran, Sampling Techniques, 1977, chapter 6),
    so that steps of one text are not taken for independent.

    Raises
    ------
    ValueError
        If the denominator sums to zero.
    """
    total = float(np.nansum(denominator))
    if total == 0:
        raise ValueError("the denominator sums to zero")
    value = float(np.nansum(numerator)) / total
    residual = np.nan_to_num(numerator - value * denominator)
    parts = []
    for axis, unit in ((1, "round"), (0, "prompt")):
        sums = residual.sum(axis=axis)
        n = len(sums)
        variance = n / (n - 1) * float((sums**2).sum()) / total**2 if n > 1 else math.inf
        parts.append(Component(variance, n - 1, unit))
    return Mean(value, tuple(parts))
