"""Pages that somebody else executed: never run, never believed, made again from the samples."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from analysis import contribution, foreign, manifest, pages, redraw, series
from analysis.cli import app
from tests.conftest import execute

Page = dict[str, Any]
TINY = {
    "rounds": 2, "prompts": 2, "workloads": ["short"], "n_predict": 40, "depths": [0, 1],
    "context": 1024, "lossless_prompts": 0, "machine": "tiny-box", "model": "embedded",
    "threads": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def measured(machines: Path) -> Path:
    """A machine's folder as `specdepth run` leaves it, with its one page."""
    folder = execute("depth_sweep", TINY, machines).parent
    asked = pages.page_parameters("depth_sweep", TINY)
    series.picture(folder, asked, folder / redraw.PICTURE)
    manifest.write(folder)
    return folder


@pytest.fixture
def folder(measured: Path, tmp_path: Path) -> Path:
    """A copy that may be spoiled."""
    return Path(shutil.copytree(measured, tmp_path / "sent" / measured.name))


@pytest.fixture
def page(measured: Path) -> Page:
    found: Page = json.loads((measured / "depth_sweep.ipynb").read_text())
    return found


def edit(folder: Path, change: Callable[[Page], Any]) -> Path:
    file = folder / "depth_sweep.ipynb"
    made = json.loads(file.read_text())
    change(made)
    file.write_text(json.dumps(made))
    manifest.write(folder)  # a forger would do so too
    return file


def code_of(page: Page) -> list[Page]:
    return [c for c in page["cells"] if c["cell_type"] == "code"]


def with_output(page: Page, kind: str) -> tuple[Page, dict[str, Any]]:
    """Return a cell that shows something of a kind, and what it shows."""
    return next((c, o["data"]) for c in code_of(page) for o in c["outputs"] if kind in o["data"])


def injected(page: Page) -> Page:
    return next(c for c in code_of(page) if foreign.INJECTED in c["metadata"]["tags"])


def test_a_sound_folder_has_no_problem_and_is_not_changed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a module of theirs lies beside, and the command is typed in that folder."""
    marker = tmp_path / "ran"
    for name in ("analysis.py", "sitecustomize.py", "numpy.py"):
        (folder / name).write_text(f"open({str(marker)!r}, 'w').close()\n")
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    monkeypatch.chdir(folder)
    assert [str(p) for p in redraw.compare(folder, contribution.Problem)] == []
    assert before == {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert not marker.exists()


def test_a_forged_number_and_picture_are_found_and_mended(folder: Path) -> None:
    """The whole path: `specdepth check` finds them, and `--redraw` puts ours in their place."""
    honest = json.loads((folder / "depth_sweep.ipynb").read_text())

    def forge(page: Page) -> None:
        _, data = with_output(page, "text/markdown")
        data["text/markdown"] = ["- use depth 9: 100 times the speed"]

    edit(folder, forge)
    (folder / redraw.PICTURE).write_bytes((folder / redraw.PICTURE).read_bytes() + b"\0")
    manifest.write(folder)
    assert [str(p) for p in contribution.examine(folder).problems] == []
    done = CliRunner().invoke(app, ["check", str(folder)])
    assert done.exit_code == 1
    assert "shows what its samples do not give" in done.output
    assert "it is not the picture that its samples give" in done.output
    done = CliRunner().invoke(app, ["check", str(folder), "--redraw", "--no-pages"])
    assert done.exit_code == 0, done.output
    made = json.loads((folder / "depth_sweep.ipynb").read_text())
    assert redraw.difference(made, honest) == ""


FORGERIES: dict[str, Callable[[Page], Any]] = {
    "text": lambda p: with_output(p, "text/markdown")[1].update({"text/markdown": "use depth 9"}),
    "table": lambda p: with_output(p, "text/html")[1].update({"text/html": "<b>99</b>"}),
    "plain text": lambda p: with_output(p, "text/html")[1].update({"text/plain": "99"}),
    "picture": lambda p: with_output(p, "image/png")[1].update({"image/png": "iVBORw0KGgo="}),
    "another kind": lambda p: with_output(p, "image/png")[1].update(
        {"application/javascript": "alert(1)"}),
    "one output more": lambda p: code_of(p)[-1]["outputs"].append(
        {"output_type": "stream", "name": "stdout", "text": "99"}),
    "one output less": lambda p: with_output(p, "text/html")[0].update(outputs=[]),
    "settings": lambda p: p["metadata"].update(html_theme={}),
}  # fmt: skip


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_whatever_a_page_shows_is_held_against_ours(
    page: Page, forge: Callable[[Page], Any]
) -> None:
    forged = copy.deepcopy(page)
    assert redraw.difference(forged, page) == ""
    forge(forged)
    assert redraw.difference(forged, page) != ""


def more(page: Page, cell_type: str) -> None:
    """Add a cell of a forger's own."""
    cell = {"cell_type": cell_type, "metadata": {}, "source": "open('ran', 'w')", "id": "x"}
    page["cells"].append(
        cell | ({"outputs": [], "execution_count": 99} if cell_type == "code" else {})
    )


def finding(page: Page) -> None:
    """Let a caption begin with another finding than the figure's."""
    cell, _ = with_output(page, "image/png")
    figure = cell["metadata"]["mystnb"]["figure"]
    _, bold = pages.told(cell)
    assert bold
    figure["caption"] = figure["caption"].replace(bold, "**Use depth 9.**", 1)


def parameters(text: str) -> Callable[[Page], Any]:
    return lambda p: injected(p).update(source=text)


def twice(page: Page) -> None:
    page["cells"].insert(3, copy.deepcopy(injected(page)))


STRANGE: dict[str, tuple[Callable[[Page], Any], str]] = {
    "code": (lambda p: code_of(p)[3].update(source="open('ran', 'w')"), "cell"),
    "prose": (lambda p: p["cells"][3].update(source="use depth 9"), "cell"),
    "a cell more": (lambda p: more(p, "code"), "other cells"),
    "a raw cell": (lambda p: more(p, "raw"), "other cells"),
    "a cell less": (lambda p: p["cells"].pop(), "other cells"),
    "of another kind": (lambda p: p["cells"][0].update(cell_type="raw"), "cell 1 is another"),
    "an attachment": (lambda p: p["cells"][0].update(attachments={"x": {}}), "cell 1 is another"),
    "a caption": (
        lambda p: code_of(p)[4]["metadata"].update(mystnb={"figure": {"caption": "99"}}), "cell"),
    "a finding": (finding, "is another"),
    "settings of the page": (lambda p: p["metadata"].update(myst={}), "further settings: myst"),
    "parameters that call": (
        parameters('machine = "tiny-box"\nmodel = open("ran", "w")'), "no plain values"),
    "parameters that import": (
        parameters('machine = "tiny-box"\nimport os'), "no plain values. Found: import os"),
    "a hidden call": (
        parameters('machine = "tiny-box"\nmodel = ["x", __import__("os").mkdir("ran")]'),
        "no plain values"),
    "no Python": (parameters("machine ="), "no plain values"),
    "an unknown parameter": (parameters('machine = "tiny-box"\nrm = "x"'), "no parameter rm"),
    "another machine": (parameters('machine = "x"'), "a machine called x"),
    "parameters twice": (twice, "no cell of parameters. Found: 2"),
    "no parameters": (lambda p: p["cells"].remove(injected(p)), "no cell of parameters"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "told"), STRANGE.values(), ids=STRANGE)
def test_what_is_not_ours_is_refused_and_not_run(
    folder: Path, change: Callable[[Page], Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = edit(folder, change)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(pages, "run_notebook", None)  # running anything at all would fail
    done = CliRunner().invoke(app, ["check", str(folder)])
    assert done.exit_code == 1, done.output
    assert told in " ".join(done.output.split())
    assert not list(folder.parent.rglob("ran"))
    with pytest.raises(pages.SeriesError, match=r"tiny-box/depth_sweep\.ipynb is not published"):
        series.check_pages(file.parent.parent)


def test_samples_that_do_not_make_a_page_are_told(folder: Path) -> None:
    """Its parameters are others than those that were measured."""
    source = 'machine = "tiny-box"\nmodel = "embedded"\nrounds = 2'
    edit(folder, parameters(source))
    (problem,) = redraw.compare(folder, contribution.Problem)
    assert "its samples do not make it" in problem.what
    assert "no stored samples" in problem.what
