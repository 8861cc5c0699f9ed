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
    table = pd.DataFrame.from_dict(rows, orient="index").fillna("–")
    if not table.empty:
        table.index = pd.MultiIndex.from_tuples(table.index, names=["shape", "acceptance of"])
    return table


def sentence(found: list[Implied]) -> str:
    """Return the depth limit of each shape, as one sentence."""
    alike: dict[tuple[str, str], list[str]] = {}
    for i in found:
        alike.setdefault((i.shape, listed(i.best)), []).append(i.acceptance)
    told = [
        f"{best} for {shape} with the acceptance of {' and of '.join(sources)}"
        for (shape, best), sources in alike.items()
    ]
    return f"The depths that may be best by measured step times on this machine: {'; '.join(told)}."


def contents(runs: Mapping[str, Sweep]) -> pd.DataFrame | None:
    """Return step times with random weights against a hole, where a shape ran with both.

    The two were not run in turns, so that a drift of the machine between them is in the ratio.
    """
    rows = {}
    for name, run in runs.items():
        other = runs.get(name.removesuffix(RANDOM))
        if other is None or not name.endswith(RANDOM):
            continue
        for depth in (d for d in run.depths if d in other.depths):
            means = [r.mean("step_ms", "short", depth) for r in (run, other)]
            ratio = Mean(
                means[0].estimate - means[1].estimate, means[0].components + means[1].components
            )
            rows[name.removesuffix(RANDOM), depth] = {
                "step time, random weights against zeros": interval(
                    ratio.interval(ON_THESE).map(math.exp)
                )
            }
    if not rows:
        return None
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(table.index, names=["shape", "depth"])
    return table
