"""Publishing: folder, archive and manifest agree, and the workflows do no more than that."""

import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis import publish, series
from analysis.publish import Commit, PublishError

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
COMMIT = Commit("c" * 40, 1_700_000_000)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """Return a folder like that of a built book."""
    html = tmp_path / "html"
    (html / "book").mkdir(parents=True)
    (html / "index.html").write_text("first")
    (html / "book" / "page.html").write_text("a page")
    return html


def sizes(folder: Path) -> dict[str, int]:
    files = [p for p in folder.rglob("*") if p.is_file()]
    return {p.relative_to(folder).as_posix(): p.stat().st_size for p in files}


def test_the_manifest_lists_every_file_and_the_archive_holds_the_same(
    html: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The book itself, as built once for all tests."""
    monkeypatch.setattr(series, "build_book", lambda **_: html / "index.html")
    monkeypatch.setattr(publish, "at", lambda _: COMMIT)
    target = publish.publish(tmp_path / "publish")
    site = target / publish.SITE
    told = json.loads((site / "manifest.json").read_text())
    there = {
        p.relative_to(site).as_posix(): p.stat().st_size for p in site.rglob("*") if p.is_file()
    }
    assert {n: f["bytes"] for n, f in told["files"].items()} == {
        n: size for n, size in there.items() if n != "manifest.json"
    }
    assert {"index.html", "book/index.html", "search.html", ".nojekyll"} <= set(told["files"])
    assert (told["commit"], told["committed"]) == (COMMIT.name, "2023-11-14T22:13:20Z")
    assert told["bytes"] == sum(f["bytes"] for f in told["files"].values())
    with tarfile.open(target / publish.ARCHIVE) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
        assert {m.mtime for m in tar.getmembers()} == {COMMIT.seconds}
    unpacked = tmp_path / "unpacked" / publish.SITE
    assert {p.relative_to(unpacked).as_posix() for p in unpacked.rglob("*") if p.is_file()} == set(
        there
    )


def test_the_same_files_give_the_same_archive(built: Path, tmp_path: Path) -> None:
    archives = []
    for name in ("one", "two"):
        publish.write(built, tmp_path / name, COMMIT)
        publish.check(tmp_path / name)
        archives.append((tmp_path / name / publish.ARCHIVE).read_bytes())
        (built / "index.html").touch()
    assert archives[0] == archives[1]


@pytest.mark.parametrize("change", ["changed", "added", "gone", "archive"])
def test_what_is_not_as_the_manifest_says_is_refused(
    built: Path, tmp_path: Path, change: str
) -> None:
    target = tmp_path / "publish"
    publish.write(built, target, COMMIT)
    page = target / publish.SITE / "book" / "page.html"
    if change == "added":
        page.with_name("new.html").touch()
    elif change == "gone":
        page.unlink()
    elif change == "changed":
        page.write_text("another")
    else:
        kept = page.read_text()
        page.write_text("another")
        publish._pack(target / publish.SITE, target / publish.ARCHIVE, COMMIT)
        page.write_text(kept)
    with pytest.raises(PublishError, match=r"(?:folder|archive) is not what.*html"):
        publish.check(target)


def test_only_a_commit_is_published(tmp_path: Path) -> None:
    """A manifest names a commit: what no commit holds is refused by name."""

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", *who, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    with pytest.raises(PublishError, match="the commit is not known"):
        publish.at(tmp_path)
    git("init", "-q")
    (tmp_path / "page.md").write_text("one")
    with pytest.raises(PublishError, match=r"in no commit.*page\.md"):
        publish.at(tmp_path)
    git("add", ".")
    git("commit", "-qm", "one")
    assert publish.at(tmp_path).name == git("rev-parse", "HEAD")
    (tmp_path / "page.md").write_text("two")
    with pytest.raises(PublishError, match=r"in no commit.*page\.md"):
        publish.at(tmp_path)


def steps(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def planned(target: str) -> str:
    """Return the commands that a target would run, everything that it needs included."""
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", target], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_workflows_call_what_the_project_has_with_pinned_actions(path: Path) -> None:
    runs = [step["run"] for step in steps(path) if "run" in step]
    for line in runs:
        if line != ".ci/run":
            assert re.fullmatch(r"make [a-z]+", line), line
            planned(line.split()[1])
    actions = [step["uses"] for step in steps(path) if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", action) for action in actions), actions
    assert runs


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_workflows_may_only_read_but_for_the_deployment(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    more = {n: j["permissions"] for n, j in workflow["jobs"].items() if "permissions" in j}
    assert more in ({}, {"deploy": {"pages": "write", "id-token": "write"}})


def test_publishing_measures_nothing_and_builds_no_engine() -> None:
    measuring = re.compile(r"specdepth run|engines\.build|pytest")
    assert measuring.search(planned("book"))
    commands = [s["run"] for s in steps(ROOT / ".github/workflows/publish.yml") if "run" in s]
    assert commands == ["make publish"]
    assert not measuring.search(planned("publish"))
    assert "specdepth publish" in planned("publish")
