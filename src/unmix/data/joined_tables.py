"""Several files as one table: their rows one after the other, with the columns of their folders.

A column has one type in all files, the narrowest that holds it in each. Knows nothing of sets or
pandas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from unmix.data.addresses import FoundFile
from unmix.data.column_types import ColumnKind, parse_text
from unmix.data.csv_table import CsvTable
from unmix.data.parquet_table import ParquetTable
from unmix.data.wording import listed
from unmix.errors import InputError

__all__ = ["JoinedTables", "join_tables"]


@dataclass(frozen=True, eq=False)
class JoinedTables:
    """Several tables with the same columns. Made by `join_tables`."""

    path: str
    """What messages call all of them."""
    columns: tuple[str, ...]
    parts: tuple[CsvTable | ParquetTable, ...]
    partitions: tuple[dict[str, str | None], ...]
    """What the folders of each file say."""
    _starts: list[int] = field(default_factory=list)

    @property
    def files(self) -> tuple[str, ...]:
        """Where the rows lie."""
        return tuple(part.path for part in self.parts)

    @property
    def num_rows(self) -> int | None:
        """Rows of all files, where that is cheap to know."""
        total = 0
        for part in self.parts:
            if part.num_rows is None:
                return None
            total += part.num_rows
        return total

    def infer_types(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return the Arrow type of each column, from all files; empty files have no say."""
        found: dict[str, set[Any]] = {name: set() for name in columns}
        filled = [part for part in self.parts if part.num_rows != 0] or self.parts[:1]
        for part in filled:
            own = [name for name in columns if name in part.columns]
            for name, type_ in part.infer_types(own).items():
                found[name].add(type_)
        return {
            name: _common_type(types) if types else self._folder_type(name)
            for name, types in found.items()
        }

    def batches(self, types: Mapping[str, Any]) -> Iterator[Any]:
        """Yield record batches with the columns of ``types``, file by file."""
        row = 0
        self._starts.clear()
        for part, partition in zip(self.parts, self.partitions, strict=True):
            self._starts.append(row)
            if part.num_rows == 0:
                continue
            own = {name: type_ for name, type_ in types.items() if name in part.columns}
            # Where only folders are asked about, a column of the file tells how many rows it has.
            for batch in part.batches(own or {part.columns[0]: pa.string()}):
                rows = batch.num_rows
                row += rows
                if len(own) == len(types):
                    yield batch
                    continue
                arrays = [
                    batch[name] if name in own else _repeated(partition[name], type_, rows)
                    for name, type_ in types.items()
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=list(types))

    def kept_batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield record batches of some columns as they lie, of one type in all files (Parquet)."""
        schema = self.kept_schema(columns)
        for part, partition in zip(self.parts, self.partitions, strict=True):
            if isinstance(part, CsvTable):
                raise TypeError("columns of CSV files are read as text")
            own = [name for name in columns if name in part.columns]
            for batch in part.kept_batches(own or [part.columns[0]]):
                arrays = [
                    batch[name].cast(schema.field(name).type)
                    if name in own
                    else _repeated(partition[name], schema.field(name).type, batch.num_rows)
                    for name in columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def kept_schema(self, columns: Sequence[str]) -> Any:
        """Return the schema of `kept_batches`."""
        found = []
        for part in self.parts:
            if isinstance(part, ParquetTable):
                own = [name for name in columns if name in part.columns]
                found.append(part.kept_schema(own).remove_metadata())
        whole = pa.unify_schemas(found, promote_options="permissive")
        return pa.schema(
            [
                whole.field(name)
                if name in whole.names
                else pa.field(name, self._folder_type(name))
                for name in columns
            ]
        )

    def where(self, row: int) -> str:
        """Return ``row 17 of FILE`` for a row that `batches` has reached."""
        place = max((i for i, start in enumerate(self._starts) if start <= row), default=0)
        start = self._starts[place] if self._starts else 0
        part = self.parts[place]
        return f"{part.where(row - start)} of {part.path}"

    def _folder_type(self, name: str) -> Any:
        """Return the type of a column that is in the names of folders."""
        kind = ColumnKind()
        kind.see(pa.array([partition[name] or "" for partition in self.partitions], pa.string()))
        return kind.type()


def join_tables(
    tables: Sequence[CsvTable | ParquetTable], files: Sequence[FoundFile], name: str
) -> JoinedTables:
    """
    Put tables one after the other.

    Parameters
    ----------
    tables
        With the same columns, in any order.
    files
        The file of each.
    name
        What messages call all of them.

    Raises
    ------
    InputError
        A file has other columns than the first.
    """
    partitions = [dict(file.partition) for file in files]
    first = tables[0]
    for table, partition in zip(tables, partitions, strict=True):
        if set(table.columns) != set(first.columns):
            missing = sorted(set(first.columns) - set(table.columns))
            more = sorted(set(table.columns) - set(first.columns))
            said = f"lacks {listed(missing)}" if missing else f"has {listed(more)} besides"
            raise InputError(
                f"{table.path} {said}, unlike {first.path}; give all files the same columns, or "
                "name the files to read."
            )
        if set(partition) != set(partitions[0]):
            raise InputError(
                f"{table.path} lies in folders of other names than {first.path}; put all files "
                "into folders such as month=1, or name the files to read."
            )
    # What is a column already needs no folder.
    kept = [key for key in partitions[0] if key not in first.columns]
    return JoinedTables(
        name,
        (*first.columns, *kept),
        tuple(tables),
        tuple({key: partition[key] for key in kept} for partition in partitions),
    )


def _common_type(types: set[Any]) -> Any:
    """Return the narrowest type that holds a column of these types."""
    if len(types) == 1:
        return next(iter(types))
    if any(pa.types.is_string(type_) for type_ in types):
        return pa.string()
    if any(pa.types.is_timestamp(type_) for type_ in types):
        return pa.string()  # dates in one file and numbers in another
    whole = all(pa.types.is_integer(type_) for type_ in types)
    return pa.int64() if whole and pa.uint64() not in types else pa.float64()


def _repeated(value: str | None, type_: Any, length: int) -> Any:
    """Return the value of a folder for every row of a batch."""
    cell = parse_text(pa.array(["" if value is None else value], pa.string()), type_)
    return pa.concat_arrays([cell]).take(pa.array([0] * length, pa.int64()))
