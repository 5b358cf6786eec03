"""Choosing a method and a model without labels, by hiding sets and by hiding rows.

Which assumption holds? Hide some sets, predict their shares by each method's own rule, and
compare with the stated shares and with the answer "every set has the pooled prior".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unmix.core.losses import set_log_loss
from unmix.data.sets import UnlabeledSets, held_out_rows
from unmix.errors import IdentifiabilityError, InputError
from unmix.learn.methods import METHODS, method_named
from unmix.learn.models import MODELS, Setup, fit_learner, model_row, move_logits, refuse_method
from unmix.learn.training_rows import TrainingRows

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "AUTO",
    "BASELINE",
    "best_model",
    "check_choice",
    "choose_setup",
    "hides_sets",
    "leave_sets_out",
]

Array = np.ndarray[Any, Any]
Views = Mapping[str, UnlabeledSets]

AUTO = "auto"
BASELINE = "baseline"
LEAST_SETS = 4  # fewer leave too little to learn from when one is hidden
LEAST_ROWS = 20  # the share of a smaller hidden set is mostly chance
LEAST_ROWS_FOR_TREES = 1_000  # with fewer they have nothing to gain over a line


def choose_setup(
    rows: TrainingRows,
    model: str | nn.Module,
    method: str,
    *,
    labeled: bool = False,
    hide_sets: bool | None = None,
    seed: int = 0,
    **options: Any,
) -> tuple[Setup, dict[str, float]]:
    """Return what to fit, and how well the methods in question predict hidden sets.

    Parameters
    ----------
    rows : TrainingRows
    model : str or torch module
        'auto': the better of those that say so; for images the network of the studies.
    method : str
        'auto' or a name of `METHODS`.
    labeled : bool
        Whether the sets are classes: then nothing is hidden, and the method is the first.
    hide_sets : bool, optional
        Whether sets are hidden in turn. If left out, only where the method is to be chosen or
        a few more fits cost little.
    seed : int
    **options
        Further fields of the setup.

    Returns
    -------
    Setup
    dict
        As from `leave_sets_out`; empty if no sets were hidden.
    """
    default = next(iter(METHODS))
    wanted = [name for name, row in METHODS.items() if row.in_auto]
    if labeled:
        wanted = [default if _is_auto(method) else method_named(method).name]
        if wanted != [default] and not METHODS[wanted[0]].labeled:
            raise InputError(f"method {method!r} needs set_priors: without them sets are labels")
    elif not _is_auto(method):
        wanted = [_checked_method(method)]
    options |= {"seed": seed}
    if _is_auto(model):
        model = _auto_model(rows, wanted[0], options, seed)
    _refuse_rows(model, images=rows.images)
    setups = []
    for name in wanted:
        # What trees cannot learn by a line can; who asks for both hears that it is impossible.
        able = not _is_auto(method) or model_row(model).refuse(METHODS[name]) is None
        setups.append(Setup(model if able else next(iter(MODELS)), name, **options))
        refuse_method(setups[-1].model, name)
    errors: dict[str, float] = {}
    if not labeled and hides_sets(hide_sets, setups[0].model, method):
        views = {setup.model_name: rows.in_memory(model_row(setup.model)) for setup in setups}
        errors = leave_sets_out(views, setups, categorical=rows.encoder.categorical, seed=seed)
    # Without enough sets to hide any, the paper's assumption is taken.
    return min(setups, key=lambda setup: errors.get(setup.method, 0.0)), errors


def hides_sets(asked: bool | None, model: str | nn.Module, method: str) -> bool:
    """Say whether sets are hidden in turn: if asked for, to choose a method, or if it is cheap."""
    return asked if asked is not None else _is_auto(method) or model_row(model).cheap


def _refuse_rows(model: str | nn.Module, *, images: bool) -> None:
    """Refuse images for a model of tables, and a table for a model of images."""
    kind, other = ("images", "rows of a table") if images else ("rows of a table", "images")
    field, row = "images" if images else "tables", model_row(model)
    if not getattr(row, field):
        able = ", ".join(name for name in MODELS if getattr(model_row(name), field))
        raise InputError(
            f"{row.name} takes {other}, not {kind}; use model {able} or a torch module"
        )


def check_choice(model: str | nn.Module, method: str) -> None:
    """Refuse a model or a method that does not exist, or that do not go together."""
    if not _is_auto(method):
        _checked_method(method)
    if not _is_auto(model):
        model_row(model)
        if not _is_auto(method):
            refuse_method(model, method)


def _is_auto(choice: Any) -> bool:
    """Say whether a model or method is to be chosen; a torch module compares with nothing."""
    return isinstance(choice, str) and choice == AUTO


def _checked_method(method: str) -> str:
    """Return the name of a method that learns from sets."""
    try:
        row = method_named(method)
    except InputError as error:
        raise InputError(f"method must be 'auto' or one of the methods; {error}") from None
    if row.labeled:
        raise InputError(f"method {row.name!r} needs labels: leave set_priors out")
    return row.name


def _auto_model(rows: TrainingRows, method: str, options: dict[str, Any], seed: int) -> str:
    """Return the model that suits the rows and the method best."""
    if rows.images:
        grey = len(rows.x.shape) == 3
        return IMAGE_MODELS["grey" if grey else "colour"]
    able = [
        name
        for name in MODELS
        if model_row(name).in_auto and model_row(name).refuse(METHODS[method]) is None
    ]
    if not able:  # a penalty, say, that needs a network
        able = [name for name in MODELS if model_row(name).refuse(METHODS[method]) is None]
    # Labels say so much about each row that a line rarely loses to it by chance.
    if len(able) < 2 or len(rows.x) < LEAST_ROWS_FOR_TREES or not model_row(able[0]).in_auto:
        return able[0]
    candidates = [Setup(name, method, **options) for name in able]
    views = {name: rows.in_memory(model_row(name)) for name in able}
    return best_model(views, candidates, categorical=rows.encoder.categorical, seed=seed)


# What model 'auto' means for images: the networks of the paper.
IMAGE_MODELS = {"grey": "mlp", "colour": "resnet32"}


def leave_sets_out(
    views: Views,
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
        Categorical columns of views for models that know categories.
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
    stated = first.set_priors.matrix
    # Two classes have one share each: the other is its complement, not a second error.
    columns = slice(1, 2) if stated.shape[1] == 2 else slice(None)
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
                logits = learner.logits(view.x[mask])
                index = number[view.set_index[mask]]
                assumption = METHODS[setup.method].assumption
                base = learner.base_prior
                predicted[setup.method] = assumption.set_shares(logits, index, len(truth), base)
        except IdentifiabilityError:  # what remains cannot tell the classes apart
            return {}
        predicted[BASELINE] = kept.transition.pooled.numpy()
        for name, shares in predicted.items():
            squares = ((shares - truth)[:, columns] ** 2).sum(axis=1)
            errors[name] += float(rows @ squares) / len(first)
    return {name: float(np.sqrt(error)) for name, error in errors.items()}


def best_model(
    views: Views,
    setups: Sequence[Setup],
    *,
    categorical: Sequence[int] = (),
    max_rows: int = 50_000,
    seed: int = 0,
) -> str:
    """Return the model with the least set log-loss on rows hidden from it (label shift)."""
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
        losses[setup.model_name] = set_log_loss(logits, part.set_index, transition)
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
    return replace(kept, target_prior=sets.set_priors.pooled(kept.set_sizes))


def _thinned(
    views: Views, setups: Sequence[Setup], max_rows: int, rng: np.random.Generator
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
