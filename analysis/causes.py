"""The runs that separate the causes of a slowdown: each holds all but one of them.

- llama-server as it is, with a constant chance of each guess, and with every guess accepted, in
  turns: what deeper would give if guesses stayed as good, and what it can give at most;
- the tracer as it is, with room for the deepest draft at every depth, and with rows that nobody
  drafted, in turns: the parts of a step, the memory alone, and the verifying pass alone;
- llama-server with every layer on the device and with one layer off it, in turns;
- full-size architectures without their weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from analysis import eviction, planner, report, shape_runs, sweep
from analysis.arm_runs import measured
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
MISSING = "This part was not measured here: {}"
GIVEN = "as given"
NO_TEXT = "the tracer accepts by the text alone, and acceptance was given here."


@dataclass(frozen=True)
class Causes:
    """All runs of the page."""

    chance: float  # of a single guess, over all workloads
    acceptance: Sweep
    tracer: Pair
    evicted: Pair
    emulated: bool  # whether the device of `evicted` is
    shapes: dict[str, Sweep]

    @property
    def pieces(self) -> Pieces | None:
        """The requests of the tracer, where it ran."""
        return of(self.tracer.base) if self.tracer.base else None


def measure(page: PageParameters, notebook: str) -> Causes:
    """Measure what is not yet measured."""
    chance = first_chance(page, notebook)
    acceptance = measure_acceptance(page, notebook, chance)
    tracer = measure_tracer(page, notebook)
    evicted, emulated = measure_evicted(page, notebook)
    shapes = shape_runs.measure(page, notebook)
    return Causes(chance, acceptance, tracer, evicted, emulated, shapes)


def first_chance(page: PageParameters, notebook: str) -> float:
    """Measure how often a single guess is accepted, over all workloads of the page.

    Where acceptance is given, as for a model without weights, it is the first chance of that.
    One launch at depth 1 is enough, since a seed fixes the text. It is rounded, so that the run
    with acceptance held there keeps its name when this one is measured again.
    """
    if page.spec.synthetic_rates:
        return page.spec.synthetic_rates[0]
    spec = replace(page.spec, depths=(0, 1), rounds=1, lossless_prompts=0)
    recorded = sweep.measure(
        spec, notebook, page.machine, page.machines_folder, covered_by="depth_sweep"
    )
    own = report.sweep_of(recorded).timed
    own = own[(own["depth"] == 1) & own["workload"].isin(page.spec.workloads)]
    return round(float(own["draft_n_accepted"].sum() / own["draft_n"].sum()), 2)


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


def measure_tracer(page: PageParameters, notebook: str) -> Pair:
    """Measure the tracer as it is, with room held, and with rows that nobody drafted."""
    if page.spec.synthetic_rates:
        return Pair(None, None, NO_TEXT)
    spec = replace(
        page.spec,
        engine="tracer", server="", server_args=(), fit_target_mib=None, kv_unified=None, slots=1,
        more_arms=("room", "rows"), room=max(page.spec.depths),
        workloads=tuple(w for w in page.spec.workloads if w != "long") or page.spec.workloads,
        lossless_prompts=0,
    )  # fmt: skip
    return measured(spec, page, notebook)


def measure_evicted(page: PageParameters, notebook: str) -> tuple[Pair, bool]:
    """Measure with a layer off the device, or take what the memory page has measured.

    Returns the pair, and whether its device was emulated.
    """
    own = page.evicting
    emulated = True
    if not own.prompts:
        return Pair(None, None, "it was left out (evicted_prompts = 0)."), emulated
    spec = replace(
        page.spec, depths=own.depths, workloads=own.workloads, prompts=own.prompts,
        rounds=own.rounds, lossless_prompts=0,
    )  # fmt: skip
    pair = Pair(None, None)
    kinds = (True, False) if replaying() else (not planner.devices(binary.probe(spec.server)),)
    for emulated in kinds:
        pair = eviction.measure_evicted(
            replace(page, spec=spec), notebook, emulated=emulated, covered_by="memory_eviction"
        )
        if pair.there:
            break
    return pair, emulated
