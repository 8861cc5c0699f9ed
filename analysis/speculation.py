"""The quantities of speculative decoding, by the project's one set of definitions.

For a request with `predicted_n` tokens decoded in `predicted_ms`, of which `draft_n_accepted`
were drafted and accepted:

- the first token comes from the prompt pass, so decoding gave ``predicted_n - 1``;
- each verification step gives its accepted drafts and one token of the target's own, so
  ``steps = (predicted_n - 1) - draft_n_accepted``;
- ``tokens per step = (predicted_n - 1) / steps``, ``step time = predicted_ms / steps``, and
  ``speed = tokens per step / step time``, exactly.

Source of the acceptance model: Leviathan, Kalman and Matias, Fast Inference from Transformers
via Speculative Decoding (2023), section 3.

**Why one depth is slower than another.** Between a base and another depth, exactly,

    log(speed ratio) = log(tokens per step ratio) - log(step time ratio).

A step time is a sum of parts, not a product: drafting, verifying, the rest, what a layer off the
device adds. The logarithmic mean ``L(a, b) = (a - b) / (log a - log b)`` turns the sum into one of
logarithms without a remainder,

    log(T1 / T0) = sum_i w_i log(t1_i / t0_i) = sum_i (t1_i - t0_i) / L(T1, T0),
    w_i = L(t1_i, t0_i) / L(T1, T0),

the logarithmic mean Divisia index (Ang, The LMDI approach to decomposition analysis, 2005). The
last form also holds where a part is zero, as drafting is at depth 0: its terms sum to
``(T1 - T0) / L(T1, T0) = log(T1 / T0)`` by the definition of L.

Tokens per step can not fall with depth: a longer draft keeps what a shorter one keeps. The *loss of
acceptance* is their shortfall against a chance that stays that of the first guess,

    log(tokens1 / tokens0) = log(constant1 / constant0) + shortfall,
    constant = 1 + c_1 + ... + c_1^n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.geometric import tokens_per_step

# Below this, one step more or less moves the speed by several percent.
MIN_TOKENS_FOR_SPEED = 32


def timed(frame: pd.DataFrame, temperature: float, arm: str = "natural") -> pd.DataFrame:
    """Return the samples that a speed is made of, with the derived columns.

    Left out are warm-ups, failed requests, other arms, and the greedy requests of the comparison
    of texts. Columns added: ``tok_s``, ``tokens_per_step``, ``step_ms``; ``tok_s`` and
    ``step_ms`` are missing where fewer than :data:`MIN_TOKENS_FOR_SPEED` tokens were decoded.
    """
    keep = (
        ~frame["warm_up"].astype(bool)
        & frame["error"].isna()
        & (frame["temperature"] == temperature)
        & (frame["arm"] == arm)
    )
    chosen = frame[keep].copy()
    decoded = chosen["predicted_n"].astype(float) - 1
    steps = chosen["steps"].astype(float)
    usable = (decoded >= MIN_TOKENS_FOR_SPEED) & (steps > 0)
    chosen["tokens_per_step"] = (decoded / steps).where(usable)
    chosen["step_ms"] = (chosen["predicted_ms"] / steps).where(usable)
    chosen["tok_s"] = (1e3 * decoded / chosen["predicted_ms"]).where(usable)
    return chosen


def ends_inside_draft(frame: pd.DataFrame) -> pd.Series[bool]:
    """Tell which samples ended inside an accepted draft.

    The server then counts drafted tokens as accepted that the text does not hold, so that the
    steps by definition are fewer than the drafts that were verified.
    """
    return frame["drafts"].notna() & (frame["steps"] < frame["drafts"])


def count(value: Any) -> int:
    """Return a count of a table of samples; 0 where an engine that drafted nothing named none."""
    return 0 if value is None or pd.isna(value) else int(value)


def offered_per_position(depth: int, drafts: int, draft_n: int) -> tuple[int, ...]:
    """Return how many drafts of one request offered each position, from the server's counters.

    Every draft offers position 1, and all `depth` positions but near the end of the request, where
    the server drafts no further than the tokens left, so that each draft is shorter than the one
    before. The missing tokens are given to such a staircase, longest first. Where drafts stop
    early for another reason (`p_min`, n-grams) this is only an estimate, and a tracer is needed.
    """
    offered = [drafts] * depth
    missing = max(depth * drafts - draft_n, 0)
    left, step = drafts, depth - 1
    while missing > 0 and left > 0 and depth > 1:
        # The drafts that are left must be able to lack the rest.
        lacking = max(min(step, missing), missing - (left - 1) * (depth - 1))
        for position in range(depth - lacking, depth):
            offered[position] -= 1
        missing -= lacking
        left -= 1
        step = step - 1 if step > 1 else depth - 1
    return tuple(offered)


def by_position(frame: pd.DataFrame) -> pd.DataFrame:
    """Return acceptance by position of one depth's samples.

    Rows are positions 1..depth; columns ``offered``, ``accepted``, ``a`` (all up to this position
    accepted, given that it was offered) and ``c`` (accepted given that the one before was).
    Empty where the server gives no counter by position.
    """
    counted = frame[frame["accepted_per_position"].notna() & frame["drafts"].notna()]
    if counted.empty:
        return pd.DataFrame(columns=["offered", "accepted", "a", "c"])
    depth = int(counted["depth"].max())
    offered = np.zeros(depth)
    accepted = np.zeros(depth)
    for row in counted.itertuples():
        positions: Sequence[int] = row.accepted_per_position  # type: ignore[assignment]
        accepted[: len(positions)] += positions[:depth]
        offered += offered_per_position(depth, count(row.drafts), count(row.draft_n))
    with np.errstate(invalid="ignore", divide="ignore"):
        a = np.where(offered > 0, accepted / offered, np.nan)
        c = a / np.concatenate([[1.0], a[:-1]])
    index = pd.RangeIndex(1, depth + 1, name="position")
    return pd.DataFrame({"offered": offered, "accepted": accepted, "a": a, "c": c}, index=index)


Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Steps:
    """The mean step of one depth: tokens that it gives, and its time by part in ms.

    Each is a number, or an array of any shape with one entry a request.
    """

    tokens: npt.ArrayLike
    parts_ms: Mapping[str, npt.ArrayLike]

    @property
    def step_ms(self) -> Values:
        """The whole of a step."""
        parts = [np.asarray(part, dtype=float) for part in self.parts_ms.values()]
        return np.asarray(np.sum(parts, axis=0))


def logarithmic_mean(a: npt.ArrayLike, b: npt.ArrayLike) -> Values:
    """Return the logarithmic mean of positive numbers, which lies between them."""
    first, second = np.broadcast_arrays(np.asarray(a, dtype=float), np.asarray(b, dtype=float))
    apart = ~np.isclose(first, second, rtol=1e-9, atol=0.0)
    log = np.log(first / second, where=apart, out=np.ones(first.shape))
    return np.asarray(np.where(apart, (first - second) / log, (first + second) / 2))


def split(base: Steps, other: Steps) -> dict[str, Values]:
    """Return each cause's part of ``log(speed of other / speed of base)``; the parts sum to it.

    ``tokens`` is what a step gives; the others are the parts of the step time, by their names.
    Below zero is a loss of speed. Requests with missing values give missing parts.

    Raises
    ------
    ValueError
        If the two do not have the same parts, or a time or a count is not above zero.
    """
    if base.parts_ms.keys() != other.parts_ms.keys():
        raise ValueError(f"the same parts: {sorted(base.parts_ms)} and {sorted(other.parts_ms)}")
    wholes = [np.asarray(v, dtype=float) for s in (base, other) for v in (s.tokens, s.step_ms)]
    if any((whole <= 0).any() for whole in wholes):
        raise ValueError("tokens and step times must be above zero")
    mean = logarithmic_mean(other.step_ms, base.step_ms)
    found = {"tokens": np.log(wholes[2] / wholes[0])}
    for name, before in base.parts_ms.items():
        after = np.asarray(other.parts_ms[name], dtype=float)
        found[name] = -(after - np.asarray(before, dtype=float)) / mean
    return found


def acceptance_loss(
    base: tuple[int, npt.ArrayLike], other: tuple[int, npt.ArrayLike], chance: npt.ArrayLike
) -> tuple[Values, Values]:
    """Return the part of tokens as what a constant chance gives, and the shortfall against it.

    `base` and `other` are a depth and its tokens per step; `chance` is that of the first guess.
    """
    first = np.asarray(chance, dtype=float)
    constant = np.log(tokens_per_step(first, other[0]) / tokens_per_step(first, base[0]))
    whole = np.log(np.asarray(other[1], dtype=float) / np.asarray(base[1], dtype=float))
    return constant, whole - constant
