"""Counts of rows by set and score bin: joining small sets, fitting class rates, merging thin cells.

The arithmetic behind `fit_test`. This file knows counts and set priors, and no p-values.
"""

import numpy as np
import numpy.typing as npt

from unmix.assess.class_rates import share_moves

__all__ = ["cell_counts", "contributions", "fit_cells", "join_small_sets", "sum_members"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MIN_EXPECTED = 5.0  # the chi-square approximation wants this many expected rows in a cell


def cell_counts(bins: IntArray, set_index: IntArray, num_sets: int, num_classes: int) -> FloatArray:
    """Count the rows of each set in each bin that is in use (m, B)."""
    totals = np.bincount(bins)
    # Bins too thin to learn a rate per class from are put together.
    thin = totals < MIN_EXPECTED * (num_classes + 1)
    _, label = np.unique(np.where(thin, len(totals), np.arange(len(totals))), return_inverse=True)
    num_bins = int(label.max()) + 1
    cells = np.bincount(set_index * num_bins + label[bins], minlength=num_sets * num_bins)
    counts = cells.reshape(num_sets, num_bins).astype(np.float64)
    return counts[:, counts.sum(axis=0) > 0]


def join_small_sets(rows: FloatArray, set_priors: FloatArray, least: float) -> list[list[int]]:
    """List the sets to test alone, then small ones of similar shares joined to `least` rows."""
    alone = [[int(j)] for j in np.flatnonzero(rows >= least)]
    small = np.flatnonzero(rows < least)
    if not len(small):
        return alone
    # Similar shares: the order along the direction in which the shares differ most.
    centred = set_priors[small] - set_priors[small].mean(axis=0)
    along = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    joined: list[list[int]] = []
    held = least
    for j in small[np.argsort(along, kind="stable")]:
        if held >= least:
            joined.append([])
            held = 0
        joined[-1].append(int(j))
        held += rows[j]
    if held < least and len(joined) > 1:
        rest = joined.pop()
        joined[-1] += rest
    return alone + joined


def sum_members(
    members: list[list[int]],
    counts: FloatArray,
    set_priors: FloatArray,
    covariance: FloatArray | None,
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Give joined sets the sum of their counts and the mean of their shares."""
    order = np.concatenate(members).astype(np.int64)
    starts = np.cumsum([0] + [len(group) for group in members[:-1]])
    rows = counts[order].sum(axis=1)
    total = np.add.reduceat(rows, starts)
    joint_counts = np.add.reduceat(counts[order], starts, axis=0)
    joint_priors = np.add.reduceat(set_priors[order] * rows[:, None], starts, axis=0)
    if covariance is not None:
        weighted = covariance[order] * rows[:, None, None] ** 2
        covariance = np.add.reduceat(weighted, starts, axis=0) / total[:, None, None] ** 2
    return joint_counts, joint_priors / total[:, None], covariance


def fit_cells(
    counts: FloatArray, priors: FloatArray, covariance: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Fit the rate of each bin in each class (K, B); return it with the fitted set rates (m, B)."""
    sizes = counts.sum(axis=1)
    rates = counts / sizes[:, None]
    fitted = np.tile(counts.sum(axis=0) / counts.sum(), (len(counts), 1))
    shares = priors
    for _ in range(4 if covariance is None else 40):
        weights = sizes[:, None] / fitted  # (m, B)
        normal = np.einsum("jb,jk,jl->bkl", weights, shares, shares)
        right = np.einsum("jb,jk,jb->bk", weights, shares, rates)
        inverse = np.linalg.inv(normal)
        free = np.einsum("bkl,bl->bk", inverse, right)
        # Lagrange multipliers of "every class has all its rows in some bin".
        pull = np.linalg.solve(inverse.sum(axis=0), 1 - free.sum(axis=0))
        class_rates = (free + inverse @ pull).T  # (K, B)
        fitted = np.maximum(priors @ class_rates, 0.5 / sizes[:, None])
        if covariance is not None:
            deviations = rates - priors @ class_rates
            moves = share_moves(deviations, fitted, sizes, class_rates, covariance)
            last, shares = shares, priors + np.einsum("jkl,jl->jk", covariance, moves)
            if abs(shares - last).max() < 1e-8:
                break
    return class_rates, fitted


def contributions(
    counts: FloatArray,
    priors: FloatArray,
    class_rates: FloatArray,
    fitted: FloatArray,
    covariance: FloatArray | None,
) -> tuple[FloatArray, IntArray]:
    """Return each set's part of the statistic and the number of its cells after merging."""
    sizes = counts.sum(axis=1)
    merge, cells = _merge_cells(fitted * sizes[:, None])  # (m, B, B), (m,)
    rates = np.einsum("jb,jbg->jg", counts / sizes[:, None], merge)
    own_rates = np.einsum("kb,jbg->jkg", class_rates, merge)  # (m, K, B)
    expected = np.einsum("jb,jbg->jg", fitted, merge)
    expected[expected == 0] = 1.0  # a cell merged away: nothing observed, nothing expected
    deviations = rates - np.einsum("jk,jkg->jg", priors, own_rates)
    precision = sizes[:, None] / expected
    statistic = np.sum(precision * deviations**2, axis=1)
    if covariance is not None:
        moves = share_moves(deviations, expected, sizes, own_rates, covariance)
        pull = np.einsum("jkg,jg->jk", own_rates, precision * deviations)
        statistic = statistic - np.einsum("jk,jkl,jl->j", pull, covariance, moves)
    return statistic, cells


def _merge_cells(expected: FloatArray) -> tuple[FloatArray, IntArray]:
    """Map each set's cells to merged ones with at least MIN_EXPECTED rows (m, B, B), and count."""
    num_sets, num_bins = expected.shape
    label = np.zeros((num_sets, num_bins), dtype=np.int64)
    current = np.zeros(num_sets, dtype=np.int64)
    held = expected[:, 0].copy()
    for b in range(1, num_bins):
        full = held >= MIN_EXPECTED
        current += full
        held = np.where(full, 0.0, held) + expected[:, b]
        label[:, b] = current
    # A last cell that stayed small goes back to the one before.
    short = (held < MIN_EXPECTED) & (current > 0)
    label[(label == current[:, None]) & short[:, None]] -= 1
    merge = (label[:, :, None] == np.arange(num_bins)).astype(np.float64)
    return merge, current - short + 1
