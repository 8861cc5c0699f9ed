"""What tests of misbehaving servers share."""

from __future__ import annotations

from pathlib import Path

from analysis import store, sweep
from analysis.spec import SweepSpec


def spec(server: Path, **more: object) -> SweepSpec:
    values = {"workloads": ("short",), "depths": (0, 2), "prompts": 1, "rounds": 1,
              "n_predict": 40, "lossless_prompts": 0, "server": str(server)}  # fmt: skip
    return SweepSpec(**values | more)  # type: ignore[arg-type]


def measured(own: SweepSpec, tmp_path: Path) -> store.Recorded:
    return sweep.measure(own, "depth_sweep", "here", tmp_path / "machines")


def keyed(recorded: store.Recorded) -> dict[tuple[object, ...], tuple[int, ...]]:
    """Return the tokens of each timed request by its key; each is there once."""
    timed = [s for s in recorded.samples if not s.warm_up and s.error is None]
    found = {store.sample_key(s): s.tokens for s in timed}
    assert len(found) == len(timed)
    return found
