"""The planner page's worked example, and how far its closed form lies from the engine's planner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import markdown_table, memory, plan, plan_text, planner, plans, shapes
from analysis.plan import Parts, Pool, Row
from analysis.planner import Planned
from analysis.planner_form import SHOWN_DEPTH, Settings

# What else could be given up for depth, one thing at a time.
TRADES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "caches in 8 bits": {"cache_type_k": "q8_0", "cache_type_v": "q8_0"},
    "context: 65,536 tokens": {"context": 65536},
    "one slot of the two": {"slots": 1},
    "weights in q4_k_s": {"quant": "q4_k_s"},
}


@dataclass(frozen=True)
class Agreement:
    """How far the closed form lies from what engines have planned for the book's machines."""

    layouts: int
    shapes: int
    apart_mib: float  # at most
    apart: float  # at most, as a share of the engine's figure


def agreement(folder: Path | None = None) -> Agreement | None:
    """Compare with all stored plans; None where no machine has any."""
    apart, shares, names = [], [], set()
    for question, laid in plans.stored_needs(folder):
        pool = Pool(
            0.0, question.context, question.slots, question.unified, question.cache_type_k,
            question.cache_type_v,
        )  # fmt: skip
        own = plan.parts(question.wanted.subject(), pool, question.depth).total_mib
        apart.append(abs(own - laid.projected_mib))
        shares.append(apart[-1] / laid.projected_mib)
        names.add(question.shape)
    return Agreement(len(apart), len(names), max(apart), max(shares)) if apart else None


def near_mib(found: Agreement | None) -> float:
    """Return how close to an edge the closed form can not tell, in whole MiB."""
    if found is None:
        return math.ceil(planner.CLOSE * Settings().pool().memory_mib)
    return math.ceil(found.apart_mib)


def agreement_sentence(found: Agreement | None) -> str:
    """Return how far the two lie apart."""
    rule = f"`specdepth plan` says so wherever they lie more than {planner.CLOSE:.0%} apart."
    if found is None:
        return f"No machine of this book has asked its engine's planner; {rule}"
    return (
        f"Over {found.layouts} layouts of {found.shapes} shapes that llama-server's planner made "
        f"for this book, the closed form lies within {near_mib(found):,} MiB of it, and within "
        f"{found.apart:.1%}; {rule}"
    )


def rows(settings: Settings) -> list[Row]:
    """Return the plan of each depth that the form shows."""
    subject, pool = settings.subject(), settings.pool()
    return [plan.closed_form(subject, pool, depth) for depth in range(SHOWN_DEPTH + 1)]


def edge_sentence(settings: Settings) -> str:
    """Return what the plan says."""
    return plan_text.sentence(Planned(tuple(rows(settings)), settings.pool(), ()))


def setting_sentence(settings: Settings) -> str:
    """Return the question of the example."""
    slots = f"{settings.slots} slot{'s' if settings.slots > 1 else ''}"
    pool = "one pool" if settings.kv_unified else "equal parts"
    return (
        f"The shape of the note's model, {settings.shape}, in {settings.quant}; "
        f"{settings.context:,} tokens of context in {pool} for {slots}; llama.cpp may use "
        f"{settings.memory} of the card."
    )


def parts_table(settings: Settings) -> str:
    """Return where the memory goes at the deepest depth that fits, and what each part is."""
    depth = plan.deepest(settings.subject(), settings.pool()) or 0
    need = plan.parts(settings.subject(), settings.pool(), depth)
    found = [
        (name, said, f"{size:,.1f}")
        for name, (said, size) in _explained(settings, need, depth).items()
    ]
    return _markdown(
        (f"at depth {depth}", "follows from", "MiB"),
        [*found, ("total", "", f"{need.total_mib:,.1f}")],
    )


def _explained(settings: Settings, need: Parts, depth: int) -> dict[str, tuple[str, float]]:
    shape = shapes.shape(settings.shape)
    layout, pool = shape.layout(), settings.pool()
    held = memory.cells(pool.context, pool.slots, unified=pool.unified)
    copy = memory.state_mib(layout, 1, 0)
    return {
        "weights": (
            f"{shape.layers} blocks and the output; the embeddings stay in host memory",
            need.weights_mib,
        ),
        "KV cache": (
            f"{layout.attention_layers} layers with full attention × {held:,} tokens × "
            f"{layout.kv_heads} heads × {layout.head_k} numbers, keys and values",
            need.kv_mib,
        ),
        "MTP block": (
            f"its weights, {need.mtp_weights_mib:,.1f} MiB, and its own KV cache, "
            f"{need.mtp_kv_mib:,.1f} MiB",
            need.mtp_weights_mib + need.mtp_kv_mib,
        ),
        "buffers": ("an estimate, the only one here", need.compute_mib),
        "recurrent state": (
            f"{pool.slots} slots × (1 + {depth}) copies × {copy:,.3f} MiB in "
            f"{layout.linear_layers} linear layers",
            need.state_mib,
        ),
    }


def needs_table(settings: Settings) -> str:
    """Return the plan by depth, in MiB."""
    subject, pool = settings.subject(), settings.pool()
    found = []
    for row in rows(settings):
        need = plan.parts(subject, pool, row.depth)
        sizes = (
            need.weights_mib, need.kv_mib, need.mtp_weights_mib + need.mtp_kv_mib,
            need.compute_mib, need.state_mib, row.total_mib, row.left_mib,
        )  # fmt: skip
        found.append((str(row.depth), *(f"{x:,.0f}" for x in sizes), str(row.layers_off_device)))
    heads = (
        "depth", "weights", "KV cache", "MTP block", "buffers", "recurrent state", "total", "left",
        "layers off",
    )  # fmt: skip
    return _markdown(heads, found)


def trades(settings: Settings) -> str:
    """Return how deep each trade lets one go; its link fills the form."""
    edge = plan.deepest(settings.subject(), settings.pool())
    beyond = (edge or 0) + 1
    found = []
    for name, change in TRADES.items():
        other = replace(settings, **change)
        deepest = plan.deepest(other.subject(), other.pool())
        total = plan.parts(other.subject(), other.pool(), beyond).total_mib
        link = f'<a href="{escape(other.link())}">{escape(name)}</a>'
        found.append((link, "none" if deepest is None else str(deepest), f"{total:,.0f}"))
    heads = ("given up", "deepest that fits", f"MiB at depth {beyond}")
    return _markdown(heads, found)


def _markdown(heads: tuple[str, ...], found: Sequence[tuple[str, ...]]) -> str:
    """Return a table of Markdown cells; the first column has the names."""
    frame = pd.DataFrame(list(found), columns=list(heads)).set_index(heads[0])
    return markdown_table.markdown(frame, heads)
