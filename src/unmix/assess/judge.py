"""Everything there is to say about a fitted classifier, in one value: what a report shows.

Puts together what training left behind and what held-out rows say; computes no statistic itself.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unmix.assess.audit import LabelAudit, audit_labels
from unmix.assess.class_gains import class_gains
from unmix.assess.diagnose import Diagnosis, diagnose
from unmix.assess.diagnose_groupings import diagnose_groupings
from unmix.assess.effects import Effect, effects_of
from unmix.assess.estimates import Share, frozen_share, largest_classes, plain
from unmix.assess.evaluate import Evaluation, evaluate
from unmix.assess.evaluate_groupings import join_evaluations
from unmix.assess.histograms import ClassHistograms, class_histograms
from unmix.assess.model_based import ModelBased, model_based
from unmix.assess.sentences import rates_hold, summarise
from unmix.core.assumptions import Assumption, shares_of_rows
from unmix.core.class_shares import as_stated
from unmix.core.sums_by_set import row_copies, set_rows
from unmix.data.grouped_priors import GroupedPriors
from unmix.data.known_rows import label_codes
from unmix.data.priors import Priors
from unmix.errors import IdentifiabilityError, InputError
from unmix.learn.estimator import SetClassifier
from unmix.learn.fitted import class_probabilities
from unmix.learn.hidden_sets import Gain
from unmix.learn.models import move_logits

__all__ = [
    "Judgement",
    "audit_classifier",
    "audit_logits",
    "diagnose_classifier",
    "evaluate_classifier",
    "evaluate_logits",
    "judge",
    "judge_logits",
]

Array = np.ndarray[Any, Any]
MOST_CLASSES = 6  # with histograms of their own: those that are most common


@dataclass(frozen=True)
class Judgement:
    """What was learned, how good it is, and whether it can be trusted.

    Attributes
    ----------
    sentences : tuple of str
        The answer in at most five plain sentences.
    believable : bool
        False if the sets cannot answer the question or the assumption of the numbers fails.
    method, model : str
    classes : tuple of str
    target_prior : float or tuple of K floats
    leave_sets_out : dict
        Method, and 'baseline', -> RMS error of the predicted share of held-out sets; may be empty.
    gains : dict
        Method -> its gain over guessing on held-out sets; may be empty.
    class_gains : tuple of Gain
        Of more than two classes, the gain of each against the rest; may be empty.
    set_ids : tuple of str
    stated_priors, refined_priors : tuple
        One per set; the same if they were not estimated along with the model.
    prior_errors : tuple of float or None
        Stated standard errors of the set priors.
    refined : bool
        Whether the set priors were estimated along with the model.
    method_about : str
        What the method does, in a few words.
    assumption : Assumption
        What the method assumes that sets share.
    diagnosis : Diagnosis
    evaluation : Evaluation or None
        None if no rows were held out, or too few to tell the classes apart.
    histograms : tuple of ClassHistograms
        Of the positive class, or of each of at most six of K classes.
    effects : tuple of Effect
        Weights of a linear model, importances of a boosted one; may be empty.
    history : tuple of dict
        Learning curve of boosting and networks; may be empty.
    audit : LabelAudit or None
        What a few labels say that nothing was trained on.
    training_labels : int
        Labeled rows that were trained on.
    """

    sentences: tuple[str, ...]
    believable: bool
    method: str
    model: str
    classes: tuple[str, ...]
    target_prior: Share
    leave_sets_out: dict[str, float]
    gains: dict[str, Gain]
    class_gains: tuple[Gain, ...]
    set_ids: tuple[str, ...]
    stated_priors: tuple[Share, ...]
    refined_priors: tuple[Share, ...]
    prior_errors: tuple[float, ...] | None
    refined: bool
    method_about: str
    assumption: Assumption
    diagnosis: Diagnosis
    evaluation: Evaluation | None
    histograms: tuple[ClassHistograms, ...]
    effects: tuple[Effect, ...]
    history: tuple[dict[str, float], ...]
    audit: LabelAudit | None = None
    training_labels: int = 0

    @property
    def rates_hold(self) -> bool:
        """Whether accuracy, AUC and rates may be shown that assume label shift."""
        gain = self.gains.get(self.method)
        return self.evaluation is not None and rates_hold(self.assumption, self.evaluation, gain)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        values: dict[str, Any] = plain(replace(self, assumption=self.assumption.name))  # type: ignore[arg-type]
        return values


def evaluate_classifier(
    clf: SetClassifier, X: Any, sets: Any, *, priors: Priors | None = None, labels: Any = None
) -> Evaluation:
    """Evaluate a fitted classifier on rows it was not trained on, without labels.

    Parameters
    ----------
    clf : UnmixClassifier
    X : data frame or array, shape (n, d)
    sets : array, shape (n,)
        Set ids.
    priors : Priors, optional
        Of these sets; those of training if left out.
    labels : array, shape (n,), optional
        Classes of the rows, if the user has them: for comparison only.
    """
    logits = clf.logits_at(X, clf.learner_.base_prior)
    return evaluate_logits(clf, logits, sets, priors=priors, labels=labels)


def evaluate_logits(
    clf: SetClassifier,
    logits: Array,
    sets: Any,
    *,
    priors: Priors | None = None,
    labels: Any = None,
) -> Evaluation:
    """Do the same by the logits of the rows at the learner's base prior."""
    priors = clf.priors_of_training() if priors is None else clf.in_class_order(priors)
    set_index, used = priors.find_sets(sets, unused="drop")
    priors = priors.keep(used).without_index()
    if priors.statement is not None:  # counts whose total is the rows of their set are exact
        priors = priors.resolved(set_rows(set_index, len(used)))
    return _evaluate(clf, logits, set_index, priors, labels)


def _evaluate(
    clf: SetClassifier, at_base: Array, set_index: Array, priors: Priors, labels: Any
) -> Evaluation:
    """Evaluate a classifier by logits of rows at its base prior, whose sets were found."""
    if len(set_index) != len(at_base):
        raise InputError(f"X has {len(at_base)} rows and sets has {len(set_index)}")
    if isinstance(priors, GroupedPriors):
        return _evaluate_groupings(clf, at_base, set_index, priors, labels)
    used, base = priors.set_ids, clf.learner_.base_prior
    logits = clf.lone_logits(at_base)
    errors = priors.standard_errors
    if errors is None and clf.prior_errors_ is not None:
        known_errors = dict(zip(clf.set_ids_, clf.prior_errors_, strict=True))
        errors = np.array([known_errors.get(i, 0.0) for i in used])
    result = evaluate(
        logits,
        set_index,
        priors.set_priors,
        _target(clf),
        set_ids=[str(i) for i in used],
        prior_errors=errors,
        labels=None if labels is None else _label_codes(clf, labels),
    )
    result = replace(result, model_based=_model_based(clf, at_base, set_index, priors, labels))
    assumption = clf.method_row_.assumption
    if assumption.at_target:
        return result
    # Probabilities hold as they were learned, at no target prior.
    shares = assumption.set_shares(at_base, set_index, len(used), base)
    means = as_stated(shares)
    return replace(result, calibration=result.calibration.with_column("mean_share", means))


def _evaluate_groupings(
    clf: SetClassifier, logits: Array, set_index: Array, priors: GroupedPriors, labels: Any
) -> Evaluation:
    """Evaluate a classifier by each grouping of the rows, and put the evaluations together."""
    found, columns = [], []
    for g, name in enumerate(priors.columns):
        rows = np.flatnonzero(set_index[:, g] >= 0)
        if not len(rows):
            continue
        present, index = np.unique(set_index[rows, g], return_inverse=True)
        shares = priors.set_priors.take(present).grouped(None)
        errors = priors.standard_errors
        ids = tuple(priors.set_ids[j] for j in present)
        with suppress(IdentifiabilityError):  # another grouping may tell the classes apart
            own = Priors(
                ids, shares, priors.classes, None if errors is None else errors[present], name
            )
            of_rows = None if labels is None else np.asarray(labels)[rows]
            found.append(_evaluate(clf, logits[rows], index, own, of_rows))
            columns.append(name)
    if not found:
        raise IdentifiabilityError("the sets of no grouping tell the classes apart")
    joined = join_evaluations(found, columns)
    return replace(joined, model_based=_model_based(clf, logits, set_index, priors, labels))


def _model_based(
    clf: SetClassifier, logits: Array, set_index: Array, priors: Priors, labels: Any
) -> ModelBased:
    """Put what the model promises of these rows beside the rivals that use no features."""
    base, assumption = clf.learner_.base_prior, clf.method_row_.assumption

    def in_new_sets() -> Array:
        lone = clf.learner_.lone(logits)
        if assumption.at_target:
            # Rivals know the share of these rows, so that the model is told it too.
            lone = move_logits(lone, base, of_sets().mean(axis=0))
        return class_probabilities(lone, clf.learner_.tau)

    def in_known_sets() -> Array:
        return clf.probabilities_in_sets(logits, set_index, priors)

    def of_sets() -> Array:
        return shares_of_rows(set_index, priors.set_priors)

    codes = None if labels is None else _label_codes(clf, labels)
    return model_based(in_new_sets, in_known_sets, of_sets, codes)


def audit_classifier(clf: SetClassifier, X: Any, sets: Any, labels: Any) -> LabelAudit:
    """Audit a fitted classifier by the rows that have a label.

    Parameters
    ----------
    clf : UnmixClassifier
    X, sets : rows, and their sets as for `fit`
        All rows, also those without a label: what a set adds to its rows is told by all of them.
    labels : array, shape (n,)
        The class of each row; None, nan or an empty text where it is not known.
    """
    return audit_logits(clf, clf.logits_at(X, clf.learner_.base_prior), sets, labels)


def audit_logits(clf: SetClassifier, logits: Array, sets: Any, labels: Any) -> LabelAudit:
    """Do the same by the logits of the rows at the learner's base prior."""
    codes = label_codes(labels, clf.classes_)
    if len(codes) != len(logits):
        raise InputError(f"X has {len(logits)} rows and labels has {len(codes)}")
    rows = np.flatnonzero(codes >= 0)
    if len(rows) < 2:
        raise InputError(
            f"{len(rows)} of {len(codes):,} rows have a label; label at least 2, or leave labels "
            "out"
        )
    priors = clf.priors_of_training(refined=True)
    set_index, _ = priors.find_sets(sets, unused="keep")
    known = clf.probabilities_in_sets(logits, set_index, priors)
    by_share = shares_of_rows(set_index, priors.set_priors)
    return audit_labels(known[rows], by_share[rows], codes[rows])


def diagnose_classifier(clf: SetClassifier) -> Diagnosis:
    """Diagnose the sets that a classifier was trained on."""
    about: dict[str, Any] = {
        "set_ids": [str(i) for i in clf.set_ids_],
        "prior_errors": clf.prior_errors_,
        "target_prior": clf.target_prior_,
    }
    if clf.groupings_:
        return diagnose_groupings(clf.shares_, clf.set_sizes_, clf.groupings_, **about)
    return diagnose(clf.shares_, clf.set_sizes_, **about)


def judge(
    clf: SetClassifier,
    X: Any = None,
    sets: Any = None,
    *,
    priors: Priors | None = None,
    labels: Any = None,
    then_fitted_to: int = 0,
) -> Judgement:
    """Judge a fitted classifier by its training and, if given, by held-out rows of its sets.

    Parameters
    ----------
    clf : UnmixClassifier
    X, sets : rows that were not trained on and their set ids, optional
    priors : Priors, optional
        Of these sets; those of training if left out.
    labels : array, shape (n,), optional
    then_fitted_to : int
        Rows to which the model will be fitted again once it is judged; 0 if it stays as it is.

    Examples
    --------
    >>> from unmix import UnmixClassifier
    >>> rng = np.random.default_rng(0)
    >>> priors = {"north": 0.8, "south": 0.3, "east": 0.5, "west": 0.1}
    >>> sets = np.repeat(list(priors), 500)
    >>> sick = rng.random(2000) < [priors[s] for s in sets]
    >>> rows = rng.normal(size=(2000, 1)) + 2.0 * sick[:, None]
    >>> clf = UnmixClassifier(priors, model="linear", method="ssc", random_state=0)
    >>> judge(clf.fit(rows[::2], sets[::2]), rows[1::2], sets[1::2]).method
    'ssc'
    """
    held_out = X is not None and len(X) > 0
    logits = clf.logits_at(X, clf.learner_.base_prior) if held_out else None
    return judge_logits(
        clf, logits, sets, priors=priors, labels=labels, then_fitted_to=then_fitted_to
    )


def judge_logits(
    clf: SetClassifier,
    logits: Array | None,
    sets: Any,
    *,
    priors: Priors | None = None,
    labels: Any = None,
    then_fitted_to: int = 0,
) -> Judgement:
    """Do the same by the logits of the held-out rows at the learner's base prior, if any."""
    diagnosis = diagnose_classifier(clf)
    evaluation: Evaluation | None = None
    histograms: tuple[ClassHistograms, ...] = ()
    if logits is not None:
        # A few rows may come from sets that are too alike.
        with suppress(IdentifiabilityError):
            priors = clf.priors_of_training() if priors is None else clf.in_class_order(priors)
            set_index, used = priors.find_sets(sets, unused="drop")
            priors = priors.keep(used)
            evaluation = _evaluate(clf, logits, set_index, priors, labels)
            histograms = _histograms(clf, logits, set_index, priors)
    by_class = _class_gains(clf)
    sentences, believable = summarise(
        clf, diagnosis, evaluation, held_out=logits is not None, class_gains=by_class
    )
    audit: LabelAudit | None = getattr(clf, "audit_", None)
    if audit is not None:
        sentences, believable = (*sentences, audit.sentence), believable and not audit.worse
    if clf.training_labels_:
        sentences = (*sentences, _trained_on_labels(clf.training_labels_))
    if then_fitted_to:
        sentences = (*sentences, _fitted_again(diagnosis.num_rows, then_fitted_to))
    return Judgement(
        sentences=sentences,
        believable=believable,
        method=clf.method_,
        model=clf.model_,
        classes=tuple(str(c) for c in clf.classes_),
        target_prior=_frozen(_target(clf)),
        leave_sets_out=dict(clf.leave_sets_out_),
        gains=dict(clf.gains_),
        class_gains=by_class,
        set_ids=tuple(str(i) for i in clf.set_ids_),
        stated_priors=tuple(_frozen(p) for p in clf.stated_priors_.values()),
        refined_priors=tuple(_frozen(p) for p in clf.set_priors_.values()),
        prior_errors=None if clf.prior_errors_ is None else tuple(map(float, clf.prior_errors_)),
        refined=clf.refined_,
        method_about=clf.method_row_.about,
        assumption=clf.method_row_.assumption,
        diagnosis=diagnosis,
        evaluation=evaluation,
        histograms=histograms,
        effects=effects_of(clf),
        history=tuple(clf.history_),
        audit=audit,
        training_labels=clf.training_labels_,
    )


def _trained_on_labels(number: int) -> str:
    """Say that labels were learned from, and are no evidence."""
    return (
        f"It also learned from {number:,} labeled rows. They are no audit: nothing here is judged "
        "by them."
    )


def _fitted_again(judged: int, fitted: int) -> str:
    """Say which model was judged, and which one is kept."""
    return (
        f"All of this is of a model trained on {judged:,} rows; the model that is kept was then "
        f"fitted again to all {fitted:,}, those held out included."
    )


def _class_gains(clf: SetClassifier) -> tuple[Gain, ...]:
    """Return the gain of each of more than two classes, if sets were hidden."""
    held_out = clf.held_out_shares_
    return () if held_out is None or len(clf.classes_) == 2 else class_gains(held_out)


def _target(clf: SetClassifier) -> Any:
    """Return the target prior: a float for two classes, else (K,)."""
    return as_stated(clf.target_prior_)


def _frozen(share: Any) -> Share:
    """Return a share as a float or a tuple of floats."""
    return frozen_share(np.asarray(share, float).tolist())


def _label_codes(clf: SetClassifier, labels: Any) -> Array:
    """Return labels as positions in `classes_`, or name the one that is unknown."""
    codes = label_codes(labels, clf.classes_)
    if (codes < 0).any():
        raise InputError(
            f"row {int((codes < 0).argmax()) + 1} has no label; give it one or remove it"
        )
    return codes


def _histograms(
    clf: SetClassifier, logits: Array, set_index: Array, priors: Priors
) -> tuple[ClassHistograms, ...]:
    """Count the predicted probabilities of the classes, set by set; all sets have rows."""
    rows, set_index = row_copies(set_index)
    shown = largest_classes(clf.target_prior_, MOST_CLASSES)
    return class_histograms(
        class_probabilities(clf.lone_logits(logits), clf.learner_.tau)[rows],
        set_index,
        priors.set_priors.matrix,
        [str(i) for i in priors.set_ids],
        [1] if len(clf.classes_) == 2 else shown,
    )
