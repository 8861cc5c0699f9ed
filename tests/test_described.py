"""What figures say of themselves is what they draw, and it becomes the alt text of their page."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest

from analysis import attribution, findings, pages
from analysis.attribution import Split
from analysis.described import described
from analysis.report import sweep_of
from analysis.stats import Component, Interval, Mean
from analysis.store import Recorded

MACHINES = Path(__file__).resolve().parent.parent / "book" / "machines"


def test_a_figure_says_the_ends_of_its_lines_and_bars_and_not_of_its_marks() -> None:
    figure, (left, right) = plt.subplots(1, 2)
    left.plot([0.1, 1.1, 5.1], [10, 7.25, 4.126], "o-", label="one")
    left.plot([1, 2], [1190.4, 580], "o-", color="green")
    left.plot([1, 1], [1100, 1300], color="green")  # an interval
    left.plot([], [], color="green", label="two")  # named in the legend alone
    left.plot([0, 5], [1, 1], "--")  # a line to compare with
    left.set_title("sho\nrt")
    left.set_xlabel("draft depth n")
    left.set_ylabel("tok/s")
    right.bar([0, 2], [3, 4], label="verify")
    right.set_ylabel("ms")
    plt.close(figure)
    assert repr(described(figure, "A finding.")) == (
        "A finding.\nsho rt, tok/s: one from 10 at draft depth n = 0 to 4.13 at 5; "
        "two from 1,190 at draft depth n = 1 to 580 at 2. "
        "ms: verify from 3 at draft depth n = 0 to 4 at 2."
    )


def test_the_alt_text_of_a_page_is_the_kind_of_figure_and_what_it_shows() -> None:
    data = {"image/png": "aWNo", "text/plain": "from 10 at 0 to 4 at 5."}
    output = nbformat.v4.new_output("display_data", data=data)  # type: ignore[no-untyped-call]
    cell = nbformat.v4.new_code_cell("draw()", outputs=[output])  # type: ignore[no-untyped-call]
    cell.metadata["mystnb"] = {"image": {"alt": "A line of speed."}}
    text = pages.published(nbformat.v4.new_notebook(cells=[cell]))  # type: ignore[no-untyped-call]
    metadata = json.loads(text)["cells"][0]["metadata"]
    assert metadata["mystnb"]["image"]["alt"] == "A line of speed. from 10 at 0 to 4 at 5."


def test_a_finding_stands_bold_and_escaped_before_the_caption() -> None:
    data = {"image/png": "aWNo", "text/plain": "With *x* it falls, 2 [1, 3].\nfrom 10 to 4."}
    output = nbformat.v4.new_output("display_data", data=data)  # type: ignore[no-untyped-call]
    cell = nbformat.v4.new_code_cell("draw()", outputs=[output])  # type: ignore[no-untyped-call]
    cell.metadata["mystnb"] = {"figure": {"caption": "Speed.", "name": "x"}, "image": {"alt": "A"}}
    text = pages.published(nbformat.v4.new_notebook(cells=[cell]))  # type: ignore[no-untyped-call]
    own = json.loads(text)["cells"][0]["metadata"]["mystnb"]
    assert own["figure"]["caption"] == r"**With \*x\* it falls, 2 \[1, 3\].** Speed."
    assert own["image"]["alt"] == "A With *x* it falls, 2 [1, 3]. from 10 to 4."


@pytest.mark.parametrize("page", sorted(MACHINES.glob("*/*.ipynb")), ids=lambda p: p.stem)
def test_each_figure_of_a_published_page_states_its_finding(page: Path) -> None:
    cells = json.loads(page.read_text())["cells"]
    drawn = [
        c for c in cells if any("image/png" in o.get("data", {}) for o in c.get("outputs", []))
    ]
    assert drawn
    for cell in drawn:
        _, finding = pages.told(cell)
        assert finding
        assert cell["metadata"]["mystnb"]["figure"]["caption"].startswith(f"{finding} ")


def test_answers_are_told_together_and_an_undecided_one_apart(
    make_recorded: Callable[..., Recorded],
) -> None:
    sweep = sweep_of(make_recorded({0: 10.0, 1: 20.0}, workloads=("short", "code")))
    clear = [sweep.verdict(name) for name in sweep.workloads]
    said = "For short, code: use depth 1, no other depth is faster (for prompts like these, 95%"
    assert findings.answers(clear).startswith(said)
    noisy = sweep_of(make_recorded({0: 10.0, 1: 10.1}, launch_noise=0.3, rounds=2))
    assert "short: undecided between depths 0, 1" in findings.answers([noisy.verdict("short")])


def test_the_balance_and_the_change_of_acceptance_are_those_of_the_data(
    make_recorded: Callable[..., Recorded],
) -> None:
    sweep = sweep_of(make_recorded({0: 10.0, 1: 20.0, 2: 5.0}))
    told = findings.balance(sweep)  # 60 steps where there were 100, at half the speed
    assert told.startswith("For short work, from depth 0 to 2 a step gives 1.6")
    assert "so decoding runs at 0.5 times the speed." in told
    assert "acceptance rate falls for short" in findings.acceptance_change(sweep)  # 1 to 1 / 2
    same = sweep_of(make_recorded({0: 10.0, 1: 10.0}, launch_noise=0.1))
    assert "can not tell from no change" in findings.balance(same)


def test_the_largest_is_told_alone_only_where_intervals_lie_apart() -> None:
    found = {"a": Interval(1, 0.9, 1.1), "b": Interval(3, 2.5, 3.5), "c": Interval(2.6, 2, 3)}
    assert findings.leading(found) == ["b", "c"]
    assert findings.leading(found, least=True) == ["a"]


def test_the_largest_loss_is_named_with_what_it_can_not_be_told_from() -> None:
    def mean(factor: float, variance: float = 1e-6) -> Mean:
        return Mean(math.log(factor), (Component(variance, 9, "round"),))

    parts = {"verify": mean(0.5), "draft": mean(0.8), "rest": mean(1.25)}
    said = attribution.finding([Split(0, 3, parts, mean(0.5))])
    assert said.startswith("In the tracer, from depth 0 to 3, speed changes by the factor 0.5")
    assert "the largest loss is verify, 0.5" in said
    assert "not distinguishable" not in said
    wide = parts | {"draft": mean(0.8, 0.1)}
    assert "not distinguishable from draft" in attribution.finding([Split(0, 3, wide, mean(0.5))])
