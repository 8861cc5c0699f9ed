"""A machine's folder as somebody else may send it: what is wrong with it is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from analysis import contribution, manifest, personal, series
from analysis.cli import app

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = sorted(p.parent for p in (ROOT / "book" / "machines").glob("*/manifest.json"))
RUNS = "depth_sweep-*.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a published machine's folder, without its logs."""
    source = next(p for p in PUBLISHED if not p.name.endswith("-quick"))
    copy = tmp_path / source.name
    # One run without steps and one with them are enough, and are read in a moment.
    others = ["why_deeper_loses-*", "memory_eviction-*", "drafters-*", "plans", "logs", "failed"]
    traced = sorted((source / "samples" / "steps").glob("acceptance_decay-*.jsonl"))
    others += [p.name for p in traced[1:]]
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(*others))
    manifest.write(copy)
    return copy


@pytest.mark.parametrize("machine", PUBLISHED, ids=lambda p: p.name)
def test_what_is_published_has_nothing_wrong(machine: Path) -> None:
    found = contribution.examine(machine)
    assert [str(p) for p in found.problems] == []
    assert set(found.pages) == set(series.NOTEBOOKS)


def edit_line(file: Path, kind: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the last record of a kind in a samples file."""
    lines = file.read_text().splitlines()
    place = max(i for i, x in enumerate(lines) if json.loads(x)["kind"] == kind)
    record = json.loads(lines[place])
    change(record)
    lines[place] = json.dumps(record)
    file.write_text("\n".join(lines) + "\n")


def edit_page(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    notebook = json.loads(file.read_text())
    change(notebook)
    file.write_text(json.dumps(notebook))


def run_of(folder: Path) -> Path:
    return sorted((folder / "samples").glob(RUNS))[0]


def traced_of(folder: Path) -> Path:
    return sorted((folder / "samples" / "steps").glob("acceptance_decay-*.jsonl"))[0]


def code_of(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [c for c in notebook["cells"] if c["cell_type"] == "code"]


def sample(**values: Any) -> Callable[[Path], Any]:
    return lambda f: edit_line(run_of(f), "sample", lambda r: r.update(values))


def facts(**values: Any) -> Callable[[Path], Any]:
    return lambda f: edit_line(run_of(f), "run", lambda r: r.update(values))


def page(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    return lambda f: edit_page(f / "depth_sweep.ipynb", change)


def said(text: str) -> Callable[[Path], Any]:
    """Put a text into an output of a page, as a warning of a program would be."""
    out = {"output_type": "stream", "name": "stdout", "text": [f"{text}\n"]}
    return page(lambda n: code_of(n)[-1]["outputs"].append(out))


def cut(folder: Path) -> None:
    file = run_of(folder)
    file.write_bytes(file.read_bytes()[:-40])


def damage(folder: Path) -> None:
    file = run_of(folder)
    lines = file.read_bytes().split(b"\n")
    lines[5] = lines[5][:50]
    file.write_bytes(b"\n".join(lines))


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a speed made better": (sample(predicted_ms=1.0), "changed since the manifest was written"),
    "a time that is text": (sample(predicted_ms="fast"), "is no number"),
    "no time at all": (sample(predicted_ms=0.0), "were decoded in 0.0 ms"),
    "a model without a name": (
        lambda f: edit_line(run_of(f), "run", lambda r: r.update(model={"sha256": "0" * 64})),
        "its records are odd"),
    "a workload of no form": (sample(workload={}), "its records are odd"),
    "a run beside the logs": (
        lambda f: (f / "samples" / "logs.jsonl").write_text("{}"), "logs.jsonl: the manifest does"),
    "a page beside the failed": (
        lambda f: shutil.copy(f / "depth_sweep.ipynb", f / "failed_x.ipynb"), "failed_x.ipynb"),
    "a time that is no number": (sample(predicted_ms=float("nan")), "is no number"),
    "no tokens": (sample(predicted_n=0), "no token was decoded"),
    "more accepted than drafted": (
        sample(draft_n=1, draft_n_accepted=2), "2 of 1 drafted tokens were accepted"),
    "steps that do not follow": (sample(steps=1), "1 steps do not follow"),
    "a sample of another run": (sample(run="depth_sweep-0123456789ab"), "it is of another run"),
    "a sample without its launch": (sample(launch="r9", round=9), "its launch is not there"),
    "another machine": (
        lambda f: edit_line(run_of(f), "run", lambda r: r["machine"].update(name="other")),
        "runs of a machine called other"),
    "another processor": (
        lambda f: edit_line(run_of(f), "run", lambda r: r["machine"].update(cpu="other")),
        "2 different machines"),
    "another model": (
        lambda f: edit_line(run_of(f), "run", lambda r: r["model"].update(name="other.gguf")),
        "several models"),
    "no checksum of the model": (
        lambda f: edit_line(run_of(f), "run", lambda r: r["model"].update(sha256="?")),
        "its model's checksum is none"),
    "no engine": (facts(engine={}), "which engine"),
    "a later format": (facts(format=99), "is of format 99"),
    "a file of another name": (
        lambda f: run_of(f).rename(f / "samples" / "depth_sweep-aaaaaaaaaaaa.jsonl"),
        "the run calls itself"),
    "a torn line": (cut, "interrupted write"),
    "a damaged line": (damage, "is damaged"),
    "a run that never began": (
        lambda f: (f / "samples" / "depth_sweep-aaaaaaaaaaaa.jsonl").touch(), "holds nothing yet"),
    "a failed request": (sample(error="it broke"), "requests failed"),
    "steps that are gone": (lambda f: traced_of(f).unlink(), "traced samples have no steps"),
    "a page out of order": (
        page(lambda n: code_of(n)[2].update(execution_count=99)), "did not run in their order"),
    "a page with an error": (
        page(lambda n: code_of(n)[1]["outputs"].append(
            {"output_type": "error", "ename": "E", "evalue": "", "traceback": []})),
        "ended in an error"),
    "a page of another source": (
        page(lambda n: code_of(n)[-1].update(source="print(1)")), "not this book's notebook"),
    "a page that is no notebook": (
        lambda f: (f / "depth_sweep.ipynb").write_text("{}"), "can not be read"),
    "a page of no claim": (
        lambda f: shutil.copy(f / "depth_sweep.ipynb", f / "extra.ipynb"), "no page of this book"),
    "a home": (said("loaded /home/somebody/models/x.gguf"), "a path of somebody's home"),
    "a home of Windows": (said(r"C:\Users\somebody\x"), "a path of somebody's home"),
    "an address": (said("listening on 192.168.1.20:8080"), "an address of a network"),
    "a person": (said("by some.body@example.org"), "an e-mail address"),
    "a key": (said("Authorization: Bearer abcdefgh12345678"), "a key"),
    "a program": (lambda f: (f / "run.py").write_text("1"), "no file of a machine's folder"),
    "a link": (lambda f: (f / "x.json").symlink_to("/etc/hostname"), "a link"),
    "a large file": (
        lambda f: (f / "x.json").write_bytes(b" " * (17 * 2**20)), "larger than 16 MiB"),
    "a file that is gone": (lambda f: (f / "depth_sweep.png").unlink(), "it is gone"),
    "no manifest": (lambda f: (f / manifest.NAME).unlink(), "there is none"),
    "a broken manifest": (lambda f: (f / manifest.NAME).write_text("["), "can not be read"),
    "no depth sweep": (lambda f: run_of(f).unlink(), "no depth sweep"),
}  # fmt: skip


@pytest.mark.parametrize(("fault", "told"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found(folder: Path, fault: Callable[[Path], Any], told: str) -> None:
    fault(folder)
    problems = [str(p) for p in contribution.examine(folder).problems]
    assert any(told in p for p in problems), problems
    assert all("Next: " in p for p in problems)


def test_a_folder_that_was_renamed_is_told_once(folder: Path) -> None:
    moved = folder.rename(folder.with_name("other-box"))
    (problem,) = contribution.examine(moved).problems
    assert str(problem) == (
        f"other-box: runs of a machine called {folder.name}. Next: call the folder {folder.name}."
    )


def test_requests_of_a_launch_that_was_killed_are_no_fault_once_it_was_made_again(
    folder: Path,
) -> None:
    sample(launch="killed")(folder)
    manifest.write(folder)
    assert contribution.examine(folder).problems == ()


def test_a_faulty_folder_ends_the_command_with_1_and_changes_nothing(folder: Path) -> None:
    FAULTS["a torn line"][0](folder)
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    done = CliRunner().invoke(app, ["check", str(folder)])
    assert done.exit_code == 1
    assert "interrupted write" in done.output
    assert before == {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_sound_folder_ends_the_command_with_0(folder: Path) -> None:
    done = CliRunner().invoke(app, ["check", str(folder), "--no-pages", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["problems"] == []
    assert all(n > 0 for n in told["runs"].values())


def test_no_folder_is_told(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["check", str(tmp_path / "nothing")])
    assert done.exit_code == 1
    assert "there is no such folder" in done.output


@pytest.mark.parametrize("name", ["conftest.py", "sitecustomize.py", "analysis.py", "__init__.py"])
def test_nothing_in_a_folder_is_executed(
    folder: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "ran"
    (folder / name).write_text(f"open({str(marker)!r}, 'w').close()\n")
    code = f"open({str(marker)!r}, 'w').close()"
    edit_page(folder / "depth_sweep.ipynb", lambda n: code_of(n)[1].update(source=code))
    monkeypatch.chdir(folder)
    contribution.examine(folder)
    assert not marker.exists()


@pytest.mark.parametrize(
    "name", [".DS_Store", ".ipynb_checkpoints/x.ipynb", "samples/x.torn", "samples/logs/a/s.log"]
)
def test_what_stays_on_the_machine_is_no_problem(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("/home/somebody")
    assert contribution.examine(folder).problems == ()


def test_a_kernels_version_is_no_address_and_a_word_of_the_pages_no_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert personal.traces("Linux 5.15.153.1-microsoft-standard-WSL2", set()) == []
    monkeypatch.setattr("socket.gethostname", lambda: "server")
    assert "server" not in personal.own_names()
    monkeypatch.setattr("socket.gethostname", lambda: "quietbox17.lan")
    assert {"quietbox17", "quietbox17.lan"} <= personal.own_names()


def test_a_folder_of_an_odd_name_is_told(folder: Path) -> None:
    odd = folder.rename(folder.with_name("<b>box"))
    told = [str(p) for p in contribution.examine(odd).problems]
    assert any("must be lower-case letters, digits" in text for text in told)


def test_a_picture_and_loopback_tell_nothing() -> None:
    assert personal.traces("http://127.0.0.1:8080, b10741, 0.3.36, 1.2.3") == []
    assert personal.traces("measured on fast-box", {"fast-box"}) == [
        ("the name of this machine or of its user", "fast-box")
    ]
    assert personal.traces("breakfast-boxes", {"fast-box"}) == []


def test_pictures_of_a_page_are_not_read(folder: Path) -> None:
    png = {"image/png": "/home/somebody/x", "text/plain": "<Figure>"}
    out = {"output_type": "display_data", "data": png, "metadata": {}}
    edit_page(folder / "depth_sweep.ipynb", lambda n: code_of(n)[-1]["outputs"].append(out))
    text = personal.readable(folder / "depth_sweep.ipynb")
    assert "<Figure>" in text
    assert "/home/somebody" not in text
