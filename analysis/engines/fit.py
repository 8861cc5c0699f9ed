"""Asking llama-server how it would lay a model out: its own ``--fit`` planner, nothing loaded.

The server is started as it would be for real, its log is read until the planner is done, and it is
ended before it loads the weights. The planner measures the target's context and, where something is
drafted, the MTP context beside it (llama.cpp 0c1e570, ``common/fit.cpp``).
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

from analysis import logs
from analysis.engines.binary import ServerBinary, environment
from analysis.engines.emulated import EmulatedDevice, free_port
from analysis.engines.flags import arguments
from analysis.engines.process import Child
from analysis.errors import EngineError
from analysis.spec import SweepSpec

TIMEOUT_S = 120.0
_DONE = re.compile(r"fitting params to free memory took")
_USED = re.compile(
    r"projected to use (\d+) MiB of device memory vs\. (\d+) MiB of free device memory"
)
_NO_DEVICE = re.compile(r"projected to use \d+ MiB of host memory")
_ROW = re.compile(
    r"\|\s+-\s+(?P<name>.+?)\s+\|\s*(?:\d+ = \s*\d+ \+ )?\(?\s*\d+ =\s*(?P<model>\d+) \+\s*"
    r"(?P<context>\d+) \+\s*(?P<compute>\d+)"
)
_LAYERS = re.compile(
    r"- (?P<device>\S+) \([^|]*?\)\s*:\s*(?P<layers>\d+) layers"
    r"(?: \(\s*(?P<partly>\d+) overflowing\))?, +(?P<used>\d+) MiB used"
)
_UNCHANGED = re.compile(r"no changes needed")
_FAILED = re.compile(r"(?:failed to fit params|encountered an error while trying to fit)[^\n]*")


@dataclass(frozen=True)
class Laid:
    """How the engine would lay a model out; MiB over all devices, host memory left out."""

    depth: int
    free_mib: int
    budget_mib: int | None  # of the free memory; None where only the projection was asked for
    projected_mib: int  # with every layer on a device
    model_mib: int  # of these: the weights,
    context_mib: int  # states and KV caches of target and MTP block,
    compute_mib: int  # and the buffers of the computation, of both contexts
    layers_on_device: int | None  # None: all, nothing had to move
    layers_partly: int  # of these, with their experts elsewhere, as the planner counts
    said: str  # why it did not fit the model, where it did not


class _Planner(Child):
    """A llama-server that is ended as soon as its planner is done."""

    name = "llama-server"

    def __init__(
        self,
        binary: ServerBinary,
        words: list[str],
        log: Path,
        until: re.Pattern[str],
        stop: Event | None,
    ) -> None:
        super().__init__(log)
        self.words, self.binary, self.until, self.stopped = words, binary, until, stop

    def _start(self) -> None:
        self.spawn((str(self.binary.path), *self.words), environment())
        deadline = time.monotonic() + TIMEOUT_S
        while not self.until.search(self.log.read_text(errors="replace")):
            self.check_alive("planning")
            if self.stopped is not None and self.stopped.is_set():
                raise EngineError("the planner was stopped", "an interrupt", "ask again")
            if time.monotonic() > deadline:
                raise EngineError(
                    f"the planner was not done in {TIMEOUT_S:.0f} s", self.log_tail(2), ""
                )
            time.sleep(0.02)


def project(
    binary: ServerBinary,
    spec: SweepSpec,
    depth: int,
    model: Path,
    log: Path,
    stop: Event | None = None,
) -> Laid:
    """Return what the engine would need at a depth with every layer on a device.

    Once `stop` is set, which another thread may do, the question ends with an error.

    Raises
    ------
    EngineError
        If the engine has no device, can not plan, or says nothing that can be read.
    """
    until = re.compile(rf"{_USED.pattern}|{_DONE.pattern}|{_NO_DEVICE.pattern}")
    text = _text(binary, replace(spec, fit_target_mib=0), depth, model, log, until, stop)
    return replace(read(text, depth, leave_free_mib=0), budget_mib=None, layers_on_device=None)


def lay_out(
    binary: ServerBinary,
    spec: SweepSpec,
    depth: int,
    model: Path,
    log: Path,
    leave_free_mib: int,
    stop: Event | None = None,
) -> Laid:
    """Return where the engine would put the layers at a depth, with this much memory left free.

    Raises
    ------
    EngineError
        As :func:`project` does.
    """
    spec = replace(spec, fit_target_mib=leave_free_mib)
    return read(_text(binary, spec, depth, model, log, _DONE, stop), depth, leave_free_mib)


def _text(
    binary: ServerBinary,
    spec: SweepSpec,
    depth: int,
    model: Path,
    log: Path,
    until: re.Pattern[str],
    stop: Event | None,
) -> str:
    words = arguments(binary, spec, depth, model, port=free_port())
    with ExitStack() as stack:
        if spec.device:
            # A device of its own for each question: it may die with a client that is ended.
            device = stack.enter_context(EmulatedDevice(log.with_suffix(".device.log")))
            words += ["--rpc", device.endpoint]
        planner = stack.enter_context(_Planner(binary, words, log, until, stop))
        return planner.log.read_text(errors="replace")


def read(text: str, depth: int, leave_free_mib: int = 0) -> Laid:
    """Read the planner's lines of a log."""
    lines = [logs.plain(line)[0] for line in text.splitlines()]
    end = next((i for i, line in enumerate(lines) if _DONE.search(line)), len(lines))
    lines = lines[:end]
    at, used = next(
        ((i, m) for i, line in enumerate(lines) if (m := _USED.search(line))), (0, None)
    )
    if used is None:
        none = any(_NO_DEVICE.search(line) for line in lines)
        raise EngineError(
            "the engine's planner says nothing of a device",
            "no device" if none else " | ".join(lines[-3:]),
            "plan by the closed form (--closed-form)",
        )
    parts = {"model": 0, "context": 0, "compute": 0}
    seen_model: set[str] = set()
    for line in lines[:at]:
        if (row := _ROW.search(line)) and row["name"] != "Host":
            # The MTP context's rows come second and run on the same weights.
            if row["name"] not in seen_model:
                parts["model"] += int(row["model"])
                seen_model.add(row["name"])
            parts["context"] += int(row["context"])
            parts["compute"] += int(row["compute"])
    on = [m for line in lines if (m := _LAYERS.search(line))]
    failed = next((m[0] for line in lines if (m := _FAILED.search(line))), "")
    unchanged = any(_UNCHANGED.search(line) for line in lines)
    last = {m["device"]: m for m in on}
    return Laid(
        depth=depth,
        free_mib=int(used[2]),
        budget_mib=int(used[2]) - leave_free_mib,
        projected_mib=int(used[1]),
        model_mib=parts["model"],
        context_mib=parts["context"],
        compute_mib=parts["compute"],
        layers_on_device=None
        if unchanged or not last
        else sum(int(m["layers"]) for m in last.values()),
        layers_partly=sum(int(m["partly"] or 0) for m in last.values()),
        said=failed,
    )
