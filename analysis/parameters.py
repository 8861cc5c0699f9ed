"""From a notebook's parameters to a spec: an unknown name stops the page."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from analysis import quotes, shape_models, shapes
from analysis.coercion import coerce
from analysis.errors import SpecError, choices
from analysis.folders import replaying
from analysis.paths import last_part
from analysis.quantization import Mix
from analysis.spec import EMBEDDED, EMBEDDED_DRAFTERS, WORKLOADS, SweepSpec
from analysis.speculation import MIN_TOKENS_FOR_SPEED
from analysis.verdict import TOLERANCE

_IPYTHON = {"In", "Out", "exit", "quit", "open", "get_ipython"}


@dataclass(frozen=True)
class Tracing:
    """What the tracer is run for, beside the engine's own measurements."""

    prompts: int = 3  # of each workload but long; 0 leaves the tracer out
    rounds: int = 3  # fresh child processes a depth
    n_predict: int = 96  # tokens asked for
    p_min: tuple[float, ...] = (0.5, 0.8)  # beside none


@dataclass(frozen=True)
class Planning:
    """What the engine's planner is asked, beside the measurements."""

    shapes: tuple[str, ...] = ()  # of the law's figure; () for all that ship
    shape: str = "qwen3.6-27b"  # of the question of the note
    quantization: str = "q4_k_pure"
    context: int = 86016  # tokens of all slots together
    slots: int = 2
    depths: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    budgets_mib: tuple[int, ...] = ()  # device memory; () for amounts between the depths' needs


@dataclass(frozen=True)
class Evicting:
    """What is measured of memory and of a layer off the device, as the memory page does."""

    workloads: tuple[str, ...] = ("short", "code")
    depths: tuple[int, ...] = (0, 2, 5)
    prompts: int = 4  # of each workload; 0 leaves this part out
    rounds: int = 3


@dataclass(frozen=True)
class Shaping:
    """Which full-size shapes are run without their weights, and how."""

    models: tuple[str, ...] = ()  # NAME:QUANTIZATION or NAME:QUANTIZATION:random; () for none
    depths: tuple[int, ...] = (0, 1, 2, 3)
    rounds: int = 4
    prompts: int = 1
    n_predict: int = 40  # tokens asked for


@dataclass(frozen=True)
class PageParameters:
    """What a page is made with: the spec, and where and how its results are shown."""

    spec: SweepSpec
    machine: str  # "" names the machine from its hardware
    machines_folder: Path | None  # None: book/machines of the checkout
    tolerance: float
    mix: dict[str, float]  # weights of the workloads in the mix; 1 where not named
    tracing: Tracing = Tracing()
    planning: Planning = Planning()
    traffic_log: str = ""  # path of a llama-server log
    evicting: Evicting = Evicting()
    shaping: Shaping = Shaping()


def weights(value: Any) -> dict[str, float]:
    """Read the weights of a mix: a mapping, or text such as ``short=2, code=1``.

    Raises
    ------
    SpecError
        If a name is no workload or a weight is not a number above zero.
    """
    if isinstance(value, str):
        value = dict(part.partition("=")[::2] for part in value.split(",") if part.strip())
    try:
        found = {str(k).strip(): float(v) for k, v in dict(value or {}).items()}
    except (TypeError, ValueError):
        found = {"?": 1.0}
    if set(found) - set(WORKLOADS) or any(not 0 < w < float("inf") for w in found.values()):
        raise SpecError(
            f"`mix` must give weights above zero to {', '.join(WORKLOADS)}",
            repr(value),
            'for example "short=2, code=1"; workloads that are not named weigh 1',
        )
    return found


def read(
    names: Mapping[str, Any],
    *,
    traces: bool = False,
    plans: bool = False,
    causes: bool = False,
    drafts: bool = False,
) -> PageParameters:
    """Read a notebook's ``globals()`` right after its parameters.

    papermill only warns of a misspelt parameter, and the page would be of other settings than
    its reader asked for. `traces` tells that the page also has the parameters of the tracer and of
    a log of real traffic, `plans` that it has those of the tracer and of the engine's planner, and
    `causes` those of a layer off the device, of shapes, and of a log of real traffic; with `drafts`
    it has a list of drafters.

    Raises
    ------
    SpecError
        If a name is not a parameter, or a value is not usable.
    """
    given: dict[str, Any] = {
        name: value
        for name, value in names.items()
        if not name.startswith("_")
        and name not in _IPYTHON
        and (value is None or isinstance(value, (str, int, float, bool, list, tuple, dict)))
    }
    machine = str(given.pop("machine", ""))
    folder = str(given.pop("machines_folder", ""))
    log = str(given.pop("traffic_log", "")) if traces or causes else ""
    mix = weights(given.pop("mix", {}))
    tolerance = given.pop("tolerance", TOLERANCE)
    try:
        tolerance = float(tolerance)
    except (TypeError, ValueError):
        tolerance = 0.0
    if not 0 < tolerance <= 1:
        raise SpecError("`tolerance` must lie in (0, 1]", repr(names.get("tolerance")))
    tracing = _tracing(given) if traces or plans or causes else Tracing()
    planning = _planning(given) if plans else Planning()
    evicting = _evicting(given) if causes else Evicting()
    shaping = _shaping(given) if causes else Shaping()
    given |= _drafters(given) if drafts else {}
    known = {f.name for f in fields(SweepSpec)} | ({"drafters", "ngrams"} if drafts else set())
    unknown = sorted(set(given) - known)
    if unknown:
        more = {"machine", "machines_folder", "tolerance", "mix"}
        more |= (
            {f"traced_{f.name}" for f in fields(Tracing)} if traces or plans or causes else set()
        )
        more |= {f"plan_{f.name}" for f in fields(Planning)} if plans else set()
        more |= {f"evicted_{f.name}" for f in fields(Evicting)} if causes else set()
        more |= {f"shape_{f.name}" for f in fields(Shaping)} if causes else set()
        more |= {"traffic_log"} if traces or causes else set()
        raise SpecError(
            f"unknown parameter {', '.join(unknown)}",
            "",
            choices(unknown, known | more),
        )
    if log and not replaying() and not Path(log).expanduser().is_file():
        raise SpecError("`traffic_log` is no file", last_part(log), "give a llama-server log")
    where = Path(folder) if folder else None
    spec = _of_shape(SweepSpec(**given))
    _check_measurable(spec, compares=causes or drafts)
    return PageParameters(
        spec, machine, where, tolerance, mix, tracing, planning, log,
        evicting, shaping,
    )  # fmt: skip


def _check_measurable(spec: SweepSpec, *, compares: bool) -> None:
    """Refuse what would be measured in full and then give no number."""
    if spec.n_predict <= MIN_TOKENS_FOR_SPEED:
        raise SpecError(
            f"`n_predict` must be above {MIN_TOKENS_FOR_SPEED}: fewer tokens give no speed",
            str(spec.n_predict),
        )
    if compares and max(spec.depths) == 0:
        raise SpecError(
            "`depths` must name a depth above 0: this page compares drafting with none",
            str(list(spec.depths)),
            "such as [0, 1, 2]",
        )


def _of_shape(spec: SweepSpec) -> SweepSpec:
    """Return the spec of a shape by its one name, with acceptance given; any other as it is.

    Natural acceptance of a model without weights means nothing: where no rates are named, those of
    a public measurement are given. Its texts mean nothing either and are not compared.
    """
    name = shape_models.canonical(spec.model)
    if not shape_models.named(name):
        return spec
    spec = replace(spec, model=name, lossless_prompts=0)
    deepest = max(spec.depths)
    if spec.arm != "natural" or not deepest or spec.drafter not in ("mtp", "draft-simple"):
        return spec
    if spec.p_min:
        raise SpecError(
            "`p_min` must be 0 for a shape: without weights no draft is likely",
            repr(spec.p_min),
            "leave it out, or measure a model with its weights",
        )
    return replace(spec, arm="synthetic", synthetic_rates=quotes.public_rates(deepest))


def _drafters(given: dict[str, Any]) -> dict[str, Any]:
    """Take the list of drafters out of `given`; return it as a spec has it.

    Drafters of the embedded model are of no use to another one and are left out there, and a shape
    without weights has nothing that a drafter could be right about but by chance.
    """
    listed = [
        d for n in ("drafters", "ngrams") for d in coerce(n, given.pop(n, ()), tuple[str, ...])
    ]
    kind, path = (coerce(n, given.pop(n, ""), str) for n in ("drafter", "draft_model"))
    target = coerce("model", given.get("model", EMBEDDED), str)
    if target != EMBEDDED:
        listed = [d for d in listed if d.partition(":")[2] not in EMBEDDED_DRAFTERS]
    if kind or path:
        own = f"{kind or 'draft-simple'}:{path}" if path else kind
        listed += [own] if own not in listed else []
    if not listed:
        raise SpecError("`drafters` must name a drafter", "an empty list", 'such as ["mtp"]')
    if shape_models.named(shape_models.canonical(target)):
        listed = listed[:1]
    first, _, file = listed[0].partition(":")
    return {"drafter": first, "draft_model": file, "more_drafters": listed[1:]}


def _tracing(given: dict[str, Any]) -> Tracing:
    """Take the parameters of the tracer out of `given`."""
    tracing: Tracing = _group(given, Tracing, "traced_")
    counts = tracing.rounds >= 1 and tracing.prompts >= 0 and tracing.n_predict >= 2
    if not counts or any(not 0 < p <= 1 for p in tracing.p_min):
        raise SpecError(
            "`traced_prompts` must be at least 0, `traced_rounds` at least 1, `traced_n_predict` "
            "at least 2, and each of `traced_p_min` lie in (0, 1]",
            str(tracing),
        )
    return tracing


def _planning(given: dict[str, Any]) -> Planning:
    """Take the parameters of the planner out of `given`."""
    planning: Planning = _group(given, Planning, "plan_")
    for name in (planning.shape, *planning.shapes):
        shapes.shape(name)
    Mix(planning.quantization, 1)
    if not planning.depths or min(*planning.depths, planning.slots, planning.context) < 0:
        raise SpecError(
            "`plan_depths` must name depths from 0 on, `plan_slots` and `plan_context` be above 0",
            str(planning),
        )
    return planning


def _evicting(given: dict[str, Any]) -> Evicting:
    """Take the parameters of the run with a layer off the device out of `given`."""
    evicting: Evicting = _group(given, Evicting, "evicted_")
    depths = min(evicting.depths, default=-1) >= 0
    counts = evicting.prompts >= 0 and evicting.rounds >= 1
    if not (depths and counts) or set(evicting.workloads) - set(WORKLOADS):
        raise SpecError(
            "`evicted_prompts` must be at least 0, `evicted_rounds` at least 1, `evicted_depths` "
            "name depths from 0 on, and "
            f"`evicted_workloads` out of {', '.join(WORKLOADS)}",
            str(evicting),
        )
    return evicting


def _shaping(given: dict[str, Any]) -> Shaping:
    """Take the parameters of the runs of shapes out of `given`."""
    shaping: Shaping = _group(given, Shaping, "shape_")
    for model in shaping.models:
        shape_models.parse(f"{shape_models.PREFIX}{model}")
    depths = max(shaping.depths, default=0) > 0 and min(shaping.depths) >= 0
    if shaping.rounds < 1 or shaping.prompts < 1 or not depths:
        raise SpecError(
            "`shape_rounds` and `shape_prompts` must be at least 1, `shape_depths` name a depth "
            "above 0",
            str(shaping),
        )
    return shaping


def _group(given: dict[str, Any], kind: type[Any], prefix: str) -> Any:
    """Take the parameters of one kind out of `given`, brought to their types."""
    values = {f.name: given.pop(f"{prefix}{f.name}", f.default) for f in fields(kind)}
    hints = typing.get_type_hints(kind)
    return kind(**{k: coerce(f"{prefix}{k}", v, hints[k]) for k, v in values.items()})
