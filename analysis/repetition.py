"""Where n-gram drafting shines: what a step gives against how much a text repeats itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats as scipy_stats

from analysis import drafters, lossless, speculation
from analysis.drafters import Comparison
from analysis.markup import escaped
from analysis.tables import number

RUN = 4  # tokens
# It keeps what earlier requests said: the sampled text of the same prompt before a greedy one.
REMEMBERS = "ngram-mod"


def ngrams(found: Comparison) -> list[str]:
    """Return the drafters that look up what the text has said."""
    return [d for d in found.drafters if drafters.is_ngram(d)]


def points(found: Comparison, drafter: str) -> pd.DataFrame:
    """Return one row a text at the deepest depth: what it repeats, and what drafting gave it.

    Columns ``workload``, ``prompt_id``, ``temperature``, ``repeated`` (the share of runs of
    :data:`RUN` tokens that the text had before), ``tokens_per_step`` and ``ratio`` (of its speed to
    that without drafting), ``drafted`` (tokens a request); means over the rounds, geometric for the
    ratio. The greedy requests of the lossless check count too, since they repeat themselves most,
    but for a drafter that remembers the sampled text of the same prompt.
    """
    recorded = found.base.recorded
    frame, spec = recorded.frame(), recorded.run.spec
    keys = ["workload", "prompt_id", "round"]
    parts = []
    greedy = set() if drafter == REMEMBERS else {0.0}
    for temperature in sorted({spec["temperature"], *greedy}):
        natural = speculation.timed(frame, temperature, spec["arm"])
        zero = natural[natural["depth"] == 0].set_index(keys)["tok_s"].rename("base")
        own = speculation.timed(frame, temperature, drafter).join(zero, on=keys)
        own = own[own["depth"] == max(found.drafters[drafter].depths)]
        own["ratio"] = np.log(own["tok_s"] / own["base"])
        own["drafted"] = own["draft_n"].fillna(0).astype(float)
        own["repeated"] = [1 - lossless.distinct(tokens, RUN) for tokens in own["tokens"]]
        parts.append(own.dropna(subset=["ratio"]))
    every = pd.concat(parts, ignore_index=True)
    by_text = every.groupby(["workload", "prompt_id", "temperature"], as_index=False)
    table = by_text[["repeated", "tokens_per_step", "ratio", "drafted"]].mean()
    table["ratio"] = np.exp(table["ratio"])
    return table


def rank_correlation(texts: pd.DataFrame) -> tuple[float, float, float]:
    """Return Spearman's rank correlation of tokens per step with repetition, and its 95% interval.

    By Fisher's transformation with the variance of Bonett and Wright (2000); texts are the units.
    A drafter that never drafts has none.
    """
    n = len(texts)
    if n < 5 or texts["repeated"].nunique() < 2 or texts["tokens_per_step"].nunique() < 2:
        return float("nan"), float("nan"), float("nan")
    rho = float(scipy_stats.spearmanr(texts["repeated"], texts["tokens_per_step"]).statistic)
    half = 1.96 * np.sqrt((1 + rho**2 / 2) / (n - 3))
    low, high = np.tanh(np.arctanh(np.clip(rho, -0.999999, 0.999999)) + np.array([-half, half]))
    return rho, float(low), float(high)


def table(found: Comparison) -> pd.DataFrame:
    """Return what each n-gram drafter gave at its deepest depth, and to the text it gave most."""
    rows = {}
    for drafter in ngrams(found):
        own = points(found, drafter)
        if own.empty:
            continue
        best = own.sort_values("tokens_per_step").to_dict("records")[-1]
        rows[drafters.name(drafter)] = {
            "depth": max(found.drafters[drafter].depths),
            "texts": len(own),
            "it drafted for": int((own["drafted"] > 0).sum()),
            "rank correlation with repetition": _correlation(*rank_correlation(own)),
            "most tokens a step": f"{best['tokens_per_step']:.2f}",
            "in": f"{best['workload']}/{best['prompt_id']}, T = {best['temperature']:g}",
            "that repeats": f"{best['repeated']:.0%}",
            "speed over no drafting there": f"{best['ratio']:.2f}",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("drafter")


def _correlation(rho: float, low: float, high: float) -> str:
    if not np.isfinite(rho):
        return "–"
    half = (high - low) / 2
    return f"{number(rho, half)} [{number(low, half)}, {number(high, half)}]"


def sentence(found: Comparison) -> str:
    """Return whether n-gram drafting gains with repetition, in one sentence of Markdown."""
    return escaped(finding(found))


def finding(found: Comparison) -> str:
    """Return whether n-gram drafting gains with repetition, in one sentence without any marks."""
    said = []
    for drafter in ngrams(found):
        own = points(found, drafter)
        rho, low, high = rank_correlation(own)
        if not np.isfinite(rho):
            continue
        how = "rises with" if low > 0 else "falls with" if high < 0 else "is not told apart by"
        best = own.sort_values("tokens_per_step").to_dict("records")[-1]
        said.append(
            f"with {drafters.name(drafter)} it {how} repetition "
            f"({_correlation(rho, low, high)}), up to {best['tokens_per_step']:.1f} tokens a step "
            "in a text that repeats "
            f"{best['repeated']:.0%} of itself"
        )
    if not said:
        return "No n-gram drafter was measured on enough texts to tell what repetition does for it."
    return (
        f"What a step gives by n-gram drafting, text by text (rank correlation): {'; '.join(said)}."
    )
