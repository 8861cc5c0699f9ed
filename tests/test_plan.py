"""The planner: the closed form against the engine's own, its command, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from analysis import leaving, memory_figures, plan, plan_tables, planner, plans, shapes
from analysis.cli import app
from analysis.engines import binary, fit
from analysis.errors import EngineError, SpecError
from analysis.plan import Pool
from analysis.planner import Wanted
from analysis.plans import Question
from analysis.spec import SweepSpec
from tests.conftest import interruptible, run_record

NOTE = Pool(21400.0, 86016, 2, unified=True)  # the note's pool, and a budget around its edge
LARGE = Wanted(shape="qwen3.6-27b", quantization="q4_k_pure")
RECORDED = Path(__file__).parent / "recorded" / "fit"


def test_the_notes_cliff_is_planned_by_the_engine() -> None:
    """FACTS: 66 of 66 layers at depth 2, 65 at depth 3, with a budget of 21,400 MiB."""
    made = planner.make(LARGE, NOTE, (2, 3))
    two, three = made.rows
    assert (two.fits, two.layers_off_device, two.layers_total) == (True, 0, 66)
    assert (three.fits, three.layers_off_device, three.off_device) == (False, 1, "blocks 0")
    assert {r.basis for r in made.rows} == {plan.EMULATED}
    assert three.total_mib - two.total_mib == pytest.approx(299.25, abs=4)
    assert two.total_mib == pytest.approx(21263, abs=30)
    for row in made.rows:
        assert row.closed_form_total_mib == pytest.approx(row.total_mib, rel=planner.CLOSE)


def test_closed_form_and_engine_agree_on_twenty_budgets(tmp_path: Path) -> None:
    """Whether it fits, and how many layers leave, from all fitting to a dozen leaving."""
    subject = Wanted(shape="qwen3.5-9b", quantization="q4_k_m").subject()
    spec = Question("qwen3.5-9b", "q4_k_m", 32768, 2, 3).spec(emulated=True)
    build = binary.probe()
    with Wanted(shape="qwen3.5-9b", quantization="q4_k_m").file() as path:
        whole = fit.project(build, spec, 3, path, tmp_path / "a.log")
        own = plan.closed_form(subject, Pool(1.0, 32768, 2, unified=True), 3)
        agreed = []
        for number in range(20):
            budget = whole.projected_mib + 250 - 150 * number
            laid = fit.lay_out(build, spec, 3, path, tmp_path / "b.log", whole.free_mib - budget)
            pool = Pool(float(laid.budget_mib or 0), 32768, 2, unified=True)
            engine = plan.from_engine(subject, pool, laid, emulated=True)
            closed = plan.closed_form(subject, pool, 3)
            agreed.append(
                (engine.fits, engine.layers_off_device) == (closed.fits, closed.layers_off_device)
            )
            assert abs(engine.layers_off_device - closed.layers_off_device) <= 1
    assert own.total_mib == pytest.approx(whole.projected_mib, rel=planner.CLOSE)
    assert all(agreed), agreed


def test_command_prints_what_was_asked_for() -> None:
    asked = ["plan", "--shape", "qwen3.6-27b", "--quant", "q4_k_m", "--memory", "22GiB",
             "--context", "86016", "--slots", "2", "--kv-unified", "--depths", "0-6"]  # fmt: skip
    began = time.monotonic()
    told = CliRunner().invoke(app, [*asked, "--closed-form", "--json"])
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)
    assert [r["depth"] for r in rows] == list(range(7))
    assert time.monotonic() - began < 20  # a second on a quiet machine, gguf's import included
    for row in rows:
        parts = sum(row[f"{n}_mib"] for n in ("state", "kv", "weights", "compute"))
        assert parts == pytest.approx(row["total_mib"], abs=0.2)
        assert row["fits"] == (row["total_mib"] <= 22 * 1024) == (row["layers_off_device"] == 0)
        assert row["basis"] == plan.CLOSED_FORM
    table = CliRunner().invoke(app, [*asked, "--closed-form"])
    assert "is the deepest that fits into 22,528 MiB" in table.stdout


def test_a_file_is_planned_as_its_shape_is(embedded: Path) -> None:
    """The embedded model by its path, against what llama-server prints (test_memory)."""
    told = CliRunner().invoke(
        app, ["plan", "--model", str(embedded), "--memory", "64MiB", "--context", "20480",
              "--depths", "0,5", "--closed-form", "--json"],
    )  # fmt: skip
    zero, five = json.loads(told.stdout)
    assert (zero["state_mib"], zero["kv_mib"]) == (0.43, 20.0)
    assert five["kv_mib"] == 30.0
    assert five["state_mib"] == pytest.approx(6 * 0.4297, abs=0.01)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a model file or a shape"),
        (["--shape", "qwen3.6-27b", "--model", "x.gguf"], "both"),
        (["--shape", "gpt-9"], "no shape called gpt-9"),
        (["--shape", "qwen3.6-27b", "--quant", "q9"], "no quantization called q9"),
        (["--model", "nothing.gguf"], "the model file is not there"),
        (["--shape", "qwen3.6-27b", "--memory", "plenty"], "an amount of memory is like 22GiB"),
        (["--shape", "qwen3.6-27b", "--cache-type-k", "q3", "--memory", "9GiB"], "q3"),
        (["--shape", "qwen3.6-27b", "--slots", "0", "--memory", "9GiB"], "slots"),
        (["--shape", "qwen3.6-27b", "--closed-form"], "needs the device's memory"),
        (["--shape", "qwen3.6-27b"], "no device that llama-server finds"),
        (["--shape", "qwen3.6-27b", "--slots", "999", "--memory", "9GiB"], "between 1 and 256"),
        (["--shape", "qwen3.6-27b", "--context", "9" * 20, "--memory", "9GiB"], "between 1 and"),
        (["--shape", "qwen3.6-27b", "--depths", "99", "--memory", "9GiB"], "between 0 and 32"),
        (["--shape", "qwen3.6-27b", "--server", "/nope", "--memory", "9GiB"], "can not be run"),
    ],
)
def test_what_can_not_be_planned_is_refused_plainly(words: list[str], said: str) -> None:
    told = CliRunner().invoke(app, ["plan", *words])
    assert told.exit_code == 1
    assert said in " ".join(told.output.split())
    assert "Traceback" not in told.output


def test_a_budget_beyond_the_device_is_planned_in_closed_form() -> None:
    made = planner.make(LARGE, replace(NOTE, memory_mib=4e6), (0,))
    assert made.rows[0].basis == plan.CLOSED_FORM
    assert "less free memory" in made.notes[0]


LISTED = """\
Available devices:
  CUDA0: NVIDIA GeForce RTX 4090 (24081 MiB, 23654 MiB free)
  CUDA1: NVIDIA GeForce RTX 4090 (24081 MiB, 23654 MiB free)
"""


@pytest.mark.parametrize(("listed", "count"), [(LISTED, 2), ("Available devices:\n  (none)\n", 0)])
def test_devices_are_read_from_the_servers_list(
    listed: str,
    count: int,
    server_binary: binary.ServerBinary,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(binary, "ask", lambda *_: listed)
    assert len(planner.devices(server_binary)) == count


def test_a_real_device_is_asked_for_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's answer for a card, played back: its free memory less what it leaves free."""
    seen = []

    def project(_build: object, spec: SweepSpec, depth: int, *_: object) -> fit.Laid:
        seen.append((spec.device, depth))
        return fit.Laid(depth, 23654, None, 20000 + 300 * depth, 14000, 5000, 300, None, 0, "")

    monkeypatch.setattr(planner, "devices", lambda _: ["CUDA0: a card"])
    monkeypatch.setattr(fit, "project", project)
    made = planner.make(LARGE, replace(NOTE, memory_mib=0.0), (0, 1, 2))
    assert seen == [("", 0), ("", 1), ("", 2)]
    assert {r.basis for r in made.rows} == {plan.ENGINE}
    assert made.pool.memory_mib == 23654 - planner.MARGIN_MIB
    assert made.rows[2].left_mib == 23654 - 1024 - 20600


def test_a_model_without_state_costs_none_by_depth() -> None:
    shape = shapes.shape("qwen3.6-27b")
    subject = plan.of_shape(shape, "q4_k_m")
    dense = replace(subject.layout, linear_layers=0, attention_layers=64, architecture="llama")
    rows = [
        plan.closed_form(replace(subject, layout=dense), replace(NOTE, memory_mib=4e4), d)
        for d in (1, 4)
    ]
    assert [r.state_mib for r in rows] == [0, 0]
    assert planner._state_note(replace(subject, layout=dense))[0].startswith("llama keeps no")


@given(st.floats(100, 40000), st.integers(0, 6), st.sampled_from(list(shapes.shapes())))
def test_less_memory_never_keeps_more_layers(memory: float, depth: int, name: str) -> None:
    subject = plan.of_shape(shapes.shape(name), "q4_k_m")
    small = plan.closed_form(subject, replace(NOTE, memory_mib=memory), depth)
    large = plan.closed_form(subject, replace(NOTE, memory_mib=memory + 200), depth)
    assert small.layers_off_device >= large.layers_off_device
    assert small.fits == (small.layers_off_device == 0)
    assert 0 <= small.layers_off_device <= small.layers_total


@pytest.mark.parametrize(
    ("text", "mib"), [("22GiB", 22528), ("24 GB", 22888.2), ("21400MiB", 21400), ("1g", 1024)]
)
def test_amounts_of_memory(text: str, mib: float) -> None:
    assert plan.memory_mib(text) == pytest.approx(mib, abs=0.1)


@pytest.mark.parametrize(
    "text", ["", "GiB", "-3GiB", "22", "22 bananas", "nan", "infGiB", "1e30GiB"]
)
def test_no_amounts_of_memory(text: str) -> None:
    with pytest.raises(SpecError, match="an amount of memory"):
        plan.memory_mib(text)


@pytest.mark.parametrize("cut", [3_000_000, 2000, 40])
@pytest.mark.parametrize("more", [[], ["--closed-form"]])
def test_a_damaged_file_is_named(cut: int, more: list[str], embedded: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(embedded.read_bytes()[:cut])
    told = CliRunner().invoke(app, ["plan", "--model", str(torn), "--memory", "1GiB", *more])
    assert told.exit_code == 1
    assert "torn.gguf can not be read as GGUF" in " ".join(told.output.split())


def test_ranges_of_depths_are_checked_before_they_are_made() -> None:
    told = CliRunner().invoke(app, ["plan", "--shape", "qwen3.6-27b", "--depths", "0-1000000000"])
    assert told.exit_code == 2
    assert "below 100" in told.output


def test_names_are_read_in_any_case() -> None:
    told = CliRunner().invoke(
        app, ["plan", "--shape", "Qwen3.6-27B", "--quant", "Q4_K_M", "--cache-type-k", "Q8_0",
              "--memory", "22gib", "--depths", "1", "--closed-form", "--json"],
    )  # fmt: skip
    assert told.exit_code == 0, told.output


@pytest.mark.parametrize(("depth", "which"), [(0, "experts of block"), (3, "experts of block")])
def test_experts_leave_as_the_engine_lets_them(depth: int, which: str) -> None:
    """A mixture of experts at 20 GiB: as many layers, though the planner counts the output too."""
    wanted = Wanted(shape="qwen3.6-35b-a3b", quantization="q4_k_m")
    pool = Pool(20480.0, 65536, 2)
    (asked,) = planner.make(wanted, pool, (depth,)).rows
    (closed,) = planner.make(wanted, pool, (depth,), engine=False).rows
    assert asked.layers_off_device == closed.layers_off_device > 0
    assert which in asked.off_device
    assert which in closed.off_device


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_plan_leaves_nothing_running(number: signal.Signals, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "analysis.cli", "plan", "--shape", "qwen3.6-27b", "--memory",
         "15GiB", "--context", "86016", "--slots", "2", "--depths", "0-6"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=interruptible,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    own = psutil.Process(process.pid)
    deadline = time.monotonic() + 60
    children: list[psutil.Process] = []
    while len({c.name() for c in children}) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
        children = [c for c in own.children(recursive=True) if c.is_running()]
    assert len(children) >= 2, "planner and device were never seen"
    os.kill(process.pid, number)
    began = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 20
    assert process.returncode == 128 + number, err
    assert list(tmp_path.iterdir()) == []
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_layouts_are_asked_once_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = [
        Question("qwen3.5-0.8b", "q8_0", 4096, 1, 2),
        Question("qwen3.5-0.8b", "q8_0", 4096, 1, 2, budget_mib=700),
        Question("qwen3.5-0.8b", "q8_0", 4096, 1, 2, budget_mib=10**7),
    ]
    first = plans.ask(questions[:1], "page", "here", tmp_path)
    made = plans.ask(questions, "page", "here", tmp_path)
    assert made.answers[questions[0]] == first.answers[questions[0]]
    assert set(made.answers) == set(questions[:2])  # a budget that is not there has no answer
    (file,) = (tmp_path / "here" / "samples" / "plans").glob("page-*.jsonl")
    lines = file.read_text().splitlines()
    assert len(lines) == 3
    monkeypatch.setenv("SPECDEPTH_REPLAY", "1")
    monkeypatch.setattr(binary, "probe", lambda *_: pytest.fail("an engine was asked"))
    assert plans.ask(questions, "page", "here", tmp_path).answers == made.answers
    assert made.emulated


OLD = """\
llama_params_fit_impl: projected to use 30000 MiB of device memory vs. 28000 MiB of free device memory
llama_params_fit_impl: cannot meet free memory target of 1024 MiB, need to reduce device memory by 3024 MiB
llama_params_fit_impl:   - CUDA0 (NVIDIA GeForce RTX 3090): 60 layers,  26900 MiB used,   1100 MiB free
llama_params_fit: successfully fit params to free device memory
llama_params_fit: fitting params to free memory took 1.24 seconds
"""  # noqa: E501


def test_layouts_of_older_builds_are_read() -> None:
    laid = fit.read(OLD, 3, 1024)
    assert (laid.projected_mib, laid.free_mib, laid.budget_mib) == (30000, 28000, 26976)
    assert laid.layers_on_device == 60


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "says nothing of a device"),
     ("common_params_fit_impl: projected to use 100 MiB of host memory vs. 9 MiB of total host "
      "memory", "no device")],
)  # fmt: skip
def test_a_log_without_a_plan_is_an_error(text: str, said: str) -> None:
    with pytest.raises(EngineError, match=said):
        fit.read(text, 1)


def test_what_leaves_is_counted_and_named_once() -> None:
    """A planner's answers in its own counting, with the output among the partly moved layers."""
    laid = fit.Laid(3, 24105, 20480, 23028, 20424, 2300, 288, 42, 6, "")
    off = leaving.by_engine(laid, 41, 1)
    assert (off.experts, off.blocks, off.count) == ((36, 37, 38, 39, 40), (), 5)
    assert str(off) == "experts of blocks 36-40"
    zero = leaving.by_engine(replace(laid, depth=0, layers_on_device=41, layers_partly=2), 41, 1)
    assert (str(zero), zero.count) == ("blocks 0, experts of blocks 39", 2)
    nothing = leaving.by_engine(replace(laid, layers_on_device=None, layers_partly=0), 41, 1)
    assert (str(nothing), nothing.count) == ("", 0)
    whole = leaving.by_engine(replace(laid, layers_on_device=0, layers_partly=0), 41, 1)
    assert (str(whole), whole.count) == ("all", 42)


def test_the_page_counts_experts_as_the_plan_does() -> None:
    question = Question("qwen3.6-35b-a3b", "q4_k_m", 65536, 2, 3)
    laid = fit.Laid(3, 24105, 20480, 23028, 20424, 2300, 288, 42, 6, "")
    run = run_record()
    needs = plans.Plans(run, {question: replace(laid, layers_on_device=None)}, emulated=True)
    placed = plans.Plans(run, {replace(question, budget_mib=20480): laid}, emulated=True)
    assert plan_tables.placement(needs, placed).loc[3, "20,480 MiB"] == "37/42"
    figure = memory_figures.layers(needs, placed)
    assert figure is not None
    assert "leave the device with 20,480 MiB from depth 3 on." in repr(figure)
    drawn = figure.axes[0].collections[0].get_array()
    assert drawn is not None
    assert list(np.flatnonzero(drawn)) == [36, 37, 38, 39, 40]
