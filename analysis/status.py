"""The status page: what was executed when, with what, and whether its samples are what they were.

A page's samples are found by the files' names, so that a page that also takes another's samples
shows its own alone. Checksums are computed anew and held against the folder's manifest.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import checks, contribution, gallery, manifest, markdown_table
from analysis.errors import SpecDepthError
from analysis.folders import machines_folder
from analysis.markup import escaped
from analysis.pages import root
from analysis.report import sweep_of
from analysis.series import DATA_PAGES, NOTEBOOKS
from analysis.store import Recorded

_SHOWN = 12  # digits of a checksum; the manifest has all
_AS_TOLD = "as in the manifest"


@dataclass(frozen=True)
class Page:
    """An executed notebook: when and how long it ran, and with which parameters."""

    machine: str
    notebook: str
    started: str
    duration_s: float
    parameters: dict[str, Any]  # those that were given; all others are the notebook's own
    whole: bool  # every cell ran, in order and without an error


def pages(folder: Path | None = None) -> list[Page]:
    """Return the executed notebooks of all machines, in the order of the series."""
    machines = folder or machines_folder()
    return [
        read(machines / name / f"{notebook}.ipynb", name)
        for name in gallery.names(machines)
        for notebook in NOTEBOOKS
        if (machines / name / f"{notebook}.ipynb").is_file()
    ]


def data_pages(book: Path | None = None) -> list[Page]:
    """Return the pages that are made whenever the book is built, those that are there."""
    base = root() / "book" if book is None else book
    paths = [base / f"{page}.ipynb" for page in DATA_PAGES.values() if page != "status"]
    return [read(path, "this build") for path in paths if path.is_file()]


def read(path: Path, machine: str) -> Page:
    """Read an executed notebook; nothing of it is executed, and a broken one is not complete."""
    try:
        return _page(path, machine)
    except (ValueError, KeyError, TypeError, AttributeError, SyntaxError):
        return Page(machine, path.stem, "", 0.0, {}, whole=False)


def _page(path: Path, machine: str) -> Page:
    content = json.loads(path.read_text(encoding="utf-8"))
    made = content["metadata"].get("specdepth", {})
    code = [c for c in content["cells"] if c["cell_type"] == "code"]
    failed = any(o["output_type"] == "error" for c in code for o in c["outputs"])
    ordered = [c["execution_count"] for c in code] == list(range(1, len(code) + 1))
    given: dict[str, Any] = {}
    for cell in code:
        if "injected-parameters" in cell["metadata"].get("tags", []):
            given |= _assigned("".join(cell["source"]))
    return Page(
        machine=machine,
        notebook=path.stem,
        started=str(made.get("started", "")),
        duration_s=float(made.get("duration_s") or 0),
        parameters=given,
        whole=ordered and not failed,
    )


def _assigned(source: str) -> dict[str, Any]:
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def executed(found: list[Page], link: Callable[[str, str], str]) -> str:
    """Return the executed notebooks as a Markdown table; `link` gives a page's address."""
    if not found:
        return "No notebook has been executed yet."
    lines = [
        "| machine | page | executed, UTC | took, s | parameters given | complete |",
        "|---|---|---|---:|---|---|",
    ]
    for page in found:
        where = link(page.machine, page.notebook)
        name = f"[{page.notebook}]({where})" if where else page.notebook
        given = ", ".join(f"{k} = {v!r}" for k, v in page.parameters.items() if k != "machine")
        took = f"{page.duration_s:.0f}" if page.started else "–"
        lines.append(
            f"| {escaped(page.machine)} | {name} | {_minute(page.started) or '–'} | "
            f"{took} | {escaped(given) or 'none'} | "
            f"{'yes' if page.whole else 'no: it did not run through'} |"
        )
    return "\n".join(lines)


def measured(folder: Path | None = None) -> pd.DataFrame:
    """Return the samples' files: what was measured when, by which engine, and whether all is there.

    Columns are text; the index is the machine and the file.
    """
    machines = folder or machines_folder()
    rows = {}
    for name in gallery.names(machines):
        for recorded in sorted(gallery.runs(machines / name, "*"), key=lambda r: r.path.name):
            run = recorded.run
            times = [run.started, *(s.started for s in recorded.samples)]
            rows[name, recorded.path.name] = {
                "from, UTC": _minute(min(times)),
                "minutes": f"{_minutes(min(times), max(times)):.0f}",
                "model": str(run.model["name"]).removesuffix(".gguf"),
                "launches": len(recorded.launches),
                "requests": len(recorded.done()),
                "complete": _complete(recorded),
            }
    return _indexed(rows, ["machine", "samples"])


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


def _minutes(first: str, last: str) -> float:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds() / 60


def _complete(recorded: Recorded) -> str:
    """Return whether a run holds all that it was asked for."""
    if recorded.layouts and not recorded.samples:
        return "yes"
    try:
        return "; ".join(checks.lacking(sweep_of(recorded))) or "yes"
    except SpecDepthError as error:
        return str(error)


def checksums(folder: Path | None = None) -> pd.DataFrame:
    """Return every file of the machines' folders with its SHA-256 and what the manifest says of it.

    Columns are text; the index is the machine and the file.
    """
    machines = folder or machines_folder()
    rows = {}
    for name in gallery.names(machines):
        own = machines / name
        there = manifest.files(own)
        wrong = {p.where: p.what for p in manifest.compare(own, contribution.Problem)}
        for where in sorted({*there, *wrong}):
            rows[name, where] = {
                "SHA-256": there.get(where, "–")[:_SHOWN],
                "KiB": f"{(own / where).stat().st_size / 1024:,.0f}" if where in there else "–",
                "state": wrong.get(where, _AS_TOLD if manifest.NAME not in wrong else "unknown"),
            }
    return _indexed(rows, ["machine", "file"])


def verdict(found: pd.DataFrame) -> str:
    """Return in one sentence whether the files of :func:`checksums` are what they were."""
    if found.empty:
        return "No machine's folder is here."
    wrong = found[found["state"] != _AS_TOLD]
    if wrong.empty:
        return f"All {len(found)} files are as their manifests have them."
    named = "; ".join(
        escaped(f"{'/'.join(map(str, where))}: {state}")
        for where, state in zip(wrong.index.to_list(), wrong["state"], strict=True)
    )
    return f"**{len(wrong)} of {len(found)} files are not as their manifests have them**: {named}."


def versions(folder: Path | None = None) -> pd.DataFrame:
    """Return the versions of the packages that measured, a column a machine: all that were used."""
    machines = folder or machines_folder()
    columns: dict[str, dict[str, str]] = {}
    for name in gallery.names(machines):
        used: dict[str, set[str]] = {}
        for recorded in gallery.runs(machines / name, "*"):
            used.setdefault("engine", set()).add(str(recorded.run.engine["version"]))
            for package, version in recorded.run.packages.items():
                used.setdefault(package, set()).add(version)
        columns[name] = {package: ", ".join(sorted(found)) for package, found in used.items()}
    return pd.DataFrame(columns).fillna("–").rename_axis("package")


def shown(frame: pd.DataFrame) -> str:
    """Return a table of this page as Markdown, or that there is nothing to show."""
    return "No machine's folder is here." if frame.empty else markdown_table.markdown(frame)


def _indexed(rows: dict[tuple[str, str], dict[str, Any]], names: list[str]) -> pd.DataFrame:
    if not rows:
        return pd.DataFrame()
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(names)
