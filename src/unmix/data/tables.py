"""The user's rows: tables read from CSV and Parquet, whole or as a stream, and written back.

`read_rows` and ``pd.concat(scan_rows(...))`` give the same frame. A column has one type in all
batches, that of its whole file: see `unmix.data.column_types` for CSV and
`unmix.data.parquet_table` for Parquet. Dates and times are text. The set column is text exactly as
written; a number in Parquet is written in the shortest way, so 7.0 is the set ``'7'``.

This module does not know what a set prior is or which columns are features.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from unmix.data.column_types import arrow_type
from unmix.data.csv_table import CsvTable, open_csv
from unmix.data.parquet_table import ParquetTable, open_parquet
from unmix.data.row_writer import is_csv, write_rows
from unmix.data.wording import listed, nearest
from unmix.errors import InputError

__all__ = [
    "Table",
    "column_names",
    "count_rows",
    "infer_dtypes",
    "naming",
    "open_table",
    "read_rows",
    "require_column",
    "scan_rows",
    "write_rows",
]

Table = CsvTable | ParquetTable


def read_rows(
    path: str | os.PathLike[str] | Table,
    *,
    columns: Sequence[str] | None = None,
    set_column: str | None = None,
    dtypes: Mapping[str, object] | None = None,
) -> pd.DataFrame:
    """
    Read a whole table.

    Parameters
    ----------
    path
        A CSV file (``.csv``, ``.tsv``, ``.txt``) or a Parquet file (``.parquet``, ``.pq``), or
        a table that `open_table` has opened.
    set_column
        The column that says which set a row belongs to: read as text, no cell may be missing.
    columns, dtypes
        As in `scan_rows`.

    Returns
    -------
    pandas.DataFrame
        n rows with the columns of the file: numbers, booleans and text.

    Raises
    ------
    InputError
        The file, a line or a column is not as it should be; the message says which.
    """
    table = open_table(path)
    types = _types(table, columns, set_column, dtypes or {})
    batches = list(_checked(table, types, set_column))
    frame: pd.DataFrame = pa.Table.from_batches(batches).to_pandas()
    return frame


def scan_rows(
    path: str | os.PathLike[str] | Table,
    *,
    batch_rows: int = 65536,
    columns: Sequence[str] | None = None,
    set_column: str | None = None,
    dtypes: Mapping[str, object] | None = None,
) -> Iterator[pd.DataFrame]:
    """
    Read a table in batches, in memory that does not grow with the file.

    The header and the column types are checked at once, the rows as they are reached. Unless
    ``dtypes`` names every column, a CSV file is read twice: its types come from all rows.

    Parameters
    ----------
    path
        As in `read_rows`.
    batch_rows
        Rows in each batch; the last one may be shorter.
    columns
        The columns to read, in this order; all by default. ``set_column`` is added if absent.
    set_column
        As in `read_rows`.
    dtypes
        What to read some columns as: ``'float64'``, ``'str'``, ``'int64'``, ``'bool'`` or the
        dtypes of a frame. Those not named are inferred; names that are not read are ignored.
        Missing values need ``'float64'`` or ``'str'``; true and false are 1 and 0 as floats.

    Returns
    -------
    iterator of pandas.DataFrame
        With the same columns and dtypes each, and an index that runs through the file.

    Raises
    ------
    InputError
        As in `read_rows`, or a cell does not fit what ``dtypes`` says.
    """
    if batch_rows < 1:
        raise InputError(f"batch_rows must be at least 1; got {batch_rows}.")
    table = open_table(path)
    types = _types(table, columns, set_column, dtypes or {})
    return _frames(_checked(table, types, set_column), batch_rows)


def infer_dtypes(path: str | os.PathLike[str], *, set_column: str | None = None) -> dict[str, str]:
    """
    Return the dtype that `read_rows` and `scan_rows` give each column, without keeping the rows.

    Returns
    -------
    dict
        Column name -> ``'float64'``, ``'int64'``, ``'bool'``, ``'str'``, ...; fit for the
        ``dtypes`` of `scan_rows`.
    """
    types = _types(open_table(path), None, set_column, {})
    frame = pa.schema(list(types.items())).empty_table().to_pandas()
    return {name: str(dtype) for name, dtype in frame.dtypes.items()}


def column_names(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the names of the columns of a table, which costs no more than its header."""
    return open_table(path).columns


def count_rows(path: str | os.PathLike[str]) -> int | None:
    """Return the number of rows where that is cheap to know (Parquet), else None (CSV)."""
    table = open_table(path)
    return table.num_rows if isinstance(table, ParquetTable) else None


def open_table(path: str | os.PathLike[str] | Table) -> Table:
    """
    Open a CSV or Parquet file by its suffix, and read no more than its header.

    A table that is open already is returned as it is.

    Raises
    ------
    InputError
        It is missing, a folder, of another kind, or its header is broken.
    """
    if isinstance(path, CsvTable | ParquetTable):
        return path
    if os.path.isdir(path):
        raise InputError(f"cannot read {path}: it is a folder; give the name of one file.")
    if os.path.exists(path) and not os.path.isfile(path):
        # One would wait for ever for a pipe that nobody writes to.
        raise InputError(f"cannot read {path}: it is a pipe or a device; give an ordinary file.")
    return open_csv(path) if is_csv(path) else open_parquet(path)


def require_column(table: Table, name: str) -> None:
    """Raise InputError, with the names there are, if a table lacks a column."""
    if name in table.columns:
        return
    guess = nearest(name, table.columns)
    hint = f"did you mean {guess!r}? " if guess is not None else ""
    raise InputError(
        f"{table.path} has no column {name!r}; {hint}It has {listed(table.columns, 10)}."
    )


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Put the name of a file before errors about its rows."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from error


def _types(
    table: Table,
    columns: Sequence[str] | None,
    set_column: str | None,
    dtypes: Mapping[str, object],
) -> dict[str, Any]:
    """Return the Arrow type of each column to read."""
    names = list(table.columns if columns is None else columns)
    if set_column is not None and set_column not in names:
        names.append(set_column)
    for name in names:
        require_column(table, name)
    types = {name: arrow_type(dtypes[name]) for name in names if name in dtypes}
    if set_column is not None:
        types[set_column] = pa.string()
    unknown = [name for name in names if name not in types]
    if unknown:
        types.update(table.infer_types(unknown))
    return {name: types[name] for name in names}


def _checked(table: Table, types: Mapping[str, Any], set_column: str | None) -> Iterator[Any]:
    """Yield the record batches of a table; no set is missing and no missing value is in the way."""
    row = 0
    for batch in table.batches(types):
        for name, type_ in types.items():
            column = batch[name]
            nullable = pa.types.is_floating(type_) or pa.types.is_string(type_)
            if column.null_count and (name == set_column or not nullable):
                where = table.where(row + pc.index(column.is_null(), True).as_py())
                raise InputError(
                    f"the set column {name!r} of {table.path} is empty in {where}; give the row "
                    "a set or remove it."
                    if name == set_column
                    else f"column {name!r} of {table.path} is empty in {where}, so it cannot be "
                    f"read as {type_}; fill it in or read the column as float64."
                )
        row += batch.num_rows
        yield batch
    if not row:
        raise InputError(f"{table.path} has columns but no rows.")


def _frames(batches: Iterator[Any], batch_rows: int) -> Iterator[pd.DataFrame]:
    """Cut record batches of any length into frames of ``batch_rows`` rows."""
    start = 0
    for table in _regrouped(batches, batch_rows):
        frame = table.to_pandas()
        frame.index = pd.RangeIndex(start, start + len(frame))
        start += len(frame)
        yield frame


def _regrouped(batches: Iterator[Any], batch_rows: int) -> Iterator[Any]:
    """Yield tables of ``batch_rows`` rows, and one with the rest."""
    held: list[Any] = []
    room = batch_rows
    for batch in batches:
        rest = batch
        while rest.num_rows >= room:
            yield pa.Table.from_batches([*held, rest.slice(0, room)])
            rest = rest.slice(room)
            held, room = [], batch_rows
        if rest.num_rows:
            held.append(rest)
            room -= rest.num_rows
    if held:
        yield pa.Table.from_batches(held)
