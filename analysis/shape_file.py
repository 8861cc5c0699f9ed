"""A GGUF file with a full-size model's shape, and a hole or random numbers for its weights.

llama.cpp lays such a model out as it would the real one: layers, buffers, caches. With acceptance
that is given it also runs it, at its real sizes; its text means nothing. A hole takes no room on
the disk, and its weights read as zeros.
"""

from __future__ import annotations

import struct
from pathlib import Path

from analysis import shape_contents, shape_tokens
from analysis.quantization import Mix, tensor_bytes
from analysis.shapes import Shape, tensors

HOLE, RANDOM = CONTENTS = ("hole", "random")
KEY = "specdepth.shape"  # of a file: its name, quantization and contents
_HEAD_BYTES = 4096  # the key is among the first


def write(
    shape: Shape,
    path: Path,
    quantization: str = "q4_k_m",
    contents: str = HOLE,
    *,
    tokens: bool = True,
) -> Path:
    """Write the file; sizes are those of the real weights in this quantization.

    Without `tokens` the file can be planned for, in less time, and not run.
    """
    import gguf
    import numpy as np

    mix = Mix(quantization, shape.blocks, tied=shape.tied == "yes")
    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_string(KEY, ":".join((shape.name, quantization, contents)))
    _describe(writer, shape)
    if tokens:
        shape_tokens.describe(writer, shape.vocab)
    else:
        writer.add_tokenizer_model("none")
    end = 0
    placed = []
    for name, size in tensors(shape):
        kind = mix.kind(name, size)
        nbytes = tensor_bytes(size, kind)
        writer.add_tensor_info(
            name, size, np.dtype(np.float32), nbytes, raw_dtype=gguf.GGMLQuantizationType[kind]
        )
        start = gguf.GGUFWriter.ggml_pad(end, writer.data_alignment)
        placed.append((start, name, size, kind))
        end = start + nbytes
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        (file,) = writer.fout or []
        start = gguf.GGUFWriter.ggml_pad(file.tell(), writer.data_alignment)
        file.truncate(start + gguf.GGUFWriter.ggml_pad(end, writer.data_alignment))
        if contents == RANDOM:
            shape_contents.fill(file, start, placed)
    finally:
        writer.close()
    return path


def said_of(path: Path) -> str:
    """Return what a shape's file says of itself, ``NAME:QUANTIZATION:CONTENTS``; "" of others."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    at = head.find(KEY.encode()) + len(KEY)
    if at < len(KEY) or at + 12 > len(head):
        return ""
    _, length = struct.unpack_from("<IQ", head, at)  # the type of the value, a text, and its length
    return head[at + 12 : at + 12 + length].decode(errors="replace")


def _describe(writer: object, s: Shape) -> None:
    w: object = writer
    for method, value in (
        ("name", f"{s.name} shape without weights"),
        ("context_length", s.context),
        ("embedding_length", s.hidden),
        ("block_count", s.blocks),
        ("nextn_predict_layers", 1),
        ("head_count", s.heads),
        ("head_count_kv", s.kv_heads),
        ("key_length", s.head_size),
        ("value_length", s.head_size),
        ("layer_norm_rms_eps", 1e-6),
        ("rope_freq_base", 1e7),
        ("rope_dimension_count", s.rotary),
        ("rope_dimension_sections", [11, 11, 10, 0]),
        ("ssm_conv_kernel", s.conv_kernel),
        ("ssm_state_size", s.linear_head_size),
        ("ssm_group_count", s.linear_k_heads),
        ("ssm_time_step_rank", s.linear_v_heads),
        ("ssm_inner_size", s.linear_v_heads * s.linear_head_size),
        ("vocab_size", s.vocab),
    ):
        getattr(w, f"add_{method}")(value)
    if s.experts:
        for method, value in (
            ("expert_count", s.experts),
            ("expert_used_count", s.experts_used),
            ("expert_feed_forward_length", s.expert_ffn),
            ("expert_shared_feed_forward_length", s.expert_ffn),
        ):
            getattr(w, f"add_{method}")(value)
    else:
        getattr(w, "add_feed_forward_length")(s.ffn)  # noqa: B009
    getattr(w, "add_uint32")(f"{s.architecture}.full_attention_interval", s.full_every)  # noqa: B009
