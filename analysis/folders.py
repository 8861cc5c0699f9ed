"""Where the checkout is, and where the machines' folders lie."""

from __future__ import annotations

import os
from pathlib import Path

MACHINES_VARIABLE = "SPECDEPTH_MACHINES"
REPLAY_VARIABLE = "SPECDEPTH_REPLAY"


def machines_folder() -> Path:
    """Return where machines' folders lie.

    That is SPECDEPTH_MACHINES, else ``book/machines`` of this checkout, else ``machines`` here.
    """
    named = os.environ.get(MACHINES_VARIABLE)
    if named:
        return Path(named)
    root = project_root()
    return root / "book" / "machines" if root else Path.cwd() / "machines"


def project_root() -> Path | None:
    """Return the checkout that this package is used from, or None where it is only installed."""
    root = Path(__file__).resolve().parent.parent
    return root if (root / "_config.yml").is_file() else None


def replaying() -> bool:
    """Tell whether engines are forbidden and stored samples must do."""
    return os.environ.get(REPLAY_VARIABLE, "") not in ("", "0")
