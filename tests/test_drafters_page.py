"""The page on drafters, made for real with tiny parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis import drafters, drafters_sentences, drafters_tables, lossless, repetition
from analysis.drafters import Comparison
from analysis.pages import page_parameters
from tests.conftest import execute, outputs, replay

DEEP, SMALL = "mtp:embedded-deep-head", "draft-simple:embedded-small"

TINY: dict[str, Any] = {
    "depths": [1, 3], "workloads": ["short", "code"], "rounds": 2, "prompts": 2, "n_predict": 48,
    "context": 1024, "lossless_prompts": 1, "machine": "tiny-box",
    "drafters": ["mtp", DEEP, SMALL],
}  # fmt: skip


@pytest.fixture(scope="module")
def executed(machines: Path) -> Path:
    return execute("drafters", TINY, machines)


@pytest.fixture
def found(executed: Path, machines: Path, monkeypatch: pytest.MonkeyPatch) -> Comparison:
    monkeypatch.setenv("SPECDEPTH_REPLAY", "1")
    monkeypatch.setenv("SPECDEPTH_MACHINES", str(machines))
    assert executed.is_file()
    return drafters.measure(page_parameters("drafters", TINY), "drafters")


def test_the_page_shows_what_was_measured(executed: Path, found: Comparison) -> None:
    text = outputs(executed)
    for line in (
        *drafters_sentences.off_the_shelf(found),
        *drafters_sentences.dedicated(found, 0.97),
        drafters_sentences.winners(found, 0.97),
        repetition.sentence(found),
    ):
        assert line in text
    assert drafters.missing(found) == {}
    assert str(executed.parent) not in executed.read_text()


def test_every_drafter_drafts_with_its_own_file(found: Comparison) -> None:
    commands = {(x.arm, x.depth): x.command for x in found.base.recorded.launches}
    assert "specdepth-9m-deep-head-q8_0.gguf" in commands[DEEP, 3]
    assert "--spec-type draft-mtp" in commands[DEEP, 3]
    assert "specdepth-2m-q8_0.gguf" in commands[SMALL, 3]
    assert "--spec-draft-model" not in commands["natural", 3]
    assert set(found.base.recorded.run.drafters) == {DEEP, SMALL}
    by_arm = {s.arm: s.drafter for s in found.base.recorded.samples if s.depth}
    assert by_arm == {"natural": "mtp"} | {d: d for d in found.drafters if d != "mtp"}
    files = drafters_tables.files(found)
    assert list(files["architecture"]) == ["qwen35", "qwen3"]


def test_models_and_heads_were_accepted_from(found: Comparison) -> None:
    for drafter in ("mtp", DEEP, SMALL):
        timed = found.drafters[drafter].timed
        assert timed["draft_n_accepted"].fillna(0).sum() > 0, drafter
        counts = found.positions(drafter, "short")
        assert counts is not None
        first = counts.a(1)
        assert first is not None
        assert 0 < first.estimate < 1


def test_greedy_texts_of_all_drafters_are_compared_with_no_drafting(found: Comparison) -> None:
    pairs = lossless.pairs(found.base.recorded)
    assert {b.arm for _, b in pairs} == {"natural", *found.drafters} - {"mtp"}
    assert all(a.depth == 0 for a, _ in pairs)
    told = drafters_tables.texts(found)
    assert list(told["compared"]) == [4] * len(found.drafters)  # two workloads, two depths
    margins = [d.margin for d in found.base.recorded.divergences]
    assert all(m is not None and abs(m) < 0.35 for m in margins)  # ties, as in models/README.md


def test_memory_beyond_the_target_is_the_files_and_the_states(found: Comparison) -> None:
    told = drafters_tables.memory(found).map(float)
    weights = dict(zip(found.drafters, told["weights, MiB"].iloc[1:], strict=True))
    assert weights["mtp"] < weights[DEEP] < 4.0
    assert weights["ngram-mod"] == 0
    states = dict(zip(found.drafters, told["recurrent state, MiB"].iloc[1:], strict=True))
    assert states["mtp"] == states[DEEP] > 1
    assert states[SMALL] == states["ngram-simple"] == 0


def test_a_second_call_measures_nothing(
    executed: Path, found: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPECDEPTH_REPLAY")
    again = drafters.measure(page_parameters("drafters", TINY), "drafters")
    assert len(again.base.recorded.samples) == len(found.base.recorded.samples)
    assert executed.is_file()


def test_nbval_replays_the_page(executed: Path, machines: Path) -> None:
    done = replay(executed, machines)
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_drafter_that_can_not_be_loaded_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that holds no model of its own: a head's, as a small model."""
    monkeypatch.setenv("SPECDEPTH_MACHINES", str(tmp_path / "machines"))
    page = page_parameters(
        "drafters",
        TINY | {"drafters": ["mtp", "draft-simple:embedded-deep-head"], "ngrams": [], "rounds": 1,
                "depths": [1], "workloads": ["short"], "prompts": 1, "lossless_prompts": 0},
    )  # fmt: skip
    found = drafters.measure(page, "drafters")
    assert list(found.drafters) == ["mtp"]
    (error,) = drafters.missing(found).values()
    assert "llama-server" in error
    assert "no speed was measured" in drafters_sentences.warnings(found)
    assert drafters_sentences.off_the_shelf(found) == []
