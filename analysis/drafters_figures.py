"""Figures of the page on drafters, in the book's style."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import acceptance, drafters, repetition
from analysis.drafters import Comparison
from analysis.figures import NARROW, WIDE, style
from analysis.stats import LIKE_THESE, ON_THESE, Interval

_MARKS = "osD^vPX*hp"
_SPREAD = 0.5  # of the distance between two depths, shared out over the drafters


def _looks(found: Comparison) -> dict[str, dict[str, Any]]:
    """Return one colour and one mark a drafter, so that neither is needed alone."""
    colors = sns.color_palette("colorblind", len(found.drafters))
    marks = [_MARKS[i % len(_MARKS)] for i in range(len(found.drafters))]
    return {
        d: {"color": c, "marker": m} for d, c, m in zip(found.drafters, colors, marks, strict=True)
    }


def _panels(found: Comparison) -> tuple[Figure, Iterator[tuple[Axes, str]], Any]:
    names = list(found.base.workloads)
    columns = min(len(names), 2)
    rows = math.ceil(len(names) / columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(4.1 * columns, 2.9 * rows), sharex=True, sharey=True, squeeze=False
    )
    for axes in list(grid.flat)[len(names) :]:
        axes.set_visible(False)
    return figure, zip(grid.flat, names, strict=False), grid


def _line(
    axes: Axes,
    xs: list[int],
    of: Callable[[int, str], Interval | None],
    shift: float,
    look: dict[str, Any],
) -> None:
    """Draw estimates with both intervals, a little to the side of their place."""
    for scope, width in ((LIKE_THESE, NARROW), (ON_THESE, WIDE)):
        for x in xs:
            found = of(x, scope)
            if found is not None and math.isfinite(found.low) and math.isfinite(found.high):
                axes.plot(
                    [x + shift] * 2, [found.low, found.high], color=look["color"], lw=width,
                    solid_capstyle="butt",
                )  # fmt: skip
    shown = [(x + shift, v.estimate) for x in xs if (v := of(x, ON_THESE)) is not None]
    if shown:
        axes.plot(*zip(*shown, strict=True), "-", lw=1, ms=5, mec="white", zorder=3, **look)


def _finish(figure: Figure, grid: Any, looks: dict[str, dict[str, Any]], x: str, y: str) -> Figure:
    for axes in grid[-1]:
        axes.set_xlabel(x)
    for row in grid:
        row[0].set_ylabel(y)
    handles = [Line2D([], [], ls="-", lw=1, mec="white", **look) for look in looks.values()]
    names = [drafters.name(d) for d in looks]
    figure.legend(
        handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize="small"
    )
    plt.close(figure)
    return figure


def _shifts(found: Comparison) -> dict[str, float]:
    n = len(found.drafters)
    return {d: _SPREAD * (i / max(n - 1, 1) - 0.5) for i, d in enumerate(found.drafters)}


def speed(found: Comparison) -> Figure:
    """Draw speed over that without drafting against depth, a line a drafter, a panel a workload."""
    style()
    looks, shifts = _looks(found), _shifts(found)
    figure, panels, grid = _panels(found)
    for axes, workload in panels:
        for drafter, own in found.drafters.items():

            def of(depth: int, scope: str, d: str = drafter, w: str = workload) -> Interval | None:
                return found.ranked.relative("tok_s", w, found.rank(d, depth), 0, scope)

            depths = [d for d in own.depths if d > 0]
            _line(axes, depths, of, shifts[drafter], looks[drafter])
        axes.axhline(1, color="0.35", lw=1, ls="--", zorder=0)
        axes.set_title(workload)
        axes.set_xticks([d for d in found.base.depths if d > 0])
        axes.set_ylim(bottom=0)
    return _finish(figure, grid, looks, "draft depth n", "speed over no drafting")


def by_position(found: Comparison) -> Figure:
    """Draw acceptance by position at the deepest depth, a line a drafter, a panel a workload."""
    style()
    looks, shifts = _looks(found), _shifts(found)
    figure, panels, grid = _panels(found)
    for axes, workload in panels:
        for drafter, own in found.drafters.items():
            counts = acceptance.of_samples(own.timed, workload, max(own.depths))
            if counts is not None:

                def of(k: int, scope: str, c: acceptance.Positions = counts) -> Interval | None:
                    return c.interval(k, "a", scope)

                _line(axes, list(range(1, counts.depth + 1)), of, shifts[drafter], looks[drafter])
        axes.set_title(workload)
        axes.set_ylim(0, 1)
        axes.set_xticks(range(1, max(found.base.depths) + 1))
    return _finish(figure, grid, looks, "position in the draft, k", "first k all kept")


def repeated(found: Comparison) -> Figure:
    """Draw tokens per step and speed of each text with n-gram drafting against its repetition."""
    style()
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.2, 3.4))
    for drafter, look in _looks(found).items():
        if not drafters.is_ngram(drafter):
            continue
        texts = repetition.points(found, drafter)
        for axes, column in ((left, "tokens_per_step"), (right, "ratio")):
            axes.plot(
                texts["repeated"], texts[column], ls="", ms=6, mec="white", mew=0.5, alpha=0.85,
                label=drafters.name(drafter), **look,
            )  # fmt: skip
    for axes, label in ((left, "tokens per step"), (right, "speed over no drafting")):
        axes.axhline(1, color="0.35", lw=1, ls="--", zorder=0)
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"share of runs of {repetition.RUN} tokens said before")
        axes.set_ylabel(label)
    left.legend(frameon=False, loc="lower right")
    plt.close(figure)
    return figure
