"""The constant-acceptance model: every guess is accepted with the same chance, alpha.

Source: Leviathan, Kalman and Matias, Fast Inference from Transformers via Speculative Decoding
(2023), section 3.1: drafts of n tokens then give ``1 + alpha + ... + alpha^n`` tokens a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import optimize


def rate_of(alpha: float, depth: int) -> float:
    """Return the acceptance rate (accepted / drafted) at a depth under a constant alpha."""
    return sum(alpha**k for k in range(1, depth + 1)) / depth


def tokens_per_step(alpha: npt.ArrayLike, depth: int) -> npt.NDArray[np.float64]:
    """Return the tokens per step at a depth under a constant alpha, or an array of them."""
    chance = np.asarray(alpha, dtype=float)
    return np.asarray(np.sum([chance**k for k in range(depth + 1)], axis=0))


def alpha_of(rate: float, depth: int) -> float:
    """Return the constant alpha that gives an acceptance rate at a depth, both in [0, 1]."""
    if not 0 <= rate <= 1:
        raise ValueError(f"an acceptance rate lies in [0, 1]: {rate}")
    if rate in (0.0, 1.0):
        return rate
    return float(optimize.brentq(lambda a: rate_of(a, depth) - rate, 0.0, 1.0))


def prolonged(chances: Sequence[float], depth: int) -> tuple[float, ...]:
    """Return the chances that the first 1 to `depth` guesses are all kept, of those measured.

    Beyond the deepest measured one the last conditional chance goes on.
    """
    kept = [1.0, *chances]
    last = kept[-1] / kept[-2] if chances and kept[-2] else 0.0
    while len(kept) <= depth:
        kept.append(kept[-1] * last)
    return tuple(kept[1 : depth + 1])
