"""Figures of why deeper loses: the split, the arms, the map of the best depth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from analysis import arms, attribution, depth_limit, why_tables
from analysis.attribution import Split
from analysis.depth_limit import Mark, Panel
from analysis.described import described
from analysis.figures import NARROW, WIDE, style
from analysis.report import Sweep
from analysis.stats import LIKE_THESE, ON_THESE, SCOPES, Interval

_HATCHES = ("", "//", "..", "xx", "\\\\", "++")
_MARKERS = ("o", "s", "^", "D", "v", "P")


def split(splits: Sequence[Split]) -> Figure:
    """Draw the parts of each split as bars from zero, gains up and losses down, and their sum."""
    style()
    figure, axes = plt.subplots(figsize=(7.2, 4.2))
    names = list(splits[0].parts)
    colors = sns.color_palette(n_colors=len(names))
    for place, own in enumerate(splits):
        up = down = 0.0
        for name, color, hatch in zip(names, colors, _HATCHES, strict=False):
            part = own.parts[name].estimate
            bottom = up if part > 0 else down
            axes.bar(
                place, part, bottom=bottom, color=color, hatch=hatch, edgecolor="white", lw=0.5,
                width=0.62, label=name if place == 0 else None,
            )  # fmt: skip
            up, down = (up + part, down) if part > 0 else (up, down + part)
        _whole(axes, place, own)
    axes.axhline(0, color="0.2", lw=1)
    axes.set_xticks(range(len(splits)), [f"{s.base} → {s.depth}" for s in splits])
    axes.set_xlabel("from draft depth to draft depth")
    axes.set_ylabel("factor on decode speed (log scale)")
    _as_factors(axes)
    axes.grid(axis="x", visible=False)
    axes.plot([], [], "o", color="0.1", mfc="white", label="all together")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
    plt.close(figure)
    said = [f"{s.base} to {s.depth} ×{math.exp(s.whole.estimate):.2f}" for s in splits]
    return described(
        figure,
        attribution.finding(splits),
        f"All causes together, from depth to depth: {', '.join(said)}.",
    )


def _whole(axes: Axes, place: float, own: Split) -> None:
    for scope, width in ((LIKE_THESE, NARROW), (ON_THESE, WIDE)):
        found = own.whole.interval(scope)
        if math.isfinite(found.low) and math.isfinite(found.high):
            axes.plot([place] * 2, [found.low, found.high], color="0.1", lw=width, zorder=4)
    axes.plot(place, own.whole.estimate, "o", color="0.1", mfc="white", ms=7, zorder=5)


def _as_factors(axes: Axes) -> None:
    """Label an axis of natural logarithms with factors."""
    low, high = axes.get_ylim()
    shown = [f for f in (0.125, 0.25, 0.5, 0.71, 1, 1.41, 2, 4, 8) if low <= math.log(f) <= high]
    axes.set_yticks([math.log(f) for f in shown], [f"×{f:g}" for f in shown])


def by_arm(sweep: Sweep, others: Mapping[str, str]) -> Figure:
    """Draw speed against depth 0 by depth, a line an arm, with both intervals."""
    style()
    figure, axes = plt.subplots(figsize=(6.4, 3.8))
    shifts = np.linspace(-0.08, 0.08, len(others))
    for (arm, name), shift, color, marker in zip(
        others.items(), shifts, sns.color_palette(), _MARKERS, strict=False
    ):
        own = arms.of(sweep, arm)
        found = {
            d: {s: arms.ratio(own, sweep, d, s, base=0) for s in SCOPES}
            for d in sweep.depths
            if d > 0
        }
        _line(axes, found, float(shift), color, marker, name)
    axes.axhline(1, color="0.35", lw=1, ls="--")
    _against_depth_0(figure, axes, {d for d in sweep.depths if d > 0}, "decode speed")
    return described(figure, why_tables.arms_finding(sweep))


def _line(
    axes: Axes,
    found: Mapping[int, Mapping[str, Interval | None]],
    shift: float,
    color: object,
    marker: str,
    name: str,
) -> None:
    points = []
    for depth, by_scope in found.items():
        for scope, width in ((LIKE_THESE, NARROW), (ON_THESE, WIDE)):
            own = by_scope.get(scope)
            if own is None:
                continue
            if scope == ON_THESE:
                points.append((depth + shift, own.estimate))
            if math.isfinite(own.low) and math.isfinite(own.high):
                axes.plot(
                    [depth + shift] * 2, [own.low, own.high], color=color, lw=width,
                    solid_capstyle="butt",
                )  # fmt: skip
    if points:
        axes.plot(
            *zip(*points, strict=True), marker=marker, color=color, ms=5, lw=1, mec="white",
            label=name, zorder=3,
        )  # fmt: skip


def growth(runs: Mapping[str, Sweep]) -> Figure:
    """Draw step time against that of depth 0 by depth, a line a model, on these prompts."""
    style()
    figure, axes = plt.subplots(figsize=(6.4, 3.8))
    shifts = np.linspace(-0.06, 0.06, max(len(runs), 2))
    depths: set[int] = set()
    for (name, run), shift, color, marker in zip(
        runs.items(), shifts, sns.color_palette(), _MARKERS, strict=False
    ):
        group = list(run.groups())[-1]
        found = {
            d: {ON_THESE: run.relative("step_ms", group, d, 0, ON_THESE)}
            for d in run.depths
            if d > 0
        }
        depths |= set(found)
        _line(axes, found, float(shift), color, marker, name)
    reach = np.array([0, max(depths, default=1)])
    axes.plot(reach, reach + 1, color="0.35", lw=1, ls="--", label="one pass more for each guess")
    _against_depth_0(figure, axes, depths, "step time")
    return described(figure, why_tables.growth_finding(runs))


def _against_depth_0(figure: Figure, axes: Axes, depths: set[int], what: str) -> None:
    axes.set_xticks(sorted(depths))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("draft depth n")
    axes.set_ylabel(f"{what} against depth 0")
    axes.legend(frameon=False, fontsize=9)
    plt.close(figure)


def limits(panels: Sequence[Panel], marks: Sequence[Mark]) -> Figure:
    """Draw the best depth over the chance of a guess and its cost, one panel a memory budget."""
    style()
    figure, grid = plt.subplots(
        1, len(panels), figsize=(2.6 * len(panels), 3.5), sharey=True, squeeze=False
    )
    chance, slope = np.linspace(0.3, 0.99, 231), np.geomspace(0.01, 1.5, 241)
    deepest = depth_limit.DEEPEST
    colors = ListedColormap(sns.color_palette("viridis", deepest + 1).as_hex())
    norm = BoundaryNorm(np.arange(-0.5, deepest + 1.5), deepest + 1)
    mesh = ScalarMappable(norm, colors)
    for axes, panel in zip(grid[0], panels, strict=True):
        best = depth_limit.best(chance[None, :], slope[:, None], panel, deepest)
        axes.pcolormesh(chance, slope, best, cmap=colors, norm=norm, rasterized=True)
        for mark, marker in zip(marks, _MARKERS, strict=False):
            if mark.fits == panel.fits:
                _mark(axes, mark, marker)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_yticks([0.01, 0.03, 0.1, 0.3, 1])
        axes.set_title(panel.title, fontsize=9)
        axes.set_xlabel("chance of each guess")
    grid[0][0].set_ylabel("a guess lengthens a step by this share")
    bar = figure.colorbar(mesh, ax=list(grid[0]), ticks=range(deepest + 1), pad=0.02)
    bar.ax.minorticks_off()
    bar.set_label(f"best draft depth up to {deepest}")
    plt.close(figure)
    said = [
        f"{m.name}: chance {(m.chance_low + m.chance_high) / 2:.2f}, a guess lengthens a step by "
        f"{m.slope_low:.2g} to {m.slope_high:.2g}"
        for m in marks
    ]
    return described(
        figure,
        why_tables.map_finding(panels, marks),
        f"Panels: {'; '.join(p.title for p in panels)}. {'. '.join(said)}.",
    )


def _mark(axes: Axes, mark: Mark, marker: str) -> None:
    slope = math.sqrt(mark.slope_low * mark.slope_high)
    chance = (mark.chance_low + mark.chance_high) / 2
    for color, width in (("white", 4.0), ("black", 1.8)):
        axes.plot([chance] * 2, [mark.slope_low, mark.slope_high], color=color, lw=width)
        axes.plot([mark.chance_low, mark.chance_high], [slope] * 2, color=color, lw=width)
    axes.plot(chance, slope, marker, color="black", mfc="white", ms=7, mew=1.5)
    right = chance > 0.6
    axes.annotate(
        mark.name, (chance, slope), textcoords="offset points",
        xytext=(-8 if right else 8, 6), ha="right" if right else "left", fontsize=8,
        bbox={"boxstyle": "round,pad=0.2", "fc": "white", "ec": "none", "alpha": 0.85},
    )  # fmt: skip
