"""How long the book takes from committed results alone; it should stay below a minute on two cores.

Run with nothing else running: ``make bench``. Not a test: it prints seconds.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from analysis import series


def main() -> None:
    """Print the time of one build, and its pages."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        html = series.build_book(Path(folder) / "_build").parent
        seconds = time.perf_counter() - began
        print(f"the book: {seconds:.1f} s for {len(list(html.rglob('*.html')))} pages")


if __name__ == "__main__":
    main()
