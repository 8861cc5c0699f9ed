"""Adaptive measuring: rounds only for the depths that still matter, until the verdict is clear.

Every depth has two rounds. From then on the verdict of the mix (or of the only workload) is taken
after each round, and the next round launches the depth that may be the answer and those that may
still beat it; where none is left, or more rounds can not tell, the race ends.

Looking at the data after each round is several tries at a wrong answer, so the bounds of each look
are stricter: see ``looks`` in :func:`analysis.verdict.decide`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from analysis import report, stats, store
from analysis.errors import StoreError
from analysis.spec import SweepSpec
from analysis.verdict import Verdict

FIRST_LOOK = 2  # rounds of all depths, before anything can be told from anything


def steer(
    spec: SweepSpec, tolerance: float, weights: Mapping[str, float]
) -> Callable[[store.Recorded, int], tuple[int, ...]] | None:
    """Return who chooses each round's depths, or None for the fixed plan.

    The choice follows from the samples of the rounds before alone: a run that was interrupted goes
    on as it would have.
    """
    if not spec.adaptive:
        return None

    def choose(recorded: store.Recorded, number: int) -> tuple[int, ...]:
        if number < FIRST_LOOK:
            return spec.depths
        earlier = tuple(s for s in recorded.samples if s.round < number)
        try:
            sweep = report.sweep_of(replace(recorded, samples=earlier), weights)
            found = sweep.verdict(list(sweep.groups())[-1], stats.LIKE_THESE, tolerance)
        except (StoreError, ValueError):
            return spec.depths  # no speed yet
        return onward(found)

    return choose


def onward(found: Verdict) -> tuple[int, ...]:
    """Return the depths of the next round: none where the verdict is clear, or is not by rounds."""
    if found.recommended is not None or found.further_rounds is None:
        return ()
    return tuple(sorted({found.candidates[0], *found.rivals}))
