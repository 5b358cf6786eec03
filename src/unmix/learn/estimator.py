"""`SetClassifier`: how `UnmixClassifier` is fitted; what it then predicts is in `fitted`.

`fit(X, sets)` takes the set of each row where scikit-learn has y. Without set priors the ids are
labels, and this is an ordinary classifier. How good it is, the rooms above this one find out.
Commands use it as it is: scikit-learn, which takes a second to load, comes with `UnmixClassifier`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from unmix.core.class_shares import check_errors, check_prior
from unmix.core.sums_by_set import set_rows
from unmix.data.grouped_priors import GroupedPriors, grouped_priors
from unmix.data.known_rows import label_codes, labels_as_sets
from unmix.data.priors import Priors, is_grouped
from unmix.data.set_columns import UnratedRows, UnratedWarning
from unmix.data.wording import quoted
from unmix.errors import InputError
from unmix.learn.choose import AUTO, choose_setup
from unmix.learn.encoding import TableEncoder
from unmix.learn.fitted import FittedClassifier
from unmix.learn.methods import METHODS
from unmix.learn.models import Learner, Setup, fit_learner, model_row
from unmix.learn.recipes import check_hidden, hidden_for
from unmix.learn.resampling import with_resamples
from unmix.learn.slopes_inside import with_slopes_inside
from unmix.learn.training_rows import (
    ImageEncoder,
    JudgedRows,
    TrainingRows,
    as_rows,
    check_lengths,
)
from unmix.learn.training_summary import TrainingSummary
from unmix.progress import Progress, progress_bar

if TYPE_CHECKING:
    from torch import nn

__all__ = ["NotShownWarning", "SetClassifier", "check_parameters", "seed_of"]

Array = np.ndarray[Any, Any]

MOST_ERROR = 0.5  # no number between 0 and 1 has a larger standard deviation


class NotShownWarning(UserWarning):
    """No method predicts the share of a held-out set better than the average share does."""


class SetClassifier(FittedClassifier):
    """What `UnmixClassifier` learns and predicts; the parameters are described there."""

    audit_: Any = None
    """What labels of a few rows say of the classifier, where there are any."""
    training_labels_: int = 0
    """Labeled rows that were learned from."""
    _effect_seen: bool = False
    """Whether held-out sets differ by more than their rows."""

    def __init__(
        self,
        set_priors: Any = None,
        *,
        target_prior: Any = None,
        method: str = "auto",
        model: str | nn.Module = "auto",
        prior_error: Any = None,
        l2: float | None = None,
        epochs: int | None = None,
        hidden: tuple[int, int] | None = None,
        shift: int | None = None,
        flip: bool = False,
        hide_sets: bool | None = None,
        allow_set_feature: bool = False,
        held_out: float = 0.0,
        keep_split: bool = False,
        engine: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.set_priors = set_priors
        self.target_prior = target_prior
        self.method = method
        self.model = model
        self.prior_error = prior_error
        self.l2 = l2
        self.epochs = epochs
        self.hidden = hidden
        self.shift = shift
        self.flip = flip
        self.hide_sets = hide_sets
        self.allow_set_feature = allow_set_feature
        self.held_out = held_out
        self.keep_split = keep_split
        self.engine = engine
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, sets: Any = None) -> Self:
        """Learn from rows and the set of each row.

        Parameters
        ----------
        X : data frame, array of shape (n, d), or images of shape (n, h, w) or (n, c, h, w)
            Numbers and categories; missing values are allowed. Or `TrainingRows`, which know
            their sets.
        sets : array, shape (n,), or data frame
            The set id of each row; labels if `set_priors` is None. A frame of several columns:
            several groupings of the same rows, whose likelihoods add. `set_priors` then maps each
            column to its shares, and an empty cell says that a row has no set there.
        """
        self._choose_and_learn(X, sets)
        return self

    def _choose_and_learn(
        self, X: Any, sets: Any, labels: Any = None
    ) -> tuple[TrainingRows, JudgedRows]:
        """Fit to the rows to learn from; return these, and those that are held out to judge by.

        Labels are those that training may know.
        """
        check_parameters(self)
        seed = seed_of(self.random_state)
        if isinstance(X, TrainingRows):
            rows, judged = X, JudgedRows(X.x[:0], None)
            as_rows(rows.x, partial(self._validated, reset=True))
        else:
            rows, judged = self._rows(X, sets, seed, labels)
        if rows.images:
            self.n_features_in_ = int(np.prod(rows.x.shape[1:]))
        self._refuse_set_feature(rows, sets)
        self._know_priors(rows)
        rows.refuse_parts(self.model, self.method)
        with self._progress("choosing") as progress:
            setup, held_out = choose_setup(
                rows,
                self.model,
                self.method,
                labeled=self.set_priors is None,
                hide_sets=self.hide_sets,
                seed=seed,
                progress=progress,
                l2=self.l2,
                epochs=self.epochs,
                hidden=self._hidden(rows),
                shift=self.shift,
                flip=self.flip,
            )
        self.leave_sets_out_, self.gains_ = held_out.errors, held_out.gains
        self.held_out_shares_ = held_out.shares
        self._effect_seen = held_out.effect_seen
        self._warn_if_not_shown()
        self._learn(rows, setup)
        return rows, judged

    def fit_again(self, rows: TrainingRows) -> Self:
        """Fit what was chosen once more, to more rows of the same sets, from where the fit ended.

        Nothing is chosen again: linear models begin at their weights, trees and networks are
        trained as long as before.

        Parameters
        ----------
        rows : TrainingRows
            Such as `TrainingRows.everything`.
        """
        self._check_is_fitted()
        self._know_priors(rows)
        before = self.learner_
        self._learn(rows, before.setup, before)
        self.fitted_again_ = True
        return self

    def _know_priors(self, rows: TrainingRows) -> None:
        """Tell the rows how well their shares are known, and where the model will be used."""
        rows.priors = rows.priors.with_errors(self._prior_errors(rows.priors))
        rows.target = self._target(rows.priors, rows.set_sizes)

    def _learn(self, rows: TrainingRows, setup: Setup, before: Learner | None = None) -> None:
        """Fit to rows, from where a learner of some of them ended, if there is one."""
        row, priors = model_row(setup.model), rows.priors
        sampled = rows.sampled(row, METHODS[setup.method])
        doing = "fitting" if before is None else "fitting again"
        label = f"{doing}, {setup.model_name}, {setup.method}"
        errors = self._prior_errors(priors)
        noticed = 0.0 if before is None else before.noticed_error
        with self._progress(label, row.unit) as progress:
            self.learner_ = fit_learner(
                rows.all(row, METHODS[setup.method]),
                setup,
                categorical=rows.encoder.categorical,
                prior_errors=noticed or errors,
                check_priors=self._wants_check() and before is None,
                progress=progress,
                checkpoint=rows.checkpoint,
                start=None if before is None else before.fit,
            )
        if before is not None:  # what only the fit to a part could see
            self.learner_ = replace(self.learner_, history=before.history, noticed_error=noticed)
        if self.set_priors is not None and row.resamples:
            with self._progress("resampling") as progress:
                self.learner_ = with_resamples(
                    rows.in_memory(row),
                    self.learner_,
                    thinned=rows.on_disk is not None and not sampled,
                    seed=setup.seed,
                    progress=progress,
                    spread=rows.spread,
                )
        if self._effect_seen or (before is not None and before.inside.columns):
            self.learner_ = with_slopes_inside(rows, self.learner_)
        if rows.num_labels and not self.learner_.refined:  # what is known of whole sets
            self.learner_ = replace(self.learner_, set_priors=priors.set_priors)
        self.encoder_ = rows.encoder
        self.groupings_ = priors.columns if isinstance(priors, GroupedPriors) else ()
        self.grouping_of_sets_ = priors.set_priors.grouping
        self.classes_ = self._class_names(priors)
        self.set_ids_ = priors.set_ids
        self.stated_priors_ = dict(zip(priors.set_ids, priors.set_priors.as_given, strict=True))
        refined = self.learner_.set_priors.as_given
        self.set_priors_ = dict(zip(priors.set_ids, refined, strict=True))
        self.noticed_error_ = self.learner_.noticed_error
        if self.noticed_error_:
            errors = np.full(len(priors), self.noticed_error_)
        self.prior_errors_ = errors
        self.refined_ = self.learner_.refined
        self.method_, self.model_ = setup.method, setup.model_name
        self.history_ = self.learner_.history
        self.set_sizes_ = rows.set_sizes
        self.target_prior_ = rows.transition.arrays.target
        x = rows.encoded(row)
        self.training_summary_: TrainingSummary | None = TrainingSummary.of(
            rows.x, rows.encoder, lambda kept: self.learner_.logits(x[kept]), self.classes_
        )
        self.sampled_rows_ = len(rows.x) if sampled else 0
        self.fitted_again_, self.training_labels_ = False, rows.num_labels

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the fitted model to a folder, without pickle."""
        from unmix.learn.saved import save_model

        self._check_is_fitted()
        save_model(self, folder, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | Path, *, module: Any = None) -> Self:
        """Read a model that `save` wrote, refusing anything else.

        Parameters
        ----------
        folder : path
        module : class or torch module, optional
            The class of a model that is a torch module of your own, or an instance of it; the
            registered one of that name if left out (`register_module`).
        """
        from unmix.learn.saved import load_model

        return load_model(cls, folder, module=module)

    def _rows(
        self, X: Any, sets: Any, seed: int, labels: Any = None
    ) -> tuple[TrainingRows, JudgedRows]:
        """Return rows in memory, to learn from and to judge by, encoded when a model asks."""
        x = as_rows(X, partial(self._validated, reset=True))
        if labels is not None and len(labels) != len(x):
            raise InputError(f"X has {len(x)} rows and labels has {len(labels)}")
        x, sets, labels = self._rated(x, sets, labels)
        priors, set_index = self._match(sets, len(x))
        known = None if labels is None else label_codes(labels, self._class_names(priors))
        encoded_by = TableEncoder.fit if isinstance(x, pd.DataFrame) else ImageEncoder.fit
        rows, out = TrainingRows.split(x, set_index, priors, encoded_by, self.held_out, seed, known)
        if isinstance(sets, pd.DataFrame | pd.Series):
            of_rows = sets
        else:
            of_rows = pd.Series(pd.Index(priors.set_ids, tupleize_cols=False).take(set_index))
        return rows, JudgedRows(x[out], of_rows[out])

    def _progress(self, label: str, unit: str = "") -> AbstractContextManager[Progress | None]:
        """Return a bar that shows how far long work is, if it was asked for."""
        return progress_bar(label, unit=unit) if self.verbose else nullcontext()

    def _hidden(self, rows: TrainingRows) -> tuple[int, int] | None:
        """Return the hidden layers of the MLP, by all rows and not by those to choose by."""
        if self.hidden is not None:
            return check_hidden(self.hidden, self.model)
        if rows.on_disk is None:
            return None
        return hidden_for(rows.num_rows, len(rows.encoder.feature_names))

    def _warn_if_not_shown(self) -> None:
        """Warn if `auto` found no method better than guessing."""
        gains = self.gains_
        if self.method == AUTO and gains and not any(gain.shown for gain in gains.values()):
            numbers = ", ".join(f"{name} {gain.z:.1f}" for name, gain in gains.items())
            warnings.warn(
                "these sets cannot answer the question: no method predicts the share of a "
                "held-out set clearly better than the average share does (z of the gain: "
                f"{numbers})",
                NotShownWarning,
                stacklevel=4,  # who called `UnmixClassifier.fit`
            )

    def _rated(self, x: Any, sets: Any, labels: Any) -> tuple[Any, Any, Any]:
        """Return the rows whose sets have a rate, and warn if there are others."""
        given = self.set_priors
        if not isinstance(given, Priors) or sets is None or len(sets) != len(x):
            return x, sets, labels
        others = UnratedRows(given)
        rated = others.rated(sets)
        if rated is None:
            return x, sets, labels
        warnings.warn(str(others), UnratedWarning, stacklevel=4)
        known = None if labels is None else pd.Series(labels).to_numpy()[rated]
        return x[rated], np.asarray(sets)[rated], known

    def _match(self, sets: Any, num_rows: int) -> tuple[Priors, Array]:
        """Return the sets that have rows, and the set of each row."""
        if sets is None:
            raise InputError(
                "UnmixClassifier requires y to be passed, but the target y is None: "
                "give the set of each row"
            )
        if self.set_priors is None:
            priors, set_index = labels_as_sets(sets)
        else:
            known = self._stated(sets)
            set_index, used = known.find_sets(sets, unused="drop")
            priors = known.keep(used).resolved(set_rows(set_index, len(used)))
        check_lengths(num_rows, set_index)
        return priors, set_index

    def _stated(self, sets: Any) -> Priors:
        """Return the user's priors: of several groupings if the sets are a frame of them."""
        given = self.set_priors
        if isinstance(given, Priors) or not is_grouped(sets):
            return Priors.of(given)
        columns = list(sets.columns)
        if len(columns) == 1 and columns[0] not in given:
            return Priors.of(given)
        return grouped_priors(given, columns)

    def _refuse_set_feature(self, rows: TrainingRows, sets: Any) -> None:
        """Refuse a feature that names the set, unless that is allowed or sets are labels."""
        if not (self.set_priors is None or self.allow_set_feature):
            names = list(sets.columns) if is_grouped(sets) else [getattr(sets, "name", None)]
            rows.refuse_set_features(names)

    def _class_names(self, priors: Priors) -> Array:
        """Return the names of the classes in the order of the columns of the priors."""
        if self.set_priors is None:
            return np.array(priors.set_ids)
        return np.array([0, 1]) if priors.classes is None else np.array(priors.classes)

    def _wants_check(self) -> bool:
        """Say whether rows held out are asked how far off the stated priors are."""
        return isinstance(self.prior_error, str) and self.prior_error == AUTO

    def _prior_errors(self, priors: Priors) -> Array | None:
        """Return one standard error per set, or None if the priors are exact."""
        error = self.prior_error
        if error is None or self._wants_check():
            return priors.standard_errors
        if isinstance(error, Mapping | pd.Series):
            error = dict(error)
            absent = [i for i in priors.set_ids if i not in error]
            if absent:
                raise InputError(f"prior_error has no entry for set {absent[0]!r}")
            error = [error[i] for i in priors.set_ids]
        return check_errors(error, len(priors), priors.set_ids)

    def _target(self, priors: Priors, sizes: Array) -> Array:
        """Return the target prior to train with (K,): the one asked for, or the pooled prior."""
        if self.target_prior is None:
            return priors.set_priors.pooled(sizes)
        names = self._class_names(priors)
        return check_prior(self._target_value(self.target_prior, names), len(names))


def seed_of(random_state: Any) -> int:
    """Return the seed of a fit: a number as it is, as in the studies; else one is drawn."""
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31))


def check_parameters(given: Any) -> None:
    """Raise InputError, with the name of the argument and the cure, for the first that is wrong.

    Parameters
    ----------
    given : object
        With the arguments as attributes.
    """
    for name, (allowed, cure) in _ALLOWED.items():
        value = getattr(given, name)
        if not allowed(value):
            raise InputError(f"{name} must be {cure}; got {quoted(value)}")


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _or_none(allowed: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or allowed(value)


def _from(least: int) -> Callable[[Any], bool]:
    """Return the check for a whole number of so many or more."""
    return lambda v: (
        isinstance(v, int | np.integer) and not isinstance(v, bool) and bool(v >= least)
    )


_ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "l2": (
        _or_none(lambda v: _is_real(v) and 0 <= v < math.inf),
        "a finite number of 0 or more, or None",
    ),
    "epochs": (_or_none(_from(1)), "a whole number of 1 or more, or None"),
    "shift": (_or_none(_from(0)), "a whole number of 0 or more, or None"),
    "flip": (_is_bool, "True or False"),
    "hide_sets": (_or_none(_is_bool), "True, False or None"),
    "allow_set_feature": (_is_bool, "True or False"),
    "held_out": (lambda v: _is_real(v) and 0 <= v < 1, "a share of the rows from 0 to below 1"),
    "keep_split": (_is_bool, "True or False"),
    "engine": (
        _or_none(lambda v: isinstance(v, str)),
        "'local', 'ray', 'ray://HOST:PORT' or None",
    ),
    "prior_error": (  # errors of the sets one by one are checked with these
        lambda v: not _is_real(v) or 0 <= v <= MOST_ERROR,
        f"a standard error between 0 and {MOST_ERROR}, 'auto' or None",
    ),
}
