"""The raw samples: one append-only JSON Lines file a run, safe to interrupt at any moment.

The first line is the run's facts; each further line is one record with its `kind`. A line is
written whole and flushed to the disk before the next request starts. A torn last line, all that
an interruption can leave, is set aside in a file of its own and its request is measured again.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.errors import StoreError
from analysis.records import FORMAT, Divergence, Launch, PlannerAnswer, Run, Sample, _Record
from analysis.spec import SweepSpec

KINDS: dict[str, type[_Record]] = {
    "run": Run,
    "launch": Launch,
    "sample": Sample,
    "divergence": Divergence,
    "layout": PlannerAnswer,
}


@dataclass(frozen=True)
class Recorded:
    """The content of one samples file."""

    path: Path
    run: Run
    samples: tuple[Sample, ...] = ()
    launches: tuple[Launch, ...] = ()
    divergences: tuple[Divergence, ...] = ()
    layouts: tuple[PlannerAnswer, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def frame(self) -> pd.DataFrame:
        """Return the samples as a table, one row a request, columns as :class:`Sample`."""
        columns = list(Sample.__dataclass_fields__)
        return pd.DataFrame([s.to_json() for s in self.samples], columns=columns)

    def done(self) -> set[tuple[Any, ...]]:
        """Return the keys of the requests that need not be measured again."""
        return {sample_key(s) for s in self.samples if s.error is None and not s.warm_up}


def files(samples: Path, notebook: str = "*") -> list[Path]:
    """Return the samples files of a notebook; one whose name holds odd signs is none.

    Their names stand on pages, and a folder may come from anybody. A file without its first line
    is none yet: a run is about to begin there, or was killed in that moment.
    """
    found = sorted(samples.glob(f"{notebook}-*.jsonl"))
    plain = [path for path in found if re.fullmatch(r"[\w.-]+", path.name, re.ASCII)]
    return [path for path in plain if path.is_file() and _begun(path)]


def _begun(path: Path) -> bool:
    with path.open("rb") as file:
        return file.readline().endswith(b"\n")


def sample_key(sample: Sample) -> tuple[Any, ...]:
    """Return what makes a request the same request: a rerun neither loses nor repeats one."""
    return (
        sample.arm, sample.depth, sample.round, sample.workload, sample.prompt_id,
        sample.temperature, sample.n_predict,
    )  # fmt: skip


def read(path: Path) -> Recorded:
    """Read a samples file.

    Raises
    ------
    StoreError
        If the file is missing, without a whole line, of a later format, damaged before its last
        line, or holds a request twice. The file itself is never changed by reading.
    """
    if not path.is_file():
        raise StoreError(
            f"no samples at {path.name}", "no such file", "run the notebook to measure them"
        )
    lines, torn = _lines(path.read_bytes())
    if not lines:
        raise StoreError(
            f"{path.name} holds nothing yet",
            "no whole line: a run is about to begin there, or was killed in that moment",
            "run the notebook again; it writes the file anew",
        )
    records: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for number, line in enumerate(lines, 1):
        kind, record = _parse(path, number, line)
        records[kind].append(record)
    if len(records["run"]) != 1 or _parse(path, 1, lines[0])[0] != "run":
        raise StoreError(
            f"{path.name} must start with one line of the run's facts",
            f"{len(records['run'])} such lines",
            "restore the file from version control",
        )
    samples = tuple(records["sample"])
    keys = [sample_key(s) for s in samples if s.error is None and not s.warm_up]
    if len(keys) != len(set(keys)):
        twice = next(k for k in keys if keys.count(k) > 1)
        raise StoreError(
            f"{path.name} holds a request twice", str(twice), "restore it from version control"
        )
    return Recorded(
        path=path,
        run=records["run"][0],
        samples=samples,
        launches=tuple(records["launch"]),
        divergences=tuple(records["divergence"]),
        layouts=tuple(records["layout"]),
        notes=("the last line is torn: an interrupted write",) if torn else (),
    )


def _lines(content: bytes) -> tuple[list[bytes], bytes]:
    """Split into whole lines and the torn rest (empty where the file ends well)."""
    *lines, rest = content.split(b"\n")
    return lines, rest


def _parse(path: Path, number: int, line: bytes) -> tuple[str, _Record]:
    try:
        values = json.loads(line)
        kind = values.pop("kind")
        if kind == "run" and values["format"] > FORMAT:
            raise StoreError(
                f"{path.name} is of format {values['format']}",
                f"this version reads up to {FORMAT}",
                "update specdepth",
            )
        return kind, KINDS[kind].from_json(values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"line {number} of {path.name} is damaged",
            f"{type(error).__name__}: {error}",
            "restore the file from version control; nothing was changed",
        ) from None


def append(file: FileIO, line: bytes, name: str) -> None:
    """Append a line to an unbuffered file and wait until it is on the disk: all of it, or none.

    Raises
    ------
    StoreError
        If it can not be written, as on a full disk.
    """
    end = file.seek(0, os.SEEK_END)
    try:
        rest = memoryview(line)
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):
            os.ftruncate(file.fileno(), end)
        raise StoreError(
            f"{name} can not be written",
            error.strerror or str(error),
            "make room on the disk and run it again: what was measured before is kept",
        ) from None


class Writer:
    """Appends records to a samples file; one writer at a time.

    Opening creates the file with the run's facts, or checks that the facts of the existing file
    agree: runs of another model, engine or setting are refused.
    """

    def __init__(self, path: Path, run: Run) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file: FileIO = path.open("ab+", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise StoreError(
                f"{path.name} is being written by another process",
                "the file is locked",
                "wait for the other run, or stop it",
            ) from None
        try:
            self._mend()
            if path.stat().st_size:
                check_same(read(path).run, run)
            else:
                self.add(run)
        except BaseException:
            self._file.close()
            raise

    def _mend(self) -> None:
        """Set a torn last line aside, in a file of its own."""
        lines, torn = _lines(self.path.read_bytes())
        if torn:
            with self.path.with_suffix(".torn").open("ab") as aside:
                aside.write(torn + b"\n")
            os.ftruncate(self._file.fileno(), sum(len(line) + 1 for line in lines))

    def add(self, record: _Record) -> None:
        """Append one record and wait until it is on the disk."""
        kind = next(k for k, cls in KINDS.items() if type(record) is cls)
        line = json.dumps({"kind": kind, **record.to_json()}, separators=(",", ":"))
        append(self._file, line.encode() + b"\n", self.path.name)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def check_same(old: Run, new: Run) -> None:
    """Raise where two runs may not be joined: another key, or another machine."""
    facts = {"key": (old.key, new.key)} | {
        name: (value, hardware(new.machine)[name]) for name, value in hardware(old.machine).items()
    }
    differing = [f"{name}: {a} and {b}" for name, (a, b) in facts.items() if a != b]
    if differing:
        raise StoreError(
            "two runs with different key facts can not be joined",
            "; ".join(differing),
            "measure into another machine folder (parameter `machine`)",
        )


def hardware(machine: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a machine that must be equal for two runs to be of the same one."""
    gpus = [tuple(g.get(k) for k in ("name", "driver", "power_cap_w")) for g in machine["gpus"]]
    return {"processor": machine["cpu"], "cores": machine["cores"], "GPUs": gpus}


def same_spec(stored: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Tell whether a stored run is of a spec: equal in all but the number of rounds."""
    apart = {k for k in stored.keys() | wanted.keys() if _lists(stored.get(k)) != wanted.get(k)}
    return apart <= {"rounds"}


def covers(recorded: Recorded, wanted: SweepSpec) -> bool:
    """Tell whether a stored run holds every request that a spec asks for.

    It may hold further depths, workloads, prompts and rounds, and the rounds may have been chosen
    by their results; all else must be equal.
    """
    stored, asked = recorded.run.spec, wanted.to_json()
    free = {"rounds", "adaptive", "depths", "workloads", "prompts", "long_prompts"}
    free |= {"lossless_prompts"}
    if any(_lists(stored.get(k)) != asked.get(k) for k in (stored.keys() | asked.keys()) - free):
        return False
    if any(stored[k] < asked[k] for k in ("prompts", "long_prompts")):
        return False
    done = {(s.arm, s.depth, s.round, s.workload) for s in recorded.samples if not s.error}
    return all(
        (arm, depth, number, workload) in done
        for depth, arm in wanted.cells
        for number in range(wanted.rounds)
        for workload in wanted.workloads
    )


def _lists(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
