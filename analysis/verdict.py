"""Which depth to use: the shallowest that loses nearly nothing, or `undecided`.

For each depth `d`, `R_d` is its speed over the speed of the best depth, `R_d = min_j S_d / S_j`,
with paired log ratios by round and prompt.

- `d` is *good enough* when the lower 95% bounds of all `S_d / S_j` are at least the tolerance. All
  must hold at once, so no correction is needed (an intersection-union test: Berger, 1982).
- `d` is *too slow* when some upper bound of `S_d / S_j` is below the tolerance, the bounds being
  shared out over the other depths (Bonferroni).
- From the shallowest depth on, depths that are too slow are passed over; the first that is not
  decides: it is the answer if it is good enough, and else the answer is `undecided`.

More noise of any kind widens all bounds. It can turn an answer into `undecided` and into nothing
else: a depth passed over had its estimate below the tolerance, so it can not become the answer.

The confidence set of best depths holds every depth that no other one beats, by the same bounds
with tolerance 1: multiple comparisons with the best (Hsu, Multiple Comparisons, 1996), with
Bonferroni's bounds in place of Dunnett's.

Where the data decided how many rounds were measured (:mod:`analysis.racing`), each of `K` looks at
them is a try at a wrong answer. The tail of the launches' noise is then shared out over
``1 + 2 (K - 1) / 3`` looks: looks at growing data agree with each other, and this many keep 5% in
simulations for 2 to 6 depths and up to 9 looks. The prompts' part keeps its tail: they are the
same at each look. Two rounds give one degree of freedom, with which nothing is ever clear; so the
noise of a launch is taken from all depths together, unless a pair of depths shows more of its own.
Where one depth scatters three times as much as the others, up to 10% are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis import stats
from analysis.stats import Mean, Table

TOLERANCE = 0.97
TAIL = 0.05
MOST_ROUNDS = 200  # beyond this, more rounds are no advice


@dataclass(frozen=True)
class DepthRatio:
    """A depth against the best: ratio of speeds, its bounds, and what follows."""

    depth: int
    ratio: float
    low: float  # lower 95% bound
    high: float  # upper 95% bound, shared out over the other depths
    maybe_best: bool


@dataclass(frozen=True)
class Verdict:
    """The answer for one workload or the mix, in one scope of :mod:`analysis.stats`."""

    workload: str
    scope: str
    tolerance: float
    recommended: int | None  # None: undecided
    candidates: tuple[int, ...]  # depths that the data leave as the answer
    confidence_set: tuple[int, ...]  # depths that may be the fastest
    fastest: int  # the depth of the highest estimate
    regret: float | None  # share of speed that the answer gives up against the best depth
    regret_high: float | None  # its upper 95% bound
    further_rounds: int | None  # that would likely settle it; None: settled, or not by rounds
    rivals: tuple[int, ...]  # depths that may beat the first candidate by more than is tolerated
    rounds: int  # that the verdict rests on
    ratios: tuple[DepthRatio, ...]

    @property
    def answer(self) -> str:
        """The recommended depth as text, or ``undecided``."""
        return "undecided" if self.recommended is None else str(self.recommended)


def decide(
    log_speed: Mapping[int, Sequence[Table]],
    workload: str,
    scope: str = stats.LIKE_THESE,
    weights: Sequence[float] | None = None,
    tolerance: float = TOLERANCE,
    looks: int = 0,
) -> Verdict:
    """Decide between depths.

    Parameters
    ----------
    log_speed
        For each depth, one table of rounds x prompts for each workload of the mix: the natural
        logarithm of tok/s, NaN where missing. Rows and columns mean the same at every depth, and
        all depths share at least one round. Two depths are compared over the rounds they share.
    weights
        Of the workloads in the mix; equal by default.
    looks
        How often the data could have ended the measuring; 0 for a plan that was fixed before.

    Raises
    ------
    ValueError
        If there is no depth, or the tolerance is not in (0, 1].
    """
    if not log_speed:
        raise ValueError("no depth to decide between")
    if not 0 < tolerance <= 1:
        raise ValueError(f"the tolerance must lie in (0, 1]: {tolerance}")
    depths = sorted(log_speed)
    pairs: dict[tuple[int, int], Mean] = {
        (d, j): stats.mean(
            [a - b for a, b in zip(log_speed[d], log_speed[j], strict=True)], weights
        )
        for d in depths
        for j in depths
        if d != j
    }
    rounds = max((m.rounds for m in pairs.values()), default=len(log_speed[depths[0]][0]))
    if looks:
        shares = weights or [1.0] * len(log_speed[depths[0]])
        by_round = [stats.by_round(log_speed[d], shares) for d in depths]
        noise = stats.launch_noise(np.array(by_round).T)
        tries = 1 + 2 * (looks - 1) / 3
        pairs = {k: stats.looked_at(m, noise, tries) for k, m in pairs.items()}
    ratios = tuple(_ratio(d, depths, pairs, scope) for d in depths)
    fastest = max(ratios, key=lambda r: (r.ratio, -r.depth)).depth
    contenders = [r for r in ratios if r.high >= tolerance]
    first = contenders[0]
    rivals = tuple(
        j
        for j in depths
        if j != first.depth and pairs[first.depth, j].bounds(scope, TAIL)[0] < math.log(tolerance)
    )
    decided = first.low >= tolerance
    return Verdict(
        workload=workload,
        scope=scope,
        tolerance=tolerance,
        recommended=first.depth if decided else None,
        candidates=(first.depth,) if decided else _candidates(contenders, tolerance),
        confidence_set=tuple(r.depth for r in ratios if r.maybe_best),
        fastest=fastest,
        regret=1 - first.ratio if decided else None,
        regret_high=1 - first.low if decided else None,
        further_rounds=None
        if decided
        else _further_rounds(first.depth, depths, pairs, scope, tolerance),
        rivals=rivals,
        rounds=rounds,
        ratios=ratios,
    )


def _candidates(contenders: list[DepthRatio], tolerance: float) -> tuple[int, ...]:
    """Return the depths up to the first that is good enough for sure."""
    found = []
    for r in contenders:
        found.append(r.depth)
        if r.low >= tolerance:
            break
    return tuple(found)


def _ratio(
    depth: int, depths: list[int], pairs: Mapping[tuple[int, int], Mean], scope: str
) -> DepthRatio:
    others = [pairs[depth, j] for j in depths if j != depth]
    if not others:
        return DepthRatio(depth, 1.0, 1.0, 1.0, maybe_best=True)
    low = min(m.bounds(scope, TAIL)[0] for m in others)
    high = min(m.bounds(scope, TAIL / len(others))[1] for m in others)
    # Against itself the ratio is 1, and the best of all depths is never slower than that.
    return DepthRatio(
        depth,
        math.exp(min(0.0, *(m.estimate for m in others))),
        math.exp(min(0.0, low)),
        math.exp(min(0.0, high)),
        maybe_best=high >= 0,
    )


def _further_rounds(
    depth: int,
    depths: list[int],
    pairs: Mapping[tuple[int, int], Mean],
    scope: str,
    tolerance: float,
) -> int | None:
    """Return the smallest number of further rounds at which `depth` would be settled.

    Estimates and variances are taken as they stand; None where even :data:`MOST_ROUNDS` would
    not do, because the depth is at the tolerance or the prompts differ too much.
    """
    others = [pairs[depth, j] for j in depths if j != depth]
    goal = math.log(tolerance)
    passing = all(m.estimate >= goal for m in others)
    rounds = max(m.rounds for m in others)
    if rounds < 2:
        return 1  # the least that can tell anything
    tail = TAIL if passing else TAIL / len(others)

    def settled(mean: Mean, factor: float) -> bool:
        return abs(mean.estimate - goal) >= mean.reach(scope, tail, factor)

    for further in range(1, MOST_ROUNDS + 1):
        factor = (rounds + further) / rounds
        if passing and all(settled(m, factor) for m in others):
            return further
        if not passing and any(settled(m, factor) for m in others if m.estimate < goal):
            return further
    return None
