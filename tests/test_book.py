"""Notebook, series and book, made for real with tiny parameters."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest

from analysis import gallery, manifest, model, pages, report, series, store
from analysis.errors import SpecError
from analysis.pages import SeriesError
from tests.conftest import at_work, execute, interruptible, outputs

ROOT = Path(__file__).resolve().parent.parent
TINY = {
    "rounds": 2, "prompts": 2, "long_prompts": 1, "workloads": ["short", "long"],
    "long_prompt_tokens": 300, "n_predict": 40, "depths": [0, 1], "context": 1024,
    "lossless_prompts": 1, "machine": "tiny-box",
}  # fmt: skip


@pytest.fixture(scope="module")
def executed(machines: Path) -> Path:
    return execute("depth_sweep", TINY, machines)


def test_the_notebook_records_what_its_samples_say(executed: Path) -> None:
    (recorded,) = gallery.runs(executed.parent)
    sweep = report.sweep_of(recorded)
    text = outputs(executed)
    for name in ("short", "long", "mix"):
        found = sweep.verdict(name)
        said = "undecided" if found.recommended is None else f"use depth {found.recommended}"
        where = "the mix of all workloads" if name == "mix" else f"{name} work"
        assert f"For {where} on tiny-box, for prompts like these: {said}" in text
    assert len(sweep.timed) == 2 * 2 * 3
    assert "A quick run: 2 launches a depth instead of 5" in text
    assert {s.prompt_n for s in recorded.samples if s.workload == "long"} == {300}


def test_running_it_again_replays_and_gives_the_same_page(
    executed: Path, machines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEPTH_MACHINES", str(machines))
    monkeypatch.setenv("SPECDEPTH_REPLAY", "1")
    monkeypatch.setenv("SPECDEPTH_SERVER", "/bin/false")
    again = pages.run_notebook("depth_sweep", TINY, tmp_path / "again.ipynb")
    assert outputs(again) == outputs(executed)


def test_nothing_of_this_machine_is_in_the_page(executed: Path, machines: Path) -> None:
    text = executed.read_text()
    assert str(machines) not in text
    assert str(ROOT) not in text
    assert str(Path.home()) + "/" not in text


def test_paths_in_parameters_are_published_as_names() -> None:
    cell = nbformat.v4.new_code_cell(  # type: ignore[no-untyped-call]
        'model = "/srv/my models/x.gguf"\nmachine = "m"\ndepths = [0, 1]\n'
        'server = "../bin/llama-server"\n'
        'server_args = "-ngl 99 --chat-template-file /home/me/t.jinja"'
    )
    cell.metadata["tags"] = ["injected-parameters"]
    text = pages.published(nbformat.v4.new_notebook(cells=[cell]))  # type: ignore[no-untyped-call]
    source = "".join(json.loads(text)["cells"][0]["source"])
    assert source == (
        'model = "x.gguf"\nmachine = "m"\ndepths = [0, 1]\nserver = "llama-server"\n'
        'server_args = ["-ngl", "99", "--chat-template-file", "t.jinja"]'
    )


def test_pages_of_two_machines_share_no_title_and_no_label() -> None:
    source = ROOT / "notebooks" / "depth_sweep.ipynb"
    found = []
    for name in ("one-box", "two-box"):
        notebook = nbformat.read(source, as_version=4)  # type: ignore[no-untyped-call]
        cells = json.loads(pages.published(notebook, name))["cells"]
        labels = [c["metadata"].get("mystnb", {}).get("figure", {}).get("name") for c in cells]
        found.append({"".join(cells[0]["source"]).splitlines()[0], *filter(None, labels)})
    assert len(found[0]) >= 4
    assert not found[0] & found[1]


def test_nbval_replays_the_page_strictly(
    executed: Path, machines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEPTH_MACHINES", str(machines))
    monkeypatch.setenv("SPECDEPTH_REPLAY", "1")
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", "-c",
               str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", str(executed)]  # fmt: skip
    whole = subprocess.run(command, capture_output=True, text=True)
    assert whole.returncode == 0, whole.stdout
    # A published number that no longer follows from its samples must fail.
    (samples,) = executed.parent.glob("samples/*.jsonl")
    content = samples.read_bytes()
    try:
        samples.write_bytes(
            re.sub(rb'"predicted_ms":([\d.]+)', lambda m: b'"predicted_ms":9' + m[1], content)
        )
        changed = subprocess.run(command, capture_output=True, text=True)
    finally:
        samples.write_bytes(content)
    assert changed.returncode == 1


def test_unknown_parameters_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no parameter roundz"):
        pages.run_notebook("depth_sweep", {"roundz": 1}, tmp_path / "x.ipynb")
    assert not list(tmp_path.iterdir())


def test_plain_papermill_runs_from_anywhere_and_refuses_a_mistyped_name(
    tmp_path: Path, executed: Path, machines: Path
) -> None:
    """Parameters as text by -p and -y; the samples of the earlier run answer."""
    del executed
    papermill = [sys.executable, "-m", "papermill", str(ROOT / "notebooks/depth_sweep.ipynb")]
    given = [x for k, v in TINY.items() for x in (["-y", f"{k}: {json.dumps(v)}"])]
    given += ["-p", "machines_folder", str(machines)]
    good = subprocess.run(
        [*papermill, "out.ipynb", *given], cwd=tmp_path, capture_output=True, text=True
    )
    assert good.returncode == 0, good.stderr[-2000:]
    bad = subprocess.run(
        [*papermill, "bad.ipynb", *given, "-p", "promts", "3"], cwd=tmp_path, capture_output=True,
        text=True,
    )  # fmt: skip
    assert bad.returncode != 0
    assert "unknown parameter promts" in bad.stderr


def test_a_failed_run_does_not_touch_the_published_page(tmp_path: Path) -> None:
    target = tmp_path / "depth_sweep.ipynb"
    target.write_text("published")
    with pytest.raises(SeriesError, match="depth_sweep failed"):
        pages.run_notebook("depth_sweep", TINY | {"server": "/bin/false"}, target)
    assert target.read_text() == "published"
    assert (tmp_path / "failed" / "depth_sweep.ipynb").is_file()


def test_a_folder_keeps_to_one_model(
    executed: Path, machines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del executed
    monkeypatch.setenv("SPECDEPTH_MACHINES", str(machines))
    other = tmp_path / "other.gguf"
    other.symlink_to(model.embedded_path())
    with pytest.raises(
        SeriesError, match=r"tiny-box holds results of another model.*tiny-box-NAME"
    ):
        series.run_series(TINY | {"model": str(other)}, "tiny-box")


def test_the_series_writes_page_figure_and_verdict(
    executed: Path, machines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEPTH_MACHINES", str(machines))
    given = {k: v for k, v in TINY.items() if k != "machine"} | {"tolerance": 0.9}
    told: list[tuple[str, float]] = []
    made = series.run_series(
        given, "tiny-box", ("depth_sweep",), answer=lambda s, t: told.append((s.machine, t))
    )
    assert made == [executed]
    assert told == [("tiny-box", 0.9)]
    assert (executed.parent / manifest.NAME).is_file()
    assert (executed.parent / "depth_sweep.png").read_bytes().startswith(b"\x89PNG")


def specdepth(*words: str, machines: Path | None = None) -> subprocess.CompletedProcess[str]:
    more = {"SPECDEPTH_MACHINES": str(machines)} if machines else {}
    return subprocess.run(
        [sys.executable, "-m", "analysis.cli", *words], capture_output=True, text=True,
        env=os.environ | more,
    )  # fmt: skip


def test_the_verdict_command_says_what_the_samples_say(executed: Path, machines: Path) -> None:
    done = specdepth("verdict", "tiny-box", "--json", machines=machines)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    sweep = report.sweep_of(store.read(next(executed.parent.glob("samples/*.jsonl"))))
    for name, depth in said["recommended"].items():
        found = sweep.verdict(name).recommended
        assert depth == ("undecided" if found is None else found)
        for cell in said["workloads"][name]["depths"]:
            parts = cell["tokens_per_step"]["estimate"] / cell["step_ms"]["estimate"]
            assert cell["tok_s"]["estimate"] == pytest.approx(1e3 * parts)
    assert said["warnings"]
    plain = specdepth("verdict", "tiny-box", machines=machines)
    assert "Recommended draft depth" in plain.stdout
    unknown = specdepth("verdict", "no-such-box", machines=machines)
    assert unknown.returncode == 1
    assert "machines: tiny-box" in unknown.stderr


def test_doctor_names_what_it_found_and_fails_where_nothing_can_run() -> None:
    good = specdepth("doctor")
    assert good.returncode == 0, good.stdout
    for word in ("0c1e570", "MTP layers", "qwen35", "draft-mtp", "next: specdepth run --quick"):
        assert word in good.stdout
    bad = specdepth("doctor", "--server", "/bin/false", "--model", "/nowhere.gguf")
    assert bad.returncode == 1
    assert "nowhere.gguf" in bad.stdout
    assert "error:" in bad.stdout


def test_the_book_builds_strictly_with_a_page_for_each_machine(html: Path) -> None:
    assert (html / "index.html").is_file()
    for page in sorted((ROOT / "book" / "machines").glob("*/depth_sweep.ipynb")):
        assert (html / "book" / "machines" / page.parent.name / "depth_sweep.html").is_file()
    front = (html / "book" / "index.html").read_text()
    for name in gallery.names():
        assert name in front


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_series_leaves_nothing_running(tmp_path: Path, number: int) -> None:
    """Ctrl-C in the middle of a request: the command ends, its kernel and server too."""
    words = ["run", "--machine", "long-box", "--notebooks", "depth_sweep"]
    settings = TINY | {"n_predict": 60000, "context": 65536, "server_args": "--ignore-eos"}
    settings.pop("machine")
    given = [x for k, v in settings.items() for x in ("-p", f"{k}={json.dumps(v)}")]
    process = subprocess.Popen(
        [sys.executable, "-m", "analysis.cli", *words, *given],
        env=os.environ | {"SPECDEPTH_MACHINES": str(tmp_path)}, stderr=subprocess.PIPE, text=True,
        preexec_fn=interruptible,
    )  # fmt: skip
    assert at_work(tmp_path)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    try:
        process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        for left in family:
            left.kill()
        raise
    assert process.returncode not in (0, None)
    assert len(family) >= 2  # the kernel and the server
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
