"""The pages that a reader opens first: the answer, all machines, the status, the glossary."""

import ast
import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml

from analysis import (
    explain,
    folders,
    front,
    front_figures,
    gallery,
    gallery_tables,
    manifest,
    markdown_table,
    page_links,
    report,
    series,
    status,
    store,
    tables,
)
from analysis.errors import StoreError
from analysis.report import Sweep
from analysis.stats import Interval
from analysis.store import Recorded

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
PROSE = [*sorted(BOOK.glob("*.md")), *sorted((ROOT / "notebooks").glob("*.ipynb"))]
Make = Callable[..., Recorded]


def written(recorded: Recorded, folder: Path, machine: str) -> Path:
    """Write a made-up recording as the samples of a machine of its own."""
    run = dataclasses.replace(recorded.run, machine=recorded.run.machine | {"name": machine})
    path = folder / machine / "samples" / f"{run.run}.jsonl"
    path.parent.mkdir(parents=True)
    lines = [{"kind": "run"} | run.to_json()]
    lines += [
        {"kind": "sample"} | dataclasses.replace(s, run=run.run).to_json() for s in recorded.samples
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def cell(frame: pd.DataFrame, row: object, column: str) -> str:
    """Return one text of a table."""
    return str(dict(zip(frame.index, frame[column], strict=True))[row])


def ratio(text: str, after: str) -> float:
    """Return the number that stands after some words."""
    return float(text.partition(after)[2].split()[0])


@pytest.fixture
def two(make_recorded: Make, tmp_path: Path) -> Path:
    """A folder of two machines: one that should draft, one whose data can not tell."""
    clear = make_recorded({0: 50.0, 1: 80.0, 2: 100.0, 3: 70.0}, 0.02, workloads=("short", "code"))
    written(clear, tmp_path, "clear-box")
    written(make_recorded({0: 99.0, 1: 100.0, 2: 60.0}, 0.2, seed=3), tmp_path, "noisy-box")
    return tmp_path


def test_the_answer_names_depth_flags_and_how_sure(two: Path) -> None:
    clear, noisy = gallery.sweeps(two)
    said = front.answers([clear, noisy])
    assert "**Use depth 2** (`--spec-type draft-mtp --spec-draft-n-max 2`)." in said
    assert "How sure: 95% that no other depth up to 3 is faster." in said
    assert "Undecided between depths 0 or 1" in said
    assert said.count(":::{admonition}") == 2
    assert ratio(said, "Depth 2 decodes at") == pytest.approx(2, rel=0.03)


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


def test_every_machine_is_in_the_gallery(two: Path, make_recorded: Make) -> None:
    bare = written(make_recorded({0: 50.0, 1: 60.0}), two, "bare-box")
    recorded = store.read(bare)
    other = dataclasses.replace(recorded.run, notebook="drafters", run="drafters-" + "k" * 12)
    bare.write_text(bare.read_text().replace(recorded.run.run, other.run))
    bare = bare.rename(bare.with_name(f"{other.run}.jsonl"))
    bare.write_text(bare.read_text().replace('"notebook": "depth_sweep"', '"notebook": "drafters"'))
    listed, cards = gallery_tables.overview(two), gallery_tables.cards(two)
    assert "| depth 2 |" in listed
    assert "undecided: 0 or 1" in listed
    assert "no depth sweep" in listed
    for name in ("clear-box", "noisy-box", "bare-box"):
        assert f"[{name}](#machine-{name})" in listed
        assert f"(machine-{name})=\n## {name}" in cards
    assert "version: 1 (abcdef0)" in cards
    assert cards.count("| work | depth |") == 2
    assert "vary by more than 5% between launches" in cards
    assert "| pages | none |" in cards


def test_what_a_machine_says_of_itself_is_shown_and_never_read(
    make_recorded: Make, tmp_path: Path
) -> None:
    recorded = make_recorded({0: 50.0, 1: 60.0})
    bad = recorded.run.machine | {"cpu": "<script>x</script> | `a`\n## b", "system": "[a](b)"}
    odd = dataclasses.replace(recorded, run=dataclasses.replace(recorded.run, machine=bad))
    written(odd, tmp_path, "odd-box")
    for text in (gallery_tables.overview(tmp_path), gallery_tables.cards(tmp_path)):
        assert "<script>" not in text
        assert "\n## b" not in text
        assert "[a](b)" not in text


def test_links_lead_to_pages_that_are_there() -> None:
    name = gallery.names(BOOK / "machines")[0]
    assert (BOOK / page_links.link(name, "depth_sweep")).is_file()
    assert page_links.link("no-such-box", "depth_sweep") == ""
    assert page_links.links("no-such-box") == "none"
    assert set(page_links.TITLES) == set(series.NOTEBOOKS)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of a published machine's sweep, with a manifest of its own."""
    source = BOOK / "machines" / gallery.names(BOOK / "machines")[0]
    folder = tmp_path / source.name
    (folder / "samples").mkdir(parents=True)
    shutil.copy(source / "depth_sweep.ipynb", folder)
    shutil.copy(gallery.runs(source)[0].path, folder / "samples")
    manifest.write(folder)
    return folder


def test_the_status_tells_when_how_and_with_what(copied: Path) -> None:
    (page,) = status.pages(copied.parent)
    made = json.loads((copied / "depth_sweep.ipynb").read_text())["metadata"]["specdepth"]
    assert (page.started, page.duration_s) == (made["started"], made["duration_s"])
    assert page.whole
    assert page.parameters["machine"] == copied.name
    (row,) = status.measured(copied.parent).to_dict("records")
    assert row["complete"] == "yes"
    assert row["requests"] == len(gallery.runs(copied)[0].done())
    shown = status.versions(copied.parent)[copied.name]
    assert shown["pandas"] == gallery.runs(copied)[0].run.packages["pandas"]
    files = status.checksums(copied.parent)
    assert status.verdict(files) == "All 2 files are as their manifests have them."
    told = status.executed([page], lambda *_: "")
    assert "| yes |" in told
    assert str(copied.parent) not in told + status.shown(files)


def test_a_file_that_changed_is_shown_as_changed(copied: Path) -> None:
    (samples,) = copied.glob("samples/*.jsonl")
    lines = samples.read_text().splitlines()
    samples.write_text("\n".join(lines[:-1]) + "\n")
    (copied / "more.txt").write_text("x")
    files = status.checksums(copied.parent)
    states = files.reset_index().set_index("file")["state"]
    assert "changed since" in states[f"samples/{samples.name}"]
    assert "does not know it" in states["more.txt"]
    assert states["depth_sweep.ipynb"] == "as in the manifest"
    assert status.verdict(files).startswith("**2 of 3 files are not as")
    (copied / "depth_sweep.ipynb").unlink()
    assert "it is gone" in status.verdict(status.checksums(copied.parent))
    (copied / manifest.NAME).unlink()
    assert "as in the manifest" not in set(status.checksums(copied.parent)["state"])


def test_a_page_that_broke_off_is_not_complete(copied: Path) -> None:
    path = copied / "depth_sweep.ipynb"
    content = json.loads(path.read_text())
    code = [c for c in content["cells"] if c["cell_type"] == "code"]
    code[-1]["execution_count"] = None
    path.write_text(json.dumps(content))
    assert not status.read(path, "x").whole
    path.write_text("{}")
    assert not status.read(path, "x").whole
    assert "did not run through" in status.executed([status.read(path, "x")], lambda *_: "")


def test_samples_that_lack_requests_are_told(copied: Path) -> None:
    (samples,) = copied.glob("samples/*.jsonl")
    lines = samples.read_text().splitlines()
    samples.write_text("\n".join(lines[:-40]) + "\n")
    (row,) = status.measured(copied.parent).to_dict("records")
    assert "requests are there" in row["complete"]


def test_examples_follow_from_the_formulas() -> None:
    tokens = explain.tokens((0.5,), 2)["chance 0.5"]
    assert list(tokens) == ["1.00", "1.50", "1.75", "2.00"]
    best = explain.best_depths((0.5,), (0.4, 2.0))["chance 0.5"]
    assert list(best) == ["1: 1.07×", "0: 1.00×"]
    assert cell(explain.states(), "qwen3.6-27b", "MiB a slot and step of depth") == "149.6"
    assert "8 or more at 0.9" in explain.markdown("k")
    assert len(explain.curves().axes) == 2


def test_numbers_have_as_many_digits_as_their_interval_allows() -> None:
    assert tables.number(1187.4, 196.5) == "1190"
    assert tables.number(1187.4, 12.1) == "1187"
    assert tables.number(0.7951, 0.0915) == "0.795"
    assert tables.interval(Interval(892.3, 713.2, 1116.4)) == "890 [710, 1120]"
    assert [tables.percent(x) for x in (None, 0.0, 0.0004, 0.0149)] == ["–", "0%", "0%", "1.5%"]


def test_a_markdown_table_cuts_nothing_and_lines_numbers_up() -> None:
    long = "x" * 80
    frame = pd.DataFrame({"a": ["1.5 [1, 2]"] * 90, "b": [long] * 90, "c": ["0 or 1"] * 90})
    text = markdown_table.markdown(frame.rename_axis("depth"))
    assert text.count("\n") == 91
    assert long in text
    assert text.splitlines()[1] == "|---|---:|---|---|"
    assert "<b>" not in markdown_table.markdown(pd.DataFrame({"a": ["<b>"]}))


def prose(path: Path) -> str:
    """Return the Markdown of a page's source."""
    if path.suffix == ".md":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def glossary() -> set[str]:
    blocks = re.findall(r"```\{glossary\}\n(.*?)```", (BOOK / "glossary.md").read_text(), re.S)
    return {line for block in blocks for line in block.splitlines() if re.match(r"\S", line)}


def test_terms_are_in_the_glossary_and_the_glossarys_terms_are_used() -> None:
    used: dict[str, str] = {}
    for path in PROSE:
        for shown, target in re.findall(r"\{term\}`([^`<]+?)(?: <([^>]+)>)?`", prose(path)):
            used[target or shown] = path.name
    assert {t: where for t, where in used.items() if t not in glossary()} == {}
    assert glossary() - set(used) == set()


def test_a_page_links_a_term_once() -> None:
    for path in PROSE:
        found = re.findall(r"\{term\}`(?:[^`<]+ <)?([^`<>]+)>?`", prose(path))
        assert len(found) == len(set(found)), path.name


def test_every_citation_resolves_and_every_entry_is_cited() -> None:
    entries = set(re.findall(r"^@\w+\{(\w+),", (BOOK / "references.bib").read_text(), re.M))
    cited = {
        key.strip()
        for path in PROSE
        for keys in re.findall(r"\{cite(?::\w)?\}`([^`]+)`", prose(path))
        for key in keys.split(",")
    }
    assert cited == entries
    assert sum("{bibliography}" in prose(path) for path in PROSE) == 1


def test_sources_in_docstrings_are_in_the_bibliography() -> None:
    entries = (BOOK / "references.bib").read_text().split("\n@")
    dated = re.compile(r"([A-Z][a-z]+)[^.()]{0,80}?[ (]((?:19|20)\d\d)\b(?!-)")
    missing = set()
    for path in (ROOT / "analysis").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)):
                continue
            text = " ".join((ast.get_docstring(node) or "").split())
            for sentence in re.findall(r"[^.;]*[ (](?:19|20)\d\d\b(?!-)", text):
                year = sentence[-4:]
                names = set(re.findall(r"[A-Z][a-z]+", sentence))
                known = any(
                    f"{{{year}}}" in e and names & set(re.findall(r"([A-Z][a-z]+),", e))
                    for e in entries
                )
                if not known and dated.search(sentence):
                    missing.add((path.name, sentence.strip()))
    assert missing == set()


def test_every_page_of_prose_is_in_the_table_of_contents() -> None:
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text())["parts"]
    listed = {Path(c["file"]).name for p in parts for c in p["chapters"] if "file" in c}
    assert {p.stem for p in BOOK.glob("*.md")} <= listed
    assert {*series.DATA_PAGES.values()} <= listed | {"index"}
    assert list(series.DATA_PAGES)[-1] == "status"  # it knows the pages made before it


def test_the_front_page_holds_a_command_to_copy_and_no_typed_result() -> None:
    text = prose(ROOT / "notebooks" / "front_page.ipynb")
    (block,) = re.findall(r"```bash\n(.*?)```", text, re.S)
    assert "specdepth run" in block
    assert not re.search(r"^\$ ", block, re.M)
    assert not re.findall(r"\d+\.\d+", text)
    assert folders.project_root() == ROOT


def test_a_disturbed_run_is_told_with_its_answer(make_recorded: Make) -> None:
    recorded = make_recorded({0: 60.0, 1: 100.0})
    loud = tuple(dataclasses.replace(s, others_cpu=0.5) for s in recorded.samples)
    quiet, disturbed = (
        front.answer(report.sweep_of(dataclasses.replace(recorded, samples=x)))
        for x in (recorded.samples, loud)
    )
    assert "Other work took more than" in disturbed
    assert "Other work" not in quiet


def test_a_quick_run_is_named_to_who_asks_for_the_full_one(tmp_path: Path) -> None:
    (tmp_path / "box-quick" / "samples").mkdir(parents=True)
    (tmp_path / "box-quick" / "samples" / "depth_sweep-0123456789ab.jsonl").touch()
    with pytest.raises(StoreError, match="its quick run is box-quick"):
        gallery.machine("box", tmp_path)
