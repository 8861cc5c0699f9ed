"""The acceptance page, made for real with tiny parameters, and its parts on hand-made steps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from analysis import decay, report, store, strip, sweep
from analysis.parameters import read
from analysis.records import Step
from analysis.steps import Traced
from tests.conftest import Silent, execute, outputs, replay

TINY: dict[str, Any] = {
    "rounds": 1, "prompts": 2, "long_prompts": 1, "workloads": ["short", "long"],
    "long_prompt_tokens": 300, "n_predict": 40, "depths": [0, 2], "context": 1024,
    "machine": "tiny-box", "lossless_prompts": 0, "traced_prompts": 2, "traced_rounds": 2,
    "traced_p_min": [0.6],
    "traffic_log": str(Path(__file__).parent / "recorded" / "traffic" / "2026-08.log"),
}  # fmt: skip


@pytest.fixture(scope="module")
def executed(machines: Path) -> Path:
    return execute("acceptance_decay", TINY, machines)


def test_the_page_says_what_its_samples_say(executed: Path) -> None:
    page = read({k: v for k, v in TINY.items() if k != "machine"}, traces=True)
    recorded = sweep.find(executed.parent / "samples", "acceptance_decay", page.spec)
    counts = decay.positions(report.sweep_of(recorded))
    text = outputs(executed)
    for sentence in decay.sentences(counts, "tiny-box"):
        assert sentence in text
    assert "predicts 59% at depth 5, where the note has 41%" in text
    assert "drafted and refused" in text
    assert "From `2026-08.log`" in text
    assert str(TINY["traffic_log"]) not in executed.read_text()


def test_the_tracer_and_the_server_answer_in_turns(executed: Path) -> None:
    """Two prompts in two rounds at each depth: the same texts and counts, in the same launches."""
    found = re.findall(
        r"<th>[012]</th>\s*<td>(\d+)</td>\s*<td>(\d+)</td>\s*<td>(\d+)</td>", outputs(executed)
    )
    assert len(found) == 3
    assert all(int(n) == int(same) == int(counts) == 4 for n, same, counts in found)


def test_nbval_replays_the_page(executed: Path, machines: Path) -> None:
    done = replay(executed, machines)
    assert done.returncode == 0, done.stdout[-3000:]


class Forbidden(Silent):
    """Fails at the first launch."""

    def update(self, done: int, total: int, doing: str) -> None:
        raise AssertionError(f"a launch was made: {done} of {total}, {doing}")


def test_samples_of_a_fuller_sweep_are_taken_and_nothing_is_measured(tmp_path: Path) -> None:
    asked = {k: v for k, v in TINY.items() if k != "machine"}
    plain = {k: v for k, v in asked.items() if not k.startswith("tra")}
    fuller = read(plain | {"depths": [0, 1, 2], "prompts": 3}).spec
    whole = sweep.measure(fuller, "depth_sweep", "tiny-box", tmp_path, progress=Silent())
    taken = sweep.measure(
        read(asked, traces=True).spec, "acceptance_decay", "tiny-box", tmp_path,
        progress=Forbidden(), covered_by="depth_sweep",
    )  # fmt: skip
    assert taken.path == whole.path
    for less in ({"depths": [3]}, {"prompts": 4}, {"seed": 1}, {"rounds": 2}):
        assert not store.covers(whole, read(plain | less).spec)


def test_a_strip_marks_every_token_and_says_it_in_words() -> None:
    made = Traced(
        (
            Step((1, 2, 3), (0.9, 0.8, 0.4), 2, 4, 0.1, 0.2, 0.1, 0.0),
            Step((5,), (0.3,), 0, 6, 0.1, 0.2, 0.1, 0.0),
        ),
        {1: " a", 2: "<b>", 3: "c", 4: "\n", 5: "e", 6: ""},
    )
    html = strip.strip(6, made)
    body = html.split("aria-label", 1)[1]
    assert [body.count(f'class="{k}"') for k in ("kept", "refused", "own")] == [2, 2, 3]
    assert "&lt;b&gt;" in html
    assert "<b>" not in body
    assert 'role="img"' in html
    said = strip.in_words(6, made)
    assert "drafted 4 tokens" in said
    assert "kept 2 and refused 2" in said
