"""The transition: from class posterior to set posterior, and what the theory says of it.

Theorem 1 of the paper bridges p(class | x) and p(set | x) by a linear-fractional map with known
coefficients. Two classes are the case K = 2 of one formula. The numbers are arrays; tensors are
made of them when they are first asked for, so that what needs no torch does not load it. This file
knows no loss, no model and no data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unmix.core.class_shares import ClassShares, as_stated, check_identifiable, check_prior
from unmix.core.share_precision import SharePrecision
from unmix.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "Transition",
    "TransitionArrays",
    "check_logits",
    "check_set_index",
    "class_logits",
    "estimation_error_bound",
]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TransitionArrays:
    """The numbers of a transition as arrays; shapes as in `Transition`."""

    prior_matrix: FloatArray
    set_weights: FloatArray
    target: FloatArray
    pooled: FloatArray
    set_rows: FloatArray | None = None


class Transition:
    """Set priors, set weights and the target prior, and the map T they define.

    Parameters
    ----------
    set_priors : array, shape (m,) or (m, K)
        Share of positives in each set, or one row of class shares per set.
    set_weights : array, shape (m,), optional
        Share of all rows that lie in each set; counts are scaled to sum to one. Equal if left out.
    target_prior : float or array, shape (K,), optional
        Class share where the classifier will be used; the pooled prior if left out.
    scoring : bool
        The rows are judged, not learned from: then the priors need not identify the classes.

    Attributes
    ----------
    prior_matrix : Tensor, shape (m, K)
        Theta. For two classes its columns are (1 - set_priors, set_priors).
    set_weights, target : Tensor, shapes (m,) and (K,)
        rho and kappa.
    pooled : Tensor, shape (K,)
        p = rho' Theta.
    log_sets, log_pooled, log_weights : Tensor, shapes (m, K), (K,), (m,)
        log Theta / kappa, log p / kappa and log rho: all that the losses need.
    log_joint : Tensor, shape (m, K)
        log rho Theta / kappa.
    arrays : TransitionArrays
        The first four as arrays, and `set_rows` (m,): the set weights as they were given, which
        are the rows of each set, if these were given.
    precision : SharePrecision or None
        How well the set priors are known, if that was said.
    grouping : array of integers, shape (m,), or None
        Of several groupings of the same rows (`unmix.core.groupings`), that of each set.

    Notes
    -----
    Formula (Theorem 1; eta is the class posterior at the target prior)::

        T_j(eta) = rho_j sum_k (Theta_jk / kappa_k) eta_k / sum_k (p_k / kappa_k) eta_k

    Examples
    --------
    >>> import torch
    >>> t = Transition([0.1, 0.5, 0.9], target_prior=0.3)
    >>> t.set_posterior(torch.zeros(1)).sum().item()
    1.0
    """

    precision: SharePrecision | None = None
    grouping: np.ndarray[Any, np.dtype[np.int64]] | None = None

    def __init__(
        self,
        set_priors: Any,
        set_weights: Any = None,
        target_prior: Any = None,
        *,
        scoring: bool = False,
    ) -> None:
        shares = ClassShares.of(set_priors)
        theta, weights = shares.matrix, _weights(set_weights, len(shares))
        if not scoring:
            check_identifiable(theta[weights > 0])
        pooled = weights @ theta
        target = pooled if target_prior is None else check_prior(target_prior, shares.num_classes)
        rows = None if set_weights is None else np.asarray(set_weights, dtype=np.float64)
        self.arrays = TransitionArrays(theta, weights, target, pooled, rows)
        self.precision = shares.precision
        self.grouping = shares.grouping

    @classmethod
    def unchecked(
        cls, prior_matrix: Tensor, set_weights: Tensor, target: Tensor, grouping: Any = None
    ) -> Transition:
        """Build from tensors as they are, keeping their gradients: for priors that are learned."""
        self = cls.__new__(cls)
        given = (prior_matrix, set_weights, target, set_weights @ prior_matrix)
        self.prior_matrix, self.set_weights, self.target, self.pooled = given
        self.arrays = TransitionArrays(*(t.numpy(force=True) for t in given))
        self.grouping = grouping
        return self

    @cached_property
    def prior_matrix(self) -> Tensor:
        """Theta, (m, K)."""
        return _tensor(self.arrays.prior_matrix)

    @cached_property
    def set_weights(self) -> Tensor:
        """rho, (m,)."""
        return _tensor(self.arrays.set_weights)

    @cached_property
    def target(self) -> Tensor:
        """kappa, (K,)."""
        return _tensor(self.arrays.target)

    @cached_property
    def pooled(self) -> Tensor:
        """p, (K,)."""
        return self.set_weights @ self.prior_matrix

    @cached_property
    def log_sets(self) -> Tensor:
        """Log Theta / kappa, (m, K); -inf for priors of 0."""
        return self.prior_matrix.log() - self.target.log()

    @cached_property
    def log_pooled(self) -> Tensor:
        """Log p / kappa, (K,)."""
        return self.pooled.log() - self.target.log()

    @cached_property
    def log_weights(self) -> Tensor:
        """Log rho, (m,)."""
        return self.set_weights.log()

    @cached_property
    def log_joint(self) -> Tensor:
        """Log rho Theta / kappa, (m, K): a loss over many sets waits for memory once per table."""
        return self.log_sets + self.log_weights[:, None]

    @cached_property
    def firsts(self) -> list[int]:
        """The number of the first set of each grouping."""
        if self.grouping is None:
            return [0]
        return np.flatnonzero(np.diff(self.grouping, prepend=-1)).tolist()

    @cached_property
    def parts(self) -> list[Transition]:
        """What the sets of each grouping define by themselves, at the same target prior."""
        if self.grouping is None:
            return [self]
        parts = []
        for first, end in pairwise([*self.firsts, self.num_sets]):
            weights = self.set_weights[first:end]
            total = weights.sum().clamp_min(np.finfo(np.float64).tiny)
            part = Transition.unchecked(self.prior_matrix[first:end], weights / total, self.target)
            if self.arrays.set_rows is not None:
                part.arrays = replace(part.arrays, set_rows=self.arrays.set_rows[first:end])
            if self.precision is not None:
                part.precision = self.precision.take(slice(first, end))
            parts.append(part)
        return parts

    @cached_property
    def set_quadratic(self) -> Tensor:
        """Theta' diag(rho^2) Theta, (K, K): the three sums A, B, C of the squared error."""
        weighted = self.prior_matrix * self.set_weights[:, None]
        return weighted.mT @ weighted

    def to(self, device: torch.device | str) -> Transition:
        """Return the same transition on another device."""
        theta, weights, target = (
            t.to(device) for t in (self.prior_matrix, self.set_weights, self.target)
        )
        other = Transition.unchecked(theta, weights, target, self.grouping)
        other.arrays, other.precision = self.arrays, self.precision
        return other

    def retarget(self, target_prior: Any) -> Transition:
        """Return the same sets with another target prior."""
        shares = ClassShares(self.arrays.prior_matrix).grouped(self.grouping)
        return Transition(shares, self.arrays.set_weights, target_prior)

    def __repr__(self) -> str:
        return (
            f"Transition(num_sets={self.num_sets}, num_classes={self.num_classes}, "
            f"target_prior={self.target_prior})"
        )

    @property
    def num_sets(self) -> int:
        """The number of sets m."""
        return len(self.arrays.prior_matrix)

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return int(self.arrays.prior_matrix.shape[1])

    @property
    def binary(self) -> bool:
        """Whether there are two classes, of which one logit tells."""
        return self.num_classes == 2

    @property
    def set_priors(self) -> Tensor:
        """Set priors as people write them: shares of positives (m,), or of each class (m, K)."""
        stated: Tensor = as_stated(self.prior_matrix)
        return stated

    @property
    def target_prior(self) -> float | list[float]:
        """Target prior in the form of the set priors: a float, or K floats."""
        target = self.arrays.target
        return float(target[1]) if self.binary else [float(k) for k in target]

    def set_posterior(self, logits: Tensor) -> Tensor:
        """Return p(set | x) for every set, shape (n, m): for looking, never for training.

        Parameters
        ----------
        logits : Tensor, shape (n,) or (n, K)
        """
        z = class_logits(logits, self)
        own = (z[:, None, :] + self.log_sets.to(z.dtype)).logsumexp(dim=-1)  # (n, m)
        pooled = (z + self.log_pooled.to(z.dtype)).logsumexp(dim=-1)  # (n,)
        return (own - pooled[:, None] + self.log_weights.to(z.dtype)).exp()

    def inverse(self, set_posterior: Tensor, set_index: Tensor | None = None) -> Tensor:
        """Return the class posterior that leads to a set posterior.

        Parameters
        ----------
        set_posterior : Tensor, shape (n, m), or (n,) with `set_index`
            The posterior of all sets; then the answer is the least-squares one, exact if the
            posterior is in the range of T. Or, for two classes, of one set for each row.
        set_index : Tensor, shape (n,), optional
            Which set each value belongs to: T_j^{-1}(q) = (b_j - d q) / (c q - a_j).

        Returns
        -------
        Tensor, shape (n,) for two classes, else (n, K)
        """
        if set_index is not None:
            return self._inverse_of_one_set(set_posterior, set_index)
        import torch

        density = (set_posterior / self.set_weights).mT  # (m, n), proportional to Theta v
        v = torch.linalg.lstsq(self.prior_matrix, density).solution.mT  # (n, K), eta / kappa
        eta: Tensor = v * self.target
        eta = eta / eta.sum(dim=-1, keepdim=True)
        return eta[:, 1] if self.binary else eta

    def _inverse_of_one_set(self, q: Tensor, set_index: Tensor) -> Tensor:
        """Apply T_j^{-1} of Theorem 1 to the posterior of one set per row."""
        if not self.binary:
            raise InputError("the posterior of one set determines the class of two classes only")
        rho, pi = self.set_weights[set_index], self.prior_matrix[set_index, 1]
        target = self.target[1]
        a, b = rho * (pi - target), rho * target * (1 - pi)
        p = self.pooled[1]
        c, d = p - target, target * (1 - p)
        return (b - d * q) / (c * q - a)

    @property
    def range(self) -> Tensor:
        """T at each pure class, shape (m, K): for two classes the columns T_j(0), T_j(1)."""
        vertices: Tensor = self.set_weights[:, None] * self.prior_matrix / self.pooled
        return vertices

    @property
    def alpha(self) -> float:
        """The alpha of Lemma 5: how far the denominator of T stays away from zero.

        For two classes as in the paper, min(p (1 - pi_D), pi_D (1 - p)). For K classes the same
        argument gives min_k kappa_k * min_k p_k / kappa_k.
        """
        worst = (self.pooled / self.target).min()
        scale = self.target.prod() if self.binary else self.target.min()
        return float(scale * worst)

    @property
    def lipschitz(self) -> float:
        """Lipschitz constant of every T_j, 2 / alpha^2 (Lemma 5)."""
        return 2 / self.alpha**2


def class_logits(logits: Tensor, transition: Transition) -> Tensor:
    """Return logits as one column per class, (n, K); one logit z stands for (0, z)."""
    check_logits(logits, transition)
    if logits.ndim == 1:
        import torch

        return torch.stack((torch.zeros_like(logits), logits), dim=-1)
    return logits


def check_logits(logits: Any, transition: Transition) -> None:
    """Refuse logits of another shape than the transition's classes take."""
    if transition.binary and logits.ndim == 1:
        return
    if logits.ndim != 2 or logits.shape[1] != transition.num_classes:
        # (n, 1) would broadcast against (n,) in silence.
        form = "(n,)" if transition.binary else f"(n, {transition.num_classes})"
        raise InputError(
            f"{transition.num_classes} classes take logits of shape {form}; "
            f"got {tuple(logits.shape)}"
        )


def check_set_index(logits: Any, set_index: Any, transition: Transition) -> None:
    """Refuse logits of another shape, and a set index that does not go row by row with them."""
    check_logits(logits, transition)
    if set_index.ndim != 1 or len(set_index) != len(logits):
        raise InputError(
            f"set_index must have one entry per row: {len(logits)} rows, "
            f"set_index of shape {tuple(set_index.shape)}"
        )


def estimation_error_bound(
    transition: Transition,
    *,
    rademacher: float,
    num_rows: int,
    loss_bound: float,
    loss_lipschitz: float = 1.0,
    delta: float = 0.05,
) -> float:
    """Return the bound of Theorem 4 on the estimation error, true with probability 1 - delta.

    Formula::

        8 sqrt(2) m L / alpha^2 * rademacher + 2 M sqrt(log(2 / delta) / (2 n))

    Parameters
    ----------
    rademacher : float
        Rademacher complexity of the model class at `num_rows` rows.
    num_rows : int
        n, the number of rows in all sets.
    loss_bound, loss_lipschitz : float
        M and L of the loss as a function of the set posterior.
    """
    if not 0 < delta < 1:
        raise InputError(f"delta must lie between 0 and 1; got {delta}")
    complexity = 8 * math.sqrt(2) * transition.num_sets * loss_lipschitz / transition.alpha**2
    deviation = 2 * loss_bound * math.sqrt(math.log(2 / delta) / (2 * num_rows))
    return complexity * rademacher + deviation


def _tensor(array: FloatArray) -> Tensor:
    """Return an array as a tensor."""
    import torch

    return torch.from_numpy(array)


def _weights(set_weights: Any, num_sets: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Check set weights and scale them to sum to one."""
    if set_weights is None:
        return np.full(num_sets, 1 / num_sets)
    weights = np.asarray(set_weights, dtype=np.float64)
    if weights.shape != (num_sets,):
        raise InputError(f"set_weights must have shape ({num_sets},); got {weights.shape}")
    if not np.isfinite(weights).all() or (weights < 0).any() or weights.sum() <= 0:
        raise InputError("set_weights must not be negative, and at least one must be positive")
    return np.asarray(weights / weights.sum())
