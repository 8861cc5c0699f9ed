"""What in a folder tells of a person or of a machine's inside: paths, hosts, addresses, keys."""

from __future__ import annotations

import getpass
import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from analysis.folders import project_root

_PATTERNS = {
    "a path of somebody's home": re.compile(
        r"(?:/(?:home|Users|root)/|[A-Za-z]:(?:\\\\|\\|/)Users(?:\\\\|\\|/))[\w.~-]+"
    ),
    "a path of a temporary folder": re.compile(r"/(?:tmp|var/folders|private/tmp)/[\w.-]+"),
    "an e-mail address": re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    "an address of a network": re.compile(
        r"(?<![\d.])(?!127\.0\.0\.1\b|0\.0\.0\.0\b)"
        r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.-])"
    ),
    "a key": re.compile(r"(?:Bearer\s+|--api-key[\s=]|LLAMA_API_KEY=)[\w-]{8,}"),
}
# Names that say nothing, or that are words of the pages.
_COMMON = {"root", "user", "localhost", "machine", "runner", "ubuntu", "debian", "docker", "box"}
_SHORTEST = 4  # shorter names are found in words everywhere
_TEXT = {".jsonl", ".json", ".ipynb", ".md", ".txt", ".yml", ".yaml", ".csv", ".svg"}


def own_names() -> set[str]:
    """Return the names of this machine and of its user, where they tell anything.

    A name that is a word of the notebooks' own, such as `server`, tells nothing.
    """
    names = set()
    with suppress(OSError, KeyError):
        names |= {socket.gethostname(), socket.gethostname().partition(".")[0], getpass.getuser()}
    base = project_root()
    sources = "".join(readable(p) for p in (base / "notebooks").glob("*.ipynb")) if base else ""
    said = {w.lower() for w in re.findall(r"\w+", sources)} | _COMMON
    return {n for n in names if len(n) >= _SHORTEST and n.lower() not in said}


def traces(text: str, names: set[str] | None = None) -> list[tuple[str, str]]:
    """Return (what it is, the text found), each once, in their order."""
    found = [(what, m.group()) for what, p in _PATTERNS.items() for m in p.finditer(text)]
    found += [
        ("the name of this machine or of its user", name)
        for name in sorted(own_names() if names is None else names)
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
    ]
    return list(dict.fromkeys(found))


def readable(file: Path) -> str:
    """Return what a file says in words; pictures inside a notebook say nothing."""
    if file.suffix not in _TEXT:
        return ""
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix != ".ipynb":
        return text
    try:
        return "\n".join(_words(json.loads(text)))
    except ValueError:
        return text


def _words(value: Any) -> Iterator[str]:
    """Yield all texts of a notebook but those of pictures."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not key.startswith("image/") or key == "image/svg+xml":
                yield from _words(inner)
    elif isinstance(value, list):
        joined = "".join(value) if value and all(isinstance(v, str) for v in value) else None
        if joined is None:
            for inner in value:
                yield from _words(inner)
        else:
            yield joined
