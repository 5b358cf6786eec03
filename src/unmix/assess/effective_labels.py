"""The effective number of labels: how many labeled rows would teach as much as the sets do.

The Fisher information about the logit that a row's set index carries, over what its label would
carry, before training (from priors and sizes) and after (from logits). This file trains nothing.
"""

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, softmax

from unmix.core.class_shares import ClassShares, check_prior
from unmix.core.shares import check_rows
from unmix.core.transition import Transition
from unmix.errors import InputError
from unmix.learn.curvature import FisherTable

__all__ = ["worth_in_labels", "worth_in_labels_of"]

FloatArray = npt.NDArray[np.float64]

FARTHEST = -16.0  # below this a class of a row neither learns nor matters
MOST_ROWS = 20_000  # rows used for K classes after training
MOST_CELLS = 2_000_000  # rows times sets held at once


def worth_in_labels(set_priors: npt.ArrayLike, set_sizes: npt.ArrayLike) -> float:
    """Return how many labeled rows would teach as much as these sets, before any training.

    Parameters
    ----------
    set_priors : (m,) or (m, K)
        Class shares of the sets.
    set_sizes : (m,)
        Rows of each set.

    Returns
    -------
    float
        Between 0 (all sets alike) and the number of rows (every set of one class).

    Notes
    -----
    Formula for two classes, with rho the set weights and p the pooled prior::

        n sum_j rho_j (pi_j - p)^2 / (p (1 - p))

    K classes, where one number must stand for a matrix::

        n (K - 1) / trace(L S^-1),  L = diag(p) - p p',  S = sum_j rho_j (Theta_j - p)(Theta_j - p)'

    over the first K - 1 classes: n labels give an excess log-loss of (K - 1) / (2 n), the sets one
    of trace(L S^-1) / (2 n). It is the two-class formula for K = 2, and 0 as soon as two classes
    cannot be told apart.

    Examples
    --------
    >>> round(worth_in_labels([0.1, 0.9], [500, 500]))
    640
    """
    sizes = np.asarray(set_sizes, dtype=np.float64)
    theta = ClassShares.of(set_priors).matrix
    rows = float(sizes.sum())
    if rows <= 0:
        return 0.0
    weights = sizes / rows
    pooled = weights @ theta
    centred = theta - pooled
    of_sets = (centred.T * weights) @ centred
    of_labels = np.diag(pooled) - np.outer(pooled, pooled)
    return rows * _efficiency(of_sets, of_labels)


def worth_in_labels_of(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    set_priors: npt.ArrayLike,
    target_prior: npt.ArrayLike,
) -> float:
    """Return how many labels would teach as much as the set index of these rows, after training.

    Parameters
    ----------
    logits : (n,) or (n, K)
        Log-odds of the positive class at the target prior, or K logits.
    set_index : (n,)
        The set of each row, 0..m-1; only the set weights are taken from it.
    set_priors : (m,) or (m, K)
        Class shares of the sets.
    target_prior : float or (K,)
        Class shares at which the logits hold.

    Returns
    -------
    float
        For these n rows; scale by rows to get it for the rows trained on.

    Notes
    -----
    Formula for two classes, with delta = logit(prior) - logit(target_prior)::

        n sum_i sum_j T_j(z_i) (sigma(z_i + delta_j) - sigma(z_i + delta_p))^2
          / sum_i sigma'(z_i + delta_p)

    The sum over sets depends on z only and is read off a table (`learn.curvature`), so the
    cost is n + m, not n times m. K classes use the matrices of both sums
    as in `worth_in_labels`, from at most 20,000 evenly spaced rows, in chunks.
    """
    theta = ClassShares.of(set_priors).matrix
    scores, index = check_rows(logits, set_index, len(theta))
    if not len(scores):
        raise InputError("there are no rows to learn from; give at least one.")
    target = check_prior(target_prior, theta.shape[1])
    rows = np.bincount(index, minlength=len(theta))
    weights = rows / len(index)
    pooled = weights @ theta
    if np.any(pooled <= 0):
        return 0.0  # a class without rows is never learned
    if scores.ndim == 1:
        transition = Transition(theta, rows, target, scoring=True)
        # A label is compared at the pooled prior, where the set index is.
        share = expit(scores + logit(pooled[1]) - logit(target[1]))
        of_sets = FisherTable(transition)(scores).sum()
        return float(len(scores) * of_sets / (share * (1 - share)).sum())
    likelihoods = theta[rows > 0] / pooled  # (m, K)
    weights = weights[rows > 0]
    evenly = np.unique(np.linspace(0, len(scores) - 1, MOST_ROWS).astype(int))
    centred = scores[evenly] + np.log(pooled) - np.log(target)
    centred = np.maximum(centred - centred.max(axis=1, keepdims=True), FARTHEST)
    posterior = np.asarray(softmax(centred, axis=1))
    of_rows = np.zeros((len(pooled), len(pooled)))
    step = max(1, MOST_CELLS // len(weights))
    for first in range(0, len(posterior), step):
        of_rows += _information(posterior[first : first + step], likelihoods, weights).sum(axis=0)
    labels = np.diag(posterior.sum(axis=0)) - posterior.T @ posterior
    return len(scores) * _efficiency(of_rows, labels)


def _information(posterior: FloatArray, likelihoods: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the information of the set index about K logits, at pooled posteriors (g, K, K)."""
    # sum_j T_j s_j s_j' - s s' with T_j = rho_j u_j, s_jk = s_k l_jk / u_j, u_j = sum_k s_k l_jk.
    num_classes = posterior.shape[1]
    mixed = posterior @ likelihoods.T  # (g, m)
    inverse = np.divide(1.0, mixed, out=np.zeros_like(mixed), where=mixed > 0)
    products = likelihoods[:, :, None] * likelihoods[:, None, :] * weights[:, None, None]
    second = (inverse @ products.reshape(len(weights), -1)).reshape(-1, num_classes, num_classes)
    return np.asarray(posterior[:, :, None] * posterior[:, None, :] * (second - 1))


def _efficiency(of_sets: FloatArray, of_labels: FloatArray) -> float:
    """Return (K - 1) / trace(L S^-1), over the directions in which shares can move."""
    of_sets, of_labels = of_sets[:-1, :-1], of_labels[:-1, :-1]
    scale = np.sqrt(np.maximum(np.diag(of_labels), np.finfo(float).tiny))
    relative = of_sets / np.outer(scale, scale)
    if np.linalg.matrix_rank(relative, tol=1e-12, hermitian=True) < len(relative):
        return 0.0
    return float(len(relative) / np.trace(np.linalg.solve(of_sets, of_labels)))
