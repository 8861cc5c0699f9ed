"""Made-up problems that are solved step by step.

Drawn from a seeded generator, so the same seed gives the same text.
"""

from __future__ import annotations

import random

from models.words import DAYS, NAMES, PLACES, THINGS

Solved = tuple[str, list[str], str]


def _shop(r: random.Random) -> Solved:
    name, thing, place = r.choice(NAMES), r.choice(THINGS), r.choice(PLACES)
    n, price, paid = r.randint(3, 12), r.randint(2, 9), 0
    cost = n * price
    paid = (cost // 20 + 1) * 20
    text = (
        f"{name} buys {n} {thing} at the {place}. Each of the {thing} costs {price} coins. "
        f"{name} pays with {paid} coins. How many coins does {name} get back?"
    )
    return (
        text,
        [
            f"{name} buys {n} {thing} and each costs {price} coins.",
            f"The {thing} cost {n} times {price}, which is {cost} coins.",
            f"{name} pays {paid} coins, so we take {cost} away from {paid}.",
            f"{paid} minus {cost} is {paid - cost}.",
        ],
        f"{name} gets {paid - cost} coins back.",
    )


def _share(r: random.Random) -> Solved:
    (a, b, c), thing = r.sample(NAMES, 3), r.choice(THINGS)
    each, first = r.randint(3, 12), r.randint(2, 9)
    total, second = each * 3, 0
    second = total - first - 1 if first < total - 1 else 1
    third = total - first - second
    text = (
        f"{a} has {first} {thing}, {b} has {second} {thing} and {c} has {third}. They put all "
        f"the {thing} together and share them equally. How many {thing} does each get?"
    )
    return (
        text,
        [
            f"First we count all the {thing}.",
            f"{a} and {b} together have {first} plus {second}, which is {first + second} {thing}.",
            f"With those of {c} there are {first + second} plus {third}, which is {total} {thing}.",
            f"There are three people, so we divide {total} by 3.",
            f"{total} divided by 3 is {each}.",
        ],
        f"Each of them gets {each} {thing}.",
    )


def _journey(r: random.Random) -> Solved:
    name, (start, end) = r.choice(NAMES), r.sample(PLACES, 2)
    speed, hours, rest = r.randint(3, 15), r.randint(2, 6), r.randint(1, 3)
    way = speed * hours
    text = (
        f"{name} travels from the {start} to the {end}, which is {way} kilometres away, at "
        f"{speed} kilometres an hour, and rests for {rest} hours on the way. "
        f"How many hours does the journey take?"
    )
    return (
        text,
        [
            f"The way from the {start} to the {end} is {way} kilometres long.",
            f"{name} moves at {speed} kilometres an hour, so we divide {way} by {speed}.",
            f"{way} divided by {speed} is {hours}, so {name} is moving for {hours} hours.",
            f"{name} also rests for {rest} hours.",
            f"{hours} plus {rest} is {hours + rest}.",
        ],
        f"The journey takes {hours + rest} hours.",
    )


def _ages(r: random.Random) -> Solved:
    a, b = r.sample(NAMES, 2)
    young, gap, later = r.randint(4, 30), r.randint(2, 15), r.randint(2, 12)
    text = (
        f"{a} is {young} years old. {b} is {gap} years older than {a}. "
        f"How old are both of them together in {later} years?"
    )
    x, y = young + later, young + gap + later
    return (
        text,
        [
            f"{a} is {young} years old now.",
            (
                f"{b} is {gap} years older, so {b} is {young} plus {gap}, "
                f"which is {young + gap} years old."
            ),
            f"In {later} years {a} is {young} plus {later}, which is {x} years old.",
            f"In {later} years {b} is {young + gap} plus {later}, which is {y} years old.",
            f"Together they are {x} plus {y}, which is {x + y}.",
        ],
        f"Together they are {x + y} years old.",
    )


def _days(r: random.Random) -> Solved:
    name, day, n = r.choice(NAMES), r.randrange(7), r.randint(8, 30)
    weeks, rest = divmod(n, 7)
    end = DAYS[(day + rest) % 7]
    text = f"Today is {DAYS[day]}. {name} leaves in {n} days. On which day does {name} leave?"
    return (
        text,
        [
            "A week has 7 days, and after a whole week the day is the same again.",
            f"{n} days are {weeks} weeks and {rest} days.",
            f"So we count {rest} days on from {DAYS[day]}.",
            f"{rest} days after {DAYS[day]} comes {end}.",
        ],
        f"{name} leaves on {end}.",
    )


def _order(r: random.Random) -> Solved:
    a, b, c, d = r.sample(NAMES, 4)
    word, most = r.choice(
        (
            ("taller", "tallest"),
            ("older", "oldest"),
            ("faster", "fastest"),
            ("stronger", "strongest"),
        )
    )
    facts = [f"{a} is {word} than {b}.", f"{b} is {word} than {c}.", f"{c} is {word} than {d}."]
    shown = r.sample(facts, 3)
    return (
        f"{' '.join(shown)} Who is the {most}?",
        [
            f"We know that {facts[0][:-1]}, so {b} is not the {most}.",
            f"We know that {facts[1][:-1]}, so {c} is not the {most}.",
            f"We know that {facts[2][:-1]}, so {d} is not the {most}.",
            f"In order they are {a}, {b}, {c} and {d}.",
        ],
        f"{a} is the {most}.",
    )


def _garden(r: random.Random) -> Solved:
    name, place, long, wide = r.choice(NAMES), r.choice(PLACES), r.randint(4, 20), r.randint(2, 12)
    text = (
        f"{name} builds a fence around a field behind the {place}. The field is {long} metres "
        f"long and {wide} metres wide. How long is the fence, and how large is the field?"
    )
    return (
        text,
        [
            f"The field has two sides of {long} metres and two sides of {wide} metres.",
            f"Two times {long} is {2 * long}, and two times {wide} is {2 * wide}.",
            f"The fence is {2 * long} plus {2 * wide}, which is {2 * (long + wide)} metres long.",
            f"The field is {long} times {wide}, which is {long * wide} square metres large.",
        ],
        (
            f"The fence is {2 * (long + wide)} metres long "
            f"and the field has {long * wide} square metres."
        ),
    )


TEMPLATES = (_shop, _share, _journey, _ages, _days, _order, _garden)


def problem(r: random.Random) -> tuple[str, str]:
    """Return one problem (with its request) and its solution, step by step."""
    text, steps, result = r.choice(TEMPLATES)(r)
    lines = [f"Step {i}: {step}" for i, step in enumerate(steps, 1)]
    ask = f"Problem: {text}\nReason step by step, and number the steps."
    return ask, "\n".join(["Solution:", *lines, f"Result: {result}"])


def problems(r: random.Random) -> str:
    """Return one document of several solved problems."""
    return "\n\n".join("\n".join(problem(r)) for _ in range(r.randint(6, 14))) + "\n\n"
