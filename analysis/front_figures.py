"""The front page's figure: what a deeper draft gives to a step against what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from analysis import note
from analysis.bounds import Bounds, exactly, tokens_ratio
from analysis.figures import NARROW, style
from analysis.front import group
from analysis.markup import escaped
from analysis.report import Sweep
from analysis.stats import LIKE_THESE, Interval
from analysis.tables import interval

NOTE = "the note"
_TICKS = (0.5, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30)


@dataclass(frozen=True)
class Panel:
    """Tokens a step and time a step by depth, relative to a first depth."""

    name: str
    first: int
    gain: Mapping[int, Interval]
    cost: Mapping[int, Interval]
    answer: int | None  # the recommended depth

    @property
    def deepest(self) -> int:
        """The deepest depth."""
        return max(self.cost)


def panels(sweeps: list[Sweep]) -> list[Panel]:
    """Return one panel a machine, against no drafting, and the note's, against its depth 2."""
    found = []
    for sweep in sweeps:
        name = group(sweep)
        gain, cost = (_by_depth(sweep, name, c) for c in ("tokens_per_step", "step_ms"))
        if len(cost) > 1:
            answer = sweep.verdict(name).recommended
            found.append(Panel(sweep.machine, 0, gain, cost, answer))
    return [*found, of_note()]


def _by_depth(sweep: Sweep, name: str, column: str) -> dict[int, Interval]:
    ratios = {d: sweep.relative(column, name, d, 0, LIKE_THESE) for d in sweep.depths if d > 0}
    return {0: Interval(1, 1, 1)} | {d: r for d, r in ratios.items() if r is not None}


def of_note() -> Panel:
    """Return the note's panel: the bounds that its printed figures allow."""
    stated = note.rates(rounding=True)
    cost = {note.BASE: exactly(1)} | note.step_growth(rounding=True)
    gain = {d: tokens_ratio(stated, d, note.BASE) for d in cost}
    return Panel(
        NOTE,
        note.BASE,
        {d: _middle(b) for d, b in gain.items()},
        {d: _middle(b) for d, b in cost.items()},
        note.BASE,
    )


def _middle(found: Bounds) -> Interval:
    return Interval(math.sqrt(found.low * found.high), found.low, found.high)


def gain_and_cost(sweeps: list[Sweep]) -> Figure:
    """Draw for each machine, and for the note, what a step gives against what it takes."""
    style()
    found = panels(sweeps)
    columns = min(len(found), 3)
    rows = math.ceil(len(found) / columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(max(3.6 * columns, 4.6), 3.3 * rows), sharey=True, squeeze=False
    )
    for axes, panel in zip(grid.flat, found, strict=False):
        _draw(axes, panel)
    top = max(i.high if math.isfinite(i.high) else i.estimate for p in found for i in _all(p))
    ticks = [t for t in _TICKS if 1 <= t <= top * 1.1]
    grid[0, 0].set_yscale("log")
    grid[0, 0].set_ylim(0.9, top * 1.15)
    grid[0, 0].yaxis.set_ticks(ticks, labels=[f"{t:g}×" for t in ticks])
    grid[0, 0].yaxis.set_minor_locator(NullLocator())
    for row in grid:
        row[0].set_ylabel("ratio to the panel's first depth")
    for axes in list(grid.flat)[len(found) :]:
        axes.set_visible(False)
    plt.close(figure)  # shown once, by the cell that glues it
    return figure


def _all(panel: Panel) -> list[Interval]:
    return [*panel.gain.values(), *panel.cost.values()]


def _draw(axes: Axes, panel: Panel) -> None:
    colors = sns.color_palette()
    lines = (
        (panel.cost, colors[3], "time a step takes", "s"),
        (panel.gain, colors[0], "tokens a step gives", "o"),
    )
    for values, color, label, marker in lines:
        for depth, own in values.items():
            if math.isfinite(own.high):
                axes.plot([depth, depth], [own.low, own.high], color=color, lw=NARROW)
        shown = [v.estimate for v in values.values()]
        axes.plot(
            list(values), shown, color=color, marker=marker, ms=5, lw=1.2, mec="white", label=label
        )
    both = sorted(set(panel.cost) & set(panel.gain))
    low, high = ([values[d].estimate for d in both] for values in (panel.gain, panel.cost))
    losing = [c > g for g, c in zip(low, high, strict=True)]
    axes.fill_between(
        both, low, high, where=losing, interpolate=True, color=colors[3], alpha=0.1, lw=0
    )
    if panel.answer is not None:
        axes.axvline(panel.answer, color="0.35", lw=1, ls="--", zorder=0)
    said = "undecided" if panel.answer is None else f"use depth {panel.answer}"
    axes.set_title(f"{panel.name}: {said}")
    axes.set_xticks(sorted(panel.cost))
    axes.set_xlabel(f"draft depth n, against n = {panel.first}")
    axes.legend(frameon=False, loc="upper left", fontsize=9)


def finding(found: list[Panel]) -> str:
    """Return what the figure shows, as one sentence a machine, and one of the note."""
    told = []
    for panel in found:
        last = panel.deepest
        gain, cost = panel.gain.get(last), panel.cost[last]
        if gain is None:
            continue
        told.append(
            f"{escaped(panel.name)}, depth {panel.first} to {last}: {_times(panel, gain)} times "
            f"the tokens for {_times(panel, cost)} times the time"
        )
    return f"{'; '.join(told)}."


def _times(panel: Panel, found: Interval) -> str:
    if panel.name == NOTE:
        return Bounds(found.low, found.high).text(1)
    return interval(found)


def headline(found: list[Panel]) -> str:
    """Return in a few words whether the time of a step grows faster than what it gives."""
    grows = [
        p.cost[p.deepest].estimate > p.gain[p.deepest].estimate
        for p in found
        if p.deepest in p.gain
    ]
    if all(grows):
        return "To the deepest draft, a step's time grows more than what it gives"
    return "Deeper pays only while a step gives more than it costs"


def markdown(sweeps: list[Sweep], key: str) -> str:
    """Return the glued figure `key` with its caption and its alternative text, as MyST."""
    found = panels(sweeps)
    said = f"{headline(found)}: {finding(found)}"
    return (
        f"```{{glue:figure}} {key}\n:name: gain-and-cost\n:alt: {said}\n\n"
        f"**{headline(found)}.** {finding(found)} Both against the first depth of the panel; "
        "where the time (squares) is above the tokens (circles), decoding is slower than there. "
        "Bars: 95% interval for prompts like these; in the note, what its printed figures allow. "
        "Dashed: the recommended depth, and the note's.\n```"
    )
