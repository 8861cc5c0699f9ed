"""What the causes' runs say together: the map's panels and marks, and shapes under acceptances."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from analysis import (
    arms,
    decay,
    depth_limit,
    geometric,
    note,
    plan,
    public_growth,
    quotes,
    shape_runs,
    shapes,
    traffic,
)  # fmt: skip
from analysis.bounds import Bounds
from analysis.causes import ACCEPTANCE_ARMS, GIVEN, Causes
from analysis.depth_limit import Mark, Panel
from analysis.drafters_tables import HIGHER, LOWER, call
from analysis.parameters import Planning
from analysis.pieces import Pieces
from analysis.plan import Pool
from analysis.report import Sweep
from analysis.shape_runs import Implied
from analysis.stats import LIKE_THESE, ON_THESE, Interval
from analysis.tables import interval

_PANELS = (None, note.BASE, note.BASE - 1)  # depth 2 is the deepest of the note that still fits


def penalty() -> Bounds:
    """Return how much longer the note's step is than on public cards, from depth 2 to 3.

    That is what its first layer off the device cost, with the kernel that its build then lost.
    """
    deeper = note.BASE + 1
    ratio = note.step_growth(rounding=True)[deeper] / public_growth.of_cards()[deeper]
    return Bounds(ratio.low - 1, ratio.high - 1)


def panels(planning: Planning | None = None) -> list[Panel]:
    """Return the budgets of the map, by the closed form of the memory page's question."""
    asked = planning or Planning()
    subject = plan.of_shape(shapes.shape(asked.shape), asked.quantization)
    pool = Pool(0, asked.context, asked.slots, unified=True)
    needs = {
        d: plan.closed_form(subject, pool, d).total_mib for d in range(depth_limit.DEEPEST + 1)
    }
    middle = penalty()
    cost = math.sqrt((1 + middle.low) * (1 + middle.high)) - 1
    found = []
    for fits in _PANELS:
        title = (
            f"all depths fit\nfrom {needs[depth_limit.DEEPEST]:,.0f} MiB on"
            if fits is None
            else f"depth {fits} fits\n{needs[fits]:,.0f} to {needs[fits + 1]:,.0f} MiB"
        )
        found.append(Panel(title, fits, cost))
    return found


def marks(causes: Causes) -> list[Mark]:
    """Return this machine with its model, and the note's card, as places on the map."""
    sweep = causes.acceptance
    name = list(sweep.groups())[-1]
    slopes = [
        (math.exp(sweep.mean("step_ms", name, d, 0).estimate) - 1) / d
        for d in sweep.depths
        if d > 0
    ]
    here = Mark("this machine", causes.chance, causes.chance, min(slopes), max(slopes), None)
    chances = [geometric.alpha_of(rate.low, depth) for depth, rate in note.rates().items()]
    cards = _slopes(public_growth.of_cards())
    places = (min(chances), max(chances), cards.low, cards.high)
    return [
        here,
        Mark("the note's card", *places, note.BASE),
        Mark("the note, all fitting", *places, None),
    ]


def _slopes(growth: dict[int, Bounds]) -> Bounds:
    """Return the slopes that give a growth of step time from depth 2 to the deepest one.

    ``(1 + s n) / (1 + 2 s) = g`` has ``s = (g - 1) / (n - 2 g)``.
    """
    deepest = max(growth)
    low, high = (
        (g - 1) / (deepest - note.BASE * g) for g in (growth[deepest].low, growth[deepest].high)
    )
    return Bounds(low, high)


def map_question(planning: Planning | None = None) -> str:
    """Return what the panels' budgets are of, as one sentence."""
    asked = planning or Planning()
    return (
        f"Budgets are those of {asked.shape} in {asked.quantization}, {asked.context:,} tokens of "
        f"context and {asked.slots} slots, by the closed form. The note's chances are those that "
        f"its two acceptance figures give, its slopes those of public cards of the same shape. The "
        f"map goes on to depth {depth_limit.DEEPEST}."
    )


def map_sentence(causes: Causes) -> str:
    """Return where the map puts this machine and the note's card, as one sentence."""
    return (
        "Best depth by a model with one chance for all guesses, one price for each, and a layer "
        f"off the device that lengthens a step by {penalty().text(2)} of itself (what the note "
        f"paid beyond public cards): {_best(panels(), marks(causes))}."
    )


def map_finding(budgets: Sequence[Panel], places: Sequence[Mark]) -> str:
    """Return the best depth at each mark of the map, as one short sentence."""
    return (
        "Best depth if all guesses have one chance and one price, over each mark's range: "
        f"{_best(budgets, places)}."
    )


def _best(budgets: Sequence[Panel], places: Sequence[Mark]) -> str:
    """Return the best depth at the ends of each mark's ranges, in words."""
    of_budget = {panel.fits: panel for panel in budgets}
    told = []
    for mark in places:
        ends = [
            int(depth_limit.best(chance, slope, of_budget[mark.fits]))
            for chance in (mark.chance_low, mark.chance_high)
            for slope in (mark.slope_low, mark.slope_high)
        ]
        best = f"{min(ends)}" if len(set(ends)) == 1 else f"{min(ends)} to {max(ends)}"
        told.append(f"{mark.name}: {best}")
    return "; ".join(told)


def acceptance_arms(causes: Causes) -> pd.DataFrame:
    """Return speed against depth 0 with acceptance as it is, held constant, and perfect."""
    sweep = causes.acceptance
    rows = {}
    for depth in (d for d in sweep.depths if d > 0):
        row = {
            name: interval(arms.ratio(arms.of(sweep, arm), sweep, depth, LIKE_THESE, base=0))
            for arm, name in named(sweep).items()
        }
        group = list(sweep.groups())[-1]
        row["step time as measured, against depth 0"] = interval(
            sweep.relative("step_ms", group, depth, 0, LIKE_THESE)
        )
        rows[depth] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def named(sweep: Sweep) -> dict[str, str]:
    """Return the arms of acceptance that a run has, with their names on the page."""
    own = sweep.recorded.run.spec
    arms_of_run = {a: ACCEPTANCE_ARMS[a] for a in (own["arm"], *own.get("more_arms", ()))}
    return arms_of_run | ({"synthetic": GIVEN} if own["arm"] == "synthetic" else {})


def acceptance_sentence(causes: Causes) -> str:
    """Return what the deepest drafts would give were guesses better, as one sentence."""
    sweep = causes.acceptance
    found = _multiples(sweep)
    top, others = found["perfect"], [r for a, r in found.items() if a != "perfect"]
    limit = ""
    if top is not None and top.high < 1:
        limit = " Even with every guess right it would lose: the step itself costs too much."
    elif top is not None and top.low > 1 and not any(r and r.low > 1 for r in others):
        limit = " Only with every guess right would it win."
    return (
        f"{_at_multiples(sweep, named(sweep))}; a single guess is kept in {causes.chance:.0%} of "
        f"the steps.{limit}"
    )


def arms_finding(sweep: Sweep) -> str:
    """Return what the deepest drafts would give were guesses better, as one short sentence."""
    words = {LOWER: "slower", HIGHER: "faster"}
    calls = {arm: call(ratio) for arm, ratio in _multiples(sweep).items()}
    names = {
        arm: f"{name}: {words.get(calls[arm], calls[arm])}" for arm, name in named(sweep).items()
    }
    return f"{_at_multiples(sweep, names)}, {LIKE_THESE}."


def _multiples(sweep: Sweep) -> dict[str, Interval | None]:
    """Return the speed of the deepest depth against depth 0 by arm, for prompts like these."""
    deepest = max(sweep.depths)
    return {
        arm: arms.ratio(arms.of(sweep, arm), sweep, deepest, LIKE_THESE, base=0)
        for arm in named(sweep)
    }


def _at_multiples(sweep: Sweep, names: Mapping[str, str]) -> str:
    told = [f"{interval(ratio)} ({names[arm]})" for arm, ratio in _multiples(sweep).items()]
    return (
        f"In llama-server depth {max(sweep.depths)} decodes at these multiples of depth 0: "
        f"{', '.join(told)}"
    )


def rows_table(pieces: Pieces, sweep: Sweep) -> pd.DataFrame:
    """Return the verifying pass by its rows: drafted by nobody, and in real steps."""
    undrafted = arms.of(sweep, "rows")
    name = list(undrafted.groups())[-1]
    rows = {}
    for depth in pieces.depths:
        ms = {arm: pieces.mean(arm, depth, "verify") for arm in ("rows", "natural")}
        rows[depth + 1] = {
            "verify, nothing drafted, ms": f"{ms['rows']:.2f}",
            "of it a row": f"{ms['rows'] / (depth + 1):.2f}",
            "whole step against one row": interval(
                undrafted.relative("step_ms", name, depth, 0, LIKE_THESE) if depth else None
            ),
            "verify in real steps, ms": f"{ms['natural']:.2f}",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("rows")


def acceptances(causes: Causes, log: str = "") -> dict[str, tuple[float, ...]]:
    """Return chances by position, by where they were measured, for the shapes.

    Those of a log are one constant chance, from its rate at the depth that it states.
    """
    deepest = max((max(run.depths) for run in causes.shapes.values()), default=0)
    found = {}
    if "natural" in named(causes.acceptance):
        for workload, own in decay.positions(causes.acceptance).items():
            a = [own.a(k) for k in range(1, min(own.depth, deepest) + 1)]
            kept = geometric.prolonged([m.estimate for m in a if m], deepest)
            found[f"{own_name(causes)}, {workload}"] = kept
    found[quotes.rates_name()] = quotes.public_rates(deepest)
    if log:
        chance = traffic_chance(log, causes.acceptance.recorded.path.parent)
        if chance is not None:
            found["your traffic"] = tuple(chance**k for k in range(1, deepest + 1))
    return found


def traffic_chance(log: str, samples: Path) -> float | None:
    """Return the constant chance of a log's rate; None where it states no depth or no draft."""
    requests = [r for r in traffic.kept(log, samples) if r.depth and r.draft_n]
    if not requests:
        return None
    depths = [r.depth for r in requests if r.depth]
    most = max(set(depths), key=depths.count)
    own = [r for r in requests if r.depth == most]
    rate = sum(r.draft_n_accepted for r in own) / sum(r.draft_n for r in own)
    return geometric.alpha_of(rate, most)


def implied(causes: Causes, log: str = "") -> list[Implied]:
    """Return what each shape would do with each acceptance, by its real step times."""
    measured = acceptances(causes, log)
    return [
        shape_runs.implied(run, name, source, rates)
        for name, run in causes.shapes.items()
        if not name.endswith(shape_runs.RANDOM)
        for source, rates in measured.items()
    ]


def own_name(causes: Causes) -> str:
    """Return the name of the page's own model."""
    return str(causes.acceptance.recorded.run.model["name"]).removesuffix(".gguf")


def growth_runs(causes: Causes) -> dict[str, Sweep]:
    """Return the runs whose step times are drawn together, this page's model first."""
    return {own_name(causes): causes.acceptance} | {
        f"{name} shape": run
        for name, run in causes.shapes.items()
        if not name.endswith(shape_runs.RANDOM)
    }


def shape_sentence(causes: Causes) -> str:
    """Return how the step times of the shapes grow, as one sentence."""
    runs = {n: run for n, run in causes.shapes.items() if not n.endswith(shape_runs.RANDOM)}
    return f"Full-size architectures on this machine: {_grown(runs)}, against depth 0."


def growth_finding(runs: Mapping[str, Sweep]) -> str:
    """Return how the step times of some models grow to the deepest depth, as one sentence."""
    return f"Against depth 0, {_grown(runs)} ({ON_THESE})."


def _grown(runs: Mapping[str, Sweep]) -> str:
    told = []
    for name, run in runs.items():
        last = max(run.depths)
        more = run.relative("step_ms", list(run.groups())[-1], last, 0, ON_THESE)
        told.append(f"{name} takes {interval(more)} times as long for a step at depth {last}")
    return "; ".join(told)
