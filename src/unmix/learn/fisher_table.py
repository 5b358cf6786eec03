"""A table of the Fisher information of a row's set index: the Hessian of boosting.

`core.losses.fisher_information` costs m per row. For two classes it is a smooth function of one
logit, so it is worked out once on a grid and read off by interpolation. The diagonal for K classes
is read off K such tables, each class against the rest. This file knows no rows and no trees.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from unmix.core.losses import fisher_information
from unmix.core.transition import Transition

__all__ = ["FisherTable"]

Array = np.ndarray[Any, Any]

# Logits at the pooled prior. In the tails the information falls like exp(-2 |u|), so a linear
# interpolation is off by (2 step)^2 / 8 of the value, which is 5e-5 here.
FARTHEST, STEPS = 16.0, 100  # the grid ends here, and has so many points to a unit
GRID = np.arange(-FARTHEST * STEPS, FARTHEST * STEPS + 1) / STEPS
# More groups than this are not told apart: the error is their spread squared.
MOST_GROUPS = 512


class FisherTable:
    """What the set index of a row tells about its logits, in time that does not depend on m.

    Parameters
    ----------
    transition : Transition

    Notes
    -----
    Two classes: equal to `fisher_information` up to the grid. K classes: each class against the
    rest, as if the rest were mixed alike in all sets. That is exact for K = 2 and at the target
    prior, and near it elsewhere; the exact diagonal would cost m per row.
    """

    def __init__(self, transition: Transition) -> None:
        self._log_pooled = transition.log_pooled.numpy()
        theta, weights = transition.prior_matrix.numpy(), transition.set_weights.numpy()
        classes = (1,) if transition.binary else range(transition.num_classes)
        self._tables = [_one_against_rest(theta[:, k], weights) for k in classes]

    def __call__(self, logits: Array) -> Array:
        """Return the information about each logit.

        Parameters
        ----------
        logits : array, shape (n,) or (n, K)

        Returns
        -------
        array of the shape of `logits`
        """
        if logits.ndim == 1:
            at_pooled = logits + (self._log_pooled[1] - self._log_pooled[0])
            return _read_off(self._tables[0], at_pooled)
        shares = torch.softmax(torch.from_numpy(logits + self._log_pooled), dim=-1)
        at_pooled = torch.logit(shares, eps=1e-7).numpy()
        columns = [_read_off(t, u) for u, t in zip(at_pooled.T, self._tables, strict=True)]
        return np.stack(columns, axis=1)


def _read_off(table: Array, logits: Array) -> Array:
    """Return the values between the points of the grid, where it is even: no search is needed."""
    place = logits + FARTHEST
    place *= STEPS
    np.minimum(place, len(GRID) - 1, out=place)
    np.fmax(place, 0, out=place)
    point = place.astype(np.intp)
    np.minimum(point, len(GRID) - 2, out=point)
    place -= point
    place *= np.diff(table).take(point, mode="clip")
    place += table.take(point, mode="clip")
    return place


def _one_against_rest(priors: Array, weights: Array) -> Array:
    """Return the information about the logit of one class at the pooled prior, on the grid."""
    priors, weights = _merge(priors[weights > 0], weights[weights > 0])
    pooled = float(weights @ priors)
    theta, target = np.stack((1 - priors, priors), axis=1), np.array([1 - pooled, pooled])
    tensors = (torch.from_numpy(a) for a in (theta, weights, target))
    merged = Transition.unchecked(*tensors)
    return np.asarray(fisher_information(torch.from_numpy(GRID), merged).numpy())


def _merge(priors: Array, weights: Array) -> tuple[Array, Array]:
    """Join sets of nearly the same prior, so that a million sets cost no more than a thousand."""
    if len(priors) <= MOST_GROUPS:
        return priors, weights
    # In logits, because the information in the tails is governed by the odds of the priors.
    bounded = np.clip(priors, 1e-6, 1 - 1e-6)
    logits = np.log(bounded) - np.log1p(-bounded)
    edges = np.linspace(logits.min(), logits.max(), MOST_GROUPS + 1)
    group = np.digitize(logits, edges[1:-1])
    total = np.bincount(group, weights, minlength=MOST_GROUPS)
    used = total > 0
    mean = np.bincount(group, weights * priors, minlength=MOST_GROUPS)[used] / total[used]
    return np.clip(mean, 0, 1), total[used]
