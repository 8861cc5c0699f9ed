"""A child process that runs an engine: started, watched, stopped. Nothing is left running."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from analysis.errors import EngineError
from analysis.paths import without_folders


@dataclass(frozen=True)
class Counters:
    """The drafting counters of an engine's life; None where it has no such counter.

    With no draft verified yet an engine names no position: `per_position` is then empty.
    """

    drafts: int | None
    draft_n: int | None
    draft_n_accepted: int | None
    per_position: tuple[int, ...] | None

    def since(self, earlier: Counters) -> Counters:
        """Return the difference to an earlier reading of the same process.

        A counter that has fallen counts nothing: it is None.
        """

        def less(a: int | None, b: int | None) -> int | None:
            return None if a is None or b is None or a < b else a - b

        now, then = self.per_position, earlier.per_position
        positions = None
        if now is not None and then is not None:
            length = max(len(now), len(then))
            now, then = (t + (0,) * (length - len(t)) for t in (now, then))
            positions = tuple(a - b for a, b in zip(now, then, strict=True))
            positions = None if min(positions, default=0) < 0 else positions
        return Counters(
            less(self.drafts, earlier.drafts),
            less(self.draft_n, earlier.draft_n),
            less(self.draft_n_accepted, earlier.draft_n_accepted),
            positions,
        )


# A program that aborts may let a debugger write a long trace behind what it said itself.
_DEBUGGER = re.compile(r"#\d+ |\[(?:New |Thread |Inferior )|\d+\t|0x[0-9a-f]+ in |warning: ")
_NO_MEMORY = re.compile(r"insufficient memory|out of memory|bad_alloc|llocate memory|o allocate")
NO_COUNTERS = Counters(None, None, None, None)


class Child(ABC):
    """A context manager around one process; its output goes to `log`.

    Raises
    ------
    EngineError
        If the process dies (with its exit code or signal, and the last lines of its log).
    """

    name: str  # as errors call it

    def __init__(self, log: Path) -> None:
        self.log = log
        self.load_ms = 0.0
        self.command: tuple[str, ...] = ()
        self.stopped_by = ""
        self.exit_code: int | None = None
        self.peak_rss_mib: float | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _start(self) -> None:
        """Start the process and wait until it can answer."""

    def start(self) -> None:
        """Start the process and wait until it can answer; a failed start leaves none behind."""
        began = time.monotonic()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        self.load_ms = (time.monotonic() - began) * 1e3

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of the running engine."""
        return self.running.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of all that runs for it."""
        return (self.pid,)

    @property
    def running(self) -> subprocess.Popen[bytes]:
        """The process, or an error where there is none."""
        if self._process is None:
            raise EngineError(f"{self.name} is not running", "not started", "start it first")
        return self._process

    def spawn(
        self, command: Sequence[str], environment: Mapping[str, str], *, piped: bool = False
    ) -> None:
        """Start the process; with `piped` its input and output are pipes."""
        self.command = tuple(command)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as sink:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else sink,
                stderr=sink if piped else subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform.startswith("linux") else None,
            )

    def alive(self) -> bool:
        """Tell whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def check_alive(self, doing: str) -> None:
        """Raise with the exit code or signal where the process has ended."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
            raise EngineError(
                f"{self.name} ended while {doing}, with {how}",
                self.log_tail(),
                f"read its log, {self.log.name}, beside the samples",
            )

    def died(self, doing: str) -> None:
        """Raise with the exit code or signal if the process ends within a moment."""
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            self.check_alive(doing)
            time.sleep(0.02)

    def log_tail(self, lines: int = 6) -> str:
        """Return the last lines of the log, joined by bars; first the one that tells of memory."""
        text = self.log.read_text(errors="replace") if self.log.is_file() else ""
        said = [x for x in text.strip().splitlines() if x.strip() and not _DEBUGGER.match(x)]
        cause = [x for x in said if _NO_MEMORY.search(x)][:1]
        last = [x for x in said[-lines:] if x not in cause]
        return without_folders(" | ".join(cause + last)) or "an empty log"

    def stop(self, patience_s: float = 15.0) -> None:
        """Terminate, then kill; returns when the process is gone. Safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            if process.poll() is not None:
                self.stopped_by = "died"
            else:
                self.peak_rss_mib = _peak_rss_mib(process.pid)
                _signal(process.pid, signal.SIGTERM)
                self.stopped_by = "terminate"
                try:
                    process.wait(patience_s)
                except subprocess.TimeoutExpired:
                    _signal(process.pid, signal.SIGKILL)
                    self.stopped_by = "kill"
            self.exit_code = process.wait()
        finally:
            _end_group(process.pid)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):  # what a dead child was still to be told
                        pipe.close()


class Engine(Child):
    """A process that decodes."""

    @abstractmethod
    def complete(self, tokens: Sequence[int], **settings: Any) -> dict[str, Any]:
        """Decode after a prompt of token ids; the answer has llama-server's fields."""

    @abstractmethod
    def likeliest(self, tokens: Sequence[int], count: int) -> dict[int, float]:
        """Return the likeliest next tokens with their log probabilities, no sampler applied."""

    @abstractmethod
    def counters(self) -> Counters:
        """Read the drafting counters."""

    @abstractmethod
    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Return the token ids of a text; `special` reads control tokens in it."""

    @abstractmethod
    def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids."""

    @abstractmethod
    def chat_prompt(self, message: str) -> str:
        """Return a user message in the form of the model's own chat template."""


def _signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process and to all that it has started: it may be a wrapper script."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _end_group(pid: int, patience_s: float = 5.0) -> None:
    """Wait for what a wrapper has started, which was asked to end with it; then kill it."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            os.killpg(pid, 0)
        except (ProcessLookupError, PermissionError):
            return
        time.sleep(0.02)
    _signal(pid, signal.SIGKILL)


def _peak_rss_mib(pid: int) -> float | None:
    """Return the largest resident memory of a process so far, in MiB."""
    status = Path(f"/proc/{pid}/status")
    try:
        if status.is_file():
            line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
            return round(int(line.split()[1]) / 1024, 1)
        return round(psutil.Process(pid).memory_info().rss / 2**20, 1)
    except (OSError, StopIteration, psutil.Error):
        return None


def _die_with_parent() -> None:
    """Ask Linux to kill the child when this process is killed, so that no engine is left.

    Not SIGTERM: llama-server takes locks in its handler and can wait for ever there, most easily
    when its device dies with it, and nobody is left to kill it then.
    """
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
