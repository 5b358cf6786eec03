"""`SetClassifier`: what `UnmixClassifier` learns and predicts.

`fit(X, sets)` takes the set of each row where scikit-learn has y. Without set priors the ids are
labels, and this is an ordinary classifier. How good it is, the rooms above this one find out.
Commands use it as it is: scikit-learn, which takes a second to load, comes with `UnmixClassifier`.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from unmix.core.assumptions import shares_of_rows
from unmix.core.class_shares import ClassShares, check_errors, check_prior
from unmix.core.groupings import set_rows
from unmix.core.row_losses import set_log_loss
from unmix.core.set_effects import new_set_probability
from unmix.core.transition import Transition
from unmix.core.within_sets import tempered_logits
from unmix.data.arrow_frames import as_frame
from unmix.data.grouped_priors import (
    GroupedPriors,
    find_sets,
    grouped_priors,
    is_grouped,
    with_columns,
)
from unmix.data.known_rows import label_codes
from unmix.data.priors import Priors, UnratedRows, UnratedWarning
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.learn.choose import AUTO, choose_setup
from unmix.learn.encoding import TableEncoder
from unmix.learn.methods import METHODS, Method
from unmix.learn.models import Learner, Setup, fit_learner, model_row, move_logits
from unmix.learn.network_size import check_hidden, hidden_for
from unmix.learn.parameters import check_parameters
from unmix.learn.resampling import with_resamples
from unmix.learn.training_rows import ImageEncoder, JudgedRows, TrainingRows
from unmix.learn.training_summary import TrainingSummary
from unmix.progress import progress_bar

if TYPE_CHECKING:
    from torch import nn

__all__ = ["NotShownWarning", "SetClassifier", "class_probabilities", "seed_of"]

Array = np.ndarray[Any, Any]

POPULATION = 1_000_000  # rows: a share that is as good as exact
PREFILTER_ROWS = 4_096


class NotShownWarning(UserWarning):
    """No method predicts the share of a held-out set better than the average share does."""


class SetClassifier:
    """What `UnmixClassifier` learns and predicts; the parameters are described there."""

    audit_: Any = None
    """What labels of a few rows say of the classifier, where there are any."""
    training_labels_: int = 0
    """Labeled rows that were learned from."""

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
            self._frame(rows.x, reset=True)
        else:
            rows, judged = self._rows(X, sets, seed, labels)
        self._refuse_set_feature(rows, sets)
        self._know_priors(rows)
        model = rows.able(self.model, self.method)
        with progress_bar("choosing", enabled=self.verbose) as progress:
            setup, held_out = choose_setup(
                rows,
                model,
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
        with progress_bar(label, enabled=self.verbose, unit=row.unit) as progress:
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
        if self.set_priors is not None:
            with progress_bar("resampling", enabled=self.verbose) as progress:
                self.learner_ = with_resamples(
                    rows.in_memory(row),
                    self.learner_,
                    thinned=rows.on_disk is not None and not sampled,
                    seed=setup.seed,
                    progress=progress,
                )
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
        """Return logits at the target prior: (n,) for two classes, else (n, K)."""
        self._check_is_fitted()
        return self.logits_at(X, self.target_prior_)

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
        return np.asarray(view(self._frame(X, reset=False)))

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
        set_index, _ = find_sets(sets, priors, unused="keep")
        _check_lengths(len(logits), set_index)
        return self.probabilities_in_sets(logits, set_index, priors)

    @property
    def trust_inside_(self) -> float:
        """How far rows of one set may be told apart once its share is known, from 0 to 1.

        0 where the gain over guessing is not shown: then a row gets the share of its set. Under
        label shift 1; else the share of the differences between sets that the features were shown
        to explain on held-out sets, since slopes learned from differences between sets need not
        be those inside them. 1 where nothing was tested.
        """
        gain = self.gains_.get(self.method_)
        if gain is None:
            return 1.0
        if not gain.shown or self.method_row_.assumption.set_posterior:
            return float(gain.shown)
        return gain.explained(len(self.classes_))

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
        # The share of a set of training may be that of its rows; any other is of a population.
        rows = dict(zip(self.set_ids_, self.set_sizes_, strict=True))
        counted = np.array([rows.get(name, POPULATION) for name in priors.set_ids])
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
        if self.set_priors is None:
            from sklearn.utils.validation import column_or_1d

            sets = column_or_1d(sets, warn=True)
        set_index, set_ids = find_sets(sets, self.priors_of_training(), unused="keep")
        _check_lengths(len(logits), set_index)
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
        x = self._frame(X, reset=True)
        if labels is not None and len(labels) != len(x):
            raise InputError(f"X has {len(x)} rows and labels has {len(labels)}")
        x, sets, labels = self._rated(x, sets, labels)
        priors, set_index = self._match(sets, len(x))
        known = None if labels is None else label_codes(labels, self._class_names(priors))
        encoded_by = TableEncoder.fit if isinstance(x, pd.DataFrame) else ImageEncoder.fit
        rows, out = TrainingRows.split(x, set_index, priors, encoded_by, self.held_out, seed, known)
        of_rows = sets if isinstance(sets, pd.DataFrame | pd.Series) else pd.Series(sets)
        return rows, JudgedRows(x[out], of_rows[out])

    def _frame(self, X: Any, *, reset: bool) -> Any:
        """Return X as a data frame, checked as scikit-learn does, or as an array of images."""
        if not isinstance(X, pd.DataFrame | np.ndarray):
            X = as_frame(X)
        if isinstance(X, pd.DataFrame):
            if reset and X.columns.has_duplicates:
                twice = X.columns[X.columns.duplicated()][0]
                raise InputError(f"column {twice!r} appears twice in X; rename or drop one")
            self._validated(X, reset=reset, skip_check_array=True)
            if len(X) == 0:
                raise InputError("X has 0 sample(s); at least one row is needed")
            return X
        if getattr(X, "ndim", 2) in (3, 4):
            return self._images(np.asarray(X), reset=reset)
        array = self._validated(X, reset=reset, dtype="numeric", ensure_all_finite="allow-nan")
        return pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])], copy=False)

    def _validated(self, X: Any, *, reset: bool, **options: Any) -> Any:
        """Keep the names of the columns; `UnmixClassifier` also checks X as scikit-learn does."""
        if reset:
            self.n_features_in_ = X.shape[1]
            names = list(getattr(X, "columns", ()))
            if names and all(isinstance(name, str) for name in names):
                self.feature_names_in_ = np.array(names, dtype=object)
        return X

    def _check_is_fitted(self) -> None:
        """Raise NotFittedError before `fit`."""
        if not hasattr(self, "learner_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet; call fit first"
            )

    def _images(self, images: Array, *, reset: bool) -> Array:
        """Return images as bytes or float32, or say what is wrong with them."""
        if len(images) == 0 or images.dtype.kind not in "fiub":
            raise InputError(
                f"images must be numbers, at least one of them; got {images.dtype} of shape "
                f"{images.shape}"
            )
        if not np.isfinite(images).all():
            bad = ~np.isfinite(images.reshape(len(images), -1)).all(axis=1)
            raise InputError(f"image {int(bad.argmax())} holds a value that is not finite")
        if reset:
            self.n_features_in_ = int(np.prod(images.shape[1:]))
        # Bytes are pixels and go to [0, 1] when they are used; other numbers stay what they are.
        return images if images.dtype == np.uint8 else images.astype(np.float32)

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
            names, set_index = self._labels(sets)
            priors = _pure_priors(names)
        else:
            known = self._stated(sets)
            set_index, used = find_sets(sets, known, unused="drop")
            priors = known.keep(used).resolved(set_rows(set_index, len(used)))
        _check_lengths(num_rows, set_index)
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
        if self.set_priors is None or self.allow_set_feature or rows.images:
            return
        names = list(sets.columns) if is_grouped(sets) else [getattr(sets, "name", None)]
        columns = rows.set_index[:, None] if rows.set_index.ndim == 1 else rows.set_index
        names += [None] * (columns.shape[1] - len(names))  # rows may know their sets
        for name, column in zip(names, columns.T, strict=True):
            _refuse_set_feature(rows.x, name, np.unique(column, return_inverse=True)[1])

    def _labels(self, sets: Any) -> tuple[Array, Array]:
        """Return the classes and the class of each row, for ids that are labels."""
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import column_or_1d

        values = column_or_1d(sets, warn=True)
        check_classification_targets(values)
        names, codes = np.unique(values, return_inverse=True)
        if len(names) < 2:
            raise InputError(f"the rows have one class, {names[0]}; at least two are needed")
        return names, codes

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

    @staticmethod
    def _target_value(target_prior: Any, classes: Array) -> Any:
        """Return a target prior given as number, array or mapping from class to share."""
        if not isinstance(target_prior, Mapping):
            return target_prior
        names = classes.tolist()
        if set(names) != set(target_prior):
            raise InputError(f"target_prior must give a share for each class: {names}")
        return [float(target_prior[name]) for name in names]


def class_probabilities(logits: Array, tau: float) -> Array:
    """Return the probability of each class (n, K), averaged over a set effect of size tau."""
    if logits.ndim == 2:
        return new_set_probability(logits, tau)
    pair = (new_set_probability(-logits, tau), new_set_probability(logits, tau))
    return np.stack(pair, axis=1)


def seed_of(random_state: Any) -> int:
    """Return the seed of a fit: a number as it is, as in the studies; else one is drawn."""
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31))


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
        return Priors(ids, ClassShares([0.0, 1.0]))
    return Priors(ids, ClassShares(np.eye(len(ids))), ids)


def _refuse_set_feature(frame: pd.DataFrame, name: Hashable, set_index: Array) -> None:
    """Refuse a feature that says no more and no less than which set a row is in."""
    # All the rows of the first few sets: what is not one to one with these is not with all, and
    # only what is need be looked at in every row.
    sizes = np.bincount(set_index)
    first = np.flatnonzero(set_index <= np.searchsorted(sizes.cumsum(), PREFILTER_ROWS))
    few = first[:: -(-len(first) // PREFILTER_ROWS)]
    for place, column in enumerate(frame.columns):
        values = frame.iloc[:, place]
        same = column == name or (
            _one_to_one(values.iloc[few], set_index[few])
            # A column of all different values says nothing about sets of one row each.
            and len(sizes) < len(values)
            and _one_to_one(values, set_index)
        )
        if same:
            raise InputError(
                f"column {column!r} of X names the set, so a model could learn the set and not "
                f"the class; drop it (--drop {column}), or pass allow_set_feature=True"
            )


def _one_to_one(values: pd.Series[Any], set_index: Array) -> bool:
    """Say whether each value goes with one set and each set with one value."""
    codes, found = pd.factorize(values)
    pairs = codes * (int(set_index.max()) + 1) + set_index
    as_many = len(found) == len(np.unique(set_index))
    return bool(as_many and codes.min() >= 0 and len(np.unique(pairs)) == len(found))
