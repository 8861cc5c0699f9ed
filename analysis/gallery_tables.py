"""The page of all machines: hardware, model, engine, verdict and warnings, from their samples."""

from __future__ import annotations

from pathlib import Path

from analysis import checks, gallery
from analysis.errors import StoreError
from analysis.folders import machines_folder
from analysis.front import NOBODY, group
from analysis.markup import escaped
from analysis.page_links import links
from analysis.report import MIX, Sweep, sweep_of
from analysis.stats import LIKE_THESE
from analysis.store import Recorded
from analysis.tables import interval, percent
from analysis.verdict import Verdict


def overview(folder: Path | None = None) -> str:
    """Return all machines as a Markdown table: one row a machine."""
    rows = []
    for name, fullest in _fullest(folder).items():
        run = fullest.run
        answer = "no depth sweep" if _sweep(fullest) is None else _answer(_sweep(fullest))
        rows.append(
            f"| [{escaped(name)}](#{anchor(name)}) | {_devices(run.machine)} | "
            f"{escaped(str(run.model['name']))} | {run.started[:10]} | {answer} |"
        )
    if not rows:
        return NOBODY
    head = [
        "| machine | computes on | model | measured | answer, all work |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows])


def figure(sweeps: list[Sweep], key: str) -> str:
    """Return the glued figure `key` with its caption and its alternative text, as MyST."""
    told = []
    for sweep in sweeps:
        name, deepest = group(sweep), max(sweep.depths)
        times = sweep.relative("tok_s", name, deepest, 0, LIKE_THESE)
        if deepest and times is not None:
            told.append(f"{escaped(sweep.machine)} {interval(times)} at depth {deepest}")
    if not sweeps:
        return ""
    said = f"Speed against no drafting by draft depth: {', '.join(told)}."
    return (
        f"```{{glue:figure}} {key}\n:name: machines-overview\n:alt: {said}\n\n{said} Mean over the "
        "workloads, one line a machine; bars: 95% interval for prompts like these; dashed: no "
        "drafting.\n```"
    )


def cards(folder: Path | None = None) -> str:
    """Return a section a machine as Markdown: facts, verdicts, warnings and links."""
    return "\n\n".join(_card(name, own) for name, own in _fullest(folder).items())


def anchor(name: str) -> str:
    """Return the label of a machine's section."""
    return f"machine-{name}".replace(".", "-")


def _fullest(folder: Path | None) -> dict[str, Recorded]:
    """Return for each machine its fullest depth sweep, or where it has none any run."""
    machines = folder or machines_folder()
    return {
        name: (gallery.runs(machines / name) or gallery.runs(machines / name, "*"))[0]
        for name in gallery.names(machines)
    }


def _sweep(recorded: Recorded) -> Sweep | None:
    if recorded.run.notebook != "depth_sweep":
        return None
    try:
        return sweep_of(recorded)
    except StoreError:
        return None


def _devices(machine: dict[str, object]) -> str:
    gpus = machine["gpus"]
    names = [str(g["name"]) for g in gpus] if isinstance(gpus, (list, tuple)) else []
    return escaped(", ".join(names) or f"{machine['cpu']}, {machine['cores']} cores")


def _answer(sweep: Sweep | None) -> str:
    return "" if sweep is None else _said(sweep.verdict(group(sweep)))


def _said(found: Verdict) -> str:
    if found.recommended is not None:
        return f"depth {found.recommended}"
    return f"undecided: {' or '.join(map(str, found.candidates))}"


def _card(name: str, recorded: Recorded) -> str:
    run, sweep = recorded.run, _sweep(recorded)
    machine, model = run.machine, run.model
    rounds = len({x.round for x in recorded.launches})
    facts = {
        "processor": f"{machine['cpu']}, {machine['cores']} cores",
        "graphics cards": _cards(machine),
        "memory": f"{machine['memory_gib']} GiB",
        "system": str(machine["system"]),
        "model": f"{model['name']}, {model['quantization']}, {model['size_mib']} MiB",
        "engine": str(run.engine["version"]),
        "measured": f"{run.started[:10]}, {rounds} rounds, {len(recorded.launches)} launches",
    }
    lines = [f"({anchor(name)})=", f"## {escaped(name)}", "", "| | |", "|---|---|"]
    lines += [f"| {k} | {escaped(v)} |" for k, v in facts.items()]
    lines += [f"| pages | {links(name)} |", ""]
    if sweep is None:
        return "\n".join(
            [*lines, "No depth sweep with a speed is here yet, so there is no verdict."]
        )
    lines += ["| work | depth | regret at most |", "|---|---|---:|"]
    for workload in sweep.groups():
        found = sweep.verdict(workload)
        work = "all, mixed" if workload == MIX else workload
        lines.append(f"| {work} | {_said(found)} | {percent(found.regret_high)} |")
    told = checks.warnings(sweep)
    lines += ["", "Warnings:" if told else "No warnings.", "", *(f"- {text}" for text in told)]
    return "\n".join(lines)


def _cards(machine: dict[str, object]) -> str:
    gpus = machine["gpus"]
    if not isinstance(gpus, (list, tuple)) or not gpus:
        return "none"
    return ", ".join(
        f"{g['name']} ({g['memory_mib']:,.0f} MiB, driver {g['driver']})"
        if g.get("memory_mib")
        else str(g["name"])
        for g in gpus
    )
