"""What do the features say of each other: are slopes inside sets those between sets?

A model of whole sets learns its slopes from differences between sets, and uses them for differences
inside sets. Whether the class obeys is hidden. But every feature can stand in for the class: its
means by set can be told from the means of the other features, and inside the sets its values are
known. If a slope between sets is, for features, mostly l times as long inside sets, that is the
best guess for the class too, where something else than the features differs between sets.

This file knows no model and no methods. `tests/reference_counts.py` holds the literal form.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit, ndtr, stdtrit

from unmix.core.effect_law import effect_scale
from unmix.core.set_effects import mean_offsets
from unmix.core.sums_by_set import log_sums, set_sums

__all__ = [
    "NO_STAND_INS",
    "UNMOVED",
    "LogitMove",
    "StandIns",
    "feature_slopes",
    "lone_row_move",
    "stand_ins",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LEAST_SETS = 10
MOST_FEATURES = 200  # drawn of more, column by column of the table
FOLDS = 5
STRENGTHS = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01)  # of the penalty, relative to the variance
ERRORS = 2.0  # standard errors of a normal law, from which a feature counts as told
LEAST_COLUMNS = 2  # one alone may be told by chance
MOST_SLOPE = 2.0  # of a single feature, to both sides of 0: no feature alone decides
TINY = 1e-9


class StandIns(NamedTuple):
    """How long slopes are inside sets, relative to those between sets.

    Attributes
    ----------
    slope : float
        Between 0 and 1; 1 where no feature says anything.
    columns : int
        Columns of the table that say it.
    """

    slope: float = 1.0
    columns: int = 0


class LogitMove(NamedTuple):
    """What turns logits of rows of named sets into those of rows whose set nobody names.

    Attributes
    ----------
    length : float
    shift : (), or (K,)
    """

    length: float = 1.0
    shift: FloatArray | float = 0.0

    def __call__(self, logits: FloatArray) -> FloatArray:
        """Return the logits moved."""
        return np.asarray(self.length * logits + self.shift)


NO_STAND_INS, UNMOVED = StandIns(), LogitMove()


def stand_ins(
    x: npt.ArrayLike,
    set_index: npt.ArrayLike,
    num_sets: int,
    column_of: npt.ArrayLike,
    rng: np.random.Generator,
) -> StandIns:
    """Return how long slopes between sets are inside sets, when features stand in for the class.

    Formula (M the means of the features by set, W what is left inside; k a feature, b_k the ridge
    regression of M_k on the means of the other columns, of the length that held-out sets ask for)::

        l_k   = cov(W b_k, W_k) / var(W b_k)
        slope = (1 + sum over columns of the mean l_k) / (1 + columns)

    Only features whose means are told on held-out sets by two standard errors say anything, if
    they are of two columns at least. The 1 is the assumption itself, that slopes are the same: it
    counts as one more column.

    Parameters
    ----------
    x : (n, d)
    set_index : (n,)
    num_sets : int
    column_of : (d,)
        The column of the table of each feature: features of one column do not tell each other.
    rng : Generator
        Draws folds of sets, and features where there are many.
    """
    index, owner = np.asarray(set_index, np.int64), np.asarray(column_of, np.int64)
    kept = _some_features(owner, rng)
    found = feature_slopes(np.asarray(x)[:, kept], index, num_sets, owner[kept], rng)
    told = np.isfinite(found)
    columns, place = np.unique(owner[kept][told], return_inverse=True)
    if len(columns) < LEAST_COLUMNS:
        return NO_STAND_INS
    by_column = np.bincount(place, found[told]) / np.bincount(place)
    slope = (1 + by_column.sum()) / (1 + len(columns))
    return StandIns(float(np.clip(slope, 0.0, 1.0)), len(columns))


def feature_slopes(
    x: npt.ArrayLike,
    set_index: npt.ArrayLike,
    num_sets: int,
    column_of: npt.ArrayLike,
    rng: np.random.Generator,
) -> FloatArray:
    """Return l_k of every feature, see `stand_ins`: (d,), nan for those that others do not tell.

    Parameters
    ----------
    x, set_index, num_sets, column_of, rng
        As for `stand_ins`.
    """
    index, owner = np.asarray(set_index, np.int64), np.asarray(column_of, np.int64)
    rows = np.bincount(index, minlength=num_sets)
    present = rows > 0
    found = np.full(len(owner), np.nan)
    if present.sum() < LEAST_SETS:
        return found
    means, within = _means_and_within(np.asarray(x), index, rows)
    means = means[present]
    able = np.flatnonzero((means.var(axis=0) > TINY) & (np.diag(within) > TINY))
    means, within, owner = means[:, able], within[np.ix_(able, able)], owner[able]
    if len(np.unique(owner)) < 2:
        return found
    told, slopes = _told_by_others(means, owner, rng)
    inside = np.einsum("dk,dk->k", slopes, within)  # cov(W b_k, W_k)
    spread = np.einsum("dk,de,ek->k", slopes, within, slopes)
    told &= spread > TINY
    own = np.clip(inside[told] / spread[told], -MOST_SLOPE, MOST_SLOPE)
    found[able[told]] = own
    return found


def lone_row_move(
    logits: FloatArray, set_index: IntArray, num_sets: int, slope: float, tau: float
) -> LogitMove:
    """Return what to do to the logits of a row whose set nobody names.

    Formula (r the share of the variance of logits that lies between sets)::

        length z + shift,   length = r + (1 - r) slope

    A row is as far from the mean as its logit says; on average r of that is its set, where slopes
    are as learned, and the rest is inside, where they are `slope` times as long. The shift keeps
    the mean probability of these rows, averaged over effects of sets, where it is.

    Parameters
    ----------
    logits : (n,) or (n, K)
    set_index : (n,)
    num_sets : int
    slope : float
    tau : float
        Standard deviation of the effect of a set.
    """
    z = logits.reshape(len(logits), -1)
    rows = np.bincount(set_index, minlength=num_sets)
    m, n = int((rows > 0).sum()), len(z)
    centred = z - z.mean(axis=0)
    sums = set_sums(centred, set_index, num_sets)
    total = float(np.sum(centred**2))
    between = float(np.sum(sums**2 / np.maximum(rows, 1)[:, None]))
    by_chance = (m - 1) * (total - between) / max(n - m, 1)
    share = float(np.clip((between - by_chance) / total, 0.0, 1.0)) if total > 0 else 1.0
    length, scale = share + (1 - share) * slope, effect_scale(tau)
    before = scale * logits
    q = expit(before) if logits.ndim == 1 else log_sums(before)[1]
    one_set = np.zeros(n, dtype=np.int64)
    offset = mean_offsets(length * before, one_set, np.asarray(q.mean(axis=0))[None])[0]
    return LogitMove(length, np.asarray(offset / scale))


def _some_features(owner: IntArray, rng: np.random.Generator) -> IntArray:
    """Return at most so many features, those of a column together."""
    if len(owner) <= MOST_FEATURES:
        return np.arange(len(owner))
    columns, place, size = np.unique(owner, return_inverse=True, return_counts=True)
    order = rng.permutation(len(columns))
    fits = np.cumsum(size[order]) <= MOST_FEATURES
    return np.flatnonzero(np.isin(place, order[fits]))


def _means_and_within(
    x: npt.NDArray[np.floating], index: IntArray, rows: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the means of features by set (m, d) and their covariance inside sets (d, d)."""
    wide = x.astype(np.float64)
    wide -= wide.mean(axis=0)
    means = set_sums(wide, index, len(rows)) / np.maximum(rows, 1)[:, None]
    inside = wide.T @ wide - means.T @ (rows[:, None] * means)
    return means, inside / len(wide)


def _told_by_others(
    means: FloatArray, owner: IntArray, rng: np.random.Generator
) -> tuple[npt.NDArray[np.bool_], FloatArray]:
    """Return which features are told by other columns on held-out sets, and the slopes (d, k)."""
    m, d = means.shape
    fold = rng.permutation(m) % FOLDS
    guessed, predicted = np.empty((m, d)), np.empty((len(STRENGTHS), m, d))
    for f in range(FOLDS):
        out = fold == f
        centre = means[~out].mean(axis=0)
        guessed[out] = centre
        for s, strength in enumerate(STRENGTHS):
            slopes = _ridge(means[~out] - centre, owner, strength)
            predicted[s, out] = centre + (means[out] - centre) @ slopes
    errors = (means - predicted) ** 2
    best = errors.mean(axis=1).argmin(axis=0)  # (d,)
    each = np.arange(d)
    ahead = (means - guessed) ** 2 - errors[best, :, each].T
    error = ahead.std(axis=0, ddof=1) / np.sqrt(m)
    threshold = -float(stdtrit(m - 1, ndtr(-ERRORS)))
    told = ahead.mean(axis=0) > threshold * np.maximum(error, TINY)
    held = predicted[best, :, each].T
    held = held - held.mean(axis=0)
    length = np.sum(held * means, axis=0) / np.maximum(np.sum(held**2, axis=0), TINY)
    slopes = np.empty((d, d))
    for s in np.unique(best):
        chosen = best == s
        slopes[:, chosen] = _ridge(means - means.mean(axis=0), owner, STRENGTHS[s])[:, chosen]
    return told, slopes * length


def _ridge(centred: FloatArray, owner: IntArray, strength: float) -> FloatArray:
    """Return the slopes (d, k) of each feature k on those of all other columns, 0 for its own.

    With P the inverse of the penalised covariance, those of the features B of a column on the rest
    R are - P_RB P_BB^-1.
    """
    covariance = centred.T @ centred / len(centred)
    penalty = strength * float(np.mean(np.diag(covariance)))
    inverse = np.linalg.inv(covariance + penalty * np.eye(len(covariance)))
    slopes = np.empty_like(inverse)
    for column in np.unique(owner):
        own = np.flatnonzero(owner == column)
        slopes[:, own] = -inverse[:, own] @ np.linalg.inv(inverse[np.ix_(own, own)])
        slopes[np.ix_(own, own)] = 0.0
    return slopes
