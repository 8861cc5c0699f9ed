"""The manifest of a machine's folder: which files there are, with their checksums."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from analysis import records

NAME = "manifest.json"
_LOCAL = ("samples/logs/", "failed/")  # stay on the machine
_LEFT = (".torn", ".partial")


def stays(where: str) -> bool:
    """Tell whether a path in the folder is no part of it: logs, drafts, and hidden files."""
    hidden = any(part.startswith(".") for part in where.split("/"))
    return hidden or where.startswith(_LOCAL) or where.endswith(_LEFT)


def files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file that is contributed, by its path in the folder."""
    found = {}
    for file in sorted(folder.rglob("*")):
        where = file.relative_to(folder).as_posix()
        if file.is_file() and not file.is_symlink() and where != NAME and not stays(where):
            found[where] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def write(folder: Path) -> Path:
    """Write the manifest of what is there now."""
    from analysis import machine

    content = {
        "format": records.FORMAT,
        "written": machine.utc_now(),
        "packages": machine.packages(),
        "files": files(folder),
    }
    target = folder / NAME
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.replace(target)
    return target


def compare(folder: Path, problem: Callable[[str, str, str], Any]) -> Iterator[Any]:
    """Yield a problem for each file that is not as the manifest has it."""
    again = "run `specdepth run` again: it writes the manifest anew"
    try:
        told = json.loads((folder / NAME).read_text(encoding="utf-8"))
        listed, form = dict(told["files"]), int(told["format"])
    except FileNotFoundError:
        yield problem(NAME, "there is none", again)
        return
    except (ValueError, KeyError, TypeError, OSError) as error:
        yield problem(NAME, f"it can not be read ({type(error).__name__})", again)
        return
    if form > records.FORMAT:
        yield problem(NAME, f"format {form}, this version reads up to {records.FORMAT}", "update")
    there = files(folder)
    for name in sorted(set(listed) | set(there)):
        if name not in there:
            yield problem(name, "it is gone", "put it back, or " + again)
        elif name not in listed:
            yield problem(name, "the manifest does not know it", again)
        elif listed[name] != there[name]:
            yield problem(
                name, "it has changed since the manifest was written", "restore it, or " + again
            )
