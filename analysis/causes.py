"""The runs that separate the causes of a slowdown: each holds all but one of them.

- llama-server as it is, with a constant chance of each guess, and with every guess accepted, in
  turns: what deeper would give if guesses stayed as good, and what it can give at most;
- the tracer as it is, and with rows that nobody drafted, in turns: the parts of a step, and the
  verifying pass alone;
- the tracer with just the room that a depth needs and with that for the deepest, in turns: the
  memory alone; and llama-server with every layer on the device and with one layer off it, in
  turns. Both are the memory page's, and its samples are taken where they are there;
- full-size architectures without their weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from analysis import eviction, planner, report, shape_runs, sweep
from analysis.arm_runs import traced
from analysis.arms import Pair
from analysis.engines import binary
from analysis.folders import replaying
from analysis.parameters import PageParameters
from analysis.pieces import Pieces, of
from analysis.report import Sweep

ACCEPTANCE_ARMS = {
    "natural": "as measured",
    "synthetic": "every guess as good as the first",
    "perfect": "every guess accepted",
}
GIVEN = "as given"
LEFT_OUT = "it was left out (evicted_prompts = 0)."
_MEMORY = "memory_eviction"


@dataclass(frozen=True)
class Causes:
    """All runs of the page."""

    chance: float  # of a single guess, over all workloads
    single: Sweep | None  # where it was measured
    acceptance: Sweep
    tracer: Pair
    room: Pair
    evicted: Pair
    emulated: bool  # whether the device of `evicted` is
    shapes: dict[str, Sweep]

    @property
    def pieces(self) -> Pieces | None:
        """The requests of the tracer, where it ran."""
        return of(self.tracer.base) if self.tracer.base else None


def measure(page: PageParameters, notebook: str) -> Causes:
    """Measure what is not yet measured."""
    chance, single = first_chance(page, notebook)
    acceptance = measure_acceptance(page, notebook, chance)
    tracer = traced(page, notebook, more_arms=("rows",))
    room = Pair(None, None, LEFT_OUT)
    if page.evicting.prompts:
        room = eviction.measure_room(_as_memory_page(page), notebook, covered_by=_MEMORY)
    evicted, emulated = measure_evicted(page, notebook)
    shapes = shape_runs.measure(page, notebook)
    return Causes(chance, single, acceptance, tracer, room, evicted, emulated, shapes)


def first_chance(page: PageParameters, notebook: str) -> tuple[float, Sweep | None]:
    """Measure how often a single guess is accepted, over all workloads of the page.

    Where acceptance is given, as for a model without weights, it is the first chance of that.
    One launch at depth 1 is enough, since a seed fixes the text. It is rounded, so that the run
    with acceptance held there keeps its name when this one is measured again.
    """
    if page.spec.synthetic_rates:
        return page.spec.synthetic_rates[0], None
    spec = replace(page.spec, depths=(0, 1), rounds=1, lossless_prompts=0)
    recorded = sweep.measure(
        spec, notebook, page.machine, page.machines_folder, covered_by="depth_sweep"
    )
    single = report.sweep_of(recorded)
    own = single.timed[
        (single.timed["depth"] == 1) & single.timed["workload"].isin(page.spec.workloads)
    ]
    return round(float(own["draft_n_accepted"].sum() / own["draft_n"].sum()), 2), single


def measure_acceptance(page: PageParameters, notebook: str, chance: float) -> Sweep:
    """Measure llama-server as it is, with a constant chance, and with every guess accepted.

    Where acceptance is given there is no server as it is: the given one stands in its place.
    """
    own = replace(page.spec, lossless_prompts=0)
    if own.synthetic_rates:
        spec = replace(own, more_arms=("perfect",))
    else:
        rates = tuple(round(chance**k, 4) for k in range(1, max(own.depths) + 1))
        spec = replace(own, more_arms=("synthetic", "perfect"), synthetic_rates=rates)
    recorded = sweep.measure(spec, notebook, page.machine, page.machines_folder)
    return report.sweep_of(recorded)


def _as_memory_page(page: PageParameters) -> PageParameters:
    """Return the page with what is measured of it as the memory page measures it."""
    own = page.evicting
    spec = replace(
        page.spec, depths=own.depths, workloads=own.workloads, prompts=max(own.prompts, 1),
        rounds=own.rounds, lossless_prompts=0,
    )  # fmt: skip
    tracing = replace(page.tracing, prompts=own.prompts, rounds=own.rounds)
    return replace(page, spec=spec, tracing=tracing)


def measure_evicted(page: PageParameters, notebook: str) -> tuple[Pair, bool]:
    """Measure with a layer off the device, or take what the memory page has measured.

    Returns the pair, and whether its device was emulated.
    """
    own, emulated = _as_memory_page(page), True
    if not page.evicting.prompts:
        return Pair(None, None, LEFT_OUT), emulated
    pair = Pair(None, None)
    real = None if replaying() else bool(planner.devices(binary.probe(own.spec.server)))
    for emulated in (True, False) if real is None else (not real,):
        pair = eviction.measure_evicted(own, notebook, emulated=emulated, covered_by=_MEMORY)
        if pair.there:
            break
    return pair, emulated
