"""All machines, and the status of their pages and samples."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import gallery, gallery_tables, manifest, page_links, series, status, store
from analysis.errors import StoreError
from analysis.store import Recorded
from tests.conftest import written

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
Make = Callable[..., Recorded]


def test_every_machine_is_in_the_gallery(two: Path, make_recorded: Make) -> None:
    bare = written(make_recorded({0: 50.0, 1: 60.0}), two, "bare-box")
    recorded = store.read(bare)
    other = dataclasses.replace(recorded.run, notebook="drafters", run="drafters-" + "k" * 12)
    bare.write_text(bare.read_text().replace(recorded.run.run, other.run))
    bare = bare.rename(bare.with_name(f"{other.run}.jsonl"))
    bare.write_text(bare.read_text().replace('"notebook": "depth_sweep"', '"notebook": "drafters"'))
    listed, cards = gallery_tables.overview(two), gallery_tables.cards(two)
    assert "| depth 2 |" in listed
    assert "undecided: 0 or 1" in listed
    assert "no depth sweep" in listed
    for name in ("clear-box", "noisy-box", "bare-box"):
        assert f"[{name}](#machine-{name})" in listed
        assert f"(machine-{name})=\n## {name}" in cards
    assert "version: 1 (abcdef0)" in cards
    assert cards.count("| work | depth |") == 2
    assert "vary by more than 5% between launches" in cards
    assert "| pages | none |" in cards


def test_what_a_machine_says_of_itself_is_shown_and_never_read(
    make_recorded: Make, tmp_path: Path
) -> None:
    recorded = make_recorded({0: 50.0, 1: 60.0})
    bad = recorded.run.machine | {"cpu": "<script>x</script> | `a`\n## b", "system": "[a](b)"}
    odd = dataclasses.replace(recorded, run=dataclasses.replace(recorded.run, machine=bad))
    written(odd, tmp_path, "odd-box")
    for text in (gallery_tables.overview(tmp_path), gallery_tables.cards(tmp_path)):
        assert "<script>" not in text
        assert "\n## b" not in text
        assert "[a](b)" not in text


def test_links_lead_to_pages_that_are_there() -> None:
    name = gallery.names(BOOK / "machines")[0]
    assert (BOOK / page_links.link(name, "depth_sweep")).is_file()
    assert page_links.link("no-such-box", "depth_sweep") == ""
    assert page_links.links("no-such-box") == "none"
    assert set(page_links.TITLES) == set(series.NOTEBOOKS)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of a published machine's sweep, with a manifest of its own."""
    source = BOOK / "machines" / gallery.names(BOOK / "machines")[0]
    folder = tmp_path / source.name
    (folder / "samples").mkdir(parents=True)
    shutil.copy(source / "depth_sweep.ipynb", folder)
    shutil.copy(gallery.runs(source)[0].path, folder / "samples")
    manifest.write(folder)
    return folder


def test_the_status_tells_when_how_and_with_what(copied: Path) -> None:
    (page,) = status.pages(copied.parent)
    made = json.loads((copied / "depth_sweep.ipynb").read_text())["metadata"]["specdepth"]
    assert (page.started, page.duration_s) == (made["started"], made["duration_s"])
    assert page.whole
    assert page.parameters["machine"] == copied.name
    (row,) = status.measured(copied.parent).to_dict("records")
    assert row["complete"] == "yes"
    assert row["requests"] == len(gallery.runs(copied)[0].done())
    shown = status.versions(copied.parent)[copied.name]
    assert shown["pandas"] == gallery.runs(copied)[0].run.packages["pandas"]
    files = status.checksums(copied.parent)
    assert status.verdict(files) == "All 2 files are as their manifests have them."
    told = status.executed([page], lambda *_: "")
    assert "| yes |" in told
    assert str(copied.parent) not in told + status.shown(files)


def test_a_file_that_changed_is_shown_as_changed(copied: Path) -> None:
    (samples,) = copied.glob("samples/*.jsonl")
    lines = samples.read_text().splitlines()
    samples.write_text("\n".join(lines[:-1]) + "\n")
    (copied / "more.txt").write_text("x")
    files = status.checksums(copied.parent)
    states = files.reset_index().set_index("file")["state"]
    assert "changed since" in states[f"samples/{samples.name}"]
    assert "does not know it" in states["more.txt"]
    assert states["depth_sweep.ipynb"] == "as in the manifest"
    assert status.verdict(files).startswith("**2 of 3 files are not as")
    (copied / "depth_sweep.ipynb").unlink()
    assert "it is gone" in status.verdict(status.checksums(copied.parent))
    (copied / manifest.NAME).unlink()
    assert "as in the manifest" not in set(status.checksums(copied.parent)["state"])


def test_a_page_that_broke_off_is_not_complete(copied: Path) -> None:
    path = copied / "depth_sweep.ipynb"
    content = json.loads(path.read_text())
    code = [c for c in content["cells"] if c["cell_type"] == "code"]
    code[-1]["execution_count"] = None
    path.write_text(json.dumps(content))
    assert not status.read(path, "x").whole
    path.write_text("{}")
    assert not status.read(path, "x").whole
    assert "did not run through" in status.executed([status.read(path, "x")], lambda *_: "")


@pytest.mark.parametrize("ends_in", ["a request", "a round"])
def test_samples_that_lack_requests_are_told(copied: Path, ends_in: str) -> None:
    (samples,) = copied.glob("samples/*.jsonl")
    lines = samples.read_text().splitlines()
    last = next(i for i, line in enumerate(lines) if '"round":4' in line)
    samples.write_text("\n".join(lines[: last if ends_in == "a round" else last // 2]) + "\n")
    (row,) = status.measured(copied.parent).to_dict("records")
    assert "requests are there" in row["complete"]


def test_a_quick_run_is_named_to_who_asks_for_the_full_one(tmp_path: Path) -> None:
    (tmp_path / "box-quick" / "samples").mkdir(parents=True)
    (tmp_path / "box-quick" / "samples" / "depth_sweep-0123456789ab.jsonl").write_text("{}\n")
    with pytest.raises(StoreError, match="its quick run is box-quick"):
        gallery.machine("box", tmp_path)
