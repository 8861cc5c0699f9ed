"""Numbers and tables as text."""

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from analysis import explain, markdown_table, report, tables, terminal
from analysis.stats import LIKE_THESE, Interval
from analysis.store import Recorded


def cell(frame: pd.DataFrame, row: object, column: str) -> str:
    """Return one text of a table."""
    return str(dict(zip(frame.index, frame[column], strict=True))[row])


def test_examples_follow_from_the_formulas() -> None:
    tokens = explain.tokens((0.5,), 2)["chance 0.5"]
    assert list(tokens) == ["1.00", "1.50", "1.75", "2.00"]
    best = explain.best_depths((0.5,), (0.4, 2.0))["chance 0.5"]
    assert list(best) == ["1: 1.07×", "0: 1.00×"]
    assert cell(explain.states(), "qwen3.6-27b", "MiB a slot and step of depth") == "149.6"
    assert "8 or more at 0.9" in explain.markdown("k")
    assert len(explain.curves().axes) == 2


def test_numbers_have_as_many_digits_as_their_interval_allows() -> None:
    assert tables.number(1187.4, 196.5) == "1190"
    assert tables.number(1187.4, 12.1) == "1187"
    assert tables.number(0.7951, 0.0915) == "0.795"
    assert tables.interval(Interval(892.3, 713.2, 1116.4)) == "890 [710, 1120]"
    assert tables.interval(Interval(0.85, 0.02, 40.0)) == "1 [0.020, 40]"
    assert tables.interval(Interval(850.0, 0.0023, 2.9e7)) == "850 [0.0023, 29000000]"
    assert tables.interval(Interval(-0.001, -0.2, 0.2)) == "0.00 [-0.20, 0.20]"
    assert [tables.percent(x) for x in (None, 0.0, 0.0004, 0.0149)] == ["–", "0%", "0%", "1.5%"]


def test_speed_against_no_drafting_is_paired(make_recorded: Callable[..., Recorded]) -> None:
    """Rounds and prompts that are fast for all depths alike leave the ratio as it is."""
    recorded = make_recorded({0: 100.0, 1: 80.0, 2: 50.0}, 1e-6)
    slower = tuple(
        replace(s, predicted_ms=s.predicted_ms * (1 + 0.3 * s.round + 0.1 * int(s.prompt_id)))
        for s in recorded.samples
    )
    sweep = report.sweep_of(replace(recorded, samples=slower))
    shown = tables.against_none(sweep, LIKE_THESE)["short"]
    assert list(shown.index) == [1, 2]
    ratios = [float(text.split()[0]) for text in shown]
    assert ratios == pytest.approx([0.8, 0.5], rel=1e-3)
    low, high = (float(x) for x in shown[2].partition("[")[2].rstrip("]").split(","))
    assert high - low < 0.01


def test_a_table_on_a_narrow_terminal_cuts_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "16")
    row = {"tokens/step": "2.3456789 [1.2345678, 3.4567891]", "requests": "12345678901"}
    terminal.show_rows([row])
    shown = "".join(c for c in capsys.readouterr().out if c.isalnum())
    wanted = "".join(c for c in "".join([*row, *row.values()]) if c.isalnum())
    assert sorted(shown) == sorted(wanted)


def test_a_markdown_table_cuts_nothing_and_lines_numbers_up() -> None:
    long = "x" * 80
    frame = pd.DataFrame({"a": ["1.5 [1, 2]"] * 90, "b": [long] * 90, "c": ["0 or 1"] * 90})
    text = markdown_table.markdown(frame.rename_axis("depth"))
    assert text.count("\n") == 91
    assert long in text
    assert text.splitlines()[1] == "|---|---:|---|---|"
    assert "<b>" not in markdown_table.markdown(pd.DataFrame({"a": ["<b>"]}))
