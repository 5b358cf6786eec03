"""Rows whose class the user knows and lets training know: each is a set of one.

Such a row is taken out of its set. Where the share of the set is a count, the rest of the set has
so much less of it; where it is the rate of a population, the rest has the same rate. Labels of
benchmarks never come here, nor does anything that is meant for an audit. Where labels are all there
is, each class is one set.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from unmix.core.class_shares import ClassShares
from unmix.core.share_precision import SharePrecision
from unmix.data.wording import quoted
from unmix.errors import InputError

if TYPE_CHECKING:
    from unmix.data.priors import Priors

__all__ = ["KnownRows", "label_codes", "labels_as_sets", "remaining_shares"]

Array = np.ndarray[Any, Any]

# Of a count that labels may exceed by rounding: shares of three digits times some hundred rows.
ROUNDING = 0.5


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Rows of known class.

    Parameters
    ----------
    x : array, shape (l, ...)
    classes : array of integers, shape (l,)
        0 to K - 1.
    source : array of integers, shape (l,), optional
        As for `UnlabeledSets`.
    """

    x: Array
    classes: Array
    source: Array | None = None

    def __len__(self) -> int:
        return len(self.x)

    def take(self, chosen: Array) -> KnownRows:
        """Return the chosen rows, some perhaps more than once."""
        source = None if self.source is None else self.source[chosen]
        return KnownRows(self.x[chosen], self.classes[chosen], source)

    def shares(self, num_classes: int) -> Array:
        """Return the share of each class in each row as a set of one, (l, K)."""
        return np.eye(num_classes)[self.classes]


def label_codes(labels: Any, classes: Iterable[Any]) -> Array:
    """Return labels as positions in the classes, (n,); -1 for rows without one.

    Parameters
    ----------
    labels : array, shape (n,)
        None, nan or an empty text where a class is not known.
    classes : sequence of length K

    Examples
    --------
    >>> label_codes(["cat", None, "dog"], ["cat", "dog"])
    array([ 0, -1,  1])
    """
    names = [str(name) for name in classes]
    position = {name: i for i, name in enumerate(names)}
    # True and 1.0 are the positive class of shares of positives.
    if names == ["0", "1"]:
        position |= {"False": 0, "false": 0, "0.0": 0, "True": 1, "true": 1, "1.0": 1}
    if np.ndim(labels) != 1:
        raise InputError(f"labels must be one column; got an array of {np.ndim(labels)} dimensions")
    codes, found = pd.factorize(pd.Series(labels).reset_index(drop=True))
    known = [str(value) for value in found]
    unknown = [value for value in known if value and value not in position]
    if unknown:
        raise InputError(
            f"the labels hold {quoted(unknown[0])}, which is no class of the model "
            f"(classes: {', '.join(names)}); recode them"
        )
    of_values = np.array([position.get(value, -1) for value in known] + [-1])
    return of_values[codes]


def remaining_shares(
    shares: ClassShares, taken: Array, set_ids: Sequence[Hashable], classes: Sequence[Hashable]
) -> ClassShares:
    """Return the shares of what is left of each set when its known rows are taken out.

    Formula (N rows of which the share is a count, l_k of them known to be of class k)::

        (N share_k - l_k) / (N - l),    an error e becomes e N / (N - l)

    Parameters
    ----------
    shares : ClassShares
        Of the whole sets (m, K).
    taken : array of integers, shape (m, K)
        Known rows of each set and class.
    set_ids : sequence of length m
        For messages.
    classes : sequence of length K
        For messages.
    """
    known = shares.precision
    if known is None:
        return shares
    rows = taken.sum(axis=1)
    counted = known.exact & (rows > 0)
    if not counted.any():
        return shares
    whole, left = known.counted[counted, None], (known.counted - rows)[counted, None]
    counts = whole * known.stated(shares.matrix)[counted] - taken[counted]
    wrong = (counts < -ROUNDING) & (known.errors[counted] == 0)[:, None]
    if wrong.any():
        i, k = (int(place) for place in np.argwhere(wrong)[0])
        j = int(np.flatnonzero(counted)[i])
        raise InputError(
            f"set {quoted(set_ids[j])} has {taken[j, k]:,} rows labeled {quoted(classes[k])}, and "
            f"its share says that there are {counts[i, k] + taken[j, k]:,.0f}; correct the labels "
            "or the share, or say that shares are rates of a population (--rates-are population)"
        )
    emptied = left[:, 0] <= 0  # sets of which every row is known say nothing more
    counted[np.flatnonzero(counted)[emptied]] = False
    whole, left, counts = whole[~emptied], left[~emptied], counts[~emptied]
    stated = counts / left
    inside = stated.clip(0.0, 1.0)
    inside /= inside.sum(axis=1, keepdims=True)
    matrix, errors, numbers = shares.matrix.copy(), known.errors.copy(), known.counted.copy()
    matrix[counted], numbers[counted] = inside, left[:, 0]
    errors[counted] *= (whole / left)[:, 0]
    beyond = known.stated(shares.matrix) - shares.matrix
    beyond[counted] = np.where(known.errors[counted, None] > 0, stated - inside, 0.0)
    left_over = SharePrecision(numbers, errors, beyond if beyond.any() else None)
    return shares.with_matrix(matrix).known(left_over)


def labels_as_sets(labels: Any) -> tuple[Priors, Array]:
    """Take labels as sets of one class each: return their priors, and the set of each row."""
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d

    from unmix.data.priors import Priors

    values = column_or_1d(labels, warn=True)
    check_classification_targets(values)
    names, codes = np.unique(values, return_inverse=True)
    if len(names) < 2:
        raise InputError(f"the rows have one class, {names[0]}; at least two are needed")
    ids: tuple[Hashable, ...] = tuple(names.tolist())
    if len(ids) == 2:
        return Priors(ids, ClassShares([0.0, 1.0])), codes
    return Priors(ids, ClassShares(np.eye(len(ids))), ids), codes
