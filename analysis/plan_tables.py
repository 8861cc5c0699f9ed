"""The engine's layouts as questions, tables and sentences of the page on memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pandas as pd

from analysis import leaving, memory, plan, plans, shapes
from analysis.engines.fit import Laid
from analysis.leaving import Leaving
from analysis.markup import escaped
from analysis.parameters import PageParameters, Planning
from analysis.plan import Pool, Row
from analysis.plans import Plans, Question
from analysis.quantization import MIXES

LAW_CONTEXT, LAW_SLOTS, LAW_DEPTHS = 4096, (1, 2), (0, 3, 6)


def law_questions(planning: Planning) -> list[Question]:
    """Return what is asked for the figure of the law: each shape, slots and depths, no budget."""
    return [
        Question(name, planning.quantization, LAW_CONTEXT, slots, depth)
        for name in planning.shapes or tuple(shapes.shapes())
        for slots in LAW_SLOTS
        for depth in LAW_DEPTHS
    ]


def need_questions(planning: Planning) -> list[Question]:
    """Return what is asked of the shape of the note's question: what each depth needs."""
    return [
        Question(planning.shape, planning.quantization, planning.context, planning.slots, depth)
        for depth in planning.depths
    ]


def placement_questions(planning: Planning, needs: Plans) -> list[Question]:
    """Return the questions with a budget: as named, or halfway between the needs of two depths."""
    totals = [laid.projected_mib for q, laid in sorted_by_depth(needs) if q.depth > 0]
    between = [_between(a, b) for a, b in pairwise(totals)]
    budgets = planning.budgets_mib or tuple(between)
    return [
        replace(q, budget_mib=budget)
        for budget in budgets
        for q, laid in sorted_by_depth(needs)
        if laid.projected_mib > budget
    ]


def _between(low: int, high: int) -> int:
    """Return an amount halfway between two, in hundreds where one lies between them."""
    middle = (low + high) // 2
    rounded = round(middle, -2)
    return rounded if low < rounded < high else middle


def sorted_by_depth(found: Plans) -> list[tuple[Question, Laid]]:
    """Return answers in the order of their depths."""
    return sorted(found.answers.items(), key=lambda item: item[0].depth)


def ask(page: PageParameters, notebook: str) -> tuple[Plans, Plans, Plans]:
    """Ask for the law, the needs and the placements; stored answers are not asked again."""

    def asked(questions: Iterable[Question]) -> Plans:
        return plans.ask(
            list(questions), notebook, page.machine, page.machines_folder, page.spec.server
        )

    law = asked(law_questions(page.planning))
    needs = asked(need_questions(page.planning))
    return law, needs, asked(placement_questions(page.planning, needs))


def law(found: Plans) -> pd.DataFrame:
    """Return the law beside the engine's context memory, a row a shape, slots and depth, in MiB.

    The engine gives states and caches together, in whole MiB for each of its two contexts.
    """
    rows = []
    for question, laid in found.answers.items():
        layout = shapes.shape(question.shape).layout()
        kv = memory.kv_mib(layout, question.context, question.slots, unified=question.unified)
        if question.depth:
            kv += memory.kv_mib(
                layout, question.context, question.slots, unified=question.unified, mtp=True
            )
        state = memory.state_mib(layout, question.slots, question.depth)
        rows.append(
            {
                "shape": question.shape, "slots": question.slots, "depth": question.depth,
                "law_mib": state, "engine_mib": laid.context_mib - kv,
            }
        )  # fmt: skip
    return pd.DataFrame(rows, columns=["shape", "slots", "depth", "law_mib", "engine_mib"])


def law_sentence(table: pd.DataFrame) -> str:
    """Return how far the engine's figures lie from the law."""
    if table.empty:
        return "The engine's planner answered nothing here."
    apart = (table["engine_mib"] - table["law_mib"]).abs().max()
    return (
        f"Over {len(table)} layouts of {table['shape'].nunique()} shapes the engine's context "
        f"memory lies within {apart:.2f} MiB of the law; it prints whole MiB for each of its two "
        "contexts, so that up to 2 MiB are rounding."
    )


def rows(needs: Plans, planning: Planning) -> list[Row]:
    """Return what each depth needs as rows of a plan: by the engine, else in closed form."""
    subject = plan.of_shape(shapes.shape(planning.shape), planning.quantization)
    pool = Pool(0.0, planning.context, planning.slots, unified=True)
    if not needs.answers:
        return [plan.closed_form(subject, pool, depth) for depth in planning.depths]
    return [
        plan.from_engine(subject, pool, laid, emulated=needs.emulated)
        for _, laid in sorted_by_depth(needs)
    ]


def need(found: list[Row]) -> pd.DataFrame:
    """Return what each depth needs, in MiB, the closed form beside."""
    table = {
        row.depth: {
            "recurrent state": f"{row.state_mib:,.1f}",
            "KV cache": f"{row.kv_mib:,.1f}",
            "weights": f"{row.weights_mib:,.0f}",
            "compute buffers": f"{row.compute_mib:,.0f}",
            f"total, by the {row.basis}": f"{row.total_mib:,.0f}",
            "total, closed form": f"{row.closed_form_total_mib:,.0f}",
            "more than one depth less": "–",
        }
        for row in found
    }
    for one, two in pairwise(found):
        table[two.depth]["more than one depth less"] = f"{two.total_mib - one.total_mib:,.0f}"
    return pd.DataFrame.from_dict(table, orient="index").rename_axis("depth")


def left(question: Question, laid: Laid) -> Leaving:
    """Return what leaves the device in an answer."""
    shape = shapes.shape(question.shape)
    return leaving.by_engine(laid, shape.blocks, shape.layout().mtp_layers)


def placement(needs: Plans, placed: Plans) -> pd.DataFrame:
    """Return the layers on the device by depth (rows) and budget in MiB (columns)."""
    budgets = sorted({q.budget_mib for q in placed.answers if q.budget_mib is not None})
    table: dict[int, dict[str, str]] = {}
    for question, laid in sorted_by_depth(needs):
        total = shapes.shape(question.shape).blocks + 1
        row = table.setdefault(question.depth, {})
        for budget in budgets:
            own = placed.answers.get(replace(question, budget_mib=budget))
            off = 0 if own is None else left(question, own).count
            row[f"{budget:,} MiB"] = f"{total - off}/{total}"
            if own is None and laid.projected_mib > budget:
                row[f"{budget:,} MiB"] = "not asked"
    return pd.DataFrame.from_dict(table, orient="index").rename_axis("depth")


def cliff(found: list[Row], shallow: int = 2) -> str:
    """Return which budgets make a cliff behind a depth: it still fits, the next one does not."""
    by_depth = {row.depth: row for row in found}
    if not {shallow, shallow + 1} <= by_depth.keys():
        return f"Depths {shallow} and {shallow + 1} were not both asked for."
    low, high = by_depth[shallow].total_mib, by_depth[shallow + 1].total_mib
    return (
        f"Depth {shallow} fits and depth {shallow + 1} does not where llama.cpp may use from "
        f"{low:,.0f} to {high:,.0f} MiB of the device: {low / 1024:.1f} to {high / 1024:.1f} GiB, "
        f"a window of {high - low:,.0f} MiB."
    )


def note_card(planning: Planning) -> pd.DataFrame:
    """Return between which amounts depth 2 fits and depth 3 does not, by quantization.

    In closed form, for the shape, context and slots of the page.
    """
    shape = shapes.shape(planning.shape)
    pool = Pool(0.0, planning.context, planning.slots, unified=True)
    found = {}
    for name in MIXES:
        subject = plan.of_shape(shape, name)
        two, three = (plan.closed_form(subject, pool, depth).total_mib for depth in (2, 3))
        found[name] = {
            "depth 2 fits from, MiB": f"{two:,.0f}",
            "depth 3 fits from, MiB": f"{three:,.0f}",
            "in GiB": f"{two / 1024:.1f} to {three / 1024:.1f}",
        }
    return pd.DataFrame.from_dict(found, orient="index").rename_axis("quantization")


def step_sentence(found: list[Row], planning: Planning) -> str:
    """Return what turning drafting on costs, and each further depth."""
    by_depth = {row.depth: row for row in found}
    state = memory.state_mib(shapes.shape(planning.shape).layout(), planning.slots, 0)
    told = (
        f"One more token of depth costs {state:,.2f} MiB of state for {planning.slots} "
        f"slot{'s' if planning.slots > 1 else ''} of {planning.shape}, by the law"
    )
    if {0, 1} <= by_depth.keys():
        first = by_depth[1].total_mib - by_depth[0].total_mib
        told += (
            f"; the first costs {first:,.0f} MiB in all, since the MTP block's weights, its KV "
            "cache and the buffers of its context come with it"
        )
    return f"{told}."


def question(planning: Planning, needs: Plans) -> str:
    """Return what was asked, and of what device."""
    if not needs.answers:
        return f"In closed form, since the engine's planner could not be asked. {needs.why}"
    free = max((laid.free_mib for laid in needs.answers.values()), default=0)
    device = "an emulated device on this processor" if needs.emulated else "this machine's device"
    return (
        f"{planning.shape}, {planning.quantization}, {planning.context:,} tokens of context in one "
        f"pool for {planning.slots} slot{'s' if planning.slots > 1 else ''}, 16-bit caches; asked "
        f"of {device}, {free:,} MiB free. Figures in MiB."
    )


def provenance(needs: Plans) -> str:
    """Return what the planned figures rest on, as a Markdown table."""
    run = needs.run
    gpus = ", ".join(str(g["name"]) for g in run.machine["gpus"]) or "none"
    lines = {
        "planned by": run.engine["version"],
        "device": "emulated: llama.cpp's RPC server on loopback" if needs.emulated else gpus,
        "machine": f"{run.machine['name']}: {run.machine['cpu']}, {run.machine['cores']} cores",
        "samples": f"plans/{run.run.replace('-plans-', '-')}.jsonl",
        "asked": f"from {run.started}",
    }
    return "\n".join(
        ["| | |", "|---|---|", *(f"| {k} | {escaped(str(v))} |" for k, v in lines.items())]
    )
