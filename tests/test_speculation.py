import dataclasses
import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import lossless, speculation
from analysis.records import Sample
from analysis.store import Recorded
from tests.conftest import run_record


def frame(*samples: Sample) -> pd.DataFrame:
    return Recorded(path=None, run=run_record(), samples=samples).frame()  # type: ignore[arg-type]


def test_the_definitions_on_one_request(sample: Sample) -> None:
    row = speculation.timed(frame(sample), 0.5).iloc[0]
    assert row.tokens_per_step == pytest.approx(100 / 60)
    assert row.step_ms == pytest.approx(100 / 60)
    assert row.tok_s == pytest.approx(1000.0)  # 100 tokens in 100 ms: the first came before


def test_only_timed_requests_make_a_speed(sample: Sample) -> None:
    others = [
        dataclasses.replace(sample, warm_up=True),
        dataclasses.replace(sample, error="boom"),
        dataclasses.replace(sample, temperature=0.0),
        dataclasses.replace(sample, arm="synthetic"),
    ]
    assert len(speculation.timed(frame(sample, *others), 0.5)) == 1


def test_a_short_text_is_kept_but_gives_no_speed(sample: Sample) -> None:
    short = dataclasses.replace(sample, predicted_n=20, steps=10, stop="eos")
    row = speculation.timed(frame(short), 0.5).iloc[0]
    assert math.isnan(row.tok_s)
    assert row.predicted_n == 20


def test_a_text_that_ends_inside_a_draft_is_flagged(sample: Sample) -> None:
    cut = dataclasses.replace(sample, stop="eos", predicted_n=99, draft_n_accepted=60, drafts=40,
                              steps=38)  # fmt: skip
    assert list(speculation.ends_inside_draft(frame(sample, cut))) == [False, True]


def test_acceptance_by_position_is_given_that_the_position_was_offered(sample: Sample) -> None:
    """40 drafts of 2, one of them shortened: 79 drafted, position 2 offered 39 times."""
    one = dataclasses.replace(sample, drafts=40, draft_n=79, accepted_per_position=(30, 13))
    table = speculation.by_position(frame(one))
    assert list(table["offered"]) == [40, 39]
    assert list(table["a"]) == pytest.approx([30 / 40, 13 / 39])
    assert list(table["c"]) == pytest.approx([30 / 40, (13 / 39) / (30 / 40)])


def test_positions_are_missing_where_the_server_counts_none(sample: Sample) -> None:
    assert speculation.by_position(
        frame(dataclasses.replace(sample, accepted_per_position=None))
    ).empty


def test_the_drafts_at_the_end_are_each_shorter_than_the_one_before() -> None:
    assert speculation.offered_per_position(5, 40, 190) == (40, 39, 38, 37, 36)
    assert speculation.offered_per_position(2, 40, 79) == (40, 39)


@given(st.integers(1, 8), st.integers(0, 500), st.data())
def test_offers_add_up_to_what_was_drafted(depth: int, drafts: int, data: st.DataObject) -> None:
    draft_n = data.draw(st.integers(drafts, depth * drafts))
    offered = speculation.offered_per_position(depth, drafts, draft_n)
    assert sum(offered) == draft_n
    assert list(offered) == sorted(offered, reverse=True)
    assert offered[0] == drafts


@pytest.mark.parametrize(
    ("a", "b", "at"),
    [((1, 2), (1, 2), None), ((1, 2), (1, 3), 1), ((1,), (1, 2), 1), ((), (), None)],
)
def test_first_difference(a: tuple[int, ...], b: tuple[int, ...], at: int | None) -> None:
    assert lossless.first_difference(a, b) == at


def test_a_planted_divergence_is_found_with_its_place(sample: Sample) -> None:
    zero = dataclasses.replace(sample, depth=0, temperature=0.0, tokens=(5, 6, 7))
    same = dataclasses.replace(zero, depth=1)
    parted = dataclasses.replace(zero, depth=3, tokens=(5, 9, 7))
    recorded = Recorded(path=None, run=run_record(), samples=(zero, same, parted))  # type: ignore[arg-type]
    (found,) = lossless.divergences(recorded)
    assert (found.depth, found.position, found.token_depth_0, found.token) == (3, 1, 6, 9)
