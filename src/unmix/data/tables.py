"""The user's rows: tables read from CSV and Parquet, whole or as a stream, and written back.

`read_rows` and ``pd.concat(scan_rows(...))`` give the same frame. A column has one type in all
batches, that of its whole file: see `unmix.data.column_types` for CSV and
`unmix.data.parquet_table` for Parquet. Dates are days since 1970. The set column is text exactly as
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

from unmix.data.addresses import find_files, is_csv, shown
from unmix.data.column_types import arrow_type
from unmix.data.csv_table import CsvTable, open_csv
from unmix.data.joined_tables import JoinedTables, join_tables
from unmix.data.parquet_table import ParquetTable, open_parquet
from unmix.data.row_writer import write_rows
from unmix.data.wording import listed, nearest
from unmix.errors import InputError
from unmix.progress import Progress

__all__ = [
    "Table",
    "column_names",
    "count_rows",
    "infer_dtypes",
    "naming",
    "open_table",
    "read_rows",
    "require_column",
    "rows_per_batch",
    "scan_kept",
    "scan_rows",
    "write_rows",
]

BATCH_ROWS, BATCH_BYTES = 65_536, 1 << 25
Table = CsvTable | ParquetTable | JoinedTables
# A file, a folder, a glob, an address, or several of them; or a table that is open.
Rows = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Table


def read_rows(
    path: Rows,
    *,
    columns: Sequence[str] | None = None,
    set_column: str | None = None,
    dtypes: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """
    Read a whole table.

    Parameters
    ----------
    path
        A CSV file (``.csv``, ``.tsv``, ``.txt``, also ``.csv.gz`` and ``.csv.zst``) or a Parquet
        file (``.parquet``, ``.pq``), a folder, a glob, an address such as ``s3://bucket/rows/``,
        several of them, or a table that `open_table` has opened.
    set_column
        The column that says which set a row belongs to: read as text, no cell may be missing.
    columns, dtypes
        As in `scan_rows`.
    progress
        A function (rows read, rows or None, text).

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
    batches, done = [], 0
    for batch in _checked(table, types, set_column):
        batches.append(batch)
        done += batch.num_rows
        if progress:
            progress(done, table.num_rows, "")
    frame: pd.DataFrame = pa.Table.from_batches(batches).to_pandas()
    return frame


def scan_rows(
    path: Rows,
    *,
    batch_rows: int | None = None,
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
        Rows in each batch; the last one may be shorter. By default as many as take some 32 MB,
        65,536 at most: what is in memory depends on bytes, not on how wide the table is.
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
    if batch_rows is not None and batch_rows < 1:
        raise InputError(f"batch_rows must be at least 1; got {batch_rows}.")
    table = open_table(path)
    types = _types(table, columns, set_column, dtypes or {})
    if batch_rows is None:
        batch_rows = rows_per_batch(len(types))
    return _frames(_checked(table, types, set_column), batch_rows)


def rows_per_batch(width: int) -> int:
    """Return how many rows of so many columns `scan_rows` puts into a batch."""
    return max(256, min(BATCH_ROWS, BATCH_BYTES // (8 * max(width, 1))))


def scan_kept(table: Table, columns: Sequence[str], batch_rows: int) -> Iterator[Any]:
    """
    Yield some columns of Parquet as they lie, in Arrow tables of `batch_rows` rows.

    Nothing is converted: integers with missing values stay integers, and timestamps timestamps.
    """
    if isinstance(table, CsvTable):
        raise TypeError("columns of CSV files are read as text")
    return _regrouped(table.kept_batches(columns), batch_rows)


def infer_dtypes(path: Rows, *, set_column: str | None = None) -> dict[str, str]:
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


def column_names(path: Rows) -> tuple[str, ...]:
    """Return the names of the columns of a table, which costs no more than its header."""
    return open_table(path).columns


def count_rows(path: Rows) -> int | None:
    """Return the number of rows where that is cheap to know (Parquet), else None (CSV)."""
    return open_table(path).num_rows


def open_table(path: Rows) -> Table:
    """
    Open CSV and Parquet files by their suffix, and read no more than their headers.

    Several files, a folder or a glob are one table. Folders named like ``month=2024-01`` are a
    column. A table that is open already is returned as it is.

    Raises
    ------
    InputError
        A file is missing, of another kind, or its header is broken.
    """
    if isinstance(path, CsvTable | ParquetTable | JoinedTables):
        return path
    given = [path] if isinstance(path, str | os.PathLike) else list(path)
    files = find_files(given)
    if len(files) == 1 and not files[0].partition:
        return _open_file(files[0].path)
    name = os.fspath(given[0]) if len(given) == 1 else f"{os.fspath(given[0])} and others"
    return join_tables([_open_file(file.path) for file in files], files, name)


def _open_file(path: str) -> CsvTable | ParquetTable:
    """Open one file."""
    try:
        return open_csv(path) if is_csv(path) else open_parquet(path)
    except InputError as error:
        raise type(error)(str(error).replace(path, shown(path))) from error


def require_column(table: Table, name: str) -> None:
    """Raise InputError, with the names there are, if a table lacks a column."""
    if name in table.columns:
        return
    guess = nearest(name, table.columns)
    hint = f"did you mean {guess!r}? It" if guess is not None else "it"
    raise InputError(
        f"{table.path} has no column {name!r}; {hint} has {listed(table.columns, 10)}."
    )


@contextlib.contextmanager
def naming(path: Rows) -> Iterator[None]:
    """Put the name of a file before errors about its rows."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{_name_of(path)}: {error}") from error


def _name_of(path: Rows) -> str:
    """Return what messages call rows."""
    return path.path if isinstance(path, Table) else str(path)


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
