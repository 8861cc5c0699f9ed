"""The command line ``specdepth``; its commands on logs and memory are in ``cli_memory``."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from analysis import __version__, cli_memory
from analysis.cli_common import Json, Model, Server, depth_list, plainly
from analysis.errors import SpecDepthError

app = typer.Typer(
    help="Measure, explain and decide the draft depth of speculative decoding.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option(help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit()


@app.command()
@plainly
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
@plainly
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
    adaptive: Annotated[
        bool, typer.Option(help="Launch only what the depth sweep's verdict needs.")
    ] = False,
) -> None:
    """Run the notebooks on this machine; samples and pages go to its folder."""
    from analysis import gallery, series, summary

    given: dict[str, Any] = {"model": model}
    given |= {k: v for k, v in {"server": server, "server_args": server_args}.items() if v}
    if depths is not None:
        given["depths"] = depth_list(depths)
    if adaptive:
        given["adaptive"] = True
    for pair in set_ or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set needs NAME=VALUE: {pair!r}")
        given[name] = value
    chosen = tuple(n.strip() for n in notebooks.split(",") if n.strip()) or series.NOTEBOOKS
    made = series.run_series(given, machine, chosen, quick=quick, answer=summary.show)
    for page in made:
        print(f"wrote {page.relative_to(Path.cwd()) if page.is_relative_to(Path.cwd()) else page}")
    others = [r.run.run for r in gallery.runs(made[0].parent, "*")]
    print(f"runs in this folder: {', '.join(others)}")


@app.command()
@plainly
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
@plainly
def check(
    folder: Annotated[Path, typer.Argument(help="A machine's folder.")],
    as_json: Json = False,
    pages: Annotated[
        bool, typer.Option(help="Make each page again from its samples, and compare; minutes.")
    ] = True,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Put what the samples give in the pages' place.")
    ] = False,
) -> None:
    """Check a machine's folder before it is contributed; nothing in it is executed."""
    from analysis import contribution
    from analysis import redraw as again

    if redraw:
        for file in again.write(folder):
            print(f"wrote {file.name}", file=sys.stderr)
    found = contribution.examine(folder)
    # Pages that are not this book's, or whose samples are odd, are not made at all.
    if pages and not found.problems:
        found = dataclasses.replace(
            found, problems=tuple(again.compare(folder, contribution.Problem))
        )
    if as_json:
        problems = [vars(p) for p in found.problems]
        runs = {r.run.run: len(r.done()) for r in found.runs}
        print(json.dumps({"runs": runs, "pages": found.pages, "problems": problems}, indent=1))
    else:
        for recorded in found.runs:
            print(f"{recorded.run.run}: {len(recorded.done())} requests")
        for problem in found.problems:
            print(problem)
        print(f"pages: {', '.join(found.pages) or 'none'}")
        print(f"problems: {len(found.problems)}" if found.problems else "nothing is wrong")
    if found.problems:
        raise typer.Exit(1)


for _command in (cli_memory.traffic, cli_memory.placement, cli_memory.plan, cli_memory.shape):
    app.command()(_command)


@app.command()
@plainly
def book() -> None:
    """Build the book from the samples that are there, measuring nothing."""
    from analysis import pages, series

    print(f"wrote {series.build_book().relative_to(pages.root())}")


@app.command()
@plainly
def publish() -> None:
    """Write the book as a folder and an archive for any static host, measuring nothing."""
    from analysis import pages
    from analysis import publish as publishing

    written = publishing.publish()
    told = publishing.check(written)
    print(f"{len(told['files'])} files, {told['bytes'] / 1e6:.1f} MB, of commit {told['commit']}")
    for name in (publishing.SITE, publishing.ARCHIVE):
        print(f"wrote {(written / name).relative_to(pages.root())}")


if __name__ == "__main__":
    app()
