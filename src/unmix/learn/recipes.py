"""Recipes: how to optimise, as data, one row each; and which one a table gets, with which network.

The size of the network and its recipe follow from the rows and columns of a table alone. Nothing
here runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import index
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from unmix.data.batching import SETS_PER_BATCH
from unmix.errors import InputError

if TYPE_CHECKING:
    from unmix.learn.methods import Method
    from unmix.learn.models import Hidden
    from unmix.learn.training import Sets

__all__ = [
    "RECIPES",
    "Recipe",
    "check_hidden",
    "hidden_for",
    "is_large",
    "recipe_for",
]

# Rows that a network sees in all its epochs, if there are so many: beyond it they are fewer.
ENOUGH_ROWS = 50_000_000
# From so many rows on a small network that learns fast is about as good as the paper's, in a
# fraction of the time: docs/growth.md has both.
MANY_ROWS = 2_000_000
PAPER: Hidden = (3, 300)
WITH_HIDDEN = ("mlp",)  # models whose hidden layers can be chosen
EPOCHS = 30
# Of a set in a batch, at least and at most: a share needs some, and no more than so many.
ROWS_OF_A_SET = (32, 128)
LARGE_RATE, LARGE_BATCH, ENOUGH_STEPS = 6e-3, 8192, 6000
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
                look=0.35,
            ),
        ),
        # Appendix B. The strength of l2 is not in the text; 1e-4 is that of the authors' program.
        # Its formula for the rate has epochs, but it names Keras's own scheduler, which counts
        # updates; with epochs the network overfits (docs/results.md).
        Recipe("paper", 300, None, "decay", l2=1e-4),
    )
}


def is_large(rows: int) -> bool:
    """Say whether a table has so many rows that a network should learn fast, without dropout.

    Nobody learns millions of rows by heart, so that dropout would only hold it back.
    """
    return rows >= MANY_ROWS


def hidden_for(rows: int, columns: int) -> Hidden:
    """Return the hidden layers of the network for a table of so many rows and columns."""
    if not is_large(rows):
        return PAPER
    width = 16 * -(-2 * columns // 16)  # two for each column; 16 floats are a cache line
    return 2, int(np.clip(width, 48, 304))


def recipe_for(
    sets: Sets,
    method: Method,
    epochs: int | None,
    *,
    fast: bool,
) -> Recipe:
    """Return how to train a network on a table.

    Parameters
    ----------
    sets : UnlabeledSets, ShuffledSets or SetsInParts
        The rows to train on; only their number and that of each set counts.
    method : Method
    epochs : int, optional
        At most; 30 if left out.
    fast : bool
        Whether it is our network on a large table, which can take a high rate.
    """
    rows = len(sets)
    epochs = min(epochs or EPOCHS, max(1, round(ENOUGH_ROWS / rows)))
    recipe = replace(RECIPES["fast"], epochs=epochs)
    if method.batch_by != "rows":
        # Whole sets if they are small: more rows of one set teach nothing, more steps do.
        sizes, known = sets.set_sizes, sets.set_priors.precision
        if known is not None and known.labels is not None and sizes[~known.labels].any():
            sizes = sizes[~known.labels]  # sets of one say nothing of what others are like
        whole = int(np.clip(np.median(sizes[sizes > 0]), *ROWS_OF_A_SET))
        return replace(recipe, batch_size=SETS_PER_BATCH * whole)
    # Small tables need small batches to take enough steps.
    least = int(np.clip(rows // 64, 32, 256))
    if fast:
        batch_size = int(np.clip(epochs * rows // ENOUGH_STEPS, least, LARGE_BATCH))
        return replace(recipe, batch_size=batch_size, learning_rate=LARGE_RATE)
    return replace(recipe, batch_size=int(np.clip(rows // 4096, least, 1024)))


def check_hidden(hidden: Any, model: Any) -> Hidden | None:
    """Return hidden layers as they may be, or say what is wrong with them."""
    if hidden is None:
        return None
    if model not in WITH_HIDDEN:
        name = repr(model) if isinstance(model, str) else f"a {type(model).__name__}"
        raise InputError(f"hidden is for model 'mlp'; the model is {name}")
    try:
        depth, width = (index(number) for number in hidden)
    except (TypeError, ValueError):
        depth = width = 0
    if not (1 <= depth <= 20 and 1 <= width <= 10_000):
        raise InputError(
            f"hidden must be (layers, units), at most (20, 10000), such as (2, 64); got {hidden!r}"
        )
    return depth, width
