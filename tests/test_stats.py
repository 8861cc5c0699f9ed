import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from analysis import stats
from analysis.stats import LIKE_THESE, ON_THESE


def test_on_these_prompts_is_students_t_over_launches() -> None:
    table = np.array([[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]])
    found = stats.mean([table]).interval(ON_THESE)
    reach = scipy_stats.t.ppf(0.975, 2) * math.sqrt(1.0 / 3)
    assert found.estimate == pytest.approx(2.5)
    assert (found.low, found.high) == pytest.approx((2.5 - reach, 2.5 + reach))


def test_prompts_widen_the_second_interval_by_their_own_variance() -> None:
    table = np.array([[1.0, 3.0], [1.0, 3.0]])
    first, second = (stats.mean([table]).interval(s) for s in (ON_THESE, LIKE_THESE))
    assert (first.low, first.high) == (2.0, 2.0)
    reach = scipy_stats.t.ppf(0.975, 1) * math.sqrt(2.0 / 2)
    assert second.high - 2 == pytest.approx(reach)


def test_one_launch_gives_no_interval() -> None:
    found = stats.mean([np.array([[1.0, 2.0]])]).interval(ON_THESE)
    assert (found.estimate, found.low, found.high) == (1.5, -math.inf, math.inf)


def test_a_mix_weighs_its_workloads() -> None:
    a, b = np.full((2, 3), 1.0), np.full((2, 2), 4.0)
    assert stats.mean([a, b]).estimate == pytest.approx(2.5)
    assert stats.mean([a, b], weights=[3, 1]).estimate == pytest.approx(1.75)


def test_launches_are_shared_by_the_workloads_of_a_mix() -> None:
    drift = np.array([[-1.0], [1.0]])
    a = drift + np.zeros((2, 2))
    cancelling = stats.mean([a, -a])
    adding = stats.mean([a, a])
    assert cancelling.reach(ON_THESE, 0.05) == 0
    assert adding.reach(ON_THESE, 0.05) == pytest.approx(scipy_stats.t.ppf(0.95, 1))


def test_a_missing_cell_is_filled_from_its_round_and_prompt() -> None:
    whole = np.add.outer([0.0, 1.0, 2.0], [0.0, 10.0, 20.0])
    holed = whole.copy()
    holed[2, 0] = np.nan
    assert stats.mean([holed]).estimate == pytest.approx(whole.mean(), abs=1e-6)


def test_rounds_without_any_value_are_left_out() -> None:
    table = np.array([[1.0, 2.0], [np.nan, np.nan], [3.0, 4.0]])
    assert stats.mean([table]).estimate == pytest.approx(2.5)


@pytest.mark.parametrize("tables", [[], [np.full((2, 2), np.nan)]])
def test_nothing_to_average_is_an_error(tables: list[stats.Table]) -> None:
    with pytest.raises(ValueError, match=r"weight|no round"):
        stats.mean(tables)


def test_acceptance_is_a_ratio_of_sums() -> None:
    accepted, drafted = np.array([[1.0, 9.0]] * 2), np.array([[10.0, 10.0]] * 2)
    found = stats.ratio(accepted, drafted)
    assert found.estimate == pytest.approx(0.5)
    assert found.reach(ON_THESE, 0.05) == 0  # greedy acceptance has no launch noise
    error = math.sqrt(2 / 1 * 2 * (8.0**2) / 40**2)
    assert found.reach(LIKE_THESE, 0.05) == pytest.approx(scipy_stats.t.ppf(0.95, 1) * error)


def test_the_intervals_cover_at_the_stated_rate() -> None:
    """5 launches x 8 prompts with both noises: 95% intervals must cover about 95%."""
    random = np.random.default_rng(1)
    trials, covered = 1500, {ON_THESE: 0, LIKE_THESE: 0}
    for _ in range(trials):
        prompts = random.normal(0, 0.1, 8)
        table = (
            random.normal(0, 0.05, (5, 1)) + prompts + random.normal(0, 0.03, (5, 8))
        )  # true mean 0; on these prompts it is the mean of `prompts`
        for scope, truth in ((ON_THESE, prompts.mean()), (LIKE_THESE, 0.0)):
            found = stats.mean([table]).interval(scope)
            covered[scope] += found.low <= truth <= found.high
    assert covered[ON_THESE] / trials == pytest.approx(0.95, abs=0.02)
    assert 0.93 <= covered[LIKE_THESE] / trials <= 0.99


def test_treating_steps_as_independent_would_cover_too_rarely() -> None:
    """Steps of one text share its difficulty: the ratio's interval holds, a plain one does not."""
    random = np.random.default_rng(2)
    trials, ours, naive = 800, 0, 0
    for _ in range(trials):
        rate = np.clip(random.normal(0.6, 0.15, 8), 0.05, 0.95)
        accepted = random.binomial(100, rate).astype(float)
        table, drafted = np.tile(accepted, (2, 1)), np.full((2, 8), 100.0)
        found = stats.ratio(table, drafted).interval(LIKE_THESE)
        ours += found.low <= 0.6 <= found.high
        p = accepted.sum() / 800
        naive += abs(p - 0.6) <= 1.96 * math.sqrt(p * (1 - p) / 800)
    assert ours / trials > 0.92
    assert naive / trials < 0.75


@given(
    st.integers(2, 6), st.integers(2, 8), st.floats(0, 1), st.floats(0, 1), st.floats(1, 10),
    st.sampled_from([0.05, 0.025, 0.01]), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_more_noise_of_either_kind_widens_every_bound(
    rounds: int, prompts: int, launch: float, prompt: float, more: float, tail: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    by_round, by_prompt = random.normal(size=(rounds, 1)), random.normal(size=prompts)

    def reach(a: float, b: float, scope: str) -> float:
        return stats.mean([a * by_round + b * by_prompt]).reach(scope, tail)

    base = reach(launch, prompt, LIKE_THESE)
    assert reach(launch * more, prompt, LIKE_THESE) >= base - 1e-12
    assert reach(launch, prompt * more, LIKE_THESE) >= base - 1e-12
    assert base >= reach(launch, prompt, ON_THESE) - 1e-12


def test_rounds_without_samples_are_no_units_of_a_ratio() -> None:
    accepted = np.array([[1.0, 9.0], [np.nan, np.nan], [np.nan, np.nan]])
    found = stats.ratio(accepted, accepted * 0 + 10)
    assert found.interval(ON_THESE).high == math.inf


def test_a_mix_of_ratios_weighs_workloads_not_drafts() -> None:
    few, many = (stats.ratio(np.full((2, 2), r * n), np.full((2, 2), n)) for r, n in
                 ((0.2, 10.0), (0.8, 1000.0)))  # fmt: skip
    assert stats.combine([few, many], [1, 1]).estimate == pytest.approx(0.5)


def test_the_noise_of_launches_is_the_residual_of_rounds_and_depths() -> None:
    """Two rounds x three depths: interaction contrasts by hand, (R - 1)(D - 1) of freedom."""
    values = np.array([[1.0, 2.0, 4.0], [3.0, 4.0, 9.0]])
    residual = values - values.mean(0) - values.mean(1, keepdims=True) + values.mean()
    found = stats.launch_noise(values)
    assert found.freedom == 2
    assert found.variance == pytest.approx((residual**2).sum() / 2)
    holed = np.array([[1.0, 2.0, 4.0], [3.0, 4.0, np.nan]])
    assert stats.launch_noise(holed).freedom == 1
    assert stats.launch_noise(np.array([[1.0, 2.0]])).freedom == 0


@pytest.mark.parametrize(("noise", "counts"), [(0.001, "own"), (1.0, "shared")])
def test_the_larger_of_own_and_shared_noise_counts(noise: float, counts: str) -> None:
    difference = stats.mean([np.array([[0.1, 0.1], [0.3, 0.3]])])
    own = 0.02 / 2
    shared = 2 * noise / 2
    found = stats.looked_at(difference, stats.Noise(noise, 5), looks=3)
    variance = own if counts == "own" else shared
    reach = scipy_stats.t.ppf(1 - 0.05 / 3, 5) * math.sqrt(variance)
    assert found.reach(ON_THESE, 0.05) == pytest.approx(reach)
