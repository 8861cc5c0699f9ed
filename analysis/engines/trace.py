"""What a tracer is started with, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.records import Step


@dataclass(frozen=True)
class Settings:
    """What a tracer is started with."""

    model: str
    context: int  # tokens
    room: int  # recurrent states kept for rolling back: the deepest draft it can take
    draft: bool  # whether the MTP head is loaded
    threads: int
    batch: int = 2048  # tokens of the prompt a pass, as llama-server's default
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"


@dataclass(frozen=True)
class Trace:
    """One decoded text, its first token included, with every step after it."""

    tokens: list[int]
    stop: str  # "limit" or "eos"
    steps: list[Step]
    prompt_ms: float
    predicted_ms: float
