"""A plan on the terminal: its table, and what it says in a sentence."""

from __future__ import annotations

from analysis.planner import Planned
from analysis.terminal import show_rows


def show(made: Planned) -> None:
    """Print a plan as a table, and in a sentence what it says."""
    show_rows(
        [
            {
                "depth": str(r.depth),
                "state": f"{r.state_mib:,.0f}",
                "KV": f"{r.kv_mib:,.0f}",
                "weights": f"{r.weights_mib:,.0f}",
                "compute": f"{r.compute_mib:,.0f}",
                "total": f"{r.total_mib:,.0f}",
                "left": f"{r.left_mib:,.0f}",
                "layers": f"{r.layers_total - r.layers_off_device}/{r.layers_total}",
            }
            for r in made.rows
        ]
    )
    for r in made.rows:
        if r.layers_off_device:
            print(f"depth {r.depth}: {r.off_device} off the device")
    print(f"MiB on the device; by {', '.join(dict.fromkeys(r.basis for r in made.rows))}.")
    print(sentence(made))


def sentence(made: Planned) -> str:
    """Return what a plan says in one sentence."""
    budget = f"{made.pool.memory_mib:,.0f} MiB"
    fitting = [r.depth for r in made.rows if r.fits]
    over = [r.depth for r in made.rows if not r.fits]
    if not over:
        return f"Every depth asked for fits into {budget}."
    if not fitting:
        return f"No depth asked for fits into {budget}: layers leave the device at each."
    first = next(r for r in made.rows if not r.fits)
    return (
        f"Depth {max(fitting)} is the deepest that fits into {budget}; at depth {first.depth}, "
        f"{first.layers_off_device} of {first.layers_total} layers would leave the device."
    )
