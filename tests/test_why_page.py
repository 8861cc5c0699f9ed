"""The page on why deeper loses, made for real with tiny parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis import attribution, causes, checks, depth_limit, note, shape_runs, why_tables
from analysis.arms import Pair
from analysis.causes import Causes
from analysis.errors import SpecError
from analysis.pages import page_parameters
from analysis.parameters import PageParameters
from tests.conftest import execute, outputs, replay

TINY: dict[str, Any] = {
    "depths": [0, 1, 2], "workloads": ["short", "code"], "rounds": 2, "prompts": 2,
    "n_predict": 40, "context": 1024, "traced_prompts": 2, "traced_rounds": 2,
    "traced_n_predict": 40, "evicted_depths": [0, 1], "evicted_workloads": ["short"],
    "evicted_prompts": 1, "evicted_rounds": 1, "shape_models": ["qwen3.5-0.8b:q4_k_m"],
    "shape_depths": [0, 1], "shape_rounds": 1, "shape_n_predict": 34, "machine": "tiny-box",
}  # fmt: skip


def page(**more: Any) -> PageParameters:
    return page_parameters("why_deeper_loses", TINY | more)


@pytest.fixture(scope="module")
def executed(machines: Path) -> Path:
    return execute("why_deeper_loses", TINY, machines)


@pytest.fixture
def found(executed: Path, machines: Path, monkeypatch: pytest.MonkeyPatch) -> Causes:
    monkeypatch.setenv("SPECDEPTH_REPLAY", "1")
    monkeypatch.setenv("SPECDEPTH_MACHINES", str(machines))
    assert executed.is_file()
    return causes.measure(page(), "why_deeper_loses")


def test_the_page_shows_what_was_measured(executed: Path, found: Causes) -> None:
    text = outputs(executed)
    splits = attribution.page_splits(found.acceptance, found.pieces)
    assert [(s.base, s.depth) for s in splits] == [(0, 1), (0, 2)]
    assert attribution.sentence(splits) in text
    assert why_tables.acceptance_sentence(found) in text
    assert why_tables.map_sentence(found) in text
    assert why_tables.shape_sentence(found) in text
    for said in ("loss of acceptance", "every guess accepted", "one layer off the emulated device"):
        assert said in text
    assert str(executed.parent) not in executed.read_text()


def test_the_chance_held_is_the_one_measured(found: Causes) -> None:
    rates = found.acceptance.recorded.run.spec["synthetic_rates"]
    assert list(rates) == [found.chance, round(found.chance**2, 4)]


def test_a_shape_is_best_where_its_tokens_are_worth_its_steps(found: Causes) -> None:
    (run,) = found.shapes.values()
    none = shape_runs.implied(run, "shape", "never", (0.0,))
    assert none.best[0] == 0
    certain = shape_runs.implied(run, "shape", "always", (1.0,))
    assert certain.ratios[1].estimate == pytest.approx(2 * none.ratios[1].estimate)


def test_what_is_left_out_says_so(found: Causes) -> None:
    alone = causes.measure(page(evicted_prompts=0), "why_deeper_loses")
    assert alone.room.why == alone.evicted.why == causes.LEFT_OUT
    assert alone.acceptance.recorded.path == found.acceptance.recorded.path


def test_one_launch_shows_no_difference(found: Causes) -> None:
    once = replace(found.acceptance, timed=found.acceptance.timed.query("round == 0"))
    assert "no difference is shown" in checks.listed({"once": once})
    assert "no difference is shown" not in checks.listed({"twice": found.acceptance})
    splits = attribution.eviction_splits(found.evicted)
    assert "one launch can not tell" in attribution.layer_sentence(splits, emulated=True)


def test_nbval_replays_the_page(executed: Path, machines: Path) -> None:
    done = replay(executed, machines)
    assert done.returncode == 0, done.stdout[-3000:]


def test_without_the_tracer_the_servers_own_split_is_shown(found: Causes) -> None:
    """As with a llama-server of one's own and no build of the engine."""
    alone = replace(found, tracer=Pair(None, None, "no llama-cpp-python"))
    assert alone.pieces is None
    splits = attribution.page_splits(alone.acceptance, alone.pieces)
    assert list(splits[-1].parts) == [attribution.TOKENS, attribution.STEP]
    assert "product of step time" in attribution.sentence(splits)
    assert attribution.eviction_splits(Pair(None, None, "no device")) == []


def test_warnings_name_their_run_and_only_given_acceptance(found: Causes) -> None:
    said = checks.listed({"The server": found.acceptance, **found.shapes})
    assert "The server: Acceptance was given" not in said
    assert "qwen3.5-0.8b:q4_k_m: Acceptance was given, not measured" in said


def test_marks_lie_on_panels(found: Causes) -> None:
    fits = {p.fits for p in why_tables.panels()}
    marks = why_tables.marks(found)
    assert {m.fits for m in marks} <= fits
    assert marks[0].chance_low == marks[0].chance_high == found.chance
    assert all(0 < m.slope_low <= m.slope_high for m in marks)
    card = next(m for m in marks if m.fits == note.BASE)
    (panel,) = (p for p in why_tables.panels() if p.fits == card.fits)
    assert int(depth_limit.best(card.chance_high, card.slope_low, panel)) == note.BASE


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"shape_models": ["gpt-9"]}, "no shape called gpt-9"),
        ({"shape_models": ["qwen3.5-0.8b:q9"]}, "no quantization called q9"),
        ({"shape_rounds": 0}, "shape_rounds"),
        ({"shape_depths": [0]}, "`shape_depths` name a depth above 0"),
        ({"evicted_depths": []}, "`evicted_depths` name depths"),
        ({"depths": [0]}, "`depths` must name a depth above 0"),
        ({"n_predict": 32}, "`n_predict` must be above 32"),
        ({"evicted_prompts": -1}, "evicted_prompts"),
        ({"evicted_workloads": ["poems"]}, "evicted_workloads"),
        ({"evicted_sloths": 2}, "no parameter evicted_sloths"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        page(**given)
