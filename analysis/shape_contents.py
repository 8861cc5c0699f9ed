"""Random weights for a shape: of the intended size, finite, the same each time, without meaning.

Zeros can draw less power than real weights on a graphics card, which then runs at higher clocks.
Here each matrix has a standard deviation of 1 / sqrt(row length), so that activations neither
vanish nor overflow; norms are ones, biases zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache
from typing import IO

import numpy as np
import numpy.typing as npt

from analysis.quantization import block_of, tensor_bytes
from analysis.shape_tokens import end_of_text

SEED = 1
_CHUNK_BYTES = 16 * 2**20
Bytes = npt.NDArray[np.uint8]
Placed = tuple[int, str, tuple[int, ...], str]  # offset, name, size (rows first), type

# Where a block's half-precision fields lie, and their values in units of the block's scale; all its
# other bytes may be any. A second field moves the middle of unsigned numbers, which are up to 15 or
# 31, to zero. Source: the block types in ggml-common.h of llama.cpp 0c1e570.
_FIELDS: dict[str, tuple[tuple[int, float], ...]] = {
    "Q8_0": ((0, 1.0),),
    "Q6_K": ((208, 1.0),),
    "Q5_K": ((0, 1.0), (2, 15.5)),
    "Q4_K": ((0, 1.0), (2, 7.5)),
    "Q5_1": ((0, 1.0), (2, -15.5)),
    "Q5_0": ((0, 1.0),),
}
_SINGLE_ROW = "ffn_gate_inp_shexp"  # a matrix although it has one dimension
_PROBE_BLOCKS = 4096


def fill(file: IO[bytes], start: int, placed: Iterable[Placed], seed: int = SEED) -> None:
    """Write the weights of all tensors into a file, each at its offset behind `start`."""
    random = np.random.Generator(np.random.SFC64(seed))
    tensors = {name: (start + offset, size, kind) for offset, name, size, kind in placed}
    for name, (at, size, kind) in tensors.items():
        file.seek(at)
        for part in tensor(random, name, size, kind):
            file.write(part)
    # The end of text gets a logit of zero, which is never a high one among random logits.
    head = "output.weight" if "output.weight" in tensors else "token_embd.weight"
    at, size, kind = tensors[head]
    row_bytes = tensor_bytes(size[1:], kind)
    file.seek(at + end_of_text(size[0]) * row_bytes)
    file.write(bytes(row_bytes))


def tensor(
    random: np.random.Generator, name: str, size: tuple[int, ...], kind: str
) -> Iterator[bytes]:
    """Yield a tensor's bytes in parts of bounded size."""
    same = _constant(name, size)
    numbers, block_bytes = block_of(kind)
    left = math.prod(size) // numbers
    while left:
        count = min(left, _CHUNK_BYTES // block_bytes)
        left -= count
        if same is not None:
            yield np.full(count, same, np.float32).tobytes()
        else:
            yield blocks(random, kind, count, 1 / math.sqrt(size[-1])).tobytes()


def _constant(name: str, size: tuple[int, ...]) -> float | None:
    """Return the one number of a tensor that is no matrix; those are all in 32-bit floats."""
    if len(size) > 1 or _SINGLE_ROW in name:
        return None
    if name.endswith("ssm_a"):
        return -1.0  # the states' decay: below zero in every model
    return 0.0 if name.endswith("bias") else 1.0


def blocks(random: np.random.Generator, kind: str, count: int, spread: float) -> Bytes:
    """Return random blocks of a type, whose numbers have a mean of 0 and this deviation."""
    numbers, block_bytes = block_of(kind)
    if kind in _FIELDS:
        made = _any_blocks(random, kind, count)
        _set_fields(made, kind, spread / _unit_spread(kind))
        return made
    even = random.random(count * numbers, np.float32) - np.float32(0.5)
    even *= np.float32(spread * math.sqrt(12))
    if kind == "F16":
        even = even.astype(np.float16)
    elif kind == "BF16":
        even = (even.view(np.uint32) >> 16).astype(np.uint16)
    return even.view(np.uint8).reshape(count, block_bytes)


def _any_blocks(random: np.random.Generator, kind: str, count: int) -> Bytes:
    block_bytes = block_of(kind)[1]
    return np.frombuffer(bytearray(random.bytes(count * block_bytes)), np.uint8).reshape(
        count, block_bytes
    )


def _set_fields(made: Bytes, kind: str, scale: float) -> None:
    for at, factor in _FIELDS[kind]:
        made[:, at : at + 2] = np.frombuffer(np.float16(scale * factor).tobytes(), np.uint8)


@cache
def _unit_spread(kind: str) -> float:
    """Return the deviation of a type's numbers in random blocks with a scale of 1."""
    import gguf

    made = _any_blocks(np.random.Generator(np.random.SFC64(0)), kind, _PROBE_BLOCKS)
    _set_fields(made, kind, 1.0)
    numbers = gguf.quants.dequantize(made, gguf.GGMLQuantizationType[kind])
    return float(numbers.std())
