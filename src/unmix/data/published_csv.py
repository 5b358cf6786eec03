"""CSV files that hold more than a table: titles above it, notes below, empty columns beside it.

So statistics offices publish, and so spreadsheets save. Rows of cells come out; which of them are
the table is found in `table_layout`.
"""

from __future__ import annotations

from unmix.data.csv_table import DELIMITERS, csv_records
from unmix.data.table_layout import LaidOut, lay_out
from unmix.errors import InputError

__all__ = ["read_published_csv"]

MOST_LINES = 100_000  # what is longer was not written for people


def read_published_csv(path: str, wanted: str | None) -> LaidOut | None:
    """Return the table in a CSV file with the column that is wanted, None if it is not plain."""
    try:
        found = [_rows(path, delimiter) for delimiter in DELIMITERS]
        rows = max(found, key=lambda of: sum(len(cells) > 1 for _, cells in of))
        table = lay_out(path, rows, "line", wanted)
    except (InputError, UnicodeDecodeError):
        return None
    length = {n: len(cells) for n, cells in rows}
    # A line with a cell too few or too many is a mistake, and not for us to mend.
    if any(length[n] != length[table.header] for n in table.numbers):
        return None
    return table


def _rows(path: str, delimiter: str) -> list[tuple[int, list[str | None]]]:
    """Return the records of a file with their lines, without what is said to spreadsheets."""
    rows: list[tuple[int, list[str | None]]] = []
    for line, _, values in csv_records(path, delimiter):
        if len(rows) >= MOST_LINES:
            raise InputError(f"{path} is too long.")
        if rows or not values[0].startswith("sep="):
            rows.append((line, [value if value.strip() else None for value in values]))
    return rows
