"""Killed at work, for real: nothing is left running, and a rerun ends as an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from analysis import checks, gallery, pages, report, store, sweep, tables
from analysis.engines import binary
from analysis.stats import LIKE_THESE
from tests.conftest import Silent, execute, interruptible, left_behind, outputs

SETTINGS: dict[str, Any] = {
    "depths": [0, 2], "workloads": ["short"], "prompts": 5, "rounds": 1, "n_predict": 120,
    "context": 1024, "lossless_prompts": 1, "threads": 1, "machine": "killed-box",
}  # fmt: skip
Victim = Callable[[psutil.Process], psutil.Process]


def rerun(folder: Path) -> store.Recorded:
    """Do what the notebook does when it is run again."""
    spec = pages.page_parameters("depth_sweep", SETTINGS).spec
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.launch.WARM_UP_MS", 0.0)
        return sweep.measure(spec, "depth_sweep", "killed-box", folder, progress=Silent())


def texts(recorded: store.Recorded) -> dict[tuple[object, ...], tuple[int, ...]]:
    """Return the tokens of each timed request by its key; each is there once."""
    timed = [s for s in recorded.samples if not s.warm_up and s.error is None]
    found = {store.sample_key(s): s.tokens for s in timed}
    assert len(found) == len(timed)
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> store.Recorded:
    return rerun(tmp_path_factory.mktemp("undisturbed"))


def started(folder: Path) -> psutil.Popen:
    """Start `specdepth run` and wait until it is in the middle of its second launch."""
    given = [x for k, v in SETTINGS.items() if k != "machine" for x in ("-p", f"{k}={v}")]
    process = psutil.Popen(
        [sys.executable, "-m", "analysis.cli", "run", "--machine", "killed-box", "--notebooks",
         "depth_sweep", *given],
        env=os.environ | {"SPECDEPTH_MACHINES": str(folder)}, stderr=subprocess.DEVNULL,
        preexec_fn=interruptible,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        for file in store.files(folder / "killed-box" / "samples"):
            deep = [s for s in store.read(file).samples if s.depth == 2]
            if any(not s.warm_up for s in deep):
                return process
        time.sleep(0.01)
    process.kill()
    process.wait()
    pytest.fail("nothing was measured")


def child(word: str) -> Victim:
    """Return what finds the process below a command whose command line has a word."""

    def find(command: psutil.Process) -> psutil.Process:
        family = command.children(recursive=True)
        return next(p for p in family if word in " ".join(p.cmdline()))

    return find


VICTIMS: dict[str, tuple[Victim, signal.Signals, set[int]]] = {
    "the command": (lambda p: p, signal.SIGKILL, {-signal.SIGKILL}),
    "the notebook": (child("ipykernel_launcher"), signal.SIGKILL, {1}),
    "the server": (child("llama-server"), signal.SIGKILL, {0}),
    "by the keyboard": (lambda p: p, signal.SIGINT, {128 + signal.SIGINT}),
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs parent-death signals")
@pytest.mark.parametrize(("victim", "number", "codes"), VICTIMS.values(), ids=VICTIMS)
def test_a_rerun_after_a_kill_has_the_samples_of_an_undisturbed_run(
    victim: Victim, number: signal.Signals, codes: set[int], undisturbed: store.Recorded,
    tmp_path: Path, nothing_left: str,
) -> None:  # fmt: skip
    command = started(tmp_path)
    try:
        victim(command).send_signal(number)
        assert command.wait(timeout=90) in codes
    finally:
        if command.is_running():
            command.kill()
    assert left_behind(nothing_left, patience_s=10) == []
    (file,) = tmp_path.glob("killed-box/samples/*.jsonl")
    kept = store.read(file)
    again = rerun(tmp_path)
    assert again.samples[: len(kept.samples)] == kept.samples
    assert texts(again) == texts(undisturbed)
    assert again.run.key == undisturbed.run.key


def starved(tmp_path: Path) -> Path:
    """Return a llama-server that has little memory at depth 2, and enough elsewhere."""
    wrapper = tmp_path / "llama-server"
    wrapper.write_text(
        '#!/bin/sh\ncase "$*" in *"--spec-draft-n-max 2"*) ulimit -v 1000000;; esac\n'
        f'exec "{binary.find()}" "$@"\n'
    )
    wrapper.chmod(0o755)
    return wrapper


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs limits of memory")
def test_a_depth_that_runs_out_of_memory_is_a_result_and_the_page_is_made(
    tmp_path: Path, nothing_left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draft's context does not find room at depth 2; depths 0 and 1 have a verdict."""
    monkeypatch.delenv("SPECDEPTH_REPLAY", raising=False)
    given = SETTINGS | {
        "depths": [0, 1, 2], "prompts": 1, "lossless_prompts": 0, "server": str(starved(tmp_path)),
    }  # fmt: skip
    page = execute("depth_sweep", given, tmp_path / "machines")
    assert left_behind(nothing_left) == []
    (recorded,) = gallery.runs(page.parent)
    failed = [s for s in recorded.samples if s.error]
    assert {(s.depth, s.round) for s in failed} == {(2, 0)}
    assert all("insufficient memory" in str(s.error) for s in failed)
    result = report.sweep_of(recorded)
    assert result.depths == (0, 1)
    verdict = result.verdict("short")
    assert set(verdict.candidates) <= {0, 1}
    said = outputs(page)
    assert tables.sentence(result, verdict) in said
    assert "Depth 2: 1 requests failed, the last with:" in said
    assert "insufficient memory" in said
    assert any(text.startswith("Depth 2: 1 requests failed") for text in checks.warnings(result))
    assert [str(d) for d in tables.depth_sweep(result, LIKE_THESE).index] == ["0", "1"]
