"""Tables of the page on drafters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from analysis import drafters, lossless
from analysis.drafters import HEAD, NONE, Comparison, Option
from analysis.stats import LIKE_THESE, Interval
from analysis.tables import interval

HIGHER, LOWER, SAME, UNKNOWN = "higher", "lower", "not distinguishable", "not measured"
_BUFFERS = {
    "weights, MiB": "model_buffers_mib",
    "KV cache, MiB": "kv_buffers_mib",
    "recurrent state, MiB": "state_buffers_mib",
    "compute, MiB": "compute_buffers_mib",
}


def call(found: Interval | None, even: float = 1.0) -> str:
    """Return whether an interval lies above or below `even`, holds it, or is not there."""
    if found is None:
        return UNKNOWN
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return SAME
    return HIGHER if found.low > even else LOWER if found.high < even else SAME


def _by(rows: Mapping[tuple[str, int], Any], name: str) -> pd.DataFrame:
    """Return rows that are keyed by a drafter's name and a number, such as its depth."""
    table = pd.DataFrame.from_dict(dict(rows), orient="index")
    if not table.empty:
        table.index = pd.MultiIndex.from_tuples(table.index, names=["drafter", name])
    return table


def speeds(found: Comparison, scope: str) -> pd.DataFrame:
    """Return decode speed over that without drafting, by drafter and depth, a column a workload."""
    rows = {
        (drafters.name(drafter), depth): {
            name: interval(found.relative("tok_s", Option(drafter, depth), NONE, name, scope))
            for name in found.base.groups()
        }
        for drafter, own in found.drafters.items()
        for depth in own.depths[1:]
    }
    return _by(rows, "depth")


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
    rows = {
        drafters.name(drafter): {
            name: interval(found.best_ratio(drafter, HEAD, name, scope))
            for name in found.base.groups()
        }
        for drafter in found.drafters
        if drafter != HEAD
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("drafter")


def same_depth(found: Comparison, scope: str) -> pd.DataFrame:
    """Return the speed with a dedicated drafter over that with the MTP head, at the same depth."""
    rows = {
        (drafters.name(drafter), depth): {
            name: interval(
                found.relative("tok_s", Option(drafter, depth), Option(HEAD, depth), name, scope)
            )
            for name in found.base.groups()
        }
        for drafter in found.dedicated
        for depth in found.drafters[drafter].depths[1:]
    }
    return _by(rows, "depth")


def by_position(found: Comparison, scope: str) -> pd.DataFrame:
    """Return acceptance by position of every drafter at its deepest depth, a column a workload.

    Drafters that never drafted are left out.
    """
    rows = {}
    for drafter, own in found.drafters.items():
        counts = {w: found.positions(drafter, w) for w in own.workloads}
        for k in range(1, found.deepest(drafter) + 1) if any(counts.values()) else ():
            rows[drafters.name(drafter), k] = {
                w: interval(c.interval(k, "a", scope) if c else None) for w, c in counts.items()
            }
    return _by(rows, "position")


def gains(found: Comparison, scope: str) -> pd.DataFrame:
    """Return how acceptance of dedicated drafters differs from the MTP head's, by position."""
    rows = {}
    for drafter in found.dedicated:
        deepest = found.deepest(drafter)
        for k in range(1, deepest + 1):
            gain = found.gain(drafter, HEAD, k, scope, among=deepest)
            rows[drafters.name(drafter), k] = {
                "share kept, less the MTP head's": interval(gain),
                "it is": call(gain, 0.0),
            }
    return _by(rows, "position")


def work(found: Comparison) -> pd.DataFrame:
    """Return how much each drafter drafted at its deepest depth, over all requests of all rounds.

    A drafter that finds nothing to say drafts nothing, and the step is an undrafted one.
    """
    rows = {}
    for drafter, own in found.drafters.items():
        option = Option(drafter, found.deepest(drafter))
        timed = own.timed[own.timed["depth"] == option.depth]
        drafted, kept = (float(timed[c].fillna(0).sum()) for c in ("draft_n", "draft_n_accepted"))
        steps = float(timed["steps"].sum())
        rows[drafters.name(drafter)] = {
            "depth": option.depth,
            "drafted a step": f"{drafted / steps:.2f}",
            "kept of drafted": f"{kept / drafted:.3f}" if drafted else "–",
            "tokens a step": f"{1 + kept / steps:.2f}",
            "step time, of depth 0's": interval(
                found.relative("step_ms", option, NONE, found.whole, LIKE_THESE)
            ),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("drafter")


def texts(found: Comparison) -> pd.DataFrame:
    """Return how many greedy texts equal that without drafting, by drafter, over all depths."""
    recorded = found.base.recorded
    margins = {(d.arm, d.workload, d.prompt_id, d.depth): d.margin for d in recorded.divergences}
    compared = lossless.pairs(recorded)
    rows = {}
    for arm, drafter in drafters.arm_names(recorded.run.spec).items():
        own = [(a, b) for a, b in compared if b.arm == arm]
        parted = [
            margins.get((arm, b.workload, b.prompt_id, b.depth))
            for a, b in own
            if lossless.first_difference(a.tokens, b.tokens) is not None
        ]
        widest = "unknown" if None in parted else f"{max(map(abs, parted), default=0):.4f}"  # type: ignore[arg-type]
        rows[drafters.name(drafter)] = {
            "compared": len(own),
            "equal": len(own) - len(parted),
            "largest margin where they part": widest if parted else "–",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("drafter")


def memory(found: Comparison) -> pd.DataFrame:
    """Return what each drafter needs beyond the target without drafting, at its deepest depth.

    The buffers are those that llama-server's log tells; the peak is of the process's resident
    memory, the highest of all launches.
    """
    spec = found.base.recorded.run.spec
    zero = _held(found, spec["arm"], 0)
    rows = {"no drafting, in all": zero}
    for arm, drafter in drafters.arm_names(spec).items():
        if drafter in found.drafters:
            depth = found.deepest(drafter)
            rows[f"{drafters.name(drafter)}, depth {depth}, beyond it"] = {
                name: value - zero[name] for name, value in _held(found, arm, depth).items()
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


def files(found: Comparison) -> pd.DataFrame:
    """Return what is known of the files that drafted beside the target's own."""
    rows = {
        drafters.name(drafter): {
            "file": facts["name"],
            "architecture": facts["architecture"],
            "quantization": facts["quantization"],
            "parameters": f"{facts['parameters'] / 1e6:.1f}M",
            "SHA-256": facts["sha256"][:16],
        }
        for drafter, facts in found.base.recorded.run.drafters.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("drafter")
