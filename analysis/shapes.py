"""Full-size models by their shapes alone: public configuration values, without any weights.

The table is ``data/shapes.csv``; each row names its source. Whether the smaller models tie their
output matrix to the embeddings was not confirmed, so that the column is empty for them and the
matrix is counted on its own; nothing else here depends on it.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

from analysis.errors import SpecError
from analysis.memory import Layout


@dataclass(frozen=True)
class Shape:
    """Configuration values of a model of the Qwen3.5 family; sizes in numbers, not bytes."""

    name: str
    architecture: str  # qwen35 or qwen35moe
    hidden: int
    ffn: int  # 0 where all feed-forward layers are experts
    layers: int  # trunk blocks; the MTP block comes on top
    full_every: int  # every n-th block has full attention
    heads: int
    kv_heads: int
    head_size: int
    linear_k_heads: int
    linear_v_heads: int
    linear_head_size: int
    conv_kernel: int
    vocab: int
    tied: str  # "yes", "no", or "" where not confirmed
    experts: int
    experts_used: int
    expert_ffn: int
    context: int
    rotary: int
    source: str

    @property
    def blocks(self) -> int:
        """All blocks, the MTP block among them."""
        return self.layers + 1

    def layout(self) -> Layout:
        """Return the numbers that state and caches follow from."""
        attention = self.layers // self.full_every
        return Layout(
            name=self.name,
            architecture=self.architecture,
            linear_layers=self.layers - attention,
            attention_layers=attention,
            mtp_layers=1,
            kv_heads=self.kv_heads,
            head_k=self.head_size,
            head_v=self.head_size,
            linear_inner=self.linear_v_heads * self.linear_head_size,
            linear_state=self.linear_head_size,
            linear_groups=self.linear_k_heads,
            conv_kernel=self.conv_kernel,
            full_every=self.full_every,
            width=self.hidden,
            ffn=self.ffn,
            experts_used=self.experts_used,
        )

    def is_full(self, layer: int) -> bool:
        """Tell whether a block has full attention; the MTP block has."""
        return layer >= self.layers or (layer + 1) % self.full_every == 0


def shapes() -> dict[str, Shape]:
    """Return all shapes by name."""
    file = resources.files("analysis").joinpath("data/shapes.csv")
    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    fields = dataclasses.fields(Shape)
    return {
        row["name"]: Shape(**{f.name: int(row[f.name]) if f.type == "int" else row[f.name]
                              for f in fields})  # type: ignore[arg-type]
        for row in rows
    }  # fmt: skip


def shape(name: str) -> Shape:
    """Return a shape, or raise with the names that there are."""
    known = shapes()
    if name.lower() not in known:
        raise SpecError(f"no shape called {name}", "", f"known are {', '.join(known)}")
    return known[name.lower()]


def tensors(s: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and size of every tensor, rows first, as GGUF files of llama.cpp name them.

    Source: llama.cpp 0c1e570, ``src/models/qwen35.cpp``, ``qwen35moe.cpp`` and
    ``qwen3next.cpp``.
    """
    yield "token_embd.weight", (s.vocab, s.hidden)
    yield "output_norm.weight", (s.hidden,)
    if s.tied != "yes":
        yield "output.weight", (s.vocab, s.hidden)
    for layer in range(s.layers + 1):
        for name, size in _block(s, layer):
            yield f"blk.{layer}.{name}", size
        if layer == s.layers:
            yield f"blk.{layer}.nextn.eh_proj.weight", (s.hidden, 2 * s.hidden)
            for name in ("enorm", "hnorm", "shared_head_norm"):
                yield f"blk.{layer}.nextn.{name}.weight", (s.hidden,)


def _block(s: Shape, layer: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "attn_norm.weight", (s.hidden,)
    yield "post_attention_norm.weight", (s.hidden,)
    if s.is_full(layer):
        queries, keys = s.heads * s.head_size, s.kv_heads * s.head_size
        yield "attn_q.weight", (2 * queries, s.hidden)  # with its output gate
        yield "attn_k.weight", (keys, s.hidden)
        yield "attn_v.weight", (keys, s.hidden)
        yield "attn_output.weight", (s.hidden, queries)
        yield "attn_q_norm.weight", (s.head_size,)
        yield "attn_k_norm.weight", (s.head_size,)
    else:
        inner = s.linear_v_heads * s.linear_head_size
        channels = inner + 2 * s.linear_k_heads * s.linear_head_size
        yield "attn_qkv.weight", (channels, s.hidden)
        yield "attn_gate.weight", (inner, s.hidden)
        yield "ssm_conv1d.weight", (channels, s.conv_kernel)
        yield "ssm_dt.bias", (s.linear_v_heads,)
        yield "ssm_a", (s.linear_v_heads,)
        if s.architecture == "qwen3next":
            yield "ssm_ba.weight", (2 * s.linear_v_heads, s.hidden)
        else:
            yield "ssm_beta.weight", (s.linear_v_heads, s.hidden)
            yield "ssm_alpha.weight", (s.linear_v_heads, s.hidden)
        yield "ssm_norm.weight", (s.linear_head_size,)
        yield "ssm_out.weight", (s.hidden, inner)
    if s.experts:
        yield "ffn_gate_inp.weight", (s.experts, s.hidden)
        for part in ("gate", "up"):
            yield f"ffn_{part}_exps.weight", (s.experts, s.expert_ffn, s.hidden)
        yield "ffn_down_exps.weight", (s.experts, s.hidden, s.expert_ffn)
        yield "ffn_gate_inp_shexp.weight", (s.hidden,)
        for part in ("gate", "up"):
            yield f"ffn_{part}_shexp.weight", (s.expert_ffn, s.hidden)
        yield "ffn_down_shexp.weight", (s.hidden, s.expert_ffn)
    else:
        for part in ("gate", "up"):
            yield f"ffn_{part}.weight", (s.ffn, s.hidden)
        yield "ffn_down.weight", (s.hidden, s.ffn)
