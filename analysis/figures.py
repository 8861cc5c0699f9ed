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

from analysis import stats
from analysis.report import MIX, Cell, Sweep

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


def speed_by_depth(sweep: Sweep) -> Figure:
    """Draw decode speed against depth, one panel a workload, with the verdict's depth marked."""
    style()
    names = list(sweep.workloads)
    columns = min(len(names), 2)
    rows = math.ceil(len(names) / columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(3.9 * columns, 2.7 * rows), sharex=True, squeeze=False
    )
    colors = sns.color_palette()
    for axes, name, color in zip(grid.flat, names, colors, strict=False):
        _bars(axes, _cells(sweep, name), "tok_s", color)
        found = sweep.verdict(name)
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
    return figure


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
        base = cells[0]
        x = [math.exp(c.log_step_ms.estimate - base.log_step_ms.estimate) for c in cells]
        y = [
            math.exp(c.log_tokens_per_step.estimate - base.log_tokens_per_step.estimate)
            for c in cells
        ]
        reach += [*x, *y]
        axes.plot(x, y, "o-", color=color, ms=5, lw=1.2, mec="white", label=name)
        for cell, a, b in zip(cells[1:], x[1:], y[1:], strict=True):
            axes.annotate(
                str(cell.depth), (a, b), textcoords="offset points", xytext=(4, -10), fontsize=8,
                color=color,
            )  # fmt: skip
            for quantity, along in (("step_ms", "x"), ("tokens_per_step", "y")):
                found = cell.interval(quantity, stats.LIKE_THESE)
                if found is None or not math.isfinite(found.high):
                    continue
                zero = math.exp(getattr(base, f"log_{quantity}").estimate)
                ends = [found.low / zero, found.high / zero]
                axes.plot(
                    *((ends, [b, b]) if along == "x" else ([a, a], ends)), color=color, lw=0.9,
                    alpha=0.7,
                )  # fmt: skip
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
    return figure


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
    return figure


def overview(sweeps: list[Sweep]) -> Figure:
    """Draw speed relative to no drafting against depth, for the mix of each machine."""
    style()
    figure, axes = plt.subplots(figsize=(6.6, 3.6))
    for sweep, color in zip(sweeps, sns.color_palette("colorblind", len(sweeps)), strict=True):
        name = MIX if MIX in sweep.groups() else sweep.workloads[0]
        members = sweep.groups()[name]
        depths, points = [], []
        for depth in sweep.depths:
            if not sweep.has_speed(members, depth):
                continue
            pairs = [
                a - b
                for a, b in zip(
                    sweep.logs("tok_s", members, depth), sweep.logs("tok_s", members, 0),
                    strict=True,
                )
            ]  # fmt: skip
            depths.append(depth)
            points.append(stats.mean(pairs).interval(stats.LIKE_THESE).map(math.exp))
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
    return figure
