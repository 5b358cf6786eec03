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

from unmix.core.class_shares import LEAST_SHARE, nearest_in_simplex
from unmix.core.known_offsets import KnownOffsets
from unmix.core.share_precision import SharePrecision, precision_by_counts
from unmix.core.shares import (
    interpolated,
    share_by_likelihood,
    share_profile,
    share_spread,
)
from unmix.core.sums_by_set import log_sums, set_sums
from unmix.core.within_sets import tempered_logits

__all__ = [
    "NUM_DRAWS",
    "OffsetDraws",
    "ScoredSets",
    "class_prior_draws",
    "draw_intervals",
    "known_set_fits",
    "known_set_logits",
    "set_effect_draws",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ROUNDS = 20  # each by one fit: those resampled in turn
STRATA = 25  # draws in a round; the effects of a set lie in so many equally likely strata
NUM_DRAWS = ROUNDS * STRATA
LEAST_FITS, OUTER = 10, 0.975
BLOCK = 4096  # groups at once, which bounds the memory

# (which fit, which sets (s,), standard normals (d, s) or (d, s, K)) -> what these sets add to the
# logits of their rows, of the shape of the normals
OffsetDraws = Callable[[int, IntArray, FloatArray], FloatArray]
# (sets, logits (n,) or (n, K) of their rows) -> offsets of sets with known shares, of all that know
KnownRule = Callable[["ScoredSets", FloatArray], KnownOffsets]


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
    precision : SharePrecision, optional
        How well the known shares are known. If left out, a share that is a whole number of the
        rows of its set is their count, any other the rate of where they came from.
    trust : float
        How far rows of one set may be told apart once its share is known, see
        `unmix.core.within_sets`.
    """

    logits: FloatArray
    set_index: IntArray
    num_sets: int
    prior: FloatArray
    tau: float = 0.0
    resampled: FloatArray | None = None
    stated: FloatArray | None = None
    precision: SharePrecision | None = None
    trust: float = 1.0

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

    def only_known(self) -> ScoredSets:
        """Return the sets whose shares are known, with their rows."""
        known = self.known
        rows, index = self.part(known)
        assert self.stated is not None
        stated = self.stated[known]
        precision = self.precision
        if precision is None:
            precision = precision_by_counts(stated, np.bincount(index, minlength=len(stated)))
        else:
            precision = precision.take(known)
        fits = None if self.resampled is None else self.resampled[:, rows]
        return ScoredSets(
            self.logits[rows],
            index,
            len(stated),
            self.prior,
            self.tau,
            fits,
            stated,
            precision,
            self.trust,
        )

    def part(self, sets: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.bool_], IntArray]:
        """Return which rows lie in some of the sets (n,), and their sets among these."""
        rows = sets[self.set_index]
        return rows, (np.cumsum(sets) - 1)[self.set_index[rows]]


def draw_intervals(
    sets: ScoredSets,
    fits: FloatArray,
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
    fits : (R, n) or (R, n, K)
        Logits of the rows by every fit, in known sets with what their shares add, by
        `known_set_fits`.
    offsets : function
        What is not known of what sets add to the logits of their rows.
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
            drawn = _drawn(
                sets, fits[:, rows], offsets, rows, cell, len(found), np.random.default_rng(seed)
            )
            low[first + found], high[first + found] = np.quantile(drawn, ends, axis=0)
    return low, high


def _drawn(
    sets: ScoredSets,
    fits: FloatArray,
    offsets: OffsetDraws,
    rows: IntArray,
    cell: IntArray,
    num_cells: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Return shares of cells of some rows, drawn (d, cells) or (d, cells, K)."""
    which, local = np.unique(sets.set_index[rows], return_inverse=True)
    counts = np.bincount(cell, minlength=num_cells)
    shape = (len(which), *fits.shape[2:])
    drawn = []
    for turn in range(max(ROUNDS, len(fits))):
        fit = turn % len(fits)
        effects = offsets(fit % len(sets.fits), which, _stratified(rng, shape))
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


def known_set_logits(sets: ScoredSets, logits: FloatArray, rule: KnownRule) -> FloatArray:
    """Return logits of rows of sets that are all known, with what their shares add, untempered."""
    return np.asarray(logits + rule(sets, logits).offsets[sets.set_index])


def _spread_for_quantiles(fits: FloatArray) -> FloatArray:
    """Return fits (R, ...) so far apart that their quantiles are those of the law they are from.

    Of twenty normal numbers the quantiles of 2.5 and 97.5 % lie at 1.65 deviations, not at 1.96.
    """
    number = len(fits)
    if number < LEAST_FITS:  # of which quantiles say too little to be put right
        return fits
    ordered = ndtri((np.arange(number) + 1 - 0.375) / (number + 0.25))  # expected (Blom, 1958)
    factor = max(float(ndtri(OUTER) / np.quantile(ordered, OUTER)), 1.0)
    centre = fits.mean(axis=0)
    return np.asarray(centre + factor * (fits - centre))


def known_set_fits(sets: ScoredSets, rule: KnownRule) -> FloatArray:
    """Return the logits of all rows by every fit, in known sets with what their shares add.

    Where rows of one set may not be told apart as far as the model would, how far is unknown too: a
    third of the fits tell them apart as far as the model would, one only as far as was shown, and
    one by as much more.
    """
    fits, known = _spread_for_quantiles(sets.fits), sets.known
    if not known.any():
        return fits
    part, rows = sets.only_known(), sets.part(known)[0]
    trusts = (1.0, part.trust, 2 - part.trust)
    if part.trust < 1 and len(fits) == 1:
        fits = np.concatenate([fits] * len(trusts))
    moved = fits.copy()
    for fit in range(len(fits)):
        found = known_set_logits(part, fits[fit, rows], rule)
        trust = trusts[fit % len(trusts)]
        moved[fit, rows] = tempered_logits(found, part.set_index, part.num_sets, trust)
    return moved


def set_effect_draws(sets: ScoredSets, rule: KnownRule) -> OffsetDraws:
    """Return draws of the effects of sets: N(0, tau^2) of new ones, what is left of known ones."""
    two = sets.logits.ndim == 1
    if two:
        scales = np.full(sets.num_sets, sets.tau)
    else:
        each = np.eye(sets.logits.shape[1]) * sets.tau / np.sqrt(2)
        scales = np.tile(each, (sets.num_sets, 1, 1))
    if sets.known.any():
        part = sets.only_known()
        scales[sets.known] = rule(part, part.logits).factors

    def draw(_: int, which: IntArray, normals: FloatArray) -> FloatArray:
        if two:
            return np.asarray(scales[which] * normals)
        return np.asarray(np.einsum("skl,dsl->dsk", scales[which], normals))

    return draw


def class_prior_draws(sets: ScoredSets, rule: KnownRule) -> OffsetDraws:
    """Return draws of what a set adds to its rows' logits under label shift.

    Known sets: what is left to know of it. New ones: log(share / prior), with shares drawn from
    their likelihood by the one fit, moved by what each resampled fit has its maximum elsewhere. Two
    classes: the signed root of the profile likelihood is standard normal; K classes: shares are
    normal, cut off at the simplex.
    """
    two, new = sets.logits.ndim == 1, ~sets.known
    known = set_effect_draws(sets, rule)
    num_new, place = int(new.sum()), np.cumsum(new) - 1
    if not num_new:
        return known
    rows, index = sets.part(new)
    point = (sets.logits[rows], index, num_new, sets.prior)
    centres = share_by_likelihood(*point)[0]
    moves = np.zeros((len(sets.fits), *centres.shape))
    for fit in range(sets.num_fits):
        moves[fit] = share_by_likelihood(sets.fits[fit, rows], *point[1:])[0] - centres
    # (new sets, ...): shares at evenly spaced roots, or factors of errors
    likely = share_profile(*point) if two else share_spread(*point[:2], centres, sets.prior)

    def draw(fit: int, which: IntArray, normals: FloatArray) -> FloatArray:
        found = known(fit, which, normals)
        picked = new[which]
        own, given = place[which[picked]], normals[:, picked]
        if two:
            inside = interpolated(likely[own], given) + moves[fit, own]
            inside = inside.clip(LEAST_SHARE, 1 - LEAST_SHARE)
            ends = np.log(inside) - np.log1p(-inside)
            found[:, picked] = ends - np.log(sets.prior[1]) + np.log(sets.prior[0])
            return found
        shares = centres[own] + np.einsum("skl,dsl->dsk", likely[own], given[:, :, 1:])
        shares = nearest_in_simplex((shares + moves[fit, own]).reshape(-1, len(sets.prior)))
        logs = np.log(shares.clip(LEAST_SHARE)) - np.log(sets.prior)
        found[:, picked] = logs.reshape(given.shape)
        return found

    return draw
