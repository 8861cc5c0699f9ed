"""The engine's build: where its wheel is kept, and when it is used again."""

import sys
from pathlib import Path

import pytest

from analysis.engines import build

LINE = build.requirement(build.ENVIRONMENT.read_text())


def test_the_wheel_of_other_flags_lies_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plain, cuda = build.cached_wheel(LINE, ""), build.cached_wheel(LINE, "-DGGML_CUDA=ON")
    assert plain != cuda
    assert plain == build.cached_wheel(LINE, "")
    assert plain.is_relative_to(tmp_path)


def test_a_wheel_in_the_cache_is_not_built_again(tmp_path: Path) -> None:
    wheel = tmp_path / "llama_cpp_python-0.3.36-py3-none-any.whl"
    wheel.write_bytes(b"")
    assert build.build(tmp_path, LINE, "") == wheel


def test_the_environments_line_builds_the_programs_too() -> None:
    for flag in ("LLAMA_BUILD_SERVER=ON", "LLAMA_TOOLS_INSTALL=ON", "GGML_RPC=ON"):
        assert flag in LINE


def test_an_installed_build_is_kept_when_no_flags_are_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a build with CUDA, `make book` without the variable must not go back to the CPU."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / ".specdepth-engine").write_text(f"{LINE}\n-DGGML_CUDA=ON")
    monkeypatch.delenv(build.VARIABLE, raising=False)
    assert build.main() == 0
    assert capsys.readouterr().out == "engine: installed -DGGML_CUDA=ON\n"
