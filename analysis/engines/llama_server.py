"""One llama-server process: started, waited for, asked, stopped. Nothing is left running."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from analysis.engines.binary import ServerBinary, environment
from analysis.engines.emulated import EmulatedDevice, free_port
from analysis.engines.process import NO_COUNTERS, Counters, Engine
from analysis.errors import EngineError

_COUNTERS = {
    "drafts": "spec_decode_num_drafts_total",
    "draft_n": "spec_decode_num_draft_tokens_total",
    "draft_n_accepted": "spec_decode_num_accepted_tokens_total",
}
_PORT_TAKEN = re.compile(r"couldn't bind|failed to bind|address already in use", re.IGNORECASE)
PORT_TRIES = 3
_PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"
Arguments = Callable[[int], list[str]]


class PortTakenError(EngineError):
    """The port that was chosen belongs to another process."""


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


class LlamaServer(Engine):
    """A context manager around one process; `arguments` gets the port and gives the flags.

    A `device` that is emulated is started before it and stopped after it.

    Raises
    ------
    EngineError
        From ``start`` if the process dies or is not healthy in time (with the last lines of its
        log), from requests if the server dies, answers with an error or not in time.
    """

    name = "llama-server"

    def __init__(
        self,
        binary: ServerBinary,
        arguments: Arguments,
        log: Path,
        start_timeout_s: float = 600.0,
        request_timeout_s: float = 3600.0,
        device: EmulatedDevice | None = None,
    ) -> None:
        super().__init__(log)
        self.binary = binary
        self.device = device
        self.arguments = arguments
        self.start_timeout_s = start_timeout_s
        self.request_timeout_s = request_timeout_s
        self._client: httpx.Client | None = None

    def _start(self) -> None:
        if self.device is not None:
            self.device.start()
        deadline = time.monotonic() + self.start_timeout_s
        for left in range(PORT_TRIES - 1, -1, -1):
            try:
                self._start_at(free_port(), deadline)
                return
            except PortTakenError:
                self._end()
                if not left:
                    raise

    def _start_at(self, port: int, deadline: float) -> None:
        """Start the server at a port and wait for it."""
        more = ("--rpc", self.device.endpoint) if self.device is not None else ()
        key = secrets.token_urlsafe(24)
        # The key goes by the environment, since everybody can read a command line.
        self.spawn(
            (str(self.binary.path), *self.arguments(port), *more),
            environment() | {"LLAMA_API_KEY": key},
        )
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(self.request_timeout_s, connect=10.0),
            trust_env=False,  # a proxy is no way to loopback
        )
        self._wait(deadline)
        self._check_own(port)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the server and of its emulated device."""
        return super().pids + (self.device.pids if self.device else ())

    def check_alive(self, doing: str) -> None:
        """Raise where the process has ended; another error where it found its port taken."""
        try:
            super().check_alive(doing)
        except EngineError as error:
            if doing == "starting" and _PORT_TAKEN.search(self.log.read_text(errors="replace")):
                raise PortTakenError(
                    "every port that was free was taken before llama-server could listen on it",
                    f"{PORT_TRIES} tries; {self.log_tail(2)}",
                    "stop what opens ports on this machine, and run it again",
                ) from error
            raise

    def _check_own(self, port: int) -> None:
        """Raise where another server answers at the port: it knows no key, or another one."""
        asked = {"content": "x"}
        where = f"http://127.0.0.1:{port}/tokenize"
        try:
            bare = httpx.post(where, json=asked, trust_env=False, timeout=60.0)
            ours = self._http.post("/tokenize", json=asked, timeout=60.0)
        except httpx.TransportError as error:
            self.died("starting")
            raise EngineError(
                "llama-server broke off its first answer", str(error), "run it again"
            ) from None
        if (bare.status_code, ours.status_code) != (401, 200):
            self.died("starting")
            said = f"status {bare.status_code} without the key, {ours.status_code} with it"
            if re.search(rf"listening on .*:{port}\b", self.log.read_text(errors="replace")):
                raise EngineError(
                    "llama-server did not take the key that it was given in LLAMA_API_KEY",
                    said,
                    "let a wrapper pass its environment on, so that nobody else is answered",
                )
            raise PortTakenError(
                "another server answers at the port that llama-server was given",
                said,
                "stop the other server, and run it again",
            )

    def _wait(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            self.check_alive("starting")
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
            self.died(f"answering {path}")
            raise EngineError(
                f"the connection to llama-server broke at {path}", str(error), "run it again"
            ) from None
        if answer.status_code != 200:
            raise EngineError(
                f"llama-server refused {path} with status {answer.status_code}",
                answer.text[:300],
                "check the prompt's length against the context",
            )
        try:
            result = answer.json()
        except ValueError:
            result = answer.text
        if not isinstance(result, dict):
            raise EngineError(
                f"llama-server answered {path} oddly: no JSON object",
                repr(result)[:200],
                "use another build of llama-server",
            )
        return result

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

    def likeliest(self, tokens: Sequence[int], count: int) -> dict[int, float]:
        """Return the likeliest next tokens with their log probabilities, no sampler applied."""
        answer = self.complete(tokens, n_predict=1, temperature=0.0, n_probs=count)
        listed = answer.get("completion_probabilities") or [{}]
        return {int(t["id"]): float(t["logprob"]) for t in listed[0].get("top_logprobs", ())}

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
            self.died("being asked for its counters")
            raise EngineError(
                "llama-server gives no counters", str(error), "run it again"
            ) from None
        if answer.status_code != 200:
            return NO_COUNTERS
        try:
            return parse_metrics(answer.text)
        except (ValueError, OverflowError, IndexError):
            return NO_COUNTERS  # NaN, infinite, or of no position: no count at all

    def stop(self, patience_s: float = 15.0) -> None:
        """Terminate, then kill; returns when the process is gone. Safe to call twice."""
        try:
            self._end(patience_s)
        finally:
            if self.device is not None:
                self.device.stop(patience_s)

    def _end(self, patience_s: float = 15.0) -> None:
        """End the server and its client, and leave the device."""
        client, self._client = self._client, None
        try:
            super().stop(patience_s)
        finally:
            if client is not None:
                client.close()
