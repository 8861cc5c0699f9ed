"""Acceptance on real traffic: real lines of five generations of builds, and what follows."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from analysis import logs, traffic
from analysis.cli import app
from analysis.engines.binary import ServerBinary
from analysis.engines.flags import arguments
from analysis.engines.llama_server import LlamaServer
from analysis.spec import SweepSpec

RECORDED = Path(__file__).parent / "recorded"


def read(name: str) -> list[logs.Request]:
    return traffic.load([RECORDED / "traffic" / name])


@pytest.mark.parametrize(
    ("name", "predicted_n", "predicted_ms", "accepted", "drafted"),
    [
        ("2025-03.log", 200, 9840.04, 70, 304),
        ("2026-05-mtp-branch.log", 57, 1287.69, 36, 36),
        ("2026-05-router.log", 192, 14323.78, 118, 144),
        ("2026-06-per-position.log", 256, 2296.72, 167, 259),
    ],
)
def test_one_request_of_each_generation(
    name: str, predicted_n: int, predicted_ms: float, accepted: int, drafted: int
) -> None:
    (request,) = read(name)
    assert (request.predicted_n, request.predicted_ms) == (predicted_n, predicted_ms)
    assert (request.draft_n_accepted, request.draft_n) == (accepted, drafted)


def test_statistics_over_the_servers_life_are_not_added() -> None:
    """The router's log also has 1135 of 1447 for ten earlier requests."""
    whole = traffic.summary("all", read("2026-05-router.log"))
    assert (whole.draft_n_accepted, whole.draft_n) == (118, 144)


def test_requests_keep_to_their_task_and_time() -> None:
    first, second = read("2026-08.log")
    assert first.at_s == pytest.approx(327.453, abs=1e-3)
    assert (second.prompt_n, second.draft_n_accepted) == (1938, 51)
    assert second.at_s == pytest.approx(132 * 60 + 15.702, abs=1e-3)


def test_interleaved_slots_do_not_mix() -> None:
    line = "0.01.000.{:03d} I slot print_timing: id  {} | task {} | {}"
    eval_time = "       eval time =    1000.00 ms /    11 tokens"
    text = [
        line.format(1, 0, 5, eval_time),
        line.format(2, 1, 6, eval_time),
        line.format(3, 1, 6, "draft acceptance = 0.1 (    1 accepted /    10 generated)"),
        line.format(4, 0, 5, "draft acceptance = 0.7 (    7 accepted /    10 generated)"),
    ]
    assert [r.draft_n_accepted for r in logs.requests(text)] == [7, 1]


def test_depth_and_servers_of_one_log() -> None:
    text = [
        "0.00.1 I spec common_specu: - n_max=3, n_min=0, p_min=0.00, n_embd=256",
        "       eval time =    1000.00 ms /    11 tokens",
        "srv    load_model: loading model '/m.gguf'",
        "       eval time =    1000.00 ms /    11 tokens",
    ]
    assert [(r.server, r.depth) for r in logs.requests(text)] == [(0, 3), (1, None)]


def test_json_lines_and_colours_are_read() -> None:
    message = "slot print_timing: id  0 | task 1 |        eval time =    10.00 ms /    11 tokens"
    as_json = json.dumps({"type": "log", "time": 2_500_000, "level": "info", "msg": message})
    coloured = f"\x1b[32m0.00.001.002 I \x1b[0m{message}"
    first, second = logs.requests([as_json, coloured])
    assert (first.predicted_n, first.at_s) == (11, 2.5)
    assert second.at_s == pytest.approx(0.001002)


def test_a_truncated_or_garbled_log_gives_what_is_whole() -> None:
    lines = (RECORDED / "traffic" / "2026-08.log").read_text().splitlines()
    cut = [*lines[:4], lines[4][:60], "\x00\xff garbage eval time = x ms / y tokens"]
    (request,) = logs.requests(cut)
    assert request.draft_n == 0


def test_requests_are_clusters() -> None:
    """Two kinds of requests: the interval is that of requests, not of the drafted tokens."""
    good = logs.Request(0, 3, None, 1, 100, 1e3, 100, 80)
    poor = logs.Request(0, 3, None, 1, 100, 1e3, 100, 40)
    found = traffic.summary("all", [good, poor] * 6).acceptance
    assert found is not None
    assert found.estimate == pytest.approx(0.6)
    assert found.high - found.low == pytest.approx(2 * 2.201 * 0.2 / 11**0.5, rel=0.03)


def test_nothing_drafted_is_none_and_said() -> None:
    whole = traffic.summary("all", [logs.Request(0, None, None, 1, 50, 500.0)])
    assert whole.acceptance is None
    assert whole.tokens_per_step is not None
    assert whole.tokens_per_step.estimate == 1
    assert "nothing was drafted" in traffic.against_note(whole)


def test_the_command_prints_a_table_and_json() -> None:
    paths = [str(p) for p in sorted((RECORDED / "traffic").glob("*.log"))]
    shown = CliRunner().invoke(app, ["traffic", *paths])
    assert shown.exit_code == 0
    assert "0.65 to 0.77" in shown.stdout
    data = json.loads(CliRunner().invoke(app, ["traffic", "--json", *paths]).stdout)
    assert data["groups"][0]["requests"] == len(data["requests"]) == 6
    assert data["groups"][0]["draft_n"] == 304 + 36 + 144 + 259 + 119 + 55


@pytest.mark.parametrize("name", ["missing.log", "traffic/README.md"])
def test_a_file_without_requests_is_an_error(name: str) -> None:
    shown = CliRunner().invoke(app, ["traffic", str(RECORDED / name)])
    assert shown.exit_code == 1
    assert "Next:" in shown.stderr


def test_neither_or_both_sources_are_refused() -> None:
    assert CliRunner().invoke(app, ["traffic"]).exit_code == 2
    both = ["traffic", str(RECORDED / "cpu_depth3.log"), "--url", "http://127.0.0.1:9"]
    assert CliRunner().invoke(app, both).exit_code == 2


def test_counters_of_a_running_server_are_read_and_nothing_changes(
    server_binary: ServerBinary, embedded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = SweepSpec(workloads=("short",), context=1024, threads=2)
    server = LlamaServer(
        server_binary, lambda port: arguments(server_binary, spec, 2, embedded, port),
        tmp_path / "s.log",
    )  # fmt: skip
    with server:
        server.complete(server.tokenize("def add(a, b):"), n_predict=40, temperature=0.0)
        port = server.command[server.command.index("--port") + 1]
        url = f"http://127.0.0.1:{port}/"
        closed = CliRunner().invoke(app, ["traffic", "--url", url])
        assert closed.exit_code == 1
        assert "set LLAMA_API_KEY" in closed.stderr
        key = psutil.Process(server.pid).environ()["LLAMA_API_KEY"]
        monkeypatch.setenv("LLAMA_API_KEY", key)
        before = server.counters()
        shown = CliRunner().invoke(app, ["traffic", "--json", "--url", url])
        assert server.counters() == before
        plain = CliRunner().invoke(app, ["traffic", "--url", url])
    data = json.loads(shown.stdout)
    assert (data["draft_n"], data["draft_n_accepted"]) == (before.draft_n, before.draft_n_accepted)
    assert data["acceptance"] == pytest.approx(data["draft_n_accepted"] / data["draft_n"])
    assert "no interval" in plain.stdout
    gone = CliRunner().invoke(app, ["traffic", "--url", url])
    assert "the server does not answer" in gone.stderr


def test_intervals_of_speeds_and_steps_stay_possible() -> None:
    slow = logs.Request(0, 2, None, 1, 100, 9e3, 100, 10)
    fast = logs.Request(0, 2, None, 1, 100, 1e3, 100, 80)
    found = traffic.summary("all", [slow, fast])
    for interval in (found.tok_s, found.tokens_per_step):
        assert interval is not None
        assert 0 < interval.low < interval.estimate < interval.high


def test_a_log_named_twice_is_read_once_and_input_is_read() -> None:
    log = RECORDED / "traffic" / "2026-08.log"
    once = CliRunner().invoke(app, ["traffic", "--json", str(log)]).stdout
    assert CliRunner().invoke(app, ["traffic", "--json", str(log), str(log)]).stdout == once
    piped = CliRunner().invoke(app, ["traffic", "--json", "-"], input=log.read_text())
    assert json.loads(piped.stdout) == json.loads(once)


def test_more_accepted_than_drafted_is_passed_over() -> None:
    text = [
        "       eval time =    1000.00 ms /    11 tokens",
        "draft acceptance = 9.9 (  955 accepted /   119 generated)",
    ]
    assert [r.draft_n for r in logs.requests(text)] == [0]


def test_a_folder_is_called_one(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["traffic", str(tmp_path)])
    assert shown.exit_code == 1
    assert "the log is a folder" in shown.stderr
