"""Gather the training text: free manuals, books and sources out of Debian packages.

Nothing is committed: packages are fetched by the ordinary Debian client into a cache folder and
unpacked there without root. Every document has a kind and falls into the training or the held-out
part by a hash of its name, so the split is the same everywhere.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

CACHE = Path.home() / ".cache" / "specdepth"
HELD_OUT_ONE_IN = 25

MANUALS = {
    "git-doc": "GPL-2",
    "sqlite3-doc": "public domain",
    "postgresql-doc-15": "PostgreSQL",
    "python3.11-doc": "PSF-2",
    "vim-runtime": "Vim",
    "debian-reference-en": "GPL-2+",
    "debian-faq": "GPL-2+",
    "developers-reference": "GPL-2+",
    "debian-policy": "GPL-2+",
    "gnu-standards": "GFDL-1.3+",
}
BOOKS = {
    "bible-kjv": "GPL-2 (the reader program)",
    "bible-kjv-text": "public domain",
    "jargon-text": "public domain",
}
SOURCES = {
    "libpython3.11-stdlib": "PSF-2",
    "libpython3.11-minimal": "PSF-2",
    "python3-aiohttp": "Apache-2.0",
    "python3-click": "BSD-3-Clause",
    "python3-django": "BSD-3-Clause",
    "python3-docutils": "public domain and BSD-2-Clause",
    "python3-flask": "BSD-3-Clause",
    "python3-jinja2": "BSD-3-Clause",
    "python3-networkx": "BSD-3-Clause",
    "python3-nltk": "Apache-2.0",
    "python3-requests": "Apache-2.0",
    "python3-sphinx": "BSD-2-Clause",
    "python3-sqlalchemy": "MIT",
    "python3-tornado": "Apache-2.0",
    "python3-twisted": "MIT",
    "python3-werkzeug": "BSD-3-Clause",
}
WORDS = {"wordnet-base": "WordNet (permissive)"}
PACKAGES = {**MANUALS, **BOOKS, **SOURCES, **WORDS}

VERSE = re.compile(r"^\s+\d+ ")


@dataclass(frozen=True)
class Document:
    """One text with its kind (`bible`, `jargon`, `manual`, `code`) and a stable name."""

    kind: str
    name: str
    text: str

    @property
    def held_out(self) -> bool:
        """Return whether this document is never trained on."""
        return is_held_out(self.name)


def is_held_out(name: str) -> bool:
    """Return whether the document of this name belongs to the held-out part."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0


def fetch(cache: Path = CACHE) -> Path:
    """Download and unpack the packages that are not there yet; return the folder of trees."""
    debs, trees = cache / "text" / "debs", cache / "text" / "trees"
    debs.mkdir(parents=True, exist_ok=True)
    trees.mkdir(parents=True, exist_ok=True)
    missing = [p for p in PACKAGES if not list(debs.glob(f"{p}_*.deb"))]
    if missing:
        subprocess.run(["apt-get", "download", *missing], cwd=debs, check=True)
    for package in PACKAGES:
        if not (trees / package).exists():
            deb = next(debs.glob(f"{package}_*.deb"))
            subprocess.run(["dpkg", "-x", str(deb), str(trees / package)], check=True)
    return trees


def documents(trees: Path) -> Iterator[Document]:
    """Yield every document of the unpacked packages, in a fixed order."""
    yield from _bible(trees)
    yield from _jargon(trees)
    yield from _manuals(trees)
    yield from _code(trees)


def _bible(trees: Path) -> Iterator[Document]:
    """Yield the King James Bible by book, one verse a sentence, one chapter a paragraph."""
    reader = next((trees / "bible-kjv").rglob("bin/bible"))
    data = trees / "bible-kjv-text" / "usr" / "lib"
    chapters: list[str] = []
    raw = subprocess.run(
        [str(reader), "-l100000", "-p", str(data), "gen1:1-rev22:21"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    books: dict[str, list[str]] = {}
    for line in raw.splitlines():
        verse = VERSE.match(line)
        if verse is not None:
            chapters[-1] = f"{chapters[-1]} {line[verse.end() :].strip()}".strip()
        elif line.strip():
            chapters = books.setdefault(line.strip().rpartition(" ")[0], [])
            chapters += [line.strip(), ""]
    for book, chapters in books.items():
        yield Document("bible", f"bible/{book}", "\n\n".join(chapters) + "\n")


def _jargon(trees: Path) -> Iterator[Document]:
    """Yield the Jargon File in pieces of about 20,000 characters."""
    path = trees / "jargon-text" / "usr/share/doc/jargon-text/jargon.txt.gz"
    text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
    paragraphs = [_unwrap(p) for p in re.split(r"\n\s*\n", text)]
    # The table of contents is thousands of single words: start at the first long paragraph.
    start = next(i for i, p in enumerate(paragraphs) if len(p) > 400)
    body = "\n\n".join(paragraphs[start:])
    for i in range(0, len(body), 20000):
        yield Document("jargon", f"jargon/{i // 20000:03d}", body[i : i + 20000])


def _manuals(trees: Path) -> Iterator[Document]:
    for package in MANUALS:
        for path in sorted((trees / package / "usr/share").rglob("*")):
            text = _manual_text(package, path)
            if len(text) > 2000:
                yield Document("manual", f"{package}/{path.name}", text)


def _manual_text(package: str, path: Path) -> str:
    """Return the plain text of one page of a manual, or nothing for other files."""
    if not path.is_file() or path.name.startswith(("changelog", "whatsnew", "release-")):
        return ""
    plain = {"vim-runtime": "/doc/", "git-doc": "/git-doc/", "python3.11-doc": "/_sources/"}
    if package in plain:
        if path.suffix != ".txt" or plain[package] not in str(path) or "RelNotes" in str(path):
            return ""
        return path.read_text("utf-8", "replace")
    if path.suffix == ".html":
        return html_to_text(path.read_text("utf-8", "replace"))
    return ""


def _code(trees: Path) -> Iterator[Document]:
    for package in SOURCES:
        for path in sorted((trees / package).rglob("*.py")):
            name = str(path.relative_to(trees))
            if "/tests/" in name or "/test/" in name or "encodings" in name or "locale" in name:
                continue
            if not path.is_file() or path.is_symlink():
                continue
            text = path.read_text("utf-8", "replace")
            if 1000 < len(text) < 150_000:
                yield Document("code", name, text)


def _unwrap(paragraph: str) -> str:
    return " ".join(paragraph.split())


class _Reader(HTMLParser):
    """Collect the paragraphs of a page; keep the lines of preformatted text."""

    SKIP = frozenset({"script", "style", "head", "nav", "svg", "table", "form"})
    BREAK = frozenset({"p", "div", "li", "dt", "dd", "h1", "h2", "h3", "h4", "pre", "br", "tr"})

    def __init__(self) -> None:
        super().__init__()
        self.skipped, self.pre = 0, 0
        self.parts: list[str] = [""]

    def handle_starttag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        """Open a skipped or preformatted region, or start a paragraph."""
        self.skipped += tag in self.SKIP
        if tag in self.BREAK and not (self.pre and tag == "br"):
            self.parts.append("")
        self.pre += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        """Close what `handle_starttag` opened."""
        self.skipped = max(0, self.skipped - (tag in self.SKIP))
        if tag in self.BREAK:
            self.parts.append("")
        self.pre = max(0, self.pre - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        """Add text to the current paragraph."""
        if not self.skipped:
            self.parts[-1] += data if self.pre else re.sub(r"\s+", " ", data)


def html_to_text(page: str) -> str:
    """Return the paragraphs of an HTML page, separated by blank lines."""
    reader = _Reader()
    reader.feed(page)
    return "\n\n".join(p.strip("\n ") for p in reader.parts if p.strip()) + "\n"
