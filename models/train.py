"""Train the embedded model: `python -m models.train --minutes 118`.

The learning rate follows the time that is spent, not the steps, so that a run always ends with a
full decay. An interrupted run goes on from its last checkpoint when started again.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from models import data
from models.net import Net, Shape, count_parameters, rotary_tables
from models.text import CACHE


@dataclass(frozen=True)
class Recipe:
    """Settings of one training run; lengths in tokens, times in minutes."""

    minutes: float = 118.0
    rows: int = 8
    length: int = 256
    long_rows: int = 1
    long_length: int = 2048
    long_share: float = 0.12
    muon_rate: float = 0.02
    adam_rate: float = 0.004
    weight_decay: float = 0.02
    warmup: float = 0.02
    draft_weight: float = 0.4
    seed: int = 1
    threads: int = 2
    shape: Shape = field(default_factory=Shape)


@dataclass
class Progress:
    """What has been done: seconds trained, steps, tokens and the smoothed losses in nats."""

    seconds: float = 0.0
    steps: int = 0
    tokens: int = 0
    loss: float = math.log(4096)
    draft_loss: float = math.log(4096)


class Muon(torch.optim.Optimizer):
    """Momentum whose matrix updates are made orthogonal by Newton-Schulz (Jordan, 2024).

    In 32-bit floats: PyTorch's own version works in bfloat16, which most CPUs emulate.
    """

    def __init__(self, parameters: list[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": 0.95, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Update all matrices."""
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                mean.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonal(p.grad.lerp(mean, group["momentum"]))
                scale = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * scale)


def orthogonal(g: Tensor) -> Tensor:
    """Return the matrix near `g` whose singular values are all about one."""
    wide = g.shape[0] <= g.shape[1]
    x = (g if wide else g.T) / (g.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = torch.addmm(x, torch.addmm(a, a, a, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    turned: Tensor = x if wide else x.T
    return turned


def optimizers(net: Net, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Return Muon for the hidden matrices and AdamW for all else."""
    matrices, tables, rest = [], [], []
    for name, p in net.named_parameters():
        if name in ("embed.weight", "output.weight"):
            tables.append(p)
        elif p.ndim == 2 and "conv" not in name and min(p.shape) > 8:
            matrices.append(p)
        else:
            rest.append(p)
    adam = torch.optim.AdamW(
        [
            {"params": tables, "lr": recipe.adam_rate, "weight_decay": 0.0},
            {"params": rest, "lr": recipe.adam_rate, "weight_decay": 0.0},
        ],
        betas=(0.9, 0.95),
        eps=1e-10,
        fused=True,
    )
    muon = Muon(matrices, recipe.muon_rate, recipe.weight_decay)
    for optimizer in (adam, muon):
        for group in optimizer.param_groups:
            group["full"] = group["lr"]
    return [adam, muon]


def rate(done: float, warmup: float) -> float:
    """Return the learning rate's factor when the share `done` of the time has passed."""
    if done < warmup:
        return max(done / warmup, 0.02)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (done - warmup) / (1 - warmup)))


def keep_memory() -> None:
    """Tell the C library to keep freed memory: returning it costs a tenth of the speed here."""
    try:
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(-3, 1 << 30)
        library.mallopt(-1, 2**31 - 1)
    except OSError:
        pass


def save(path: Path, net: Net, opts: list[torch.optim.Optimizer], state: Progress) -> None:
    """Write a checkpoint so that a kill at any moment leaves the old one or the new one."""
    partial = path.with_suffix(".partial")
    torch.save(
        {
            "shape": net.shape.as_dict(),
            "net": net.state_dict(),
            "optimizers": [o.state_dict() for o in opts],
            "progress": asdict(state),
        },
        partial,
    )
    partial.replace(path)


@torch.no_grad()
def held_out(net: Net, arrays: dict[str, data.Tokens], rows: int = 8) -> dict[str, list[float]]:
    """Return each kind's [trunk, draft] loss in nats on fixed windows of held-out text."""
    cos, sin = rotary_tables(net.shape, 512)
    found = {}
    for kind, tokens in arrays.items():
        starts = np.linspace(0, len(tokens) - 514, rows).astype(int)
        windows = torch.from_numpy(np.stack([tokens[s : s + 513] for s in starts]).astype(np.int64))
        found[kind] = [round(float(loss), 4) for loss in net.losses(windows, cos, sin)]
    return found


def steps(recipe: Recipe, state: Progress, folder: Path) -> Iterator[tuple[Tensor, float]]:
    """Yield batches and the share of time done until the time is spent."""
    arrays = data.load(folder, "train")
    while (done := state.seconds / (60 * recipe.minutes)) < 1:
        r = np.random.default_rng((recipe.seed, state.steps))
        long = done > 1 - recipe.long_share
        rows, length = (
            (recipe.long_rows, recipe.long_length) if long else (recipe.rows, recipe.length)
        )
        yield data.batch(arrays, r, rows, length, long), done


def train(recipe: Recipe, out: Path) -> None:
    """Train until the time is spent, writing checkpoints and a log into `out`."""
    keep_memory()
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    folder = data.build()
    out.mkdir(parents=True, exist_ok=True)
    net, state, path = Net(recipe.shape), Progress(), out / "checkpoint.pt"
    opts = optimizers(net, recipe)
    if path.exists():
        saved = torch.load(path, weights_only=True)
        net.load_state_dict(saved["net"])
        for optimizer, values in zip(opts, saved["optimizers"], strict=True):
            optimizer.load_state_dict(values)
        state = Progress(**saved["progress"])
    (out / "recipe.json").write_text(
        json.dumps({**asdict(recipe), "parameters": count_parameters(net)}, indent=1)
    )
    held = data.load(folder, "held")
    with (out / "log.jsonl").open("a", buffering=1) as log:
        run(net, opts, state, recipe, folder, path, held, log.write)
        save(path, net, opts, state)
        log.write(json.dumps({**asdict(state), "held_out": held_out(net, held)}) + "\n")


def run(
    net: Net,
    opts: list[torch.optim.Optimizer],
    state: Progress,
    recipe: Recipe,
    folder: Path,
    path: Path,
    held: dict[str, data.Tokens],
    log: Any,
) -> None:
    """Take the steps; a checkpoint every four minutes, a line in the log every 20 steps."""
    saved, evaluated = state.seconds, state.seconds
    tables = {n: rotary_tables(net.shape, n) for n in (recipe.length, recipe.long_length)}
    began = time.monotonic()
    for tokens, done in steps(recipe, state, folder):
        for optimizer in opts:
            for group in optimizer.param_groups:
                group["lr"] = group["full"] * rate(done, recipe.warmup)
        loss, draft = net.losses(tokens, *tables[tokens.shape[1] - 1])
        (loss + recipe.draft_weight * draft).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for optimizer in opts:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        # Pauses from outside count too, so that the run ends when it was asked to.
        took, began = time.monotonic() - began, time.monotonic()
        state.seconds += took
        state.steps += 1
        state.tokens += tokens[:, 1:].numel()
        state.loss += 0.03 * (loss.item() - state.loss)
        state.draft_loss += 0.03 * (draft.item() - state.draft_loss)
        if state.steps % 20 == 0:
            speed = tokens[:, 1:].numel() / took
            log(json.dumps({**asdict(state), "tokens_per_s": round(speed), "done": done}) + "\n")
        if state.seconds - saved > 240:
            saved = state.seconds
            save(path, net, opts, state)
        if state.seconds - evaluated > 900:
            evaluated = state.seconds
            log(json.dumps({"steps": state.steps, "held_out": held_out(net, held)}) + "\n")


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=Recipe.minutes, help="training time")
    parser.add_argument("--out", type=Path, default=CACHE / "train", help="checkpoint folder")
    parser.add_argument("--rows", type=int, default=Recipe.rows, help="windows a step")
    parser.add_argument("--threads", type=int, default=Recipe.threads, help="CPU threads")
    args = parser.parse_args()
    train(Recipe(minutes=args.minutes, rows=args.rows, threads=args.threads), args.out)


if __name__ == "__main__":
    main()
