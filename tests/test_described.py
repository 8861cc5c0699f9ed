"""What figures say of themselves is what they draw, and it becomes the alt text of their page."""

import json

import matplotlib.pyplot as plt
import nbformat

from analysis import pages
from analysis.described import described


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
