"""The best depth as acceptance, the cost of a guess and memory vary: a model of four numbers.

    speed(n) = tokens per step(chance, n) / ((1 + slope n) (1 + penalty if n > fits)),

relative to no drafting, with a constant chance of each guess (:mod:`analysis.geometric`), a step
that each guess lengthens by the share `slope` of an undrafted one, and from the first depth on
that does not fit on the device a step that is longer by the share `penalty`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.geometric import tokens_per_step

DEEPEST = 8
Grid = npt.NDArray[np.int_]


@dataclass(frozen=True)
class Mark:
    """A place on the map: ranges of the chance and of the slope."""

    name: str
    chance_low: float
    chance_high: float
    slope_low: float
    slope_high: float
    fits: int | None


@dataclass(frozen=True)
class Panel:
    """One memory budget: the deepest draft that fits, None for memory to spare."""

    title: str
    fits: int | None
    penalty: float


def speed(
    chance: npt.ArrayLike, slope: npt.ArrayLike, depth: int, fits: int | None, penalty: float
) -> npt.NDArray[np.float64]:
    """Return the speed at a depth relative to no drafting; arrays broadcast."""
    off = 1.0 + (penalty if fits is not None and depth > fits else 0.0)
    step = (1.0 + np.asarray(slope, dtype=float) * depth) * off
    return np.asarray(tokens_per_step(chance, depth) / step)


def best(chance: npt.ArrayLike, slope: npt.ArrayLike, panel: Panel, deepest: int = DEEPEST) -> Grid:
    """Return the best depth up to `deepest`; the shallowest of equals."""
    speeds = [speed(chance, slope, n, panel.fits, panel.penalty) for n in range(deepest + 1)]
    return np.asarray(np.argmax(np.stack(np.broadcast_arrays(*speeds)), axis=0))
