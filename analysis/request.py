"""The requests of a launch: which there are, in what groups they run, and what each gives."""

from __future__ import annotations

import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from analysis import machine
from analysis.engines.process import NO_COUNTERS, Counters, Engine
from analysis.errors import EngineError
from analysis.lossless import Prefixes
from analysis.plausible import impossible, is_number
from analysis.prompts import Encoded
from analysis.records import Sample, Step
from analysis.spec import PREFIX_ARM, SAMPLING, SweepSpec
from analysis.speculation import MIN_TOKENS_FOR_SPEED
from analysis.steps import Traced


@dataclass(frozen=True)
class Request:
    """One request of a launch."""

    encoded: Encoded
    temperature: float
    n_predict: int
    arm: str
    warm_up: bool = False

    @property
    def kind(self) -> tuple[str, str, float, bool]:
        """Requests of one kind may run side by side."""
        return self.encoded.prompt.workload, self.arm, self.temperature, self.warm_up

    def begin(self, blank: Sample, place: int) -> Sample:
        """Return a launch's blank sample, filled with what this request asks for."""
        return replace(
            blank,
            order=place,
            arm=self.arm,
            workload=self.encoded.prompt.workload,
            prompt_id=self.encoded.prompt.prompt_id,
            temperature=self.temperature,
            n_predict=self.n_predict,
            warm_up=self.warm_up,
        )


def requests(
    spec: SweepSpec, encoded: tuple[Encoded, ...], round_number: int, prefixes: Prefixes
) -> list[Request]:
    """Return the requests of a launch in order, the warm-up first, then the timed ones.

    In the first round each workload's first prompts are also decoded greedily, for the comparison
    of texts between depths. In later rounds prompts whose timed texts were seen to part are also
    decoded over the tokens that all depths share; long prompts are not, since their prompt pass
    would double the run.
    """

    def make(e: Encoded, **more: Any) -> Request:
        return replace(Request(e, spec.temperature, spec.n_predict, spec.arm), **more)

    wanted = [make(min(encoded, key=lambda e: len(e.tokens)), warm_up=True)]
    wanted += [make(e) for e in encoded]
    if round_number == 0 and spec.temperature > 0:
        for workload in spec.workloads:
            own = [e for e in encoded if e.prompt.workload == workload]
            wanted += [make(e, temperature=0.0) for e in own[: spec.lossless_prompts]]
    for e in encoded:
        shared = prefixes.get((e.prompt.workload, e.prompt.prompt_id), 0)
        if shared > MIN_TOKENS_FOR_SPEED and e.prompt.workload != "long":
            wanted.append(make(e, n_predict=shared, arm=PREFIX_ARM))
    return wanted


def groups(wanted: list[Request], busy_slots: int) -> list[list[Request]]:
    """Split the requests of a launch into groups that run at once, each of one kind and full.

    The last group of a kind is filled up with that kind's first requests, so that every request
    has the same company in every round; the surplus answers are not stored.
    """
    found = []
    for _, same in groupby(wanted, key=lambda r: r.kind):
        own = list(same)
        size = 1 if own[0].warm_up else busy_slots
        for start in range(0, len(own), size):
            part = own[start : start + size]
            found.append(part + [own[i % len(own)] for i in range(size - len(part))])
    return found


def ask(
    spec: SweepSpec,
    engine: Engine,
    blank: Sample,
    group: list[Request],
    place: int,
    company: machine.Company,
) -> list[tuple[Sample, Traced | None]]:
    """Make the requests of a group at once and return a sample for each, in order, and its steps.

    Only the tracer gives steps. The drafting counters are of one request only when it is alone. A
    request that fails gives a sample with its error.
    """
    clock, load = machine.clock_mhz(), machine.load_per_core()
    before = _counters(engine)
    seeds = [_seed(spec, request, blank.round) for request in group]
    with ThreadPoolExecutor(len(group)) as pool:
        try:
            answers = list(pool.map(lambda r, s: _complete(engine, r, s), group, seeds))
        except BaseException:
            engine.stop(patience_s=1.0)  # an interrupt must not wait for the running requests
            raise
    counted = _counters(engine).since(before) if len(group) == 1 else NO_COUNTERS
    around: dict[str, Any] = {
        "clock_before_mhz": clock,
        "clock_after_mhz": machine.clock_mhz(),
        "load_before": load,
        "load_after": machine.load_per_core(),
        "others_cpu": company.share(),
        "peak_device_mib": machine.device_memory_mib(),
    }
    samples: list[tuple[Sample, Traced | None]] = []
    for request, seed, (answer, client_ms, started) in zip(group, seeds, answers, strict=True):
        sample = replace(
            request.begin(blank, place), seed=seed, client_ms=client_ms, started=started, **around
        )
        try:
            if isinstance(answer, EngineError):
                raise answer
            samples.append((_filled(sample, answer, counted), _traced(answer)))
        except EngineError as error:
            samples.append((replace(sample, error=str(error), stop="error"), None))
    return samples


def _counters(engine: Engine) -> Counters:
    """Return the counters, or none where they can not be had: an answer must not be lost."""
    try:
        return engine.counters()
    except EngineError:
        return NO_COUNTERS


def _seed(spec: SweepSpec, request: Request, round_number: int) -> int:
    """Return the seed of a request: the spec's, the same for all, where the text decides.

    The warm-up has another: it decodes a prompt that is timed later, and ``ngram-mod`` would know
    that text by heart.

    The server draws acceptance that is given from the request's own seed. With one seed for all,
    every prompt of every round would have the same luck, and no interval would show it.
    """
    if not spec.synthetic_rates:
        return spec.seed + request.warm_up
    own = f"{spec.seed}/{request.encoded.key}/{round_number}"
    return zlib.crc32(own.encode()) >> 1


def _complete(
    engine: Engine, request: Request, seed: int
) -> tuple[dict[str, Any] | EngineError, float, str]:
    started, began = machine.utc_now(), time.perf_counter()
    try:
        answer: dict[str, Any] | EngineError = engine.complete(
            request.encoded.tokens,
            n_predict=request.n_predict,
            temperature=request.temperature,
            seed=seed,
            **SAMPLING,
        )
    except EngineError as error:
        answer = error
    return answer, round((time.perf_counter() - began) * 1e3, 3), started


def _traced(answer: dict[str, Any]) -> Traced | None:
    if "steps" not in answer:
        return None
    steps = tuple(Step.from_json(values) for values in answer["steps"])
    return Traced(steps, {int(k): str(v) for k, v in answer["pieces"].items()})


_COUNTED = ("predicted_n", "predicted_ms", "draft_n", "draft_n_accepted")


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the timings of an answer.

    Raises
    ------
    EngineError
        If a number is missing or impossible: no speed can be made of such an answer.
    """
    given = answer.get("timings")
    timings: dict[str, Any] = given if isinstance(given, dict) else {}
    counts = {n: timings.get(n) for n in ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms")}
    counts |= {n: timings.get(n) or 0 for n in ("draft_n", "draft_n_accepted")}
    wrong = [f"{name} is {value!r}" for name, value in counts.items() if not is_number(value)]
    if not isinstance(answer.get("tokens", []), list):
        wrong.append("its tokens are no list")
    if not wrong:
        wrong = list(impossible(*(counts[n] for n in _COUNTED)))
    if wrong:
        raise EngineError(
            "the engine's answer is impossible", "; ".join(wrong), "use another build of it"
        )
    return timings


def _filled(sample: Sample, answer: dict[str, Any], counted: Counters) -> Sample:
    """Fill a sample from the engine's own answer and counters."""
    timings = checked(answer)
    predicted_n = int(timings["predicted_n"])
    accepted = timings.get("draft_n_accepted")
    stop = str(answer.get("stop_type", "limit"))
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
        stop=stop if stop in ("limit", "eos", "word") else "limit",
    )
