"""Train the MTP head for depth: `python -m models.deepen --minutes 42`.

The embedded model's trunk, embedding and output matrix stay as they are in its GGUF file; only the
MTP block learns. Its drafts of several steps are unrolled at every position of texts that the
embedded model wrote itself, and each step is taught the distribution that the target samples from,
as FastMTP does (Cai et al., 2025) with the target's outputs. A deeper step counts less.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from analysis import model
from models import data, export, loop, outputs
from models.text import CACHE
from models.unroll import unrolled

RECIPE = loop.Recipe(minutes=42.0, muon_rate=0.01, adam_rate=0.001, long_share=0.25)
OUT = CACHE / "deepen"
DEPTH, DECAY, TEMPERATURE = 5, 0.8, 0.5  # steps, weight of each by the one before, the sweep's
OWN_SHARE = 0.7  # of the windows that are of the target's own texts
TEXTS = 3000


class Deepen(loop.Job):
    """The MTP block's steps 1 to DEPTH, on the target's distribution."""

    def __init__(self, folder: Path, texts: int) -> None:
        super().__init__(folder)
        self.own = outputs.build(CACHE / "outputs", texts)
        self.net = export.read(model.embedded_path())
        self.shape = self.net.shape
        for name, p in self.net.named_parameters():
            p.requires_grad = name.startswith("draft.")

    def batch(self, r: np.random.Generator, rows: int, length: int, long: bool) -> Tensor:
        """Return windows of the target's own texts and of the training text, row by row.

        Long windows are of the training text: the target's own texts are short.
        """
        tokens = super().batch(r, rows, length, long)
        if not long:
            for row in np.flatnonzero(r.random(rows) < OWN_SHARE):
                start = int(r.integers(0, len(self.own) - length))
                window = self.own[start : start + length + 1].astype(np.int64)
                tokens[row] = torch.from_numpy(window)
        return tokens

    def losses(self, tokens: Tensor, cos: Tensor, sin: Tensor) -> dict[str, Tensor]:
        """Return each step's cross-entropy against the target's distribution, in nats.

        The first DEPTH positions are left out: no whole draft ends there.
        """
        net, inputs = self.net, tokens[:, :-1]
        with torch.no_grad():
            states = net.states(inputs, cos, sin)
            wanted = (net.output(states[:, DEPTH:]) / TEMPERATURE).softmax(-1)
        drafts = unrolled(net.draft, net.embed(inputs), states, DEPTH, cos, sin)
        found: dict[str, Tensor] = {}
        total, weights = torch.zeros(()), 0.0
        for step, state in enumerate(drafts, 1):
            logits = net.output(state[:, DEPTH:]) / TEMPERATURE
            loss = -(wanted * logits.log_softmax(-1)).sum(-1).mean()
            weight = DECAY ** (step - 1)
            total, weights = total + weight * loss, weights + weight
            found[f"step_{step}"] = loss
            # The chance that the target says what this step guesses, all before it being right.
            guess = logits.detach().argmax(-1, keepdim=True)
            found[f"kept_{step}"] = wanted.gather(-1, guess).mean()
        return {"total": total / weights, **found}


def main() -> None:
    """Read the command line, train, and write the head's file."""
    parser = loop.arguments(__doc__, RECIPE.minutes, OUT)
    parser.add_argument("--texts", type=int, default=TEXTS, help="texts of the target's own")
    parser.add_argument("--gguf", type=Path, default=export.HEAD, help="where the head is written")
    args = parser.parse_args()
    torch.manual_seed(RECIPE.seed)
    folder = data.build(tokenizer=data.tokenizer_of(model.embedded_path()))
    job = Deepen(folder, args.texts)
    loop.train(job, replace(RECIPE, minutes=args.minutes, threads=args.threads), args.out)
    export.write_head(job.net, model.embedded_path(), args.gguf)


if __name__ == "__main__":
    main()
