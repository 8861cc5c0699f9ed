"""What a llama-server log says of placement: layers and buffers by device."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

_HOST = re.compile(r"^(CPU(_\w+)?|AMX|.*_Host)$")
_CONTEXT = "constructing llama_context"  # the target's, then the draft's
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_BUFFER = re.compile(
    r"(?P<device>\S+)\s+(?P<kind>model|KV|RS|output|compute) buffer size\s*=\s*(?P<mib>[\d.]+) MiB"
)


def placement(log: str) -> dict[str, Any]:
    """Return layers and buffers of a launch, from a log at verbosity 4.

    ``layers_on_device`` is "66/66" as printed, or None where no weight lies on a device: a build
    with any device backend prints the full count even on a machine without one. Buffers are
    summed in MiB by device and kind, target and draft context together.
    """
    buffers: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for part in log.split(_CONTEXT):
        compute: dict[str, float] = {}
        for match in _BUFFER.finditer(part):
            if match["kind"] == "compute":
                compute[match["device"]] = float(match["mib"])  # reserved anew: the last counts
            else:
                buffers[match["device"]][match["kind"]] += float(match["mib"])
        for device, mib in compute.items():
            buffers[device]["compute"] += mib
    rounded = {
        device: {kind: round(mib, 2) for kind, mib in kinds.items()}
        for device, kinds in buffers.items()
    }
    on_device = any(
        kinds.get("model", 0) > 0 for device, kinds in rounded.items() if not _HOST.match(device)
    )
    printed = _OFFLOADED.findall(log)
    layers = "/".join(printed[-1]) if printed and on_device else None
    return {"layers_on_device": layers, "buffers_mib": rounded}
