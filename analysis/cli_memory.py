"""The commands on logs and memory: ``specdepth traffic | placement | plan | shape``."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from analysis.cli_common import Json, Server, depth_list, plainly
from analysis.errors import SpecDepthError


@plainly
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


@plainly
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
    if as_json:
        print(json.dumps(found.to_json(), indent=1))
        return
    if found.verdict == own.UNKNOWN and not found.requests:
        raise SpecDepthError(
            "no placement in this log", Path(log).name, "llama-server prints it from -lv 4 on"
        )
    for name, value in found.to_json().items():
        if name == "evidence":
            print("\n".join(["evidence", *(f"  {line}" for line in value)]))
        elif name == "requests":
            print(f"{'requests':26} {len(value)}")
        else:
            print(f"{name:26} {'not stated' if value in (None, {}) else value}")


@plainly
def plan(
    model: Annotated[str, typer.Option(help="A GGUF, or shape:NAME; or --shape.")] = "",
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
    wanted = planner.wanted(model, shape, quant.lower())
    asked = tuple(depth_list(depths))
    made = planner.make(wanted, pool, asked, server=server, engine=not closed_form)
    for note in made.notes:
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        print(json.dumps([row.to_json() for row in made.rows], indent=1))
    else:
        plan_text.show(made)


@plainly
def shape(
    name: Annotated[str, typer.Argument(help="A shipped shape, such as qwen3.6-27b.")],
    out: Annotated[Path, typer.Argument(metavar="OUT.gguf", help="The file to write.")],
    quant: Annotated[str, typer.Option(help="q4_k_m, q8_0, ...")] = "q4_k_m",
    contents: Annotated[
        str, typer.Option(help="hole, a few MB on the disk; or random numbers, up to 8 GiB.")
    ] = "hole",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a model of a full-size architecture without its weights; every command takes it.

    Its step times, memory and placement are real, acceptance is given, and its text means nothing.
    --model shape:NAME does the same without a file of your own.
    """
    from analysis import shape_models

    plain = name.lower().removeprefix(shape_models.PREFIX)
    wanted = shape_models.parse(":".join(("shape", plain, quant, contents)))
    if out.is_dir():
        raise SpecDepthError("the target is a folder", str(out), "name the file to write")
    if out.exists() and not force:
        raise SpecDepthError("the file is there already", str(out), "add --force to replace it")
    shape_models.make(wanted, out)
    size = out.stat()
    print(f"wrote {out}: {wanted.shape.name}, {wanted.quantization}, contents {wanted.contents}")
    print(f"size as declared  {size.st_size / 2**20:,.1f} MiB")
    print(f"size on the disk  {size.st_blocks * 512 / 2**20:,.1f} MiB")
    print(f"next: specdepth run --model {out} --quick")
