"""How many launches adaptive measuring saves on the embedded model, and whether it agrees.

Run with nothing else running: ``make bench``. Both plans are measured for real, with the prompts of
the quick setting. Not a test: it prints a ratio.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from analysis import pages, racing, report, series, store, sweep
from analysis.stats import LIKE_THESE


def main() -> None:
    """Print the launches and the answer of the fixed plan and of a race."""
    page = pages.page_parameters("depth_sweep", dict(series.QUICK["depth_sweep"]))
    found: dict[bool, store.Recorded] = {}
    with tempfile.TemporaryDirectory() as folder:
        for adaptive in (False, True):
            spec = replace(page.spec, adaptive=adaptive)
            steer = racing.steer(spec, page.tolerance, page.mix)
            found[adaptive] = sweep.measure(spec, folder=Path(folder), steer=steer)
    for adaptive, recorded in found.items():
        result = report.sweep_of(recorded)
        said = ", ".join(
            f"{name} {result.verdict(name, LIKE_THESE, page.tolerance).answer}"
            for name in result.groups()
        )
        plan = "adaptive" if adaptive else "fixed"
        print(f"{plan}: {len(recorded.launches)} launches; depth, {LIKE_THESE}: {said}")
    ratio = len(found[True].launches) / len(found[False].launches)
    print(f"launches, adaptive / fixed: {ratio:.2f}")


if __name__ == "__main__":
    main()
