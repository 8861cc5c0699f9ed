"""What no engine can have measured: such an answer or sample gives no number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite number from zero on."""
    return isinstance(value, (int, float)) and 0 <= value < math.inf


def impossible(
    predicted_n: Any, predicted_ms: Any, draft_n: Any, draft_n_accepted: Any
) -> Iterator[str]:
    """Yield what can not be, of numbers."""
    if predicted_n < 1:
        yield "no token was decoded"
    if predicted_n > 1 and predicted_ms <= 0:
        yield f"{predicted_n} tokens were decoded in {predicted_ms} ms"
    if draft_n_accepted > draft_n:
        yield f"{draft_n_accepted} of {draft_n} drafted tokens were accepted"
