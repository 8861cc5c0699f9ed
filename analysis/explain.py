"""How drafting pays: the arithmetic of one constant chance, drawn and as tables."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from analysis import memory, shapes
from analysis.depth_limit import DEEPEST, Panel, best, speed
from analysis.figures import style
from analysis.geometric import tokens_per_step

CHANCES = (0.6, 0.75, 0.9)  # examples, from the poor to the good end of what heads reach
PRICES = (0.05, 0.15, 0.4)  # of a guess, in undrafted steps: memory-bound to compute-bound
_SHOWN = 0.15  # the price that the right panel of the figure has


def tokens(chances: tuple[float, ...] = CHANCES, deepest: int = DEEPEST) -> pd.DataFrame:
    """Return tokens per step by depth as text, a column a chance of each guess."""
    columns = {
        f"chance {chance:g}": [f"{tokens_per_step(chance, n):.2f}" for n in range(deepest + 1)]
        for chance in chances
    }
    index = [str(n) for n in range(deepest + 1)]
    frame = pd.DataFrame(columns, index=pd.Index(index, name="depth"))
    frame.loc["no limit"] = [f"{1 / (1 - chance):.2f}" for chance in chances]
    return frame


def best_depths(
    chances: tuple[float, ...] = CHANCES, prices: tuple[float, ...] = PRICES
) -> pd.DataFrame:
    """Return the best depth and its speed against no drafting, by the chance and price of a guess.

    All depths fit; depths go to :data:`analysis.depth_limit.DEEPEST`.
    """
    panel = Panel("", None, 0.0)
    rows = {}
    for price in prices:
        row = {}
        for chance in chances:
            depth = int(best(chance, price, panel))
            row[f"chance {chance:g}"] = (
                f"{_depth(depth)}: {speed(chance, price, depth, None, 0):.2f}×"
            )
        rows[f"{price:g} of a step"] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("a guess costs")


def _depth(depth: int) -> str:
    return f"{depth} or more" if depth == DEEPEST else str(depth)


def states() -> pd.DataFrame:
    """Return what a step of depth costs in recurrent state, MiB a slot, of the shapes that ship."""
    rows = {}
    for name, shape in shapes.shapes().items():
        layout = shape.layout()
        if layout.has_state:
            step = memory.state_mib(layout, 1, 1) - memory.state_mib(layout, 1, 0)
            rows[name] = {"MiB a slot and step of depth": f"{step:,.1f}"}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("shape")


def curves(chances: tuple[float, ...] = CHANCES, price: float = _SHOWN) -> Figure:
    """Draw tokens per step, and speed against no drafting, by depth for some chances."""
    style()
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.2, 3.4))
    depths = np.arange(DEEPEST + 1)
    markers = "osD^v"
    for chance, color, marker in zip(chances, sns.color_palette(), markers, strict=False):
        given = [float(tokens_per_step(chance, int(n))) for n in depths]
        speeds = [float(speed(chance, price, int(n), None, 0)) for n in depths]
        look = {"color": color, "marker": marker, "ms": 5, "lw": 1.2, "mec": "white"}
        left.plot(depths, given, label=f"chance {chance:g}", **look)
        right.plot(depths, speeds, **look)
        top = int(np.argmax(speeds))
        right.plot(top, speeds[top], "o", ms=13, mfc="none", mec=color, mew=1.2)
    left.set_ylabel("tokens per step")
    left.legend(frameon=False)
    left.set_title("what a step gives")
    right.axhline(1, color="0.35", lw=1, ls="--")
    right.set_ylabel("speed against no drafting")
    right.set_title(f"a guess costs {price:g} of a step")
    for axes in (left, right):
        axes.set_xlabel("draft depth n")
        axes.set_ylim(bottom=0)
    plt.close(figure)  # shown once, by the cell that returns it
    return figure


def markdown(key: str) -> str:
    """Return the glued figure `key` with its caption and its alternative text, as MyST."""
    panel = Panel("", None, 0.0)
    depths = {c: int(best(c, _SHOWN, panel)) for c in CHANCES}
    found = ", ".join(f"{_depth(n)} at {c:g}" for c, n in depths.items())
    said = (
        "Each further guess adds less than the one before, and each costs the same: speed has a "
        f"highest point. Best depth by the chance of a guess: {found}."
    )
    return (
        f"```{{glue:figure}} {key}\n:name: depth-by-chance\n:alt: Two panels of lines. {said}\n\n"
        f"{said} Computed from the formulas of this page; rings mark the best depths, the dashed "
        "line no drafting.\n```"
    )
