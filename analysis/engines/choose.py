"""Which engine a spec asks for, and how one process of it is made."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from analysis.engines import binary, tracer_process
from analysis.engines.binary import ServerBinary
from analysis.engines.emulated import EmulatedDevice
from analysis.engines.flags import arguments
from analysis.engines.llama_server import LlamaServer
from analysis.engines.process import Engine
from analysis.engines.tracer_process import TracerEngine
from analysis.errors import EngineError
from analysis.spec import SweepSpec


class Build(Protocol):
    """What an engine says of itself."""

    @property
    def version(self) -> str:
        """The text of its version."""

    @property
    def build(self) -> int | None:
        """The number of its release, where it has one."""

    @property
    def commit(self) -> str | None:
        """The commit of llama.cpp."""

    @property
    def flags(self) -> frozenset[str]:
        """The flags that it knows."""

    @property
    def fingerprint(self) -> str:
        """A checksum of its programs and libraries."""

    def warnings(self) -> list[str]:
        """Return what is known to be wrong with it."""


def probe(spec: SweepSpec) -> Build:
    """Return the engine of a spec, or raise :class:`EngineError` where it is not there."""
    build: Build = tracer_process.probe() if spec.engine == "tracer" else binary.probe(spec.server)
    for warning in build.warnings():
        if "can not start" in warning and spec.drafter == "mtp":
            raise EngineError("this llama-server can not draft", warning, "use another build")
    return build


def make(build: Build, spec: SweepSpec, depth: int, model: Path, log: Path) -> Engine:
    """Return an engine at a depth, not started yet."""
    if isinstance(build, ServerBinary):
        device = EmulatedDevice(log.with_suffix(".device.log")) if spec.device else None
        return LlamaServer(
            build, lambda port: arguments(build, spec, depth, model, port), log, device=device
        )
    return TracerEngine(spec, depth, model, log)
