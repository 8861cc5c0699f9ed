"""Runs of a shape: what its parameters become, what its pages and commands say."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from analysis import (
    checks,
    doctor,
    model,
    pages,
    parameters,
    quotes,
    report,
    shape_models,
    spec,
    store,
)
from analysis.cli import app
from analysis.engines import binary
from analysis.engines.flags import arguments
from analysis.errors import SpecError
from analysis.eviction import evicted_spec, measure_room
from analysis.spec import SweepSpec
from analysis.tracing import measure as trace
from tests.conftest import execute, outputs, replay

SMALL = "shape:qwen3.5-0.8b"


def test_public_rates_follow_from_the_stated_ones() -> None:
    """By hand: 0.889, 2 x 0.79 - 0.889, 3 x 0.725 - 2 x 0.79, and so on."""
    assert quotes.public_rates(3) == (0.889, 0.691, 0.595)
    eight = quotes.public_rates(8)
    assert eight[:6] == (0.889, 0.691, 0.595, 0.413, 0.367, 0.267)
    assert eight[7] / eight[6] == pytest.approx(eight[5] / eight[4], rel=0.01)
    for depth, rate in ((2, 0.79), (6, 0.537)):
        assert sum(eight[:depth]) / depth == pytest.approx(rate, abs=0.001)
    rates = quotes.public_rates(spec.MAX_DEPTH)
    SweepSpec(arm="synthetic", synthetic_rates=rates, depths=(0, spec.MAX_DEPTH))


def test_a_shape_is_given_acceptance_and_compares_no_texts(tmp_path: Path) -> None:
    read = parameters.read({"model": SMALL, "depths": [0, 2], "arm": "natural"}).spec
    assert (read.arm, read.synthetic_rates) == ("synthetic", quotes.public_rates(2))
    assert read.model == f"{SMALL}:q4_k_m"
    assert read.lossless_prompts == 0
    own = tmp_path / "own.gguf"
    shape_models.make(shape_models.parse(SMALL), own)
    assert parameters.read({"model": str(own), "depths": [0, 2]}).spec == read
    assert pages._without_paths(f"model = {str(own)!r}") == f'model = "{read.model}"'
    given = {"model": SMALL, "depths": [0, 1], "arm": "synthetic", "synthetic_rates": [0.5]}
    assert parameters.read(given).spec.synthetic_rates == (0.5,)
    for more in ({"drafter": "ngram-simple"}, {"drafter": "none", "depths": [0]}, {"depths": [0]}):
        assert parameters.read({"model": SMALL, **more}).spec.arm == "natural"
    assert parameters.read({"model": "embedded"}).spec == SweepSpec()
    with pytest.raises(SpecError, match="`p_min` must be 0 for a shape"):
        parameters.read({"model": SMALL, "p_min": 0.5})


def test_a_replay_of_a_shape_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPECDEPTH_REPLAY", "1")
    page = parameters.read({"model": SMALL, "depths": [0, 2]}, traces=True)
    assert model.blocks(page.spec.model) == 25
    assert trace(page, "page") is None
    assert not list(tmp_path.iterdir())


def test_given_acceptance_holds_with_a_layer_off_the_device(
    server_binary: binary.ServerBinary, embedded: Path
) -> None:
    page = parameters.read({"model": SMALL, "depths": [0, 2]}, plans=True)
    both = evicted_spec(page.spec, 26, emulated=False)
    words = [arguments(server_binary, both.at(arm), 2, embedded, 1) for arm in both.arms]
    rates = ",".join(map(str, quotes.public_rates(2)))
    for line in words:
        assert line[line.index("--spec-synth-rates") + 1] == rates
    assert "--gpu-layers" not in words[0]
    assert words[1][words[1].index("--gpu-layers") + 1] == "25"
    assert both.at("evicted").at("evicted") == both.at("evicted")
    natural = evicted_spec(SweepSpec(), 26, emulated=False)
    assert natural.at("evicted").synthetic_rates == ()
    room = measure_room(page, "memory_eviction")
    assert "acceptance that is given" in room.why


def test_a_page_of_a_shape_says_what_is_given_and_replays(
    machines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {
        "model": SMALL, "machine": "shape-box", "depths": [0, 1], "workloads": ["short"],
        "prompts": 1, "n_predict": 34, "context": 1024, "threads": 1,
    }  # fmt: skip
    page = execute("acceptance_decay", asked, machines)
    said = outputs(page)
    assert "acceptance that the text decides" in said
    first = said[said.index("- Acceptance was given, not measured: 0.889") :]
    assert f"{SMALL}:q4_k_m" in first
    assert "repeat themselves" not in said
    assert "parts from that of depth 0" not in said
    (file,) = (machines / "shape-box" / "samples").glob("*.jsonl")
    recorded = store.read(file)
    found = checks.warnings(report.sweep_of(recorded))
    assert found[0].startswith("Acceptance was given")
    assert found[1].startswith("The model is a shape without weights")
    assert not [w for w in found if "greedy texts" in w]
    assert all(s.predicted_n == 34 and s.stop == "limit" for s in recorded.samples)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = replay(page, machines)
    assert done.returncode == 0, done.stdout[-3000:]
    assert not list(tmp_path.rglob("*.gguf"))


def test_shape_command_writes_a_model(tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    words = ["shape", "Qwen3.6-27B", str(file), "--quant", "Q4_K_M"]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    assert "size as declared  16,025" in told.stdout
    assert f"next: specdepth run --model {file}" in told.stdout
    assert model.facts(model.resolve(str(file))).layers == 65
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 1
    assert "the file is there already" in " ".join(again.output.split())
    assert CliRunner().invoke(app, [*words, "--force"]).exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gpt-9", "x.gguf"], "no shape called gpt-9"),
        (["qwen3.6-27b", "x.gguf", "--quant", "q9"], "no quantization called q9"),
        (["qwen3.6-27b", "x.gguf", "--contents", "noise"], "known are hole, random"),
        (["qwen3.6-27b", "x.gguf", "--contents", "random"], "up to 8.0 GiB"),
        (["qwen3.6-27b", "no/x.gguf"], "the folder is not there"),
        (["qwen3.6-27b", "."], "the target is a folder"),
    ],
)
def test_a_shape_that_can_not_be_written_is_told(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(app, ["shape", *words])
    assert told.exit_code == 1
    assert said in " ".join(told.output.split())
    assert not list(tmp_path.iterdir())


def test_doctor_and_plan_take_a_shape_as_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "27320.7M parameters" in doctor.examine("shape:qwen3.6-27b").facts["model"]
    asked = ["plan", "--memory", "22GiB", "--closed-form", "--depths", "2", "--json"]
    plans = [
        CliRunner().invoke(app, [*asked, *words]).stdout
        for words in (
            ["--shape", "qwen3.6-27b", "--quant", "q8_0"],
            ["--model", "shape:qwen3.6-27b", "--quant", "q8_0"],
            ["--model", "shape:Qwen3.6-27B:q8_0"],
        )
    ]
    assert plans[0].startswith("[")
    assert len(set(plans)) == 1
