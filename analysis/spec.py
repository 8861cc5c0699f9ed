"""What to measure: one frozen specification of a sweep, checked when it is made."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from analysis.coercion import coerce
from analysis.errors import SpecError
from analysis.paths import last_part, redacted

EMBEDDED = "embedded"  # the model of this repository
EMBEDDED_DRAFTERS = ("embedded-deep-head", "embedded-small")
WORKLOADS = ("short", "prose", "code", "long")
DRAFTERS = (
    "mtp", "none", "ngram-simple", "ngram-mod", "ngram-map-k", "ngram-map-k4v", "draft-simple",
)  # fmt: skip
_OTHERS = "draft-"  # further networks go to the server as they are called
PREFIX_ARM = "prefix"  # of a sample: a request over the tokens that all depths share
BESIDE_ARM = "beside"  # of a sample: the same request of another engine, in turns
ARMS = ("natural", "synthetic", "perfect", "room", "evicted", "rows")
_SYNTHETIC = ("synthetic", "perfect")  # the engine accepts by chance, whatever the guesses are
_TRACED = ("room", "rows")  # only the tracer can hold these apart from depth
DEVICES = ("", "emulated")
ENGINES = ("llama-server", "tracer")
# Fixed beside the temperature, so that builds with other defaults sample alike.
SAMPLING = {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.0}
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
MAX_DEPTH = 32
_ARM_NEEDS = {"synthetic": "synthetic_rates", "room": "room", "evicted": "gpu_layers"}
# Fields that came later count only where they are set, so that earlier runs keep their names.
_LATER: dict[str, Any] = {
    "more_arms": (), "more_drafters": (), "room": None, "gpu_layers": None, "device": "",
    "adaptive": False, "in_turns": False,
}  # fmt: skip


def label(drafter: str, draft_model: str = "") -> str:
    """Return a drafter's name, as samples have it: its kind, and the file it drafts with."""
    return f"{drafter}:{last_part(draft_model)}" if draft_model else drafter


@dataclass(frozen=True)
class SweepSpec:
    """One depth sweep: the same prompts, seeds and settings at every depth.

    Lists may be given as text (``"[0, 2]"`` or ``"0,2"``), as papermill's ``-p`` passes them.
    Depth 0 (no drafting) is always measured and is added where it is missing.
    """

    model: str = EMBEDDED  # path of a GGUF, or "embedded"
    drafter: str = "mtp"
    draft_model: str = ""  # path of a GGUF that drafts; for "mtp" another head than the model's
    more_drafters: tuple[str, ...] = ()  # KIND or KIND:GGUF, in turns with the first, as arms
    depths: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    p_min: float = 0.0  # smallest draft probability at which drafting goes on
    arm: str = "natural"
    more_arms: tuple[str, ...] = ()  # further arms of the same run, in turns with the first
    synthetic_rates: tuple[float, ...] = ()  # acceptance by position, for arm "synthetic"
    room: int | None = None  # tokens that can be rolled back at any depth, for arm "room"
    gpu_layers: int | None = None  # layers on the device, the output counted, for arm "evicted"
    device: str = ""  # "": what the engine finds; "emulated": a device on this processor
    slots: int = 1
    busy_slots: int = 1  # how many requests run at once
    context: int = 20480  # tokens of all slots together, as llama-server's --ctx-size
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    kv_unified: bool | None = None  # None: the engine's default
    fit_target_mib: int | None = None  # device memory to leave free; None: the engine's default
    threads: int | None = None  # None: the engine's default
    engine: str = "llama-server"
    server: str = ""  # a llama-server binary; "" is SPECDEPTH_SERVER, then the built one
    server_args: tuple[str, ...] = ()  # further flags, passed through untouched
    workloads: tuple[str, ...] = WORKLOADS
    prompts: int = 8  # of each workload but long
    long_prompts: int = 4
    long_prompt_tokens: int = 16384
    prompt_format: str = "auto"  # raw, chat, or auto: chat where the model has a chat template
    n_predict: int = 192
    rounds: int = 5  # launches per depth
    adaptive: bool = False  # launch only what the verdict still needs; `rounds` is then the most
    in_turns: bool | None = None  # a round's launches side by side; None: as `takes_turns` has it
    temperature: float = 0.5
    seed: int = 4  # the embedded model repeats itself least with it, see its card
    lossless_prompts: int = 1  # per workload, decoded once per depth at temperature 0; 0 is off

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            wanted = typing.get_type_hints(type(self))[field.name]
            object.__setattr__(
                self, field.name, coerce(field.name, getattr(self, field.name), wanted)
            )
        if not self.depths:
            raise SpecError("`depths` must name at least one depth", "an empty list", "[0, 1, 2]")
        object.__setattr__(self, "depths", tuple(sorted({0, *self.depths})))
        self._check()

    def _check(self) -> None:
        def refuse(name: str, must: str, next_step: str = "") -> None:
            raise SpecError(f"`{name}` must {must}", repr(getattr(self, name)), next_step)

        def choose(name: str, allowed: tuple[str, ...]) -> None:
            if getattr(self, name) not in allowed:
                refuse(name, f"be one of {', '.join(allowed)}")

        if self.drafter not in DRAFTERS and not self.drafter.startswith(_OTHERS):
            refuse("drafter", f"be one of {', '.join(DRAFTERS)}, or another draft-*")
        if self.arm != self.label:
            choose("arm", ARMS)
        choose("device", DEVICES)
        if set(self.more_arms) - set(ARMS) or len(set(self.arms)) != len(self.arms):
            refuse("more_arms", f"be distinct names out of {', '.join(ARMS)}, without `arm`")
        choose("engine", ENGINES)
        choose("prompt_format", ("auto", "raw", "chat"))
        choose("cache_type_k", CACHE_TYPES)
        choose("cache_type_v", CACHE_TYPES)
        if not self.model:
            refuse("model", "name a GGUF file", 'use model="embedded" for the built-in one')
        if any(d < 0 or d > MAX_DEPTH for d in self.depths):
            refuse("depths", f"lie between 0 and {MAX_DEPTH}")
        if self.drafter == "none" and self.depths != (0,):
            refuse("depths", "be [0] when drafter is none", 'choose a drafter, e.g. "mtp"')
        if self.drafter == "draft-simple" and not self.draft_model:
            refuse("draft_model", 'be given for drafter "draft-simple"', "the path of a GGUF")
        if self.draft_model and not self.drafts_by_model:
            refuse("draft_model", f"be left out for drafter {self.drafter}")
        if len({self.label, *self.rivals}) <= len(self.more_drafters) or "none" in self.rivals:
            refuse("more_drafters", "be distinct drafters, KIND or KIND:GGUF, without `drafter`")
        if self.more_drafters and (self.arms[0] != "natural" or self.more_arms):
            refuse("more_drafters", "be left out where arms are held", "measure these alone")
        unknown = [w for w in self.workloads if w not in WORKLOADS]
        if unknown or not self.workloads or len(set(self.workloads)) != len(self.workloads):
            refuse("workloads", f"be distinct names out of {', '.join(WORKLOADS)}")
        lowest = {
            "slots": 1, "busy_slots": 1, "context": 64, "prompts": 1, "long_prompts": 1,
            "long_prompt_tokens": 16, "n_predict": 2, "rounds": 1, "lossless_prompts": 0,
            "threads": 1, "fit_target_mib": 0, "seed": 0, "room": max(self.depths), "gpu_layers": 0,
        }  # fmt: skip
        for name, low in lowest.items():
            value = getattr(self, name)
            if value is not None and value < low:
                refuse(name, f"be at least {low}")
        if self.seed >= 2**32 - 1:
            refuse("seed", "be below 4294967295, which asks the server for a random one")
        if self.busy_slots > self.slots:
            refuse("busy_slots", f"be at most slots ({self.slots})", "raise slots as well")
        if not 0 <= self.temperature <= 5:
            refuse("temperature", "lie between 0 and 5")
        if not 0 <= self.p_min <= 1:
            refuse("p_min", "lie between 0 and 1")
        rates = self.synthetic_rates
        if any(not 0 <= r <= 1 for r in rates) or list(rates) != sorted(rates, reverse=True):
            refuse("synthetic_rates", "fall from 1 towards 0 by position")
        for arm, name in _ARM_NEEDS.items():
            given = getattr(self, name) not in (None, ())
            if (arm in self.arms) != given and not (given and name in self._kept):
                refuse(name, f'be given for arm "{arm}", and only for it')
        traced = set(self.arms) & set(_TRACED)
        if traced and self.engine != "tracer":
            refuse("arm", f'be another than {", ".join(sorted(traced))} but for engine="tracer"')
        if rates and len(rates) < max(self.depths):
            refuse("synthetic_rates", f"have a value for each of {max(self.depths)} positions")
        if self.engine == "tracer":
            self._check_tracer(refuse)
        for rival in self.rivals:
            self.at(rival)
        longest = self.long_prompt_tokens + self.n_predict
        if "long" in self.workloads and self.slot_context < longest:
            refuse(
                "context",
                f"hold long_prompt_tokens + n_predict = {longest} tokens in each of {self.slots} "
                "slots",
                "raise context, or leave out the workload long",
            )

    def _check_tracer(self, refuse: Callable[..., None]) -> None:
        """Refuse what only llama-server can do."""
        if self.drafter not in ("mtp", "none"):
            refuse("drafter", 'be mtp or none for engine="tracer"', "use llama-server for others")
        only_here = (
            ("slots", 1), ("device", ""), ("server", ""), ("server_args", ()), ("draft_model", ""),
            ("more_drafters", ()),
        )  # fmt: skip
        for name, only in only_here:
            if getattr(self, name) != only:
                refuse(name, f'be {only!r} for engine="tracer"', "use llama-server for others")
        if set(self.arms) - {"natural", *_TRACED}:
            allowed = f'be natural, {" or ".join(_TRACED)} for engine="tracer"'
            refuse("arm", allowed, "use llama-server for others")
        for name in ("kv_unified", "fit_target_mib"):
            if getattr(self, name) is not None:
                refuse(name, 'be left out for engine="tracer"', "use llama-server for it")

    @property
    def arms(self) -> tuple[str, ...]:
        """All arms of the run, the first one first."""
        return (self.arm, *self.more_arms, *self.rivals)

    @property
    def label(self) -> str:
        """The name of the (first) drafter."""
        return label(self.drafter, self.draft_model)

    @property
    def rivals(self) -> dict[str, tuple[str, str]]:
        """The further drafters by name: kind and file."""
        split = [entry.partition(":")[::2] for entry in self.more_drafters]
        return {label(kind, path): (kind, path) for kind, path in split}

    @property
    def takes_turns(self) -> bool:
        """Whether the launches of a round run side by side and make their requests in turns.

        A machine that is fast in one second and slow in the next is then so for all of them. All
        engines must fit into memory at once, which is known of the embedded model alone; on an
        emulated device each engine already shares the processor with another program.
        """
        if self.in_turns is not None:
            return self.in_turns
        return self.model == EMBEDDED and not self.device

    @property
    def drafts_by_model(self) -> bool:
        """Whether the drafter is a network: the model's own head, or a file."""
        return self.drafter == "mtp" or self.drafter.startswith("draft-")

    @property
    def cells(self) -> list[tuple[int, str]]:
        """What is measured: each depth in each arm, the arms of a depth together.

        Without drafts nothing is accepted, so that depth 0 of a further arm with synthetic
        acceptance, or of another drafter, would be the first arm again, and is left out.
        """
        drafted_only = {*_SYNTHETIC, *self.rivals}
        return [
            (depth, arm)
            for depth in self.depths
            for arm in self.arms
            if depth > 0 or arm == self.arm or arm not in drafted_only
        ]

    def rates(self, depth: int) -> tuple[float, ...]:
        """Return the chances that a drafted position is accepted with all before it; () if real."""
        if self.arm == "perfect":
            return (1.0,) * depth
        return self.synthetic_rates[:depth]

    @property
    def _kept(self) -> tuple[str, ...]:
        """Fields of the first arm that a further arm keeps: a layer less changes no acceptance."""
        return ("synthetic_rates",) if self.arm == "evicted" else ()

    def at(self, arm: str) -> SweepSpec:
        """Return the spec of one arm alone; only the first arm compares texts between depths.

        Acceptance that is given to the first arm holds with a layer off the device too.
        """
        if self.arms == (arm,):
            return self
        if arm in self.rivals:
            kind, path = self.rivals[arm]
            return dataclasses.replace(
                self, drafter=kind, draft_model=path, arm=arm, more_drafters=()
            )
        foreign: dict[str, Any] = {
            name: () if name == "synthetic_rates" else None
            for other, name in _ARM_NEEDS.items()
            if other != arm
        }
        if arm != self.arm:
            foreign["lossless_prompts"] = 0
        if arm == "evicted" and self.arm == "synthetic":
            foreign["synthetic_rates"] = self.synthetic_rates
        return dataclasses.replace(self, arm=arm, more_arms=(), more_drafters=(), **foreign)

    @property
    def slot_context(self) -> int:
        """Tokens that one slot can hold: the server splits its cache unless it is unified."""
        return self.context if self.kv_unified else self.context // self.slots

    def prompt_count(self, workload: str) -> int:
        """How many prompts of a workload are asked for."""
        return self.long_prompts if workload == "long" else self.prompts

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values, without the paths of this machine."""
        values = dataclasses.asdict(self)
        values["model"] = last_part(self.model)
        values["draft_model"] = last_part(self.draft_model)
        values["more_drafters"] = tuple(self.rivals)
        values["server_args"] = [redacted(a) for a in self.server_args]
        values["server"] = "own" if self.server else ""
        values["in_turns"] = self.takes_turns
        return {
            k: list(v) if isinstance(v, tuple) else v
            for k, v in values.items()
            if k not in _LATER or v != _LATER[k]
        }

    def key(self, **facts: Any) -> str:
        """Return 12 hexadecimal digits that are equal only for runs that may be joined.

        `facts` are what the spec only names: checksums of the model files and of the engine, the
        engine's environment. `rounds` is left out: more rounds of the same thing extend a run.
        """
        values = self.to_json() | {"server_args": list(self.server_args), "sampling": SAMPLING}
        values.pop("rounds")
        text = json.dumps(values | {"facts": facts}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]
