"""Stated set priors put to the test while a network learns, without labels.

After a part of the epochs the rows held out say how far off the stated priors are. If they are
right, training goes on, to the same bits as if nobody had looked. If not, it starts again and
learns the priors too.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from torch import nn

from unmix.data.sets import UnlabeledSets
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.methods import Method
from unmix.learn.recipes import Recipe
from unmix.learn.refining import estimate_prior_error
from unmix.learn.training import Progress, Trained, logits_of, train

__all__ = ["train_doubting"]


def train_doubting(
    model: nn.Module,
    sets: UnlabeledSets,
    method: Method,
    recipe: Recipe,
    *,
    held_out: UnlabeledSets,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[Trained, float]:
    """Train with set priors that may be wrong (two classes).

    Parameters
    ----------
    model : module returning logits, (n,)
    sets, method, recipe, checkpoint, progress
        As for `train`; the recipe says after which share of its epochs to look.
    held_out : UnlabeledSets
        Rows of the same sets that training does not see: they decide.
    **options
        Passed to `train`.

    Returns
    -------
    Trained
    float
        Standard error with which the priors were learned; 0 if they were believed.
    """
    fresh = copy.deepcopy(model)
    look = max(1, round(recipe.look * recipe.epochs))

    def stage(network: nn.Module, name: str, before: int, **more: Any) -> Trained:
        def tell(done: int, total: int, text: str) -> None:
            if progress:  # a second start makes it longer
                epochs = before + done / total * recipe.epochs
                progress(round(1000 * epochs), 1000 * (before + recipe.epochs), text)

        return train(
            network,
            sets,
            method,
            recipe,
            held_out=held_out,
            checkpoint=checkpoint.part(name) if checkpoint else None,
            progress=tell,
            **options,
            **more,
        )

    early = stage(model, "look", 0, stop=look)
    error = estimate_prior_error(
        logits_of(early.model, held_out.x).numpy(),
        held_out.set_index,
        held_out.set_priors,
        held_out.set_sizes,
        float(held_out.scoring_transition.target[1]),
    )
    if not error:
        return stage(model, "believed", 0, start=early.state), error
    errors = np.full(sets.num_sets, error)
    return stage(fresh, "refined", look, prior_errors=errors), error
