"""Rows to disk: batches of frames into one CSV or Parquet file, all of them or nothing.

Knows which suffix means which format; knows nothing of what the columns mean.
"""

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from unmix.data.addresses import COMPRESSED, is_csv, suffixes
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.files import atomic_path

__all__ = ["write_rows"]

_FORMULA = r"^[=+\-@\t\r]"
_AS_TEXT = re.compile(_FORMULA)


def write_rows(
    path: str | os.PathLike[str],
    batches: Iterable[Any],
    *,
    quote_formulas: bool = False,
) -> int:
    """
    Write batches of rows to one CSV or Parquet file, all of them or nothing.

    Indexes are not written; missing values become empty cells in CSV. All batches are written
    with the column types of the first.

    Parameters
    ----------
    path
        Where to write; its suffix says in which format.
    batches
        Frames or Arrow tables with the same columns, at least one. One is in memory at a time.
    quote_formulas
        In CSV, put ' before text that begins with one of = + - @, a tab or a carriage return: a
        spreadsheet would take it for a formula. Names of columns too.

    Returns
    -------
    int
        The number of rows written.

    Raises
    ------
    InputError
        The path cannot be written, or a batch does not fit the first.
    """
    is_csv(path)  # refuses other suffixes before the first batch is made
    rows = 0
    with atomic_path(path) as temporary:
        source = iter(batches)
        first = next(source, None)
        if first is None:
            raise InputError(f"there are no rows to write to {path}.")
        schema = _written_schema(first, path)
        quote = quote_formulas and is_csv(path)
        with _writer(temporary, _quoted_names(schema) if quote else schema, path) as writer:
            for batch in itertools.chain([first], source):
                table = _written_table(batch, schema, path)
                writer.write_table(_quoted(table) if quote else table)
                rows += len(batch)
    return rows


def _writer(path: Path, schema: Any, named: str | os.PathLike[str]) -> Any:
    """Open a writer with a write_table method for what is named so, to be used with `with`."""
    if not is_csv(named):
        return pq.ParquetWriter(path, schema)
    delimiter = "\t" if suffixes(named)[0] == ".tsv" else ","
    options = pyarrow.csv.WriteOptions(delimiter=delimiter)
    return _csv_writer(path, schema, options, suffixes(named)[1])


@contextlib.contextmanager
def _csv_writer(path: Path, schema: Any, options: Any, packed: str) -> Iterator[Any]:
    """Open a CSV file, packed if its suffix says so."""
    with (
        pa.output_stream(str(path), compression=COMPRESSED.get(packed)) as stream,
        pyarrow.csv.CSVWriter(stream, schema, write_options=options) as writer,
    ):
        yield writer


def _quoted_names(schema: Any) -> Any:
    """Return a schema whose names no spreadsheet takes for a formula."""
    return pa.schema([field.with_name(_AS_TEXT.sub(r"'\g<0>", field.name)) for field in schema])


def _quoted(table: Any) -> Any:
    """Return a table whose text no spreadsheet takes for a formula."""
    columns = [
        pc.replace_substring_regex(column, _FORMULA, r"'\0")
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, schema=_quoted_names(table.schema))


def _written_schema(frame: Any, path: str | os.PathLike[str]) -> Any:
    """Return the types in which to write frames like this one."""
    if len(set(_names(frame))) < len(_names(frame)):
        raise InputError(f"cannot write {path}: several columns have one name; rename them.")
    fields = []
    for field in _arrow_table(frame, None, path).schema:
        type_ = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        fields.append(pa.field(field.name, pa.string() if pa.types.is_null(type_) else type_))
    return pa.schema(fields)


def _written_table(frame: Any, schema: Any, path: str | os.PathLike[str]) -> Any:
    """Return the frame as an Arrow table of the schema of the first batch."""
    if _names(frame) != schema.names:
        raise InputError(
            f"cannot write {path}: a batch has the columns {listed(_names(frame))} where "
            f"the first has {listed(schema.names)}; give all batches the same columns."
        )
    return _arrow_table(frame, schema, path)


def _names(frame: Any) -> list[str]:
    """Return the names of the columns of a frame or an Arrow table."""
    if isinstance(frame, pa.Table):
        return list(frame.column_names)
    return [str(name) for name in frame.columns]


def _arrow_table(frame: Any, schema: Any, path: str | os.PathLike[str]) -> Any:
    """Convert a frame and explain what Arrow cannot hold."""
    try:
        table = (
            frame
            if isinstance(frame, pa.Table)
            else pa.Table.from_pandas(frame, preserve_index=False)
        )
        return table if schema is None else table.replace_schema_metadata(None).cast(schema)
    except (pa.ArrowException, TypeError) as error:
        reason = " ".join(str(part) for part in error.args)
        raise InputError(
            f"cannot write {path}: {reason}; give each column one type in all batches."
        ) from error
