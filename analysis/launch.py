"""One launch: a server at one depth, its warm-up, its requests, and what it said of itself."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis import logs as engine_logs
from analysis import machine, store
from analysis.engines.binary import ServerBinary
from analysis.engines.flags import arguments
from analysis.engines.llama_server import Counters, LlamaServer
from analysis.errors import EngineError
from analysis.lossless import Prefixes
from analysis.prompts import Encoded
from analysis.records import Launch, Sample
from analysis.spec import PREFIX_ARM, SweepSpec
from analysis.speculation import MIN_TOKENS_FOR_SPEED

# Fixed beside the temperature, so that builds with other defaults sample alike.
SAMPLING = {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.0}
NO_COUNTERS = Counters(None, None, None, None)


WARM_UP_MS = 1000.0  # a small model answers one request before clocks and caches have settled


@dataclass(frozen=True)
class Bench:
    """What all launches of a run share."""

    spec: SweepSpec
    binary: ServerBinary
    model: Path
    encoded: tuple[Encoded, ...]
    run: str
    logs: Path

    def server(self, depth: int, name: str) -> LlamaServer:
        """Return a server at a depth, not started yet, with its log under this name."""
        return LlamaServer(
            self.binary,
            lambda port: arguments(self.binary, self.spec, depth, self.model, port),
            self.logs / f"{name}.log",
        )


@dataclass(frozen=True)
class PlannedLaunch:
    """One launch of the plan; `order` is its place within the run."""

    round: int
    order: int
    depth: int


@dataclass(frozen=True)
class Request:
    """One request of a launch."""

    encoded: Encoded
    temperature: float
    n_predict: int
    arm: str
    warm_up: bool = False


def requests(bench: Bench, round_number: int, prefixes: Prefixes) -> list[Request]:
    """Return the requests of a launch in order, the warm-up first, then the timed ones.

    In the first round each workload's first prompts are also decoded greedily, for the comparison
    of texts between depths. In later rounds prompts whose timed texts were seen to part are also
    decoded over the tokens that all depths share; long prompts are not, since their prompt pass
    would double the run.
    """
    spec = bench.spec

    def make(e: Encoded, **more: Any) -> Request:
        return replace(Request(e, spec.temperature, spec.n_predict, spec.arm), **more)

    wanted = [make(min(bench.encoded, key=lambda e: len(e.tokens)), warm_up=True)]
    wanted += [make(e) for e in bench.encoded]
    if round_number == 0 and spec.temperature > 0:
        for workload in spec.workloads:
            own = [e for e in bench.encoded if e.prompt.workload == workload]
            wanted += [make(e, temperature=0.0) for e in own[: spec.lossless_prompts]]
    for e in bench.encoded:
        shared = prefixes.get((e.prompt.workload, e.prompt.prompt_id), 0)
        if shared > MIN_TOKENS_FOR_SPEED and e.prompt.workload != "long":
            wanted.append(make(e, n_predict=shared, arm=PREFIX_ARM))
    return wanted


def measure_launch(
    bench: Bench,
    planned: PlannedLaunch,
    writer: store.Writer,
    done: set[tuple[Any, ...]],
    prefixes: Prefixes,
    attempt: int = 0,
) -> None:
    """Start a server, make the requests that are not done yet, stop it; record everything.

    A request that fails is recorded with its error, and so is a server that does not start; the
    sweep then goes on with its next launch.
    """
    name = f"r{planned.round}-d{planned.depth}-{attempt}-{planned.order}"
    blank = _blank(bench, name, planned)
    wanted = [
        r
        for r in requests(bench, planned.round, prefixes)
        if r.warm_up or store.sample_key(_for_request(blank, r, 0)) not in done
    ]
    if all(r.warm_up for r in wanted):
        return
    server = bench.server(planned.depth, name)
    launched, counters, share = machine.utc_now(), NO_COUNTERS, 0.0
    try:
        with server:
            whole = machine.Company(server.pid)
            placed = engine_logs.placement(server.log.read_text(errors="replace"))
            blank = replace(blank, layers_on_device=placed["layers_on_device"])
            _ask_all(bench, server, blank, wanted, writer)
            counters, share = server.counters(), whole.share()
    except EngineError as error:
        if not server.load_ms:  # a server that never started has no request of its own
            failed = _for_request(blank, wanted[0], 0)
            writer.add(replace(failed, error=str(error), stop="error"))
    finally:
        writer.add(_launch(server, planned, blank, launched, counters, share))


def _ask_all(
    bench: Bench, server: LlamaServer, blank: Sample, wanted: list[Request], writer: store.Writer
) -> None:
    """Make all requests; ends early when the server has died."""
    company = machine.Company(server.pid)
    for place, group in enumerate(_groups(wanted, bench.spec.busy_slots)):
        began = time.monotonic()
        while True:
            for sample in _ask(bench, server, blank, group, place, company):
                writer.add(sample)
            if not server.alive():
                return
            if not group[0].warm_up or (time.monotonic() - began) * 1e3 > WARM_UP_MS:
                break


def _launch(
    server: LlamaServer,
    planned: PlannedLaunch,
    blank: Sample,
    launched: str,
    counters: Counters,
    share: float,
) -> Launch:
    log = server.log.read_text(errors="replace") if server.log.is_file() else ""
    return Launch(
        launch=blank.launch,
        round=planned.round,
        order=planned.order,
        depth=planned.depth,
        arm=blank.arm,
        command=without_paths(server.command),
        load_ms=round(server.load_ms, 1),
        counters=vars(counters),
        placement=engine_logs.placement(log),
        peak_rss_mib=server.peak_rss_mib,
        others_cpu=share,
        exit_code=server.exit_code,
        stopped_by=server.stopped_by,
        started=launched,
    )


def _groups(wanted: list[Request], size: int) -> list[list[Request]]:
    """Split requests into groups that run at once; the warm-up stands alone."""
    timed = [r for r in wanted if not r.warm_up]
    warm_up = [[r] for r in wanted if r.warm_up]
    return warm_up + [timed[i : i + size] for i in range(0, len(timed), size)]


def _ask(
    bench: Bench,
    server: LlamaServer,
    blank: Sample,
    group: list[Request],
    place: int,
    company: machine.Company,
) -> list[Sample]:
    """Make the requests of a group at once; counters are of one request only when it is alone."""
    begun = [_for_request(blank, request, place) for request in group]
    clock, load, device = machine.clock_mhz(), machine.load_per_core(), machine.device_memory_mib()
    before = server.counters()
    counted = NO_COUNTERS
    with ThreadPoolExecutor(len(group)) as pool:
        answers = list(pool.map(lambda r: _complete(bench.spec, server, r), group))
    if len(group) == 1 and server.alive():
        counted = server.counters().since(before)
    around = {
        "clock_before_mhz": clock,
        "clock_after_mhz": machine.clock_mhz(),
        "load_before": load,
        "load_after": machine.load_per_core(),
        "others_cpu": company.share(),
        "peak_device_mib": machine.device_memory_mib() if device is not None else None,
    }
    samples = []
    for sample, (answer, client_ms, started) in zip(begun, answers, strict=True):
        filled = _filled(sample, answer, counted) if isinstance(answer, dict) else sample
        error = None if isinstance(answer, dict) else str(answer)
        samples.append(
            replace(
                filled,
                client_ms=client_ms,
                started=started,
                error=error,
                stop="error" if error else filled.stop,
                **around,  # type: ignore[arg-type]
            )
        )
    return samples


def _complete(
    spec: SweepSpec, server: LlamaServer, request: Request
) -> tuple[dict[str, Any] | EngineError, float, str]:
    started, began = machine.utc_now(), time.perf_counter()
    try:
        answer: dict[str, Any] | EngineError = server.complete(
            request.encoded.tokens,
            n_predict=request.n_predict,
            temperature=request.temperature,
            seed=spec.seed,
            **SAMPLING,
        )
    except EngineError as error:
        answer = error
    return answer, round((time.perf_counter() - began) * 1e3, 3), started


def _filled(sample: Sample, answer: dict[str, Any], counted: Counters) -> Sample:
    """Fill a sample from the server's own answer and counters."""
    timings = answer["timings"]
    predicted_n = int(timings["predicted_n"])
    accepted = timings.get("draft_n_accepted")
    stops = {"limit": "limit", "eos": "eos", "word": "word"}
    return replace(
        sample,
        prompt_n=int(timings["prompt_n"]),
        prompt_ms=float(timings["prompt_ms"]),
        predicted_n=predicted_n,
        predicted_ms=float(timings["predicted_ms"]),
        draft_n=timings.get("draft_n"),
        draft_n_accepted=accepted,
        drafts=counted.drafts,
        accepted_per_position=counted.per_position if sample.depth else None,
        steps=predicted_n - 1 - (accepted or 0),
        tokens=tuple(answer.get("tokens", ())),
        stop=stops.get(str(answer.get("stop_type", "limit")), "limit"),
    )


def _blank(bench: Bench, launch: str, planned: PlannedLaunch) -> Sample:
    spec, depth = bench.spec, planned.depth
    drafter = spec.drafter if depth else "none"
    return Sample(
        run=bench.run, launch=launch, round=planned.round, order=0, arm=spec.arm, drafter=drafter,
        depth=depth, workload="", prompt_id="", seed=spec.seed, temperature=spec.temperature,
        warm_up=False, prompt_n=0, prompt_ms=0.0, predicted_n=0, predicted_ms=0.0, draft_n=None,
        draft_n_accepted=None, drafts=None, accepted_per_position=None, steps=0, tokens=(),
        stop="limit", client_ms=0.0, layers_on_device=None, peak_device_mib=None,
        clock_before_mhz=None, clock_after_mhz=None, load_before=0.0, load_after=0.0,
        others_cpu=0.0, started=machine.utc_now(),
    )  # fmt: skip


def _for_request(blank: Sample, request: Request, place: int) -> Sample:
    return replace(
        blank,
        order=place,
        arm=request.arm,
        workload=request.encoded.prompt.workload,
        prompt_id=request.encoded.prompt.prompt_id,
        temperature=request.temperature,
        warm_up=request.warm_up,
    )


def without_paths(command: tuple[str, ...]) -> str:
    """Return a command line in which every path is its last part, and the port is PORT."""
    words = [word.replace("\\", "/").rsplit("/", 1)[-1] for word in command]
    if "--port" in words:
        words[words.index("--port") + 1] = "PORT"
    return " ".join(words)
