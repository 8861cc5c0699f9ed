"""The series of notebooks on one machine, and the book of all machines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from analysis import contents, finish, foreign, gallery, machine, manifest, model, shape_models
from analysis.engines import choose
from analysis.errors import SpecError, choices
from analysis.folders import MACHINES_VARIABLE, machines_folder, replaying
from analysis.pages import SeriesError, names, page_parameters, root, run_notebook
from analysis.parameters import PageParameters
from analysis.records import Run
from analysis.report import Sweep, sweep_of
from analysis.sweep import find

NOTEBOOKS = (
    "depth_sweep", "acceptance_decay", "memory_eviction", "why_deeper_loses", "drafters",
)  # fmt: skip
# Pages made from data that is there, whenever the book is built; by their names in the book.
# The status is made last, so that it knows the others.
DATA_PAGES = {
    "front_page": "index",
    "planner": "planner",
    "other_hardware": "other_hardware",
    "how_it_works": "how_it_works",
    "gallery": "gallery",
    "architecture": "architecture",
    "status": "status",
}
_JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"
# What `make book` measures: the same depths and workloads, with less repetition.
_FEWER: dict[str, Any] = {
    "prompts": 4, "long_prompts": 4, "long_prompt_tokens": 2048, "n_predict": 128,
}  # fmt: skip
QUICK: Mapping[str, Mapping[str, Any]] = {
    "depth_sweep": _FEWER | {"adaptive": True, "lossless_prompts": 0},
    "acceptance_decay": _FEWER | {"traced_prompts": 2, "traced_rounds": 2, "traced_p_min": [0.6]},
    "memory_eviction": {
        "rounds": 2,
        "prompts": 2,
        "depths": [0, 2],
        "plan_depths": [0, 1, 2, 3],
        "plan_shapes": ["qwen3.5-0.8b", "qwen3.6-27b"],
        "traced_prompts": 2,
        "traced_rounds": 2,
    },
    "why_deeper_loses": {
        "depths": [0, 1, 2, 3],
        "rounds": 2,
        "prompts": 2,
        "traced_prompts": 2,
        "traced_rounds": 2,
        "evicted_depths": [0, 2],
        "evicted_rounds": 2,
        "evicted_prompts": 2,
        "shape_models": ["qwen3.5-0.8b:q4_k_m"],
        "shape_depths": [0, 1, 3],
        "shape_rounds": 1,
    },
    "drafters": {
        "ngrams": ["ngram-mod"],
        "depths": [1, 3],
        "rounds": 2,
        "prompts": 2,
        "long_prompts": 2,
        "n_predict": 64,
        "lossless_prompts": 1,
    },
}


def run_series(
    parameters: Mapping[str, Any],
    machine_name: str = "",
    notebooks: tuple[str, ...] = NOTEBOOKS,
    *,
    quick: bool = False,
    answer: Callable[[Sweep, float], object] = lambda *_: None,
) -> list[Path]:
    """Execute notebooks into a machine's folder and return their pages.

    A quick run goes to ``<machine>-quick``. A parameter goes to every notebook that has it,
    but a drafter of one's own to the page that compares drafters alone, where that is made.
    `answer` gets the depth sweep and its tolerance as soon as they are there: the other pages
    explain it.

    Raises
    ------
    SpecError
        Before anything is measured, if no notebook has a parameter, or a value is of no use.
    """
    name = machine.facts(machine_name).name
    if quick and not name.endswith("-quick"):
        name += "-quick"
    folder = machines_folder() / name
    strange = [n for n in notebooks if n not in NOTEBOOKS]
    if strange:
        told = f"no notebook of a machine is called {', '.join(strange)}"
        raise SpecError(told, "", choices(strange, NOTEBOOKS))
    unknown = set(parameters).difference(*(names(n) for n in notebooks))
    if unknown:
        known = set().union(*(names(n) for n in notebooks))
        told = f"no notebook has a parameter {', '.join(sorted(unknown))}"
        raise SpecError(told, "", choices(sorted(unknown), known))
    given = {
        n: (dict(QUICK.get(n, {})) if quick else {})
        | {k: v for k, v in parameters.items() if k in names(n) and not _others(n, k, notebooks)}
        | {"machine": name}
        for n in notebooks
    }
    asked = {n: page_parameters(n, given[n]) for n in notebooks}
    for notebook, page in asked.items():
        _check_server(notebook, page)
        _check_model(folder, page)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SeriesError(
            "the machine's folder can not be made",
            f"{folder}: {error.strerror}",
            f"choose another folder for the machines ({MACHINES_VARIABLE})",
        ) from None
    made: list[Path] = []
    for notebook in notebooks:
        made.append(
            run_notebook(
                notebook, given[notebook], folder / f"{notebook}.ipynb", f"{name} {notebook}"
            )
        )
        if notebook == "depth_sweep":
            page = asked[notebook]
            picture(folder, page, folder / f"{notebook}.png")
            answer(_sweep(folder, page), page.tolerance)
        manifest.write(folder)
    return made


def _others(notebook: str, parameter: str, notebooks: tuple[str, ...]) -> bool:
    """Tell whether a parameter is another page's: a drafter of one's own stands beside the head."""
    compared = "drafters" in notebooks and notebook != "drafters"
    return compared and parameter in ("drafter", "draft_model")


def _check_server(notebook: str, page: PageParameters) -> None:
    """Refuse a server that can not be used; the page on memory alone can do without any."""
    if not replaying() and (page.spec.server or notebook != "memory_eviction"):
        choose.probe(page.spec)


def _check_model(folder: Path, page: PageParameters) -> None:
    """Refuse a model that can not be used, and one model's page over that of another."""
    path = model.resolve(page.spec.model)
    facts = model.facts(path)
    model.check_drafter(facts, page.spec)
    runs = [r.run for r in gallery.runs(folder, "*")]
    there = {(r.model["name"], r.model["sha256"]) for r in runs if not _beside(r)}
    others = sorted(there - {(path.name, facts.sha256)})
    if others:
        told = [f"{name}, SHA-256 {sha256[:12]}" for name, sha256 in others]
        raise SeriesError(
            f"{folder.name} holds results of another model",
            f"{'; '.join(told)}; this one is {path.name}, {facts.sha256[:12]}",
            f"keep {path.name} in a folder of its own: --machine {folder.name}-NAME",
        )


def _beside(run: Run) -> bool:
    """Tell whether a run is of a shape that a page measures beside its own model."""
    return run.notebook == "why_deeper_loses" and shape_models.named(run.spec["model"])


def _sweep(folder: Path, page: PageParameters) -> Sweep:
    return sweep_of(find(folder / "samples", "depth_sweep", page.spec), page.mix)


def picture(folder: Path, page: PageParameters, target: Path) -> Path:
    """Save the machine's main figure as a picture, for pages that are not notebooks."""
    from analysis import figures

    # No version or date inside, so that the same samples give the same file.
    drawn = figures.speed_by_depth(_sweep(folder, page), page.tolerance)
    drawn.savefig(target, metadata={"Software": None})
    return target


def build_book(output: Path | None = None, seconds: int | None = None) -> Path:
    """Draw the pages that need no measuring, build the book strictly, and return its first page.

    The pages have the date of today, or that of `seconds` of the Unix clock.
    """
    base = root()
    target = output or base / "_build"
    check_pages(base / "book" / "machines")
    for notebook, page in DATA_PAGES.items():
        run_notebook(notebook, {}, base / "book" / f"{page}.ipynb")
    shutil.rmtree(target, ignore_errors=True)  # pages of machines that are gone would stay
    dated = {} if seconds is None else {"SOURCE_DATE_EPOCH": str(seconds)}
    with tempfile.TemporaryDirectory(prefix="specdepth-") as temporary:
        toc = Path(temporary) / "_toc.yml"
        given = yaml.safe_load((base / toc.name).read_text(encoding="utf-8"))
        listed = contents.by_machine(given, contents.pages(base / "book" / "machines"))
        toc.write_text(yaml.safe_dump(listed, sort_keys=False), encoding="utf-8")
        command = [
            sys.executable, "-c", _JUPYTER_BOOK, "build", str(base), "--toc", str(toc),
            "--path-output", str(target.parent), "-W", "-n", "--keep-going", "-q",
        ]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=base, env=os.environ | dated
        )  # fmt: skip
    if done.returncode != 0:
        told = [x for x in (done.stdout + done.stderr).splitlines() if x.strip()]
        warnings = [x for x in told if "WARNING" in x or "ERROR" in x] or told[-8:]
        raise SeriesError("the book did not build", " | ".join(warnings[:8]), "mend these")
    finish.pages(target / "html")
    return target / "html" / "index.html"


def check_pages(machines: Path) -> None:
    """Refuse a page that holds anything but this book's cells, plain parameters and outputs."""
    for page in sorted(machines.glob("*/*.ipynb")):
        not_ours = foreign.why(page, page.parent.name)
        if not_ours:
            raise SeriesError(
                f"{page.parent.name}/{page.name} is not published",
                not_ours,
                "`specdepth check --redraw` makes it from its samples; or take it out",
            )
