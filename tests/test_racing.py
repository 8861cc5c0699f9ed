"""Adaptive measuring: its rule on simulated data, and a real run that it steers."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from analysis import checks, gallery, racing, report, store, sweep, verdict
from analysis.spec import SweepSpec
from analysis.stats import LIKE_THESE, Table
from analysis.store import Recorded
from tests import bench_racing
from tests.conftest import Silent

Make = Callable[..., Recorded]
ROUNDS, PROMPTS = 5, 6
CLEAR = {0: 60.0, 1: 100.0, 2: 80.0, 3: 70.0, 4: 60.0, 5: 50.0}


def simulated(
    speeds: dict[int, float],
    scatter: dict[int, float],
    random: np.random.Generator,
    by_prompt: float = 0.0,
) -> dict[int, list[Table]]:
    return {
        d: [
            math.log(s)
            + random.normal(0, scatter[d], (ROUNDS, 1))
            + random.normal(0, by_prompt, PROMPTS)
        ]
        for d, s in speeds.items()
    }


def race(whole: dict[int, list[Table]]) -> tuple[verdict.Verdict, int]:
    """Uncover a whole table round by round as the rule asks; return the verdict and launches."""
    seen = {d: [np.full_like(t, np.nan) for t in tables] for d, tables in whole.items()}
    depths, launches = tuple(whole), 0
    for number in range(ROUNDS):
        for depth in depths:
            for shown, table in zip(seen[depth], whole[depth], strict=True):
                shown[number] = table[number]
            launches += 1
        if number + 1 < racing.FIRST_LOOK:
            continue
        found = verdict.decide(seen, "short", LIKE_THESE, looks=ROUNDS - 1)
        depths = racing.onward(found)
        if not depths:
            break
    return found, launches


@pytest.mark.parametrize(
    ("loud", "by_prompt", "stated"), [(1, 0, 0.05), (3, 0, 0.10), (1, 0.05, 0.05)]
)
def test_a_race_calls_a_depth_at_the_tolerance_good_enough_at_the_stated_rate(
    loud: float, by_prompt: float, stated: float
) -> None:
    """Depth 1 loses exactly what is tolerated, and may scatter more than the others."""
    random = np.random.default_rng(5)
    trials = 400
    speeds = {0: 50.0, 1: 97.0, 2: 100.0, 3: 60.0}
    scatter = dict.fromkeys(speeds, 0.02) | {1: 0.02 * loud}
    races = (race(simulated(speeds, scatter, random, by_prompt)) for _ in range(trials))
    wrong = sum(found.recommended == 1 for found, _ in races)
    assert wrong / trials <= stated + 2 * math.sqrt(stated * (1 - stated) / trials)
    assert wrong > 0  # the rule is not simply mute


def test_without_stricter_looks_the_rate_would_be_above_what_is_stated() -> None:
    random = np.random.default_rng(5)
    trials, wrong = 400, 0
    speeds = {0: 50.0, 1: 97.0, 2: 100.0}
    for _ in range(trials):
        whole = simulated(speeds, dict.fromkeys(speeds, 0.02), random)
        for rounds in range(racing.FIRST_LOOK, ROUNDS + 1):
            part = {d: [t[:rounds] for t in tables] for d, tables in whole.items()}
            if verdict.decide(part, "short", LIKE_THESE, looks=1).recommended == 1:
                wrong += 1
                break
    assert wrong / trials > 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)


def test_a_clear_race_takes_at_most_half_of_the_fixed_plan_for_the_same_answer() -> None:
    random = np.random.default_rng(7)
    races = 40
    total = 0
    for _ in range(races):
        whole = simulated(CLEAR, dict.fromkeys(CLEAR, 0.03), random)
        found, launches = race(whole)
        assert found.recommended == verdict.decide(whole, "short").recommended == 1
        total += launches
    assert total <= races * ROUNDS * len(CLEAR) / 2


def test_only_the_first_candidate_and_what_may_beat_it_go_on() -> None:
    """Depths 2 and 3 are close to depth 1, which they may beat; 0, 4 and 5 are out."""
    random = np.random.default_rng(1)
    speeds = CLEAR | {2: 100.0, 3: 99.0}
    whole = simulated(speeds, dict.fromkeys(speeds, 0.02), random)
    begun = {d: [t[:2] for t in tables] for d, tables in whole.items()}
    found = verdict.decide(begun, "short", looks=4)
    assert found.recommended is None
    assert racing.onward(found) == (found.candidates[0], *found.rivals)
    assert set(racing.onward(found)) == {1, 2, 3}


def test_prompts_that_differ_too_much_end_a_race() -> None:
    random = np.random.default_rng(6)
    speeds = {
        d: [math.log(s) + np.tile(random.normal(0, 0.2, 8), (2, 1)) + [[0.001 * d], [0.0]]]
        for d, s in {0: 95.0, 1: 100.0}.items()
    }
    found = verdict.decide(speeds, "short", LIKE_THESE, looks=4)
    assert found.recommended is None
    assert racing.onward(found) == ()


def adaptive(recorded: Recorded) -> Recorded:
    spec = recorded.run.spec | {"adaptive": True}
    return dataclasses.replace(recorded, run=dataclasses.replace(recorded.run, spec=spec))


def test_choosing_looks_at_earlier_rounds_alone(make_recorded: Make) -> None:
    """Two loud rounds leave everything open; the quiet ones after them would close it."""
    recorded = adaptive(make_recorded(CLEAR, rounds=20))
    loud = tuple(
        dataclasses.replace(s, predicted_ms=s.predicted_ms * (1.5 if s.depth % 2 == s.round else 1))
        if s.round < 2
        else s
        for s in recorded.samples
    )
    recorded = dataclasses.replace(recorded, samples=loud)
    choose = racing.steer(SweepSpec(depths=tuple(CLEAR), adaptive=True), 0.97, {})
    assert choose is not None
    assert choose(recorded, 0) == choose(recorded, 1) == tuple(CLEAR)
    assert choose(recorded, 20) == ()
    assert choose(recorded, 2) != ()
    assert racing.steer(SweepSpec(), 0.97, {}) is None


def test_a_depth_without_any_speed_is_not_launched_again(make_recorded: Make) -> None:
    recorded = adaptive(make_recorded({0: 60.0, 1: 61.0, 2: 60.0}, 0.03, 0.01, rounds=2))
    failed = tuple(
        dataclasses.replace(s, error="out of memory", predicted_n=0) if s.depth == 2 else s
        for s in recorded.samples
    )
    choose = racing.steer(SweepSpec(depths=(0, 1, 2), adaptive=True), 0.97, {})
    assert choose is not None
    assert choose(dataclasses.replace(recorded, samples=failed), 2) == (0, 1)


def test_pairs_are_compared_over_the_rounds_they_share(make_recorded: Make) -> None:
    recorded = adaptive(make_recorded(CLEAR, 0.05, 0.01))
    left = tuple(s for s in recorded.samples if s.round < 2 or s.depth in (1, 2))
    result = report.sweep_of(dataclasses.replace(recorded, samples=left))
    found = result.verdict("short")
    assert {r.depth for r in found.ratios} == set(CLEAR)
    assert found.rounds == 5
    assert result.looks == 4


TINY = SweepSpec(
    workloads=("short",), depths=(0, 1, 3), prompts=2, rounds=4, n_predict=40, context=512,
    lossless_prompts=0, threads=1, adaptive=True,
)  # fmt: skip


def test_a_real_run_launches_what_was_chosen_and_goes_on_as_it_would_have(tmp_path: Path) -> None:
    asked: list[int] = []

    def steer(recorded: store.Recorded, number: int) -> tuple[int, ...]:
        assert {s.round for s in recorded.samples} <= set(range(number)) | set(asked)
        asked.append(number)
        return {0: (0, 1, 3), 1: (0, 3)}.get(number, ())

    def measure() -> store.Recorded:
        return sweep.measure(
            TINY, machine_name="a", folder=tmp_path, progress=Silent(), steer=steer
        )

    recorded = measure()
    launches = sorted(recorded.launches, key=lambda x: x.order)
    launched = [(x.round, x.depth) for x in launches]
    assert launched == [(0, 0), (0, 1), (0, 3), (1, 3), (1, 0)]
    assert asked == [0, 1, 2]
    assert not [w for w in checks.warnings(report.sweep_of(recorded)) if "are there" in w]
    assert len(measure().launches) == len(launched)
    one_less = recorded.samples[-1]
    holed = tuple(s for s in recorded.samples if s is not one_less)
    said = checks.warnings(report.sweep_of(dataclasses.replace(recorded, samples=holed)))
    assert any("9 of 10 requests are there" in w for w in said)


@pytest.mark.parametrize("name", [n for n in gallery.names() if not n.endswith("-quick")])
def test_the_published_fixed_plan_would_have_taken_half_of_its_launches(name: str) -> None:
    fixed = gallery.machine(name)[0]
    launches, answer = bench_racing.replayed(fixed, range(1 + max(s.round for s in fixed.samples)))
    assert answer == bench_racing.answer(fixed)
    if answer != "undecided":
        assert launches <= len(fixed.launches) / 2
