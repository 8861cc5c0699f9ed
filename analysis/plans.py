"""The engine's layouts as data: asked once, stored, and read again where a page is replayed."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis import machine, planner, records, store
from analysis.engines import binary, fit
from analysis.engines.emulated import PROGRAM
from analysis.engines.fit import Laid
from analysis.errors import EngineError, StoreError
from analysis.folders import REPLAY_VARIABLE, machines_folder, replaying
from analysis.markup import escaped
from analysis.plan import Pool
from analysis.planner import Wanted
from analysis.progress import Progress, here
from analysis.spec import SweepSpec

# On a device without room for a budget the question is left out, and the page says so.
Answers = dict["Question", Laid]


@dataclass(frozen=True)
class Question:
    """One question to the planner; without a budget only what would be needed is asked."""

    shape: str
    quantization: str
    context: int
    slots: int
    depth: int
    budget_mib: int | None = None
    unified: bool = True
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"

    @property
    def wanted(self) -> Wanted:
        """The model that is asked about."""
        return Wanted(shape=self.shape, quantization=self.quantization)

    def spec(self, *, emulated: bool) -> SweepSpec:
        """Return the flags of a server for this question."""
        pool = Pool(
            0.0, self.context, self.slots, self.unified, self.cache_type_k, self.cache_type_v
        )
        return planner.flags_for(pool, (self.depth,), emulated=emulated)


@dataclass(frozen=True)
class Plans:
    """Answers with the run that they come from."""

    run: records.Run
    answers: Answers
    emulated: bool
    why: str = ""  # there are no answers


def ask(
    questions: Sequence[Question],
    notebook: str,
    machine_name: str = "",
    folder: Path | None = None,
    server: str = "",
    progress: Progress | None = None,
) -> Plans:
    """Ask the engine what is not yet stored of these questions, and return all answers.

    They are kept in ``<folder>/<machine>/samples/plans``. With ``SPECDEPTH_REPLAY=1`` nothing is
    started. A budget beyond the device's free memory stays without an answer, and so do all
    questions where there is neither a device nor a program that emulates one.

    Raises
    ------
    EngineError
        If the engine is not there or can not plan.
    """
    here_facts = machine.facts(machine_name)
    plans = (folder or machines_folder()) / here_facts.name / "samples" / "plans"
    if replaying():
        return _stored(plans, notebook, questions)
    build = binary.probe(server)
    real = planner.devices(build)
    facts: dict[str, Any] = {
        "engine": build.fingerprint, "settings": binary.settings(), "devices": real,
    }  # fmt: skip
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    run = records.Run(
        run=f"{notebook}-plans-{key}", key=key, notebook=notebook,
        spec={"device": "" if real else "emulated"}, machine=here_facts.to_json(), model={},
        engine={"version": build.version, "build": build.build, "commit": build.commit,
                "fingerprint": build.fingerprint[:16], "settings": binary.settings()},
        packages=machine.packages(), prompt_facts={}, started=machine.utc_now(),
    )  # fmt: skip
    if not real:
        try:
            binary.find(program=PROGRAM)
        except EngineError as error:
            return Plans(run, {}, emulated=True, why=escaped(str(error)))
    path = plans / f"{notebook}-{key}.jsonl"
    with store.Writer(path, run) as writer, ExitStack() as stack:
        known = _answers(store.read(path))
        missing = [q for q in dict.fromkeys(questions) if q not in known]
        if missing:
            logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="specdepth-")))
            _ask_all(missing, build, not real, logs, writer, progress or here())
        recorded = store.read(path)
    return _of(recorded, questions)


def _ask_all(
    missing: list[Question],
    build: binary.ServerBinary,
    emulated: bool,
    logs: Path,
    writer: store.Writer,
    progress: Progress,
) -> None:
    """Ask model by model, so that each shape's file is written once."""
    done = 0
    free_mib: int | None = None
    log = logs / "planner.log"
    try:
        for wanted in dict.fromkeys(q.wanted for q in missing):
            with wanted.file() as model:
                for question in (q for q in missing if q.wanted == wanted):
                    progress.update(done, len(missing), f"{wanted.shape}, depth {question.depth}")
                    spec = question.spec(emulated=emulated)
                    budget = question.budget_mib
                    if budget is None or free_mib is None:
                        laid = fit.project(build, spec, question.depth, model, log)
                        free_mib = laid.free_mib
                    if budget is not None and budget <= free_mib:
                        laid = fit.lay_out(
                            build, spec, question.depth, model, log, free_mib - budget
                        )
                    if budget is None or budget <= free_mib:
                        writer.add(
                            records.PlannerAnswer(asdict(question), asdict(laid), machine.utc_now())
                        )
                    done += 1
        progress.update(done, len(missing), "done")
    finally:
        progress.close()


def _answers(recorded: store.Recorded) -> Answers:
    return {Question(**x.question): Laid(**x.answer) for x in recorded.layouts}


def _of(recorded: store.Recorded, questions: Iterable[Question]) -> Plans:
    known = _answers(recorded)
    return Plans(
        recorded.run,
        {q: known[q] for q in questions if q in known},
        recorded.run.spec["device"] == "emulated",
    )


def _stored(plans: Path, notebook: str, questions: Sequence[Question]) -> Plans:
    """Return the newest stored answers."""
    files = [store.read(p) for p in store.files(plans, notebook)]
    if not files:
        raise StoreError(
            f"no stored plans of this {notebook}", "none", f"unset {REPLAY_VARIABLE} to ask"
        )
    return _of(max(files, key=lambda r: r.run.started), questions)


def stored_needs(folder: Path | None = None) -> list[tuple[Question, Laid]]:
    """Return what the machines' planners said was needed, of every question that is stored."""
    plans = sorted((folder or machines_folder()).glob("*/samples/plans"))
    files = [path for here in plans for path in store.files(here)]
    answers = [item for path in files for item in _answers(store.read(path)).items()]
    return [(question, laid) for question, laid in answers if question.budget_mib is None]
