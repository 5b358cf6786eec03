"""The user's set priors: from a mapping or a table that was read, and matched with the rows.

Set ids from files are text exactly as written; ids from Python are any hashable. This module does
not know which rows there are beyond their set ids, nor how priors are used.
"""

import functools
import unicodedata
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmix.core.class_shares import ClassShares, check_identifiable, share_problems
from unmix.core.share_precision import SharePrecision, precision_by_counts
from unmix.core.sums_by_set import set_rows
from unmix.data.rate_statement import RateStatement
from unmix.data.wording import have, how_many_sets, listed, quoted
from unmix.errors import InputError

Unused = Literal["error", "drop", "keep"]

__all__ = ["Priors", "factor_ids", "is_grouped", "match_ids", "refuse_unused"]


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
    statement
        What else was said of how well the shares are known, if anything: totals, noise, ...
    unrated
        Sets that were named without a share, because it was suppressed or left empty: their rows
        are left out.
    drop_unrated
        Whether rows of sets that were not named are left out too.
    understood
        How the columns of a table were read, in one line.
    least_sets
        Sets that there must be, and that must differ: 1 for an owner of rows who fits together with
        others (`unmix.federated`).

    Raises
    ------
    IdentifiabilityError
        There are fewer than two sets, or all have the same prior.

    Examples
    --------
    >>> priors = Priors.of({"north": 0.2, "south": 0.7})
    >>> priors.set_ids
    ('north', 'south')
    >>> priors.set_priors.as_given
    array([0.2, 0.7])
    """

    set_ids: tuple[Hashable, ...]
    set_priors: ClassShares
    classes: tuple[Hashable, ...] | None = None
    standard_errors: NDArray[np.float64] | None = None
    source: str = "set_priors"
    statement: RateStatement | None = None
    unrated: tuple[Hashable, ...] = ()
    drop_unrated: bool = False
    understood: str = ""
    least_sets: int = 2

    def __post_init__(self) -> None:
        shares = ClassShares.of(self.set_priors)
        object.__setattr__(self, "set_priors", shares)
        if self.standard_errors is None and self.statement is not None:
            errors = self.statement.without_rows(shares.matrix)
            object.__setattr__(self, "standard_errors", errors)
        if self.least_sets > 1:
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
        if not isinstance(set_priors, Mapping | pd.Series):
            cure = "read_rates(path) reads a file" if isinstance(set_priors, str) else "write one"
            raise InputError(
                f"{source} must be a mapping from set to share, such as {{'north': 0.3}}; got "
                f"{quoted(set_priors)}: {cure}."
            )
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
        """Return priors as they are, or made from a mapping, a Series or a table in memory."""
        if isinstance(given, Priors):
            return given
        if isinstance(given, pd.DataFrame) or hasattr(given, "__arrow_c_stream__"):
            from unmix.data.rates_file import read_rates

            read: Priors = read_rates(given)
            return read
        return cls.from_mapping(given)

    def find_sets(
        self, sets: Any, *, unused: Unused = "error"
    ) -> tuple[NDArray[np.int64], tuple[Hashable, ...]]:
        """
        Find the set of each row.

        Parameters
        ----------
        sets (n,)
            The set id of each row: an array, a Series, a list, or a frame of one column.
        unused
            What to do with sets that have a share but no rows: 'error', 'drop' them (then
            ``priors.keep(used_ids)`` belongs to the result), or 'keep' them, as one does with a
            batch or a fold of the rows.

        Returns
        -------
        set_index (n,)
            The position of each row's set in ``used_ids``.
        used_ids
            The ids of the sets, in the order of ``set_ids``.

        Raises
        ------
        InputError
            A row has no set, a set has no share, or a share has no rows.
        """
        if is_grouped(sets):
            if len(sets.columns) != 1:
                raise InputError(
                    f"sets has {len(sets.columns)} columns, and {self.source} has the shares of "
                    "one grouping; give the one that they are of"
                )
            sets = sets.iloc[:, 0]
        set_index, used = match_ids(sets, self.index, self.source, unused)
        if len(used) == len(self):
            return set_index, self.set_ids
        return set_index, tuple(self.set_ids[position] for position in used)

    def keep(self, set_ids: Sequence[Hashable]) -> "Priors":
        """Return the priors of some of the sets, in the order of ``set_ids``."""
        if set_ids is self.set_ids:
            return self
        rows = [self.index[set_id] for set_id in set_ids]
        errors = None if self.standard_errors is None else self.standard_errors[rows]
        said = None if self.statement is None else self.statement.take(rows)
        return replace(
            self,
            set_ids=tuple(set_ids),
            set_priors=self.set_priors.take(rows),
            standard_errors=errors,
            statement=said,
        )

    def without_index(self) -> Self:
        """Return these priors where the rows are found: the index of many sets is large."""
        vars(self).pop("index", None)
        return self

    def resolved(self, set_sizes: Any) -> "Priors":
        """
        Return the priors with their precision, which the number of rows of each set settles.

        Parameters
        ----------
        set_sizes (m,)
            All rows of each set, before any are held out.

        Returns
        -------
        Priors
            With ``set_priors.precision``, and with ``standard_errors`` or None for exact shares.
        """
        shares = self.set_priors
        if shares.precision is not None:
            return self
        rows = np.asarray(set_sizes, dtype=np.float64)
        if self.statement is None and self.standard_errors is None:  # nothing was said
            known = precision_by_counts(shares.matrix, rows)
            return replace(self, set_priors=shares.known(known))
        said = self.statement or RateStatement(errors=self.standard_errors)
        known = said.precision(shares.matrix, rows, self.set_ids, self.source)
        shares = shares.with_matrix(said.exact_shares(shares.matrix, known.counted)).known(known)
        errors = known.standard_errors
        if errors is None and self.standard_errors is not None and self.statement is None:
            errors = self.standard_errors  # all 0, as was said
        return replace(self, set_priors=shares, standard_errors=errors, statement=None)

    def known_as_json(self) -> dict[str, Any]:
        """Return how well the shares are known, and which sets have none, as JSON values."""
        shares, said = self.set_priors.precision, self.statement
        return {
            "precision": None if shares is None else shares.as_json(),
            "statement": None if said is None else said.as_json(),
            "unrated": [str(name) for name in self.unrated],
            "drop_unrated": self.drop_unrated,
        }

    def with_known(self, state: dict[str, Any] | None) -> "Priors":
        """Return the priors with what `known_as_json` told of them."""
        if state is None:
            return self
        found, said = state["precision"], state["statement"]
        shares = self.set_priors
        if found is not None:
            shares = shares.known(SharePrecision.from_json(found, shares.matrix))
        return replace(
            self,
            set_priors=shares,
            statement=None if said is None else RateStatement.from_json(said, shares.matrix),
            unrated=tuple(state["unrated"]),
            drop_unrated=bool(state["drop_unrated"]),
        )

    def with_errors(self, errors: NDArray[np.float64] | None) -> "Priors":
        """Return the priors with other standard errors (m,); None leaves what is known."""
        precision = self.set_priors.precision
        if errors is None or precision is None or errors is self.standard_errors:
            return self
        known = SharePrecision(precision.counted, errors, precision.beyond)
        return replace(self, set_priors=self.set_priors.known(known), standard_errors=errors)

    def error_variances(self, set_index: NDArray[np.int64], ndim: int) -> Any:
        """
        Return what the standard errors add to the variance of the count of these rows.

        Parameters
        ----------
        set_index (n,)
            The set of each row.
        ndim
            Of the logits: 1 for two classes.

        Returns
        -------
        0.0 without errors, else (m,) or (m, K)
        """
        if self.standard_errors is None:
            return 0.0
        rows = set_rows(set_index, len(self))
        shares = self.set_priors.matrix[:, 1] if ndim == 1 else self.set_priors.matrix
        unknown = np.full(len(self), np.inf)
        return SharePrecision(unknown, self.standard_errors).error_variances(rows, shares)


def is_grouped(sets: Any) -> bool:
    """Say whether the sets of rows are a frame, with a column for each grouping."""
    return hasattr(sets, "columns")


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


def factor_ids(set_values: Any) -> tuple[NDArray[np.int64], list[Hashable]]:
    """Return the set of each row (n,), numbered as they come, and the ids of the sets.

    Raises
    ------
    InputError
        A row has no set.
    """
    try:
        codes, uniques = pd.factorize(_as_column(set_values))
    except TypeError as error:  # a list, say
        raise InputError(f"the set ids must be text or numbers: {error}.") from None
    if (codes < 0).any():
        raise InputError(
            f"row {int((codes < 0).argmax()) + 1} has no set; give it one or remove it."
        )
    return codes.astype(np.int64), uniques.tolist()


def match_ids(
    set_values: Any,
    known: Mapping[Hashable, int],
    source: str,
    unused: Unused,
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
        f"{how_many_sets(len(idle))} of {source} {have(len(idle))} no rows: {listed(idle)}; "
        "remove their priors or allow unused ones (--allow-unused-priors)."
    )


def _as_column(set_values: Any) -> Any:
    """Return the rows' set ids as something pandas can factorize without changing them."""
    if not hasattr(set_values, "__array__"):  # NumPy would turn [1, 'a'] into text
        if isinstance(set_values, str) or not isinstance(set_values, Iterable):
            raise InputError(
                f"the set ids must be one column, an id for each row; got {quoted(set_values)}."
            )
        set_values = pd.Series(list(set_values), dtype=object)
    elif not isinstance(set_values, pd.Series | pd.Categorical):
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
        "add them, or leave those rows out (--drop-unrated)"
        if alike is None
        else f"the rows have {quoted(alike[0])} where {source} has {quoted(alike[1])}: "
        "write them alike"
    )
    count = len(absent)
    lacking = f"{how_many_sets(count)} of the rows {have(count)} no prior in {source}"
    return f"{lacking}: {listed(absent)}; {cure}."


def _folded(set_id: Hashable) -> str:
    """Return what ids have in common that differ in case, spaces, signs, zeros or type only."""
    seen = (c for c in unicodedata.normalize("NFKC", str(set_id)) if c.isprintable() or c.isspace())
    text = " ".join("".join(seen).casefold().split())
    try:
        number = float(text)
    except ValueError:
        return text
    return repr(number)  # 1, '1', '01' and '1.0'
