"""Choosing a method and a model without labels, by hiding sets and by hiding rows.

Which assumption holds? Hide some sets, predict their shares by each method's own rule, and
compare with the stated shares and with the answer "every set has the pooled prior".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from unmix.core.shares import share_by_likelihood, share_by_mean
from unmix.data.sets import UnlabeledSets, held_out_rows
from unmix.errors import IdentifiabilityError, InputError
from unmix.learn.learners import Setup, fit_learner, move_logits, set_log_loss
from unmix.learn.views import Views

__all__ = ["BASELINE", "best_model", "choose_setup", "leave_sets_out", "predicted_shares"]

Array = np.ndarray[Any, Any]

BASELINE = "baseline"
LEAST_SETS = 4  # fewer leave too little to learn from when one is hidden
LEAST_ROWS = 20  # the share of a smaller hidden set is mostly chance
LEAST_ROWS_FOR_TREES = 1_000  # with fewer they have nothing to gain over a line


def choose_setup(
    views: Views,
    model: str | nn.Module,
    method: str,
    *,
    labeled: bool = False,
    categorical: Sequence[int] = (),
    seed: int = 0,
    **options: Any,
) -> tuple[Setup, dict[str, float]]:
    """Return what to fit, and how well the methods in question predict hidden sets.

    Parameters
    ----------
    views : Views
    model : str or torch module
        'auto': the better of linear and boosting.
    method : 'auto', 'ssc' or 'proportion'
    labeled : bool
        Whether the sets are classes: then nothing is hidden, and the method is ssc.
    categorical : sequence of int
        Categorical columns of the view of boosting.
    seed : int
    **options
        Further fields of the setup.

    Returns
    -------
    Setup
    dict
        As from `leave_sets_out`.
    """
    if method not in ("auto", "ssc", "proportion"):
        raise InputError(f"method must be 'auto', 'ssc' or 'proportion'; got {method!r}")
    if labeled and method == "proportion":
        raise InputError("method 'proportion' needs set_priors")
    options |= {"seed": seed}
    if isinstance(model, str) and model == "auto":
        # Labels say so much about each row that a line rarely loses to it by chance.
        candidates = [Setup(name, "ssc", **options) for name in ("linear", "boosting")]
        few = len(views) < LEAST_ROWS_FOR_TREES
        model = (
            "linear"
            if few or method == "proportion"
            else best_model(views, candidates, categorical=categorical, seed=seed)
        )
    ssc = Setup(model, "ssc", **options)
    if labeled:
        return ssc, {}
    # Trees do not learn by matching proportions; a line does.
    instead = "linear" if model == "boosting" and method == "auto" else model
    proportion = Setup(instead, "proportion", **options)
    wanted = {"auto": [ssc, proportion], "ssc": [ssc], "proportion": [proportion]}[method]
    errors = leave_sets_out(views, wanted, categorical=categorical, seed=seed)
    # Without enough sets to hide any, the paper's assumption is taken.
    return min(wanted, key=lambda setup: errors.get(setup.method, 0.0)), errors


def leave_sets_out(
    views: Mapping[str, UnlabeledSets],
    setups: Sequence[Setup],
    *,
    categorical: Sequence[int] = (),
    folds: int = 5,
    max_rows: int = 50_000,
    seed: int = 0,
) -> dict[str, float]:
    """Return how well each method predicts the share of sets it has not seen.

    Formula: the root of the mean squared difference between stated and predicted share over all
    sets, each hidden once, weighted by their rows; K classes: summed over classes. Hidden sets
    with fewer than 20 rows are taken together with others of similar shares: their union has the
    mean of their shares, and enough rows to see it.

    Parameters
    ----------
    views : mapping from a model name to UnlabeledSets
        The same rows, as each model takes them.
    setups : sequence of Setup
        One per method.
    categorical : sequence of int
        Categorical columns of the view of boosting.
    folds : int
        Parts into which the sets are divided.
    max_rows : int
        Larger data are thinned to this, inside each set.

    Returns
    -------
    dict
        From method, and 'baseline', to error; empty if there are too few sets to hide any.
    """
    rng = np.random.default_rng([seed, 5])
    views = _thinned(views, setups, max_rows, rng)
    first = views[setups[0].model_name]
    present = first.set_sizes.nonzero()[0]
    if len(present) < LEAST_SETS:
        return {}
    stated = first.transition.prior_matrix.numpy()
    # Two classes have one share each: the other is its complement, not a second error.
    columns = slice(1, 2) if first.transition.binary else slice(None)
    errors = dict.fromkeys((*_names(setups), BASELINE), 0.0)
    for hidden in _folds(stated, present, min(folds, len(present)), rng):
        mask = np.isin(first.set_index, hidden)
        number = _joined(stated, first.set_sizes, hidden)
        rows = np.bincount(number[first.set_index[mask]])
        sums = [np.bincount(number[hidden], (first.set_sizes * s)[hidden]) for s in stated.T]
        truth = np.stack(sums, axis=1) / rows[:, None]  # (joined sets, K)
        predicted: dict[str, Array] = {}
        try:
            for setup in setups:
                view = views[setup.model_name]
                kept = _only(view, ~mask)
                learner = fit_learner(kept, setup, categorical=categorical)
                part = view.rows(mask)
                joined = replace(part, set_index=number[part.set_index], set_priors=truth)
                predicted[setup.method] = predicted_shares(
                    learner.logits(part.x), joined, setup.method, learner.base_prior
                )
        except IdentifiabilityError:  # what remains cannot tell the classes apart
            return {}
        predicted[BASELINE] = kept.transition.pooled.numpy()
        for name, shares in predicted.items():
            squares = ((shares - truth)[:, columns] ** 2).sum(axis=1)
            errors[name] += float(rows @ squares) / len(first)
    return {name: float(np.sqrt(error)) for name, error in errors.items()}


def predicted_shares(logits: Array, sets: UnlabeledSets, method: str, base_prior: Array) -> Array:
    """Return the class shares of each set by the method's own rule, (m, K); NaN without rows."""
    if method == "ssc":
        prior = float(base_prior[1]) if logits.ndim == 1 else base_prior
        shares, _ = share_by_likelihood(logits, sets.set_index, sets.num_sets, prior)
    else:
        shares, _ = share_by_mean(logits, sets.set_index, sets.num_sets)
    return np.stack((1 - shares, shares), axis=1) if shares.ndim == 1 else shares


def best_model(
    views: Mapping[str, UnlabeledSets],
    setups: Sequence[Setup],
    *,
    categorical: Sequence[int] = (),
    max_rows: int = 50_000,
    seed: int = 0,
) -> str:
    """Return the model with the least set log-loss on rows hidden from it (method ssc)."""
    rng = np.random.default_rng([seed, 6])
    views = _thinned(views, setups, max_rows, rng)
    out = held_out_rows(views[setups[0].model_name].set_index, 0.25, rng)
    losses = {}
    for setup in setups:
        view = views[setup.model_name]
        learner = fit_learner(view.rows(~out), setup, categorical=categorical)
        part = view.rows(out)
        transition = part.scoring_transition
        logits = move_logits(learner.logits(part.x), learner.base_prior, transition.target.numpy())
        losses[setup.model_name] = set_log_loss(logits, transition, part.set_index)
    return min(losses, key=losses.__getitem__)


def _names(setups: Sequence[Setup]) -> list[str]:
    """Return the method names, which must differ."""
    names: list[str] = [setup.method for setup in setups]
    if len(set(names)) < len(names):
        raise InputError("leave-sets-out compares methods; each may appear once")
    return names


def _only(sets: UnlabeledSets, mask: Array) -> UnlabeledSets:
    """Return some rows, at their own pooled prior: hidden shares must not leak through a target."""
    kept = sets.rows(mask)
    matrix = sets.transition.prior_matrix.numpy()
    pooled = np.average(matrix, axis=0, weights=kept.set_sizes)
    return replace(kept, target_prior=float(pooled[1]) if sets.transition.binary else pooled)


def _thinned(
    views: Mapping[str, UnlabeledSets],
    setups: Sequence[Setup],
    max_rows: int,
    rng: np.random.Generator,
) -> dict[str, UnlabeledSets]:
    """Return the views the setups need, with at most about `max_rows` rows, set by set."""
    needed = {setup.model_name: views[setup.model_name] for setup in setups}
    first = needed[setups[0].model_name]
    if len(first) <= max_rows:
        return needed
    chosen = held_out_rows(first.set_index, max_rows / len(first), rng).nonzero()[0]
    return {name: view.rows(chosen) for name, view in needed.items()}


def _joined(stated: Array, sizes: Array, hidden: Array) -> Array:
    """Number the hidden sets, small ones of similar shares alike, (m,); -1 for all others."""
    large = hidden[sizes[hidden] >= LEAST_ROWS]
    small = hidden[sizes[hidden] < LEAST_ROWS]
    small = small[np.argsort(stated[small, -1], kind="stable")]
    number = np.full(len(stated), -1)
    number[large] = np.arange(len(large))
    number[small] = (
        len(large) + np.unique((np.cumsum(sizes[small]) - 1) // LEAST_ROWS, return_inverse=True)[1]
    )
    return number


def _folds(stated: Array, present: Array, folds: int, rng: np.random.Generator) -> list[Array]:
    """Divide the sets into folds that each span the range of the priors."""
    order = present[np.argsort(stated[present, -1], kind="stable")]
    turn = np.concatenate([rng.permutation(folds) for _ in range(-(-len(order) // folds))])[
        : len(order)
    ]
    return [order[turn == f] for f in range(folds)]
