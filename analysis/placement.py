"""Where a model's layers and buffers lie, as a llama-server or llama-cli log tells it.

Formats of about a year of builds are read, whatever stands before a line. What a log does not state
is None: an absent line is no fact. ``offloaded N/N layers to GPU`` alone is no proof of a device,
since a build with any device back end prints the full count on a machine without one; buffers are.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from analysis import logs

ALL, PARTIAL, NONE, FAILED, UNKNOWN = "all", "partial", "none", "failed", "unknown"
_HOST = re.compile(r"^(CPU(_\w+)?|AMX|.*_Host)$")
_BUFFER = re.compile(
    r"(?P<device>[^\s:]\S*)\s+(?P<kind>model |KV |RS |output |compute |KV self |)buffer size\s*=\s*"
    r"(?P<mib>[\d.]+) MiB"
)
_KINDS = {"model": "model", "KV": "kv", "KV self": "kv", "RS": "state", "compute": "compute"}
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_ASSIGNED = re.compile(r"layer\s+(\d+) assigned to device ([^\s,]+)")
_STATE_DEPTH = re.compile(r"(?:\bn_rs_seq\s*=\s*(\d+))|(?:(\d+) rs_seq\))")
_LOADING = re.compile(r"loading model tensors|load_tensors: loading|llm_load_tensors: ggml ctx")
_CONTEXT = re.compile(r"constructing llama_context|llama_new_context_with_model: n_ctx ")
_FLASH = re.compile(r"Flash Attention (?:was auto, set to )?(enabled|disabled|not supported)")
_FLASH_FIELD = re.compile(r"\bflash_attn\s*=\s*(enabled|disabled|auto|0|1)\b")
_GDN = re.compile(
    r"fused Gated Delta Net \((autoregressive|chunked)\) (enabled|not supported, set to disabled)"
)
_FAILURES = (
    re.compile(r"(?:cudaMalloc failed|Device memory allocation of size .* failed).*"),
    re.compile(r"insufficient memory.*"),
    re.compile(r"failed to allocate .*"),
    re.compile(r"unable to allocate .*"),
    re.compile(r"error loading model.*"),
    re.compile(r"failed to (?:load model|create context|create_context|initialize the context).*"),
    re.compile(r"exiting due to model loading error"),
    re.compile(r"GGML_ASSERT.*|CUDA error.*"),
)
_NOT_FATAL = re.compile(r"retrying without pipeline parallelism")
_READY = re.compile(r"\b(?:model loaded|server is listening|listening on http|listening on)\b")
_STARTING = re.compile(
    r"llama_server: initializing|loading model '|llama_server: loading|main: loading model"
)
_FIT = (
    ("projected_mib", re.compile(r"projected to use (\d+) MiB of device memory vs\. (\d+) MiB")),
    ("context", re.compile(r"context size reduced from (\d+) to (\d+)")),
    ("layers", re.compile(r"- (\S+)(?: \([^)]*\))?\s*: *(\d+) layers,? ")),
    ("result", re.compile(
        r"(successfully fit params|failed to fit params|no changes needed)[^\n]*")),
)  # fmt: skip
_OVERRIDDEN = re.compile(r"buffer type overridden to (\S+)")
_FIELD = re.compile(r"\b(n_vocab|n_embd)\s*=\s*(\d+)")


@dataclass
class Placement:
    """What a log says; MiB by device, target and draft together; None where it says nothing."""

    layers_total: int | None = None
    layers_on_device: int | None = None
    verdict: str = UNKNOWN
    model_buffers_mib: dict[str, float] = field(default_factory=dict)
    kv_buffers_mib: dict[str, float] = field(default_factory=dict)
    state_buffers_mib: dict[str, float] = field(default_factory=dict)
    compute_buffers_mib: dict[str, float] = field(default_factory=dict)
    state_depth: int | None = None  # recurrent states kept for rolling back, n_rs_seq
    fused_gdn_autoregressive: bool | None = None
    fused_gdn_chunked: bool | None = None
    flash_attention: bool | None = None
    fit: dict[str, Any] | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    evidence: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON-ready values."""
        return asdict(self)

    @property
    def layers(self) -> str | None:
        """Layers on a device as ``65/66``, or None where none is or the log does not say."""
        if self.layers_total is None or not self.layers_on_device:
            return None
        return f"{self.layers_on_device}/{self.layers_total}"


@dataclass
class _Load:
    """The lines of one model's loading, with the contexts that came after it."""

    offloaded: tuple[int, int] | None = None
    assigned: dict[int, str] = field(default_factory=dict)
    buffers: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    compute: dict[str, float] = field(default_factory=dict)  # of the context being read
    lines: list[str] = field(default_factory=list)

    def add(self, kind: str, device: str, mib: float, line: str) -> None:
        """Add a buffer; one of the scheduler's is reserved anew, and the last one counts."""
        if kind == "compute":
            self.compute[device] = mib
        else:
            held = self.buffers[kind]
            held[device] = round(held.get(device, 0.0) + mib, 2)
        if kind != "compute":
            self.lines.append(line)

    def end_context(self) -> None:
        """Count the compute buffers of the context that ends."""
        held = self.buffers["compute"]
        for device, mib in self.compute.items():
            held[device] = round(held.get(device, 0.0) + mib, 2)
        self.compute = {}

    @property
    def dry(self) -> bool:
        """Whether this was a trial of ``--fit``, which allocates nothing."""
        model = self.buffers.get("model", {})
        return bool(model) and not any(model.values())


def is_host(device: str) -> bool:
    """Tell whether a buffer of this name lies in host memory."""
    return bool(_HOST.match(device))


def read(text: str) -> Placement:
    """Return what a log says of the last model that it loads; raises nothing on any text."""
    found = Placement()
    raw = _last_server(text.splitlines())
    lines = [logs.plain(line)[0] for line in raw]
    loads = _loads(lines, found)
    real = [load for load in loads if not load.dry] or loads[-1:]
    if real:
        _merge(found, real[-1])
    found.requests = [
        {
            "predicted_n": r.predicted_n, "predicted_ms": r.predicted_ms,
            "draft_n": r.draft_n or None,
            "draft_n_accepted": r.draft_n_accepted if r.draft_n else None,
        }
        for r in logs.requests(raw)
    ]  # fmt: skip
    _judge(found, lines, real[-1] if real else _Load())
    return found


def _last_server(lines: list[str]) -> list[str]:
    """Return the lines from the start of the last server on, where a log holds several."""
    start, ready = 0, False
    for place, line in enumerate(lines):
        if _STARTING.search(line) and ready:
            start, ready = place, False
        ready = ready or bool(_READY.search(line))
    return lines[start:]


def _loads(lines: Iterable[str], found: Placement) -> list[_Load]:
    """Read all loads of a log; facts that belong to the whole go into `found`."""
    loads: list[_Load] = [_Load()]
    drafting = False
    for line in lines:
        if "loading draft model" in line:
            drafting = True  # its buffers are added to the target's
        elif _LOADING.search(line) and loads[-1].buffers and not drafting:
            loads[-1].end_context()
            loads.append(_Load())
            drafting = False
        load = loads[-1]
        if _CONTEXT.search(line):
            load.end_context()
        if match := _OFFLOADED.search(line):
            if load.offloaded is None or not drafting:
                load.offloaded = int(match[1]), int(match[2])
                load.lines.append(line.strip())
        elif match := _ASSIGNED.search(line):
            load.assigned[int(match[1])] = match[2]
        elif match := _BUFFER.search(line):
            kind = match["kind"].strip() or "model"
            if kind in _KINDS:
                load.add(_KINDS[kind], match["device"], float(match["mib"]), line.strip())
        _facts(line, found)
    loads[-1].end_context()
    return [load for load in loads if load.buffers or load.offloaded or load.assigned]


def _facts(line: str, found: Placement) -> None:
    if (match := _STATE_DEPTH.search(line)) and int(match[1] or match[2]) > 0:
        found.state_depth = int(match[1] or match[2])
    elif match and found.state_depth is None:
        found.state_depth = 0
    if match := _FLASH.search(line):
        found.flash_attention = match[1] == "enabled"
    elif (match := _FLASH_FIELD.search(line)) and match[1] != "auto":
        found.flash_attention = match[1] in ("enabled", "1")
    if match := _GDN.search(line):
        setattr(found, f"fused_gdn_{match[1]}", match[2] == "enabled")
    for name, pattern in _FIT if "fit" in line or "layers," in line or "layers (" in line else ():
        if match := pattern.search(line):
            found.fit = found.fit or {}
            if name == "projected_mib":
                found.fit |= {"projected_mib": int(match[1]), "free_mib": int(match[2])}
            elif name == "context":
                found.fit |= {"context_from": int(match[1]), "context_to": int(match[2])}
            elif name == "layers":
                found.fit.setdefault("layers", {})[match[1]] = int(match[2])
            else:
                found.fit["result"] = match[0].strip()


def _merge(found: Placement, load: _Load) -> None:
    for kind in ("model", "kv", "state", "compute"):
        setattr(found, f"{kind}_buffers_mib", dict(load.buffers.get(kind, {})))
    if load.offloaded:
        found.layers_on_device, found.layers_total = load.offloaded
    elif load.assigned:
        found.layers_total = len(load.assigned)
        found.layers_on_device = sum(not _HOST.match(d) for d in load.assigned.values())
    found.evidence = load.lines[:12]


def _judge(found: Placement, lines: list[str], load: _Load) -> None:
    """Set error, layers and verdict from all that was read."""
    found.error = _error(lines)
    if found.error:
        found.verdict = FAILED
        found.evidence = [found.error, *found.evidence]
        return
    model = found.model_buffers_mib
    if not model:
        found.layers_on_device = None if not load.assigned else found.layers_on_device
        return
    on_device = sum(mib for device, mib in model.items() if not _HOST.match(device))
    if on_device == 0:
        found.verdict, found.layers_on_device = NONE, 0
        found.evidence.append("(all buffers lie in host memory: a printed count is no placement)")
        return
    host = {d for b in (found.kv_buffers_mib, found.state_buffers_mib) for d in b if _HOST.match(d)}
    whole = found.layers_total is not None and found.layers_on_device == found.layers_total
    moved = any((m := _OVERRIDDEN.search(x)) and _HOST.match(m[1]) for x in lines)
    moved = moved or _more_than_embeddings(found, lines)
    if found.layers_total is None and not host:
        found.verdict = UNKNOWN
    else:
        found.verdict = ALL if whole and not host and not moved else PARTIAL


def _more_than_embeddings(found: Placement, lines: list[str]) -> bool:
    """Tell whether the host holds more weights than a table of embeddings in 16 bits."""
    sizes = {m[1]: int(m[2]) for line in lines for m in _FIELD.finditer(line)}
    if not {"n_vocab", "n_embd"} <= sizes.keys():
        return False
    table_mib = sizes["n_vocab"] * sizes["n_embd"] * 2 / 2**20
    host = sum(mib for d, mib in found.model_buffers_mib.items() if _HOST.match(d))
    return host > 1.1 * table_mib + 1


def _error(lines: list[str]) -> str | None:
    """Return why the last start failed, or None where it did not or the log does not say."""
    failed: str | None = None
    for line in lines:
        if _NOT_FATAL.search(line) or _READY.search(line):
            failed = None
            continue
        if failed is None:
            for pattern in _FAILURES:
                if match := pattern.search(line):
                    failed = match[0].strip()
                    break
    return failed
