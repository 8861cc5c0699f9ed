"""The constant-acceptance model: every guess is accepted with the same chance, alpha.

Source: Leviathan, Kalman and Matias, Fast Inference from Transformers via Speculative Decoding
(2023), section 3.1: drafts of n tokens then give ``1 + alpha + ... + alpha^n`` tokens a step.
"""

from __future__ import annotations

from scipy import optimize

from analysis.stats import Interval


def rate_of(alpha: float, depth: int) -> float:
    """Return the acceptance rate (accepted / drafted) at a depth under a constant alpha."""
    return sum(alpha**k for k in range(1, depth + 1)) / depth


def tokens_per_step(alpha: float, depth: int) -> float:
    """Return the tokens a step gives at a depth under a constant alpha: its own and the kept."""
    return sum(alpha**k for k in range(depth + 1))


def alpha_of(rate: float, depth: int) -> float:
    """Return the constant alpha that gives an acceptance rate at a depth, both in [0, 1]."""
    if not 0 <= rate <= 1:
        raise ValueError(f"an acceptance rate lies in [0, 1]: {rate}")
    if rate in (0.0, 1.0):
        return rate
    return float(optimize.brentq(lambda a: rate_of(a, depth) - rate, 0.0, 1.0))


def predicted(rate: float, depth: int, other: int, rounding: float) -> Interval:
    """Return the rate at another depth, were alpha constant, with the reach of the rounding.

    `rounding` is half a unit of the printed rate's last digit.
    """
    rates = (rate, max(rate - rounding, 0.0), min(rate + rounding, 1.0))
    return Interval(*(rate_of(alpha_of(r, depth), other) for r in rates))
