"""One launch: a server at one depth, its warm-up, its requests, and what it said of itself."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis import logs as engine_logs
from analysis import machine, store
from analysis.engines.binary import ServerBinary
from analysis.engines.flags import arguments
from analysis.engines.llama_server import Counters, LlamaServer
from analysis.errors import EngineError
from analysis.prompts import Encoded
from analysis.records import Launch, Sample
from analysis.spec import SweepSpec

# Fixed beside the temperature, so that builds with other defaults sample alike.
SAMPLING = {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.0}
NO_COUNTERS = Counters(None, None, None, None)


@dataclass(frozen=True)
class Request:
    """One request of a launch."""

    encoded: Encoded
    temperature: float
    warm_up: bool = False


def requests(spec: SweepSpec, encoded: list[Encoded], round_number: int) -> list[Request]:
    """Return the requests of a launch in order, the warm-up first.

    In the first round each workload's first prompts are also decoded greedily, after all the
    timed ones, for the comparison of texts between depths.
    """
    timed = [Request(e, spec.temperature) for e in encoded]
    greedy = []
    if round_number == 0 and spec.temperature > 0:
        for workload in spec.workloads:
            own = [e for e in encoded if e.prompt.workload == workload]
            greedy += [Request(e, 0.0) for e in own[: spec.lossless_prompts]]
    shortest = min(encoded, key=lambda e: len(e.tokens))
    return [Request(shortest, spec.temperature, warm_up=True), *timed, *greedy]


def measure_launch(
    spec: SweepSpec,
    binary: ServerBinary,
    model: Path,
    encoded: list[Encoded],
    writer: store.Writer,
    run: str,
    logs: Path,
    *,
    round_number: int,
    order: int,
    depth: int,
    done: set[tuple[Any, ...]],
    attempt: int = 0,
) -> None:
    """Start a server, make the requests that are not done yet, stop it; record everything.

    A request that fails is recorded with its error, and so is a server that does not start; the
    sweep then goes on with its next launch.
    """
    drafter = spec.drafter if depth else "none"
    name = f"r{round_number}-d{depth}-{attempt}-{order}"
    blank = _blank(spec, run, name, round_number, depth, drafter)

    def key(request: Request) -> tuple[Any, ...]:
        return store.sample_key(_for_request(blank, request, 0))

    wanted = [r for r in requests(spec, encoded, round_number) if r.warm_up or key(r) not in done]
    if all(r.warm_up for r in wanted):
        return
    log = logs / f"{name}.log"
    server = LlamaServer(binary, lambda port: arguments(binary, spec, depth, model, port), log)
    launched = _now()
    counters = NO_COUNTERS
    company: machine.Company | None = None
    try:
        with server:
            company = machine.Company(server.pid)
            whole = machine.Company(server.pid)
            placed = engine_logs.placement(log.read_text(errors="replace"))
            blank = replace(blank, layers_on_device=placed["layers_on_device"])
            for place, group in enumerate(_groups(wanted, spec.busy_slots)):
                for sample in _ask(spec, server, blank, group, place, company):
                    writer.add(sample)
            counters = server.counters()
            share = whole.share()
    except EngineError as error:
        writer.add(replace(_for_request(blank, wanted[0], 0), error=str(error), stop="error"))
        share = 0.0
    text = log.read_text(errors="replace") if log.is_file() else ""
    writer.add(
        Launch(
            launch=name,
            round=round_number,
            order=order,
            depth=depth,
            arm=spec.arm,
            command=without_paths(server.command),
            load_ms=round(server.load_ms, 1),
            counters=vars(counters),
            placement=engine_logs.placement(text),
            peak_rss_mib=server.peak_rss_mib,
            others_cpu=share,
            exit_code=server.exit_code,
            stopped_by=server.stopped_by,
            started=launched,
        )
    )


def _groups(wanted: list[Request], size: int) -> list[list[Request]]:
    """Split requests into groups that run at once; the warm-up stands alone."""
    timed = [r for r in wanted if not r.warm_up]
    warm_up = [[r] for r in wanted if r.warm_up]
    return warm_up + [timed[i : i + size] for i in range(0, len(timed), size)]


def _ask(
    spec: SweepSpec,
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
    with ThreadPoolExecutor(len(group)) as pool:
        answers = list(pool.map(lambda r: _complete(spec, server, r), group))
    counted = server.counters().since(before) if len(group) == 1 else NO_COUNTERS
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
    started, began = _now(), time.perf_counter()
    try:
        answer: dict[str, Any] | EngineError = server.complete(
            request.encoded.tokens,
            n_predict=spec.n_predict,
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


def _blank(
    spec: SweepSpec, run: str, launch: str, round_number: int, depth: int, drafter: str
) -> Sample:
    return Sample(
        run=run, launch=launch, round=round_number, order=0, arm=spec.arm, drafter=drafter,
        depth=depth, workload="", prompt_id="", seed=spec.seed, temperature=spec.temperature,
        warm_up=False, prompt_n=0, prompt_ms=0.0, predicted_n=0, predicted_ms=0.0, draft_n=None,
        draft_n_accepted=None, drafts=None, accepted_per_position=None, steps=0, tokens=(),
        stop="limit", client_ms=0.0, layers_on_device=None, peak_device_mib=None,
        clock_before_mhz=None, clock_after_mhz=None, load_before=0.0, load_after=0.0,
        others_cpu=0.0, started=_now(),
    )  # fmt: skip


def _for_request(blank: Sample, request: Request, place: int) -> Sample:
    return replace(
        blank,
        order=place,
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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
