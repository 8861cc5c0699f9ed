"""Fixtures: made-up recordings with known answers, and the real engine on the embedded model."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import nbformat
import numpy as np
import psutil
import pytest

from analysis import model, pages, series
from analysis.engines import binary
from analysis.records import Run, Sample
from analysis.spec import SweepSpec
from analysis.store import Recorded
from tests.browser import chromium as chromium  # a fixture

FAKE = Path(__file__).with_name("fake_server.py")  # a llama-server that misbehaves
MARK = "SPECDEPTH_TEST"  # a variable that children inherit, and theirs
# A busy machine is slow, not wrong.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

SAMPLE = Sample(
    run="r", launch="l", round=0, order=1, arm="natural", drafter="mtp", depth=2,
    workload="short", prompt_id="01", seed=1, temperature=0.5, n_predict=101, warm_up=False,
    prompt_n=10, prompt_ms=5.0, predicted_n=101, predicted_ms=100.0, draft_n=80,
    draft_n_accepted=40, drafts=40, accepted_per_position=(30, 10), steps=60, tokens=(1, 2, 3),
    stop="limit", client_ms=106.0, layers_on_device=None, peak_device_mib=None,
    clock_before_mhz=None, clock_after_mhz=None, load_before=0.0, load_after=0.0, others_cpu=0.0,
    started="2026-01-01T00:00:00Z",
)  # fmt: skip


def interruptible() -> None:
    """Let a child hear SIGINT, which a shell ignores for what it starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_record(spec: SweepSpec | None = None, key: str = "k" * 12) -> Run:
    """Return facts of a made-up run."""
    spec = spec or SweepSpec(workloads=("short",))
    return Run(
        run=f"depth_sweep-{key}", key=key, notebook="depth_sweep", spec=spec.to_json(),
        machine={"name": "made-up", "cpu": "cpu", "cores": 2, "memory_gib": 8.0, "system": "x",
                 "gpus": []},
        model={"name": "m.gguf", "sha256": "0" * 64, "quantization": "Q8_0", "size_mib": 1.0},
        engine={"version": "version: 1 (abcdef0)", "build": None, "commit": "abcdef0"},
        packages={"python": "3.11"}, prompt_facts={}, started="2026-01-01T00:00:00Z",
    )  # fmt: skip


@pytest.fixture
def sample() -> Sample:
    return SAMPLE


@pytest.fixture
def make_recorded() -> Callable[..., Recorded]:
    """Return a function that makes a recording with given speeds and noise."""

    def make(
        speeds: dict[int, float],
        launch_noise: float = 0.0,
        prompt_noise: float = 0.0,
        rounds: int = 5,
        prompts: int = 8,
        seed: int = 0,
        workloads: tuple[str, ...] = ("short",),
    ) -> Recorded:
        """Speeds in tok/s by depth; noises are standard deviations of log speed.

        Prompt noise differs by depth, so that it does not cancel in paired ratios.
        """
        random = np.random.default_rng(seed)
        spec = SweepSpec(
            workloads=workloads, depths=tuple(speeds), rounds=rounds, prompts=prompts,
            long_prompts=prompts,
        )  # fmt: skip
        samples = []
        for depth, speed in speeds.items():
            by_round = random.normal(0, launch_noise, rounds)
            for workload in workloads:
                by_prompt = random.normal(0, prompt_noise, prompts)
                for r in range(rounds):
                    for p in range(prompts):
                        tok_s = speed * np.exp(by_round[r] + by_prompt[p])
                        accepted = 0 if depth == 0 else 40
                        samples.append(
                            dataclasses.replace(
                                SAMPLE,
                                round=r,
                                depth=depth,
                                workload=workload,
                                prompt_id=f"{p:02d}",
                                predicted_ms=float(1e5 / tok_s),
                                draft_n=40 * depth if depth else None,
                                draft_n_accepted=accepted if depth else None,
                                drafts=40 if depth else 0,
                                steps=100 - accepted,
                                accepted_per_position=None,
                            )
                        )
        return Recorded(Path("made-up.jsonl"), run_record(spec), tuple(samples))

    return make


@pytest.fixture(scope="session")
def server_binary() -> binary.ServerBinary:
    return binary.probe()


@pytest.fixture(scope="session")
def embedded() -> Path:
    return model.embedded_path()


def left_behind(mark: str, patience_s: float = 5.0) -> list[str]:
    """Return the command lines of the processes that were started with a mark and still run."""
    deadline = time.monotonic() + patience_s
    while True:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                marked = process.environ().get(MARK) == mark
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    ports = [
                        c.laddr.port for c in process.net_connections() if c.status == "LISTEN"
                    ]
                    found.append(f"{process.cmdline()} listening on {ports}")
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


@pytest.fixture
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """No process that a test has started outlives it, whoever its parent is now, and no port."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    yield mark
    assert left_behind(mark) == []


class Silent:
    """Progress that shows nothing."""

    def update(self, done: int, total: int, doing: str) -> None: ...

    def close(self) -> None: ...


@pytest.fixture(scope="session")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the book, built once from the committed results."""
    return series.build_book(tmp_path_factory.mktemp("site") / "_build").parent


def book_pages(html: Path) -> list[Path]:
    """Return the pages of a built book; the first of all only leads to the front page."""
    found = sorted(p for p in html.rglob("*.html") if "_static" not in p.relative_to(html).parts)
    return [p for p in found if p != html / "index.html"]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder for machines of this module's own."""
    return tmp_path_factory.mktemp("machines")


def execute(notebook: str, parameters: dict[str, Any], machines: Path) -> Path:
    """Make a page for real into the folder of its machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECDEPTH_MACHINES", str(machines))
        patch.delenv("SPECDEPTH_REPLAY", raising=False)
        target = machines / str(parameters["machine"]) / f"{notebook}.ipynb"
        return pages.run_notebook(notebook, parameters, target)


def outputs(path: Path) -> str:
    """Return all Markdown and HTML that a page shows."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return "\n".join(
        "".join(o.get("data", {}).get(kind, ""))
        for c in notebook.cells
        if c.cell_type == "code"
        for o in c.outputs
        for kind in ("text/markdown", "text/html")
    )


def replay(page: Path, machines: Path) -> subprocess.CompletedProcess[str]:
    """Run nbval on a page, from its samples alone."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval",
         "--nbval-current-env", str(page)],
        env=os.environ | {"SPECDEPTH_REPLAY": "1", "SPECDEPTH_MACHINES": str(machines)},
        capture_output=True, text=True, cwd=Path(__file__).parent.parent,
    )  # fmt: skip


def at_work(folder: Path, timeout_s: float = 90.0) -> bool:
    """Wait until a server with its log below a folder works on a request."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        logs = [p for p in folder.rglob("r0-*.log") if not p.name.endswith(".device.log")]
        if any("launch_slot" in p.read_text() for p in logs):
            return True
        time.sleep(0.05)
    return False


def written(recorded: Recorded, folder: Path, machine: str) -> Path:
    """Write a made-up recording as the samples of a machine of its own."""
    run = dataclasses.replace(recorded.run, machine=recorded.run.machine | {"name": machine})
    path = folder / machine / "samples" / f"{run.run}.jsonl"
    path.parent.mkdir(parents=True)
    lines = [{"kind": "run"} | run.to_json()]
    lines += [
        {"kind": "sample"} | dataclasses.replace(s, run=run.run).to_json() for s in recorded.samples
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


@pytest.fixture
def two(make_recorded: Callable[..., Recorded], tmp_path: Path) -> Path:
    """A folder of two machines: one that should draft, one whose data can not tell."""
    clear = make_recorded({0: 50.0, 1: 80.0, 2: 100.0, 3: 70.0}, 0.02, workloads=("short", "code"))
    written(clear, tmp_path, "clear-box")
    written(make_recorded({0: 99.0, 1: 100.0, 2: 60.0}, 0.2, seed=3), tmp_path, "noisy-box")
    return tmp_path


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A llama-server of one's own that answers as it is told by FAKE_FAULT."""
    path = tmp_path / "llama-server"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.delenv("FAKE_FAULT", raising=False)
    monkeypatch.setattr("analysis.launch.WARM_UP_MS", 0.0)  # it has no clock to settle
    return path
