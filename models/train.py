"""Train the embedded model: `python -m models.train --minutes 118`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from models import data, loop
from models.net import Net, Shape
from models.text import CACHE

RECIPE = loop.Recipe(minutes=118.0)
OUT = CACHE / "train"


class Whole(loop.Job):
    """The trunk and its MTP block, both on the next token."""

    draft_weight = 0.4

    def __init__(self, folder: Path, shape: Shape) -> None:
        super().__init__(folder)
        self.net: Net = Net(shape)
        self.shape = shape

    def losses(self, tokens: Tensor, cos: Tensor, sin: Tensor) -> dict[str, Tensor]:
        """Return the trunk's and the MTP block's loss, and their weighted sum."""
        trunk, draft = self.net.losses(tokens, cos, sin)
        return {"total": trunk + self.draft_weight * draft, "trunk": trunk, "draft": draft}


def main() -> None:
    """Read the command line and train."""
    args = loop.arguments(__doc__, RECIPE.minutes, OUT).parse_args()
    torch.manual_seed(RECIPE.seed)
    job = Whole(data.build(), Shape())
    loop.train(job, replace(RECIPE, minutes=args.minutes, threads=args.threads), args.out)


if __name__ == "__main__":
    main()
