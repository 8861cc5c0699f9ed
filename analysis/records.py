"""The shapes of what is stored: one record a line, frozen, with units in their names.

Format history
--------------
1 : first published form.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Self

FORMAT = 1


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class _Record:
    """Conversion between a frozen dataclass and the dict of one JSON line."""

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))  # no field is a record: a deep copy of thousands takes seconds

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Make the record; fields of a later format are ignored, missing ones take defaults."""
        known = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        return cls(**{k: _frozen(v) for k, v in values.items() if k in known})


@dataclass(frozen=True)
class Machine(_Record):
    """The hardware and system that a run was measured on; no host name, no path."""

    name: str
    cpu: str
    cores: int
    memory_gib: float
    system: str
    gpus: tuple[dict[str, Any], ...] = ()  # name, memory_mib, driver, power_cap_w, clock_mhz


@dataclass(frozen=True)
class Run(_Record):
    """Facts that hold for a whole run; runs may be joined only where `key` is equal."""

    run: str
    key: str
    notebook: str
    spec: dict[str, Any]
    machine: dict[str, Any]
    model: dict[str, Any]  # name, sha256, architecture, quantization, layers, mtp_layers
    engine: dict[str, Any]  # version text, build, commit, flags chosen
    packages: dict[str, str]
    prompt_facts: dict[str, Any]  # per workload/prompt: tokens, sha256, where a text was cut
    started: str
    format: int = FORMAT
    drafters: dict[str, Any] = field(default_factory=dict)  # by name: facts of the file that drafts


@dataclass(frozen=True)
class Launch(_Record):
    """One server process, from start to stop: the unit of replication."""

    launch: str
    round: int
    order: int  # place of the launch within its run
    depth: int
    arm: str
    command: str  # exact, with paths removed
    load_ms: float
    counters: dict[str, Any]  # of the whole launch, warm-up included; values may be None
    placement: dict[str, Any]  # what the log says of layers and buffers
    peak_rss_mib: float | None
    others_cpu: float  # share of the machine's processor time that other work took
    exit_code: int | None
    stopped_by: str  # "terminate", "kill", or "died"
    started: str = ""


@dataclass(frozen=True)
class Sample(_Record):
    """One request. `predicted_n` counts the first token, which the prompt pass gives."""

    run: str
    launch: str
    round: int
    order: int  # place within the launch; the warm-up is 0
    arm: str
    drafter: str
    depth: int
    workload: str
    prompt_id: str
    seed: int
    temperature: float
    n_predict: int  # tokens asked for
    warm_up: bool
    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    draft_n: int | None  # None: nothing was drafted
    draft_n_accepted: int | None
    drafts: int | None  # verified drafts, by the server's counter
    accepted_per_position: tuple[int, ...] | None
    steps: int  # (predicted_n - 1) - draft_n_accepted
    tokens: tuple[int, ...]
    stop: str  # limit, eos, word, error
    client_ms: float  # the request by the client's clock, prompt included
    layers_on_device: str | None  # "66/66", or None where no device holds a layer
    peak_device_mib: float | None  # after the request; llama.cpp allocates before the first one
    clock_before_mhz: float | None
    clock_after_mhz: float | None
    load_before: float  # 1-minute load average per core
    load_after: float
    others_cpu: float
    started: str
    error: str | None = None


@dataclass(frozen=True)
class Step(_Record):
    """One verification, from the tracer: what was drafted, what was kept, what it cost.

    The four times add up to the step. Work that a device does on its own is counted where it is
    waited for.
    """

    drafted: tuple[int, ...]
    draft_probabilities: tuple[float, ...]  # of the drafted tokens, among the ten likeliest
    accepted: int
    chosen: int  # the target's own token after the accepted ones
    draft_ms: float  # the head's passes over its own guesses
    verify_ms: float  # the trunk's pass over the last token and the guesses
    catch_up_ms: float  # the head's pass over the rows that the trunk has verified
    rest_ms: float  # sampling, accepting, rolling back


@dataclass(frozen=True)
class Divergence(_Record):
    """The first place where a greedy text parts from that of depth 0."""

    workload: str
    prompt_id: str
    depth: int
    position: int  # index of the first unequal token
    token_depth_0: int
    token: int
    margin: float | None  # difference of the two tokens' log probabilities at depth 0
    arm: str = "natural"
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class PlannerAnswer(_Record):
    """What an engine's planner answered to one question; nothing was loaded."""

    question: dict[str, Any]  # shape, quantization, context, slots, depth, budget, ...
    answer: dict[str, Any]  # the fields of :class:`analysis.engines.fit.Laid`
    started: str
