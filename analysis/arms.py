"""Arms of a run against each other: the same requests, paired by round and prompt."""

from __future__ import annotations

import math
from dataclasses import replace

from analysis import speculation, stats
from analysis.report import Sweep
from analysis.stats import Interval


def of(sweep: Sweep, arm: str) -> Sweep:
    """Return the samples of another arm of a sweep's run."""
    recorded = sweep.recorded
    return replace(
        sweep, timed=speculation.timed(recorded.frame(), recorded.run.spec["temperature"], arm)
    )


def ratio(
    top: Sweep,
    below: Sweep,
    depth: int,
    scope: str,
    *,
    base: int | None = None,
) -> Interval | None:
    """Return the speed of one arm against another's, the geometric mean over all workloads.

    Both at `depth`, unless `base` names another depth for the second. None where no pair is there.
    """
    other = depth if base is None else base
    pairs = zip(
        top.logs("tok_s", top.workloads, depth), below.logs("tok_s", top.workloads, other),
        strict=True,
    )  # fmt: skip
    try:
        return stats.mean([a - b for a, b in pairs]).interval(scope).map(math.exp)
    except ValueError:
        return None
