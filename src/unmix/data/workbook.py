"""One table in an Excel workbook, as text. Needs openpyxl, which the extra `excel` installs."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from datetime import datetime, time
from typing import Any

from unmix.data.addresses import refuse_pipe
from unmix.data.table_layout import Row, has_name, lay_out
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.files import explained_os_errors

__all__ = ["read_workbook"]


def read_workbook(
    path: str, wanted: str | None = None, sheet: str | None = None
) -> tuple[dict[str, list[str | None]], Callable[[int], str], str]:
    """
    Read the sheet with the table; a title above it and notes below are passed over.

    Parameters
    ----------
    path
    wanted
        The name of a column that must be there: sheets without it, such as a cover, are others.
    sheet
        The name of the sheet, where several have a table.

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
        refuse_pipe(path)
        try:
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        except (zipfile.BadZipFile, InvalidFileException, KeyError) as error:
            raise InputError(f"{path} is no Excel workbook; save it again as .xlsx.") from error
    try:
        titles = [page.title for page in book.worksheets]
        if sheet is not None and sheet not in titles:
            raise InputError(f"{path} has no sheet {sheet!r}; it has {listed(titles)}.")
        asked = [page for page in book.worksheets if sheet in (None, page.title)]
        pages = {page.title: list(enumerate(_rows(page), start=1)) for page in asked}
    finally:
        book.close()
    tables = {title: rows for title, rows in pages.items() if any(_is_wide(row) for row in rows)}
    if not tables:
        raise InputError(f"{path} has no sheet with a table of two columns or more.")
    named = {
        title: rows
        for title, rows in tables.items()
        if wanted is not None and any(has_name(cells, wanted) for _, cells in rows)
    }
    meant = named or tables
    if len(named) > 1:
        raise InputError(
            f"{path} has a table in each of the sheets {listed(list(named))}; say which one with "
            "--sheet NAME."
        )
    title = next(iter(meant))
    about = f" in sheet {title!r}" if len(titles) > 1 else ""
    found = lay_out(path, meant[title], "row", wanted)
    return found.columns, found.row_name, about + found.above


def _is_wide(row: Row) -> bool:
    """Say whether a row has two cells or more."""
    return sum(cell is not None for cell in row[1]) > 1


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
    if isinstance(value, datetime) and value.time() == time(0):
        return str(value.date())
    if isinstance(value, int | float):
        shown = str(getattr(cell, "number_format", "") or "")
        if shown and set(shown) == {"0"} and float(value).is_integer():
            return str(int(value)).zfill(len(shown))  # an id that is shown as 007
        if "%" in shown:
            return f"{round(100 * value, 10):g}%"
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    return str(value)
