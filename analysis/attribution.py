"""The slowdown from one depth to another, split into its causes, each with an interval.

Every pair of requests (the same prompt in the same round) is split exactly, by
:func:`analysis.speculation.split`; the means of the parts then sum to the mean of the whole, the
logarithm of the geometric mean ratio. All numbers are natural logarithms until they are shown: a
part is shown as the factor that it multiplies the speed by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis import note, speculation, stats
from analysis.arms import Pair
from analysis.findings import leading
from analysis.pieces import PARTS, Pieces
from analysis.report import Sweep
from analysis.speculation import Steps
from analysis.stats import LIKE_THESE, Interval, Mean, Table
from analysis.tables import interval

GUESSES, LOSS = "guesses all as good as the first", "loss of acceptance"
TOKENS, STEP, PLACEMENT = "tokens per step", "step time", "layer off the device"
SPEED = "speed"


@dataclass(frozen=True)
class Split:
    """Parts of a log ratio of two speeds; they sum to `whole`."""

    base: int
    depth: int
    parts: dict[str, Mean]
    whole: Mean

    def factor(self, part: str, scope: str = LIKE_THESE) -> Interval:
        """Return what a part multiplies the speed by; :data:`SPEED` is the whole."""
        mean = self.whole if part == SPEED else self.parts[part]
        return mean.interval(scope).map(math.exp)


def of_tracer(pieces: Pieces, base: int, depth: int, workloads: tuple[str, ...] = ()) -> Split:
    """Return the split between two depths of the tracer's run, all workloads weighing the same.

    Raises
    ------
    ValueError
        If the depths share no round.
    """
    tables: dict[str, list[Table]] = {}
    for workload in workloads or pieces.workloads:
        before = pieces.steps("natural", workload, base)
        after = pieces.steps("natural", workload, depth)
        found = speculation.split(before, after)
        chance = _first_chance(pieces, workload, depth)
        kept, lost = speculation.acceptance_loss(
            (base, before.tokens), (depth, after.tokens), chance
        )
        parts = {GUESSES: kept, LOSS: lost} | {part: found[part] for part in PARTS}
        for name, table in parts.items():
            tables.setdefault(name, []).append(table)
    return _split(base, depth, tables)


def _first_chance(pieces: Pieces, workload: str, depth: int) -> Table:
    """Return the chance of the first guess of each text at a depth, as rounds x prompts."""
    own = pieces.frame.assign(
        first=[
            accepted[0] / offered[0] if len(offered) and offered[0] else math.nan
            for offered, accepted in zip(
                pieces.frame["offered"], pieces.frame["accepted"], strict=True
            )
        ]
    )
    return Pieces(own).table("natural", workload, depth, "first")


def of_server(sweep: Sweep, base: int, depth: int) -> Split:
    """Return the split of llama-server's own speeds into tokens per step and step time."""
    tables: dict[str, list[Table]] = {TOKENS: [], STEP: []}
    for workload in sweep.workloads:
        for part, column, sign in ((TOKENS, "tokens_per_step", 1), (STEP, "step_ms", -1)):
            after, before = (np.log(sweep.table(column, workload, d)) for d in (depth, base))
            tables[part].append(sign * (after - before))
    return _split(base, depth, tables)


def of_eviction(pair: Pair, base: int, depth: int) -> Split:
    """Return the split from `base` with all layers on the device to `depth` with one layer off.

    The placement is what the layer adds to the step time at `depth`.
    """
    natural, evicted = pair.both
    tables: dict[str, list[Table]] = {}
    for workload in natural.workloads:
        before, after = (natural.table("step_ms", workload, d) for d in (base, depth))
        off = evicted.table("step_ms", workload, depth)
        zero = np.zeros_like(before)
        found = speculation.split(
            Steps(
                natural.table("tokens_per_step", workload, base), {STEP: before, PLACEMENT: zero}
            ),
            Steps(
                evicted.table("tokens_per_step", workload, depth),
                {STEP: after, PLACEMENT: off - after},
            ),
        )
        for name, table in found.items():
            tables.setdefault(TOKENS if name == "tokens" else name, []).append(table)
    return _split(base, depth, tables)


def _split(base: int, depth: int, tables: dict[str, list[Table]]) -> Split:
    whole = [np.sum(parts, axis=0) for parts in zip(*tables.values(), strict=True)]
    # A part of a pair that is not whole would not sum to it.
    kept = {
        name: [np.where(np.isnan(w), np.nan, t) for t, w in zip(own, whole, strict=True)]
        for name, own in tables.items()
    }
    parts = {name: stats.mean(own) for name, own in kept.items()}
    return Split(base, depth, parts, stats.mean(whole))


def table(splits: list[Split], scope: str = LIKE_THESE) -> pd.DataFrame:
    """Return the factors of each split in one row; those of a row multiply to its speed."""
    rows = {
        f"{s.base} to {s.depth}": {
            part: interval(s.factor(part, scope)) for part in (*s.parts, SPEED)
        }
        for s in splits
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depths")


def finding(splits: Sequence[Split], scope: str = LIKE_THESE) -> str:
    """Return the largest loss from the first base to the deepest depth, as one short sentence.

    Parts whose intervals overlap with the largest loss's are named beside it.
    """
    deepest = _deepest(splits)
    factors = {part: deepest.factor(part, scope) for part in deepest.parts}
    first, *others = leading(factors, least=True)
    loss = "no part is a loss by its estimate"
    if factors[first].estimate < 1:
        loss = f"the largest loss is {first}, {interval(factors[first])}"
        loss += f" (not distinguishable from {', '.join(others)})" if others else ""
    return (
        f"{_engine(deepest)}, from depth {deepest.base} to {deepest.depth}, speed changes by the "
        f"factor {interval(deepest.factor(SPEED, scope))}, {scope}; {loss}."
    )


def _deepest(splits: Sequence[Split]) -> Split:
    return max(splits, key=lambda s: (s.depth, -s.base))


def _engine(own: Split) -> str:
    return "In the tracer" if "verify" in own.parts else "In llama-server"


def sentence(splits: list[Split], scope: str = LIKE_THESE) -> str:
    """Return what changes the speed from the first base to the deepest depth, as one sentence."""
    deepest = _deepest(splits)
    order = sorted(deepest.parts, key=lambda part: deepest.parts[part].estimate)
    told = [f"{part} {interval(deepest.factor(part, scope))}" for part in order]
    costs = sum(m.estimate for m in deepest.parts.values() if m.estimate < 0)
    first = order[0]
    share = (
        f", {deepest.parts[first].estimate / costs:.0%} of all that costs speed" if costs else ""
    )
    return (
        f"{_engine(deepest)}, from depth {deepest.base} to {deepest.depth}, speed changes by the "
        f"factor {interval(deepest.factor(SPEED, scope))}, which is the product of "
        f"{', '.join(told)}. The largest loss is {first}{share} (in logarithms)."
    )


def page_splits(sweep: Sweep, pieces: Pieces | None) -> list[Split]:
    """Return the splits of a page: from depth 0 to each depth, and from the note's to the deepest.

    They are the tracer's, or where it did not run the server's, with two parts.
    """
    depths = pieces.depths if pieces else sweep.depths
    pairs = [(0, d) for d in depths if d > 0]
    if note.BASE in depths and depths[-1] > note.BASE:
        pairs.append((note.BASE, depths[-1]))
    if pieces:
        return [of_tracer(pieces, *pair) for pair in pairs]
    return [of_server(sweep, *pair) for pair in pairs]


def eviction_splits(pair: Pair) -> list[Split]:
    """Return the splits from the first depth, all on the device, to each with one layer off."""
    if not pair.there:
        return []
    depths = pair.both[0].depths
    return [of_eviction(pair, depths[0], d) for d in depths]


def layer_sentence(splits: list[Split], *, emulated: bool, scope: str = LIKE_THESE) -> str:
    """Return what one layer off the device takes at each depth, as one sentence."""
    told = []
    for own in splits:
        found = own.factor(PLACEMENT, scope)
        word = "slower" if found.high < 1 else "faster" if found.low > 1 else "not distinguishable"
        word = word if math.isfinite(found.high) else "one launch can not tell"
        told.append(f"{interval(found)} at depth {own.depth} ({word})")
    where = "the emulated device, which shows the mechanism alone," if emulated else "the device"
    return f"With depth and acceptance held, one layer off {where} is the factor {'; '.join(told)}."


def moved(sweep: Sweep) -> str:
    """Return which depths had other layers on the device than depth 0, or "" where none had.

    A step time then holds what that costs; no part of the split has it alone.
    """
    own = sweep.timed.dropna(subset=["layers_on_device"])
    places = {
        int(str(depth)): sorted(set(at["layers_on_device"])) for depth, at in own.groupby("depth")
    }
    apart = {d: p for d, p in places.items() if p != places[min(places)]}
    if not apart:
        return ""
    told = "; ".join(f"{', '.join(p)} at depth {d}" for d, p in sorted(places.items()))
    return (
        f"Layers left the device between these depths ({told}): the step times hold what that "
        "costs, and the part of a layer off the device, measured apart, is in them."
    )
