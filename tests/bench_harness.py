"""What the harness itself costs: the server's own decode time against the client's clock.

Run with nothing else running: ``make bench``. A request of more than a second is timed by both; the
client's time less the prompt pass should differ by under 2%. Not a test: it prints ratios.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from analysis import model
from analysis.engines import binary
from analysis.launch import Bench
from analysis.spec import SweepSpec

REPEATS, TOKENS = 5, 3000


def main() -> None:
    """Print client / server decode time at depths 0, 2 and 5."""
    spec = SweepSpec(workloads=("short",), context=8192, threads=2)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(spec, binary.probe(), model.embedded_path(), (), "bench", Path(folder))
        for depth in (0, 2, 5):
            with bench.engine(depth, f"depth{depth}") as server:
                prompt = server.tokenize("def add(a, b):\n    return")
                settings = {"n_predict": TOKENS, "ignore_eos": True, "seed": 1}
                server.complete(prompt, **settings)
                ratios, seconds = [], []
                for _ in range(REPEATS):
                    began = time.perf_counter()
                    timings = server.complete(prompt, **settings)["timings"]
                    client_ms = (time.perf_counter() - began) * 1e3 - timings["prompt_ms"]
                    ratios.append(client_ms / timings["predicted_ms"])
                    seconds.append(timings["predicted_ms"] / 1e3)
            print(
                f"depth {depth}: client / server decode time, median "
                f"{statistics.median(ratios):.4f} "
                f"(from {min(ratios):.4f} to {max(ratios):.4f}), requests of "
                f"{min(seconds):.1f} s to {max(seconds):.1f} s"
            )


if __name__ == "__main__":
    main()
