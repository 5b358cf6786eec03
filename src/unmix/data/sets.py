"""`UnlabeledSets`: all that training may see.

There is no field for the label of a row of a set: what the user knows of single rows, and wants to
be learned from, are sets of one (`unmix.data.known_rows`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from unmix.core.class_shares import ClassShares
from unmix.core.share_precision import precision_by_counts
from unmix.core.sums_by_set import set_rows
from unmix.core.transition import Transition
from unmix.data.known_rows import KnownRows
from unmix.errors import InputError

__all__ = ["UnlabeledSets", "held_out_rows"]

Array = np.ndarray[Any, Any]

# Times the share to choose: among so many rows each set nearly always has those to choose.
WORTH_A_LOOK = 4


@dataclass(frozen=True, eq=False)
class UnlabeledSets:
    """Rows in one array, the set of each row, and what is known of the sets.

    Parameters
    ----------
    x : array, shape (n, ...)
        Rows of all sets. Bytes (uint8) are pixels and are scaled to [0, 1] when they are used.
    set_index : array of integers, shape (n,) or (n, G)
        Which set each row lies in, 0 to m - 1. Of several groupings of the rows a column for each,
        with -1 where a row lies in no set (`unmix.core.groupings`).
    set_priors : ClassShares, or array of shape (m,) or (m, K)
        Kept as `ClassShares`.
    target_prior : float or array, shape (K,)
    set_ids : tuple, optional
        What the user calls the sets; 0 to m - 1 if left out.
    source : array of integers, shape (n,), optional
        For drawn sets, the row of the pool each row came from: the sets of the benchmarks overlap.
    with_replacement : tuple of int
        Drawn sets that needed more rows of a class than the pool has.
    known : KnownRows, optional
        Rows whose class the user lets training know. They lie in none of these sets, stay whichever
        rows and sets are taken, and are learned from as sets of one.

    Examples
    --------
    >>> sets = UnlabeledSets(np.zeros((5, 2)), np.array([0, 0, 1, 1, 1]), [0.2, 0.7], 0.5)
    >>> len(sets), sets.set_sizes
    (5, array([2, 3]))
    """

    x: Array
    set_index: Array
    set_priors: Any
    target_prior: Any
    set_ids: tuple[Hashable, ...] = ()
    source: Array | None = None
    with_replacement: tuple[int, ...] = field(default=())
    known: KnownRows | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "set_priors", ClassShares.of(self.set_priors))
        grouped = self.set_priors.grouping is not None
        if self.set_index.shape[:1] != (len(self.x),) or self.set_index.ndim != 1 + grouped:
            raise InputError(
                f"set_index must have one entry per row: {len(self.x)} rows, "
                f"set_index of shape {self.set_index.shape}"
            )
        if len(self.x) == 0:
            if self.known is None:
                raise InputError("there are no rows")
            return
        own = self.set_index.max(axis=1) if grouped else self.set_index
        low, high = int(own.min()), int(own.max())
        if low < 0 or high >= len(self.set_priors):
            raise InputError(
                f"set_index must lie in 0..{len(self.set_priors) - 1}; got {low}..{high}"
            )

    def __len__(self) -> int:
        return len(self.x)

    @property
    def num_sets(self) -> int:
        """The number of sets m."""
        return len(self.set_priors)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self.x.shape[1:])

    @property
    def part_sizes(self) -> tuple[int, ...]:
        """Rows in each part; here there is one. `ShuffledSets` has more."""
        return (len(self),)

    def part(self, position: int) -> UnlabeledSets:
        """Return a part of the rows that is in memory: all of them."""
        return self

    @cached_property
    def set_sizes(self) -> Array:
        """Rows in each set, shape (m,)."""
        return set_rows(self.set_index, self.num_sets)

    @cached_property
    def transition(self) -> Transition:
        """The transition these sets define; set weights are their shares of the rows."""
        return Transition(self.set_priors, self.set_sizes, self.target_prior)

    @cached_property
    def scoring_transition(self) -> Transition:
        """The same for rows that are judged, among which a set may be missing."""
        return Transition(self.set_priors, self.set_sizes, self.target_prior, scoring=True)

    def rows(self, chosen: Array | slice) -> UnlabeledSets:
        """Return the chosen rows (indices or mask) as sets with the same priors and ids."""
        source = None if self.source is None else self.source[chosen]
        return replace(self, x=self.x[chosen], set_index=self.set_index[chosen], source=source)

    def rows_of_sets(self, chosen: Array) -> Array:
        """Return which rows lie in one of some sets, as a mask of shape (n,)."""
        inside = np.isin(self.set_index, chosen)
        return np.asarray(inside if inside.ndim == 1 else inside.any(axis=1))

    def keep_sets(self, chosen: Array) -> UnlabeledSets:
        """Return the rows of some sets, which then lie in no other set of any grouping."""
        if self.set_index.ndim == 1:
            return self.rows(self.rows_of_sets(chosen))
        index = np.where(np.isin(self.set_index, chosen), self.set_index, -1)
        rows = self.rows_of_sets(chosen)
        return replace(self.rows(rows), set_index=index[rows])

    def take_sets(self, chosen: Array) -> UnlabeledSets:
        """Return the chosen sets, with all their rows; one that is named twice is two sets.

        For one grouping only: in another their rows would make up other sets.
        """
        sizes = self.set_sizes[chosen]
        index = np.repeat(np.arange(len(chosen)), sizes)
        inside = np.arange(len(index)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        first = np.cumsum(self.set_sizes)[chosen] - sizes
        rows = self._by_set[np.repeat(first, sizes) + inside]
        priors = self.set_priors.take(chosen)
        return UnlabeledSets(self.x[rows], index, priors, self.target_prior, known=self.known)

    @cached_property
    def with_sets_of_one(self) -> UnlabeledSets:
        """These sets and, after them, every row of known class as a set of one."""
        known = self.known
        if known is None:
            return self
        m, shares, number = self.num_sets, self.set_priors, len(known)
        matrix = np.concatenate((shares.matrix, known.shares(shares.num_classes)))
        precision = shares.precision or precision_by_counts(shares.matrix, self.set_sizes)
        joined = shares.with_matrix(matrix).known(precision.with_labels(number))
        index = np.arange(m, m + number)
        if shares.grouping is not None:  # sets of the last grouping, and none of the others
            last = np.full(number, shares.grouping[-1])
            joined = joined.grouped(np.concatenate((shares.grouping, last)))
            index = np.column_stack((np.full((number, self.set_index.shape[1] - 1), -1), index))
        source = self.source
        if source is not None and known.source is not None:
            source = np.concatenate((source, known.source))
        return replace(
            self,
            x=np.concatenate((self.x, known.x)),
            set_index=np.concatenate((self.set_index, index)),
            set_priors=joined,
            set_ids=(),
            source=source,
            known=None,
        )

    @cached_property
    def _by_set(self) -> Array:
        """The rows in the order of their sets, (n,)."""
        return np.argsort(self.set_index, kind="stable")

    def hold_out(
        self, share: float, rng: np.random.Generator
    ) -> tuple[UnlabeledSets, UnlabeledSets]:
        """Split off a share of the rows and return (kept, held out).

        Drawn sets overlap, so the split is by pool row: a held-out image appears in no kept set.
        Other rows are split inside each set, so that every set keeps its part of both sides.
        """
        mask = held_out_rows(self.set_index, share, rng, self.source)
        return self.rows(~mask), self.rows(mask)


def held_out_rows(
    set_index: Array, share: float, rng: np.random.Generator, source: Array | None = None
) -> Array:
    """Choose the same share of the rows of each set at random, as a mask of shape (n,).

    Of several groupings that is done by the first, where rows without a set are one more. Rows of
    one `source` (n,) stay together: then a share of the sources is chosen, and the same rows
    however sources are numbered.
    """
    _check_share(share)
    if source is not None:
        _, first, number = np.unique(source, return_index=True, return_inverse=True)
        out = rng.permutation(np.sort(first))[: max(1, round(share * len(first)))]
        return np.isin(first[number], out)
    if set_index.ndim == 2:
        set_index = np.unique(set_index[:, 0], return_inverse=True)[1]
    sizes, place = np.bincount(set_index), rng.random(len(set_index))
    # Rounded at random, otherwise small sets would never be held out.
    wanted = np.floor(share * sizes + rng.random(len(sizes)))
    # No set loses all rows, unless that would leave next to nothing: sets of one row each.
    sparing = np.minimum(wanted, sizes - 1)
    if sparing.sum() >= wanted.sum() / 2:
        wanted = sparing
    if wanted.max() < 1:
        wanted[sizes.argmax()] = 1
    return _first_of_sets(set_index, place, wanted, WORTH_A_LOOK * share)


def _first_of_sets(set_index: Array, place: Array, wanted: Array, among: float) -> Array:
    """Return which rows have the least places (n,) of their set, as many as wanted (m,).

    To sort all rows takes long: they are mostly those with a place below `among`.
    """
    some = np.flatnonzero(place < among) if among < 1 else np.arange(len(place))
    index = set_index[some]
    sizes = np.bincount(index, minlength=len(wanted))
    if among < 1 and (sizes < wanted).any():
        return _first_of_sets(set_index, place, wanted, 1.0)
    order = np.argsort(index + place[some], kind="stable")
    rank = np.arange(len(some)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    out = np.zeros(len(place), dtype=bool)
    out[some[order]] = rank < wanted[index[order]]
    return out


def _check_share(share: float) -> None:
    """Refuse a held-out share that leaves one side empty."""
    if not 0 < share < 1:
        raise InputError(f"the held-out share must lie between 0 and 1; got {share}")
