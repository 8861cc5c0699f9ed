"""Running the arms of a page, or saying why they were not run."""

from __future__ import annotations

from analysis import arms, report, sweep
from analysis.arms import Pair
from analysis.engines import choose
from analysis.errors import EngineError, StoreError
from analysis.folders import replaying
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
        return Pair(None, None, str(error))
    base = report.sweep_of(recorded)
    return Pair(base, arms.of(base, spec.more_arms[0]))
