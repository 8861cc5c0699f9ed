"""Text from models, logs, file names and contributed folders, made safe for a page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

import pandas as pd

_VALUE = r"[-−+]?\d[\d.,]*[×%]?"
_NUMBER = re.compile(rf"{_VALUE}( to {_VALUE})?( \[{_VALUE}, {_VALUE}\])?|–")


def escaped(text: str) -> str:
    """Return text that Markdown shows as it stands, in one line."""
    safe = html.escape(" ".join(text.split()), quote=False)
    for sign in "\\`*_[]|":
        safe = safe.replace(sign, f"\\{sign}")
    return safe


def table(frame: pd.DataFrame, links: Iterable[str] = ()) -> str:
    """Return a table as Markdown; cells of the columns `links` are Markdown already.

    Columns of numbers, with or without an interval, stand to the right. No row is left out and
    no text is cut, as pandas does.
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
        if place >= len(names) and all(_NUMBER.fullmatch(row[place]) for row in rows)
        else "---"
        for place in range(len(head))
    ]
    lines = [f"| {' | '.join(map(escaped, head))} |", f"|{'|'.join(marks)}|"]
    for row in rows:
        cells = (escaped(c) if p else c for c, p in zip(row, plain, strict=True))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
