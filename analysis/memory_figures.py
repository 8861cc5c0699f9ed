"""Figures of memory: the law against the engine, and which layers leave the device."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis import memory, shapes
from analysis.described import described
from analysis.figures import style
from analysis.parameters import Planning
from analysis.plan import Row
from analysis.plan_tables import law_sentence, left, sorted_by_depth, step_sentence
from analysis.plans import Plans

ON, OFF = "#d0e2f2", "#d55e00"
PARTS = {"weights_mib": "weights", "kv_mib": "KV cache", "compute_mib": "compute buffers",
         "state_mib": "recurrent state"}  # fmt: skip


def law(table: pd.DataFrame) -> Figure | None:
    """Draw state memory against depth: the law as lines, the engine's figures as points."""
    if table.empty:
        return None
    style()
    slots = sorted(table["slots"].unique())
    figure, panels = plt.subplots(
        1, len(slots), figsize=(3.9 * len(slots), 3.4), sharey=True, squeeze=False
    )
    names = list(dict.fromkeys(table["shape"]))
    depths = np.arange(0, table["depth"].max() + 1)
    for axes, count in zip(panels.flat, slots, strict=True):
        dashes = cycle(("-", "--", ":", "-.", (0, (1, 2))))  # two shapes may share a line
        for name, color in zip(names, sns.color_palette("colorblind", len(names)), strict=True):
            layout = shapes.shape(name).layout()
            line = [memory.state_mib(layout, int(count), int(d)) for d in depths]
            axes.plot(depths, line, color=color, lw=1.2, ls=next(dashes), label=name)
            own = table[(table["shape"] == name) & (table["slots"] == count)]
            axes.plot(own["depth"], own["engine_mib"], "o", color=color, mec="white", ms=6)
        axes.set_title(f"{count} slot{'s' if count > 1 else ''}")
        axes.set_xlabel("draft depth n")
    panels[0][0].set_ylim(bottom=0)
    panels[0][0].set_ylabel("recurrent state, MiB")
    panels[0][0].legend(frameon=False, fontsize=8)
    plt.close(figure)  # shown once, by the cell that returns it
    return described(figure, law_sentence(table))


def needs(rows: list[Row], planning: Planning) -> Figure:
    """Draw what each depth needs on the device, stacked by kind."""
    style()
    figure, axes = plt.subplots(figsize=(6.2, 3.4))
    base = np.zeros(len(rows))
    depths = [row.depth for row in rows]
    colors = sns.color_palette("colorblind", len(PARTS))
    for (part, name), color in zip(PARTS.items(), colors, strict=True):
        values = np.array([getattr(row, part) for row in rows]) / 1024
        axes.bar(depths, values, bottom=base, color=color, width=0.7, label=name)
        base += values
    for depth, top in zip(depths, base, strict=True):
        axes.annotate(
            f"{top:.1f}", (depth, top), ha="center", va="bottom", fontsize=8,
            textcoords="offset points", xytext=(0, 2),
        )  # fmt: skip
    axes.set_xticks(depths)
    axes.set_ylim(0, base.max() * 1.28)
    axes.set_xlabel("draft depth n")
    axes.set_ylabel("device memory, GiB")
    axes.legend(frameon=False, ncols=2, loc="upper left", fontsize=8)
    plt.close(figure)
    return described(figure, step_sentence(rows, planning))


def layers(needed: Plans, placed: Plans) -> Figure | None:
    """Draw each layer on the device or off it, a row a depth, a panel a budget."""
    style()
    budgets = sorted({q.budget_mib for q in placed.answers if q.budget_mib is not None})
    if not budgets:
        return None
    answers = sorted_by_depth(needed)
    height = 0.55 + 0.17 * len(answers)
    figure, panels = plt.subplots(
        len(budgets), 1, figsize=(7.6, height * len(budgets) + 0.5), sharex=True,
        squeeze=False,
    )  # fmt: skip
    said, first = [], []
    for axes, budget in zip(panels.flat, budgets, strict=False):
        grid = []
        for question, _ in answers:
            total = shapes.shape(question.shape).blocks + 1
            own = placed.answers.get(replace(question, budget_mib=budget))
            row = np.zeros(total)
            if own is not None:
                off = left(question, own)
                row[list(off.layers)] = 1
                row[-1] = off.output
            grid.append(row)
        edges = np.arange(len(grid[0]) + 1) - 0.5
        axes.pcolormesh(
            edges, np.arange(len(grid) + 1), np.array(grid), cmap=ListedColormap([ON, OFF]),
            vmin=0, vmax=1, edgecolors="white", lw=0.6,
        )  # fmt: skip
        axes.set_yticks(np.arange(len(grid)) + 0.5, labels=[f"n = {q.depth}" for q, _ in answers])
        off_by_depth = [
            f"{int(r.sum())} at {q.depth}" for r, (q, _) in zip(grid, answers, strict=True)
        ]
        said.append(f"{budget:,} MiB: {', '.join(off_by_depth)}")
        gone = [q.depth for r, (q, _) in zip(grid, answers, strict=True) if r.any()]
        when = f"from depth {gone[0]} on" if gone else "at no depth"
        first.append(f"with {budget:,} MiB {when}")
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set_title(f"{budget:,} MiB of device memory", loc="left")
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.tick_params(axis="y", labelsize=8)
    panels[-1][0].set_xlabel("layer (the last is the output, the one before it the MTP block)")
    panels[0][0].legend(
        handles=[Patch(color=ON, label="on the device"), Patch(color=OFF, label="off it")],
        frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0), fontsize=8,
    )  # fmt: skip
    plt.close(figure)
    return described(
        figure,
        f"As the engine plans it, layers leave the device {', '.join(first)}.",
        f"Layers off the device by draft depth. {'. '.join(said)}.",
    )
