"""The table of contents of a book of several machines."""

from pathlib import Path

import yaml

from analysis import contents, series

ROOT = Path(__file__).resolve().parent.parent


def captions(there: dict[str, tuple[str, ...]]) -> dict[str, list[str]]:
    given = yaml.safe_load((ROOT / "_toc.yml").read_text())
    made = contents.by_machine(given, there)
    assert {**made, "parts": 0} == {**given, "parts": 0}
    return {
        part["caption"]: [chapter["file"] for chapter in part["chapters"]] for part in made["parts"]
    }


def test_one_machine_has_one_part() -> None:
    made = captions({"box": series.NOTEBOOKS})
    assert made["Claims, measured"] == [f"book/machines/box/{n}" for n in series.NOTEBOOKS]


def test_of_several_machines_each_has_its_own_part_with_the_pages_it_has() -> None:
    made = captions({"a": series.NOTEBOOKS, "b-quick": ("drafters", "depth_sweep"), "c": ()})
    assert list(made)[:4] == [
        "Start", "Claims, measured: a", "Claims, measured: b-quick", "Your card",
    ]  # fmt: skip
    assert made["Claims, measured: b-quick"] == [
        "book/machines/b-quick/depth_sweep", "book/machines/b-quick/drafters",
    ]  # fmt: skip


def test_without_machines_the_other_parts_stay() -> None:
    assert list(captions({})) == ["Start", "Your card", "Elsewhere", "About"]


def test_pages_are_found_by_machine(tmp_path: Path) -> None:
    for name in ("b/drafters.ipynb", "a/depth_sweep.ipynb", "a/acceptance_decay.ipynb", "a/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert contents.pages(tmp_path) == {
        "a": ("acceptance_decay", "depth_sweep"), "b": ("drafters",),
    }  # fmt: skip
