"""Drafters against each other: what is compared, known answers, and the page made for real."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import drafters, drafters_checks, drafters_tables, lossless, model, repetition
from analysis.drafters import Comparison, Option
from analysis.engines import binary
from analysis.engines.flags import arguments
from analysis.errors import ModelError, SpecError
from analysis.pages import page_parameters
from analysis.records import Divergence
from analysis.report import Sweep, sweep_of
from analysis.spec import SweepSpec
from analysis.stats import LIKE_THESE, ON_THESE
from analysis.store import Recorded
from tests.conftest import execute, outputs, replay

RIVALS = ("mtp:/srv/heads/deep.gguf", "draft-simple:small.gguf", "ngram-mod")
DEEP, SMALL = "mtp:embedded-deep-head", "draft-simple:embedded-small"

Make = Callable[..., Recorded]


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


def test_no_drafter_at_all_is_refused() -> None:
    with pytest.raises(SpecError, match="`drafters`"):
        page_parameters("drafters", {"drafters": [], "ngrams": ""})


def made_up(make: Make, speeds: dict[str, dict[int, float]], **noise: float) -> Comparison:
    """Return a comparison with given speeds by drafter and depth; depth 0 is the first one's."""
    sweeps = {
        name: sweep_of(make(own, seed=seed, **noise))
        for seed, (name, own) in enumerate(speeds.items())
    }
    return Comparison(next(iter(sweeps.values())), sweeps)


SPEEDS = {
    "mtp": {0: 100.0, 1: 80.0, 3: 60.0},
    DEEP: {0: 100.0, 1: 90.0, 3: 120.0},
    "ngram-mod": {0: 100.0, 1: 99.0, 3: 97.5},
}


def test_the_best_of_each_is_compared_with_the_best_of_the_other(make_recorded: Make) -> None:
    found = made_up(make_recorded, SPEEDS)
    for scope in (ON_THESE, LIKE_THESE):
        ratio = found.best_ratio(DEEP, "mtp", "short", scope)
        assert ratio is not None
        assert ratio.estimate == pytest.approx(120 / 80)
        assert ratio.low == pytest.approx(ratio.high)
    none = found.best_ratio("mtp", "none", "short", LIKE_THESE)
    assert none is not None
    assert none.estimate == pytest.approx(0.8)


def test_choosing_the_best_depths_costs_no_coverage(make_recorded: Make) -> None:
    """Both have three depths of the same true speed, so that the best is chosen by noise alone."""
    flat = {0: 100.0, 1: 100.0, 2: 100.0, 3: 100.0}
    missed = naive = 0
    for seed in range(60):
        sweeps = {
            n: sweep_of(make_recorded(flat, seed=2 * seed + i, launch_noise=0.05, prompt_noise=0.0))
            for i, n in enumerate(("mtp", DEEP))
        }
        found = Comparison(sweeps["mtp"], sweeps)
        ratio = found.best_ratio(DEEP, "mtp", "short", ON_THESE)
        assert ratio is not None
        missed += not ratio.low <= 1 <= ratio.high
        best = {n: max((1, 2, 3), key=lambda d: s.mean("tok_s", "short", d).estimate)
                for n, s in sweeps.items()}  # fmt: skip
        at = found.ranked.relative(
            "tok_s", "short", found.rank(DEEP, best[DEEP]), found.rank("mtp", best["mtp"]), ON_THESE
        )
        assert at is not None
        naive += not at.low <= 1 <= at.high
    assert missed <= 3  # of 60, at 95%
    assert missed <= naive


def test_options_are_ranked_by_depth_and_decided_like_depths(make_recorded: Make) -> None:
    found = made_up(make_recorded, SPEEDS)
    assert [str(o) for o in found.options[:4]] == [
        "no drafting", "MTP head, 1", "MTP head trained for depth, 1", "ngram-mod, 1",
    ]  # fmt: skip
    best = found.verdict("short", LIKE_THESE, 0.97, drafting=False)
    assert found.options[best.recommended or 0] == Option(DEEP, 3)
    lazy = found.verdict("short", LIKE_THESE, 0.8, drafting=False)
    assert lazy.recommended == 0  # loses no more than is tolerated
    slow = {n: own for n, own in SPEEDS.items() if n != DEEP}
    drafting = made_up(make_recorded, slow).verdict("short", LIKE_THESE, 0.97, drafting=True)
    assert drafting.recommended == 2  # ngram-mod at depth 1, the second option


def test_sentences_follow_the_intervals(make_recorded: Make) -> None:
    small = {0: 100.0, 1: 50.0, 3: 40.0}
    (lost,) = drafters_tables.off_the_shelf_sentences(
        made_up(make_recorded, {"mtp": SPEEDS["mtp"], SMALL: small})
    )
    assert "confirmed here" in lost
    (won,) = drafters_tables.off_the_shelf_sentences(
        made_up(make_recorded, {"mtp": small, SMALL: SPEEDS["mtp"]})
    )
    assert "refuted here" in won
    (even,) = drafters_tables.off_the_shelf_sentences(
        made_up(make_recorded, {"mtp": small, SMALL: small}, launch_noise=0.1)
    )
    assert "not distinguishable here" in even


def with_counts(sweep: Sweep, depth: int, kept: tuple[int, ...], noise: int = 0) -> Sweep:
    """Return a sweep whose drafts at a depth, 40 a request, kept so many up to each position."""
    random, timed = np.random.default_rng(depth + noise), sweep.timed.copy()
    own = timed["depth"] == depth
    timed["accepted_per_position"] = pd.Series(
        [tuple(int(k + random.integers(-noise, noise + 1)) for k in kept) for _ in own],
        index=timed.index,
    ).where(own, None)
    timed["draft_n"] = [40 * depth if at else None for at in own]
    return replace(sweep, timed=timed)


def test_acceptance_that_training_raised_is_told_by_position(make_recorded: Make) -> None:
    found = made_up(make_recorded, SPEEDS)
    found = Comparison(
        found.base,
        {
            "mtp": with_counts(found.drafters["mtp"], 3, (28, 12, 4), noise=2),
            DEEP: with_counts(found.drafters[DEEP], 3, (28, 20, 12), noise=2),
        },
    )
    gains = {k: found.gain(DEEP, "mtp", k, LIKE_THESE) for k in (1, 2, 3)}
    second = gains[2]
    assert second is not None
    assert second.estimate == pytest.approx(8 / 40, abs=0.03)
    assert [drafters_tables.call(g, 0.0) for g in gains.values()] == [
        "not distinguishable", "higher", "higher",
    ]  # fmt: skip
    assert found.gain(DEEP, "mtp", 4, LIKE_THESE) is None
    (line,) = drafters_tables.dedicated_sentences(found, 0.97)
    assert "**confirmed here**" in line
    assert "higher at position 2, 3" in line
    worse = Comparison(found.base, {"mtp": found.drafters[DEEP], DEEP: found.drafters["mtp"]})
    (line,) = drafters_tables.dedicated_sentences(worse, 0.97)
    assert "**refuted here**" in line


def test_repetition_is_read_from_the_text_and_paired_with_no_drafting(
    make_recorded: Make,
) -> None:
    recorded = make_recorded({0: 100.0, 1: 100.0, 2: 100.0}, prompts=6, rounds=2)
    samples = []
    for s in recorded.samples:
        number = int(s.prompt_id)
        looped = tuple(range(40)) if number == 0 else tuple(i % (40 // number) for i in range(40))
        speedup = 1 + 0.2 * number if s.depth == 2 else 1.0
        samples.append(
            replace(
                s,
                arm="ngram-mod" if s.depth else "natural",
                tokens=looped,
                predicted_ms=s.predicted_ms / speedup,
                steps=100 - 10 * number if s.depth == 2 else 100,
            )
        )
    run = replace(recorded.run, spec=recorded.run.spec | {"more_drafters": ["ngram-mod"]})
    base = sweep_of(replace(recorded, run=run, samples=tuple(samples)))
    found = drafters.compare(base)
    points = repetition.points(found, "ngram-mod").sort_values("prompt_id")
    assert list(points["ratio"]) == pytest.approx([1 + 0.2 * n for n in range(6)])
    assert list(points["tokens_per_step"]) == pytest.approx(
        [100 / (100 - 10 * n) for n in range(6)]
    )
    assert points["repeated"].iloc[0] == 0.0
    assert points["repeated"].iloc[5] == pytest.approx(1 - 8 / 37)
    rho, low, high = repetition.rank_correlation(points)
    assert rho > 0.9
    assert low > 0.5
    assert high <= 1
    assert "rises with repetition" in repetition.sentence(found)
    silent = points.assign(tokens_per_step=1.0)
    assert all(map(math.isnan, repetition.rank_correlation(silent)))


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
        *drafters_tables.off_the_shelf_sentences(found),
        *drafters_tables.dedicated_sentences(found, 0.97),
        drafters_tables.winner_sentence(found, 0.97),
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
    files = drafters_checks.files(found)
    assert list(files["architecture"]) == ["qwen35", "qwen3"]


def test_models_and_heads_were_accepted_from(found: Comparison) -> None:
    for drafter in ("mtp", DEEP, SMALL):
        timed = found.drafters[drafter].timed
        assert timed["draft_n_accepted"].fillna(0).sum() > 0, drafter
        share = found.kept(drafter, "short", 1)
        assert share is not None
        assert 0 < np.nanmean(share) < 1


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
    assert "no speed was measured" in drafters_checks.listed(found)
    assert drafters_tables.off_the_shelf_sentences(found) == []


def test_a_run_without_rivals_is_read_as_before(make_recorded: Make) -> None:
    recorded = make_recorded({0: 100.0, 2: 80.0})
    found = drafters.compare(sweep_of(recorded))
    assert list(found.drafters) == ["mtp"]
    assert drafters.missing(found) == {}
    assert math.isclose(found.ranked.cell("short", 1).interval("tok_s", ON_THESE).estimate, 80.0)  # type: ignore[union-attr]


def test_a_stored_divergence_without_an_arm_is_of_the_first() -> None:
    record = Divergence.from_json(
        {"workload": "short", "prompt_id": "01", "depth": 2, "position": 3, "token_depth_0": 1,
         "token": 2, "margin": 0.01}
    )  # fmt: skip
    assert record.arm == "natural"
