"""Error, rates and AUC of a classifier on rows whose labels are known, at any target prior.

The yardstick for the label-free numbers. Rates within a class do not depend on the class shares of
the rows at hand; they are combined with the target prior. This file knows nothing of sets.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unmix.assess.class_rates import decide
from unmix.core.class_shares import check_prior
from unmix.errors import InputError

__all__ = ["LabeledMetrics", "labeled_metrics", "test_error"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LabeledMetrics:
    """Metrics from labels, as if the classes had the target prior.

    Attributes
    ----------
    rows : int
        Labeled rows.
    error, accuracy : float
        Share of wrong and of right decisions at the target prior.
    balanced_error, balanced_accuracy : float
        The same with equal class shares.
    tpr, fpr, auc : float or None
        Two classes only.
    confusion : tuple of K tuples of K floats
        Row: true class. Column: decision. Rows sum to 1.
    """

    rows: int
    error: float
    accuracy: float
    balanced_error: float
    balanced_accuracy: float
    tpr: float | None
    fpr: float | None
    auc: float | None
    confusion: tuple[tuple[float, ...], ...]


def test_error(logits: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the share of rows that are decided wrongly, at the class shares of these rows.

    Parameters
    ----------
    logits : (n,) or (n, K)
        Threshold 0 for one logit, the largest of K.
    labels : (n,)
        0 and 1, or class indices.

    Examples
    --------
    >>> test_error([2.0, -1.0, 0.5, -3.0], [1, 0, 0, 0])
    0.25
    """
    scores, truth = _check(logits, labels)
    return float(np.mean(decide(scores) != truth))


def labeled_metrics(
    logits: npt.ArrayLike, labels: npt.ArrayLike, target_prior: npt.ArrayLike
) -> LabeledMetrics:
    """Compute the metrics of a classifier from labels, reweighted to the target prior.

    Parameters
    ----------
    logits : (n,) or (n, K)
        Threshold 0 for one logit, the largest of K.
    labels : (n,)
        0 and 1, or class indices; every class must occur.
    target_prior : float or (K,)
        Class shares for error and accuracy.

    Returns
    -------
    LabeledMetrics

    Notes
    -----
    Formula, with C the confusion matrix (rows sum to 1): `accuracy = sum_k target_prior_k C_kk`.
    """
    scores, truth = _check(logits, labels)
    binary = scores.ndim == 1
    num_classes = 2 if binary else scores.shape[1]
    missing = np.setdiff1d(np.arange(num_classes), truth)
    if len(missing):
        raise InputError(
            f"labels hold no row of class {missing[0]}: metrics at a target prior need every "
            "class; add such rows or leave the labels out."
        )
    shares = check_prior(target_prior, num_classes)
    from sklearn.metrics import confusion_matrix, roc_auc_score

    confusion = confusion_matrix(
        truth, decide(scores), labels=np.arange(num_classes), normalize="true"
    )
    right = np.diag(confusion)
    accuracy, balanced = float(shares @ right), float(right.mean())
    return LabeledMetrics(
        rows=len(truth),
        error=1 - accuracy,
        accuracy=accuracy,
        balanced_error=1 - balanced,
        balanced_accuracy=balanced,
        tpr=float(confusion[1, 1]) if binary else None,
        fpr=float(confusion[0, 1]) if binary else None,
        auc=float(roc_auc_score(truth, scores)) if binary else None,
        confusion=tuple(tuple(row) for row in confusion.tolist()),
    )


def _check(logits: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[FloatArray, IntArray]:
    """Return logits and labels as arrays that go together, or say what is wrong."""
    scores = np.asarray(logits, dtype=np.float64)
    truth = np.asarray(labels)
    if scores.ndim not in (1, 2) or truth.shape != scores.shape[:1] or not len(truth):
        raise InputError(
            f"labels must hold one class per row of logits; got {truth.shape} labels for logits "
            f"of shape {scores.shape}."
        )
    num_classes = 2 if scores.ndim == 1 else scores.shape[1]
    known = np.isin(truth, np.arange(num_classes))
    if not known.all():
        row = int(np.flatnonzero(~known)[0])
        raise InputError(
            f"labels must be 0..{num_classes - 1}; row {row} holds {truth[row]!s}: number the "
            "classes from 0, with 1 for the positive one."
        )
    return scores, truth.astype(np.int64)
