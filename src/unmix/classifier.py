"""`UnmixClassifier`: all that a user holds, in scikit-learn's manner.

Learning is below it, judging and reporting above.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import validate_data

from unmix.errors import InputError
from unmix.learn.estimator import SetClassifier, check_parameters, seed_of

if TYPE_CHECKING:
    import pandas as pd

    from unmix.assess.diagnose import Diagnosis
    from unmix.assess.drift import Drift
    from unmix.assess.evaluate import Evaluation
    from unmix.assess.judge import Judgement
    from unmix.assess.prevalence import Prevalence
    from unmix.learn.training_rows import JudgedRows, TrainingRows

__all__ = ["UnmixClassifier"]

LABELS_FOR = ("audit", "training")


class UnmixClassifier(SetClassifier, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier for rows that come in sets whose class shares are known.

    Parameters
    ----------
    set_priors : mapping, pandas Series or Priors, optional
        Set id -> share of positives, or set id -> mapping of each class to its share. None: the
        ids passed to `fit` are labels.
    target_prior : float or mapping, optional
        Class share where the classifier will be used; the average share if left out.
    method : str
        'auto', or a row of `METHODS`: 'ssc' and most others assume that p(x | class) is shared by
        all sets; 'proportion' and 'llp-vat' that p(class | x) is, 'set-effects' up to an effect
        of each set. 'auto' tries 'ssc',
        'set-effects' and, for small sets with exact counts, 'count', and takes the one that
        predicts held-out sets better.
    model : 'auto', 'linear', 'boosting', 'mlp', 'resnet32' or a torch module
        'auto' takes the better of linear and boosting on held-out rows; for images the paper's
        networks, 'mlp' for grey ones and 'resnet32' for those with channels.
    prior_error : float, mapping or 'auto', optional
        Standard error of the set priors, one for all or one per set id: the priors are then
        estimated along with the model, if the method can. 'auto': it is estimated from held-out
        rows.
    l2 : float, optional
        Strength of the linear model's regularisation; chosen without labels if left out.
    epochs : int, optional
        Passes over the rows for networks, at most; 30 for tables and the recipe's for images.
    hidden : (int, int), optional
        Hidden layers of the MLP and units in each. If left out, the paper's three layers of 300;
        from two million rows on two small ones, which are many times as fast.
    shift : int, optional
        Pixels by which images are moved at random while a network learns; by their size if left
        out, 0 for not at all.
    flip : bool
        Whether images may be mirrored left to right.
    hide_sets : bool, optional
        Hold sets out in turn and predict their shares, which shows whether the model beats
        guessing the average share. If left out, only where the method is to be chosen or the
        model is linear: it takes about five more fits.
    allow_set_feature : bool
        Accept a feature that names the set.
    held_out : float
        Share of the rows of each set that `fit` holds out to judge by (`judgement_`). The model is
        then fitted again to all rows. Needed only for what held-out rows say: methods, models and
        strengths are chosen by sets that are hidden in turn, whatever this is.
    keep_split : bool
        Keep the model that was judged, without the rows held out.
    engine : str, optional
        'local', 'ray' or 'ray://HOST:PORT': `fit` then takes Parquet files and the name of the set
        column, and workers read the files and send sums. For linear models.
    random_state : int, RandomState or None
    verbose : bool
        Show a progress bar for each phase of `fit` on a terminal.

    Attributes
    ----------
    classes_ : array, shape (K,)
        For shares of positives these are 0 and 1.
    set_priors_ : dict
        Set id -> prior, as estimated if `refined_`.
    refined_ : bool
        Whether the set priors were estimated along with the model.
    noticed_error_ : float
        How far off the stated priors are, if `prior_error` is 'auto'; 0 if they are right.
    target_prior_ : array, shape (K,)
    method_, model_ : str
        What was used.
    gains_ : dict
        Method -> its gain over guessing the average share, on held-out sets.
    leave_sets_out_ : dict
        Method, and 'baseline', -> RMS error of the predicted share of held-out sets.
    held_out_shares_ : HeldOutShares or None
        What was predicted for sets while these were hidden.
    learner_ : Learner
    encoder_ : TableEncoder or ImageEncoder
    training_summary_ : TrainingSummary
        Distributions of the columns and scores of training, which `drift` compares with.
    history_ : list of dict
        Learning curve of boosting and networks.
    judgement_ : Judgement or None
        What the rows say that `fit` held out, of the model that did not see them; not kept in a
        saved model.
    fitted_again_ : bool
        Whether the model learned from the rows held out as well, after it was judged.
    sampled_rows_ : int
        Rows of the random sample that the model learned from where a table is too large for memory
        and the model needs it there; 0 if it learned from all rows.
    training_labels_ : int
        Labeled rows that were learned from.
    audit_ : LabelAudit or None
        What the labels say that `fit` was given; not kept in a saved model.

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

    def fit(self, X: Any, sets: Any = None, labels: Any = None, labels_for: str = "audit") -> Self:
        """Learn from rows and the set of each row; audit by labels, or learn from them too.

        Parameters
        ----------
        X : data frame, array of shape (n, d), or images of shape (n, h, w) or (n, c, h, w)
            Numbers and categories; missing values are allowed. With an `engine` files, a folder or
            a glob.
        sets : array, shape (n,), or data frame
            The set id of each row; labels if `set_priors` is None. A frame of several columns:
            several groupings of the same rows, whose likelihoods add. `set_priors` then maps each
            column to its shares, and an empty cell says that a row has no set there. With an
            `engine` the name of the column, or names.
        labels : array, shape (n,), optional
            Classes of a few rows, None or nan for all others.
        labels_for : 'audit' or 'training'
            'audit': nothing is trained or chosen by the labels, and `audit_` says what they say of
            the model. 'training': these rows are taken out of their sets, whose counts become so
            much lower, and are learned from as sets of one (`training_labels_`). They are then no
            audit.
        """
        if labels_for not in LABELS_FOR:
            raise InputError(f"labels_for must be 'audit' or 'training'; got {labels_for!r}")
        if labels is not None and self.set_priors is None:
            raise InputError("without set_priors the sets are labels, and no others are needed")
        learned = labels if labels_for == "training" else None
        self.judgement_ = None
        if self.engine is None:
            rows, judged = self._choose_and_learn(X, sets, learned)
        else:
            rows, judged = self._learn_from_files(X, sets, labels)
        self.audit_ = None
        if labels is not None and learned is None:
            from unmix.assess.judge import audit_classifier

            self.audit_ = audit_classifier(self, X, sets, labels)
        if len(judged.x):
            from unmix.assess.judge import judge_logits

            again = None if self.keep_split else rows.everything
            number = 0 if again is None else again.num_rows
            with self._progress("judging"):
                logits = judged.logits(self)
                self.judgement_ = judge_logits(self, logits, judged.sets, then_fitted_to=number)
            if again is not None:
                self.fit_again(again)
        return self

    def _learn_from_files(self, X: Any, sets: Any, labels: Any) -> tuple[TrainingRows, JudgedRows]:
        """Fit to files that an engine works on; return the rows at hand, and those to judge by."""
        from unmix.engines.file_rows import rows_of_files

        if labels is not None:
            raise InputError("labels audit rows in memory; with files use `unmix fit --labels`")
        check_parameters(self)
        options = {"held_out": self.held_out, "verbose": self.verbose}
        options["seed"] = seed_of(self.random_state)
        with rows_of_files(str(self.engine), X, sets, self.set_priors, **options) as found:
            rows, _ = self._choose_and_learn(found[0], None)
            return rows, found[1].scored(self)  # while there are workers

    def evaluate(
        self, X: Any, sets: Any, *, set_priors: Any = None, labels: Any = None
    ) -> Evaluation:
        """Say how good the classifier is on rows it was not trained on, without labels.

        Parameters
        ----------
        X : rows, as for `predict`
        sets : array, shape (n,)
            The set id of each row.
        set_priors : mapping, Series or Priors, optional
            Of these sets; those of training if left out.
        labels : array, shape (n,), optional
            Classes of the rows, if you have them: for comparison only.
        """
        from unmix.assess.judge import evaluate_classifier
        from unmix.data.priors import Priors

        priors = None if set_priors is None else Priors.of(set_priors)
        return evaluate_classifier(self, X, sets, priors=priors, labels=labels)

    def prevalence(
        self,
        X: Any,
        sets: Any = None,
        *,
        by: Any = None,
        set_priors: Any = None,
        confidence: float = 0.95,
    ) -> Prevalence:
        """Estimate the class shares of sets that nobody stated, or of groups of rows.

        Parameters
        ----------
        X : rows, as for `predict`
        sets : array, shape (n,), optional
            The set id of each row. Without it all rows are taken as one new set.
        by : array or frame, or the name of a column of X, optional
            What the groups are by, such as age or region. Groups may cross the sets. Rows of sets
            whose shares are known, those of training or of `set_priors`, are told by them.
        set_priors : mapping, Series or Priors, optional
            Shares of these sets, if they are newer than those of training.
        confidence : float
            Coverage that the intervals aim at.
        """
        from unmix.assess.predicted_shares import prevalence_of

        return prevalence_of(self, X, sets, by=by, set_priors=set_priors, confidence=confidence)

    def export(
        self,
        path: str | Path,
        *,
        table: str = "rows",
        keep: Sequence[str] = (),
        dialect: str = "duckdb",
    ) -> Path:
        """Write the model for use without unmix, and return the path.

        Parameters
        ----------
        path : path
            model.onnx: linear, boosting and mlp models as an ONNX file, which takes the columns of
            a table and gives classes and probabilities. model.sql: linear models as a SELECT.
        table, keep, dialect
            Of SQL: the table, columns that stand before the scores, and 'duckdb', 'postgres',
            'sqlite' or 'bigquery'.
        """
        from unmix.deploy.export_model import export_model

        return export_model(self, path, table=table, keep=keep, dialect=dialect)

    def drift(self, X: Any) -> Drift | None:
        """Say how rows differ from those of training, in their columns and in their scores.

        Parameters
        ----------
        X : rows, as for `predict`

        Returns
        -------
        Drift or None
            With `sentences`, `differs` and the population stability index of each column; None
            for a model that was saved by a version that kept no summary of training.
        """
        from unmix.assess.drift import drift_of

        return drift_of(self, X)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what this estimator takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.three_d_array = True
        return tags

    def _validated(self, X: Any, *, reset: bool, **options: Any) -> Any:
        """Check X as scikit-learn does, and keep the names of its columns."""
        return validate_data(self, X, reset=reset, **options)

    def diagnose(self) -> Diagnosis:
        """Say what to expect, given the shares and sizes of the training sets."""
        from unmix.assess.judge import diagnose_classifier

        return diagnose_classifier(self)

    def judge(self, X: Any = None, sets: Any = None, *, labels: Any = None) -> Judgement:
        """Say everything there is to say about the classifier, in one value.

        Parameters
        ----------
        X, sets : rows that were not trained on and their set ids, optional
            If left out, `judgement_`, if `fit` held rows out.
        labels : array, shape (n,), optional
        """
        from unmix.assess.judge import judge

        found: Judgement | None = getattr(self, "judgement_", None)
        if X is None and found is not None:
            return found
        return judge(self, X, sets, labels=labels)

    def report(
        self,
        path: str | Path,
        X: Any = None,
        sets: Any = None,
        *,
        labels: Any = None,
        figures: str | Path | None = None,
        figure_format: str = "svg",
    ) -> Path:
        """Write a report as one HTML file that needs nothing else, and return its path.

        Parameters
        ----------
        path : path
            Of the file.
        X, sets, labels
            As for `judge`.
        figures : path, optional
            A folder to which the pictures are written as well.
        figure_format : 'svg', 'png' or 'pdf'
        """
        from unmix.files import atomic_write_text
        from unmix.report.figure_files import write_figures
        from unmix.report.page import render_report

        page, judgement = Path(path), self.judge(X, sets, labels=labels)
        if figures is not None:
            write_figures(judgement, figures, figure_format)
        atomic_write_text(page, render_report(judgement))
        return page

    def summary(self, X: Any = None, sets: Any = None, *, labels: Any = None) -> str:
        """Return the answer, the reasons and the largest effects in a few lines of text.

        Parameters
        ----------
        X, sets, labels
            As for `judge`.
        """
        from unmix.report.answer_text import summary_text

        return summary_text(self.judge(X, sets, labels=labels))

    def coef_interval(self, confidence: float = 0.95) -> pd.DataFrame:
        """Return the weights of a linear model with intervals from fits to resampled sets.

        Parameters
        ----------
        confidence : float

        Returns
        -------
        DataFrame
            Columns value, low and high; a row for each feature, or for each of K classes and
            feature. Numbers count in standard deviations. The ends are nan for fewer than six sets.
        """
        from unmix.assess.effects import coefficient_intervals

        return coefficient_intervals(self, confidence)

    def plot_shares(
        self, X: Any = None, sets: Any = None, *, class_name: Any = None, ax: Any = None
    ) -> Any:
        """Draw stated against predicted shares of the sets, and return the figure.

        Parameters
        ----------
        X, sets : rows that were not trained on and their set ids, optional
            If left out, the shares are drawn that were predicted for sets while these were hidden.
        class_name : optional
            One of `classes_`; the positive or last one if left out.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if left out.

        Returns
        -------
        matplotlib Figure
        """
        from unmix.report.fitted_plots import shares_plot

        return shares_plot(self, None if X is None else self.judge(X, sets), class_name, ax)

    def plot_roc(self, X: Any, sets: Any, *, labels: Any = None, ax: Any = None) -> Any:
        """Draw the ROC curve that needs no label, and return the figure.

        Refused where label shift is not assumed, was rejected or could not be tested.

        Parameters
        ----------
        X, sets, labels
            As for `judge`.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if left out.

        Returns
        -------
        matplotlib Figure
        """
        from unmix.report.fitted_plots import roc_plot

        return roc_plot(self.judge(X, sets, labels=labels), ax)

    def plot_gain(self, *, ax: Any = None) -> Any:
        """Draw the gain over guessing of every method on held-out sets, and return the figure."""
        from unmix.report.fitted_plots import gain_plot

        return gain_plot(self, ax)

    def plot_history(self, *, ax: Any = None) -> Any:
        """Draw the learning curve of boosting or a network, and return the figure."""
        from unmix.report.fitted_plots import history_plot

        return history_plot(self, ax)

    def save(
        self, folder: str | Path, *, overwrite: bool = False, judgement: Judgement | None = None
    ) -> None:
        """Write the fitted model to a folder, without pickle, with a model card `README.md`.

        Parameters
        ----------
        folder : path
        overwrite : bool
            Replace a model that is there.
        judgement : Judgement, optional
            What `judge` found on held-out rows, for the card; without it the card says what
            training alone has shown.
        """
        from sklearn.utils.validation import check_is_fitted

        from unmix.learn.saved import save_model
        from unmix.report.model_card import model_card

        check_is_fitted(self)
        card = model_card(self, self.judge() if judgement is None else judgement)
        save_model(self, folder, overwrite=overwrite, card=card)
