"""How step time grew with depth in public sweeps, and what it and acceptance did to the speed.

Speed is tokens per step / step time, so step time grows by the growth of the tokens over that of
the speed. A sweep's speed is that of all its prompts, equal texts taken (the harmonic mean), since
its acceptance is pooled over them. Where a document states only the range of acceptance over the
requests, the pooled rate lies in it, and :mod:`analysis.bounds` gives what that allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from analysis import geometric, note, public, quotes, tables
from analysis.bounds import Bounds, exactly, hull, tokens_ratio
from analysis.note import BASE
from analysis.public import MIXED
from analysis.public_sources import NOTE, link, name, sweeps

DEPTHS = (3, 4, 5)  # those that the note has beyond 2
PROMPTS = 3  # of the probe that most sweeps share


@dataclass(frozen=True)
class Growth:
    """One sweep from depth 2 to another depth; all but the last two are ratios."""

    hardware: str
    depth: int
    speed: Bounds
    tokens: Bounds
    step: Bounds
    pooled: bool  # whether the document states the acceptance over all prompts
    borrowed: float | None  # growth of step time with another sweep's acceptance
    lost: float | None  # share of tokens that one constant chance from depth 2 would give more
    lines: tuple[int, ...]


def _speed(own: pd.DataFrame, digits: int) -> Bounds:
    """Return the speed over equal texts of all prompts, with the rounding of each."""
    half = 0.5 * 10**-digits
    low, high = (
        len(own) / sum(1 / (tok_s + side) for tok_s in own["decode_tok_s"])
        for side in (-half, half)
    )
    return Bounds(low, high)


def _rates() -> dict[str, dict[int, tuple[Bounds, bool, int]]]:
    """Return by sweep and depth the acceptance, whether it is pooled, and its line."""
    found: dict[str, dict[int, tuple[Bounds, bool, int]]] = {}
    # As text: the number of digits is the rounding.
    for row in quotes.records(quotes.data("public_acceptance.csv", text=True)):
        pooled = bool(row["pooled"])
        ends = (row["pooled"],) if pooled else (row["lowest"], row["highest"])
        rate = hull([Bounds.printed(float(e), len(e.partition(".")[2])) for e in ends])
        own = found.setdefault(row["hardware"], {})
        own[int(row["n_max"])] = (rate, pooled, int(row["line"]))
    return found


def lender() -> str:
    """Return the sweep whose acceptance others borrow: the one that states it at most depths."""
    stated = quotes.public_acceptance()
    return str(stated["hardware"].value_counts().idxmax())


def growths() -> list[Growth]:
    """Return the growths of every public sweep from depth 2 to the depths of the note."""
    rates, listed = _rates(), sweeps()
    lent = {depth: rate for depth, (rate, *_) in rates[lender()].items()}
    found = []
    for hardware, own in public.speeds().groupby("hardware", sort=False):
        digits = int(listed["speed_digits"][str(hardware)])
        speeds = {int(str(n)): _speed(at, digits) for n, at in own.groupby("n_max")}
        stated = rates[str(hardware)]
        for depth in (d for d in DEPTHS if d in speeds and d in stated):
            speed = speeds[depth] / speeds[BASE]
            both = {d: stated[d][0] for d in (BASE, depth)}
            pooled = all(stated[d][1] for d in both)
            tokens = tokens_ratio(both, depth, BASE)
            borrows = not pooled and own["workload"].nunique() == PROMPTS
            more = tokens_ratio({d: lent[d] for d in both}, depth, BASE)
            rows = own["n_max"].isin(both)
            found.append(
                Growth(
                    hardware=str(hardware), depth=depth, speed=speed, tokens=tokens,
                    step=tokens / speed, pooled=pooled,
                    borrowed=_middle(more / speed) if borrows else None,
                    lost=_lost(both, depth) if pooled else None,
                    lines=tuple(sorted({*own.loc[rows, "line"], *(stated[d][2] for d in both)})),
                )
            )  # fmt: skip
    return found


def _middle(found: Bounds) -> float:
    return math.sqrt(found.low * found.high)


def _lost(rates: dict[int, Bounds], depth: int) -> float:
    """Return the share of tokens per step that is missing against one constant chance."""
    here, at_base = (sum((rates[d].low, rates[d].high)) / 2 for d in (depth, BASE))
    alpha = geometric.alpha_of(at_base, BASE)
    return 1 - (1 + depth * here) / float(geometric.tokens_per_step(alpha, depth))


def _cards() -> set[str]:
    own = sweeps()
    return set(own.index[own["kind"] == "card"])


def of_cards() -> dict[int, Bounds]:
    """Return the range of the growth of step time over the graphics cards, by depth.

    A sweep counts with its own acceptance where that is pooled, with the borrowed one where only
    a range is stated, and with its bounds where it has prompts of its own.
    """
    cards = _cards()
    own: dict[int, list[Bounds]] = {}
    for g in growths():
        if g.hardware in cards:
            own.setdefault(g.depth, []).append(
                g.step if g.borrowed is None else exactly(g.borrowed)
            )
    return {depth: hull(found) for depth, found in sorted(own.items())}


def table() -> pd.DataFrame:
    """Return the growth of step time from depth 2 as text, a row a sweep, with links."""
    rows: dict[str, dict[str, str]] = {}
    lines: dict[str, set[int]] = {}
    for g in growths():
        label = name(g.hardware)
        row = rows.setdefault(label, {"acceptance": "pooled" if g.pooled else "range"})
        borrowed = "" if g.borrowed is None else f"; {g.borrowed:.2f} borrowed"
        row[_to(g.depth)] = g.step.text(2) + borrowed
        lines.setdefault(label, set()).update(g.lines)
        row["source"] = link(g.hardware, lines[label])
    rounded = note.step_growth(rounding=True)
    rows[NOTE] = {"acceptance": "pooled", "source": "note 002"} | {
        _to(d): rounded[d].text(2) for d in DEPTHS
    }
    columns = ["acceptance", *map(_to, DEPTHS), "source"]
    made = pd.DataFrame.from_dict(rows, orient="index")[columns]
    return made.fillna("–").rename_axis("sweep")


def _to(depth: int) -> str:
    return f"{BASE} to {depth}"


def sentence() -> str:
    """Return the growth of step time beside the note's, as one sentence."""
    ours, cards = note.step_growth(rounding=True), of_cards()
    told = [f"{cards[d].text(2)} times to depth {d} ({ours[d].text(2)} in the note)" for d in cards]
    slow = [g for g in growths() if g.hardware not in sweeps().query("kind == 'card'").index]
    last = max(slow, key=lambda g: g.depth)
    return (
        f"From depth {BASE}, step time grew on graphics cards with memory to spare by "
        f"{', '.join(told)}; where a document states only a range of acceptance, that of another "
        f"sweep is borrowed. On {name(last.hardware)}, which has unified memory and where "
        f"everything fits too, it grew {last.step.text(1)} times to depth {last.depth}: verifying "
        f"more tokens has a price of its own, which differs by device."
    )


def as_the_note_has_it() -> str:
    """Return the growth by the arithmetic mean of the speeds, which the note's table has."""
    told = []
    found = quotes.data("public_depth_sweeps.csv")
    found = found[found["workload"] == MIXED]
    rates, deepest = _rates(), max(DEPTHS)
    for hardware, own in found.groupby("hardware", sort=False):
        at = own.set_index("n_max")["decode_tok_s"]
        both = {d: rates[str(hardware)][d][0] for d in (BASE, deepest)}
        speed = Bounds.printed(at[deepest], 1) / Bounds.printed(at[BASE], 1)
        growth = tokens_ratio(both, deepest, BASE) / speed
        told.append(f"{growth.text(2)} ({name(str(hardware))})")
    return (
        f"With the arithmetic mean of the prompts' speeds, as the note's table and two sweeps "
        f"print it, step time grew from depth {BASE} to {deepest} by {' and '.join(told)}."
    )


def deepest() -> list[Growth]:
    """Return of each sweep the growth to the deepest depth that the note has too."""
    last: dict[str, Growth] = {}
    for g in growths():
        if g.hardware not in last or g.depth > last[g.hardware].depth:
            last[g.hardware] = g
    return list(last.values())


def split_table() -> pd.DataFrame:
    """Return what the speed gained in tokens and paid in step time, a row a sweep, with links."""
    rows = {}
    for g in deepest():
        borrowed = "" if g.borrowed is None else f"; {g.borrowed:.2f} borrowed"
        rows[name(g.hardware)] = {
            "depths": _to(g.depth),
            "speed": g.speed.text(2),
            "tokens per step": g.tokens.text(2),
            "step time": g.step.text(2) + borrowed,
            "tokens lost": "–" if g.lost is None else f"{g.lost:.0%}",
            "source": link(g.hardware, g.lines),
        }
    last = max(DEPTHS)
    mean = tables.note()["mean"]
    rows[NOTE] = {
        "depths": _to(last),
        "speed": f"{mean[last] / mean[BASE]:.2f}",
        "tokens per step": tokens_ratio(note.rates(), last, BASE).text(2),
        "step time": note.step_growth()[last].text(2),
        "tokens lost": f"{note.lost_acceptance():.0%}",
        "source": "note 002",
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("sweep")


def split_sentence() -> str:
    """Return whether tokens and step time explain the sweeps, as one sentence."""
    known = [g for g in deepest() if g.borrowed is None]
    slower = [g for g in known if g.speed.high < 1]
    fewer = [g for g in known if g.tokens.high < 1]
    faster = [g for g in known if g.speed.low > 1]
    return (
        f"Of the {len(known)} sweeps whose acceptance is stated closely enough, "
        f"{len(fewer) or 'none'} gave fewer tokens per step at the deepest depth that the note has "
        f"too. The step time decided: {_names(slower)} lost speed, since it grew by more than the "
        f"tokens, {_names(faster)} gained some."
    )


def _names(found: list[Growth]) -> str:
    told = [
        f"{name(g.hardware)} ({g.tokens.text(2)} times the tokens, {g.step.text(2)} times the step "
        f"time)"
        for g in found
    ]
    return " and ".join(told) or "none"


def note_split_sentence() -> str:
    """Return what the note lost to acceptance and to step time, as one sentence."""
    last = max(DEPTHS)
    lost = [g.lost for g in deepest() if g.lost is not None]
    step = note.step_growth()[last]
    tokens = tokens_ratio(note.rates(), last, BASE)
    return (
        f"The note gave {tokens.text(2)} times the tokens for {step.text(2)} times the step time "
        f"(depth {last}). Its acceptance did fall faster: against one constant chance it lacks "
        f"{note.lost_acceptance():.0%} of its tokens per step, public sweeps with pooled "
        f"acceptance {min(lost):.0%} to {max(lost):.0%}. That took {note.lost_acceptance():.0%} of "
        f"its speed, the growth of its step time {1 - 1 / step.low:.0%}."
    )
