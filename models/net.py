"""The Qwen3.5 architecture in PyTorch, at a size that a CPU can train.

Three of four layers are Gated DeltaNet (linear attention), every fourth is gated full attention,
and one multi-token-prediction (MTP) block drafts the token after the next. The arithmetic follows
llama.cpp's `src/models/qwen35.cpp` exactly, since the exported file runs there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from models.ops import causal_convolution, unit_length, unit_lower_inverse

EPS = 1e-6


class Rotary(Protocol):
    """Sizes with rotary positions."""

    @property
    def rotary(self) -> int:
        """Rotary dimensions of a head."""

    @property
    def rope_base(self) -> float:
        """The base of the angles."""


@dataclass(frozen=True)
class Shape:
    """Sizes of the network; widths in elements."""

    vocab: int = 4096
    layers: int = 8
    width: int = 256
    ffn: int = 640
    full_every: int = 4
    heads: int = 4
    kv_heads: int = 2
    head: int = 64
    rotary: int = 32
    rope_base: float = 1e7
    linear_heads: int = 4
    linear_head: int = 64
    kernel: int = 4
    context: int = 65536

    def is_full(self, layer: int) -> bool:
        """Return whether `layer` (from 0) is full attention."""
        return (layer + 1) % self.full_every == 0

    def as_dict(self) -> dict[str, Any]:
        """Return the sizes as plain data."""
        return asdict(self)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Return `x` scaled to unit root mean square over its last dimension, times `weight`."""
    y: Tensor = unit_length(x, EPS * x.shape[-1]) * (weight * x.shape[-1] ** 0.5)
    return y


def l2_norm(x: Tensor) -> Tensor:
    """Return `x` scaled to unit length over its last dimension."""
    return unit_length(x, EPS)


class Norm(nn.Module):
    """Root-mean-square norm with a learned scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized `x`."""
        return rms_norm(x, self.weight)


def rotary_tables(shape: Rotary, length: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, each (length, rotary / 2), for positions from 0."""
    half = shape.rotary // 2
    inverse = shape.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * inverse
    return angle.cos().float(), angle.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first dimensions of each head; `x` is (batch, time, heads, head size)."""
    half = cos.shape[-1]
    cos, sin = cos[:, None, :], sin[:, None, :]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)


class FullAttention(nn.Module):
    """Gated softmax attention with normalized queries and keys and partial rotary positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        # Each head's rows hold its query, then its gate, as in the published checkpoints.
        self.q = nn.Linear(shape.width, shape.heads * shape.head * 2, bias=False)
        self.k = nn.Linear(shape.width, shape.kv_heads * shape.head, bias=False)
        self.v = nn.Linear(shape.width, shape.kv_heads * shape.head, bias=False)
        self.out = nn.Linear(shape.heads * shape.head, shape.width, bias=False)
        self.q_norm = Norm(shape.head)
        self.k_norm = Norm(shape.head)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the attention output for `x` (batch, time, width)."""
        s = self.shape
        b, t, _ = x.shape
        q, gate = self.q(x).view(b, t, s.heads, 2 * s.head).split(s.head, -1)
        k = self.k(x).view(b, t, s.kv_heads, s.head)
        v = self.v(x).view(b, t, s.kv_heads, s.head)
        q = rotate(self.q_norm(q), cos, sin)
        k = rotate(self.k_norm(k), cos, sin)
        groups = s.heads // s.kv_heads
        k = k.repeat_interleave(groups, 2)
        v = v.repeat_interleave(groups, 2)
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        y = y.transpose(1, 2) * torch.sigmoid(gate)
        return self.out(y.reshape(b, t, -1))  # type: ignore[no-any-return]


class DeltaNet(nn.Module):
    """Gated DeltaNet: a matrix state per head, decayed and corrected by one key each token.

    Computed in chunks: inside a chunk the corrections are the solution of a triangular system,
    between chunks the state is carried on (Yang et al., "Gated Delta Networks", 2024).
    """

    def __init__(self, shape: Shape, chunk: int = 32) -> None:
        super().__init__()
        self.shape, self.chunk = shape, chunk
        inner = shape.linear_heads * shape.linear_head
        self.qkv = nn.Linear(shape.width, 3 * inner, bias=False)
        self.z = nn.Linear(shape.width, inner, bias=False)
        self.beta = nn.Linear(shape.width, shape.linear_heads, bias=False)
        self.alpha = nn.Linear(shape.width, shape.linear_heads, bias=False)
        self.conv = nn.Parameter(torch.randn(3 * inner, shape.kernel) * shape.kernel**-0.5)
        self.a_log = nn.Parameter(torch.empty(shape.linear_heads).uniform_(1, 16).log())
        # Step sizes start log-uniform in [0.001, 0.1], as in Mamba 2.
        step = torch.empty(shape.linear_heads).uniform_(-6.9, -2.3).exp()
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.norm = Norm(shape.linear_head)
        self.out = nn.Linear(inner, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer output for `x` (batch, time, width); time a multiple of the chunk."""
        b, t, _ = x.shape
        h, d, c = self.shape.linear_heads, self.shape.linear_head, self.chunk
        mixed = self.qkv(x)
        mixed = causal_convolution(mixed, self.conv)
        heads = F.silu(mixed).view(b, t // c, c, 3, h, d).permute(3, 0, 4, 1, 2, 5)
        q = l2_norm(heads[0]) * d**-0.5
        k, v = l2_norm(heads[1]), heads[2]
        beta = torch.sigmoid(self.beta(x)).view(b, t // c, c, h).permute(0, 3, 1, 2)
        decay = -self.a_log.exp() * F.softplus(self.alpha(x) + self.dt_bias)
        decay = decay.view(b, t // c, c, h).permute(0, 3, 1, 2).cumsum(-1)
        y = delta_rule(q, k, v, beta, decay)
        y = y.permute(0, 2, 3, 1, 4).reshape(b, t, h, d)
        y = self.norm(y) * F.silu(self.z(x).view(b, t, h, d))
        return self.out(y.reshape(b, t, h * d))  # type: ignore[no-any-return]


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor) -> Tensor:
    """Return the gated delta rule's outputs.

    `q`, `k`, `v` are (batch, heads, chunks, chunk, size); `beta` and the log decay, summed from
    the start of each chunk, are (batch, heads, chunks, chunk).
    """
    c = q.shape[3]
    lower = torch.ones(c, c, dtype=torch.bool, device=q.device).tril()
    gap = (decay[..., :, None] - decay[..., None, :]).masked_fill(~lower, -torch.inf).exp()
    k_beta = k * beta[..., None]
    system = ((k_beta @ k.transpose(-1, -2)) * gap).tril(-1)
    grow = decay.exp()[..., None]
    inverse = unit_lower_inverse(system)
    new_v, k_decayed = inverse @ (v * beta[..., None]), inverse @ (k_beta * grow)
    inside = (q @ k.transpose(-1, -2)) * gap
    last = decay[..., -1:]
    return scan(q * grow, k * (last - decay).exp()[..., None], new_v, k_decayed, inside, last.exp())


def scan(
    q: Tensor, k: Tensor, new_v: Tensor, k_decayed: Tensor, inside: Tensor, shrink: Tensor
) -> Tensor:
    """Carry the state over the chunks and return all outputs."""
    b, h, n, _, d = q.shape
    state = q.new_zeros(b, h, d, d)
    outputs = []
    for i in range(n):
        fresh = new_v[:, :, i] - k_decayed[:, :, i] @ state
        outputs.append(q[:, :, i] @ state + inside[:, :, i] @ fresh)
        if i + 1 < n:
            state = state * shrink[:, :, i, :, None] + k[:, :, i].transpose(-1, -2) @ fresh
    return torch.stack(outputs, 2)


class FeedForward(nn.Module):
    """Gated feed-forward layer (SwiGLU)."""

    def __init__(self, width: int, ffn: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, ffn, bias=False)
        self.up = nn.Linear(width, ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer output for `x`."""
        return self.down(F.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class Block(nn.Module):
    """One decoder layer: attention of either kind, then the feed-forward layer."""

    def __init__(self, shape: Shape, full: bool) -> None:
        super().__init__()
        self.full = full
        self.norm = Norm(shape.width)
        self.mix: nn.Module = FullAttention(shape) if full else DeltaNet(shape)
        self.post_norm = Norm(shape.width)
        self.ffn = FeedForward(shape.width, shape.ffn)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the residual stream after this layer."""
        y = self.norm(x)
        x = x + (self.mix(y, cos, sin) if self.full else self.mix(y))
        return x + self.ffn(self.post_norm(x))  # type: ignore[no-any-return]


class DraftHead(nn.Module):
    """The MTP block: the next token's embedding and the trunk's state give the token after it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_norm = Norm(shape.width)
        self.state_norm = Norm(shape.width)
        self.join = nn.Linear(2 * shape.width, shape.width, bias=False)
        self.block = Block(shape, full=True)
        self.head_norm = Norm(shape.width)

    def forward(self, embedded: Tensor, state: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the normalized draft state; `embedded` is of the token after `state`'s."""
        x = self.join(torch.cat((self.embed_norm(embedded), self.state_norm(state)), -1))
        return self.head_norm(self.block(x, cos, sin))  # type: ignore[no-any-return]


class Net(nn.Module):
    """The whole model: embedding, trunk, final norm, output matrix and MTP block."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab, shape.width)
        self.blocks = nn.ModuleList(Block(shape, shape.is_full(i)) for i in range(shape.layers))
        self.norm = Norm(shape.width)
        self.output = nn.Linear(shape.width, shape.vocab, bias=False)
        self.draft = DraftHead(shape)
        self._initialize()

    def _initialize(self) -> None:
        nn.init.normal_(self.embed.weight, std=0.5)
        for name, p in self.named_parameters():
            if p.ndim == 2 and not name.startswith("embed") and "conv" not in name:
                nn.init.normal_(p, std=p.shape[1] ** -0.5)
            if name.endswith(("out.weight", "down.weight", "output.weight")):
                nn.init.normal_(p, std=0.02)

    def states(self, tokens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the trunk's final, normalized states; `tokens` is (batch, time)."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.norm(x)  # type: ignore[no-any-return]

    def draft_states(self, tokens: Tensor, states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the MTP block's states at the positions of `tokens`.

        As in llama.cpp, position p joins the embedding of token p with the trunk's normalized
        state at p - 1, and position 0 with zeros, to predict token p + 1.
        """
        shifted = F.pad(states[:, :-1], (0, 0, 1, 0))
        return self.draft(self.embed(tokens), shifted, cos, sin)  # type: ignore[no-any-return]

    def losses(self, tokens: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Return the trunk's and the MTP block's mean loss in nats; `tokens` is (batch, time + 1).

        Both predict the same token; the MTP block has seen the trunk one position earlier only.
        """
        inputs, target = tokens[:, :-1], tokens[:, 1:]
        states = self.states(inputs, cos, sin)
        drafts = self.draft_states(inputs, states, cos, sin)
        trunk = cross_entropy(self.output(states), target)
        return trunk, cross_entropy(self.output(drafts), target)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats."""
    return F.cross_entropy(logits.flatten(0, -2), target.flatten())


def count_parameters(net: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(p.numel() for p in net.parameters())
