"""The lines of a llama-server log, whatever stands before them, and the requests it answered.

Formats drift between builds. Each request prints its own ``eval time`` and, where something was
drafted, ``draft acceptance``. The ``statistics`` line counts over the server's life instead and is
passed over: adding the two up would count everything twice. Newer builds put slot and task before
every line, older ones only before the first; a router puts the child's port before all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ROUTER = re.compile(r"^\s*\[\s*(\d+)\]\s")
_TIME = re.compile(r"(?:^|\s)(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) [A-Z] ")
_TASK = re.compile(r"\bid\s+(\d+) \| task (-?\d+) \|")
_PROMPT = re.compile(r"prompt eval time\s*=\s*([\d.]+) ms /\s*(\d+) tokens")
_DECODE = re.compile(
    r"(?:(?<!prompt )|generation )eval time\s*=\s*([\d.]+) ms /\s*(\d+) (?:tok|run)"
)
_DRAFT = re.compile(r"draft acceptance(?: rate)?\s*=\s*[\d.]+ \(\s*(\d+) accepted /\s*(\d+) gen")
_DEPTH = re.compile(r"\bn_max\s*=\s*(\d+), n_min\s*=\s*\d+, p_min")
_LOADING = re.compile(r"loading model '|llama_model_load|llama_server: loading")


@dataclass(frozen=True)
class Request:
    """One request of a log; None where the log does not say."""

    server: int  # counts the servers whose start is in the log, from 0
    depth: int | None  # n_max, printed from verbosity 4 on
    at_s: float | None  # seconds since the server's start
    prompt_n: int | None
    predicted_n: int
    predicted_ms: float
    draft_n: int = 0
    draft_n_accepted: int = 0

    @property
    def steps(self) -> int:
        """Verifications, by the project's definition."""
        return max(self.predicted_n - 1 - self.draft_n_accepted, 0)


@dataclass
class _Child:
    """What is known of one server of the log while reading."""

    server: int = 0
    depth: int | None = None
    seen: bool = False  # whether it has answered a request
    last_key: tuple[str, str] = ("", "")


def requests(lines: Iterable[str]) -> list[Request]:
    """Return the requests in the order in which they ended."""
    children: dict[str, _Child] = {}
    prompts: dict[tuple[str, tuple[str, str]], int] = {}
    places: dict[tuple[str, tuple[str, str]], int] = {}
    found: list[Request] = []
    servers = 0
    for raw in lines:
        line, at_s = plain(raw)
        router = _ROUTER.match(line)
        port = router[1] if router else ""
        child = children.setdefault(port, _Child())
        if _LOADING.search(line) and child.seen:
            servers += 1
            child = children[port] = _Child(servers)
        if depth := _DEPTH.search(line):
            child.depth = int(depth[1])
        if task := _TASK.search(line):
            child.last_key = (task[1], task[2])
        key = (port, child.last_key)
        if prompt := _PROMPT.search(line):
            prompts[key] = int(prompt[2])
        elif decode := _DECODE.search(line):
            child.seen = True
            places[key] = len(found)
            found.append(
                Request(
                    child.server, child.depth, at_s, prompts.pop(key, None), int(decode[2]),
                    float(decode[1]),
                )
            )  # fmt: skip
        elif (draft := _DRAFT.search(line)) and key in places:
            at = places.pop(key)
            if int(draft[1]) > int(draft[2]):
                continue  # garbled: more accepted than drafted
            found[at] = replace(found[at], draft_n=int(draft[2]), draft_n_accepted=int(draft[1]))
    return found


def plain(raw: str) -> tuple[str, float | None]:
    """Return a line without colours and wrapping, and its time in seconds."""
    line = _COLOUR.sub("", raw.rstrip("\n"))
    if line.startswith('{"type"'):
        try:
            values = json.loads(line)
            return str(values.get("msg", "")), float(values["time"]) / 1e6
        except (ValueError, KeyError, TypeError):
            return line, None
    time = _TIME.search(line)
    if time is None:
        return line, None
    minutes, seconds, ms, us = (int(x) for x in time.groups())
    return line, 60 * minutes + seconds + ms / 1e3 + us / 1e6
