"""Checksums of files that may be large, remembered by size and time."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

BLOCK_BYTES = 4 * 2**20


def cache_folder() -> Path:
    """Return the folder for what can be made again: builds, checksums."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "specdepth"


def sha256(files: Sequence[Path]) -> str:
    """Return the SHA-256 of one file, or of the checksums of several in their order."""
    if len(files) == 1:
        return _of_file(files[0])
    digest = hashlib.sha256()
    for file in files:
        digest.update(_of_file(file).encode())
    return digest.hexdigest()


def _of_file(file: Path) -> str:
    stat = file.stat()
    key = f"{file.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"
    cache = cache_folder() / "sha256.json"
    known: dict[str, str] = {}
    if cache.is_file():
        try:
            known = json.loads(cache.read_text())
        except ValueError:
            known = {}
    if key not in known:
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            while block := stream.read(BLOCK_BYTES):
                digest.update(block)
        known[key] = digest.hexdigest()
        cache.parent.mkdir(parents=True, exist_ok=True)
        aside = cache.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps(known))
        aside.replace(cache)
    return known[key]
