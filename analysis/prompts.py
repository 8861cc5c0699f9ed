"""The four workloads: plain files in the package, cut and encoded by each model's tokenizer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Protocol

from analysis.errors import SpecError
from analysis.spec import SweepSpec

LONG_TEXT = "text.txt"


class Tokenizer(Protocol):
    """What a prompt needs of an engine."""

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Return token ids."""

    def detokenize(self, tokens: list[int]) -> str:
        """Return the text of token ids."""

    def chat_prompt(self, message: str) -> str:
        """Return a message in the model's chat template."""


@dataclass(frozen=True)
class Prompt:
    """A prompt as written; a long one is a request after a window of the shared text."""

    workload: str
    prompt_id: str
    text: str
    window: str = ""  # the characters that the long prompt is cut from
    window_start: int = 0  # where the window starts in the shared text, in characters


@dataclass(frozen=True)
class Encoded:
    """A prompt as the engine gets it."""

    prompt: Prompt
    tokens: tuple[int, ...]
    facts: dict[str, Any]  # tokens, sha256 of the ids, format, and where a text was cut

    @property
    def key(self) -> str:
        """Workload and id as one name."""
        return f"{self.prompt.workload}/{self.prompt.prompt_id}"


def available(workload: str) -> int:
    """Return how many prompts of a workload the package carries."""
    return len(_files(workload))


def load(workload: str, count: int) -> list[Prompt]:
    """Return the first `count` prompts of a workload, or raise if there are fewer."""
    files = _files(workload)
    if count > len(files):
        raise SpecError(
            f"the workload {workload} has no {count} prompts", str(len(files)), "ask for fewer"
        )
    if workload != "long":
        return [Prompt(workload, name, text) for name, text in files[:count]]
    whole = _folder(workload).joinpath(LONG_TEXT).read_text(encoding="utf-8")
    starts = [_paragraph_start(whole, i * len(whole) // len(files)) for i in range(len(files))]
    ends = [*starts[1:], len(whole)]
    return [
        Prompt(workload, name, text, whole[start:end], start)
        for (name, text), start, end in zip(files, starts, ends, strict=True)
    ][:count]


def _folder(workload: str) -> Any:
    return resources.files("analysis").joinpath("workloads", workload)


def _files(workload: str) -> list[tuple[str, str]]:
    names = sorted(
        entry.name
        for entry in _folder(workload).iterdir()
        if entry.name.endswith(".txt") and entry.name != LONG_TEXT
    )
    return [
        (name.removesuffix(".txt"), _folder(workload).joinpath(name).read_text(encoding="utf-8"))
        for name in names
    ]


def _paragraph_start(text: str, at: int) -> int:
    if at == 0:
        return 0
    found = text.find("\n\n", at)
    return at if found < 0 else found + 2


def encode(engine: Tokenizer, prompt: Prompt, spec: SweepSpec, *, chat: bool) -> Encoded:
    """Encode a prompt; a long one is cut so that it has `spec.long_prompt_tokens` tokens.

    The token count of a long chat prompt is larger by its template, and recorded.
    """
    facts: dict[str, Any] = {"format": "chat" if chat else "raw"}
    request = prompt.text.rstrip("\n")
    if prompt.workload == "long":
        room = spec.long_prompt_tokens - len(engine.tokenize("\n\n" + request))
        window = engine.tokenize(prompt.window)
        if room < 1 or len(window) < room:
            raise SpecError(
                f"prompt long/{prompt.prompt_id} can not have {spec.long_prompt_tokens} tokens",
                f"its text has {len(window)} in this model's tokenizer, its request leaves {room}",
                "lower long_prompt_tokens",
            )
        cut = engine.detokenize(window[:room])
        facts |= {"cut_start_char": prompt.window_start, "cut_chars": len(cut)}
        request = f"{cut}\n\n{request}"
        if not chat:
            tokens = window[:room] + engine.tokenize("\n\n" + prompt.text.rstrip("\n"))
            return _encoded(prompt, tokens, facts)
    text = engine.chat_prompt(request) if chat else request
    return _encoded(prompt, engine.tokenize(text, special=True), facts)


def _encoded(prompt: Prompt, tokens: list[int], facts: dict[str, Any]) -> Encoded:
    digest = hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:16]
    return Encoded(prompt, tuple(tokens), {"tokens": len(tokens), "sha256": digest} | facts)
