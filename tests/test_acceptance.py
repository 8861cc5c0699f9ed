"""Acceptance by position: known answers, coverage on correlated texts, and the geometric model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import acceptance, geometric, quotes, stats

Drafts = list[tuple[int, int]]  # offered, accepted


def steps_of(texts: dict[str, Drafts], depth: int, p: float = 0.5) -> pd.DataFrame:
    """Return made-up traced steps, one text a prompt."""
    rows: list[dict[str, Any]] = [
        {
            "workload": "short", "prompt_id": name, "depth": depth, "round": 0,
            "drafted": tuple(range(offered)), "draft_probabilities": (p,) * offered,
            "accepted": accepted,
        }
        for name, drafts in texts.items()
        for offered, accepted in drafts
    ]  # fmt: skip
    return pd.DataFrame(rows)


def found(texts: dict[str, Drafts], depth: int) -> acceptance.Positions:
    result = acceptance.of_steps(steps_of(texts, depth), "short", depth)
    assert result is not None
    return result


def estimate(mean: stats.Mean | None) -> float:
    assert mean is not None
    return mean.estimate


def draw(r: np.random.Generator, chances: npt.NDArray[np.float64], drafts: int) -> Drafts:
    """Draw drafts whose position k is accepted with chances[k] once the earlier ones are."""
    hits = r.random((drafts, len(chances))) < chances
    return [(len(chances), int(np.cumprod(row).sum())) for row in hits]


def test_counts_by_position_of_hand_made_drafts() -> None:
    counts = found({"a": [(3, 3), (3, 1), (2, 2), (3, 0)], "b": [(3, 2)]}, 3)
    assert np.nansum(counts.offered, axis=(0, 1)).tolist() == [5, 5, 4]
    assert np.nansum(counts.reached, axis=(0, 1)).tolist() == [5, 4, 2]
    assert np.nansum(counts.accepted, axis=(0, 1)).tolist() == [4, 3, 1]
    assert estimate(counts.a(3)) == pytest.approx(1 / 4)
    assert estimate(counts.c(3)) == pytest.approx(1 / 2)
    assert estimate(counts.alpha()) == pytest.approx(8 / 11)


def test_no_draft_gives_none_not_zero() -> None:
    nothing = found({"a": [(0, 0), (0, 0)]}, 2)
    assert nothing.a(1) is None
    assert nothing.c(1) is None
    assert nothing.alpha() is None
    assert nothing.slope() is None
    assert acceptance.of_steps(steps_of({"a": [(1, 1)]}, 1), "prose", 1) is None


def test_all_and_none_accepted_stay_finite() -> None:
    everything = found({"a": [(4, 4)] * 20, "b": [(4, 4)] * 20}, 4)
    assert [estimate(everything.a(k)) for k in range(1, 5)] == [1, 1, 1, 1]
    assert estimate(everything.slope()) == pytest.approx(0, abs=0.01)
    nothing = found({"a": [(4, 0)] * 20, "b": [(4, 0)] * 20}, 4)
    assert estimate(nothing.a(1)) == 0
    assert nothing.c(2) is None  # never reached
    assert nothing.slope() is None


def test_a_constant_chance_is_recovered_and_called_no_decay() -> None:
    r = np.random.default_rng(1)
    counts = found({str(i): draw(r, np.full(5, 0.8), 400) for i in range(10)}, 5)
    assert estimate(counts.alpha()) == pytest.approx(0.8, abs=0.01)
    slope = counts.slope()
    assert slope is not None
    low, high = slope.bounds(stats.LIKE_THESE, 0.0005)
    assert -0.2 < low <= 0 <= high < 0.2
    assert counts.likelihood_ratio()[1] > 0.001


def test_a_known_decay_is_found_at_its_size() -> None:
    r = np.random.default_rng(2)
    logit = 1.5 - 0.6 * np.arange(5)
    chances = 1 / (1 + np.exp(-logit))
    counts = found({str(i): draw(r, chances, 2000) for i in range(10)}, 5)
    assert estimate(counts.slope()) == pytest.approx(-0.6, abs=0.06)
    for k in range(1, 6):
        assert estimate(counts.c(k)) == pytest.approx(chances[k - 1], abs=0.03)
    gain, p = counts.likelihood_ratio()
    assert gain > 100
    assert p < 1e-9


def test_interval_covers_where_texts_differ_and_resampled_steps_do_not() -> None:
    """Each text has its own chance: steps of one text are alike."""
    r = np.random.default_rng(3)
    true = 0.7
    ours, naive, runs = 0, 0, 300
    for _ in range(runs):
        accepted, offered = np.zeros((1, 8)), np.full((1, 8), 100.0)
        for text in range(8):
            chance = r.beta(true * 12, (1 - true) * 12)
            accepted[0, text] = r.binomial(100, chance)
        mean = stats.ratio(accepted, offered)
        prompts = next(c for c in mean.components if c.unit == "prompt")
        reach = 2.3646 * math.sqrt(prompts.variance)  # Student's t, 7 degrees of freedom
        ours += abs(mean.estimate - true) <= reach
        share = accepted.sum() / offered.sum()
        naive += abs(share - true) <= 1.96 * math.sqrt(share * (1 - share) / offered.sum())
    assert ours / runs > 0.92
    assert naive / runs < 0.7


@given(st.floats(0.01, 0.99), st.integers(1, 12))
def test_alpha_and_rate_are_inverse(alpha: float, depth: int) -> None:
    assert geometric.alpha_of(geometric.rate_of(alpha, depth), depth) == pytest.approx(alpha)


def test_the_notes_figures_do_not_fit_one_alpha() -> None:
    """DESIGN: alpha from 76% at depth 2 is 0.83 and predicts 59% at depth 5."""
    assert geometric.alpha_of(0.76, 2) == pytest.approx(0.83, abs=0.005)
    at_5 = quotes.predicted(0.76, 2, 5, 0.005)
    assert at_5.estimate == pytest.approx(0.59, abs=0.005)
    assert at_5.low > 0.41


def test_a_rate_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match="lies in"):
        geometric.alpha_of(1.2, 2)


def test_server_counters_and_steps_agree_on_the_same_drafts() -> None:
    drafts: Drafts = [(3, 3), (3, 0), (3, 1), (2, 2), (1, 1)]
    exact = found({"a": drafts}, 3)
    sample = {
        "workload": "short", "prompt_id": "a", "depth": 3, "round": 0, "drafts": 5, "draft_n": 12,
        "accepted_per_position": (4, 2, 1),
    }  # fmt: skip
    counted = acceptance.of_samples(pd.DataFrame([sample]), "short", 3)
    assert counted is not None
    assert counted.offered[0, 0].tolist() == exact.offered[0, 0].tolist()
    assert counted.accepted[0, 0].tolist() == exact.accepted[0, 0].tolist()
    assert counted.reached[0, 0] == pytest.approx(exact.reached[0, 0], abs=0.6)


def test_calibration_counts_reached_positions_only() -> None:
    steps = pd.concat(
        [
            steps_of({"a": [(2, 0)] * 6, "b": [(2, 1)] * 6}, 2, 0.3),
            steps_of({"a": [(1, 1)]}, 1, 0.9),
        ]
    )
    table = acceptance.calibration(steps, (0, 0.5, 1))
    low, high = table.to_dict("records")
    # Six refused first guesses, and six accepted ones each followed by a refused second.
    assert low["n"] == 18
    assert estimate(low["accepted"]) == pytest.approx(6 / 18)
    assert estimate(high["accepted"]) == 1
    assert high["n"] == 1


def test_intervals_of_shares_stay_between_0_and_1() -> None:
    few = found({"a": [(2, 2)] * 3 + [(2, 0)], "b": [(2, 2)] * 4, "c": [(2, 1)] * 4}, 2)
    for kind in ("a", "c"):
        for k in (1, 2):
            interval = few.interval(k, kind, stats.LIKE_THESE)
            assert interval is not None
            assert 0 <= interval.low <= interval.estimate <= interval.high <= 1


def test_none_kept_has_an_upper_bound_that_knows_of_the_texts() -> None:
    """Of 40 independent drafts none was kept: at most 1 - 0.025^(1/40)."""
    none = found({t: [(2, 0)] * 5 + [(2, 1)] * 5 for t in "abcd"}, 2)
    interval = none.interval(2, "a", stats.LIKE_THESE)
    assert interval is not None
    assert (interval.estimate, interval.low) == (0, 0)
    assert interval.high == pytest.approx(1 - 0.025 ** (1 / 40))
    # Texts that differ much are worth fewer drafts.
    apart = found(
        {"a": [(2, 0)] * 10, "b": [(2, 0)] * 10, "c": [(2, 1)] * 10, "d": [(2, 1)] * 10}, 2
    )
    wider = apart.interval(2, "a", stats.LIKE_THESE)
    assert wider is not None
    assert wider.high > 2 * interval.high


def test_the_share_interval_is_the_plain_one_where_it_is_narrow() -> None:
    mean = stats.Mean(0.4, (stats.Component(1e-6, 9, "prompt"),))
    plain, share = mean.interval(stats.LIKE_THESE), mean.share(stats.LIKE_THESE)
    assert share.low == pytest.approx(plain.low, abs=1e-4)
    assert share.high == pytest.approx(plain.high, abs=1e-4)
