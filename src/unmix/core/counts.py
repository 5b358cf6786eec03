"""The likelihood of a set's count, given the logits of its rows.

What a set tells is how many of its rows are of each class, known exactly or with noise. Here is
minus the log-likelihood of that count and its gradient: exactly for small sets, by saddlepoint for
large ones, with sums per set only. Right for random sets, for exact counts under label shift, and
for covariate shift; see `stated_counts.label_shift_counts` for noisy counts under label shift.

This file knows no model and no set names. `tests/reference_counts.py` holds the literal form.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from unmix.core.count_recursion import batches, binary_recursion, class_recursion, count_states
from unmix.core.stated_counts import StatedCounts, checked_counts, class_covariances
from unmix.core.sums_by_set import (
    binary_tilts,
    class_spread,
    class_tilts,
    log_sums,
    row_spread,
    set_sums,
    spread_slope,
)

__all__ = ["EXACT_COUNTS", "count_hessian", "count_nll", "count_tilts", "refined_counts"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

EXACT_COUNTS = 200  # counts a set can have up to which all are summed: about 0.2 ms a set


def count_nll(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    counts: npt.ArrayLike,
    variances: npt.ArrayLike = 0.0,
    *,
    exact_counts: int = EXACT_COUNTS,
) -> tuple[FloatArray, FloatArray]:
    """Return -log p(stated count | rows) of every set, and the gradient of their sum.

    Domain: any finite logits. A count with variance 0 is the number of positives itself: it is
    taken as the nearest whole number and must lie in 0..n. With a variance it may be any number.

    Formula (t the tilt of `count_tilts`, V = sum_i sigma'(z_i + t), mu = c - s^2 t)::

        sum_i [softplus(z_i) - softplus(z_i + t)] + t c - s^2 t^2 / 2 + R
        R, exact                   -log PB(c; sigma(z + t))                               s = 0
                                   -log sum_k PB(k; sigma(z + t)) N(k; mu, s^2)           s > 0
        R, saddlepoint             log(1 + 2 pi V) / 2                                    s = 0
                                   log(2 pi (V + s^2)) / 2                                s > 0
        gradient, exact            sigma(z_i) - P(row i is positive | stated count)
        gradient, saddlepoint      sigma(z_i) - sigma(z_i + t) + dR/dz_i, t's part included

    The 1 in log(1 + 2 pi V) makes it exact where nothing is left to chance (V = 0), and for large
    V stands where the next term of the saddlepoint does (1/8 to 1/6 in V; 1 / 2 pi = .159).

    Limits: sets of one row with exact counts give ordinary cross-entropy. For exact counts, with
    p the pooled prior, pi = c / n and delta = logit pi - logit p, SSC is a part of it::

        log PB(c; sigma(z)) - log Bin(c; n, p)
            = -SSC + log PB(c; sigma(z + delta)) - log Bin(c; n, pi)

    If only the rate pi is known, SSC is all that remains; it is the limit of `count_nll` at the
    count delta s^2 and the variance s^2 as s^2 grows (`label_shift_counts`).

    K classes: vectors; 1 + 2 pi V becomes det(L + 2 pi V), where L has sum 0 and determinant 1 as
    all these matrices without one of their classes.

    Parameters
    ----------
    logits : (n,) or (n, K)
        Logits at the pooled prior.
    set_index : (n,)
        The set of each row, 0..m-1.
    counts : (m,) or (m, K)
        Stated count of positives, or of every class. Counts of K classes that do not sum to the
        rows of the set are corrected in proportion to their variances.
    variances : float, (m,) or (m, K)
        From `count_variance`; 0 for exact counts.
    exact_counts : int
        Sets that can have at most this many counts (n + 1 for two classes) are summed exactly.

    Returns
    -------
    values : (m,)
        0 for a set without rows.
    gradient : of the shape of `logits`
        For exact sums, sigma(z) - gradient is the probability of the row given its set's count.

    Examples
    --------
    >>> values, gradient = count_nll([0.0, 0.0], [0, 0], [1.0])  # log 2: two of four labelings
    >>> values.round(4), gradient
    (array([0.6931]), array([0., 0.]))
    """
    evidence = checked_counts(logits, set_index, counts, variances)
    solve = _binary if evidence.counts.ndim == 1 else _classes
    values, posterior, _, _ = solve(evidence, exact_counts)
    return values, _probabilities(evidence.logits) - posterior


def refined_counts(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    counts: npt.ArrayLike,
    variances: npt.ArrayLike = 0.0,
    *,
    exact_counts: int = EXACT_COUNTS,
) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of each count, given its stated value and its rows.

    Formula (large sets)::

        mean c - s^2 t,    variance V s^2 / (V + s^2)

    Parameters and their shapes are those of `count_nll`.

    Returns
    -------
    means, deviations : (m,) or (m, K)
        An exact count is itself with deviation 0; 0 and 0 for a set without rows.
    """
    evidence = checked_counts(logits, set_index, counts, variances)
    solve = _binary if evidence.counts.ndim == 1 else _classes
    _, _, means, spreads = solve(evidence, exact_counts)
    return means, np.sqrt(spreads)


def count_tilts(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    counts: npt.ArrayLike,
    variances: npt.ArrayLike = 0.0,
) -> FloatArray:
    """Return the offset t_j of each set with sum_i sigma(z_i + t_j) + s_j^2 t_j = c_j.

    Parameters and their shapes are those of `count_nll`.

    Returns
    -------
    (m,) or (m, K)
        For exact counts of 0 and n so low and so high that no row is left to chance. K classes:
        the first class that the set can have is at 0; a class with an exact count of 0 at -inf.
    """
    evidence = checked_counts(logits, set_index, counts, variances)
    if evidence.counts.ndim == 1:
        return binary_tilts(*evidence)
    return class_tilts(*evidence[:3], class_covariances(evidence.variances), _active(evidence))


def count_hessian(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    counts: npt.ArrayLike,
    variances: npt.ArrayLike = 0.0,
    *,
    remainder: float = 1 / 7,
) -> FloatArray:
    """Return a positive diagonal in the place of the Hessian of `count_nll`, for boosting.

    Formula (v = sigma'(z + t), W = V + s^2, f the remainder)::

        v (v / W + f (1 - v / W))

    v^2 / W is what the count tells about the row; the remainder keeps steps bounded where that is
    little. Where an exact count settles every row (0 or n) it is sigma'(z), the true Hessian.
    K classes: the same for each class, with the diagonal of W.

    Parameters and their shapes are those of `count_nll`.

    Returns
    -------
    of the shape of `logits`
    """
    evidence = checked_counts(logits, set_index, counts, variances)
    z, index, stated, noise = evidence
    plain = _probabilities(z)
    if z.ndim == 1:
        q = expit(z + binary_tilts(*evidence)[index])
        spread = set_sums(q * (1 - q), index, len(stated)) + noise
        settled = (noise == 0) & ((stated <= 0) | (stated >= _rows(evidence)))
    else:
        active, covariances = _active(evidence), class_covariances(noise)
        _, q = log_sums(z + class_tilts(*evidence[:3], covariances, active)[index])
        spread = set_sums(q * (1 - q), index, len(stated)) + np.einsum("mkk->mk", covariances)
        settled = ~active | (active.sum(axis=1, keepdims=True) == 1)
    v = np.where(settled[index], plain * (1 - plain), q * (1 - q))
    part = np.where(settled[index], 1.0, v / np.maximum(spread[index], 1e-300))
    return np.asarray(v * (part + remainder * (1 - np.minimum(part, 1))))


class _Solution(NamedTuple):
    """Values (m,), posteriors like the logits, mean and variance of the counts like the counts."""

    values: FloatArray
    posterior: FloatArray
    means: FloatArray
    spreads: FloatArray


def _rows(evidence: StatedCounts) -> IntArray:
    """Return the rows of each set (m,)."""
    return np.bincount(evidence.set_index, minlength=len(evidence.counts))


def _probabilities(logits: FloatArray) -> FloatArray:
    """Return sigma(z) or softmax(z)."""
    return np.asarray(expit(logits)) if logits.ndim == 1 else log_sums(logits)[1]


def _binary(evidence: StatedCounts, exact_counts: int) -> _Solution:
    """Solve two classes: the leading part, then R and its gradient by one of two ways."""
    z, index, c, s2 = evidence
    rows = _rows(evidence)
    t = binary_tilts(*evidence)
    shifted = z + t[index]
    gained = np.logaddexp(0, shifted) - np.logaddexp(0, z)
    values = t * c - s2 * t**2 / 2 - set_sums(gained, index, len(c))
    small = (rows > 0) & (rows < exact_counts)
    solution = _Solution(values, expit(shifted), c - s2 * t, np.zeros(len(c)))
    _binary_saddlepoint(evidence, solution, ~small)
    _binary_exact(evidence, t, solution, small)
    for sums in (solution.values, solution.means):
        sums[rows == 0] = 0.0
    return solution


def _binary_saddlepoint(evidence: StatedCounts, solution: _Solution, large: BoolArray) -> None:
    """Add R of the large sets to the values and take its gradient from the posteriors."""
    if not large.any():
        return
    _, index, _, s2 = evidence
    q = solution.posterior
    v = q * (1 - q)
    spread = set_sums(v, index, len(s2))
    u = v * (1 - 2 * q)
    width = np.maximum(spread + s2, 1e-300)
    inner = 2 * np.pi * (spread + s2) + (s2 == 0)
    solution.values[large] += np.log(np.maximum(inner, 1e-300))[large] / 2
    # Of log(inner) / 2: by V, then V by z_i directly and through the tilt, dt = -v_i / W.
    by_spread = np.where(large, np.pi / np.maximum(inner, 1e-300), 0.0)
    slope = set_sums(u, index, len(s2)) / width
    solution.posterior[:] = q - by_spread[index] * (u - v * slope[index])
    solution.spreads[large] = (spread * s2 / width)[large]


def _binary_exact(
    evidence: StatedCounts, tilts: FloatArray, solution: _Solution, small: BoolArray
) -> None:
    """Add R of the small sets to the values and write their posteriors, summed exactly."""
    z, index, c, s2 = evidence
    shifted = z + tilts[index]
    success, failure, centre = expit(shifted), expit(-shifted), c - s2 * tilts
    for batch in batches(index, np.flatnonzero(small), _rows(evidence) + 1):
        sets = batch.sets
        count = np.arange(batch.width + 1.0)[:, None]
        noise = s2[sets]
        with np.errstate(divide="ignore", invalid="ignore"):
            log_evidence = -((count - centre[sets]) ** 2) / (2 * noise)
        log_evidence = np.where(noise > 0, log_evidence, np.where(count == c[sets], 0.0, -np.inf))
        top = log_evidence.max(axis=0)
        total, posterior, posterior_counts = binary_recursion(
            batch.pad(success, 0.0),
            batch.pad(failure, 1.0),
            np.exp(log_evidence - top),
        )
        scale = np.log(2 * np.pi * np.where(noise > 0, noise, 1 / (2 * np.pi))) / 2
        solution.values[sets] += scale - top - np.log(total)
        solution.posterior[batch.rows] = posterior[batch.place, batch.column]
        mean = np.sum(posterior_counts * count, axis=0)
        solution.means[sets] = mean
        solution.spreads[sets] = np.sum(posterior_counts * (count - mean) ** 2, axis=0)


def _active(evidence: StatedCounts) -> BoolArray:
    """Tell which classes the rows of a set can have (m, K): all but exact counts of 0."""
    active = (evidence.counts > 0) | (evidence.variances > 0)
    active[~active.any(axis=1)] = True  # an empty set
    return np.asarray(active)


def _classes(evidence: StatedCounts, exact_counts: int) -> _Solution:
    """Solve K classes as `_binary` solves two."""
    z, index, c, d = evidence
    num_sets = len(c)
    rows = _rows(evidence)
    active, covariances = _active(evidence), class_covariances(d)
    limits = np.where(d > 0, rows[:, None], c).astype(np.int64)
    small = (rows > 0) & (count_states(limits)[1] <= exact_counts)
    # Any tilt gives the same exact sum; it need only be good enough against underflow.
    t = class_tilts(z, index, c, covariances, active, rough=small)
    finite = np.where(active, t, 0.0)
    shifted = z + t[index]
    top, posterior = log_sums(shifted)
    pull = np.einsum("mkl,ml->mk", covariances, finite)
    values = np.sum(finite * (c - pull / 2), axis=1)
    values -= set_sums(top - log_sums(z)[0], index, num_sets)
    solution = _Solution(values, posterior, c - pull, np.zeros_like(c))
    _class_saddlepoint(evidence, solution, active, ~small)
    _class_exact(evidence, shifted, solution, limits, small)
    for sums in (solution.values, solution.means, solution.spreads):
        sums[rows == 0] = 0.0
    return solution


def _class_saddlepoint(
    evidence: StatedCounts, solution: _Solution, active: BoolArray, large: BoolArray
) -> None:
    """Add R of the large sets to the values and take its gradient from the posteriors."""
    if not large.any():
        return
    _, index, _, d = evidence
    q = solution.posterior
    noise = class_covariances(d)
    spread = class_spread(q, index, len(d)) + noise
    # In the place of the 1 of two classes: of sum 0 as all covariances are, determinant 1.
    classes = active.sum(axis=1).astype(np.float64)
    unit = class_covariances(active * classes[:, None] ** (1 / np.maximum(classes - 1, 1))[:, None])
    settled = ((d == 0) & active).any(axis=1)[:, None, None]
    inverse, log_det = _inverse_on_sum_zero(2 * np.pi * spread + settled * unit, active)
    solution.values[large] += log_det[large] / 2
    weights = np.where(large[:, None, None], np.pi * inverse, 0.0)
    direct = spread_slope(q, index, weights)
    pull, _ = _inverse_on_sum_zero(spread, active)
    through = np.einsum("mkl,ml->mk", pull, set_sums(direct, index, len(d)))
    solution.posterior[:] = q - (direct - row_spread(q, through[index]))
    left = np.einsum("mkk->mk", noise - noise @ pull @ noise)
    solution.spreads[large] = np.maximum(left[large], 0.0)


def _inverse_on_sum_zero(matrices: FloatArray, active: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Invert matrices whose active rows sum to 0, and take log det without one of their classes."""
    ones = active.astype(np.float64)
    number = ones.sum(axis=1)
    scale = np.maximum(np.einsum("mkk->m", matrices) / number, 1e-200)
    eye = np.eye(matrices.shape[1])
    fill = ones[:, :, None] * ones[:, None, :] / number[:, None, None]
    filled = matrices / scale[:, None, None] + fill + (1 - ones)[:, :, None] * eye
    filled = filled + 1e-14 * eye  # a direction in which nothing is left to chance
    _, log_det = np.linalg.slogdet(filled)
    # The filled direction adds the factor 1; leaving out a class divides the rest by `number`.
    return np.linalg.inv(filled) / scale[:, None, None], np.asarray(
        log_det + (number - 1) * np.log(scale) - np.log(number)
    )


def _class_exact(
    evidence: StatedCounts,
    shifted: FloatArray,
    solution: _Solution,
    limits: IntArray,
    small: BoolArray,
) -> None:
    """Add R of the small sets to the values and write their posteriors, summed exactly."""
    _, index, c, d = evidence
    sizes = _rows(evidence)
    _, q = log_sums(shifted)
    states = count_states(limits)[1]
    for batch in batches(index, np.flatnonzero(small), states):
        sets = batch.sets
        top = np.zeros(len(sets))

        def evidence_of(
            counts: IntArray, sets: IntArray = sets, top: FloatArray = top
        ) -> FloatArray:
            mean, noise = solution.means[sets].T[:, None, :], d[sets].T[:, None, :]
            with np.errstate(divide="ignore", invalid="ignore"):
                squares = np.where(noise > 0, (counts - mean) ** 2 / (2 * noise), 0.0)
            squares = np.where((noise == 0) & (counts != c[sets].T[:, None, :]), np.inf, squares)
            log_evidence = np.where((counts >= 0).all(axis=0), -squares.sum(axis=0), -np.inf)
            top[:] = log_evidence.max(axis=0)
            return np.asarray(np.exp(log_evidence - top))

        columns = np.stack([batch.pad(column, 0.0) for column in q.T])
        total, posterior, weights, counts = class_recursion(
            columns, limits[sets], sizes[sets], evidence_of
        )
        solution.values[sets] += _log_scale(d[sets]) - top - np.log(total)
        solution.posterior[batch.rows] = posterior[:, batch.place, batch.column].T
        means = np.sum(weights * counts, axis=1)  # (K, b)
        solution.means[sets] = means.T
        solution.spreads[sets] = np.sum(weights * (counts - means[:, None]) ** 2, axis=1).T


def _log_scale(variances: FloatArray) -> FloatArray:
    """Return log of the normal law's constant for noise of sum 0, 0 without noise (m,)."""
    noisy = variances > 0
    number = noisy.sum(axis=1)
    logs = np.log(2 * np.pi * np.where(noisy, variances, 1 / (2 * np.pi))).sum(axis=1)
    total = 2 * np.pi * variances.sum(axis=1)
    return np.where(number > 0, logs - np.log(np.where(number > 0, total, 1.0)), 0.0) / 2
