"""The tracer's steps: one line a sample, in a file of the same name in the folder ``steps``.

A sample's steps are on the disk before the sample itself is written. What an interruption leaves
without its sample is passed over by reading.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis.errors import StoreError
from analysis.records import Sample, Step
from analysis.store import append as append_line

_FIELDS = tuple(f.name for f in dataclasses.fields(Step))


def path_of(samples: Path) -> Path:
    """Return the file of the steps that belong to a samples file."""
    return samples.parent / "steps" / samples.name


def sample_id(sample: Sample) -> str:
    """Return the name of a sample within its run."""
    return f"{sample.launch}/{sample.order}"


@dataclass(frozen=True)
class Traced:
    """The steps of one sample, and the texts of the tokens in them."""

    steps: tuple[Step, ...]
    pieces: dict[int, str]


def append(samples: Path, sample: Sample, traced: Traced | None) -> None:
    """Write a sample's steps, and wait until they are on the disk; nothing for None."""
    if traced is None:
        return
    file = path_of(samples)
    file.parent.mkdir(parents=True, exist_ok=True)
    columns = {name: [getattr(s, name) for s in traced.steps] for name in _FIELDS}
    values = {"sample": sample_id(sample), **columns, "pieces": traced.pieces}
    line = json.dumps(values, separators=(",", ":"))
    with file.open("ab+", buffering=0) as sink:
        torn = sink.tell() and not _ends_well(file)  # such a line keeps to itself
        append_line(sink, (b"\n" if torn else b"") + line.encode() + b"\n", file.name)


def _ends_well(file: Path) -> bool:
    with file.open("rb") as source:
        source.seek(-1, os.SEEK_END)
        return source.read(1) == b"\n"


def read(samples: Path) -> dict[str, Traced]:
    """Return the steps by sample name; empty where the run has none.

    Raises
    ------
    StoreError
        If the file holds a sample twice. Torn lines are passed over: their samples are not stored.
    """
    file = path_of(samples)
    if not file.is_file():
        return {}
    found: dict[str, Traced] = {}
    for line in file.read_bytes().split(b"\n"):
        try:
            values = json.loads(line)
            name = values.pop("sample")
            rows = zip(*(values[f] for f in _FIELDS), strict=True)
            steps = tuple(Step.from_json(dict(zip(_FIELDS, r, strict=True))) for r in rows)
            pieces = {int(k): str(v) for k, v in values["pieces"].items()}
        except (ValueError, KeyError, AttributeError):
            continue
        if name in found:
            raise StoreError(
                f"{file.name} holds the steps of a sample twice",
                name,
                "restore it from version control",
            )
        found[name] = Traced(steps, pieces)
    return found


def frame(samples: Sequence[Sample], steps: dict[str, Traced]) -> pd.DataFrame:
    """Return one row a step, with its sample's workload, prompt, depth, round and order."""
    rows = [
        {
            "workload": s.workload, "prompt_id": s.prompt_id, "depth": s.depth, "round": s.round,
            "arm": s.arm, "temperature": s.temperature, "step": number,
            **dataclasses.asdict(step),
        }
        for s in samples
        if not s.warm_up and s.error is None and sample_id(s) in steps
        for number, step in enumerate(steps[sample_id(s)].steps)
    ]  # fmt: skip
    columns = ["workload", "prompt_id", "depth", "round", "arm", "temperature", "step", *_FIELDS]
    return pd.DataFrame(rows, columns=columns)
