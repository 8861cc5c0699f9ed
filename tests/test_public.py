"""The page of other people's sweeps: its data, what follows from them, and the page itself."""

import json
import re
from pathlib import Path

import nbformat
import pytest

from analysis import markup, note, pages, public, public_growth, public_sources, quotes, series
from analysis.bounds import exactly
from tests.conftest import outputs, replay

ROOT = Path(__file__).resolve().parent.parent
C600 = "RTX 5090 (row C, power cap 600 W)"
M3 = "M3 Ultra"


def growth(hardware: str, depth: int) -> public_growth.Growth:
    (found,) = [g for g in public_growth.growths() if (g.hardware, g.depth) == (hardware, depth)]
    return found


def test_every_row_names_its_line_and_its_sweep() -> None:
    rows = quotes.records(quotes.data("public_depth_sweeps.csv"))
    sweeps = public_sources.sweeps()
    assert len({(r["hardware"], r["workload"], r["n_max"]) for r in rows}) == len(rows)
    assert set(sweeps.index) == {r["hardware"] for r in rows}
    for row in rows:
        own = sweeps.loc[row["hardware"]]
        assert row["line"] > own["heading_line"]
        assert row["source"].startswith(
            f"{own['repository']}@{own['commit'][:7]} {own['document']}"
        )


def test_rows_of_one_table_line_state_one_depth() -> None:
    """But for row C, whose table has a column a depth."""
    found = public.speeds()
    own = found[~found["hardware"].str.contains("row C")]
    assert own.groupby(["source", "line"])["n_max"].nunique().max() == 1
    stated = quotes.records(quotes.data("public_acceptance.csv"))
    lines = {(r["hardware"], r["n_max"]): r["line"] for r in quotes.records(own)}
    for row in stated:
        if "row C" not in row["hardware"]:
            assert row["line"] == lines[row["hardware"], row["n_max"]]


def test_links_lead_to_lines_of_one_commit() -> None:
    told = [
        *public.facts()["sources"],
        *public_growth.table()["source"],
        *public.best_table("prose")["source"],
        public.memory_source(),
        public_sources.sources(public.speeds()),
    ]
    links = re.findall(r"\]\(([^)]*)\)", "\n".join(told))
    good = re.compile(
        r"https://github\.com/sudoingX/qwen38-mtp/blob/c7bc415[0-9a-f]{33}/"
        r"(?:sweeps/)?[\w.-]+\?plain=1#L(\d+)(?:-L(\d+))?"
    )
    assert len(links) > 40
    for address in links:
        found = good.fullmatch(address)
        assert found, address
        assert found[2] is None or int(found[1]) < int(found[2])


def test_lines_that_lie_apart_get_a_link_each() -> None:
    told = public_sources.link(C600, [282, 278, 172])
    assert re.findall(r"#(L[\dL-]+)\)", told) == ["L172", "L278-L282"]


def test_text_of_a_cell_can_not_leave_it() -> None:
    assert markup.escaped("a|b <i>[x](y)*_") == r"a\|b &lt;i&gt;\[x\](y)\*\_"


def test_pooled_acceptance_gives_the_growth_by_the_definition_alone() -> None:
    """Equal texts: tokens over the sum of the prompts' times is the harmonic mean."""
    speed_2 = 3 / (1 / 163.9 + 1 / 123.1 + 1 / 145.8)
    speed_5 = 3 / (1 / 203.0 + 1 / 106.7 + 1 / 170.0)
    by_hand = (1 + 5 * 0.591) / speed_5 / ((1 + 2 * 0.790) / speed_2)
    found = growth(C600, 5)
    assert found.pooled
    assert found.step.low < by_hand < found.step.high < found.step.low * 1.02
    printed = (1 + 5 * 0.591) / 159.7 / ((1 + 2 * 0.790) / 144.4)
    low, high = re.findall(r"by ([\d.]+) to ([\d.]+) \(RTX 5090 C, 600",
                           public_growth.as_the_note_has_it())[0]  # fmt: skip
    assert float(low) - 0.005 < printed < float(high) + 0.005


def test_tokens_times_step_time_explain_the_speed() -> None:
    for own in public_growth.growths():
        assert own.step.low <= own.tokens.low / own.speed.low
        assert own.step.high >= own.tokens.high / own.speed.high
        assert own.tokens.low + 1e-9 >= 1
        assert own.tokens.high <= (1 + own.depth) / 3 + 1e-9
        if own.borrowed is not None:
            assert own.step.low < own.borrowed < own.step.high


def test_only_cards_enter_the_range_of_cards() -> None:
    cards = public_growth.of_cards()
    assert cards[4].high < growth(M3, 4).step.low
    assert cards[5].high < note.step_growth(rounding=True)[5].low
    for own in public_growth.growths():
        if own.hardware != M3:
            middle = own.step if own.borrowed is None else exactly(own.borrowed)
            assert cards[own.depth].low <= middle.low
            assert middle.high <= cards[own.depth].high


def test_the_best_depths_are_those_of_the_data() -> None:
    found = public.best().set_index(["hardware", "workload"])
    assert found.at[("RTX A6000", "code (Python)"), "depth"] == 6
    assert found.at[("RTX A6000", "code (Python)"), "gain"] == pytest.approx(84.3 / 57.0 - 1)
    assert found.at[(M3, "prose"), "depth"] == 0
    assert found.at[("Tesla V100", "code"), "depth"] == 2
    assert found.at[("RTX 5090 (row A)", "prose"), "runner_up"] == 3
    assert found.at[("RTX 5090 (row A)", "prose"), "lead"] == pytest.approx(99.0 / 97.3 - 1)


def test_sentences_count_what_the_table_shows() -> None:
    for kind in ("prose", "code"):
        table = public.best_table(kind)
        twos, ties = (table["fastest"] == 2).sum(), table["lead over it"].str.contains("tie").sum()
        said = public.best_sentence(kind)
        assert f"in {twos} of {len(table)} curves of {kind}" in said
        assert f"In {ties} the two fastest" in said


def test_curves_meet_at_depth_two() -> None:
    found = public.curves()
    assert found.loc[found["n_max"] == 2, "relative"].tolist() == pytest.approx([1] * 2 * 11)
    ours = found[(found["hardware"] == "the note") & (found["kind"] == "prose")]
    assert ours.set_index("n_max")["relative"][5] == pytest.approx(15.0 / 47.2)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pages.run_notebook(
        "other_hardware", {}, tmp_path_factory.mktemp("book") / "other_hardware.ipynb"
    )


def test_the_page_says_what_the_data_say(page: Path) -> None:
    text = outputs(page)
    for said in (
        public.best_sentence("prose"), public.best_sentence("code"), public_growth.sentence(),
        public_growth.split_sentence(), note.sentence(), public.runs_sentence(),
        note.spare_sentence(public_growth.of_cards()),
    ):  # fmt: skip
        assert said in text


def test_every_figure_has_its_source_lines_below(page: Path) -> None:
    notebook = nbformat.read(page, as_version=4)  # type: ignore[no-untyped-call]
    drawn = [i for i, c in enumerate(notebook.cells) if "mystnb" in c.metadata]
    assert len(drawn) == 2
    for at in drawn:
        (below,) = notebook.cells[at + 1].outputs
        shown = below["data"]["text/markdown"]
        assert all(markup.escaped(n) in shown for n in public_sources.sweeps()["name"])
        assert shown.count("#L") >= len(public_sources.sweeps())


def test_no_person_is_named(page: Path) -> None:
    """No account but the repository's own, and no mention of one."""
    text = page.read_text()
    assert not re.findall(r"(?<![\w.])@\w|x\.com", text)
    assert set(re.findall(r"github\.com/([\w.-]+/[\w.-]+)", text)) == {"sudoingX/qwen38-mtp"}


def test_nbval_replays_the_page(page: Path) -> None:
    done = replay(page, page.parent)
    assert done.returncode == 0, done.stdout


def test_pages_of_data_are_made_and_not_committed() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    cleaned = (ROOT / "Makefile").read_text().partition("clean:\n")[2]
    toc = (ROOT / "_toc.yml").read_text()
    for notebook, name in series.DATA_PAGES.items():
        assert json.loads((ROOT / "notebooks" / f"{notebook}.ipynb").read_text())["cells"]
        assert f"/book/{name}.ipynb" in ignored
        assert f"book/{name}.ipynb" in cleaned
        assert f"book/{name}\n" in toc
