"""Arms of one run on the real engine: a layer off an emulated device, and room that is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from analysis import arms, eviction, machine, model, report, store, sweep
from analysis.arms import Pair
from analysis.engines import choose
from analysis.engines.llama_server import LlamaServer
from analysis.engines.tracer_process import TracerEngine
from analysis.errors import EngineError, SpecError
from analysis.spec import SAMPLING, SweepSpec
from analysis.sweep import measure, plan
from tests.conftest import at_work, interruptible

SMALL = SweepSpec(
    workloads=("short",), prompts=2, rounds=2, n_predict=48, context=2048, depths=(0, 2),
    lossless_prompts=0,
)  # fmt: skip


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    layers = model.facts(model.embedded_path()).layers + 1
    spec = eviction.evicted_spec(SMALL, layers, emulated=True)
    recorded = measure(spec, "memory_eviction", "here", tmp_path_factory.mktemp("m"))
    base = report.sweep_of(recorded)
    return Pair(base, arms.of(base, "evicted"))


def test_one_layer_lies_off_the_device_in_one_arm(pair: Pair) -> None:
    assert pair.base is not None
    seen = {
        (x.arm, x.depth): (x.placement["verdict"], x.placement["layers_on_device"])
        for x in pair.base.recorded.launches
    }
    assert seen == {
        ("natural", 0): ("all", 10), ("natural", 2): ("all", 10),
        ("evicted", 0): ("partial", 9), ("evicted", 2): ("partial", 9),
    }  # fmt: skip
    table = eviction.placements(pair)
    assert table.loc[(2, "one layer off"), "layers on the device"] == "9/10"
    assert "host" in str(table.loc[(2, "one layer off"), "state buffers"])


def test_arms_are_paired_and_nothing_of_this_machine_is_kept(pair: Pair) -> None:
    assert pair.base is not None
    assert pair.other is not None
    assert len(pair.base.timed) == len(pair.other.timed) == 2 * 2 * 2
    for launch in pair.base.recorded.launches:
        assert "--rpc 127.0.0.1:PORT" in launch.command
        assert ("--gpu-layers 9" in launch.command) == (launch.arm == "evicted")
    cost = eviction.cost(pair)
    assert list(cost.index) == [0, 2]
    assert not any("ggml-rpc-server" in p.name() for p in psutil.Process().children(recursive=True))


def test_a_rerun_measures_nothing_again(pair: Pair) -> None:
    assert pair.base is not None
    recorded = pair.base.recorded
    spec = SweepSpec(**recorded.run.spec | {"server": "", "model": "embedded"})
    before = recorded.path.read_bytes()
    again = measure(spec, "memory_eviction", "here", recorded.path.parents[2])
    assert again.samples == recorded.samples
    assert len(recorded.path.read_bytes()) == len(before)


def test_room_that_is_kept_changes_no_text(tmp_path: Path) -> None:
    spec = replace(SMALL, engine="tracer", rounds=1, more_arms=("room",), room=4)
    recorded = measure(spec, "memory_eviction", "here", tmp_path)
    texts: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for s in recorded.samples:
        if not s.warm_up:
            texts.setdefault((s.arm, s.depth), []).append(s.tokens)
    assert texts["room", 0] == texts["natural", 0]
    assert texts["room", 2] == texts["natural", 2]


def test_room_is_there_whatever_the_depth(tmp_path: Path) -> None:
    spec = replace(SMALL, engine="tracer", more_arms=("room",), room=4)
    build = choose.probe(spec)
    for arm, enough in (("room", True), ("natural", False)):
        log = tmp_path / f"{arm}.log"
        with choose.make(build, spec.at(arm), 1, model.embedded_path(), log) as engine:
            assert isinstance(engine, TracerEngine)
            engine.depth = 4  # drafts of four tokens, in what was made for one
            prompt = engine.tokenize("def add(a, b):")
            if enough:
                assert engine.complete(prompt, n_predict=16, temperature=0.0, seed=1, **SAMPLING)
            else:
                with pytest.raises(EngineError, match="deeper than the room"):
                    engine.complete(prompt, n_predict=16, temperature=0.0, seed=1, **SAMPLING)


def test_the_plan_takes_arms_in_turns() -> None:
    spec = SweepSpec(
        depths=(0, 1), rounds=2, more_arms=("evicted",), gpu_layers=3, workloads=("short",)
    )
    seen = [(x.round, x.depth, x.arm) for x in plan(spec)]
    assert seen[:4] == [(0, 0, "natural"), (0, 0, "evicted"), (0, 1, "natural"), (0, 1, "evicted")]
    assert [x[1:] for x in seen[4:]] == [x[1:] for x in seen[3::-1]]
    alone = spec.at("evicted")
    assert (alone.arm, alone.more_arms, alone.gpu_layers) == ("evicted", (), 3)
    assert spec.at("natural").gpu_layers is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"more_arms": ("evicted",)}, "gpu_layers"),
        ({"gpu_layers": 3}, "gpu_layers"),
        ({"more_arms": ("room",), "room": 5}, 'engine="tracer"'),
        ({"more_arms": ("room",), "room": 1, "engine": "tracer"}, "room"),
        ({"more_arms": ("natural",)}, "more_arms"),
        ({"more_arms": ("sideways",)}, "more_arms"),
        ({"device": "imagined"}, "device"),
        ({"device": "emulated", "engine": "tracer"}, "device"),
    ],
)
def test_arms_that_make_no_sense_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        SweepSpec(workloads=("short",), **given)  # type: ignore[arg-type]


def test_earlier_runs_keep_their_names() -> None:
    """Fields that came later are not in the key of a spec that does not use them."""
    stored = SMALL.to_json()
    assert not {"more_arms", "room", "gpu_layers", "device"} & stored.keys()
    assert "device" in SweepSpec(workloads=("short",), device="emulated").to_json()
    emulated = SweepSpec(workloads=("short",), device="emulated")
    assert emulated.key() != SweepSpec(workloads=("short",)).key()
    assert not store.same_spec(emulated.to_json(), SweepSpec(workloads=("short",)).to_json())


def test_a_run_on_an_emulated_device_covers_no_other(pair: Pair) -> None:
    assert pair.base is not None
    recorded = pair.base.recorded
    plain = SweepSpec(**recorded.run.spec | {"server": "", "model": "embedded"})
    assert store.covers(recorded, plain)
    assert not store.covers(recorded, replace(plain, device=""))
    assert sweep.find(recorded.path.parent, "memory_eviction", plain).path == recorded.path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stop_leaves_neither_server_nor_device(tmp_path: Path, number: signal.Signals) -> None:
    code = f"""
import dataclasses
from pathlib import Path
from analysis.sweep import measure
from tests.test_eviction import SMALL
spec = dataclasses.replace(SMALL, n_predict=1800, depths=(0,), device="emulated", threads=1,
                           temperature=1.0, server_args=("--ignore-eos",))
measure(spec, "memory_eviction", "here", Path({str(tmp_path)!r}))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, preexec_fn=interruptible
    )
    assert at_work(tmp_path)
    children = psutil.Process(process.pid).children()
    assert {c.name()[:12] for c in children} == {"llama-server", "ggml-rpc-ser"}
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode != 0
    _, alive = psutil.wait_procs(children, timeout=15)
    assert not [c for c in alive if c.status() != psutil.STATUS_ZOMBIE]


def test_a_device_that_dies_is_told_and_the_sweep_goes_on(tmp_path: Path) -> None:
    spec = replace(SMALL, depths=(0,), device="emulated", threads=1)
    build = choose.probe(spec)
    log = tmp_path / "server.log"
    with choose.make(build, spec, 0, model.embedded_path(), log) as engine:
        assert isinstance(engine, LlamaServer)
        assert engine.device is not None
        os.kill(engine.device.pid, signal.SIGKILL)
        with pytest.raises(EngineError, match="llama-server ended while answering"):
            engine.complete(engine.tokenize("a b"), n_predict=32, temperature=0.0)
    assert not engine.alive()
    assert not engine.device.alive()


def test_the_device_is_no_foreign_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the device's process uses is ours: it must not be taken for another's."""
    watched: list[int] = []

    class Seen(machine.Company):
        def __init__(self, *pids: int) -> None:
            watched.append(len(set(pids)))
            super().__init__(*pids)

    monkeypatch.setattr(machine, "Company", Seen)
    spec = replace(SMALL, depths=(0,), prompts=1, rounds=1, device="emulated", threads=1)
    measure(spec, "memory_eviction", "here", tmp_path)
    assert watched
    assert set(watched) == {2}
