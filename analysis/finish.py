"""Pages after their build: tables with real headings, and roles that a screen reader understands.

Sphinx and pandas leave a few things in the HTML that a reader with a screen reader or a phone pays
for; the rules here are as few as the checks of the pages in a browser ask for.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.markdown_table import NUMBER

if TYPE_CHECKING:
    from bs4 import Tag

_TABLE = re.compile(r'<table border="1" class="dataframe">.*?</table>', re.DOTALL)
_STYLE = re.compile(r"<style scoped>\s*\.dataframe .*?</style>\s*", re.DOTALL)
_PLAIN = {
    # A list may hold no entries of a bibliography, by the roles' own rules.
    '<div role="list" class="citation-list">': '<div class="citation-list">',
    ' role="doc-biblioentry"': "",
    'class="bd-sidebar-primary bd-sidebar"': (
        'class="bd-sidebar-primary bd-sidebar" role="complementary" aria-label="The book"'
    ),
}


_FIRST = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url=book/index.html">
<title>Speculation has a depth limit</title>
</head>
<body><p><a href="book/index.html">Speculation has a depth limit</a></p></body>
</html>
"""


def pages(html: Path) -> None:
    """Mend every page of a built book, in place; the first of all leads to the front page."""
    (html / "index.html").write_text(_FIRST, encoding="utf-8")
    for path in sorted(html.rglob("*.html")):
        text = path.read_text(encoding="utf-8")
        mended = page(text)
        if mended != text:
            path.write_text(mended, encoding="utf-8")


def page(text: str) -> str:
    """Return a page mended: what stands in no table of pandas changes by whole phrases only."""
    for found, instead in _PLAIN.items():
        text = text.replace(found, instead)
    return _TABLE.sub(lambda m: table(m[0]), _STYLE.sub("", text))


def table(text: str) -> str:
    """Return a table of pandas with one row of headings, scopes, and its numbers marked."""
    from bs4 import BeautifulSoup  # with the extra `book`, which alone needs it

    own = BeautifulSoup(text, "html.parser").select_one("table")
    if own is None or own.thead is None or own.tbody is None:
        return text
    del own["border"]
    numeric = _numeric(own.tbody)
    rows = own.thead("tr")
    if len(rows) == 2 and _complete(*rows):
        for name, index in zip(_cells(rows[0]), _cells(rows[1]), strict=True):
            if index.contents:
                name.replace_with(index)
        rows.pop().decompose()
    for row in rows:
        row.attrs.clear()
        cells = _cells(row)
        marked = [False] * (len(cells) - len(numeric)) + numeric
        for cell, number in zip(cells, marked, strict=False):
            _head(cell, "colgroup" if cell.has_attr("colspan") else "col")
            if number and cell.name == "th":
                cell["class"] = "number"
    for cell in own.tbody(["th", "td"]):
        if cell.name == "th":
            del cell["valign"]
            _head(cell, "row")
        elif cell.contents and NUMBER.fullmatch(cell.get_text()):
            cell["class"] = "number"
    return str(own)


def _cells(row: Tag) -> list[Tag]:
    return list(row(["th", "td"]))


def _head(cell: Tag, scope: str) -> None:
    """Give a heading its scope; one that says nothing is none."""
    if cell.contents:
        cell["scope"] = scope
    else:
        cell.name = "td"


def _complete(names: Tag, index: Tag) -> bool:
    """Tell whether two rows of headings fill each other's gaps, as pandas writes a named index."""
    pairs = list(zip(_cells(names), _cells(index), strict=False))
    return len(_cells(names)) == len(_cells(index)) and not any(
        a.has_attr("colspan") or b.has_attr("colspan") or (a.contents and b.contents)
        for a, b in pairs
    )


def _numeric(body: Tag) -> list[bool]:
    """Return which columns hold numbers alone, counted among the cells that are no headings."""
    rows = [[cell.get_text() for cell in row("td")] for row in body("tr")]
    if len({len(row) for row in rows}) != 1:
        return []
    return [all(NUMBER.fullmatch(text) for text in column) for column in zip(*rows, strict=True)]
