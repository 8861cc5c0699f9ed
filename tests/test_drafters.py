"""Drafters compared: their best depths, what training raised, repetition."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis import drafters, drafters_figures, drafters_sentences, drafters_tables, repetition
from analysis.drafters import NONE, Comparison, Option
from analysis.records import Divergence
from analysis.report import Sweep, sweep_of
from analysis.stats import LIKE_THESE, ON_THESE
from analysis.store import Recorded

Make = Callable[..., Recorded]
DEEP, SMALL = "mtp:embedded-deep-head", "draft-simple:embedded-small"


def test_a_failed_drafter_is_told_by_its_own_name_alone(make_recorded: Make) -> None:
    recorded = make_recorded({0: 100.0, 2: 80.0}, workloads=("short",))
    other = [replace(s, arm="ngram-mod") for s in recorded.samples if s.depth]
    other[0] = replace(other[0], error="it broke in <b>C:/x</b>")
    run = replace(recorded.run, spec=recorded.run.spec | {"more_drafters": ["ngram-mod"]})
    both = replace(recorded, run=run, samples=(*recorded.samples, *other))
    (line,) = [
        x for x in drafters_sentences.warnings(drafters.compare(sweep_of(both))).splitlines()
        if "failed" in x
    ]  # fmt: skip
    assert line.startswith("- ngram-mod: Depth 2: 1 requests failed")
    assert "&lt;b&gt;" in line


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
        at = found.relative(
            "tok_s", Option(DEEP, best[DEEP]), Option("mtp", best["mtp"]), "short", ON_THESE
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
    (lost,) = drafters_sentences.off_the_shelf(
        made_up(make_recorded, {"mtp": SPEEDS["mtp"], SMALL: small})
    )
    assert "confirmed here" in lost
    (won,) = drafters_sentences.off_the_shelf(
        made_up(make_recorded, {"mtp": small, SMALL: SPEEDS["mtp"]})
    )
    assert "refuted here" in won
    (even,) = drafters_sentences.off_the_shelf(
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
    gains = {k: found.gain(DEEP, "mtp", k, LIKE_THESE, among=1) for k in (1, 2, 3)}
    second = gains[2]
    assert second is not None
    assert second.estimate == pytest.approx(8 / 40, abs=0.03)
    assert [drafters_tables.call(g, 0.0) for g in gains.values()] == [
        "not distinguishable", "higher", "higher",
    ]  # fmt: skip
    assert found.gain(DEEP, "mtp", 4, LIKE_THESE, among=1) is None
    (line,) = drafters_sentences.dedicated(found, 0.97)
    assert "**confirmed here**" in line
    assert "higher at position 2, 3" in line
    assert drafters_sentences.kept_finding(found) == (
        "Against the MTP head, the share of drafts kept is higher at position 2, 3 with the MTP "
        f"head trained for depth ({LIKE_THESE}, 95% for all positions at once)."
    )
    worse = Comparison(found.base, {"mtp": found.drafters[DEEP], DEEP: found.drafters["mtp"]})
    (line,) = drafters_sentences.dedicated(worse, 0.97)
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


def test_a_drafter_that_lacks_a_depth_is_compared_at_the_others(make_recorded: Make) -> None:
    """As where the head does not fit at its deepest depth, and n-grams do."""
    found = made_up(
        make_recorded, {"mtp": {0: 100.0, 1: 80.0}, DEEP: SPEEDS[DEEP], "ngram-mod": SPEEDS["mtp"]}
    )
    assert Option("mtp", 3) not in found.options
    assert Option(DEEP, 3) in found.options
    assert found.relative("tok_s", Option("mtp", 3), NONE, "short", ON_THESE) is None
    ratio = found.best_ratio(DEEP, "mtp", "short", LIKE_THESE)
    assert ratio is not None
    assert ratio.estimate == pytest.approx(120 / 80)
    told = drafters_tables.same_depth(found, LIKE_THESE)["short"]
    assert [told.loc[drafters.name(DEEP), depth] == "–" for depth in (1, 3)] == [False, True]
    assert len(drafters_figures.speed(found).axes) == 1
    assert len(drafters_tables.work(found)) == 3


def test_without_the_targets_own_head_there_is_nothing_to_compare_with(
    make_recorded: Make,
) -> None:
    found = made_up(make_recorded, {"mtp:other.gguf": SPEEDS["mtp"], SMALL: SPEEDS[DEEP]})
    assert drafters_sentences.off_the_shelf(found) == []
    assert drafters_sentences.dedicated(found, 0.97) == []
    assert drafters_tables.gains(found, LIKE_THESE).empty
    assert "small model" in drafters_sentences.winners(found, 0.97)


def test_depths_that_share_no_round_give_no_ratio(make_recorded: Make) -> None:
    found = made_up(make_recorded, {n: SPEEDS[n] for n in ("mtp", DEEP)})
    own = found.drafters[DEEP]
    early = (own.timed["depth"] == 0) | (own.timed["round"] < 2)
    head = found.drafters["mtp"]
    late = (head.timed["depth"] == 0) | (head.timed["round"] >= 2)
    apart = Comparison(
        found.base,
        {"mtp": replace(head, timed=head.timed[late]), DEEP: replace(own, timed=own.timed[early])},
    )
    assert apart.best_ratio(DEEP, "mtp", "short", LIKE_THESE) is None


def test_gains_pair_the_same_prompts_whatever_is_missing(make_recorded: Make) -> None:
    """Each drafter lacks another prompt; what they share is the same, so that nothing is gained."""
    found = made_up(make_recorded, {n: SPEEDS[n] for n in ("mtp", DEEP)})
    sweeps = {}
    for name, lacks in (("mtp", "00"), (DEEP, "07")):
        own = with_counts(found.drafters[name], 3, (30, 20, 10))
        kept = [
            (30 - 2 * int(p), 20, 10) if isinstance(c, tuple) else None
            for p, c in zip(own.timed["prompt_id"], own.timed["accepted_per_position"], strict=True)
        ]
        timed = own.timed.assign(accepted_per_position=pd.Series(kept, index=own.timed.index))
        sweeps[name] = replace(own, timed=timed[timed["prompt_id"] != lacks])
    gain = Comparison(found.base, sweeps).gain(DEEP, "mtp", 1, LIKE_THESE, among=1)
    assert gain is not None
    assert gain.estimate == pytest.approx(0.0, abs=1e-12)


def test_bounds_for_several_positions_at_once_are_wider(make_recorded: Make) -> None:
    found = made_up(make_recorded, {n: SPEEDS[n] for n in ("mtp", DEEP)})
    pair = {
        n: with_counts(own, 3, (28, 12, 4), noise=2 + i)
        for i, (n, own) in enumerate(found.drafters.items())
    }
    found = Comparison(found.base, pair)
    one, five = (found.gain(DEEP, "mtp", 1, LIKE_THESE, among=n) for n in (1, 5))
    assert one is not None
    assert five is not None
    assert five.low < one.low < one.high < five.high


def test_a_file_name_is_text_and_no_markup() -> None:
    assert drafters_sentences.named("draft-simple:<b>x_y</b>.gguf").startswith("&lt;b&gt;x_y")
