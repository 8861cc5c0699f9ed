"""Made-up text: short questions with answers, and problems solved step by step.

Everything is drawn from one seeded generator, so the same seed gives the same text. Questions about
words come from WordNet's glosses; the rest is facts, sums and templates written here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

NAMES = (
    "Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Maria Nora Oscar Paul Quentin "
    "Rosa Sam Tara Uma Victor Wendy Yusuf Zoe Adam Bella Carlos Dina Erik Fatima George Hana Ivan"
).split()
THINGS = (
    "apples pears books pencils marbles stamps coins cards tickets oranges lemons shells stones "
    "candles buttons bottles plates cups chairs lamps roses tulips eggs loaves cakes maps keys"
).split()
PLACES = (
    "market,library,school,harbour,station,garden,bakery,museum,farm,workshop,office,village,"
    "castle,mill,bridge,tower,theatre,park,forest,river"
).split(",")
CAPITALS = dict(
    pair.split(":")
    for pair in (
        "France:Paris,Germany:Berlin,Italy:Rome,Spain:Madrid,Portugal:Lisbon,Austria:Vienna,"
        "Greece:Athens,Poland:Warsaw,Sweden:Stockholm,Norway:Oslo,Finland:Helsinki,Denmark:"
        "Copenhagen,Ireland:Dublin,Iceland:Reykjavik,Hungary:Budapest,Romania:Bucharest,Bulgaria:"
        "Sofia,Croatia:Zagreb,Serbia:Belgrade,Ukraine:Kyiv,Turkey:Ankara,Egypt:Cairo,Kenya:Nairobi,"
        "Ghana:Accra,Ethiopia:Addis Ababa,Morocco:Rabat,Algeria:Algiers,Tunisia:Tunis,India:New "
        "Delhi,China:Beijing,Japan:Tokyo,Thailand:Bangkok,Vietnam:Hanoi,Iran:Tehran,Iraq:Baghdad,"
        "Nepal:Kathmandu,Cuba:Havana,Peru:Lima,Chile:Santiago,Brazil:Brasilia,Colombia:Bogota,"
        "Ecuador:Quito,Uruguay:Montevideo,Canada:Ottawa,Mexico:Mexico City,Australia:Canberra"
    ).split(",")
)
ELEMENTS = dict(
    pair.split(":")
    for pair in (
        "hydrogen:H,helium:He,lithium:Li,carbon:C,nitrogen:N,oxygen:O,fluorine:F,neon:Ne,sodium:Na,"
        "magnesium:Mg,aluminium:Al,silicon:Si,phosphorus:P,sulfur:S,chlorine:Cl,argon:Ar,potassium:"
        "K,calcium:Ca,iron:Fe,nickel:Ni,copper:Cu,zinc:Zn,silver:Ag,tin:Sn,iodine:I,gold:Au,"
        "mercury:Hg,lead:Pb,uranium:U"
    ).split(",")
)
OPPOSITES = dict(
    pair.split(":")
    for pair in (
        "hot:cold,big:small,fast:slow,early:late,light:dark,high:low,open:closed,empty:full,wet:dry,"
        "hard:soft,old:young,rich:poor,strong:weak,loud:quiet,clean:dirty,deep:shallow,sharp:blunt,"
        "narrow:wide,heavy:light,sweet:sour,near:far,first:last,rough:smooth,thick:thin"
    ).split(",")
)
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()
MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
UNITS = (
    ("kilometre", "metres", 1000), ("metre", "centimetres", 100), ("hour", "minutes", 60),
    ("minute", "seconds", 60), ("kilogram", "grams", 1000), ("day", "hours", 24),
    ("week", "days", 7), ("litre", "millilitres", 1000), ("dozen", "pieces", 12),
)  # fmt: skip

Pair = tuple[str, str]


def load_glosses(trees: Path) -> list[tuple[str, str, str]]:
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


def _definition(r: random.Random, glosses: list[tuple[str, str, str]]) -> Pair:
    word, kind, meaning = r.choice(glosses)
    article = "an" if kind == "adjective" else "a"
    asks = (f"What does the word {word} mean?", f"What is the meaning of {word}?",
            f"How would you explain the {kind} {word}?")  # fmt: skip
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
    return (f"How many {many} are there in {n} {plural}?",
            f"One {one} has {factor} {many}, so {n} {plural} is {n * factor} {many}.")  # fmt: skip


def _calendar(r: random.Random) -> Pair:
    if r.random() < 0.4:
        i = r.randrange(12)
        return (f"How many days does {MONTHS[i]} have?",
                f"{MONTHS[i]} has {MONTH_DAYS[i]} days in a common year.")  # fmt: skip
    names = r.choice((DAYS, MONTHS))
    i = r.randrange(len(names))
    return (f"What comes after {names[i]}?",
            f"After {names[i]} comes {names[(i + 1) % len(names)]}.")  # fmt: skip


def _letter(r: random.Random, glosses: list[tuple[str, str, str]]) -> Pair:
    word = r.choice(glosses)[0]
    return (f"With which letter does the word {word} begin, and how long is it?",
            f"The word {word} begins with the letter {word[0]} and has {len(word)} letters.")  # fmt: skip


def question(r: random.Random, glosses: list[tuple[str, str, str]]) -> Pair:
    """Return one short question and its answer."""
    if r.random() < 0.45:
        return _definition(r, glosses)
    if r.random() < 0.1:
        return _letter(r, glosses)
    simple: tuple[Callable[[random.Random], Pair], ...] = (
        _capital, _element, _opposite, _sum, _unit, _calendar)  # fmt: skip
    return r.choice(simple)(r)


def questions(r: random.Random, glosses: list[tuple[str, str, str]]) -> str:
    """Return one document of many questions and answers."""
    pairs = [question(r, glosses) for _ in range(r.randint(12, 30))]
    return "\n\n".join(f"Question: {q}\nAnswer: {a}" for q, a in pairs) + "\n\n"


def _shop(r: random.Random) -> tuple[str, list[str], str]:
    name, thing, place = r.choice(NAMES), r.choice(THINGS), r.choice(PLACES)
    n, price, paid = r.randint(3, 12), r.randint(2, 9), 0
    cost = n * price
    paid = (cost // 20 + 1) * 20
    text = (f"{name} buys {n} {thing} at the {place}. Each of the {thing} costs {price} coins. "
            f"{name} pays with {paid} coins. How many coins does {name} get back?")  # fmt: skip
    return text, [
        f"{name} buys {n} {thing} and each costs {price} coins.",
        f"The {thing} cost {n} times {price}, which is {cost} coins.",
        f"{name} pays {paid} coins, so we take {cost} away from {paid}.",
        f"{paid} minus {cost} is {paid - cost}.",
    ], f"{name} gets {paid - cost} coins back."


def _share(r: random.Random) -> tuple[str, list[str], str]:
    (a, b, c), thing = r.sample(NAMES, 3), r.choice(THINGS)
    each, first = r.randint(3, 12), r.randint(2, 9)
    total, second = each * 3, 0
    second = total - first - 1 if first < total - 1 else 1
    third = total - first - second
    text = (f"{a} has {first} {thing}, {b} has {second} {thing} and {c} has {third}. They put all "
            f"the {thing} together and share them equally. How many {thing} does each get?")  # fmt: skip
    return text, [
        f"First we count all the {thing}.",
        f"{a} and {b} together have {first} plus {second}, which is {first + second} {thing}.",
        f"With those of {c} there are {first + second} plus {third}, which is {total} {thing}.",
        f"There are three people, so we divide {total} by 3.",
        f"{total} divided by 3 is {each}.",
    ], f"Each of them gets {each} {thing}."


def _journey(r: random.Random) -> tuple[str, list[str], str]:
    name, (start, end) = r.choice(NAMES), r.sample(PLACES, 2)
    speed, hours, rest = r.randint(3, 15), r.randint(2, 6), r.randint(1, 3)
    way = speed * hours
    text = (f"{name} travels from the {start} to the {end}, which is {way} kilometres away, at "
            f"{speed} kilometres an hour, and rests for {rest} hours on the way. "
            f"How many hours does the journey take?")  # fmt: skip
    return text, [
        f"The way from the {start} to the {end} is {way} kilometres long.",
        f"{name} moves at {speed} kilometres an hour, so we divide {way} by {speed}.",
        f"{way} divided by {speed} is {hours}, so {name} is moving for {hours} hours.",
        f"{name} also rests for {rest} hours.",
        f"{hours} plus {rest} is {hours + rest}.",
    ], f"The journey takes {hours + rest} hours."


def _ages(r: random.Random) -> tuple[str, list[str], str]:
    a, b = r.sample(NAMES, 2)
    young, gap, later = r.randint(4, 30), r.randint(2, 15), r.randint(2, 12)
    text = (f"{a} is {young} years old. {b} is {gap} years older than {a}. "
            f"How old are both of them together in {later} years?")  # fmt: skip
    x, y = young + later, young + gap + later
    return text, [
        f"{a} is {young} years old now.",
        f"{b} is {gap} years older, so {b} is {young} plus {gap}, which is {young + gap} years old.",
        f"In {later} years {a} is {young} plus {later}, which is {x} years old.",
        f"In {later} years {b} is {young + gap} plus {later}, which is {y} years old.",
        f"Together they are {x} plus {y}, which is {x + y}.",
    ], f"Together they are {x + y} years old."


def _days(r: random.Random) -> tuple[str, list[str], str]:
    name, day, n = r.choice(NAMES), r.randrange(7), r.randint(8, 30)
    weeks, rest = divmod(n, 7)
    end = DAYS[(day + rest) % 7]
    text = f"Today is {DAYS[day]}. {name} leaves in {n} days. On which day does {name} leave?"
    return text, [
        "A week has 7 days, and after a whole week the day is the same again.",
        f"{n} days are {weeks} weeks and {rest} days.",
        f"So we count {rest} days on from {DAYS[day]}.",
        f"{rest} days after {DAYS[day]} comes {end}.",
    ], f"{name} leaves on {end}."


def _order(r: random.Random) -> tuple[str, list[str], str]:
    a, b, c, d = r.sample(NAMES, 4)
    word, most = r.choice((("taller", "tallest"), ("older", "oldest"), ("faster", "fastest"),
                           ("stronger", "strongest")))  # fmt: skip
    facts = [f"{a} is {word} than {b}.", f"{b} is {word} than {c}.", f"{c} is {word} than {d}."]
    shown = r.sample(facts, 3)
    return f"{' '.join(shown)} Who is the {most}?", [
        f"We know that {facts[0][:-1]}, so {b} is not the {most}.",
        f"We know that {facts[1][:-1]}, so {c} is not the {most}.",
        f"We know that {facts[2][:-1]}, so {d} is not the {most}.",
        f"In order they are {a}, {b}, {c} and {d}.",
    ], f"{a} is the {most}."


def _garden(r: random.Random) -> tuple[str, list[str], str]:
    name, place, long, wide = r.choice(NAMES), r.choice(PLACES), r.randint(4, 20), r.randint(2, 12)
    text = (f"{name} builds a fence around a field behind the {place}. The field is {long} metres "
            f"long and {wide} metres wide. How long is the fence, and how large is the field?")  # fmt: skip
    return text, [
        f"The field has two sides of {long} metres and two sides of {wide} metres.",
        f"Two times {long} is {2 * long}, and two times {wide} is {2 * wide}.",
        f"The fence is {2 * long} plus {2 * wide}, which is {2 * (long + wide)} metres long.",
        f"The field is {long} times {wide}, which is {long * wide} square metres large.",
    ], f"The fence is {2 * (long + wide)} metres long and the field has {long * wide} square metres."


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
