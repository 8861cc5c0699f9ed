"""Figures of the sweeps that others published, beside the note."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from analysis import note, public, public_growth, public_sources
from analysis.described import described
from analysis.figures import style
from analysis.note import BASE
from analysis.public_sources import NOTE

# A marker of its own for each sweep, so that no line needs its colour to be told from the others.
MARKERS = "osD^v<>PXh"
_DARK = "0.1"


def _looks() -> dict[str, dict[str, Any]]:
    names = list(public_sources.sweeps().index)
    colors = sns.color_palette("colorblind", len(names))
    return {
        hardware: {"color": color, "marker": marker}
        for hardware, color, marker in zip(names, colors, MARKERS, strict=True)
    }


def curves() -> Figure:
    """Draw speed relative to depth 2 against depth, one panel a kind of work, the note in dark."""
    style()
    found = public.curves()
    kinds = ("prose", "code")
    figure, panels = plt.subplots(1, len(kinds), figsize=(9.2, 4.0), sharey=True)
    looks = _looks()
    for axes, kind in zip(panels, kinds, strict=True):
        own = found[found["kind"] == kind]
        axes.axhline(1, color="0.35", lw=1, ls="--", zorder=1)
        for hardware, look in looks.items():
            line = own[own["hardware"] == hardware]
            axes.plot(
                line["n_max"], line["relative"], lw=1.1, ms=5.5, mec="white", mew=0.6,
                label=public_sources.name(hardware), **look,
            )  # fmt: skip
        line = own[own["hardware"] == NOTE]
        axes.plot(
            line["n_max"], line["relative"], color=_DARK, lw=2.6, marker="o", ms=7,
            mec="white", label=NOTE, zorder=5,
        )  # fmt: skip
        axes.set_title(kind)
        axes.set_xlabel("draft depth n")
        axes.set_xticks(sorted(found["n_max"].unique()))
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel(f"speed relative to depth {BASE}")
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, fontsize=8,
                  loc="outside right center")  # fmt: skip
    plt.close(figure)  # shown once, by the cell that returns it
    return described(figure)


def growth() -> Figure:
    """Draw the growth of step time from depth 2, one panel a depth, a row a sweep and the note."""
    style()
    found = public_growth.growths()
    ours = note.step_growth(rounding=True)
    rows = [NOTE, *public_sources.sweeps().index]
    at = {hardware: -i for i, hardware in enumerate(rows)}
    depths = public_growth.DEPTHS
    figure, panels = plt.subplots(1, len(depths), figsize=(9.2, 3.9), sharex=True, sharey=True)
    color = sns.color_palette("colorblind")[0]
    for axes, depth in zip(panels, depths, strict=True):
        axes.axvline(1, color="0.35", lw=1, ls="--", zorder=1)
        axes.axvspan(ours[depth].low, ours[depth].high, color="0.88", lw=0, zorder=0)
        middle = (ours[depth].low * ours[depth].high) ** 0.5
        axes.plot(middle, at[NOTE], "D", color=_DARK, ms=7, zorder=3)
        axes.plot([ours[depth].low, ours[depth].high], [at[NOTE]] * 2, color=_DARK, lw=2)
        for own in (g for g in found if g.depth == depth):
            y = at[own.hardware]
            axes.plot([own.step.low, own.step.high], [y, y], color=color, lw=2.2, alpha=0.75,
                      solid_capstyle="butt", zorder=2)  # fmt: skip
            if own.borrowed is not None:
                axes.plot(own.borrowed, y, "o", mfc="white", mec=color, ms=6, zorder=3)
            else:
                axes.plot((own.step.low * own.step.high) ** 0.5, y, "o", color=color, ms=6,
                          mec="white", zorder=3)  # fmt: skip
        axes.set_title(f"from depth {BASE} to {depth}")
        axes.set_xlabel("growth of step time")
        axes.set_xscale("log")
        axes.set_xlim(0.8, 4.3)
        axes.set_xticks([1, 1.5, 2, 3, 4])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}×"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.minorticks_off()
        axes.grid(visible=False, axis="y")
    panels[0].set_yticks(list(at.values()), labels=[public_sources.name(h) for h in rows])
    panels[0].plot([], [], "o", color=color, mec="white", label="acceptance of its own")
    panels[0].plot([], [], "o", mfc="white", mec=color, label="acceptance borrowed")
    panels[0].plot([], [], color=color, lw=2.2, alpha=0.75, label="what is stated allows")
    panels[0].plot([], [], "D", color=_DARK, label="the note")
    figure.legend(frameon=False, fontsize=8, ncols=4, loc="outside lower center")
    plt.close(figure)
    said = []
    for depth in depths:
        steps = [g.step for g in found if g.depth == depth]
        theirs = f"{min(s.low for s in steps):.2f} to {max(s.high for s in steps):.2f}"
        said.append(
            f"from depth {BASE} to {depth} the note {ours[depth].low:.2f} to "
            f"{ours[depth].high:.2f}, public sweeps {theirs}"
        )
    return described(figure, f"Step time grows {'; '.join(said)}.")
