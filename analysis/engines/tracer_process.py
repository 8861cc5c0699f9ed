"""The tracer as an engine: its child process started, asked and stopped.

Native memory, a crash or an out-of-memory kill stays in the child.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import select
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from analysis import digests
from analysis.engines.binary import PINNED_BINDINGS, PINNED_COMMIT, environment
from analysis.engines.process import Counters, Engine
from analysis.errors import EngineError
from analysis.spec import SweepSpec

_MODULE = "analysis.engines.tracer_child"


@dataclass(frozen=True)
class TracerBuild:
    """The bindings that the tracer runs on."""

    version: str
    fingerprint: str  # a checksum of the native libraries
    commit: str | None
    build: int | None = None
    flags: frozenset[str] = frozenset()

    def warnings(self) -> list[str]:
        """Return what is known to be wrong with these bindings."""
        if self.commit is None:
            return [f"{self.version} is not the pinned {PINNED_BINDINGS}; run `make engine`"]
        return []


def probe() -> TracerBuild:
    """Find the bindings without loading them.

    Raises
    ------
    EngineError
        If llama-cpp-python is not installed.
    """
    found = importlib.util.find_spec("llama_cpp")
    if found is None or found.origin is None:
        raise EngineError(
            "the tracer needs llama-cpp-python",
            "not installed",
            'run `make engine`, or use engine="llama-server", which needs none',
        )
    libraries = sorted((Path(found.origin).parent / "lib").glob("lib*"))
    version = importlib.metadata.version("llama-cpp-python")
    return TracerBuild(
        version=f"llama-cpp-python {version}",
        fingerprint=digests.sha256([p for p in libraries if not p.is_symlink()]),
        commit=PINNED_COMMIT if version == PINNED_BINDINGS else None,
    )


class TracerEngine(Engine):
    """One child process at one depth, with room to roll that many tokens back."""

    name = "the tracer"

    def __init__(
        self,
        spec: SweepSpec,
        depth: int,
        model: Path,
        log: Path,
        start_timeout_s: float = 600.0,
        request_timeout_s: float = 3600.0,
    ) -> None:
        super().__init__(log)
        self.spec, self.depth, self.model = spec, depth, model
        self.start_timeout_s, self.request_timeout_s = start_timeout_s, request_timeout_s
        self._counted = Counters(0, 0, 0, ())
        self._rest = b""

    def _start(self) -> None:
        self.spawn((sys.executable, "-m", _MODULE), environment(), piped=True)
        threads = self.spec.threads or psutil.cpu_count(logical=False) or os.cpu_count() or 1
        settings = {
            "model": str(self.model),
            "context": self.spec.context,
            "room": self.spec.room if self.spec.arm == "room" else self.depth,
            "draft": self.depth > 0 and self.spec.arm != "rows",
            "threads": threads,
            "cache_type_k": self.spec.cache_type_k,
            "cache_type_v": self.spec.cache_type_v,
        }
        self._exchange(settings, self.start_timeout_s, "starting")

    def _ask(self, op: str, **arguments: Any) -> Any:
        return self._exchange({"op": op, **arguments}, self.request_timeout_s, f"asked to {op}")

    def _exchange(self, message: dict[str, Any], timeout_s: float, doing: str) -> Any:
        stdin = self.running.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            self.died(doing)
            raise
        answer = json.loads(self._line(timeout_s, doing))
        if "error" in answer:
            wrong, found, next_step = answer["error"]
            raise EngineError(
                wrong, found if found != "see the log" else self.log_tail(), next_step
            )
        return answer["ok"]

    def _line(self, timeout_s: float, doing: str) -> bytes:
        """Return the next whole line of the child's answers."""
        stdout = self.running.stdout
        assert stdout is not None
        deadline = time.monotonic() + timeout_s
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([stdout], [], [], left)[0]
            if not ready:
                raise EngineError(
                    f"the tracer did not answer in {timeout_s:.0f} s, {doing}",
                    self.log_tail(2),
                    "ask for fewer tokens or raise the time-out",
                )
            part = os.read(stdout.fileno(), 1 << 20)
            if not part:
                self.died(doing)
                raise EngineError(f"the tracer closed its answers while {doing}", self.log_tail())
            parts.append(part)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line

    def complete(self, tokens: Sequence[int], **settings: Any) -> dict[str, Any]:
        """Decode after a prompt of token ids; llama-server's fields, and ``steps``.

        `settings` are n_predict, temperature, seed, top_k, top_p, min_p; repeat_penalty must be 1.
        """
        if settings.pop("repeat_penalty", 1.0) != 1.0:
            raise EngineError("the tracer has no penalty for repeats", "one was asked for", "")
        drafts = 0 if self.spec.arm == "rows" else self.depth
        answer: dict[str, Any] = self._ask(
            "complete",
            prompt=list(tokens),
            depth=drafts,
            p_min=self.spec.p_min,
            padding=self.depth - drafts,
            **settings,
        )
        timings = answer["timings"]
        now = self._counted
        length = max(len(answer["per_position"]), len(now.per_position or ()))
        padded = [
            [*p, *[0] * (length - len(p))] for p in (now.per_position or (), answer["per_position"])
        ]
        self._counted = Counters(
            (now.drafts or 0) + answer["drafts"],
            (now.draft_n or 0) + timings.get("draft_n", 0),
            (now.draft_n_accepted or 0) + timings.get("draft_n_accepted", 0),
            tuple(a + b for a, b in zip(*padded, strict=True)),
        )
        return answer

    def likeliest(self, tokens: Sequence[int], count: int) -> dict[int, float]:
        """Return the likeliest next tokens with their log probabilities, no sampler applied."""
        listed = self._ask("likeliest", prompt=list(tokens), count=count)
        return {int(token): float(value) for token, value in listed}

    def counters(self) -> Counters:
        """Return the drafting counters of the child's life."""
        return self._counted

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Return the token ids of a text; `special` reads control tokens in it."""
        return [int(t) for t in self._ask("tokenize", text=text, special=special)]

    def pieces(self, tokens: Sequence[int]) -> list[bytes]:
        """Return the bytes of each token."""
        return [bytes.fromhex(p) for p in self._ask("pieces", tokens=list(tokens))]

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids."""
        return b"".join(self.pieces(tokens)).decode(errors="replace")

    def chat_prompt(self, message: str) -> str:
        """Return a user message in the form of the model's own chat template."""
        return str(self._ask("chat_prompt", message=message))
