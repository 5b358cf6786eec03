"""Shares of several groupings of the same rows: by region and by month, each row in a set of both.

The sets of all groupings are one table, in which a set is called "region: north". Rows name their
sets in a frame with a column for each grouping; an empty cell says that a row has none there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmix.core.class_shares import ClassShares
from unmix.core.share_precision import SharePrecision
from unmix.data.priors import Priors, Unused, is_grouped, match_ids, refuse_unused
from unmix.data.rate_statement import RateStatement
from unmix.data.wording import listed
from unmix.errors import InputError

__all__ = ["GroupedPriors", "grouped_priors", "id_text", "set_name", "sources_of", "with_columns"]


@dataclass(frozen=True, eq=False)
class GroupedPriors(Priors):
    """The class shares of the sets of several groupings; made by `grouped_priors`.

    Attributes
    ----------
    columns : tuple of G str
        What the groupings are called.
    given : tuple of G Priors
        The shares of each as they came, of all sets; empty if that is not known.
    """

    columns: tuple[str, ...] = ()
    given: tuple[Priors, ...] = ()

    def resolved(self, set_sizes: Any) -> GroupedPriors:
        """Return the priors with their precision, which the rows of the sets settle (`Priors`)."""
        shares, grouping, errors = self.set_priors, self.set_priors.grouping, self.standard_errors
        if shares.precision is not None or not self.given or grouping is None:
            return self
        sizes, matrix = np.asarray(set_sizes, dtype=np.float64), shares.matrix.copy()
        counted, found, beyond = np.zeros(len(self)), np.zeros(len(self)), np.zeros(matrix.shape)
        for g, part in enumerate(self.given):
            own = np.flatnonzero(grouping == g)
            place: dict[Hashable, int] = {
                id_text(set_id): i for i, set_id in enumerate(part.set_ids)
            }
            rows = [place[name] for name in self.of_grouping(g)]
            stated = None if part.standard_errors is None else part.standard_errors[rows]
            said = RateStatement(errors=stated)
            if part.statement is not None:
                said = part.statement.take(rows)
            ids = [self.set_ids[j] for j in own.tolist()]
            known = said.precision(matrix[own], sizes[own], ids, part.source)
            matrix[own] = said.exact_shares(matrix[own], known.counted)
            counted[own], found[own] = known.counted, known.errors
            if known.beyond is not None:
                excess = known.beyond
                both = np.stack((-excess, excess), axis=1) if excess.ndim == 1 else excess
                beyond[own] = both
        known = SharePrecision(counted, found, beyond if beyond.any() else None)
        if errors is not None or found.any():
            errors = found
        return replace(
            self, set_priors=shares.with_matrix(matrix).known(known), standard_errors=errors
        )

    def find_sets(
        self, sets: Any, *, unused: Unused = "error"
    ) -> tuple[NDArray[np.int64], tuple[Hashable, ...]]:
        """Find the sets of each row, as for one grouping.

        Parameters
        ----------
        sets : frame of n rows
            With a column for each grouping; some may be absent.
        unused : 'error', 'drop' or 'keep'

        Returns
        -------
        set_index : (n, G)
            -1 where a row has no set in a grouping.
        used_ids : tuple
        """
        if getattr(sets, "name", None) in self.columns:
            sets = sets.to_frame()
        if not is_grouped(sets):
            raise InputError(
                f"there are {len(self.columns)} groupings ({listed(list(self.columns))}): pass "
                "sets as a frame with a column for each"
            )
        names = [str(name) for name in sets.columns]
        strange = [name for name in names if name not in self.columns]
        if strange:
            raise InputError(
                f"sets has a column {strange[0]!r}, of which {self.source} has no shares; the "
                f"groupings are {listed(list(self.columns))}"
            )
        index = np.full((len(sets), len(self.columns)), -1, dtype=np.int64)
        grouping = self.set_priors.grouping
        for i, name in enumerate(names):
            g = self.columns.index(name)
            places = _found(sets.iloc[:, i], self, g, unused)
            index[:, g] = np.where(places < 0, -1, places + int(np.argmax(grouping == g)))
        nowhere = (index < 0).all(axis=1)
        if nowhere.any():
            raise InputError(
                f"row {int(nowhere.argmax()) + 1} has no set in any of {listed(names)}; give it "
                "one or remove it"
            )
        if unused != "drop":
            return index, self.set_ids
        kept = np.zeros(len(self) + 1, dtype=bool)
        kept[index] = True
        kept = kept[:-1]  # the last is where -1 points
        position = np.append(np.cumsum(kept) - 1, -1)
        return position[index], tuple(np.asarray(self.set_ids, dtype=object)[kept])

    def of_grouping(self, g: int) -> dict[Hashable, int]:
        """Return the ids of the sets of one grouping as rows name them -> their positions."""
        start = len(self.columns[g]) + 2
        own = np.flatnonzero(self.set_priors.grouping == g)
        return {str(self.set_ids[j])[start:]: i for i, j in enumerate(own.tolist())}

    def source_of(self, g: int) -> str:
        """Return where the shares of a grouping came from."""
        return self.given[g].source if self.given else self.source

    def left_out(self, g: int, name: str) -> bool:
        """Say whether a set of this name has no share by choice: its rows have no set here then."""
        if not self.given:
            return False
        part = self.given[g]
        return part.drop_unrated or name in {id_text(set_id) for set_id in part.unrated}


def grouped_priors(given: Mapping[Any, Any], columns: Sequence[Any]) -> GroupedPriors:
    """Put the shares of several groupings into one table.

    Parameters
    ----------
    given : mapping
        Name of a grouping -> its shares, as for one.
    columns : sequence
        The groupings that are wanted, in order.

    Examples
    --------
    >>> shares = {"region": {"north": 0.8, "south": 0.2}, "month": {1: 0.4, 2: 0.6}}
    >>> grouped_priors(shares, ["region", "month"]).set_ids
    ('region: north', 'region: south', 'month: 1', 'month: 2')
    """
    absent = [name for name in columns if name not in given]
    if absent:
        raise InputError(
            f"there are no shares for grouping {absent[0]!r}; set_priors must map each column of "
            f"sets to its shares, and it has {listed([str(name) for name in given], 5)}"
        )
    parts = [Priors.of(given[name]) for name in columns]
    classes = parts[0].classes
    for name, part in zip(columns, parts, strict=True):
        if set(part.classes or ()) != set(classes or ()):
            raise InputError(
                f"the shares of {columns[0]!r} are of {_classes(classes)}, those of {name!r} of "
                f"{_classes(part.classes)}; give the same classes for all groupings"
            )
    matrices = [_in_order(part, classes) for part in parts]
    shares = ClassShares(np.concatenate(matrices))
    if not parts[0].set_priors.per_class:
        shares = ClassShares(shares.matrix[:, 1])
    ids = [
        set_name(name, set_id)
        for name, part in zip(columns, parts, strict=True)
        for set_id in part.set_ids
    ]
    if len(set(ids)) < len(ids):
        twice = next(name for i, name in enumerate(ids) if name in ids[:i])
        raise InputError(f"set_priors names set {twice!r} more than once; keep one prior for each")
    grouping = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    errors = None
    if any(part.standard_errors is not None for part in parts):
        errors = np.concatenate(
            [
                np.zeros(len(part)) if part.standard_errors is None else part.standard_errors
                for part in parts
            ]
        )
    source = " and ".join(part.source for part in parts)
    joined = Priors(tuple(ids), shares.grouped(grouping), classes, errors, source)
    return with_columns(joined, [str(name) for name in columns], parts)


def with_columns(
    priors: Priors, columns: Sequence[str], given: Sequence[Priors] = ()
) -> GroupedPriors:
    """Return priors of all sets, whose shares know their grouping, as those of named groupings."""
    return GroupedPriors(
        priors.set_ids,
        priors.set_priors,
        priors.classes,
        priors.standard_errors,
        priors.source,
        understood="; ".join(part.understood for part in given if part.understood),
        columns=tuple(columns),
        given=tuple(given),
    )


def sources_of(priors: Priors) -> tuple[str, ...]:
    """Return where priors came from, of each grouping."""
    if isinstance(priors, GroupedPriors):
        return tuple(priors.source_of(g) for g in range(len(priors.columns)))
    return (priors.source,)


def set_name(column: Any, set_id: Any) -> str:
    """Return what a set of a grouping is called."""
    return f"{column}: {id_text(set_id)}"


def id_text(value: Any) -> str:
    """Return an id as text, a whole number without a point: a column with gaps makes it one."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _found(column: Any, priors: GroupedPriors, g: int, unused: Unused) -> NDArray[np.int64]:
    """Return the place of each row's set among those of a grouping; -1 for a row without one."""
    codes, values = pd.factorize(column)
    known, source = priors.of_grouping(g), priors.source_of(g)
    named = [id_text(value) for value in values.tolist()]
    rated = [name in known or not priors.left_out(g, name) for name in named]
    wanted = np.array([name for name, has in zip(named, rated, strict=True) if has], dtype=object)
    places = np.full(len(named) + 1, -1)  # the last is where a row without a set points
    places[np.flatnonzero(rated)] = match_ids(wanted, known, source, "keep")[0]
    if unused == "error":
        has_rows = np.zeros(len(known) + 1, dtype=bool)
        has_rows[places] = True
        refuse_unused(has_rows[:-1], known, source)
    return np.asarray(places[codes])


def _in_order(priors: Priors, classes: tuple[Hashable, ...] | None) -> NDArray[np.float64]:
    """Return shares (m, K) with the classes in a given order."""
    if classes is None or priors.classes is None:
        return priors.set_priors.matrix
    return np.asarray(priors.set_priors.matrix[:, [priors.classes.index(name) for name in classes]])


def _classes(classes: tuple[Hashable, ...] | None) -> str:
    """Return what the shares are of, in words."""
    return "positives" if classes is None else f"classes {listed([str(name) for name in classes])}"
