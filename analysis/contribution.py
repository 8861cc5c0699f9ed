"""A machine's folder as a contribution: whether it can be trusted for its samples.

Nothing in the folder is executed. Executed pages are looked at, and never trusted for a number:
:mod:`analysis.redraw` makes each of them again from the samples.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis import foreign, manifest, personal, shape_models, steps, store
from analysis import machine as machine_facts
from analysis.errors import SpecDepthError
from analysis.plausible import impossible, is_number
from analysis.records import Sample
from analysis.series import NOTEBOOKS
from analysis.store import Recorded

LARGEST_MIB = 16
_HASH = re.compile(r"[0-9a-f]{64}")
_KEY = re.compile(r"[0-9a-f]{12}")
AGAIN = "measure it again; a file is never mended by hand"
_ODD = (KeyError, TypeError, ValueError, AttributeError, OverflowError)  # of facts of any form
_KNOWN = {".jsonl", ".ipynb", ".png", ".json", ".torn"}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a folder, and what to do about it."""

    where: str
    what: str
    next_step: str = ""  # where `what` does not say it

    def __str__(self) -> str:
        told = self.what.rstrip(".") + "."
        return f"{self.where}: {told}" + (f" Next: {self.next_step}." if self.next_step else "")


@dataclass(frozen=True)
class Examined:
    """What a folder holds and what is wrong with it."""

    folder: Path
    runs: tuple[Recorded, ...]
    problems: tuple[Problem, ...]
    pages: tuple[str, ...]


def examine(folder: Path) -> Examined:
    """Look at a machine's folder; never raises for what it finds in it."""
    if not folder.is_dir():
        gone = Problem(folder.name, "there is no such folder", "name one under book/machines")
        return Examined(folder, (), (gone,), ())
    problems = [*_files(folder), *manifest.compare(folder, Problem)]
    runs: list[Recorded] = []
    for file in sorted((folder / "samples").glob("*.jsonl")):
        try:
            recorded = store.read(file)
            problems += [*_run(recorded), *_complete(recorded)]
            _facts(recorded)
            runs.append(recorded)
        except SpecDepthError as error:
            problems.append(Problem(file.name, str(error)))
        except _ODD as error:
            problems.append(
                Problem(file.name, f"its records are odd ({type(error).__name__}: {error})", AGAIN)
            )
    if not runs:
        problems.append(Problem("samples", "no run can be read", "measure with `specdepth run`"))
    if runs and not any(r.run.notebook == "depth_sweep" for r in runs):
        sweep = "run `specdepth run --notebooks depth_sweep`"
        problems.append(Problem("samples", "no depth sweep", sweep))
    names = {str(r.run.machine["name"]) for r in runs}
    # Pages of a folder that was renamed are not wrong one by one as well.
    problems += [*_alike(folder, runs), *_pages(folder, *names if len(names) == 1 else ())]
    pages = tuple(n for n in NOTEBOOKS if (folder / f"{n}.ipynb").is_file())
    return Examined(folder, tuple(runs), tuple(problems), pages)


def _files(folder: Path) -> Iterator[Problem]:
    """Yield what should not lie in the folder, and what in it tells of a person."""
    names = personal.own_names()
    for file in sorted(folder.rglob("*")):
        where = file.relative_to(folder).as_posix()
        if manifest.stays(where):
            continue
        if file.is_symlink():
            yield Problem(where, "a link", "put the file itself there")
        elif file.is_file():
            if file.suffix not in _KNOWN:
                yield Problem(where, "no file of a machine's folder", "take it out")
            if file.stat().st_size > LARGEST_MIB * 2**20:
                yield Problem(where, f"larger than {LARGEST_MIB} MiB", "measure fewer at a time")
            for what, text in personal.traces(personal.readable(file), names)[:3]:
                yield Problem(where, f"{what}: {text[:80]}", "take it out, or measure again")


def _run(recorded: Recorded) -> Iterator[Problem]:
    """Yield what does not fit within one run."""
    run, where, again = recorded.run, recorded.path.name, AGAIN
    if recorded.path.stem != run.run or run.run != f"{run.notebook}-{run.key}":
        yield Problem(where, f"the run calls itself {run.run}", "give the file its own name back")
    if not _KEY.fullmatch(run.key) or not _HASH.fullmatch(str(run.model.get("sha256", ""))):
        yield Problem(where, "its key or its model's checksum is none", again)
    if not run.engine.get("version") or not run.engine.get("fingerprint"):
        yield Problem(where, "it does not say which engine measured it", again)
    for note in recorded.notes:
        yield Problem(where, note, "run the notebook again: it measures what is missing")
    launches = {x.launch for x in recorded.launches}
    # A launch that was killed wrote no record; its requests count, and a rerun made the rest.
    resumed = {(x.round, x.depth) for x in recorded.launches}
    for sample in recorded.samples:
        killed = (sample.round, sample.depth) in resumed
        wrong = _sample(run.run, launches | ({sample.launch} if killed else set()), sample)
        if wrong:
            yield Problem(where, f"{steps.sample_id(sample)}: {wrong}", again)
            break
    try:
        traced = steps.read(recorded.path)
    except SpecDepthError as error:
        yield Problem(where, str(error))
        return
    if run.spec.get("engine") == "tracer":
        bare = [
            s for s in recorded.samples
            if not s.warm_up and s.error is None and steps.sample_id(s) not in traced
        ]  # fmt: skip
        if bare:
            yield Problem(where, f"{len(bare)} traced samples have no steps", again)


def _sample(run: str, launches: set[str], s: Sample) -> str:
    """Return what is impossible in a sample, or nothing."""
    if s.run != run:
        return f"it is of another run, {s.run}"
    if s.launch not in launches:
        return "its launch is not there"
    if s.error is not None:
        return ""
    if not all(map(is_number, (s.prompt_ms, s.predicted_ms, s.client_ms, s.predicted_n))):
        return "a time or a count is no number"
    accepted = s.draft_n_accepted or 0
    for what in impossible(s.predicted_n, s.predicted_ms, s.draft_n or 0, accepted):
        return what
    if len(s.tokens) > s.predicted_n:
        return f"{s.predicted_n} tokens are counted and {len(s.tokens)} are there"
    if s.steps != s.predicted_n - 1 - accepted:
        return f"{s.steps} steps do not follow from its counts"
    return ""


def _facts(recorded: Recorded) -> tuple[str, str, str]:
    """Return a run's machine, its hardware and its model."""
    run = recorded.run
    machine = json.dumps(store.hardware(run.machine), sort_keys=True)
    shape = shape_models.named(str(run.spec["model"]))
    named = f"{run.model['name']} ({str(run.model['sha256'])[:12]})"
    return str(run.machine["name"]), machine, "" if shape else named


def _alike(folder: Path, runs: list[Recorded]) -> Iterator[Problem]:
    """Yield facts that should be the same in all runs and are not."""
    try:
        machine_facts.checked_name(folder.name)
    except SpecDepthError as error:
        yield Problem(folder.name, str(error))
    names, machines, models = (set(x) for x in zip(*map(_facts, runs), strict=True)) if runs else (
        {folder.name}, {""}, {""})  # fmt: skip
    if names != {folder.name}:
        others = ", ".join(sorted(names - {folder.name}))
        only = len(names) == 1
        again = f"call the folder {others}" if only else "one folder a machine"
        yield Problem(folder.name, f"runs of a machine called {others}", again)
    if len(machines) > 1:
        yield Problem(folder.name, f"{len(machines)} different machines", "one folder a machine")
    if len(models - {""}) > 1:
        told = ", ".join(sorted(models - {""}))
        yield Problem(folder.name, f"several models: {told}", "one folder a model")


def _complete(recorded: Recorded) -> Iterator[Problem]:
    """Yield what a run lacks; a further drafter that failed is a result of its page."""
    from analysis import checks, report

    if recorded.samples:
        for text in checks.warnings(report.sweep_of(recorded), whole=False):
            if " requests are there" in text or "requests failed" in text:
                yield Problem(recorded.path.name, text.rstrip("."), "run the notebook again")


def _pages(folder: Path, machine: str = "") -> Iterator[Problem]:
    """Yield what is wrong with executed pages: order, errors, another source, another machine."""
    for file in sorted(folder.glob("*.ipynb")):
        again = "run `specdepth run` again; it makes the page from the samples"
        if file.stem not in NOTEBOOKS:
            yield Problem(file.name, "no page of this book", "take it out")
            continue
        try:
            cells: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["cells"]
            code = [c for c in cells if c["cell_type"] == "code"]
            if [c["execution_count"] for c in code] != list(range(1, len(code) + 1)):
                yield Problem(file.name, "its cells did not run in their order", again)
            if any(o["output_type"] == "error" for c in code for o in c["outputs"]):
                yield Problem(file.name, "a cell ended in an error", again)
            not_ours = foreign.why(file, machine or folder.name)
            if not_ours:
                yield Problem(file.name, not_ours, again)
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            yield Problem(file.name, f"it can not be read ({type(error).__name__})", again)
