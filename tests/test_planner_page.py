"""The planner page in a real browser: its numbers are Python's, and what it does with bad input."""

from __future__ import annotations

import json
import random
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser
from typer.testing import CliRunner

from analysis import plan, planner, planner_example, planner_form, shapes
from analysis.cli import app
from analysis.errors import SpecError
from analysis.plan import Pool, Subject
from analysis.planner_form import SHOWN_DEPTH, Settings
from analysis.quantization import MIXES
from analysis.spec import CACHE_TYPES
from tests.browser import WatchedPage, open_page

PHONE = 360
STICKS_OUT = "(({scrollWidth: s, clientWidth: c}) => s - c)(document.querySelector('.planner'))"
MEMORY = "Device memory for llama.cpp"
DEPTHS = range(SHOWN_DEPTH + 1)
NUMBERS = "JSON.parse(document.getElementById('planner-data').textContent)"
BAD = {
    "memory": ["", " ", "GiB", "-3GiB", "22", "22 bananas", "nan", "infGiB", "0GiB", "1e30GiB",
               "9999999999GiB", "22,5GiB", "constructor", "1constructor"],
    "context": ["", "0", "-1", "1.5", "1e5", "86,016", "many", "9" * 20, "NaN"],
    "slots": ["", "0", "-2", "2.5", "999", "two"],
}  # fmt: skip


@pytest.fixture
def page(chromium: Browser, html: Path) -> Iterator[WatchedPage]:
    opened = open_page(chromium, address(html))
    yield opened
    assert opened.errors == []
    opened.context.close()


def address(html: Path, settings: dict[str, str] | None = None) -> str:
    there = (html / "book" / "planner.html").as_uri()
    return f"{there}#{urlencode(settings)}" if settings else there


def law(page: WatchedPage, body: str, cases: Any) -> Any:
    """Return what the page's own law answers for each case."""
    return page.evaluate(
        f"(cases) => {{ const law = plannerLaw({NUMBERS}); return cases.map((x) => {body}); }}",
        cases,
    )


def table(page: WatchedPage) -> list[list[str]]:
    """Return the cells that the page's table shows."""
    lines = page.locator("#planner-table tbody").inner_text().split("\n")
    return [line.split("\t") for line in lines]


def pools() -> list[tuple[str, str, Subject, Pool]]:
    """Return each shape in each quantization with random settings around its edge."""
    dice = random.Random(8)
    found = []
    for name, shape in shapes.shapes().items():
        for quantization in MIXES:
            subject = plan.of_shape(shape, quantization)
            for _ in range(4):
                slots = dice.choice((1, 2, 3, 7, 256))
                pool = Pool(
                    1.0, dice.randint(1, 2**18), slots, dice.random() < 0.5,
                    dice.choice(CACHE_TYPES), dice.choice(CACHE_TYPES),
                )  # fmt: skip
                need = plan.parts(subject, pool, dice.randint(0, 8)).total_mib
                memory = need * dice.choice((0.02, 0.6, 0.95, 1.0, 1.0001, 1.05, 3))
                found.append((name, quantization, subject, as_large(pool, memory)))
    return found


def as_large(pool: Pool, memory_mib: float) -> Pool:
    return Pool(
        memory_mib, pool.context, pool.slots, pool.unified, pool.cache_type_k, pool.cache_type_v
    )


def for_page(name: str, quantization: str, pool: Pool) -> dict[str, Any]:
    return {"model": name, "quantization": quantization, **vars(pool)}


def test_the_browsers_numbers_are_pythons(page: WatchedPage) -> None:
    asked = pools()
    body = f"Array.from({{length: {SHOWN_DEPTH + 1}}}, (_, d) => law.closedForm(x, d))"
    answers = law(page, body, [for_page(n, q, p) for n, q, _, p in asked])
    assert len(answers) == len(asked) > 150
    left = set()
    for (_, _, subject, pool), rows in zip(asked, answers, strict=True):
        for depth, row in zip(DEPTHS, rows, strict=True):
            need, own = plan.parts(subject, pool, depth), plan.closed_form(subject, pool, depth)
            expected = vars(need) | {
                "total_mib": need.total_mib, "left_mib": pool.memory_mib - need.total_mib,
            }  # fmt: skip
            assert {k: row[k] for k in expected} == pytest.approx(expected, abs=0.01)
            for name in ("fits", "layers_total", "layers_off_device", "off_device"):
                assert row[name] == getattr(own, name), (pool, depth)
            left.add(re.sub(r"[\d-]+", "", row["off_device"]))
    assert left == {"", "all", "blocks ", "experts of blocks ", "blocks , experts of blocks "}


def test_the_browsers_edge_is_pythons(page: WatchedPage) -> None:
    asked = pools()
    answers = law(page, "law.deepest(x)", [for_page(n, q, p) for n, q, _, p in asked])
    assert answers == [plan.deepest(subject, pool) for _, _, subject, pool in asked]
    assert {None, 0} < set(answers)


def test_amounts_of_memory_are_read_as_python_reads_them(page: WatchedPage) -> None:
    good = ["22GiB", "24 GB", "21400MiB", "1g", "22.5gib", ".5GiB", "500 m", "80000mb"]
    read = law(page, "law.memoryMib(x)", good + BAD["memory"])
    assert read[: len(good)] == pytest.approx([plan.memory_mib(text) for text in good])
    assert set(read[len(good) :]) == {None}
    for text in BAD["memory"]:
        with pytest.raises(SpecError):
            plan.memory_mib(text)


def test_it_starts_with_the_worked_example(page: WatchedPage) -> None:
    example = Settings()
    deepest = plan.deepest(example.subject(), example.pool())
    answer = page.locator("#planner-answer")
    assert answer.get_attribute("aria-live") == "polite"
    assert answer.inner_text().startswith(f"Depth {deepest} is the deepest that fits into 22,528")
    shown = table(page)
    for cells, row in zip(shown, planner_example.rows(example), strict=True):
        assert cells[0].strip("\u25b8\u00a0") == str(row.depth)
        assert cells[6] == f"{row.total_mib:,.0f}"
        assert cells[8] == f"{row.layers_total - row.layers_off_device}/{row.layers_total}"
        assert cells[9] == (row.off_device or "nothing")
    assert page.locator("#planner-chart .level").count() == len(shown) + 1
    finding = f"22,528 MiB: depths 0 to {deepest} fit, those beyond do not."
    assert page.get_by_role("img", name=finding).is_visible()


def test_the_command_asks_for_what_the_fields_say(page: WatchedPage) -> None:
    page.get_by_label("Model shape").select_option("qwen3.6-35b-a3b")
    page.get_by_label("Quantization").select_option("q5_k_s")
    page.get_by_label("KV cache, keys").select_option("q8_0")
    page.get_by_label(MEMORY).fill(" 24 GB ")
    page.get_by_label("Context").fill("131073")
    page.get_by_label("Slots", exact=True).fill("3")
    page.get_by_label("One KV cache").uncheck()
    words = shlex.split(page.locator("#planner-command").inner_text())
    assert words[:1] == ["specdepth"]
    told = CliRunner().invoke(app, [*words[1:], "--closed-form", "--json"])
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)
    assert [cells[6] for cells in table(page)] == [f"{r['total_mib']:,.0f}" for r in rows]


def test_bad_input_is_told_beside_its_field_and_gives_no_numbers(page: WatchedPage) -> None:
    for name, values in BAD.items():
        field, said = page.locator(f"#planner-{name}"), page.locator(f"#planner-{name}-said")
        good = field.input_value()
        for text in values:
            field.fill(text)
            assert said.inner_text().startswith(("A whole number from 1", "An amount of memory"))
            assert field.get_attribute("aria-invalid") == "true"
            assert str(said.get_attribute("id")) in str(field.get_attribute("aria-describedby"))
            assert page.locator("#planner-results").is_hidden(), text
            assert page.locator("#planner-answer").inner_text().startswith("No plan yet; see: ")
            assert "NaN" not in page.locator(".planner").inner_text()
        field.fill(good)
        assert said.inner_text() == ""
        assert page.locator("#planner-results").is_visible()


def test_the_address_carries_the_answer(page: WatchedPage, chromium: Browser, html: Path) -> None:
    page.get_by_label(MEMORY).fill("21.5GiB")
    page.get_by_label("Quantization").select_option("q6_k")
    page.get_by_label("One KV cache").uncheck()
    section = page.locator(".planner").inner_text()
    assert page.locator("#planner-link").get_attribute("href") == page.evaluate("location.hash")
    again = open_page(chromium, page.url)
    assert again.locator(".planner").inner_text() == section
    again.get_by_role("link", name="caches in 8 bits").click()
    again.get_by_text("Depth 11 is the deepest").wait_for()
    assert again.get_by_label("KV cache, keys").input_value() == "q8_0"
    assert again.get_by_label(MEMORY).input_value() == Settings().memory
    again.goto(f"{address(html)}#limits")
    assert again.get_by_label("KV cache, keys").input_value() == "q8_0"
    again.get_by_role("button", name="Back to the example").click()
    assert again.get_by_label("KV cache, keys").input_value() == "f16"
    assert again.errors == []
    again.context.close()


def test_an_address_with_nonsense_is_told_as_well(chromium: Browser, html: Path) -> None:
    given = {"shape": "gpt-9", "memory": "<b>x", "slots": "1" * 400, "nothing": "1"}
    opened = open_page(chromium, address(html, given))
    assert opened.locator("#planner-shape-said").inner_text() == "Not in the list: choose one."
    assert "Model shape, Device memory" in opened.locator("#planner-answer").inner_text()
    assert "NaN" not in opened.locator(".planner").inner_text()
    assert opened.errors == []
    opened.context.close()


def test_the_keyboard_reaches_every_field_in_order(page: WatchedPage) -> None:
    page.locator("#planner-shape").focus()
    seen = []
    for _ in range(len(Settings().fields()) + 3):
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
        page.keyboard.press("Tab")
    fields = [f"planner-{name}" for name in Settings().fields()]
    assert [name for name in seen if name in fields] == fields
    assert {"scroll", "planner-link"} < set(seen)
    for name in fields:
        assert page.locator(f"label[for={name}]").count() == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_phone_in_light_and_dark(theme: str, chromium: Browser, html: Path) -> None:
    longest = {"shape": "qwen3.6-35b-a3b", "memory": "1073741823MiB", "context": str(2**31)}
    for settings in ({}, longest, longest | {"memory": "9GiB"}, {"memory": "1MiB"}):
        opened = open_page(chromium, address(html, settings), PHONE)
        opened.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        assert opened.evaluate("document.documentElement.scrollWidth") == PHONE
        assert opened.evaluate(STICKS_OUT) == 0
        ground = opened.evaluate(
            "getComputedStyle(document.querySelector('.text_html:has(.planner)')).backgroundColor"
        )
        assert ground == "rgba(0, 0, 0, 0)"
        assert opened.locator("#planner-answer").inner_text().strip()
        assert opened.errors == []
        opened.context.close()


def test_the_page_prints_without_boxes_that_scroll(page: WatchedPage) -> None:
    page.emulate_media(media="print")
    style = "getComputedStyle(document.querySelector('.planner .scroll')).overflowX"
    assert page.evaluate(style) == "visible"


def test_the_closed_form_lies_close_to_the_stored_plans() -> None:
    found = planner_example.agreement()
    assert found is not None
    assert found.apart < planner.CLOSE
    said = planner_example.agreement_sentence(found)
    assert f"Over {found.layouts} layouts of {found.shapes} shapes" in said
    assert f"more than {planner.CLOSE:.0%} apart" in said


def test_without_stored_plans_the_page_says_so(tmp_path: Path) -> None:
    assert planner_example.agreement(tmp_path) is None
    assert "No machine" in planner_example.agreement_sentence(None)
    assert planner_example.near_mib(None) >= 400


def test_each_trade_is_as_deep_as_said() -> None:
    lines = planner_example.trades(Settings()).splitlines()[2:]
    assert len(lines) == len(planner_example.TRADES)
    depths = [int(line.split("|")[2]) for line in lines]
    assert depths[0] == plan.deepest(Settings().subject(), Settings().pool())
    assert min(depths[1:]) > depths[0]


def test_no_text_of_the_numbers_can_end_their_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_form, "COMMAND", "</script><script>")
    text = planner_form.html(12.0).split('id="planner-data">', 1)[1].split("</script>", 1)[0]
    assert json.loads(text)["command"] == "</script><script>"
