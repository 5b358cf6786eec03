"""An audit: what a few labels, on which nothing was trained, say of a fitted classifier.

No score without labels can see whether rows of one set are told apart as well as sets are (the
ecological fallacy); a handful of labels can. The labeled rows are taken as drawn at random from the
rows of the sets, each with the known share of its set. This file knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from unmix.assess.estimates import Estimate
from unmix.assess.model_based import AUDIT_ERRORS, square_errors
from unmix.errors import InputError

__all__ = ["LabelAudit", "auc_interval", "audit_labels"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LEAST_ROWS = 20  # labels that may show that a model is right; a contradiction needs no more than z


@dataclass(frozen=True)
class LabelAudit:
    """What labels say of the predictions for rows of sets whose shares are known.

    Attributes
    ----------
    rows : int
        Labeled rows.
    accuracy, brier : Estimate
        At the class shares of these rows.
    auc : Estimate or None
        Two classes that both have labeled rows.
    calibration : tuple of Estimate
        Share of each class among the labels minus its mean probability; of positives alone for two
        classes.
    gain : Estimate
        Brier score of "every row gets its set's share" minus that of the model: above 0 is good.
    better, worse : bool
        Whether the labels show that the model beats that rival, or that it loses against it.
    """

    rows: int
    accuracy: Estimate
    brier: Estimate
    auc: Estimate | None
    calibration: tuple[Estimate, ...]
    gain: Estimate
    better: bool
    worse: bool

    @property
    def supports(self) -> bool:
        """Whether there are labels enough, and they show that rows are told apart."""
        return self.better and self.rows >= LEAST_ROWS

    @property
    def sentence(self) -> str:
        """The audit in a sentence or two."""
        text = (
            f"Audit by {self.rows:,} labeled rows that nothing was trained on: accuracy "
            f"{_percent(self.accuracy)}"
        )
        if self.auc is not None:
            text += f", AUC {_number(self.auc)}"
        text += f", Brier score {_number(self.brier)}"
        if len(self.calibration) == 1:
            off = self.calibration[0]
            text += f"; positives are {100 * off.value:+.1f} points from what is predicted"
            text += f" ({100 * off.low:+.1f} to {100 * off.high:+.1f})"
        if self.worse:
            return text + (
                ". They contradict the model: giving every row the share of its set is better "
                f"(Brier score lower by {-self.gain.value:.3f})."
            )
        if self.better:
            few = "" if self.supports else f", but at least {LEAST_ROWS} labels are needed to rely"
            return text + (
                ". They support the model: it is better than giving every row the share of its set "
                f"(Brier score lower by {self.gain.value:.3f}{few})."
            )
        return text + (
            ". They do not tell whether the model is better than giving every row the share of its "
            "set; label more rows."
        )


def audit_labels(
    probability: npt.ArrayLike,
    by_share: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    confidence: float = 0.95,
) -> LabelAudit:
    """Audit probabilities by labels.

    Parameters
    ----------
    probability : (n, K)
        Of the model, for rows of known sets.
    by_share : (n, K)
        Those of the rival: the share of each row's set.
    labels : (n,)
        Classes 0..K-1.
    confidence : float

    Notes
    -----
    Formula: accuracy by Wilson's interval, AUC by `auc_interval`, all else mean +- z standard
    errors over rows.
    """
    p, rival = np.asarray(probability, np.float64), np.asarray(by_share, np.float64)
    truth = np.asarray(labels)
    if len(truth) < 2:
        raise InputError(f"an audit needs at least 2 labeled rows; got {len(truth)}")
    if p.shape != rival.shape or len(truth) != len(p):
        raise InputError(
            f"{len(truth)} labels do not go with probabilities of shape {p.shape} and {rival.shape}"
        )
    right = int(np.sum(p.argmax(axis=1) == truth))
    from scipy.stats import binomtest  # takes half a second to import

    ends = binomtest(right, len(truth)).proportion_ci(confidence, method="wilson")
    squares = square_errors(p, truth)
    gains = square_errors(rival, truth) - squares
    gain, error = _mean(gains, confidence), float(gains.std(ddof=1) / np.sqrt(len(gains)))
    off = np.eye(p.shape[1])[truth] - p
    columns = [1] if p.shape[1] == 2 else range(p.shape[1])
    return LabelAudit(
        rows=len(truth),
        accuracy=Estimate(right / len(truth), float(ends.low), float(ends.high)),
        brier=_mean(squares, confidence),
        auc=auc_interval(p[:, 1], truth, confidence) if p.shape[1] == 2 else None,
        calibration=tuple(_mean(off[:, k], confidence) for k in columns),
        gain=gain,
        better=gain.value > 0 and gain.value >= AUDIT_ERRORS * error,
        worse=gain.value < 0 and -gain.value >= AUDIT_ERRORS * error,
    )


def auc_interval(scores: FloatArray, labels: IntArray, confidence: float) -> Estimate | None:
    """Return the AUC with DeLong's interval, None if a class has no row.

    Formula: with V the share of the rows of the other class on the right side of each row::

        var = var(V of positives) / n_1 + var(V of negatives) / n_0

    Parameters
    ----------
    scores : (n,)
    labels : (n,)
        1 for positives.
    confidence : float
    """
    positive = labels == 1
    num_1, num_0 = int(positive.sum()), int((~positive).sum())
    if not (num_1 and num_0):
        return None
    from scipy.stats import rankdata

    ranks = rankdata(scores)
    above = (ranks[positive] - rankdata(scores[positive])) / num_0
    below = 1 - (ranks[~positive] - rankdata(scores[~positive])) / num_1
    value = float(above.mean())
    variance = sum(v.var(ddof=1) / len(v) if len(v) > 1 else 0.25 for v in (above, below))
    half = float(ndtri((1 + confidence) / 2) * np.sqrt(variance))
    return Estimate(value, max(value - half, 0.0), min(value + half, 1.0))


def _mean(values: Any, confidence: float) -> Estimate:
    """Return a mean +- z standard errors."""
    value = float(np.mean(values))
    half = float(ndtri((1 + confidence) / 2) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return Estimate(value, value - half, value + half)


def _percent(estimate: Estimate) -> str:
    """Return a share with its interval in percent."""
    low, high = 100 * estimate.low, 100 * estimate.high
    return f"{100 * estimate.value:.0f} % ({low:.0f} to {high:.0f} %)"


def _number(estimate: Estimate) -> str:
    """Return a number with its interval."""
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"
