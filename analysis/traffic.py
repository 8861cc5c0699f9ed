"""Acceptance on real traffic: of a llama-server log, or of a running server's counters."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis import logs, stats
from analysis.engines.llama_server import parse_metrics
from analysis.errors import SpecDepthError
from analysis.folders import replaying
from analysis.markup import code, escaped
from analysis.paths import last_part
from analysis.stats import LIKE_THESE, Interval, Mean
from analysis.tables import interval

NOTE_RANGE = (0.65, 0.77)  # note 002: acceptance on real traffic
PERIODS = 4


class TrafficError(SpecDepthError):
    """A log or a running server gives nothing to read."""


@dataclass(frozen=True)
class Summary:
    """The requests of one group; intervals take requests as clusters."""

    name: str
    requests: int
    drafting: int  # requests in which something was drafted
    draft_n: int
    draft_n_accepted: int
    acceptance: Interval | None
    tokens_per_step: Interval | None
    tok_s: Interval | None

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON-ready values; bounds that are unknown are None."""

        def bounds(found: Interval | None) -> dict[str, float | None] | None:
            if found is None:
                return None
            finite = np.isfinite([found.low, found.high]).all()
            low, high = (found.low, found.high) if finite else (None, None)
            return {"estimate": found.estimate, "low": low, "high": high}

        return {
            "name": self.name, "requests": self.requests, "drafting": self.drafting,
            "draft_n": self.draft_n, "draft_n_accepted": self.draft_n_accepted,
            "acceptance": bounds(self.acceptance),
            "tokens_per_step": bounds(self.tokens_per_step), "tok_s": bounds(self.tok_s),
        }  # fmt: skip


def load(paths: Sequence[Path]) -> list[logs.Request]:
    """Return the requests of some logs, one after the other.

    A log that is named twice is read once; ``-`` is the input.

    Raises
    ------
    TrafficError
        If a file is not there, or no request of a llama-server is in any.
    """
    found: list[logs.Request] = []
    servers = 0
    unique = dict.fromkeys(p if str(p) == "-" else p.resolve() for p in paths)
    for path in unique:
        if str(path) == "-":
            own = logs.requests(sys.stdin)
        elif path.is_file():
            with path.open(errors="replace") as lines:
                own = logs.requests(lines)
        else:
            wrong = "the log is a folder" if path.is_dir() else "the log is not there"
            raise TrafficError(wrong, str(path), "name the file itself, or - for the input")
        found += [logs.Request(**(vars(r) | {"server": r.server + servers})) for r in own]
        servers += max((r.server for r in own), default=0) + 1
    if not found:
        raise TrafficError(
            "no request of a llama-server in the log",
            ", ".join(last_part(str(p)) for p in paths),
            "start llama-server with its default verbosity or more, and log its output to a file",
        )
    return found


def summary(name: str, requests: Sequence[logs.Request]) -> Summary:
    """Return the sums of a group, with intervals over its requests."""
    drafting = [r for r in requests if r.draft_n > 0]

    def mean(pairs: list[tuple[float, float]]) -> Mean | None:
        table = np.array(pairs, dtype=float).reshape(-1, 2)
        if not len(table) or table[:, 1].sum() == 0:
            return None
        found = stats.ratio(table[None, :, 0], table[None, :, 1])
        return Mean(found.estimate, tuple(c for c in found.components if c.unit == "prompt"))

    def ratio(pairs: list[tuple[float, float]]) -> Interval | None:
        found = mean(pairs)
        return None if found is None else found.positive(LIKE_THESE)

    rate = mean([(r.draft_n_accepted, r.draft_n) for r in drafting])
    return Summary(
        name=name,
        requests=len(requests),
        drafting=len(drafting),
        draft_n=sum(r.draft_n for r in requests),
        draft_n_accepted=sum(r.draft_n_accepted for r in requests),
        acceptance=None if rate is None else rate.share(LIKE_THESE),
        tokens_per_step=ratio([(r.predicted_n - 1, r.steps) for r in requests if r.steps]),
        tok_s=ratio([(1e3 * (r.predicted_n - 1), r.predicted_ms) for r in requests]),
    )


def groups(requests: Sequence[logs.Request]) -> list[Summary]:
    """Return all requests, then each draft depth that the log states, then periods of time."""
    found = [summary("all", requests)]
    depths = sorted({r.depth for r in requests if r.depth is not None})
    if len(depths) > 1 or (depths and any(r.depth is None for r in requests)):
        found += [
            summary(f"depth {d}", [r for r in requests if r.depth == d]) for d in depths
        ]  # fmt: skip
    if len(requests) >= 2 * PERIODS:
        parts = np.array_split(np.arange(len(requests)), PERIODS)
        for number, part in enumerate(parts, 1):
            own = [requests[i] for i in part]
            found.append(summary(f"period {number} of {PERIODS}{_when(own)}", own))
    return found


def _when(requests: Sequence[logs.Request]) -> str:
    times = [r.at_s for r in requests]
    if any(t is None for t in times) or len({r.server for r in requests}) > 1:
        return ""
    return f" (to {times[-1]:.0f} s)"


def rows(found: Sequence[Summary]) -> list[dict[str, str]]:
    """Return the groups as text, a dict a row."""
    return [
        {
            "requests of": s.name,
            "n": str(s.requests),
            "with drafts": str(s.drafting),
            "drafted": str(s.draft_n),
            "rate": _shown(s.acceptance),
            "tokens/step": _shown(s.tokens_per_step),
            "tok/s": _shown(s.tok_s),
        }
        for s in found
    ]


def _shown(found: Interval | None) -> str:
    """Format an interval; one request gives a number alone."""
    return interval(found).removesuffix(" (no interval)")


def against_note(whole: Summary) -> str:
    """Return how a whole log's acceptance stands to the note's range, as one sentence."""
    low, high = NOTE_RANGE
    said = f"Note 002 gives {low:.2f} to {high:.2f} for an MTP head on its own traffic; "
    if whole.acceptance is None:
        return said + "nothing was drafted in this log."
    here = whole.acceptance
    if not np.isfinite(here.low):
        return said + f"this log's {interval(here)} is of one request."
    if here.low > high:
        where = "lies above that"
    elif here.high < low:
        where = "lies below that"
    else:
        where = "has an interval that reaches into that"
    return said + f"this log's {interval(here)}, whatever drafter it used, {where}."


def kept(log: str, samples: Path) -> list[logs.Request]:
    """Return the requests of a page's log.

    Their numbers, and nothing else of the log, are kept beside the samples, so that the page can
    be made again without the log.
    """
    file = samples / "traffic" / f"{last_part(log)}.json"
    if replaying():
        return [logs.Request(**values) for values in json.loads(file.read_text())]
    requests = load([Path(log).expanduser()])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([vars(r) for r in requests]) + "\n")
    return requests


def markdown(log: str, samples: Path) -> str:
    """Return a log's acceptance as a Markdown section; says so where no log is given."""
    if not log:
        return "No log was given to this page."
    found = groups(kept(log, samples))
    lines = rows(found)
    head = list(lines[0])
    table = [" | ".join(head), " | ".join("---" for _ in head)]
    table += [" | ".join(map(escaped, row.values())) for row in lines]
    body = "\n".join(f"| {line} |" for line in table)
    return f"From {code(last_part(log))}:\n\n{body}\n\n{against_note(found[0])}"


def of_server(url: str) -> dict[str, Any]:
    """Read the drafting counters of a running server; nothing of it is changed.

    Its API key, where it has one, is taken from ``LLAMA_API_KEY``.

    Raises
    ------
    TrafficError
        If it does not answer, or gives no counters.
    """
    import httpx

    key = os.environ.get("LLAMA_API_KEY", "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    address = url.rstrip("/") + "/metrics"
    try:
        answer = httpx.get(address, headers=headers, timeout=10.0)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TrafficError("the server does not answer", str(error), "check --url") from None
    counted = parse_metrics(answer.text) if answer.status_code == 200 else None
    if counted is None or counted.draft_n is None:
        raise TrafficError(
            "the server gives no drafting counters",
            f"status {answer.status_code}",
            "start it with --metrics (and set LLAMA_API_KEY, where it has a key)",
        )
    drafts, accepted = counted.drafts or 0, counted.draft_n_accepted or 0
    return {
        "drafts": drafts,
        "draft_n": counted.draft_n,
        "draft_n_accepted": accepted,
        "acceptance": accepted / counted.draft_n if counted.draft_n else None,
        "accepted_per_draft": accepted / drafts if drafts else None,
        "kept_by_position": [n / drafts for n in counted.per_position or ()] if drafts else [],
    }
