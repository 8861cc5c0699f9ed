"""Asking for a plan: the closed form always, the engine's own planner wherever it can be asked."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

from analysis import memory, model, plan, shape_file, shape_models, shapes
from analysis.engines import binary, fit
from analysis.engines.binary import ServerBinary
from analysis.engines.fit import Laid
from analysis.errors import EngineError, SpecError
from analysis.plan import Pool, Row, Subject
from analysis.spec import SweepSpec

MARGIN_MIB = 1024  # device memory that llama-server leaves free by default (--fit-target)
# How far the closed form may lie from the engine: its buffers are an estimate.
CLOSE = 0.02


@dataclass(frozen=True)
class Wanted:
    """A model to plan for: a file, or a shipped shape in a quantization."""

    model: str = ""
    shape: str = ""
    quantization: str = "q4_k_m"

    def subject(self) -> Subject:
        """Return the model's numbers."""
        if bool(self.model) == bool(self.shape):
            given = "both" if self.model else "neither"
            raise SpecError(
                "name a model file or a shape", given, f"shapes: {', '.join(shapes.shapes())}"
            )
        if self.model:
            return plan.of_file(model.resolve(self.model))
        return plan.of_shape(shapes.shape(self.shape), self.quantization)

    @contextmanager
    def file(self) -> Iterator[Path]:
        """Give a file that the engine can read: the model, or the shape with a hole for weights."""
        if self.model:
            yield model.resolve(self.model)
            return
        with tempfile.TemporaryDirectory(prefix="specdepth-") as folder:
            path = Path(folder) / f"{self.shape}-{self.quantization}.gguf"
            yield shape_file.write(shapes.shape(self.shape), path, self.quantization, tokens=False)


def wanted(model: str = "", shape: str = "", quantization: str = "q4_k_m") -> Wanted:
    """Return what is to be planned for; ``shape:NAME`` as the model is the shape of that name."""
    if shape or not shape_models.named(model):
        return Wanted(model, shape, quantization)
    whole = model if model.count(":") > 1 else f"{model}:{quantization}"
    named = shape_models.parse(whole)
    return Wanted(shape=named.shape.name, quantization=named.quantization)


@dataclass(frozen=True)
class Planned:
    """The rows of a plan, and what is to be said of them."""

    rows: tuple[Row, ...]
    pool: Pool
    notes: tuple[str, ...]


def make(
    wanted: Wanted,
    pool: Pool,
    depths: tuple[int, ...],
    *,
    server: str = "",
    engine: bool = True,
) -> Planned:
    """Return a plan for each depth.

    Where `pool` names no memory (0), the device that the engine finds is planned for, less the
    margin that llama-server leaves free. With `engine` false nothing is started.

    Raises
    ------
    SpecError
        If the model can not be planned for, or no device is there to be asked for its memory.
    """
    subject = wanted.subject()
    plan.check(subject, depths)
    if not engine:
        if not pool.memory_mib:
            raise SpecError("the closed form needs the device's memory", "none", "--memory 24GiB")
        return Planned(
            tuple(plan.closed_form(subject, pool, d) for d in depths), pool, _state_note(subject)
        )
    if server:
        binary.probe(server)  # one that was named must be there
    try:
        rows, asked = _ask(wanted, subject, pool, depths, server)
    except EngineError as error:
        if not pool.memory_mib:
            raise
        rows = [plan.closed_form(subject, pool, d) for d in depths]
        note = f"the engine could not be asked. {error}"
        return Planned(tuple(rows), pool, (note, *_state_note(subject)))
    notes = [
        f"depth {r.depth}: the closed form gives {r.closed_form_total_mib:.0f} MiB, "
        f"the engine {r.total_mib:.0f}"
        for r in rows
        if abs(r.closed_form_total_mib - r.total_mib) > CLOSE * r.total_mib
    ]
    return Planned(tuple(rows), asked, (*notes, *_state_note(subject)))


def _state_note(subject: Subject) -> tuple[str, ...]:
    layout = subject.layout
    if layout.architecture in memory.ROLLED_BACK:
        return ()
    if layout.has_state:
        return (
            f"the pinned llama.cpp keeps one state a slot of {layout.architecture} at any depth: "
            "it does not roll that architecture's states back",
        )
    return (
        f"{subject.layout.architecture} keeps no recurrent state: depth costs no state, only the "
        "MTP block's own memory where it has one",
    )


def _ask(
    wanted: Wanted, subject: Subject, pool: Pool, depths: tuple[int, ...], server: str
) -> tuple[list[Row], Pool]:
    build = binary.probe(server)
    real = devices(build)
    if not real and not pool.memory_mib:
        raise EngineError(
            "this machine has no device that llama-server finds", "none", "name one: --memory 24GiB"
        )
    spec = flags_for(pool, depths, emulated=not real)
    # The planner allocates the states for real: two at once on a card might not have the room.
    workers = 1 if real else 2
    stop = Event()
    with (
        tempfile.TemporaryDirectory(prefix="specdepth-") as folder,
        wanted.file() as path,
        ThreadPoolExecutor(workers) as threads,
    ):

        def one(depth: int) -> Laid:
            log = Path(folder) / f"d{depth}.log"
            laid = fit.project(build, spec, depth, path, log, stop)
            budget = budget_of(pool, laid)
            if laid.projected_mib <= budget:
                return laid
            laid = fit.lay_out(build, spec, depth, path, log, laid.free_mib - budget, stop)
            if laid.said:
                raise EngineError("the engine's planner gave up", laid.said, "")
            return laid

        try:
            answers = list(threads.map(one, depths))
        except BaseException:
            stop.set()
            threads.shutdown(cancel_futures=True)
            raise
    asked = replace(pool, memory_mib=float(budget_of(pool, answers[0])))
    return [plan.from_engine(subject, asked, laid, emulated=not real) for laid in answers], asked


def flags_for(pool: Pool, depths: tuple[int, ...], *, emulated: bool) -> SweepSpec:
    """Return the settings of a server that is only asked how it would lay a model out."""
    return SweepSpec(
        depths=depths, context=pool.context, slots=pool.slots, kv_unified=pool.unified,
        cache_type_k=pool.cache_type_k, cache_type_v=pool.cache_type_v, workloads=("short",),
        device="emulated" if emulated else "",
    )  # fmt: skip


def budget_of(pool: Pool, laid: Laid) -> int:
    """Return the memory that may be used, or raise where the device has less of it free."""
    budget = round(pool.memory_mib) or laid.free_mib - MARGIN_MIB
    if budget > laid.free_mib:
        raise EngineError(
            "the device has less free memory than was named", f"{laid.free_mib} MiB", ""
        )
    return budget


def devices(build: ServerBinary) -> list[str]:
    """Return the devices that a llama-server finds, as it lists them."""
    if "--list-devices" not in build.flags:
        return []
    lines = binary.ask(build.path, "--list-devices").splitlines()
    start = next((i for i, line in enumerate(lines) if "Available devices" in line), len(lines))
    return [x.strip() for x in lines[start + 1 :] if ":" in x and x.startswith(" ")]
