"""The tracer: a speculative decoder in readable Python over llama.cpp's bindings.

One request: the prompt pass, then steps of *draft* (the MTP head guesses up to `depth` tokens),
*verify* (one pass of the trunk over the last token and all guesses), *catch up* (the head reads
the verified rows), *accept* (the longest run of guesses that the target itself would have
sampled), and *roll back* (attention cells and the recurrent state return to the last kept token).
The order of the calls, the limits near the end of a text and the rule of acceptance are those of
the pinned llama-server (llama.cpp 0c1e570: ``common/speculative.cpp``, draft-mtp;
``tools/server/server-context.cpp``; ``common_sampler_sample_and_accept_n`` in
``common/sampling.cpp``). A guess is accepted when it equals the token that the target samples at
its place, at any temperature, so that a seed fixes the text whatever the depth, up to rounding.

All use of the experimental bindings stands in this file. It runs in a child process
of :mod:`analysis.engines.tracer_process`.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import time
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import llama_cpp_ext

from analysis.engines import native
from analysis.engines.native import (
    FLOAT_BYTES,
    SEQUENCE,
    NativeError,
    Rows,
    address,
    chain,
    decode,
    load_model,
    made,
    quiet_log,
    target_chain,
)
from analysis.engines.trace import Settings, Trace
from analysis.records import Step

TOP_K_OF_DRAFT = 10  # of the draft-mtp sampler of the pinned llama-server


class Head:
    """The MTP head with its context: guesses from the trunk's last hidden vector."""

    def __init__(self, model: Any, params: Any, target: Any, rows: int) -> None:
        params.ctx_type = llama_cpp.LLAMA_CONTEXT_TYPE_MTP
        params.ctx_other = target
        params.n_rs_seq = 0
        params.n_outputs_max = params.n_outputs_max_per_seq = 1
        self.ctx = made(llama_cpp.llama_init_from_model(model, params), "the MTP head's context")
        self.memory = llama_cpp.llama_get_memory(self.ctx)
        width = int(llama_cpp.llama_model_n_embd_out(model))
        self.size = width * FLOAT_BYTES
        self.rows = Rows(rows, width)
        self.pending = ctypes.create_string_buffer(self.size)  # the hidden vector to go on from
        self.hidden = ctypes.create_string_buffer(0)  # those of the rows verified last
        self.target = target
        llama_cpp_ext.llama_set_embeddings_nextn(target, True, False)
        llama_cpp_ext.llama_set_embeddings_nextn(self.ctx, True, True)
        self.sampler = chain(llama_cpp.llama_sampler_init_top_k(TOP_K_OF_DRAFT))
        self.on_device = llama_cpp.llama_set_sampler(self.ctx, SEQUENCE, self.sampler)
        self.vocab = llama_cpp.llama_model_get_vocab(model)

    def reset(self) -> None:
        """Forget the sequence.

        The hidden vector stays: llama-server pairs the first token of a request with the last
        vector of the one before, so that its first guesses can depend on that.
        """
        llama_cpp.llama_memory_clear(self.memory, True)

    def draft(
        self, last: int, position: int, depth: int, p_min: float
    ) -> tuple[list[int], list[float]]:
        """Return up to `depth` guesses after `last` with their draft probabilities."""
        guesses: list[int] = []
        probabilities: list[float] = []
        token, source = last, ctypes.addressof(self.pending)
        while True:
            self.rows.fill((token,), position + len(guesses), output=True)
            self.rows.vectors(0, source)
            decode(self.ctx, self.rows, "the draft pass")
            token, probability = self._best()
            if probability < p_min:
                break
            guesses.append(token)
            probabilities.append(round(probability, 6))
            if len(guesses) == depth:
                break
            source = address(llama_cpp_ext.llama_get_embeddings_nextn_ith(self.ctx, 0))
        self.keep(position)
        return guesses, probabilities

    def _best(self) -> tuple[int, float]:
        """Return the likeliest token and its probability among the ten likeliest."""
        if self.on_device:
            count = llama_cpp.llama_get_sampled_logits_count_ith(self.ctx, 0)
            values = llama_cpp.llama_get_sampled_logits_ith(self.ctx, 0)[:count]
            ids = llama_cpp.llama_get_sampled_candidates_ith(self.ctx, 0)[:count]
        else:  # the back end can not sample
            logits = native.logits(self.ctx, self.vocab, 0)
            ids = np.argpartition(logits, -TOP_K_OF_DRAFT)[-TOP_K_OF_DRAFT:].tolist()
            values = logits[ids].tolist()
        top = max(values)
        return ids[values.index(top)], 1 / sum(math.exp(v - top) for v in values)

    def catch_up(self, tokens: Sequence[int], position: int) -> None:
        """Read rows that the trunk has just decoded, each with the hidden vector before it."""
        source = address(llama_cpp_ext.llama_get_embeddings_nextn(self.target))
        self.rows.fill(tokens, position, output=False)
        self.rows.vectors(0, ctypes.addressof(self.pending))
        if len(tokens) > 1:
            self.rows.vectors(1, source, len(tokens) - 1)
        # Copied first: the next pass of the trunk writes over them.
        self.hidden = ctypes.create_string_buffer(len(tokens) * self.size)
        ctypes.memmove(self.hidden, source, len(tokens) * self.size)
        decode(self.ctx, self.rows, "the head's catching up")
        self.accept(len(tokens) - 1)

    def accept(self, row: int) -> None:
        """Go on from a row of those verified last."""
        ctypes.memmove(self.pending, ctypes.addressof(self.hidden) + row * self.size, self.size)

    def keep(self, length: int) -> None:
        """Forget all positions from `length` on."""
        if not llama_cpp.llama_memory_seq_rm(self.memory, SEQUENCE, length, -1):
            raise NativeError("the head's context can not be rolled back", f"to {length}", "")

    def free(self) -> None:
        """Give everything back."""
        llama_cpp.llama_set_sampler(self.ctx, SEQUENCE, None)
        llama_cpp.llama_sampler_free(self.sampler)
        self.rows.free()
        llama_cpp.llama_free(self.ctx)


class Tracer:
    """A model with its contexts; answers one request at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        quiet_log()
        self.model = load_model(settings.model, mtp=settings.draft)
        if settings.draft and llama_cpp.llama_model_n_layer_nextn(self.model) != 1:
            raise NativeError(
                "the tracer drafts with heads of one MTP layer",
                f"{llama_cpp.llama_model_n_layer_nextn(self.model)} layers",
                "decode it at depth 0, or measure it with llama-server",
            )
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        params = self._context_params()
        self.ctx = made(llama_cpp.llama_init_from_model(self.model, params), "the context")
        self.memory = llama_cpp.llama_get_memory(self.ctx)
        self.rows = Rows(settings.batch)
        self.head = (
            Head(self.model, self._context_params(), self.ctx, settings.batch)
            if settings.draft
            else None
        )

    def _context_params(self) -> Any:
        s = self.settings
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_seq_max = s.context, s.batch, 1
        params.n_threads = params.n_threads_batch = s.threads
        params.n_rs_seq = s.room
        params.n_outputs_max = params.n_outputs_max_per_seq = 1 + s.room
        for name in ("k", "v"):
            kind = getattr(s, f"cache_type_{name}").upper()
            setattr(params, f"type_{name}", getattr(llama_cpp, f"GGML_TYPE_{kind}"))
        return params

    def complete(
        self,
        prompt: Sequence[int],
        n_predict: int,
        depth: int,
        p_min: float,
        padding: int = 0,
        **sampling: Any,
    ) -> Trace:
        """Decode after a prompt, with drafts of up to `depth` tokens.

        Every pass of the trunk is lengthened by up to `padding` rows that are read and forgotten.
        """
        if depth > (self.settings.room if self.head else 0) or depth + padding > self.settings.room:
            raise NativeError(
                "the draft is deeper than the room", f"{depth} + {padding} rows", "start it anew"
            )
        if len(prompt) + n_predict > self.settings.context:
            raise NativeError(
                f"{len(prompt)} prompt tokens and {n_predict} more do not fit",
                f"a context of {self.settings.context}",
                "raise context",
            )
        sampler = target_chain(**sampling)
        try:
            return self._loop(list(prompt), n_predict, depth, p_min, padding, sampler)
        finally:
            llama_cpp.llama_sampler_free(sampler)

    def likeliest(self, prompt: Sequence[int], count: int) -> list[tuple[int, float]]:
        """Return the likeliest tokens after a prompt and their log probabilities."""
        self._prompt_pass(list(prompt))
        logits = native.logits(self.ctx, self.vocab, -1)
        top = np.argsort(-logits, kind="stable")[:count]
        normalizer = np.logaddexp.reduce(logits.astype(float))
        return [(int(t), round(float(logits[t] - normalizer), 6)) for t in top]

    def _loop(
        self,
        prompt: list[int],
        n_predict: int,
        depth: int,
        p_min: float,
        padding: int,
        sampler: Any,
    ) -> Trace:
        began = time.perf_counter()
        self._prompt_pass(prompt)
        last = int(llama_cpp.llama_sampler_sample(sampler, self.ctx, -1))
        decoding = time.perf_counter()
        tokens, length, steps = [last], len(prompt), list[Step]()
        while len(tokens) < n_predict and not self._ends(last):
            start = time.perf_counter()
            # As in llama-server the head drafts in full, and what can not be used is cut off.
            left = n_predict - len(tokens) - 1
            limit = min(depth, left)
            guesses: list[int] = []
            odds: list[float] = []
            if self.head and limit > 0:
                guesses, odds = self.head.draft(last, length, depth, p_min)
                guesses, odds = guesses[:limit], odds[:limit]
            drafted = time.perf_counter()
            more = [last] * max(min(padding, left - len(guesses)), 0)
            self._decode([last, *guesses, *more], length, output=True)
            verified = time.perf_counter()
            if self.head:
                self.head.catch_up([last, *guesses], length)
            caught_up = time.perf_counter()
            kept = self._accept(guesses, sampler)
            length += len(kept)
            self._keep(length, len(kept) - 1)
            done = time.perf_counter()
            tokens += kept
            last = kept[-1]
            times = (_ms(t) for t in _differences(start, drafted, verified, caught_up, done))
            steps.append(Step(tuple(guesses), tuple(odds), len(kept) - 1, last, *times))
        ended = time.perf_counter()
        stop = "eos" if self._ends(last) else "limit"
        return Trace(tokens, stop, steps, _ms(decoding - began), _ms(ended - decoding))

    def _prompt_pass(self, prompt: list[int]) -> None:
        llama_cpp.llama_memory_clear(self.memory, True)
        if self.head:
            self.head.reset()
        micro = int(llama_cpp.llama_n_ubatch(self.ctx))
        cuts = native.prompt_cuts(self.model, len(prompt), self.settings.batch, micro)
        for start, end in itertools.pairwise(cuts):
            self._decode(prompt[start:end], start, output=False, last=end == len(prompt))
            if self.head:
                self.head.catch_up(prompt[start:end], start)

    def _decode(
        self, tokens: list[int], position: int, *, output: bool, last: bool = False
    ) -> None:
        self.rows.fill(tokens, position, output=output)
        if last:
            self.rows.outputs[len(tokens) - 1] = 1
        decode(self.ctx, self.rows, "the trunk's pass")
        llama_cpp.llama_synchronize(self.ctx)

    def _accept(self, guesses: list[int], sampler: Any) -> list[int]:
        """Return the accepted guesses and the target's own token after them."""
        kept: list[int] = []
        for row in range(len(guesses) + 1):
            token = int(llama_cpp.llama_sampler_sample(sampler, self.ctx, row))
            kept.append(token)
            if row == len(guesses) or token != guesses[row]:
                break
            if self._ends(token) and row + 1 < len(guesses):
                break  # nothing after an end of text is kept
        return kept

    def _keep(self, length: int, row: int) -> None:
        if not llama_cpp.llama_memory_seq_rm(self.memory, SEQUENCE, length, -1):
            raise NativeError("the context can not be rolled back", f"to {length} tokens", "")
        if self.head:
            self.head.keep(length)
            self.head.accept(row)

    def _ends(self, token: int) -> bool:
        return bool(llama_cpp.llama_vocab_is_eog(self.vocab, token))

    def free(self) -> None:
        """Give everything back."""
        if self.head:
            self.head.free()
        self.rows.free()
        llama_cpp.llama_free(self.ctx)
        llama_cpp.llama_model_free(self.model)


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 4)


def _differences(*times: float) -> list[float]:
    return [b - a for a, b in itertools.pairwise(times)]
