"""The front page: the answer for each machine, how sure it is, and why deeper loses there.

Everything is computed from the samples of the machines' folders. A machine may lack the runs of
some pages: what they would add is then left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from analysis import arms, attribution, checks, gallery, markdown_table, note, pieces
from analysis.errors import SpecDepthError
from analysis.findings import gain_and_cost
from analysis.markup import escaped
from analysis.page_links import links
from analysis.pieces import Pieces
from analysis.report import MIX, Sweep, sweep_of
from analysis.stats import LIKE_THESE, ON_THESE, Interval
from analysis.tables import interval, percent
from analysis.tables import note as notes_table
from analysis.verdict import Verdict

SMALL_MODEL = 100_000_000  # parameters; what is best for fewer says nothing of a large model
NOBODY = "No machine has been measured yet: `make book` measures this one."
_PARTS = {
    "verify": "the pass that verifies the guesses",
    "draft": "making the guesses",
    "catch up": "the head reading what the model has read",
    "rest": "accepting and rolling back",
    attribution.LOSS: "later guesses that are worse than the first",
}


@dataclass(frozen=True)
class Evidence:
    """The runs of the page on why deeper loses that a machine has, of the sweep's own model."""

    pieces: Pieces | None
    arms: Sweep | None


def group(sweep: Sweep) -> str:
    """Return the name of all workloads together, or of the only one."""
    return MIX if MIX in sweep.groups() else sweep.workloads[0]


def base(found: Verdict) -> int:
    """Return the answer's depth, or where it is undecided that of the highest estimate."""
    return found.fastest if found.recommended is None else found.recommended


def evidence(sweep: Sweep) -> Evidence:
    """Return what the machine's folder holds on why deeper loses."""
    own = sweep.recorded
    parts, held = None, None
    for recorded in gallery.runs(own.path.parent.parent, "why_deeper_loses"):
        spec, model = recorded.run.spec, recorded.run.model
        if model["sha256"] != own.run.model["sha256"] or spec["arm"] != "natural":
            continue
        try:
            found = sweep_of(recorded)
            if spec["engine"] == "tracer":
                parts = parts or pieces.of(found)
            elif "perfect" in spec.get("more_arms", ()):
                held = held or found
        except SpecDepthError:
            continue  # the run broke off before it held anything
    return Evidence(parts, held)


def answer(sweep: Sweep) -> str:
    """Return a machine's answer for all its work, as Markdown of a few short sentences."""
    found, model = sweep.verdict(group(sweep)), sweep.recorded.run.model
    told = [_use(found), *checks.busy(sweep), *checks.incomplete(sweep)]
    told += [_sure(found, sweep), _drafting(sweep, found)]
    if model.get("parameters", 0) < SMALL_MODEL:
        told.append(
            f"The model is small ({model.get('parameters', 0) / 1e6:.1f}M parameters): its best "
            "depth says nothing of a large one's."
        )
    if sweep.recorded.run.spec["synthetic_rates"]:
        told.append("Acceptance was given, not measured.")
    pages = links(sweep.machine)
    told.append(
        "It has no page here yet: `specdepth run` goes on from these samples and makes them."
        if pages == "none"
        else f"Its pages: {pages}."
    )
    return " ".join(text for text in told if text)


def answers(sweeps: list[Sweep]) -> str:
    """Return the answer of every machine as Markdown boxes, or that there is no machine."""
    boxes = []
    for sweep in sweeps:
        model = sweep.recorded.run.model
        title = f"{escaped(sweep.machine)}, {escaped(str(model['name']))}"
        boxes.append(f":::{{admonition}} {title}\n:class: tip\n{answer(sweep)}\n:::\n")
    return "\n".join(boxes) or NOBODY


def _use(found: Verdict) -> str:
    if found.recommended is None:
        return f"**Undecided between depths {_either(found.candidates)}.**"
    if found.recommended == 0:
        return "**Use depth 0: do not draft** (start `llama-server` without `--spec-type`)."
    return (
        f"**Use depth {found.recommended}** "
        f"(`--spec-type draft-mtp --spec-draft-n-max {found.recommended}`)."
    )


def _sure(found: Verdict, sweep: Sweep) -> str:
    if found.recommended is None:
        return f"{_settle(found).capitalize()}."
    if len(sweep.depths) == 1:
        return "No other depth was measured."
    deepest, regret = max(sweep.depths), found.regret_high or 0
    if regret <= 0:
        return f"How sure: 95% that no other depth up to {deepest} is faster."
    return (
        f"How sure: 95% that it gives up at most {percent(regret)} against the best depth up to "
        f"{deepest}."
    )


def _settle(found: Verdict) -> str:
    if found.rounds < 2:
        return "one round can not tell"
    if not found.further_rounds:
        return "more rounds would not settle it, more prompts may"
    return f"about {found.further_rounds} further rounds would likely settle it"


def _drafting(sweep: Sweep, found: Verdict) -> str:
    """Return what the answer gains over no drafting, or what the best draft would lose."""
    depth = base(found)
    drafting = [r for r in found.ratios if r.depth > 0]
    if depth == 0 and drafting:
        depth = max(drafting, key=lambda r: r.ratio).depth
    times = sweep.relative("tok_s", found.workload, depth, 0, LIKE_THESE) if depth else None
    if times is None:
        return ""
    return f"Depth {depth} decodes at {interval(times)} times the speed without drafting."


def table(sweeps: list[Sweep]) -> pd.DataFrame:
    """Return the verdict of each machine and workload, with its speed and its regret, as text."""
    rows = []
    for sweep in sweeps:
        for name in sweep.groups():
            found = sweep.verdict(name)
            chosen = sweep.relative("tok_s", name, base(found), 0, LIKE_THESE)
            rows.append(
                {
                    "machine": sweep.machine,
                    "work": "all, mixed" if name == MIX else name,
                    "use depth": _either(found.candidates),
                    "how sure": "95%"
                    if found.recommended is not None
                    else f"undecided: {_settle(found)}",
                    "speed against no drafting": "1" if base(found) == 0 else interval(chosen),
                    "regret at most": percent(found.regret_high),
                    "best draft": _best_draft(sweep, found),
                }
            )
    if not rows:
        return pd.DataFrame()
    frame = pd.DataFrame(rows).set_index(["machine", "work"])
    return frame if len(sweeps) > 1 else frame.droplevel("machine")


def _best_draft(sweep: Sweep, found: Verdict) -> str:
    """Return the depth of 1 or more with the highest estimate, and its speed."""
    drafts = [r for r in found.ratios if r.depth > 0]
    if not drafts:
        return "–"
    best = max(drafts, key=lambda r: r.ratio).depth
    times = sweep.relative("tok_s", found.workload, best, 0, LIKE_THESE)
    return f"depth {best}: {interval(times)}"


def shown(frame: pd.DataFrame) -> str:
    """Return a table of this page as Markdown, or that there is no machine.

    On a phone its rows are cards.
    """
    if frame.empty:
        return NOBODY
    return f":::{{container}} cards\n{markdown_table.markdown(frame)}\n:::"


def _either(depths: tuple[int, ...]) -> str:
    if len(depths) > 2 and depths == tuple(range(depths[0], depths[-1] + 1)):
        return f"{depths[0]} to {depths[-1]}"
    return " or ".join(map(str, depths))


def against_note(sweeps: list[Sweep]) -> pd.DataFrame:
    """Return the note's mean speeds beside each machine's: tok/s, and relative to depth 2.

    Our intervals are those on these prompts; the note states none.
    """
    printed = notes_table()["mean"]
    depths = sorted(set(printed.index).union(*(s.depths for s in sweeps)))
    against = f"against depth {note.BASE}"
    columns: dict[str, list[str]] = {
        "the note, tok/s": [f"{printed[d]:.1f}" if d in printed.index else "–" for d in depths],
        f"the note, {against}": [
            f"{printed[d] / printed[note.BASE]:.2f}" if d in printed.index else "–" for d in depths
        ],
    }
    for sweep in sweeps:
        there = {d for d in sweep.depths if sweep.all_have_speed(d)}
        paired = {d for d in there if sweep.all_have_speed(note.BASE, d)}
        columns[f"{sweep.machine}, tok/s"] = [
            interval(sweep.mean_tok_s(d, ON_THESE)) if d in there else "–" for d in depths
        ]
        columns[f"{sweep.machine}, {against}"] = [
            interval(_against_base(sweep, d)) if d in paired else "–" for d in depths
        ]
    return pd.DataFrame(columns, index=pd.Index(depths, name="depth"))


def _against_base(sweep: Sweep, depth: int) -> Interval:
    if depth == note.BASE:
        return Interval(1, 1, 1)
    return sweep.mean_tok_s(depth, ON_THESE, base=note.BASE)


def why(sweep: Sweep, found: Evidence | None = None) -> str:
    """Return why deeper loses on a machine, as a paragraph of Markdown."""
    found = evidence(sweep) if found is None else found
    name = group(sweep)
    first, last = base(sweep.verdict(name)), max(sweep.depths)
    start = f"**{escaped(sweep.machine)}.** "
    if first == last:
        return (
            f"{start}Depth {last} is the deepest that was measured, so where deeper loses is not "
            f"known; `--depths 0-{last + 3}` would look further."
        )
    balance = gain_and_cost(sweep, name, last, first)
    if not balance:
        return f"{start}Depths {first} and {last} share no round, so they can not be compared."
    told = [
        f"{start}{balance}",
        _costs(found.pieces, first),
        _perfect(found.arms),
        _memory(sweep),
    ]
    return " ".join(text for text in told if text)


def _costs(parts: Pieces | None, first: int) -> str:
    """Return the causes of what costs speed, by their shares of its logarithm."""
    if parts is None or first not in parts.depths or max(parts.depths) <= first:
        return ""
    split = attribution.of_tracer(parts, first, max(parts.depths))
    losses = {name: -m.estimate for name, m in split.parts.items() if m.estimate < 0}
    if not losses:
        return ""
    order = sorted(losses, key=lambda name: losses[name], reverse=True)
    shares = [f"{_PARTS.get(n, n)} ({losses[n] / sum(losses.values()):.0%})" for n in order]
    return (
        f"Shares of what costs speed from depth {first} to {split.depth}, in logarithms, largest "
        f"first: {', '.join(shares)}."
    )


def _perfect(held: Sweep | None) -> str:
    """Return what better guesses could do at the deepest depth."""
    if held is None:
        return ""
    deepest = max(held.depths)
    top = arms.ratio(arms.of(held, "perfect"), held, deepest, LIKE_THESE, base=0)
    if top is None:
        return ""
    return (
        f"With every guess accepted, depth {deepest} would decode at {interval(top)} times the "
        "speed without drafting."
    )


def _memory(sweep: Sweep) -> str:
    """Return whether memory has a part in it."""
    if sweep.timed["layers_on_device"].isna().all():
        return "Memory has no part in it: no graphics card holds a layer here."
    return attribution.moved(sweep) or (
        "Memory has no part in it: every depth had the same layers on the device."
    )
