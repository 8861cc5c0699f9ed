"""Drafters against each other on one target: every drafter at every depth, in turns, in one run.

An *option* is a drafter at a depth; no drafting is the first. The options are ranked by depth, then
as the drafters are listed, so that the verdict of the depth sweep decides between them: the lowest
rank that loses nearly nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from analysis import acceptance, arms, report, stats, sweep
from analysis.acceptance import Positions
from analysis.errors import EngineError
from analysis.parameters import PageParameters
from analysis.report import MIX, Sweep
from analysis.spec import label
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


def is_dedicated(drafter: str) -> bool:
    """Tell whether a drafter was made for its target: a head, or one that reads its states."""
    return drafter.startswith((f"{HEAD}:", "draft-")) and not is_off_the_shelf(drafter)


def is_off_the_shelf(drafter: str) -> bool:
    """Tell whether a drafter is a model that was trained without the target."""
    return drafter.startswith("draft-simple:")


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


NONE = Option("none", 0)


@dataclass(frozen=True)
class Comparison:
    """The run of all drafters; each sweep has the run's depth 0."""

    base: Sweep
    drafters: dict[str, Sweep]

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """No drafting, then every drafter at each of its depths: an option's place is its rank."""
        depths = sorted({d for own in self.drafters.values() for d in own.depths if d > 0})
        there = [
            Option(drafter, depth)
            for depth in depths
            for drafter, own in self.drafters.items()
            if depth in own.depths
        ]
        return (NONE, *there)

    @cached_property
    def ranked(self) -> Sweep:
        """The samples of all options, with the option's rank in place of the depth."""
        parts = []
        for rank, option in enumerate(self.options):
            own = self.base if option == NONE else self.drafters[option.drafter]
            parts.append(own.timed[own.timed["depth"] == option.depth].assign(depth=rank))
        timed = pd.concat(parts, ignore_index=True)
        return replace(self.base, timed=timed, depths=tuple(range(len(self.options))))

    @property
    def whole(self) -> str:
        """The name of all workloads together."""
        return MIX if MIX in self.base.groups() else self.base.workloads[0]

    @property
    def dedicated(self) -> list[str]:
        """The drafters made for the target, where its own head is there to compare them with."""
        return [d for d in self.drafters if is_dedicated(d) and HEAD in self.drafters]

    @property
    def off_the_shelf(self) -> list[str]:
        """The models trained without the target, where its own head is there to compare with."""
        return [d for d in self.drafters if is_off_the_shelf(d) and HEAD in self.drafters]

    def deepest(self, drafter: str) -> int:
        """Return the deepest depth of a drafter."""
        return max(self.drafters[drafter].depths)

    def verdict(self, workload: str, scope: str, tolerance: float, *, drafting: bool) -> Verdict:
        """Decide between the options, or between those that draft; depths are ranks."""
        chosen = self.ranked.depths[1:] if drafting else self.ranked.depths
        return replace(self.ranked, depths=chosen).verdict(workload, scope, tolerance)

    def relative(
        self, column: str, option: Option, base: Option, workload: str, scope: str
    ) -> Interval | None:
        """Return the ratio of a quantity of two options, or None where no pair is there."""
        if option not in self.options or base not in self.options:
            return None
        ranks = self.options.index(option), self.options.index(base)
        return self.ranked.relative(column, workload, *ranks, scope)

    def best_ratio(self, top: str, below: str, workload: str, scope: str) -> Interval | None:
        """Return the best speed of one drafter over that of another, each at its own best depth.

        With the log ratio of every pair of their depths known within simultaneous 95% bounds
        (Bonferroni), ``max_i S_i - max_j S_j = max_i min_j (S_i - S_j)`` lies within the same
        expression of the bounds: choosing the best depths on the same data costs no coverage.
        None where a drafter has no speed, or two depths share no round.
        """
        try:
            pairs = [
                [self.ranked.mean("tok_s", workload, i, j) for j in self._ranks(below, workload)]
                for i in self._ranks(top, workload)
            ]
        except ValueError:
            return None
        if not pairs or not pairs[0]:
            return None
        tail = (1 - stats.CONFIDENCE) / 2 / (len(pairs) * len(pairs[0]))
        bounds = [[mean.bounds(scope, tail) for mean in row] for row in pairs]
        estimate = max(min(mean.estimate for mean in row) for row in pairs)
        low, high = (max(min(b[side] for b in row) for row in bounds) for side in (0, 1))
        return Interval(estimate, low, high).map(report.exp)

    def _ranks(self, drafter: str, workload: str) -> list[int]:
        return [
            rank
            for rank, option in enumerate(self.options)
            if option.drafter == drafter and self.ranked.has_speed(workload, rank)
        ]

    def positions(
        self, drafter: str, workload: str, grid: acceptance.Grid | None = None
    ) -> Positions | None:
        """Return a drafter's counts by position at its deepest depth; None without any draft."""
        timed = self.drafters[drafter].timed
        found = acceptance.of_samples(timed, workload, self.deepest(drafter), grid)
        return found if found is not None and np.nansum(found.offered) > 0 else None

    def _kept(self, drafter: str, workload: str, position: int) -> Table | None:
        """Return the share of each text's drafts whose first guesses up to a position were kept.

        The run's rounds x prompts, NaN where a text offered no such guess.
        """
        own = self.base.timed[self.base.timed["workload"] == workload]
        grid = (
            sorted(self.base.timed["round"].unique().tolist()),
            sorted(own["prompt_id"].unique().tolist()),
        )
        found = self.positions(drafter, workload, grid)
        if found is None or found.depth < position:
            return None
        with np.errstate(invalid="ignore", divide="ignore"):
            kept: Table = found.accepted[:, :, position - 1] / found.offered[:, :, position - 1]
        return kept

    def gain(self, top: str, below: str, position: int, scope: str, among: int) -> Interval | None:
        """Return how much more of the drafts up to a position one drafter has kept than another.

        The difference of shares, paired by round and text, each text counting the same. The bounds
        hold for `among` positions at once (Bonferroni). None where no text has both.
        """
        tables = []
        for workload in self.base.workloads:
            a, b = (self._kept(d, workload, position) for d in (top, below))
            if a is None or b is None:
                return None
            tables.append(a - b)
        try:
            mean = stats.mean(tables)
        except ValueError:
            return None
        return Interval(mean.estimate, *mean.bounds(scope, (1 - stats.CONFIDENCE) / 2 / among))


def measure(page: PageParameters, notebook: str) -> Comparison:
    """Measure what is not yet measured of all drafters."""
    recorded = sweep.measure(page.spec, notebook, page.machine, page.machines_folder)
    return compare(report.sweep_of(recorded, page.mix))


def compare(base: Sweep) -> Comparison:
    """Return the drafters of a run; one that never gave a speed is left out.

    Raises
    ------
    EngineError
        If no drafter gave any.
    """
    spec = base.recorded.run.spec
    zero = base.timed[base.timed["depth"] == 0]
    drafters: dict[str, Sweep] = {}
    for arm, drafter in arm_names(spec).items():
        own = arms.of(base, arm).timed
        own = own[own["depth"] > 0]
        if own["tok_s"].notna().any():
            depths = (0, *sorted(int(d) for d in own["depth"].unique()))
            drafters[drafter] = replace(base, timed=pd.concat([zero, own]), depths=depths)
    if not drafters:
        errors = [s.error for s in base.recorded.samples if s.error]
        raise EngineError(
            "no drafter gave a speed", errors[-1] if errors else "", "name another drafter"
        )
    return Comparison(base, drafters)


def arm_names(spec: dict[str, Any]) -> dict[str, str]:
    """Return the drafters of a stored spec by the arm that their samples have."""
    first = label(spec["drafter"], spec["draft_model"])
    return {spec["arm"]: first} | {d: d for d in spec.get("more_drafters", ())}


def missing(found: Comparison) -> dict[str, str]:
    """Return the drafters without any speed, each with the last error that was recorded."""
    recorded = found.base.recorded
    errors = {s.arm: s.error for s in recorded.samples if s.error and s.depth > 0}
    return {
        drafter: str(errors.get(arm, "nothing was measured"))
        for arm, drafter in arm_names(recorded.run.spec).items()
        if drafter not in found.drafters
    }
