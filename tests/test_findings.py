"""What the figures' captions state follows from the numbers: known answers for the sentences."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from analysis import acceptance_figures, decay, findings, half_steps, why_tables
from analysis.acceptance import Positions
from analysis.report import Sweep, sweep_of
from analysis.stats import Interval
from analysis.store import Recorded

DRAFTS, PROMPTS, ROUNDS = 400, 8, 3


def counts(*chances: float) -> Positions:
    """Return counts of drafts whose guesses are kept with these chances, one after the other."""
    random = np.random.default_rng(5)
    shape = (ROUNDS, PROMPTS, len(chances))
    offered, reached, accepted = np.full(shape, float(DRAFTS)), np.zeros(shape), np.zeros(shape)
    left = offered[:, :, 0]
    for k, chance in enumerate(chances):
        reached[:, :, k] = left
        left = random.binomial(left.astype(int), chance).astype(float)
        accepted[:, :, k] = left
    return Positions(offered, reached, accepted)


def test_a_chance_that_falls_holds_or_rises_is_told_so() -> None:
    known = {
        "short": counts(0.8, 0.6, 0.4),
        "prose": counts(0.7, 0.7, 0.7),
        "code": counts(0.4, 0.6, 0.8),
        "long": counts(0.8, 0.6, 0.4),
    }
    calls = {name: decay.call(own) for name, own in known.items()}
    assert calls == {
        "short": decay.FALLS, "prose": decay.HOLDS, "code": decay.RISES, "long": decay.FALLS,
    }  # fmt: skip
    assert decay.finding(known) == (
        "Given that the guesses before it were kept, the chance of a guess falls with position for "
        "short, long; is not distinguishable from constant for prose; rises with position for code "
        "(for prompts like these, 95%)."
    )
    assert decay.call(counts(0.5)) == "too little was drafted"
    assert "is on too few drafts to tell" in decay.finding({"short": counts(0.5)})


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(1.1, 1.2, "yes"), (0.8, 0.9, "no"), (0.9, 1.1, "not distinguishable")],
)
def test_a_guess_pays_where_its_interval_says_so(low: float, high: float, said: str) -> None:
    assert decay._pays(Interval(1.0, low, high)) == said
    assert decay._pays(Interval(1.0, low, float("inf"))) == "one launch can not tell"


def steps(verify_ms: dict[int, float]) -> pd.DataFrame:
    """Return steps of two depths, equal in all but the verify pass and a little noise."""
    random = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "depth": depth, "round": number, "workload": "short", "prompt_id": f"{prompt}",
            "draft_ms": 1.0 + random.normal(0, 0.01), "verify_ms": ms + random.normal(0, 0.01),
            "catch_up_ms": 0.25, "rest_ms": 0.125,
        }
        for depth, ms in verify_ms.items() for number in range(3) for prompt in range(6)
    )  # fmt: skip


def test_the_largest_part_of_a_step_is_named_where_it_is_larger_for_sure() -> None:
    said = half_steps.finding(steps({0: 2.0, 5: 4.0}))
    assert said.startswith("A step takes 3.3")
    assert " ms at depth 0 and 5.3" in said
    assert said.endswith("the largest part there is verify.")
    alike = half_steps.finding(steps({0: 2.0, 5: 1.0}))
    assert "not distinguishable among draft, verify" in alike.replace(
        "verify, draft", "draft, verify"
    )


def test_a_change_of_acceptance_is_told_by_its_two_ends() -> None:
    low, high = Interval(0.3, 0.25, 0.35), Interval(0.6, 0.5, 0.7)
    wide = Interval(0.5, 0.3, 0.7)
    assert findings._change(high, low) == "falls"
    assert findings._change(low, high) == "rises"
    assert findings._change(low, wide) == "is not distinguishable from unchanged"
    assert findings._change(None, low) == "was not measured at both"


def test_the_growth_of_a_step_is_told_for_each_model(
    make_recorded: Callable[..., Recorded],
) -> None:
    twice = sweep_of(make_recorded({0: 100.0, 3: 50.0}, 1e-4, prompt_noise=0.0))
    said = why_tables.growth_finding({"one": twice, "another": twice})
    times = float(said.partition("one takes ")[2].split()[0])
    assert times == pytest.approx(twice_as_long(twice), rel=0.01)
    assert said.count("for a step at depth 3") == 2
    assert said.endswith("(on these prompts).")


def twice_as_long(sweep: Sweep) -> float:
    """Return the growth of the step time by hand: tokens a step over speed."""
    step = sweep.timed["tokens_per_step"] / sweep.timed["tok_s"]
    shallow, deep = (np.log(step[sweep.timed["depth"] == d].to_numpy()) for d in (0, 3))
    return float(np.exp(deep.mean() - shallow.mean()))


def test_belief_is_held_against_what_was_kept() -> None:
    """Guesses believed at 0.3 are kept more often, those at 0.9 as often as believed."""
    random = np.random.default_rng(3)
    rows = []
    for prompt in range(12):
        for _ in range(120):
            belief = random.choice([0.3, 0.9])
            kept = random.random() < {0.3: 0.7, 0.9: 0.9}[belief]
            rows.append(
                {"workload": "short", "prompt_id": str(prompt), "round": 0, "depth": 1,
                 "draft_probabilities": (belief,), "accepted": int(kept)}
            )  # fmt: skip
    said = repr(acceptance_figures.calibration(pd.DataFrame(rows)))
    assert said.startswith("Of 2 bins of the probability")
    assert "not distinguishable from it in 1, higher in 1 (" in said
