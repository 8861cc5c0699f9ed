from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import parameters
from analysis.errors import SpecError
from analysis.spec import SweepSpec


def test_depth_zero_is_always_measured() -> None:
    assert SweepSpec(depths=(3, 1)).depths == (0, 1, 3)


@pytest.mark.parametrize(
    ("given_text", "read"),
    [("[0, 2]", (0, 2)), ("0,2", (0, 2)), ("2", (0, 2)), ([2.0, 0], (0, 2))],
)
def test_lists_may_come_as_text(given_text: Any, read: tuple[int, ...]) -> None:
    assert SweepSpec(depths=given_text).depths == read


def test_scalars_may_come_as_text() -> None:
    spec = SweepSpec(
        rounds="3",  # type: ignore[arg-type]
        temperature="0.5",  # type: ignore[arg-type]
        kv_unified="true",  # type: ignore[arg-type]
        threads="None",  # type: ignore[arg-type]
        server_args="-ngl 99 --flash-attn on",  # type: ignore[arg-type]
    )
    assert (spec.rounds, spec.temperature, spec.kv_unified, spec.threads) == (3, 0.5, True, None)
    assert spec.server_args == ("-ngl", "99", "--flash-attn", "on")


@pytest.mark.parametrize(
    "bad",
    [
        {"depths": [-1]},
        {"depths": [99]},
        {"depths": "two"},
        {"rounds": 0},
        {"rounds": 1.5},
        {"rounds": True},
        {"workloads": ["poetry"]},
        {"workloads": []},
        {"workloads": ["short", "short"]},
        {"drafter": "eagle9"},
        {"drafter": "draft-simple"},
        {"drafter": "none"},
        {"temperature": -0.1},
        {"temperature": "nan"},
        {"p_min": 2},
        {"busy_slots": 2},
        {"context": 4096},
        {"slots": 4},
        {"arm": "synthetic"},
        {"synthetic_rates": [0.5]},
        {"arm": "synthetic", "synthetic_rates": [0.2, 0.9, 0.1, 0.1, 0.1]},
        {"model": ""},
        {"seed": 2**32},
        {"kv_unified": "perhaps"},
        {"cache_type_k": "f8"},
    ],
)
def test_nonsense_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="must"):
        SweepSpec(**bad)


def test_a_unified_cache_gives_each_slot_the_whole_context() -> None:
    assert SweepSpec(slots=4, kv_unified=True).slot_context == 20480


def test_key_ignores_rounds_and_paths_but_nothing_else() -> None:
    base = SweepSpec(model="/a/m.gguf", server="/x/llama-server")
    same = SweepSpec(model="/b/m.gguf", server="/y/llama-server", rounds=9)
    assert base.key("sha", "b1") == same.key("sha", "b1")
    assert base.key("sha", "b1") != base.key("other", "b1")
    assert base.key("sha", "b1") != base.key("sha", "b2")
    assert base.key("sha", "b1") != SweepSpec(temperature=0.7).key("sha", "b1")


def test_no_path_reaches_the_stored_spec() -> None:
    spec = SweepSpec(
        model="/secret/m.gguf",
        server="/secret/s",
        server_args=("--chat-template-file", "/secret/t"),
    )
    assert "secret" not in str(spec.to_json())


@given(st.lists(st.integers(0, 32), min_size=1, max_size=8))
def test_depths_survive_every_form(depths: list[int]) -> None:
    wanted = tuple(sorted({0, *depths}))
    assert SweepSpec(depths=tuple(depths)).depths == wanted
    assert SweepSpec(depths=str(depths)).depths == wanted  # type: ignore[arg-type]


def test_unknown_notebook_parameter_is_an_error() -> None:
    names = {"model": "embedded", "roundz": 3, "_hidden": 1, "In": [], "get_ipython": print}
    with pytest.raises(SpecError, match="unknown parameter roundz"):
        parameters.read(names)


def test_notebook_parameters_become_a_page() -> None:
    page = parameters.read({"rounds": 2, "machine": "m", "tolerance": "0.9", "machines_folder": ""})
    assert (page.spec.rounds, page.machine, page.tolerance) == (2, "m", 0.9)
    assert page.machines_folder is None


@pytest.mark.parametrize("tolerance", [0, 1.5, "high", None])
def test_a_tolerance_outside_zero_to_one_is_refused(tolerance: Any) -> None:
    with pytest.raises(SpecError, match="tolerance"):
        parameters.read({"tolerance": tolerance})
