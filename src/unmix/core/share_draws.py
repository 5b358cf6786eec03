"""Intervals of class shares by drawing everything that is not known about them.

Three things are not: the fit (resampled fits stand for it), what each set adds to the logits of
its rows, and which classes the rows then have. A draw picks one of each, and an interval lies
between two quantiles of the shares drawn. The draws are seeded and the effects stratified, so that
an answer does not change from call to call.

This file knows no model and no names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.special import expit, ndtri

from unmix.core.set_effects import (
    effect_covariance,
    effect_size,
    inside_shares,
    known_set_offsets,
    total_variances,
)
from unmix.core.shares import (
    interpolated,
    share_by_likelihood,
    share_profile,
    share_spread,
)
from unmix.core.simplex import nearest_in_simplex, set_sums
from unmix.core.tilts import log_sums

__all__ = [
    "NUM_DRAWS",
    "OffsetDraws",
    "ScoredSets",
    "class_prior_draws",
    "draw_intervals",
    "set_effect_draws",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ROUNDS = 20  # each by one fit: those resampled in turn
STRATA = 25  # draws in a round; the effects of a set lie in so many equally likely strata
NUM_DRAWS = ROUNDS * STRATA
BLOCK = 4096  # groups at once, which bounds the memory
LEAST_SHARE = 1e-12  # log-odds stay finite

# (which fit, which sets (s,), standard normals (d, s) or (d, s, K)) -> what these sets add to the
# logits of their rows, of the shape of the normals
OffsetDraws = Callable[[int, IntArray, FloatArray], FloatArray]


@dataclass(frozen=True)
class ScoredSets:
    """The rows of sets with all that is known of them.

    Attributes
    ----------
    logits : (n,) or (n, K)
        At `prior`.
    set_index : (n,)
        The set of each row, 0..num_sets-1.
    num_sets : int
        m.
    prior : (K,)
        Class shares at which the logits hold.
    tau : float
        Standard deviation of the effect of a set.
    resampled : (R, n) or (R, n, K), optional
        Logits of the same rows by fits to resampled sets.
    stated : (m, K), optional
        Known class shares of the sets; a row of nan for a set whose shares nobody knows.
    """

    logits: FloatArray
    set_index: IntArray
    num_sets: int
    prior: FloatArray
    tau: float = 0.0
    resampled: FloatArray | None = None
    stated: FloatArray | None = None

    @property
    def num_fits(self) -> int:
        """The number of resampled fits."""
        return 0 if self.resampled is None else len(self.resampled)

    @property
    def fits(self) -> FloatArray:
        """The resampled logits, or the one fit there is: (R, n) or (R, n, K), R at least 1."""
        return self.logits[None] if not self.num_fits else np.asarray(self.resampled)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Whether the shares of a set are known (m,)."""
        if self.stated is None:
            return np.zeros(self.num_sets, dtype=bool)
        return ~np.isnan(self.stated[:, 0])

    def part(self, sets: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.bool_], IntArray]:
        """Return which rows lie in some of the sets (n,), and their sets among these."""
        rows = sets[self.set_index]
        return rows, (np.cumsum(sets) - 1)[self.set_index[rows]]


def draw_intervals(
    sets: ScoredSets,
    offsets: OffsetDraws,
    groups: IntArray,
    num_groups: int,
    confidence: float,
    *,
    seed: int = 0,
) -> tuple[FloatArray, FloatArray]:
    """Return the interval of the class shares of each group of rows.

    Formula: quantiles of draws of ::

        Binomial(n_g, mean over the rows of g of sigma(z_i + b_set(i))) / n_g

    over the fit z, the offsets b (one per set, the same for all rows of it) and the binomial (two
    classes; softmax and multinomial for K). The binomial is a little wider than what the classes
    of these rows vary by: it also covers the share where the rows came from.

    Parameters
    ----------
    sets : ScoredSets
    offsets : function
        What sets add to the logits of their rows.
    groups : (n,)
        The group of each row, 0..num_groups-1; groups and sets may cross.
    num_groups : int
    confidence : float
    seed : int

    Returns
    -------
    low, high : (g,) or (g, K)
        nan for a group without rows.
    """
    shape = (num_groups, *sets.logits.shape[1:])
    low, high = np.full(shape, np.nan), np.full(shape, np.nan)
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(0, num_groups + BLOCK, BLOCK))
    ends = [(1 - confidence) / 2, (1 + confidence) / 2]
    for block, (start, stop) in enumerate(pairwise(starts)):
        rows, first = order[start:stop], block * BLOCK
        found, cell = np.unique(groups[rows] - first, return_inverse=True)
        if len(found):
            # Every interval is for itself, so that blocks may share their draws.
            drawn = _drawn(sets, offsets, rows, cell, len(found), np.random.default_rng(seed))
            low[first + found], high[first + found] = np.quantile(drawn, ends, axis=0)
    return low, high


def _drawn(
    sets: ScoredSets,
    offsets: OffsetDraws,
    rows: IntArray,
    cell: IntArray,
    num_cells: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Return shares of cells of some rows, drawn (d, cells) or (d, cells, K)."""
    which, local = np.unique(sets.set_index[rows], return_inverse=True)
    counts = np.bincount(cell, minlength=num_cells)
    fits = sets.fits[:, rows]
    shape = (len(which), *fits.shape[2:])
    drawn = []
    for turn in range(max(ROUNDS, len(fits))):
        fit = turn % len(fits)
        effects = offsets(fit, which, _stratified(rng, shape))
        for effect in effects:
            shares = _cell_means(fits[fit] + effect[local], cell, counts)
            drawn.append(_sampled(rng, shares, counts))
    return np.stack(drawn)


def _stratified(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Return standard normals (d, ...), one in each of d equally likely strata."""
    places = (np.arange(STRATA)[:, None] + rng.random((STRATA, int(np.prod(shape))))) / STRATA
    return np.asarray(ndtri(rng.permuted(places, axis=0))).reshape(STRATA, *shape)


def _cell_means(logits: FloatArray, cell: IntArray, counts: IntArray) -> FloatArray:
    """Return the mean probability in each cell (c,) or (c, K)."""
    q = expit(logits) if logits.ndim == 1 else log_sums(logits)[1]
    sums = set_sums(q, cell, len(counts))
    return np.asarray(sums / (counts if q.ndim == 1 else counts[:, None]))


def _sampled(rng: np.random.Generator, shares: FloatArray, counts: IntArray) -> FloatArray:
    """Return the shares of as many rows as there are, drawn with these probabilities."""
    if shares.ndim == 1:
        return np.asarray(rng.binomial(counts, shares.clip(0, 1)) / counts)
    drawn = rng.multinomial(counts, shares / shares.sum(axis=1, keepdims=True))
    return np.asarray(drawn / counts[:, None])


def set_effect_draws(sets: ScoredSets) -> OffsetDraws:
    """Return draws of the effects of sets.

    New sets: N(0, tau^2). Known ones: the posterior given the stated share, with a mean by each fit
    and tau as the known sets speak for it::

        N(b_j tau^2 / T_j, tau^2 (1 - tau^2 / T_j))
    """
    num_classes = 2 if sets.logits.ndim == 1 else sets.logits.shape[1]
    two, known = num_classes == 2 and sets.logits.ndim == 1, sets.known
    means = np.zeros((len(sets.fits), sets.num_sets, *sets.logits.shape[1:]))
    if two:
        scales = np.full(sets.num_sets, sets.tau)
    else:
        scales = np.tile(np.eye(num_classes) * sets.tau / np.sqrt(2), (sets.num_sets, 1, 1))
    if known.any() and sets.stated is not None:
        rows, index = sets.part(known)
        stated = sets.stated[known][:, 1] if two else sets.stated[known]
        tau = effect_size(sets.logits[rows], index, stated)
        for fit, logits in enumerate(sets.fits):
            means[fit, known] = known_set_offsets(logits[rows], index, stated, tau)
        scales[known] = _posterior_scales(sets.logits[rows], index, stated, tau)

    def draw(fit: int, which: IntArray, normals: FloatArray) -> FloatArray:
        if two:
            return np.asarray(means[fit, which] + scales[which] * normals)
        return np.asarray(means[fit, which] + np.einsum("skl,dsl->dsk", scales[which], normals))

    return draw


def _posterior_scales(
    logits: FloatArray, set_index: IntArray, stated: FloatArray, tau: float
) -> FloatArray:
    """Return how far effects of known sets may still be: deviations (m,) or factors (m, K, K)."""
    _, _, totals = total_variances(logits, set_index, stated, tau)
    empty = np.bincount(set_index, minlength=len(stated)) == 0
    if logits.ndim == 1:
        share = np.where(empty, 0.0, tau**2 / np.where(empty, 1.0, totals))
        return np.asarray(tau * np.sqrt((1 - share).clip(0)))
    prior = effect_covariance(tau, stated.shape[1])
    left = prior - prior @ np.linalg.solve(totals, np.broadcast_to(prior, totals.shape))
    left[empty] = prior
    values, vectors = np.linalg.eigh((left + np.swapaxes(left, 1, 2)) / 2)
    scales = np.zeros((len(stated), stated.shape[1], stated.shape[1]))
    scales[:, 1:, 1:] = vectors * np.sqrt(values.clip(0))[:, None, :]
    return scales


def class_prior_draws(sets: ScoredSets) -> OffsetDraws:
    """Return draws of log(share / prior), which a set adds to its rows' logits under label shift.

    Known sets: their shares. New ones: shares drawn from their likelihood by the one fit, moved by
    what each resampled fit has its maximum elsewhere. Two classes: the signed root of the profile
    likelihood is standard normal; K classes: shares are normal, cut off at the simplex.
    """
    two, known, new = sets.logits.ndim == 1, sets.known, ~sets.known
    shape = (sets.num_sets, *sets.logits.shape[1:])
    centres, moves = np.zeros(shape), np.zeros((len(sets.fits), *shape))
    if known.any() and sets.stated is not None:
        sizes = np.bincount(sets.set_index, minlength=sets.num_sets)
        inside = inside_shares(sets.stated[known], sizes[known])
        centres[known] = inside[:, 1] if two else inside
    rows, index = sets.part(new)
    num_new, place = int(new.sum()), np.cumsum(new) - 1
    point = (sets.logits[rows], index, num_new, sets.prior)
    if num_new:
        centres[new] = share_by_likelihood(*point)[0]
        for fit in range(sets.num_fits):
            found = share_by_likelihood(sets.fits[fit, rows], *point[1:])[0]
            moves[fit, new] = found - centres[new]
    # (new sets, ...): shares at evenly spaced roots, or factors of errors
    likely = share_profile(*point) if two else share_spread(*point[:2], centres[new], sets.prior)

    def drawn_shares(which: IntArray, normals: FloatArray) -> FloatArray:
        shares = np.broadcast_to(centres[which], normals.shape).copy()
        picked = new[which]
        own = likely[place[which[picked]]]
        if two:
            shares[:, picked] = interpolated(own, normals[:, picked])
        else:
            shares[:, picked] += np.einsum("skl,dsl->dsk", own, normals[:, picked, 1:])
        return shares

    def draw(fit: int, which: IntArray, normals: FloatArray) -> FloatArray:
        shares = drawn_shares(which, normals) + moves[fit, which]
        if two:
            inside = shares.clip(LEAST_SHARE, 1 - LEAST_SHARE)
            ends = np.log(inside) - np.log1p(-inside)
            return np.asarray(ends - np.log(sets.prior[1]) + np.log(sets.prior[0]))
        inside = nearest_in_simplex(shares.reshape(-1, shape[1])).clip(LEAST_SHARE)
        return np.asarray(np.log(inside) - np.log(sets.prior)).reshape(shares.shape)

    return draw
