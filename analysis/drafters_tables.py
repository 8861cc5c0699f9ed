"""Tables and sentences of the page on drafters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from analysis import acceptance, drafters, lossless
from analysis.drafters import HEAD, Comparison
from analysis.report import MIX
from analysis.stats import LIKE_THESE, Interval
from analysis.tables import interval

HIGHER, LOWER, SAME = "higher", "lower", "not distinguishable"


def call(found: Interval | None, even: float = 1.0) -> str:
    """Return whether an interval lies above or below `even`, or holds it."""
    if found is None or not (math.isfinite(found.low) and math.isfinite(found.high)):
        return SAME
    return HIGHER if found.low > even else LOWER if found.high < even else SAME


def whole(found: Comparison) -> str:
    """Return the name of all workloads together."""
    return MIX if MIX in found.base.groups() else found.base.workloads[0]


def speeds(found: Comparison, scope: str) -> pd.DataFrame:
    """Return decode speed over that without drafting, by drafter and depth, a column a workload."""
    rows = {}
    for rank, option in enumerate(found.options[1:], 1):
        rows[drafters.name(option.drafter), option.depth] = {
            name: interval(found.ranked.relative("tok_s", name, rank, 0, scope))
            for name in found.base.groups()
        }
    table = pd.DataFrame.from_dict(rows, orient="index").fillna("–")
    table.index = pd.MultiIndex.from_tuples(table.index, names=["drafter", "depth"])
    order = [drafters.name(d) for d in found.drafters]
    return table.sort_index(level=0, key=lambda x: x.map(order.index) if x.name == "drafter" else x)


def verdicts(found: Comparison, scope: str, tolerance: float) -> pd.DataFrame:
    """Return for each workload which option to use: with no drafting among them, and without."""

    def said(ranks: Iterable[int]) -> str:
        return "; ".join(str(found.options[r]) for r in ranks)

    rows = {}
    for workload in found.base.groups():
        row: dict[str, str] = {}
        for kind, drafting in (("of all", False), ("of those that draft", True)):
            v = found.verdict(workload, scope, tolerance, drafting=drafting)
            answer = "undecided" if v.recommended is None else said([v.recommended])
            row |= {kind: answer, f"may be the fastest {kind}": said(v.confidence_set)}
        rows[workload] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("workload")


def against_head(found: Comparison, scope: str) -> pd.DataFrame:
    """Return each drafter's best speed over the MTP head's best, by workload."""
    rows = {}
    for drafter in found.drafters:
        if drafter != HEAD:
            rows[drafters.name(drafter)] = {
                name: interval(found.best_ratio(drafter, HEAD, name, scope))
                for name in found.base.groups()
            }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("drafter")


def by_position(found: Comparison, scope: str) -> pd.DataFrame:
    """Return acceptance by position of every drafter at its deepest depth, a column a workload.

    Drafters that never drafted are left out.
    """
    rows: dict[tuple[str, int], dict[str, str]] = {}
    for drafter, own in found.drafters.items():
        depth = max(own.depths)
        counts = {w: acceptance.of_samples(own.timed, w, depth) for w in own.workloads}
        if any(c is not None and c.offered[:, :, 0].any() for c in counts.values()):
            for k in range(1, depth + 1):
                rows[drafters.name(drafter), k] = {
                    w: interval(c.interval(k, "a", scope) if c else None) for w, c in counts.items()
                }
    table = pd.DataFrame.from_dict(rows, orient="index")
    if not table.empty:
        table.index = pd.MultiIndex.from_tuples(table.index, names=["drafter", "position"])
    return table


def gains(found: Comparison, scope: str) -> pd.DataFrame:
    """Return what training for depth changed in acceptance, by position, over all workloads."""
    rows = {}
    for drafter in filter(drafters.is_head, found.drafters):
        for k in range(1, max(found.drafters[drafter].depths) + 1):
            gain = found.gain(drafter, HEAD, k, scope)
            rows[drafters.name(drafter), k] = {
                "share kept, less the MTP head's": interval(gain),
                "it is": call(gain, 0.0),
            }
    table = pd.DataFrame.from_dict(rows, orient="index")
    if not table.empty:
        table.index = pd.MultiIndex.from_tuples(table.index, names=["drafter", "position"])
    return table


def work(found: Comparison) -> pd.DataFrame:
    """Return how much each drafter drafted at its deepest depth, over all requests of all rounds.

    A drafter that finds nothing to say drafts nothing, and the step is an undrafted one.
    """
    rows = {}
    for drafter, own in found.drafters.items():
        depth = max(own.depths)
        timed = own.timed[own.timed["depth"] == depth]
        drafted, kept = (float(timed[c].fillna(0).sum()) for c in ("draft_n", "draft_n_accepted"))
        steps = float(timed["steps"].sum())
        growth = found.ranked.relative(
            "step_ms", whole(found), found.rank(drafter, depth), 0, LIKE_THESE
        )
        rows[drafters.name(drafter)] = {
            "depth": depth,
            "drafted a step": f"{drafted / steps:.2f}",
            "kept of drafted": f"{kept / drafted:.3f}" if drafted else "–",
            "tokens a step": f"{1 + kept / steps:.2f}",
            "step time, of depth 0's": interval(growth),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("drafter")


def texts(found: Comparison) -> pd.DataFrame:
    """Return how many greedy texts equal that without drafting, by drafter, over all depths."""
    first = found.base.recorded.run.spec["arm"]
    margins = {
        (d.arm, d.workload, d.prompt_id, d.depth): d.margin for d in found.base.recorded.divergences
    }
    rows = {}
    compared = lossless.pairs(found.base.recorded)
    for drafter in found.drafters:
        arm = first if found.drafters[drafter] is found.base else drafter
        own = [(a, b) for a, b in compared if b.arm == arm]
        parted = [
            margins.get((arm, b.workload, b.prompt_id, b.depth))
            for a, b in own
            if lossless.first_difference(a.tokens, b.tokens) is not None
        ]
        known = [m for m in parted if m is not None]
        rows[drafters.name(drafter)] = {
            "compared": len(own),
            "equal": len(own) - len(parted),
            "largest margin where they part": f"{max(map(abs, known)):.4f}" if known else "–",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("drafter")


def _said(ratio: Interval | None) -> str:
    return f"{interval(ratio)} times" if ratio else "no measured part of"


def off_the_shelf_sentences(found: Comparison) -> list[str]:
    """Return what became of the note's sentence on the drafter off the shelf."""
    lines = []
    for drafter in filter(drafters.is_model, found.drafters):
        ratio = found.best_ratio(drafter, HEAD, whole(found), LIKE_THESE)
        told = {LOWER: "confirmed here", HIGHER: "refuted here"}.get(call(ratio), SAME + " here")
        lines.append(
            f"A drafter off the shelf lost to the MTP head, says the note: **{told}**. The best "
            f"speed with the {drafters.name(drafter)} is {_said(ratio)} the best with the MTP head."
        )
    return lines


def dedicated_sentences(found: Comparison, tolerance: float) -> list[str]:
    """Return what became of the note's sentence on a drafter to push past the head's acceptance."""
    lines = []
    for drafter in filter(drafters.is_head, found.drafters):
        deepest = max(found.drafters[drafter].depths)
        calls = {
            k: call(found.gain(drafter, HEAD, k, LIKE_THESE), 0.0) for k in range(2, deepest + 1)
        }
        up, down = ([k for k, c in calls.items() if c == wanted] for wanted in (HIGHER, LOWER))
        told = "confirmed here" if up and not down else "refuted here" if down else f"{SAME} here"
        kept = [f"higher at position {_listed(up)}"] if up else []
        kept += [f"lower at position {_listed(down)}"] if down else []
        ratio = found.best_ratio(drafter, HEAD, whole(found), LIKE_THESE)
        faster = {HIGHER: "higher than", LOWER: "lower than"}.get(call(ratio), f"{SAME} from")
        lines.append(
            "A dedicated drafter can push past the head's ceiling, its acceptance, hopes the note: "
            f"**{told}**. Trained for depth, the share of drafts kept is "
            f"{' and '.join(kept) or SAME}; {best_depths(found, drafter, tolerance)}; its best "
            f"speed is {_said(ratio)} the head's, {faster} it."
        )
    return lines


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def best_depths(found: Comparison, drafter: str, tolerance: float) -> str:
    """Return whether another drafter moves the best depth of the MTP head, as a clause."""
    sets = []
    for name in (HEAD, drafter):
        own = found.drafters[name]
        drafting = replace(own, depths=tuple(d for d in own.depths if d > 0))
        sets.append(drafting.verdict(whole(found), LIKE_THESE, tolerance).confidence_set)
    before, after = (_listed(s) for s in sets)
    if sets[0] == sets[1]:
        return f"of the depths that draft, {before} may be the fastest with either"
    moved = "told apart" if not set(sets[0]) & set(sets[1]) else SAME
    return (
        f"of the depths that draft, {after} may be the fastest, and {before} with the MTP head "
        f"({moved})"
    )


def same_depth(found: Comparison, scope: str) -> pd.DataFrame:
    """Return the speed with another head over that with the MTP head, at the same depth."""
    rows = {}
    for drafter in filter(drafters.is_head, found.drafters):
        for depth in (d for d in found.drafters[drafter].depths if d > 0):
            ranks = found.rank(drafter, depth), found.rank(HEAD, depth)
            rows[drafters.name(drafter), depth] = {
                name: interval(found.ranked.relative("tok_s", name, *ranks, scope))
                for name in found.base.groups()
            }
    table = pd.DataFrame.from_dict(rows, orient="index")
    if not table.empty:
        table.index = pd.MultiIndex.from_tuples(table.index, names=["drafter", "depth"])
    return table


def winner_sentence(found: Comparison, tolerance: float) -> str:
    """Return which drafter wins for each workload, in one sentence."""
    said: dict[str, list[str]] = {}
    every = list(dict.fromkeys(_named(found, rank) for rank in found.ranked.depths))
    for workload in found.base.groups():
        v = found.verdict(workload, LIKE_THESE, tolerance, drafting=False)
        may = list(dict.fromkeys(_named(found, rank) for rank in v.confidence_set))
        out = [name for name in every if name not in may]
        told = " or ".join(may) if len(may) <= max(len(out), 1) else f"any but {' and '.join(out)}"
        said.setdefault(told if out else "any of them", []).append(workload)
    parts = [f"{told} ({', '.join(workloads)})" for told, workloads in said.items()]
    return f"What may be the fastest, {LIKE_THESE}: {'; '.join(parts)}."


def _named(found: Comparison, rank: int) -> str:
    return drafters.name(found.options[rank].drafter) if rank else "no drafting"


_BUFFERS = {
    "weights, MiB": "model_buffers_mib",
    "KV cache, MiB": "kv_buffers_mib",
    "recurrent state, MiB": "state_buffers_mib",
    "compute, MiB": "compute_buffers_mib",
}


def memory(found: Comparison) -> pd.DataFrame:
    """Return what each drafter needs beyond the target without drafting, at its deepest depth.

    The buffers are those that llama-server's log tells; the peak is of the process's resident
    memory, the highest of all launches.
    """
    zero = _held(found, found.base.recorded.run.spec["arm"], 0)
    rows = {"no drafting, in all": zero}
    for drafter, own in found.drafters.items():
        arm = found.base.recorded.run.spec["arm"] if own is found.base else drafter
        held = _held(found, arm, max(own.depths))
        rows[f"{drafters.name(drafter)}, depth {max(own.depths)}, beyond it"] = {
            name: value - zero[name] for name, value in held.items()
        }
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.map(lambda v: "–" if math.isnan(v) else f"{v + 0.0:.2f}").rename_axis("")


def _held(found: Comparison, arm: str, depth: int) -> dict[str, float]:
    """Return MiB by kind of buffer, over all devices, and the peak; NaN where nothing tells."""
    own = [x for x in found.base.recorded.launches if (x.arm, x.depth) == (arm, depth)]
    told = [x.placement for x in own if x.placement.get("model_buffers_mib")]
    held = {
        name: sum(told[-1].get(field, {}).values()) if told else math.nan
        for name, field in _BUFFERS.items()
    }
    peaks = [x.peak_rss_mib for x in own if x.peak_rss_mib is not None]
    return held | {"peak of the process, MiB": max(peaks, default=math.nan)}
