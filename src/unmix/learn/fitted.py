"""`FittedClassifier`: what a classifier predicts and says of itself once it is fitted.

How it is fitted, `estimator` knows; how good it is, the rooms above this one find out.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from unmix.core.assumptions import shares_of_rows
from unmix.core.class_shares import ClassShares, check_prior
from unmix.core.effect_law import new_set_probability
from unmix.core.row_losses import set_log_loss
from unmix.core.sums_by_set import set_rows
from unmix.core.transition import Transition
from unmix.core.within_sets import tempered_logits
from unmix.data.grouped_priors import GroupedPriors, grouped_priors, with_columns
from unmix.data.priors import Priors, is_grouped
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.learn.hidden_sets import Gain
from unmix.learn.methods import METHODS, Method
from unmix.learn.models import Learner, model_row, move_logits
from unmix.learn.training_rows import as_rows, check_lengths

__all__ = ["FittedClassifier", "class_probabilities"]

Array = np.ndarray[Any, Any]

POPULATION = 1_000_000  # rows: a share that is as good as exact


class FittedClassifier:
    """What `UnmixClassifier` predicts, and what is known of it, once it is fitted or loaded."""

    set_priors: Any
    learner_: Learner
    encoder_: Any
    method_: str
    model_: str
    classes_: Array
    set_ids_: tuple[Hashable, ...]
    set_sizes_: Array
    stated_priors_: dict[Hashable, Any]
    prior_errors_: Array | None
    refined_: bool
    target_prior_: Array
    gains_: dict[str, Gain]
    groupings_: tuple[Any, ...]
    grouping_of_sets_: Array | None
    n_features_in_: int
    feature_names_in_: Array

    @property
    def method_row_(self) -> Method:
        """The method that was used, with all that is known of it."""
        self._check_is_fitted()
        return METHODS[self.method_]

    @property
    def shares_(self) -> ClassShares:
        """The stated class shares of the sets of training."""
        stated = np.stack([*self.stated_priors_.values()])
        return ClassShares(stated, self.set_ids_).grouped(self.grouping_of_sets_)

    def priors_of_training(self, *, refined: bool = False) -> Priors:
        """Return the sets of training with their shares, as stated or as the model refined them."""
        shares = self.learner_.set_priors if refined else self.shares_
        known = self.prior_errors_ if refined and not self.refined_ else None
        priors = Priors(self.set_ids_, shares, standard_errors=known, source="the model")
        return with_columns(priors, self.groupings_) if self.groupings_ else priors

    def given_by_grouping(self) -> dict[str, Priors]:
        """Return the priors of the constructor by grouping, of all sets, also those without rows.

        One grouping has no name.
        """
        given = self.set_priors
        if isinstance(given, GroupedPriors):
            return dict(zip(given.columns, given.given, strict=True))
        if self.groupings_:
            by_name = {str(name): of for name, of in given.items()}
            return {name: Priors.of(by_name[name]) for name in self.groupings_}
        return {"": Priors.of(given)}

    def given_priors(self, set_priors: Any, sets: Any) -> Priors:
        """Return the user's priors of these sets, with the classes in the order of the model."""
        if isinstance(set_priors, Priors) or not (self.groupings_ and is_grouped(sets)):
            return self.in_class_order(Priors.of(set_priors))
        return self.in_class_order(grouped_priors(set_priors, list(sets.columns)))

    def decision_function(self, X: Any) -> Array:
        """Return logits of rows of unknown sets at the target prior: (n,), or (n, K) for K."""
        self._check_is_fitted()
        return self.lone_logits(self.learner_.logits(self._view(X)))

    def lone_logits(self, logits: Array) -> Array:
        """Return those of rows of unknown sets, from logits at the learner's base prior.

        Where sets differ by more than their features, differences inside them are smaller than
        the slopes say (`unmix.core.stand_ins`).
        """
        lone = self.learner_.lone(logits)
        return move_logits(lone, self.learner_.base_prior, self.target_prior_)

    def logits_at(self, X: Any, prior: Array) -> Array:
        """Return logits at a class prior (K,): (n,) for two classes, else (n, K)."""
        self._check_is_fitted()
        logits = self.learner_.logits(self._view(X))
        return move_logits(logits, self.learner_.base_prior, prior)

    def resampled_logits(self, X: Any) -> Array:
        """Return logits of fits to resampled sets at the learner's base prior.

        They spread as far as another draw of sets would move the model: (R, n) for two classes,
        else (R, n, K); R is 0 where no such fits were made.
        """
        self._check_is_fitted()
        return self.learner_.resampled_logits(self._view(X))

    def _view(self, X: Any) -> Array:
        """Return rows as the model takes them."""
        view = getattr(self.encoder_, model_row(self.learner_.setup.model).view)
        return np.asarray(view(as_rows(X, partial(self._validated, reset=False))))

    def predict_proba(self, X: Any, sets: Any = None, set_priors: Any = None) -> Array:
        """Return the probability of each class, (n, K).

        Parameters
        ----------
        X : rows, as for `fit`
        sets : array, shape (n,), or data frame, optional
            The set id of each row; for several groupings a frame with some or all of the columns
            of training, whose offsets add and are solved for together. Then a row is taken as one
            of a set whose share is known: under label shift at the prior of its set, else with the
            effect that the share of its set speaks for, and with differences inside the set cut
            down to what held-out sets have shown (`trust_inside_`). If left out, rows are of sets
            that nobody knows, at the target prior.
        set_priors : mapping, Series or Priors, optional
            Shares of these sets, also of sets that were not in training; those of training if left
            out.
        """
        if sets is None:
            return class_probabilities(self.decision_function(X), self.learner_.tau)
        self._check_is_fitted()
        logits = self.logits_at(X, self.learner_.base_prior)
        return self.known_set_proba(logits, sets, set_priors)

    def known_set_proba(self, logits: Array, sets: Any, set_priors: Any = None) -> Array:
        """Do the same for rows of known sets by their logits at the learner's base prior."""
        if set_priors is None:
            priors = self.priors_of_training(refined=True)
        else:
            priors = self.given_priors(set_priors, sets)
        set_index, _ = priors.find_sets(sets, unused="keep")
        check_lengths(len(logits), set_index)
        if set_priors is not None:
            priors = priors.resolved(set_rows(set_index, len(priors)))
        return self.probabilities_in_sets(logits, set_index, priors)

    @property
    def trust_inside_(self) -> float:
        """How far rows of one set may be told apart once its share is known, from 0 to 1.

        0 where the gain over guessing is not shown: then a row gets the share of its set. Under
        label shift 1; else the share of the differences between sets that the features were shown
        to explain on held-out sets, since slopes learned from differences between sets need not
        be those inside them, and no more than features say of each other (`learner_.inside`).
        1 where nothing was tested.
        """
        gain = self.gains_.get(self.method_)
        if gain is None:
            return 1.0
        if not gain.shown or self.method_row_.assumption.set_posterior:
            return float(gain.shown)
        return min(gain.explained(len(self.classes_)), self.learner_.inside.slope)

    def probabilities_in_sets(self, logits: Array, set_index: Array, priors: Priors) -> Array:
        """Return the probability of each class (n, K) of rows in sets with known shares.

        Parameters
        ----------
        logits : array, shape (n,) or (n, K)
            At the learner's base prior.
        set_index : array of integers, shape (n,)
        priors : Priors
            Of these sets.
        """
        trust, shares = self.trust_inside_, priors.set_priors.matrix
        if trust == 0.0:
            return shares_of_rows(set_index, priors.set_priors)
        # The share of a set of training may be that of its rows; any other is of a population,
        # unless it was said to be a count.
        rows = dict(zip(self.set_ids_, self.set_sizes_, strict=True))
        counted = np.array([rows.get(name, POPULATION) for name in priors.set_ids])
        if (said := priors.set_priors.precision) is not None:
            counted = np.where(said.exact, said.counted, counted)
        gain, base = self.gains_.get(self.method_), self.learner_.base_prior
        rule = self.method_row_.assumption.known_set
        tau = (self.learner_.tau or None) if gain is None else gain.tau
        errors = priors.error_variances(set_index, logits.ndim)
        moved = rule(logits, set_index, shares, base, errors, counted=counted, tau=tau)
        return class_probabilities(tempered_logits(moved, set_index, len(shares), trust), 0.0)

    def in_class_order(self, priors: Priors) -> Priors:
        """Return the user's priors with the classes in the order of the model."""
        names = [str(c) for c in self.classes_]
        given = None if priors.classes is None else [str(c) for c in priors.classes]
        if given is None and names == ["0", "1"]:
            return priors
        if given is None or sorted(given) != sorted(names):
            said = "one share per set" if given is None else f"shares of {listed(given)}"
            raise InputError(
                f"{priors.source} gives {said}, and the classes of the model are "
                f"{listed(names, 10)}; give one column of shares for each, with its name"
            )
        matrix = priors.set_priors.matrix[:, [given.index(name) for name in names]]
        shares = ClassShares(matrix, precision=priors.set_priors.precision).of_positives()
        shares = shares.grouped(priors.set_priors.grouping)
        return replace(priors, set_priors=shares, classes=tuple(names))

    def predict(self, X: Any) -> Array:
        """Return the more probable class of each row, (n,)."""
        logits = self.decision_function(X)
        chosen = logits > 0 if logits.ndim == 1 else logits.argmax(axis=1)
        return np.asarray(self.classes_[np.asarray(chosen, dtype=int)])

    def retarget(self, target_prior: Any) -> Self:
        """Move all later predictions to another target prior; nothing is trained again."""
        self._check_is_fitted()
        share = self._target_value(target_prior, self.classes_)
        self.target_prior_ = check_prior(share, len(self.classes_))
        return self

    @staticmethod
    def _target_value(target_prior: Any, classes: Array) -> Any:
        """Return a target prior given as number, array or mapping from class to share."""
        if not isinstance(target_prior, Mapping):
            return target_prior
        names = classes.tolist()
        if set(names) != set(target_prior):
            raise InputError(f"target_prior must give a share for each class: {names}")
        return [float(target_prior[name]) for name in names]

    def score(self, X: Any, sets: Any, sample_weight: Any = None) -> float:
        """Return minus the mean set log-loss of rows: needs no label, larger is better.

        Parameters
        ----------
        X : data frame or array, shape (n, d)
        sets : array, shape (n,)
        sample_weight : ignored
            Rows weigh the same; here for scikit-learn.
        """
        self._check_is_fitted()
        logits = self.logits_at(X, self.target_prior_)
        if self.set_priors is None:
            from sklearn.utils.validation import column_or_1d

            sets = column_or_1d(sets, warn=True)
        set_index, set_ids = self.priors_of_training().find_sets(sets, unused="keep")
        check_lengths(len(logits), set_index)
        sizes = set_rows(set_index, len(set_ids))
        # The weights of these rows, not of the training rows: a fold may miss a set.
        refined = self.learner_.set_priors
        transition = Transition(refined, sizes, self.target_prior_, scoring=True)
        return -set_log_loss(logits, set_index, transition)

    @property
    def coef_(self) -> pd.Series[Any] | pd.DataFrame:
        """Weights of a linear model by column, standardised as `encoder_` does; K columns for K.

        A column of categories has one weight for each of its values.
        """
        weights, names = self._of_fit("weights"), self.encoder_.feature_names
        if weights.ndim == 1:
            return pd.Series(weights, index=names)
        return pd.DataFrame(weights, index=names, columns=self.classes_)

    @property
    def intercept_(self) -> Array:
        """Bias of a linear model: (), or (K,)."""
        return np.asarray(self._of_fit("bias"))

    @property
    def feature_importances_(self) -> pd.Series[Any]:
        """How much each column reduced the loss of a boosted model, summing to one."""
        gain = np.asarray(self._of_fit("booster").feature_importance("gain"), dtype=float)
        return pd.Series(gain / max(gain.sum(), 1e-300), index=self.encoder_.columns)

    def _of_fit(self, name: str) -> Any:
        """Return a part of the fitted model, or say that this kind of model has none."""
        self._check_is_fitted()
        if not hasattr(self.learner_.fit, name):
            raise AttributeError(f"a model of kind {self.model_} has no {name}")
        return getattr(self.learner_.fit, name)

    def _validated(self, X: Any, *, reset: bool, **options: Any) -> Any:
        """Keep the names of the columns; `UnmixClassifier` also checks X as scikit-learn does."""
        if reset:
            self.n_features_in_ = X.shape[1]
            names = list(getattr(X, "columns", ()))
            if names and all(isinstance(name, str) for name in names):
                self.feature_names_in_ = np.array(names, dtype=object)
        return X

    if not TYPE_CHECKING:  # which would take every name for one of ours

        def __getattr__(self, name: str) -> Any:
            """Say of what only `fit` makes that there was none yet."""
            if name.endswith("_") and not name.startswith("_"):
                self._check_is_fitted()
            return object.__getattribute__(self, name)  # and its own reason, if it has one

    def _check_is_fitted(self) -> None:
        """Raise NotFittedError before `fit`."""
        if "learner_" not in vars(self):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet; call fit first"
            )


def class_probabilities(logits: Array, tau: float) -> Array:
    """Return the probability of each class (n, K), averaged over a set effect of size tau."""
    if logits.ndim == 2:
        return new_set_probability(logits, tau)
    pair = (new_set_probability(-logits, tau), new_set_probability(logits, tau))
    return np.stack(pair, axis=1)
