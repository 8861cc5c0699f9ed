"""A device that is emulated: llama.cpp's RPC server on loopback, computing on this processor.

llama-server lists it as one device with this machine's memory and lays models out for it as for a
graphics card. It shows where things lie and that they move. It says nothing of any card's speed.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from analysis.engines.binary import environment, find
from analysis.engines.process import Child
from analysis.errors import EngineError

PROGRAM = "ggml-rpc-server"


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class EmulatedDevice(Child):
    """One process of the RPC server; `endpoint` is what ``--rpc`` takes."""

    name = "the emulated device"

    def __init__(self, log: Path, threads: int = 1, start_timeout_s: float = 30.0) -> None:
        super().__init__(log)
        self.threads, self.start_timeout_s = threads, start_timeout_s
        self.endpoint = ""

    def _start(self) -> None:
        program, port = find(program=PROGRAM), free_port()
        self.spawn(
            (str(program), "-H", "127.0.0.1", "-p", str(port), "-t", str(self.threads)),
            # The planner clears whole states; in small pages that takes several times as long.
            environment() | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
        )
        deadline = time.monotonic() + self.start_timeout_s
        while time.monotonic() < deadline:
            self.check_alive("starting")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            except OSError:
                time.sleep(0.02)
                continue
            self.endpoint = f"127.0.0.1:{port}"
            return
        raise EngineError(
            f"{self.name} was not ready in {self.start_timeout_s:.0f} s",
            self.log_tail(),
            "stop other work and ask again",
        )
