"""CSV files that hold more than a table: titles above it, notes below, empty columns beside it.

So statistics offices publish, and so spreadsheets save. Rows of cells come out; which of them are
the table is found in `table_layout`.
"""

from __future__ import annotations

from unmix.data.addresses import opened_binary
from unmix.data.csv_table import DELIMITERS, csv_records, refuse_other_formats
from unmix.data.table_layout import LaidOut, lay_out
from unmix.errors import InputError

__all__ = ["read_published_csv"]

MOST_LINES = 100_000  # what is longer was not written for people


def read_published_csv(path: str, wanted: str | None) -> LaidOut | None:
    """Return the table in a CSV file with the column that is wanted, None if it is not plain."""
    try:
        wide = _is_utf16(path)
        if not wide:
            refuse_other_formats(path)
        encoding = "utf-16" if wide else "utf-8-sig"
        found = [_rows(path, delimiter, encoding) for delimiter in DELIMITERS]
        rows = max(found, key=lambda of: sum(len(cells) > 1 for _, cells in of))
        if all(cells[0] is cells[-1] is None for _, cells in rows):
            return None  # a table in Markdown
        table = lay_out(path, rows, "line", wanted)
    except (InputError, UnicodeError):
        return None
    length = {n: len(cells) for n, cells in rows}
    # A line with a cell too few or too many is a mistake, and not for us to mend.
    if any(length[n] != length[table.header] for n in table.numbers):
        return None
    return table._replace(above=", in UTF-16" + table.above) if wide else table


def _is_utf16(path: str) -> bool:
    """Say whether a file has the byte order mark of UTF-16, as Excel's Unicode text has."""
    with opened_binary(path) as file:
        return bytes(file.read(2)) in (b"\xff\xfe", b"\xfe\xff")


def _rows(path: str, delimiter: str, encoding: str) -> list[tuple[int, list[str | None]]]:
    """Return the records of a file with their lines, without what is said to spreadsheets."""
    rows: list[tuple[int, list[str | None]]] = []
    for line, _, values in csv_records(path, delimiter, encoding, strict=True):
        if len(rows) >= MOST_LINES:
            raise InputError(f"{path} is too long.")
        if rows or not values[0].startswith("sep="):
            rows.append((line, [value if value.strip() else None for value in values]))
    return rows
