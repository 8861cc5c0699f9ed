"""Servers that misbehave, for real: each ends in a clear message and nothing left behind."""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from analysis import store
from analysis.cli import app
from analysis.engines import binary
from analysis.engines.emulated import free_port
from analysis.engines.llama_server import LlamaServer
from analysis.engines.process import Counters
from analysis.errors import EngineError
from tests.conftest import FAKE
from tests.faults import measured, spec

pytestmark = pytest.mark.usefixtures("nothing_left")


FREE_PORT = "analysis.engines.llama_server.free_port"


def test_a_server_that_behaves_is_measured(fake: Path, tmp_path: Path) -> None:
    """Without this the faults below would prove nothing."""
    recorded = measured(spec(fake), tmp_path)
    timed = sorted((s for s in recorded.samples if not s.warm_up), key=lambda s: s.depth)
    assert [(s.depth, s.predicted_n, s.error) for s in timed] == [(0, 40, None), (2, 40, None)]
    assert timed[1].drafts == 10


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("malformed", "no JSON object"),
        ("list", "no JSON object"),
        ("nan", "predicted_ms is nan"),
        ("negative", "predicted_ms is -3.0"),
        ("no-tokens", "no token was decoded"),
        ("text", "predicted_n is 'many'"),
        ("too-many-accepted", "9 of 3 drafted tokens"),
        ("no-time", "40 tokens were decoded in 0.0 ms"),
        ("drafted-text", "draft_n is 'some'"),
        ("timings-list", "predicted_n is None"),
        ("tokens-null", "its tokens are no list"),
        ("no-timings", "predicted_n is None"),
        ("die", "llama-server ended while answering /completion, with code 3"),
    ],
)
def test_an_impossible_answer_is_an_error_and_no_number(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, told: str
) -> None:
    monkeypatch.setenv("FAKE_FAULT", fault)
    with pytest.raises(EngineError, match="no launch worked") as caught:
        measured(spec(fake), tmp_path)
    assert told in str(caught.value)
    (file,) = (tmp_path / "machines" / "here" / "samples").glob("*.jsonl")
    assert all(s.error for s in store.read(file).samples)
    monkeypatch.delenv("FAKE_FAULT")
    again = measured(spec(fake), tmp_path)  # a rerun measures what is missing, once
    assert len(again.done()) == 2


def test_counters_that_go_backwards_count_nothing(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "backwards")
    (sample,) = (s for s in measured(spec(fake), tmp_path).samples if s.depth and not s.warm_up)
    assert (sample.drafts, sample.accepted_per_position) == (None, None)
    assert sample.error is None
    fallen = Counters(1, 1, 1, (1,)).since(Counters(2, 2, 2, (2,)))
    assert fallen == Counters(None, None, None, None)


@pytest.mark.parametrize("fault", ["nan-counters", "odd-counters"])
def test_counters_that_are_none_count_nothing(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("FAKE_FAULT", fault)
    (sample,) = (s for s in measured(spec(fake), tmp_path).samples if s.depth and not s.warm_up)
    assert (sample.drafts, sample.error) == (None, None)


def test_a_wrapper_that_drops_the_key_is_told_so(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "no-key")
    with pytest.raises(EngineError, match="did not take the key"):
        engine(fake, tmp_path).start()


def test_an_error_names_no_folder_of_this_machine(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "dies-with-paths")
    with pytest.raises(EngineError) as caught:
        engine(fake, tmp_path).start()
    assert "failed to load draft model, 'x.gguf'" in str(caught.value)
    assert "somebody" not in str(caught.value)


def test_a_server_that_dies_at_load_is_told_with_its_last_words(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "dies-at-load")
    with pytest.raises(EngineError, match="it is broken"):
        measured(spec(fake), tmp_path)


def engine(fake: Path, tmp_path: Path, **limits: float) -> LlamaServer:
    def flags(port: int) -> list[str]:
        return ["--port", str(port)]

    return LlamaServer(binary.probe(str(fake)), flags, tmp_path / "s.log", **limits)  # type: ignore[arg-type]


def test_a_server_that_hangs_at_load_is_stopped(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "hangs-at-load")
    began = time.monotonic()
    with pytest.raises(EngineError, match="was not ready within 1 s"):
        engine(fake, tmp_path, start_timeout_s=1.0).start()
    assert time.monotonic() - began < 20


def test_a_request_that_hangs_is_given_up(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "hang")
    with (
        engine(fake, tmp_path, request_timeout_s=1.0) as running,
        pytest.raises(EngineError, match=r"did not answer /completion in 1 s"),
    ):
        running.complete([1, 2], n_predict=4)


def test_a_port_that_is_taken_meanwhile_is_left_for_another(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "taken"
    monkeypatch.setenv("FAKE_TAKEN", str(first))
    with engine(fake, tmp_path) as running:
        assert first.exists()
        assert running.tokenize("x") == [1, 2, 3, 4]


def test_the_real_server_finds_another_port_too(
    embedded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=stranger.serve_forever, daemon=True).start()
    ports = iter([stranger.server_address[1], free_port()])
    monkeypatch.setattr(FREE_PORT, lambda: next(ports))
    words = ["--model", str(embedded), "--host", "127.0.0.1", "--ctx-size", "256"]
    try:
        with LlamaServer(
            binary.probe(), lambda port: [*words, "--port", str(port)], tmp_path / "s.log"
        ) as running:
            assert running.tokenize("x")
            assert str(stranger.server_address[1]) not in running.command
    finally:
        stranger.shutdown()
        stranger.server_close()


@pytest.mark.parametrize("fault", ["no-key", ""])
def test_a_stranger_at_the_port_is_not_taken_for_our_server(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Another server, with no key or its own, listens where ours has not begun to."""
    port = free_port()
    own = os.environ | {"FAKE_FAULT": fault, "LLAMA_API_KEY": "another"}
    stranger = subprocess.Popen([sys.executable, str(FAKE), "--port", str(port)], env=own)
    try:
        monkeypatch.setattr(FREE_PORT, lambda: port)
        monkeypatch.setenv("FAKE_FAULT", "hangs-at-load")
        with pytest.raises(EngineError, match="another server answers at the port"):
            engine(fake, tmp_path, start_timeout_s=20.0).start()
    finally:
        stranger.kill()
        stranger.wait()


def test_a_wrapper_script_ends_with_what_it_started(fake: Path, tmp_path: Path) -> None:
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\n"{fake}" "$@"\nexit $?\n')
    wrapper.chmod(0o755)
    with engine(wrapper, tmp_path) as running:
        children = psutil.Process(running.pid).children(recursive=True)
        assert children
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_is_killed_costs_one_launch_and_a_rerun_fills_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The real server, killed at its first depth; the deeper one is measured."""
    own = replace(spec(Path("x")), server="", n_predict=1500, server_args=("--ignore-eos",))
    killed = threading.Event()

    def kill_once() -> None:
        while not killed.is_set():
            log = next(tmp_path.rglob("r0-d0-*.log"), None)
            if log and "slot" in log.read_text(errors="replace"):
                for child in psutil.Process().children():
                    child.send_signal(number)
                killed.set()
            time.sleep(0.01)

    watcher = threading.Thread(target=kill_once)
    watcher.start()
    try:
        recorded = measured(own, tmp_path)
    finally:
        killed.set()
        watcher.join()
    failed = [s for s in recorded.samples if s.error]
    assert failed
    assert {s.depth for s in failed} == {0}
    assert "llama-server ended while" in str(failed[0].error)
    again = measured(own, tmp_path)
    assert {k[1] for k in again.done()} == {0, 2}
    assert len(again.done()) == 2


WRONG: dict[str, tuple[str, str]] = {
    "missing": ("", "not an executable file"),
    "not executable": ("#!/bin/sh\n", "check the path and its execute permission"),
    "a folder": ("", "not an executable file"),
    "no program": ("hello\n", "llama-server can not be asked for its --version"),
    "another program": ("#!/bin/sh\nexec /bin/true\n", "not a llama-server"),
    "fails": ("#!/bin/sh\necho no such library >&2\nexit 127\n", "no such library"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_server_that_is_none_is_told_before_anything_starts(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, told = WRONG[kind]
    server = tmp_path / "llama-server"
    if kind == "a folder":
        server.mkdir()
    elif content:
        server.write_text(content)
        server.chmod(0o644 if kind == "not executable" else 0o755)
    monkeypatch.setenv("SPECDEPTH_MACHINES", str(tmp_path / "machines"))
    for words in (["doctor"], ["run", "--notebooks", "depth_sweep"]):
        done = CliRunner().invoke(app, [*words, "--server", str(server)])
        assert done.exit_code == 1, done.output
        assert told in done.output
        assert not (tmp_path / "machines").exists()


def test_a_server_that_a_variable_names_is_told_by_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEPTH_SERVER", str(tmp_path / "gone"))
    with pytest.raises(EngineError, match="the llama-server that SPECDEPTH_SERVER names can not"):
        binary.find()
    with pytest.raises(EngineError, match="the llama-server that was named can not"):
        binary.find(str(tmp_path / "gone too"))
