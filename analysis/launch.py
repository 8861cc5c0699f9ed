"""One launch: an engine at one depth, its warm-up, its requests, and what it said of itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis import machine, model, placement, steps, store
from analysis.engines import choose
from analysis.engines.process import NO_COUNTERS, Engine
from analysis.errors import EngineError
from analysis.lossless import Prefixes
from analysis.paths import last_part, redacted
from analysis.prompts import Encoded
from analysis.records import Launch, Sample
from analysis.request import Request, ask, groups, requests
from analysis.spec import ARMS, BESIDE_ARM, SweepSpec

WARM_UP_MS = 1000.0  # a small model answers one request before clocks and caches have settled


@dataclass(frozen=True)
class Bench:
    """What all launches of a run share."""

    spec: SweepSpec
    build: choose.Build
    model: Path
    encoded: tuple[Encoded, ...]
    run: str
    logs: Path
    beside: Bench | None = None  # another engine, asked the same in turns

    def at(self, arm: str) -> Bench:
        """Return the bench of one arm."""
        return replace(self, spec=self.spec.at(arm))

    def engine(self, depth: int, name: str) -> Engine:
        """Return an engine at a depth, not started yet, with its log under this name."""
        log, spec = self.logs / f"{name}.log", self.spec
        if spec.draft_model:  # an arm named after the drafter would no longer be
            path = str(model.resolve(spec.draft_model))
            spec = replace(
                spec, draft_model=path, arm=ARMS[0] if spec.arm == spec.label else spec.arm
            )
        return choose.make(self.build, spec, depth, self.model, log)


@dataclass(frozen=True)
class PlannedLaunch:
    """One launch of the plan; `order` is its place within the run."""

    round: int
    order: int
    depth: int
    arm: str


def measure_launch(
    bench: Bench,
    planned: PlannedLaunch,
    writer: store.Writer,
    done: set[tuple[Any, ...]],
    prefixes: Prefixes,
    attempt: int = 0,
) -> bool:
    """Start an engine, make the requests that are not done yet, stop it; record everything.

    A request that fails is recorded with its error, and so is an engine that does not start; the
    sweep then goes on with its next launch. Returns whether there was anything to measure.
    """
    arm = "" if planned.arm == bench.spec.arm else f"-{planned.arm}"
    name = f"r{planned.round}{arm}-d{planned.depth}-{attempt}-{planned.order}"
    prefixes = {} if arm else prefixes
    bench = bench.at(planned.arm)
    blank = _blank(bench, name, planned)

    def missing(request: Request) -> bool:
        return request.warm_up or store.sample_key(request.begin(blank, 0)) not in done

    wanted = requests(bench.spec, bench.encoded, planned.round, prefixes)
    todo = [
        (place, group)
        for place, group in enumerate(groups(wanted, bench.spec.busy_slots))
        if any(missing(r) for request in group for r in _both(bench, request))
    ]
    if all(request.warm_up for _, group in todo for request in group):
        return False
    engine = bench.engine(planned.depth, name)
    other = bench.beside.engine(planned.depth, f"{name}-beside") if bench.beside else None
    launch = Launch(
        launch=name, round=planned.round, order=planned.order, depth=planned.depth,
        arm=bench.spec.arm, command="", load_ms=0.0, counters=vars(NO_COUNTERS), placement={},
        peak_rss_mib=None, others_cpu=0.0, exit_code=None, stopped_by="",
        started=machine.utc_now(),
    )  # fmt: skip
    whole: machine.Company | None = None
    try:
        with engine, other or nullcontext():
            whole = machine.Company(*(pid for e in (engine, other) if e for pid in e.pids))
            log = engine.log.read_text(errors="replace")
            layers = placement.read(log).layers
            known = replace(blank, layers_on_device=layers)
            _ask_all(bench, engine, other, known, todo, writer, missing)
            # Before the stop: what a process that is gone had used can not be read.
            launch = replace(launch, counters=vars(engine.counters()), others_cpu=whole.share())
    except EngineError as error:
        if whole is None:  # an engine that never started has made no request of its own
            failed = wanted[0].begin(blank, 0)
            writer.add(replace(failed, error=str(error), stop="error"))
    finally:
        log = engine.log.read_text(errors="replace") if engine.log.is_file() else ""
        writer.add(
            replace(
                launch,
                command=without_paths(engine.command),
                load_ms=round(engine.load_ms, 1),
                placement=_placement(log),
                peak_rss_mib=engine.peak_rss_mib,
                exit_code=engine.exit_code,
                stopped_by=engine.stopped_by,
            )
        )
    return True


def _both(bench: Bench, request: Request) -> tuple[Request, ...]:
    """Return a request and, where another engine runs beside, the same request of that one."""
    if bench.beside is None or request.arm != bench.spec.arm:
        return (request,)
    return request, replace(request, arm=BESIDE_ARM)


def _ask_all(
    bench: Bench,
    engine: Engine,
    other: Engine | None,
    blank: Sample,
    todo: list[tuple[int, list[Request]]],
    writer: store.Writer,
    missing: Callable[[Request], bool],
) -> None:
    """Make all requests and store what was missing; ends early when the engine has died."""
    company = machine.Company(*(pid for e in (engine, other) if e for pid in e.pids))
    for place, group in todo:
        began = time.monotonic()
        while True:
            turns = [(engine, group)]
            if other is not None and len(_both(bench, group[0])) == 2:
                turns.append((other, [_both(bench, r)[1] for r in group]))
                turns = turns[::-1] if place % 2 else turns
            for asked, wanted in turns:
                stored = set()
                answers = ask(bench.spec, asked, blank, wanted, place, company)
                for request, (sample, traced) in zip(wanted, answers, strict=True):
                    key = store.sample_key(sample)
                    if missing(request) and key not in stored:
                        steps.append(writer.path, sample, None if sample.warm_up else traced)
                        writer.add(sample)
                        stored.add(key)
            if not all(e.alive() for e, _ in turns):
                return
            if not group[0].warm_up or (time.monotonic() - began) * 1e3 > WARM_UP_MS:
                break


def _blank(bench: Bench, launch: str, planned: PlannedLaunch) -> Sample:
    spec, depth = bench.spec, planned.depth
    drafts = depth > 0 and spec.arm != "rows"
    return Sample(
        run=bench.run, launch=launch, round=planned.round, order=0, arm=spec.arm,
        drafter=spec.label if drafts else "none", depth=depth, workload="", prompt_id="",
        seed=spec.seed, temperature=spec.temperature, n_predict=spec.n_predict, warm_up=False,
        prompt_n=0, prompt_ms=0.0, predicted_n=0, predicted_ms=0.0, draft_n=None,
        draft_n_accepted=None, drafts=None, accepted_per_position=None, steps=0, tokens=(),
        stop="limit", client_ms=0.0, layers_on_device=None, peak_device_mib=None,
        clock_before_mhz=None, clock_after_mhz=None, load_before=0.0, load_after=0.0,
        others_cpu=0.0, started=machine.utc_now(),
    )  # fmt: skip


def _placement(log: str) -> dict[str, Any]:
    """Return what is stored of a log: placement and buffers, without its requests and lines."""
    found = placement.read(log).to_json()
    return {k: v for k, v in found.items() if k not in ("requests", "evidence")}


def without_paths(command: tuple[str, ...]) -> str:
    """Return a command line without folders, and with PORT for its port."""
    words = [last_part(word) if i == 0 else redacted(word) for i, word in enumerate(command)]
    if "--port" in words:
        words[words.index("--port") + 1] = "PORT"
    if "--rpc" in words:
        words[words.index("--rpc") + 1] = "127.0.0.1:PORT"
    return " ".join(words)
