"""Running the tracer for a page: at every depth, and over smallest draft probabilities."""

from __future__ import annotations

from dataclasses import replace

from analysis import report, steps, sweep
from analysis.errors import EngineError, StoreError
from analysis.folders import replaying
from analysis.parameters import PageParameters, Tracing
from analysis.spec import SweepSpec
from analysis.traces import Traces

BESIDE = "llama-server"  # asked in turns with the tracer, so that their speeds compare


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
        n_predict=tracing.n_predict,
        p_min=spec.p_min if p_min is None else p_min,
        lossless_prompts=0,
    )


def measure(page: PageParameters, notebook: str) -> Traces | None:
    """Measure what is not yet traced; None where the tracer can not run here.

    It decides acceptance by the text alone, so that a run with given acceptance goes without it.
    """
    tracing = page.tracing
    if not tracing.prompts or page.spec.synthetic_rates:
        return None
    wanted = [p for p in tracing.p_min if p != page.spec.p_min]
    try:
        runs = [
            sweep.measure(
                spec_of(page.spec, tracing, p_min),
                notebook,
                page.machine,
                page.machines_folder,
                beside=BESIDE if p_min is None else "",
            )
            for p_min in (None, *wanted)
        ]
    except EngineError:
        return None
    except StoreError:
        if replaying():  # it did not run then, either
            return None
        raise
    sweeps = [report.sweep_of(r, page.mix) for r in runs]
    by_p_min = dict(zip((page.spec.p_min, *wanted), sweeps, strict=True))
    return Traces(sweeps[0], steps.read(runs[0].path), dict(sorted(by_p_min.items())))
