"""Bringing values, perhaps text from a command line, to the types of their fields."""

from __future__ import annotations

import shlex
import types
import typing
from typing import Any

import yaml

from analysis.errors import SpecError


def coerce(name: str, value: Any, wanted: Any) -> Any:
    """Bring a value, perhaps text from a command line, to the type of its field."""
    if isinstance(wanted, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() in ("", "none", "null")):
            return None
        wanted = next(t for t in typing.get_args(wanted) if t is not type(None))
    if typing.get_origin(wanted) is tuple:
        inner = typing.get_args(wanted)[0]
        return tuple(coerce(name, v, inner) for v in _as_list(name, value, inner))
    problem = SpecError(f"`{name}` must be {_say(wanted)}", repr(value))
    if wanted is str:
        if not isinstance(value, str):
            raise problem
        return value
    if isinstance(value, str):
        value = yaml.safe_load(value)
    if wanted is bool:
        if not isinstance(value, bool):
            raise problem
        return value
    if isinstance(value, bool):
        raise problem
    try:
        number = wanted(value)
    except (TypeError, ValueError):
        raise problem from None
    if number != value:
        raise problem
    return number


def _as_list(name: str, value: Any, inner: Any) -> list[Any]:
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            value = yaml.safe_load(text)
        elif inner is str and name == "server_args":
            try:
                return shlex.split(text)
            except ValueError as error:
                raise SpecError(f"`{name}` is not a command line", f"{text!r}: {error}") from None
        else:
            value = [part.strip() for part in text.split(",") if part.strip()]
    if isinstance(value, (int, float)):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise SpecError(f"`{name}` must be a list", repr(value))
    return list(value)


def _say(wanted: Any) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[wanted]
