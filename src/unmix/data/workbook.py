"""One table in an Excel workbook, as text. Needs openpyxl, which the extra `excel` installs."""

from __future__ import annotations

import contextlib
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime, time
from typing import Any
from xml.etree.ElementTree import ParseError

from unmix.data.addresses import refuse_pipe
from unmix.data.table_layout import Row, has_name, lay_out
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.files import explained_os_errors

__all__ = ["read_workbook"]

MOST_BYTES, MOST_CELLS = 500_000_000, 5_000_000
# What openpyxl raises at files that are no workbooks, or those of a stranger.
_DAMAGED = (
    zipfile.BadZipFile,
    ParseError,
    AttributeError,
    EOFError,
    LookupError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
    zlib.error,
)


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
    except ModuleNotFoundError:
        raise InputError(
            f"{path} is an Excel workbook; install unmix with the extra 'excel' "
            "(pip install 'unmix[excel]'), or save its table as CSV."
        ) from None
    with explained_os_errors(path, "read"), _damage_explained(path):
        refuse_pipe(path)
        _refuse_bomb(path)
        with (
            open(path, "rb") as file,  # openpyxl leaves a broken one open
            contextlib.closing(
                openpyxl.load_workbook(file, read_only=True, data_only=True)
            ) as book,
        ):
            titles = [page.title for page in book.worksheets]
            if sheet is not None and sheet not in titles:
                raise InputError(f"{path} has no sheet {sheet!r}; it has {listed(titles)}.")
            asked = [page for page in book.worksheets if sheet in (None, page.title)]
            pages = {page.title: list(_rows(page, path)) for page in asked}
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


@contextlib.contextmanager
def _damage_explained(path: str) -> Iterator[None]:
    """Say of a file that openpyxl stumbles over that it is no workbook."""
    from openpyxl.utils.exceptions import InvalidFileException  # type: ignore[import-untyped]

    try:
        with warnings.catch_warnings(action="ignore"):  # a lost style, say
            yield
    except InputError:
        raise
    except (InvalidFileException, OSError, *_DAMAGED) as error:
        if isinstance(error, OSError) and error.errno is not None:  # from the system
            raise
        raise InputError(f"{path} is no Excel workbook; save it again as .xlsx.") from error


def _refuse_bomb(path: str) -> None:
    """Refuse a file that is small as it lies and unpacks to what no memory holds."""
    with zipfile.ZipFile(path) as packed:
        size = sum(member.file_size for member in packed.infolist())
    if size > MOST_BYTES:
        raise InputError(
            f"{path} unpacks to {size:,} bytes; save its table of rates alone, or as CSV."
        )


def _rows(sheet: Any, path: str) -> Iterator[tuple[int, list[str | None]]]:
    """Yield number and cells as text of each row with anything in it."""
    sheet.reset_dimensions()  # what a sheet says of its size may be a million empty rows
    cells = 0
    for number, row in enumerate(sheet.iter_rows(), start=1):
        cells += len(row)
        if cells > MOST_CELLS:
            raise InputError(
                f"{path}, sheet {sheet.title!r} has more than {MOST_CELLS:,} cells; save its table "
                "of rates alone, or as CSV."
            )
        found = [_text(cell) for cell in row]
        if any(cell is not None for cell in found):
            yield number, found


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
