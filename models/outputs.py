"""Let the embedded model write text, for training a head on what the target itself says.

Prompts are windows of the training text; llama-server continues them as it does in the sweep. The
tokens of all texts, each with its prompt before it and an end of text after it, are one array.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from analysis import digests, model
from analysis.engines import choose
from analysis.spec import SAMPLING, SweepSpec
from models import data

PROMPT, PREDICT, SLOTS = 64, 192, 8


def build(folder: Path, texts: int, seed: int = 1) -> data.Tokens:
    """Return the tokens of `texts` texts, written once into `folder` for each model and number."""
    target = model.embedded_path()
    path = folder / f"outputs-{digests.sha256([target])[:12]}-{texts}-{seed}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npy")
        np.save(partial, write(target, prompts(texts, seed), seed))
        partial.replace(path)
    return np.load(path)  # type: ignore[no-any-return]


def prompts(count: int, seed: int) -> list[list[int]]:
    """Return windows of the training text, of each kind by its share."""
    folder = data.build(tokenizer=data.tokenizer_of(model.embedded_path()))
    arrays, r = data.load(folder, "train"), np.random.default_rng((seed, 77))
    windows = data.batch(arrays, r, count, PROMPT - 1, mixed=False)
    return [[int(t) for t in row] for row in windows]


def write(target: Path, asked: list[list[int]], seed: int) -> data.Tokens:
    """Return the prompts with the model's continuations, at the sweep's temperature."""
    spec = SweepSpec(workloads=("short",), slots=SLOTS, busy_slots=SLOTS, context=SLOTS * 512)
    spec = replace(spec, depths=(0,))
    with (
        tempfile.TemporaryDirectory() as folder,
        choose.make(choose.probe(spec), spec, 0, target, Path(folder) / "server.log") as engine,
        ThreadPoolExecutor(SLOTS) as pool,
    ):

        def text(number: int) -> list[int]:
            answer = engine.complete(
                asked[number],
                n_predict=PREDICT,
                temperature=spec.temperature,
                seed=(seed << 20) + number,
                **SAMPLING,
            )
            said = [int(t) for t in answer["tokens"]]
            return [*asked[number], *said, *([] if said[-1:] == [data.END] else [data.END])]

        written = list(pool.map(text, range(len(asked))))
    return np.concatenate([np.array(t, np.uint16) for t in written])
