"""Progress over launches: to a terminal, a notebook, or a file that the runner watches.

Nothing stays in a notebook's output, so that a replay compares equal.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Protocol

FILE_VARIABLE = "SPECDEPTH_PROGRESS_FILE"


class Progress(Protocol):
    """What measuring code tells of how far it is."""

    def update(self, done: int, total: int, doing: str) -> None:
        """Tell that `done` of `total` launches are finished, and what goes on now."""

    def close(self) -> None:
        """End the display."""


def remaining_s(began: float, done: int, total: int) -> float | None:
    """Return the estimated seconds left, or None before the first part is done."""
    return None if done == 0 else (time.monotonic() - began) / done * (total - done)


class FileProgress:
    """Appends one JSON line an update, for the process that started this one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def update(self, done: int, total: int, doing: str) -> None:
        """Append an update."""
        with self._path.open("a") as file:
            file.write(json.dumps({"done": done, "total": total, "doing": doing}) + "\n")

    def close(self) -> None:
        """Nothing to close."""


class NotebookProgress:
    """One line below the cell, updated in place and removed at the end."""

    def __init__(self) -> None:
        from IPython import display

        self._display: Any = display
        self._began = time.monotonic()
        self._shown = False

    def update(self, done: int, total: int, doing: str) -> None:
        """Redraw the line."""
        left = remaining_s(self._began, done, total)
        self._display.clear_output(wait=True)
        self._display.display(
            f"{done}/{total} launches, {doing}" + (f", {left:.0f} s left" if left else "")
        )
        self._shown = True

    def close(self) -> None:
        """Remove the line."""
        if self._shown:
            self._display.clear_output()


class BarProgress:
    """A tqdm bar on stderr."""

    def __init__(self, label: str = "launches") -> None:
        self._label = label
        self._bar: Any = None

    def update(self, done: int, total: int, doing: str) -> None:
        """Move the bar."""
        from tqdm import tqdm

        if self._bar is None:
            self._bar = tqdm(total=total, desc=self._label, unit="launch", file=sys.stderr)
        self._bar.total = total
        self._bar.set_postfix_str(doing, refresh=False)
        self._bar.update(done - self._bar.n)
        self._bar.refresh()

    def close(self) -> None:
        """Leave the finished bar on the terminal."""
        if self._bar is not None:
            self._bar.close()


def here() -> Progress:
    """Return the progress that fits where this process runs."""
    path = os.environ.get(FILE_VARIABLE)
    if path:
        return FileProgress(Path(path))
    if "ipykernel" in sys.modules:
        return NotebookProgress()
    return BarProgress()
