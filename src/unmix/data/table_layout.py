"""Where a published table begins and ends: titles above its header, headers of two rows, notes.

Works on rows of cells as text, whether they come from a sheet or from a CSV file that is more than
a table. Knows no file formats and no meaning of columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from unmix.data.rate_cells import read_cells
from unmix.data.rate_names import plain_name, without_kind
from unmix.errors import InputError

__all__ = ["LaidOut", "Row", "has_name", "lay_out"]

Row = tuple[int, Sequence[str | None]]
"""The number of a row, from 1, and its cells, None where they are empty."""


class LaidOut(NamedTuple):
    """A table found among rows."""

    columns: dict[str, list[str | None]]
    """Name -> cells (m,)."""
    numbers: list[int]
    """The number of the row of each of the m lines."""
    above: str
    """Where the names are, if not in the first row, and where notes begin: words or nothing."""
    header: int
    """The number of the last row of names."""
    kind: str
    """What a row is called."""

    def row_name(self, line: int) -> str:
        """Return ``line 17``, where line ``line`` of the table (from 0) stands."""
        return f"{self.kind} {self.numbers[line]}"


def lay_out(source: str, rows: Sequence[Row], kind: str, wanted: str | None = None) -> LaidOut:
    """
    Find the table among rows: its header, perhaps in two rows, and its lines.

    The header is the first row with as many names as most rows have cells, or the first with the
    name that is wanted; rows above it are a title. Where a name is missing or there twice, and the
    next row has no number, that row is a second header, and a name of the first counts for the
    columns to its right, too. Rows below the table with one cell alone are notes. Columns without a
    name and without a cell are none.

    Parameters
    ----------
    source : str
        What messages call the table.
    rows : sequence of (number, cells)
    kind : str
        What messages call a row: line, or row of a sheet.
    wanted : str, optional
        The name of a column that must be there.

    Raises
    ------
    InputError
        There is no table, or a column has no name.
    """
    filled: list[Row] = [(n, _padded(cells)) for n, cells in rows if any(cells)]
    wide = [place for place, (_, cells) in enumerate(filled) if _count(cells) > 1]
    if not wide:
        raise InputError(f"{source} has no table of two columns or more.")
    usual = Counter(len(filled[place][1]) for place in wide).most_common(1)[0][0]
    start = next((p for p in wide if len(filled[p][1]) >= usual), wide[0])
    if start > 0 and filled[start][1][0] is None and start - 1 in wide:
        start -= 1  # the names of the first columns stand above those of the others
    named = [p for p in wide if wanted is not None and has_name(filled[p][1], wanted)]
    if named and named[0] > start + _is_incomplete(filled[start][1]):
        start = named[0]
    header, body = filled[start], filled[start + 1 :]
    names, body = _names(list(header[1]), body)
    last = header[0] if len(body) == len(filled) - start - 1 else filled[start + 1][0]
    notes = None
    while len(body) > 1 and _count(body[-1][1]) == 1 and len(names) > 1:
        notes = body.pop()[0]
    if not body:
        raise InputError(f"{source} has columns but no rows.")
    above = "" if header[0] == filled[0][0] == last else f", names in {kind} {last}"
    if last > header[0]:
        above = f", names in {kind}s {header[0]} and {last}"
    above += "" if notes is None else f", notes from {kind} {notes} on"
    width = max(len(names), max(len(cells) for _, cells in body))
    names += [None] * (width - len(names))
    full = [[*cells, *[None] * (width - len(cells))] for _, cells in body]
    columns: dict[str, list[str | None]] = {}
    for i, name in enumerate(names):
        cells = [row[i] for row in full]
        if name is None and not any(cells):
            continue
        if name is None:
            raise InputError(
                f"column {i + 1} of {source} has no name in {kind} {last}; name it or remove it."
            )
        if name in columns:
            raise InputError(f"{source} has several columns named {name!r}; rename all but one.")
        columns[name] = cells
    return LaidOut(columns, [n for n, _ in body], above, last, kind)


def _names(header: list[str | None], body: list[Row]) -> tuple[list[str | None], list[Row]]:
    """Return the names of the columns, from one row or from two, and the rows below."""
    names = [None if name is None else name.strip() for name in header]
    names += [None] * (len(body[0][1]) - len(names) if body else 0)
    if (
        not _is_incomplete(names)
        or len(body) < 2
        or _count(body[0][1]) < 2
        or _has_numbers(body[0][1])
    ):
        return names, body
    below = [*body[0][1], *[None] * len(names)]
    joined: list[str | None] = []
    above: str | None = None
    for i in range(max(len(names), len(body[0][1]))):
        above = (names[i] if i < len(names) else None) or above
        under = below[i]
        joined.append(" ".join(part.strip() for part in (above, under) if part) or None)
    return joined, body[1:]


def _is_incomplete(names: Sequence[str | None]) -> bool:
    """Say whether a name is missing or there twice."""
    known = {name for name in names if name is not None}
    return len(known) < len(names)


def has_name(cells: Sequence[str | None], wanted: str) -> bool:
    """Say whether a row has a name, but for case and signs."""
    forms = (plain_name, without_kind)
    given = [cell for cell in cells if cell is not None]
    return any(form(cell) == form(wanted) for cell in given for form in forms)


def _has_numbers(cells: Sequence[str | None]) -> bool:
    """Say whether a cell besides the first is a number."""
    found = read_cells(pa.array(list(cells[1:]), pa.string()))
    return bool((~found.suppressed).any())


def _padded(cells: Sequence[str | None]) -> list[str | None]:
    """Return the cells up to the last that is filled, blanks as None."""
    plain = [None if cell is None or not cell.strip() else cell for cell in cells]
    while plain and plain[-1] is None:
        plain.pop()
    return plain


def _count(cells: Sequence[str | None]) -> int:
    """Return how many cells are filled."""
    return sum(cell is not None for cell in cells)
