"""The form of the planner page: the closed form's numbers and the files in ``web/`` as one HTML.

The browser computes the law again (``web/planner_law.js``), fed with numbers that come from here
alone; nothing is loaded from elsewhere, so that the page works from a folder.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib import resources
from string import Template
from typing import Any
from urllib.parse import urlencode

from analysis import compute, memory, plan, planner, shapes
from analysis.memory import MIB, PADDING, STATE_BYTES
from analysis.plan import Pool, Subject
from analysis.planner import Wanted
from analysis.quantization import MIXES, block_of
from analysis.shapes import Shape
from analysis.spec import CACHE_TYPES, MAX_DEPTH

MTP_CACHE = "f16"  # of the MTP block's cache, and of the others unless they are set
SHOWN_DEPTH = 8  # the last row of table and chart
COMMAND = "specdepth plan"


@dataclass(frozen=True)
class Settings:
    """What the form's fields say; by default the worked example."""

    shape: str = "qwen3.6-27b"
    quant: str = "q4_k_m"
    memory: str = "22GiB"
    context: int = 86016
    slots: int = 2
    cache_type_k: str = MTP_CACHE
    cache_type_v: str = MTP_CACHE
    kv_unified: bool = True

    def subject(self) -> Subject:
        """Return the model."""
        return Wanted(shape=self.shape, quantization=self.quant).subject()

    def pool(self) -> Pool:
        """Return what the server is started with."""
        return Pool(
            plan.memory_mib(self.memory), self.context, self.slots, self.kv_unified,
            self.cache_type_k, self.cache_type_v,
        )  # fmt: skip

    def fields(self) -> dict[str, str]:
        """Return the texts of the fields, by the options of ``specdepth plan``."""
        return {
            name.replace("_", "-"): str(int(value)) if isinstance(value, bool) else str(value)
            for name, value in asdict(self).items()
        }

    def link(self) -> str:
        """Return the part of the page's address that fills the form with these."""
        return f"#{urlencode(self.fields())}"


def data(near_mib: float) -> dict[str, Any]:
    """Return every number that the browser needs, JSON-ready; weights in bytes.

    `near_mib` is how close to an edge the closed form can not tell.
    """
    known = shapes.shapes()
    return {
        "padding": PADDING,
        "state_bytes": STATE_BYTES,
        "pass_tokens": compute.PASS_TOKENS,
        "mask_bytes": compute.MASK_BYTES,
        "mtp_share": compute.MTP_SHARE,
        "mtp_cache": MTP_CACHE,
        "cache_types": {name: block_of(name.upper()) for name in CACHE_TYPES},
        "units_mib": plan.UNITS_MIB,
        "most": {"memory_mib": plan.MOST_MIB, "context": plan.MOST_TOKENS,
                 "slots": plan.MOST_SLOTS, "depth": MAX_DEPTH},
        "near_mib": near_mib,
        "models": {name: _model(shape) for name, shape in known.items()},
        "lists": {"shape": list(known), "quant": list(MIXES), "cache-type-k": list(CACHE_TYPES),
                  "cache-type-v": list(CACHE_TYPES)},
        "defaults": Settings().fields(),
        "shown": SHOWN_DEPTH,
        "command": COMMAND,
    }  # fmt: skip


def _model(shape: Shape) -> dict[str, Any]:
    layout = shape.layout()
    return {
        "layout": asdict(layout) | {"rolls_back": memory.copies(layout, 1) > 1},
        "weights": {name: _weights(shape, name) for name in MIXES},
    }


def _weights(shape: Shape, quantization: str) -> dict[str, Any]:
    held = plan.of_shape(shape, quantization).weights
    return {
        "blocks": [round(mib * MIB) for mib in held.blocks],
        "experts": [round(mib * MIB) for mib in held.experts],
        "output": round(held.output * MIB),
    }


def html(near_mib: float) -> str:
    """Return the form with its style, its script and its numbers."""
    folder = resources.files("analysis").joinpath("web")
    style, markup, law, form = (
        folder.joinpath(name).read_text(encoding="utf-8")
        for name in ("planner_form.css", "planner_form.html", "planner_law.js", "planner_form.js")
    )
    # Inside a script element only this sign could end it.
    numbers = json.dumps(data(near_mib), separators=(",", ":")).replace("<", "\\u003c")
    return "\n".join(
        [
            f"<style>\n{style}</style>",
            Template(markup).substitute(margin=f"{planner.MARGIN_MIB:,}"),
            f'<script type="application/json" id="planner-data">{numbers}</script>',
            f"<script>\n{law}</script>",
            f"<script>\n{form}</script>",
        ]
    )
