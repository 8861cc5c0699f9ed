"""Write the trained network as a GGUF file of llama.cpp's architecture `qwen35`, and read it back.

`python -m models.export` turns the last checkpoint into the Q8_0 file of this folder.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from models.data import END, SPECIAL
from models.net import EPS, Net, Shape
from models.text import CACHE

NAME = "specdepth-9m"
MODEL = Path(__file__).parent / f"{NAME}-q8_0.gguf"
HEAD = Path(__file__).parent / "drafters" / f"{NAME}-deep-head-q8_0.gguf"
ARCH = "qwen35"

Q8 = gguf.GGMLQuantizationType.Q8_0

BLOCK_NAMES = {
    "norm.weight": "attn_norm.weight",
    "post_norm.weight": "post_attention_norm.weight",
    "ffn.gate.weight": "ffn_gate.weight",
    "ffn.up.weight": "ffn_up.weight",
    "ffn.down.weight": "ffn_down.weight",
    "mix.q.weight": "attn_q.weight",
    "mix.k.weight": "attn_k.weight",
    "mix.v.weight": "attn_v.weight",
    "mix.q_norm.weight": "attn_q_norm.weight",
    "mix.k_norm.weight": "attn_k_norm.weight",
    "mix.qkv.weight": "attn_qkv.weight",
    "mix.z.weight": "attn_gate.weight",
    "mix.beta.weight": "ssm_beta.weight",
    "mix.alpha.weight": "ssm_alpha.weight",
    "mix.conv": "ssm_conv1d.weight",
    "mix.a_log": "ssm_a",
    "mix.dt_bias": "ssm_dt.bias",
    "mix.norm.weight": "ssm_norm.weight",
}
TOP_NAMES = {
    "embed.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "output.weight": "output.weight",
}
DRAFT_NAMES = {
    "embed_norm.weight": "nextn.enorm.weight",
    "state_norm.weight": "nextn.hnorm.weight",
    "join.weight": "nextn.eh_proj.weight",
    "head_norm.weight": "nextn.shared_head_norm.weight",
}


def names(net: Net) -> Iterator[tuple[str, str, Tensor]]:
    """Yield (our name, GGUF name, parameter) for every parameter."""
    for ours, p in net.named_parameters():
        if ours in TOP_NAMES:
            yield ours, TOP_NAMES[ours], p
            continue
        head, _, rest = ours.partition(".")
        if head == "draft":
            layer, full = net.shape.layers, True
            if rest in DRAFT_NAMES:
                yield ours, f"blk.{layer}.{DRAFT_NAMES[rest]}", p
                continue
            rest = rest.removeprefix("block.")
        else:
            number, _, rest = rest.partition(".")
            layer = int(number)
            full = net.shape.is_full(layer)
        if rest == "mix.out.weight":
            yield ours, f"blk.{layer}.{'attn_output' if full else 'ssm_out'}.weight", p
        else:
            yield ours, f"blk.{layer}.{BLOCK_NAMES[rest]}", p


def write(net: Net, tokenizer: Path, path: Path, note: str = "") -> None:
    """Write `net` and the tokenizer of the JSON file `tokenizer` to the GGUF file `path`."""
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, ARCH)
    _describe(writer, net.shape, note)
    vocabulary(writer, json.loads(tokenizer.read_text()), net.shape.vocab)
    for ours, theirs, p in names(net):
        add(writer, ours, theirs, p)
    finish(writer, partial, path)


def write_head(net: Net, target: Path, path: Path) -> None:
    """Write the MTP block of `net` as a drafter for the GGUF file `target`.

    All else in it is the target's own, byte for byte: the metadata, the embedding, the output
    matrix and its norm. llama.cpp loads a file without the trunk's layers as an MTP block alone.
    """
    reader = gguf.GGUFReader(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, ARCH)
    for field in reader.fields.values():
        if field.name == gguf.Keys.General.ARCHITECTURE or field.name.startswith("GGUF."):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        value = path.stem if field.name == gguf.Keys.General.NAME else field.contents()
        writer.add_key_value(field.name, value, kind, sub_type=inner)
    shared = set(TOP_NAMES.values())
    for tensor in reader.tensors:
        if tensor.name in shared:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    for ours, theirs, p in names(net):
        if ours.startswith("draft."):
            add(writer, ours, theirs, p)
    finish(writer, partial, path)


def add(writer: gguf.GGUFWriter, ours: str, theirs: str, p: Tensor) -> None:
    """Add a parameter: matrices in Q8_0, all else in 32-bit floats."""
    array: npt.NDArray[np.float32] = p.detach().float().numpy()
    if ours.endswith("a_log"):
        array = -np.exp(array)
    # The two gate projections are a few rows: 32-bit floats cost nothing there.
    if array.ndim == 2 and min(array.shape) > 8:
        writer.add_tensor(theirs, gguf.quants.quantize(array, Q8), raw_dtype=Q8)
    else:
        writer.add_tensor(theirs, array)


def finish(writer: gguf.GGUFWriter, partial: Path, path: Path) -> None:
    """Write all that was added, and give the file its name."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(path)


def describe(writer: gguf.GGUFWriter, name: str, text: str, shape: Any, blocks: int) -> None:
    """Add what every decoder's file tells of itself; `shape` has its sizes."""
    writer.add_name(name)
    writer.add_description(text)
    writer.add_license("mit")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(blocks)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_rope_freq_base(shape.rope_base)


def _describe(writer: gguf.GGUFWriter, shape: Shape, note: str) -> None:
    text = note or "Small Qwen3.5-shaped model for measuring draft depth"
    describe(writer, NAME, text, shape, shape.layers + 1)
    writer.add_nextn_predict_layers(1)
    writer.add_rope_dimension_count(shape.rotary)
    # Text has one position for all sections, so any split of the pairs is the same.
    half = shape.rotary // 2
    third = half // 3
    writer.add_rope_dimension_sections([half - 2 * third, third, third, 0])
    writer.add_ssm_conv_kernel(shape.kernel)
    writer.add_ssm_state_size(shape.linear_head)
    writer.add_ssm_group_count(shape.linear_heads)
    writer.add_ssm_time_step_rank(shape.linear_heads)
    writer.add_ssm_inner_size(shape.linear_heads * shape.linear_head)
    writer.add_uint32(f"{ARCH}.full_attention_interval", shape.full_every)


def vocabulary(writer: gguf.GGUFWriter, tokenizer: dict[str, Any], size: int) -> None:
    """Add a tokenizer of Hugging Face's JSON form; `size` tokens are expected."""
    vocab: dict[str, int] = tokenizer["model"]["vocab"]
    merges: list[str | list[str]] = tokenizer["model"]["merges"]
    tokens = [token for token, _ in sorted(vocab.items(), key=lambda item: item[1])]
    if len(tokens) != size:
        raise ValueError(f"the tokenizer has {len(tokens)} tokens, the network {size}")
    special, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(tokens)
    writer.add_token_types([special if token in SPECIAL else normal for token in tokens])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_eos_token_id(END)
    writer.add_pad_token_id(END)
    writer.add_add_bos_token(False)
    # No chat template: the model takes plain text.


def read(path: Path, shape: Shape | None = None) -> Net:
    """Return the network of a GGUF file that `write` made, with its quantized weights unpacked."""
    net = Net(shape or Shape())
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    with torch.no_grad():
        for ours, theirs, p in names(net):
            tensor = tensors[theirs]
            array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            values = torch.from_numpy(np.array(array, np.float32)).reshape(p.shape)
            p.copy_((-values).log() if ours.endswith("a_log") else values)
    return net


def read_head(net: Net, path: Path) -> None:
    """Put the MTP block of a file that `write_head` made into `net`."""
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    with torch.no_grad():
        for ours, theirs, p in names(net):
            if ours.startswith("draft."):
                tensor = tensors[theirs]
                array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
                p.copy_(torch.from_numpy(np.array(array, np.float32)).reshape(p.shape))


def load_checkpoint(path: Path) -> Net:
    """Return the network of a training checkpoint."""
    saved = torch.load(path, weights_only=True)
    net = Net(Shape())
    net.load_state_dict(saved["net"])
    return net


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=CACHE / "train" / "checkpoint.pt")
    parser.add_argument("--out", type=Path, default=MODEL)
    parser.add_argument("--untrained", action="store_true", help="random weights of the same shape")
    args = parser.parse_args()
    torch.manual_seed(0)
    net = Net(Shape()) if args.untrained else load_checkpoint(args.checkpoint)
    write(net, CACHE / "tokens" / "tokenizer.json", args.out)


if __name__ == "__main__":
    main()
