"""Figures of the acceptance page, in the book's style."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from analysis import acceptance
from analysis.acceptance import Positions
from analysis.decay import finding, scopes
from analysis.described import described
from analysis.drafters_tables import HIGHER, LOWER, SAME, call
from analysis.figures import NARROW, WIDE, style
from analysis.half_steps import HALF_STEPS, NAMES, mean_ms
from analysis.half_steps import finding as half_steps_finding
from analysis.stats import LIKE_THESE

BINS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def by_position(counts: dict[str, Positions]) -> Figure:
    """Draw acceptance by position, one panel a workload, with the geometric line beside it."""
    style()
    columns = min(len(counts), 2)
    rows = math.ceil(len(counts) / columns)
    figure, panels = plt.subplots(
        rows, columns, figsize=(3.9 * columns, 2.7 * rows), sharex=True, sharey=True, squeeze=False
    )
    colors = sns.color_palette()
    for axes, (workload, own), color in zip(panels.flat, counts.items(), colors, strict=False):
        ks = np.arange(1, own.depth + 1)
        for scope, width in zip(scopes(counts)[::-1], (NARROW, WIDE), strict=False):
            for k in ks:
                found = own.interval(int(k), "a", scope)
                if found and math.isfinite(found.high):
                    axes.plot(
                        [k, k], [found.low, found.high], color=color, lw=width,
                        solid_capstyle="butt",
                    )  # fmt: skip
        means = [own.a(int(k)) for k in ks]
        shown = [(k, m.estimate) for k, m in zip(ks, means, strict=True) if m is not None]
        axes.plot(*zip(*shown, strict=True), "o-", color=color, mec="white", ms=5, lw=1)
        alpha = own.alpha()
        if alpha is not None:
            line = np.linspace(1, own.depth, 60)
            axes.plot(line, alpha.estimate**line, ls="--", lw=1, color="0.35")
            axes.text(
                own.depth, 0.93, f"dashed: constant chance {alpha.estimate:.2f}", ha="right",
                fontsize=8, color="0.3",
            )  # fmt: skip
        axes.set_title(workload)
        axes.set_ylim(0, 1)
        axes.set_xticks(ks)
    for axes in panels[-1]:
        axes.set_xlabel("position in the draft, k")
    for row in panels:
        row[0].set_ylabel("first k all kept")
    for axes in list(panels.flat)[len(counts) :]:
        axes.set_visible(False)
    plt.close(figure)
    return described(figure, finding(counts))


def calibration(steps: pd.DataFrame) -> Figure:
    """Draw the share of drafted tokens that were kept against the draft's own probability."""
    style()
    # Further rounds repeat the same texts.
    table = acceptance.calibration(steps[steps["round"] == steps["round"].min()], BINS)
    figure, axes = plt.subplots(figsize=(5.4, 4.0))
    color = sns.color_palette()[0]
    axes.plot([0, 1], [0, 1], color="0.35", lw=1, ls="--")
    axes.text(0.98, 0.03, "dashed: kept as often as believed", ha="right", fontsize=8, color="0.3")
    for row in table.to_dict("records"):
        found = row["accepted"].share(LIKE_THESE)
        if math.isfinite(found.high):
            axes.plot([row["probability"]] * 2, [found.low, found.high], color=color, lw=NARROW)
        axes.annotate(
            str(row["n"]), (row["probability"], found.estimate), textcoords="offset points",
            xytext=(5, -9), fontsize=7, color="0.35",
        )  # fmt: skip
    points = [(r["probability"], r["accepted"].estimate) for r in table.to_dict("records")]
    axes.plot(*zip(*points, strict=True), "o-", color=color, mec="white", ms=5, lw=1)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("probability that the head gave its guess")
    axes.set_ylabel("share of guesses kept, of those reached")
    plt.close(figure)
    return described(figure, _calibrated(table))


def _calibrated(table: pd.DataFrame) -> str:
    """Return in how many bins guesses are kept as often as believed, as one sentence."""
    calls = [
        call(r["accepted"].share(LIKE_THESE), r["probability"]) for r in table.to_dict("records")
    ]
    words = {SAME: "not distinguishable from it", HIGHER: "higher", LOWER: "lower"}
    said = [f"{how} in {calls.count(c)}" for c, how in words.items() if c in calls]
    return (
        f"Of {len(calls)} bins of the probability that the head gave its guesses, the share that "
        f"was kept is {', '.join(said)} ({LIKE_THESE}, 95% each)."
    )


def half_steps(steps: pd.DataFrame) -> Figure:
    """Draw the mean time of each part of a step against draft depth, with the whole's interval."""
    style()
    mean = steps.groupby("depth")[list(HALF_STEPS)].mean()
    figure, axes = plt.subplots(figsize=(5.8, 3.4))
    bottom = np.zeros(len(mean))
    hatches = ("", "//", "..", "xx")
    for part, color, hatch in zip(HALF_STEPS, sns.color_palette(), hatches, strict=False):
        values = mean[part].to_numpy()
        axes.bar(
            mean.index, values, bottom=bottom, color=color, label=NAMES[part], width=0.7,
            hatch=hatch, edgecolor="white", lw=0.5,
        )  # fmt: skip
        bottom = bottom + values
    for depth in mean.index:
        found = mean_ms(steps[steps["depth"] == depth], "step_ms")
        if math.isfinite(found.high):
            axes.plot([depth, depth], [found.low, found.high], color="0.15", lw=NARROW)
    axes.set_xticks(list(mean.index))
    axes.set_xlabel("draft depth n")
    axes.set_ylabel("time of a step, ms")
    axes.grid(axis="x", visible=False)
    axes.legend(frameon=False, loc="upper left")
    plt.close(figure)
    return described(figure, half_steps_finding(steps))
