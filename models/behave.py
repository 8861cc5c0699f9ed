"""Measure how the exported file behaves in llama-server: acceptance by depth, and repetition.

`python -m models.behave` writes `behaviour.json` beside this file. Each workload's prompts are
continued for 200 tokens at draft depth 5, at temperature 0 and with the temperature and seed of the
sweep; then, for the first seeds from 1 on, at depth 0. It needs no PyTorch.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis import model, prompts
from analysis.engines import choose
from analysis.engines.process import Engine
from analysis.lossless import distinct
from analysis.spec import SAMPLING, SweepSpec

DEPTH, PREDICT = 5, 200
SEEDS = range(1, 11)


def measure(
    engine: Engine, spec: SweepSpec, workload: str, temperature: float
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a workload's figures at one temperature, and its texts."""
    before = engine.counters()
    texts: list[dict[str, Any]] = []
    count = prompts.available(workload)
    for number, prompt in enumerate(prompts.load(workload, count), 1):
        encoded = prompts.encode(engine, prompt, spec, chat=False)
        answer = engine.complete(
            encoded.tokens, n_predict=PREDICT, temperature=temperature, seed=spec.seed, **SAMPLING
        )
        tokens = answer["tokens"]
        texts.append(
            {
                "workload": workload,
                "prompt": number,
                "temperature": temperature,
                "tokens": len(tokens),
                "distinct_4": round(distinct(tokens), 3),
                "text": engine.detokenize(tokens),
            }
        )
    counted = engine.counters().since(before)
    drafts, kept = counted.drafts or 0, counted.per_position or ()
    return {
        "temperature": temperature,
        "drafts": drafts,
        "accepted_by_position": [round(n / drafts, 3) for n in kept],
        "distinct_4_mean": round(sum(t["distinct_4"] for t in texts) / len(texts), 3),
        "distinct_4_lowest": min(t["distinct_4"] for t in texts),
        "tokens_shortest": min(t["tokens"] for t in texts),
    }, texts


def repetition(engine: Engine, spec: SweepSpec) -> list[dict[str, Any]]:
    """Return for each seed how repetitive the sweep's own texts are; long prompts left out."""
    encoded = [
        prompts.encode(engine, p, spec, chat=False)
        for w in spec.workloads
        if w != "long"
        for p in prompts.load(w, spec.prompt_count(w))
    ]
    found = []
    for seed in SEEDS:
        shares = []
        for e in encoded:
            answer = engine.complete(
                e.tokens, n_predict=spec.n_predict, temperature=spec.temperature, seed=seed,
                **SAMPLING,
            )  # fmt: skip
            shares.append(distinct(answer["tokens"]))
        found.append(
            {
                "seed": seed,
                "texts": len(shares),
                "distinct_4_lowest": round(min(shares), 3),
                "below_0.3": sum(s < 0.3 for s in shares),
                "below_0.5": sum(s < 0.5 for s in shares),
            }
        )
        print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    """Measure all workloads and write the figures; texts go to a file of their own if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="", help="a llama-server; default: the built one")
    parser.add_argument("--texts", type=Path, help="write the texts to this file")
    args = parser.parse_args()
    spec = replace(SweepSpec(), server=args.server)
    found: dict[str, list[dict[str, Any]]] = {}
    texts: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        path = model.embedded_path()
        with choose.make(choose.probe(spec), spec, DEPTH, path, log) as engine:
            for workload in spec.workloads:
                for temperature in (0.0, spec.temperature):
                    figures, own = measure(engine, spec, workload, temperature)
                    found.setdefault(workload, []).append(figures)
                    texts += own
                    print(workload, json.dumps(figures), flush=True)
        with choose.make(choose.probe(spec), spec, 0, path, log) as engine:
            seeds = repetition(engine, spec)
    target = Path(__file__).with_name("behaviour.json")
    facts = {"depth": DEPTH, "seed": spec.seed, "workloads": found, "seeds": seeds}
    target.write_text(json.dumps(facts, indent=1) + "\n")
    if args.texts:
        args.texts.write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
