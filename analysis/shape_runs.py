"""Full-size architectures run for real without their weights: step times, and what they imply.

The text of such a model means nothing and its acceptance is given, so that only times are read
from these runs. Combined with an acceptance that was measured elsewhere they give a speed at each
depth, and a best one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

import pandas as pd

from analysis import quotes, report, shape_file, shape_models, sweep
from analysis.markup import escaped
from analysis.parameters import PageParameters
from analysis.report import Sweep
from analysis.spec import SweepSpec
from analysis.stats import ON_THESE, Interval, Mean
from analysis.tables import interval, listed

RANDOM = f":{shape_file.RANDOM}"


@dataclass(frozen=True)
class Implied:
    """Speeds of a shape under some acceptance, as ratios to depth 0, and the best depths."""

    shape: str
    acceptance: str  # where it was measured
    ratios: dict[int, Interval]
    best: tuple[int, ...]  # the best by estimate, and those that can not be told from it


def specs(page: PageParameters) -> dict[str, SweepSpec]:
    """Return the spec of each shape of a page."""
    own = page.shaping
    return {
        name: replace(
            page.spec, model=shape_models.canonical(f"{shape_models.PREFIX}{name}"),
            arm="synthetic", more_arms=(), depths=own.depths, rounds=own.rounds,
            synthetic_rates=quotes.public_rates(max(own.depths)),
            prompts=own.prompts, workloads=("short",), n_predict=own.n_predict,
            lossless_prompts=0, context=2048,
        )
        for name in own.models
    }  # fmt: skip


def measure(page: PageParameters, notebook: str) -> dict[str, Sweep]:
    """Measure the step times of each shape of a page."""
    return {
        name: report.sweep_of(
            sweep.measure(spec, notebook, page.machine, page.machines_folder), page.mix
        )
        for name, spec in specs(page).items()
    }


def step_times(runs: Mapping[str, Sweep]) -> pd.DataFrame:
    """Return step time and its growth by shape and depth; the scope is that of these prompts."""
    rows = {}
    for name, run in runs.items():
        for depth in run.depths:
            own = run.cell("short", depth)
            rows[name, depth] = {
                "step time, ms": interval(own.interval("step_ms", ON_THESE)),
                "against depth 0": interval(_growth(run, depth, 0)),
                "against one less": interval(_growth(run, depth, _before(run, depth))),
            }
    table = pd.DataFrame.from_dict(rows, orient="index")
    if not table.empty:
        table.index = pd.MultiIndex.from_tuples(table.index, names=["shape", "depth"])
    return table


def _before(run: Sweep, depth: int) -> int:
    return max((d for d in run.depths if d < depth), default=depth)


def _growth(run: Sweep, depth: int, base: int) -> Interval | None:
    return None if depth == base else run.relative("step_ms", "short", depth, base, ON_THESE)


def implied(run: Sweep, name: str, acceptance: str, rates: tuple[float, ...]) -> Implied:
    """Return the speeds that a shape would have with some acceptance.

    `rates` are the chances that position k is accepted with all before it, taken as exact; the
    intervals are those of the step times.
    """
    counts = list(accumulate(rates, initial=1.0))
    depths = [d for d in run.depths if d < len(counts)]

    def ratio(depth: int, base: int) -> Interval:
        tokens = math.log(counts[depth] / counts[base])
        if depth == base:
            return Interval(1.0, 1.0, 1.0)
        step = run.mean("step_ms", "short", depth, base)
        return Mean(tokens - step.estimate, step.components).interval(ON_THESE).map(math.exp)

    ratios = {d: ratio(d, 0) for d in depths}
    top = max(depths, key=lambda d: ratios[d].estimate)
    best = tuple(d for d in depths if d == top or ratio(d, top).high >= 1)
    return Implied(name, acceptance, ratios, best)


def implied_table(found: list[Implied]) -> pd.DataFrame:
    """Return speeds against depth 0 by shape and acceptance, with the depths that may be best."""
    rows = {
        (i.shape, i.acceptance): {
            **{f"depth {d}": interval(r) for d, r in i.ratios.items() if d > 0},
            "best": listed(i.best),
        }
        for i in found
    }
    table = pd.DataFrame.from_dict(rows, orient="index")
    if not table.empty:
        table.index = pd.MultiIndex.from_tuples(table.index, names=["shape", "acceptance of"])
    return table


def sentence(found: list[Implied]) -> str:
    """Return the depth limit of each shape, as one sentence."""
    alike: dict[str, dict[str, list[str]]] = {}
    for i in found:
        alike.setdefault(i.shape, {}).setdefault(listed(i.best), []).append(i.acceptance)
    told = []
    for shape, by_best in alike.items():
        sources = [f"{best} ({'; '.join(who)})" for best, who in by_best.items()]
        told.append(f"{shape} {escaped(' or '.join(sources))}")
    return (
        "The depths that may be best by step times of this machine, by whose acceptance is taken: "
        f"{'. '.join(told)}."
    )


def _contents(runs: Mapping[str, Sweep]) -> dict[tuple[str, int], Interval]:
    """Return the ratio of the step times by shape and depth, where a shape ran with both."""
    found = {}
    for name, run in runs.items():
        other = runs.get(name.removesuffix(RANDOM))
        if other is None or not name.endswith(RANDOM):
            continue
        for depth in (d for d in run.depths if d in other.depths):
            own, zeros = (r.mean("step_ms", "short", depth) for r in (run, other))
            ratio = Mean(own.estimate - zeros.estimate, own.components + zeros.components)
            found[name.removesuffix(RANDOM), depth] = ratio.interval(ON_THESE).map(math.exp)
    return found


def contents(runs: Mapping[str, Sweep]) -> pd.DataFrame | None:
    """Return step times with random weights against a hole, where a shape ran with both.

    The two were not run in turns, so that a drift of the machine between them is in the ratio.
    """
    rows = {
        cell: {"step time, random weights against zeros": interval(ratio)}
        for cell, ratio in _contents(runs).items()
    }
    if not rows:
        return None
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(table.index, names=["shape", "depth"])
    return table


def contents_sentence(runs: Mapping[str, Sweep]) -> str:
    """Return whether random weights took another time than zeros, as one sentence."""
    found = _contents(runs)
    if not found:
        return "No shape was run with both."
    apart = [f"{s} at depth {d}" for (s, d), r in found.items() if r.low > 1 or r.high < 1]
    said = f"differ for {', '.join(apart)}" if apart else "are not distinguishable at any depth"
    return (
        f"On this machine step times with random weights and with zeros {said}. The two were not "
        "run in turns, so that a drift of the machine between them is in the ratio."
    )
