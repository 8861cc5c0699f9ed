"""From a notebook's parameters to a spec: an unknown name stops the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from analysis.errors import SpecError
from analysis.spec import WORKLOADS, SweepSpec
from analysis.verdict import TOLERANCE

_IPYTHON = {"In", "Out", "exit", "quit", "open", "get_ipython"}


@dataclass(frozen=True)
class PageParameters:
    """What a page is made with: the spec, and where and how its results are shown."""

    spec: SweepSpec
    machine: str  # "" names the machine from its hardware
    machines_folder: Path | None  # None: book/machines of the checkout
    tolerance: float
    mix: dict[str, float]  # weights of the workloads in the mix; 1 where not named


def weights(value: Any) -> dict[str, float]:
    """Read the weights of a mix: a mapping, or text such as ``short=2, code=1``.

    Raises
    ------
    SpecError
        If a name is no workload or a weight is not a number above zero.
    """
    if isinstance(value, str):
        value = dict(part.partition("=")[::2] for part in value.split(",") if part.strip())
    try:
        found = {str(k).strip(): float(v) for k, v in dict(value or {}).items()}
    except (TypeError, ValueError):
        found = {"?": 1.0}
    if set(found) - set(WORKLOADS) or any(not 0 < w < float("inf") for w in found.values()):
        raise SpecError(
            f"`mix` must give weights above zero to {', '.join(WORKLOADS)}",
            repr(value),
            'for example "short=2, code=1"; workloads that are not named weigh 1',
        )
    return found


def read(names: Mapping[str, Any]) -> PageParameters:
    """Read a notebook's ``globals()`` right after its parameters.

    papermill only warns of a misspelt parameter, and the page would be of other settings than
    its reader asked for.

    Raises
    ------
    SpecError
        If a name is not a parameter, or a value is not usable.
    """
    given: dict[str, Any] = {
        name: value
        for name, value in names.items()
        if not name.startswith("_")
        and name not in _IPYTHON
        and (value is None or isinstance(value, (str, int, float, bool, list, tuple, dict)))
    }
    machine = str(given.pop("machine", ""))
    folder = str(given.pop("machines_folder", ""))
    mix = weights(given.pop("mix", {}))
    tolerance = given.pop("tolerance", TOLERANCE)
    try:
        tolerance = float(tolerance)
    except (TypeError, ValueError):
        tolerance = 0.0
    if not 0 < tolerance <= 1:
        raise SpecError("`tolerance` must lie in (0, 1]", repr(names.get("tolerance")))
    known = {f.name for f in fields(SweepSpec)}
    unknown = sorted(set(given) - known)
    if unknown:
        more = {"machine", "machines_folder", "tolerance", "mix"}
        raise SpecError(
            f"unknown parameter {', '.join(unknown)}",
            "",
            f"known are {', '.join(sorted(known | more))}",
        )
    where = Path(folder) if folder else None
    return PageParameters(SweepSpec(**given), machine, where, tolerance, mix)
