"""Names of machines, prompts, model facts, logs, and numbers as text."""

import math
import re
import time
from pathlib import Path

import psutil
import pytest

from analysis import machine, model, progress, prompts, tables
from analysis.errors import ModelError, SpecError
from analysis.spec import WORKLOADS, SweepSpec
from analysis.stats import Interval

RECORDED = Path(__file__).parent / "recorded"


@pytest.mark.parametrize(
    ("cpu", "cores", "gpus", "name"),
    [
        ("AMD EPYC", 2, [], "epyc-2c"),
        ("AMD EPYC 7763 64-Core Processor", 128, [], "epyc-7763-128c"),
        ("Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz", 12, [], "core-i7-9750h-12c"),
        ("Apple M3 Ultra", 32, [], "apple-m3-ultra-32c"),
        ("x", 8, ["NVIDIA GeForce RTX 4090"], "rtx-4090"),
        ("x", 8, ["NVIDIA GeForce RTX 3090"] * 2, "2x-rtx-3090"),
        ("x", 8, ["Tesla V100-SXM2-32GB"], "v100-sxm2-32gb"),
    ],
)
def test_names_come_from_the_hardware(cpu: str, cores: int, gpus: list[str], name: str) -> None:
    assert machine.hardware_name(cpu, cores, [{"name": g} for g in gpus]) == name
    assert machine.checked_name(name) == name


@pytest.mark.parametrize("name", ["../x", "A", "", "a b", "-a"])
def test_unsafe_machine_names_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match="`machine`"):
        machine.checked_name(name)


def test_company_sees_another_process() -> None:
    import subprocess
    import sys
    import time

    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        company = machine.Company()
        time.sleep(2)
        assert company.share() > 0.5 / (psutil.cpu_count() or 1)
    finally:
        other.kill()
        other.wait()


def test_company_does_not_count_ourselves() -> None:
    import time

    company = machine.Company()
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        pass
    busy = 1 / (psutil.cpu_count() or 1)
    assert company.share() < busy / 2 or machine.load_per_core() > 0.9


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_has_enough_distinct_prompts(workload: str) -> None:
    count = prompts.available(workload)
    assert count >= (4 if workload == "long" else 8)
    texts = [p.text for p in prompts.load(workload, count)]
    assert len(set(texts)) == count
    assert all(t.strip() for t in texts)


def test_asking_for_too_many_prompts_is_refused() -> None:
    with pytest.raises(SpecError, match="has no 999 prompts"):
        prompts.load("short", 999)


class Letters:
    """A tokenizer with one token a character."""

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        return ([0] if special else []) + [ord(c) for c in text]

    def detokenize(self, tokens: list[int]) -> str:
        return "".join(map(chr, tokens))

    def chat_prompt(self, message: str) -> str:
        return f"<user>{message}<assistant>"


def test_long_prompts_are_cut_to_the_token_and_the_cut_is_recorded() -> None:
    spec = SweepSpec(long_prompt_tokens=2000)
    found = [prompts.encode(Letters(), p, spec, chat=False) for p in prompts.load("long", 4)]
    assert {len(e.tokens) for e in found} == {2000}
    assert len({e.facts["sha256"] for e in found}) == 4
    starts = [e.facts["cut_start_char"] for e in found]
    assert starts == sorted(set(starts))
    request = "\n\n" + found[0].prompt.text.rstrip("\n")
    assert Letters().detokenize(list(found[0].tokens)).endswith(request)
    assert found[0].facts["cut_chars"] == 2000 - len(request)


def test_a_long_text_that_is_too_short_says_so() -> None:
    prompt = prompts.Prompt("long", "01", "Why?", window="too short")
    with pytest.raises(SpecError, match="its text has 9"):
        prompts.encode(Letters(), prompt, SweepSpec(), chat=False)


def test_chat_models_get_their_template() -> None:
    (prompt,) = prompts.load("short", 1)
    found = prompts.encode(Letters(), prompt, SweepSpec(), chat=True)
    assert "".join(map(chr, found.tokens[1:])).startswith("<user>")
    assert found.facts["format"] == "chat"


def test_facts_of_the_embedded_model(embedded: Path) -> None:
    facts = model.facts(embedded)
    assert (facts.architecture, facts.quantization, facts.mtp_layers) == ("qwen35", "Q8_0", 1)
    assert 5e6 <= facts.parameters <= 12e6
    assert facts.size_mib <= 16
    assert facts.context_train == 65536
    assert embedded.stat().st_size <= 16 * 2**20


def test_the_model_card_is_of_this_model(embedded: Path) -> None:
    card = (embedded.parent / "README.md").read_text()
    assert model.facts(embedded).sha256 in card
    assert embedded.name in card


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "not there"), (b"PK\3\4 zip", "not a GGUF"), (b"GGUF" + b"\0" * 40, "can not be read")],
)
def test_unusable_models_are_named(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "m.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=says):
        model.facts(model.resolve(str(path)))


def test_parts_of_a_split_model_must_all_be_there(tmp_path: Path) -> None:
    first = tmp_path / "m-00001-of-00002.gguf"
    first.write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"m-00002-of-00002\.gguf"):
        model.parts(first)
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(b"GGUF")
    assert len(model.parts(first)) == 2


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Interval(51.234, 50.1, 52.4), "51.2 [50.1, 52.4]"),
        (Interval(1588.2, 1540, 1640), "1588 [1540, 1640]"),
        (Interval(0.7612, 0.75, 0.77), "0.761 [0.750, 0.770]"),
        (Interval(2.0, 2.0, 2.0), "2"),
        (Interval(51.2, -math.inf, math.inf), "51.2 (no interval)"),
        (None, "–"),
    ],
)
def test_numbers_have_as_many_digits_as_their_interval_allows(
    found: Interval | None, text: str
) -> None:
    assert tables.interval(found) == text


def test_the_notes_table_is_the_notes() -> None:
    note = tables.note()
    assert list(note["mean"]) == [51.2, 31.0, 22.8, 17.3]
    own = note[["short", "prose", "code", "long"]].mean(axis=1)
    assert list(own.round(1)) == pytest.approx(list(note["mean"]), abs=0.11)


def test_the_bar_tells_launches_and_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    bar = progress.BarProgress("box depth_sweep")
    bar.update(0, 4, "depth 0")
    time.sleep(0.2)
    bar.update(2, 4, "depth 1")
    bar.close()
    last = capsys.readouterr().err.replace("\r", "\n").strip().splitlines()[-1]
    assert "box depth_sweep" in last
    assert "2/4" in last
    assert re.search(r"\[00:00<00:00", last)  # gone, and left
    assert progress.remaining_s(time.monotonic() - 10, 2, 4) == pytest.approx(10, abs=0.5)
    assert progress.remaining_s(time.monotonic(), 0, 4) is None
