import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import checks, report, verdict
from analysis.stats import LIKE_THESE, ON_THESE, Table
from analysis.store import Recorded

Make = Callable[..., Recorded]
NOTE = {2: 51.2, 3: 31.0, 4: 22.8, 5: 17.3}


def tables(
    speeds: dict[int, float], noise: float, seed: int = 0, more: float = 1,
    launches_only: bool = True,
) -> dict[int, list[Table]]:  # fmt: skip
    """Return log speeds with exactly these means; noise of launches, or of prompts, `more`-fold."""
    random = np.random.default_rng(seed)
    found = {}
    for depth, speed in speeds.items():
        launch, prompt = random.normal(size=(5, 1)), random.normal(size=(1, 8))
        launch = (launch - launch.mean()) / launch.std(ddof=1)
        prompt = (prompt - prompt.mean()) / prompt.std(ddof=1)
        sizes = (more, 1) if launches_only else (1, more)
        found[depth] = [math.log(speed) + noise * (sizes[0] * launch + sizes[1] * prompt)]
    return found


def decide(speeds: dict[int, float], noise: float, **more: Any) -> verdict.Verdict:
    return verdict.decide(tables(speeds, noise), "short", **more)


def test_the_notes_table_without_noise_gives_depth_2() -> None:
    found = decide(NOTE, 1e-6)
    assert (found.recommended, found.confidence_set, found.fastest) == (2, (2,), 2)
    assert found.regret == pytest.approx(0, abs=1e-5)


def test_the_shallowest_within_tolerance_wins_over_the_fastest() -> None:
    found = decide({0: 50, 1: 98.5, 2: 100, 3: 80}, 1e-6)
    assert (found.recommended, found.fastest, found.confidence_set) == (1, 2, (2,))
    assert found.regret == pytest.approx(0.015, abs=1e-4)
    assert decide({0: 50, 1: 98.5, 2: 100, 3: 80}, 1e-6, tolerance=0.99).recommended == 2


def test_a_tie_is_given_to_the_shallower() -> None:
    assert decide({0: 50, 1: 100, 2: 100, 3: 100}, 1e-6).recommended == 1


def test_noise_makes_it_undecided_and_says_what_would_help() -> None:
    found = decide({0: 80, 1: 99.5, 2: 100, 3: 80}, 0.05, scope=ON_THESE)
    assert found.recommended is None
    assert found.answer == "undecided"
    assert set(found.candidates) >= {1, 2}
    assert found.further_rounds is not None
    assert found.further_rounds > 0


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.integers(0, 6), st.floats(10, 100), min_size=2, max_size=6),
    st.floats(0.001, 0.05),
    st.floats(1.5, 20),
    st.booleans(),
    st.integers(0, 1000),
)
def test_noisier_data_get_the_same_answer_or_undecided(
    speeds: dict[int, float], noise: float, more: float, launches_only: bool, seed: int
) -> None:
    quiet = verdict.decide(tables(speeds, noise, seed), "short")
    loud = verdict.decide(tables(speeds, noise, seed, more, launches_only), "short")
    if loud.recommended is not None:
        assert quiet.recommended == loud.recommended
    assert set(quiet.confidence_set) <= set(loud.confidence_set)


@pytest.mark.parametrize("scope", [ON_THESE, LIKE_THESE])
def test_a_depth_at_the_tolerance_is_called_good_enough_in_at_most_five_percent(scope: str) -> None:
    """Depth 1 loses exactly what is tolerated: the hardest case of the stated error rate."""
    random = np.random.default_rng(3)
    wrong, trials = 0, 1500
    for _ in range(trials):
        by_prompt = {d: random.normal(0, 0.02, 8) for d in (0, 1, 2)}
        if scope == ON_THESE:
            by_prompt = {d: x - x.mean() for d, x in by_prompt.items()}
        speeds = {
            d: [math.log(s) + random.normal(0, 0.01, (6, 1)) + by_prompt[d]]
            for d, s in {0: 50.0, 1: 97.0, 2: 100.0}.items()
        }
        wrong += verdict.decide(speeds, "short", scope).recommended == 1
    assert wrong / trials <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)
    assert wrong > 0  # the rule is not simply mute


def test_further_rounds_are_enough_when_they_are_made() -> None:
    launches = np.array([[-0.03], [0.03], [-0.03], [0.03]])
    first = {
        d: [math.log(s) + side * launches + np.zeros((4, 8))]
        for d, s, side in ((0, 80.0, 0), (1, 99.5, 1), (2, 100.0, -1))
    }
    found = verdict.decide(first, "short", ON_THESE)
    assert found.further_rounds is not None
    times = math.ceil((4 + found.further_rounds) / 4)
    more = {d: [np.tile(t[0], (times, 1))] for d, t in first.items()}
    assert verdict.decide(more, "short", ON_THESE).recommended == 1


def test_prompts_that_differ_too_much_are_not_cured_by_rounds() -> None:
    random = np.random.default_rng(6)
    speeds = {
        d: [math.log(s) + np.tile(random.normal(0, 0.2, 8), (5, 1))]
        for d, s in {0: 95.0, 1: 100.0}.items()
    }
    found = verdict.decide(speeds, "short", LIKE_THESE)
    assert found.recommended is None
    assert found.further_rounds is None


def test_one_launch_a_depth_decides_nothing() -> None:
    speeds = {d: [np.full((1, 8), math.log(s))] for d, s in {0: 50.0, 1: 100.0}.items()}
    found = verdict.decide(speeds, "short", ON_THESE)
    assert (found.recommended, found.rounds) == (None, 1)


def test_a_single_depth_is_its_own_best() -> None:
    assert verdict.decide({0: [np.zeros((2, 2))]}, "short").recommended == 0


@pytest.mark.parametrize("tolerance", [0, -1, 1.01])
def test_tolerance_must_be_a_share(tolerance: float) -> None:
    with pytest.raises(ValueError, match="tolerance"):
        decide(NOTE, 0.01, tolerance=tolerance)
    with pytest.raises(ValueError, match="no depth"):
        verdict.decide({}, "short")


def test_speed_is_tokens_per_step_over_step_time_in_every_cell(make_recorded: Make) -> None:
    recorded = make_recorded(NOTE | {0: 40.0}, 0.05, 0.1, workloads=("short", "code"))
    for cell in report.sweep_of(recorded).cells():
        speed = cell.log_tokens_per_step.estimate - cell.log_step_ms.estimate + math.log(1e3)
        assert cell.log_tok_s.estimate == pytest.approx(speed, abs=1e-12)


def test_cells_find_the_speeds_that_were_planted(make_recorded: Make) -> None:
    sweep = report.sweep_of(make_recorded(NOTE))
    for depth, speed in NOTE.items():
        found = sweep.cell("short", depth).interval("tok_s", ON_THESE)
        assert found is not None
        assert (found.estimate, found.low) == pytest.approx((speed, speed))
    assert sweep.verdict("short").recommended == 2


def test_the_arithmetic_mean_over_workloads_is_the_notes(make_recorded: Make) -> None:
    sweep = report.sweep_of(make_recorded({0: 10.0, 2: 51.2}, workloads=("short", "code")))
    assert sweep.mean_tok_s(2, ON_THESE).estimate == pytest.approx(51.2)
    assert set(sweep.groups()) == {"short", "code", "mix"}


def test_a_failed_depth_is_left_out_and_named(make_recorded: Make) -> None:
    import dataclasses

    from analysis import checks

    recorded = make_recorded({0: 10.0, 1: 20.0, 5: 30.0})
    failed = tuple(
        dataclasses.replace(s, error="out of memory", predicted_n=0) if s.depth == 5 else s
        for s in recorded.samples
    )
    sweep = report.sweep_of(dataclasses.replace(recorded, samples=failed))
    assert sweep.verdict("short").recommended == 1
    assert any("Depth 5" in w and "out of memory" in w for w in checks.warnings(sweep))


def test_a_workload_of_early_ends_is_left_out_and_named(make_recorded: Make) -> None:
    import dataclasses

    from analysis import checks

    recorded = make_recorded({0: 10.0, 1: 20.0}, workloads=("short", "code"))
    brief = tuple(
        dataclasses.replace(s, predicted_n=9, steps=8, stop="eos") if s.workload == "short" else s
        for s in recorded.samples
    )
    sweep = report.sweep_of(dataclasses.replace(recorded, samples=brief))
    assert sweep.workloads == ("code",)
    assert list(sweep.groups()) == ["code"]
    assert any("short has no speed at all" in w for w in checks.warnings(sweep))


def test_speeds_over_shared_tokens_leave_out_what_is_not_shared(make_recorded: Make) -> None:
    """Depth 1 parts on prompt 00: its own request over the shared tokens counts instead."""
    import dataclasses

    recorded = make_recorded({0: 50.0, 1: 100.0}, rounds=3, prompts=2)
    samples = []
    for s in recorded.samples:
        if (s.depth, s.prompt_id) == (1, "00"):
            slow = dataclasses.replace(s, predicted_ms=s.predicted_ms * 4, tokens=(1, 2, 9))
            samples += [slow, dataclasses.replace(s, arm="prefix")]
        elif s.prompt_id == "00":
            samples += [s, dataclasses.replace(s, arm="prefix")]
        else:
            samples.append(s)
    sweep = report.sweep_of(dataclasses.replace(recorded, samples=tuple(samples)))
    assert sweep.cell("short", 1).interval("tok_s", ON_THESE).estimate == pytest.approx(50.0)  # type: ignore[union-attr]
    shared = sweep.on_shared_tokens()
    assert shared is not None
    assert shared.cell("short", 1).interval("tok_s", ON_THESE).estimate == pytest.approx(100.0)  # type: ignore[union-attr]
    assert set(shared.timed["round"]) == {1, 2}
    assert shared.cell("short", 1).samples == 4


def without(recorded: Recorded, *cells: tuple[int, int]) -> Recorded:
    """Drop all samples of some (depth, round)."""
    import dataclasses

    left = tuple(s for s in recorded.samples if (s.depth, s.round) not in cells)
    return dataclasses.replace(recorded, samples=left)


def test_depths_that_share_no_round_are_left_out_and_named(make_recorded: Make) -> None:
    from analysis import checks, tables

    recorded = make_recorded({0: 10.0, 1: 20.0, 4: 30.0, 5: 30.0}, rounds=2)
    sweep = report.sweep_of(without(recorded, (4, 0), (5, 1)))
    found = sweep.verdict("short")
    assert {r.depth for r in found.ratios} == {0, 1, 4}
    assert any("depth 5 shares no round" in w for w in checks.warnings(sweep))
    for shown in (tables.depth_sweep(sweep), tables.against_note(sweep)):
        assert shown is not None


def test_rounds_added_later_are_counted(make_recorded: Make) -> None:
    import dataclasses

    from analysis import checks

    recorded = make_recorded({0: 10.0, 1: 20.0}, rounds=7)
    begun_with_3 = dataclasses.replace(
        recorded, run=dataclasses.replace(recorded.run, spec=recorded.run.spec | {"rounds": 3})
    )
    assert not [w for w in checks.warnings(report.sweep_of(begun_with_3)) if "launches a" in w]
    holed = without(begun_with_3, (1, 6))
    assert any("104 of 112" in w for w in checks.warnings(report.sweep_of(holed)))


def test_the_weights_of_the_mix_decide(make_recorded: Make) -> None:
    recorded = make_recorded({0: 50.0, 2: 60.0}, workloads=("short", "code"))
    import dataclasses

    slow = tuple(
        dataclasses.replace(s, predicted_ms=s.predicted_ms * 2)
        if (s.workload, s.depth) == ("code", 2)
        else s
        for s in recorded.samples
    )
    changed = dataclasses.replace(recorded, samples=slow)
    assert report.sweep_of(changed, {"short": 9}).verdict("mix").recommended == 2
    assert report.sweep_of(changed, {"code": 9}).verdict("mix").recommended == 0


def test_the_gain_is_paired_where_a_prompt_is_missing(make_recorded: Make) -> None:
    import dataclasses

    recorded = make_recorded({0: 50.0, 1: 75.0}, prompts=4)
    uneven = []
    for s in recorded.samples:
        easy = s.prompt_id == "00"
        if not (easy and s.depth == 1):
            uneven.append(dataclasses.replace(s, predicted_ms=s.predicted_ms / (3 if easy else 1)))
    sweep = report.sweep_of(dataclasses.replace(recorded, samples=tuple(uneven)))
    found = sweep.relative("tok_s", "short", 1, 0, ON_THESE)
    assert found is not None
    assert found.estimate == pytest.approx(1.5)


def test_texts_that_repeat_themselves_are_named(make_recorded: Callable[..., Recorded]) -> None:
    import dataclasses

    recorded = make_recorded({0: 100.0, 1: 90.0})
    loop, text = (7, 8, 9) * 40, tuple(range(120))
    samples = tuple(
        dataclasses.replace(s, tokens=loop if s.prompt_id == "03" else text)
        for s in recorded.samples
    )
    sweep = report.sweep_of(dataclasses.replace(recorded, samples=samples))
    (said,) = [w for w in checks.warnings(sweep) if "repeat themselves" in w]
    assert said.startswith("1 of 8 texts")
    assert "short/03" in said
