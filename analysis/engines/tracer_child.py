"""The child process of the tracer: one JSON object a line in, one a line out.

The first line holds the :class:`~analysis.engines.trace.Settings`; each further one names an
`op` and its arguments. An answer is ``{"ok": ...}`` or ``{"error": [wrong, found, next]}``.
Whatever the native libraries print goes to the log.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from analysis.engines import native
from analysis.engines.trace import Settings, Trace
from analysis.engines.tracer import Tracer


def main() -> None:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # native code prints to the log, not into the answers

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values, separators=(",", ":")) + "\n")

    lines = iter(sys.stdin.readline, "")
    try:
        tracer = Tracer(Settings(**json.loads(next(lines))))
    except native.NativeError as error:
        answer(error=error.args)
        return
    answer(ok={"mtp": tracer.head is not None})
    for line in lines:
        request = json.loads(line)
        try:
            answer(ok=_do(tracer, request.pop("op"), request))
        except native.NativeError as error:
            answer(error=error.args)
    tracer.free()


def _answer(trace: Trace, asked: dict[str, Any]) -> dict[str, Any]:
    """Return a trace in the fields of llama-server's answers, counters included."""
    drafts = [s for s in trace.steps if s.drafted]
    timings = {
        "prompt_n": len(asked["prompt"]),
        "prompt_ms": trace.prompt_ms,
        "predicted_n": len(trace.tokens),
        "predicted_ms": trace.predicted_ms,
    }
    if drafts:
        timings["draft_n"] = sum(len(s.drafted) for s in drafts)
        timings["draft_n_accepted"] = sum(s.accepted for s in drafts)
    depth = asked["depth"] if drafts else 0
    return {
        "tokens": trace.tokens,
        "stop_type": trace.stop,
        "timings": timings,
        "drafts": len(drafts),
        "per_position": [sum(s.accepted > k for s in drafts) for k in range(depth)],
        "steps": [asdict(s) for s in trace.steps],
    }


def _do(tracer: Tracer, op: str, arguments: dict[str, Any]) -> Any:
    if op == "complete":
        trace = tracer.complete(**arguments)
        used = {t for s in trace.steps for t in (*s.drafted, s.chosen)} | set(trace.tokens)
        pieces = {t: native.piece(tracer.vocab, t).decode(errors="backslashreplace") for t in used}
        return _answer(trace, arguments) | {"pieces": pieces}
    if op == "likeliest":
        return tracer.likeliest(**arguments)
    if op == "tokenize":
        return native.tokenize(tracer.vocab, arguments["text"], special=arguments["special"])
    if op == "pieces":
        return [native.piece(tracer.vocab, t).hex() for t in arguments["tokens"]]
    if op == "chat_prompt":
        return native.chat_prompt(tracer.model, tracer.vocab, arguments["message"])
    raise native.NativeError("the tracer knows no such request", op, "")


if __name__ == "__main__":
    main()
