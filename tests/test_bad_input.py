"""Bad parameters of a page: one clear error each, before anything is measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis import model
from analysis.doctor import Findings
from analysis.pages import page_parameters


@pytest.fixture
def files(tmp_path: Path) -> Path:
    whole = model.embedded_path().read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 3])
    (tmp_path / "text.gguf").write_text("no model at all")
    key = b"qwen35.nextn_predict_layers"
    (tmp_path / "other.gguf").write_bytes(whole.replace(key, key[:-1] + b"z"))
    return tmp_path


@pytest.mark.parametrize("notebook", ["depth_sweep", "acceptance_decay"])
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-p", "depths=[-1]"], "`depths` must lie between 0 and"),
        (["-p", "depths=[]"], "`depths` must name at least one depth"),
        (["-p", "workloads=poetry"], "`workloads` must be distinct names out of short"),
        (["-p", "workloads=[]"], "`workloads` must be distinct names"),
        (["-p", "n_predict=none"], "`n_predict` must be"),
        (["-p", "promts=3"], "has a parameter promts"),
        (["--model", "{}/missing.gguf"], "the model file is not there. Found: missing.gguf"),
        (["--model", "{}"], "the model is a folder. Found: cut.gguf, other.gguf, text.gguf"),
        (["--model", "{}/cut.gguf"], "cut.gguf can not be read as GGUF"),
        (["--model", "{}/text.gguf"], "text.gguf is not a GGUF file"),
        (["--model", "{}/other.gguf"], "other.gguf has no MTP layer"),
    ],
)
def test_each_is_one_clear_error(
    notebook: str, words: list[str], says: str, files: Path, tmp_path: Path
) -> None:
    given = [w.replace("{}", str(files)) for w in words]
    done = subprocess.run(
        [sys.executable, "-m", "analysis.cli", "run", "--notebooks", notebook, *given],
        capture_output=True, text=True,
        env=os.environ | {"SPECDEPTH_MACHINES": str(tmp_path / "machines")},
    )  # fmt: skip
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert says in lines[0]
    assert str(files) not in lines[0]
    assert not (tmp_path / "machines").exists()


def test_a_page_has_its_own_parameters_only() -> None:
    from analysis.errors import SpecError

    with pytest.raises(SpecError, match="no parameter traced_prompts"):
        page_parameters("depth_sweep", {"traced_prompts": 3})
    with pytest.raises(SpecError, match="traced_p_min"):
        page_parameters("acceptance_decay", {"traced_p_min": [1.5]})
    with pytest.raises(SpecError, match=r"`traffic_log` is no file.*x\.log"):
        page_parameters("acceptance_decay", {"traffic_log": "/nowhere/x.log"})


def test_a_machines_folder_that_can_not_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = subprocess.run(
        [sys.executable, "-m", "analysis.cli", "run", "--notebooks", "depth_sweep"],
        capture_output=True, text=True,
        env=os.environ | {"SPECDEPTH_MACHINES": str(tmp_path / "file")},
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert "the machine's folder can not be made" in line
    assert "SPECDEPTH_MACHINES" in line


def test_the_next_command_keeps_the_model() -> None:
    assert Findings().next_command == "specdepth run --quick"
    named = Findings(model="/models/my model.gguf")
    assert named.next_command == "specdepth run --model '/models/my model.gguf' --quick"
