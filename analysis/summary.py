"""A sweep as plain data and as terminal tables: what `specdepth verdict` prints."""

from __future__ import annotations

import json
import math
from typing import Any

from analysis import checks, stats, tables
from analysis.report import Cell, Sweep
from analysis.speculation import by_position
from analysis.stats import Interval
from analysis.verdict import Verdict


def verdict(sweep: Sweep, tolerance: float) -> dict[str, Any]:
    """Return the verdict of a machine as JSON-ready data; units are in the names.

    ``recommended`` is a depth or ``"undecided"``, for prompts like these; each number stands with
    both intervals, ``[low, high]``, or None where one launch or prompt can give none.
    """
    found = {v.workload: {} for v in sweep.verdicts(tolerance)}  # type: dict[str, dict[str, Any]]
    for v in sweep.verdicts(tolerance):
        found[v.workload][v.scope] = _verdict(v)
    cells = sweep.cells()
    return {
        "machine": sweep.machine,
        "run": sweep.recorded.run.run,
        "model": sweep.recorded.run.model["name"],
        "tolerance": tolerance,
        "confidence": stats.CONFIDENCE,
        "mix": dict(zip(sweep.workloads, sweep.mix(sweep.workloads), strict=True)),
        "recommended": {n: v[stats.LIKE_THESE]["recommended"] for n, v in found.items()},
        "workloads": {
            name: {
                "verdicts": found[name],
                "depths": [_cell(sweep, c) for c in cells if c.workload == name],
            }
            for name in found
        },
        "warnings": checks.warnings(sweep),
    }


def _verdict(v: Verdict) -> dict[str, Any]:
    return {
        "recommended": "undecided" if v.recommended is None else v.recommended,
        "candidates": list(v.candidates),
        "confidence_set": list(v.confidence_set),
        "fastest_estimate": v.fastest,
        "regret": v.regret,
        "regret_upper_95": v.regret_high,
        "further_rounds": v.further_rounds,
        "ratio_to_best": {
            str(r.depth): {"ratio": r.ratio, "low": r.low, "high": r.high} for r in v.ratios
        },
    }


def _cell(sweep: Sweep, cell: Cell) -> dict[str, Any]:
    members = sweep.groups()[cell.workload]
    own = sweep.timed[
        (sweep.timed["depth"] == cell.depth) & sweep.timed["workload"].isin(members)
    ]  # fmt: skip
    positions = by_position(own)
    return {
        "depth": cell.depth,
        "requests": cell.samples,
        **{
            quantity: _quantity(cell, quantity)
            for quantity in ("tok_s", "acceptance", "tokens_per_step", "step_ms")
        },
        "acceptance_by_position": [round(float(a), 4) for a in positions["a"]],
    }


def _quantity(cell: Cell, quantity: str) -> dict[str, Any] | None:
    scopes = {scope: cell.interval(quantity, scope) for scope in stats.SCOPES}
    first = scopes[stats.ON_THESE]
    if first is None:
        return None
    return {"estimate": first.estimate} | {s: _bounds(i) for s, i in scopes.items()}


def _bounds(found: Interval | None) -> list[float] | None:
    if found is None or not (math.isfinite(found.low) and math.isfinite(found.high)):
        return None
    return [found.low, found.high]


def terminal_tables(sweep: Sweep, tolerance: float) -> list[Any]:
    """Return the verdicts and the speeds as tables for a terminal."""
    from rich.table import Table

    answer = Table(
        title="Recommended draft depth",
        caption="regret: what the depth may lose against the best one, a one-sided 95% bound; "
        "may be fastest: what no other depth beats by bounds that hold for all depths at once, "
        "which are wider",
    )
    for column in ("workload", "scope", "depth", "may be fastest", "regret at most"):
        answer.add_column(column)
    for v in sweep.verdicts(tolerance):
        regret = "–" if v.regret_high is None else f"{v.regret_high:.1%}"
        said = v.answer
        if v.recommended is None:
            said += f": {tables.listed(v.candidates)}"
        answer.add_row(v.workload, v.scope, said, tables.listed(v.confidence_set), regret)
    speeds = Table(title=f"Decode tok/s by depth, {stats.LIKE_THESE}")
    frame = tables.by_workload(sweep, "tok_s", stats.LIKE_THESE)
    speeds.add_column("depth")
    for column in frame.columns:
        speeds.add_column(str(column))
    for depth, row in frame.iterrows():
        speeds.add_row(str(depth), *map(str, row))
    return [answer, speeds]


def show(sweep: Sweep, tolerance: float) -> None:
    """Print a sweep's verdict, speeds and warnings on the terminal."""
    from rich.console import Console

    console = Console()
    weights = ", ".join(f"{w} {sweep.weights.get(w, 1):g}" for w in sweep.workloads)
    console.print(
        f"{sweep.machine}, {sweep.recorded.run.model['name']}, run {sweep.recorded.run.run}; "
        f"tolerance {tolerance:g}; weights in the mix: {weights}",
        highlight=False,
        markup=False,
    )
    for table in terminal_tables(sweep, tolerance):
        console.print(table)
    for text in checks.warnings(sweep):
        console.print(f"warning: {text}", style="yellow", highlight=False, markup=False)


def show_counters(counted: dict[str, Any], *, as_json: bool) -> None:
    """Print the counters of a running server; one reading has no interval."""
    if as_json:
        print(json.dumps(counted, indent=1))
        return
    for name, value in counted.items():
        shown = [round(v, 3) for v in value] if isinstance(value, list) else value
        print(f"{name:20} {round(shown, 3) if isinstance(shown, float) else shown}")
    print("one reading of counters over the server's life: no interval; a log gives one")
