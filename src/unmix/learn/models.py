"""Models: one row each, with how it is fitted, how it is saved and what view of a table it wants.

A setup goes in, a learner with `logits(x)` comes out. Nobody else asks what kind of model it is.
The rows live in the files of the models and are imported when they are first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import pandas as pd

from unmix.core.class_shares import ClassShares, check_errors
from unmix.core.set_risks import SetEffectRisk
from unmix.core.stand_ins import NO_STAND_INS, UNMOVED, LogitMove, StandIns
from unmix.data.sets import UnlabeledSets
from unmix.data.shuffled import ShuffledSets
from unmix.data.wording import listed, nearest
from unmix.errors import InputError
from unmix.learn.methods import METHODS, Method, method_named
from unmix.learn.sets_in_parts import SetsInParts

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "AUTO_MODELS",
    "MODELS",
    "Fit",
    "Form",
    "Learner",
    "Model",
    "Setup",
    "Spread",
    "fit_learner",
    "model_row",
    "move_logits",
    "refuse_engine",
    "refuse_method",
    "saved_row",
    "score_columns",
    "score_names",
    "tasks_here",
    "with_tau",
]

Array = np.ndarray[Any, Any]
Hidden = tuple[int, int]
"""Hidden layers, and units in each."""

Form = tuple[tuple[int, ...], int]
"""Shape of a row, and logits of each row: 1, or K."""

Spread = Callable[[Callable[[int], Any], int, Callable[[int], None]], list[Any]]
"""(task, number, told): returns task(0), task(1), ..., done anywhere; told gets each number."""

# Share of the rows that are held out to choose an epoch or a round.
HELD_OUT = 0.1

# Name -> where its row is. The first is what learns by any method if another cannot.
MODELS = {
    "linear": "unmix.learn.linear",
    "boosting": "unmix.learn.boosting",
    "mlp": "unmix.learn.network_models",
    "resnet32": "unmix.learn.network_models",
}
# What 'auto' tries for tables. Here, and not in their rows: no other model is then imported.
AUTO_MODELS = ("linear", "boosting")
MODULE = "module"  # a torch module of the user's own


class Fit(Protocol):
    """What a fitted model of any kind can do."""

    @property
    def form(self) -> Form | None:
        """The rows it takes and the logits it gives, if it knows."""

    def logits(self, x: Array) -> Array:
        """Return logits, (n,) or (n, K), at the learner's base prior."""

    def facts(self) -> dict[str, Any]:
        """Return what a saved model needs besides the weights, as JSON values."""

    def weights_file(self) -> bytes:
        """Return the weights as a file."""


@dataclass(frozen=True)
class Model:
    """One kind of model: everything that sets it apart from the others."""

    name: str
    fit: Callable[..., Learner]
    """(sets, setup, *, categorical, prior_errors, progress, checkpoint) -> Learner."""
    load: Callable[[dict[str, Any], bytes, Array, ClassShares], Fit]
    """(facts, weights file, base prior, set priors) -> Fit."""
    refuse: Callable[[Method], str | None]
    """Say why it cannot learn by a method; None if it can."""
    view: Literal["matrix", "native"] = "matrix"
    """What it takes of a table: `TableEncoder.matrix` or `TableEncoder.native`."""
    weights_name: str = "weights.safetensors"
    """The file of its weights in a saved model."""
    in_memory: bool = False
    """Whether it needs all rows in memory; others also learn from rows on disk."""
    whole_sets_in_memory: bool = False
    """Whether it needs them there to learn by the counts or shares of whole sets."""
    in_parts: Callable[[SetsInParts, Method, Array], None] | None = None
    """(sets, method, errors of their priors): refuses what rows with workers of an engine cannot
    teach it; None if it needs all rows in one process."""
    tables: bool = True
    """Whether rows may be those of a table."""
    images: bool = False
    """Whether rows may be images."""
    strength: Callable[[UnlabeledSets, Setup], float] | None = None
    """Chooses the strength of its penalty by held-out rows; None if it has no penalty."""
    cheap: bool = False
    """Whether a few more fits, without some of the sets, cost little."""
    checks_priors: bool = False
    """Whether it can ask rows held out about the stated priors while it learns."""
    resamples: int = 0
    """Fits to resampled sets that are made for the model's own error."""
    resamples_at_once: Callable[[UnlabeledSets, Learner, Array], list[Any]] | None = None
    """(sets, learner, how often each set is in each resample (R, m)) -> the fits to resampled sets;
    none by a method for which they must be fitted one by one."""
    unit: str = "rows"
    """What its progress counts."""


@dataclass(frozen=True)
class Setup:
    """How to fit, apart from the rows."""

    model: str | nn.Module
    """A name of `MODELS`, or a torch module."""
    method: str
    """A name of `METHODS`."""
    l2: float | None = None
    """Of the linear model; None: chosen without labels."""
    epochs: int | None = None
    """Of networks, at most; the epoch with the least held-out loss is used. None: the recipe's."""
    hidden: Hidden | None = None
    """Layers and units of the MLP; None: by the size of the table."""
    shift: int | None = None
    """Pixels by which images are moved at random; None: by their size."""
    flip: bool = False
    """Whether images may be mirrored left to right."""
    seed: int = 0

    @property
    def model_name(self) -> str:
        """The model's name; 'module' for the user's own."""
        return self.model if isinstance(self.model, str) else MODULE


@dataclass(frozen=True)
class Learner:
    """A fitted model and the prior at which it states its log-odds."""

    setup: Setup
    fit: Fit
    base_prior: Array
    """(K,): the target prior under label shift, the pooled prior under covariate shift."""
    set_priors: ClassShares
    """As stated, or refined."""
    history: list[dict[str, float]]
    refined: bool = False
    """Whether the set priors were learned along with the model."""
    tau: float = 0.0
    """Standard deviation of the set effect, if the method knows one."""
    noticed_error: float = 0.0
    """How far off rows held out said that the stated priors are; 0 if nobody asked."""
    inside: StandIns = NO_STAND_INS
    """How long slopes are inside sets, by what features say of each other."""
    lone: LogitMove = UNMOVED
    """From the logits of rows of named sets to those of rows whose set nobody names."""

    def logits(self, x: Array) -> Array:
        """Return logits, (n,) or (n, K), at the base prior."""
        logits = self.fit.logits(x)
        if not np.isfinite(logits).all():
            raise InputError(
                "the model gives numbers that are not finite: its weights are too large; fit it "
                "again, with fewer epochs or a stronger penalty"
            )
        return logits

    def resampled_logits(self, x: Array) -> Array:
        """Return those of fits to resampled sets, (R, n) or (R, n, K); R = 0 without such fits."""
        of_fit = getattr(self.fit, "resampled_logits", None)
        classes = self.base_prior.shape if len(self.base_prior) > 2 else ()
        return np.empty((0, len(x), *classes)) if of_fit is None else np.asarray(of_fit(x))


def model_row(model: str | nn.Module) -> Model:
    """Return the row of a model by name, or that of a torch module; say which names there are."""
    if not isinstance(model, str):
        return saved_row(MODULE)
    if model not in MODELS:
        near = nearest(model, MODELS)
        hint = f" (did you mean {near!r}?)" if near else ""
        names = ", ".join(repr(name) for name in MODELS)
        raise InputError(f"model must be 'auto', {names} or a torch module; got {model!r}{hint}")
    rows: Mapping[str, Model] = import_module(MODELS[model]).ROWS
    return rows[model]


def saved_row(name: str) -> Model:
    """Return the row of a model by its name in a saved folder, where a module has one too."""
    if name == MODULE:
        row: Model = import_module(MODELS["mlp"]).ROWS[MODULE]
        return row
    return model_row(name)


def refuse_engine(model: str | nn.Module, said: str = "an engine") -> None:
    """Refuse a model that does not learn from rows with workers of an engine."""
    if isinstance(model, str) and model == "auto":
        return
    row = model_row(model)
    if row.in_parts is None:
        able = [name for name in MODELS if model_row(name).in_parts]
        raise InputError(f"model {row.name} is not available with {said}; use {listed(able)}")


def refuse_method(model: str | nn.Module, method: str) -> None:
    """Raise InputError if a model cannot learn by a method."""
    row, wanted = model_row(model), method_named(method)
    reason = row.refuse(wanted)
    if reason is None:
        return
    able = [name for name, other in METHODS.items() if not (row.refuse(other) or other.labeled)]
    models = [
        name for name in MODELS if model_row(name).refuse(wanted) is None and model_row(name).tables
    ]
    raise InputError(
        f"{row.name} learns by {', '.join(able)} only; use model {' or '.join(models)} with method "
        f"{wanted.name} ({reason})"
    )


def fit_learner(
    sets: UnlabeledSets | ShuffledSets | SetsInParts,
    setup: Setup,
    *,
    check_priors: bool = False,
    **options: Any,
) -> Learner:
    """Fit a model by a method.

    Parameters
    ----------
    sets : UnlabeledSets or ShuffledSets
        `x` as the model takes it: a matrix or images for linear models and networks; for boosting
        with NaN for missing values and codes in the categorical columns, and in memory.
    setup : Setup
    check_priors : bool
        Ask rows held out how far off the stated priors are, and refine them if they are.
    **options
        categorical : sequence of int
            Columns of `x` that hold categories; for models that know them.
        prior_errors : array, shape (m,)
            Standard errors of the set priors.
        progress : function (done, total, text)
            Counts what the model's row says.
        checkpoint : Checkpoint
            Lets linear models and networks resume after an interruption.
        start : Fit
            Of the same kind, to some of these rows: linear models begin where it ended, trees and
            networks are trained as long as it was, on all rows with none held out.
    """
    row = model_row(setup.model)
    refuse_method(setup.model, setup.method)
    if isinstance(sets, UnlabeledSets) and sets.known is not None:
        return _fit_beside_labels(sets, row, setup, check_priors=check_priors, **options)
    rows = sets.part(0) if row.in_memory and not isinstance(sets, SetsInParts) else sets
    # Where errors were stated there is nothing to ask.
    if check_priors and not row.checks_priors and not np.any(options.get("prior_errors")):
        from unmix.learn.prior_check import noticed_error

        asked = rows.taken_as(row.view) if isinstance(rows, SetsInParts) else rows
        error = noticed_error(asked.part(0), setup, row, **options)
        options["prior_errors"] = error or None
        return replace(row.fit(rows, setup, **options), noticed_error=error)
    learner = row.fit(rows, setup, check_priors=check_priors, **options)
    return with_tau(learner, rows.part(0))


def _fit_beside_labels(
    sets: UnlabeledSets,
    row: Model,
    setup: Setup,
    *,
    check_priors: bool = False,
    prior_errors: Any = None,
    **options: Any,
) -> Learner:
    """Fit to sets and to rows of known class, which are sets of one with exact shares."""
    method, joined = method_named(setup.method), sets.with_sets_of_one
    if not method.takes_labels:
        able = ", ".join(name for name, other in METHODS.items() if other.takes_labels)
        raise InputError(
            f"method {method.name} cannot learn from labeled rows beside sets; use {able}, or give "
            "the labels for an audit"
        )
    if check_priors and not np.any(prior_errors):
        raise InputError(
            "prior_error='auto' and labels for training do not go together: give the error as a "
            "number, or the labels for an audit"
        )
    if np.any(prior_errors):
        of_sets = check_errors(prior_errors, sets.num_sets)
        prior_errors = np.concatenate((of_sets, np.zeros(joined.num_sets - sets.num_sets)))
    learner = row.fit(joined, setup, prior_errors=prior_errors, check_priors=False, **options)
    # Of the sets alone: nobody else knows of sets of one.
    refined = learner.set_priors.take(slice(0, sets.num_sets))
    priors = refined if learner.refined else sets.set_priors
    return with_tau(replace(learner, set_priors=priors), sets)


def with_tau(learner: Learner, sets: UnlabeledSets) -> Learner:
    """Return the learner with the size of the set effect in these rows, if its method has one."""
    if not len(sets):  # every row is labeled
        return learner
    risk = method_named(learner.setup.method).risk(sets.transition)
    if not isinstance(risk, SetEffectRisk):
        return learner
    return replace(learner, tau=risk.tau(learner.logits(sets.x), sets.set_index))


def tasks_here(task: Callable[[int], Any], number: int, told: Callable[[int], None]) -> list[Any]:
    """Return task(0), task(1), ..., done in this process one after the other."""
    found = []
    for i in range(number):
        told(i)
        found.append(task(i))
    return found


def move_logits(logits: Array, from_prior: Array, to_prior: Array) -> Array:
    """Move logits from one class prior (K,) to another: a shift, whatever the rows."""
    shift = np.log(np.asarray(to_prior, float)) - np.log(np.asarray(from_prior, float))
    return np.asarray(logits + (shift[1] - shift[0] if logits.ndim == 1 else shift))


def score_names(classes: Array) -> list[str]:
    """Return the names of the columns that scoring adds."""
    if len(classes) == 2:
        return ["probability", "prediction"]
    return [*(f"probability_{name}" for name in classes), "prediction"]


def score_columns(
    kept: pd.DataFrame, probability: Array, classes: Array, threshold: float | None = None
) -> pd.DataFrame:
    """Return columns that are kept with the scores beside them.

    Parameters
    ----------
    kept : DataFrame, n rows
    probability : array, shape (n, K)
    classes : array, shape (K,)
    threshold : float, optional
        Probability from which a row counts as the second of two classes; the more probable class
        is predicted if left out.
    """
    scored = kept.copy()
    columns = probability[:, 1:] if len(classes) == 2 else probability
    for name, values in zip(score_names(classes), columns.T, strict=False):
        scored[name] = values
    decided = probability.argmax(axis=1)
    if threshold is not None:
        decided = (probability[:, 1] >= threshold).astype(int)
    scored["prediction"] = classes[decided]
    return scored
