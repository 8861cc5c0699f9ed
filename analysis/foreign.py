"""Executed pages as anybody may send them: whether what they hold beside outputs is this book's.

A page is read as data. Its parameters must be plain values, and all else what the notebook's own
source has: code that is not ours is never executed, and no text of others is shown.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import nbformat

from analysis import pages
from analysis.errors import SpecDepthError
from analysis.pages import SeriesError

INJECTED = "injected-parameters"
_BESIDE_CELLS = {"kernelspec", "language_info", "specdepth"}
_LEFT_OUT = {"id", "outputs", "execution_count"}  # what running a cell gives


def parameters(page: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that a page was made with.

    Raises
    ------
    SeriesError
        If they are anything but names with plain values, once a page.
    """
    cells = [c for c in page["cells"] if INJECTED in c["metadata"].get("tags", [])]
    if len(cells) != 1 or cells[0]["cell_type"] != "code":
        raise SeriesError("the page has no cell of parameters", f"{len(cells)} of them")
    try:
        found = {}
        for node in ast.parse("".join(cells[0]["source"])).body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    found[name] = ast.literal_eval(value)
                case _:
                    raise ValueError(ast.unparse(node))
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise SeriesError("its parameters are no plain values", str(error)[:80]) from None
    return found


def why(file: Path, machine: str) -> str:
    """Return what in a machine's page is not this book's, or nothing.

    Raises
    ------
    ValueError, KeyError, TypeError, AttributeError, OSError
        If the file is no notebook.
    """
    page: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    try:
        given = parameters(page)
        if given.get("machine") != machine:
            return f"it is of a machine called {given.get('machine')}"
        unknown = sorted(set(given) - pages.names(file.stem))
        if unknown:
            return f"it has no parameter {', '.join(unknown)}"
    except SpecDepthError as error:
        return str(error)
    if set(page["metadata"]) - _BESIDE_CELLS:
        return f"it has further settings: {', '.join(set(page['metadata']) - _BESIDE_CELLS)}"
    own, wanted = _cells(page), _expected(file.stem, machine)
    place = next((i for i, c in enumerate(page["cells"]) if _is_injected(c)), 0)
    del own[place]
    if len(own) != len(wanted):
        return "it is not this book's notebook: it has other cells"
    for number, (a, b) in enumerate(zip(own, wanted, strict=True), 1):
        if a != b:
            return f"it is not this book's notebook: cell {number} is another"
    return ""


def _is_injected(cell: dict[str, Any]) -> bool:
    return INJECTED in cell["metadata"].get("tags", [])


def _expected(notebook: str, machine: str) -> list[dict[str, Any]]:
    """Return the cells of a notebook's source as its page on a machine has them."""
    source = nbformat.read(pages.source(notebook), as_version=4)  # type: ignore[no-untyped-call]
    return _cells(json.loads(pages.published(source, machine)))


def _cells(page: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a page's cells without what running them gives."""
    found = []
    for cell in page["cells"]:
        kept = {k: v for k, v in cell.items() if k not in _LEFT_OUT}
        kept["source"] = "".join(cell["source"])
        kept["metadata"] = {k: v for k, v in cell["metadata"].items() if (k, v) != ("tags", [])}
        if own := kept["metadata"].get("mystnb"):
            kept["metadata"]["mystnb"] = own | _undescribed(own, cell)
        found.append(kept)
    return found


def _undescribed(own: dict[str, Any], cell: dict[str, Any]) -> dict[str, Any]:
    """Return alt text and caption without what `pages` added to them from the cell's outputs.

    What the figure says of itself is output, and is compared as such.
    """
    text, finding = pages.told(cell)
    image, figure = own.get("image"), own.get("figure")
    found = {}
    if image:
        found["image"] = image | {"alt": image["alt"].removesuffix(text).strip()}
    if figure and "caption" in figure:
        found["figure"] = figure | {"caption": figure["caption"].removeprefix(finding).strip()}
    return found
