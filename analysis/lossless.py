"""Whether drafting changes the text: token ids of each depth against those of depth 0."""

from __future__ import annotations

from collections.abc import Sequence

from analysis import store
from analysis.records import Divergence, Sample

Prefixes = dict[tuple[str, str], int]  # by workload and prompt id, in tokens


def first_difference(a: tuple[int, ...], b: tuple[int, ...]) -> int | None:
    """Return the first index where two token lists part, or None.

    Where one list is a prefix of the other, the index is the shorter one's length: texts that
    were decoded under one limit and end at different places do differ.
    """
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return None if len(a) == len(b) else min(len(a), len(b))


def distinct(tokens: Sequence[int], n: int = 4) -> float:
    """Return the share of different runs of `n` tokens among all; 1 means no repetition."""
    runs = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(runs)) / max(len(runs), 1)


def pairs(recorded: store.Recorded, temperature: float = 0.0) -> list[tuple[Sample, Sample]]:
    """Return (depth 0, deeper) samples of the same prompt, each of its first round.

    Of the run's first arm, and of each further drafter.
    """
    spec = recorded.run.spec
    arms = {spec["arm"], *spec.get("more_drafters", ())}
    usable = [
        s
        for s in recorded.samples
        if s.temperature == temperature and s.arm in arms and not s.warm_up and s.error is None
    ]
    base: dict[tuple[str, str], Sample] = {}
    deeper: dict[tuple[str, str, int, str], Sample] = {}
    for s in sorted(usable, key=lambda s: s.round):
        if s.depth == 0:
            base.setdefault((s.workload, s.prompt_id), s)
        else:
            deeper.setdefault((s.workload, s.prompt_id, s.depth, s.arm), s)
    return [(base[key[:2]], s) for key, s in deeper.items() if key[:2] in base]


def divergences(recorded: store.Recorded, temperature: float = 0.0) -> list[Divergence]:
    """Return where greedy texts part, without margins, one entry a prompt and depth."""
    found = []
    for zero, deep in pairs(recorded, temperature):
        at = first_difference(zero.tokens, deep.tokens)
        if at is not None:
            a, b = (t.tokens[at] if at < len(t.tokens) else -1 for t in (zero, deep))
            found.append(
                Divergence(deep.workload, deep.prompt_id, deep.depth, at, a, b, None, arm=deep.arm)
            )
    return found


def common_prefixes(recorded: store.Recorded, temperature: float) -> Prefixes:
    """Return the prompts whose texts part between depths, with the length that all share.

    A draft is verified in a pass of several rows, whose rounding differs from that of a single
    row; a token sampled near a boundary can then differ, and the depths go on with different
    texts. Over the shared length they decode the same tokens.
    """
    shared: Prefixes = {}
    for zero, deep in pairs(recorded, temperature):
        at = first_difference(zero.tokens, deep.tokens)
        if at is not None:
            key = (deep.workload, deep.prompt_id)
            shared[key] = min(at, shared.get(key, at))
    return shared
