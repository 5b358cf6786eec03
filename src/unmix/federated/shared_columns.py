"""What the columns of a party's table are in sums, and the encoder that all parties agree on.

Numbers tell their count, mean and variance; words tell which ones there are and how often, unless
they are rarer than the party shares or it keeps the words of a column to itself. Joined, they give
the encoder that a table of all rows would have had, by the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.federated.replies import stop
from unmix.learn.columns import LARGEST, Column, LeftOutColumn, SeenColumn
from unmix.learn.encoding import TableEncoder

__all__ = ["SharedColumn", "agreed_encoder", "left_out_columns", "read_columns"]

MOST_COLUMNS, MOST_TOLD, LONGEST_WORD = 100_000, 10_000, 1_000


@dataclass(frozen=True)
class SharedColumn:
    """What one party tells of one column of its table."""

    name: str
    kind: Literal["number", "text", "empty"]
    missing: bool = False
    """Whether some values are missing."""
    named: str = ""
    """Why the column only names or numbers the rows, if it does."""
    count: int = 0
    """Numbers, of which the next two are told."""
    mean: float = 0.0
    variance: float = 0.0
    words: Mapping[str, int] = field(default_factory=dict)
    """Rows of each word that the party shares."""
    others: bool = False
    """Whether there are words that it does not."""

    @classmethod
    def of(
        cls, seen: SeenColumn, least_rows: int, least_cell: int, *, hidden: bool
    ) -> SharedColumn:
        """Return what a party tells of a column.

        Parameters
        ----------
        seen : SeenColumn
            All rows of the party.
        least_rows : int
            Numbers that there must be for their mean to be told; fewer are as none.
        least_cell : int
            Rows that a word must have to be told.
        hidden : bool
            Tell no word at all.
        """
        if not seen.words:
            if seen.count < max(least_rows, 1):
                return cls(seen.name, "empty", missing=True, named=seen.names_rows)
            sums = (seen.count, seen.mean, seen.variance)
            return cls(seen.name, "number", seen.missing, seen.names_rows, *sums)
        common = {} if hidden else {w: n for w, n in seen.words.items() if n >= least_cell}
        told = dict(sorted(common.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_TOLD])
        others = seen.forgotten or len(told) < len(seen.words)
        return cls(seen.name, "text", seen.missing, seen.names_rows, words=told, others=others)

    def to_json(self) -> dict[str, Any]:
        """Return the column as JSON values."""
        return vars(self) | {"words": dict(self.words)}


def read_columns(party: str, stored: Any) -> list[SharedColumn]:
    """Return the columns that a party told of, or name the party that told nonsense."""
    if not isinstance(stored, list) or not 0 < len(stored) <= MOST_COLUMNS:
        stop(party, "sent no list of columns")
    columns = []
    for entry in stored:
        if not _is_column(entry):
            stop(party, "sent a column that is none")
        columns.append(SharedColumn(**entry))
    if len({column.name for column in columns}) < len(columns):
        stop(party, "sent a column twice")
    return columns


def left_out_columns(told: Sequence[Sequence[SharedColumn]]) -> list[str]:
    """Return the columns that only some of the parties have."""
    names = [{column.name for column in columns} for columns in told]
    return sorted(names[0].union(*names) - names[0].intersection(*names))


def agreed_encoder(parties: Sequence[str], told: Sequence[Sequence[SharedColumn]]) -> TableEncoder:
    """Return the encoder for the columns that all parties have.

    Parameters
    ----------
    parties : sequence of str
    told : sequence of one list of columns for each party
    """
    _refuse_names_of_parties(told)
    summaries: list[Column] = []
    absent = set(left_out_columns(told))
    for first in told[0]:
        if first.name in absent:
            continue
        seen = SeenColumn(first.name)
        # Some words were not told, so that the rest need not look like numbers gone wrong.
        seen.declared = True
        kinds: dict[str, str] = {}
        named = []
        for party, columns in zip(parties, told, strict=True):
            column = next(c for c in columns if c.name == first.name)
            seen.join(column.count, column.mean, column.variance)
            seen.words.update(column.words)
            seen.missing |= column.missing
            seen.forgotten |= column.others
            if column.kind != "empty":
                kinds[column.kind] = party
                named.append(column.named)
        if len(kinds) > 1:
            raise InputError(
                f"column {first.name!r} holds numbers at party {kinds['number']!r} and text at "
                f"party {kinds['text']!r}; make both the same, or leave it out (--drop)"
            )
        if named and all(named):
            summaries.append(LeftOutColumn(first.name, named[0]))
        elif kinds and "text" in kinds and not seen.words:
            summaries.append(LeftOutColumn(first.name, "no party shares a word of it"))
        else:
            summaries.append(seen.summary())
    names = [column.name for column in told[0]]
    if not summaries:
        raise InputError(
            f"no column is in the tables of all parties; {parties[0]!r} has {listed(names)}"
        )
    encoder = TableEncoder(summaries)
    if not encoder.feature_names:
        raise InputError(
            f"no column that all parties have varies ({listed(encoder.columns)}); add columns that "
            "differ between rows"
        )
    return encoder


def _refuse_names_of_parties(told: Sequence[Sequence[SharedColumn]]) -> None:
    """Refuse a column with one value at each party, another at each: it names the party."""
    by_name: dict[str, list[Any]] = {}
    for column in (column for columns in told for column in columns):
        by_name.setdefault(column.name, []).append(_only_value(column))
    for name, values in by_name.items():
        if None not in values and 1 < len(told) == len(set(values)):
            raise InputError(
                f"column {name!r} has one value at each party, and another at each: a model could "
                f"learn the party and not the class; drop it (--drop {name})"
            )


def _only_value(column: SharedColumn) -> float | str | None:
    """Return the value that all rows of a party have; None if they differ."""
    if column.kind == "number" and column.variance == 0:
        return column.mean
    if column.kind == "text" and len(column.words) == 1 and not column.others:
        return next(iter(column.words))
    return None


def _is_column(entry: Any) -> bool:
    """Say whether JSON values are those of a column."""
    if not isinstance(entry, dict) or set(entry) != set(SharedColumn.__dataclass_fields__):
        return False
    words = entry["words"]
    return (
        isinstance(entry["name"], str)
        and isinstance(entry["named"], str)
        and len(entry["name"]) <= LONGEST_WORD
        and len(entry["named"]) <= LONGEST_WORD
        and entry["kind"] in ("number", "text", "empty")
        and all(isinstance(entry[key], bool) for key in ("missing", "others"))
        and type(entry["count"]) is int
        and entry["count"] >= 0
        and all(type(entry[key]) in (int, float) for key in ("mean", "variance"))
        and abs(entry["mean"]) <= LARGEST
        and 0 <= entry["variance"] <= LARGEST
        and isinstance(words, dict)
        and len(words) <= MOST_TOLD
        and all(len(w) <= LONGEST_WORD and type(n) is int and n > 0 for w, n in words.items())
        and (entry["kind"] == "number") == (entry["count"] > 0)
        and (entry["kind"] == "text" or not words)
    )
