"""The optimizers of all training here: Muon for the matrices of the layers, AdamW for all else."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


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


def optimizers(
    named: Iterable[tuple[str, nn.Parameter]],
    muon_rate: float,
    adam_rate: float,
    weight_decay: float,
) -> list[torch.optim.Optimizer]:
    """Return AdamW and Muon for parameters with their names; each group knows its full rate."""
    matrices, tables, rest = [], [], []
    for name, p in named:
        if name in ("embed.weight", "output.weight"):
            tables.append(p)
        elif p.ndim == 2 and "conv" not in name and min(p.shape) > 8:
            matrices.append(p)
        else:
            rest.append(p)
    groups = [{"params": g, "lr": adam_rate, "weight_decay": 0.0} for g in (tables, rest) if g]
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-10, fused=True)
    muon = Muon(matrices, muon_rate, weight_decay)
    for optimizer in (adam, muon):
        for group in optimizer.param_groups:
            group["full"] = group["lr"]
    return [adam, muon]


def rate(done: float, warmup: float) -> float:
    """Return the learning rate's factor when the share `done` of the time has passed."""
    if done < warmup:
        return max(done / warmup, 0.02)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (done - warmup) / (1 - warmup)))
