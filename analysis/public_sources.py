"""Links from figures of others to the lines of the documents that state them, as Markdown.

The documents are of one repository, read at one commit; each row of the data names its line.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from analysis import quotes
from analysis.markup import escaped

NOTE = "the note"
_SAME_TABLE = 10  # lines of one table lie no further apart than this


def sweeps() -> pd.DataFrame:
    """Return what the documents say of each sweep, by its name in the data."""
    return quotes.data("public_sweeps.csv").set_index("hardware")


def name(hardware: str) -> str:
    """Return a sweep's short name."""
    return hardware if hardware == NOTE else str(sweeps().at[hardware, "name"])


def address(hardware: str, document: str, first: int, last: int | None = None) -> str:
    """Return the address of lines of a document, at the commit that was read."""
    own = sweeps().loc[hardware]
    lines = f"L{first}" if last in (None, first) else f"L{first}-L{last}"
    return f"https://github.com/{own['repository']}/blob/{own['commit']}/{document}?plain=1#{lines}"


def link(hardware: str, lines: Iterable[int], document: str = "", text: str = "") -> str:
    """Return Markdown links to lines of a document: the sweep's own, unless one is named.

    Lines that lie apart, such as those of two tables, get a link each.
    """
    document = document or str(sweeps().at[hardware, "document"])
    groups: list[list[int]] = []
    for line in sorted({int(n) for n in lines}):
        if groups and line - groups[-1][-1] <= _SAME_TABLE:
            groups[-1].append(line)
        else:
            groups.append([line])
    told = []
    for own in groups:
        to = f"line {own[0]}" if len(own) == 1 else f"lines {own[0]} to {own[-1]}"
        shown = text or f"{document.rsplit('/', 1)[-1]}, {to}"
        told.append(f"[{escaped(shown)}]({address(hardware, document, own[0], own[-1])})")
    return ", ".join(told)


def sources(rows: pd.DataFrame) -> str:
    """Return the line under a figure: a link for each sweep to the lines of these rows."""
    told = [
        link(str(hardware), own["line"], text=name(str(hardware)))
        for hardware, own in rows.groupby("hardware", sort=False)
    ]
    return f"Source lines: {', '.join(told)}; the note: note 002, its table."
