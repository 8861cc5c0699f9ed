"""The book's table of contents: the pages that are there, those of several machines by machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

EVERY = "book/machines/*/"  # how `_toc.yml` names a page of every machine


def pages(machines: Path) -> dict[str, tuple[str, ...]]:
    """Return the executed pages of each machine, by name."""
    found: dict[str, tuple[str, ...]] = {}
    for path in sorted(machines.glob("*/*.ipynb")):
        found[path.parent.name] = (*found.get(path.parent.name, ()), path.stem)
    return found


def by_machine(contents: Mapping[str, Any], there: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return a table of contents with a part for each machine instead of one for all of them.

    `contents` is `_toc.yml` as read, and `there` names the pages of each machine. Of several
    machines, the pages of one would stand between those of the others, under the same titles. A
    page that no machine has is left out, which would otherwise stop the build.
    """
    parts: list[dict[str, Any]] = []
    for part in contents["parts"]:
        wanted = [c["glob"].removeprefix(EVERY) for c in part["chapters"] if EVERY in str(c)]
        if len(wanted) < len(part["chapters"]):
            parts.append(part)
            continue
        for name, has in there.items():
            files = [
                {"file": f"{EVERY.replace('*', name)}{page}"} for page in wanted if page in has
            ]
            caption = part["caption"] if len(there) == 1 else f"{part['caption']}: {name}"
            if files:
                parts.append({"caption": caption, "chapters": files})
    return {**contents, "parts": parts}
