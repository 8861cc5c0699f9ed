"""From stored samples to numbers: cells by workload and depth, and the verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis import lossless, speculation, stats, store
from analysis.errors import StoreError
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
            return None if self.acceptance is None else self.acceptance.share(scope)
        return getattr(self, f"log_{quantity}").interval(scope).map(exp)  # type: ignore[no-any-return]


def exp(value: float) -> float:
    """Return the exponential, infinite where a bound is beyond all floats."""
    return math.exp(value) if value < 700 else math.inf


@dataclass(frozen=True)
class Sweep:
    """The samples of one sweep, ready for tables, figures and the verdict."""

    recorded: store.Recorded
    timed: pd.DataFrame
    workloads: tuple[str, ...]
    depths: tuple[int, ...]
    weights: Mapping[str, float]  # of the workloads in the mix; 1 where not named
    # Pages ask for the same tables hundreds of times; a replaced sweep begins with none.
    _tables: dict[tuple[str, str, int], Table] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def machine(self) -> str:
        """The name of the machine."""
        return str(self.recorded.run.machine["name"])

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Return each workload, and the mix of all where there are several."""
        single = {w: (w,) for w in self.workloads}
        return single | ({MIX: self.workloads} if len(single) > 1 else {})

    def table(self, column: str, workload: str, depth: int) -> Table:
        """Return a column as rounds x prompts, NaN where missing; alike for all depths.

        The table can not be written to.
        """
        key = (column, workload, depth)
        if key not in self._tables:
            self._tables[key] = self._table(*key)
            self._tables[key].setflags(write=False)
        return self._tables[key]

    def _table(self, column: str, workload: str, depth: int) -> Table:
        own = self.timed[self.timed["workload"] == workload]
        rounds = sorted(self.timed["round"].unique())
        ids = sorted(own["prompt_id"].unique())
        values = own[own["depth"] == depth].set_index(["round", "prompt_id"])[column]
        grid = values.unstack("prompt_id").reindex(index=rounds, columns=ids)
        return grid.to_numpy(dtype=float)

    def logs(self, column: str, workloads: Sequence[str], depth: int) -> list[Table]:
        """Return the natural logarithm of a column, one table a workload."""
        return [np.log(self.table(column, w, depth)) for w in workloads]

    def mix(self, members: Sequence[str]) -> list[float]:
        """Return the weights of a group's workloads."""
        return [self.weights.get(w, 1.0) for w in members]

    def mean(self, column: str, name: str, depth: int, base: int | None = None) -> Mean:
        """Return the mean logarithm of a column, or of its ratio to another depth's.

        Ratios are paired by round and prompt.
        """
        members = self.groups()[name]
        tables = self.logs(column, members, depth)
        if base is not None:
            other = self.logs(column, members, base)
            tables = [a - b for a, b in zip(tables, other, strict=True)]
        return stats.mean(tables, self.mix(members))

    def relative(
        self, column: str, name: str, depth: int, base: int, scope: str
    ) -> Interval | None:
        """Return the ratio of a quantity to another depth's, or None where no pair is there."""
        try:
            return self.mean(column, name, depth, base).interval(scope).map(exp)
        except ValueError:
            return None

    def cell(self, name: str, depth: int) -> Cell:
        """Return the numbers of a workload or the mix at a depth."""
        members = self.groups()[name]
        chosen = self.timed[(self.timed["depth"] == depth) & self.timed["workload"].isin(members)]
        return Cell(
            workload=name,
            depth=depth,
            log_tok_s=self.mean("tok_s", name, depth),
            log_tokens_per_step=self.mean("tokens_per_step", name, depth),
            log_step_ms=self.mean("step_ms", name, depth),
            acceptance=self._acceptance(members, depth),
            samples=len(chosen),
        )

    def _acceptance(self, members: Sequence[str], depth: int) -> Mean | None:
        ratios = []
        for workload in members:
            accepted, drafted = (
                self.table(c, workload, depth) for c in ("draft_n_accepted", "draft_n")
            )
            if np.nansum(drafted) == 0:
                return None
            ratios.append(stats.ratio(accepted, drafted))
        return stats.combine(ratios, self.mix(members))

    def cells(self) -> list[Cell]:
        """Return all cells that have a speed, the mix last."""
        return [
            self.cell(name, depth)
            for name in self.groups()
            for depth in self.depths
            if self.has_speed(name, depth)
        ]

    def has_speed(self, name: str, depth: int) -> bool:
        """Tell whether every workload of a group has a usable speed at a depth, in one round."""
        return bool(self._rounds(name, depth).any())

    def all_have_speed(self, *depths: int) -> bool:
        """Tell whether every workload has a speed at each of some depths."""
        return all(self.has_speed(w, d) for w in self.workloads for d in depths)

    def _rounds(self, name: str, depth: int) -> npt.NDArray[np.bool_]:
        """Tell for each round whether all workloads of a group have a speed in it."""
        tables = [self.table("tok_s", w, depth) for w in self.groups()[name]]
        there: npt.NDArray[np.bool_] = np.all([~np.isnan(t).all(axis=1) for t in tables], axis=0)
        return there

    def comparable(self, name: str) -> tuple[int, ...]:
        """Return the depths that share rounds; those with the fewest are left out first."""
        there = {d: self._rounds(name, d) for d in self.depths}
        there = {d: r for d, r in there.items() if r.any()}
        while there and not np.all(list(there.values()), axis=0).any():
            there.pop(min(there, key=lambda d: (there[d].sum(), -d)))
        return tuple(there)

    def mean_tok_s(self, depth: int, scope: str, base: int | None = None) -> Interval:
        """Return the arithmetic mean of tok/s over the workloads, as the note's table has it.

        With `base`, the ratio of two depths' means. The interval is that of the logarithm,
        linearized at the workloads' estimates.
        """

        def parts(d: int) -> tuple[list[Table], list[float]]:
            tables = self.logs("tok_s", self.workloads, d)
            return tables, [math.exp(stats.mean([t]).estimate) for t in tables]

        tables, speeds = parts(depth)
        centre = math.log(sum(speeds) / len(speeds))
        linear = [t * (s / sum(speeds)) for t, s in zip(tables, speeds, strict=True)]
        if base is not None:
            others, other_speeds = parts(base)
            centre -= math.log(sum(other_speeds) / len(other_speeds))
            linear = [
                a - b * (s / sum(other_speeds))
                for a, b, s in zip(linear, others, other_speeds, strict=True)
            ]
        spread = stats.mean([t * len(linear) for t in linear])
        return Mean(centre, spread.components).interval(scope).map(exp)

    def verdict(
        self,
        name: str,
        scope: str = stats.LIKE_THESE,
        tolerance: float = TOLERANCE,
    ) -> Verdict:
        """Return the verdict for a workload or the mix, each pair over the rounds it shares."""
        members = self.groups()[name]
        speeds = {d: self.logs("tok_s", members, d) for d in self.comparable(name)}
        return decide(speeds, name, scope, self.mix(members), tolerance, self.looks)

    @property
    def looks(self) -> int:
        """How often the data could have ended the measuring (0: the plan was fixed before)."""
        spec = self.recorded.run.spec
        if not spec.get("adaptive"):
            return 0
        return max(1, int(spec["rounds"]) - 1, int(self.timed["round"].max()))

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
        speedy = set(chosen.loc[chosen["tok_s"].notna(), "workload"])
        left = tuple(w for w in self.workloads if w in speedy)
        return replace(self, timed=chosen, workloads=left)

    def verdicts(self, tolerance: float = TOLERANCE) -> list[Verdict]:
        """Return the verdicts of every workload and the mix, in both scopes."""
        return [self.verdict(n, s, tolerance) for n in self.groups() for s in stats.SCOPES]


def sweep_of(recorded: store.Recorded, weights: Mapping[str, float] | None = None) -> Sweep:
    """Make a sweep of stored samples; `weights` are of the workloads in the mix.

    Raises
    ------
    StoreError
        If no sample of a speed is in it.
    """
    frame = recorded.frame()
    spec = recorded.run.spec
    timed = speculation.timed(frame, spec["temperature"], spec["arm"])
    if timed["tok_s"].notna().sum() == 0:
        raise StoreError(
            f"{recorded.path.name} holds no timed sample that is long enough for a speed",
            f"{len(recorded.samples)} samples",
            "run the notebook again to measure the rest",
        )
    return Sweep(
        recorded=recorded,
        timed=timed,
        # A workload whose texts all end early has no speed; the warnings name it.
        workloads=tuple(
            w for w in WORKLOADS if w in set(timed.loc[timed["tok_s"].notna(), "workload"])
        ),
        depths=tuple(sorted(int(d) for d in timed["depth"].unique())),
        weights=weights or {},
    )
