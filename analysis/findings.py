"""What figures of several workloads show, each in one plain sentence for their captions."""

from __future__ import annotations

import math

from analysis.report import MIX, Sweep
from analysis.stats import LIKE_THESE, Interval
from analysis.tables import interval, listed, regret
from analysis.verdict import Verdict


def leading(found: dict[str, Interval], *, least: bool = False) -> list[str]:
    """Return the names whose interval reaches that of the largest estimate, or of the least.

    The first of them has it; where intervals are unknown, all names reach it.
    """
    sign = -1 if least else 1
    order = sorted(found, key=lambda name: sign * found[name].estimate, reverse=True)
    top = found[order[0]]
    return [
        name
        for name in order
        if name == order[0]
        or (found[name].low <= top.high if least else found[name].high >= top.low)
    ]


def named(found: dict[str, str]) -> str:
    """Return what holds for which names, ``falls for short, long; rises for code``."""
    return "; ".join(f"{what} for {', '.join(names)}" for what, names in _grouped(found).items())


def _grouped(found: dict[str, str]) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    for name, what in found.items():
        told.setdefault(what, []).append(name)
    return told


def answers(found: list[Verdict]) -> str:
    """Return the answers of several workloads in one scope as one sentence."""
    told = {
        v.workload: f"undecided between depths {listed(v.candidates)}"
        if v.recommended is None
        else f"use depth {v.recommended}, {regret(v, 'which')}"
        for v in found
    }
    said = "; ".join(f"{', '.join(names)}: {what}" for what, names in _grouped(told).items())
    return f"For {said} ({found[0].scope}, 95% bounds)."


def balance(sweep: Sweep) -> str:
    """Return what the deepest draft gives and costs against none, over all work, or ""."""
    whole, last = list(sweep.groups())[-1], max(sweep.depths)
    told = gain_and_cost(sweep, whole, last, 0) if last else ""
    where = "Over all workloads" if whole == MIX else f"For {whole} work"
    return f"{where}, f{told[1:]}" if told else ""


def gain_and_cost(sweep: Sweep, name: str, last: int, first: int) -> str:
    """Return what one depth gives and costs against another as one sentence, or "" without pairs.

    `name` is a workload or the mix; the intervals are those for prompts like these.
    """
    gain, cost, speed = (
        sweep.relative(column, name, last, first, LIKE_THESE)
        for column in ("tokens_per_step", "step_ms", "tok_s")
    )
    if gain is None or cost is None or speed is None:
        return ""
    same = not math.isfinite(speed.high) or speed.low <= 1 <= speed.high
    return (
        f"From depth {first} to {last} a step gives {interval(gain)} times the tokens and takes "
        f"{interval(cost)} times as long, so decoding runs at {interval(speed)} times the speed"
        f"{', which the data can not tell from no change' if same else ''}."
    )


def acceptance_change(sweep: Sweep) -> str:
    """Return where the acceptance rate falls from the first draft to the deepest, as one sentence.

    It falls or rises where the two intervals for prompts like these lie apart.
    """
    found: dict[str, str] = {}
    for cell in sweep.cells():
        if cell.acceptance is not None:
            found.setdefault(cell.workload, "")
    drafting = [d for d in sweep.depths if d > 0]
    if not found or len(drafting) < 2:
        return ""
    first, last = drafting[0], drafting[-1]
    ends = {name: (_rate(sweep, name, first), _rate(sweep, name, last)) for name in found}
    calls = {name: _change(*both) for name, both in ends.items() if name in sweep.workloads}
    whole = list(found)[-1]
    place = "over all workloads" if whole == MIX else f"for {whole}"
    return (
        f"From depth {first} to {last} the acceptance rate {named(calls)} (95% intervals); {place} "
        f"it is {interval(ends[whole][0])} and {interval(ends[whole][1])}."
    )


def _rate(sweep: Sweep, name: str, depth: int) -> Interval | None:
    there = sweep.has_speed(name, depth)
    return sweep.cell(name, depth).interval("acceptance", LIKE_THESE) if there else None


def _change(before: Interval | None, after: Interval | None) -> str:
    if before is None or after is None:
        return "was not measured at both"
    if after.high < before.low:
        return "falls"
    return "rises" if after.low > before.high else "is not distinguishable from unchanged"
