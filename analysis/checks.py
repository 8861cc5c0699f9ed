"""Warnings with advice: nothing is trimmed, everything doubtful is named."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis import lossless, quotes, shape_file, shape_models
from analysis.markup import escaped
from analysis.report import Sweep
from analysis.speculation import MIN_TOKENS_FOR_SPEED, ends_inside_draft

BUSY_SHARE = 0.05  # of the machine's processor time
CLOCK_DROP = 0.10
UNSTABLE_SPREAD = 0.05  # relative standard deviation of a cell's rounds
NAMED_CELLS = 3  # of the unstable ones
LOOPING, LOOP_TOKENS = 0.3, 64  # share of distinct runs of four tokens; shortest text judged
PUBLISHED_ROUNDS, PUBLISHED_PROMPTS, PUBLISHED_LONG = 5, 8, 4
PUBLISHED_LONG_TOKENS = 16384


def warnings(sweep: Sweep, *, whole: bool = True) -> list[str]:
    """Return what a reader must know before believing the numbers, most serious first.

    With `whole` false the run is no depth sweep: it is not held against the protocol of one, whose
    page also gives the speeds over shared tokens.
    """
    given = _given(sweep)
    found = [
        *given,
        *_failures(sweep),
        *incomplete(sweep),
        *busy(sweep),
        *_clock(sweep),
        *_unstable(sweep),
        *_short(sweep),
        *_cut_drafts(sweep),
        *([] if given else _texts(sweep, whole=whole)),
        *([] if given else _loops(sweep)),
        *(_quick(sweep) if whole else _single(sweep)),
    ]
    return found + [escaped(text) for text in sweep.recorded.notes]


def lacking(sweep: Sweep) -> list[str]:
    """Return what failed or is not there of what a run was asked for."""
    return [*_failures(sweep), *incomplete(sweep)]


def listed(runs: Mapping[str, Sweep | None]) -> str:
    """Return the warnings of a page's runs of arms as a Markdown list, each with its run's name."""
    found: dict[str, list[str]] = {}
    for name, sweep in runs.items():
        for text in warnings(sweep, whole=False) if sweep is not None else ():
            found.setdefault(text, []).append(name)
    return "\n".join(f"- {', '.join(names)}: {text}" for text, names in found.items()) or "None."


def _given(sweep: Sweep) -> list[str]:
    """Warn that acceptance was not measured, or that there are no weights to measure it with."""
    spec = sweep.recorded.run.spec
    rates = tuple(spec["synthetic_rates"]) if spec["arm"] == "synthetic" else ()
    found = []
    if rates:
        source = ""
        if rates == quotes.public_rates(len(rates)):
            source = f", which is the acceptance of {quotes.rates_source()}"
        by_position = escaped(", ".join(map(str, rates)))
        found.append(
            f"Acceptance was given, not measured: {by_position} by position{source}. Speeds "
            "follow from it and from the step times, which are measured, as memory and placement "
            "are; the text means nothing."
        )
    if shape_models.named(spec["model"]):
        found.append(_without_weights(spec["model"]))
    return found


def _without_weights(name: str) -> str:
    said = f"The model is a shape without weights ({name}): its text means nothing"
    if shape_models.parse(name).contents == shape_file.RANDOM:
        return f"{said}; its contents are random numbers."
    return (
        f"{said}, and its zeros can draw less power on a graphics card than weights do, which then "
        "runs at higher clocks (a smaller shape can be filled: NAME:QUANTIZATION:random)."
    )


def _failures(sweep: Sweep) -> list[str]:
    rivals = set(sweep.recorded.run.spec.get("more_drafters", ()))
    own = rivals & set(sweep.timed["arm"])  # where the sweep is that of one of several drafters
    failed = [
        s for s in sweep.recorded.samples
        if s.error is not None and (s.depth == 0 or (s.arm in own if own else s.arm not in rivals))
    ]  # fmt: skip
    by_depth: dict[int, list[str]] = {}
    for s in failed:
        by_depth.setdefault(s.depth, []).append(str(s.error))
    return [
        f"Depth {d}: {len(errors)} requests failed, the last with: {escaped(errors[-1][:300])}"
        for d, errors in sorted(by_depth.items())
    ]


def _rounds(sweep: Sweep) -> int:
    """Return how many rounds there are; a run may have been extended since it began."""
    return int(sweep.timed["round"].max()) + 1


def _launched(sweep: Sweep) -> int:
    """Return how many launches there are; one that was made again counts once."""
    return len({(x.round, x.depth) for x in sweep.recorded.launches})


def incomplete(sweep: Sweep) -> list[str]:
    """Warn of requests that are planned and not there, and of depths that share no round."""
    spec = sweep.recorded.run.spec
    prompts = sum(
        spec["long_prompts"] if w == "long" else spec["prompts"] for w in spec["workloads"]
    )
    rounds = max(_rounds(sweep), spec["rounds"])
    planned = _launched(sweep) if spec.get("adaptive") else len(spec["depths"]) * rounds
    wanted = prompts * planned
    got = len(sweep.timed)
    found = []
    if got < wanted:
        found.append(
            f"{got} of {wanted} requests are there: run the notebook again to measure the rest."
        )
    for name in sweep.groups():
        out = sorted(
            {d for d in sweep.depths if sweep.has_speed(name, d)} - set(sweep.comparable(name))
        )
        if out:
            found.append(
                f"{name}: depth {', '.join(map(str, out))} shares no round with the others and is "
                "left out of the verdict."
            )
    return found


def busy(sweep: Sweep) -> list[str]:
    """Warn of other work; a launch's share, or the share of its requests where it broke off."""
    shares = {x.launch: x.others_cpu for x in sweep.recorded.launches}
    for launch, share in sweep.timed.groupby("launch")["others_cpu"].median().items():
        shares[str(launch)] = max(shares.get(str(launch), 0.0), float(share))
    busy = [share for share in shares.values() if share > BUSY_SHARE]
    if not busy:
        return []
    return [
        f"Other work took more than {BUSY_SHARE:.0%} of the processors during {len(busy)} of "
        f"{len(shares)} launches ({max(busy):.0%} at worst): stop it and measure into a new folder."
    ]


def _clock(sweep: Sweep) -> list[str]:
    timed = sweep.timed.dropna(subset=["clock_before_mhz", "clock_after_mhz"])
    if timed.empty:
        return []
    top = max(timed["clock_before_mhz"].max(), timed["clock_after_mhz"].max())
    slow = timed[timed["clock_after_mhz"] < (1 - CLOCK_DROP) * top]
    # An idle GPU lowers its clock between requests; only a general drop is a throttle.
    if len(slow) < len(timed) / 2:
        return []
    return [
        f"The clock fell more than {CLOCK_DROP:.0%} below its top ({top:.0f} MHz) in {len(slow)} "
        f"of {len(timed)} requests: check cooling and power cap."
    ]


def _unstable(sweep: Sweep) -> list[str]:
    found: dict[str, float] = {}
    cells = 0
    for workload in sweep.workloads:
        for depth in sweep.depths:
            logs = np.log(sweep.table("tok_s", workload, depth))
            logs = logs[~np.isnan(logs).all(axis=1)]
            if len(logs) < 2:
                continue
            cells += 1
            spread = float(np.nanmean(logs, axis=1).std(ddof=1))
            if spread > UNSTABLE_SPREAD:
                found[f"{workload} at depth {depth}"] = spread
    if not found:
        return []
    worst = sorted(found.items(), key=lambda item: item[1], reverse=True)[:NAMED_CELLS]
    where = ", ".join(f"{name} ({spread:.0%})" for name, spread in worst)
    if len(found) > NAMED_CELLS:
        where = f"in {len(found)} of {cells} cells, most of all {where}"
    return [
        f"Speeds of the same prompts vary by more than {UNSTABLE_SPREAD:.0%} between launches: "
        f"{where}. The intervals hold this; more rounds would narrow them."
        + (
            " Ratios of depths vary less: their requests took turns."
            if sweep.recorded.run.spec.get("in_turns")
            else ""
        )
    ]


def _short(sweep: Sweep) -> list[str]:
    short = sweep.timed[sweep.timed["tok_s"].isna()]
    if short.empty:
        return []
    which = sorted(set(short["workload"] + "/" + short["prompt_id"]))
    silent = sorted(set(short["workload"]) - set(sweep.workloads))
    return [
        f"The workload {escaped(w)} has no speed at all, since its texts end too early: it is left "
        "out."
        for w in silent
    ] + [
        f"{len(short)} of {len(sweep.timed)} requests ended before {MIN_TOKENS_FOR_SPEED} tokens "
        f"and give no speed: {escaped(', '.join(which))}."
    ]


def _cut_drafts(sweep: Sweep) -> list[str]:
    count = int(ends_inside_draft(sweep.timed).sum())
    if not count:
        return []
    return [
        f"{count} of {len(sweep.timed)} requests ended inside an accepted draft: their tokens per "
        "step are too high by a part of one step."
    ]


def _texts(sweep: Sweep, *, whole: bool) -> list[str]:
    spec = sweep.recorded.run.spec
    timed = lossless.pairs(sweep.recorded, spec["temperature"])
    parted = [(a, b) for a, b in timed if lossless.first_difference(a.tokens, b.tokens) is not None]
    if not parted:
        return []
    return [
        f"In {len(parted)} of {len(timed)} comparisons the timed text parts from that of depth 0: "
        "there the speeds are of different texts"
        + ("; the page also gives them over the shared tokens." if whole else ".")
    ]


def _loops(sweep: Sweep) -> list[str]:
    """Warn of texts that repeat themselves: they are easy to guess and stand for no real work."""
    long_enough = sweep.timed["tokens"].map(len) >= LOOP_TOKENS
    texts = sweep.timed[(sweep.timed["depth"] == 0) & long_enough]
    texts = texts[texts["round"] == texts["round"].min()]
    names = [
        f"{w}/{p}"
        for w, p, tokens in zip(texts["workload"], texts["prompt_id"], texts["tokens"], strict=True)
        if lossless.distinct(tokens) < LOOPING
    ]
    if not names:
        return []
    return [
        f"{len(names)} of {len(texts)} texts repeat themselves (less than {LOOPING:.0%} of their "
        "runs of four tokens are different), which makes them easy to guess: "
        f"{escaped(', '.join(names))}."
    ]


def _single(sweep: Sweep) -> list[str]:
    if _rounds(sweep) > 1:
        return []
    return ["One launch a depth: nothing here has an interval, and no difference is shown."]


def _quick(sweep: Sweep) -> list[str]:
    spec = sweep.recorded.run.spec
    fewer = []
    if not spec.get("adaptive") and _rounds(sweep) < PUBLISHED_ROUNDS:
        fewer.append(f"{_rounds(sweep)} launches a depth instead of {PUBLISHED_ROUNDS}")
    if set(spec["workloads"]) - {"long"} and spec["prompts"] < PUBLISHED_PROMPTS:
        fewer.append(f"{spec['prompts']} prompts a workload instead of {PUBLISHED_PROMPTS}")
    if "long" in spec["workloads"] and spec["long_prompts"] < PUBLISHED_LONG:
        fewer.append(f"{spec['long_prompts']} long prompts instead of {PUBLISHED_LONG}")
    if "long" in spec["workloads"] and spec["long_prompt_tokens"] < PUBLISHED_LONG_TOKENS:
        fewer.append(
            f"long prompts of {spec['long_prompt_tokens']:,} tokens instead of "
            f"{PUBLISHED_LONG_TOKENS:,}"
        )
    if spec["lossless_prompts"] == 0 and not _given(sweep):
        fewer.append("no greedy texts compared")
    said = [f"A quick run: {', '.join(fewer)}. Intervals are wider."] if fewer else []
    if spec.get("adaptive"):
        said.append(
            "Launches were made only where the verdict of the mix needed them: "
            f"{_launched(sweep)} of at most {len(spec['depths']) * spec['rounds']}."
        )
    return said
