"""What the commands share: their options, and errors and signals told plainly."""

from __future__ import annotations

import errno
import signal
import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Annotated, ParamSpec

import typer

from analysis.errors import SpecDepthError

Model = Annotated[
    str,
    typer.Option(help='A GGUF with an MTP head, "embedded", or a shape such as shape:qwen3.6-27b.'),
]
Server = Annotated[
    str, typer.Option(help="Your own llama-server; else SPECDEPTH_SERVER, else the built one.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


P = ParamSpec("P")
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class _Stopped(KeyboardInterrupt):
    """A signal to end that is to be cleaned up after as an interrupt is."""


def _stop(number: int, _frame: object) -> None:
    raise _Stopped(number)


def plainly(function: Callable[P, None]) -> Callable[P, None]:
    """Print our own errors as text and end with 1; a signal to end, with 128 and its number."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
                signal.signal(number, _stop)
        try:
            function(*args, **kwargs)
        except SpecDepthError as error:
            print(f"specdepth: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            print(f"specdepth: {error.strerror}; what was measured is kept", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt as stop:
            print(
                "specdepth: interrupted; what was measured, if anything, is kept", file=sys.stderr
            )
            code = stop.args[0] if isinstance(stop, _Stopped) else signal.SIGINT
            raise typer.Exit(128 + code) from None

    return wrapped


def depth_list(text: str) -> list[int]:
    """Read ``0-5`` or ``0,2,4``."""
    try:
        found: list[int] = []
        for part in text.split(","):
            low, dash, high = part.strip().partition("-")
            if max(len(low), len(high)) > 2:
                raise ValueError
            part_of = list(range(int(low), int(high) + 1)) if dash else [int(low)]
            if not part_of:
                raise ValueError
            found += part_of
    except ValueError:
        raise typer.BadParameter(f"depths are like 0-5 or 0,2,4, below 100: {text!r}") from None
    return found
