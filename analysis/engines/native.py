"""Small helpers over llama.cpp's stable bindings: rows, samplers, tokens, checked calls."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

FLOAT_BYTES = ctypes.sizeof(ctypes.c_float)
SEQUENCE = 0  # a tracer decodes one sequence


class NativeError(Exception):
    """What the child can not do: what is wrong, what was found, what to do next."""


class Rows:
    """A batch of rows for one sequence, filled by slices."""

    def __init__(self, capacity: int, width: int = 0) -> None:
        self.batch = llama_cpp.llama_batch_init(capacity, width, 1)
        self.width = width
        if width:  # the call allocates either tokens or vectors; the head wants both
            self._own = (llama_cpp.llama_token * capacity)()
            self.batch.token = self._own
            self._vectors = ctypes.addressof(self.batch.embd.contents)
        self.tokens = np.ctypeslib.as_array(self.batch.token, shape=(capacity,))
        self.positions = np.ctypeslib.as_array(self.batch.pos, shape=(capacity,))
        self.outputs = np.ctypeslib.as_array(self.batch.logits, shape=(capacity,))
        for row in range(capacity):
            self.batch.n_seq_id[row] = 1
            self.batch.seq_id[row][0] = SEQUENCE

    def fill(self, tokens: Sequence[int], first_position: int, *, output: bool) -> None:
        """Set tokens at consecutive positions; `output` asks for the logits of every row."""
        n = len(tokens)
        self.batch.n_tokens = n
        self.tokens[:n] = tokens
        self.positions[:n] = range(first_position, first_position + n)
        self.outputs[:n] = output

    def vectors(self, row: int, source: int, count: int = 1) -> None:
        """Copy `count` hidden vectors from an address, the first one to `row`."""
        size = self.width * FLOAT_BYTES
        ctypes.memmove(self._vectors + row * size, source, count * size)

    def free(self) -> None:
        """Give the batch back; the token array of the head's batch is Python's own."""
        if self.width:
            self.batch.token = ctypes.POINTER(llama_cpp.llama_token)()
        llama_cpp.llama_batch_free(self.batch)


def made(pointer: Any, what: str, found: str = "") -> Any:
    """Return a pointer of llama.cpp's, or raise where it is null."""
    if not pointer:
        raise NativeError(f"llama.cpp can not make {what}", found or "see the log", "")
    return pointer


def decode(ctx: Any, rows: Rows, what: str) -> None:
    """Run one pass; raises :class:`NativeError` where llama.cpp refuses it."""
    code = llama_cpp.llama_decode(ctx, rows.batch)
    if code != 0:
        raise NativeError(f"{what} failed", f"llama_decode gave {code}", "raise the context")


def logits(ctx: Any, vocab: Any, row: int) -> npt.NDArray[np.float32]:
    """Return the logits of an output row (-1: the last); valid until the next pass."""
    pointer = llama_cpp.llama_get_logits_ith(ctx, row)
    return np.ctypeslib.as_array(pointer, shape=(llama_cpp.llama_vocab_n_tokens(vocab),))


def address(pointer: Any) -> int:
    """Return a pointer's address."""
    return ctypes.addressof(pointer.contents)


def chain(*samplers: Any) -> Any:
    """Return a sampler chain that owns its samplers."""
    made_of = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    for sampler in samplers:
        llama_cpp.llama_sampler_chain_add(made_of, sampler)
    return made_of


def target_chain(temperature: float, seed: int, top_k: int, top_p: float, min_p: float) -> Any:
    """Return llama-server's chain in its order; its samplers that change nothing are left out."""
    return chain(
        llama_cpp.llama_sampler_init_top_k(top_k),
        llama_cpp.llama_sampler_init_top_p(top_p, 0),
        llama_cpp.llama_sampler_init_min_p(min_p, 0),
        llama_cpp.llama_sampler_init_temp_ext(temperature, 0.0, 1.0),
        llama_cpp.llama_sampler_init_dist(seed),
    )


def load_model(path: str, *, mtp: bool) -> Any:
    """Load a model, with or without its MTP layers."""
    loading = llama_cpp.llama_model_default_params()
    loading.load_mtp = mtp
    return made(llama_cpp.llama_model_load_from_file(os.fsencode(path), loading), "the model")


def prompt_cuts(model: Any, length: int, batch: int, micro_batch: int) -> list[int]:
    """Return where the passes over a prompt start and end.

    Passes of other shapes round differently, so that the cuts are those of llama-server: it also
    stops 4, and 4 and a micro-batch, before the end to keep checkpoints of a memory that can not be
    rolled back freely (llama.cpp 0c1e570: ``tools/server/server-context.cpp``).
    """
    stops = {length}
    if llama_cpp.llama_model_is_hybrid(model) or llama_cpp.llama_model_is_recurrent(model):
        stops |= {length - min(batch, 4 + micro_batch), length - min(batch, 4)}
    cuts = [0]
    for stop in sorted(s for s in stops if s > 0):
        while cuts[-1] < stop:
            cuts.append(min(cuts[-1] + batch, stop))
    return cuts


def tokenize(vocab: Any, text: str, *, special: bool) -> list[int]:
    """Return the token ids of a text; `special` adds and reads control tokens."""
    content = text.encode()
    room = len(content) + 8
    ids = (llama_cpp.llama_token * room)()
    n = llama_cpp.llama_tokenize(vocab, content, len(content), ids, room, special, special)
    return list(ids[:n])


def piece(vocab: Any, token: int) -> bytes:
    """Return the bytes of a token, control tokens as they are written."""
    size = 64
    while True:
        buffer = ctypes.create_string_buffer(size)
        n = llama_cpp.llama_token_to_piece(vocab, token, buffer, size, 0, True)
        if n >= 0:
            return buffer.raw[:n]
        size = -n


def quiet_log() -> None:
    """Let the library write its own log to stderr, past Python's."""
    own = llama_cpp.llama_log_callback()  # a null pointer: the library's default
    llama_cpp.llama_log_set(own, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()


def chat_prompt(model: Any, vocab: Any, message: str) -> str:
    """Return a user's message in the model's own chat template."""
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    template = llama_cpp.llama_model_chat_template(model, None)
    if not template:
        raise NativeError("the model has no chat template", "", "set prompt_format to raw")
    bos, eos = (
        piece(vocab, token).decode(errors="replace") if token >= 0 else ""
        for token in (llama_cpp.llama_vocab_bos(vocab), llama_cpp.llama_vocab_eos(vocab))
    )
    formatter = Jinja2ChatFormatter(template.decode(), eos, bos, add_generation_prompt=True)
    return str(formatter(messages=[{"role": "user", "content": message}]).prompt)
