"""The order in which rows are visited, as a function of a random stream alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

__all__ = ["SETS_PER_BATCH", "BatchBy", "batch_edges", "batches_of", "row_order"]

Array = np.ndarray[Any, Any]
BatchBy = Literal["rows", "sets", "whole sets"]
SETS_PER_BATCH = 8


def batches_of(
    set_index: Array,
    batch_size: int,
    batches: int,
    rng: np.random.Generator,
    by: BatchBy,
    epoch: int = 0,
    first: int = 0,
) -> Iterator[tuple[Array, Array]]:
    """Yield the rows of each batch of an epoch, and their sets.

    Of several groupings a batch of 'rows' holds rows with all their sets. For risks that want many
    rows of a set, or all, the groupings take turns: a batch holds sets of one of them, and its rows
    lie in no set of the others.

    Parameters
    ----------
    set_index : array of integers, shape (n,) or (n, G)
    batch_size, batches : int
        Rows in a batch, about, and batches in an epoch.
    rng : Generator
    by : BatchBy
    epoch : int
        Which grouping comes first.
    first : int
        Leave out the batches before this one.
    """
    if set_index.ndim == 1 or by == "rows":
        column = set_index if set_index.ndim == 1 else set_index[:, 0] + 1  # -1 is one more
        order = row_order(column, batch_size, rng, by=by)
        edges = batch_edges(column[order], batches, by=by)
        for b in range(first, batches):
            rows = order[edges[b] : edges[b + 1]]
            yield rows, set_index[rows]
        return
    turns = []
    for column in set_index.T:
        inside = np.flatnonzero(column >= 0)
        order = inside[row_order(column[inside], batch_size, rng, by=by)] if len(inside) else inside
        turns.append((order, batch_edges(column[order], batches, by=by)))
    for b in range(first, batches):
        g = (b + epoch) % len(turns)
        order, edges = turns[g]
        rows = order[edges[b] : edges[b + 1]]
        own = np.full((len(rows), set_index.shape[1]), -1, dtype=set_index.dtype)
        own[:, g] = set_index[rows, g]
        yield rows, own


def row_order(
    set_index: Array,
    batch_size: int,
    rng: np.random.Generator,
    *,
    by: BatchBy = "rows",
    sets_per_batch: int = SETS_PER_BATCH,
) -> Array:
    """Return a random order of the rows for one epoch, shape (n,); batches are its slices.

    'rows': every batch holds each set in proportion to its size, as nearly as whole rows allow,
    which takes the luck of the draw out of the set shares of a batch. 'sets': a batch holds
    `sets_per_batch` pieces of single sets, for risks that need many rows of a set at once. 'whole
    sets': sets one after the other, only those larger than a batch in pieces of the same size;
    cut by `batch_edges`.
    """
    n = len(set_index)
    shuffled = rng.permutation(n)
    by_set = shuffled[_sorted_order(set_index[shuffled])]  # sets one after another
    sizes = np.bincount(set_index)
    rank = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # place inside the set
    if by == "rows":
        # Spread the rows of each set evenly over the epoch, with a random phase of their own.
        place = (rank + rng.random(n)) / sizes[set_index[by_set]]
        return np.asarray(by_set[_sorted_order((2.0**32 - 1) * place)])  # it may round to 1
    largest = batch_size // sets_per_batch
    if by == "whole sets":
        largest = max(largest, int(sizes[sizes <= batch_size // 2].max(initial=0)))
    piece = rank // max(1, largest)
    key = set_index[by_set].astype(np.int64) * (int(piece.max()) + 1) + piece
    _, piece_of_row = np.unique(key, return_inverse=True)
    turn = rng.permutation(int(piece_of_row.max()) + 1)[piece_of_row]
    return np.asarray(by_set[_sorted_order(turn)])


def batch_edges(set_index: Array, batches: int, *, by: BatchBy = "rows") -> Array:
    """Return where the batches of rows in an order begin and end, (batches + 1,).

    Batches are of nearly equal size: a last batch of one row would break batch norm. Of whole sets
    none is cut that could be whole.

    Parameters
    ----------
    set_index : array of integers, shape (n,)
        In the order of the rows.
    batches : int
    by : BatchBy
    """
    edges = np.linspace(0, len(set_index), batches + 1).round().astype(int)
    if by != "whole sets":
        return np.asarray(edges)
    starts = np.flatnonzero(np.diff(set_index, prepend=-1, append=-1))  # and the end
    after = np.minimum(np.searchsorted(starts, edges), len(starts) - 1)
    before = np.maximum(after - 1, 0)
    nearer = edges - starts[before] < starts[after] - edges
    snapped = np.where(nearer, starts[before], starts[after])
    # A set larger than a batch stays cut where it was.
    close = abs(snapped - edges) <= len(set_index) / batches / 2
    return np.asarray(np.maximum.accumulate(np.where(close, snapped, edges)))


def _sorted_order(key: Array) -> Array:
    """Return the stable order that sorts numbers in [0, 2^32) by their whole part.

    Two passes over 16 bits each, for which NumPy has a radix sort: several times as fast as sorting
    the numbers, which took a fifth of the time of a small network.
    """
    key = key.astype(np.uint32)
    low = np.argsort(key.astype(np.uint16), kind="stable")
    return low[np.argsort((key >> 16).astype(np.uint16)[low], kind="stable")]
