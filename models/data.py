"""Turn the gathered text into tokens: the tokenizer, one array per kind and part, and batches."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from models import problems, questions, text

Tokens = npt.NDArray[np.uint16]

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END = 0
# The pattern that llama.cpp applies for `tokenizer.ggml.pre` = qwen35.
PATTERN = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|"
    r"\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Share of each kind among the training windows; `long` is text followed by solved problems.
SHARES = {
    "short": 0.17,
    "problems": 0.17,
    "bible": 0.13,
    "jargon": 0.06,
    "manual": 0.20,
    "code": 0.27,
}
SEED = 20240501
MADE_UP_CHARS = 9_000_000


def build(cache: Path = text.CACHE, vocab: int = 4096, tokenizer: Tokenizer | None = None) -> Path:
    """Gather, train the tokenizer or take the given one, and tokenize; return the folder.

    Does nothing where it was done. Text that was tokenized by a given tokenizer has a folder of its
    own, unless a trained one has come out the same.
    """
    folder = cache / "tokens"
    if tokenizer is not None and not _same(folder, tokenizer):
        digest = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()
        folder = cache / f"tokens-{digest[:12]}"
    if (folder / "done.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    trees = text.fetch(cache)
    parts: dict[str, list[str]] = {}
    for document in text.documents(trees):
        part = "held" if document.held_out else "train"
        parts.setdefault(f"{document.kind}.{part}", []).append(document.text)
    parts |= made_up(trees)
    tokenizer = tokenizer or train_tokenizer(parts, vocab)
    tokenizer.save(str(folder / "tokenizer.json"))
    shuffle = random.Random(SEED)
    counts = {}
    for name, documents in sorted(parts.items()):
        shuffle.shuffle(documents)
        tokens = np.concatenate(
            [
                np.array([*encoding.ids, END], np.uint16)
                for encoding in tokenizer.encode_batch_fast(documents)
            ]
        )
        np.save(folder / f"{name}.npy", tokens)
        counts[name] = {"documents": len(documents), "tokens": len(tokens)}
    (folder / "done.json").write_text(json.dumps(counts, indent=1))
    return folder


def made_up(trees: Path) -> dict[str, list[str]]:
    """Return the generated documents by kind and part; the two parts have their own seeds."""
    glosses = questions.load_glosses(trees)
    known = [g for g in glosses if not text.is_held_out(g[0])]
    unseen = [g for g in glosses if text.is_held_out(g[0])]
    parts: dict[str, list[str]] = {}
    for part, words, size in (("train", known, MADE_UP_CHARS), ("held", unseen, 150_000)):
        r = random.Random(f"{SEED}/{part}")
        for kind in ("short", "problems"):
            made: list[str] = []
            left = size
            while left > 0:
                made.append(
                    questions.questions(r, words) if kind == "short" else problems.problems(r)
                )
                left -= len(made[-1])
            parts[f"{kind}.{part}"] = made
    return parts


def train_tokenizer(parts: dict[str, list[str]], vocab: int) -> Tokenizer:
    """Return a byte-level BPE trained on an equal amount of text of each kind."""
    tokenizer = byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sample = []
    for name, documents in sorted(parts.items()):
        if name.endswith(".train"):
            picked = documents[:: max(1, _total(documents) // 1_500_000)]
            sample += picked
    tokenizer.train_from_iterator(sample, trainer)
    return tokenizer


def byte_level(model: models.BPE) -> Tokenizer:
    """Return a tokenizer of byte pairs that splits text as llama.cpp does for `qwen35`."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def tokenizer_of(path: Path) -> Tokenizer:
    """Return the tokenizer of a GGUF file that `export` wrote."""
    fields = gguf.GGUFReader(path).fields
    tokens, merges = (fields[f"tokenizer.ggml.{n}"].contents() for n in ("tokens", "merges"))
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = byte_level(models.BPE({t: i for i, t in enumerate(tokens)}, pairs))
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def _same(folder: Path, tokenizer: Tokenizer) -> bool:
    """Tell whether a folder's text was tokenized by the same pairs of bytes."""
    file = folder / "tokenizer.json"
    if not file.exists():
        return False
    ours, theirs = (json.loads(t)["model"] for t in (tokenizer.to_str(), file.read_text()))
    return all(ours[part] == theirs[part] for part in ("vocab", "merges"))


def load(folder: Path, part: str) -> dict[str, Tokens]:
    """Return the token array of each kind for `part` (`train` or `held`)."""
    return {kind: np.load(folder / f"{kind}.{part}.npy", mmap_mode="r") for kind in SHARES}


def batch(
    arrays: dict[str, Tokens], r: np.random.Generator, rows: int, length: int, mixed: bool
) -> torch.Tensor:
    """Return (rows, length + 1) tokens, each row a window of one kind drawn by its share.

    With `mixed`, a third of the rows end in solved problems, as the long prompts do.
    """
    kinds = list(SHARES)
    picked = r.choice(len(kinds), rows, p=np.array(list(SHARES.values())))
    out = np.empty((rows, length + 1), np.int64)
    for row, kind in enumerate(picked):
        out[row] = _window(arrays[kinds[kind]], r, length + 1)
        if mixed and r.random() < 1 / 3:
            tail = int(r.integers(150, 450))
            problem = arrays["problems"]
            out[row, -tail:] = _window(problem, r, tail, after=END)
    return torch.from_numpy(out)


def _window(
    tokens: Tokens, r: np.random.Generator, length: int, after: int | None = None
) -> Tokens:
    """Return a random window, from just behind the token `after` where one is near."""
    start = int(r.integers(0, len(tokens) - length))
    if after is not None:
        ahead = np.flatnonzero(tokens[start : start + 2 * length] == after)
        if len(ahead) and start + int(ahead[0]) + 1 + length < len(tokens):
            start += int(ahead[0]) + 1
    return tokens[start : start + length]


def _total(documents: list[str]) -> int:
    return sum(map(len, documents))
