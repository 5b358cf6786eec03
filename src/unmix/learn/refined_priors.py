"""Set priors that are only known up to a standard error, refined together with a model.

Published shares are wrong in practice. Here they are observations: the priors move to where the set
log-loss falls, and each standard error away from what was stated costs as much as it should. One
form serves every learner, two and K classes: free numbers in, shares and their price out. Who
minimises it is the learner's business.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import Bounds, minimize
from torch import Tensor, nn
from torch.nn import functional

from unmix.core.class_shares import ClassShares, check_errors
from unmix.core.losses import ssc_cross_entropy
from unmix.core.transition import Transition

__all__ = ["PriorRefiner", "RefiningNetwork", "refine_priors", "refine_with"]

Array = np.ndarray[Any, Any]

# Within this distance of 0 and 1 refined priors bend away from them, where the loss has infinite
# slope; and no stated prior is held to be more exact than by this error.
EDGE, LEAST_ERROR = 0.005, 1e-3
# How far given logits may be moved and (as a logarithm) stretched, so that the search stays finite.
SHIFT, STRETCH = 5.0, 2.0


class PriorRefiner:
    """Set priors as a function of free numbers, held near the stated ones by their errors.

    Parameters
    ----------
    stated : Transition
        With the priors as published.
    errors : float or array, shape (m,)
        Standard error of the shares of each set; 0 keeps them.

    Attributes
    ----------
    start : Tensor, shape (m, K - 1)
        The free numbers at which the priors are the stated ones: all 0. They count the standard
        errors by which the shares of all classes but the first are off.

    Notes
    -----
    If all priors Theta become Theta A, with a matrix A that keeps rows summing to one, and the
    class distributions A^-1 p, every set looks as before: no likelihood can tell, and a timid model
    would stretch the priors for its own ends. So the stated priors alone decide about A. With L
    the stated shares plus free numbers times errors, t_j proportional to 1 / error_j^2::

        Theta = L A,    A = argmin sum_j t_j |L_j A - stated_j|^2
        penalty = sum_j |Theta_j - stated_j|^2 / (2 s_j^2),    s_j^2 = error_j^2 K / (K - 1)

    For two classes A is a line, and the penalty the square of the distance in standard errors, half
    of it. s_j makes up for shares that sum to one, which cannot all be wrong by themselves.
    """

    def __init__(self, stated: Transition, errors: Any) -> None:
        self.stated = stated
        checked = check_errors(errors, stated.num_sets)
        self.errors = torch.from_numpy(checked).to(stated.pooled.device)
        # Sets without rows keep what was stated, and have no say about the others.
        has_rows = stated.set_weights > 0
        self.free_sets = (self.errors > 0) & has_rows
        trust = has_rows / self.errors.clamp_min(LEAST_ERROR) ** 2
        self._trust = (trust / trust.sum())[:, None]
        classes = stated.num_classes
        self.start = self.errors.new_zeros(stated.num_sets, classes - 1)
        scale = torch.where(self.free_sets, self.errors, 1) ** 2 * classes / (classes - 1)
        self._price = torch.where(self.free_sets, 0.5 / scale, 0.0)

    def shares(self, free: Tensor) -> Tensor:
        """Return the refined priors, (m, K) in float64, of free numbers (m, K - 1)."""
        off = self.errors[:, None] * free.double()
        own = self.stated.prior_matrix + torch.cat((-off.sum(dim=1, keepdim=True), off), dim=1)
        stated, weighted = self.stated.prior_matrix, self._trust * own
        # Sets that are all alike fix no map; a trace of the identity keeps it finite.
        ridge = 1e-12 * torch.eye(own.shape[1], dtype=own.dtype, device=own.device)
        moved = own @ torch.linalg.solve(weighted.mT @ own + ridge, weighted.mT @ stated + ridge)
        # Near 0 it bends away from it, so that a share there still has a slope to come back by.
        inside = EDGE * functional.softplus(moved / EDGE)
        inside = inside / inside.sum(dim=1, keepdim=True)
        return torch.where(self.free_sets[:, None], inside, stated)

    def units(self, num_rows: int) -> Tensor:
        """Return units of the free numbers, (m, 1), in which a sum over rows curves by about 1."""
        rows = self.stated.set_weights * num_rows
        return 1 / torch.sqrt(1 + 4 * rows * self.errors**2)[:, None]

    def transition(self, free: Tensor) -> Transition:
        """Return the transition of the refined priors, with gradients."""
        stated = self.stated
        return Transition.unchecked(
            self.shares(free), stated.set_weights, stated.target, stated.grouping
        )

    def penalty(self, free: Tensor) -> Tensor:
        """Return what the distance from the stated priors costs, summed over sets."""
        distance = self.shares(free) - self.stated.prior_matrix
        return (self._price[:, None] * distance**2).sum()


class RefiningNetwork(nn.Module):
    """A network together with the set priors it is trained with.

    Parameters
    ----------
    model : module returning logits, (n,) or (n, K)
    stated : Transition
        With the priors as published.
    prior_errors : array, shape (m,)
        Standard error of each stated prior; 0 keeps it.
    num_rows : int
        n, by which the penalty is divided since the risk is a mean over rows.
    """

    def __init__(
        self,
        model: nn.Module,
        stated: Transition,
        prior_errors: np.ndarray[Any, Any],
        num_rows: int,
    ) -> None:
        super().__init__()
        self.model = model
        self.num_rows = num_rows
        self._refiner = PriorRefiner(stated, prior_errors)
        self.prior_steps = nn.Parameter(self._refiner.start.float())

    def forward(self, x: Tensor) -> Tensor:
        """Return the model's logits."""
        logits: Tensor = self.model(x)
        return logits

    def set_priors(self) -> Tensor:
        """Return the priors as they are now, (m, K), float64."""
        return self._refiner.shares(self.prior_steps)

    def transition(self) -> Transition:
        """Return the transition of the current priors, with gradients."""
        return self._refiner.transition(self.prior_steps)

    def penalty(self) -> Tensor:
        """Return the price of the distance from the stated priors, per row."""
        return self._refiner.penalty(self.prior_steps) / self.num_rows


def refine_priors(
    logits: Array,
    set_index: Array,
    stated: Any,
    errors: Any,
    set_weights: Array,
    target: Any,
) -> ClassShares:
    """Return the set priors that suit both given logits and what was stated.

    For learners that cannot move the priors while they learn. Formula, minimised over the free
    numbers f of `PriorRefiner`, a and b (one a per class) with the logits z fixed::

        sum_rows loss(a + exp(b) z; Theta(f)) + penalty(f)

    The scale of the logits must not speak, since a model may be too timid or too bold: so a and b
    are free.

    Parameters
    ----------
    logits : array, shape (n,) or (n, K)
        At the target prior, for rows the model was not trained on: a model confirms the priors it
        was trained with on its own rows.
    set_index : array of integers, shape (n,)
    stated : ClassShares, or array of shape (m,) or (m, K)
    errors : float or array, shape (m,)
        Standard errors of the stated priors; 0 keeps a prior as it is.
    set_weights : array, shape (m,)
        Share of all rows that lie in each set; counts are scaled to sum to one.
    target : float or array, shape (K,)
        The target prior.
    """
    shares = ClassShares.of(stated)
    transition = Transition(shares, set_weights, target, scoring=True)
    refiner = PriorRefiner(transition, errors)
    if not bool(refiner.free_sets.any()):
        return shares
    return shares.with_matrix(refine_with(refiner, logits, set_index)[0])


def refine_with(refiner: PriorRefiner, logits: Array, set_index: Array) -> tuple[Array, Array]:
    """Return refined priors (m, K), and the logits moved and stretched to them."""
    z = torch.from_numpy(np.asarray(logits, np.float64))
    own_set = torch.from_numpy(np.asarray(set_index)).long()
    shape, num_shifts = refiner.start.shape, z[0].numel()
    unit = refiner.units(len(z))

    def parts(point: Tensor) -> tuple[Tensor, Tensor]:
        free, shift, stretch = point[: -num_shifts - 1], point[-num_shifts - 1 : -1], point[-1]
        moved = stretch.exp() * z + (shift if z.ndim > 1 else shift[0])
        return free.view(shape) * unit, moved

    def value_and_slope(point: Array) -> tuple[float, Array]:
        leaf = torch.from_numpy(point).requires_grad_()
        free, moved = parts(leaf)
        losses = ssc_cross_entropy(moved, own_set, refiner.transition(free))
        total = losses.sum() + refiner.penalty(free)
        (slope,) = torch.autograd.grad(total, leaf)
        return float(total.detach()), slope.numpy()

    start = np.zeros(shape.numel() + num_shifts + 1)
    reach = np.concatenate((np.full(shape.numel(), np.inf), np.full(num_shifts, SHIFT), [STRETCH]))
    bounds = Bounds(-reach, reach)
    found = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", bounds=bounds)
    with torch.no_grad():
        free, moved = parts(torch.from_numpy(found.x))
        return refiner.shares(free).numpy(), moved.numpy()
