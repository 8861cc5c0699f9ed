"""Tables of text as Markdown: no row left out, no text cut, numbers to the right."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pandas as pd

from analysis.markup import escaped

_VALUE = r"[-−+×]?\d[\d.,]*[×%]?"
# A number, a range or a number with its interval; a dash or nothing where there is none.
NUMBER = re.compile(rf"{_VALUE}(?: to {_VALUE})?(?: \[{_VALUE}, {_VALUE}\])?|[–-]|")


def markdown(frame: pd.DataFrame, links: Iterable[str] = ()) -> str:
    """Return a table as Markdown; cells of the columns `links` are Markdown already.

    Columns of numbers, with or without an interval, stand to the right. Pandas would leave out
    rows of a long table and cut long text.
    """
    links = set(links)
    names = [str(n or "") for n in frame.index.names]
    head = [*names, *map(str, frame.columns)]
    keys = [index if isinstance(index, tuple) else (index,) for index in frame.index]
    rows = [
        [*map(str, key), *map(str, row)]
        for key, row in zip(keys, frame.itertuples(index=False, name=None), strict=True)
    ]
    plain = [name not in links for name in head]
    marks = [
        "---:"
        if place >= len(names) and all(NUMBER.fullmatch(row[place]) for row in rows)
        else "---"
        for place in range(len(head))
    ]
    lines = [f"| {' | '.join(map(escaped, head))} |", f"|{'|'.join(marks)}|"]
    for row in rows:
        cells = (escaped(c) if p else c for c, p in zip(row, plain, strict=True))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
