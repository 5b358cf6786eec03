"""One way to fit anything: a model and a method in, a learner with `logits(x)` out.

The estimator knows only this file; linear models, boosting and networks live behind it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import nn

from unmix.core.losses import ssc_cross_entropy
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.data.shuffled import ShuffledSets
from unmix.errors import InputError
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.methods import METHODS
from unmix.learn.models import build_model
from unmix.learn.sizing import Hidden, hidden_for, is_large, recipe_for
from unmix.learn.training import Progress, logits_of, train

__all__ = [
    "HELD_OUT",
    "Learner",
    "NetworkFit",
    "Setup",
    "fit_learner",
    "move_logits",
    "set_log_loss",
]

Array = np.ndarray[Any, Any]
MethodName = Literal["ssc", "proportion"]

# Share of the rows that early stopping looks at.
HELD_OUT = 0.1


class Fit(Protocol):
    """What the learners have in common."""

    def logits(self, x: Array) -> Array:
        """Return logits, (n,) or (n, K), at the learner's base prior."""


@dataclass(frozen=True)
class Setup:
    """How to fit, apart from the rows."""

    model: str | nn.Module
    """'linear', 'boosting', 'mlp' or a torch module."""
    method: MethodName
    l2: float | None = None
    """Of the linear model; None: chosen without labels."""
    epochs: int = 30
    """Of networks, at most; the epoch with the least held-out loss is used."""
    hidden: Hidden | None = None
    """Layers and units of the MLP; None: by the size of the table."""
    seed: int = 0

    @property
    def model_name(self) -> str:
        """The model's name; 'module' for the user's own."""
        return self.model if isinstance(self.model, str) else "module"


@dataclass(frozen=True)
class NetworkFit:
    """A trained torch module."""

    module: nn.Module
    options: dict[str, Any] = field(default_factory=dict)
    """What `build_model` needs to build it again; empty for a module of the user's."""

    def logits(self, x: Array) -> Array:
        """Return logits, (n,) or (n, K)."""
        return logits_of(self.module, x).numpy().astype(np.float64)


@dataclass(frozen=True)
class Learner:
    """A fitted model and the prior at which it states its log-odds."""

    setup: Setup
    fit: Fit
    base_prior: Array
    """(K,): the target prior for ssc, the pooled prior for proportion."""
    set_priors: Array
    """(m,) or (m, K): refined if prior errors were given."""
    history: list[dict[str, float]]

    def logits(self, x: Array) -> Array:
        """Return logits, (n,) or (n, K), at the base prior."""
        return self.fit.logits(x)


def fit_learner(
    sets: UnlabeledSets | ShuffledSets,
    setup: Setup,
    *,
    categorical: Sequence[int] = (),
    prior_errors: Array | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> Learner:
    """Fit a model by a method.

    Parameters
    ----------
    sets : UnlabeledSets or ShuffledSets
        `x` as the model takes it: a matrix for linear models and networks; for boosting with
        NaN for missing values and codes in the `categorical` columns, and in memory.
    setup : Setup
    categorical : sequence of int
        Columns of `x` that hold categories; for boosting.
    prior_errors : array, shape (m,), optional
        Standard errors of the set priors.
    progress : function (done, total, text), optional
        Counts rows; for boosting rounds.
    checkpoint : Checkpoint, optional
        Lets linear models and networks go on after an interruption.
    """
    if setup.model == "boosting":
        return _fit_boosting(sets.part(0), setup, categorical, prior_errors, progress)
    fit = _fit_linear if setup.model == "linear" else _fit_network
    return fit(sets, setup, prior_errors, progress, checkpoint)


def set_log_loss(logits: Array, transition: Transition, set_index: Array) -> float:
    """Return the mean set log-loss of rows whose logits are at the transition's target prior."""
    losses = ssc_cross_entropy(
        torch.from_numpy(np.ascontiguousarray(logits, dtype=np.float64)),
        torch.from_numpy(set_index).long(),
        transition,
    )
    return float(losses.mean())


def move_logits(logits: Array, from_prior: Array, to_prior: Array) -> Array:
    """Move logits from one class prior (K,) to another: a shift, whatever the rows."""
    shift = np.log(np.asarray(to_prior, float)) - np.log(np.asarray(from_prior, float))
    return np.asarray(logits + (shift[1] - shift[0] if logits.ndim == 1 else shift))


def _fit_linear(
    sets: UnlabeledSets | ShuffledSets,
    setup: Setup,
    prior_errors: Array | None,
    progress: Progress | None,
    checkpoint: Checkpoint | None,
) -> Learner:
    """Fit by L-BFGS, its regularisation chosen without labels if it is not given."""
    from unmix.learn.linear import choose_l2, fit_linear

    l2 = setup.l2
    if l2 is None:
        rng = np.random.default_rng(setup.seed)
        l2 = choose_l2(sets.part(0), method=setup.method, rng=rng)
    fit = fit_linear(
        sets,
        method=setup.method,
        l2=l2,
        prior_errors=prior_errors,
        progress=progress,
        checkpoint=checkpoint,
    )
    setup = replace(setup, l2=l2)
    return Learner(setup, fit, _classes(fit.base_prior), fit.set_priors, [])


def _fit_boosting(
    sets: UnlabeledSets,
    setup: Setup,
    categorical: Sequence[int],
    prior_errors: Array | None,
    progress: Progress | None,
) -> Learner:
    """Fit trees, the number of rounds chosen on held-out rows."""
    from unmix.learn.boosting import fit_boosting

    if setup.method != "ssc":
        raise InputError(
            "boosting learns by ssc only; use model linear or mlp with method proportion"
        )
    kept, held_out = sets.hold_out(HELD_OUT, np.random.default_rng([setup.seed, 4]))
    fit = fit_boosting(
        kept,
        held_out=held_out,
        categorical=categorical,
        seed=setup.seed,
        prior_errors=prior_errors,
        # On small tables threads wait for each other more than they work.
        num_threads=1 if len(kept) < 50_000 else None,
        progress=progress,
    )
    target = sets.transition.target.numpy()
    return Learner(setup, fit, target, fit.set_priors, fit.history)


def _fit_network(
    sets: UnlabeledSets | ShuffledSets,
    setup: Setup,
    prior_errors: Array | None,
    progress: Progress | None,
    checkpoint: Checkpoint | None,
) -> Learner:
    """Train the MLP or a copy of the user's module, the epoch chosen on held-out rows."""
    transition = sets.transition
    base = transition.target if setup.method == "ssc" else transition.pooled
    prior = base.numpy()
    kept, held_out = sets.hold_out(HELD_OUT, np.random.default_rng([setup.seed, 4]))
    options: dict[str, Any] = {}
    large = setup.model == "mlp" and is_large(len(sets))
    if isinstance(setup.model, nn.Module):
        module = copy.deepcopy(setup.model)
    elif setup.model == "mlp":
        depth, width = setup.hidden or hidden_for(len(sets), math.prod(sets.row_shape))
        network: dict[str, Any] = {"depth": depth, "width": width}
        if large:
            network["dropout"] = 0.0
        options = {"row_shape": list(sets.row_shape), "prior": prior.tolist(), "network": network}
        start = prior[1] if transition.binary else prior
        module = build_model("mlp", sets.row_shape, start, seed=setup.seed, **network)
    else:
        raise InputError(
            "model must be 'auto', 'linear', 'boosting', 'mlp' or a torch module; "
            f"got {setup.model!r}"
        )
    if setup.method != "ssc" and prior_errors is not None:
        prior_errors = None  # proportion matching has no set posterior to refine priors with
    recipe = recipe_for(len(kept), setup.method, setup.epochs, fast=large)

    def rows_done(batches: int, all_batches: int, text: str) -> None:
        if progress is not None:
            total = recipe.epochs * len(kept)
            progress(total * batches // all_batches, total, text)

    trained = train(
        module,
        kept,
        METHODS[setup.method],
        recipe,
        seed=setup.seed,
        held_out=held_out if setup.method == "ssc" else None,
        prior_errors=prior_errors,
        progress=rows_done if progress else None,
        checkpoint=checkpoint,
    )
    fit = NetworkFit(trained.selected, options)
    return Learner(setup, fit, prior, trained.set_priors, trained.history)


def _classes(prior: Any) -> Array:
    """Return a prior as one share per class, (K,)."""
    share = np.asarray(prior, float)
    return np.array([1 - share, share]) if share.ndim == 0 else share
