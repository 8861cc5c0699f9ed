"""Arms that hold all but one cause: their plan, their flags, and what the real engines do."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import arms, attribution, model, pieces, report, store, sweep
from analysis.engines import binary, choose
from analysis.engines.flags import arguments
from analysis.engines.tracer_process import TracerEngine
from analysis.errors import EngineError, SpecError
from analysis.pieces import PARTS, Pieces
from analysis.records import Sample
from analysis.report import Sweep
from analysis.spec import SAMPLING, SweepSpec
from analysis.sweep import measure, plan

SMALL = SweepSpec(
    workloads=("short", "code"), prompts=2, rounds=2, n_predict=64, context=2048, depths=(0, 1, 3),
    lossless_prompts=0,
)  # fmt: skip
RATES = (0.8, 0.4, 0.3)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    spec = replace(SMALL, engine="tracer", more_arms=("room", "rows"), room=3)
    return report.sweep_of(measure(spec, "why_deeper_loses", "here", tmp_path_factory.mktemp("m")))


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    spec = replace(
        SMALL, more_arms=("synthetic", "perfect"), synthetic_rates=RATES, rounds=1,
    )  # fmt: skip
    return report.sweep_of(measure(spec, "why_deeper_loses", "here", tmp_path_factory.mktemp("m")))


def of_arm(sweep: Sweep, arm: str, depth: int) -> list[Sample]:
    return [s for s in sweep.recorded.samples if (s.arm, s.depth, s.warm_up) == (arm, depth, False)]


def test_depth_0_is_not_repeated_where_nothing_is_accepted_by_chance() -> None:
    spec = replace(SMALL, more_arms=("synthetic", "perfect"), synthetic_rates=RATES)
    first = [(x.depth, x.arm) for x in plan(spec) if x.round == 0]
    assert first[:3] == [(0, "natural"), (1, "natural"), (1, "synthetic")]
    assert len(first) == 1 + 3 + 3
    alone = replace(SMALL, arm="synthetic", synthetic_rates=RATES)
    assert [d for d, _ in alone.cells] == [0, 1, 3]


def test_a_run_without_that_depth_covers_what_is_asked(accepted: Sweep) -> None:
    asked = SweepSpec(**accepted.recorded.run.spec)
    assert store.covers(accepted.recorded, asked)
    assert not store.covers(accepted.recorded, replace(asked, rounds=2))


def test_rates_are_those_of_the_arm(server_binary: binary.ServerBinary, embedded: Path) -> None:
    spec = replace(SMALL, more_arms=("synthetic", "perfect"), synthetic_rates=RATES)
    for arm, rates in (("synthetic", "0.8,0.4,0.3"), ("perfect", "1.0,1.0,1.0"), ("natural", "")):
        words = arguments(server_binary, spec.at(arm), 3, embedded, 1)
        given = words[words.index("--spec-synth-rates") + 1] if rates else ""
        assert given == rates
        assert ("--spec-synth-rates" in words) == bool(rates)


def test_a_layer_less_keeps_the_acceptance_that_was_given() -> None:
    spec = replace(
        SMALL, arm="synthetic", synthetic_rates=RATES, more_arms=("evicted",), gpu_layers=3
    )
    assert spec.at("evicted").rates(2) == RATES[:2]
    natural = replace(SMALL, more_arms=("evicted",), gpu_layers=3)
    assert natural.at("evicted").rates(2) == ()


@pytest.mark.parametrize(
    "bad",
    [
        {"more_arms": ["rows"]},
        {"more_arms": ["perfect"], "engine": "tracer"},
        {"more_arms": ["perfect"], "synthetic_rates": [0.5, 0.5, 0.5]},
        {"more_arms": ["evicted"], "synthetic_rates": [0.5, 0.5, 0.5], "gpu_layers": 3},
    ],
)
def test_arms_that_an_engine_can_not_hold_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        replace(SMALL, **bad)  # type: ignore[arg-type]


def test_every_guess_can_be_accepted(accepted: Sweep) -> None:
    for depth in (1, 3):
        for own in of_arm(accepted, "perfect", depth):
            # A drafted end of text is never accepted.
            assert (own.draft_n or 0) - (own.draft_n_accepted or 0) <= (own.stop == "eos") * depth
    tokens = arms.of(accepted, "perfect").timed.groupby("depth")["tokens_per_step"].mean()
    assert tokens[3] == pytest.approx(4, abs=0.2)


def test_rows_that_nobody_drafted_change_no_text(traced: Sweep) -> None:
    """Up to rounding: passes of several rows round otherwise than those of one."""
    plain = {(s.workload, s.prompt_id, s.round): s.tokens for s in of_arm(traced, "natural", 0)}
    single = {(s.workload, s.prompt_id, s.round): s.tokens for s in of_arm(traced, "rows", 0)}
    assert single == plain
    for depth in (1, 3):
        for own in of_arm(traced, "rows", depth):
            assert own.draft_n is None
            assert own.drafter == "none"
            assert own.steps == own.predicted_n - 1
            other = plain[own.workload, own.prompt_id, own.round]
            assert own.tokens[:8] == other[:8]


ROWS = """
import sys
from analysis.engines.trace import Settings
from analysis.engines.tracer import Tracer
from analysis.spec import SAMPLING

rows, decode = [], Tracer._decode
def counted(self, tokens, position, **more):
    rows.append(len(tokens))
    return decode(self, tokens, position, **more)
Tracer._decode = counted
tracer = Tracer(Settings(sys.argv[1], context=512, room=3, draft=False, threads=1))
sampling = {k: v for k, v in SAMPLING.items() if k != "repeat_penalty"}
tracer.complete([5, 6, 7], 12, 0, 0.0, padding=3, temperature=0.0, seed=1, **sampling)
print(rows[-11:])
"""


def test_each_pass_has_the_rows_that_a_draft_would_have(embedded: Path) -> None:
    """Eleven steps of four rows, fewer near the end, as drafts of three are cut off there."""
    done = subprocess.run(
        [sys.executable, "-c", ROWS, str(embedded)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str([4] * 8 + [3, 2, 1])


def test_nothing_is_drafted_where_rows_are_counted(traced: Sweep) -> None:
    own = pieces.of(traced)
    assert own.at("rows", 3)["draft"].min() < 0.05 * own.at("natural", 3)["draft"].min()


def test_padding_needs_room(tmp_path: Path) -> None:
    spec = replace(SMALL, engine="tracer", more_arms=("rows",))
    log = tmp_path / "rows.log"
    build = choose.probe(spec)
    with choose.make(build, spec.at("rows"), 1, model.embedded_path(), log) as engine:
        assert isinstance(engine, TracerEngine)
        prompt = engine.tokenize("def add(a, b):")
        engine.depth = 4  # rows for four tokens, in what was made for one
        with pytest.raises(EngineError, match="deeper than the room"):
            engine.complete(prompt, n_predict=16, temperature=0.0, seed=1, **SAMPLING)


def test_measured_parts_sum_to_the_measured_speed(traced: Sweep) -> None:
    own = pieces.of(traced)
    for base, depth in ((0, 1), (0, 3), (1, 3)):
        split = attribution.of_tracer(own, base, depth)
        whole = sum(m.estimate for m in split.parts.values())
        speed = traced.mean("tok_s", "mix", depth, base).estimate
        assert whole == pytest.approx(speed, abs=1e-9)


def test_parts_are_those_of_the_steps(traced: Sweep) -> None:
    own = pieces.of(traced)
    frame = own.frame
    sums = frame[list(PARTS)].sum(axis=1) * frame["steps"]
    decoded = {s.predicted_ms for s in traced.recorded.samples if not s.warm_up}
    assert all(any(x == pytest.approx(d, rel=1e-9) for d in decoded) for x in sums)
    assert (frame["rest"] > 0).all()
    left = own.without(("round", 0))
    assert set(left.frame["round"]) == {1}
    assert isinstance(own.without(("prompt", ("short", "01"))), Pieces)


def test_what_is_measured_is_not_measured_again(traced: Sweep) -> None:
    spec = SweepSpec(**traced.recorded.run.spec | {"server": "", "model": "embedded"})
    again = sweep.measure(spec, "why_deeper_loses", "here", traced.recorded.path.parents[2])
    assert again.samples == traced.recorded.samples
