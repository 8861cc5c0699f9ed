"""What the note's own table allows: its step times, and what memory to spare would have shown.

With `S_n` the sum of the chances that the first 1 to n guesses are all kept, the acceptance rate
is ``S_n / n``, a step gives ``1 + S_n`` tokens, and step time = tokens per step / speed. The note
states rates at depths 2 and 5; :mod:`analysis.bounds` gives what they leave open between.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from analysis import geometric, quotes, tables
from analysis.bounds import Bounds, exactly, tokens_ratio

BASE = 2  # the depth that the note chose
_SPEED_DIGITS = 1  # of the note's table


def rates(*, rounding: bool = False) -> dict[int, Bounds]:
    """Return the acceptance rates that the note states, by depth."""
    return {
        int(row["n_max"]): Bounds.printed(row["acceptance"], int(row["digits"]))
        if rounding
        else exactly(row["acceptance"])
        for row in quotes.records(quotes.note_acceptance())
    }


def _speeds(column: str, *, rounding: bool) -> dict[int, Bounds]:
    return {
        int(str(depth)): Bounds.printed(speed, _SPEED_DIGITS) if rounding else exactly(speed)
        for depth, speed in tables.note()[column].items()
    }


def step_ms(column: str = "mean", *, rounding: bool = False) -> dict[int, Bounds]:
    """Return the bounds of the note's step time in ms, by depth."""
    stated = rates(rounding=rounding)
    milli = exactly(1e3)
    return {
        depth: milli * tokens_ratio(stated, depth) / speed
        for depth, speed in _speeds(column, rounding=rounding).items()
    }


def step_growth(column: str = "mean", *, rounding: bool = False) -> dict[int, Bounds]:
    """Return the bounds of the step time relative to depth 2, by depth."""
    stated, speeds = rates(rounding=rounding), _speeds(column, rounding=rounding)
    return {
        depth: tokens_ratio(stated, depth, BASE) * (speeds[BASE] / speed)
        for depth, speed in speeds.items()
        if depth > BASE
    }


def step_times(column: str = "mean") -> pd.DataFrame:
    """Return bounds of tokens per step and of step time in ms, by depth.

    Columns ``tokens_low`` to ``step_ms_high`` take the printed figures as exact; those that end
    in ``_rounded`` hold whatever they may have been before they were rounded.
    """
    rows: dict[int, dict[str, float]] = {}
    for rounding, end in ((False, ""), (True, "_rounded")):
        stated = rates(rounding=rounding)
        for depth, found in step_ms(column, rounding=rounding).items():
            tokens = tokens_ratio(stated, depth)
            rows.setdefault(depth, {}).update(
                {
                    f"tokens_low{end}": tokens.low,
                    f"tokens_high{end}": tokens.high,
                    f"step_ms_low{end}": found.low,
                    f"step_ms_high{end}": found.high,
                }
            )
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def table() -> pd.DataFrame:
    """Return the step times as text: from the mean of the workloads, and from short prompts."""
    exact, open_ = rates(), rates(rounding=True)
    mean, rounded = step_ms(), step_ms(rounding=True)
    short, growth = step_ms("short"), step_growth()
    rows = {
        depth: {
            "acceptance stated": f"{exact[depth].low:.0%}" if depth in exact else "–",
            "tokens per step": tokens_ratio(exact, depth).text(2),
            "with rounding": tokens_ratio(open_, depth).text(2),
            "step time, ms": mean[depth].text(0),
            "step time with rounding, ms": rounded[depth].text(0),
            "against depth 2": growth[depth].text(2) if depth in growth else "1",
            "step time from the speeds of short prompts, ms": short[depth].text(0),
        }
        for depth in mean
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def _listed(found: Mapping[int, Bounds], digits: int = 0) -> str:
    told = [bounds.text(digits) for _, bounds in sorted(found.items())]
    return f"{', '.join(told[:-1])} and {told[-1]}"


def sentence() -> str:
    """Return what the note's two acceptance figures say of its step times."""
    stated, growth, times = rates(), step_growth(), step_ms()
    first, last = min(times), max(times)
    tokens = tokens_ratio(stated, last, first)
    told = " and ".join(f"{r.low:.0%} at depth {d}" for d, r in sorted(stated.items()))
    return (
        f"The note's two acceptance figures, {told}, bound its step time to {_listed(times)} ms at "
        f"depths {first} to {last} (with the rounding of its figures, "
        f"{_listed(step_ms(rounding=True))} ms). From depth {first} to {last} a step gave "
        f"{tokens.text(2)} times the tokens and took {growth[last].text(1)} times as long: its "
        f"loss is step time, not tokens. The acceptance is of short prompts and the speeds are "
        f"the mean of four workloads; the speeds of short prompts alone give "
        f"{_listed(step_ms('short'))} ms."
    )


def lost_acceptance() -> float:
    """Return the share of tokens per step that the note lacks at its last stated depth.

    It is taken against the one constant chance that gives its rate at depth 2.
    """
    stated = rates()
    last = max(stated)
    alpha = geometric.alpha_of(stated[BASE].low, BASE)
    return 1 - tokens_ratio(stated, last).low / float(geometric.tokens_per_step(alpha, last))


def with_memory_to_spare(growth: Mapping[int, Bounds]) -> dict[int, Bounds]:
    """Return the bounds of the note's mean speed in tok/s, had its step time grown like others'.

    Its step time at depth 2 grows by `growth`, by depth, as on cards where all depths fit; its
    tokens per step are its own. The rounding of its figures is in the bounds.
    """
    stated = rates(rounding=True)
    speed = _speeds("mean", rounding=True)[BASE]
    return {
        depth: speed * tokens_ratio(stated, depth, BASE) / more for depth, more in growth.items()
    }


def spare_table(growth: Mapping[int, Bounds]) -> pd.DataFrame:
    """Return the speeds of :func:`with_memory_to_spare` beside those that the note measured."""
    measured, stated = tables.note()["mean"], rates(rounding=True)
    rows = {
        depth: {
            "growth of step time from depth 2, public cards": growth[depth].text(2),
            "mean tok/s with memory to spare": speed.text(0),
            "against depth 2": (tokens_ratio(stated, depth, BASE) / growth[depth]).text(2),
            "mean tok/s in the note": f"{measured[depth]:.1f}",
            "the note against depth 2": f"{measured[depth] / measured[BASE]:.2f}",
        }
        for depth, speed in with_memory_to_spare(growth).items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def _depths(found: set[int]) -> str:
    return f"depth {' or '.join(map(str, sorted(found)))}"


def spare_sentence(growth: Mapping[int, Bounds]) -> str:
    """Return what a card with memory to spare would have shown, as one sentence."""
    found, measured = with_memory_to_spare(growth), tables.note()["mean"]
    told = [f"{b.text(0)} tok/s at depth {d} ({measured[d]:.1f} there)" for d, b in found.items()]
    best = {d for d, b in found.items() if b.low > measured[BASE]}
    maybe = {d for d, b in found.items() if b.high > measured[BASE]}
    if best:
        said = f"{_depths(best)} would have been faster than depth {BASE}"
    elif maybe:
        said = f"whether {_depths(maybe)} would have been faster is open"
    else:
        said = f"depth {BASE} would still have been the fastest, by far less"
    return (
        f"Had the note's step time of depth 2 grown as on public cards with memory to spare, its "
        f"own acceptance would have given {', '.join(told)} against {measured[BASE]:.1f} at depth "
        f"{BASE}: {said}."
    )
