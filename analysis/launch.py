"""Launches: an engine at one depth, its warm-up, its requests, and what it said of itself.

Several can run side by side and make their requests in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

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

T = TypeVar("T")
Done = set[tuple[Any, ...]]  # the samples that are there, by :func:`analysis.store.sample_key`
WARM_UP_MS = 1000.0  # a small model answers one request before clocks and caches have settled
WARM_UP_SHARE = 0.25  # what an engine has of it at least where others beside it warm the clocks


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


@dataclass
class _Running:
    """A launch that is under way: its engine, and the groups of requests it still has to make."""

    bench: Bench  # of its arm
    engine: Engine
    other: Engine | None
    todo: dict[int, list[Request]]  # by their place in the launch
    blank: Sample
    launch: Launch
    up: bool = False

    @property
    def engines(self) -> tuple[Engine, ...]:
        """Its own engine and the one beside."""
        return (self.engine,) if self.other is None else (self.engine, self.other)

    def alive(self) -> bool:
        """Tell whether it can be asked."""
        return all(e.alive() for e in self.engines)


def measure_launches(
    bench: Bench,
    planned: Sequence[PlannedLaunch],
    writer: store.Writer,
    done: Done,
    prefixes: Prefixes,
    attempt: int = 0,
    tell: Callable[[float], None] = lambda _: None,
) -> None:
    """Start the engines of some launches, make their missing requests in turns, and stop them.

    A request that fails is recorded with its error, and so is an engine that does not start; the
    others go on. `tell` gets the share of the requests that is made, time and again.
    """
    runs = [
        _prepare(bench, p, todo, attempt)
        for p in planned
        if (todo := missing(bench, p, done, prefixes))
    ]
    with ExitStack() as stack:
        for run in runs:
            stack.callback(_record, run, writer)  # after its engine has stopped
            _start(run, stack, writer)
        up = [run for run in runs if run.up]
        pids = [pid for run in up for engine in run.engines for pid in engine.pids]
        company, whole = machine.Company(*pids), machine.Company(*pids)
        _ask_in_turns(up, writer, company, done, tell)
        # Before the stop: what a process that is gone had used can not be read.
        others_cpu = whole.share()
        for run in up:
            run.launch = replace(run.launch, others_cpu=others_cpu)
            with suppress(EngineError):
                run.launch = replace(run.launch, counters=vars(run.engine.counters()))


def missing(
    bench: Bench, planned: PlannedLaunch, done: Done, prefixes: Prefixes
) -> dict[int, list[Request]]:
    """Return the groups of requests that a launch still has to make, by their place in it.

    The warm-up is one of them; where it would be the only one, there is none.
    """
    bench = bench.at(planned.arm)
    blank = _blank(bench, "", planned)
    wanted = requests(bench.spec, bench.encoded, planned.round, prefixes)
    todo = {
        place: group
        for place, group in enumerate(groups(wanted, bench.spec.busy_slots))
        if any(_lacks(blank, r, done) for request in group for r in _both(bench, request))
    }
    if all(request.warm_up for group in todo.values() for request in group):
        return {}
    return todo


def _lacks(blank: Sample, request: Request, done: Done) -> bool:
    return request.warm_up or store.sample_key(request.begin(blank, 0)) not in done


def _prepare(
    bench: Bench, planned: PlannedLaunch, todo: dict[int, list[Request]], attempt: int
) -> _Running:
    arm = "" if planned.arm == bench.spec.arm else f"-{planned.arm}"
    name = f"r{planned.round}{arm}-d{planned.depth}-{attempt}-{planned.order}"
    bench = bench.at(planned.arm)
    launch = Launch(
        launch=name, round=planned.round, order=planned.order, depth=planned.depth,
        arm=bench.spec.arm, command="", load_ms=0.0, counters=vars(NO_COUNTERS), placement={},
        peak_rss_mib=None, others_cpu=0.0, exit_code=None, stopped_by="",
        started=machine.utc_now(),
    )  # fmt: skip
    return _Running(
        bench=bench,
        engine=bench.engine(planned.depth, name),
        other=bench.beside.engine(planned.depth, f"{name}-beside") if bench.beside else None,
        todo=todo,
        blank=_blank(bench, name, planned),
        launch=launch,
    )


def _start(run: _Running, stack: ExitStack, writer: store.Writer) -> None:
    run.launch = replace(run.launch, started=machine.utc_now())
    try:
        for engine in run.engines:
            stack.enter_context(engine)
    except EngineError as error:  # it has made no request of its own
        first = next(iter(run.todo.values()))[0]
        writer.add(replace(first.begin(run.blank, 0), error=str(error), stop="error"))
        return
    log = run.engine.log.read_text(errors="replace")
    run.blank = replace(run.blank, layers_on_device=placement.read(log).layers)
    run.up = True


def _record(run: _Running, writer: store.Writer) -> None:
    """Write what is known of a launch when its engine has stopped."""
    engine = run.engine
    log = engine.log.read_text(errors="replace") if engine.log.is_file() else ""
    writer.add(
        replace(
            run.launch,
            command=without_paths(engine.command),
            load_ms=round(engine.load_ms, 1),
            placement=_placement(log),
            peak_rss_mib=engine.peak_rss_mib,
            exit_code=engine.exit_code,
            stopped_by=engine.stopped_by,
        )
    )


def _both(bench: Bench, request: Request) -> tuple[Request, ...]:
    """Return a request and, where another engine runs beside, the same request of that one."""
    if bench.beside is None or request.arm != bench.spec.arm:
        return (request,)
    return request, replace(request, arm=BESIDE_ARM)


def _ask_in_turns(
    runs: list[_Running],
    writer: store.Writer,
    company: machine.Company,
    done: Done,
    tell: Callable[[float], None],
) -> None:
    """Make all requests, each of all launches before the next one.

    A dead engine drops out with the request that found it dead, which is stored with its error.
    """
    alone, dead = len(runs) == 1, set[str]()
    warm_up_ms = WARM_UP_MS * max(1 / max(len(runs), 1), WARM_UP_SHARE)
    places = sorted({place for run in runs for place in run.todo})
    for i, place in enumerate(places):
        tell(i / len(places))
        for run in turns(runs, place):
            if place in run.todo and run.launch.launch not in dead:
                _ask_group(run, place, writer, company, done, warm_up_ms, alone=alone)
                if not run.alive():
                    dead.add(run.launch.launch)


def turns(launches: Sequence[T], place: int) -> list[T]:
    """Return the order in which launches make the request of a place.

    Who begins moves on by one each time, and the order is reversed once all have begun, so that no
    launch always follows the same one.
    """
    turned, first = divmod(place, len(launches))
    return [*launches[first:], *launches[:first]][:: -1 if turned % 2 else 1]


def _ask_group(
    run: _Running,
    place: int,
    writer: store.Writer,
    company: machine.Company,
    done: Done,
    warm_up_ms: float,
    *,
    alone: bool,
) -> None:
    """Make the requests of one place and store what was missing."""
    group, began = run.todo[place], time.monotonic()
    while True:
        both = [(run.engine, group)]
        if run.other is not None and len(_both(run.bench, group[0])) == 2:
            both.append((run.other, [_both(run.bench, r)[1] for r in group]))
            both = both[::-1] if place % 2 else both
        for asked, wanted in both:
            stored = set()
            answers = ask(run.bench.spec, asked, run.blank, wanted, place, company)
            for request, (sample, traced) in zip(wanted, answers, strict=True):
                if not alone:  # the device holds the other launches too
                    sample = replace(sample, peak_device_mib=None)
                key = store.sample_key(sample)
                if _lacks(run.blank, request, done) and key not in stored:
                    steps.append(writer.path, sample, None if sample.warm_up else traced)
                    writer.add(sample)
                    stored.add(key)
        warming = group[0].warm_up and (time.monotonic() - began) * 1e3 <= warm_up_ms
        if not warming or not run.alive():
            return


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
