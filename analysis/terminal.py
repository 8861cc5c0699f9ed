"""Tables on a terminal."""

from __future__ import annotations


def show_rows(rows: list[dict[str, str]]) -> None:
    """Print rows of text as a table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in rows[0]:
        table.add_column(column, overflow="fold")  # on a narrow terminal nothing is cut
    for row in rows:
        table.add_row(*row.values())
    Console().print(table)
