"""The types of a quantization against what llama-quantize itself would write."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from analysis import shape_file, shapes, weights
from analysis.engines import binary
from analysis.errors import SpecError
from analysis.quantization import MIXES, Mix

OWN = [m for m in MIXES if m != "q4_k_pure"]  # llama-quantize has no mix of that kind
LINE = re.compile(r"\[\s*\d+/\s*\d+\] (\S+)\s+- \[.*?\], type =\s+(\w+), size = (.*)")


@pytest.mark.parametrize("name", tuple(shapes.shapes()))
def test_types_are_those_of_llama_quantize(name: str, tmp_path: Path) -> None:
    shape = shapes.shape(name)
    file = shape_file.write(shape, tmp_path / "hole.gguf", "f16")
    program = binary.find(program="llama-quantize")
    for mix in OWN:
        done = subprocess.run(
            [str(program), "--dry-run", str(file), mix.upper()], capture_output=True, text=True
        )
        told = {}
        for tensor, kind, sizes in LINE.findall(done.stdout + done.stderr):
            found = re.search(r"\((\w+)\)", sizes)
            told[tensor] = (found[1] if found else kind).upper()
        rule = Mix(mix, shape.blocks)
        ours = {n: rule.kind(n, size) for n, size in shapes.tensors(shape)}
        assert len(told) == len(ours), done.stderr[-500:]
        assert told == ours


def test_weights_by_block_add_up_to_the_file(tmp_path: Path) -> None:
    shape = shapes.shape("qwen3.6-35b-a3b")
    file = shape_file.write(shape, tmp_path / "hole.gguf", "q4_k_m")
    by_name, by_file = weights.of_shape(shape, "q4_k_m"), weights.of_file(file, 1)
    assert by_name == by_file
    assert by_file.layers == 42
    assert by_file.total * 2**20 == pytest.approx(file.stat().st_size, rel=1e-3)
    assert all(0 < e < b for e, b in zip(by_file.experts, by_file.blocks, strict=True))
    more = by_file.on_device(drafting=True) - by_file.on_device(drafting=False)
    assert more == pytest.approx(by_file.blocks[40])


def test_a_tied_matrix_is_counted_on_the_device_and_on_the_host(embedded: Path) -> None:
    own = weights.of_file(embedded, 1)
    assert own.mtp_blocks == 1
    assert own.embeddings == pytest.approx(4096 * 256 * 34 / 32 / 2**20)


def test_an_unknown_quantization_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SpecError, match="known are f16, bf16, q8_0"):
        Mix("q3_xxl", 10)
