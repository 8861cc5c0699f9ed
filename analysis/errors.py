"""The package's errors: each says what is wrong, what was found, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SpecDepthError(Exception):
    """Base of all errors that a user can mend; the command line prints them without a traceback."""

    def __init__(self, wrong: str, found: str = "", next_step: str = "") -> None:
        parts = [wrong.rstrip(".") + "."]
        if found:
            parts.append(f"Found: {found.rstrip('.')}.")
        if next_step:
            parts.append(f"Next: {next_step.rstrip('.')}.")
        super().__init__(" ".join(parts))


class SpecError(SpecDepthError, ValueError):
    """A parameter of a sweep is not usable."""


class StoreError(SpecDepthError):
    """A samples file can not be read, written or joined."""


class EngineError(SpecDepthError):
    """An engine could not be found, started, asked or stopped."""


class ModelError(SpecDepthError):
    """A model file is missing, unreadable or lacks what a drafter needs."""


def choices(given: Iterable[str], known: Iterable[str]) -> str:
    """Return what to do next where names are unknown: those that are near, then all of them."""
    names = sorted(known)
    near = [n for g in given for n in difflib.get_close_matches(g, names, n=1)]
    meant = f"did you mean {', '.join(dict.fromkeys(near))}? " if near else ""
    return f"{meant}known are {', '.join(names)}"
