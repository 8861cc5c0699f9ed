"""A token list of the real one's length for a shape; only its bytes and its end of text are real.

It is a byte-pair tokenizer as the Qwen models have one, without their merges: a text has as many
tokens as bytes, less one where a blank stands before a t.
"""

from __future__ import annotations

import string
from itertools import islice, product
from typing import Any

# Fillers are three of these: short, since there are hundreds of thousands, and all different.
_LETTERS = string.ascii_letters + string.digits + "-_"
_MERGE = ("Ġ", "t")  # a blank and a t: llama.cpp wants a list of merges, and gguf no empty one
_END = "<|endoftext|>"
_NORMAL, _CONTROL = 1, 3  # llama.cpp's types of tokens


def end_of_text(vocab: int) -> int:
    """Return the id of the token that ends a text.

    Where all logits are equal, a selection of the highest takes the first of the list or, on
    another back end, perhaps the last: this id lies near the end and not at it. A drafted end of
    text would never be accepted, and a sampled one would end the request.
    """
    return vocab - 1 - vocab // 1000


def token_list(vocab: int) -> list[str]:
    """Return all tokens: the bytes as GPT-2 spells them, the merged pair, fillers, the end."""
    made = [*(_spelt(byte) for byte in range(256)), "".join(_MERGE)]
    made += ["".join(letters) for letters in islice(product(_LETTERS, repeat=3), vocab - len(made))]
    made[end_of_text(vocab)] = _END
    return made


def _spelt(byte: int) -> str:
    """Return a byte as GPT-2 spells it: itself where it is visible, else the next unused letter."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    if byte in visible:
        return chr(byte)
    return chr(256 + sum(other not in visible for other in range(byte)))


def describe(writer: Any, vocab: int) -> None:
    """Add the tokenizer to a file's description."""
    end = end_of_text(vocab)
    types = [_NORMAL] * vocab
    types[end] = _CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(token_list(vocab))
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(_MERGE)])
    writer.add_eos_token_id(end)
    writer.add_eot_token_id(end)
    writer.add_pad_token_id(end)
    writer.add_add_bos_token(False)
