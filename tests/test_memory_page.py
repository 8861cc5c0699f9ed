"""The page on memory, made for real with tiny parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis import eviction, memory_figures, plan, plan_tables, plans, shapes
from analysis.engines import emulated
from analysis.errors import SpecError
from analysis.parameters import PageParameters, read
from tests.conftest import execute, outputs, replay

TINY: dict[str, Any] = {
    "plan_shapes": ["qwen3.5-0.8b"], "plan_shape": "qwen3.5-0.8b", "plan_quantization": "q8_0",
    "plan_context": 8192, "plan_depths": [0, 1, 2, 3], "depths": [0, 1], "workloads": ["short"],
    "rounds": 2, "prompts": 2, "n_predict": 40, "context": 1024, "traced_prompts": 1,
    "traced_rounds": 2, "traced_n_predict": 40, "machine": "tiny-box",
}  # fmt: skip


def page(**more: Any) -> PageParameters:
    given = {k: v for k, v in TINY.items() if k != "machine"} | {"lossless_prompts": 0} | more
    return read(given, plans=True)


@pytest.fixture(scope="module")
def executed(machines: Path) -> Path:
    return execute("memory_eviction", TINY, machines)


def test_the_page_says_what_the_engine_planned(
    executed: Path, machines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEPTH_REPLAY", "1")
    monkeypatch.setenv("SPECDEPTH_MACHINES", str(machines))
    own = page()
    own = PageParameters(**{**vars(own), "machine": "tiny-box"})
    law, needs, placed = plan_tables.ask(own, "memory_eviction")
    rows = plan_tables.rows(needs, own.planning)
    table = plan_tables.law(law)
    assert (table["engine_mib"] - table["law_mib"]).abs().max() < 2
    text = outputs(executed)
    assert plan_tables.law_sentence(table) in text
    assert plan_tables.cliff(rows) in text
    assert "a window of" in text
    assert needs.emulated
    total = shapes.shape("qwen3.5-0.8b").blocks + 1
    (edge,) = {q.budget_mib for q in placed.answers if q.depth == 2}
    placement = plan_tables.placement(needs, placed)
    assert list(placement[f"{edge:,} MiB"])[:2] == [f"{total}/{total}"] * 2
    assert placement[f"{edge:,} MiB"][2] != f"{total}/{total}"


def test_the_page_shows_the_layer_that_left(executed: Path) -> None:
    text = outputs(executed)
    assert "9/10" in text
    assert "10/10" in text
    assert "No graphics card was found." in text
    assert "says nothing of its size on a card" in text
    assert "127.0.0.1:PORT" in text
    assert str(executed.parent) not in executed.read_text()


def test_nbval_replays_the_page(executed: Path, machines: Path) -> None:
    done = replay(executed, machines)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"plan_shape": "gpt-9"}, "no shape called gpt-9"),
        ({"plan_shapes": "qwen3.5-0.8b,gpt-9"}, "no shape called gpt-9"),
        ({"plan_quantization": "q9"}, "no quantization called q9"),
        ({"plan_depths": []}, "plan_depths"),
        ({"plan_sloths": 2}, "unknown parameter plan_sloths"),
        ({"plan_slots": "two"}, "plan_slots"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        page(**given)


def test_without_a_device_the_page_rests_on_the_closed_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A llama-server of one's own on a machine without a card, and no build of the engine."""
    monkeypatch.setenv("SPECDEPTH_MACHINES", str(tmp_path))
    monkeypatch.delenv("SPECDEPTH_REPLAY", raising=False)
    monkeypatch.setattr(emulated, "PROGRAM", "no-such-program")
    monkeypatch.setattr(plans, "PROGRAM", "no-such-program")
    law, needs, placed = plan_tables.ask(page(), "memory_eviction")
    assert not any(found.answers for found in (law, needs, placed))
    assert "no no-such-program in this environment" in plan_tables.question(page().planning, needs)
    rows = plan_tables.rows(needs, page().planning)
    assert {r.basis for r in rows} == {plan.CLOSED_FORM}
    assert "a window of" not in plan_tables.law_sentence(plan_tables.law(law))
    assert "a window of" in plan_tables.cliff(rows)
    assert memory_figures.law(plan_tables.law(law)) is None
    assert memory_figures.layers(needs, placed) is None
    assert memory_figures.needs(rows, page().planning)
    assert plan_tables.placement(needs, placed).empty
    pair = eviction.measure_evicted(page(), "memory_eviction", emulated=needs.emulated)
    assert not pair.there
    assert "not measured here" in eviction.sentence(pair, emulated=True)


def test_without_an_engine_the_page_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEPTH_MACHINES", str(tmp_path))
    monkeypatch.setenv("SPECDEPTH_REPLAY", "1")
    pair = eviction.measure_room(page(), "memory_eviction")
    assert not pair.there
    assert eviction.room_sentence(pair).startswith("This part was not measured here: no stored")
    left_out = eviction.measure_room(page(traced_prompts=0), "memory_eviction")
    assert "traced_prompts = 0" in eviction.room_sentence(left_out)
