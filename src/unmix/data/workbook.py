"""One table in an Excel workbook, as text. Needs openpyxl, which the extra `excel` installs."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from typing import Any

from unmix.data.table_layout import lay_out
from unmix.errors import InputError
from unmix.files import explained_os_errors

__all__ = ["read_workbook"]


def read_workbook(
    path: str, wanted: str | None = None
) -> tuple[dict[str, list[str | None]], Callable[[int], str], str]:
    """
    Read the first sheet with a table; a title above it and notes below are passed over.

    Parameters
    ----------
    path
    wanted
        The name of a column that must be there.

    Returns
    -------
    columns
        Name -> the cells as text, None where they are empty. Numbers that are shown as percentages
        have a percent sign.
    where
        Row of the table, from 0 -> ``row 17`` of the sheet.
    about
        Which sheet was read, if there are several, and what was passed over.
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
            rows = list(enumerate(_rows(sheet), start=1))
            if any(sum(cell is not None for cell in cells) > 1 for _, cells in rows):
                about = f" in sheet {sheet.title!r}" if len(book.worksheets) > 1 else ""
                found = lay_out(path, rows, "row", wanted)
                return found.columns, found.row_name, about + found.above
    finally:
        book.close()
    raise InputError(f"{path} has no sheet with a table of two columns or more.")


def _rows(sheet: Any) -> list[list[str | None]]:
    """Return the cells of a sheet as text."""
    return [[_text(cell) for cell in row] for row in sheet.iter_rows()]


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
