"""Which drafters are measured, as a user names them."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis import model
from analysis.engines import binary
from analysis.engines.flags import arguments
from analysis.errors import ModelError, SpecError
from analysis.pages import page_parameters
from analysis.spec import SweepSpec

RIVALS = ("mtp:/srv/heads/deep.gguf", "draft-simple:small.gguf", "ngram-mod")


def spec(**more: Any) -> SweepSpec:
    return SweepSpec(workloads=("short",), depths=(0, 1, 3), more_drafters=RIVALS, **more)


def test_a_rival_is_an_arm_by_its_name_and_has_no_depth_0() -> None:
    own = spec()
    names = ("mtp:deep.gguf", "draft-simple:small.gguf", "ngram-mod")
    assert own.arms == ("natural", *names)
    assert [c for c in own.cells if c[0] == 0] == [(0, "natural")]
    assert len(own.cells) == 1 + 2 * 4
    alone = own.at("draft-simple:small.gguf")
    assert (alone.drafter, alone.draft_model) == ("draft-simple", "small.gguf")
    assert (alone.arm, alone.more_drafters) == ("draft-simple:small.gguf", ())
    assert alone.lossless_prompts == own.lossless_prompts
    assert own.at("natural").drafter == "mtp"


def test_a_rivals_folder_is_not_stored_and_a_run_without_any_keeps_its_name() -> None:
    assert "/srv" not in str(spec().to_json())
    assert spec().to_json()["more_drafters"] == [
        "mtp:deep.gguf", "draft-simple:small.gguf", "ngram-mod",
    ]  # fmt: skip
    assert "more_drafters" not in SweepSpec(workloads=("short",)).to_json()
    assert spec().key() != SweepSpec(workloads=("short",), depths=(0, 1, 3)).key()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"more_drafters": ("mtp",)}, "more_drafters"),
        ({"more_drafters": ("ngram-mod", "ngram-mod")}, "more_drafters"),
        ({"more_drafters": ("none",)}, "more_drafters"),
        ({"more_drafters": ("guesswork",)}, "drafter"),
        ({"more_drafters": ("draft-simple",)}, "draft_model"),
        ({"more_drafters": ("ngram-mod:x.gguf",)}, "draft_model"),
        ({"more_drafters": ("ngram-mod",), "more_arms": ("perfect",)}, "more_drafters"),
        ({"more_drafters": ("ngram-cache",)}, "drafter"),
        ({"more_drafters": ("ngram-mod",), "engine": "tracer"}, "more_drafters"),
        ({"draft_model": "head.gguf", "engine": "tracer"}, "draft_model"),
        ({"drafter": "guesswork"}, "drafter"),
    ],
)
def test_drafters_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=f"`{said}`"):
        SweepSpec(workloads=("short",), **given)


def test_a_drafter_that_is_not_known_goes_to_the_server_as_it_is_called(tmp_path: Path) -> None:
    known = replace(binary.probe(), spec_types=(*binary.probe().spec_types, "draft-later"))
    own = SweepSpec(workloads=("short",), drafter="draft-later", draft_model="/a/eagle.gguf")
    words = arguments(known, own, 2, tmp_path, 1)
    assert words[words.index("--spec-type") + 1] == "draft-later"
    assert words[words.index("--spec-draft-n-max") + 1] == "2"
    assert words[words.index("--spec-draft-model") + 1] == "/a/eagle.gguf"
    assert "--spec-draft-model" not in arguments(known, own, 0, tmp_path, 1)


def test_a_model_without_a_head_may_have_one_beside_it() -> None:
    bare = dataclasses.replace(model.facts(model.embedded_path()), mtp_layers=0)
    model.check_drafter(bare, SweepSpec(workloads=("short",), draft_model="head.gguf"))
    with pytest.raises(ModelError, match="no MTP layer"):
        model.check_drafter(bare, SweepSpec(workloads=("short",)))


@pytest.mark.parametrize(
    ("given", "first", "further"),
    [
        ({}, "mtp", 5),
        ({"model": "/x/own.gguf"}, "mtp", 3),
        ({"model": "/x/own.gguf", "draft_model": "/x/eagle.gguf", "drafter": "draft-eagle3"},
         "mtp", 4),
        ({"draft_model": "/x/tiny.gguf"}, "mtp", 6),
        ({"drafter": "ngram-mod"}, "mtp", 5),
        ({"drafters": "", "ngrams": "ngram-simple,ngram-mod"}, "ngram-simple", 1),
        ({"model": "shape:qwen3.5-0.8b"}, "mtp", 0),
    ],
)  # fmt: skip
def test_the_readers_own_drafter_takes_part(
    given: dict[str, Any], first: str, further: int
) -> None:
    own = page_parameters("drafters", given).spec
    assert (own.drafter, len(own.more_drafters)) == (first, further)
    if "draft_model" in given:
        kind = given.get("drafter", "draft-simple")
        assert own.more_drafters[-1] == f"{kind}:{given['draft_model']}"


def test_depth_0_alone_compares_nothing() -> None:
    with pytest.raises(SpecError, match="depth above 0"):
        page_parameters("drafters", {"depths": [0]})


def test_the_folders_of_drafters_are_not_published() -> None:
    from analysis.pages import _without_paths

    for given in (["mtp", "draft-simple:/home/me/x.gguf"], "mtp,draft-simple:/home/me/x.gguf"):
        assert _without_paths(f"drafters = {given!r}") == (
            'drafters = ["mtp", "draft-simple:x.gguf"]'
        )


def test_ones_own_drafter_is_no_parameter_of_the_depth_sweep() -> None:
    from analysis.series import NOTEBOOKS, _others

    assert _others("depth_sweep", "draft_model", NOTEBOOKS)
    assert not _others("drafters", "draft_model", NOTEBOOKS)
    assert not _others("depth_sweep", "draft_model", ("depth_sweep",))


def test_no_drafter_at_all_is_refused() -> None:
    with pytest.raises(SpecError, match="`drafters`"):
        page_parameters("drafters", {"drafters": [], "ngrams": ""})
