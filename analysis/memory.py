"""What a draft depth costs in memory: recurrent state, KV cache and the MTP block, in closed form.

A hybrid model such as Qwen3.5 keeps, for each slot and each linear-attention layer, a recurrent
state in 32-bit floats: the delta rule's matrix of ``H_v d_k d_v`` numbers and the last ``k - 1``
inputs of a convolution over ``2 H_k d_k + H_v d_v`` channels. To roll a refused draft back,
llama.cpp keeps one further copy a drafted token, ``n_rs_seq`` of them (llama.cpp 0c1e570:
``src/llama-memory-recurrent.cpp``, ``llama_hparams::n_embd_r`` and ``n_embd_s`` in
``src/llama-hparams.cpp``, ``need_n_rs_seq`` in ``common/common.h``). So

    state = slots * (1 + depth) * linear layers * 4 bytes
            * (H_v d_k d_v + (k - 1) (2 H_k d_k + H_v d_v))

which grows by the same step with every token of depth. Attention layers keep a KV cache that does
not depend on depth; drafting adds one more, for the MTP block, in a context of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis import gguf_file
from analysis.errors import ModelError, SpecError
from analysis.spec import CACHE_TYPES

MIB = 2**20
STATE_BYTES = 4  # the state is kept in 32-bit floats, whatever the cache types
PADDING = 256  # tokens; llama.cpp rounds the context of a sequence up to this
HYBRID = ("qwen35", "qwen35moe", "qwen3next")
# The others' state can not be rolled back by this build: it keeps one copy at any depth
# (``llm_arch_supports_rs_rollback`` in ``src/llama-arch.cpp``).
ROLLED_BACK = ("qwen35", "qwen35moe")


@dataclass(frozen=True)
class Layout:
    """The numbers of a model that its state and caches follow from."""

    name: str
    architecture: str
    linear_layers: int  # with recurrent state
    attention_layers: int  # with a KV cache, the MTP block not counted
    mtp_layers: int
    kv_heads: int
    head_k: int  # numbers in a key of one head
    head_v: int
    linear_inner: int  # H_v d_v
    linear_state: int  # d_k
    linear_groups: int  # H_k
    conv_kernel: int
    full_every: int = 4  # every n-th block of a hybrid has full attention
    width: int = 0  # of the hidden states; 0 where not known
    ffn: int = 0  # of the feed-forward layers; 0 where all are experts
    experts_used: int = 0  # for each token

    @property
    def channels(self) -> int:
        """Channels of the linear layers' convolution."""
        return self.linear_inner + 2 * self.linear_groups * self.linear_state

    def is_linear(self, block: int) -> bool:
        """Tell whether a block keeps a recurrent state."""
        trunk = self.linear_layers + self.attention_layers
        return self.has_state and block < trunk and (block + 1) % self.full_every != 0

    @property
    def has_state(self) -> bool:
        """Whether depth costs any state: not so for a model without recurrent layers."""
        return self.linear_layers > 0


def state_mib(layout: Layout, slots: int, depth: int) -> float:
    """Return the recurrent state of all slots at a draft depth, in MiB.

    Equal to llama.cpp's printed ``RS buffer size``; 0 for a model without recurrent layers.
    """
    _at_least(slots, 1, "slots")
    _at_least(depth, 0, "depth")
    delta = layout.linear_inner * layout.linear_state
    window = (layout.conv_kernel - 1) * layout.channels
    numbers = layout.linear_layers * (delta + window)
    return slots * copies(layout, depth) * numbers * STATE_BYTES / MIB


def copies(layout: Layout, depth: int) -> int:
    """Return how many states a slot keeps: one, and one a drafted token where it can roll back."""
    return 1 + depth if layout.architecture in ROLLED_BACK else 1


def cells(context: int, slots: int, *, unified: bool) -> int:
    """Return how many tokens the KV cache holds: what was asked for, rounded up by slot."""
    _at_least(context, 1, "context")
    _at_least(slots, 1, "slots")
    parts = 1 if unified else slots
    each = _padded(context) if unified else _padded(context) // slots
    return parts * _padded(each)


def _padded(tokens: int) -> int:
    return -(-tokens // PADDING) * PADDING


def kv_mib(
    layout: Layout,
    context: int,
    slots: int = 1,
    *,
    unified: bool = False,
    cache_type_k: str = "f16",
    cache_type_v: str = "f16",
    mtp: bool = False,
) -> float:
    """Return the KV cache of the target's attention layers, in MiB, or that of the MTP block.

    The MTP block's is there whenever something is drafted. Its types are those of the draft
    (llama-server's ``--spec-draft-type-k`` and ``-v``), 16 bits unless set, whatever the target's.
    """
    tokens = cells(context, slots, unified=unified)
    layers = layout.mtp_layers if mtp else layout.attention_layers
    return layers * tokens * _token_bytes(layout, cache_type_k, cache_type_v) / MIB


def _token_bytes(layout: Layout, cache_type_k: str, cache_type_v: str) -> float:
    """Return the bytes of one token in one layer."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    total = 0.0
    for kind, size in ((cache_type_k, layout.head_k), (cache_type_v, layout.head_v)):
        if kind not in CACHE_TYPES:
            raise SpecError(f"no cache type {kind}", "", f"known are {', '.join(CACHE_TYPES)}")
        numbers, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind.upper()]]
        total += layout.kv_heads * size * block_bytes / numbers
    return total


def _at_least(value: int, lowest: int, name: str) -> None:
    if value < lowest:
        raise SpecError(f"`{name}` must be at least {lowest}", str(value))


def layout_of(path: Path) -> Layout:
    """Read a model's layout from its GGUF.

    Raises
    ------
    ModelError
        If the file lacks a value that the layout needs.
    """
    reader = gguf_file.reader(path)

    def value(name: str, default: Any = None) -> Any:
        field = reader.get_field(name)
        return default if field is None else field.contents()

    architecture = str(value("general.architecture", "unknown"))

    def own(name: str, default: Any = None) -> Any:
        found = value(f"{architecture}.{name}", default)
        if found is None:
            raise ModelError(
                f"{path.name} does not state {architecture}.{name}", "", "use a complete GGUF"
            )
        return found

    blocks = int(own("block_count"))
    mtp = int(own("nextn_predict_layers", 0))
    trunk = blocks - mtp
    hybrid = architecture in HYBRID
    every = int(own("full_attention_interval", 4)) if hybrid else 1
    attention = trunk // every
    heads = int(own("attention.head_count"))
    width = int(own("embedding_length"))
    key = int(own("attention.key_length", width // heads))
    return Layout(
        name=path.name,
        architecture=architecture,
        linear_layers=trunk - attention,
        attention_layers=attention,
        mtp_layers=mtp,
        kv_heads=int(own("attention.head_count_kv", heads)),
        head_k=key,
        head_v=int(own("attention.value_length", key)),
        linear_inner=int(own("ssm.inner_size")) if hybrid else 0,
        linear_state=int(own("ssm.state_size")) if hybrid else 0,
        linear_groups=int(own("ssm.group_count")) if hybrid else 0,
        conv_kernel=int(own("ssm.conv_kernel")) if hybrid else 1,
        full_every=every,
        width=width,
        ffn=int(own("feed_forward_length", 0)),
        experts_used=int(own("expert_used_count", 0)),
    )
