"""The protocol on the real engine, with tiny settings."""

import contextlib
import dataclasses
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from analysis import report, store, sweep
from analysis.engines import binary
from analysis.errors import EngineError, ModelError, StoreError
from analysis.folders import REPLAY_VARIABLE
from analysis.prompts import Encoded, Prompt
from analysis.records import Sample
from analysis.request import groups, requests
from analysis.spec import SweepSpec
from tests.conftest import Silent, at_work, interruptible

TINY = SweepSpec(
    workloads=("short", "code"), depths=(0, 2), prompts=2, rounds=2, n_predict=48, context=1024,
    threads=2, lossless_prompts=1,
)  # fmt: skip


def measure(folder: Path, spec: SweepSpec = TINY, **more: Any) -> store.Recorded:
    return sweep.measure(spec, "depth_sweep", "tiny", folder, progress=Silent(), **more)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> store.Recorded:
    return measure(tmp_path_factory.mktemp("machines"))


def test_rounds_alternate_so_that_drift_falls_on_all_depths() -> None:
    planned = sweep.plan(SweepSpec(depths=(0, 1, 2), rounds=3))
    assert [p.depth for p in planned] == [0, 1, 2, 2, 1, 0, 0, 1, 2]
    assert [p.order for p in planned] == list(range(9))


def test_every_launch_makes_the_same_requests_after_one_warm_up() -> None:
    encoded = tuple(Encoded(Prompt(w, i, ""), (1, 2), {}) for w in ("short", "code") for i in "ab")
    first, later = requests(TINY, encoded, 0, {}), requests(TINY, encoded, 1, {})
    assert [r.warm_up for r in later] == [True, False, False, False, False]
    assert [r.temperature for r in first[5:]] == [0.0, 0.0]
    assert first[:5] == later
    shared = {("short", "a"): 40, ("code", "a"): 5, ("long", "a"): 40}
    assert [(r.arm, r.n_predict) for r in requests(TINY, encoded, 1, shared)[5:]] == [
        ("prefix", 40)
    ]


def test_requests_side_by_side_have_the_same_company_in_every_round() -> None:
    encoded = tuple(Encoded(Prompt(w, i, ""), (1,), {}) for w in ("short", "code") for i in "abc")
    found = [groups(requests(TINY, encoded, r, {}), 2) for r in (0, 1)]
    names = [[r.encoded.prompt.prompt_id for r in g] for g in found[1]]
    assert names == [["a"], ["a", "b"], ["c", "a"], ["a", "b"], ["c", "a"]]
    assert found[0][: len(found[1])] == found[1]
    assert all(len({r.kind for r in group}) == 1 for group in found[0])


def whole(recorded: store.Recorded) -> list[Sample]:
    """Return the timed requests of whole texts."""
    found = [s for s in recorded.samples if not s.warm_up and s.temperature > 0]
    return [s for s in found if s.arm == "natural"]


def test_a_real_sweep_has_every_request_once(measured: store.Recorded) -> None:
    timed = whole(measured)
    assert len(timed) == 2 * 2 * 4
    assert len(measured.launches) == 4
    first = [s for s in measured.samples if s.launch == measured.launches[0].launch]
    assert first[0].warm_up
    assert [s.order for s in first if not s.warm_up] == [1, 2, 3, 4, 5, 6]


def test_real_samples_obey_the_definitions(measured: store.Recorded) -> None:
    for s in measured.samples:
        assert s.error is None
        assert s.predicted_n == len(s.tokens)
        assert s.steps == s.predicted_n - 1 - (s.draft_n_accepted or 0)
        if s.depth == 0:
            assert (s.draft_n, s.drafter) == (None, "none")
        else:
            assert s.draft_n is not None
            assert s.accepted_per_position is not None
            assert sum(s.accepted_per_position) == s.draft_n_accepted
            assert s.drafts is not None
            assert s.drafts <= s.steps <= s.drafts + 2  # only the last steps draft nothing
        assert s.predicted_ms < s.client_ms


def test_greedy_texts_do_not_depend_on_depth(measured: store.Recorded) -> None:
    from analysis import lossless

    compared = lossless.pairs(measured)
    assert len(compared) == 2
    for zero, deep in compared:
        at = lossless.first_difference(zero.tokens, deep.tokens)
        known = [d for d in measured.divergences if (d.depth, d.position) == (deep.depth, at)]
        assert at is None or (known and known[0].margin is not None and known[0].margin < 0.05)


def test_our_own_work_is_not_taken_for_anothers(measured: store.Recorded) -> None:
    """Two threads decode and two cores are busy, by us: a launch must not look crowded."""
    assert all(x.others_cpu < 0.5 for x in measured.launches)


def test_nothing_private_is_stored(measured: store.Recorded) -> None:
    import socket

    text = measured.path.read_text()
    assert str(Path.home()) not in text
    assert str(Path(__file__).parents[1]) not in text
    assert f'"{socket.gethostname()}"' not in text
    assert "python" in text  # the versions are


def test_a_complete_sweep_is_not_measured_again(measured: store.Recorded) -> None:
    before = measured.path.read_bytes()
    again = measure(measured.path.parents[2])
    assert again.path.read_bytes() == before


def test_more_rounds_extend_a_sweep(measured: store.Recorded, tmp_path: Path) -> None:
    folder = tmp_path / "tiny" / "samples"
    folder.mkdir(parents=True)
    (folder / measured.path.name).write_bytes(measured.path.read_bytes())
    told: list[tuple[int, int]] = []

    class Telling(Silent):
        def update(self, done: int, total: int, doing: str) -> None:
            super().update(done, total, doing)
            told.append((done, total))

    spec = dataclasses.replace(TINY, rounds=3)
    more = sweep.measure(spec, "depth_sweep", "tiny", tmp_path, progress=Telling())
    assert {total for _, total in told} == {2}  # what is to be done, from the beginning on
    assert told[-1] == (2, 2)
    assert {s.round for s in more.samples} == {0, 1, 2}
    assert more.samples[: len(measured.samples)] == measured.samples


def test_a_killed_sweep_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from tests.test_sweep import measure
measure(Path({str(tmp_path)!r}))
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        files = list(tmp_path.glob("tiny/samples/*.jsonl"))
        if files and files[0].read_bytes().count(b'"kind":"sample"') >= 7:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (path,) = tmp_path.glob("tiny/samples/*.jsonl")
    kept = store.read(path).samples
    finished = measure(tmp_path)
    assert finished.samples[: len(kept)] == kept
    timed = whole(finished)
    assert len(timed) == 2 * 2 * 4


def test_replay_starts_no_engine(
    measured: store.Recorded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(REPLAY_VARIABLE, "1")
    monkeypatch.setenv("SPECDEPTH_SERVER", "/bin/false")
    replayed = measure(measured.path.parents[2])
    assert replayed.samples == measured.samples
    with pytest.raises(StoreError, match="no stored samples"):
        measure(tmp_path)
    with pytest.raises(StoreError, match="runs with other parameters"):
        measure(measured.path.parents[2], dataclasses.replace(TINY, temperature=0.9))


def test_requests_side_by_side(tmp_path: Path) -> None:
    spec = dataclasses.replace(
        TINY,
        slots=2,
        busy_slots=2,
        context=2048,
        rounds=1,
        depths=(0, 1),
        workloads=("short",),
        lossless_prompts=2,
    )
    recorded = measure(tmp_path, spec)
    timed = [s for s in recorded.samples if not s.warm_up and s.temperature > 0 and s.depth == 1]
    assert [s.order for s in timed] == [1, 1]  # one group
    assert all(s.accepted_per_position is None and s.draft_n for s in timed)
    (launch,) = (x for x in recorded.launches if x.depth == 1)
    assert launch.counters["draft_n"] == sum(s.draft_n or 0 for s in recorded.samples if s.depth)


def test_a_launch_that_fails_is_a_result_and_the_sweep_goes_on(tmp_path: Path) -> None:
    """A server that dies at depth 2 alone: its error is kept, depth 0 is measured."""
    real = binary.find()
    wrapper = tmp_path / "llama-server"
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *"--spec-draft-n-max 2"*) echo "no memory" >&2; exit 3;; esac\n'
        f'exec "{real}" "$@"\n'
    )
    wrapper.chmod(0o755)
    spec = dataclasses.replace(TINY, server=str(wrapper), rounds=1, workloads=("short",))
    recorded = measure(tmp_path / "machines", spec)
    errors = [s for s in recorded.samples if s.error]
    assert [s.depth for s in errors] == [2]
    assert "code 3" in str(errors[0].error)
    assert "no memory" in str(errors[0].error)
    assert report.sweep_of(recorded).depths == (0,)


def test_no_launch_at_all_is_an_error(tmp_path: Path) -> None:
    spec = dataclasses.replace(TINY, server_args=("--no-such-flag",), rounds=1)
    with pytest.raises(EngineError, match="ended while starting"):
        measure(tmp_path, spec)


def test_a_model_without_an_mtp_head_is_named(embedded: Path, tmp_path: Path) -> None:
    content = embedded.read_bytes()
    name = b"qwen35.nextn_predict_layers"
    assert name in content
    headless = tmp_path / "headless.gguf"
    headless.write_bytes(content.replace(name, b"qwen35.nextn_predict_layerz"))
    with pytest.raises(ModelError, match=r"headless.gguf has no MTP layer.*depth 0 alone"):
        measure(tmp_path, dataclasses.replace(TINY, model=str(headless)))


@pytest.mark.parametrize("drafter", ["ngram-simple", "ngram-mod", "ngram-map-k"])
def test_other_drafters_start_and_decode(tmp_path: Path, drafter: str) -> None:
    spec = dataclasses.replace(
        TINY, drafter=drafter, depths=(0, 3), rounds=1, prompts=1, workloads=("code",)
    )
    recorded = measure(tmp_path, spec)
    assert {s.depth for s in recorded.samples if s.error is None} == {0, 3}


def test_an_interrupted_pair_is_measured_again_as_a_pair(tmp_path: Path) -> None:
    spec = dataclasses.replace(
        TINY, slots=2, busy_slots=2, context=2048, rounds=1, depths=(0,), workloads=("short",),
        lossless_prompts=0,
    )  # fmt: skip
    path = measure(tmp_path, spec).path
    lines = path.read_bytes().splitlines(keepends=True)
    second = max(i for i, x in enumerate(lines) if b'"kind":"sample"' in x)
    path.write_bytes(b"".join(lines[:second]))
    again = measure(tmp_path, spec)
    timed = [s for s in again.samples if not s.warm_up]
    assert sorted(s.prompt_id for s in timed) == ["01", "02"]
    assert timed[0].launch != timed[1].launch
    log = (path.parent / "logs" / again.run.key / f"{timed[1].launch}.log").read_text()
    assert log.count("slot print_timing") >= 3 or log.count("eval time") >= 3


def test_an_interrupt_does_not_wait_for_the_running_request(tmp_path: Path) -> None:
    """SIGINT in the middle of a long request: the process ends soon, and no server is left."""
    code = f"""
import dataclasses
from pathlib import Path
from tests.test_sweep import TINY, measure
spec = dataclasses.replace(TINY, n_predict=60000, context=65536, depths=(0,), prompts=1,
                           workloads=("short",), temperature=1.0,
                           server_args=("--ignore-eos",))
measure(Path({str(tmp_path)!r}), spec)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, preexec_fn=interruptible
    )
    assert at_work(tmp_path)
    children = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    process.communicate(timeout=60)
    assert time.monotonic() - began < 15
    assert process.returncode != 0
    assert children
    assert not any(c.is_running() for c in children)


def test_a_path_with_spaces_and_accents(embedded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mes modèles été"
    folder.mkdir()
    (folder / "le modèle.gguf").symlink_to(embedded)
    spec = dataclasses.replace(
        TINY, model=str(folder / "le modèle.gguf"), rounds=1, prompts=1, workloads=("short",)
    )
    assert measure(folder, spec).done()


def test_chat_models_get_their_own_template(tmp_path: Path) -> None:
    spec = dataclasses.replace(
        TINY, prompt_format="chat", server_args=("--chat-template", "chatml"), rounds=1, prompts=1,
        workloads=("short",),
    )  # fmt: skip
    recorded = measure(tmp_path, spec)
    raw = measure(tmp_path, dataclasses.replace(TINY, rounds=1, prompts=1, workloads=("short",)))
    (chat,), (plain,) = (r.run.prompt_facts.values() for r in (recorded, raw))
    assert (chat["format"], plain["format"]) == ("chat", "raw")
    assert chat["tokens"] > plain["tokens"]


@pytest.mark.parametrize("in_turns", [False, True])
def test_a_server_that_dies_at_work_costs_one_launch(tmp_path: Path, in_turns: bool) -> None:
    """The server of depth 2 is killed at its third request; a rerun measures what is missing."""

    def kill() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(StoreError, psutil.Error):  # neither is there yet
                path = next(tmp_path.glob("tiny/samples/*.jsonl"), tmp_path / "none")
                done = store.read(path).samples
                servers = [c for c in psutil.Process().children() if "llama" in c.name()]
                drafting = [c for c in servers if "--spec-draft-n-max" in c.cmdline()]
                if drafting and any(x.depth == 2 and not x.warm_up for x in done):
                    drafting[0].kill()
                    return
            time.sleep(0.005)

    spec = dataclasses.replace(TINY, rounds=1, prompts=6, n_predict=200, in_turns=in_turns)
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    broken = measure(tmp_path, spec)
    killer.join()
    failed = [s for s in broken.samples if s.error]
    assert len(failed) == 1
    assert "SIGKILL" in str(failed[0].error)
    assert {x.depth: x.stopped_by for x in broken.launches} == {0: "terminate", 2: "died"}
    whole = [s for s in broken.samples if s.depth == 0 and not s.warm_up and s.temperature > 0]
    assert len(whole) == 12
    assert not any(s.error for s in whole)
    mended = measure(tmp_path, spec)
    timed = [s for s in mended.samples if not s.warm_up and s.error is None and s.temperature > 0]
    assert len(timed) == 2 * 12
