"""Acceptance by position, and whether it falls faster than a constant chance would.

With `a_k` the share of drafts whose first k tokens were all accepted (of those that offered k) and
``c_k = a_k / a_(k-1)``, a constant conditional chance alpha gives ``a_k = alpha^k`` (Leviathan,
Kalman and Matias 2023, section 3.1): the geometric line. Its maximum-likelihood estimate is
accepted over *reached* positions: those offered whose predecessors were all accepted. The model
beside it lets the log-odds of the conditional chance change by a constant with each position; a
slope below zero is a decay faster than geometric.

Steps of one text are alike, so that texts, not steps, are the units of every interval. A seed fixes
the text up to rounding, so that a single launch is no lack here: with one round the intervals are
those of the prompts alone, and there is none *on these prompts*. The likelihood ratio of the two
models is given as well, but it takes steps for independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import optimize, special
from scipy import stats as scipy_stats

from analysis import stats
from analysis.speculation import count, offered_per_position
from analysis.stats import Component, Interval, Mean

Counts = npt.NDArray[np.float64]  # rounds x prompts x positions
Cells = dict[tuple[int, str], tuple[Counts, ...]]  # by round and prompt: counts by position
Grid = tuple[list[int], list[str]]  # rounds and prompts


@dataclass(frozen=True)
class Positions:
    """Counts by position of one workload's texts; NaN where a round lacks a prompt."""

    offered: Counts  # drafts that offered the position
    reached: Counts  # of these, whose earlier positions were all accepted
    accepted: Counts  # of these, accepted

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return len(self.offered)

    @property
    def depth(self) -> int:
        """The number of positions."""
        return int(self.offered.shape[2])

    def a(self, k: int) -> Mean | None:
        """Return the chance that the first `k` are all accepted; None where none was offered."""
        return _ratio(self.accepted[:, :, k - 1], self.offered[:, :, k - 1])

    def c(self, k: int) -> Mean | None:
        """Return the chance of position `k` given the ones before; None where never reached."""
        return _ratio(self.accepted[:, :, k - 1], self.reached[:, :, k - 1])

    def alpha(self) -> Mean | None:
        """Return the constant conditional chance, by maximum likelihood."""
        return _ratio(self.accepted.sum(axis=2), self.reached.sum(axis=2))

    def interval(self, k: int, kind: str, scope: str) -> Interval | None:
        """Return the interval of ``a`` or ``c`` at a position, within [0, 1].

        Where all or none were kept, texts show no spread. The far bound is then that of Clopper and
        Pearson (1934) for as many independent drafts as these are worth: their number over the
        design effect of the first position (Korn and Graubard 1998).
        """
        mean = self.a(k) if kind == "a" else self.c(k)
        if mean is None:
            return None
        found = mean.share(scope)
        if mean.estimate not in (0.0, 1.0) or scope != stats.LIKE_THESE:
            return found
        trials = float(np.nansum((self.offered if kind == "a" else self.reached)[:, :, k - 1]))
        far = 1 - ((1 - stats.CONFIDENCE) / 2) ** (self._design_effect() / trials)
        return Interval(0.0, 0.0, far) if mean.estimate == 0 else Interval(1.0, 1.0 - far, 1.0)

    def _design_effect(self) -> float:
        """Return how many drafts of these are worth one independent draft, at least 1."""
        first = self.a(1)
        if first is None or not 0 < first.estimate < 1:
            return 1.0
        variance = sum(c.variance for c in first.components if c.unit == "prompt")
        drafts = float(np.nansum(self.offered[:, :, 0]))
        found = variance * drafts / (first.estimate * (1 - first.estimate))
        return max(found, 1.0) if math.isfinite(found) else drafts

    def slope(self) -> Mean | None:
        """Return the change of the log-odds of acceptance with each position.

        Its variance is the delete-one jackknife's. None where fewer than two positions were ever
        reached.
        """
        if (np.nansum(self.reached, axis=(0, 1)) > 0).sum() < 2:
            return None
        parts = []
        for axis, unit in ((0, "round"), (1, "prompt")):
            n = self.reached.shape[axis]
            if n < 2:
                if unit == "prompt":
                    parts.append(Component(math.inf, n - 1, unit))
                continue
            both = (self.accepted, self.reached)
            left = [log_odds_line(*(np.delete(x, i, axis=axis) for x in both))[1] for i in range(n)]
            variance = (n - 1) / n * float(np.sum((np.array(left) - np.mean(left)) ** 2))
            parts.append(Component(variance, n - 1, unit))
        return Mean(log_odds_line(self.accepted, self.reached)[1], tuple(parts))

    def likelihood_ratio(self) -> tuple[float, float]:
        """Return twice the gain in log likelihood of the second model, and its p-value.

        One degree of freedom; right only if steps were independent (Wilks 1938).
        """
        accepted, reached = (np.nansum(x, axis=(0, 1)) for x in (self.accepted, self.reached))
        constant = np.full(len(reached), accepted.sum() / reached.sum())
        first, slope = log_odds_line(self.accepted, self.reached)
        falling = special.expit(first + slope * np.arange(len(reached)))
        gain = 2 * (_log_likelihood(accepted, reached, falling) - _log_likelihood(
            accepted, reached, constant))  # fmt: skip
        return max(gain, 0.0), float(scipy_stats.chi2.sf(max(gain, 0.0), 1))


def _ratio(numerator: Counts, denominator: Counts) -> Mean | None:
    if np.nansum(denominator) == 0:
        return None
    mean = stats.ratio(numerator, denominator)
    single = len(numerator) == 1
    return Mean(
        mean.estimate, tuple(c for c in mean.components if c.unit == "prompt" or not single)
    )


def _log_likelihood(accepted: Counts, reached: Counts, chance: Counts) -> float:
    return float(np.sum(special.xlogy(accepted, chance) + special.xlog1py(
        reached - accepted, -chance)))  # fmt: skip


def log_odds_line(accepted: Counts, reached: Counts) -> tuple[float, float]:
    """Return log-odds at the first position and their change by position, most likely."""
    s, n = (np.nansum(x, axis=(0, 1)) for x in (accepted, reached))
    k = np.arange(len(n))
    # Half an acceptance and half a refusal a position keep the estimate finite where all or none
    # were accepted (Haldane and Anscombe's correction).
    s, n = s + 0.5 * (n > 0), n + 1.0 * (n > 0)

    def loss(x: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        eta = x[0] + x[1] * k
        residual = n * special.expit(eta) - s
        value = float(np.sum(n * np.logaddexp(0, eta) - s * eta))
        return value, np.array([residual.sum(), (residual * k).sum()])

    start = np.array([special.logit(s.sum() / n.sum()), 0.0])
    found = optimize.minimize(loss, start, jac=True, method="BFGS")
    return float(found.x[0]), float(found.x[1])


def of_samples(
    timed: pd.DataFrame, workload: str, depth: int, grid: Grid | None = None
) -> Positions | None:
    """Return the counts of one depth's samples, or None where the engine gave no counters.

    The counts have the rounds and prompts of `grid`, or those that are there.

    The servers count accepted positions only; offered ones follow from the drafts' lengths
    (:func:`~analysis.speculation.offered_per_position`). A position counts as reached in the share
    of the drafts that accepted its predecessor in which it was offered at all.
    """
    own = timed[
        (timed["workload"] == workload)
        & (timed["depth"] == depth)
        & timed["accepted_per_position"].notna()
        & timed["drafts"].notna()
    ]
    if own.empty or depth == 0:
        return None
    cells: Cells = {}
    for row in own.to_dict("records"):
        given = row["accepted_per_position"][:depth]
        accepted = np.zeros(depth)
        accepted[: len(given)] = given
        drafts, drafted = count(row["drafts"]), count(row["draft_n"])
        offered = np.array(offered_per_position(depth, drafts, drafted), dtype=float)
        before = np.concatenate([[offered[0]], accepted[:-1]])
        share = np.divide(
            offered, np.concatenate([[offered[0]], offered[:-1]]),
            out=np.zeros(depth), where=offered > 0,
        )  # fmt: skip
        reached = np.maximum(before * share, accepted)
        cells[int(row["round"]), str(row["prompt_id"])] = (offered, reached, accepted)
    return _positions(cells, depth, grid)


def of_steps(steps: pd.DataFrame, workload: str, depth: int) -> Positions | None:
    """Return the exact counts of one depth's traced steps, or None without any draft."""
    own = steps[(steps["workload"] == workload) & (steps["depth"] == depth)]
    cells: Cells = {}
    for (number, prompt), text in own.groupby(["round", "prompt_id"]):
        counts = np.zeros((3, depth))
        for drafted, accepted in zip(text["drafted"], text["accepted"], strict=True):
            counts[0, : len(drafted)] += 1
            counts[1, : min(len(drafted), accepted + 1)] += 1
            counts[2, :accepted] += 1
        cells[int(str(number)), str(prompt)] = tuple(counts)
    return _positions(cells, depth) if cells else None


def _positions(cells: Cells, depth: int, grid: Grid | None = None) -> Positions:
    rounds, prompts = grid or (sorted({r for r, _ in cells}), sorted({p for _, p in cells}))
    found = np.full((3, len(rounds), len(prompts), depth), np.nan)
    for (r, p), counts in cells.items():
        found[:, rounds.index(r), prompts.index(p)] = counts
    return Positions(*found)


def calibration(steps: pd.DataFrame, edges: Sequence[float]) -> pd.DataFrame:
    """Return acceptance by the draft's own probability, over the positions that were reached.

    Rows are bins of probability; columns ``n``, ``texts``, ``probability`` (mean in the bin) and
    ``accepted`` (a :class:`~analysis.stats.Mean` with texts as units).
    """
    texts = (steps["workload"] + "/" + steps["prompt_id"]).tolist()
    rows = [
        (text, p, place < accepted)
        for text, probabilities, accepted in zip(
            texts, steps["draft_probabilities"].tolist(), steps["accepted"].tolist(), strict=True
        )
        for place, p in enumerate(probabilities)
        if place <= accepted
    ]
    flat = pd.DataFrame(rows, columns=["text", "p", "accepted"])
    flat["bin"] = pd.cut(flat["p"], list(edges), include_lowest=True)
    found: dict[Any, dict[str, Any]] = {}
    for interval, own in flat.groupby("bin", observed=True):
        by_text = own.groupby("text")["accepted"].agg(["sum", "count"]).to_numpy(dtype=float)
        found[interval] = {
            "n": len(own),
            "texts": len(by_text),
            "probability": float(own["p"].mean()),
            "accepted": _ratio(by_text[None, :, 0], by_text[None, :, 1]),
        }
    return pd.DataFrame.from_dict(found, orient="index")
