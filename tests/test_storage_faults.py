"""A disk that is full, a clock that is set back, another model, two runs at once."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from analysis import report, series, store
from analysis.errors import SpecDepthError, StoreError
from tests.conftest import SAMPLE
from tests.faults import keyed, measured, spec

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.usefixtures("nothing_left")


FULL_DISK = """
import os, resource, sys
from pathlib import Path
from analysis import sweep
from tests.faults import spec

class Filling:
    # After the first launch no file may grow by more than one sample's line and a half.
    def update(self, done, total, doing):
        files = [*Path(sys.argv[2]).glob("machines/*/samples/*.jsonl")]
        if done == 1:
            size = files[0].stat().st_size + 1000
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    def close(self): ...

from analysis.cli_common import plainly
own = spec(Path(sys.argv[1]), prompts=3)
plainly(lambda: sweep.measure(
    own, "depth_sweep", "here", Path(sys.argv[2]) / "machines", progress=Filling()))()
"""


def test_a_disk_that_is_full_loses_and_repeats_no_sample(fake: Path, tmp_path: Path) -> None:
    """The samples file may not grow any more, in the middle of a sample's line."""
    undisturbed = keyed(measured(spec(fake, prompts=3), tmp_path / "whole"))
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(fake), str(tmp_path)], capture_output=True, text=True
    )
    assert "can not be written. Found: File too large. Next: make room on the disk" in done.stderr
    assert done.returncode == 1
    (file,) = (tmp_path / "machines" / "here" / "samples").glob("*.jsonl")
    assert file.read_bytes().endswith(b"\n")  # the part of a line that found room is out again
    kept = store.read(file)
    assert kept.notes == ()
    assert 0 < len(kept.done()) < len(undisturbed)
    again = measured(spec(fake, prompts=3), tmp_path)
    assert again.samples[: len(kept.samples)] == kept.samples
    assert keyed(again) == undisturbed


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_without_any_room_is_told(fake: Path, tmp_path: Path) -> None:
    with store.Writer(tmp_path / "a.jsonl", measured(spec(fake), tmp_path).run) as writer:
        os.dup2(os.open("/dev/full", os.O_WRONLY), writer._file.fileno())
        with pytest.raises(StoreError, match=r"can not be written.*No space left on device"):
            writer.add(SAMPLE)


def test_a_clock_that_is_set_back_loses_nothing(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock is an hour before the last one; durations do not come from it."""
    hours = itertools.count(1)
    monkeypatch.setattr(
        "analysis.machine.utc_now",
        lambda: (datetime.now(UTC) - timedelta(hours=next(hours))).isoformat(
            timespec="milliseconds"
        ),
    )
    first = measured(spec(fake, rounds=1), tmp_path)
    both = measured(spec(fake, rounds=2), tmp_path)
    assert both.samples[: len(first.samples)] == first.samples
    assert len(keyed(both)) == 4
    starts = [s.started for s in both.samples]
    assert starts == sorted(starts, reverse=True)
    assert all(s.client_ms >= 0 for s in both.samples)
    assert all(x.load_ms > 0 for x in both.launches)
    before = both.path.read_bytes()
    assert measured(spec(fake, rounds=2), tmp_path).path.read_bytes() == before
    assert report.sweep_of(both).depths == (0, 2)


def test_no_duration_is_taken_from_a_clock_that_can_be_set() -> None:
    code = "".join(p.read_text() for p in (ROOT / "analysis").rglob("*.py"))
    assert code.count("datetime.now") == 1  # in machine.utc_now, for the record alone
    assert not re.search(r"time\.time\(|time\.localtime|datetime\.today", code)


def test_a_model_that_changes_is_another_run_and_its_samples_are_not_mixed(
    fake: Path, embedded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file keeps its name and gets another content: the old samples stay as they are."""
    file = tmp_path / "model.gguf"
    content = embedded.read_bytes()
    file.write_bytes(content)
    old = measured(spec(fake, model=str(file)), tmp_path)
    before = old.path.read_bytes()
    file.write_bytes(content + b"\0")
    new = measured(spec(fake, model=str(file)), tmp_path)
    assert old.path.read_bytes() == before
    assert new.path != old.path
    assert new.run.model["sha256"] != old.run.model["sha256"]
    assert len(keyed(new)) == len(keyed(old)) == 2
    with pytest.raises(StoreError, match="different key facts can not be joined"):
        store.check_same(old.run, new.run)
    # The pages of a folder are of one model: the series refuses before it measures anything.
    monkeypatch.setenv("SPECDEPTH_MACHINES", str(tmp_path / "machines"))
    given = {"model": str(file), "server": str(fake)}
    with pytest.raises(SpecDepthError, match=r"here holds results of another model.*model\.gguf"):
        series.run_series(given, "here", ("depth_sweep",))


def test_two_runs_on_one_folder_at_once_are_refused(fake: Path, tmp_path: Path) -> None:
    """Another process measures; this one is told so, and the other goes on."""
    code = f"""
from pathlib import Path
from tests.faults import measured, spec
measured(spec(Path({str(fake)!r})), Path({str(tmp_path)!r}))
"""
    other = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"FAKE_FAULT": "hang"})
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not list(tmp_path.rglob("r0-d0-*.log")):
            time.sleep(0.02)
        with pytest.raises(StoreError, match="is being written by another process"):
            measured(spec(fake), tmp_path)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert len(keyed(measured(spec(fake), tmp_path))) == 2
