import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import store
from analysis.errors import StoreError
from analysis.records import Sample
from tests.conftest import SAMPLE, run_record

WRITE_FOREVER = """
import sys, dataclasses
from pathlib import Path
from analysis import store
from tests.conftest import SAMPLE, run_record
with store.Writer(Path(sys.argv[1]), run_record()) as writer:
    for i in range(10**6):
        writer.add(dataclasses.replace(SAMPLE, prompt_id=str(i)))
"""


def filled(path: Path, count: int = 3) -> Path:
    with store.Writer(path, run_record()) as writer:
        for i in range(count):
            writer.add(dataclasses.replace(SAMPLE, prompt_id=str(i)))
    return path


def test_records_come_back_as_written(tmp_path: Path) -> None:
    recorded = store.read(filled(tmp_path / "a.jsonl"))
    assert recorded.samples[1] == dataclasses.replace(SAMPLE, prompt_id="1")
    assert recorded.run == run_record()
    assert len(recorded.frame()) == 3


def test_opening_again_appends(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.jsonl")
    with store.Writer(path, run_record()) as writer:
        writer.add(dataclasses.replace(SAMPLE, prompt_id="9"))
    assert [s.prompt_id for s in store.read(path).samples] == ["0", "1", "2", "9"]


@pytest.mark.parametrize("cut", [1, 7, 300])
def test_a_torn_last_line_is_set_aside_and_nothing_else_lost(tmp_path: Path, cut: int) -> None:
    path = filled(tmp_path / "a.jsonl")
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    assert len(store.read(path).samples) == 2
    assert "torn" in store.read(path).notes[0]
    with store.Writer(path, run_record()) as writer:
        writer.add(dataclasses.replace(SAMPLE, prompt_id="2"))
    assert path.read_bytes() == content
    assert path.with_suffix(".torn").read_bytes().startswith(b'{"kind":"sample"')


@pytest.mark.parametrize("content", [b"", b'{"kind":"run","format'], ids=["empty", "torn"])
def test_a_run_that_has_not_begun_is_no_run_yet(tmp_path: Path, content: bytes) -> None:
    """Killed while its file was made, or read in that moment by a page of the other runs."""
    path = tmp_path / "depth_sweep-a.jsonl"
    path.write_bytes(content)
    (tmp_path / "depth_sweep-folder.jsonl").mkdir()
    other = filled(tmp_path / "depth_sweep-b.jsonl")
    assert store.files(tmp_path, "depth_sweep") == [other]
    with pytest.raises(StoreError, match=r"holds nothing yet.*run the notebook again"):
        store.read(path)
    assert path.read_bytes() == content
    filled(path)
    assert path.read_bytes() == other.read_bytes()
    assert store.files(tmp_path) == [path, other]


def test_a_killed_writer_loses_no_finished_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    process = subprocess.Popen([sys.executable, "-c", WRITE_FOREVER, str(path)])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (
        path.is_file() and path.read_bytes().count(b"\n") > 20
    ):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    ids = [s.prompt_id for s in store.read(path).samples]
    assert len(ids) >= 20
    assert ids == [str(i) for i in range(len(ids))]
    filled_again = store.Writer(path, run_record())
    filled_again.__exit__()


def test_damage_before_the_last_line_is_named_and_left_alone(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.jsonl")
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2][: len(lines[2]) // 2]
    damaged = b"\n".join(lines)
    path.write_bytes(damaged)
    with pytest.raises(StoreError, match=r"line 3 of a\.jsonl is damaged"):
        store.read(path)
    with pytest.raises(StoreError, match="line 3"):
        store.Writer(path, run_record())
    assert path.read_bytes() == damaged


def test_a_repeated_request_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.jsonl")
    with path.open("ab") as file:
        file.write(path.read_bytes().split(b"\n")[1] + b"\n")
    with pytest.raises(StoreError, match="twice"):
        store.read(path)


def test_a_failed_request_may_be_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with store.Writer(path, run_record()) as writer:
        writer.add(dataclasses.replace(SAMPLE, error="boom"))
        writer.add(SAMPLE)
    recorded = store.read(path)
    assert len(recorded.samples) == 2
    assert recorded.done() == {store.sample_key(SAMPLE)}


def test_another_key_or_machine_can_not_join(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.jsonl")
    with pytest.raises(StoreError, match="key"):
        store.Writer(path, run_record(key="x" * 12))
    other = run_record()
    other.machine["cpu"] = "another"
    with pytest.raises(StoreError, match="processor: cpu and another"):
        store.Writer(path, other)


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.jsonl")
    with store.Writer(path, run_record()), pytest.raises(StoreError, match="another process"):
        store.Writer(path, run_record())


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2', 1))
    with pytest.raises(StoreError, match="format 2"):
        store.read(path)


def test_reading_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Next: run the notebook"):
        store.read(tmp_path / "none.jsonl")


@given(
    st.builds(
        dataclasses.replace,
        st.just(SAMPLE),
        prompt_id=st.text(),
        error=st.none() | st.text(),
        predicted_ms=st.floats(allow_nan=False, allow_infinity=False),
        tokens=st.lists(st.integers(0, 300_000)).map(tuple),
        accepted_per_position=st.none() | st.lists(st.integers(0)).map(tuple),
    )
)
def test_every_sample_survives_the_file(
    tmp_path_factory: pytest.TempPathFactory, sample: Sample
) -> None:
    path = tmp_path_factory.mktemp("s") / "a.jsonl"
    with store.Writer(path, run_record()) as writer:
        writer.add(sample)
    assert store.read(path).samples == (sample,)
    path.unlink()
