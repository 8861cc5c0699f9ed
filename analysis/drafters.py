"""Drafters against each other on one target: every drafter at every depth, in turns, in one run.

An *option* is a drafter at a depth; no drafting is the first. The options are ranked by depth, then
as the drafters are listed, so that the verdict of the depth sweep decides between them: the lowest
rank that loses nearly nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from analysis import acceptance, arms, report, stats, sweep
from analysis.parameters import PageParameters
from analysis.report import Sweep
from analysis.spec import ARMS
from analysis.stats import Interval, Table
from analysis.verdict import Verdict

HEAD = "mtp"
_KINDS = {
    "embedded-deep-head": "MTP head trained for depth",
    "embedded-small": "small model",
}


def name(drafter: str) -> str:
    """Return a drafter's name in words."""
    kind, _, file = drafter.partition(":")
    if drafter == HEAD:
        return "MTP head"
    return _KINDS.get(file, f"{file} ({kind})" if file else kind)


def is_head(drafter: str) -> bool:
    """Tell whether a drafter is another MTP head for the same target."""
    return drafter.startswith(f"{HEAD}:")


def is_model(drafter: str) -> bool:
    """Tell whether a drafter is a model of its own."""
    return drafter.startswith("draft-")


def is_ngram(drafter: str) -> bool:
    """Tell whether a drafter only looks up what the text has said before."""
    return drafter.startswith("ngram-")


@dataclass(frozen=True)
class Option:
    """A drafter at a depth."""

    drafter: str
    depth: int

    def __str__(self) -> str:
        return f"{name(self.drafter)}, {self.depth}" if self.depth else "no drafting"


@dataclass(frozen=True)
class Comparison:
    """The run of all drafters; each has the first one's depth 0."""

    base: Sweep
    drafters: dict[str, Sweep]

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """All options that have a speed, by rank."""
        there = [
            Option(drafter, depth)
            for depth in self.base.depths
            for drafter, own in self.drafters.items()
            if depth > 0 and depth in own.depths
        ]
        return (Option("none", 0), *there)

    @cached_property
    def ranked(self) -> Sweep:
        """The samples of all options, with the option's rank in place of the depth."""
        parts = []
        for rank, option in enumerate(self.options):
            own = self.base if option.depth == 0 else self.drafters[option.drafter]
            parts.append(own.timed[own.timed["depth"] == option.depth].assign(depth=rank))
        timed = pd.concat(parts, ignore_index=True)
        return replace(self.base, timed=timed, depths=tuple(range(len(self.options))))

    def rank(self, drafter: str, depth: int) -> int:
        """Return an option's rank."""
        return self.options.index(Option(drafter, depth))

    def verdict(self, workload: str, scope: str, tolerance: float, *, drafting: bool) -> Verdict:
        """Decide between the options, or between those that draft; depths are ranks."""
        chosen = self.ranked.depths[1:] if drafting else self.ranked.depths
        return replace(self.ranked, depths=chosen).verdict(workload, scope, tolerance)

    def best_ratio(self, top: str, below: str, workload: str, scope: str) -> Interval | None:
        """Return the best speed of one drafter over that of another, each at its own best depth.

        With the log ratio of every pair of their depths known within simultaneous 95% bounds
        (Bonferroni), ``max_i S_i - max_j S_j = max_i min_j (S_i - S_j)`` lies within the same
        expression of the bounds: choosing the best depths on the same data costs no coverage.
        """
        pairs = [
            [
                self.ranked.mean("tok_s", workload, self.rank(top, i), self.rank(below, j))
                for j in self._depths(below, workload)
            ]
            for i in self._depths(top, workload)
        ]
        if not pairs or not pairs[0]:
            return None
        tail = (1 - stats.CONFIDENCE) / 2 / (len(pairs) * len(pairs[0]))

        def extreme(values: Sequence[Sequence[float]]) -> float:
            return math.exp(max(min(row) for row in values))

        bounds = [[mean.bounds(scope, tail) for mean in row] for row in pairs]
        return Interval(
            extreme([[mean.estimate for mean in row] for row in pairs]),
            *(extreme([[b[side] for b in row] for row in bounds]) for side in (0, 1)),
        )

    def against_none(self, drafter: str, workload: str, scope: str) -> Interval | None:
        """Return a drafter's best speed over that without drafting."""
        return self.best_ratio(drafter, "none", workload, scope)

    def _depths(self, drafter: str, workload: str) -> list[int]:
        return [
            o.depth
            for rank, o in enumerate(self.options)
            if o.drafter == drafter and self.ranked.has_speed(workload, rank)
        ]

    def kept(self, drafter: str, workload: str, position: int) -> Table | None:
        """Return the share of each text's drafts whose first guesses up to a position were kept.

        Rounds x prompts, at the deepest depth; NaN where a text offered no such guess. None where
        the engine counts nothing by position.
        """
        own = self.drafters[drafter]
        counts = acceptance.of_samples(own.timed, workload, max(own.depths))
        if counts is None or counts.depth < position:
            return None
        offered = counts.offered[:, :, position - 1]
        share: Table = np.divide(
            counts.accepted[:, :, position - 1], offered,
            out=np.full(offered.shape, np.nan), where=offered > 0,
        )  # fmt: skip
        return share

    def gain(self, top: str, below: str, position: int, scope: str) -> Interval | None:
        """Return how much more of the drafts up to a position one drafter has kept than another.

        The difference of shares, paired by round and text, each text counting the same.
        """
        tables = []
        for workload in self.base.workloads:
            a, b = (self.kept(d, workload, position) for d in (top, below))
            if a is None or b is None or a.shape != b.shape or np.isnan(a - b).all():
                return None
            tables.append(a - b)
        return stats.mean(tables).interval(scope)


def measure(page: PageParameters, notebook: str) -> Comparison:
    """Measure what is not yet measured of all drafters."""
    recorded = sweep.measure(page.spec, notebook, page.machine, page.machines_folder)
    return compare(report.sweep_of(recorded, page.mix))


def compare(base: Sweep) -> Comparison:
    """Return the drafters of a run; one that never gave a speed is left out."""
    spec = base.recorded.run.spec
    first = spec["drafter"] + (f":{spec['draft_model']}" if spec["draft_model"] else "")
    drafters = {first: base}
    zero = base.timed[base.timed["depth"] == 0]
    for rival in spec.get("more_drafters", ()):
        own = arms.of(base, rival).timed
        if own["tok_s"].notna().any():
            depths = (0, *sorted(int(d) for d in own["depth"].unique()))
            drafters[rival] = replace(base, timed=pd.concat([zero, own]), depths=depths)
    return Comparison(base, drafters)


def missing(found: Comparison) -> dict[str, str]:
    """Return the drafters without any speed, each with the last error that was recorded."""
    spec = found.base.recorded.run.spec
    errors = {s.arm: s.error for s in found.base.recorded.samples if s.error}
    return {
        rival: str(errors.get(rival, "nothing was measured"))
        for rival in spec.get("more_drafters", ())
        if rival not in found.drafters and rival not in ARMS
    }
