"""The command line: ``specdepth doctor | run | verdict | traffic | placement | plan | book``."""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from analysis import __version__
from analysis.errors import SpecDepthError

app = typer.Typer(
    help="Measure, explain and decide the draft depth of speculative decoding.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Model = Annotated[str, typer.Option(help='A GGUF with an MTP head, or "embedded".')]
Server = Annotated[
    str, typer.Option(help="Your own llama-server; else SPECDEPTH_SERVER, else the built one.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


P = ParamSpec("P")


class _Stopped(KeyboardInterrupt):
    """A signal to end that is to be cleaned up after as an interrupt is."""


def _stop(number: int, _frame: object) -> None:
    raise _Stopped(number)


def _plainly(function: Callable[P, None]) -> Callable[P, None]:
    """Print our own errors as text and end with 1; a signal to end, with 128 and its number."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
                signal.signal(number, _stop)
        try:
            function(*args, **kwargs)
        except SpecDepthError as error:
            print(f"specdepth: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt as stop:
            print(
                "specdepth: interrupted; what was measured, if anything, is kept", file=sys.stderr
            )
            code = stop.args[0] if isinstance(stop, _Stopped) else signal.SIGINT
            raise typer.Exit(128 + code) from None

    return wrapped


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option(help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit()


@app.command()
@_plainly
def doctor(model: Model = "embedded", server: Server = "", as_json: Json = False) -> None:
    """Print what was found on this machine and what is wrong; fails if nothing can run."""
    from analysis.doctor import examine

    found = examine(model, server)
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=1))
    else:
        width = max(map(len, found.facts))
        for name, value in found.facts.items():
            print(f"{name:{width}}  {value}")
        for text in found.warnings:
            print(f"warning: {text}")
        for text in found.fatal:
            print(f"error: {text}")
        print(f"next: {found.next_command}")
    if found.fatal:
        raise typer.Exit(1)


@app.command()
@_plainly
def run(
    model: Model = "embedded",
    machine: Annotated[str, typer.Option(help="Folder name; default: from the hardware.")] = "",
    server: Server = "",
    server_args: Annotated[str, typer.Option(help="Further flags for llama-server.")] = "",
    depths: Annotated[str | None, typer.Option(help="Such as 0-5 or 0,2,4.")] = None,
    notebooks: Annotated[str, typer.Option(help="Names, separated by commas.")] = "",
    set_: Annotated[
        list[str] | None, typer.Option("--set", "-p", help="Any parameter, as NAME=VALUE.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="Minutes, with wider intervals.")] = False,
) -> None:
    """Run the notebooks on this machine; samples and pages go to its folder."""
    from analysis import gallery, series, summary

    given: dict[str, Any] = {"model": model}
    given |= {k: v for k, v in {"server": server, "server_args": server_args}.items() if v}
    if depths is not None:
        given["depths"] = _depths(depths)
    for pair in set_ or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set needs NAME=VALUE: {pair!r}")
        given[name] = value
    chosen = tuple(n.strip() for n in notebooks.split(",") if n.strip()) or series.NOTEBOOKS
    made = series.run_series(given, machine, chosen, quick=quick)
    for page in made.pages:
        print(f"wrote {page.relative_to(Path.cwd()) if page.is_relative_to(Path.cwd()) else page}")
    if made.sweep is not None:
        summary.show(made.sweep, made.tolerance)
    others = [r.run.run for r in gallery.runs(made.pages[0].parent, "*")]
    print(f"runs in this folder: {', '.join(others)}")


def _depths(text: str) -> list[int]:
    """Read ``0-5`` or ``0,2,4``."""
    try:
        found: list[int] = []
        for part in text.split(","):
            low, dash, high = part.strip().partition("-")
            if max(len(low), len(high)) > 2:
                raise ValueError
            part_of = list(range(int(low), int(high) + 1)) if dash else [int(low)]
            if not part_of:
                raise ValueError
            found += part_of
    except ValueError:
        raise typer.BadParameter(f"depths are like 0-5 or 0,2,4, below 100: {text!r}") from None
    return found


@app.command()
@_plainly
def verdict(
    machine: Annotated[str, typer.Argument(help="A machine of the book.")],
    as_json: Json = False,
    tolerance: Annotated[float, typer.Option(min=0.5, max=1.0)] = 0.97,
    run_id: Annotated[str, typer.Option("--run", help="A run; else the fullest.")] = "",
    mix: Annotated[str, typer.Option(help="Weights, such as short=2,code=1.")] = "",
) -> None:
    """Print the recommended depth of a machine, from its samples alone."""
    from analysis import gallery, summary
    from analysis.parameters import weights
    from analysis.report import sweep_of

    recorded = gallery.machine(machine)
    chosen = [r for r in recorded if run_id in ("", r.run.run)]
    if not chosen:
        raise SpecDepthError(
            f"no run {run_id} of {machine}",
            ", ".join(r.run.run for r in recorded),
            "choose one of these",
        )
    sweep = sweep_of(chosen[0], weights(mix))
    if as_json:
        print(json.dumps(summary.verdict(sweep, tolerance), indent=1))
    else:
        summary.show(sweep, tolerance)
        if len(recorded) > 1:
            print(f"runs of this machine: {', '.join(r.run.run for r in recorded)}")


@app.command()
@_plainly
def traffic(
    logs: Annotated[list[Path] | None, typer.Argument(help="Logs of a llama-server.")] = None,
    url: Annotated[
        str,
        typer.Option(help="A running server instead; its key from LLAMA_API_KEY."),
    ] = "",
    as_json: Json = False,
    each: Annotated[bool, typer.Option(help="Every request as well.")] = False,
) -> None:
    """Print how often drafts were accepted on your own traffic.

    Logs of any recent build will do; those of -lv 4 also state the draft depth. - reads the input.
    """
    from analysis import summary, terminal
    from analysis import traffic as own

    if bool(logs) == bool(url):
        given = "both" if url else "neither"
        raise typer.BadParameter(f"give the logs of a llama-server or --url, not {given}")
    if url:
        summary.show_counters(own.of_server(url), as_json=as_json)
        return
    requests = own.load(logs or [])
    found = own.groups(requests)
    if as_json:
        listed = [dataclasses.asdict(r) | {"steps": r.steps} for r in requests]
        print(json.dumps({"groups": [s.to_json() for s in found], "requests": listed}, indent=1))
        return
    singles = [own.summary(f"request {i}", [r]) for i, r in enumerate(requests, 1)] if each else []
    terminal.show_rows(own.rows([*found, *singles]))
    print(own.against_note(found[0]))


@app.command()
@_plainly
def placement(
    log: Annotated[str, typer.Argument(help="A log of llama-server or llama-cli; - reads input.")],
    as_json: Json = False,
) -> None:
    """Print which layers and buffers of a model lie on a device, as its log tells it."""
    from analysis import placement as own

    if log != "-" and not Path(log).is_file():
        wrong = "the log is a folder" if Path(log).is_dir() else "the log is not there"
        raise SpecDepthError(wrong, log, "name the file itself, or - for the input")
    stream = sys.stdin.buffer.read() if log == "-" else Path(log).read_bytes()
    found = own.read(stream.decode(errors="replace"))
    if found.verdict == own.UNKNOWN:
        print("no placement in this log: llama-server prints it from -lv 4 on", file=sys.stderr)
    if as_json:
        print(json.dumps(found.to_json(), indent=1))
        return
    for name, value in found.to_json().items():
        if name == "evidence":
            print("\n".join(["evidence", *(f"  {line}" for line in value)]))
        elif name == "requests":
            print(f"{'requests':26} {len(value)}")
        else:
            print(f"{name:26} {'not stated' if value in (None, {}) else value}")


@app.command()
@_plainly
def plan(
    model: Annotated[str, typer.Option(help="A GGUF, or a shape instead.")] = "",
    shape: Annotated[str, typer.Option(help="A shipped shape, such as qwen3.6-27b.")] = "",
    quant: Annotated[str, typer.Option(help="Of a shape: q4_k_m, q8_0, ...")] = "q4_k_m",
    memory: Annotated[
        str, typer.Option(help="What the device may use, such as 22GiB; default: this device.")
    ] = "",
    context: Annotated[int, typer.Option(help="Tokens of all slots, as --ctx-size.")] = 32768,
    slots: Annotated[int, typer.Option(help="As --parallel.")] = 1,
    depths: Annotated[str, typer.Option(help="Such as 0-6 or 0,2,4.")] = "0-6",
    kv_unified: Annotated[bool, typer.Option(help="One cache for all slots.")] = False,
    cache_type_k: Annotated[str, typer.Option(help="f16, q8_0, q4_0, ...")] = "f16",
    cache_type_v: Annotated[str, typer.Option(help="f16, q8_0, q4_0, ...")] = "f16",
    server: Server = "",
    closed_form: Annotated[bool, typer.Option("--closed-form", help="Start no engine.")] = False,
    as_json: Json = False,
) -> None:
    """Print the memory that each draft depth needs, and which layers would leave the device.

    llama-server's own planner is asked where it can be; a shape needs no weights.
    """
    from analysis import plan_text, planner
    from analysis.plan import Pool, memory_mib

    pool = Pool(
        memory_mib(memory) if memory else 0.0, context, slots, kv_unified, cache_type_k.lower(),
        cache_type_v.lower(),
    )  # fmt: skip
    wanted = planner.Wanted(model, shape, quant.lower())
    made = planner.make(wanted, pool, tuple(_depths(depths)), server=server, engine=not closed_form)
    for note in made.notes:
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        print(json.dumps([row.to_json() for row in made.rows], indent=1))
    else:
        plan_text.show(made)


@app.command()
@_plainly
def book() -> None:
    """Build the book from the samples that are there, measuring nothing."""
    from analysis import pages, series

    print(f"wrote {series.build_book().relative_to(pages.root())}")


if __name__ == "__main__":
    app()
