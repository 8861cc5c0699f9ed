"""Checksums of files that may be large, remembered by size and time.

A file that is mostly a hole, as a shape without weights is, is not read whole: its checksum is that
of its size and of its blocks that are not all zeros, with their places. That names its content as
surely as a plain SHA-256 does, whatever blocks the file system happens to keep. A copy whose holes
were filled with zeros gets the plain one: runs of the two files are then not joined, and nothing
else follows from it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

BLOCK_BYTES = 4 * 2**20
SPARSE_BYTES = 2**16  # of the blocks of a file with holes


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


def _plain(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := _read(stream, BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _read(stream: IO[bytes], count: int) -> bytes:
    return stream.read(count)


def _segments(file: Path, size: int) -> list[tuple[int, int]]:
    """Return where a file has data, by start and end; all of it where that can not be told."""
    if not hasattr(os, "SEEK_DATA"):
        return [(0, size)]
    found: list[tuple[int, int]] = []
    with file.open("rb") as stream:
        end = 0
        while end < size:
            try:
                start = os.lseek(stream.fileno(), end, os.SEEK_DATA)
                end = os.lseek(stream.fileno(), start, os.SEEK_HOLE)
            except OSError as error:
                return found if error.errno == errno.ENXIO else [(0, size)]
            found.append((start, end))
    return found


def _sparse(file: Path, segments: list[tuple[int, int]]) -> str:
    """Return the checksum of a file's size and of its blocks that are not zeros, with places."""
    digest = hashlib.sha256(f"sparse {file.stat().st_size}".encode())
    places = {
        place
        for start, end in segments
        for place in range(start // SPARSE_BYTES, -(-end // SPARSE_BYTES))
    }
    with file.open("rb") as stream:
        for place in sorted(places):
            stream.seek(place * SPARSE_BYTES)
            block = _read(stream, SPARSE_BYTES)
            if block.strip(b"\0"):
                digest.update(f"\n{place} {len(block)}\n".encode() + block)
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
        segments = _segments(file, stat.st_size)
        kept = sum(end - start for start, end in segments)
        known[key] = _sparse(file, segments) if 2 * kept < stat.st_size else _plain(file)
        with suppress(OSError):  # a full or read-only disk costs reading the file again
            cache.parent.mkdir(parents=True, exist_ok=True)
            aside = cache.with_suffix(f".{os.getpid()}")
            aside.write_text(json.dumps(known))
            aside.replace(cache)
    return known[key]
