"""The map of the best depth: known corners, and what memory does to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import depth_limit, why_tables
from analysis.depth_limit import DEEPEST, Mark, Panel

SPARE = Panel("", None, 0.0)


def test_corners() -> None:
    assert int(depth_limit.best(0.0, 0.1, SPARE)) == 0
    assert int(depth_limit.best(1.0, 0.5, SPARE)) == DEEPEST
    assert int(depth_limit.best(1.0, 1.0, SPARE)) == 0  # a guess costs all that it can give
    assert int(depth_limit.best(0.5, 0.4, SPARE)) == 1


def test_speed_is_tokens_over_step_time() -> None:
    assert float(depth_limit.speed(0.5, 0.25, 2, None, 0.0)) == pytest.approx(1.75 / 1.5)
    assert float(depth_limit.speed(0.5, 0.25, 2, 1, 0.5)) == pytest.approx(1.75 / 1.5 / 1.5)
    assert float(depth_limit.speed(0.5, 0.25, 2, 2, 0.5)) == pytest.approx(1.75 / 1.5)


@given(st.floats(0, 1), st.floats(0.01, 2), st.integers(0, 5), st.floats(0, 3))
def test_less_memory_never_makes_the_best_depth_deeper(
    chance: float, slope: float, fits: int, penalty: float
) -> None:
    spare = int(depth_limit.best(chance, slope, SPARE))
    tight = int(depth_limit.best(chance, slope, Panel("", fits, penalty)))
    assert tight <= spare
    if spare <= fits:
        assert tight == spare


def test_dearer_guesses_never_make_the_best_depth_deeper() -> None:
    slopes = np.geomspace(0.01, 2, 50)
    best = depth_limit.best(0.8, slopes, SPARE)
    assert (np.diff(best) <= 0).all()


def test_the_caption_of_the_map_gives_the_range_of_each_mark() -> None:
    """Sure guesses that cost nothing are best at the deepest, useless ones at none."""
    marks = [Mark("a", 0.99, 0.99, 0.01, 0.01, None), Mark("b", 0.01, 0.99, 0.01, 0.01, None)]
    said = why_tables.map_finding([SPARE], marks)
    assert said.endswith(f"a: {DEEPEST}; b: 0 to {DEEPEST}.")
