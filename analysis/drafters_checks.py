"""Warnings of the page on drafters, and the files that drafted."""

from __future__ import annotations

import pandas as pd

from analysis import checks, drafters
from analysis.drafters import Comparison


def listed(found: Comparison) -> str:
    """Return the warnings of all drafters as a Markdown list, each with the drafters' names."""
    gone = [
        f"- {drafters.name(drafter)}: no speed was measured; the engine said: {error[:300]}"
        for drafter, error in drafters.missing(found).items()
    ]
    runs = {drafters.name(d): own for d, own in found.drafters.items()}
    told = checks.listed(dict(runs))
    return "\n".join([*gone, told] if told != "None." or not gone else gone)


def files(found: Comparison) -> pd.DataFrame:
    """Return what is known of the files that drafted beside the target's own."""
    rows = {
        drafters.name(drafter): {
            "file": facts["name"],
            "architecture": facts["architecture"],
            "quantization": facts["quantization"],
            "parameters": f"{facts['parameters'] / 1e6:.1f}M",
            "SHA-256": facts["sha256"][:16],
        }
        for drafter, facts in found.base.recorded.run.drafters.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("drafter")
