"""The built book alone: every link and resource is in it, and nothing is loaded from outside."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup, Tag

from analysis import finish
from tests.conftest import book_pages

LOADED = {"script": "src", "link": "href", "img": "src", "source": "src", "iframe": "src",
          "object": "data", "embed": "src", "video": "src", "audio": "src"}  # fmt: skip
TABLE = """<table border="1" class="dataframe">
  <thead>
    <tr style="text-align: right;"><th></th><th>speed</th><th>said</th></tr>
    <tr><th>depth</th><th></th><th></th></tr>
  </thead>
  <tbody>
    <tr><th>0</th><td>1.51 [1.17, 1.94]</td><td>best</td></tr>
    <tr><th>1</th><td>–</td><td>2</td></tr>
  </tbody>
</table>"""


@pytest.fixture(scope="module")
def soups(html: Path) -> dict[Path, BeautifulSoup]:
    found = [*book_pages(html), html / "index.html"]
    return {p: BeautifulSoup(p.read_text(encoding="utf-8"), "html.parser") for p in found}


def attributes(soup: BeautifulSoup, names: dict[str, str]) -> Iterator[tuple[Tag, str]]:
    for tag in soup.find_all(list(names)):
        value = tag.get(names[tag.name])
        if value:
            yield tag, str(value)


def inside(page: Path, address: str) -> Path:
    """Return the file that an address without a scheme names, seen from a page on the disk."""
    return (page.parent / unquote(urlsplit(address).path)).resolve() if address else page


def test_nothing_is_loaded_from_outside_and_every_resource_is_there(
    soups: dict[Path, BeautifulSoup],
) -> None:
    wrong = []
    for page, soup in soups.items():
        for _, address in attributes(soup, LOADED):
            parts = urlsplit(address)
            if parts.scheme == "data" or address.startswith("#"):
                continue
            if parts.scheme or parts.netloc or address.startswith("/"):
                wrong.append((page.name, "outside", address))
            elif not inside(page, address).is_file():
                wrong.append((page.name, "missing", address))
    assert wrong == []


def names_a_place(fragment: str) -> bool:
    """Tell whether a fragment is the name of a place; one with values fills the planner's form."""
    return bool(fragment) and "=" not in fragment


def test_every_link_and_anchor_inside_the_book_resolves(
    html: Path, soups: dict[Path, BeautifulSoup]
) -> None:
    anchors = {p: {str(t["id"]) for t in s.find_all(id=True)} for p, s in soups.items()}
    wrong, followed = [], 0
    for page, soup in soups.items():
        for _, address in attributes(soup, {"a": "href"}):
            parts = urlsplit(address)
            if parts.scheme in ("http", "https", "mailto"):
                continue
            target = inside(page, parts.path)
            followed += 1
            if (
                parts.scheme
                or not target.is_file()
                or not target.is_relative_to(html)
                or (names_a_place(parts.fragment) and parts.fragment not in anchors.get(target, ()))
            ):
                wrong.append((page.name, address))
    assert followed > 100
    assert wrong == []


def test_styles_load_from_the_book_alone(html: Path) -> None:
    loaded = re.compile(r"""(?:url\(|@import)\s*["']?(?!data:|#)([^"')\s;]+)""")
    wrong = []
    for path in html.rglob("*.css"):
        wrong += [
            (path.name, address)
            for address in loaded.findall(path.read_text(encoding="utf-8"))
            if urlsplit(address).scheme or not inside(path, address).is_file()
        ]
    assert wrong == []


def test_a_table_gets_one_row_of_headings_scopes_and_marked_numbers() -> None:
    soup = BeautifulSoup(finish.table(TABLE), "html.parser")
    rows = [[(c.name, c.text, c.get("scope"), c.get("class")) for c in r.find_all(["td", "th"])]
            for r in soup.find_all("tr")]  # fmt: skip
    number = ["number"]
    assert rows == [
        [("th", "depth", "col", None), ("th", "speed", "col", number), ("th", "said", "col", None)],
        [("th", "0", "row", None), ("td", "1.51 [1.17, 1.94]", None, number),
         ("td", "best", None, None)],
        [("th", "1", "row", None), ("td", "–", None, number), ("td", "2", None, number)],
    ]  # fmt: skip


def test_tables_of_the_book_have_named_columns(soups: dict[Path, BeautifulSoup]) -> None:
    tables = [t for s in soups.values() for t in s.select("table.dataframe")]
    assert tables
    assert not [t for t in tables if t.find("th", string=lambda x: not x)]
    assert all(t.select("thead th[scope]") for t in tables)


def test_no_text_of_a_table_is_cut(soups: dict[Path, BeautifulSoup]) -> None:
    cells = [c.get_text() for s in soups.values() for c in s.select("article :is(td, th)")]
    assert cells
    assert [text for text in cells if text.rstrip().endswith(("...", "…"))] == []
