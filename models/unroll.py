"""The MTP block drafting several tokens in a row, at every position of a text at once.

llama-server drafts token by token: the first row of a draft joins the trunk's state with the last
token, each later row the block's own normalized output with the token just drafted, and a row
attends to those of the accepted text (which hold the trunk's states) and to the earlier rows of
its draft. Here step k of all drafts is one row per position, and attends to the first step's rows
up to its draft's start and, one by one, to the rows of the steps between (as in the training of
EAGLE-3, Li et al., 2025). The tokens are the text's own: a guess counts only while all before it
were right.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor

from models.net import Block, DraftHead, FullAttention, rotate


def unrolled(
    head: DraftHead, embedded: Tensor, states: Tensor, depth: int, cos: Tensor, sin: Tensor
) -> list[Tensor]:
    """Return the block's normalized states of steps 1 to `depth`, each (batch, time, width).

    `embedded` holds the tokens' embeddings, `states` the trunk's normalized states at the same
    positions, both (batch, time, width). Step k's state at position p is of the draft that starts
    at p - k + 1, has the text's tokens up to p, and predicts the token at p + 1. The first k - 1
    positions of step k belong to no draft and mean nothing.
    """
    rows = F.pad(states[:, :-1], (0, 0, 1, 0))
    found: list[Tensor] = []
    earlier: list[tuple[Tensor, Tensor]] = []  # keys and values of the steps so far
    for step in range(1, depth + 1):
        joined = torch.cat((head.embed_norm(embedded), head.state_norm(rows)), -1)
        state = head.head_norm(_block(head.block, head.join(joined), earlier, cos, sin))
        found.append(state)
        # The draft's next row is one position on, at the token that this one predicts.
        moved = F.pad(state[:, :-1], (0, 0, 1, 0))
        rows = torch.cat((rows[:, :step], moved[:, step:]), 1)
    return found


def _block(
    block: Block, x: Tensor, earlier: list[tuple[Tensor, Tensor]], cos: Tensor, sin: Tensor
) -> Tensor:
    mix = block.mix
    assert isinstance(mix, FullAttention)
    x = x + _attention(mix, block.norm(x), earlier, cos, sin)
    return x + block.ffn(block.post_norm(x))  # type: ignore[no-any-return]


def _attention(
    mix: FullAttention, x: Tensor, earlier: list[tuple[Tensor, Tensor]], cos: Tensor, sin: Tensor
) -> Tensor:
    """Attend to the first step's rows and to the draft's own; adds keys, values to `earlier`."""
    s = mix.shape
    b, t, _ = x.shape
    q, gate = mix.q(x).view(b, t, s.heads, 2 * s.head).split(s.head, -1)
    k = rotate(mix.k_norm(mix.k(x).view(b, t, s.kv_heads, s.head)), cos, sin)
    v = mix.v(x).view(b, t, s.kv_heads, s.head)
    q = rotate(mix.q_norm(q), cos, sin).transpose(1, 2)
    k, v = (y.repeat_interleave(s.heads // s.kv_heads, 2).transpose(1, 2) for y in (k, v))
    earlier.append((k, v))
    steps = len(earlier)
    first_k, first_v = earlier[0]
    if steps == 1:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        scale = s.head**-0.5
        # Row p of step k: the first step's rows up to p - k + 1, then one row of each later step.
        past = torch.ones(t, t, dtype=torch.bool, device=x.device).tril(1 - steps)
        scores = [(q @ first_k.transpose(-1, -2) * scale).masked_fill(~past, -torch.inf)]
        values = []
        for number, (kept_k, kept_v) in enumerate(earlier[1:], 2):
            back = steps - number
            near_k, near_v = (F.pad(y, (0, 0, back, 0))[:, :, :t] for y in (kept_k, kept_v))
            scores.append((q * near_k).sum(-1, keepdim=True) * scale)
            values.append(near_v)
        weights = torch.cat(scores, -1).softmax(-1)
        y = weights[..., :t] @ first_v
        for place, near_v in enumerate(values):
            y = y + weights[..., t + place : t + place + 1] * near_v
    y = y.transpose(1, 2) * torch.sigmoid(gate)
    return mix.out(y.reshape(b, t, -1))  # type: ignore[no-any-return]
