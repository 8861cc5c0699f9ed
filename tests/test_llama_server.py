"""The wrapper against the real server on the embedded model; faults are caused for real."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from analysis.engines.binary import ServerBinary
from analysis.engines.flags import arguments
from analysis.engines.llama_server import LlamaServer, parse_metrics
from analysis.engines.process import Counters
from analysis.errors import EngineError
from analysis.spec import SweepSpec

SPEC = SweepSpec(workloads=("short",), context=1024, threads=2)
METRICS = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 51
llamacpp:spec_decode_num_drafts_total 41
llamacpp:spec_decode_num_draft_tokens_total 122
llamacpp:spec_decode_num_accepted_tokens_total 58
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 31
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 17
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 10
"""


def server(binary: ServerBinary, model: Path, log: Path, depth: int = 3) -> LlamaServer:
    return LlamaServer(binary, lambda port: arguments(binary, SPEC, depth, model, port), log)


@pytest.fixture(scope="module")
def running(
    server_binary: ServerBinary, embedded: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LlamaServer]:
    log = tmp_path_factory.mktemp("server") / "s.log"
    with server(server_binary, embedded, log) as started:
        yield started


def test_counters_are_read_from_the_metrics_text() -> None:
    assert parse_metrics(METRICS) == Counters(41, 122, 58, (31, 17, 10))


def test_missing_counters_are_none() -> None:
    old = "\n".join(line for line in METRICS.splitlines() if "spec_decode" not in line)
    assert parse_metrics(old) == Counters(None, None, None, None)
    assert Counters(1, 1, 1, (1,)).since(parse_metrics(old)) == Counters(None, None, None, None)


def test_counters_differ_by_request() -> None:
    before = Counters(0, 0, 0, ())
    assert parse_metrics(METRICS).since(before) == Counters(41, 122, 58, (31, 17, 10))


def test_two_requests_add_up_in_the_counters(running: LlamaServer) -> None:
    tokens = running.tokenize("def add(a, b):\n    return")
    readings, answers = [running.counters()], []
    for _ in range(2):
        answers.append(running.complete(tokens, n_predict=48, temperature=0.0))
        readings.append(running.counters())
    for before, after, answer in zip(readings, readings[1:], answers, strict=False):
        counted, timings = after.since(before), answer["timings"]
        assert timings["predicted_n"] == 48
        assert counted.draft_n == timings["draft_n"] > 0
        assert counted.draft_n_accepted == timings["draft_n_accepted"]
        assert counted.per_position is not None
        assert sum(counted.per_position) == counted.draft_n_accepted
        steps = 47 - timings["draft_n_accepted"]
        assert counted.drafts is not None
        assert steps - 1 <= counted.drafts <= steps  # the very last step may draft nothing
    assert answers[0]["tokens"] == answers[1]["tokens"]


def test_texts_survive_the_tokenizer(running: LlamaServer) -> None:
    text = "In the beginning, x = {1: 'één'}\n"
    assert running.detokenize(running.tokenize(text)) == text


def test_a_refused_request_leaves_the_server_usable(running: LlamaServer) -> None:
    with pytest.raises(EngineError, match="refused /completion with status 400"):
        running.complete([1] * 5000, n_predict=8)
    assert running.complete([1, 2, 3], n_predict=2)["timings"]["predicted_n"] >= 1


def test_the_key_is_needed_and_not_on_the_command_line(running: LlamaServer) -> None:
    import httpx

    port = running.command[running.command.index("--port") + 1]
    bare = httpx.post(f"http://127.0.0.1:{port}/tokenize", json={"content": "x"}, trust_env=False)
    assert bare.status_code == 401
    assert "api-key" not in " ".join(psutil.Process(running.pid).cmdline())


def test_it_listens_on_loopback_only(running: LlamaServer) -> None:
    listening = [
        c.laddr.ip for c in psutil.Process(running.pid).net_connections() if c.status == "LISTEN"
    ]
    assert listening == ["127.0.0.1"]


def test_stopping_ends_process_and_port(
    server_binary: ServerBinary, embedded: Path, tmp_path: Path
) -> None:
    with server(server_binary, embedded, tmp_path / "s.log", depth=0) as started:
        pid = started.pid
        assert started.load_ms > 0
    assert not psutil.pid_exists(pid)
    assert started.stopped_by == "terminate"
    assert started.peak_rss_mib is not None
    started.stop()  # twice is harmless


def test_a_server_that_can_not_load_its_model_says_why(
    server_binary: ServerBinary, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 64)
    failing = server(server_binary, broken, tmp_path / "s.log", depth=0)
    with pytest.raises(EngineError, match=r"ended while starting, with code 1.*model"):
        failing.start()
    assert failing.stopped_by == "died"


def test_a_server_killed_at_work_is_reported_by_its_signal(
    server_binary: ServerBinary, embedded: Path, tmp_path: Path
) -> None:
    with server(server_binary, embedded, tmp_path / "s.log", depth=0) as started:
        os.kill(started.pid, signal.SIGKILL)
        with pytest.raises(EngineError, match="SIGKILL"):
            started.complete([1, 2, 3], n_predict=4)


def test_a_program_that_never_answers_is_given_up_and_ended(
    server_binary: ServerBinary, tmp_path: Path
) -> None:
    import dataclasses

    silent = dataclasses.replace(server_binary, path=Path("/bin/sleep"))
    waiting = LlamaServer(silent, lambda _: ["60"], tmp_path / "s.log", start_timeout_s=0.5)
    began = time.monotonic()
    with pytest.raises(EngineError, match="not ready within"):
        waiting.start()
    assert time.monotonic() - began < 30
    assert waiting.exit_code == -signal.SIGTERM


def test_a_program_that_ignores_terminate_is_killed(
    server_binary: ServerBinary, tmp_path: Path
) -> None:
    import dataclasses

    stubborn = dataclasses.replace(server_binary, path=Path("/bin/sh"))
    waiting = LlamaServer(
        stubborn, lambda _: ["-c", "trap '' TERM; while :; do sleep 0.1; done"], tmp_path / "s.log",
        start_timeout_s=0.5,
    )  # fmt: skip
    original = waiting.stop
    waiting.stop = lambda patience_s=0.5: original(patience_s)  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="not ready"):
        waiting.start()
    assert waiting.stopped_by == "kill"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs parent-death signals")
def test_no_server_outlives_a_killed_parent(embedded: Path, tmp_path: Path) -> None:
    code = f"""
import sys, time
from pathlib import Path
from analysis.engines import binary
from tests.test_llama_server import server
started = server(binary.probe(), Path({str(embedded)!r}), Path({str(tmp_path / "s.log")!r}), 0)
started.start()
print(started.pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.stdout.close()
    assert psutil.pid_exists(pid)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and psutil.pid_exists(pid):
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.1)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
