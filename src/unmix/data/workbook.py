"""One table in an Excel workbook, as text. Needs openpyxl, which the extra `excel` installs."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable
from typing import Any

from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.files import explained_os_errors

__all__ = ["read_workbook"]


def read_workbook(
    path: str,
) -> tuple[list[str], list[list[str | None]], Callable[[int], str], str]:
    """
    Read the first sheet with a table; lines above its header, such as a title, are passed over.

    Returns
    -------
    names
        Of the columns.
    columns
        The cells of each column as text, None where they are empty. Numbers that are shown as
        percentages have a percent sign.
    where
        Row of the table, from 0 -> ``row 17`` of the sheet.
    about
        Which sheet was read, if there are several.
    """
    try:
        import openpyxl  # type: ignore[import-untyped]
        from openpyxl.utils.exceptions import InvalidFileException  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise InputError(
            f"{path} is an Excel workbook; install unmix with the extra 'excel' "
            "(pip install 'unmix[excel]'), or save its table as CSV."
        ) from None
    with explained_os_errors(path, "read"):
        try:
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        except (zipfile.BadZipFile, InvalidFileException, KeyError) as error:
            raise InputError(f"{path} is no Excel workbook; save it again as .xlsx.") from error
    try:
        for sheet in book.worksheets:
            rows = [(n, cells) for n, cells in enumerate(_rows(sheet), start=1) if any(cells)]
            wide = [place for place, (_, cells) in enumerate(rows) if _filled(cells) > 1]
            if wide:
                about = f" in sheet {sheet.title!r}" if len(book.worksheets) > 1 else ""
                return (*_table(path, rows[wide[0] :]), about)
    finally:
        book.close()
    raise InputError(f"{path} has no sheet with a table of two columns or more.")


def _rows(sheet: Any) -> list[list[str | None]]:
    """Return the cells of a sheet as text."""
    return [[_text(cell) for cell in row] for row in sheet.iter_rows()]


def _filled(cells: list[str | None]) -> int:
    return sum(cell is not None for cell in cells)


def _table(
    path: str, rows: list[tuple[int, list[str | None]]]
) -> tuple[list[str], list[list[str | None]], Callable[[int], str]]:
    """Split rows into header and body."""
    header = rows[0][1]
    width = max(i for i, name in enumerate(header) if name is not None) + 1
    names = []
    for i, name in enumerate(header[:width], start=1):
        if name is None:
            raise InputError(
                f"column {i} of {path} has no name in row {rows[0][0]}; name it or remove it."
            )
        names.append(name.strip())
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise InputError(f"{path} has several columns named {listed(doubled)}; rename all but one.")
    body = [(n, cells) for n, cells in rows[1:] if _filled(cells[:width])]
    if not body:
        raise InputError(f"{path} has columns but no rows.")
    # A note below the table stands alone in its row.
    while width > 1 and len(body) > 1 and _filled(body[-1][1][:width]) == 1:
        body.pop()
    numbers = [n for n, _ in body]
    columns = [[(cells + [None] * width)[i] for _, cells in body] for i in range(width)]
    return names, columns, lambda row: f"row {numbers[row]}"


def _text(cell: Any) -> str | None:
    """Return a cell as a person would write it."""
    value = cell.value
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        shown = str(getattr(cell, "number_format", "") or "")
        if "%" in shown:
            return f"{round(100 * value, 10):g}%"
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    return str(value)
