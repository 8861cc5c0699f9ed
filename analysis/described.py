"""Figures in words: what a reader hears who can not see them, taken from what is drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D


class Described(Figure):
    """A figure whose text form says what it shows, so that its page can give that as alt text."""

    def __repr__(self) -> str:
        return str(self.get_label())


def described(figure: Figure, finding: str = "", more: str = "") -> Figure:
    """Give a figure its text: the ends of each line and bar, then `more` of what is drawn.

    A finding, a plain sentence, stands before it on a line of its own; its page puts that into the
    caption. The text is the plain form of a page's output, so a replay compares its numbers as
    well.
    """
    first = " ".join(finding.split())
    rest = " ".join(" ".join([*_panels(figure), more]).split())  # titles may have several lines
    figure.set_label(f"{first}\n{rest}" if first else rest)
    figure.__class__ = Described  # drawn by pyplot, which makes plain ones
    return figure


def _panels(figure: Figure) -> Iterator[str]:
    shown = [axes for axes in figure.axes if axes.get_visible()]
    x, y = (
        next(filter(None, names), "")
        for names in ([a.get_xlabel() for a in shown], [a.get_ylabel() for a in shown])
    )
    for axes in shown:
        told = list(_series(axes, axes.get_xlabel() or x))
        if told:
            title = axes.get_title() or axes.get_title(loc="left")
            begin = f"{title}, " if title else ""
            yield f"{begin}{axes.get_ylabel() or y}: {'; '.join(told)}."


def _series(axes: Axes, across: str) -> Iterator[str]:
    whole = across.startswith(("draft depth", "position"))  # neighbours are drawn aside
    # A name may stand in the legend alone, by an empty line of the same colour.
    names = {str(x.get_color()): str(x.get_label()) for x in axes.lines if not _xy(x)}
    for line in axes.lines:
        points = _xy(line)
        joined = line.get_linestyle() not in ("None", "", " ")
        marked = joined and line.get_marker() not in ("None", "", None)
        label = str(line.get_label())
        if label.startswith("_") and marked:  # what is not marked is the bar of an interval
            label = names.get(str(line.get_color()), label)
        named = not label.startswith("_")
        if len(points) < 2 or not (named or marked):
            continue
        name = f"{label} " if named else ""
        if joined:
            yield name + _ends(points, across, whole=whole)
        else:
            values = [y for _, y in points]
            reach = f"from {_number(min(values))} to {_number(max(values))}"
            yield f"{name}{len(points)} points {reach}"
    for bars in axes.containers:
        if isinstance(bars, BarContainer) and len(bars.patches) > 1:
            middles = [(b.get_x() + b.get_width() / 2, b.get_height()) for b in bars.patches]
            yield f"{bars.get_label()} " + _ends(middles, across, whole=whole)


def _xy(line: Line2D) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in np.asarray(line.get_xydata(), dtype=float)]


def _ends(points: list[tuple[float, float]], across: str, *, whole: bool) -> str:
    known = [p for p in points if math.isfinite(p[1])] or points
    (x0, y0), (x1, y1) = known[0], known[-1]
    at = [f"{round(x)}" if whole else f"{x:.2g}" for x in (x0, x1)]
    return f"from {_number(y0)} at {across} = {at[0]} to {_number(y1)} at {at[1]}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
