"""Sentences of the page on drafters, each computed; names of files are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from analysis import checks, drafters
from analysis.drafters import HEAD, Comparison
from analysis.drafters_tables import HIGHER, LOWER, SAME, UNKNOWN, call
from analysis.markup import escaped
from analysis.stats import LIKE_THESE, Interval
from analysis.tables import interval
from analysis.verdict import TOLERANCE


def named(drafter: str) -> str:
    """Return a drafter's name as Markdown shows it."""
    return escaped(drafters.name(drafter))


def _times(ratio: Interval | None) -> str:
    return f"{interval(ratio)} times" if ratio else "in no relation that was measured to"


def off_the_shelf(found: Comparison) -> list[str]:
    """Return what became of the note's sentence on the drafter off the shelf."""
    lines = []
    for drafter in found.off_the_shelf:
        ratio = found.best_ratio(drafter, HEAD, found.whole, LIKE_THESE)
        told = {LOWER: "confirmed", HIGHER: "refuted"}.get(call(ratio), call(ratio))
        lines.append(
            f"A drafter off the shelf lost to the MTP head, says the note: **{told} here**. The "
            f"best speed with the {named(drafter)} is {_times(ratio)} the best with the MTP head."
        )
    return lines


def dedicated(found: Comparison, tolerance: float) -> list[str]:
    """Return what became of the note's sentence on a drafter to push past the head's acceptance.

    Confirmed where more is kept at a position beyond the first and less at none, by intervals that
    hold for all positions at once; refuted the other way around.
    """
    lines = []
    for drafter in found.dedicated:
        calls = _gains(found, drafter, 2)
        up, down = (wanted in calls.values() for wanted in (HIGHER, LOWER))
        even = UNKNOWN if set(calls.values()) <= {UNKNOWN} else SAME
        told = {(True, False): "confirmed", (False, True): "refuted", (True, True): "mixed"}.get(
            (up, down), even
        )
        ratio = found.best_ratio(drafter, HEAD, found.whole, LIKE_THESE)
        faster = {HIGHER: "higher than", LOWER: "lower than"}.get(call(ratio), f"{SAME} from")
        lines.append(
            "A dedicated drafter can push past the head's ceiling, its acceptance, hopes the note: "
            f"**{told} here**. With the {named(drafter)} the share of drafts kept is "
            f"{_kept(calls)}; {best_depths(found, drafter, tolerance)}; its best "
            f"speed is {_times(ratio)} the head's, {faster} it."
        )
    return lines


def _gains(found: Comparison, drafter: str, first: int) -> dict[int, str]:
    """Return by position, from the first on, whether a drafter has more kept than the MTP head.

    The intervals behind it hold for all positions at once.
    """
    deepest = found.deepest(drafter)
    return {
        k: call(found.gain(drafter, HEAD, k, LIKE_THESE, among=deepest), 0.0)
        for k in range(first, deepest + 1)
    }


def _kept(calls: Mapping[int, str]) -> str:
    """Return at which positions more is kept and where less, as a clause."""
    there = {c: [k for k, own in calls.items() if own == c] for c in (HIGHER, LOWER)}
    told = [f"{c} at position {_listed(places)}" for c, places in there.items() if places]
    even = UNKNOWN if set(calls.values()) <= {UNKNOWN} else SAME
    return " and ".join(told) or even


def kept_finding(found: Comparison) -> str:
    """Return where drafters have more kept than the MTP head, as one plain sentence.

    Those that were made for the target come first; where there are none, small models do.
    """
    told = [
        f"{_kept(_gains(found, drafter, 1))} with the {drafters.name(drafter)}"
        for drafter in found.dedicated or found.off_the_shelf
    ]
    if not told:
        return "No drafter was measured that the MTP head's acceptance could be held against."
    return (
        f"Against the MTP head, the share of drafts kept is {'; '.join(told)} ({LIKE_THESE}, 95% "
        "for all positions at once)."
    )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def best_depths(found: Comparison, drafter: str, tolerance: float) -> str:
    """Return whether a dedicated drafter moves the best depth of the MTP head, as a clause."""
    sets = []
    for name in (HEAD, drafter):
        own = found.drafters[name]
        drafting = replace(own, depths=own.depths[1:])
        sets.append(drafting.verdict(found.whole, LIKE_THESE, tolerance).confidence_set)
    before, after = (_listed(s) for s in sets)
    if sets[0] == sets[1]:
        return f"of the depths that draft, {before} may be the fastest with either"
    moved = "told apart" if not set(sets[0]) & set(sets[1]) else SAME
    return (
        f"of the depths that draft, {after} may be the fastest, and {before} with the MTP head "
        f"({moved})"
    )


def winners(found: Comparison, tolerance: float) -> str:
    """Return which drafter wins for each workload, in one sentence."""
    return escaped(fastest(found, tolerance))


def fastest(found: Comparison, tolerance: float = TOLERANCE) -> str:
    """Return which drafter wins for each workload, in one sentence without any marks."""
    said: dict[str, list[str]] = {}
    every = list(dict.fromkeys(_of(found, rank) for rank in found.ranked.depths))
    for workload in found.base.groups():
        v = found.verdict(workload, LIKE_THESE, tolerance, drafting=False)
        may = list(dict.fromkeys(_of(found, rank) for rank in v.confidence_set))
        out = [name for name in every if name not in may]
        told = " or ".join(may) if len(may) <= max(len(out), 1) else f"any but {' and '.join(out)}"
        said.setdefault(told if out else "any of them", []).append(workload)
    parts = [f"{told} ({', '.join(workloads)})" for told, workloads in said.items()]
    return f"What may be the fastest, {LIKE_THESE}: {'; '.join(parts)}."


def _of(found: Comparison, rank: int) -> str:
    return drafters.name(found.options[rank].drafter) if rank else "no drafting"


def warnings(found: Comparison) -> str:
    """Return the warnings of all drafters as a Markdown list, each with the drafters' names."""
    gone = [
        f"- {named(drafter)}: no speed was measured; the engine said: {escaped(error[:300])}"
        for drafter, error in drafters.missing(found).items()
    ]
    told = checks.listed({named(d): own for d, own in found.drafters.items()})
    return "\n".join([*gone, told] if told != "None." or not gone else gone)
