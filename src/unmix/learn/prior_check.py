"""Stated set priors put to the test while a network learns, without labels.

After a part of the epochs the rows held out say how far off the stated priors are. If they are
right, training goes on, to the same bits as if nobody had looked. If not, it starts again and
learns the priors too.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from scipy.special import logit, logsumexp
from torch import nn

from unmix.core.class_shares import ClassShares
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.methods import METHODS, Method
from unmix.learn.models import Model, Setup
from unmix.learn.recipes import Recipe
from unmix.learn.refined_priors import PriorRefiner, refine_with
from unmix.learn.training import Sets, Trained, logits_of, train
from unmix.progress import Progress

__all__ = ["ERRORS", "estimate_prior_error", "noticed_error", "train_checking_priors"]

Array = np.ndarray[Any, Any]

# Standard errors to choose from, and how much likelier (as a logarithm, 20 to 1) one must make the
# rows than exact priors do before it is taken over.
ERRORS, EVIDENCE = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3), 3.0
# Where an integral over a prior is evaluated: as fine as a set of some thousand rows asks for.
GRID = (np.arange(200) + 0.5) / 200
# Share of the rows that a model which cannot look while it learns is asked about.
LOOKED_AT = 0.3


def train_checking_priors(
    model: nn.Module,
    sets: Sets,
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
        float(held_out.scoring_transition.arrays.target[1]),
    )
    if not error:
        return stage(model, "believed", 0, start=early.state), error
    errors = np.full(sets.num_sets, error)
    return stage(fresh, "refined", look, prior_errors=errors), error


def noticed_error(sets: UnlabeledSets, setup: Setup, model: Model, **options: Any) -> float:
    """Return how far off the stated priors are by a model fitted to some of the rows; 0 if not.

    For models that cannot look while they learn: it costs a fit. Methods that do not check priors
    and K classes have nothing to notice.
    """
    method = METHODS[setup.method]
    if not method.checks_priors or sets.set_priors.num_classes != 2:
        return 0.0
    kept, held_out = sets.hold_out(LOOKED_AT, np.random.default_rng([setup.seed, 4]))
    learner = model.fit(kept, setup, **(options | {"prior_errors": None, "checkpoint": None}))
    return estimate_prior_error(
        learner.logits(held_out.x),
        held_out.set_index,
        held_out.set_priors,
        held_out.set_sizes,
        float(learner.base_prior[1]),
    )


def estimate_prior_error(
    logits: Array, set_index: Array, stated: Array, set_weights: Array, target: float
) -> float:
    """Return the standard error of the stated priors that the rows speak for; 0 if for none.

    The likelihood of the set index is compared between errors s, the same for all sets, with the
    true priors integrated out. Formula, with z the logits, moved and stretched as `refine_priors`
    does for that error and then brought from the target prior to even odds::

        likelihood(s) = integral over all pi_j in (0, 1) of
            prod_j normal(pi_j; stated_j, s) prod_i in j (1 - pi_j + pi_j exp z_i)
            / prod_i (1 - p + p exp z_i),    p = sum_j rho_j pi_j

    where the normal density is scaled to (0, 1). The logarithm of the last product is taken to
    first order in p around the refined priors, so that the integral is one for each set. Level and
    spread of all priors are left to what was stated, so an error that moves or stretches them all
    alike is hardly seen; and sets whose p(x | class) differs look like wrong priors too.

    Parameters
    ----------
    logits, set_index, stated, set_weights, target
        As for `refine_priors`; two classes, with the target as one number.
    """
    # Sets without rows say nothing, and there may be a million of them.
    present, set_index = np.unique(set_index, return_inverse=True)
    stated = ClassShares.of(stated).matrix[present, 1]
    weights = np.asarray(set_weights, dtype=np.float64)[present]
    weights /= weights.sum()

    def surprise(error: float) -> float:
        refiner = PriorRefiner(Transition(stated, weights, target, scoring=True), error)
        matrix, moved = refine_with(refiner, logits, set_index)
        priors, z = matrix[:, 1], moved - logit(target)

        def log_mixture(prior: Any) -> Array:
            """Return log(1 - prior + prior exp z) of each row, (n,)."""
            with np.errstate(divide="ignore"):  # priors of 0 and 1
                return np.asarray(np.logaddexp(np.log(prior) + z, np.log1p(-prior)))

        pooled = log_mixture(weights @ priors)
        if not error:
            return float((pooled - log_mixture(stated[set_index])).sum())
        density = -((GRID[:, None] - stated) ** 2) / (2 * error**2)  # (grid, m), as a logarithm
        own = [np.bincount(set_index, log_mixture(prior), len(stated)) for prior in GRID]
        by_pooled = (np.exp(z - pooled) - np.exp(-pooled)).sum()
        joint = density + own - by_pooled * weights * (GRID[:, None] - priors)
        return float(pooled.sum() - (logsumexp(joint, axis=0) - logsumexp(density, axis=0)).sum())

    return _likeliest({error: surprise(error) for error in (0.0, *ERRORS)})


def _likeliest(surprises: dict[float, float]) -> float:
    """Return the error with the least surprise, if that speaks clearly against exact priors."""
    best = min(surprises, key=surprises.__getitem__)
    return best if surprises[0.0] - surprises[best] > EVIDENCE else 0.0
