"""What is written by hand: the glossary, the sources, the table of contents."""

import ast
import json
import re
from pathlib import Path

import yaml

from analysis import folders, series

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
PROSE = [*sorted(BOOK.glob("*.md")), *sorted((ROOT / "notebooks").glob("*.ipynb"))]


def prose(path: Path) -> str:
    """Return the Markdown of a page's source."""
    if path.suffix == ".md":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def glossary() -> set[str]:
    blocks = re.findall(r"```\{glossary\}\n(.*?)```", (BOOK / "glossary.md").read_text(), re.S)
    return {line for block in blocks for line in block.splitlines() if re.match(r"\S", line)}


def test_terms_are_in_the_glossary_and_the_glossarys_terms_are_used() -> None:
    used: dict[str, str] = {}
    for path in PROSE:
        for shown, target in re.findall(r"\{term\}`([^`<]+?)(?: <([^>]+)>)?`", prose(path)):
            used[target or shown] = path.name
    assert {t: where for t, where in used.items() if t not in glossary()} == {}
    assert glossary() - set(used) == set()


def test_a_page_links_a_term_once() -> None:
    for path in PROSE:
        found = re.findall(r"\{term\}`(?:[^`<]+ <)?([^`<>]+)>?`", prose(path))
        assert len(found) == len(set(found)), path.name


def test_every_citation_resolves_and_every_entry_is_cited() -> None:
    entries = set(re.findall(r"^@\w+\{(\w+),", (BOOK / "references.bib").read_text(), re.M))
    cited = {
        key.strip()
        for path in PROSE
        for keys in re.findall(r"\{cite(?::\w)?\}`([^`]+)`", prose(path))
        for key in keys.split(",")
    }
    assert cited == entries
    assert sum("{bibliography}" in prose(path) for path in PROSE) == 1


def test_sources_in_docstrings_are_in_the_bibliography() -> None:
    entries = (BOOK / "references.bib").read_text().split("\n@")
    dated = re.compile(r"([A-Z][a-z]+)[^.()]{0,80}?[ (]((?:19|20)\d\d)\b(?!-)")
    missing = set()
    for path in (ROOT / "analysis").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)):
                continue
            text = " ".join((ast.get_docstring(node) or "").split())
            for sentence in re.findall(r"[^.;]*[ (](?:19|20)\d\d\b(?!-)", text):
                year = sentence[-4:]
                names = set(re.findall(r"[A-Z][a-z]+", sentence))
                known = any(
                    f"{{{year}}}" in e and names & set(re.findall(r"([A-Z][a-z]+),", e))
                    for e in entries
                )
                if not known and dated.search(sentence):
                    missing.add((path.name, sentence.strip()))
    assert missing == set()


def test_every_page_of_prose_is_in_the_table_of_contents() -> None:
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text())["parts"]
    listed = {Path(c["file"]).name for p in parts for c in p["chapters"] if "file" in c}
    assert {p.stem for p in BOOK.glob("*.md")} <= listed
    assert {*series.DATA_PAGES.values()} <= listed | {"index"}
    assert list(series.DATA_PAGES)[-1] == "status"  # it knows the pages made before it


def test_the_front_page_holds_a_command_to_copy_and_no_typed_result() -> None:
    text = prose(ROOT / "notebooks" / "front_page.ipynb")
    (block,) = re.findall(r"```bash\n(.*?)```", text, re.S)
    assert "specdepth run" in block
    assert not re.search(r"^\$ ", block, re.M)
    assert not re.findall(r"\d+\.\d+", text)
    assert folders.project_root() == ROOT
