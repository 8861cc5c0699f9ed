"""Full-size shapes without weights: laid out by the engine as the memory law says."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from analysis import memory, shape_file, shapes
from analysis.errors import SpecError

NAMES = tuple(shapes.shapes())
CONTEXT = 512
# Slots and depths: every depth on one slot, the ends on two and four.
ASKED = [(1, d) for d in range(8)] + [(s, d) for s in (2, 4) for d in (0, 7)]
LAY_OUT = """
import sys
import llama_cpp as l
from analysis.engines import native
native.quiet_log()
loaded = native.load_model(sys.argv[1], mtp=True)
for pair in sys.argv[2:]:
    slots, depth = map(int, pair.split(","))
    for mtp in (False, True):
        p = l.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max = 512 * slots, 32, 32, slots
        p.n_rs_seq = 0 if mtp else depth
        if mtp:
            p.ctx_type, p.ctx_other = l.LLAMA_CONTEXT_TYPE_MTP, ctx
        else:
            print(f"\\n== {slots},{depth}", file=sys.stderr, flush=True)
            ctx = None
        made = native.made(l.llama_init_from_model(loaded, p), "a context")
        if mtp:
            l.llama_free(made)
            l.llama_free(ctx)
        else:
            ctx = made
"""


@pytest.mark.parametrize("name", [*NAMES, "qwen3next"])
def test_law_equals_what_the_engine_lays_out(name: str, tmp_path: Path) -> None:
    if name == "qwen3next":  # the older architecture of the same kind, in a size that is at hand
        shape = dataclasses.replace(shapes.shape("qwen3.6-35b-a3b"), architecture=name)
    else:
        shape = shapes.shape(name)
    file = shape_file.write(shape, tmp_path / "hole.gguf", "f16")
    assert file.stat().st_blocks * 512 < 4e6  # the weights are a hole
    done = subprocess.run(
        [sys.executable, "-c", LAY_OUT, str(file), *(f"{s},{d}" for s, d in ASKED)],
        capture_output=True, text=True,
        env=os.environ | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},  # states are cleared
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    layout = memory.layout_of(file)
    assert layout == dataclasses.replace(shape.layout(), name="hole.gguf")
    parts = re.split(r"\n== (\d),(\d)\n", done.stderr)[1:]
    assert len(parts) == 3 * len(ASKED)
    for slots, depth, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        s, d = int(slots), int(depth)
        printed = {
            kind: [float(x) for x in re.findall(rf"CPU {kind} buffer size =\s*([\d.]+) MiB", text)]
            for kind in ("RS", "KV")
        }
        assert printed["RS"] == [pytest.approx(memory.state_mib(layout, s, d), abs=0.01)]
        expected = [
            memory.kv_mib(layout, CONTEXT * s, s),
            memory.kv_mib(layout, CONTEXT * s, s, mtp=True),
        ]
        assert printed["KV"] == pytest.approx(expected, abs=0.01)


def test_sizes_of_the_27b_are_the_public_ones(tmp_path: Path) -> None:
    """FACTS: a shape in Q4_K with Q6_K output and embeddings is a file of 14.9 GiB."""
    file = shape_file.write(shapes.shape("qwen3.6-27b"), tmp_path / "x.gguf", "q4_k_pure")
    assert file.stat().st_size / 2**30 == pytest.approx(14.9, rel=0.01)


def test_every_shape_names_its_source() -> None:
    assert len(NAMES) == 5
    for name in NAMES:
        shape = shapes.shape(name)
        assert len(shape.source) > 20
        assert shape.layers % shape.full_every == 0
    with pytest.raises(SpecError, match=r"known are qwen3\.5-0\.8b"):
        shapes.shape("gpt-9")


@pytest.mark.parametrize("name", NAMES)
def test_parameters_add_up_to_the_models_name(name: str) -> None:
    total = 0
    for _, size in shapes.tensors(shapes.shape(name)):
        product = 1
        for n in size:
            product *= n
        total += product
    stated = float(name.split("-")[1].removesuffix("b")) * 1e9
    assert 0.9 < total / stated < 1.35  # output matrix and MTP block come on top of small ones
