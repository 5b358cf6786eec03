"""`UnmixClassifier`: scikit-learn's face of the package.

`fit(X, sets)` takes the set of each row where scikit-learn has y. Without set priors the ids are
labels, and this is an ordinary classifier.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import nn

from unmix.core.transition import Transition
from unmix.data.priors import Priors, match_sets
from unmix.data.sets import UnlabeledSets
from unmix.data.shuffled import ShuffledSets
from unmix.errors import InputError
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.choosing import BASELINE, choose_setup
from unmix.learn.encoding import TableEncoder
from unmix.learn.learners import fit_learner, move_logits, set_log_loss
from unmix.learn.sizing import check_hidden, hidden_for
from unmix.learn.views import Views, features_for
from unmix.progress import progress_bar

__all__ = ["UnbelievableWarning", "UnmixClassifier"]

Array = np.ndarray[Any, Any]


class UnbelievableWarning(UserWarning):
    """No method predicts the share of a hidden set better than the pooled prior does."""


class UnmixClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier for rows that come in sets whose class shares are known.

    Parameters
    ----------
    set_priors : mapping, pandas Series or Priors, optional
        Set id -> share of positives, or set id -> mapping of each class to its share. None: the
        ids passed to `fit` are labels.
    target_prior : float or mapping, optional
        Class share where the classifier will be used; the pooled prior if left out.
    method : 'auto', 'ssc' or 'proportion'
        'ssc' assumes that p(x | class) is shared by all sets, 'proportion' that p(class | x) is.
        'auto' fits both and takes the one that predicts hidden sets better.
    model : 'auto', 'linear', 'boosting', 'mlp' or a torch module
        'auto' takes the better of linear and boosting on hidden rows.
    prior_error : float or mapping, optional
        Standard error of the set priors, one for all or one per set id: the priors are then
        learned with the model.
    l2 : float, optional
        Strength of the linear model's regularisation; chosen without labels if left out.
    epochs : int
        Passes over the rows for networks, at most.
    hidden : (int, int), optional
        Hidden layers of the MLP and units in each. If left out, the paper's three layers of 300;
        from two million rows on two small ones, which are many times as fast.
    allow_set_feature : bool
        Accept a feature that names the set.
    random_state : int, RandomState or None
    verbose : bool
        Show a progress bar on a terminal.

    Attributes
    ----------
    classes_ : array, shape (K,)
        For shares of positives these are 0 and 1.
    set_priors_ : dict
        Set id -> prior, refined if `prior_error` was given.
    target_prior_ : array, shape (K,)
    method_, model_ : str
        What was used.
    leave_sets_out_ : dict
        Method, and 'baseline', -> error of the predicted share of hidden sets.
    learner_ : Learner
    encoder_ : TableEncoder
    history_ : list of dict
        Learning curve of boosting and networks.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> priors = {"north": 0.8, "south": 0.2}
    >>> sets = np.repeat(list(priors), 500)
    >>> sick = rng.random(1000) < [priors[s] for s in sets]
    >>> X = rng.normal(np.where(sick, 2.0, 0.0))[:, None]
    >>> clf = UnmixClassifier(priors, target_prior=0.5, model="linear", random_state=0)
    >>> bool((clf.fit(X, sets).predict(X) == sick).mean() > 0.8)
    True
    """

    def __init__(
        self,
        set_priors: Any = None,
        *,
        target_prior: Any = None,
        method: str = "auto",
        model: str | nn.Module = "auto",
        prior_error: Any = None,
        l2: float | None = None,
        epochs: int = 30,
        hidden: tuple[int, int] | None = None,
        allow_set_feature: bool = False,
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
        self.allow_set_feature = allow_set_feature
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, sets: Any) -> Self:
        """Learn from rows and the set of each row.

        Parameters
        ----------
        X : data frame or array, shape (n, d)
            Numbers and categories; missing values are allowed.
        sets : array, shape (n,)
            The set id of each row; labels if `set_priors` is None.
        """
        frame = self._frame(X, reset=True)
        priors, set_index = self._match(sets, len(frame))
        self._refuse_set_feature(frame, sets, set_index)
        return self._learn(frame, set_index, priors, TableEncoder.fit(frame))

    def fit_shuffled(
        self,
        sample: pd.DataFrame,
        sample_sets: Any,
        rows: ShuffledSets,
        encoder: TableEncoder,
        checkpoint: Checkpoint | None = None,
    ) -> Self:
        """Learn from rows on disk; boosting, which wants them in memory, from a sample of them.

        Parameters
        ----------
        sample : data frame, shape (n, d)
            A random sample of the rows, as they were before encoding: the model, the method and
            the regularisation are chosen on it.
        sample_sets : array, shape (n,)
            The set id of each row of the sample.
        rows : ShuffledSets
            All rows as `encoder` makes them. Its sets must be those of `set_priors`; its target
            prior is not looked at.
        encoder : TableEncoder
        checkpoint : Checkpoint, optional
            With it a fit that was killed goes on where it was.
        """
        frame = self._frame(sample, reset=True)
        given = self.set_priors
        known = given if isinstance(given, Priors) else Priors.from_mapping(given)
        priors = self.binary_priors(known)
        set_index, _ = match_sets(sample_sets, priors, unused="keep")
        self._refuse_set_feature(frame, sample_sets, np.unique(set_index, return_inverse=True)[1])
        return self._learn(frame, set_index, priors, encoder, rows, checkpoint)

    def _learn(
        self,
        frame: pd.DataFrame,
        set_index: Array,
        priors: Priors,
        encoder: TableEncoder,
        shuffled: ShuffledSets | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Self:
        """Choose a model and a method by rows in memory and fit them, to rows on disk if given."""
        errors = self._prior_errors(priors)
        sizes = np.bincount(set_index, minlength=len(priors))
        target = self._target(priors, sizes if shuffled is None else shuffled.set_sizes)
        self.encoder_ = encoder
        seed = int(check_random_state(self.random_state).randint(2**31))
        hidden = check_hidden(self.hidden, self.model)
        if hidden is None and self.model == "mlp":  # by all rows, not by those to choose by
            rows = len(frame) if shuffled is None else len(shuffled)
            hidden = hidden_for(rows, len(encoder.feature_names))
        views = Views(encoder, frame, set_index, priors, target)
        setup, self.leave_sets_out_ = choose_setup(
            views,
            self.model,
            self.method,
            labeled=self.set_priors is None,
            categorical=encoder.categorical,
            seed=seed,
            l2=self.l2,
            epochs=self.epochs,
            hidden=hidden,
        )
        self._warn_if_unbelievable()
        sets: UnlabeledSets | ShuffledSets = views[setup.model_name]
        if shuffled is not None and setup.model_name != "boosting":
            del views[setup.model_name]  # from here on memory is for the rows on disk
            sets = replace(shuffled, set_priors=priors.set_priors, target_prior=target)
        label = f"{setup.model_name} {setup.method}"
        unit = "" if setup.model_name == "boosting" else "rows"
        with progress_bar(label, enabled=self.verbose, unit=unit) as progress:
            self.learner_ = fit_learner(
                sets,
                setup,
                categorical=encoder.categorical,
                prior_errors=errors,
                progress=progress,
                checkpoint=checkpoint,
            )
        self.classes_ = self._class_names(priors)
        self.set_ids_ = priors.set_ids
        self.stated_priors_ = dict(zip(priors.set_ids, priors.set_priors, strict=True))
        self.set_priors_ = dict(zip(priors.set_ids, self.learner_.set_priors, strict=True))
        self.prior_errors_ = errors
        self.method_, self.model_ = setup.method, setup.model_name
        self.history_ = self.learner_.history
        self.set_sizes_ = sets.set_sizes
        self.target_prior_ = views.transition.target.numpy()
        return self

    def decision_function(self, X: Any) -> Array:
        """Return logits at the target prior: (n,) for two classes, else (n, K)."""
        check_is_fitted(self)
        return self.logits_at(X, self.target_prior_)

    def logits_at(self, X: Any, prior: Array) -> Array:
        """Return logits at a class prior (K,): (n,) for two classes, else (n, K)."""
        check_is_fitted(self)
        frame = self._frame(X, reset=False)
        logits = self.learner_.logits(features_for(self.encoder_, frame, self.model_))
        return move_logits(logits, self.learner_.base_prior, prior)

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class at the target prior, (n, K)."""
        logits = self.decision_function(X)
        if logits.ndim == 1:
            logits = np.stack((np.zeros_like(logits), logits), axis=1)
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> Array:
        """Return the more probable class of each row, (n,)."""
        logits = self.decision_function(X)
        chosen = logits > 0 if logits.ndim == 1 else logits.argmax(axis=1)
        return np.asarray(self.classes_[np.asarray(chosen, dtype=int)])

    def retarget(self, target_prior: Any) -> Self:
        """Move all later predictions to another target prior; nothing is trained again."""
        check_is_fitted(self)
        matrix = np.stack(list(self.set_priors_.values()))
        share = self._target_value(target_prior)
        self.target_prior_ = Transition(matrix, self.set_sizes_, share).target.numpy()
        return self

    def score(self, X: Any, sets: Any, sample_weight: Any = None) -> float:
        """Return minus the mean set log-loss of rows: needs no label, larger is better.

        Parameters
        ----------
        X : data frame or array, shape (n, d)
        sets : array, shape (n,)
        sample_weight : ignored
            Rows weigh the same; here for scikit-learn.
        """
        logits = self.decision_function(X)
        set_ids, set_index = self._sets_to_score(sets, len(logits))
        sizes = np.bincount(set_index, minlength=len(set_ids))
        matrix = np.stack([self.set_priors_[i] for i in set_ids])
        # The weights of these rows, not of the training rows: a fold may miss a set.
        target = self.target_prior_ if matrix.ndim == 2 else float(self.target_prior_[1])
        transition = Transition(matrix, sizes, target, scoring=True)
        return -set_log_loss(logits, transition, set_index)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the fitted model to a folder, without pickle."""
        from unmix.learn.saved import save_model

        check_is_fitted(self)
        save_model(self, folder, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model that `save` wrote, refusing anything else."""
        from unmix.learn.saved import load_model

        return load_model(cls, folder)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what this estimator takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _frame(self, X: Any, *, reset: bool) -> pd.DataFrame:
        """Return X as a data frame, checked as scikit-learn does."""
        if hasattr(X, "__dataframe__") and not isinstance(X, pd.DataFrame):
            X = pd.DataFrame({name: X[name].to_numpy() for name in X.columns})
        if isinstance(X, pd.DataFrame):
            if reset and X.columns.has_duplicates:
                twice = X.columns[X.columns.duplicated()][0]
                raise InputError(f"column {twice!r} appears twice in X; rename or drop one")
            validate_data(self, X, reset=reset, skip_check_array=True)
            if len(X) == 0:
                raise InputError("X has 0 sample(s); at least one row is needed")
            return X
        array = validate_data(self, X, reset=reset, dtype="numeric", ensure_all_finite="allow-nan")
        return pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])])

    def _warn_if_unbelievable(self) -> None:
        """Warn if `auto` found no method better than guessing."""
        errors = self.leave_sets_out_
        if self.method == "auto" and errors and min(errors, key=errors.__getitem__) == BASELINE:
            numbers = ", ".join(f"{name} {error:.3f}" for name, error in errors.items())
            warnings.warn(
                "these sets cannot answer the question: no method predicts the share of a "
                f"hidden set better than the pooled prior does (error: {numbers})",
                UnbelievableWarning,
                stacklevel=4,  # who called fit
            )

    def _match(self, sets: Any, num_rows: int) -> tuple[Priors, Array]:
        """Return the sets that have rows, and the set of each row."""
        if sets is None:
            raise InputError(
                "UnmixClassifier requires y to be passed, but the target y is None: "
                "give the set of each row"
            )
        if self.set_priors is None:
            names, set_index = self._labels(sets)
            priors = _pure_priors(names)
        else:
            given = self.set_priors
            known = given if isinstance(given, Priors) else Priors.from_mapping(given)
            known = self.binary_priors(known)
            set_index, used = match_sets(sets, known, unused="drop")
            priors = known.keep(used)
        _check_lengths(num_rows, set_index)
        return priors, set_index

    def _refuse_set_feature(self, frame: pd.DataFrame, sets: Any, set_index: Array) -> None:
        """Refuse a feature that names the set, unless that is allowed or sets are labels."""
        if self.set_priors is not None and not self.allow_set_feature:
            _refuse_set_feature(frame, sets, set_index)

    @staticmethod
    def binary_priors(priors: Priors) -> Priors:
        """Return two shares per set as the share of the second class; others as they are."""
        if priors.set_priors.ndim == 1 or priors.set_priors.shape[1] != 2:
            return priors
        return replace(priors, set_priors=priors.set_priors[:, 1])

    def _labels(self, sets: Any) -> tuple[Array, Array]:
        """Return the classes and the class of each row, for ids that are labels."""
        values = column_or_1d(sets, warn=True)
        check_classification_targets(values)
        names, codes = np.unique(values, return_inverse=True)
        if len(names) < 2:
            raise InputError(f"the rows have one class, {names[0]}; at least two are needed")
        return names, codes

    def _sets_to_score(self, sets: Any, num_rows: int) -> tuple[tuple[Hashable, ...], Array]:
        """Return the ids of all sets of training, and the set of each row among them."""
        if self.set_priors is None:
            sets = column_or_1d(sets, warn=True)
        stated = Priors(tuple(self.stated_priors_), np.stack([*self.stated_priors_.values()]))
        set_index, set_ids = match_sets(sets, stated, unused="keep")
        _check_lengths(num_rows, set_index)
        return set_ids, set_index

    def _class_names(self, priors: Priors) -> Array:
        """Return the names of the classes in the order of the columns of the priors."""
        if self.set_priors is None:
            return np.array(priors.set_ids)
        return np.array([0, 1]) if priors.classes is None else np.array(priors.classes)

    def _prior_errors(self, priors: Priors) -> Array | None:
        """Return one standard error per set, or None if the priors are exact."""
        error = self.prior_error
        if error is None:
            return priors.standard_errors
        if isinstance(error, Mapping | pd.Series):
            error = dict(error)
            absent = [i for i in priors.set_ids if i not in error]
            if absent:
                raise InputError(f"prior_error has no entry for set {absent[0]!r}")
            return np.array([float(error[i]) for i in priors.set_ids])
        return np.full(len(priors), float(error))

    def _target(self, priors: Priors, sizes: Array) -> Any:
        """Return the target prior to train with: the one asked for, or the pooled prior."""
        if self.target_prior is not None:
            return self._target_value(self.target_prior)
        pooled = np.average(priors.set_priors, axis=0, weights=sizes)
        return float(pooled) if priors.set_priors.ndim == 1 else pooled

    def _target_value(self, target_prior: Any) -> Any:
        """Return a target prior given as number, array or mapping from class to share."""
        if not isinstance(target_prior, Mapping):
            return target_prior
        names = getattr(self, "classes_", None)
        if names is None:
            names = self.set_priors.classes if isinstance(self.set_priors, Priors) else None
        if names is None:
            names = next(iter(self.set_priors.values())).keys()
        absent = [name for name in names if name not in target_prior]
        if absent or len(target_prior) != len(list(names)):
            raise InputError(f"target_prior must give a share for each class: {list(names)}")
        shares = np.array([float(target_prior[name]) for name in names])
        return float(shares[1]) if len(shares) == 2 and abs(shares.sum() - 1) < 1e-6 else shares


def _check_lengths(num_rows: int, set_index: Array) -> None:
    """Refuse sets that do not go row by row with X."""
    if len(set_index) != num_rows:
        raise InputError(
            f"X has {num_rows} rows and sets has {len(set_index)}: inconsistent numbers of samples"
        )


def _pure_priors(names: Array) -> Priors:
    """Return the priors of labels: each set is one class."""
    ids: tuple[Hashable, ...] = tuple(names.tolist())
    if len(ids) == 2:
        return Priors(ids, np.array([0.0, 1.0]))
    return Priors(ids, np.eye(len(ids)), ids)


def _refuse_set_feature(frame: pd.DataFrame, sets: Any, set_index: Array) -> None:
    """Refuse a feature that says no more and no less than which set a row is in."""
    name = getattr(sets, "name", None)
    num_sets = int(set_index.max()) + 1
    for column in frame.columns:
        same = column == name
        if not same:
            codes, values = pd.factorize(frame[column])
            # One to one with the sets: as many pairs (value, set) as values and as sets.
            # A column of all different values says nothing about sets of one row each.
            same = len(values) == num_sets < len(codes) and codes.min() >= 0
            same = same and len(np.unique(codes * num_sets + set_index)) == num_sets
        if same:
            raise InputError(
                f"column {column!r} of X names the set, so a model could learn the set and not "
                f"the class; drop it (--drop {column}), or pass allow_set_feature=True"
            )
