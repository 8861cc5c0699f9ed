"""The training code: its arithmetic, and a run of each of its commands, a minute long in all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)

from analysis import model, prompts
from analysis.spec import SweepSpec
from analysis.sweep import measure
from models import data, engine, export, problems
from models.net import Net, Shape, rotary_tables
from models.unroll import unrolled

ROOT = Path(__file__).resolve().parent.parent
SMALL = Shape(
    vocab=64, layers=4, width=32, ffn=48, heads=2, kv_heads=1, head=16, rotary=8, linear_heads=2,
    linear_head=16,
)  # fmt: skip


@pytest.mark.parametrize("start", [5, 9, 20])
def test_the_unrolled_steps_are_those_of_drafting_token_by_token(start: int) -> None:
    """As llama-server drafts: rows of the accepted text, then the draft's own one by one."""
    with torch.no_grad():
        _compare_with_one_by_one(start)


def _compare_with_one_by_one(start: int) -> None:
    torch.manual_seed(start)
    net, length, depth = Net(SMALL), 32, 4
    tokens = torch.randint(0, SMALL.vocab, (1, length))
    cos, sin = rotary_tables(SMALL, length)
    states, embedded = net.states(tokens, cos, sin), net.embed(tokens)
    steps = unrolled(net.draft, embedded, states, depth, cos, sin)
    torch.testing.assert_close(steps[0], net.draft_states(tokens, states, cos, sin))
    rows = F.pad(states[:, :-1], (0, 0, 1, 0))[:, : start + 1]
    for step in range(depth):
        end = start + step + 1
        drafted = net.draft(embedded[:, :end], rows, cos[:end], sin[:end])
        torch.testing.assert_close(steps[step][:, end - 1], drafted[:, -1], atol=2e-6, rtol=1e-5)
        rows = torch.cat((rows, drafted[:, -1:]), 1)


def test_a_later_step_does_not_see_the_text_between(embedded: Path) -> None:
    """Changing the trunk's state inside a draft changes no guess of the draft."""
    net = export.read(embedded)
    tokens = torch.from_numpy(np.arange(100, 132, dtype=np.int64))[None]
    cos, sin = rotary_tables(net.shape, 32)
    with torch.no_grad():
        states, x = net.states(tokens, cos, sin), net.embed(tokens)
        other = states.clone()
        other[:, 20:] += 1.0  # a draft of step 3 at position 21 starts from the state at 18
        a, b = (unrolled(net.draft, x, s, 3, cos, sin)[2] for s in (states, other))
    torch.testing.assert_close(a[:, 21], b[:, 21])
    assert not torch.allclose(a[:, 23], b[:, 23])


def tensors(path: Path) -> dict[str, bytes]:
    return {t.name: t.data.tobytes() for t in gguf.GGUFReader(path).tensors}


def check_head(head: Path, embedded: Path) -> None:
    """A head's file holds the target's own embedding and output, and the MTP block alone."""
    ours, target = tensors(head), tensors(embedded)
    layer = f"blk.{Shape().layers}."
    assert {n for n in ours if not n.startswith(layer)} == set(export.TOP_NAMES.values())
    assert all(ours[n] == target[n] for n in export.TOP_NAMES.values())
    assert {n for n in target if n.startswith(layer)} == {n for n in ours if n.startswith(layer)}


@pytest.mark.parametrize("name", ["embedded-deep-head"])
def test_the_committed_head_is_for_the_committed_target(name: str, embedded: Path) -> None:
    head = model.embedded_path(name)
    check_head(head, embedded)
    window = np.arange(300, 364, dtype=np.int64)[None]
    net = export.read(embedded)
    _, of_the_target = engine.logits(embedded, window)
    trunk, drafted = engine.logits(embedded, window, head=head)
    export.read_head(net, head)
    cos, sin = rotary_tables(net.shape, 64)
    with torch.no_grad():
        tokens = torch.from_numpy(window)
        states = net.states(tokens, cos, sin)
        expected = net.output(net.draft_states(tokens, states, cos, sin)).numpy()
    assert np.abs(trunk - net.output(states).detach().numpy()).max() < 0.5  # see models/README.md
    assert np.abs(drafted - expected).max() < 0.5
    assert np.abs(drafted - of_the_target).max() > 1.0  # another head than the target's own


def test_the_small_model_has_the_targets_tokens(embedded: Path) -> None:
    small = model.embedded_path("embedded-small")
    names = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.pre")
    ours, theirs = (gguf.GGUFReader(p).fields for p in (small, embedded))
    assert all(ours[n].contents() == theirs[n].contents() for n in names)
    assert model.facts(small).parameters < model.facts(embedded).parameters / 4


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a little text of its own, where the commands look for what they gather."""
    import random

    home = tmp_path_factory.mktemp("home")
    folder = home / ".cache" / "specdepth" / "tokens"
    folder.mkdir(parents=True)
    tokenizer = data.tokenizer_of(model.embedded_path())
    tokenizer.save(str(folder / "tokenizer.json"))
    r = random.Random(1)
    texts = [prompts.load(w, 2)[0].text for w in ("prose", "code", "short")]
    texts += [problems.problems(r) for _ in range(60)]
    texts += [p.read_text() for p in sorted((ROOT / "analysis").glob("*.py"))]
    tokens = [np.array([*tokenizer.encode(t).ids, data.END], np.uint16) for t in texts]
    for kind in data.SHARES:
        for part in ("train", "held"):
            np.save(folder / f"{kind}.{part}.npy", np.concatenate(tokens))
    (folder / "done.json").write_text("{}")
    return home


def run(home: Path, command: str, *more: str) -> list[dict[str, Any]]:
    """Run a training command of the model card, shortened; return its log."""
    words = [sys.executable, "-m", f"models.{command}", "--out", str(home / command), *more]
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | {"HOME": str(home)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(x) for x in (home / command / "log.jsonl").read_text().splitlines()]


def accepted(home: Path, drafter: str) -> int:
    """Return how many guesses of a drafter the embedded model accepts in one short request."""
    spec = SweepSpec(
        workloads=("short",), depths=(0, 3), prompts=1, rounds=1, n_predict=64, context=1024,
        lossless_prompts=0, drafter=drafter.partition(":")[0],
        draft_model=drafter.partition(":")[2],
    )  # fmt: skip
    recorded = measure(spec, "drafters", "here", home / "machines")
    return sum(s.draft_n_accepted or 0 for s in recorded.samples if not s.warm_up)


def test_the_head_is_trained_for_depth_by_its_command(home: Path, embedded: Path) -> None:
    head = home / "head.gguf"
    more = ("--texts", "8", "--gguf", str(head))
    first = run(home, "deepen", "--minutes", "0.01", *more)[-1]
    again = run(home, "deepen", "--minutes", "0.6", *more)[-1]
    assert again["steps"] > first["steps"]  # taken up where it ended
    before, after = (x["held_out"]["code"] for x in (first, again))
    assert after["step_5"] < before["step_5"] - 0.1
    check_head(head, embedded)
    assert tensors(head) != tensors(model.embedded_path("embedded-deep-head"))
    assert accepted(home, f"mtp:{head}") > 0


def test_the_small_model_is_trained_by_its_command(home: Path) -> None:
    small = home / "small.gguf"
    log = run(home, "small", "--minutes", "0.3", "--gguf", str(small))
    assert log[-1]["held_out"]["problems"]["total"] < np.log(4096) - 1
    assert accepted(home, f"draft-simple:{small}") > 0


def test_the_whole_model_is_trained_by_its_command(home: Path) -> None:
    log = run(home, "train", "--minutes", "0.3")
    assert log[-1]["held_out"]["problems"]["trunk"] < np.log(4096) - 0.5
    saved = export.load_checkpoint(home / "train" / "checkpoint.pt")
    path = home / "whole.gguf"
    export.write(saved, home / ".cache" / "specdepth" / "tokens" / "tokenizer.json", path)
    assert model.facts(path).mtp_layers == 1
