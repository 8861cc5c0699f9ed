"""Measure how the exported file behaves in llama-server: acceptance by depth, and repetition.

`python -m models.behave --server path/to/llama-server` writes `behaviour.json` beside this file.
Each workload's prompts are continued for 200 tokens at draft depth 5, at temperature 0 and at the
temperature that the model is meant to be sampled with.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from models import data
from models.export import MODEL
from models.text import CACHE

WORKLOADS = MODEL.parents[1] / "analysis" / "workloads"
DEPTH, PREDICT, LONG_PROMPT = 5, 200, 16384
POSITION = re.compile(
    r'^\S*spec_decode_num_accepted_tokens_per_pos_total\{position="(\d+)"\} (\S+)', re.MULTILINE
)
DRAFTS = re.compile(r"^\S*spec_decode_num_drafts_total (\S+)", re.MULTILINE)


@contextmanager
def server(binary: Path, model: Path, context: int, threads: int) -> Iterator[str]:
    """Run llama-server on a free port; give its address and stop it afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        *(str(binary), "-m", str(model), "-c", str(context), "-np", "1", "-t", str(threads)),
        *("--host", "127.0.0.1", "--port", str(port), "--metrics", "--cache-ram", "0"),
        *("--spec-type", "draft-mtp", "--spec-draft-n-max", str(DEPTH)),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            if process.poll() is not None:
                raise RuntimeError(f"llama-server ended with code {process.returncode}")
            try:
                request(f"{address}/health")
                break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=20)


def request(address: str, body: dict[str, Any] | None = None) -> str:
    """Return the answer to a GET, or to a POST of `body` as JSON."""
    payload = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    call = urllib.request.Request(address, payload, headers)
    with urllib.request.urlopen(call, timeout=600) as answer:
        return str(answer.read().decode())


def prompts(workload: str) -> list[list[int]]:
    """Return the prompts of a workload as tokens of the embedded model."""
    tokenizer = data.load_tokenizer(CACHE / "tokens")
    texts = [p.read_text("utf-8") for p in sorted((WORKLOADS / workload).glob("[0-9]*.txt"))]
    if workload != "long":
        return [tokenizer.encode(text).ids for text in texts]
    tokens = tokenizer.encode((WORKLOADS / "long" / "text.txt").read_text("utf-8")).ids
    return [
        tokens[i * LONG_PROMPT : (i + 1) * LONG_PROMPT] + tokenizer.encode("\n\n" + text).ids
        for i, text in enumerate(texts)
    ]


def distinct(tokens: list[int], n: int = 4) -> float:
    """Return the share of different runs of `n` tokens among all; 1 means no repetition."""
    runs = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(runs)) / max(len(runs), 1)


def counters(address: str) -> tuple[float, list[float]]:
    """Return the number of drafts so far and the accepted tokens at each position."""
    text = request(f"{address}/metrics")
    drafts = DRAFTS.search(text)
    found = {int(k): float(v) for k, v in POSITION.findall(text)}
    first = min(found, default=0)
    return float(drafts[1]) if drafts else 0.0, [found.get(first + k, 0.0) for k in range(DEPTH)]


def measure(
    address: str, workload: str, temperature: float
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a workload's figures at one temperature, and its texts."""
    before = counters(address)
    texts = []
    for number, prompt in enumerate(prompts(workload), 1):
        body = {
            "prompt": prompt,
            "n_predict": PREDICT,
            "temperature": temperature,
            "seed": number,
            "return_tokens": True,
            "cache_prompt": False,
        }
        answer = json.loads(request(f"{address}/completion", body))
        texts.append(
            {
                "workload": workload,
                "prompt": number,
                "temperature": temperature,
                "tokens": len(answer["tokens"]),
                "distinct_4": round(distinct(answer["tokens"]), 3),
                "text": answer["content"],
            }
        )
    after = counters(address)
    drafts = after[0] - before[0]
    accepted = [b - a for a, b in zip(before[1], after[1], strict=True)]
    shares = [t["distinct_4"] for t in texts]
    summary = {
        "temperature": temperature,
        "prompts": len(texts),
        "drafts": round(drafts),
        "accepted_by_position": [round(a / max(drafts, 1), 3) for a in accepted],
        "distinct_4_mean": round(sum(shares) / len(shares), 3),
        "distinct_4_lowest": min(shares),
        "tokens_shortest": min(t["tokens"] for t in texts),
    }
    return summary, texts


def main() -> None:
    """Read the command line, measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", type=Path, required=True, help="the llama-server binary")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.5])
    parser.add_argument("--workloads", nargs="+", default=["short", "prose", "code", "long"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=MODEL.parent / "behaviour.json")
    parser.add_argument("--texts", type=Path, help="also write the generated texts here")
    args = parser.parse_args()
    report: dict[str, Any] = {"depth": DEPTH, "predicted_tokens": PREDICT, "workloads": {}}
    samples: list[dict[str, Any]] = []
    with server(args.server, args.model, LONG_PROMPT + 1024, args.threads) as address:
        for workload in args.workloads:
            found = report["workloads"].setdefault(workload, [])
            for temperature in args.temperatures:
                summary, texts = measure(address, workload, temperature)
                found.append(summary)
                samples += texts
                print(workload, json.dumps(summary), flush=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")
    if args.texts:
        args.texts.write_text(json.dumps(samples, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
