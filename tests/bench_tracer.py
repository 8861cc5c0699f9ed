"""What the tracer's Python costs: its decode speed against llama-server's, in turns.

Run with nothing else running: ``make bench``. At every depth both engines decode the same prompts,
one request each in turn; the ratio should be at least 0.85. Not a test: it prints ratios.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

from analysis import model, prompts
from analysis.engines import choose
from analysis.spec import SAMPLING, SweepSpec

REPEATS, PROMPTS = 3, 2


def main() -> None:
    """Print tracer / server decode speed at depths 0 to 5."""
    spec = SweepSpec(workloads=("short", "prose", "code"), context=2048)
    other = replace(spec, engine="tracer")
    path = model.embedded_path()
    settings = {"n_predict": 192, "temperature": spec.temperature, "seed": 1, **SAMPLING}
    with tempfile.TemporaryDirectory() as folder:
        for depth in spec.depths:
            engines = [
                choose.make(choose.probe(s), s, depth, path, Path(folder) / f"{s.engine}.log")
                for s in (spec, other)
            ]
            with engines[0] as server, engines[1] as tracer:
                texts = [p for w in spec.workloads for p in prompts.load(w, PROMPTS)]
                encoded = [prompts.encode(server, p, spec, chat=False).tokens for p in texts]
                logs = []
                for repeat in range(REPEATS + 1):
                    for tokens in encoded:
                        speeds = []
                        for engine in (server, tracer):
                            timings = engine.complete(tokens, **settings)["timings"]
                            speeds.append((timings["predicted_n"] - 1) / timings["predicted_ms"])
                        if repeat:  # the first pass is a warm-up
                            logs.append(math.log(speeds[1] / speeds[0]))
            mean, median = (math.exp(f(logs)) for f in (statistics.mean, statistics.median))
            print(
                f"depth {depth}: tracer / server decode speed, geometric mean {mean:.3f}, "
                f"median {median:.3f} of {len(logs)} pairs",
                flush=True,
            )


if __name__ == "__main__":
    main()
