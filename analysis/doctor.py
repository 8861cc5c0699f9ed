"""What was found on this machine, and what is wrong: the ground of `specdepth doctor`."""

from __future__ import annotations

import shlex
import subprocess
import time
from dataclasses import dataclass, field
from importlib import metadata

import psutil

from analysis import machine, model
from analysis.engines import binary
from analysis.errors import SpecDepthError
from analysis.folders import project_root
from analysis.records import Machine
from analysis.spec import EMBEDDED

TOOLS = ("ggml-rpc-server", "llama-bench", "llama-batched-bench")


@dataclass
class Findings:
    """Facts in order of printing, and problems; a fatal one stops the series."""

    facts: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    fatal: list[str] = field(default_factory=list)
    model: str = EMBEDDED

    @property
    def next_command(self) -> str:
        """The command to type next."""
        if any("make engine" in f for f in self.fatal):
            return "make engine"
        if any("llama-server" in f for f in self.fatal):
            return "specdepth doctor --server PATH"
        if self.fatal:
            return "specdepth doctor --model PATH"
        named = "" if self.model == EMBEDDED else f" --model {shlex.quote(self.model)}"
        return f"specdepth run{named} --quick"


def examine(model_path: str = EMBEDDED, server: str = "") -> Findings:
    """Look at machine, packages, server, bindings and model; never raises for what it finds."""
    found = Findings(model=model_path)
    here = machine.facts()
    found.facts["machine"] = f"{here.name}: {here.cpu}, {here.cores} cores, {here.memory_gib} GiB"
    found.facts["system"] = here.system
    _devices_now(found, here)
    found.facts["checkout"] = "yes" if project_root() else "no: commands on notebooks need one"
    found.facts["packages"] = ", ".join(f"{k} {v}" for k, v in machine.packages().items())
    _server(found, server)
    _bindings(found)
    _model(found, model_path)
    share = machine.Company()
    time.sleep(1)
    busy = share.share()
    found.facts["busy now"] = f"{busy:.0%} of the processors"
    if busy > 0.1:
        found.warnings.append("other work is running: stop it before measuring")
    return found


def _devices_now(found: Findings, here: Machine) -> None:
    """Tell of each GPU, and of the processor's memory and clock, what is free and set now."""
    gpus = [
        f"{g['name']}, {_of(g['memory_mib'], 'MiB')}, {_of(now['memory_free_mib'], 'MiB')} free, "
        f"driver {g['driver']}, clock {_of(now['clock_mhz'], 'MHz')} of at most "
        f"{_of(g['clock_mhz'], 'MHz')}, power {_of(now['power_w'], 'W')} of at most "
        f"{_of(g['power_cap_w'], 'W')}"
        for g, now in zip(here.gpus, machine.nvidia_now(), strict=False)
    ]
    found.facts["GPUs"] = "; ".join(gpus) or "none that nvidia-smi names"
    found.facts["memory free"] = f"{psutil.virtual_memory().available / 2**30:.1f} GiB"
    clock = psutil.cpu_freq()
    found.facts["processor clock"] = _of(clock.current if clock else None, "MHz")


def _of(value: float | None, unit: str) -> str:
    """Return a quantity, or that it can not be read here."""
    return "unknown" if value is None else f"{value:,.0f} {unit}"


def _server(found: Findings, server: str) -> None:
    try:
        probed = binary.probe(server)
    except SpecDepthError as error:
        found.fatal.append(str(error))
        return
    whose = "your own" if probed.own else "built here"
    found.facts["llama-server"] = f"{probed.version}, {whose}"
    found.facts["drafters"] = ", ".join(probed.spec_types)
    found.facts["devices"] = _devices(probed)
    for warning in probed.warnings():
        (found.fatal if "can not start" in warning else found.warnings).append(warning)
    if "--metrics" not in probed.flags:
        found.warnings.append("no --metrics: acceptance by position will be missing")
    missing = [t for t in TOOLS if not (binary.built_folder() / t).is_file()]
    found.facts["tools"] = f"missing: {', '.join(missing)}" if missing else ", ".join(TOOLS)


def _devices(probed: binary.ServerBinary) -> str:
    """Return what ``llama-server --list-devices`` names, on one line."""
    if "--list-devices" not in probed.flags:
        return "this build can not list them"
    done = subprocess.run(
        [str(probed.path), "--list-devices"], capture_output=True, text=True, timeout=60,
        env=binary.environment(), check=False,
    )  # fmt: skip
    lines = [x.strip() for x in done.stdout.splitlines() if ":" in x and "evices" not in x]
    return "; ".join(lines) or "the processor alone"


def _bindings(found: Findings) -> None:
    try:
        version = metadata.version("llama-cpp-python")
    except metadata.PackageNotFoundError:
        found.facts["llama-cpp-python"] = "not installed: everything but the tracer works"
        return
    # The programs and the bindings are of one commit when one wheel brought both.
    programs = {str(f) for f in metadata.files("llama-cpp-python") or ()}
    together = any(f.endswith("bin/llama-server") for f in programs)
    said = "without llama-server"
    if together:
        built = binary.built_folder() / "llama-server"
        try:
            commit = binary.probe(str(built)).commit or "unknown"
        except SpecDepthError as error:
            commit = f"unknown: {error}"
        said = f"of the same build as llama-server, commit {commit}"
    found.facts["llama-cpp-python"] = f"{version}, {said}"
    if not together:
        found.warnings.append("the bindings came without the programs: run `make engine`")
    if version != binary.PINNED_BINDINGS:
        found.warnings.append(
            f"llama-cpp-python {version} is not the pinned {binary.PINNED_BINDINGS}: run "
            "`make engine`"
        )


def _model(found: Findings, path: str) -> None:
    try:
        facts = model.facts(model.resolve(path))
    except SpecDepthError as error:
        found.fatal.append(str(error))
        return
    found.facts["model"] = (
        f"{facts.name}: {facts.architecture}, {facts.quantization}, {facts.size_mib:.0f} MiB, "
        f"{facts.parameters / 1e6:.1f}M parameters, {facts.layers} blocks"
    )
    found.facts["MTP layers"] = str(facts.mtp_layers)
    free = [now["memory_free_mib"] or 0 for now in machine.nvidia_now()]
    room = sum(free) if free else psutil.virtual_memory().available / 2**20
    if facts.size_mib > room:
        where = "on the GPUs" if free else "in memory"
        found.warnings.append(
            f"the weights are {facts.size_mib:,.0f} MiB and {room:,.0f} MiB are free {where}: "
            "`specdepth plan` tells what fits"
        )
    if facts.mtp_layers == 0:
        found.warnings.append(f"{facts.name} has no MTP layer: only depth 0 and n-grams can run")
