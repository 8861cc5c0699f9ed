"""Figures of the page on drafters, in the book's style."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import drafters, drafters_sentences, repetition
from analysis.described import described
from analysis.drafters import NONE, Comparison, Option
from analysis.figures import NARROW, WIDE, style
from analysis.stats import LIKE_THESE, ON_THESE, Interval

Curve = Callable[[str, str, str], dict[int, Interval]]  # of a drafter, workload and scope
_MARKS = "osD^vPX*hp"
_SPREAD = 0.5  # of the distance between two depths, shared out over the drafters


def _looks(found: Comparison) -> dict[str, dict[str, Any]]:
    """Return one colour and one mark a drafter, so that neither is needed alone."""
    colors = sns.color_palette("colorblind", len(found.drafters))
    marks = [_MARKS[i % len(_MARKS)] for i in range(len(found.drafters))]
    return {
        d: {"color": c, "marker": m} for d, c, m in zip(found.drafters, colors, marks, strict=True)
    }


def _draw(found: Comparison, of: Curve, x: str, y: str) -> Figure:
    """Draw a panel a workload with a line a drafter, a little to the side of each other."""
    style()
    names = list(found.base.workloads)
    columns = min(len(names), 2)
    rows = math.ceil(len(names) / columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(4.1 * columns, 2.9 * rows), sharex=True, sharey=True, squeeze=False
    )
    looks, reach = _looks(found), max(len(found.drafters) - 1, 1)
    for axes, workload in zip(grid.flat, names, strict=False):
        for place, (drafter, look) in enumerate(looks.items()):
            for scope, width in ((LIKE_THESE, NARROW), (ON_THESE, WIDE)):
                points = of(drafter, workload, scope)
                shift = _SPREAD * (place / reach - 0.5)
                for at, v in points.items():
                    if math.isfinite(v.low) and math.isfinite(v.high):
                        axes.plot(
                            [at + shift] * 2, [v.low, v.high], color=look["color"], lw=width,
                            solid_capstyle="butt",
                        )  # fmt: skip
            shown = [(at + shift, v.estimate) for at, v in points.items()]
            if shown:
                axes.plot(
                    *zip(*shown, strict=True),
                    "-",
                    lw=1,
                    ms=5,
                    mec="white",
                    zorder=3,
                    label=drafters.name(drafter),
                    **look,
                )
        axes.set_title(workload)
        axes.set_ylim(bottom=0)
    for axes in list(grid.flat)[len(names) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel(x)
    for row in grid:
        row[0].set_ylabel(y)
    handles = [Line2D([], [], ls="-", lw=1, mec="white", **look) for look in looks.values()]
    figure.legend(
        handles, [drafters.name(d) for d in looks], loc="outside lower center", ncols=3,
        frameon=False, fontsize="small",
    )  # fmt: skip
    plt.close(figure)
    return figure


def speed(found: Comparison) -> Figure:
    """Draw speed over that without drafting against depth, a line a drafter, a panel a workload."""

    def of(drafter: str, workload: str, scope: str) -> dict[int, Interval]:
        ratios = {
            depth: found.relative("tok_s", Option(drafter, depth), NONE, workload, scope)
            for depth in found.drafters[drafter].depths[1:]
        }
        return {depth: ratio for depth, ratio in ratios.items() if ratio is not None}

    figure = _draw(found, of, "draft depth n", "speed over no drafting")
    for axes in figure.axes:
        axes.axhline(1, color="0.35", lw=1, ls="--", zorder=0)
        axes.set_xticks(sorted({o.depth for o in found.options if o.depth > 0}))
    return described(figure, drafters_sentences.fastest(found))


def by_position(found: Comparison) -> Figure:
    """Draw acceptance by position at the deepest depth, a line a drafter, a panel a workload."""

    def of(drafter: str, workload: str, scope: str) -> dict[int, Interval]:
        counts = found.positions(drafter, workload)
        places = range(1, counts.depth + 1) if counts else ()
        shares = {k: counts.interval(k, "a", scope) for k in places} if counts else {}
        return {k: share for k, share in shares.items() if share is not None}

    figure = _draw(found, of, "position in the draft, k", "first k all kept")
    for axes in figure.axes:
        axes.set_ylim(0, 1)
        axes.set_xticks(range(1, max(map(found.deepest, found.drafters)) + 1))
    return described(figure, drafters_sentences.kept_finding(found))


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
    return described(figure, repetition.finding(found))
