"""A program in the place of llama-server that misbehaves as it is told, for the tests of faults.

It is a real process with a real port, and it answers `--help` as the real one does. What it does
wrong is named by the variable FAKE_FAULT.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULT = os.environ.get("FAKE_FAULT", "")
HELP = """--model FNAME  --host HOST  --port PORT  --parallel N  --ctx-size N  --spec-type {types}
--spec-draft-n-max N  --spec-draft-p-min P  --spec-draft-model FNAME  --metrics  --threads N
"""
TYPES = "[none,draft-simple,draft-mtp,ngram-mod]"
GOOD: dict[str, Any] = {"prompt_n": 4, "prompt_ms": 5.0, "predicted_n": 40, "predicted_ms": 100.0}
BAD_TIMINGS: dict[str, dict[str, Any]] = {
    "nan": {"predicted_ms": float("nan")},
    "negative": {"predicted_ms": -3.0},
    "no-tokens": {"predicted_n": 0},
    "text": {"predicted_n": "many"},
    "no-time": {"predicted_ms": 0.0},
    "drafted-text": {"draft_n": "some"},
    "too-many-accepted": {"draft_n": 3, "draft_n_accepted": 9},
}


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of a sweep."""

    asked = 0

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer /health and /metrics."""
        if self.path == "/health":
            self.send("{}")
        elif self.path == "/metrics":
            total: int | str = 100 - Handler.asked if FAULT == "backwards" else 10 * Handler.asked
            total = "NaN" if FAULT == "nan-counters" else total
            place = "one" if FAULT == "odd-counters" else 0
            self.send(
                f"llamacpp:spec_decode_num_drafts_total {total}\n"
                f"llamacpp:spec_decode_num_draft_tokens_total {total}\n"
                f"llamacpp:spec_decode_num_accepted_tokens_total {total}\n"
                "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
                f'{{position="{place}"}} {total}\n'
            )

    def do_POST(self) -> None:
        """Answer everything else."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = os.environ.get("LLAMA_API_KEY")
        if FAULT != "no-key" and self.headers.get("Authorization") != f"Bearer {key}":
            self.send("{}", 401)
        elif self.path == "/tokenize":
            self.send(json.dumps({"tokens": [1, 2, 3, 4]}))
        elif self.path == "/detokenize":
            self.send(json.dumps({"content": "text"}))
        elif self.path == "/completion":
            Handler.asked += 1
            self.complete(body)

    def complete(self, body: dict[str, object]) -> None:
        """Answer a completion, well or not."""
        if FAULT == "malformed":
            self.send('{"timings": {"predicted_n": 40,')
        elif FAULT == "list":
            self.send("[]")
        elif FAULT == "hang":
            time.sleep(600)
        elif FAULT == "die":
            os._exit(3)
        else:
            timings = GOOD | BAD_TIMINGS.get(FAULT, {})
            odd: dict[str, Any] = {
                "no-timings": {"timings": {}},
                "timings-list": {"timings": [1, 2]},
                "tokens-null": {"tokens": None},
            }
            answer = {"timings": timings, "tokens": [7] * 40, "stop_type": "limit"}
            answer |= odd.get(FAULT, {})
            self.send(json.dumps(answer | {"n_predict": body.get("n_predict")}))

    def send(self, text: str, status: int = 200) -> None:
        """Send an answer."""
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main() -> None:
    """Do what llama-server does with these flags."""
    if "--version" in sys.argv:
        print("version: 9999 (abcdef0)")
    elif "--help" in sys.argv:
        print(HELP.format(types=TYPES))
    elif FAULT == "dies-at-load":
        sys.exit("error loading model: it is broken")
    elif FAULT == "dies-with-paths":
        sys.exit("failed to load draft model, '/home/somebody/my models/x.gguf'")
    elif FAULT == "hangs-at-load":
        time.sleep(600)
    else:
        port = int(sys.argv[sys.argv.index("--port") + 1])
        taken = os.environ.get("FAKE_TAKEN")  # a file: the first start finds its port taken
        if taken and not os.path.exists(taken):  # noqa: PTH110
            open(taken, "w").close()  # noqa: PTH123
            sys.exit(f"couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {port}")
        print(f"llama_server: listening on http://127.0.0.1:{port}", flush=True)
        ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
