"""Logits of a GGUF file from llama.cpp itself, for the trunk and for the MTP block."""

from __future__ import annotations

import ctypes
from pathlib import Path

import llama_cpp
import numpy as np
import numpy.typing as npt
from llama_cpp import llama_cpp_ext

_QUIET = llama_cpp.llama_log_callback(lambda *_: None)

Floats = npt.NDArray[np.float32]


def logits(
    path: Path, windows: npt.NDArray[np.int64], threads: int = 2, head: Path | None = None
) -> tuple[Floats, Floats]:
    """Return the trunk's and the MTP block's logits, each (windows, time, vocabulary).

    Both are at the position of each token and predict the one after it. The block is the model's
    own, or that of the file `head`.
    """
    llama_cpp.llama_log_set(_QUIET, None)
    llama_cpp.llama_backend_init()
    settings = llama_cpp.llama_model_default_params()
    settings.load_mtp = True
    settings.n_gpu_layers = 0
    model = _load(path, settings)
    drafting = _load(head, settings) if head else model
    length = windows.shape[1]
    width = llama_cpp.llama_model_n_embd(model)
    vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    trunk = _context(model, length, threads)
    llama_cpp_ext.llama_set_embeddings_nextn(trunk, True, False)
    draft = _context(drafting, length, threads, trunk)
    llama_cpp_ext.llama_set_embeddings_nextn(draft, True, True)
    found: tuple[list[Floats], list[Floats]] = ([], [])
    for window in windows:
        found[0].append(_decode(trunk, window, None, width, vocab))
        states = _rows(llama_cpp_ext.llama_get_embeddings_nextn(trunk), length, width)
        # llama.cpp joins token p with the trunk's state at p - 1, and token 0 with zeros.
        shifted = np.concatenate((np.zeros((1, width), np.float32), states[:-1]))
        found[1].append(_decode(draft, window, shifted, width, vocab))
    for context in (draft, trunk):
        llama_cpp.llama_free(context)
    for loaded in {model, drafting}:
        llama_cpp.llama_model_free(loaded)
    return np.stack(found[0]), np.stack(found[1])


def _load(path: Path, settings: ctypes.Structure) -> ctypes.c_void_p:
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), settings)
    if not model:
        raise RuntimeError(f"llama.cpp cannot load {path}")
    return model  # type: ignore[no-any-return]


def _context(
    model: ctypes.c_void_p, length: int, threads: int, trunk: ctypes.c_void_p | None = None
) -> ctypes.c_void_p:
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = length
    settings.n_outputs_max = length
    settings.n_threads = settings.n_threads_batch = threads
    # 32-bit caches: what is compared is the arithmetic, not the cache's rounding.
    settings.type_k = settings.type_v = 0
    if trunk is not None:
        settings.ctx_type = llama_cpp.LLAMA_CONTEXT_TYPE_MTP
        settings.ctx_other = trunk
    context = llama_cpp.llama_init_from_model(model, settings)
    if not context:
        raise RuntimeError("llama.cpp cannot make a context")
    return context  # type: ignore[no-any-return]


def _decode(
    context: ctypes.c_void_p,
    window: npt.NDArray[np.int64],
    states: Floats | None,
    width: int,
    vocab: int,
) -> Floats:
    """Return the logits of every position of one window, from an empty memory."""
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    length = len(window)
    batch = llama_cpp.llama_batch_init(length, width if states is not None else 0, 1)
    tokens = (llama_cpp.llama_token * length)(*window.tolist())
    if states is None:
        ctypes.memmove(batch.token, tokens, ctypes.sizeof(tokens))
    else:
        # A batch made for states has no room for tokens; it is lent ours until it is freed.
        batch.token = tokens
    batch.n_tokens = length
    for i in range(length):
        batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = i, 1, 0, 1
    if states is not None:
        _rows(batch.embd, length, width)[:] = states
    code = llama_cpp.llama_decode(context, batch)
    if states is not None:
        batch.token = ctypes.POINTER(llama_cpp.llama_token)()
    llama_cpp.llama_batch_free(batch)
    if code != 0:
        raise RuntimeError(f"llama_decode failed with code {code}")
    return _rows(llama_cpp.llama_get_logits(context), length, vocab).copy()


def _rows(pointer: object, rows: int, columns: int) -> Floats:
    return np.ctypeslib.as_array(pointer, shape=(rows, columns))
