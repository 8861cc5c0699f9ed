"""Figures in one style: readable in print, colour-blind safe, intervals always drawn."""

from __future__ import annotations

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from analysis import findings, stats
from analysis.described import described
from analysis.report import MIX, Cell, Sweep
from analysis.stats import Interval
from analysis.verdict import TOLERANCE

NARROW, WIDE = 1.2, 3.6  # line widths of the wider and the narrower interval


def style() -> None:
    """Set the book's style."""
    sns.set_theme(
        style="whitegrid",
        palette="colorblind",
        rc={
            "figure.dpi": 120,
            "savefig.dpi": 120,
            "figure.constrained_layout.use": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": "medium",
            "axes.titleweight": "bold",
            "grid.color": "#e3e3e3",
            "svg.hashsalt": "specdepth",
        },
    )


def _cells(sweep: Sweep, name: str) -> list[Cell]:
    return [c for c in sweep.cells() if c.workload == name]


def _bars(axes: Axes, cells: list[Cell], quantity: str, color: Any) -> None:
    """Draw estimates with both intervals: the thick one on these prompts, the thin one beyond."""
    for scope, width in ((stats.LIKE_THESE, NARROW), (stats.ON_THESE, WIDE)):
        for cell in cells:
            found = cell.interval(quantity, scope)
            if found is not None and math.isfinite(found.low) and math.isfinite(found.high):
                axes.plot(
                    [cell.depth, cell.depth], [found.low, found.high], color=color, lw=width,
                    solid_capstyle="butt",
                )  # fmt: skip
    values = [(c.depth, c.interval(quantity, stats.ON_THESE)) for c in cells]
    shown = [(d, v.estimate) for d, v in values if v is not None]
    axes.plot(*zip(*shown, strict=True), "o-", color=color, ms=5, lw=1, mec="white", zorder=3)


def speed_by_depth(sweep: Sweep, tolerance: float = TOLERANCE) -> Figure:
    """Draw decode speed against depth, one panel a workload, with the verdict's depth marked."""
    style()
    names = list(sweep.workloads)
    columns = min(len(names), 2)
    rows = math.ceil(len(names) / columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(3.9 * columns, 2.7 * rows), sharex=True, squeeze=False
    )
    colors, answers = sns.color_palette(), []
    for axes, name, color in zip(grid.flat, names, colors, strict=False):
        _bars(axes, _cells(sweep, name), "tok_s", color)
        found = sweep.verdict(name, tolerance=tolerance)
        answers.append(found)
        if found.recommended is not None:
            axes.axvline(found.recommended, color="0.35", lw=1, ls="--", zorder=0)
        else:
            axes.axvspan(
                min(found.candidates) - 0.2, max(found.candidates) + 0.2, color="0.9", zorder=0
            )
        axes.set_title(f"{name}: {_said(found.recommended, found.candidates)}")
        axes.set_ylim(bottom=0)
        axes.set_xticks(sweep.depths)
    for axes in grid[-1]:
        axes.set_xlabel("draft depth n")
    for row in grid:
        row[0].set_ylabel("decode tok/s")
    for axes in list(grid.flat)[len(names) :]:
        axes.set_visible(False)
    plt.close(figure)  # shown once, by the cell that returns it
    return described(figure, findings.answers(answers))


def _said(recommended: int | None, candidates: tuple[int, ...]) -> str:
    if recommended is not None:
        return f"depth {recommended}"
    return f"undecided, {min(candidates)} to {max(candidates)}"


def gain_against_cost(sweep: Sweep) -> Figure:
    """Draw tokens per step against step time, each relative to depth 0, a path a workload.

    Both axes are logarithmic, so equal speed is a line of slope one: above the diagonal a depth
    is faster than no drafting, below it slower.
    """
    style()
    figure, axes = plt.subplots(figsize=(6.2, 4.4))
    colors = sns.color_palette()
    reach = [1.0]
    for name, color in zip(sweep.workloads, colors, strict=False):
        cells = _cells(sweep, name)
        if not cells or cells[0].depth != 0:
            continue
        points = [_gain_and_cost(sweep, name, c.depth) for c in cells]
        x, y = ([p[i].estimate for p in points] for i in (0, 1))
        reach += [*x, *y]
        axes.plot(x, y, "o-", color=color, ms=5, lw=1.2, mec="white", label=name)
        for cell, (cost, gain) in zip(cells[1:], points[1:], strict=True):
            at = (cost.estimate, gain.estimate)
            axes.annotate(
                str(cell.depth), at, textcoords="offset points", xytext=(4, -10), fontsize=8,
                color=color,
            )  # fmt: skip
            if math.isfinite(cost.high) and math.isfinite(gain.high):
                axes.plot([cost.low, cost.high], [at[1]] * 2, color=color, lw=0.9, alpha=0.7)
                axes.plot([at[0]] * 2, [gain.low, gain.high], color=color, lw=0.9, alpha=0.7)
    top = max(reach) * 1.12
    line = np.array([0.9, top])
    axes.plot(line, line, color="0.35", lw=1, ls="--")
    axes.fill_between(line, line, top, color="#0072b2", alpha=0.06, lw=0)
    axes.text(1.02, top * 0.96, "faster than without drafting", va="top", fontsize=9, color="0.25")
    axes.text(top * 0.99, 0.93, "slower", ha="right", va="bottom", fontsize=9, color="0.25")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.9, top)
    axes.set_ylim(0.9, top)
    ticks = [t for t in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if t < top]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, labels=[f"{t:g}×" for t in ticks])
        axis.set_minor_locator(NullLocator())
    axes.set_xlabel("step time, relative to depth 0")
    axes.set_ylabel("tokens per step, relative to depth 0")
    axes.legend(title=None, frameon=False, loc="lower right", bbox_to_anchor=(1.0, 0.08))
    plt.close(figure)  # shown once, by the cell that returns it
    return described(figure, findings.balance(sweep))


def _gain_and_cost(sweep: Sweep, name: str, depth: int) -> tuple[Interval, Interval]:
    """Return step time and tokens per step relative to depth 0, paired."""
    one = Interval(1.0, 1.0, 1.0)
    cost, gain = (
        sweep.relative(column, name, depth, 0, stats.LIKE_THESE) or one
        for column in ("step_ms", "tokens_per_step")
    )
    return cost, gain


def acceptance_by_depth(sweep: Sweep) -> Figure:
    """Draw the acceptance rate against depth, one line a workload."""
    style()
    figure, axes = plt.subplots(figsize=(6.2, 3.4))
    for name, color in zip(sweep.workloads, sns.color_palette(), strict=False):
        cells = [c for c in _cells(sweep, name) if c.acceptance is not None]
        if cells:
            _bars(axes, cells, "acceptance", color)
            axes.plot([], [], "o-", color=color, label=name)
    axes.set_ylim(0, 1)
    axes.set_xticks([d for d in sweep.depths if d > 0])
    axes.set_xlabel("draft depth n")
    axes.set_ylabel("acceptance rate, accepted / drafted")
    axes.legend(frameon=False, ncols=4, loc="upper right")
    plt.close(figure)  # shown once, by the cell that returns it
    return described(figure, findings.acceptance_change(sweep))


def overview(sweeps: list[Sweep]) -> Figure:
    """Draw speed relative to no drafting against depth, for the mix of each machine."""
    style()
    figure, axes = plt.subplots(figsize=(6.6, 3.6))
    for sweep, color in zip(sweeps, sns.color_palette("colorblind", len(sweeps)), strict=True):
        name = MIX if MIX in sweep.groups() else sweep.workloads[0]
        ratios = {d: sweep.relative("tok_s", name, d, 0, stats.LIKE_THESE) for d in sweep.depths}
        depths = [d for d, r in ratios.items() if r is not None]
        points = [r for r in ratios.values() if r is not None]
        for depth, found in zip(depths, points, strict=True):
            if math.isfinite(found.high):
                axes.plot([depth, depth], [found.low, found.high], color=color, lw=NARROW)
        values = [p.estimate for p in points]
        axes.plot(depths, values, "o-", color=color, mec="white", label=sweep.machine)
    axes.axhline(1, color="0.35", lw=1, ls="--")
    axes.set_ylim(bottom=0)
    axes.set_xticks(sorted({d for s in sweeps for d in s.depths}))
    axes.set_xlabel("draft depth n")
    axes.set_ylabel("speed relative to no drafting")
    axes.legend(frameon=False)
    plt.close(figure)  # shown once, by the cell that returns it
    return described(figure)
