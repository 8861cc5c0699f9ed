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
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

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
        accepted[: len(positions)] += positions
        offered += offered_per_position(depth, int(row.drafts), int(row.draft_n or 0))  # type: ignore[arg-type]
    with np.errstate(invalid="ignore", divide="ignore"):
        a = np.where(offered > 0, accepted / offered, np.nan)
        c = a / np.concatenate([[1.0], a[:-1]])
    index = pd.RangeIndex(1, depth + 1, name="position")
    return pd.DataFrame({"offered": offered, "accepted": accepted, "a": a, "c": c}, index=index)
