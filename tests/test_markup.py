"""Text of models, logs, names and other people's folders is shown on a page and never obeyed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

from analysis import (
    arm_runs,
    checks,
    decay,
    drafters_sentences,
    eviction,
    front,
    gallery,
    markup,
    pages,
    plan_tables,
    plans,
    report,
    store,
    strip,
    tables,
    traffic,
)
from analysis.errors import EngineError
from analysis.records import Launch, Step
from analysis.stats import LIKE_THESE
from analysis.steps import Traced
from analysis.store import Recorded
from tests.conftest import execute, outputs, run_record

ROOT = Path(__file__).resolve().parent.parent
PAYLOADS = (
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "[click](javascript:alert(1)) ![x](y)",
    "`code` **bold** _thin_ *thin* a | b",
    r"$\href{javascript:alert(1)}{x}$ \(y\)",
    "{raw}`<b>x</b>` ~~gone~~ &amp; <https://example.org>",
    "x\n\n```{raw} html\n<script>alert(1)</script>\n```\n",
    "x\n\n:::{raw} html\n<script>alert(1)</script>\n:::\n\n# Title\n\n<div onclick=x>",
)
MARKS = {"p", "strong", "code", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}


class Tags(HTMLParser):
    """What a browser would make of a page: its tags, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(name for name, _ in attrs if name.startswith("on"))}

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(markdown: str) -> Tags:
    """Render Markdown as the book does."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    extensions = set(config["parse"]["myst_enable_extensions"])
    parser = create_md_parser(MdParserConfig(enable_extensions=extensions), RendererHTML)
    return Tags(parser.render(markdown))


def spaced(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("payload", PAYLOADS)
def test_any_text_is_shown_as_it_stands(payload: str) -> None:
    for text in (f"- {markup.escaped(payload)}", f"| a |\n|---|\n| {markup.escaped(payload)} |"):
        page = shown(text)
        assert page.found <= MARKS
        assert spaced(payload) in spaced(page.text)
    page = shown(f"| a |\n|---|\n| {markup.code(payload)} |")
    assert page.found <= MARKS


def test_names_of_files_and_builds_stay_readable() -> None:
    for name in ("specdepth-9m-q8_0.gguf", "version: 1 (abcdef0)", "Linux 5.10 x86_64", "mtp:deep"):
        assert markup.escaped(name) == name


@pytest.fixture
def hostile(make_recorded: Callable[..., Recorded]) -> Callable[[str], Recorded]:
    """A recording whose every text is a payload."""

    def make(text: str) -> Recorded:
        recorded = make_recorded({0: 10.0, 1: 12.0, 2: 11.0}, launch_noise=0.01, prompt_noise=0.01)
        run = recorded.run
        machine = run.machine | {"name": text, "cpu": text, "system": text}
        machine["gpus"] = [{"name": text, "driver": text}]
        run = replace(
            run, run=text, machine=machine, packages={text: text}, started=text,
            model=run.model | {"name": text, "quantization": text, "sha256": text},
            engine=run.engine | {"version": text}, prompt_facts={text: {text: text}},
        )  # fmt: skip
        failed = replace(recorded.samples[0], error=text, prompt_id=text, round=9)
        short = replace(recorded.samples[0], prompt_id=text, predicted_n=5, steps=4)
        loop = replace(short, predicted_n=101, steps=100, tokens=(1,) * 101)
        launch = Launch(
            launch="l", round=0, order=0, depth=2, arm="natural", command=text, load_ms=0.0,
            counters={}, placement={}, peak_rss_mib=None, others_cpu=0.0, exit_code=0,
            stopped_by="terminate",
        )  # fmt: skip
        samples = (*recorded.samples, failed, replace(short, prompt_id=text + "2"), loop)
        return replace(recorded, run=run, samples=samples, launches=(launch,), notes=(text,))

    return make


def without_box(markdown: str) -> str:
    """Return title and text of the one box of a page of answers, as Sphinx reads them."""
    start, option, *text, end = markdown.strip().split("\n")
    assert (option, end) == (":class: tip", ":::")
    return "\n\n".join([start.removeprefix(":::{admonition} "), *text])


def without_cards(markdown: str) -> str:
    """Return the table of a container, as Sphinx reads it."""
    start, *text, end = markdown.split("\n")
    assert (start, end) == (":::{container} cards", ":::")
    return "\n".join(text)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_of_a_samples_file_becomes_a_tag(
    payload: str, hostile: Callable[[str], Recorded], tmp_path: Path
) -> None:
    recorded = hostile(payload)
    result = report.sweep_of(recorded)
    told = checks.warnings(result)
    verdict = result.verdict("short", LIKE_THESE)
    (tmp_path / "traffic").mkdir()
    request = {"server": 0, "depth": payload, "at_s": None, "prompt_n": 1, "predicted_n": 9,
               "predicted_ms": 1.0, "draft_n": 4, "draft_n_accepted": 2}  # fmt: skip
    (tmp_path / "traffic" / "x.json").write_text(
        json.dumps([request, request | {"depth": payload + "2"}])
    )
    needs = plans.Plans(recorded.run, {}, emulated=False, why="")
    pages = {
        "provenance": tables.provenance(result),
        "plans": plan_tables.provenance(needs),
        "sentence": f"- {tables.sentence(result, verdict)}",
        "answers": without_box(front.answers([result])),
        "front table": without_cards(front.shown(front.table([result]))),
        "why": front.why(result),
        "warnings": "\n".join(f"- {text}" for text in told),
        "by run": checks.listed({"a run": result}),
        "basis": f"- {decay.basis(result)}",
        "decay": "\n".join(f"- {x}" for x in decay.sentences(decay.positions(result), payload)),
        "drafter": f"- {drafters_sentences.named(f'draft-simple:{payload}')}",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECDEPTH_REPLAY", "1")
        pages["traffic"] = traffic.markdown("/logs/x", tmp_path)
    for name, markdown in pages.items():
        assert shown(markdown).found <= MARKS, name
    for name in ("provenance", "answers", "warnings", "traffic"):
        assert spaced(payload).split("|")[0] in spaced(shown(pages[name]).text), name


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_becomes_a_tag_in_a_table_or_a_strip(
    payload: str, hostile: Callable[[str], Recorded]
) -> None:
    table = front.against_note([report.sweep_of(hostile(payload))])
    assert any(payload in str(column) for column in table.columns)
    cards = without_cards(front.shown(table))
    assert shown(cards).found <= MARKS | {"table", "thead", "tbody", "tr", "th", "td"}
    step = Step((1,), (0.5,), 1, 1, 1.0, 1.0, 1.0, 1.0)
    page = Tags(strip.strip(1, Traced((step,), {1: payload})))
    assert page.found <= MARKS | {"div", "style", "span", "br"}


def test_a_file_of_samples_with_an_odd_name_is_on_no_page(tmp_path: Path) -> None:
    folder = tmp_path / "box" / "samples"
    for name in ("depth_sweep-0123456789ab.jsonl", "depth_sweep-<img src=x onerror=y>.jsonl"):
        with store.Writer(folder / name, run_record()):
            pass
    assert [r.path.name for r in gallery.runs(tmp_path / "box")] == [
        "depth_sweep-0123456789ab.jsonl"
    ]


def test_what_an_engine_says_is_shown_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why a part of a page was not measured: the error of an engine, with words of its log."""

    def refused(_: object) -> None:
        raise EngineError("it ended", PAYLOADS[0])

    monkeypatch.setattr("analysis.arm_runs.choose.probe", refused)
    page = pages.page_parameters("memory_eviction", {"machine": "box"})
    told = eviction.MISSING.format(arm_runs.measured(page.spec, page, "memory_eviction").why)
    assert shown(told).found <= MARKS
    assert PAYLOADS[0] in shown(told).text


def test_a_models_name_is_shown_on_a_real_page(embedded: Path, tmp_path: Path) -> None:
    """The file's own name is a tag; the page is made for real and rendered as in the book."""
    model = tmp_path / "<img src=x onerror=alert(1)>.gguf"
    model.symlink_to(embedded)
    page = execute(
        "depth_sweep",
        {"model": str(model), "machine": "tiny-box", "depths": [0, 1], "workloads": ["short"],
         "prompts": 1, "rounds": 1, "n_predict": 40, "context": 1024, "threads": 1},
        tmp_path / "machines",
    )  # fmt: skip
    said = outputs(page)
    assert "onerror" in said
    assert not shown(said).found & {"img", "onerror", "script"}
