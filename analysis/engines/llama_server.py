"""One llama-server process: started, waited for, asked, stopped. Nothing is left running."""

from __future__ import annotations

import ctypes
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from analysis.engines.binary import ServerBinary, environment
from analysis.errors import EngineError

_COUNTERS = {
    "drafts": "spec_decode_num_drafts_total",
    "draft_n": "spec_decode_num_draft_tokens_total",
    "draft_n_accepted": "spec_decode_num_accepted_tokens_total",
}
_PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"
Arguments = Callable[[int], list[str]]


@dataclass(frozen=True)
class Counters:
    """The drafting counters of a server's life; None where the build has no such counter.

    With no draft verified yet the server prints no position: `per_position` is then empty.
    """

    drafts: int | None
    draft_n: int | None
    draft_n_accepted: int | None
    per_position: tuple[int, ...] | None

    def since(self, earlier: Counters) -> Counters:
        """Return the difference to an earlier reading of the same server."""

        def less(a: int | None, b: int | None) -> int | None:
            return None if a is None or b is None else a - b

        now, then = self.per_position, earlier.per_position
        positions = None
        if now is not None and then is not None:
            then = then + (0,) * (len(now) - len(then))
            positions = tuple(a - b for a, b in zip(now, then, strict=True))
        return Counters(
            less(self.drafts, earlier.drafts),
            less(self.draft_n, earlier.draft_n),
            less(self.draft_n_accepted, earlier.draft_n_accepted),
            positions,
        )


NO_COUNTERS = Counters(None, None, None, None)


def parse_metrics(text: str) -> Counters:
    """Read the counters from the Prometheus text of ``/metrics``."""
    plain: dict[str, int] = {}
    positions: dict[int, int] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        name, _, value = line.rpartition(" ")
        name = name.removeprefix("llamacpp:")
        if name.startswith(_PER_POSITION + "{"):
            positions[int(name.split('position="')[1].split('"')[0])] = int(float(value))
        elif name in _COUNTERS.values():
            plain[name] = int(float(value))
    counted = {field: plain.get(name) for field, name in _COUNTERS.items()}
    return Counters(
        per_position=None
        if counted["drafts"] is None
        else tuple(positions.get(i, 0) for i in range(max(positions, default=-1) + 1)),
        **counted,
    )


@dataclass
class LlamaServer:
    """A context manager around one process; `arguments` gets the port and gives the flags.

    Raises
    ------
    EngineError
        From ``start`` if the process dies or is not healthy in time (with the last lines of its
        log), from requests if the server dies, answers with an error or not in time.
    """

    binary: ServerBinary
    arguments: Arguments
    log: Path
    start_timeout_s: float = 600.0
    request_timeout_s: float = 3600.0
    load_ms: float = 0.0
    command: tuple[str, ...] = ()
    stopped_by: str = ""
    exit_code: int | None = None

    def __post_init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._client: httpx.Client | None = None
        self.peak_rss_mib: float | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise EngineError("the server is not running", "not started", "call start() first")
        return self._process.pid

    def start(self) -> None:
        """Start the process and wait until it can answer."""
        port = _free_port()
        key = secrets.token_urlsafe(24)
        self.command = (str(self.binary.path), *self.arguments(port))
        self.log.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with self.log.open("wb") as sink:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                # The key goes by the environment, since everybody can read a command line.
                env=environment() | {"LLAMA_API_KEY": key},
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform.startswith("linux") else None,
            )
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(self.request_timeout_s, connect=10.0),
            trust_env=False,  # a proxy is no way to loopback
        )
        try:
            self._wait(began + self.start_timeout_s)
        except BaseException:
            self.stop()
            raise
        self.load_ms = (time.monotonic() - began) * 1e3

    def _wait(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            self._check_alive("starting")
            try:
                if self._http.get("/health", timeout=5.0).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise EngineError(
            f"llama-server was not ready within {self.start_timeout_s:.0f} s",
            self.log_tail(),
            "give it more time, or a smaller context",
        )

    @property
    def _http(self) -> httpx.Client:
        if self._client is None:
            raise EngineError("the server is not running", "not started", "call start() first")
        return self._client

    def alive(self) -> bool:
        """Tell whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def _check_alive(self, doing: str) -> None:
        code = None if self._process is None else self._process.poll()
        if code is not None:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
            raise EngineError(
                f"llama-server ended while {doing}, with {how}",
                self.log_tail(),
                f"read its log, {self.log.name}, beside the samples",
            )

    def log_tail(self, lines: int = 6) -> str:
        """Return the last lines of the log, joined by bars."""
        text = self.log.read_text(errors="replace") if self.log.is_file() else ""
        return " | ".join(text.strip().splitlines()[-lines:]) or "an empty log"

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return its answer."""
        try:
            answer = self._http.post(path, json=body)
        except httpx.TimeoutException:
            raise EngineError(
                f"llama-server did not answer {path} in {self.request_timeout_s:.0f} s",
                self.log_tail(2),
                "ask for fewer tokens or raise the time-out",
            ) from None
        except httpx.TransportError as error:
            self._died(f"answering {path}")
            raise EngineError(
                f"the connection to llama-server broke at {path}", str(error), "run it again"
            ) from None
        if answer.status_code != 200:
            raise EngineError(
                f"llama-server refused {path} with status {answer.status_code}",
                answer.text[:300],
                "check the prompt's length against the context",
            )
        result = answer.json()
        if not isinstance(result, dict):
            raise EngineError(f"llama-server answered {path} oddly", repr(result)[:200])
        return result

    def _died(self, doing: str) -> None:
        """Raise with the exit signal if the process ends within a moment."""
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            self._check_alive(doing)
            time.sleep(0.02)

    def complete(self, tokens: Sequence[int], **settings: Any) -> dict[str, Any]:
        """Decode after a prompt of token ids; returns the server's whole answer."""
        return self.ask(
            "/completion",
            {
                "prompt": list(tokens),
                "cache_prompt": False,
                "return_tokens": True,
                "stream": False,
                **settings,
            },
        )

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Return the token ids of a text; `special` reads control tokens in it."""
        body = {"content": text, "add_special": special, "parse_special": special}
        return [int(t) for t in self.ask("/tokenize", body)["tokens"]]

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids."""
        return str(self.ask("/detokenize", {"tokens": list(tokens)})["content"])

    def chat_prompt(self, message: str) -> str:
        """Return a user message in the form of the model's own chat template."""
        body = {"messages": [{"role": "user", "content": message}]}
        return str(self.ask("/apply-template", body)["prompt"])

    def counters(self) -> Counters:
        """Read the drafting counters; all None where the build or its flags give none."""
        try:
            answer = self._http.get("/metrics")
        except httpx.TransportError as error:
            self._died("being asked for its counters")
            raise EngineError(
                "llama-server gives no counters", str(error), "run it again"
            ) from None
        if answer.status_code != 200:
            return NO_COUNTERS
        return parse_metrics(answer.text)

    def stop(self, patience_s: float = 15.0) -> None:
        """Terminate, then kill; returns when the process is gone. Safe to call twice."""
        process, self._process = self._process, None
        client, self._client = self._client, None
        try:
            if process is not None:
                self._end(process, patience_s)
        finally:
            if client is not None:
                client.close()

    def _end(self, process: subprocess.Popen[bytes], patience_s: float) -> None:
        if process.poll() is not None:
            self.stopped_by = "died"
        else:
            self.peak_rss_mib = _peak_rss_mib(process.pid)
            process.terminate()
            self.stopped_by = "terminate"
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                process.kill()
                self.stopped_by = "kill"
        self.exit_code = process.wait()


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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _die_with_parent() -> None:
    """Ask Linux to end the child when this process is killed, so that no server is left."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
