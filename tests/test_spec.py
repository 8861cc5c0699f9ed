from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import parameters
from analysis.errors import SpecError
from analysis.paths import redacted
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


def test_key_ignores_rounds_and_folders_but_nothing_else() -> None:
    base = SweepSpec(model="/a/m.gguf", server="/x/llama-server")
    same = SweepSpec(model="/b/m.gguf", server="/y/llama-server", rounds=9)
    facts = {"model": "sha", "engine": "b1"}
    assert base.key(**facts) == same.key(**facts)
    assert base.key(**facts) != base.key(model="other", engine="b1")
    assert base.key(**facts) != base.key(model="sha", engine="b2")
    assert base.key(**facts) != SweepSpec(temperature=0.7).key(**facts)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"-ot blk\.1\.ffn=CPU", r"-ot blk\.2\.ffn=CPU"),
        ("--lora=/a/x", "--lora=/b/x"),
        ("--lora /a/x", "--lora /b/x"),
    ],
)
def test_runs_with_other_flags_are_other_runs(one: str, other: str) -> None:
    a, b = (SweepSpec(server_args=tuple(x.split())) for x in (one, other))
    assert a.key() != b.key()


@pytest.mark.parametrize(
    ("word", "stored"),
    [
        ("/home/me/t.jinja", "t.jinja"),
        ("--lora=/home/me/b", "--lora=b"),
        ("~/x/y", "y"),
        (r"C:\Users\me\x.gguf", "x.gguf"),
        (r"blk\.1\.ffn=CPU", r"blk\.1\.ffn=CPU"),
        ("0.5/1", "0.5/1"),
        ("-ngl", "-ngl"),
    ],
)
def test_only_folders_are_taken_out_of_flags(word: str, stored: str) -> None:
    assert redacted(word) == stored
    assert redacted(stored) == stored


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
    with pytest.raises(SpecError, match=r"unknown parameter roundz.*did you mean rounds\?"):
        parameters.read(names)


def test_notebook_parameters_become_a_page() -> None:
    page = parameters.read({"rounds": 2, "machine": "m", "tolerance": "0.9", "machines_folder": ""})
    assert (page.spec.rounds, page.machine, page.tolerance) == (2, "m", 0.9)
    assert page.machines_folder is None


@pytest.mark.parametrize("tolerance", [0, 1.5, "high", None])
def test_a_tolerance_outside_zero_to_one_is_refused(tolerance: Any) -> None:
    with pytest.raises(SpecError, match="tolerance"):
        parameters.read({"tolerance": tolerance})


@pytest.mark.parametrize(
    ("given_mix", "read"),
    [("", {}), ("short=2, code=1", {"short": 2.0, "code": 1.0}), ({"long": 3}, {"long": 3.0})],
)
def test_a_mix_is_read(given_mix: Any, read: dict[str, float]) -> None:
    assert parameters.read({"mix": given_mix}).mix == read


@pytest.mark.parametrize("bad", ["poetry=1", "short=0", "short=x", "short", {"code": -1}])
def test_a_mix_of_nonsense_is_refused(bad: Any) -> None:
    with pytest.raises(SpecError, match="`mix` must give weights above zero"):
        parameters.read({"mix": bad})


def test_an_unclosed_quotation_is_refused() -> None:
    with pytest.raises(SpecError, match="not a command line"):
        SweepSpec(server_args='"unclosed')  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["5-0", "", "x", "1-"])
def test_depths_that_name_no_depth_are_refused(bad: str) -> None:
    import typer

    from analysis import cli_common

    with pytest.raises(typer.BadParameter):
        cli_common.depth_list(bad)
