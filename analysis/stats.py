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
of five launches is too narrow by a third.

A bound reaches ``sqrt(sum_i (t_i s_i)^2)`` from the estimate, each term with Student's t of its
own degrees of freedom (the form of Graybill and Wang, Confidence intervals on nonnegative linear
combinations of variances, 1980). More variance of any kind then always widens it, which is not so
with pooled degrees of freedom (Satterthwaite), and the second interval never is the narrower.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

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

    variance: float  # weighted
    freedom: float
    unit: str  # "round" or "prompt"
    weight: float = 1.0
    looks: float = 1.0  # tries at a wrong bound that its part of the tail is shared out over


@dataclass(frozen=True)
class Mean:
    """A mean and where its variance comes from."""

    estimate: float
    components: tuple[Component, ...]
    rounds: int = 0  # that it rests on; 0 where rounds are no unit

    def reach(self, scope: str, tail: float, rounds_factor: float = 1.0) -> float:
        """Return how far a bound that is wrong with probability `tail` lies from the estimate.

        Infinite where a unit is single. `rounds_factor` tells what it would be with that many
        times the rounds, variances staying as they are.
        """
        units = ("round",) if scope == ON_THESE else ("round", "prompt")
        total = 0.0
        for c in self.components:
            if c.unit not in units or c.weight == 0:
                continue
            if c.freedom < 1:
                return math.inf
            factor = rounds_factor if c.unit == "round" else 1.0
            freedom = (c.freedom + 1) * factor - 1
            total += _quantile(tail / c.looks, freedom) ** 2 * c.variance / factor
        return math.sqrt(total)

    def bounds(self, scope: str, tail: float) -> tuple[float, float]:
        """Return lower and upper bound, each wrong with probability `tail`."""
        reach = self.reach(scope, tail)
        return self.estimate - reach, self.estimate + reach

    def interval(self, scope: str) -> Interval:
        """Return the two-sided 95% interval."""
        return Interval(self.estimate, *self.bounds(scope, (1 - CONFIDENCE) / 2))

    def positive(self, scope: str) -> Interval:
        """Return the 95% interval of a positive quantity, on the logarithmic scale."""
        reach = self.reach(scope, (1 - CONFIDENCE) / 2)
        if self.estimate <= 0 or not math.isfinite(reach):
            return self.interval(scope)
        factor = math.exp(min(reach / self.estimate, 700.0))
        return Interval(self.estimate, self.estimate / factor, self.estimate * factor)

    def share(self, scope: str) -> Interval:
        """Return the 95% interval of a share: on the log-odds scale, so that it stays in [0, 1].

        A share of exactly 0 or 1 has no spread to read one from, and stands alone.
        """
        p = self.estimate
        reach = self.reach(scope, (1 - CONFIDENCE) / 2)
        if not 0 < p < 1 or not math.isfinite(reach):
            return self.interval(scope)
        odds, half = math.log(p / (1 - p)), reach / (p * (1 - p))
        return Interval(p, *(1 / (1 + math.exp(-x)) for x in (odds - half, odds + half)))


@functools.lru_cache(maxsize=4096)
def _quantile(tail: float, freedom: float) -> float:
    """Return Student's t that is exceeded with probability `tail`; a verdict asks thousands."""
    return float(scipy_stats.t.ppf(1 - tail, freedom))


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
    present = common_rounds(tables)
    if not present.any():
        raise ValueError("the workloads have no round in common")
    filled = [_filled(t[present]) for t in tables]
    by_round = np.sum([w * t.mean(axis=1) for w, t in zip(shares, filled, strict=True)], axis=0)
    parts = [_component(by_round, 1.0, "round")]
    parts += [
        _component(t.mean(axis=0), float(w), "prompt") for w, t in zip(shares, filled, strict=True)
    ]
    return Mean(float(by_round.mean()), tuple(parts), len(by_round))


def by_round(tables: Sequence[Table], weights: Sequence[float]) -> Table:
    """Return the weighted mean of each round, NaN for a round that some workload lacks."""
    present = common_rounds(tables)
    values = np.full(len(present), np.nan)
    if present.any():
        parts = [_filled(t[present]).mean(axis=1) for t in tables]
        values[present] = np.average(parts, axis=0, weights=weights)
    return values


def common_rounds(tables: Sequence[Table]) -> npt.NDArray[np.bool_]:
    """Tell for each round whether every workload has a value in it."""
    there: npt.NDArray[np.bool_] = np.all([~np.isnan(t).all(axis=1) for t in tables], axis=0)
    return there


def _component(values: Table, weight: float, unit: str) -> Component:
    n = len(values)
    variance = float(values.var(ddof=1)) / n if n > 1 else math.inf
    return Component(weight**2 * variance if weight else 0.0, n - 1, unit, weight)


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
    there = ~np.isnan(denominator)
    rounds, prompts = there.any(axis=1), there.any(axis=0)
    numerator, denominator = (t[np.ix_(rounds, prompts)] for t in (numerator, denominator))
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


@dataclass(frozen=True)
class Noise:
    """The variance of one launch's value, and its degrees of freedom (0: not known)."""

    variance: float
    freedom: float


def launch_noise(values: Table) -> Noise:
    """Return what launches scatter beyond their round and their depth.

    `values` is rounds x depths, NaN where a depth was not launched: the residual mean square of
    the additive two-way layout, by least squares. It takes all depths to scatter alike.
    """
    there = ~np.isnan(values)
    rounds, depths = np.nonzero(there)
    rows = np.arange(len(rounds))
    design = np.zeros((len(rows), sum(values.shape)))
    design[rows, rounds] = design[rows, values.shape[0] + depths] = 1.0
    fit, _, rank, _ = np.linalg.lstsq(design, values[there], rcond=None)
    freedom = len(rows) - int(rank)
    residual = values[there] - design @ fit
    return Noise(float(residual @ residual) / freedom if freedom else math.inf, freedom)


def looked_at(difference: Mean, noise: Noise, looks: float) -> Mean:
    """Return a difference of two depths as data have it that chose their own rounds.

    The larger of its own variance over the rounds and that of `noise`, of the launches of all
    depths, counts, with the degrees of freedom of `noise`: a depth that scatters more than the
    others keeps its own. The tail of the rounds' noise is shared out over `looks`; prompts and
    their error are the same at each look.
    """

    def known(c: Component) -> Component:
        if c.unit != "round":
            return c
        if not noise.freedom:
            return replace(c, looks=looks)
        own = c.variance if c.freedom >= 1 else 0.0
        shared = 2 * noise.variance / (c.freedom + 1)
        freedom = max(c.freedom, noise.freedom)
        return replace(c, variance=max(own, shared), freedom=freedom, looks=looks)

    return replace(difference, components=tuple(known(c) for c in difference.components))


def combine(means: Sequence[Mean], weights: Sequence[float]) -> Mean:
    """Return a weighted mean of means that are independent of each other."""
    shares = np.asarray(weights, dtype=float) / float(np.sum(weights))
    parts = [
        Component(float(w) ** 2 * c.variance, c.freedom, c.unit, float(w))
        for w, m in zip(shares, means, strict=True)
        for c in m.components
    ]
    estimate = float(sum(w * m.estimate for w, m in zip(shares, means, strict=True)))
    return Mean(estimate, tuple(parts))
