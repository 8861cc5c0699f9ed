"""Launches side by side: their requests in turns, on the real engine with tiny settings."""

import dataclasses
import itertools
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis import store
from analysis.launch import turns
from analysis.spec import SweepSpec
from tests import faults
from tests.test_sweep import TINY, measure


def test_turns_are_balanced() -> None:
    """Over all turns, each is at each place as often, and follows each other one as often."""
    orders = [turns((0, 1, 2), place) for place in range(6)]
    places = Counter((at, x) for order in orders for at, x in enumerate(order))
    assert set(places.values()) == {2}
    assert len(places) == 9
    followers = Counter(pair for order in orders for pair in pairwise(order))
    assert set(followers.values()) == {2}
    assert len(followers) == 6


@pytest.mark.parametrize(("depths", "warm_ups"), [((0,), 7), ((0, 2), 4), ((0, 1, 2, 3, 4), 2)])
def test_launches_side_by_side_share_the_second_of_warm_up(
    fake: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    depths: tuple[int, ...],
    warm_ups: int,
) -> None:
    """By a clock on which each request takes 150 ms; a quarter of the second is the least."""
    clock = itertools.count(step=0.15)
    monkeypatch.setattr("analysis.launch.time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr("analysis.launch.WARM_UP_MS", 1000.0)
    spec = faults.spec(fake, depths=depths, in_turns=True)
    made = Counter(s.launch for s in faults.measured(spec, tmp_path).samples if s.warm_up)
    assert list(made.values()) == [warm_ups] * len(depths)


@pytest.mark.parametrize(("in_turns", "told"), [(False, 100), (True, None)])
def test_device_memory_is_told_of_a_launch_that_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_turns: bool, told: int | None
) -> None:
    monkeypatch.setattr("analysis.machine.device_memory_mib", lambda: 100)
    spec = dataclasses.replace(
        TINY, rounds=1, prompts=1, workloads=("short",), lossless_prompts=0, in_turns=in_turns
    )
    assert {s.peak_device_mib for s in measure(tmp_path, spec).samples} == {told}


def test_launches_side_by_side_make_the_same_request_before_the_next_one(
    tmp_path: Path,
) -> None:
    """What lasts longer than a few requests falls on all depths alike."""
    measured = measure(tmp_path)
    assert measured.run.spec["in_turns"]
    for number in (0, 1):
        own = [s for s in measured.samples if s.round == number and not s.warm_up]
        orders = [[s.depth for s in own[i : i + 2]] for i in range(0, len(own), 2)]
        assert all(sorted(depths) == [0, 2] for depths in orders)
        assert len({(*depths,) for depths in orders}) == 2  # each is first at times
    apart = measure(tmp_path, dataclasses.replace(TINY, in_turns=False))
    assert "in_turns" not in apart.run.spec
    assert apart.run.key != measured.run.key
    depths = [s.depth for s in apart.samples if s.round == 0]
    assert depths == sorted(depths)

    def asked(recorded: store.Recorded) -> set[tuple[Any, ...]]:
        return {store.sample_key(s) for s in recorded.samples if s.arm == "natural"}

    assert asked(apart) == asked(measured)


@pytest.mark.parametrize(
    ("more", "turns"),
    [
        ({}, True),
        ({"model": "mine.gguf"}, False),
        ({"device": "emulated"}, False),
        ({"engine": "tracer"}, True),
        ({"more_drafters": ("ngram-mod",)}, True),
        ({"model": "mine.gguf", "more_drafters": ("ngram-mod",)}, False),
        ({"in_turns": False}, False),
        ({"model": "mine.gguf", "in_turns": True}, True),
    ],
)
def test_only_engines_known_to_fit_run_side_by_side_unasked(
    more: dict[str, Any], turns: bool
) -> None:
    spec = SweepSpec(**more)
    assert spec.takes_turns is turns
    assert spec.to_json().get("in_turns", False) is turns
