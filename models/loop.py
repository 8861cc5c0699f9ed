"""The training loop: by the clock, resumable, with checkpoints and a log.

The learning rate follows the time that is spent, not the steps, so that a run always ends with a
full decay. An interrupted run goes on from its last checkpoint when started again.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from models import data
from models.net import Rotary, rotary_tables
from models.optimizers import optimizers, rate

SAVE_S, EVALUATE_S = 240, 900


@dataclass(frozen=True)
class Recipe:
    """Settings of one training run; lengths in tokens, times in minutes."""

    minutes: float
    rows: int = 8
    length: int = 256
    long_rows: int = 1
    long_length: int = 2048
    long_share: float = 0.12  # of the time, at its end, with long windows
    muon_rate: float = 0.02
    adam_rate: float = 0.004
    weight_decay: float = 0.02
    warmup: float = 0.02
    seed: int = 1
    threads: int = 2


@dataclass
class Progress:
    """What has been done: seconds trained, steps, tokens and the smoothed losses in nats."""

    seconds: float = 0.0
    steps: int = 0
    tokens: int = 0
    losses: dict[str, float] = field(default_factory=dict)


class Job(ABC):
    """What is trained, on what."""

    net: nn.Module
    shape: Rotary

    def batch(self, r: np.random.Generator, rows: int, length: int, long: bool) -> Tensor:
        """Return (rows, length + 1) tokens of the training text."""
        return data.batch(self.train_text, r, rows, length, long)

    @abstractmethod
    def losses(self, tokens: Tensor, cos: Tensor, sin: Tensor) -> dict[str, Tensor]:
        """Return losses in nats for (batch, time + 1) tokens; ``total`` is what is lowered."""

    def __init__(self, folder: Path) -> None:
        self.train_text, self.held_text = (data.load(folder, p) for p in ("train", "held"))

    def tables(self, length: int) -> tuple[Tensor, Tensor]:
        """Return the rotary tables for a length."""
        return rotary_tables(self.shape, length)

    @torch.no_grad()
    def held_out(self, rows: int = 8, length: int = 512) -> dict[str, dict[str, float]]:
        """Return each kind's losses on fixed windows of held-out text."""
        found = {}
        for kind, tokens in self.held_text.items():
            starts = np.linspace(0, len(tokens) - length - 2, rows).astype(int)
            windows = np.stack([tokens[s : s + length + 1] for s in starts]).astype(np.int64)
            losses = self.losses(torch.from_numpy(windows), *self.tables(length))
            found[kind] = {name: round(float(loss), 4) for name, loss in losses.items()}
        return found


def train(job: Job, recipe: Recipe, out: Path) -> Progress:
    """Train until the time is spent, writing checkpoints and a log into `out`."""
    keep_memory()
    torch.set_num_threads(recipe.threads)
    out.mkdir(parents=True, exist_ok=True)
    state, path = Progress(), out / "checkpoint.pt"
    named = [(n, p) for n, p in job.net.named_parameters() if p.requires_grad]
    opts = optimizers(named, recipe.muon_rate, recipe.adam_rate, recipe.weight_decay)
    if path.exists():
        saved = torch.load(path, weights_only=True)
        job.net.load_state_dict(saved["net"])
        for optimizer, values in zip(opts, saved["optimizers"], strict=True):
            optimizer.load_state_dict(values)
        state = Progress(**saved["progress"])
    (out / "recipe.json").write_text(json.dumps(asdict(recipe), indent=1))

    def save() -> None:
        # A kill at any moment leaves the old checkpoint or the new one.
        partial = path.with_suffix(".partial")
        values = [o.state_dict() for o in opts]
        net = job.net.state_dict()
        torch.save({"net": net, "optimizers": values, "progress": asdict(state)}, partial)
        partial.replace(path)

    with (out / "log.jsonl").open("a", buffering=1) as log:
        _run(job, recipe, opts, state, save, lambda line: log.write(json.dumps(line) + "\n"))
        save()
        log.write(json.dumps({**asdict(state), "held_out": job.held_out()}) + "\n")
    return state


def _run(
    job: Job,
    recipe: Recipe,
    opts: list[torch.optim.Optimizer],
    state: Progress,
    save: Callable[[], None],
    log: Callable[[dict[str, Any]], object],
) -> None:
    """Take the steps; a line in the log every 20 steps."""
    saved, evaluated = state.seconds, state.seconds
    tables = {n: job.tables(n) for n in (recipe.length, recipe.long_length)}
    began = time.monotonic()
    while (done := state.seconds / (60 * recipe.minutes)) < 1:
        long = done > 1 - recipe.long_share
        rows, length = (
            (recipe.long_rows, recipe.long_length) if long else (recipe.rows, recipe.length)
        )
        tokens = job.batch(np.random.default_rng((recipe.seed, state.steps)), rows, length, long)
        for optimizer in opts:
            for group in optimizer.param_groups:
                group["lr"] = group["full"] * rate(done, recipe.warmup)
        losses = job.losses(tokens, *tables[length])
        losses["total"].backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(job.net.parameters(), 1.0)
        for optimizer in opts:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        # Pauses from outside count too, so that the run ends when it was asked to.
        took, began = time.monotonic() - began, time.monotonic()
        state.seconds += took
        state.steps += 1
        state.tokens += rows * length
        for name, loss in losses.items():
            before = state.losses.setdefault(name, loss.item())
            state.losses[name] = before + 0.03 * (loss.item() - before)
        if state.steps % 20 == 0:
            log({**asdict(state), "tokens_per_s": round(rows * length / took), "done": done})
        if state.seconds - saved > SAVE_S:
            saved = state.seconds
            save()
        if state.seconds - evaluated > EVALUATE_S:
            evaluated = state.seconds
            log({"steps": state.steps, "held_out": job.held_out()})


def keep_memory() -> None:
    """Tell the C library to keep freed memory: returning it costs a tenth of the speed here."""
    try:
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(-3, 1 << 30)
        library.mallopt(-1, 2**31 - 1)
    except OSError:
        pass


def arguments(doc: str | None, minutes: float, out: Path) -> argparse.ArgumentParser:
    """Return the command line that all training has."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--minutes", type=float, default=minutes, help="training time")
    parser.add_argument("--out", type=Path, default=out, help="checkpoint folder")
    parser.add_argument("--threads", type=int, default=Recipe.threads, help="CPU threads")
    return parser
