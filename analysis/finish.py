"""Pages after their build: tables with real headings, and roles that a screen reader understands.

Sphinx and pandas leave a few things in the HTML that a reader with a screen reader or a phone pays
for; the rules here are as few as the checks of the pages in a browser ask for.
"""

from __future__ import annotations

import re
from pathlib import Path

from analysis.markdown_table import NUMBER

_TABLE = re.compile(r'<table border="1" class="dataframe">.*?</table>', re.DOTALL)
_STYLE = re.compile(r"<style scoped>\s*\.dataframe .*?</style>\s*", re.DOTALL)
_ROW = re.compile(r"<tr[^>]*>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<(t[hd])([^>]*)>(.*?)</\1>", re.DOTALL)
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
    head, _, body = text.partition("</thead>")
    numeric = _numeric(body)
    rows = [_CELL.findall(row) for row in _ROW.findall(head)]
    if len(rows) == 2 and _complete(*rows):
        rows = [[a if a[2] else b for a, b in zip(*rows, strict=True)]]
    lines = []
    for row in rows:
        marked = [False] * (len(row) - len(numeric)) + list(numeric)
        cells = [_heading(*cell, number=n) for cell, n in zip(row, marked, strict=False)]
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return (
        '<table class="dataframe">\n<thead>\n'
        + "\n".join(lines)
        + "\n</thead>"
        + _CELL.sub(lambda m: _cell(m[1], m[2], m[3]), body)
    )


def _complete(names: list[tuple[str, str, str]], index: list[tuple[str, str, str]]) -> bool:
    """Tell whether two rows of headings fill each other's gaps, as pandas writes a named index."""
    plain = not any("span" in cell[1] for cell in [*names, *index])
    return plain and len(names) == len(index) and not any(
        a[2] and b[2] for a, b in zip(names, index, strict=True)
    )  # fmt: skip


def _heading(_: str, attributes: str, content: str, *, number: bool) -> str:
    if not content:
        return f"<td{attributes}></td>"
    scope = "colgroup" if "colspan" in attributes else "col"
    mark = ' class="number"' if number else ""
    return f'<th{attributes} scope="{scope}"{mark}>{content}</th>'


def _numeric(body: str) -> list[bool]:
    """Return which columns hold numbers alone, counted among the cells that are no headings."""
    rows = [[c[2] for c in _CELL.findall(r) if c[0] == "td"] for r in _ROW.findall(body)]
    if len({len(row) for row in rows}) != 1:
        return []
    return [all(NUMBER.fullmatch(cell) for cell in column) for column in zip(*rows, strict=True)]


def _cell(tag: str, attributes: str, content: str) -> str:
    if tag == "th":
        attributes = attributes.replace(' valign="top"', "")
        return (
            f'<th{attributes} scope="row">{content}</th>' if content else f"<td{attributes}></td>"
        )
    mark = ' class="number"' if content and NUMBER.fullmatch(content) else ""
    return f"<td{attributes}{mark}>{content}</td>"
