"""Whether drafting changes the text: greedy token ids of each depth against those of depth 0."""

from __future__ import annotations

from pathlib import Path

from analysis import store
from analysis.engines.binary import ServerBinary
from analysis.engines.flags import arguments
from analysis.engines.llama_server import LlamaServer
from analysis.prompts import Encoded
from analysis.records import Divergence, Sample
from analysis.spec import SweepSpec

CANDIDATES = 50  # how many of the likeliest tokens are searched for the two that differ


def first_difference(a: tuple[int, ...], b: tuple[int, ...]) -> int | None:
    """Return the first index where two token lists part, or None.

    Where one list is a prefix of the other, the index is the shorter one's length: texts that
    were decoded under one limit and end at different places do differ.
    """
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return None if len(a) == len(b) else min(len(a), len(b))


def pairs(recorded: store.Recorded, temperature: float = 0.0) -> list[tuple[Sample, Sample]]:
    """Return (depth 0, deeper) samples of the same prompt, of the first round they share."""
    usable = [
        s for s in recorded.samples
        if s.temperature == temperature and not s.warm_up and s.error is None
    ]  # fmt: skip
    base: dict[tuple[str, str], Sample] = {}
    deeper: dict[tuple[str, str, int], Sample] = {}
    for s in sorted(usable, key=lambda s: s.round):
        if s.depth == 0:
            base.setdefault((s.workload, s.prompt_id), s)
        else:
            deeper.setdefault((s.workload, s.prompt_id, s.depth), s)
    return [(base[key[:2]], s) for key, s in deeper.items() if key[:2] in base]


def divergences(recorded: store.Recorded, temperature: float = 0.0) -> list[Divergence]:
    """Return where greedy texts part, without margins, one entry a prompt and depth."""
    found = []
    for zero, deep in pairs(recorded, temperature):
        at = first_difference(zero.tokens, deep.tokens)
        if at is not None:
            a, b = (t.tokens[at] if at < len(t.tokens) else -1 for t in (zero, deep))
            found.append(Divergence(deep.workload, deep.prompt_id, deep.depth, at, a, b, None))
    return found


def audit(
    spec: SweepSpec,
    binary: ServerBinary,
    model: Path,
    encoded: list[Encoded],
    writer: store.Writer,
    recorded: store.Recorded,
    logs: Path,
) -> None:
    """Record each new divergence with its margin, asked of a depth-0 server."""
    known = {(d.workload, d.prompt_id, d.depth) for d in recorded.divergences}
    new = [
        d for d in divergences(recorded) if (d.workload, d.prompt_id, d.depth) not in known
    ]  # fmt: skip
    if not new:
        return
    prompts = {(e.prompt.workload, e.prompt.prompt_id): e.tokens for e in encoded}
    base = {(z.workload, z.prompt_id): z.tokens for z, _ in pairs(recorded)}
    log = logs / "margins.log"
    with LlamaServer(binary, lambda port: arguments(binary, spec, 0, model, port), log) as server:
        for d in new:
            key = (d.workload, d.prompt_id)
            margin = _margin(server, (*prompts[key], *base[key][: d.position]), d)
            writer.add(
                Divergence(
                    d.workload, d.prompt_id, d.depth, d.position, d.token_depth_0, d.token, margin
                )
            )


def _margin(server: LlamaServer, context: tuple[int, ...], d: Divergence) -> float | None:
    """Return the difference of the two tokens' log probabilities after `context`, or None."""
    answer = server.complete(context, n_predict=1, temperature=0.0, n_probs=CANDIDATES)
    listed = answer.get("completion_probabilities") or [{}]
    likely = {int(t["id"]): float(t["logprob"]) for t in listed[0].get("top_logprobs", ())}
    if d.token_depth_0 not in likely or d.token not in likely:
        return None
    return round(likely[d.token_depth_0] - likely[d.token], 6)
