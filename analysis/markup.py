"""Text from models, logs, file names and contributed folders, made safe for a page."""

from __future__ import annotations

import html


def escaped(text: str) -> str:
    """Return text that Markdown shows as it stands."""
    safe = html.escape(text, quote=False)
    for sign in "\\`*_[]|":
        safe = safe.replace(sign, f"\\{sign}")
    return safe
