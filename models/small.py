"""Train a small model of the same tokenizer: `python -m models.small --minutes 36`.

An off-the-shelf drafter: a plain decoder of the architecture of Qwen3 (GGUF `qwen3`) that read the
same text as the embedded model and has never seen it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from analysis import model
from models import data, export, loop
from models.net import FeedForward, Norm, cross_entropy, rotate
from models.text import CACHE

RECIPE = loop.Recipe(minutes=36.0, rows=16, long_rows=2)
OUT = CACHE / "small"
NAME = "specdepth-2m"
MODEL = Path(__file__).parent / "drafters" / f"{NAME}-q8_0.gguf"
ARCH = "qwen3"


@dataclass(frozen=True)
class Small:
    """Sizes of the network; widths in elements."""

    vocab: int = 4096
    layers: int = 3
    width: int = 128
    ffn: int = 384
    heads: int = 4
    kv_heads: int = 2
    head: int = 32
    rope_base: float = 1e6
    context: int = 65536

    @property
    def rotary(self) -> int:
        """Rotary dimensions: the whole head."""
        return self.head


class Layer(nn.Module):
    """Softmax attention with normalized queries and keys, then the feed-forward layer."""

    def __init__(self, shape: Small) -> None:
        super().__init__()
        self.shape = shape
        self.norm = Norm(shape.width)
        self.q = nn.Linear(shape.width, shape.heads * shape.head, bias=False)
        self.k = nn.Linear(shape.width, shape.kv_heads * shape.head, bias=False)
        self.v = nn.Linear(shape.width, shape.kv_heads * shape.head, bias=False)
        self.out = nn.Linear(shape.heads * shape.head, shape.width, bias=False)
        self.q_norm, self.k_norm = Norm(shape.head), Norm(shape.head)
        self.post_norm = Norm(shape.width)
        self.ffn = FeedForward(shape.width, shape.ffn)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the residual stream after this layer; `x` is (batch, time, width)."""
        s, (b, t, _) = self.shape, x.shape
        y = self.norm(x)
        q = rotate(self.q_norm(self.q(y).view(b, t, s.heads, s.head)), cos, sin)
        k = rotate(self.k_norm(self.k(y).view(b, t, s.kv_heads, s.head)), cos, sin)
        v = self.v(y).view(b, t, s.kv_heads, s.head)
        k, v = (z.repeat_interleave(s.heads // s.kv_heads, 2) for z in (k, v))
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        return x + self.ffn(self.post_norm(x))  # type: ignore[no-any-return]


class SmallNet(nn.Module):
    """The whole model; the output matrix is not tied."""

    def __init__(self, shape: Small) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab, shape.width)
        self.blocks = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.width)
        self.output = nn.Linear(shape.width, shape.vocab, bias=False)
        nn.init.normal_(self.embed.weight, std=0.5)
        for name, p in self.named_parameters():
            if p.ndim == 2 and not name.startswith("embed"):
                ends = name.endswith(("out.weight", "down.weight", "output.weight"))
                nn.init.normal_(p, std=0.02 if ends else p.shape[1] ** -0.5)

    def forward(self, tokens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the logits after each of the tokens (batch, time)."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.output(self.norm(x))  # type: ignore[no-any-return]


class Alone(loop.Job):
    """The next token of the training text, without the target in view."""

    def __init__(self, folder: Path, shape: Small) -> None:
        super().__init__(folder)
        self.net: SmallNet = SmallNet(shape)
        self.shape = shape

    def losses(self, tokens: Tensor, cos: Tensor, sin: Tensor) -> dict[str, Tensor]:
        """Return the loss on the next token."""
        return {"total": cross_entropy(self.net(tokens[:, :-1], cos, sin), tokens[:, 1:])}


TOP_NAMES = export.TOP_NAMES
LAYER_NAMES = {
    "norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "out": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "post_norm": "ffn_norm",
    "ffn.gate": "ffn_gate",
    "ffn.up": "ffn_up",
    "ffn.down": "ffn_down",
}


def write(net: SmallNet, tokenizer: Path, path: Path) -> None:
    """Write the network and the tokenizer of a JSON file as GGUF."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial, s = path.with_suffix(".partial"), net.shape
    writer = gguf.GGUFWriter(partial, ARCH)
    text = "Small drafter with the tokenizer of specdepth-9m, trained on its own"
    export.describe(writer, NAME, text, s, s.layers)
    export.vocabulary(writer, json.loads(tokenizer.read_text()), s.vocab)
    for ours, p in net.named_parameters():
        theirs = TOP_NAMES.get(ours)
        if theirs is None:
            _, number, rest = ours.split(".", 2)
            theirs = f"blk.{number}.{LAYER_NAMES[rest.removesuffix('.weight')]}.weight"
        export.add(writer, ours, theirs, p)
    export.finish(writer, partial, path)


def main() -> None:
    """Read the command line, train, and write the file."""
    parser = loop.arguments(__doc__, RECIPE.minutes, OUT)
    parser.add_argument("--gguf", type=Path, default=MODEL, help="where the model is written")
    args = parser.parse_args()
    torch.manual_seed(RECIPE.seed)
    folder = data.build(tokenizer=data.tokenizer_of(model.embedded_path()))
    job = Alone(folder, Small())
    loop.train(job, replace(RECIPE, minutes=args.minutes, threads=args.threads), args.out)
    write(job.net, folder / "tokenizer.json", args.gguf)


if __name__ == "__main__":
    main()
