"""What stated acceptance rates allow: bounds by a linear program, with no model of the chances.

Let `a_k` be the chance that the first k guesses of a draft are all kept. It can not rise with k,
and a depth n gives ``1 + a_1 + ... + a_n`` tokens a step and the acceptance rate
``(a_1 + ... + a_n) / n``. Where rates are stated at some depths, the tokens at any depth are
bounded by what non-rising chances can be. The ratio of the tokens at two depths is a
linear-fractional program, made linear as Charnes and Cooper do (Programming with linear
fractional functionals, 1962).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import optimize


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest value that what is stated allows; not a confidence interval."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"bounds have low <= high: {self.low}, {self.high}")

    @classmethod
    def printed(cls, value: float, digits: int) -> Bounds:
        """Return what a figure may have been before it was rounded to so many digits."""
        return cls(value - 0.5 * 10**-digits, value + 0.5 * 10**-digits)

    def __mul__(self, other: Bounds) -> Bounds:
        """Return the bounds of the product of two positive quantities."""
        return Bounds(self.low * other.low, self.high * other.high)

    def __truediv__(self, other: Bounds) -> Bounds:
        """Return the bounds of the quotient of two positive quantities."""
        return Bounds(self.low / other.high, self.high / other.low)

    def text(self, digits: int) -> str:
        """Return ``87 to 98``, or one number where both are printed alike."""
        low, high = f"{self.low:,.{digits}f}", f"{self.high:,.{digits}f}"
        return low if low == high else f"{low} to {high}"


def exactly(value: float) -> Bounds:
    """Return bounds that leave nothing open."""
    return Bounds(value, value)


def hull(found: list[Bounds]) -> Bounds:
    """Return the narrowest bounds that hold all of these."""
    return Bounds(min(b.low for b in found), max(b.high for b in found))


def tokens_ratio(rates: Mapping[int, Bounds], depth: int, base: int = 0) -> Bounds:
    """Return the bounds of the tokens per step at a depth against those at a base depth.

    `rates` are acceptance rates by depth, in [0, 1]; other depths are open. With base 0, which
    gives one token a step, the result is the tokens per step themselves.

    Raises
    ------
    ValueError
        If no chances that fall with depth give the rates.
    """
    deepest = max((depth, base, *rates))
    # Unknowns: t = 1 / tokens at the base, and t times each chance a_1 to a_deepest.
    falls = np.diff(np.eye(deepest + 1), axis=0)  # a_1 <= 1, and each a_k <= the one before
    limits = [*falls]
    for at, rate in rates.items():
        total = np.where(np.arange(deepest + 1) <= at, 1.0, 0.0)
        total[0] = 0.0
        for side, bound in ((-1.0, max(rate.low, 0.0)), (1.0, min(rate.high, 1.0))):
            row = side * total
            row[0] = -side * at * bound
            limits.append(row)
    one = np.where(np.arange(deepest + 1) <= base, 1.0, 0.0)
    asked = np.where(np.arange(deepest + 1) <= depth, 1.0, 0.0)
    ends = []
    for sign in (1.0, -1.0):
        solved = optimize.linprog(
            sign * asked, A_ub=np.array(limits), b_ub=np.zeros(len(limits)),
            A_eq=one[np.newaxis], b_eq=[1.0], bounds=(0, None),
        )  # fmt: skip
        if solved.fun is None:  # no solution
            told = ", ".join(f"{r.text(3)} at depth {d}" for d, r in sorted(rates.items()))
            raise ValueError(f"no chances that fall with depth give these rates: {told}")
        ends.append(sign * solved.fun)
    low, high = ends
    # The solver's last bits must not turn a figure that is exact into two.
    return exactly(low) if math.isclose(low, high, rel_tol=1e-7) else Bounds(low, high)
