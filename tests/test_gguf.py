"""GGUF files as they may come: cut, damaged, with absurd lengths, and in several parts."""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from analysis import model, sweep
from analysis.cli import app
from analysis.engines import binary
from analysis.errors import ModelError
from analysis.spec import SweepSpec
from tests.conftest import Silent

HUGE = (2**31 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
MOST_MIB = 32


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A whole GGUF of a few hundred bytes, with every kind of field that a model has."""
    file = tmp_path_factory.mktemp("gguf") / "small.gguf"
    writer = GGUFWriter(file, "qwen35")
    writer.add_block_count(3)
    writer.add_context_length(1024)
    writer.add_uint32("qwen35.nextn_predict_layers", 1)
    writer.add_token_list(["a", "b", "c"])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_chat_template("{{ x }}")
    writer.add_tensor("output.weight", np.ones((4, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file.read_bytes()


def read(folder: Path, content: bytes) -> str:
    """Read facts of a file; it gives them, or one error of ours, soon and in little memory."""
    file = folder / f"{hashlib.sha256(content).hexdigest()[:12]}.gguf"
    file.write_bytes(content)
    tracemalloc.start()
    began = time.monotonic()
    try:
        return model.facts(model.resolve(str(file))).architecture
    except ModelError:
        return ""
    finally:
        assert tracemalloc.get_traced_memory()[1] < MOST_MIB * 2**20
        tracemalloc.stop()
        assert time.monotonic() - began < 10
        file.unlink()


@pytest.fixture(autouse=True)
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_whole_file_is_read(small: bytes, tmp_path: Path) -> None:
    assert read(tmp_path, small) == "qwen35"


def test_a_file_cut_anywhere_is_one_error(small: bytes, tmp_path: Path) -> None:
    for length in range(0, len(small) - 4 * 8 * 4, 5):
        assert read(tmp_path, small[:length]) == "", length


@pytest.mark.parametrize("value", HUGE)
def test_absurd_lengths_are_one_error(small: bytes, tmp_path: Path, value: int) -> None:
    """At every place of the header, lengths of texts, lists, fields and tensors among them."""
    for place in range(4, len(small) - 8, 4):
        read(tmp_path, small[:place] + struct.pack("<Q", value) + small[place + 8 :])


@settings(max_examples=150)
@given(data=st.data())
def test_damage_of_any_kind_is_one_error(
    data: st.DataObject, small: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(small)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(4, len(content) - 1))
        piece = data.draw(st.binary(min_size=1, max_size=16))
        if data.draw(st.booleans()):
            content[place : place + len(piece)] = piece
        else:
            content[place:place] = piece
    read(tmp_path_factory.getbasetemp(), bytes(content))


def test_lists_in_lists_have_an_end(small: bytes, tmp_path: Path) -> None:
    """A field of lists nested thousands deep, each of one element."""
    count = struct.unpack_from("<Q", small, 16)[0]
    key = struct.pack("<Q", 1) + b"x" + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 50_000
    read(tmp_path, small[:16] + struct.pack("<Q", count + 1) + key + small[24:])


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model in several parts, as llama.cpp's own program splits it."""
    folder = tmp_path_factory.mktemp("parts") / "mes modèles été"
    folder.mkdir()
    subprocess.run(
        [str(binary.built_folder() / "llama-gguf-split"), "--split-max-tensors", "20",
         str(model.embedded_path()), str(folder / "le modèle")],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


def test_a_model_in_parts_is_one_model(parts: Path, tmp_path: Path) -> None:
    """All parts are counted and hashed, and llama-server finds them by the first."""
    files = sorted(parts.iterdir())
    assert len(files) > 1
    whole, found = model.facts(model.embedded_path()), model.facts(files[0])
    for name in ("size_mib", "parameters", "layers", "mtp_layers", "architecture", "quantization"):
        assert getattr(found, name) == getattr(whole, name), name
    each = [hashlib.sha256(f.read_bytes()).hexdigest() for f in files]
    assert found.sha256 == hashlib.sha256("".join(each).encode()).hexdigest()
    spec = SweepSpec(
        model=str(files[0]), workloads=("short",), depths=(0, 2), prompts=1, rounds=1, n_predict=40,
        context=1024, lossless_prompts=0, threads=1,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.launch.WARM_UP_MS", 0.0)
        recorded = sweep.measure(spec, "depth_sweep", "here", tmp_path, progress=Silent())
    assert {s.depth for s in recorded.samples if s.error is None} == {0, 2}
    assert recorded.run.model["name"] == files[0].name


def test_a_part_that_is_missing_is_told_before_anything_starts(
    parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(parts, tmp_path / "some"))
    files = sorted(folder.iterdir())
    files[-1].unlink()
    monkeypatch.setenv("SPECDEPTH_MACHINES", str(tmp_path / "machines"))
    for words in (["doctor"], ["run", "--notebooks", "depth_sweep"]):
        done = CliRunner().invoke(app, [*words, "--model", str(files[0])])
        assert done.exit_code == 1
        assert f"parts of the model are missing. Found: {files[-1].name}" in done.output
    assert not (tmp_path / "machines").exists()


def test_a_part_that_is_not_the_first_is_told(parts: Path) -> None:
    with pytest.raises(ModelError, match=r"not its first.*00001-of"):
        model.resolve(str(sorted(parts.iterdir())[1]))


def test_absurd_numbers_of_parts_are_told_at_once(small: bytes, tmp_path: Path) -> None:
    file = tmp_path / "x-00001-of-99999.gguf"
    file.write_bytes(small)
    with pytest.raises(ModelError, match=r"parts of the model are missing") as caught:
        model.facts(file)
    assert len(str(caught.value)) < 500
