"""The transition: from class posterior to set posterior, and what the theory says of it.

Theorem 1 of the paper bridges p(class | x) and p(set | x) by a linear-fractional map with known
coefficients. Two classes are the case K = 2 of one formula. This file knows no loss, no model
and no data; it is where set priors, set weights and the target prior are checked.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmix.errors import IdentifiabilityError, InputError

__all__ = ["Transition", "check_logits", "class_logits", "estimation_error_bound"]

# Set priors closer than this are the same number for any data that fits in a computer.
SAME = 1e-9


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

    Notes
    -----
    Formula (Theorem 1; eta is the class posterior at the target prior)::

        T_j(eta) = rho_j sum_k (Theta_jk / kappa_k) eta_k / sum_k (p_k / kappa_k) eta_k

    Examples
    --------
    >>> t = Transition([0.1, 0.5, 0.9], target_prior=0.3)
    >>> t.set_posterior(torch.zeros(1)).sum().item()
    1.0
    """

    def __init__(
        self,
        set_priors: Any,
        set_weights: Any = None,
        target_prior: Any = None,
        *,
        scoring: bool = False,
    ) -> None:
        theta = _prior_matrix(set_priors)
        weights = _weights(set_weights, len(theta))
        self.binary = np.ndim(set_priors) == 1
        if not scoring:
            _check_identifiable(theta[weights > 0])
        target = weights @ theta if target_prior is None else _target(target_prior, theta.shape[1])
        self._store(torch.from_numpy(theta), torch.from_numpy(weights), torch.from_numpy(target))

    @classmethod
    def unchecked(
        cls, prior_matrix: Tensor, set_weights: Tensor, target: Tensor, *, binary: bool
    ) -> Transition:
        """Build from tensors as they are, keeping their gradients: for priors that are learned."""
        self = cls.__new__(cls)
        self.binary = binary
        self._store(prior_matrix, set_weights, target)
        return self

    def _store(self, theta: Tensor, weights: Tensor, target: Tensor) -> None:
        """Keep the tensors and the logarithms that every loss reads."""
        self.prior_matrix, self.set_weights, self.target = theta, weights, target
        self.pooled = weights @ theta  # (K,)
        self.log_sets = torch.log(theta) - torch.log(target)  # (m, K); -inf for priors of 0
        self.log_pooled = torch.log(self.pooled) - torch.log(target)  # (K,)
        self.log_weights = torch.log(weights)  # (m,)
        # In one table, because a loss over many sets waits for memory once per table.
        self.log_joint = self.log_sets + self.log_weights[:, None]  # (m, K)

    @cached_property
    def set_quadratic(self) -> Tensor:
        """Theta' diag(rho^2) Theta, (K, K): the three sums A, B, C of the squared error."""
        weighted = self.prior_matrix * self.set_weights[:, None]
        return weighted.mT @ weighted

    def to(self, device: torch.device | str) -> Transition:
        """Return the same transition on another device."""
        moved = (t.to(device) for t in (self.prior_matrix, self.set_weights, self.target))
        return Transition.unchecked(*moved, binary=self.binary)

    def retarget(self, target_prior: Any) -> Transition:
        """Return the same sets with another target prior."""
        return Transition(self.set_priors, self.set_weights, target_prior)

    def __repr__(self) -> str:
        return (
            f"Transition(num_sets={self.num_sets}, num_classes={self.num_classes}, "
            f"target_prior={self.target_prior})"
        )

    @property
    def num_sets(self) -> int:
        """The number of sets m."""
        return self.prior_matrix.shape[0]

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return self.prior_matrix.shape[1]

    @property
    def set_priors(self) -> Tensor:
        """Set priors as they were given: (m,) for two classes, else (m, K)."""
        return self.prior_matrix[:, 1] if self.binary else self.prior_matrix

    @property
    def target_prior(self) -> float | list[float]:
        """Target prior as it was given: a float for two classes, else K floats."""
        return float(self.target[1]) if self.binary else [float(k) for k in self.target]

    def set_posterior(self, logits: Tensor) -> Tensor:
        """Return p(set | x) for every set, shape (n, m): for looking, never for training.

        Parameters
        ----------
        logits : Tensor, shape (n,) or (n, K)
        """
        z = class_logits(logits, self)
        own = torch.logsumexp(z[:, None, :] + self.log_sets.to(z.dtype), dim=-1)  # (n, m)
        pooled = torch.logsumexp(z + self.log_pooled.to(z.dtype), dim=-1)  # (n,)
        return torch.exp(own - pooled[:, None] + self.log_weights.to(z.dtype))

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
        density = (set_posterior / self.set_weights).mT  # (m, n), proportional to Theta v
        v = torch.linalg.lstsq(self.prior_matrix, density).solution.mT  # (n, K), eta / kappa
        eta: Tensor = v * self.target
        eta = eta / eta.sum(dim=-1, keepdim=True)
        return eta[:, 1] if self.binary else eta

    def _inverse_of_one_set(self, q: Tensor, set_index: Tensor) -> Tensor:
        """Apply T_j^{-1} of Theorem 1 to the posterior of one set per row."""
        if not self.binary:
            raise InputError("the posterior of one set determines the class of two classes only")
        rho, pi, target = self.set_weights[set_index], self.set_priors[set_index], self.target[1]
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
    if transition.binary:
        return torch.stack((torch.zeros_like(logits), logits), dim=-1)
    return logits


def check_logits(logits: Tensor, transition: Transition) -> None:
    """Refuse logits of another shape than the transition's classes take."""
    if transition.binary:
        if logits.ndim != 1:
            # (n, 1) would broadcast against (n,) in silence.
            raise InputError(f"two classes take logits of shape (n,); got {tuple(logits.shape)}")
    elif logits.ndim != 2 or logits.shape[1] != transition.num_classes:
        raise InputError(
            f"{transition.num_classes} classes take logits of shape "
            f"(n, {transition.num_classes}); got {tuple(logits.shape)}"
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


def _array(values: Any, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return finite float64 numbers, or say what is wrong with them."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be numbers; got {values!r}") from None
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite; got {array[~np.isfinite(array)][0]}")
    return array


def _prior_matrix(set_priors: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Check set priors and return Theta, (m, K)."""
    priors = _array(set_priors, "set_priors")
    if priors.ndim not in (1, 2) or priors.size == 0:
        raise InputError(f"set_priors must have shape (m,) or (m, K); got {priors.shape}")
    outside = (priors < 0) | (priors > 1)
    if outside.any():
        j = int(np.argwhere(outside)[0][0])
        value = priors[outside][0]
        cure = "; divide percentages by 100" if value > 1 else ""
        raise InputError(f"set_priors must lie in [0, 1]; got {value:g} for set {j}{cure}")
    if priors.ndim == 1:
        return np.stack((1 - priors, priors), axis=1)
    sums = priors.sum(axis=1)
    if np.abs(sums - 1).max() > 1e-6:
        j = int(np.abs(sums - 1).argmax())
        raise InputError(f"the class shares of a set must sum to 1; set {j} has {sums[j]:g}")
    return np.asarray(priors / sums[:, None])


def _weights(set_weights: Any, num_sets: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Check set weights and scale them to sum to one."""
    if set_weights is None:
        return np.full(num_sets, 1 / num_sets)
    weights = _array(set_weights, "set_weights")
    if weights.shape != (num_sets,):
        raise InputError(f"set_weights must have shape ({num_sets},); got {weights.shape}")
    if (weights < 0).any() or weights.sum() <= 0:
        raise InputError("set_weights must not be negative, and at least one must be positive")
    return np.asarray(weights / weights.sum())


def _target(target_prior: Any, num_classes: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Check the target prior and return kappa, (K,)."""
    target = _array(target_prior, "target_prior")
    if target.ndim == 0 and num_classes == 2:
        target = np.array([1 - target, target])
    if target.shape != (num_classes,):
        raise InputError(f"target_prior must hold {num_classes} shares; got {target_prior!r}")
    if (target <= 0).any() or (target >= 1).any() or abs(target.sum() - 1) > 1e-6:
        raise InputError(
            f"target_prior must lie strictly between 0 and 1 (and sum to 1 over the classes); "
            f"got {target_prior!r}"
        )
    return np.asarray(target / target.sum())


def _check_identifiable(theta: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    """Refuse priors from which no amount of data can tell the classes apart."""
    classes = theta.shape[1]
    if classes == 2:
        if np.ptp(theta[:, 1]) < SAME:
            raise IdentifiabilityError(
                f"all set priors are equal ({theta[0, 1]:g}), so the sets say nothing about the "
                "classes; at least two sets must differ"
            )
        return
    rank = int(np.linalg.matrix_rank(theta, tol=SAME * max(theta.shape)))
    if rank < classes:
        raise IdentifiabilityError(
            f"the set priors have rank {rank} but there are {classes} classes, so the sets cannot "
            f"tell them apart; {classes} sets with linearly independent shares are needed"
        )
