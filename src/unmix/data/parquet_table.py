"""One Parquet file as a stream of Arrow batches with fixed column types.

Numbers and booleans keep their type, except that integers and booleans with missing values become
floats, because NumPy has no missing integer; decimals become floats, dates and timestamps days
since 1970, durations days. Text, categories and times of day become text. Lists, structures and
bytes are refused. Memory does not grow with the file. Knows nothing of sets or pandas.
"""

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unmix.data.addresses import opened_for_parquet
from unmix.data.column_types import days_of, first_unreadable, parse_text
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.files import explained_os_errors

__all__ = ["ParquetTable", "open_parquet", "read_arrow_column", "readable_arrow_type"]

# Decoded at a time: rows, and bytes as float64.
_READ_ROWS = 1 << 14
_READ_BYTES = 1 << 24
_BUFFER_BYTES = 1 << 16  # per column; without it whole column chunks are held in memory
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True)
class ParquetTable:
    """A Parquet file whose footer has been read. Made by `open_parquet`."""

    path: str
    columns: tuple[str, ...]
    num_rows: int
    types: Mapping[str, tuple[Any, bool]] = field(default_factory=dict)
    """Arrow type of each column of the file, and whether it may have missing values."""

    @property
    def files(self) -> tuple[str, ...]:
        """Where the rows lie."""
        return (self.path,)

    def infer_types(self, columns: Sequence[str]) -> dict[str, Any]:
        """
        Return the Arrow type to read each column as, from the footer alone.

        A file without statistics may have missing values anywhere.

        Raises
        ------
        InputError
            A column holds what is neither number, boolean, text nor time, or there are no rows.
        """
        if not self.num_rows:
            raise InputError(f"{self.path} has columns but no rows.")
        return {name: self._readable_type(name) for name in columns}

    def batches(self, types: Mapping[str, Any]) -> Iterator[Any]:
        """
        Yield record batches with the columns of ``types``, in that order and of those types.

        Raises
        ------
        InputError
            The file is damaged or a cell does not fit its type.
        """
        row = 0
        for name in types:
            self._readable_type(name)
        with self._opened() as file:
            read_rows = max(256, min(_READ_ROWS, _READ_BYTES // (8 * max(len(types), 1))))
            for batch in file.iter_batches(read_rows, columns=list(types)):
                arrays = [
                    self._read_as(batch[name], type_, name, row) for name, type_ in types.items()
                ]
                row += batch.num_rows
                yield pa.RecordBatch.from_arrays(arrays, names=list(types))

    def kept_batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield record batches of some columns as they lie, whatever they hold."""
        with self._opened() as file:
            for batch in file.iter_batches(_READ_ROWS, columns=list(columns)):
                yield batch.select(list(columns))

    def kept_schema(self, columns: Sequence[str]) -> Any:
        """Return the schema of `kept_batches`."""
        with self._opened() as file:
            return pa.schema([file.schema_arrow.field(name) for name in columns])

    def where(self, row: int) -> str:
        """Return ``row 17`` for row 16, which counts from 0."""
        return f"row {row + 1}"

    def _read_as(self, column: Any, type_: Any, name: str, row: int) -> Any:
        """Convert a column of the batch that starts at ``row``."""
        column = _plain_column(column)
        try:
            return read_arrow_column(column, type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            position = first_unreadable(column, type_)
            raise InputError(
                f"column {name!r} of {self.path} has {column[position].as_py()!r} in "
                f"{self.where(row + position)}, which cannot be read as {type_}; correct it, or "
                "make it null if the value is missing."
            ) from None

    def _readable_type(self, name: str) -> Any:
        """Return the type that the column keeps or becomes."""
        type_, nulls = self.types[name]
        found = readable_arrow_type(type_, nulls=nulls)
        if found is not None:
            return found
        raise InputError(
            f"column {name!r} of {self.path} holds {type_}, which is neither number, text nor "
            "time; leave the column out or spread it over several columns."
        )

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        """Open the file and explain what goes wrong while it is read."""
        with explained_os_errors(self.path, "read"):
            try:
                with (
                    opened_for_parquet(self.path) as source,
                    pq.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file,
                ):
                    yield file
            except (pa.ArrowException, OSError) as error:
                if getattr(error, "errno", None) is not None:  # from the system, not from Arrow
                    raise
                raise InputError(
                    f"{self.path} is no whole Parquet file (cut short, damaged or something else); "
                    "write or copy it again."
                ) from error


def open_parquet(path: str | os.PathLike[str]) -> ParquetTable:
    """
    Read the footer of a Parquet file.

    Raises
    ------
    InputError
        The file is missing, damaged or has several columns of one name.
    """
    path = os.fspath(path)
    with ParquetTable(path, (), 0)._opened() as file:
        names = file.schema_arrow.names
        num_rows = file.metadata.num_rows
        types = _column_types(file)
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise InputError(f"{path} has several columns named {listed(doubled)}; rename all but one.")
    # What pandas stores as the nameless index of its rows is no column of the user's.
    columns = tuple(name for name in names if not _PANDAS_INDEX.fullmatch(name))
    return ParquetTable(path, columns, num_rows, types)


def readable_arrow_type(type_: Any, *, nulls: bool) -> Any:
    """Return the type that a column of an Arrow type is read as, None if it cannot be read.

    Parameters
    ----------
    type_
        Of the column.
    nulls
        Whether it may have missing values.
    """
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return pa.float64() if nulls else type_
    if pa.types.is_float16(type_):
        return pa.float32()
    if pa.types.is_floating(type_):
        return type_
    if pa.types.is_decimal(type_) or pa.types.is_null(type_) or _is_date(type_):
        return pa.float64()
    return pa.string() if _is_text(type_) else None


def read_arrow_column(column: Any, type_: Any) -> Any:
    """Return an Arrow column as the type that `readable_arrow_type` chose, or the user."""
    column = _plain_column(column)
    if pa.types.is_floating(type_) and _is_date(column.type):
        return days_of(column).cast(type_)
    if pa.types.is_string(column.type):
        return parse_text(column, type_)
    # Integers beyond 2^53 may be rounded, as everywhere else.
    return column.cast(type_, safe=not pa.types.is_floating(type_))


def _plain_column(column: Any) -> Any:
    """Return a column without an extension, its text of the usual kind."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    if pa.types.is_dictionary(column.type) and not pa.types.is_string(column.type.value_type):
        words = _plain_column(column.dictionary)  # of polars, which Arrow cannot take from
        column = pa.DictionaryArray.from_arrays(column.indices, words)
    return column


def _column_types(file: Any) -> dict[str, tuple[Any, bool]]:
    """Return the type of every column and whether it may have missing values, from the footer."""
    metadata = file.metadata
    leaves = {metadata.schema.column(i).path: i for i in range(len(metadata.schema))}
    found = {}
    for field_ in file.schema_arrow:
        type_ = field_.type
        whole = pa.types.is_integer(type_) or pa.types.is_boolean(type_)
        asked = whole or isinstance(type_, pa.BaseExtensionType)  # others keep their type anyway
        leaf = leaves.get(field_.name)
        found[field_.name] = type_, asked and (leaf is None or _may_have_nulls(metadata, leaf))
    return found


def _may_have_nulls(metadata: Any, leaf: int) -> bool:
    """Say whether a flat column may have missing values, from the statistics in the footer."""
    if metadata.schema.column(leaf).max_definition_level == 0:
        return False
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(leaf).statistics
        if statistics is None or not statistics.has_null_count or statistics.null_count:
            return True
    return False


def _is_date(type_: Any) -> bool:
    """Say whether a column holds days, with or without a time, or spans: all become days."""
    kinds = (pa.types.is_date, pa.types.is_timestamp, pa.types.is_duration)
    return any(kind(type_) for kind in kinds)


def _is_text(type_: Any) -> bool:
    """Say whether a column reads best as text: words, categories, times of day."""
    if pa.types.is_dictionary(type_):
        return not pa.types.is_nested(type_.value_type)
    kinds = ("string", "large_string", "string_view", "time")
    return any(getattr(pa.types, f"is_{kind}")(type_) for kind in kinds)
