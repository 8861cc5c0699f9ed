"""Check the exported file: PyTorch's logits against llama.cpp's, and perplexity on held-out text.

`python -m models.check` writes `check.json` beside this file.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from models import data, engine
from models.export import MODEL, read, read_head
from models.net import Net, cross_entropy, rotary_tables
from models.text import CACHE

# Below this difference of the two best logits either may come first by rounding alone: llama.cpp
# rounds the inputs of a Q8_0 product to 8 bits, PyTorch does not.
TIE = 0.1
WINDOWS, LENGTH = 3, 512


def windows(held: dict[str, data.Tokens], count: int, length: int) -> npt.NDArray[np.int64]:
    """Return `count` evenly spaced windows of each kind of held-out text, (all, length + 1)."""
    found = []
    for kind in sorted(held):
        tokens = held[kind]
        starts = np.linspace(0, len(tokens) - length - 1, count).astype(int)
        found += [tokens[s : s + length + 1].astype(np.int64) for s in starts]
    return np.stack(found)


@torch.no_grad()
def torch_logits(net: Net, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the trunk's and the MTP block's logits for `tokens` (windows, time)."""
    cos, sin = rotary_tables(net.shape, tokens.shape[1])
    states = net.states(tokens, cos, sin)
    return net.output(states), net.output(net.draft_states(tokens, states, cos, sin))


def compare(ours: Tensor, theirs: Tensor) -> dict[str, Any]:
    """Return how two sets of logits agree, position by position."""
    best = ours.topk(2, -1).values
    clear = (best[..., 0] - best[..., 1]) > TIE
    same = ours.argmax(-1) == theirs.argmax(-1)
    difference = (ours - theirs).abs()
    return {
        "positions": int(same.numel()),
        "positions_away_from_ties": int(clear.sum()),
        "same_top_1": round(float(same.float().mean()), 5),
        "same_top_1_away_from_ties": round(float(same[clear].float().mean()), 5),
        "largest_difference": round(float(difference.max()), 4),
        "mean_difference": round(float(difference.mean()), 5),
        "logit_spread": round(float(ours.std()), 3),
    }


def check(model: Path, folder: Path, head: Path | None = None) -> dict[str, Any]:
    """Return the whole report on the file `model`, or on another `head` beside it."""
    held = data.load(folder, "held")
    tokens = windows(held, WINDOWS, LENGTH)
    net = read(model)
    if head:
        read_head(net, head)
    ours = torch_logits(net, torch.from_numpy(tokens[:, :-1]))
    theirs = [torch.from_numpy(x) for x in engine.logits(model, tokens[:, :-1], head=head)]
    report: dict[str, Any] = {
        "model": (head or model).name,
        "tie": f"the two best logits differ by at most {TIE}",
        "trunk": compare(ours[0], theirs[0]),
        "mtp": compare(ours[1], theirs[1]),
        "perplexity": {},
    }
    for kind, array in held.items():
        part = torch.from_numpy(windows({kind: array}, 24, LENGTH))
        cos, sin = rotary_tables(net.shape, LENGTH)
        with torch.no_grad():
            loss, draft = net.losses(part, cos, sin)
        report["perplexity"][kind] = {
            "trunk": round(math.exp(loss), 2),
            "mtp": round(math.exp(draft), 2),
            "tokens": part[:, 1:].numel(),
        }
    target = torch.from_numpy(tokens[:, 1:])
    report["loss_in_llama_cpp"] = {
        "trunk": round(float(cross_entropy(theirs[0], target)), 4),
        "mtp": round(float(cross_entropy(theirs[1], target)), 4),
    }
    return report


def main() -> None:
    """Read the command line and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--head", type=Path, help="a file of another MTP block for the model")
    parser.add_argument("--out", type=Path, help="default: check.json beside the file checked")
    args = parser.parse_args()
    report = check(args.model, data.build(CACHE, tokenizer=data.tokenizer_of(MODEL)), args.head)
    out = args.out or (args.head or args.model).with_name("check.json")
    out.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
