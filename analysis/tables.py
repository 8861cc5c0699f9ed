"""Tables as pandas frames of text: numbers with as many digits as their interval allows."""

from __future__ import annotations

import math
from importlib import resources

import pandas as pd

from analysis import lossless
from analysis.markup import code, escaped
from analysis.report import MIX, Sweep
from analysis.stats import ON_THESE, Interval
from analysis.verdict import Verdict

pd.set_option("display.max_colwidth", None)  # a page shows all of a text; pandas would cut it


def number(value: float, uncertainty: float) -> str:
    """Format a number to the second digit of its uncertainty (half the interval's width)."""
    if not math.isfinite(value):
        return "–"
    if not math.isfinite(uncertainty) or uncertainty <= 0:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    digits = min(1 - math.floor(math.log10(uncertainty)), 4)
    return f"{round(value, digits) + 0.0:.{max(digits, 0)}f}"  # no minus before a zero


def percent(share: float | None) -> str:
    """Format a bound of a share to a tenth of a percent; a dash where there is none."""
    if share is None:
        return "–"
    return "0%" if round(share, 3) == 0 else f"{share:.1%}"


def interval(found: Interval | None) -> str:
    """Format an interval as ``value [low, high]``; without repetition the bounds are unknown."""
    if found is None:
        return "–"
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return f"{number(found.estimate, math.nan)} (no interval)"
    # Exact up to the last bits, such as one token per step without drafting.
    if math.isclose(found.low, found.high, rel_tol=1e-9, abs_tol=1e-12):
        return number(found.estimate, 0)
    half = (found.high - found.low) / 2
    texts = [
        # What is above zero is not printed as zero, however little is known of it.
        number(x, x) if found.low > 0 and float(number(x, half)) == 0 else number(x, half)
        for x in (found.estimate, found.low, found.high)
    ]
    return "{} [{}, {}]".format(*texts)


def note() -> pd.DataFrame:
    """Return the note's own table: tok/s by depth, one column a workload, and its mean."""
    with resources.files("analysis").joinpath("data/note_002_depth_sweep.csv").open() as file:
        table = pd.read_csv(file, index_col="n_max")
    table = table.rename(columns={"long_16k_reasoning": "long", "mean_as_printed": "mean"})
    return table.rename_axis("depth")


def depth_sweep(sweep: Sweep, scope: str = ON_THESE) -> pd.DataFrame:
    """Return the note's table for this machine: tok/s by depth, with intervals."""
    rows = {}
    for depth in sweep.depths:
        row = {
            workload: interval(sweep.cell(workload, depth).interval("tok_s", scope))
            for workload in sweep.workloads
            if sweep.has_speed(workload, depth)
        }
        if len(row) == len(sweep.workloads):
            row["mean"] = interval(sweep.mean_tok_s(depth, scope))
        rows[depth] = row
    return pd.DataFrame.from_dict(rows, orient="index").fillna("–").rename_axis("depth")


def against_note(sweep: Sweep, scope: str = ON_THESE) -> pd.DataFrame:
    """Return mean speed relative to depth 2, this machine's with its interval beside the note's."""
    printed = note()["mean"]
    rows = {}
    for depth in sweep.depths:
        if sweep.all_have_speed(2, depth):
            quoted = f"{printed[depth] / printed[2]:.2f}" if depth in printed.index else "–"
            ours = Interval(1, 1, 1) if depth == 2 else sweep.mean_tok_s(depth, scope, base=2)
            rows[depth] = {"this machine": interval(ours), "the note": quoted}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def by_workload(sweep: Sweep, quantity: str, scope: str) -> pd.DataFrame:
    """Return one quantity by depth, a column a workload."""
    rows: dict[int, dict[str, str]] = {}
    for cell in sweep.cells():
        rows.setdefault(cell.depth, {})[cell.workload] = interval(cell.interval(quantity, scope))
    return pd.DataFrame.from_dict(rows, orient="index").fillna("–").rename_axis("depth")


def against_none(sweep: Sweep, scope: str) -> pd.DataFrame:
    """Return the speed of each depth over that of depth 0, paired, a column a workload."""
    rows = {
        depth: {
            name: interval(sweep.relative("tok_s", name, depth, 0, scope))
            for name in sweep.groups()
        }
        for depth in sweep.depths
        if depth > 0
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def verdicts(found: list[Verdict]) -> pd.DataFrame:
    """Return the verdicts, a row for each workload and scope."""
    rows = [
        {
            "workload": v.workload,
            "scope": v.scope,
            "depth": v.answer,
            "may be the answer": listed(v.candidates),
            "may be the fastest": listed(v.confidence_set),
            "regret": percent(v.regret),
            "regret at most": percent(v.regret_high),
            "further rounds": "–" if v.recommended is not None else str(v.further_rounds or "no"),
        }
        for v in found
    ]
    return pd.DataFrame(rows).set_index(["workload", "scope"])


def listed(depths: tuple[int, ...]) -> str:
    """Return depths as text, ``1, 2``."""
    return ", ".join(map(str, depths))


def texts(sweep: Sweep) -> pd.DataFrame:
    """Return how many greedy texts equal depth 0's, by depth, and where the first parts."""
    compared = lossless.pairs(sweep.recorded)
    margins = {(d.workload, d.prompt_id, d.depth): d.margin for d in sweep.recorded.divergences}
    rows = {}
    for depth in (d for d in sweep.depths if d > 0):
        own = [(a, b) for a, b in compared if b.depth == depth]
        parted = {
            (b.workload, b.prompt_id): lossless.first_difference(a.tokens, b.tokens) for a, b in own
        }
        places = {k: at for k, at in parted.items() if at is not None}
        row = {"compared": len(own), "equal": len(own) - len(places), "first difference": "–"}
        if places:
            (workload, prompt), at = min(places.items(), key=lambda item: item[1])
            margin = margins.get((workload, prompt, depth))
            said = "unknown" if margin is None else f"{margin:.4f}"
            row["first difference"] = f"{workload}/{prompt}, token {at}, margin {said}"
        rows[depth] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def shared_tokens(sweep: Sweep, scope: str, tolerance: float) -> pd.DataFrame:
    """Return tok/s by depth over the tokens that all depths share, with the verdict's depth."""
    shared = sweep.on_shared_tokens()
    if shared is None:
        return pd.DataFrame()
    table = by_workload(shared, "tok_s", scope)
    table.index = table.index.astype(str)
    answers = {n: shared.verdict(n, scope, tolerance).answer for n in shared.groups()}
    table.loc["verdict"] = [answers.get(str(c), "–") for c in table.columns]
    return table


def provenance(sweep: Sweep) -> str:
    """Return what the page's numbers rest on, as a Markdown table."""
    run = sweep.recorded.run
    m, spec, model = run.machine, run.spec, run.model
    gpus = ", ".join(str(g["name"]) for g in m["gpus"]) or "none"
    command = next(
        (
            x.command
            for x in reversed(sweep.recorded.launches)
            if x.depth == max(sweep.depths) and x.arm == spec["arm"]
        ),
        "",
    )
    counts = sweep.timed.groupby("workload")["prompt_id"].nunique().to_dict()
    rows = {
        "machine": f"{m['name']}: {m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB",
        "GPUs": gpus,
        "system": m["system"],
        "model": f"{model['name']}, {model['quantization']}, {model['size_mib']} MiB, "
        f"SHA-256 {model['sha256'][:16]}",
        "engine": f"{run.engine['version']}",
        "launch at the deepest": "",
        "rounds, prompts": f"{sweep.timed['round'].nunique()} rounds, "
        + ", ".join(f"{n} {w}" for w, n in counts.items())
        + " prompts",
        "launches of a round": "side by side, their requests in turns"
        if spec.get("in_turns")
        else "one after the other",
        "tokens, sampling": f"{spec['n_predict']} tokens asked for, temperature "
        f"{spec['temperature']}, seed {spec['seed']}",
        "samples": f"{sweep.recorded.path.name}, {len(sweep.recorded.samples)} requests in "
        f"{len(sweep.recorded.launches)} launches",
        "measured": f"from {run.started}",
        "packages": ", ".join(f"{k} {v}" for k, v in run.packages.items()),
    }
    shown = {name: escaped(str(value)) for name, value in rows.items()}
    shown["launch at the deepest"] = code(command) if command else "–"
    lines = [f"| {name} | {value} |" for name, value in shown.items()]
    return "\n".join(["| | |", "|---|---|", *lines])


def sentence(sweep: Sweep, found: Verdict) -> str:
    """Return a verdict as one sentence."""
    where = "the mix of all workloads" if found.workload == MIX else f"{found.workload} work"
    start = f"For {where} on {escaped(sweep.machine)}, {found.scope}: "
    if found.recommended is None:
        more = (
            f"about {found.further_rounds} further rounds would likely settle it"
            if found.further_rounds
            else "more rounds alone would not settle it, more prompts may"
        )
        if found.rounds < 2:
            more = "one round has no interval, at least a second is needed"
        return f"{start}undecided between depths {listed(found.candidates)}; {more}."
    gain = ""
    if found.recommended != 0:
        times = sweep.relative("tok_s", found.workload, found.recommended, 0, found.scope)
        gain = f", {interval(times)} times the speed without drafting" if times else ""
    return f"{start}use depth {found.recommended}{gain}; {regret(found, 'it')} (95% bound)."


def regret(found: Verdict, it: str) -> str:
    """Return what an answer gives up, with a word for the answer."""
    most = max(found.regret_high or 0, 0)
    if round(most, 3) == 0:
        return "no other depth is faster"
    return f"{it} gives up at most {percent(most)} against the best depth"


def shared_sentence(sweep: Sweep, scope: str, tolerance: float) -> str:
    """Return what the tokens that all depths share would choose, as one sentence."""
    shared = sweep.on_shared_tokens()
    if shared is None:
        return (
            "No two depths decoded the same tokens for long enough to compare them on these alone."
        )
    said = [f"{n} {shared.verdict(n, scope, tolerance).answer}" for n in shared.groups()]
    return f"Over the tokens that all depths share, {scope}, the answers are: {', '.join(said)}."
