"""The book as a folder and an archive that any static host can serve, with what they hold."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis import manifest, pages, series
from analysis.errors import SpecDepthError

SITE, ARCHIVE = "site", "specdepth-book.tar.gz"
FORMAT = 1


class PublishError(SpecDepthError):
    """The book can not be published as it is."""


@dataclass(frozen=True)
class Commit:
    """What is published: the commit that the work tree is at, and its time in UTC."""

    name: str
    seconds: int  # since 1970

    @property
    def time(self) -> str:
        """The time as text."""
        return datetime.fromtimestamp(self.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def publish(target: Path | None = None) -> Path:
    """Build the book and write folder, archive and manifest; return the folder that holds them.

    Nothing is measured. The same commit with the same packages gives the same bytes.

    Raises
    ------
    PublishError
        If a file of the checkout is changed or unknown to git: a manifest that names a commit
        must be true, so there is none of what no commit holds. Or if what was written is not what
        the manifest says.
    """
    base = pages.root()
    commit = at(base)
    target = target or base / "_build" / "publish"
    html = series.build_book(seconds=commit.seconds).parent
    write(html, target, commit)
    check(target)
    return target


def at(base: Path) -> Commit:
    """Return the commit of a clean checkout, or raise."""
    changed = _git(base, "status", "--porcelain", "--untracked-files=all")
    if changed:
        named = [line[3:] for line in changed.splitlines()]
        more = f" and {len(named) - 5} more" if len(named) > 5 else ""
        raise PublishError(
            "what would be published is in no commit",
            ", ".join(named[:5]) + more,
            "commit or remove these files, then publish again",
        )
    name, seconds = _git(base, "log", "-1", "--format=%H %ct").split()
    return Commit(name, int(seconds))


def _git(base: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=base, capture_output=True, text=True)
    except OSError as error:
        raise PublishError("git can not be run", str(error), "install git") from None
    if done.returncode:
        raise PublishError(
            "the commit is not known", done.stderr.strip(), "publish from a clone with git"
        )
    return done.stdout.rstrip()


def write(html: Path, target: Path, commit: Commit) -> None:
    """Write a built book as folder and archive with a manifest; what was there goes."""
    shutil.rmtree(target, ignore_errors=True)
    site = target / SITE
    shutil.copytree(html, site)
    (site / ".nojekyll").touch()  # a host that would else hide names such as _static
    listed = {
        name: {"bytes": (site / name).stat().st_size, "sha256": digest}
        for name, digest in _digests(site).items()
    }
    content = {
        "format": FORMAT,
        "commit": commit.name,
        "committed": commit.time,
        "bytes": sum((site / name).stat().st_size for name in listed),
        "files": listed,
    }
    (site / manifest.NAME).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    _pack(site, target / ARCHIVE, commit)
    digest = hashlib.sha256((target / ARCHIVE).read_bytes()).hexdigest()
    (target / f"{ARCHIVE}.sha256").write_text(f"{digest}  {ARCHIVE}\n", encoding="utf-8")


def _digests(site: Path) -> dict[str, str]:
    return {
        p.relative_to(site).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(site.rglob("*"))
        if p.is_file() and p != site / manifest.NAME
    }


def _pack(site: Path, archive: Path, commit: Commit) -> None:
    """Pack a folder so that the same files give the same bytes: order, times, owners are fixed."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = commit.seconds
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() else 0o644
        return member

    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(p for p in site.rglob("*") if p.is_file()):
            tar.add(path, f"{SITE}/{path.relative_to(site).as_posix()}", filter=plain)


def check(target: Path) -> dict[str, Any]:
    """Read back what was written and return the manifest; folder and archive must both be as it is.

    Raises
    ------
    PublishError
        With the names of files that are missing, added or other than the manifest says.
    """
    site = target / SITE
    told: dict[str, Any] = json.loads((site / manifest.NAME).read_text(encoding="utf-8"))
    listed = {name: entry["sha256"] for name, entry in told["files"].items()}
    with tarfile.open(target / ARCHIVE) as tar:
        packed = {
            member.name.removeprefix(f"{SITE}/"): _digest(tar, member)
            for member in tar.getmembers()
        }
    packed.pop(manifest.NAME, None)
    for where, there in (("the folder", _digests(site)), ("the archive", packed)):
        wrong = sorted(n for n in {*listed, *there} if listed.get(n) != there.get(n))
        if wrong:
            raise PublishError(
                f"{where} is not what its manifest says", ", ".join(wrong[:5]), "publish again"
            )
    return told


def _digest(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    content = tar.extractfile(member)
    return hashlib.sha256(content.read() if content else b"").hexdigest()
