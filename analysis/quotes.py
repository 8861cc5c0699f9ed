"""Figures quoted from others, with their sources, and what one constant chance makes of them."""

from __future__ import annotations

import math
from importlib import resources
from typing import Any

import pandas as pd

from analysis import geometric, memory, shapes
from analysis.stats import Interval

_RATED = "RTX 5090 (row C, power cap 600 W)"  # the rates that a shape without weights is given


def data(name: str, *, text: bool = False) -> pd.DataFrame:
    """Return one of the package's quoted tables by its file name, all of it as text if asked."""
    with resources.files("analysis").joinpath("data", name).open() as file:
        return pd.read_csv(file, dtype=str, keep_default_na=False) if text else pd.read_csv(file)


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table by column name."""
    return [dict(zip(table.columns, row, strict=True)) for row in table.itertuples(index=False)]


def note_acceptance() -> pd.DataFrame:
    """Return the note's acceptance rates, as printed, with their source."""
    return data("note_002_acceptance.csv")


def public_acceptance() -> pd.DataFrame:
    """Return the public sweeps that state an acceptance rate."""
    return data("public_depth_sweeps.csv").dropna(subset=["acceptance"])


def public_rates(depth: int) -> tuple[float, ...]:
    """Return a public measurement's chances that the first k guesses are all kept, k up to `depth`.

    The source states r_k, accepted over drafted at depth k. Were the chances equal at all depths,
    then a_k = k r_k - (k - 1) r_(k-1). Beyond its deepest depth the last conditional chance holds.
    """
    own = _rated().set_index("n_max")["acceptance"]
    stated = [0.0, *(float(own[k]) for k in range(1, int(own.index.max()) + 1))]
    kept = [1.0]
    for k in range(1, len(stated)):
        kept.append(min(k * stated[k] - (k - 1) * stated[k - 1], kept[-1]))
    return tuple(round(a, 3) for a in geometric.prolonged(kept[1:], depth))


def rates_name() -> str:
    """Return the model and hardware of :func:`public_rates`, in a few words."""
    first = _rated().iloc[0]
    return f"{str(first['model']).split(' ')[0]} on an {str(first['hardware']).split(' (')[0]}"


def rates_source() -> str:
    """Return where :func:`public_rates` comes from."""
    first = _rated().iloc[0]
    hardware = str(first["hardware"]).split(" (")[0]
    return f"{first['model']} on an {hardware}, {first['source']}"


def _rated() -> pd.DataFrame:
    own = public_acceptance()
    return own[own["hardware"] == _RATED]


def public_memory() -> pd.DataFrame:
    """Return the public sweep that states its memory, by depth, beside the law for one slot.

    Its model has the shape of Qwen3.6-27B. Two power caps gave the same figures.
    """
    quoted = data("public_depth_sweeps.csv").dropna(subset=["vram_used_mib"])
    used = quoted.groupby("n_max")["vram_used_mib"].agg(["min", "max"])
    layout = shapes.shape("qwen3.6-27b").layout()
    step = memory.state_mib(layout, 1, 1) - memory.state_mib(layout, 1, 0)
    rows = {}
    for depth, own in used.iterrows():
        before = used["max"].get(int(str(depth)) - 1)
        more = math.nan if before is None else own["max"] - before
        rows[depth] = {
            "memory used, MiB": f"{own['min']:,.0f}"
            + ("" if own["min"] == own["max"] else f" to {own['max']:,.0f}"),
            "more than one depth less": "–" if math.isnan(more) else f"{more:,.0f}",
            "of it state, by the law": "–" if math.isnan(more) else f"{step:,.1f}",
            "the rest": "–" if math.isnan(more) else f"{more - step:,.1f}",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def predicted(rate: float, depth: int, other: int, rounding: float) -> Interval:
    """Return the rate at another depth, were alpha constant, with the reach of the rounding.

    `rounding` is half a unit of the printed rate's last digit.
    """
    rates = (rate, max(rate - rounding, 0.0), min(rate + rounding, 1.0))
    return Interval(*(geometric.rate_of(geometric.alpha_of(r, depth), other) for r in rates))


def one_alpha() -> pd.DataFrame:
    """Return what one constant chance, taken from depth 2, predicts at depth 5, and what is there.

    The interval of a prediction is the reach of the printed figure's rounding.
    """
    rows = {}
    quoted = {
        "the note, short prompts": note_acceptance().assign(hardware="the note"),
        **{f"public sweep, {h}": own for h, own in public_acceptance().groupby("hardware")},
    }
    for name, own in quoted.items():
        rates = own.set_index("n_max")["acceptance"]
        if not {2, 5} <= set(rates.index):
            continue
        stated = str(own["source"].iloc[0])
        source, _, document = stated.partition(", " if ", " in stated else " ")
        digits = 2 if name.startswith("the note") else 3
        at_5 = predicted(rates[2], 2, 5, 0.5 * 10**-digits)
        rows[name] = {
            "rate at depth 2": f"{rates[2]:.{digits}f}",
            "constant chance from it": f"{geometric.alpha_of(rates[2], 2):.3f}",
            "predicts at depth 5": f"{at_5.estimate:.3f} [{at_5.low:.3f}, {at_5.high:.3f}]",
            "stated at depth 5": f"{rates[5]:.{digits}f}",
            "source": source,
            "document": document,
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("measured by")


def note_sentence() -> str:
    """Return what one constant chance makes of the note's two figures, as one sentence."""
    rates = note_acceptance().set_index("n_max")["acceptance"]
    at_5 = predicted(rates[2], 2, 5, 0.005)
    inside = at_5.low <= rates[5] <= at_5.high
    measured = [
        f"{own.set_index('n_max')['acceptance'][2]:.0%} to "
        f"{own.set_index('n_max')['acceptance'][5]:.0%} ({h})"
        for h, own in public_acceptance().groupby("hardware")
        if {2, 5} <= set(own["n_max"])
    ]
    return (
        f"One constant chance that gives the note's {rates[2]:.0%} at depth 2 "
        f"({geometric.alpha_of(rates[2], 2):.2f}) predicts {at_5.estimate:.0%} at depth 5, where "
        f"the note has {rates[5]:.0%}: the note's two figures "
        f"{'fit' if inside else 'do not fit'} one constant chance. Over the same depths, public "
        f"sweeps of the same shape, on other prompts, fell from {', '.join(measured)}."
    )


def traffic_sentence() -> str:
    """Return what the note states of acceptance on its own traffic."""
    low, high = data("note_002_traffic.csv").loc[0, ["acceptance_low", "acceptance_high"]]
    return f"The note gives {low:.2f} to {high:.2f} on its own traffic, without the depth."
