"""Running the arms of a page, or saying why they were not run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analysis import arms, report, sweep
from analysis.arms import Pair
from analysis.engines import choose
from analysis.errors import EngineError, StoreError
from analysis.folders import replaying
from analysis.markup import escaped
from analysis.parameters import PageParameters
from analysis.spec import SweepSpec


def measured(spec: SweepSpec, page: PageParameters, notebook: str, covered_by: str = "") -> Pair:
    """Measure a spec of several arms: the first one, and the one after it.

    Where no engine can do it here, the pair says why.
    """
    try:
        choose.probe(spec) if not replaying() else None
        recorded = sweep.measure(
            spec, notebook, page.machine, page.machines_folder, covered_by=covered_by
        )
    except (EngineError, StoreError) as error:
        if isinstance(error, StoreError) and not replaying():
            raise
        return Pair(None, None, escaped(str(error)))
    base = report.sweep_of(recorded)
    return Pair(base, arms.of(base, spec.more_arms[0]))


def traced(
    page: PageParameters, notebook: str, *, covered_by: str = "", **arms_of_run: Any
) -> Pair:
    """Measure arms of the tracer, at the depths of the page and as often as its tracer runs."""
    tracing = page.tracing
    if page.spec.synthetic_rates:
        return Pair(None, None, "the tracer can not do acceptance that is given (arm synthetic).")
    if not tracing.prompts:
        return Pair(None, None, "the tracer was left out (traced_prompts = 0).")
    spec = replace(
        page.spec,
        engine="tracer", server="", server_args=(), fit_target_mib=None, kv_unified=None, slots=1,
        workloads=tuple(w for w in page.spec.workloads if w != "long") or page.spec.workloads,
        prompts=tracing.prompts, rounds=tracing.rounds, n_predict=tracing.n_predict,
        lossless_prompts=0, **arms_of_run,
    )  # fmt: skip
    return measured(spec, page, notebook, covered_by)
