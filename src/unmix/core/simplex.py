"""Shares on the simplex: mixture shares of K known densities for many sets at once.

The K-class half of `unmix.core.shares`: maximum likelihood with shares that are >= 0 and sum to 1,
its standard errors, and the nearest point of the simplex. This file knows no logits and no priors.
"""

import numpy as np
import numpy.typing as npt

from unmix.core.sums_by_set import outer_sums, set_sums

__all__ = ["simplex_errors", "simplex_factors", "simplex_maximum"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def simplex_maximum(
    likelihoods: FloatArray, index: IntArray, num_sets: int, start: FloatArray
) -> FloatArray:
    """Maximise each set's log-likelihood over the simplex by projected Newton steps (m, K)."""
    # The maximum over the simplex is that of (mean log-likelihood - sum of shares) over shares
    # >= 0, because the likelihood grows with their scale: there is no equality to keep.
    shares = np.tile(start, (num_sets, 1))
    unsolved = np.arange(num_sets)[np.bincount(index, minlength=num_sets) > 0]
    for _ in range(200):
        if not len(unsolved):
            break
        place = np.full(num_sets, -1)
        place[unsolved] = np.arange(len(unsolved))
        keep = place[index] >= 0
        likelihoods, index = likelihoods[keep], index[keep]
        moved, done = _projected_step(likelihoods, place[index], shares[unsolved])
        shares[unsolved] = moved
        unsolved = unsolved[~done]
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _projected_step(
    likelihoods: FloatArray, index: IntArray, shares: FloatArray
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Take one projected Newton step in each set and tell which sets need no further one."""
    num_sets, num_classes = shares.shape
    rows = np.bincount(index, minlength=num_sets)
    ratios = likelihoods / _mixed(likelihoods, index, shares)[:, None]
    gradient = set_sums(ratios, index, num_sets) / rows[:, None] - 1
    curvature = outer_sums(ratios, index, num_sets) / rows[:, None, None]
    distance = abs(shares - np.maximum(shares + gradient, 0)).max(axis=1)  # 0 at the maximum
    # Shares held at 0 get a plain gradient step: projecting a Newton step could lead downhill.
    held = (shares <= np.minimum(distance, 1e-2)[:, None]) & (gradient < 0)
    touched = held[:, :, None] | held[:, None, :]
    diagonal = np.eye(num_classes, dtype=bool)
    curvature = np.where(touched & ~diagonal, 0.0, curvature) + 1e-12 * np.eye(num_classes)
    direction = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]

    def objective(candidate: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            logs = np.log(_mixed(likelihoods, index, candidate))
        means = set_sums(logs, index, num_sets) / rows
        return np.asarray(means - candidate.sum(axis=1))

    before = objective(shares)
    length = np.ones(num_sets)
    accepted = distance <= 1e-10
    moved = shares.copy()
    for _ in range(40):
        candidate = np.maximum(shares + length[:, None] * direction, 0)
        gain = np.sum(gradient * (candidate - shares), axis=1)
        better = ~accepted & (objective(candidate) >= before + 1e-4 * gain - 1e-13)
        moved[better] = candidate[better]
        accepted |= better
        if accepted.all():
            break
        length = np.where(accepted, length, length / 2)
    # No step climbs any more: the digits of the objective are used up.
    return moved, (distance <= 1e-10) | ~accepted


def _mixed(likelihoods: FloatArray, index: IntArray, shares: FloatArray) -> FloatArray:
    """Return p(x) of each row in its set at the set's class shares (n,)."""
    return np.asarray(np.einsum("nk,nk->n", likelihoods, shares[index]))


def simplex_errors(likelihoods: FloatArray, index: IntArray, shares: FloatArray) -> FloatArray:
    """Return standard errors of shares that sum to 1, from the observed information (m, K)."""
    moves, values, flat = _directions(likelihoods, index, shares)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.where(flat[:, None, :], np.inf, 1 / np.where(flat, 1.0, values)[:, None, :])
        terms = np.where(abs(moves) > 1e-9, moves**2 * spread, 0.0)
    return np.asarray(np.sqrt(terms.sum(axis=2)))


def simplex_factors(likelihoods: FloatArray, index: IntArray, shares: FloatArray) -> FloatArray:
    """Return what K - 1 standard normals are multiplied by to be errors of shares (m, K, K - 1).

    Where the likelihood is flat an error is as large as a share can be, 1.
    """
    moves, values, flat = _directions(likelihoods, index, shares)
    sizes = np.where(flat, 1.0, 1 / np.sqrt(np.where(flat, 1.0, values))).clip(max=1.0)
    return np.asarray(moves * sizes[:, None, :])


def _directions(
    likelihoods: FloatArray, index: IntArray, shares: FloatArray
) -> tuple[FloatArray, FloatArray, npt.NDArray[np.bool_]]:
    """Return how shares move along independent directions, their information, where it is flat."""
    num_sets, num_classes = shares.shape
    mixed = _mixed(likelihoods, index, shares)
    information = outer_sums(likelihoods / mixed[:, None], index, num_sets)
    # Directions inside the simplex: each class against the last.
    basis = np.vstack([np.eye(num_classes - 1), -np.ones(num_classes - 1)])
    inside = basis.T @ information @ basis
    values, vectors = np.linalg.eigh(inside)
    # One row of information per set is the scale against which a direction counts as flat.
    flat = values <= 1e-12 * np.maximum(values[:, -1:], 1.0)
    return basis @ vectors, values, flat  # (m, K, K-1), (m, K-1), (m, K-1)
