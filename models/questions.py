"""Made-up short questions with answers.

Drawn from a seeded generator, so the same seed gives the same text. Questions about words come from
WordNet's glosses; the rest is facts and sums.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from models.words import CAPITALS, DAYS, ELEMENTS, MONTH_DAYS, MONTHS, OPPOSITES, UNITS

Gloss = tuple[str, str, str]
Pair = tuple[str, str]


def load_glosses(trees: Path) -> list[Gloss]:
    """Return (word, kind, meaning) of WordNet's entries that read well in one sentence."""
    kinds = {"noun": "noun", "verb": "verb", "adj": "adjective"}
    found = []
    for suffix, kind in kinds.items():
        path = next((trees / "wordnet-base").rglob(f"data.{suffix}"))
        for line in path.read_text("utf-8", "replace").splitlines():
            if line.startswith("  "):
                continue
            head, _, gloss = line.partition(" | ")
            word = head.split()[4].split("(")[0]
            meaning = gloss.split(";")[0].strip()
            if word.isalpha() and word.islower() and 12 < len(meaning) < 110 and "(" not in meaning:
                found.append((word, kind, meaning))
    return found


def _definition(r: random.Random, glosses: list[Gloss]) -> Pair:
    word, kind, meaning = r.choice(glosses)
    article = "an" if kind == "adjective" else "a"
    asks = (
        f"What does the word {word} mean?",
        f"What is the meaning of {word}?",
        f"How would you explain the {kind} {word}?",
    )
    answer = {
        "noun": f"The word {word} is a noun. It means {meaning}.",
        "verb": f"The word {word} is a verb. To {word} means to {meaning}.",
        "adjective": f"The word {word} is {article} {kind}. It means {meaning}.",
    }[kind]
    return r.choice(asks), answer


def _capital(r: random.Random) -> Pair:
    land, city = r.choice(list(CAPITALS.items()))
    if r.random() < 0.3:
        return f"Which country has {city} as its capital?", f"{city} is the capital of {land}."
    return f"What is the capital of {land}?", f"The capital of {land} is {city}."


def _element(r: random.Random) -> Pair:
    name, sign = r.choice(list(ELEMENTS.items()))
    if r.random() < 0.4:
        return f"Which element has the symbol {sign}?", f"The symbol {sign} stands for {name}."
    return f"What is the chemical symbol of {name}?", f"The chemical symbol of {name} is {sign}."


def _opposite(r: random.Random) -> Pair:
    pair = r.choice(list(OPPOSITES.items()))
    a, b = pair if r.random() < 0.5 else pair[::-1]
    return f"What is the opposite of {a}?", f"The opposite of {a} is {b}."


def _sum(r: random.Random) -> Pair:
    a, b = r.randint(2, 60), r.randint(2, 40)
    kind = r.choice(("plus", "minus", "times"))
    if kind == "times":
        a, b = a % 12 + 2, b % 12 + 2
    value = {"plus": a + b, "minus": a - b, "times": a * b}[kind]
    return f"What is {a} {kind} {b}?", f"{a} {kind} {b} is {value}."


def _unit(r: random.Random) -> Pair:
    one, many, factor = r.choice(UNITS)
    n = r.randint(1, 9)
    plural = one if n == 1 else f"{one}s" if one != "dozen" else one
    return (
        f"How many {many} are there in {n} {plural}?",
        f"One {one} has {factor} {many}, so {n} {plural} is {n * factor} {many}.",
    )


def _calendar(r: random.Random) -> Pair:
    if r.random() < 0.4:
        i = r.randrange(12)
        return (
            f"How many days does {MONTHS[i]} have?",
            f"{MONTHS[i]} has {MONTH_DAYS[i]} days in a common year.",
        )
    names = r.choice((DAYS, MONTHS))
    i = r.randrange(len(names))
    return (
        f"What comes after {names[i]}?",
        f"After {names[i]} comes {names[(i + 1) % len(names)]}.",
    )


def _letter(r: random.Random, glosses: list[Gloss]) -> Pair:
    word = r.choice(glosses)[0]
    return (
        f"With which letter does the word {word} begin, and how long is it?",
        f"The word {word} begins with the letter {word[0]} and has {len(word)} letters.",
    )


def question(r: random.Random, glosses: list[Gloss]) -> Pair:
    """Return one short question and its answer."""
    if r.random() < 0.45:
        return _definition(r, glosses)
    if r.random() < 0.1:
        return _letter(r, glosses)
    simple: tuple[Callable[[random.Random], Pair], ...] = (
        _capital,
        _element,
        _opposite,
        _sum,
        _unit,
        _calendar,
    )
    return r.choice(simple)(r)


def questions(r: random.Random, glosses: list[Gloss]) -> str:
    """Return one document of many questions and answers."""
    pairs = [question(r, glosses) for _ in range(r.randint(12, 30))]
    return "\n\n".join(f"Question: {q}\nAnswer: {a}" for q, a in pairs) + "\n\n"
