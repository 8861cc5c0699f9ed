"""The slowdown split into its causes: parts that sum to the whole, and planted causes found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import attribution, geometric, speculation
from analysis.arms import Pair, of
from analysis.pieces import PARTS, Pieces
from analysis.report import Sweep, sweep_of
from analysis.speculation import Steps
from analysis.stats import LIKE_THESE, ON_THESE
from analysis.store import Recorded

TIMES = st.floats(0.01, 1e3)
COSTS = {
    0: {"draft": 0.0, "verify": 10.0, "catch up": 0.0, "rest": 1.0},
    3: {"draft": 6.0, "verify": 18.0, "catch up": 2.0, "rest": 1.0},
}


def counts(chances: tuple[float, ...], drafts: float = 1000.0) -> tuple[np.ndarray, np.ndarray]:
    """Return offered and accepted by position for some conditional chances."""
    return np.full(len(chances), drafts), drafts * np.cumprod(chances)


def made_up(
    costs: dict[int, dict[str, float]] = COSTS,
    chances: tuple[float, ...] = (0.8, 0.8, 0.8),
    noise: float = 0.0,
    seed: int = 0,
) -> Pieces:
    """Return requests with given mean steps; noise is of the logarithm of every part's time."""
    random = np.random.default_rng(seed)
    rows = []
    for depth, parts in costs.items():
        offered, accepted = counts(chances[:depth])
        tokens = 1 + float((accepted / offered).sum()) if depth else 1.0
        for workload in ("short", "code"):
            for number in range(4):
                for prompt in ("01", "02", "03"):
                    factor = math.exp(random.normal(0, noise))
                    rows.append(
                        {
                            "arm": "natural", "workload": workload, "prompt_id": prompt,
                            "depth": depth, "round": number, "tokens": tokens, "steps": 50,
                            "offered": offered, "accepted": accepted,
                            **{name: ms * factor for name, ms in parts.items()},
                        }
                    )  # fmt: skip
    return Pieces(pd.DataFrame(rows))


@given(st.floats(1, 6), st.floats(1, 6), st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=6))
def test_parts_sum_to_the_whole(
    before: float, after: float, times: list[tuple[float, float]]
) -> None:
    base = Steps(before, {str(i): a for i, (a, _) in enumerate(times)})
    other = Steps(after, {str(i): b for i, (_, b) in enumerate(times)})
    whole = math.log((after / other.step_ms) / (before / base.step_ms))
    assert sum(speculation.split(base, other).values()) == pytest.approx(whole, abs=1e-9)


def test_a_part_that_is_zero_without_drafts_has_its_share() -> None:
    found = speculation.split(
        Steps(1.0, {"draft": 0.0, "verify": 10.0}), Steps(2.0, {"draft": 5.0, "verify": 15.0})
    )
    assert found["tokens"] == pytest.approx(math.log(2))
    assert found["draft"] == pytest.approx(found["verify"])
    assert found["draft"] + found["verify"] == pytest.approx(-math.log(2))


@given(TIMES, TIMES)
def test_the_logarithmic_mean_lies_between_geometric_and_arithmetic(a: float, b: float) -> None:
    found = float(speculation.logarithmic_mean(a, b))
    assert math.sqrt(a * b) * (1 - 1e-9) <= found <= (a + b) / 2 * (1 + 1e-9)


def test_other_parts_or_times_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="the same parts"):
        speculation.split(Steps(1, {"a": 1.0}), Steps(1, {"b": 1.0}))
    with pytest.raises(ValueError, match="above zero"):
        speculation.split(Steps(1, {"a": 0.0}), Steps(1, {"a": 1.0}))


@given(st.floats(0.05, 0.95), st.integers(0, 4), st.integers(1, 8))
def test_a_constant_chance_loses_no_acceptance(chance: float, base: int, more: int) -> None:
    given_tokens = [(n, float(geometric.tokens_per_step(chance, n))) for n in (base, base + more)]
    kept, lost = speculation.acceptance_loss(given_tokens[0], given_tokens[1], chance)
    assert float(lost) == pytest.approx(0, abs=1e-12)
    assert float(kept) > 0


def test_a_cause_planted_in_the_data_is_found_at_its_size() -> None:
    """With two parts changed, each has its log-mean share; what did not change has none."""
    split = attribution.of_tracer(made_up(), 0, 3)
    before, after = sum(COSTS[0].values()), sum(COSTS[3].values())
    mean = (after - before) / math.log(after / before)
    for part in PARTS:
        planted = -(COSTS[3][part] - COSTS[0][part]) / mean
        assert split.parts[part].estimate == pytest.approx(planted, abs=1e-9)
    assert split.parts[attribution.LOSS].estimate == pytest.approx(0, abs=1e-9)
    assert split.factor(attribution.GUESSES).estimate == pytest.approx(1 + 0.8 + 0.64 + 0.512)
    assert split.parts["rest"].estimate == pytest.approx(0)


def test_a_planted_loss_of_acceptance_is_found() -> None:
    split = attribution.of_tracer(made_up(chances=(0.8, 0.5, 0.2)), 0, 3)
    constant, real = 1 + 0.8 + 0.64 + 0.512, 1 + 0.8 + 0.4 + 0.08
    assert split.factor(attribution.LOSS).estimate == pytest.approx(real / constant)


def test_parts_of_a_noisy_run_sum_to_its_speed() -> None:
    pieces = made_up(noise=0.2)
    split = attribution.of_tracer(pieces, 0, 3)
    whole = sum(m.estimate for m in split.parts.values())
    assert whole == pytest.approx(split.whole.estimate, abs=1e-9)
    found = split.factor(attribution.SPEED, LIKE_THESE)
    assert found.low < found.estimate < found.high
    assert f"{found.estimate:.2g}"[:3] in attribution.sentence([split])


def test_a_request_without_its_pair_is_in_no_part() -> None:
    pieces = made_up(noise=0.2)
    own = pieces.frame.copy()
    # Its guesses are of another kind than the rest, so that they would show in a part.
    text = (own["depth"] == 3) & (own["round"] == 1) & (own["prompt_id"] == "02")
    own["accepted"] = [
        0.2 * counted if other else counted
        for counted, other in zip(own["accepted"], text, strict=True)
    ]
    gone = (own["depth"] == 0) & (own["round"] == 1) & (own["prompt_id"] == "02")
    split = attribution.of_tracer(Pieces(own[~gone]), 0, 3)
    assert sum(m.estimate for m in split.parts.values()) == pytest.approx(
        split.whole.estimate, abs=1e-9
    )


def evicted(base: Sweep, slower: float) -> Sweep:
    """Return the same sweep with step times that are longer, as a second arm."""
    timed = base.timed.assign(
        step_ms=base.timed["step_ms"] * slower, tok_s=base.timed["tok_s"] / slower
    )
    return replace(base, timed=timed)


def test_what_a_layer_off_the_device_adds_is_its_own_part(
    make_recorded: Callable[..., Recorded],
) -> None:
    base = sweep_of(make_recorded({0: 100.0, 2: 80.0}, launch_noise=0.02))
    split = attribution.of_eviction(Pair(base, evicted(base, 1.5)), 0, 2)
    assert sum(m.estimate for m in split.parts.values()) == pytest.approx(
        math.log(0.8 / 1.5), abs=0.1
    )
    assert split.parts[attribution.PLACEMENT].estimate < -0.2
    none = attribution.of_eviction(Pair(base, evicted(base, 1.0)), 0, 2)
    assert none.parts[attribution.PLACEMENT].estimate == pytest.approx(0, abs=1e-12)


def test_layers_that_left_between_depths_are_said(make_recorded: Callable[..., Recorded]) -> None:
    sweep = sweep_of(make_recorded({0: 100.0, 2: 80.0, 5: 40.0}))
    assert attribution.moved(sweep) == ""
    timed = sweep.timed.assign(
        layers_on_device=["36/37" if d == 5 else "37/37" for d in sweep.timed["depth"]]
    )
    said = attribution.moved(replace(sweep, timed=timed))
    assert "37/37 at depth 0; 37/37 at depth 2; 36/37 at depth 5" in said


def test_the_servers_own_split_is_exact(make_recorded: Callable[..., Recorded]) -> None:
    sweep = sweep_of(make_recorded({0: 100.0, 2: 80.0}, launch_noise=0.05, prompt_noise=0.1))
    split = attribution.of_server(sweep, 0, 2)
    own = sweep.relative("tok_s", "short", 2, 0, ON_THESE)
    assert own is not None
    assert split.factor(attribution.SPEED, ON_THESE).estimate == pytest.approx(own.estimate)
    assert of(sweep, "natural") is sweep
