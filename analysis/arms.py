"""Arms of a run against each other: the same requests, paired by round and prompt."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from analysis import speculation, stats
from analysis.report import Sweep
from analysis.stats import Interval


@dataclass(frozen=True)
class Pair:
    """Two arms of one run, or why there are none."""

    base: Sweep | None
    other: Sweep | None
    why: str = ""

    @property
    def there(self) -> bool:
        """Whether both arms were measured."""
        return self.base is not None and self.other is not None

    @property
    def both(self) -> tuple[Sweep, Sweep]:
        """The two arms, where they are there."""
        if self.base is None or self.other is None:
            raise ValueError(self.why)
        return self.base, self.other


def of(sweep: Sweep, arm: str) -> Sweep:
    """Return the samples of an arm of a sweep's run."""
    recorded = sweep.recorded
    if arm == recorded.run.spec["arm"]:
        return sweep
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
