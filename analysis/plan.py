"""Which depth fits? The memory that each draft depth needs, and what leaves the device.

In closed form everything but the buffers of the computation follows from the model's numbers; those
are estimated (:mod:`analysis.compute`). Where the engine can be asked, its own planner answers,
and the closed form stands beside its answer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from analysis import compute, leaving, memory, model, weights
from analysis.engines.fit import Laid
from analysis.errors import SpecError
from analysis.memory import Layout
from analysis.shapes import Shape
from analysis.spec import MAX_DEPTH
from analysis.weights import Weights

CLOSED_FORM = "closed form"
ENGINE = "engine"
EMULATED = "engine, emulated device"
MOST_MIB, MOST_SLOTS, MOST_TOKENS = 2**30, 256, 2**31  # llama.cpp counts tokens in 32 bits
UNITS_MIB = {"gib": 1024.0, "g": 1024.0, "mib": 1.0, "m": 1.0,
             "gb": 1e9 / 2**20, "mb": 1e6 / 2**20}  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A model as the planner sees it."""

    layout: Layout
    weights: Weights


@dataclass(frozen=True)
class Pool:
    """What a server is started with, and what it may use of the device."""

    memory_mib: float
    context: int
    slots: int = 1
    unified: bool = False
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"

    def __post_init__(self) -> None:
        for name, most in (("context", MOST_TOKENS), ("slots", MOST_SLOTS)):
            if not 1 <= getattr(self, name) <= most:
                found = str(getattr(self, name))
                raise SpecError(f"`{name}` must lie between 1 and {most}", found)


@dataclass(frozen=True)
class Parts:
    """What a device holds with every layer on it, by the closed form, in MiB and not rounded."""

    state_mib: float
    kv_mib: float  # of the attention layers
    mtp_kv_mib: float
    weights_mib: float  # of the trunk and the output
    mtp_weights_mib: float
    compute_mib: float

    @property
    def total_mib(self) -> float:
        """All parts together."""
        caches = self.state_mib + self.kv_mib + self.mtp_kv_mib
        return caches + (self.weights_mib + self.mtp_weights_mib) + self.compute_mib


@dataclass(frozen=True)
class Row:
    """One depth's plan; MiB on the device with every layer on it, and what has to leave."""

    depth: int
    state_mib: float
    kv_mib: float  # of the attention layers and, where something is drafted, of the MTP block
    weights_mib: float
    compute_mib: float
    total_mib: float
    left_mib: float  # of the budget; below 0 where it does not fit
    fits: bool
    layers_total: int  # blocks and the output, as llama.cpp counts
    layers_off_device: int
    off_device: str  # which: "", "blocks 0-1", "experts of blocks 38-40"
    basis: str
    closed_form_total_mib: float  # beside the engine's answer

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return asdict(self)


def of_shape(shape: Shape, quantization: str) -> Subject:
    """Return a shipped shape under a quantization."""
    return Subject(shape.layout(), weights.of_shape(shape, quantization))


def of_file(path: Path) -> Subject:
    """Return the model of a GGUF.

    Raises
    ------
    ModelError
        If the file can not be read, or lacks what a plan needs.
    """
    with model.reading(path):
        layout = memory.layout_of(path)
        return Subject(layout, weights.of_file(path, layout.mtp_layers))


def check(subject: Subject, depths: tuple[int, ...]) -> None:
    """Raise where a model can not be planned for."""
    if not depths or not 0 <= min(depths) <= max(depths) <= MAX_DEPTH:
        raise SpecError(f"depths lie between 0 and {MAX_DEPTH}", str(list(depths)))
    if max(depths) > 0 and subject.layout.mtp_layers == 0:
        raise SpecError(
            f"{subject.layout.name} has no MTP layer", "", "plan depth 0 alone, or another model"
        )


def parts(subject: Subject, pool: Pool, depth: int) -> Parts:
    """Return what each part of a plan needs at a depth, from the model's numbers alone."""
    layout, held = subject.layout, subject.weights
    cache: dict[str, Any] = {"unified": pool.unified}
    types: dict[str, Any] = {
        "cache_type_k": pool.cache_type_k,
        "cache_type_v": pool.cache_type_v,
    }
    context, slots = pool.context, pool.slots
    trunk = held.on_device(drafting=False)
    return Parts(
        state_mib=memory.state_mib(layout, slots, depth),
        kv_mib=memory.kv_mib(layout, context, slots, **cache, **types),
        # The MTP block's cache has its own types, 16 bits unless they are set.
        mtp_kv_mib=memory.kv_mib(layout, context, slots, **cache, mtp=True) if depth else 0.0,
        weights_mib=trunk,
        mtp_weights_mib=held.on_device(drafting=depth > 0) - trunk,
        compute_mib=compute.buffers_mib(layout, context, slots, depth, **cache),
    )


def closed_form(subject: Subject, pool: Pool, depth: int) -> Row:
    """Return the plan of a depth from the model's numbers alone."""
    need = parts(subject, pool, depth)
    total = need.total_mib
    rest, experts = _loaded(subject, need.state_mib, need.kv_mib, drafting=depth > 0)
    off = leaving.in_closed_form(total - pool.memory_mib, rest, experts)
    return Row(
        depth=depth,
        state_mib=round(need.state_mib, 2),
        kv_mib=round(need.kv_mib + need.mtp_kv_mib, 2),
        weights_mib=round(need.weights_mib + need.mtp_weights_mib, 2),
        compute_mib=round(need.compute_mib, 1),
        total_mib=round(total, 1),
        left_mib=round(pool.memory_mib - total, 1),
        fits=total <= pool.memory_mib,
        layers_total=subject.weights.layers,
        layers_off_device=off.count,
        off_device=str(off),
        basis=CLOSED_FORM,
        closed_form_total_mib=round(total, 1),
    )


def deepest(subject: Subject, pool: Pool) -> int | None:
    """Return the deepest depth that fits by the closed form, or None where none does."""
    most = MAX_DEPTH if subject.layout.mtp_layers else 0
    fitting = (
        d for d in range(most, -1, -1) if parts(subject, pool, d).total_mib <= pool.memory_mib
    )
    return next(fitting, None)


def _loaded(
    subject: Subject, state: float, kv: float, *, drafting: bool
) -> tuple[list[float], list[float]]:
    """Return what each loaded block holds without its experts, and what those hold, in MiB."""
    layout, held = subject.layout, subject.weights
    count = len(held.blocks) - (0 if drafting else held.mtp_blocks)
    rest = []
    for index in range(count):
        mib = held.blocks[index] - held.experts[index]
        if layout.is_linear(index):
            mib += state / layout.linear_layers
        elif index < layout.linear_layers + layout.attention_layers:
            mib += kv / layout.attention_layers
        rest.append(mib)
    return rest, list(held.experts[:count])


def from_engine(subject: Subject, pool: Pool, laid: Laid, *, emulated: bool) -> Row:
    """Return the engine's own answer; its context is split into state and cache by the law."""
    own = closed_form(subject, pool, laid.depth)
    off = leaving.by_engine(laid, len(subject.weights.blocks), subject.weights.mtp_blocks)
    fits = laid.projected_mib <= pool.memory_mib
    return replace(
        own,
        weights_mib=float(laid.model_mib),
        compute_mib=float(laid.compute_mib),
        total_mib=float(laid.projected_mib),
        left_mib=round(pool.memory_mib - laid.projected_mib, 1),
        fits=fits,
        layers_off_device=off.count,
        off_device=str(off),
        basis=EMULATED if emulated else ENGINE,
    )


def memory_mib(text: str) -> float:
    """Read an amount of memory: ``22GiB``, ``24GB`` or ``21400MiB``.

    Raises
    ------
    SpecError
        If it is no amount above zero with its unit.
    """
    plain = text.strip().lower().replace(" ", "")
    number = plain.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        mib = float(number) * UNITS_MIB[plain[len(number) :]]
    except (ValueError, KeyError):
        mib = 0.0
    if not 0 < mib < MOST_MIB:
        raise SpecError("an amount of memory is like 22GiB, 24GB or 21400MiB", repr(text))
    return mib
