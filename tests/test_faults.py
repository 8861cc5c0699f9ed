"""Servers that misbehave, for real: each ends in a clear message and nothing left behind."""

from __future__ import annotations

import http.server
import itertools
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from analysis import report, series, store, sweep
from analysis.cli import app
from analysis.engines import binary
from analysis.engines.emulated import free_port
from analysis.engines.llama_server import LlamaServer
from analysis.engines.process import Counters
from analysis.errors import EngineError, SpecDepthError, StoreError
from analysis.spec import SweepSpec
from tests.conftest import SAMPLE

ROOT = Path(__file__).resolve().parent.parent
FAKE = Path(__file__).with_name("fake_server.py")
pytestmark = pytest.mark.usefixtures("nothing_left")
FREE_PORT = "analysis.engines.llama_server.free_port"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A llama-server of one's own that answers as it is told by FAKE_FAULT."""
    path = tmp_path / "llama-server"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.delenv("FAKE_FAULT", raising=False)
    monkeypatch.setattr("analysis.launch.WARM_UP_MS", 0.0)  # it has no clock to settle
    return path


def spec(server: Path, **more: object) -> SweepSpec:
    values = {"workloads": ("short",), "depths": (0, 2), "prompts": 1, "rounds": 1,
              "n_predict": 40, "lossless_prompts": 0, "server": str(server)}  # fmt: skip
    return SweepSpec(**values | more)  # type: ignore[arg-type]


def measured(own: SweepSpec, tmp_path: Path) -> store.Recorded:
    return sweep.measure(own, "depth_sweep", "here", tmp_path / "machines")


def test_a_server_that_behaves_is_measured(fake: Path, tmp_path: Path) -> None:
    """Without this the faults below would prove nothing."""
    recorded = measured(spec(fake), tmp_path)
    timed = [s for s in recorded.samples if not s.warm_up]
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


def keyed(recorded: store.Recorded) -> dict[tuple[object, ...], tuple[int, ...]]:
    """Return the tokens of each timed request by its key; each is there once."""
    timed = [s for s in recorded.samples if not s.warm_up and s.error is None]
    found = {store.sample_key(s): s.tokens for s in timed}
    assert len(found) == len(timed)
    return found


FULL_DISK = """
import os, resource, sys
from pathlib import Path
from analysis import sweep
from tests.test_faults import spec

class Filling:
    # After the first launch no file may grow by more than one sample's line and a half.
    def update(self, done, total, doing):
        files = [*Path(sys.argv[2]).glob("machines/*/samples/*.jsonl")]
        if done == 1:
            size = files[0].stat().st_size + 1000
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    def close(self): ...

from analysis.cli_common import plainly
own = spec(Path(sys.argv[1]), prompts=3)
plainly(lambda: sweep.measure(
    own, "depth_sweep", "here", Path(sys.argv[2]) / "machines", progress=Filling()))()
"""


def test_a_disk_that_is_full_loses_and_repeats_no_sample(fake: Path, tmp_path: Path) -> None:
    """The samples file may not grow any more, in the middle of a sample's line."""
    undisturbed = keyed(measured(spec(fake, prompts=3), tmp_path / "whole"))
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(fake), str(tmp_path)], capture_output=True, text=True
    )
    assert "can not be written. Found: File too large. Next: make room on the disk" in done.stderr
    assert done.returncode == 1
    (file,) = (tmp_path / "machines" / "here" / "samples").glob("*.jsonl")
    assert file.read_bytes().endswith(b"\n")  # the part of a line that found room is out again
    kept = store.read(file)
    assert kept.notes == ()
    assert 0 < len(kept.done()) < len(undisturbed)
    again = measured(spec(fake, prompts=3), tmp_path)
    assert again.samples[: len(kept.samples)] == kept.samples
    assert keyed(again) == undisturbed


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_without_any_room_is_told(fake: Path, tmp_path: Path) -> None:
    with store.Writer(tmp_path / "a.jsonl", measured(spec(fake), tmp_path).run) as writer:
        os.dup2(os.open("/dev/full", os.O_WRONLY), writer._file.fileno())
        with pytest.raises(StoreError, match=r"can not be written.*No space left on device"):
            writer.add(SAMPLE)


def test_a_clock_that_is_set_back_loses_nothing(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock is an hour before the last one; durations do not come from it."""
    hours = itertools.count(1)
    monkeypatch.setattr(
        "analysis.machine.utc_now",
        lambda: (datetime.now(UTC) - timedelta(hours=next(hours))).isoformat(
            timespec="milliseconds"
        ),
    )
    first = measured(spec(fake, rounds=1), tmp_path)
    both = measured(spec(fake, rounds=2), tmp_path)
    assert both.samples[: len(first.samples)] == first.samples
    assert len(keyed(both)) == 4
    starts = [s.started for s in both.samples]
    assert starts == sorted(starts, reverse=True)
    assert all(s.client_ms >= 0 for s in both.samples)
    assert all(x.load_ms > 0 for x in both.launches)
    before = both.path.read_bytes()
    assert measured(spec(fake, rounds=2), tmp_path).path.read_bytes() == before
    assert report.sweep_of(both).depths == (0, 2)


def test_no_duration_is_taken_from_a_clock_that_can_be_set() -> None:
    code = "".join(p.read_text() for p in (ROOT / "analysis").rglob("*.py"))
    assert code.count("datetime.now") == 1  # in machine.utc_now, for the record alone
    assert not re.search(r"time\.time\(|time\.localtime|datetime\.today", code)


def test_a_model_that_changes_is_another_run_and_its_samples_are_not_mixed(
    fake: Path, embedded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file keeps its name and gets another content: the old samples stay as they are."""
    file = tmp_path / "model.gguf"
    content = embedded.read_bytes()
    file.write_bytes(content)
    old = measured(spec(fake, model=str(file)), tmp_path)
    before = old.path.read_bytes()
    file.write_bytes(content + b"\0")
    new = measured(spec(fake, model=str(file)), tmp_path)
    assert old.path.read_bytes() == before
    assert new.path != old.path
    assert new.run.model["sha256"] != old.run.model["sha256"]
    assert len(keyed(new)) == len(keyed(old)) == 2
    with pytest.raises(StoreError, match="different key facts can not be joined"):
        store.check_same(old.run, new.run)
    # The pages of a folder are of one model: the series refuses before it measures anything.
    monkeypatch.setenv("SPECDEPTH_MACHINES", str(tmp_path / "machines"))
    given = {"model": str(file), "server": str(fake)}
    with pytest.raises(SpecDepthError, match=r"here holds results of another model.*model\.gguf"):
        series.run_series(given, "here", ("depth_sweep",))


def test_two_runs_on_one_folder_at_once_are_refused(fake: Path, tmp_path: Path) -> None:
    """Another process measures; this one is told so, and the other goes on."""
    code = f"""
from pathlib import Path
from tests.test_faults import measured, spec
measured(spec(Path({str(fake)!r})), Path({str(tmp_path)!r}))
"""
    other = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"FAKE_FAULT": "hang"})
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not list(tmp_path.rglob("r0-d0-*.log")):
            time.sleep(0.02)
        with pytest.raises(StoreError, match="is being written by another process"):
            measured(spec(fake), tmp_path)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert len(keyed(measured(spec(fake), tmp_path))) == 2


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
