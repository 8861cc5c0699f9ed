"""Links between the book's pages: only to pages that are there."""

from __future__ import annotations

from analysis.folders import project_root

TITLES = {
    "depth_sweep": "depth sweep",
    "acceptance_decay": "acceptance decay",
    "memory_eviction": "memory eviction",
    "why_deeper_loses": "why deeper loses",
    "drafters": "drafters",
}


def link(machine: str, notebook: str) -> str:
    """Return the address of a machine's page from the book's folder, or "" where there is none."""
    root = project_root()
    folder = root / "book" / "machines" / machine if root else None
    there = folder is not None and (folder / f"{notebook}.ipynb").is_file()
    return f"machines/{machine}/{notebook}.ipynb" if there else ""


def links(machine: str) -> str:
    """Return links to the pages that a machine has, as Markdown; "none" without any."""
    found = {n: link(machine, n) for n in TITLES}
    return ", ".join(f"[{TITLES[n]}]({where})" for n, where in found.items() if where) or "none"


def data_link(_: str, page: str) -> str:
    """Return the address of a page that is made when the book is built."""
    return f"{page}.ipynb"
