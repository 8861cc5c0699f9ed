"""A model's weights by the place that they take: each block, the output, the embeddings.

llama.cpp moves blocks to a device from the last to the first, the output first of all; the table of
embeddings always stays in host memory (``llama_model_base::load_tensors`` in llama.cpp 0c1e570).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from analysis import gguf_file, model
from analysis.errors import ModelError
from analysis.quantization import Mix, tensor_bytes
from analysis.shapes import Shape, tensors

MIB = 2**20
EMBEDDINGS, OUTPUT = "token_embd.weight", "output.weight"


@dataclass(frozen=True)
class Weights:
    """Sizes in MiB."""

    blocks: tuple[float, ...]  # trunk first, the MTP blocks last
    output: float  # norm and matrix; a tied matrix is kept on the device a second time
    embeddings: float  # stay in host memory
    mtp_blocks: int

    experts: tuple[float, ...]  # the part of each block that is sparse; zeros in a dense model

    @property
    def total(self) -> float:
        """All weights of the file."""
        return sum(self.blocks) + self.output + self.embeddings

    @property
    def layers(self) -> int:
        """The count that llama.cpp prints: all blocks, and the output."""
        return len(self.blocks) + 1

    def on_device(self, *, drafting: bool) -> float:
        """Return what a device holds with every layer on it; MTP blocks only where one drafts."""
        trunk = len(self.blocks) - self.mtp_blocks
        return self.output + sum(self.blocks if drafting else self.blocks[:trunk])


def of_shape(shape: Shape, quantization: str) -> Weights:
    """Return the weights of a shape under a mix of llama-quantize."""
    mix = Mix(quantization, shape.blocks, tied=shape.tied == "yes")
    sized = ((n, tensor_bytes(size, mix.kind(n, size))) for n, size in tensors(shape))
    return _gather(sized, mtp_blocks=1)


def of_file(path: Path, mtp_blocks: int) -> Weights:
    """Return the weights of a GGUF, all its parts together; the last `mtp_blocks` are MTP blocks.

    Raises
    ------
    ModelError
        If a part is missing or the tensors are not those of a language model.
    """
    sized: list[tuple[str, int]] = []
    for part in model.parts(path):
        sized += [(t.name, int(t.n_bytes)) for t in gguf_file.reader(part).tensors]
    found = _gather(sized, mtp_blocks)
    if not found.blocks or not found.embeddings:
        raise ModelError(
            f"{path.name} holds no language model", f"{len(sized)} tensors", "use another file"
        )
    return found


def _gather(sized: Iterable[tuple[str, int]], mtp_blocks: int) -> Weights:
    blocks: dict[int, int] = defaultdict(int)
    experts: dict[int, int] = defaultdict(int)
    output = embeddings = matrix = 0
    for name, nbytes in sized:
        block = re.match(r"blk\.(\d+)\.", name)
        if block:
            blocks[int(block[1])] += nbytes
            experts[int(block[1])] += nbytes if "_exps." in name else 0
        elif name == EMBEDDINGS:
            embeddings = nbytes
        else:
            output += nbytes
            matrix += nbytes if name == OUTPUT else 0
    if not matrix:
        output += embeddings
    count = range(max(blocks, default=-1) + 1)
    return Weights(
        tuple(blocks[i] / MIB for i in count),
        output / MIB,
        embeddings / MIB,
        mtp_blocks,
        tuple(experts[i] / MIB for i in count),
    )
