"""What the note's table allows, and the linear program behind it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import geometric, note, tables
from analysis.bounds import Bounds, exactly, hull, tokens_ratio

chances = st.lists(st.floats(0, 1), min_size=6, max_size=6).map(lambda x: sorted(x, reverse=True))


def rate(own: list[float], depth: int) -> float:
    return sum(own[:depth]) / depth


def tokens(own: list[float], depth: int) -> float:
    return 1 + sum(own[:depth])


def test_step_times_are_those_that_the_notes_figures_allow() -> None:
    found = note.step_ms()
    assert [found[n].text(0) for n in (2, 3, 4, 5)] == ["49", "87 to 98", "126 to 134", "176"]


def test_stated_depths_follow_from_the_definition_alone() -> None:
    printed = tables.note()["mean"]
    table = note.step_times()
    for depth, stated in ((2, 0.76), (5, 0.41)):
        by_hand = 1e3 * (1 + depth * stated) / printed[depth]
        assert table.at[depth, "step_ms_low"] == pytest.approx(by_hand)
        assert table.at[depth, "step_ms_high"] == pytest.approx(by_hand)
        low = 1e3 * (1 + depth * (stated - 0.005)) / (printed[depth] + 0.05)
        high = 1e3 * (1 + depth * (stated + 0.005)) / (printed[depth] - 0.05)
        assert table.at[depth, "step_ms_low_rounded"] == pytest.approx(low)
        assert table.at[depth, "step_ms_high_rounded"] == pytest.approx(high)


def test_open_depths_have_the_bounds_of_the_sums() -> None:
    """a_3 + a_4 + a_5 is known: the third has from a third of it to all that a_2 allows."""
    left = 5 * 0.41 - 2 * 0.76
    at_3 = tokens_ratio(note.rates(), 3)
    assert at_3.low == pytest.approx(2.52 + left / 3)
    assert at_3.high == pytest.approx(2.52 + left)
    at_4 = tokens_ratio(note.rates(), 4)
    assert at_4.low == pytest.approx(2.52 + left * 2 / 3)


def test_the_step_time_grew_as_the_design_says() -> None:
    assert note.step_growth()[5].text(1) == "3.6"
    wide = note.step_growth(rounding=True)[5]
    assert wide.low < note.step_growth()[5].low < wide.high
    assert "49, 87 to 98, 126 to 134 and 176 ms" in note.sentence()
    assert "3.6 times as long" in note.sentence()


@given(own=chances, known=st.sets(st.integers(1, 6), max_size=4), depth=st.integers(1, 6))
def test_bounds_hold_the_truth_whatever_the_chances_are(
    own: list[float], known: set[int], depth: int
) -> None:
    stated = {d: Bounds(rate(own, d) - 1e-9, rate(own, d) + 1e-9) for d in known}
    for base in (0, 2):
        found = tokens_ratio(stated, depth, base)
        truth = tokens(own, depth) / tokens(own, base)
        assert found.low - 1e-6 <= truth <= found.high + 1e-6
        if {depth, base} <= {*known, 0}:
            assert found.high - found.low < 1e-6


@given(own=chances, at=st.sampled_from((2, 3, 5)), depth=st.integers(1, 6))
def test_more_that_is_stated_never_widens(own: list[float], at: int, depth: int) -> None:
    less = {at: Bounds.printed(rate(own, at), 2)}
    more = less | {4: Bounds.printed(rate(own, 4), 2)}
    wide, narrow = tokens_ratio(less, depth), tokens_ratio(more, depth)
    assert wide.low - 1e-6 <= narrow.low
    assert narrow.high <= wide.high + 1e-6


def test_with_nothing_stated_the_tokens_grow_at_most_with_the_depths() -> None:
    found = tokens_ratio({}, 5, 2)
    assert (found.low, found.high) == pytest.approx((1, 2))


def test_rates_that_would_need_rising_chances_are_refused() -> None:
    with pytest.raises(ValueError, match="no chances that fall"):
        tokens_ratio({1: exactly(0.2), 2: exactly(0.9)}, 3)


def test_memory_to_spare_with_the_notes_own_growth_gives_back_its_speeds() -> None:
    found = note.with_memory_to_spare(note.step_growth(rounding=True))
    for depth, speed in found.items():
        assert speed.low <= tables.note()["mean"][depth] <= speed.high
    flat = note.with_memory_to_spare({5: exactly(1)})[5]
    assert flat.low < 51.2 * 3.05 / 2.52 < flat.high


def test_memory_to_spare_names_depths_that_would_have_won() -> None:
    assert "depth 3 or 5 would have been faster" in note.spare_sentence(
        {3: exactly(0.9), 5: exactly(0.9)}
    )
    assert "still have been the fastest" in note.spare_sentence({5: exactly(3)})


def test_one_constant_chance_gives_its_sum() -> None:
    assert geometric.tokens_per_step(0.5, 3) == 1.875
    assert geometric.tokens_per_step([0, 1], 2).tolist() == [1, 3]
    assert geometric.tokens_per_step(1, 4) == 5
    assert geometric.tokens_per_step(0.7, 0) == 1
    alpha = geometric.alpha_of(0.76, 2)
    assert geometric.tokens_per_step(alpha, 2) == pytest.approx(1 + 2 * 0.76)


def test_bounds_are_arithmetic_of_positive_ranges() -> None:
    a, b = Bounds(2, 3), Bounds(4, 5)
    assert a * b == Bounds(8, 15)
    assert a / b == Bounds(0.4, 0.75)
    assert hull([a, b]) == Bounds(2, 5)
    assert (Bounds(86.6, 98.1).text(0), exactly(49.2).text(0)) == ("87 to 98", "49")
    with pytest.raises(ValueError, match="low <= high"):
        Bounds(2, math.nan)


def test_chances_go_on_with_the_last_conditional_one() -> None:
    assert geometric.prolonged([0.8, 0.4], 4) == pytest.approx((0.8, 0.4, 0.2, 0.1))
    assert geometric.prolonged([0.8, 0.4], 1) == (0.8,)
    assert geometric.prolonged([0.5, 0.0], 3) == (0.5, 0.0, 0.0)
    assert geometric.prolonged([], 2) == (0.0, 0.0)
