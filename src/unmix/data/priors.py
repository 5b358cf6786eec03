"""The user's set priors: read from a table or a mapping, checked, and matched with the rows.

Set ids from files are text exactly as written; ids from Python are any hashable. This module does
not know which rows there are beyond their set ids, nor how priors are used.
"""

import functools
import os
import unicodedata
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from unmix.core.class_shares import ClassShares, check_identifiable, share_problems
from unmix.data.prior_columns import interpret
from unmix.data.tables import Table, open_table
from unmix.data.wording import listed, nearest, quoted
from unmix.errors import InputError

__all__ = ["Priors", "factor_ids", "match_ids", "match_sets", "read_rates", "refuse_unused"]


@dataclass(frozen=True, eq=False)
class Priors:
    """
    The class shares of m sets.

    Attributes
    ----------
    set_ids
        The m ids, all different.
    set_priors
        `ClassShares`: the share of positives of each set, or of each class.
    classes
        The K class names, or None for shares of positives.
    standard_errors (m,)
        Of the shares; 0 says that a share is known exactly. None if nothing is known about them.
    source
        Where the priors came from, for messages: a file name or ``set_priors``.

    Raises
    ------
    IdentifiabilityError
        There are fewer than two sets, or all have the same prior.
    """

    set_ids: tuple[Hashable, ...]
    set_priors: ClassShares
    classes: tuple[Hashable, ...] | None = None
    standard_errors: NDArray[np.float64] | None = None
    source: str = "set_priors"

    def __post_init__(self) -> None:
        object.__setattr__(self, "set_priors", ClassShares.of(self.set_priors))
        check_identifiable(self.set_priors.matrix, self.source, least_rank=2)

    def __len__(self) -> int:
        return len(self.set_ids)

    @functools.cached_property
    def index(self) -> dict[Hashable, int]:
        """Set id -> its position in ``set_ids``."""
        return {set_id: position for position, set_id in enumerate(self.set_ids)}

    @classmethod
    def from_mapping(
        cls, set_priors: "Mapping[Any, Any] | pd.Series[Any]", *, source: str = "set_priors"
    ) -> "Priors":
        """
        Make priors from Python values.

        Parameters
        ----------
        set_priors
            Set id -> share of positives, or set id -> mapping of every class to its share.
        source
            What messages call it.

        Examples
        --------
        >>> Priors.from_mapping({"north": 0.31, "south": 0.12}).set_priors
        ClassShares([0.31 0.12])
        >>> by_class = Priors.from_mapping({1: {"a": 0.2, "b": 0.8}, 2: {"a": 0.5, "b": 0.5}})
        >>> by_class.classes
        ('a', 'b')
        """
        shares = dict(set_priors)
        if len(shares) < len(set_priors):
            raise InputError(f"{source} names a set more than once; keep one prior for each set.")
        set_ids = tuple(shares)
        if len(set_ids) < 2:
            check_identifiable(np.empty((len(set_ids), 2)), source)
        if not any(isinstance(share, Mapping) for share in shares.values()):
            values = _floats(shares.values(), set_ids, source)
            return cls(set_ids, ClassShares(values, set_ids, source=source), source=source)
        classes = _common_classes(shares, source)
        columns = [
            _floats((share[name] for share in shares.values()), set_ids, source) for name in classes
        ]
        for name, column in zip(classes, columns, strict=True):
            for problem in share_problems(column, set_ids, f"{source}, class {name!r}"):
                raise InputError(f"{problem}.")
        table = ClassShares(np.column_stack(columns), set_ids, source=source)
        return cls(set_ids, table, classes, source=source)

    @classmethod
    def of(cls, given: Any) -> "Priors":
        """Return priors as they are, or made from a mapping or a Series."""
        return given if isinstance(given, Priors) else cls.from_mapping(given)

    def keep(self, set_ids: Sequence[Hashable]) -> "Priors":
        """Return the priors of some of the sets, in the order of ``set_ids``."""
        rows = [self.index[set_id] for set_id in set_ids]
        errors = None if self.standard_errors is None else self.standard_errors[rows]
        shares = self.set_priors.take(rows)
        return Priors(tuple(set_ids), shares, self.classes, errors, self.source)


def read_rates(
    path: str | os.PathLike[str],
    set_column: str | None = None,
    *,
    classes: Sequence[str] | None = None,
) -> Priors:
    """
    Read set priors from a CSV or Parquet file.

    Besides the set column the file has either one column of shares of positives; or shares and
    their standard errors (``standard_error``, ``se``, ...); or counts (``positives`` or ``cases``,
    and ``total`` or ``n``), from which the standard error follows; or one column of shares per
    class, named after the class. Shares per class that are off 1 by at most 0.005 are scaled. Two
    classes count as negative and positive if their names say so (no and yes, 0 and 1, ...).

    Parameters
    ----------
    path
        The file.
    set_column
        The column with the set ids; if the file has none of that name, the column ``set``.
    classes
        The columns that hold shares per class, if the file has others too.

    Returns
    -------
    Priors
        With set ids as text exactly as written.

    Raises
    ------
    InputError
        In one line: the file, the set, what is wrong and the cure.
    """
    table = open_table(path)
    id_column = _find_set_column(table, set_column)
    batches = list(table.batches(dict.fromkeys(table.columns, pa.string())))
    if not sum(batch.num_rows for batch in batches):
        raise InputError(f"{table.path} has columns but no rows.")
    text = pa.Table.from_batches(batches).combine_chunks()
    columns = {name: text[name].chunk(0) for name in text.column_names}
    set_ids = _set_ids(table, columns, id_column)
    del columns[id_column]
    found = interpret(columns, set_ids, table.path, classes)
    return Priors(set_ids, found.set_priors, found.classes, found.standard_errors, table.path)


def match_sets(
    set_values: Any,
    priors: Priors,
    *,
    unused: Literal["error", "drop", "keep"] = "error",
) -> tuple[NDArray[np.int64], tuple[Hashable, ...]]:
    """
    Find the prior of each row's set.

    Parameters
    ----------
    set_values (n,)
        The set id of each row: an array, a Series or a list.
    priors
        The priors.
    unused
        What to do with sets that have a prior but no rows: raise an error, drop them (then
        ``priors.keep(used_ids)`` belongs to the result), or keep them, as one does with a batch
        or a fold of the rows.

    Returns
    -------
    set_index (n,)
        The position of each row's set in ``used_ids``.
    used_ids
        The ids of the sets, in the order of ``priors.set_ids``.

    Raises
    ------
    InputError
        A row has no set, a set has no prior, or a prior has no rows.
    """
    set_index, used = match_ids(set_values, priors.index, priors.source, unused)
    if len(used) == len(priors):
        return set_index, priors.set_ids
    return set_index, tuple(priors.set_ids[position] for position in used)


def _floats(values: Iterable[Any], set_ids: Sequence[Hashable], source: str) -> NDArray[np.float64]:
    """Return Python numbers as an array; text is not a number, even if it looks like one."""
    floats = []
    for set_id, value in zip(set_ids, values, strict=True):
        try:
            floats.append(float("text" if isinstance(value, str) else value))
        except (TypeError, ValueError):
            raise InputError(
                f"{source}, set {quoted(set_id)}: {value!r} is not a number; "
                "give a share such as 0.35."
            ) from None
    return np.array(floats, dtype=np.float64)


def _common_classes(shares: Mapping[Hashable, Any], source: str) -> tuple[Hashable, ...]:
    """Return the classes, which every set must name."""
    classes: tuple[Hashable, ...] | None = None
    for set_id, by_class in shares.items():
        if not isinstance(by_class, Mapping):
            raise InputError(
                f"{source}, set {quoted(set_id)}: got {by_class!r} where other sets have a share "
                "for each class; give all sets the same form."
            )
        if classes is None:
            classes = tuple(by_class)
        if set(by_class) != set(classes) or len(classes) < 2:
            raise InputError(
                f"{source}, set {quoted(set_id)}: got the classes {listed(tuple(by_class))}; every "
                f"set must name the same two or more (the first set names {listed(classes)})."
            )
    return classes or ()


def _find_set_column(table: Table, set_column: str | None) -> str:
    """Return the name of the column with the set ids."""
    for name in (set_column, "set"):
        if name is not None and name in table.columns:
            return name
    wanted = "set" if set_column is None else set_column
    guess = nearest(wanted, table.columns)
    hint = f" (did you mean {guess!r}?)" if guess is not None else ""
    raise InputError(
        f"{table.path} has no set column {wanted!r}{hint}; it has {listed(table.columns, 10)}: "
        "rename the column with the set ids or say which one it is."
    )


def _set_ids(table: Table, columns: Mapping[str, Any], id_column: str) -> tuple[str, ...]:
    """Return the set ids; each must be there, once."""
    ids = columns[id_column]
    if ids.null_count:
        row = ids.is_null().index(True).as_py()
        raise InputError(
            f"{table.where(row)} of {table.path} has an empty set id in column {id_column!r}; "
            "fill it in or remove the line."
        )
    set_ids = tuple(ids.to_pylist())
    repeated = pd.Series(set_ids, dtype=object).duplicated().to_numpy()
    if repeated.any():
        second = int(repeated.argmax())
        first = set_ids.index(set_ids[second])
        differing = [name for name, column in columns.items() if column[first] != column[second]]
        if differing:
            name = differing[0]
            values = f"{columns[name][first].as_py()!r} and {columns[name][second].as_py()!r}"
            what = f"with different values ({name!r}: {values}); keep the right one"
        else:
            what = "with the same values; remove one"
        raise InputError(
            f"{table.path} lists set {set_ids[second]!r} more than once, in {table.where(first)} "
            f"and {table.where(second)}, {what}."
        )
    return set_ids


def factor_ids(set_values: Any) -> tuple[NDArray[np.int64], list[Hashable]]:
    """Return the set of each row (n,), numbered as they come, and the ids of the sets.

    Raises
    ------
    InputError
        A row has no set.
    """
    codes, uniques = pd.factorize(_as_column(set_values))
    if (codes < 0).any():
        raise InputError(
            f"row {int((codes < 0).argmax()) + 1} has no set; give it one or remove it."
        )
    return codes.astype(np.int64), uniques.tolist()


def match_ids(
    set_values: Any,
    known: Mapping[Hashable, int],
    source: str,
    unused: Literal["error", "drop", "keep"],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """
    Find each row's set among the known ones.

    Parameters
    ----------
    set_values (n,)
        The set id of each row: an array, a Series or a list.
    known
        The m ids -> their positions 0..m-1, in order.
    source
        What messages call the place where the known ids come from.
    unused
        Whether known ids without rows are an error, are dropped, or are kept.

    Returns
    -------
    set_index (n,)
        For each row a position in ``used``.
    used
        The positions of the sets that are kept, in increasing order.

    Raises
    ------
    InputError
        A row has no set, a set is not known, or a known set has no rows.
    """
    codes, found = factor_ids(set_values)
    positions = np.array([known.get(set_id, -1) for set_id in found], dtype=np.int64)
    if (positions < 0).any():
        absent = [set_id for set_id in found if set_id not in known]
        raise InputError(_no_prior(absent, known, source))
    has_rows = np.zeros(len(known), dtype=bool)
    has_rows[positions] = True
    if unused == "error":
        refuse_unused(has_rows, known, source)
    if unused == "keep":
        has_rows[:] = True
    new_position = np.cumsum(has_rows) - 1
    return new_position[positions][codes], np.flatnonzero(has_rows)


def refuse_unused(has_rows: NDArray[np.bool_], known: Mapping[Hashable, int], source: str) -> None:
    """Raise InputError, with their names, if some of the known sets (m,) have no rows."""
    if has_rows.all():
        return
    idle = [set_id for set_id, position in known.items() if not has_rows[position]]
    raise InputError(
        f"{_sets(len(idle))} of {source} {_have(len(idle))} no rows: {listed(idle)}; "
        "remove their priors or allow unused ones (--allow-unused-priors)."
    )


def _as_column(set_values: Any) -> Any:
    """Return the rows' set ids as something pandas can factorize without changing them."""
    if not hasattr(set_values, "__array__"):  # NumPy would turn [1, 'a'] into text
        set_values = pd.Series(list(set_values), dtype=object)
    elif not isinstance(set_values, pd.Series):
        set_values = np.asarray(set_values)
    if set_values.ndim != 1:
        raise InputError(
            f"the set ids must be one column; got an array of shape {set_values.shape}."
        )
    series = pd.Series(set_values)
    # An Index of tuples would become a MultiIndex; an array stays what it is. Dates and words keep
    # their own arrays, numbers and objects are plain ones, which every pandas can factorize.
    plain = isinstance(series.array, pd.arrays.NumpyExtensionArray)
    return series.to_numpy() if plain else series.array


def _no_prior(absent: Sequence[Hashable], known: Mapping[Hashable, int], source: str) -> str:
    """Say which sets of the rows have no prior, and why that may be."""
    folded = {_folded(set_id): set_id for set_id in known}
    alike = next(
        ((set_id, folded[_folded(set_id)]) for set_id in absent if _folded(set_id) in folded), None
    )
    cure = (
        "add the missing priors or remove those rows"
        if alike is None
        else f"the rows have {quoted(alike[0])} where {source} has {quoted(alike[1])}: "
        "write them alike"
    )
    count = len(absent)
    return (
        f"{_sets(count)} of the rows {_have(count)} no prior in {source}: {listed(absent)}; {cure}."
    )


def _folded(set_id: Hashable) -> str:
    """Return what ids have in common that differ in case, spaces, zeros or type only."""
    text = unicodedata.normalize("NFKC", str(set_id)).strip().casefold()
    try:
        number = float(text)
    except ValueError:
        return text
    return repr(number)  # 1, '1', '01' and '1.0'


def _sets(count: int) -> str:
    """Return ``1 set`` or ``7 sets``."""
    return "1 set" if count == 1 else f"{count} sets"


def _have(count: int) -> str:
    """Return the verb for so many sets."""
    return "has" if count == 1 else "have"
