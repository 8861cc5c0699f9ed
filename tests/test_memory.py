"""The memory law against what llama.cpp prints, and against known answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import memory, public, quotes
from analysis.engines import choose
from analysis.errors import SpecError
from analysis.memory import Layout
from analysis.spec import SweepSpec

# Qwen3.6-27B: public configuration values, as FACTS lists them (48 linear and 16 full layers).
LARGE = Layout("27B", "qwen35", 48, 16, 1, 4, 256, 256, 48 * 128, 128, 16, 4)


def test_one_state_of_the_27b_is_known() -> None:
    """149.625 MiB a state, so that one more token of depth costs 299.25 MiB on two slots."""
    assert memory.state_mib(LARGE, 1, 0) == pytest.approx(149.625)
    assert memory.state_mib(LARGE, 2, 4) - memory.state_mib(LARGE, 2, 3) == pytest.approx(299.25)


def test_cache_of_the_27b() -> None:
    """16 layers of 4 heads of 256, keys and values in 16 bits: 64 KiB a token."""
    assert memory.kv_mib(LARGE, 1024, unified=True) == pytest.approx(64.0)
    assert memory.kv_mib(LARGE, 1024, unified=True, mtp=True) == pytest.approx(4.0)
    half = memory.kv_mib(LARGE, 1024, unified=True, cache_type_k="q8_0", cache_type_v="q8_0")
    assert half == pytest.approx(34.0)


@given(st.integers(1, 8), st.integers(0, 16))
def test_state_is_linear_in_slots_and_in_depth(slots: int, depth: int) -> None:
    one = memory.state_mib(LARGE, 1, 0)
    assert memory.state_mib(LARGE, slots, depth) == pytest.approx(slots * (1 + depth) * one)


@given(st.integers(1, 200_000), st.integers(1, 8), st.booleans())
def test_cells_cover_the_context_and_are_padded(context: int, slots: int, unified: bool) -> None:
    held = memory.cells(context, slots, unified=unified)
    assert held % memory.PADDING == 0
    assert held >= (context // slots) * slots
    assert held - context < memory.PADDING * slots


def test_a_model_without_recurrent_layers_costs_no_state() -> None:
    plain = Layout("dense", "llama", 0, 32, 0, 8, 128, 128, 0, 0, 0, 1)
    assert not plain.has_state
    assert memory.state_mib(plain, 4, 5) == 0


def test_nonsense_is_refused() -> None:
    with pytest.raises(SpecError, match="`slots` must be at least 1"):
        memory.state_mib(LARGE, 0, 1)
    with pytest.raises(SpecError, match="no cache type q3"):
        memory.kv_mib(LARGE, 1024, cache_type_k="q3")


@pytest.mark.parametrize(
    ("slots", "depth", "more"),
    [(1, 0, {}), (1, 3, {}), (2, 2, {"kv_unified": True}), (4, 5, {"kv_unified": False}),
     (2, 1, {"cache_type_k": "q8_0", "cache_type_v": "q4_0"})],
)  # fmt: skip
def test_law_equals_what_the_engine_prints(
    slots: int, depth: int, more: dict[str, object], embedded: Path, tmp_path: Path
) -> None:
    spec = SweepSpec(
        workloads=("short",),
        context=3000,
        slots=slots,
        threads=2,
        **more,  # type: ignore[arg-type]
    )
    with choose.make(choose.probe(spec), spec, depth, embedded, tmp_path / "s.log") as engine:
        log = engine.log.read_text()
    printed = {
        kind: [float(x) for x in re.findall(rf"CPU {kind} buffer size =\s*([\d.]+) MiB", log)]
        for kind in ("RS", "KV")
    }
    layout = memory.layout_of(embedded)
    assert printed["RS"] == [pytest.approx(memory.state_mib(layout, slots, depth), abs=0.01)]
    cache = {
        "unified": bool(spec.kv_unified), "cache_type_k": spec.cache_type_k,
        "cache_type_v": spec.cache_type_v,
    }  # fmt: skip
    expected = [memory.kv_mib(layout, 3000, slots, **cache)]  # type: ignore[arg-type]
    if depth:
        expected.append(memory.kv_mib(layout, 3000, slots, unified=bool(spec.kv_unified), mtp=True))
    assert printed["KV"] == pytest.approx(expected, abs=0.01)


def test_the_public_memory_figures_step_as_the_law_says() -> None:
    """A real card, one slot: 149.6 MiB a depth, about 990 beyond the state for the first."""
    table = quotes.public_memory()
    steps = [float(x) for x in table["more than one depth less"][2:]]
    assert len(steps) == 5
    assert sum(steps) / 5 == pytest.approx(149.625, abs=0.5)
    assert float(table["the rest"][1]) == pytest.approx(992, abs=1)
    assert "qwen38-mtp" in public.memory_source()
