"""How good is the classifier, judged on held-out rows without a label, and is that to be trusted?

Puts together the rates of the classes, the ROC curve, the shares predicted for every set and the
test of the assumption. The mathematics is in `class_rates`, `roc`, `fit_test` and `core.shares`;
this file knows no model.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unmix.assess.class_rates import RateFit, decide, fit_class_rates
from unmix.assess.diagnosis_messages import prior_covariance, set_names
from unmix.assess.entries import Entries
from unmix.assess.estimates import Estimate, Share, frozen_share, normal_interval, plain
from unmix.assess.fit_test import FitTest, chi_square_test, score_bins
from unmix.assess.labeled import LabeledMetrics, labeled_metrics
from unmix.assess.model_based import ModelBased
from unmix.assess.prevalence import new_set_shares
from unmix.assess.roc import Roc, estimate_roc
from unmix.core.assumptions import LABEL_SHIFT
from unmix.core.class_shares import ClassShares, check_prior
from unmix.core.share_draws import ScoredSets
from unmix.core.shares import check_rows, share_by_mean
from unmix.errors import InputError

__all__ = ["Confusion", "Evaluation", "SetCalibration", "evaluate"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Confusion:
    """Share of each decision (column) in each class (row), with intervals; all (K, K)."""

    value: Matrix
    low: Matrix
    high: Matrix


@dataclass(frozen=True, slots=True)
class SetCalibration:
    """The stated share of one set beside what the classifier predicts for it.

    Attributes
    ----------
    set_id : str
    rows : int
        Held-out rows; with 0 the predictions are nan.
    stated : float or tuple of K floats
        Set prior.
    share, low, high : float or tuple of K floats
        Maximum-likelihood share (label shift) and its interval.
    mean_share : float or tuple of K floats
        Mean predicted probability (covariate shift).
    """

    set_id: str
    rows: int
    stated: Share
    share: Share
    low: Share
    high: Share
    mean_share: Share


@dataclass(frozen=True)
class Evaluation:
    """What held-out rows of the sets say about a classifier, without labels.

    Attributes
    ----------
    rows, num_sets, num_classes : int
        Held-out rows, sets that have some, classes.
    target_prior : float or tuple of K floats
        Class shares for which accuracy is given.
    confidence : float
        Coverage the intervals aim at.
    accuracy, balanced_accuracy : Estimate
        At the target prior, and at equal class shares.
    tpr, fpr, auc : Estimate or None
        Two classes only; decisions at logit > 0.
    roc : Roc or None
        Two classes only.
    confusion : Confusion or None
        K classes only; the decision is the largest logit.
    calibration : Entries of SetCalibration
        Every set, in order.
    fit_test : FitTest
        Test of label shift, without which the numbers above mean nothing.
    method : str
        How the intervals were made.
    labeled : LabeledMetrics or None
        The same metrics from labels, where these were given.
    model_based : ModelBased or None
        What the model's own probabilities promise, beside the rivals that use no features; of a
        fitted classifier only.
    grouping : str
        Of several groupings of the same rows, the one whose sets told the rates.
    """

    rows: int
    num_sets: int
    num_classes: int
    target_prior: Share
    confidence: float
    accuracy: Estimate
    balanced_accuracy: Estimate
    tpr: Estimate | None
    fpr: Estimate | None
    auc: Estimate | None
    roc: Roc | None
    confusion: Confusion | None
    calibration: Entries[SetCalibration]
    fit_test: FitTest
    method: str
    labeled: LabeledMetrics | None
    model_based: ModelBased | None = None
    grouping: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; nan becomes None."""
        values: dict[str, Any] = plain(self)
        return values


def evaluate(
    logits: npt.ArrayLike,
    set_index: npt.ArrayLike,
    set_priors: npt.ArrayLike,
    target_prior: npt.ArrayLike,
    *,
    set_ids: Any = None,
    prior_errors: npt.ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
    confidence: float = 0.95,
) -> Evaluation:
    """Evaluate a classifier on held-out rows of sets whose class shares are known.

    Parameters
    ----------
    logits : (n,) or (n, K)
        Log-odds of the positive class at the target prior, or K logits, of rows not trained on.
    set_index : (n,)
        The set of each row, 0..m-1.
    set_priors : (m,) or (m, K)
        Stated class shares of the sets.
    target_prior : float or (K,)
        Class shares for which accuracy is wanted and at which the logits hold.
    set_ids : sequence of length m, optional
        Names of the sets; 0, 1, ... if left out.
    prior_errors : (m,) or (m, K), optional
        Standard errors of the stated shares.
    labels : (n,), optional
        Classes of the rows, if known, for comparison only.
    confidence : float
        Coverage aimed at.

    Returns
    -------
    Evaluation

    Raises
    ------
    InputError
        For arguments that do not go together; IdentifiabilityError if the priors are too alike.

    Notes
    -----
    Formula: the positive rate of set j is `r_j = pi_j TPR + (1 - pi_j) FPR`, for K classes
    `rates = Theta C`; weighted least squares over sets (`class_rates.fit_class_rates`), then
    `accuracy = sum_k target_prior_k C_kk`. Rows of C are moved to the nearest point of the simplex
    before they are used. All of this assumes label shift: read `fit_test` first.

    Intervals are analytic: value +- z standard deviations, from the sampling of rows within sets
    and from the errors of the stated shares, cut off at 0 and 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sets = np.repeat([0, 1, 2], 1000)
    >>> positive = rng.random(3000) < np.array([0.2, 0.5, 0.8])[sets]
    >>> found = evaluate(rng.normal(4 * positive - 2, 2), sets, [0.2, 0.5, 0.8], 0.5)
    >>> found.accuracy.low < 0.84 < found.accuracy.high  # 84 % of a normal lie above -1 sd
    True
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie inside (0, 1); got {confidence}: try 0.95.")
    names = set_names(set_ids, np.shape(set_priors)[0] if np.ndim(set_priors) else 0)
    stated = _checked_shares(set_priors, names)
    theta = stated.matrix
    covariance = prior_covariance(prior_errors, len(theta), stated.num_classes, names)
    scores, index = check_rows(logits, set_index, len(theta))
    if scores.shape[1:] != stated.shape[1:]:
        raise InputError(
            f"logits of shape {scores.shape} do not go with set_priors of shape {stated.shape}: "
            "both must be for the same number of classes."
        )
    shares = check_prior(target_prior, stated.num_classes)
    if not len(scores):
        raise InputError("there are no held-out rows to evaluate on; hold some rows out.")
    calibration = _calibrate(scores, index, stated, shares, names, confidence)

    rows = np.bincount(index, minlength=len(theta))
    sizes, used = rows.astype(np.float64), rows > 0
    if not used.all():
        index = (np.cumsum(used) - 1)[index]
        sizes, theta = sizes[used], theta[used]
        covariance = None if covariance is None else covariance[used]
        names = tuple(np.asarray(names, dtype=object)[used])

    binary = scores.ndim == 1
    rates = _rates(scores, index, sizes, theta, covariance, shares, confidence)
    auc, roc = None, None
    if binary:
        auc, roc = estimate_roc(scores, index, sizes, theta, covariance, confidence)
    return Evaluation(
        rows=len(scores),
        num_sets=len(sizes),
        num_classes=theta.shape[1],
        target_prior=float(shares[1]) if binary else frozen_share(shares.tolist()),
        confidence=confidence,
        auc=auc,
        roc=roc,
        calibration=calibration,
        fit_test=chi_square_test(score_bins(scores), index, theta, names, covariance),
        method=_method(confidence, covariance is not None),
        labeled=None if labels is None else labeled_metrics(scores, labels, shares),
        **rates,
    )


def _rates(
    scores: FloatArray,
    index: IntArray,
    sizes: FloatArray,
    theta: FloatArray,
    covariance: FloatArray | None,
    shares: FloatArray,
    confidence: float,
) -> dict[str, Any]:
    """Return what the decisions in the sets say: accuracies, and rates or the confusion."""
    fit = fit_class_rates(_decision_rates(scores, index, sizes), sizes, theta, covariance)
    binary = scores.ndim == 1
    return {
        "accuracy": _accuracy(fit, shares, confidence),
        "balanced_accuracy": _accuracy(fit, np.full(len(shares), 1 / len(shares)), confidence),
        "tpr": _entry(fit, 1, 1, confidence) if binary else None,
        "fpr": _entry(fit, 0, 1, confidence) if binary else None,
        "confusion": None if binary else _confusion(fit, confidence),
    }


def _checked_shares(set_priors: Any, names: tuple[str, ...]) -> ClassShares:
    """Return stated shares, with the sets' names in messages about them."""
    if isinstance(set_priors, ClassShares):
        return set_priors
    return ClassShares(set_priors, names)


def _decision_rates(scores: FloatArray, index: IntArray, sizes: FloatArray) -> FloatArray:
    """Return the share of each decision in each set (m, K)."""
    num_classes = 2 if scores.ndim == 1 else scores.shape[1]
    cells = index * num_classes + decide(scores)
    counts = np.bincount(cells, minlength=len(sizes) * num_classes)
    return np.asarray(counts.reshape(len(sizes), num_classes) / sizes[:, None])


def _accuracy(fit: RateFit, shares: FloatArray, confidence: float) -> Estimate:
    """Return the accuracy at the given class shares."""
    coefficients = np.diag(shares)
    value = float(np.sum(coefficients * fit.class_rates))
    return normal_interval(value, fit.variance(coefficients), confidence)


def _entry(fit: RateFit, truth: int, decision: int, confidence: float) -> Estimate:
    """Return the rate of one decision in one class."""
    variance = float(fit.entry_variances()[truth, decision])
    return normal_interval(float(fit.class_rates[truth, decision]), variance, confidence)


def _confusion(fit: RateFit, confidence: float) -> Confusion:
    """Return the confusion matrix with an interval for every entry."""
    entries = [
        [_entry(fit, truth, decision, confidence) for decision in range(fit.class_rates.shape[1])]
        for truth in range(len(fit.class_rates))
    ]
    return Confusion(
        value=tuple(tuple(entry.value for entry in row) for row in entries),
        low=tuple(tuple(entry.low for entry in row) for row in entries),
        high=tuple(tuple(entry.high for entry in row) for row in entries),
    )


def _calibrate(
    scores: FloatArray,
    index: IntArray,
    stated: ClassShares,
    target_prior: FloatArray,
    names: tuple[str, ...],
    confidence: float,
) -> Entries[SetCalibration]:
    """Put the stated shares beside those the classifier predicts."""
    m = len(names)
    found = new_set_shares(LABEL_SHIFT, ScoredSets(scores, index, m, target_prior), confidence)
    means, _ = share_by_mean(scores, index, m)
    rows = np.bincount(index, minlength=m)
    columns = (names, rows, stated.as_given, found.shares, found.low, found.high, means)
    return Entries(SetCalibration, *columns)


def _method(confidence: float, with_errors: bool) -> str:
    """Say how the intervals were made."""
    sources = "the rows drawn into each set"
    if with_errors:
        sources += " and the errors of the stated shares"
    return (
        "Label-free, assuming label shift: weighted least squares over the sets, class rates moved "
        f"to the nearest ones in [0, 1] that sum to 1. Intervals ({confidence:.0%}) are analytic, "
        f"value +- z standard deviations cut off at 0 and 1; they cover {sources}, not sets that "
        "violate the assumption. Intervals of predicted shares treat the model as fixed."
    )
