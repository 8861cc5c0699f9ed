"""The engine's build: where its wheel is kept, and when it is used again."""

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from analysis.engines import binary, build

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


def test_a_wheel_is_built_anew_for_other_flags(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """pip would take the wheel of the processor alone for the one with CUDA, from its cache."""
    asked: list[tuple[list[str], str]] = []

    def run(command: list[str], *, env: dict[str, str], **_: object) -> None:
        asked.append((command, env["CMAKE_ARGS"]))
        (Path(command[command.index("-w") + 1]) / "llama_cpp_python-1-any.whl").touch()

    monkeypatch.setattr(subprocess, "run", run)
    build.build(tmp_path, LINE, "-DGGML_CUDA=ON")
    ((command, flags),) = asked
    assert "--no-cache-dir" in command
    assert shlex.split(flags)[1:] == ["-DGGML_CUDA=ON"]


def test_the_engine_does_not_depend_on_where_it_was_built() -> None:
    """Otherwise no run could go on after the engine was built again."""
    libraries = sorted((binary.built_folder().parent / "lib").glob("lib*.so*"))
    named = [x.name for x in libraries if b"llama-cpp-python/vendor/llama.cpp" in x.read_bytes()]
    assert any(name.startswith("libllama.so") for name in named)
    for library in libraries:
        assert str(tempfile.gettempdir()).encode() + b"/pip-" not in library.read_bytes()


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
