"""Which layers leave a device: by the engine's answer, and in closed form.

Blocks leave from the first on, with their state and cache. In a mixture of experts the experts
leave first, from the last block on (``common/fit.cpp`` of llama.cpp 0c1e570).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.engines.fit import Laid


@dataclass(frozen=True)
class Leaving:
    """What is not on the device; blocks count from 0, the output comes behind the last."""

    blocks: tuple[int, ...] = ()  # wholly off
    experts: tuple[int, ...] = ()  # of these blocks the experts alone
    output: bool = False

    @property
    def layers(self) -> tuple[int, ...]:
        """The blocks that are not wholly on the device."""
        return tuple(sorted({*self.blocks, *self.experts}))

    @property
    def count(self) -> int:
        """How many layers are not wholly on the device, the output among them."""
        return len(self.layers) + self.output

    def __str__(self) -> str:
        if self.output:
            return "all"
        named = {"blocks": self.blocks, "experts of blocks": self.experts}
        return ", ".join(f"{kind} {_span(which)}" for kind, which in named.items() if which)


def _span(which: Sequence[int]) -> str:
    return str(which[0]) if len(which) == 1 else f"{which[0]}-{which[-1]}"


def by_engine(laid: Laid, blocks: int, mtp_blocks: int) -> Leaving:
    """Return what the engine's planner takes off the device, of a model with this many blocks."""
    on = blocks + 1 if laid.layers_on_device is None else laid.layers_on_device
    off = blocks + 1 - on
    loaded = blocks if laid.depth else blocks - mtp_blocks
    # The planner counts the output among the layers whose experts leave; it has none.
    partly = max(laid.layers_partly - 1, 0)
    return Leaving(
        tuple(range(min(off, blocks))), tuple(range(loaded - partly, loaded)), output=off > blocks
    )


def in_closed_form(over_mib: float, blocks: Sequence[float], experts: Sequence[float]) -> Leaving:
    """Return what leaves until so much memory is free.

    `blocks` is what each block holds on the device without its experts, `experts` what those hold;
    only blocks that are loaded.
    """
    if over_mib <= 0:
        return Leaving()
    gone: tuple[int, ...] = ()
    if sum(experts) > 0:
        for index in range(len(experts) - 1, -1, -1):
            over_mib -= experts[index]
            gone = (index, *gone)
            if over_mib <= 0:
                return Leaving(experts=gone)
    for index, mib in enumerate(blocks):
        over_mib -= mib
        if over_mib <= 0:
            return Leaving(tuple(range(index + 1)), gone)
    return Leaving(tuple(range(len(blocks))), gone, output=True)
