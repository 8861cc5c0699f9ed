"""The tracer against the real llama-server, token for token and count for count; and its faults."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from analysis import prompts, steps, sweep
from analysis.engines import choose, tracer_process
from analysis.engines.process import Engine
from analysis.errors import EngineError, ModelError, SpecError, StoreError
from analysis.lossless import first_difference
from analysis.spec import SAMPLING, WORKLOADS, SweepSpec
from analysis.steps import Traced
from tests.conftest import Silent

SERVER = SweepSpec(threads=2, context=2048, long_prompt_tokens=700, n_predict=80)
TRACER = dataclasses.replace(SERVER, engine="tracer")
# The two engines make the same passes; only the split of a prompt into passes differs. Rounding
# then moves log probabilities by about 0.01 (the largest difference of a logit between two
# implementations is 0.34, in models/README.md), so a closer decision than this may turn.
ROUNDING = 0.05


def engine(spec: SweepSpec, depth: int, model: Path, folder: Path) -> Engine:
    log = folder / f"{spec.engine}-{depth}.log"
    return choose.make(choose.probe(spec), spec, depth, model, log)


def complete(engine: Engine, tokens: tuple[int, ...], temperature: float = 0.0) -> dict[str, Any]:
    settings = {"n_predict": 80, "temperature": temperature, "seed": 3, **SAMPLING}
    return engine.complete(tokens, **settings)


@pytest.fixture(scope="module")
def tracer(embedded: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine(TRACER, 3, embedded, tmp_path_factory.mktemp("tracer")) as started:
        yield started


def margin(server: Engine, prompt: tuple[int, ...], a: list[int], b: list[int]) -> float:
    """Return the log-probability margin of the two tokens at the first difference."""
    at = first_difference(tuple(a), tuple(b))
    assert at is not None
    likely = server.likeliest((*prompt, *a[:at]), 50)
    return abs(likely.get(a[at], 99.0) - likely.get(b[at], -99.0))


@pytest.mark.parametrize("depth", range(6))
def test_tokens_and_counters_are_the_servers(depth: int, embedded: Path, tmp_path: Path) -> None:
    with (
        engine(SERVER, depth, embedded, tmp_path) as server,
        engine(TRACER, depth, embedded, tmp_path) as tracer,
    ):
        for workload in WORKLOADS:
            prompt = prompts.load(workload, 1)[0]
            encoded = prompts.encode(server, prompt, SERVER, chat=False)
            assert prompts.encode(tracer, prompt, TRACER, chat=False) == encoded
            for temperature in (0.0, 0.5):
                before = server.counters(), tracer.counters()
                a, b = (complete(e, encoded.tokens, temperature) for e in (server, tracer))
                counted = [
                    e.counters().since(earlier)
                    for e, earlier in zip((server, tracer), before, strict=True)
                ]
                if a["tokens"] != b["tokens"]:
                    gap = margin(server, encoded.tokens, a["tokens"], b["tokens"])
                    assert temperature > 0 or gap < ROUNDING, f"{workload}: texts part at {gap}"
                    continue
                assert counted[0] == counted[1], workload
                assert a["stop_type"] == b["stop_type"]
                for name in ("prompt_n", "predicted_n", "draft_n", "draft_n_accepted"):
                    assert a["timings"].get(name) == b["timings"].get(name), name


def test_steps_make_up_the_text_and_the_time(tracer: Engine) -> None:
    answer = complete(tracer, tuple(tracer.tokenize("def add(a, b):\n    return")))
    tokens = [answer["tokens"][0]]
    for step in answer["steps"]:
        tokens += [*step["drafted"][: step["accepted"]], step["chosen"]]
        assert len(step["drafted"]) == len(step["draft_probabilities"]) <= 3
        assert all(0.1 <= p <= 1 for p in step["draft_probabilities"])  # the best of ten
    assert tokens == answer["tokens"]
    assert set(map(int, answer["pieces"])) >= set(tokens)
    parts = ("draft_ms", "verify_ms", "catch_up_ms", "rest_ms")
    total = sum(step[p] for step in answer["steps"] for p in parts)
    assert 0.8 * answer["timings"]["predicted_ms"] < total < answer["timings"]["predicted_ms"]


def test_a_smallest_probability_stops_the_draft(embedded: Path, tmp_path: Path) -> None:
    spec = dataclasses.replace(TRACER, p_min=0.7)
    with engine(spec, 3, embedded, tmp_path) as careful:
        answer = complete(careful, tuple(careful.tokenize("def add(a, b):\n    return")))
    drafts = [s for s in answer["steps"] if s["drafted"]]
    assert all(p >= 0.7 for s in drafts for p in s["draft_probabilities"])
    assert any(len(s["drafted"]) < 3 for s in answer["steps"])


def test_likeliest_tokens_are_the_servers(tracer: Engine, embedded: Path, tmp_path: Path) -> None:
    with engine(SERVER, 0, embedded, tmp_path) as server:
        prompt = server.tokenize("The first chapter of the manual")
        theirs, ours = (e.likeliest(prompt, 5) for e in (server, tracer))
    assert list(ours)[:3] == list(theirs)[:3]
    assert ours[next(iter(ours))] == pytest.approx(theirs[next(iter(ours))], abs=ROUNDING)


def test_text_survives_tokens_and_back(tracer: Engine) -> None:
    text = "naïve façade — 雪 🐦 \t\n  x"
    assert tracer.detokenize(tracer.tokenize(text)) == text


def test_a_prompt_that_does_not_fit_is_refused_and_the_child_lives(tracer: Engine) -> None:
    with pytest.raises(EngineError, match=r"do not fit.*Next: raise context"):
        complete(tracer, (5,) * 2040)
    assert complete(tracer, (5, 6, 7))["tokens"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
@pytest.mark.parametrize("gone", [False, True], ids=["dying", "gone"])
def test_a_child_that_dies_is_reported_by_its_signal(
    number: signal.Signals, gone: bool, embedded: Path, tmp_path: Path
) -> None:
    """Once it is gone nobody reads what it is told, and the rest of that stays with us."""
    with engine(TRACER, 1, embedded, tmp_path) as started:
        child = psutil.Process(started.pid)
        os.kill(started.pid, number)
        while gone and child.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.005)
        said = rf"the tracer ended while asked to complete, with signal {number.name}"
        with pytest.raises(EngineError, match=said):
            complete(started, (1, 2, 3))
    assert not started.alive()
    assert started.exit_code == -number


def test_a_token_that_is_not_there_is_refused(tracer: Engine) -> None:
    with pytest.raises(EngineError, match="the trunk's pass failed"):
        complete(tracer, (10**9,))


def test_memory_that_is_not_there_is_named(embedded: Path, tmp_path: Path) -> None:
    """A cache of half a tebibyte under a limit of 8 GiB: the allocation fails for real."""
    code = f"""
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
from dataclasses import replace
from tests.test_tracer import TRACER, engine
spec = replace(TRACER, context=1 << 27)
try:
    engine(spec, 2, Path({str(embedded)!r}), Path({str(tmp_path)!r})).start()
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("EngineError"), done.stdout + done.stderr
    assert "llama.cpp can not make the context" in done.stdout
    assert "alloc" in done.stdout


@pytest.mark.parametrize("content", [b"GGUF" + b"\0" * 64, b"hello"])
def test_a_file_that_is_no_model_is_named(content: bytes, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(content)
    with pytest.raises(EngineError, match="can not make the model"):
        engine(TRACER, 0, broken, tmp_path).start()


def test_a_model_without_a_head_is_named(embedded: Path, tmp_path: Path) -> None:
    headless = tmp_path / "headless.gguf"
    name = b"qwen35.nextn_predict_layers"
    headless.write_bytes(embedded.read_bytes().replace(name, name[:-1] + b"z"))
    spec = dataclasses.replace(TRACER, model=str(headless))
    with pytest.raises(ModelError, match=r"headless.gguf has no MTP layer.*depth 0 alone"):
        sweep.measure(spec, "acceptance_decay", "tiny", tmp_path, progress=Silent())


def test_no_child_outlives_a_killed_parent(embedded: Path, tmp_path: Path) -> None:
    code = f"""
import time
from pathlib import Path
from tests.test_tracer import TRACER, engine
started = engine(TRACER, 0, Path({str(embedded)!r}), Path({str(tmp_path)!r}))
started.start()
print(started.pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.stdout.close()
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and psutil.pid_exists(pid):
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.1)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_missing_bindings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(EngineError, match=r"needs llama-cpp-python.*make engine"):
        tracer_process.probe()


@pytest.mark.parametrize(
    "more",
    [{"slots": 2}, {"drafter": "ngram-simple"}, {"server_args": "--flash-attn on"},
     {"kv_unified": True}, {"arm": "synthetic", "synthetic_rates": [0.5] * 5}],
)  # fmt: skip
def test_what_only_the_server_can_do_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="tracer"):
        SweepSpec(engine="tracer", **more)


def test_a_traced_sweep_keeps_its_steps_beside_its_samples(tmp_path: Path) -> None:
    spec = dataclasses.replace(
        TRACER, depths=(0, 2), workloads=("short",), prompts=2, rounds=1, n_predict=40,
        lossless_prompts=1,
    )  # fmt: skip
    recorded = sweep.measure(spec, "acceptance_decay", "tiny", tmp_path, progress=Silent())
    traced = steps.read(recorded.path)
    stored = [s for s in recorded.samples if not s.warm_up]
    assert set(traced) == {steps.sample_id(s) for s in stored}
    for sample in stored:
        own = traced[steps.sample_id(sample)].steps
        assert len(own) == sample.steps
        assert sum(s.accepted for s in own) == (sample.draft_n_accepted or 0)
    again = sweep.measure(spec, "acceptance_decay", "tiny", tmp_path, progress=Silent())
    assert again.samples == recorded.samples


def test_steps_survive_a_torn_line(sample: Any, tmp_path: Path) -> None:
    """The steps of an interrupted sample stay alone; the next ones start a line of their own."""
    from analysis.records import Step

    file = tmp_path / "samples" / "x.jsonl"
    one = Traced((Step((1, 2), (0.5, 0.4), 1, 7, 0.1, 0.2, 0.1, 0.0),), {1: "a", 2: "b", 7: "c"})
    steps.append(file, sample, one)
    with steps.path_of(file).open("ab") as torn:
        torn.write(b'{"sample":"l/2","drafted":[[1')
    other = dataclasses.replace(sample, order=3)
    steps.append(file, other, one)
    assert steps.read(file) == {"l/1": one, "l/3": one}
    steps.append(file, other, one)
    with pytest.raises(StoreError, match="twice"):
        steps.read(file)


def test_an_interruption_between_two_engines_loses_neither_answer(tmp_path: Path) -> None:
    spec = dataclasses.replace(
        TRACER, depths=(0,), workloads=("short",), prompts=2, rounds=1, n_predict=40,
        lossless_prompts=0,
    )  # fmt: skip

    def measured() -> list[tuple[Any, ...]]:
        recorded = sweep.measure(
            spec, "turns", "tiny", tmp_path, progress=Silent(), beside="llama-server"
        )
        return sorted((s.arm, s.prompt_id) for s in recorded.samples if not s.warm_up)

    whole = measured()
    assert len(whole) == 4
    (file,) = tmp_path.glob("tiny/samples/*.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    lost = next(x for x in lines if '"arm":"beside"' in x and '"warm_up":false' in x)
    file.write_text("".join(x for x in lines if x != lost))
    assert measured() == whole


@pytest.mark.parametrize(
    ("guesses", "sampled", "kept"),
    [
        ([5, 6, 7], [5, 6, 7, 8], [5, 6, 7, 8]),  # all kept, and one of the target's own
        ([5, 6, 7], [5, 9], [5, 9]),
        ([5, 0, 7], [5, 0], [5, 0]),  # nothing after an end of text, even where it was guessed
        ([5, 0], [5, 0, 8], [5, 0, 8]),  # as in llama-server: a last guess is still kept
        ([], [4], [4]),
    ],
)
def test_the_rule_of_acceptance(
    guesses: list[int], sampled: list[int], kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from analysis.engines import tracer

    loop = object.__new__(tracer.Tracer)
    loop.ctx = None
    monkeypatch.setattr(loop, "_ends", lambda token: token == 0)
    monkeypatch.setattr("llama_cpp.llama_sampler_sample", lambda _sampler, _ctx, row: sampled[row])
    assert loop._accept(guesses, None) == kept
