"""Entries of one kind, one for each set, kept as columns: there may be a million.

This file knows what entries are made of, not what they mean.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np

from unmix.assess.estimates import frozen_share

__all__ = ["BLOCK", "Entries"]

Entry = TypeVar("Entry")

BLOCK = 4096  # entries that are made at a time
SHOWN = 10


class Entries(Sequence[Entry], Generic[Entry]):
    """A sequence of entries of one kind, each of which is made when it is looked at.

    Parameters
    ----------
    kind : class
        Called with one value of each column.
    columns : arrays (m,) or (m, K), or sequences of length m
        Of an array (m, K) an entry gets a tuple.

    Examples
    --------
    >>> entries = Entries(complex, np.array([1.0, 2.0]), [0.5, 0.25])
    >>> len(entries), entries[1], entries == [1 + 0.5j, 2 + 0.25j]
    (2, (2+0.25j), True)
    """

    def __init__(self, kind: type[Entry], *columns: Any) -> None:
        if len({len(column) for column in columns}) != 1:
            raise ValueError(f"columns of {[len(column) for column in columns]} entries")
        self.kind = kind
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, place: int) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> Entries[Entry]: ...
    def __getitem__(self, place: int | slice) -> Entry | Entries[Entry]:
        if isinstance(place, slice):
            return Entries(self.kind, *(column[place] for column in self.columns))
        number = range(len(self))[operator.index(place)]
        return self[number : number + 1].made()[0]

    def __iter__(self) -> Iterator[Entry]:
        for block in self.blocks():
            yield from block

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    def __hash__(self) -> int:
        return hash((self.kind, len(self)))

    def __repr__(self) -> str:
        more = len(self) - SHOWN
        shown = [*map(repr, self[:SHOWN]), *([f"and {more:,} more"] if more > 0 else [])]
        return f"({', '.join(shown)}{',' * (len(shown) == 1)})"

    def blocks(self) -> Iterator[list[Entry]]:
        """Yield a few thousand entries at a time."""
        for first in range(0, len(self), BLOCK):
            yield self[first : first + BLOCK].made()

    def made(self) -> list[Entry]:
        """Return all entries in a list."""
        parts = [
            map(frozen_share, column.tolist()) if isinstance(column, np.ndarray) else column
            for column in self.columns
        ]
        return [self.kind(*values) for values in zip(*parts, strict=True)]

    def with_column(self, name: str, column: Any) -> Entries[Entry]:
        """Return the entries, which are of a dataclass, with other values of one field."""
        names = [field.name for field in dataclasses.fields(self.kind)]  # type: ignore[arg-type]
        columns = zip(names, self.columns, strict=True)
        return Entries(self.kind, *(column if own == name else old for own, old in columns))

    @staticmethod
    def none(kind: type[Entry]) -> Entries[Entry]:
        """Return no entry of a dataclass."""
        return Entries(kind, *(() for _ in dataclasses.fields(kind)))  # type: ignore[arg-type]

    @staticmethod
    def joined(parts: Sequence[Entries[Entry]]) -> Entries[Entry]:
        """Return the entries of several sequences, one after the other."""
        some = [part for part in parts if len(part)] or parts[:1]
        columns = zip(*(part.columns for part in some), strict=True)
        return Entries(some[0].kind, *map(_one_after_the_other, columns))


def _one_after_the_other(columns: Sequence[Any]) -> Any:
    """Return one column of several."""
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    return [value for column in columns for value in column]
