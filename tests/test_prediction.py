"""Speeds predicted from pieces: exact where the model holds, and honest where it does not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from analysis import prediction
from analysis.pieces import Pieces
from analysis.report import sweep_of
from analysis.store import Recorded
from tests.test_attribution import counts

CHANCES = (0.7, 0.6, 0.5, 0.4, 0.3)


def made_up(
    depths: tuple[int, ...] = (0, 1, 2, 3, 5),
    kink: float = 0.0,
    noise: float = 0.0,
    head: float = 1.0,
) -> Pieces:
    """Return a run whose step times are lines; from four rows on a row costs `kink` more."""
    random = np.random.default_rng(1)
    rows = []
    for depth in depths:
        verify = 10.0 + 2.0 * depth + kink * max(depth - 2, 0)
        for arm in ("natural", "rows"):
            drafted = depth if arm == "natural" else 0
            offered, accepted = counts(CHANCES[:drafted])
            tokens = 1.0 + float(np.cumprod(CHANCES[:drafted]).sum())
            for workload in ("short", "code"):
                for number in range(3):
                    for prompt in ("01", "02", "03"):
                        factor = math.exp(random.normal(0, noise))
                        rows.append(
                            {
                                "arm": arm, "workload": workload, "prompt_id": prompt,
                                "depth": depth, "round": number, "tokens": tokens, "steps": 50,
                                "draft": (0.5 + 1.5 * drafted) * factor if drafted else 0.0,
                                "verify": verify * factor * (head if drafted else 1.0),
                                "catch up": 1.0 * factor if drafted else 0.0,
                                "rest": 0.5 * factor, "offered": offered, "accepted": accepted,
                            }
                        )  # fmt: skip
    return Pieces(pd.DataFrame(rows))


def test_a_depth_left_out_is_predicted_where_the_model_holds() -> None:
    for check in prediction.leave_one_out(made_up()):
        # The chances fall along no line of log-odds, so that the deepest positions are off.
        assert check.off < (0.05 if check.depth == 5 else 1e-6), check
        assert check.interval("measured").estimate > 0


def test_a_pass_that_is_dearer_beside_a_head_is_read_from_other_depths() -> None:
    checks = prediction.leave_one_out(made_up(head=1.3))
    assert max(c.off for c in checks if c.depth != 5) < 1e-6
    assert prediction.costs(made_up(head=1.3), 2).head == pytest.approx(1.3)


def test_a_bend_is_a_bend_only_where_the_launches_show_it() -> None:
    assert prediction.costs(made_up()).trunk.line == pytest.approx((8.0, 2.0))
    assert prediction.costs(made_up(kink=8.0, noise=0.01)).trunk.line is None
    assert prediction.costs(made_up(kink=0.5, noise=0.3)).trunk.line is not None


def test_a_kink_is_found_only_where_its_rows_were_measured() -> None:
    pieces = made_up(kink=8.0)
    known = {c.depth: c.off for c in prediction.leave_one_out(pieces)}
    blind = {c.depth: c.off for c in prediction.leave_one_out(pieces, strict=True)}
    assert known[2] < 1e-6
    assert blind[2] > 0.05
    assert blind[5] == pytest.approx(known[5], abs=1e-6)  # the last slope goes on


def test_the_left_out_depth_is_not_looked_at() -> None:
    pieces = made_up()
    own = pieces.frame.copy()
    there = (own["depth"] == 3) & (own["arm"] == "natural")
    own.loc[there, ["draft", "verify"]] *= 7.0
    own["accepted"] = [
        counted * 0 if spoil else counted
        for counted, spoil in zip(own["accepted"], there, strict=True)
    ]
    spoiled = prediction.leave_one_out(Pieces(own))
    before = {c.depth: c.interval("predicted").estimate for c in prediction.leave_one_out(pieces)}
    after = {c.depth: c for c in spoiled}
    assert after[3].interval("predicted").estimate == pytest.approx(before[3])
    assert after[3].off > 1


def test_intervals_hold_the_truth_and_widen_with_noise() -> None:
    quiet = prediction.leave_one_out(made_up(noise=0.02))
    loud = prediction.leave_one_out(made_up(noise=0.2))
    for a, b in zip(quiet, loud, strict=True):
        narrow, wide = a.interval("error"), b.interval("error")
        assert narrow.high / narrow.low < wide.high / wide.low
        if a.depth < 5:
            assert narrow.low < 1 < narrow.high


def test_too_few_depths_are_refused() -> None:
    with pytest.raises(ValueError, match="two drafted depths"):
        prediction.costs(made_up((0, 2)), without=2)


def test_the_sentence_names_the_worst_depth(make_recorded: Callable[..., Recorded]) -> None:
    checks = prediction.leave_one_out(made_up(kink=8.0))
    blind = prediction.leave_one_out(made_up(kink=8.0), strict=True)
    worst = max(blind, key=lambda c: c.off)
    assert f"at most {worst.off:.0%} (depth {worst.depth}:" in prediction.sentence(checks, blind)
    server = sweep_of(make_recorded({0: 100.0, 2: 80.0}))
    table = prediction.table(checks, blind, server)
    assert list(table.index) == [0, 1, 2, 3, 5]
    assert table.loc[3, "llama-server tok/s"] == "–"
    assert str(table.loc[2, "llama-server tok/s"]).startswith("80")
