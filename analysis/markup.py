"""Text from models, logs, file names and contributed folders, made safe for a page."""

from __future__ import annotations

import html
import re

# Signs that begin a mark, a link, a column, a formula or a block; not those inside a word or name.
_SIGNS = re.compile(r"[\\`*\[\]|$~]|(?<!\w)_|_(?!\w)|:(?=:)|(?<=:):")


def escaped(text: str) -> str:
    """Return text as one line that Markdown shows as it stands."""
    return _SIGNS.sub(r"\\\g<0>", html.escape(_line(text), quote=False))


def code(text: str) -> str:
    """Return text as one line of code in Markdown; a table takes it too."""
    return f"`{_line(text).replace('`', chr(39)).replace('|', ' ') or ' '}`"


def _line(text: str) -> str:
    """Return text without line breaks, which would end its paragraph, and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
