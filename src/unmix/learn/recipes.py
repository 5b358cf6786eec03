"""Recipes: how to optimise, as data. One row per recipe; nothing here runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from unmix.errors import InputError

__all__ = ["RECIPES", "Recipe"]

RISE = 0.1  # schedule `cosine`: share of all steps in which the rate rises


@dataclass(frozen=True)
class Recipe:
    """Everything about optimisation that is not the method, the model or the data."""

    name: str
    epochs: int
    """Passes over the rows."""
    learning_rate: float | None
    """Peak rate; None: the rate the paper used for the method and the model."""
    schedule: Literal["cosine", "decay"]
    """cosine: rise, then fall to 0. decay: 1 / (1 + 1e-4 steps), as Keras counts."""
    batch_size: int = 256
    weight_decay: float = 0.0
    """Decoupled (AdamW), on matrices and kernels only."""
    l2: float = 0.0
    """Added to the risk as l2 * |w|^2 (Adam), on matrices and kernels only."""
    average: float = 0.0
    """Decay of the exponential weight average that is used for prediction; 0: last weights."""
    augment: bool = False
    """Move images about, as far as their benchmark says that it leaves the class alone."""
    half_size: float = 0.0
    """Share of the steps, the first ones, that see images at half their height and width: a
    quarter of the work while there is only the coarse to learn. For convolutions."""
    look: float = 0.0
    """Share of the epochs after which rows held out are asked whether the stated set priors are
    right (`prior_check.train_checking_priors`); 0: they are believed."""
    convolutional: Recipe | None = None
    """The recipe for networks of convolutions, if they want another."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 2:
            raise InputError(
                f"epochs must be at least 1 and batch_size at least 2; got {self.epochs} and "
                f"{self.batch_size}"
            )
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise InputError(f"learning_rate must be positive; got {self.learning_rate}")
        if not 0 <= self.half_size < 1:
            raise InputError(f"half_size is a share of the steps below 1; got {self.half_size}")
        if self.weight_decay and self.l2:
            raise InputError("a recipe has weight_decay or l2, not both")

    def sees_half(self, step: int, steps_per_epoch: int) -> bool:
        """Say whether a step sees images at half their size."""
        return step < self.half_size * self.epochs * steps_per_epoch

    def rate_at(self, step: int, steps_per_epoch: int) -> float:
        """Return the learning rate of a step as a share of the peak: no state to save."""
        if self.schedule == "decay":
            return 1 / (1 + 1e-4 * step)
        done = step / (self.epochs * steps_per_epoch)
        if done < RISE:
            return 0.05 + 0.95 * done / RISE
        return 0.5 * (1 + math.cos(math.pi * (done - RISE) / (1 - RISE)))


RECIPES: dict[str, Recipe] = {
    r.name: r
    for r in (
        # Chosen by held-out set log-loss on the MNIST-like benchmarks, 10 sets, seed 0: see
        # docs/results.md. For convolutions rate and decay are common ones; epochs and half_size
        # are what an hour of one thread allows.
        Recipe(
            "fast",
            15,
            1e-3,
            "cosine",
            weight_decay=0.1,
            average=0.997,
            augment=True,
            look=0.2,
            convolutional=Recipe(
                "fast",
                14,
                2e-3,
                "cosine",
                batch_size=128,
                weight_decay=0.01,
                average=0.997,
                augment=True,
                half_size=0.6,
            ),
        ),
        # Appendix B. The strength of l2 is not in the text; 1e-4 is that of the authors' program.
        # Its formula for the rate has epochs, but it names Keras's own scheduler, which counts
        # updates; with epochs the network overfits (docs/results.md).
        Recipe("paper", 300, None, "decay", l2=1e-4),
    )
}
