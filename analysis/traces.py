"""What the tracer adds to a page: every draft, half-step costs, and smallest probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from analysis import report, steps, sweep
from analysis.errors import EngineError, StoreError
from analysis.parameters import PageParameters, Tracing
from analysis.records import Sample
from analysis.report import Sweep
from analysis.spec import SweepSpec
from analysis.steps import Traced

MISSING = (
    "The tracer did not run here: it needs llama-cpp-python as built by `make engine`, and a model "
    "that this build loads. What follows from llama-server alone is complete."
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

    def texts(self, workload: str, depth: int) -> list[tuple[Sample, Traced]]:
        """Return the traced texts of a workload at a depth, in the order of the prompts."""
        return [
            (s, self.traced[steps.sample_id(s)])
            for s in self.main.recorded.samples
            if (s.workload, s.depth, s.round, s.warm_up) == (workload, depth, 0, False)
            and s.temperature > 0
            and steps.sample_id(s) in self.traced
        ]


def spec_of(spec: SweepSpec, tracing: Tracing, p_min: float | None = None) -> SweepSpec:
    """Return the tracer's spec: long prompts left out; every depth, or for a `p_min` the asked."""
    depths = tuple(range(max(spec.depths) + 1)) if p_min is None else spec.depths
    return replace(
        spec,
        engine="tracer",
        server="",
        server_args=(),
        depths=depths,
        workloads=tuple(w for w in spec.workloads if w != "long") or spec.workloads,
        prompts=tracing.prompts,
        rounds=tracing.rounds,
        p_min=spec.p_min if p_min is None else p_min,
        lossless_prompts=0,
    )


def measure(page: PageParameters, notebook: str) -> Traces | None:
    """Measure what is not yet traced; None where the tracer can not run here."""
    tracing = page.tracing
    if not tracing.prompts:
        return None
    wanted = [p for p in tracing.p_min if p != page.spec.p_min]
    try:
        runs = [
            sweep.measure(
                spec_of(page.spec, tracing, p_min), notebook, page.machine, page.machines_folder
            )
            for p_min in (None, *wanted)
        ]
    except EngineError:
        return None
    except StoreError:
        if sweep.replaying():  # it did not run then, either
            return None
        raise
    sweeps = [report.sweep_of(r, page.mix) for r in runs]
    by_p_min = dict(zip((page.spec.p_min, *wanted), sweeps, strict=True))
    return Traces(sweeps[0], steps.read(runs[0].path), dict(sorted(by_p_min.items())))
