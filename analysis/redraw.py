"""A machine's pages made again from its samples, by this book's own notebooks.

What somebody else executed is believed for nothing: of a page only the parameters are read, as
data, and the page that our own source makes of the samples must be equal to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from analysis import foreign, manifest, pages, series
from analysis.errors import SpecDepthError
from analysis.folders import MACHINES_VARIABLE, REPLAY_VARIABLE

_OF_RUNNING = {"specdepth", "language_info"}  # when it was made, and how long that took
PICTURE = "depth_sweep.png"


def compare(folder: Path, problem: Callable[[str, str, str], Any]) -> Iterator[Any]:
    """Make each page of a folder anew, aside, and yield a problem for each that is another."""
    with tempfile.TemporaryDirectory(prefix="specdepth-") as aside:
        yield from _compare(folder.resolve(), Path(aside), problem)


def write(folder: Path) -> list[Path]:
    """Put the pages that the samples give in the place of those that are there.

    Raises
    ------
    SeriesError
        If the samples do not hold what a page was made of, or its parameters are no plain values.
    """
    folder = folder.resolve()
    with tempfile.TemporaryDirectory(prefix="specdepth-") as aside:
        made = [*_make(folder, Path(aside))]
        for file in made:
            (folder / file.name).write_bytes(file.read_bytes())
    manifest.write(folder)
    return [folder / file.name for file in made]


def _compare(folder: Path, aside: Path, problem: Callable[[str, str, str], Any]) -> Iterator[Any]:
    again = "`specdepth check --redraw` puts what the samples give in its place"
    for notebook in _there(folder):
        name = f"{notebook}.ipynb"
        try:
            for file in _make(folder, aside, (notebook,)):
                what = _difference(folder / file.name, file)
                if what:
                    yield problem(file.name, what, again)
        except SpecDepthError as error:
            yield problem(name, f"its samples do not make it: {error}", "measure it again")


def _there(folder: Path) -> tuple[str, ...]:
    return tuple(n for n in series.NOTEBOOKS if (folder / f"{n}.ipynb").is_file())


def _make(folder: Path, aside: Path, notebooks: tuple[str, ...] = ()) -> Iterator[Path]:
    """Make pages of a folder's samples into a folder aside, by our own source."""
    for notebook in notebooks or _there(folder):
        page = json.loads((folder / f"{notebook}.ipynb").read_text(encoding="utf-8"))
        given = foreign.parameters(page) | {"machine": folder.name}
        given.pop("machines_folder", None)
        with _replaying(folder.parent, aside):
            yield pages.run_notebook(
                notebook, given, aside / f"{notebook}.ipynb", f"{folder.name} {notebook}"
            )
            if notebook == "depth_sweep":
                asked = pages.page_parameters(notebook, given)
                yield series.picture(folder, asked, aside / PICTURE)


@contextlib.contextmanager
def _replaying(machines: Path, aside: Path) -> Iterator[None]:
    """Forbid engines, and leave the folder: Python would take modules that lie in it."""
    wanted = {REPLAY_VARIABLE: "1", MACHINES_VARIABLE: str(machines)}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        with contextlib.chdir(aside):
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _difference(theirs: Path, ours: Path) -> str:
    """Return what is in their page or picture and not in ours, or nothing."""
    if not theirs.is_file():
        return "it is gone"
    if theirs.suffix == ".png":
        same = theirs.read_bytes() == ours.read_bytes()
        return "" if same else "it is not the picture that its samples give"
    return difference(*(json.loads(p.read_text(encoding="utf-8")) for p in (theirs, ours)))


def difference(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """Return the first place where a page is not the one that its samples give, or nothing."""
    if len(theirs["cells"]) != len(ours["cells"]):
        return "it has other cells"
    for number, (a, b) in enumerate(zip(theirs["cells"], ours["cells"], strict=True), 1):
        if foreign.INJECTED in b["metadata"].get("tags", []):
            continue
        if _shown(a) != _shown(b):
            return f"cell {number} shows what its samples do not give"
    left, right = (
        {k: v for k, v in n["metadata"].items() if k not in _OF_RUNNING} for n in (theirs, ours)
    )
    return "" if left == right else "its settings are others"


def _shown(cell: dict[str, Any]) -> Any:
    """Return what a cell shows, with texts in one piece."""
    return {k: _joined(v) for k, v in cell.items() if k != "id"}


def _joined(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _joined(v) for k, v in value.items()}
    if isinstance(value, list):
        whole = value and all(isinstance(v, str) for v in value)
        return "".join(value) if whole else [_joined(v) for v in value]
    return value
