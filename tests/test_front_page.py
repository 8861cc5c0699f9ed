"""The page that a reader opens first: the answer, how sure it is, and why."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from analysis import front, front_figures, gallery, gallery_tables, report, status
from analysis.report import Sweep
from analysis.store import Recorded

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
Make = Callable[..., Recorded]


def cell(frame: pd.DataFrame, row: object, column: str) -> str:
    """Return one text of a table."""
    return str(dict(zip(frame.index, frame[column], strict=True))[row])


def ratio(text: str, after: str) -> float:
    """Return the number that stands after some words."""
    return float(text.partition(after)[2].split()[0])


def test_the_answer_names_depth_flags_and_how_sure(two: Path) -> None:
    clear, noisy = gallery.sweeps(two)
    said = front.answers([clear, noisy])
    assert "**Use depth 2** (`--spec-type draft-mtp --spec-draft-n-max 2`)." in said
    assert "How sure: 95% that no other depth up to 3 is faster." in said
    assert "Undecided between depths 0 or 1" in said
    assert said.count(":::{admonition}") == 2
    assert said.count("It has no page here yet: `specdepth run` goes on") == 2
    assert ratio(said, "Depth 2 decodes at") == pytest.approx(2, rel=0.03)


def test_many_depths_that_may_be_the_answer_are_told_by_their_ends() -> None:
    assert front._either((0, 1, 2, 3)) == "0 to 3"
    assert front._either((0, 1)) == "0 or 1"
    assert front._either((0, 1, 3)) == "0 or 1 or 3"


def test_no_drafting_is_an_answer_with_what_drafting_would_lose(make_recorded: Make) -> None:
    sweep = report.sweep_of(make_recorded({0: 100.0, 1: 80.0, 2: 50.0}, 0.02))
    said = front.answer(sweep)
    assert "**Use depth 0: do not draft**" in said
    assert ratio(said, "Depth 1 decodes at") == pytest.approx(0.8, rel=0.03)
    best = cell(front.table([sweep]), "short", "best draft")
    assert ratio(best, "depth 1:") == pytest.approx(0.8, rel=0.03)


def test_an_answer_within_the_tolerance_tells_its_regret(make_recorded: Make) -> None:
    sweep = report.sweep_of(make_recorded({0: 50.0, 1: 98.5, 2: 100.0}, 1e-4))
    said = front.answer(sweep)
    assert "Use depth 1" in said
    assert "gives up at most 1.5% against the best depth up to 2" in said


def test_the_table_has_a_row_for_all_work_of_all_machines(two: Path) -> None:
    sweeps = gallery.sweeps(two)
    found = front.table(sweeps)
    assert list(found.index) == [
        ("clear-box", "short"), ("clear-box", "code"), ("clear-box", "all, mixed"),
        ("noisy-box", "short"),
    ]  # fmt: skip
    assert list(found["use depth"])[:3] == ["2"] * 3
    noisy = ("noisy-box", "short")
    assert cell(found, noisy, "how sure").startswith("undecided")
    assert cell(found, noisy, "regret at most") == "–"
    beside = front.against_note(sweeps)
    assert list(beside["the note, tok/s"])[2:4] == ["51.2", "31.0"]
    halved = cell(beside, 0, "clear-box, against depth 2")
    assert float(halved.split()[0]) == pytest.approx(0.5, rel=0.03)
    assert cell(beside, 5, "noisy-box, tok/s") == "–"


def test_why_is_told_from_the_sweep_alone_where_there_is_no_more(two: Path) -> None:
    clear, noisy = gallery.sweeps(two)
    assert front.evidence(clear) == front.Evidence(None, None)
    said = front.why(clear)
    assert said.startswith("**clear-box.** From depth 2 to 3 a step gives")
    assert ratio(said, "decoding runs at") == pytest.approx(0.7, rel=0.03)
    assert "largest first" not in said
    assert "no graphics card" in said
    assert "can not tell from no change" not in said
    assert "**noisy-box.**" in front.why(noisy)


def test_where_the_deepest_is_best_the_limit_is_not_known(make_recorded: Make) -> None:
    said = front.why(report.sweep_of(make_recorded({0: 50.0, 2: 100.0}, 0.002)))
    assert "`--depths 0-5` would look further" in said


def committed() -> list[Sweep]:
    return [
        s
        for s in gallery.sweeps(BOOK / "machines")
        if gallery.runs(s.recorded.path.parent.parent, "why_deeper_loses")
    ]


def test_a_machine_with_all_runs_tells_what_costs_speed() -> None:
    sweep = committed()[0]
    found = front.evidence(sweep)
    said = front.why(sweep, found)
    shares = [int(x) for x in re.findall(r"(\d+)%", said.partition("largest first")[2])]
    assert sum(shares) == pytest.approx(100, abs=3)
    assert shares == sorted(shares, reverse=True)
    assert "With every guess accepted" in said
    other = dataclasses.replace(
        sweep.recorded,
        run=dataclasses.replace(
            sweep.recorded.run, model=sweep.recorded.run.model | {"sha256": ""}
        ),
    )
    assert front.evidence(dataclasses.replace(sweep, recorded=other)) == front.Evidence(None, None)


def test_no_machine_is_a_book_too(tmp_path: Path) -> None:
    none: list[Sweep] = []
    assert front.answers(none) == front.NOBODY
    assert front.shown(front.table(none)) == front.NOBODY
    assert "51.2" in front.shown(front.against_note(none))
    assert len(front_figures.panels(none)) == 1
    assert front_figures.gain_and_cost(none).axes
    assert gallery_tables.overview(tmp_path) == front.NOBODY
    assert gallery_tables.cards(tmp_path) == gallery_tables.figure(none, "k") == ""
    assert status.pages(tmp_path) == []
    assert status.verdict(status.checksums(tmp_path)) == "No machine's folder is here."
    for frame in (status.measured(tmp_path), status.versions(tmp_path)):
        assert status.shown(frame) == "No machine's folder is here."


def test_the_figure_says_what_it_shows(two: Path) -> None:
    sweeps = gallery.sweeps(two)
    clear, noisy, of_note = front_figures.panels(sweeps)
    assert (clear.answer, noisy.answer, of_note.answer) == (2, None, 2)
    assert clear.gain[3].estimate / clear.cost[3].estimate == pytest.approx(70 / 50, rel=0.01)
    assert of_note.cost[5].low < 3.58 < of_note.cost[5].high
    said = front_figures.markdown(sweeps, "key")
    assert "clear-box, depth 0 to 3" in said
    assert "the note, depth 2 to 5: 1.2 times the tokens for 3.5 to 3.6 times the time" in said
    assert (
        said.count(front_figures.finding([clear, noisy, of_note])) == 2
    )  # in the caption, and for who can not see
    titles = [a.get_title() for a in front_figures.gain_and_cost(sweeps).axes if a.get_visible()]
    assert titles == ["clear-box: use depth 2", "noisy-box: undecided", "the note: use depth 2"]


def test_a_disturbed_run_is_told_with_its_answer(make_recorded: Make) -> None:
    recorded = make_recorded({0: 60.0, 1: 100.0})
    loud = tuple(dataclasses.replace(s, others_cpu=0.5) for s in recorded.samples)
    quiet, disturbed = (
        front.answer(report.sweep_of(dataclasses.replace(recorded, samples=x)))
        for x in (recorded.samples, loud)
    )
    assert "Other work took more than" in disturbed
    assert "Other work" not in quiet
