"""What each traced request gave and what each part of its steps cost: one row a request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis import steps
from analysis.records import Step
from analysis.report import Sweep
from analysis.spec import WORKLOADS
from analysis.speculation import Steps
from analysis.stats import Table

# The rest takes what is left of a request's decode time, so that the parts are the whole.
PARTS = ("draft", "verify", "catch up", "rest")
_TIMED = {"draft_ms": "draft", "verify_ms": "verify", "catch_up_ms": "catch up"}
Positions = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pieces:
    """The requests of a tracer's run, all its arms.

    Columns of `frame`: ``arm, workload, prompt_id, depth, round, tokens`` (a step), ``steps``, the
    :data:`PARTS` in ms a step, and ``offered`` and ``accepted``, arrays of the counts by position.
    """

    frame: pd.DataFrame

    @property
    def workloads(self) -> tuple[str, ...]:
        """The workloads that there are."""
        return tuple(w for w in WORKLOADS if w in set(self.frame["workload"]))

    @property
    def depths(self) -> tuple[int, ...]:
        """The depths of the first arm."""
        natural = self.frame[self.frame["arm"] == "natural"]
        return tuple(sorted(int(d) for d in natural["depth"].unique()))

    def units(self) -> list[tuple[str, object]]:
        """Return what can be left out at a time: each round, and each prompt of a workload."""
        own = self.frame
        prompts = sorted(set(zip(own["workload"], own["prompt_id"], strict=True)))
        return [("round", r) for r in sorted(own["round"].unique())] + [
            ("prompt", p) for p in prompts
        ]

    def without(self, unit: tuple[str, object]) -> Pieces:
        """Return the requests without a round or a prompt."""
        own = self.frame
        if unit[0] == "round":
            return Pieces(own[own["round"] != unit[1]])
        keys = list(zip(own["workload"], own["prompt_id"], strict=True))
        return Pieces(own[[key != unit[1] for key in keys]])

    def at(self, arm: str, depth: int) -> pd.DataFrame:
        """Return the requests of an arm at a depth."""
        return self.frame[(self.frame["arm"] == arm) & (self.frame["depth"] == depth)]

    def mean(self, arm: str, depth: int, part: str) -> float:
        """Return the geometric mean of a part over the requests of an arm at a depth, in ms."""
        values = self.at(arm, depth)[part].to_numpy(dtype=float)
        return float(np.exp(np.log(np.maximum(values, 1e-9)).mean()))

    def table(self, arm: str, workload: str, depth: int, column: str) -> Table:
        """Return a column as rounds x prompts, alike for all arms and depths; NaN where missing."""
        own = self.frame[self.frame["workload"] == workload]
        rounds, prompts = sorted(self.frame["round"].unique()), sorted(own["prompt_id"].unique())
        chosen = own[(own["arm"] == arm) & (own["depth"] == depth)]
        grid = chosen.set_index(["round", "prompt_id"])[column].unstack("prompt_id")
        return grid.reindex(index=rounds, columns=prompts).to_numpy(dtype=float)

    def steps(self, arm: str, workload: str, depth: int) -> Steps:
        """Return the mean steps of a depth, one entry a round and prompt."""
        return Steps(
            self.table(arm, workload, depth, "tokens"),
            {part: self.table(arm, workload, depth, part) for part in PARTS},
        )


def of(sweep: Sweep) -> Pieces:
    """Return the pieces of a tracer's run, from its samples and its steps."""
    recorded = sweep.recorded
    traced = steps.read(recorded.path)
    rows = []
    for sample in recorded.samples:
        own = traced.get(steps.sample_id(sample))
        if sample.warm_up or sample.error is not None or own is None or not sample.steps:
            continue
        row = {
            "arm": sample.arm, "workload": sample.workload, "prompt_id": sample.prompt_id,
            "depth": sample.depth, "round": sample.round, "steps": sample.steps,
            "tokens": (sample.predicted_n - 1) / sample.steps,
        }  # fmt: skip
        sums = {part: sum(getattr(s, name) for s in own.steps) for name, part in _TIMED.items()}
        sums["rest"] = sample.predicted_ms - sum(sums.values())
        row |= {part: ms / sample.steps for part, ms in sums.items()}
        row["offered"], row["accepted"] = _counts(own.steps, sample.depth)
        rows.append(row)
    return Pieces(pd.DataFrame(rows))


def _counts(own: tuple[Step, ...], depth: int) -> tuple[Positions, Positions]:
    offered, accepted = np.zeros(depth), np.zeros(depth)
    for step in own:
        offered[: len(step.drafted)] += 1
        accepted[: step.accepted] += 1
    return offered, accepted
