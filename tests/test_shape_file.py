"""Shapes as models: their files, their names, and the real engine running them."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from analysis import (
    digests,
    gguf_file,
    memory,
    model,
    shape_contents,
    shape_models,
    shape_tokens,
    shapes,
    speculation,
    sweep,
)
from analysis.engines import binary, choose
from analysis.errors import ModelError, SpecError
from analysis.quantization import block_of
from analysis.shape_models import RANDOM_MOST_BYTES, ShapeModel
from analysis.spec import SAMPLING, SweepSpec
from tests.conftest import Silent

SMALL = "shape:qwen3.5-0.8b"
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q5_0", "Q5_1")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_shape_is_a_model_of_its_full_size_and_a_few_mb(cache: Path) -> None:
    path = model.resolve("shape:Qwen3.6-27B")
    found = model.facts(path)
    assert path.name == found.name == "qwen3.6-27b-q4_k_m-shape.gguf"
    assert path.is_relative_to(cache)
    assert (found.layers, found.mtp_layers, found.quantization) == (65, 1, "Q4_K")
    assert path.stat().st_size > 15 * 2**30 > 15e6 > path.stat().st_blocks * 512
    assert model.blocks("shape:qwen3.6-27b") == found.layers
    assert memory.layout_of(path).linear_layers == 48


@given(st.integers(2000, 262_000))
def test_a_token_list_has_no_token_twice_and_its_end_inside(vocab: int) -> None:
    made = shape_tokens.token_list(vocab)
    assert len(made) == len(set(made)) == vocab
    assert made.index("<|endoftext|>") == shape_tokens.end_of_text(vocab)
    assert 0.99 * vocab < shape_tokens.end_of_text(vocab) < vocab - 1


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("row", [1024, 17408])
def test_random_blocks_have_the_intended_spread(kind: str, row: int) -> None:
    import gguf

    numbers, _ = block_of(kind)
    spread = 1 / math.sqrt(row)
    random = np.random.Generator(np.random.SFC64(7))
    made = shape_contents.blocks(random, kind, 2**20 // numbers, spread)
    raw: Any = made
    if kind in ("F32", "F16"):
        raw = made.reshape(-1).view(np.float32 if kind == "F32" else np.float16)
    values = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    assert np.isfinite(values).all()
    assert values.std() == pytest.approx(spread, rel=0.03)
    assert abs(values.mean()) < 0.06 * spread


def test_every_type_of_every_mix_can_be_made() -> None:
    from analysis.quantization import MIXES, Mix

    kinds = {
        Mix(mix, s.blocks).kind(name, size)
        for mix in MIXES
        for s in shapes.shapes().values()
        for name, size in shapes.tensors(s)
    }
    assert kinds <= set(TYPES)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The smallest shape with random contents; half a gigabyte."""
    path = tmp_path_factory.mktemp("random") / "random.gguf"
    shape_models.make(shape_models.parse(f"{SMALL}:q4_k_m:random"), path)
    yield path
    path.unlink()


def test_random_contents_are_those_of_a_model(filled: Path) -> None:
    read = {t.name: t for t in gguf_file.reader(filled).tensors}

    def values(name: str, rows: slice = slice(None)) -> Any:
        import gguf

        return gguf.quants.dequantize(read[name].data[rows], read[name].tensor_type)

    assert set(np.unique(values("blk.0.attn_norm.weight"))) == {1.0}
    assert set(np.unique(values("blk.24.nextn.enorm.weight"))) == {1.0}
    assert set(np.unique(values("blk.0.ssm_a"))) == {-1.0}
    assert set(np.unique(values("blk.0.ssm_dt.bias"))) == {0.0}
    assert values("blk.0.ssm_conv1d.weight").std() == pytest.approx(0.5, rel=0.05)
    assert values("blk.3.ffn_down.weight").std() == pytest.approx(3584**-0.5, rel=0.05)
    end = shape_tokens.end_of_text(248320)
    before, silent, after = values("output.weight", slice(end - 1, end + 2))
    assert not silent.any()
    assert before.std() == pytest.approx(after.std(), rel=0.3) == pytest.approx(1024**-0.5, rel=0.3)


def test_random_contents_are_the_same_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_contents, "_CHUNK_BYTES", 2**16)
    size = (300, 1024)
    placed = [(0, "token_embd.weight", size, "Q8_0"), (10**6, "output.weight", size, "Q6_K")]
    made = []
    for name in ("a", "b"):
        with (tmp_path / name).open("wb") as file:
            shape_contents.fill(file, 64, placed)
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]
    assert len(made[0]) == 64 + 10**6 + 300 * 4 * 210


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shape:gpt-9", "known are qwen3.5-0.8b"),
        ("shape:", "known are qwen3.5-0.8b"),
        ("shape:qwen3.6-27b:q9", "known are f16"),
        ("shape:qwen3.6-27b:q8_0:noise", "known are hole, random"),
        ("shape:qwen3.6-27b:q8_0:random:more", "up to three parts"),
        ("shape:qwen3.6-27b:q8_0:random", "27.0 GiB"),
    ],
)
def test_a_wrong_name_is_refused_and_writes_nothing(name: str, said: str, cache: Path) -> None:
    with pytest.raises(SpecError, match=said):
        model.resolve(name)
    assert not [p for p in cache.rglob("*") if p.is_file()]


def test_names_of_a_shape_are_one(cache: Path, tmp_path: Path) -> None:
    assert shape_models.canonical("shape:Qwen3.5-0.8B") == "shape:qwen3.5-0.8b:q4_k_m"
    assert shape_models.canonical("shape:qwen3.5-0.8b:q8_0:hole") == "shape:qwen3.5-0.8b:q8_0"
    assert shape_models.canonical("shape:qwen3.5-0.8b::random") == f"{SMALL}:q4_k_m:random"
    own = tmp_path / "own.gguf"
    shape_models.make(shape_models.parse(f"{SMALL}:q6_k"), own)
    assert shape_models.canonical(str(own)) == f"{SMALL}:q6_k"
    for other in ("embedded", str(model.embedded_path()), str(tmp_path), "nothing.gguf"):
        assert shape_models.canonical(other) == other
    assert not cache.exists()
    assert SweepSpec(model=f"{SMALL}:q6_k").to_json()["model"] == f"{SMALL}:q6_k"


def test_an_interrupted_writing_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shape_contents, "fill", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.resolve(f"{SMALL}:q8_0:random")
    assert not [p for p in cache.rglob("*") if p.is_file()]


def test_two_processes_write_one_shape_at_once(cache: Path) -> None:
    code = f"from analysis import model; print(model.facts(model.resolve('{SMALL}')).sha256)"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        for _ in range(2)
    ]
    sums = {p.communicate(timeout=120)[0] for p in both}
    assert [p.returncode for p in both] == [0, 0]
    assert len(sums) == 1
    (file,) = (p for p in (cache / "specdepth" / "shapes").rglob("*") if p.is_file())
    assert file.name == "qwen3.5-0.8b-q4_k_m-shape.gguf"


def test_a_full_disk_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2**29))
    with pytest.raises(ModelError, match=r"0.5 GiB free of 0.7 GiB"):
        shape_models.make(shape_models.parse(f"{SMALL}:q4_k_m:random"), tmp_path / "x.gguf")
    with pytest.raises(ModelError, match="the folder is not there"):
        shape_models.make(shape_models.parse(SMALL), tmp_path / "no" / "x.gguf")
    assert list(tmp_path.iterdir()) == []
    assert ShapeModel(shapes.shape("qwen3.6-27b")).weight_bytes > RANDOM_MOST_BYTES


def sparse(path: Path, size: int, data: dict[int, bytes]) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
        for at, content in data.items():
            file.seek(at)
            file.write(content)
    return path


def test_a_hole_is_hashed_without_being_read(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    plain = digests._read

    def counting(*given: Any) -> bytes:
        nonlocal read
        block = plain(*given)
        read += len(block)
        return block

    monkeypatch.setattr(digests, "_read", counting)
    size, middle = 20 * 2**30, 7 * 2**30
    files = [
        sparse(tmp_path / "one", size, {middle: b"data"}),
        sparse(tmp_path / "other", size, {middle: b"date"}),
        sparse(tmp_path / "elsewhere", size, {middle + 2**20: b"data"}),
        sparse(tmp_path / "nearby", size, {middle + 1: b"data"}),
        sparse(tmp_path / "longer", size + 1, {middle: b"data"}),
        sparse(tmp_path / "more", size, {0: b"data", middle: b"data"}),
        sparse(tmp_path / "empty", size, {}),
    ]
    assert len({digests.sha256([f]) for f in files}) == len(files)
    assert 0 < read < 2**20
    again = sparse(tmp_path / "again", size, {middle: b"data", 2**30: bytes(2**20)})
    assert digests.sha256([again]) == digests.sha256([files[0]])  # zeros that are kept
    assert cache.is_dir()


def test_a_file_without_holes_keeps_its_plain_checksum(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hashlib

    dense = tmp_path / "dense"
    dense.write_bytes(os.urandom(300_000))
    holed = sparse(tmp_path / "holed", 10**7, {5: b"x"})
    expected = [hashlib.sha256(f.read_bytes()).hexdigest() for f in (dense, holed)]
    assert digests.sha256([dense]) == expected[0]
    assert digests.sha256([holed]) != expected[1]
    monkeypatch.delattr(os, "SEEK_DATA")  # a system that can not tell holes
    (cache / "specdepth" / "sha256.json").unlink()
    assert [digests.sha256([f]) for f in (dense, holed)] == expected


def test_a_reader_that_steps_over_lists_reads_all_else(
    embedded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gguf import GGUFReader

    monkeypatch.setattr(gguf_file, "LONGEST_LIST", 256)
    fast, slow = gguf_file.reader(embedded), GGUFReader(embedded)
    assert [(t.name, t.data_offset, t.n_bytes) for t in fast.tensors] == [
        (t.name, t.data_offset, t.n_bytes) for t in slow.tensors
    ]
    emptied = {name for name in slow.fields if not fast.fields[name].data}
    assert "tokenizer.ggml.tokens" in emptied
    assert {n for n in emptied if n.startswith("tokenizer.ggml.")} == emptied
    for name in slow.fields.keys() - emptied:
        assert fast.fields[name].contents() == slow.fields[name].contents()


TEXT = "Héllo wörld\n\t the 日本 ½ \x00\x7f end  the\r\n🙂"


def run_engine(server: binary.ServerBinary, path: Path, log: Path) -> dict[str, Any]:
    """Load a shape, check its tokenizer, and decode with given acceptance."""
    spec = SweepSpec(
        arm="synthetic", synthetic_rates=(0.9, 0.7), depths=(0, 2), context=1024,
        workloads=("short",), prompts=1, threads=1,
    )  # fmt: skip
    with choose.make(server, spec, 2, path, log) as engine:
        tokens = engine.tokenize(TEXT)
        assert len(tokens) == len(TEXT.encode()) - TEXT.count(" t")
        assert engine.detokenize(tokens) == TEXT
        answer = engine.complete(tokens, n_predict=16, temperature=0.5, seed=4, **SAMPLING)
        drafted = engine.counters().draft_n
    timings = answer["timings"]
    assert timings["predicted_n"] == 16
    assert answer["stop_type"] == "limit"
    assert drafted == timings["draft_n"] > timings["draft_n_accepted"] > 0
    return answer


def test_the_engine_runs_a_hole(server_binary: binary.ServerBinary, tmp_path: Path) -> None:
    hole = tmp_path / "hole.gguf"
    shape_models.make(shape_models.parse(SMALL), hole)
    run_engine(server_binary, hole, tmp_path / "log")


def test_the_engine_runs_random_contents(
    server_binary: binary.ServerBinary, filled: Path, tmp_path: Path
) -> None:
    answer = run_engine(server_binary, filled, tmp_path / "log")
    assert len(set(answer["tokens"])) > 8  # real numbers: no token is preferred


def test_given_acceptance_is_what_was_asked_for(tmp_path: Path) -> None:
    """The embedded model, several hundred steps: by position within the binomial's reach."""
    rates = (0.8, 0.6, 0.4)
    spec = SweepSpec(
        arm="synthetic", synthetic_rates=rates, depths=(0, 3), workloads=("short", "code"),
        prompts=5, n_predict=128, rounds=1, lossless_prompts=0, context=2048, threads=1,
    )  # fmt: skip
    recorded = sweep.measure(spec, "page", "here", tmp_path, Silent())
    frame = speculation.timed(recorded.frame(), spec.temperature, "synthetic")
    found = speculation.by_position(frame[frame["depth"] == 3])
    assert found["offered"].iloc[0] > 400
    counts = zip(rates, found["accepted"].astype(int), found["offered"].astype(int), strict=True)
    for rate, accepted, offered in counts:
        assert scipy_stats.binomtest(accepted, offered, rate).pvalue > 1e-6, found
    lucks = frame[frame["depth"] == 3].groupby("prompt_id")["draft_n_accepted"].apply(tuple)
    assert len(set(lucks)) > 1  # each request has luck of its own
