"""Depth sweeps that others published: what they are, their curves, and their best depths."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from analysis import quotes, tables
from analysis.note import BASE  # every sweep has it
from analysis.public_sources import NOTE, link, name, sweeps
from analysis.verdict import TOLERANCE

KINDS = {"prose": "prose", "code": "code", "code (Python)": "code", "code (Bash)": "code"}
MIXED = "mean of three prompts"


def speeds() -> pd.DataFrame:
    """Return the speeds of single kinds of work, a row a sweep, workload and depth."""
    found = quotes.data("public_depth_sweeps.csv")
    found["kind"] = found["workload"].map(KINDS)
    return found.dropna(subset=["kind"])


def curves() -> pd.DataFrame:
    """Return speed relative to depth 2 by sweep, kind of work and depth, the note's included.

    Over several prompts of a kind it is the geometric mean of the ratios.
    """
    own = speeds()[["hardware", "workload", "kind", "n_max", "decode_tok_s"]]
    printed = tables.note()[["prose", "code"]].rename_axis("n_max").reset_index()
    note = printed.melt("n_max", var_name="workload", value_name="decode_tok_s")
    own = pd.concat([own, note.assign(hardware=NOTE, kind=note["workload"])])
    at_base = own[own["n_max"] == BASE].set_index(["hardware", "workload"])["decode_tok_s"]
    own = own.join(at_base.rename("at_base"), on=["hardware", "workload"])
    own["relative"] = np.log(own["decode_tok_s"] / own["at_base"])
    mean = own.groupby(["hardware", "kind", "n_max"], sort=False)["relative"].mean()
    return mean.map(math.exp).reset_index()


def facts() -> pd.DataFrame:
    """Return what the documents say of each sweep; an en dash where they say nothing."""
    rows = {}
    for hardware, own in sweeps().iterrows():
        rows[own["name"]] = {
            "quantization": own["quantization"],
            "context, KV cache": f"{own['context']}, {own['kv_type']}",
            "build": _or_dash(own["build"]),
            "runs a cell": _runs(own),
            "memory used": _memory(own),
            "sources": ", ".join(_sources(str(hardware), own)),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("sweep")


def _or_dash(value: object) -> str:
    return "–" if pd.isna(value) else str(value)  # type: ignore[call-overload]


def _runs(own: pd.Series) -> str:
    if pd.isna(own["runs_per_cell"]):
        return "not stated"
    return f"{own['statistic']} of {own['runs_per_cell']:.0f}"


def _memory(own: pd.Series) -> str:
    at = "" if pd.isna(own["memory_at"]) else f" at n = {own['memory_at']:.0f}"
    return f"{own['memory_used']:,.10g} of {own['memory_of']:,.0f} {own['memory_unit']}{at}"


def _sources(hardware: str, own: pd.Series) -> list[str]:
    """Return a link for each fact that is stated."""
    told = [link(hardware, [own["heading_line"]], text="sweep")]
    for fact, text in (("config", "settings"), ("memory", "memory"), ("runs", "runs")):
        if not pd.isna(own[f"{fact}_line"]):
            told.append(link(hardware, [own[f"{fact}_line"]], own[f"{fact}_document"], text))
    return told


def _span(depths: tuple[int, ...]) -> str:
    """Return ``2 to 6`` for depths without a gap, else all of them."""
    whole = depths == tuple(range(depths[0], depths[-1] + 1))
    return f"{depths[0]} to {depths[-1]}" if whole else tables.listed(depths)


def best() -> pd.DataFrame:
    """Return the fastest depth of each sweep and workload, and how near the next one is.

    Columns: ``depth``, ``runner_up``, ``lead`` (speed against the runner-up, less 1), ``gain``
    (speed against depth 2, less 1), ``measured`` (all depths) and ``lines``.
    """
    rows = []
    for (hardware, workload), own in speeds().groupby(["hardware", "workload"], sort=False):
        ranked = own.sort_values("decode_tok_s", ascending=False)
        first, second = ranked["decode_tok_s"].iloc[:2]
        at_base = float(own.loc[own["n_max"] == BASE, "decode_tok_s"].iloc[0])
        rows.append(
            {
                "hardware": hardware,
                "workload": workload,
                "kind": KINDS[str(workload)],
                "depth": int(ranked["n_max"].iloc[0]),
                "runner_up": int(ranked["n_max"].iloc[1]),
                "lead": first / second - 1,
                "gain": first / at_base - 1,
                "measured": tuple(sorted(int(n) for n in own["n_max"])),
                "lines": tuple(sorted(int(n) for n in own["line"])),
            }
        )
    return pd.DataFrame(rows)


def best_table(kind: str) -> pd.DataFrame:
    """Return the best depths of one kind of work as text, with links."""
    rows = {}
    found = best()
    for own in quotes.records(found[found["kind"] == kind]):
        label = name(own["hardware"])
        if own["workload"] != kind:
            label += f", {own['workload'].removeprefix(kind).strip(' ()')}"
        rows[label] = {
            "measured": _span(own["measured"]),
            "fastest": own["depth"],
            "against depth 2": "–" if own["depth"] == BASE else f"{own['gain']:+.1%}",
            "next": own["runner_up"],
            "lead over it": f"{own['lead']:.1%}"
            + (" (tie)" if own["lead"] < 1 - TOLERANCE else ""),
            "source": link(own["hardware"], own["lines"]),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("sweep")


def best_sentence(kind: str) -> str:
    """Return for how many sweeps of a kind of work depth 2 is the best, and how far off it is."""
    found = best()
    own = found[found["kind"] == kind]
    shown = own["depth"].value_counts().sort_index()
    others = [f"{depth} in {count}" for depth, count in shown.items() if depth != BASE]
    near = int((own["gain"] < 1 / TOLERANCE - 1).sum())
    ties = int((own["lead"] < 1 - TOLERANCE).sum())
    largest = max(quotes.records(own), key=lambda row: row["gain"])
    within = f"within {1 - TOLERANCE:.0%}"
    here = int((own["depth"] == BASE).sum())
    return (
        f"Depth {BASE} is the fastest of those measured in {here} of {len(own)} curves of {kind}; "
        f"depth {', depth '.join(others)}. In {near} of them depth {BASE} is {within} of the "
        f"fastest; at most the fastest gains {largest['gain']:.0%} over it "
        f"({name(largest['hardware'])}, depth {largest['depth']}). In {ties} the two fastest lie "
        f"{within} of each other, which figures without an interval can not tell apart."
    )


def ample_sentence() -> str:
    """Return by how much the memory of each sweep was used, as one sentence."""
    own = sweeps()
    share = own["memory_used"] / own["memory_of"]
    fullest = str(share.idxmax())
    return (
        f"All {len(own)} sweeps had memory to spare: where they state it, the fullest used "
        f"{share.max():.0%} of what it had ({name(fullest)}), the emptiest {share.min():.0%} "
        f"({name(str(share.idxmin()))}). They do not answer what happens at the edge of a card, "
        f"where the note's depth 3 stood."
    )


def shallow_sentence() -> str:
    """Return which sweeps are fastest at depth 2 or less for every kind of work they measured."""
    deepest = best().groupby("hardware", sort=False)["depth"].max()
    shallow = [name(str(h)) for h, depth in deepest.items() if depth <= BASE]
    if not shallow:
        return f"No sweep is fastest at depth {BASE} or less for all of its work."
    return (
        f"Of {len(deepest)} sweeps, {len(shallow)} are fastest at depth {BASE} or less for all of "
        f"their work: {' and '.join(shallow)}."
    )


def note_sentence(depth: int = 3) -> str:
    """Return where the note stands among the sweeps one depth beyond 2, as one sentence."""
    found = curves()
    told, below = [], True
    for kind in ("prose", "code"):
        own = found[(found["kind"] == kind) & (found["n_max"] == depth)].set_index("hardware")
        others = own["relative"].drop(NOTE)
        ours = own["relative"][NOTE]
        below &= bool(ours < others.min())
        told.append(
            f"{ours:.0%} in {kind}, where public sweeps keep {others.min():.0%} to "
            f"{others.max():.0%}"
        )
    place = "less than any of them" if below else "within their range in part"
    return (
        f"At depth {depth} the note keeps, of its speed at depth {BASE}, {', and '.join(told)}: "
        f"{place}."
    )


def runs_sentence() -> str:
    """Return how many runs stand behind a cell, and what is said of their spread."""
    own = sweeps()
    counts = own["runs_per_cell"].value_counts().sort_index()
    told = [f"{runs:.0f} in {count}" for runs, count in counts.items()]
    silent = int(own["runs_per_cell"].isna().sum())
    spread = [
        f"{row['spread']} ({link(str(hardware), [row['spread_line']], text=row['name'])})"
        for hardware, row in own.dropna(subset=["spread"]).iterrows()
    ]
    return (
        f"Each figure is a mean or median of a few runs of one prompt ({', '.join(told)} sweeps; "
        f"{silent} does not say), and none has an interval. What spread is stated: "
        f"{'; '.join(spread)}."
    )


def memory_source() -> str:
    """Return the link to the lines that state the memory of a sweep by depth."""
    own = quotes.data("public_depth_sweeps.csv").dropna(subset=["memory_line"])
    hardware = str(own["hardware"].iloc[0])
    of = sweeps().loc[hardware]
    config = link(hardware, [of["config_line"]])  # type: ignore[list-item]
    return (
        f"{of['name']}, {of['quantization']}, one slot, context {of['context']}, KV cache "
        f"{of['kv_type']}; every power cap gave the same figures. Source lines: "
        f"{link(hardware, own['memory_line'].astype(int))}; configuration: {config}."
    )
