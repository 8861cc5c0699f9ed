"""Notebooks as pages: run with papermill, stripped of this machine's traces, moved on success."""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat

from analysis import progress, shape_models
from analysis.errors import SpecDepthError, SpecError, choices
from analysis.folders import project_root
from analysis.markup import escaped
from analysis.parameters import PageParameters, read
from analysis.paths import last_part, redacted
from analysis.spec import label

# The kernel is reached by a socket file: TCP ports could be opened by others on the machine.
_IPC = {"KernelManager": {"transport": "ipc"}}


class SeriesError(SpecDepthError):
    """A notebook or the book could not be made."""


def root() -> Path:
    """Return the checkout, or raise: notebooks and book need one."""
    found = project_root()
    if found is None:
        raise SeriesError(
            "the notebooks and the book need a checkout of the project",
            "an installed package alone",
            "clone the repository and install it with `make install`",
        )
    return found


def source(notebook: str) -> Path:
    """Return the path of a notebook's source."""
    path = root() / "notebooks" / f"{notebook}.ipynb"
    if not path.is_file():
        known = ", ".join(p.stem for p in sorted(path.parent.glob("*.ipynb")))
        raise SeriesError(f"no notebook called {notebook}", known, "choose one of these")
    return path


def _listed(notebook: str) -> dict[str, Any]:
    import papermill

    found: dict[str, Any] = papermill.inspect_notebook(str(source(notebook)))
    return found


def names(notebook: str) -> set[str]:
    """Return the names of a notebook's parameters."""
    return set(_listed(notebook))


def page_parameters(notebook: str, parameters: Mapping[str, Any]) -> PageParameters:
    """Return what a notebook would be made with, its own defaults included.

    Raises
    ------
    SpecError
        For a name that the notebook's parameters cell does not have, or a value that is of no use.
    """
    listed = _listed(notebook)
    unknown = sorted(set(parameters) - set(listed))
    if unknown:
        raise SpecError(
            f"{notebook} has no parameter {', '.join(unknown)}",
            "",
            choices(unknown, listed),
        )
    defaults = {name: ast.literal_eval(cell["default"]) for name, cell in listed.items()}
    return read(
        defaults | dict(parameters),
        traces="traced_p_min" in listed,
        plans="plan_shape" in listed,
        causes="shape_models" in listed,
        drafts="drafters" in listed,
    )


def run_notebook(
    notebook: str, parameters: Mapping[str, Any], output: Path, label: str = ""
) -> Path:
    """Execute a notebook and move the result to `output` when, and only when, it succeeded.

    Paths of this machine are taken out of the result. A failed run leaves its page in a folder
    ``failed`` beside the target and raises :class:`SeriesError` with the kernel's error.
    """
    import papermill
    from nbclient.exceptions import DeadKernelError
    from traitlets.config import Config

    page_parameters(notebook, parameters)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="specdepth-") as aside:
        draft = Path(aside) / output.name
        with _bar(Path(aside) / "progress", label or notebook):
            try:
                papermill.execute_notebook(
                    str(source(notebook)), str(draft), dict(parameters), kernel_name="python3",
                    progress_bar=False, log_output=False, cwd=str(Path.cwd()), config=Config(_IPC),
                    shutdown_kernel="immediate",  # an interrupt must not wait for the kernel
                )  # fmt: skip
            except DeadKernelError:
                raise SeriesError(
                    f"the kernel of {notebook} ended", "interrupted or killed",
                    "run it again: what was measured is kept, and it goes on from there",
                ) from None  # fmt: skip
            except papermill.PapermillExecutionError as error:
                failed = output.parent / "failed" / output.name
                failed.parent.mkdir(exist_ok=True)
                shutil.move(draft, failed)
                so_far = f"{failed.parent.name}/{failed.name} in {output.parent.name}"
                if error.ename in {
                    c.__name__ for c in SpecDepthError.__subclasses__()
                }:  # says what to do
                    raise SeriesError(f"{notebook} failed, see {so_far}: {error.evalue}") from None
                raise SeriesError(
                    f"{notebook} failed", f"{error.ename}: {error.evalue}", f"see {so_far}"
                ) from None
        text = published(_read(draft), str(parameters.get("machine", "")))
        whole = draft.with_suffix(".published")
        whole.write_text(text, encoding="utf-8")
        shutil.move(whole, output)
        (output.parent / "failed" / output.name).unlink(missing_ok=True)
    return output


def published(notebook: Any, machine_name: str = "") -> str:
    """Return an executed notebook as text, without paths and other traces of the machine.

    The title gets the machine's name, since the table of contents lists one page a machine.
    """
    if machine_name:
        title = notebook.cells[0]
        title.source = title.source.replace("on this machine", f"on {machine_name}", 1)
    for cell in notebook.cells:
        figure = cell.metadata.get("mystnb", {}).get("figure")
        if machine_name and figure:  # labels are unique in the book, which has a page a machine
            figure["name"] = f"{machine_name}-{figure['name']}"
        _describe(cell)
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.source = _without_paths(cell.source)
            cell.metadata["tags"] = ["injected-parameters", "hide-input"]
            cell.metadata["mystnb"] = {"code_prompt_show": "Show the parameters that were given"}
    made = notebook.metadata.pop("papermill", {})
    if machine_name:  # a page of data alone is made with each build, and the same each time
        notebook.metadata["specdepth"] = {
            "started": str(made.get("start_time", ""))[:19],
            "duration_s": round(float(made.get("duration") or 0), 1),
            "papermill": made.get("version", ""),
        }
    notebook.metadata.get("language_info", {}).pop("version", None)
    text: str = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    return text + "\n"


def told(cell: Any) -> tuple[str, str]:
    """Return what a cell's figure says of itself: all of it, and its finding as bold Markdown.

    The finding is the first of several lines (:func:`analysis.described.described`).
    """
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "image/png" in data:
            text = "".join(data.get("text/plain", ""))
            finding, several, _ = text.partition("\n")
            bold = f"**{escaped(finding)}**" if several and finding.strip() else ""
            return " ".join(text.split()), bold
    return "", ""


def _describe(cell: Any) -> None:
    """Add what a cell's figure says of itself: to its alt text, and the finding to its caption."""
    text, finding = told(cell)
    own = cell.metadata.get("mystnb", {})
    if image := own.get("image"):
        image["alt"] = f"{image.get('alt', '')} {text}".strip()
    if (figure := own.get("figure")) and finding:
        figure["caption"] = f"{finding} {figure.get('caption', '')}".strip()


def _without_paths(source: str) -> str:
    """Return injected parameters with every path cut to its last part, as the spec stores them."""
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name, value = node.targets[0].id, ast.literal_eval(node.value)
        if name in ("model", "draft_model", "server"):
            cut: Any = last_part(shape_models.canonical(str(value)))
        elif name in ("drafters", "ngrams"):
            entries = value.split(",") if isinstance(value, str) else value
            cut = [label(*str(e).strip().partition(":")[::2]) for e in entries]
        elif name == "server_args":
            words = shlex.split(value) if isinstance(value, str) else value
            cut = [redacted(str(word)) for word in words]
        elif isinstance(value, str):
            cut = redacted(value)
        else:
            continue
        if cut != value:
            lines[node.lineno - 1 : node.end_lineno] = [f"{name} = {json.dumps(cut)}"] + [""] * (
                (node.end_lineno or node.lineno) - node.lineno
            )
    return "\n".join(lines)


def _read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


class _bar:  # noqa: N801 (a context manager, used like a function)
    """Shows the launches that the notebook's kernel reports, as a bar on stderr."""

    def __init__(self, file: Path, label: str) -> None:
        self._file = file
        self._label = label
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._old = os.environ.get(progress.FILE_VARIABLE)
        os.environ[progress.FILE_VARIABLE] = str(self._file)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._old is None:
            del os.environ[progress.FILE_VARIABLE]
        else:
            os.environ[progress.FILE_VARIABLE] = self._old

    def _watch(self) -> None:
        shown = progress.BarProgress(self._label)
        seen = 0
        while True:
            last = self._stop.is_set()
            lines = self._file.read_text().splitlines() if self._file.is_file() else []
            for line in lines[seen:]:
                update = json.loads(line)
                shown.update(update["done"], update["total"], update["doing"])
            seen = len(lines)
            if last:
                break
            time.sleep(0.5)
        shown.close()
