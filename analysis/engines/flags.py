"""The command line of a launch, from the spec by a table; names are chosen from --help."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from analysis.engines.binary import SUPPORTED, ServerBinary
from analysis.errors import EngineError
from analysis.spec import SweepSpec


@dataclass(frozen=True)
class Flag:
    """One row of the table: spellings, newest first, and the value a spec gives it.

    A value of None leaves the flag out; True gives the flag without a value.
    """

    names: tuple[str, ...]
    value: Callable[[SweepSpec, int], str | bool | None]
    optional: bool = False  # whether a launch means the same without it (older builds lack some)
    shared: bool = False  # whether a user may set it too, where the spec leaves it out


def _when(condition: object, value: object) -> str | None:
    return str(value) if condition else None


def _drafting(spec: SweepSpec, depth: int, *drafters: str) -> bool:
    return depth > 0 and spec.drafter in drafters


def _by_model(spec: SweepSpec, depth: int) -> bool:
    return depth > 0 and spec.drafts_by_model


# Flags that make llama-server fetch a file: by address, from a model repository, or by its name.
_FETCHES = re.compile(
    r"-m?mu|-dr|-hf.*|--(?:model|mmproj)-url|--docker-repo|--hf-.*|--spec-draft-hf.*|--.*-default"
)
NGRAM_TOKENS = 12  # that llama.cpp's n-gram drafters look up

FLAGS = (
    Flag(("--parallel", "-np"), lambda s, _: str(s.slots)),
    Flag(("--ctx-size", "-c"), lambda s, _: str(s.context)),
    Flag(("--cache-type-k", "-ctk"), lambda s, _: _when(s.cache_type_k != "f16", s.cache_type_k)),
    Flag(("--cache-type-v", "-ctv"), lambda s, _: _when(s.cache_type_v != "f16", s.cache_type_v)),
    Flag(("--kv-unified", "-kvu"), lambda s, _: s.kv_unified is True or None),
    Flag(("--no-kv-unified", "-no-kvu"), lambda s, _: s.kv_unified is False or None),
    Flag(("--threads", "-t"), lambda s, _: _when(s.threads, s.threads)),
    Flag(
        ("--gpu-layers", "--n-gpu-layers", "-ngl"),
        lambda s, _: _when(s.arm == "evicted", s.gpu_layers),
        shared=True,
    ),
    # Two programs share the processor: a side that polls would take the other's time.
    Flag(("--poll",), lambda s, _: _when(s.device == "emulated", 0), shared=True),
    Flag(
        ("--fit-target", "-fitt"),
        lambda s, _: _when(s.fit_target_mib is not None, s.fit_target_mib),
    ),
    Flag(
        ("--spec-draft-n-max", "--draft-max"),
        lambda s, d: _when(_by_model(s, d), d),
    ),
    Flag(
        ("--spec-draft-p-min", "--draft-p-min"),
        lambda s, d: _when(_by_model(s, d), s.p_min),
    ),
    Flag(
        ("--spec-draft-model", "--model-draft", "-md"),
        lambda s, d: _when(d > 0 and s.draft_model, s.draft_model),
    ),
    Flag(
        ("--spec-ngram-simple-size-m", "--spec-ngram-size-m"),
        lambda s, d: _when(_drafting(s, d, "ngram-simple"), d),
    ),
    # ngram-simple drafts nothing that is shorter than what it looks up, 12 tokens if not told.
    Flag(
        ("--spec-ngram-simple-size-n", "--spec-ngram-size-n"),
        lambda s, d: _when(_drafting(s, d, "ngram-simple") and d < NGRAM_TOKENS, d),
        optional=True,
    ),
    Flag(("--spec-ngram-mod-n-max",), lambda s, d: _when(_drafting(s, d, "ngram-mod"), d)),
    # The drafter of modular n-grams refuses a minimum above the maximum.
    Flag(("--spec-ngram-mod-n-min",), lambda s, d: _when(_drafting(s, d, "ngram-mod"), 1)),
    Flag(("--spec-ngram-map-k-size-m",), lambda s, d: _when(_drafting(s, d, "ngram-map-k"), d)),
    Flag(("--spec-ngram-map-k4v-size-m",), lambda s, d: _when(_drafting(s, d, "ngram-map-k4v"), d)),
    Flag(
        ("--spec-synth-rates",),
        lambda s, d: _when(d > 0 and s.rates(d), ",".join(str(r) for r in s.rates(d))),
    ),
    Flag(("--metrics",), lambda *_: True, optional=True),
    Flag(
        ("--log-verbosity", "--verbosity", "-lv"), lambda *_: "4", optional=True
    ),  # placement lines need it
    Flag(
        ("--cache-ram", "-cram"), lambda *_: "0", optional=True
    ),  # no prompt of an earlier request is kept
    Flag(("--no-ui", "--no-webui"), lambda *_: True, optional=True),
    Flag(("--offline",), lambda *_: True, optional=True),
)


def arguments(
    binary: ServerBinary, spec: SweepSpec, depth: int, model: Path, port: int
) -> list[str]:
    """Return the arguments of a launch at a depth.

    Raises
    ------
    EngineError
        If the binary lacks a flag that the spec can not do without.
    """
    chosen = ["--model", str(model), "--host", "127.0.0.1", "--port", str(port)]
    chosen += spec_type(binary, spec, depth)
    for flag in FLAGS:
        value = flag.value(spec, depth)
        if value is None or value is False:
            continue
        name = next((n for n in flag.names if n in binary.flags), None)
        if name is None:
            if not flag.optional:
                raise EngineError(
                    f"this llama-server has no {' or '.join(flag.names)}",
                    binary.version,
                    f"supported: {SUPPORTED}",
                )
            continue
        chosen += [name] if value is True else [name, str(value)]
    _check_own(spec)
    set_here = {n for f in FLAGS if f.shared and f.value(spec, depth) is not None for n in f.names}
    return [*chosen, *_without(spec.server_args, set_here)]


def _without(words: tuple[str, ...], names: set[str]) -> list[str]:
    """Return a user's flags without those of some names, and without their values."""
    kept: list[str] = []
    skip = False
    for word in words:
        name, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif name in names:
            skip = not equals
        else:
            kept.append(word)
    return kept


def _check_own(spec: SweepSpec) -> None:
    """Refuse flags of a user's that would change what the sweep itself sets, depth above all."""
    ours = {name for flag in FLAGS if not flag.shared for name in flag.names}
    ours |= {"--model", "-m", "--host", "--port", "--spec-type", "--api-key", "--api-key-file"}
    own = {a.partition("=")[0] for a in spec.server_args}
    fetching = sorted(name for name in own if _FETCHES.fullmatch(name))
    if fetching:
        raise EngineError(
            f"`server_args` may not hold {', '.join(fetching)}",
            "nothing is downloaded while measuring",
            "fetch the file first and name it by the parameter `model` or `draft_model`",
        )
    taken = sorted(own & ours)
    if taken:
        raise EngineError(
            f"`server_args` may not hold {', '.join(taken)}",
            "the sweep sets these itself",
            "use the parameter of that name instead, such as context, threads or depths",
        )


def spec_type(binary: ServerBinary, spec: SweepSpec, depth: int) -> list[str]:
    """Return the flag that names the drafter, in the spelling of this build."""
    if depth == 0 or spec.drafter == "none":
        return []
    spellings = ("draft-mtp", "mtp") if spec.drafter == "mtp" else (spec.drafter,)
    for spelling in spellings:
        if spelling in binary.spec_types:
            return ["--spec-type", spelling]
    raise EngineError(
        f"this llama-server can not draft with {spec.drafter}",
        f"its --spec-type knows {', '.join(binary.spec_types) or 'nothing'}",
        f"supported: {SUPPORTED}",
    )
