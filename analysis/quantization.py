"""Which type llama-quantize gives each tensor of a model under a named mix.

The mixes are those of ``llama-quantize MODEL MIX`` without a type of one's own for any tensor
(llama.cpp 0c1e570, ``src/llama-quant.cpp``). Published files may differ: an importance matrix or a
hand-made mix moves single tensors, and a file itself is then the better source.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from analysis.errors import SpecError

# The type that most matrices get, by mix; `q4_k_pure` is Q4_K but for output and
# embeddings in Q6_K, and no mix of llama-quantize's own.
MIXES = {
    "f16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "q6_k": "Q6_K", "q5_k_m": "Q5_K",
    "q5_k_s": "Q5_K", "q4_k_m": "Q4_K", "q4_k_s": "Q4_K", "q4_k_pure": "Q4_K",
}  # fmt: skip
_FLOATS = ("F16", "BF16", "F32")
# What replaces a type whose blocks do not divide a tensor's rows.
_FALLBACK = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
_KEPT = ("_norm.weight", "ffn_gate_inp.weight", "ssm_conv1d")
_MORE_BITS = {"q4_k_m": "Q6_K", "q5_k_m": "Q6_K"}


@dataclass(frozen=True)
class Mix:
    """A mix for a model of `blocks` blocks, the MTP block among them."""

    name: str
    blocks: int
    tied: bool = False  # whether the embeddings serve as output matrix too

    def __post_init__(self) -> None:
        if self.name not in MIXES:
            raise SpecError(
                f"no quantization called {self.name}", "", f"known are {', '.join(MIXES)}"
            )

    def kind(self, tensor: str, size: tuple[int, ...]) -> str:
        """Return the type of a tensor of `size`, rows first."""
        if len(size) == 1 or not tensor.endswith("weight") or any(k in tensor for k in _KEPT):
            return "F32"
        wanted = self._wanted(tensor)
        blocks = block_of(wanted)[0]
        if size[-1] % blocks:
            wanted = _FALLBACK.get(wanted, wanted)
            return wanted if size[-1] % block_of(wanted)[0] == 0 else "F16"
        return wanted

    def _wanted(self, tensor: str) -> str:
        base = MIXES[self.name]
        if base in _FLOATS:
            return base
        output = tensor == "output.weight" or (self.tied and tensor == "token_embd.weight")
        if output or (self.name == "q4_k_pure" and tensor == "token_embd.weight"):
            return base if base == "Q8_0" else "Q6_K"
        found = re.match(r"blk\.(\d+)\.", tensor)
        layer = int(found[1]) if found else 0
        values = "attn_v.weight" in tensor or "attn_qkv.weight" in tensor
        down = "ffn_down" in tensor
        if self.name in _MORE_BITS and (values or down) and self._more(layer):
            return _MORE_BITS[self.name]
        early = (values and layer < 4) or (down and layer < self.blocks // 8)
        return "Q5_K" if self.name == "q4_k_s" and early else base

    def _more(self, layer: int) -> bool:
        """Tell whether a block is among the first or last eighth, or each third between."""
        first = self.blocks // 8
        return layer < first or layer >= 7 * self.blocks // 8 or (layer - first) % 3 == 2


def tensor_bytes(size: tuple[int, ...], kind: str) -> int:
    """Return the bytes of a tensor of a type."""
    numbers, block = block_of(kind)
    return math.prod(size) // numbers * block


def block_of(kind: str) -> tuple[int, int]:
    """Return numbers and bytes of a block of a type."""
    import gguf

    numbers, block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    return int(numbers), int(block)
