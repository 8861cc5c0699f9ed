"""The built book in a real browser, from the disk: what a reader with eyes, keys or ears finds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, TimeoutError

from tests.browser import WatchedPage, open_page
from tests.conftest import book_pages

PHONE, DESK = 360, 1280
MARKED_MS = 600  # by then the theme lets the keyboard into what scrolls
# What sticks out of the window and lies in no box of its own that scrolls.
STICKS_OUT = """() => {
  const root = document.documentElement, found = [];
  const aside = "mjx-assistive-mml, .visually-hidden, dialog, #pst-secondary-sidebar";
  if (root.scrollWidth > root.clientWidth) found.push(`page is ${root.scrollWidth} wide`);
  for (const element of document.querySelectorAll("main *")) {
    const box = element.getBoundingClientRect();
    if (!box.width || box.right <= root.clientWidth + 1 || element.closest(aside)) continue;
    let boxed = false;
    for (let up = element.parentElement; up && up.tagName !== "MAIN"; up = up.parentElement)
      boxed ||= ["auto", "scroll"].includes(getComputedStyle(up).overflowX);
    if (!boxed) found.push(element.outerHTML.slice(0, 120));
  }
  return found.slice(0, 5);
}"""
# On paper the title stands before the article.
SHOWN = """() => [...document.querySelectorAll(`#jb-print-docs-body h1,
    article :is(h1, h2, h3, p, li, dt, dd, th, td, img, figcaption, pre)`)]
  .filter(e => !e.closest("details") && e.checkVisibility({visibilityProperty: true}))
  .map(e => e.tagName + " " + (e.alt || e.textContent).replace(/#$/, "").trim().slice(0, 60))"""
IMAGES = """() => [...document.querySelectorAll("article img")].map(
  i => [i.getAttribute("src"), i.alt, i.complete ? i.naturalWidth : 0])"""
FOCUS = """() => {
  const e = document.activeElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
  return {tag: e.tagName, text: (e.innerText || e.ariaLabel || "").trim().slice(0, 40),
    outline: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth),
    inside: box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0};
}"""
# Everything unfolded, and nothing half-way to where it moves.
AT_REST = """() => {
  document.querySelectorAll("details").forEach(d => d.open = true);
  const style = document.createElement("style");
  style.textContent = "*, ::before, ::after {transition: none !important; animation: none}";
  document.head.append(style);
}"""
# The theme changes colours alone, the width everything but colours.
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
NO_COLOURS = {"rules": {"color-contrast": {"enabled": False}}}


@dataclass(frozen=True)
class Seen:
    """What was seen on one page."""

    errors: list[str]
    headings: int
    images: list[tuple[str, str, int]]
    sticks_out: dict[str, list[str]]
    lost_on_paper: list[str]
    follows: bool  # the system's theme, but light on paper
    violations: dict[str, list[str]]


@contextmanager
def opened(
    chromium: Browser, path: Path, width: int = DESK, query: str = ""
) -> Iterator[WatchedPage]:
    page = open_page(chromium, path.as_uri() + query, width)
    try:
        yield page
    finally:
        page.context.close()


def violations(page: WatchedPage, **options: Any) -> list[str]:
    """Return axe's serious and critical findings; it may not load the styles a second time."""
    given = {"resultTypes": ["violations"], "preload": False} | options
    found = Axe().run(page, options=given).response["violations"]
    return [
        f"{v['id']}: {n['html'][:160]}"
        for v in found
        if v["impact"] in ("serious", "critical")
        for n in v["nodes"]
    ]


def becomes(page: WatchedPage, theme: str, **media: Any) -> bool:
    """Emulate a medium and tell whether the page takes on a theme, a moment later."""
    page.emulate_media(**media)
    try:
        page.wait_for_function(f"document.documentElement.dataset.theme === '{theme}'", timeout=3e3)
    except TimeoutError:
        return False
    return True


def visit(chromium: Browser, path: Path) -> Seen:
    """Look at a page on a desk and a phone, in light and dark, and on paper."""
    with opened(chromium, path, DESK) as page:
        out = {"desk": page.evaluate(STICKS_OUT)}
        images, shown = page.evaluate(IMAGES), page.evaluate(SHOWN)
        headings = page.locator("h1").count()
        follows = becomes(page, "dark", color_scheme="dark")
        follows &= becomes(page, "light", media="print", color_scheme="dark")
        printed = page.evaluate(SHOWN)
        out["paper"] = page.evaluate(STICKS_OUT)
        follows &= becomes(page, "light", media="screen", color_scheme="light")
        page.evaluate(AT_REST)
        page.wait_for_timeout(MARKED_MS)
        found = {"light": violations(page)}
        follows &= becomes(page, "dark", color_scheme="dark")
        found["dark"] = violations(page, **COLOURS)
        errors = list(page.errors)
    with opened(chromium, path, PHONE) as page:
        out["phone"] = page.evaluate(STICKS_OUT)
        page.evaluate(AT_REST)
        page.wait_for_timeout(MARKED_MS)
        found["phone"] = violations(page, **NO_COLOURS)
        errors += page.errors
    lost = sorted(set(shown) - set(printed))
    return Seen(errors, headings, images, out, lost, follows, found)


@pytest.fixture(scope="module")
def seen(chromium: Browser, html: Path) -> dict[str, Seen]:
    return {p.relative_to(html).as_posix(): visit(chromium, p) for p in book_pages(html)}


def test_pages_open_from_the_disk_without_errors(seen: dict[str, Seen]) -> None:
    assert {name: page.errors for name, page in seen.items() if page.errors} == {}
    assert [name for name, page in seen.items() if not page.headings] == []


def test_figures_are_shown_and_say_what_they_show(seen: dict[str, Seen]) -> None:
    """A path, a type or a word is no alternative to a figure."""
    images = [(name, *image) for name, page in seen.items() for image in page.images]
    assert len(images) >= 14
    assert [i for i in images if not i[3]] == []
    assert [i for i in images if len(i[2].split()) < 8] == []


def test_nothing_sticks_out_of_the_window_or_the_paper(seen: dict[str, Seen]) -> None:
    assert {n: p.sticks_out for n, p in seen.items() if any(p.sticks_out.values())} == {}


def test_on_paper_pages_keep_their_content_and_are_light(seen: dict[str, Seen]) -> None:
    assert {n: p.lost_on_paper for n, p in seen.items() if p.lost_on_paper} == {}
    assert [n for n, p in seen.items() if not p.follows] == []


@pytest.mark.parametrize("where", ["light", "dark", "phone"])
def test_axe_finds_nothing_serious_or_critical(seen: dict[str, Seen], where: str) -> None:
    found = {name: page.violations[where] for name, page in seen.items()}
    assert {name: what for name, what in found.items() if what} == {}


def test_the_first_page_is_the_front_page(chromium: Browser, html: Path) -> None:
    with opened(chromium, html / "index.html") as page:
        page.wait_for_url("**/book/index.html")
        assert "Speculation has a depth limit" in page.locator("article h1").inner_text()


def test_the_search_finds_acceptance(chromium: Browser, html: Path) -> None:
    with opened(chromium, html / "book" / "index.html") as page:
        page.keyboard.press("Control+k")
        page.keyboard.type("acceptance")
        page.keyboard.press("Enter")
        page.wait_for_url("**/search.html?q=acceptance*")
        page.wait_for_selector("#search-results li a")
        page.wait_for_function("!document.querySelector('#search-progress')?.innerText.trim()")
        titles = page.locator("#search-results li a").all_inner_texts()
        assert [t for t in titles if t.startswith("Acceptance decay")], titles
        page.locator("#search-results li a").first.click()
        page.wait_for_selector("article h1")
        assert page.errors == []


def test_the_keyboard_alone_is_enough(chromium: Browser, html: Path) -> None:
    with opened(chromium, html / "book" / "method.html") as page:
        page.evaluate(AT_REST)
        stops = []
        for _ in range(20):
            page.keyboard.press("Tab")
            stops.append(page.evaluate(FOCUS))
        assert stops[0]["text"] == "Skip to main content"
        assert [s for s in stops if not s["inside"] or s["outline"] < 2] == []
        page.reload()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_function("location.hash === '#main-content'")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('main') !== null")


def column(table: Locator, place: int) -> list[str]:
    """Return the texts of a column, from above."""
    found: list[str] = table.evaluate(
        "(table, place) => [...table.tBodies[0].rows].map(r => r.cells[place].textContent.trim())",
        place,
    )
    return found


def test_a_heading_sorts_its_table_by_mouse_and_keys(chromium: Browser, html: Path) -> None:
    with opened(chromium, html / "book" / "index.html") as page:
        first = page.locator(".cards table").first
        heading = first.locator("th", has_text="best draft")
        place = heading.evaluate("e => e.cellIndex")
        there = column(first, place)
        heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == "ascending"
        assert column(first, place) == sorted(there)
        page.keyboard.press("Enter")
        assert heading.get_attribute("aria-sort") == "descending"
        assert column(first, place) == sorted(there)[::-1]
        page.keyboard.press("Enter")
        assert heading.get_attribute("aria-sort") is None
        assert column(first, place) == there
        assert page.errors == []


def test_each_kind_of_column_has_its_order_and_what_is_missing_comes_last(
    chromium: Browser, html: Path
) -> None:
    """Cells that span rows are said by each of their rows from then on."""
    script = (html / "_static" / "tables.js").read_text()
    table = """<article class="bd-article"><table class="dataframe"><thead><tr>
        <th>work</th><th>speed</th><th>memory</th><th>from</th><th>version</th><th>best</th></tr></thead>
        <tbody>
        <tr><th rowspan="3">a</th><td>1,200 [1, 2]</td><td>18,864 of 32,768 MiB</td>
          <td>2026-11-30 04:41</td><td>3.11.7</td><td>depth 1: 0.72</td></tr>
        <tr><td>–</td><td>41.4 of 48 GB</td><td>2026-11-29 22:15</td><td>0.13.2</td><td>–</td></tr>
        <tr><td>90</td><td>33.54 of 96 GiB</td><td>2026-11-29 21:22</td><td>3.11.2</td>
          <td>depth 10: 0.5</td></tr>
        <tr><th>b</th><td>−3.5%</td><td>–</td><td>2026-11-30 12:48</td><td>3.2.0</td>
          <td>depth 1: 0.638</td></tr>
        </tbody></table></article>"""
    page = chromium.new_page()
    page.set_content(f"{table}<script>{script}</script>")
    found = page.locator("table")

    def press(name: str) -> list[str]:
        page.get_by_role("button", name=name).click()
        return column(found, ["work", "speed", "memory", "from", "version", "best"].index(name))

    assert press("speed") == ["−3.5%", "90", "1,200 [1, 2]", "–"]
    assert column(found, 0) == ["b", "a", "a", "a"]
    assert press("speed") == ["1,200 [1, 2]", "90", "−3.5%", "–"]
    assert press("memory") == ["18,864 of 32,768 MiB", "33.54 of 96 GiB", "41.4 of 48 GB", "–"]
    assert [day[5:] for day in press("from")] == [
        "11-29 21:22", "11-29 22:15", "11-30 04:41", "11-30 12:48",
    ]  # fmt: skip
    assert press("version") == ["0.13.2", "3.2.0", "3.11.2", "3.11.7"]
    assert press("best") == ["depth 1: 0.638", "depth 1: 0.72", "depth 10: 0.5", "–"]
    page.close()


def test_on_a_phone_the_answer_needs_no_scrolling_and_figures_keep_their_size(
    chromium: Browser, html: Path
) -> None:
    with opened(chromium, html / "book" / "index.html", PHONE) as page:
        cards = page.locator(".cards table")
        assert cards.count() == 2
        for card in cards.all():
            assert card.evaluate("e => e.scrollWidth <= e.parentElement.clientWidth")
            assert card.get_by_role("row").count() > 2
            assert not card.locator("button.sort").first.is_visible()  # nor in the way of the keys
        label = (
            "getComputedStyle(document.querySelector('.cards td:nth-child(2)'), '::before').content"
        )
        assert page.evaluate(label) == '"use depth"'
        figure = page.locator("article figure img").first
        assert figure.evaluate("e => e.getBoundingClientRect().width") > PHONE
