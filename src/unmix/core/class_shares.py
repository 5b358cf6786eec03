"""Class shares of sets as one value: always a matrix (m, K), checked once, shown as it was given.

Everything that can be wrong with a share, a standard error or a class prior is said here, with one
tolerance. This file knows no rows, no logits and no file.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from unmix.errors import IdentifiabilityError, InputError

if TYPE_CHECKING:
    from unmix.core.share_precision import SharePrecision

__all__ = [
    "ClassShares",
    "ShareProblem",
    "as_stated",
    "check_errors",
    "check_identifiable",
    "check_prior",
    "error_problems",
    "nearest_in_simplex",
    "num_logits",
    "share_problems",
    "share_rank",
    "sums_to_one",
]

FloatArray = npt.NDArray[np.float64]

SUM_TOLERANCE = 0.005  # shares rounded to two or three digits still add up to 1
LEAST_SHARE = 1e-12  # where shares must have log-odds, these stay finite
ABOVE_ONE = 1 + 1e-9  # a computed 1.0000000000000002 is 1
SAME = 1e-6  # shares closer than this tell nothing apart: nobody knows a share so well


@dataclass(frozen=True)
class ShareProblem:
    """What is wrong with the shares of a set, and the cure."""

    message: str
    cure: str

    def __str__(self) -> str:
        return f"{self.message}; {self.cure}"


class ClassShares(NDArrayOperatorsMixin):
    """The shares of K classes in each of m sets.

    In arithmetic, comparisons and print it is the array that was given, (m,) or (m, K); the
    mathematics reads `matrix`.

    Parameters
    ----------
    values : array, shape (m,) or (m, K)
        Share of positives in each set, or one row of class shares per set. Rows that are off 1 by
        rounding are scaled.
    names : sequence of length m, optional
        What messages call the sets; 0, 1, ... if left out.
    source : str
        What messages call the place the shares come from.
    precision : SharePrecision, optional
        How well they are known, if that was said.

    Attributes
    ----------
    matrix : array, shape (m, K)
        Theta. For shares of positives its columns are (1 - share, share).
    per_class : bool
        Whether one share per class was given, and not the share of positives alone.
    grouping : array of integers, shape (m,), or None
        Of several groupings of the same rows, that of each set, in order; None if there is one.

    Examples
    --------
    >>> shares = ClassShares([0.25, 0.5])
    >>> shares.matrix.tolist(), shares.tolist()
    ([[0.75, 0.25], [0.5, 0.5]], [0.25, 0.5])
    """

    grouping: npt.NDArray[np.int64] | None = None

    def __init__(
        self,
        values: Any,
        names: Sequence[Hashable] | None = None,
        *,
        source: str = "set_priors",
        precision: SharePrecision | None = None,
    ) -> None:
        given = _numbers(values, source)
        self.precision = precision
        if given.ndim not in (1, 2) or given.size == 0 or given.shape[1:] == (1,):
            raise InputError(f"{source} must have shape (m,) or (m, K); got {given.shape}")
        for problem in share_problems(given, names, source):
            raise InputError(str(problem))
        given = np.minimum(given, 1.0)
        self.per_class = given.ndim == 2
        if not self.per_class:
            self.matrix: FloatArray = np.stack((1 - given, given), axis=1)
        else:
            self.matrix = given / given.sum(axis=1, keepdims=True)

    @classmethod
    def of(cls, values: Any) -> ClassShares:
        """Return shares as they are if they were checked already, else check them."""
        return values if isinstance(values, ClassShares) else cls(values)

    def with_matrix(self, matrix: FloatArray) -> ClassShares:
        """Return other shares (m, K) of the same classes, known to be right, shown alike."""
        other = ClassShares.__new__(ClassShares)
        other.matrix, other.per_class, other.precision = matrix, self.per_class, None
        other.grouping = self.grouping
        return other

    def known(self, precision: SharePrecision | None) -> ClassShares:
        """Return these shares with what is known of their precision."""
        other = self.with_matrix(self.matrix)
        other.precision = precision
        return other

    def take(self, sets: Any) -> ClassShares:
        """Return the shares of some of the sets, by index or mask."""
        precision = None if self.precision is None else self.precision.take(sets)
        taken = self.with_matrix(self.matrix[sets]).known(precision)
        return taken if self.grouping is None else taken.grouped(self.grouping[sets])

    def of_positives(self) -> ClassShares:
        """Return the shares of two classes as those of the second; others as they are."""
        if self.num_classes != 2:
            return self
        return ClassShares(self.matrix[:, 1], precision=self.precision).grouped(self.grouping)

    def grouped(self, grouping: npt.NDArray[np.int64] | None) -> ClassShares:
        """Return the same shares as those of several groupings, the first grouping's sets first."""
        other = self.with_matrix(self.matrix).known(self.precision)
        other.grouping = grouping
        return other

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return int(self.matrix.shape[1])

    @property
    def as_given(self) -> FloatArray:
        """The shares as they were given: (m,) or (m, K)."""
        return self.matrix if self.per_class else self.matrix[:, 1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array as it was given."""
        return self.as_given.shape

    @cached_property
    def rank(self) -> int:
        """How many classes the sets tell apart."""
        return share_rank(self.matrix)

    def pooled(self, set_sizes: npt.ArrayLike) -> FloatArray:
        """Return the class shares of all rows together, (K,), for sets of so many rows (m,)."""
        sizes = np.asarray(set_sizes, dtype=np.float64)
        return np.asarray(sizes @ self.matrix / sizes.sum())

    def tolist(self) -> list[Any]:
        """Return the shares as they were given, as plain numbers."""
        listed: list[Any] = self.as_given.tolist()
        return listed

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, place: Any) -> Any:
        return self.as_given[place]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        return np.array(self.as_given, dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        arrays = [i.as_given if isinstance(i, ClassShares) else i for i in inputs]
        return getattr(ufunc, method)(*arrays, **options)

    def __repr__(self) -> str:
        return f"ClassShares({np.array2string(self.as_given, threshold=20)})"


def num_logits(num_classes: int) -> int:
    """Return how many logits a row has: for two classes one, that of the positives."""
    return 1 if num_classes == 2 else num_classes


def as_stated(shares: Any) -> Any:
    """Return shares (..., K) as people state them: of the positives (...) if there are two classes.

    Examples
    --------
    >>> as_stated(np.array([[0.25, 0.75], [0.5, 0.5]]))
    array([0.75, 0.5 ])
    """
    return shares[..., 1] if num_logits(shares.shape[-1]) == 1 else shares


def sums_to_one(sums: FloatArray) -> npt.NDArray[np.bool_]:
    """Say of sums of shares whether they are 1 as far as rounding goes."""
    return np.asarray(abs(sums - 1) <= SUM_TOLERANCE + 1e-9)


def share_problems(
    values: FloatArray, names: Sequence[Hashable] | None = None, source: str = "set_priors"
) -> list[ShareProblem]:
    """List what makes shares unusable, one problem for each kind of mistake.

    Parameters
    ----------
    values : array, shape (m,) or (m, K)
    names : sequence of length m, optional
    source : str
    """
    shares = values.reshape(len(values), -1)  # (m, 1) or (m, K)
    with np.errstate(invalid="ignore"):
        missing, below, above = np.isnan(shares), shares < 0, shares > ABOVE_ONE
    found = []
    if missing.any():
        what, cure = "the share is missing", "fill it in or remove the set"
        found.append(_problem(missing, shares, what, cure, names, source))
    if below.any():
        cure = "a share lies between 0 and 1"
        found.append(_problem(below, shares, "{} is negative", cure, names, source))
    if above.any():
        percentages = np.nanmax(shares) <= 100
        cure = (
            "if these are percentages divide them all by 100"
            if percentages
            else "a share lies between 0 and 1 (counts need two columns, 'positives' and 'total')"
        )
        found.append(_problem(above, shares, "{} is above 1", cure, names, source))
    if values.ndim == 2 and not found:
        sums = shares.sum(axis=1, keepdims=True)
        far = ~sums_to_one(sums)
        if far.any():
            what = "the shares of the classes sum to {}, not to 1"
            cure = "correct them or add the missing class"
            found.append(_problem(far, sums, what, cure, names, source))
    return found


def error_problems(
    errors: FloatArray, names: Sequence[Hashable] | None = None, source: str = "prior_error"
) -> list[ShareProblem]:
    """List what is wrong with standard errors of shares (m,); as `share_problems`."""
    column = errors.reshape(len(errors), -1)
    wrong = ~(np.isfinite(column) & (column >= 0))
    if not wrong.any():
        return []
    what = "a standard error is a number of 0 or more, not {}"
    cure = "give 0 for a share that is known exactly"
    return [_problem(wrong, column, what, cure, names, source)]


def check_errors(
    errors: Any, num_sets: int, names: Sequence[Hashable] | None = None, source: str = "prior_error"
) -> FloatArray:
    """Return standard errors of the shares of a set, one for each set (m,); 0 if left out.

    Parameters
    ----------
    errors : None, float or array, shape (m,)
        One number counts for all sets and, with K classes, for the share of each class.
    num_sets : int
    names, source
        For messages, as for `ClassShares`.
    """
    if errors is None:
        return np.zeros(num_sets)
    values = _numbers(errors, source)
    if values.ndim == 0:
        values = np.full(num_sets, float(values))
    if values.shape != (num_sets,):
        raise InputError(
            f"{source} must be one standard error per set ({num_sets}); got shape {values.shape}"
        )
    for problem in error_problems(values, names, source):
        raise InputError(str(problem))
    return values


def check_prior(prior: Any, num_classes: int, name: str = "target_prior") -> FloatArray:
    """Return a class prior strictly inside the simplex as one share per class, (K,).

    Parameters
    ----------
    prior : float or array, shape (K,)
        For two classes one number is the share of the second.
    num_classes : int
    name : str
        What messages call it.
    """
    shares = _numbers(prior, name)
    if shares.ndim == 0 and num_classes == 2:
        shares = np.array([1 - shares, shares])
    if shares.shape != (num_classes,):
        raise InputError(f"{name} must hold {num_classes} shares; got {prior!r}")
    # Not the tolerance of stated shares: this is one line that somebody types.
    inside = ((shares > 0) & (shares < 1)).all()  # and no number missing
    if not inside or abs(shares.sum() - 1) > SAME:
        raise InputError(
            f"{name} must lie strictly between 0 and 1 (and sum to 1 over the classes); "
            f"got {prior!r}"
        )
    return np.asarray(shares / shares.sum())


def share_rank(matrix: FloatArray) -> int:
    """Return how many classes sets with these shares (m, K) tell apart."""
    return int(np.linalg.matrix_rank(matrix, tol=SAME))


def check_identifiable(
    matrix: FloatArray, source: str = "", *, least_rank: int | None = None
) -> None:
    """Refuse shares (m, K) from which no amount of data can tell the classes apart.

    With `least_rank` fewer than all K classes are enough.
    """
    of = f" of {source}" if source else ""
    if len(matrix) < 2:
        raise IdentifiabilityError(
            f"only {len(matrix)} set{of} is there; at least two sets with different priors are "
            "needed"
        )
    classes, rank = matrix.shape[1], share_rank(matrix)
    if rank >= (least_rank or classes):
        return
    if rank == 1:
        shares = np.atleast_1d(as_stated(matrix[0]))
        same = ", ".join(f"{share:g}" for share in shares)
        raise IdentifiabilityError(
            f"all {len(matrix)} sets{of} have the same prior ({same}), so sets say nothing about "
            "classes; add sets with other priors"
        )
    raise IdentifiabilityError(
        f"the set priors{of} have rank {rank} but there are {classes} classes, so the sets cannot "
        f"tell them apart; {classes} sets with linearly independent shares are needed"
    )


def _numbers(values: Any, source: str) -> FloatArray:
    """Return float64 numbers, or say that they are none."""
    if hasattr(values, "detach"):  # a tensor, of which this room's arrays know nothing
        values = values.detach().cpu().numpy()
    try:
        given = np.asarray(values)
        # NumPy would read numbers out of text.
        if given.dtype.kind in "US" or any(isinstance(v, str) for v in np.ravel(given)[:1]):
            raise TypeError
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{source} must be numbers; got {values!r}") from None


def _problem(
    wrong: npt.NDArray[np.bool_],
    values: FloatArray,
    what: str,
    cure: str,
    names: Sequence[Hashable] | None,
    source: str,
) -> ShareProblem:
    """Name the first set with a wrong value, and say how many more there are."""
    j, k = (int(place) for place in np.argwhere(wrong)[0])
    name = j if names is None else names[j]
    name = name.item() if isinstance(name, np.generic) else name
    more = int(wrong.any(axis=1).sum()) - 1
    others = f" ({more} more like it)" if more else ""
    return ShareProblem(
        f"{source}, set {name!r}: {what.format(f'{values[j, k]:.6g}')}{others}", cure
    )


def nearest_in_simplex(rows: FloatArray) -> FloatArray:
    """Move each row to the nearest point with entries >= 0 that sum to 1: (r, K) -> (r, K).

    Examples
    --------
    >>> nearest_in_simplex(np.array([[1.25, -0.25], [0.25, 0.75]]))
    array([[1.  , 0.  ],
           [0.25, 0.75]])
    """
    # Subtract from a row the one number that makes its positive part sum to 1.
    descending = -np.sort(-rows, axis=1)
    excess = (np.cumsum(descending, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = np.sum(descending > excess, axis=1) - 1
    return np.asarray(np.maximum(rows - excess[np.arange(len(rows)), last][:, None], 0))
