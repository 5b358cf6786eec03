"""Set priors that are learned with the model, held near the stated ones by their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unmix.core.transition import Transition
from unmix.learn.refining import check_prior_errors

__all__ = ["LearnedPriors"]


class LearnedPriors(nn.Module):
    """A model together with the set priors it is trained with (two classes).

    Parameters
    ----------
    model : module returning logits, (n,)
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
        errors = check_prior_errors(prior_errors, stated.set_priors.numpy(force=True))
        self.model = model
        self.num_rows = num_rows
        self._stated = stated
        self._errors = torch.from_numpy(errors).to(stated.pooled.device)
        # How much each stated prior counts, (m,), sum 1: by its error, as far as that is not 0.
        trust = 1 / self._errors.clamp_min(1e-3) ** 2
        self._trust = trust / trust.sum()
        self._stated_mean = (self._trust * stated.set_priors).sum()
        start = torch.logit(stated.set_priors, eps=1e-3)
        self.prior_logits = nn.Parameter(start.float())

    def forward(self, x: Tensor) -> Tensor:
        """Return the model's logits."""
        logits: Tensor = self.model(x)
        return logits

    def set_priors(self) -> Tensor:
        """Return the priors as they are now, (m,), float64.

        Stretching or moving all priors alike changes the likelihood very little, since the logits
        make up for it, and a timid network would stretch them for its own ends. So only the stated
        priors decide about that: the learned ones are moved by the line that fits the stated ones
        to them by least squares.
        """
        learned = torch.sigmoid(self.prior_logits.double())
        mean = (self._trust * learned).sum()
        offset, stated_offset = learned - mean, self._stated.set_priors - self._stated_mean
        spread = (self._trust * offset**2).sum().clamp_min(1e-12)
        slope = (self._trust * offset * stated_offset).sum() / spread
        moved = (self._stated_mean + slope * offset).clamp(1e-3, 1 - 1e-3)
        return torch.where(self._errors > 0, moved, self._stated.set_priors)

    def transition(self) -> Transition:
        """Return the transition of the current priors, with gradients."""
        priors = self.set_priors()
        matrix = torch.stack((1 - priors, priors), dim=1)
        return Transition.unchecked(
            matrix, self._stated.set_weights, self._stated.target, binary=True
        )

    def penalty(self) -> Tensor:
        """Return sum_j (pi_j - stated_j)^2 / (2 s_j^2) / n."""
        distance = self.set_priors() - self._stated.set_priors
        scale = torch.where(self._errors > 0, self._errors, 1)
        return (distance**2 / (2 * scale**2)).sum() / self.num_rows
