"""From stored samples to numbers: cells by workload and depth, and the verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis import lossless, speculation, stats, store
from analysis.spec import PREFIX_ARM, WORKLOADS
from analysis.stats import Interval, Mean, Table
from analysis.verdict import TOLERANCE, Verdict, decide

MIX = "mix"


@dataclass(frozen=True)
class Cell:
    """One workload (or the mix) at one depth; speeds are geometric means over prompts.

    Each quantity holds its :class:`stats.Mean`, of the logarithm for ``tok_s``,
    ``tokens_per_step`` and ``step_ms``; acceptance is None where nothing was drafted.
    """

    workload: str
    depth: int
    log_tok_s: Mean
    log_tokens_per_step: Mean
    log_step_ms: Mean
    acceptance: Mean | None
    samples: int

    def interval(self, quantity: str, scope: str) -> Interval | None:
        """Return ``tok_s``, ``tokens_per_step``, ``step_ms`` or ``acceptance``, in one scope."""
        if quantity == "acceptance":
            return None if self.acceptance is None else self.acceptance.interval(scope)
        return getattr(self, f"log_{quantity}").interval(scope).map(_exp)  # type: ignore[no-any-return]


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


@dataclass(frozen=True)
class Sweep:
    """The samples of one sweep, ready for tables, figures and the verdict."""

    recorded: store.Recorded
    timed: pd.DataFrame
    workloads: tuple[str, ...]
    depths: tuple[int, ...]

    @property
    def machine(self) -> str:
        """The name of the machine."""
        return str(self.recorded.run.machine["name"])

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Return each workload, and the mix of all where there are several."""
        single = {w: (w,) for w in self.workloads}
        return single | ({MIX: self.workloads} if len(single) > 1 else {})

    def table(self, column: str, workload: str, depth: int) -> Table:
        """Return a column as rounds x prompts, NaN where missing; alike for all depths."""
        own = self.timed[self.timed["workload"] == workload]
        rounds = sorted(self.timed["round"].unique())
        ids = sorted(own["prompt_id"].unique())
        values = own[own["depth"] == depth].set_index(["round", "prompt_id"])[column]
        grid = values.unstack("prompt_id").reindex(index=rounds, columns=ids)
        return grid.to_numpy(dtype=float)

    def logs(self, column: str, workloads: Sequence[str], depth: int) -> list[Table]:
        """Return the natural logarithm of a column, one table a workload."""
        return [np.log(self.table(column, w, depth)) for w in workloads]

    def cell(self, name: str, depth: int) -> Cell:
        """Return the numbers of a workload or the mix at a depth."""
        members = self.groups()[name]
        chosen = self.timed[(self.timed["depth"] == depth) & self.timed["workload"].isin(members)]
        return Cell(
            workload=name,
            depth=depth,
            log_tok_s=stats.mean(self.logs("tok_s", members, depth)),
            log_tokens_per_step=stats.mean(self.logs("tokens_per_step", members, depth)),
            log_step_ms=stats.mean(self.logs("step_ms", members, depth)),
            acceptance=self._acceptance(members, depth),
            samples=len(chosen),
        )

    def _acceptance(self, members: Sequence[str], depth: int) -> Mean | None:
        accepted, drafted = (
            np.concatenate([self.table(c, w, depth) for w in members], axis=1)
            for c in ("draft_n_accepted", "draft_n")
        )
        return stats.ratio(accepted, drafted) if np.nansum(drafted) > 0 else None

    def cells(self) -> list[Cell]:
        """Return all cells that have a speed, the mix last."""
        return [
            self.cell(name, depth)
            for name, members in self.groups().items()
            for depth in self.depths
            if self.has_speed(members, depth)
        ]

    def has_speed(self, members: Sequence[str], depth: int) -> bool:
        """Tell whether every workload of a group has a usable speed at a depth."""
        return all(not np.isnan(self.table("tok_s", w, depth)).all() for w in members)

    def mean_tok_s(self, depth: int, scope: str) -> Interval:
        """Return the arithmetic mean of tok/s over the workloads, as the note's table has it.

        The interval is that of its logarithm, linearized at the workloads' estimates.
        """
        tables = self.logs("tok_s", self.workloads, depth)
        speeds = [math.exp(stats.mean([t]).estimate) for t in tables]
        spread = stats.mean(tables, weights=speeds)
        centre = math.log(sum(speeds) / len(speeds))
        return Mean(centre, spread.components).interval(scope).map(_exp)

    def verdict(
        self,
        name: str,
        scope: str = stats.LIKE_THESE,
        tolerance: float = TOLERANCE,
        weights: Sequence[float] | None = None,
    ) -> Verdict:
        """Return the verdict for a workload or the mix (equal weights by default)."""
        members = self.groups()[name]
        speeds = {
            d: self.logs("tok_s", members, d) for d in self.depths if self.has_speed(members, d)
        }
        return decide(speeds, name, scope, weights, tolerance)

    def on_shared_tokens(self) -> Sweep | None:
        """Return the sweep over the tokens that all depths decoded alike, or None without any.

        Prompts whose texts part count by their requests over the shared length, all others by
        their whole texts; both from the second round on, where both were measured. A prompt that
        parts too early, or is long, is left out.
        """
        spec = self.recorded.run.spec
        parted = lossless.common_prefixes(self.recorded, spec["temperature"])
        prefix = speculation.timed(self.recorded.frame(), spec["temperature"], PREFIX_ARM)
        keys = list(zip(self.timed["workload"], self.timed["prompt_id"], strict=True))
        whole = self.timed[[key not in parted for key in keys]]
        chosen = pd.concat([whole, prefix])
        chosen = chosen[chosen["round"] > 0]
        if chosen["tok_s"].notna().sum() == 0:
            return None
        left = tuple(w for w in self.workloads if w in set(chosen["workload"]))
        return Sweep(self.recorded, chosen, left, self.depths)

    def verdicts(self, tolerance: float = TOLERANCE) -> list[Verdict]:
        """Return the verdicts of every workload and the mix, in both scopes."""
        return [self.verdict(n, s, tolerance) for n in self.groups() for s in stats.SCOPES]


def sweep_of(recorded: store.Recorded) -> Sweep:
    """Make a sweep of stored samples.

    Raises
    ------
    ValueError
        If no sample of a speed is in it.
    """
    frame = recorded.frame()
    spec = recorded.run.spec
    timed = speculation.timed(frame, spec["temperature"], spec["arm"])
    if timed["tok_s"].notna().sum() == 0:
        raise ValueError(f"{recorded.path.name} holds no timed sample long enough for a speed")
    return Sweep(
        recorded=recorded,
        timed=timed,
        workloads=tuple(w for w in WORKLOADS if w in set(timed["workload"])),
        depths=tuple(sorted(int(d) for d in timed["depth"].unique())),
    )
