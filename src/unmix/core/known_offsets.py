"""What the known share of a set adds to the logits of its rows, and how far off that may be.

A share may be the count of the very rows at hand, a rate of where they came from, or either with an
error; before it is looked at, something else speaks for the offset: the rows themselves under label
shift, the size of the set effect where sets have effects. All of it is put together here, in the
same way for both assumptions and for K classes.

Let l be the offset under which the classes of rows are independent, with a normal law of mean l_0
and information P before the share is known. The share s is then normal about m(l), with slope M::

    these rows    m(l) = mean of softmax(z_i + l)           variance C = M / n + e^2
    a rate        m(l) = softmax(log prior + l)             variance C = M / N + e^2   (label shift)
                  m(l) = mean of softmax(z_i + l)                                      (set effects)

of N rows counted, infinite for a population, with a standard error e. l has its mode where
M C^-1 (s - m(l)) = P (l - l_0), and there the information P + M C^-1 M. A rate says no more than l.
The count of these very rows also says how their classes fell, which moves their logits by ::

    (n C)^-1 (s - m(l))

and leaves less of what is unknown of l: without error nothing, and the offset is the one at which
the expected count is the count.

This file knows no model and no set names. `tests/reference_counts.py` holds the literal form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unmix.core.class_shares import LEAST_SHARE
from unmix.core.effect_law import effect_covariance
from unmix.core.set_effects import mean_offsets
from unmix.core.share_law import inside_shares
from unmix.core.share_precision import SharePrecision
from unmix.core.shares import share_by_likelihood
from unmix.core.stated_counts import class_covariances
from unmix.core.sums_by_set import class_spread, log_sums

__all__ = ["KnownOffsets", "offsets_by_effect", "offsets_by_prior"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
MeanAndSlope = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

LEAST_INFORMATION = 1e-6  # of rows about an offset, and 1 / this is the most of a set effect
STEPS, MOST_STEP, SMALL_STEP = 50, 2.0, 1e-8


class KnownOffsets(NamedTuple):
    """Expected offsets of sets with known shares, and how they scatter.

    Attributes
    ----------
    offsets : (m,) or (m, K)
        Of K classes with 0 for class 0; 0 for a set without rows.
    factors : (m,), or (m, K, K)
        Times standard normals: what is still unknown of them.
    """

    offsets: FloatArray
    factors: FloatArray


class _Sets(NamedTuple):
    """Rows of sets, and what is stated of them, for every class but class 0."""

    logits: FloatArray  # (n, K)
    set_index: IntArray
    rows: FloatArray  # (m,)
    shares: FloatArray  # (m, K), inside the simplex
    errors: FloatArray  # (m, k, k) covariance of the stated shares
    counted: FloatArray  # (m,) rows N, infinite for a rate
    these: npt.NDArray[np.bool_]  # whether the count is that of these rows
    certain: npt.NDArray[np.bool_]  # whether nothing is unknown of the offset
    exact: FloatArray  # (m, k) offsets at which the expected share is the stated one


def offsets_by_prior(
    logits: FloatArray,
    set_index: IntArray,
    shares: FloatArray,
    prior: FloatArray,
    precision: SharePrecision,
) -> KnownOffsets:
    """Return the offsets of sets with known shares under label shift.

    Parameters
    ----------
    logits : (n,) or (n, K)
        At `prior`.
    set_index : (n,)
    shares : (m, K)
    prior : (K,)
    precision : SharePrecision
    """
    sets = _sets_of(logits, set_index, shares, precision)
    sets.exact[~sets.these] = _ratios(sets.shares, prior)[~sets.these]

    def at(offsets: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean, slope = _means(sets, offsets)
        flat, of_rate = _softmax(np.log(prior) + _padded(offsets))
        return (
            np.where(sets.these[:, None], mean, flat),
            np.where(sets.these[:, None, None], slope, of_rate),
        )

    if sets.certain.all():
        return _known_exactly(sets, logits.ndim)
    likely = share_by_likelihood(sets.logits, set_index, len(shares), prior)[0]
    likely = inside_shares(np.where(np.isnan(likely), prior, likely), sets.rows)
    before = _ratios(likely, prior)
    spread = sets.rows[:, None, None] * _means(sets, before)[1]
    information = sets.rows[:, None, None] * _softmax(np.log(likely))[1] - spread
    return _combined(sets, at, before, _at_least(information), logits.ndim)


def offsets_by_effect(
    logits: FloatArray,
    set_index: IntArray,
    shares: FloatArray,
    tau: float,
    precision: SharePrecision,
) -> KnownOffsets:
    """Return the offsets of sets with known shares where each has an effect N(0, tau^2).

    Parameters
    ----------
    logits, set_index, shares, precision
        As for `offsets_by_prior`, at any prior.
    tau : float
    """
    sets = _sets_of(logits, set_index, shares, precision)
    if sets.certain.all():
        return _known_exactly(sets, logits.ndim)
    classes = sets.logits.shape[1]
    effect = effect_covariance(tau, classes) + LEAST_INFORMATION * np.eye(classes - 1)
    information = np.tile(np.linalg.inv(effect), (len(shares), 1, 1))
    before = np.zeros_like(sets.exact)
    return _combined(sets, lambda o: _means(sets, o), before, information, logits.ndim)


def _sets_of(
    logits: FloatArray, set_index: IntArray, shares: FloatArray, precision: SharePrecision
) -> _Sets:
    """Put together what is known of sets; shares of 0 and 1 move in where they are no counts."""
    z = logits if logits.ndim == 2 else np.stack([np.zeros_like(logits), logits], axis=1)
    rows = np.bincount(set_index, minlength=len(shares)).astype(np.float64)
    these = (precision.counted == rows) & (rows > 0)
    without = precision.errors == 0
    certain = without & (these | np.isinf(precision.counted))
    inside = inside_shares(shares, np.where(np.isinf(precision.counted), rows, precision.counted))
    least = np.maximum(shares, LEAST_SHARE)
    counts = without & these  # of exactly 0, too
    inside[counts] = (least / least.sum(axis=1, keepdims=True))[counts]
    several = class_covariances(_error_numbers(shares, precision.errors))[:, 1:, 1:]
    exact = mean_offsets(z, set_index, inside)[:, 1:]
    return _Sets(z, set_index, rows, inside, several, precision.counted, these, certain, exact)


def _error_numbers(shares: FloatArray, errors: FloatArray) -> FloatArray:
    """Return a number per class (m, K) that gives every class its error, see `count_variance`."""
    classes = shares.shape[1]
    return np.repeat((errors**2 * classes / (classes - 1))[:, None], classes, axis=1)


def _combined(
    sets: _Sets, at: MeanAndSlope, before: FloatArray, information: FloatArray, ndim: int
) -> KnownOffsets:
    """Find the mode of the offsets and what is left of them."""
    stated, unit = sets.shares[:, 1:], np.eye(before.shape[1])
    sampled = np.where(np.isinf(sets.counted), 0.0, 1 / np.maximum(sets.counted, 1))

    def variance(slope: FloatArray) -> FloatArray:
        return np.asarray(slope * sampled[:, None, None] + sets.errors + 1e-14 * unit)

    found = np.where(sets.certain[:, None], sets.exact, before)
    settled = sets.certain | (sets.rows == 0)
    for _ in range(STEPS):
        mean, slope = at(found)
        said = slope @ np.linalg.inv(variance(slope))  # M C^-1
        score = _times(said, stated - mean) - _times(information, found - before)
        step = np.linalg.solve(said @ slope + information, score[:, :, None])[:, :, 0]
        step[settled] = 0.0
        found += np.clip(step, -MOST_STEP, MOST_STEP)
        if np.abs(step).max(initial=0.0) < SMALL_STEP:
            break
    mean, slope = at(found)
    noise = np.linalg.inv(variance(slope))
    left = np.linalg.inv(slope @ noise @ slope + information)
    # The count of these rows also says how their classes fell.
    part = np.where(sets.these, sampled, 0.0)[:, None, None]
    moved = found + _times(part * noise, stated - mean)
    remains = unit - part * noise @ slope
    moved[sets.certain], remains[sets.certain] = sets.exact[sets.certain], 0.0
    moved[sets.rows == 0] = 0.0
    return _as_asked(moved, remains @ np.linalg.cholesky(left), ndim)


def _known_exactly(sets: _Sets, ndim: int) -> KnownOffsets:
    """Return the offsets that stated shares without errors ask for."""
    k = sets.exact.shape[1]
    moved = np.where(sets.rows[:, None] > 0, sets.exact, 0.0)
    return _as_asked(moved, np.zeros((len(moved), k, k)), ndim)


def _as_asked(offsets: FloatArray, factors: FloatArray, ndim: int) -> KnownOffsets:
    """Return offsets (m, k) and factors (m, k, k) in the shape that goes with logits."""
    if ndim == 1:
        return KnownOffsets(offsets[:, 0], factors[:, 0, 0])
    several = np.zeros((len(offsets), offsets.shape[1] + 1, offsets.shape[1] + 1))
    several[:, 1:, 1:] = factors
    return KnownOffsets(_padded(offsets), several)


def _means(sets: _Sets, offsets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean probabilities (m, k) of sets at some offsets, and their slopes (m, k, k)."""
    q = log_sums(sets.logits + _padded(offsets)[sets.set_index])[1]
    n = np.maximum(sets.rows, 1)
    sums = np.stack(
        [np.bincount(sets.set_index, column, minlength=len(n)) for column in q.T[1:]], axis=1
    )
    slope = class_spread(q, sets.set_index, len(n))[:, 1:, 1:] / n[:, None, None]
    return sums / n[:, None], slope + LEAST_SHARE * np.eye(offsets.shape[1])


def _softmax(logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return probabilities of every class but class 0, and their slopes, of logits (m, K)."""
    q = log_sums(logits)[1][:, 1:]
    return q, q[:, :, None] * np.eye(q.shape[1]) - q[:, :, None] * q[:, None, :]


def _ratios(shares: FloatArray, prior: FloatArray) -> FloatArray:
    """Return what shares (m, K) add to logits at a prior, for every class but class 0 (m, k)."""
    moved = np.log(np.maximum(shares, LEAST_SHARE)) - np.log(prior)
    return np.asarray(moved[:, 1:] - moved[:, :1])


def _padded(offsets: FloatArray) -> FloatArray:
    """Return offsets with those of class 0, which are 0: (m, k) -> (m, K)."""
    return np.hstack([np.zeros((len(offsets), 1)), offsets])


def _at_least(information: FloatArray) -> FloatArray:
    """Return information matrices that are positive, where rows say nothing or rounding was off."""
    values, vectors = np.linalg.eigh(information)
    kept = np.maximum(values, LEAST_INFORMATION)[:, None, :]
    return np.asarray((vectors * kept) @ np.swapaxes(vectors, 1, 2))


def _times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Multiply a matrix by a vector in each set: (m, k, k), (m, k) -> (m, k)."""
    return np.asarray(np.einsum("mkl,ml->mk", matrices, vectors))
