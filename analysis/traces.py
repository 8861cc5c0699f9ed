"""What the tracer adds to a page: every draft, half-step costs, and smallest probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from analysis import steps
from analysis.report import Sweep
from analysis.steps import Traced

MISSING = (
    "The tracer did not run here: it needs llama-cpp-python as built by `make engine`, a model "
    "that this build loads, and acceptance that the text decides (arm natural; a shape without "
    "weights has none). What follows from llama-server alone is complete."
)


@dataclass(frozen=True)
class Traces:
    """The tracer's runs: the main one at every depth, then one for each smallest probability."""

    main: Sweep
    traced: dict[str, Traced]
    by_p_min: dict[float, Sweep]  # the main run stands at its own p_min

    def steps(self) -> pd.DataFrame:
        """Return the main run's steps, one a row."""
        return steps.frame(self.main.recorded.samples, self.traced)

    def example(self) -> tuple[int, Traced]:
        """Return the first text of the deepest depth: its first token, and its steps."""
        deepest = max(self.main.depths)
        return next(
            (s.tokens[0], self.traced[steps.sample_id(s)])
            for s in self.main.recorded.samples
            if s.depth == deepest and not s.warm_up and steps.sample_id(s) in self.traced
        )
