"""How many launches adaptive measuring saves on the embedded model, and whether it agrees.

First the published fixed plan is taken as if it had been a race: its recorded launches are
uncovered as the rule asks for them, with its rounds in several orders. Then both plans are
measured, with the prompts of the quick setting. Run with nothing else running: ``make bench``.
Not a test: it prints ratios.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis import gallery, pages, racing, report, series, store, sweep
from analysis.records import Sample
from analysis.spec import SweepSpec
from analysis.stats import LIKE_THESE
from analysis.verdict import TOLERANCE

ORDERS = 24  # of the rounds
RACES = 3  # measured anew


def replayed(recorded: store.Recorded, order: Sequence[int]) -> tuple[int, str]:
    """Return launches and answer of a race over recorded launches, its rounds in an order."""
    stored = recorded.run.spec
    run = replace(recorded.run, spec=stored | {"adaptive": True})
    spec = SweepSpec(depths=tuple(stored["depths"]), adaptive=True, rounds=len(order))
    choose = racing.steer(spec, TOLERANCE, {})
    assert choose is not None
    kept: list[Sample] = []
    launches = 0
    for number, source in enumerate(order):
        chosen = choose(replace(recorded, run=run, samples=tuple(kept)), number)
        if not chosen:
            break
        launches += len(chosen)
        kept += [
            replace(s, round=number)
            for s in recorded.samples
            if s.round == source and s.depth in chosen and s.arm == stored["arm"]
        ]
    return launches, answer(replace(recorded, run=run, samples=tuple(kept)))


def answer(recorded: store.Recorded) -> str:
    """Return the answer for the mix."""
    result = report.sweep_of(recorded)
    return result.verdict(list(result.groups())[-1], LIKE_THESE, TOLERANCE).answer


def main() -> None:
    """Print the launches and the answers of the fixed plan and of races."""
    for name in gallery.names():
        fixed = gallery.machine(name)[0]
        if fixed.run.spec.get("adaptive") or "-quick" in name:
            continue
        rounds = 1 + max(s.round for s in fixed.samples)
        orders = list(itertools.permutations(range(rounds)))
        races = [replayed(fixed, o) for o in orders[:: max(1, len(orders) // ORDERS)]]
        launches = sum(n for n, _ in races) / len(races)
        same = sum(said == answer(fixed) for _, said in races)
        print(
            f"{name}, {len(races)} orders of {rounds} recorded rounds: launches, adaptive / fixed: "
            f"{launches / len(fixed.launches):.2f} (at most "
            f"{max(n for n, _ in races) / len(fixed.launches):.2f}); the same answer for the mix "
            f"in {same} of {len(races)}"
        )
    page = pages.page_parameters("depth_sweep", dict(series.QUICK["depth_sweep"]))
    found: list[tuple[int, str]] = []  # launches and answer
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1 + RACES):
            spec = replace(page.spec, adaptive=number > 0)
            steer = racing.steer(spec, page.tolerance, page.mix)
            recorded = sweep.measure(
                spec, machine_name=f"run-{number}", folder=Path(folder), steer=steer
            )
            found.append((len(recorded.launches), answer(recorded)))
            plan = "adaptive" if number else "fixed"
            print(f"{plan}, measured: {found[-1][0]} launches, answer {found[-1][1]}")
    plan_of_all, *measured = found
    ratios = ", ".join(f"{n / plan_of_all[0]:.2f}" for n, _ in measured)
    same = sum(said == plan_of_all[1] for _, said in measured)
    print(
        f"launches, adaptive / fixed, measured: {ratios}; the same answer in {same} of "
        f"{len(measured)}"
    )


if __name__ == "__main__":
    main()
