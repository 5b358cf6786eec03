"""What a model goes by: weights with intervals from resampled sets, or importances of columns.

Names are those of the user's columns. This file judges nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtri

from unmix.errors import InputError
from unmix.learn.estimator import SetClassifier

__all__ = ["Effect", "coefficient_intervals", "effects_of"]

LEAST_FITS = 2  # to resampled sets, for a standard deviation


@dataclass(frozen=True)
class Effect:
    """How much one feature moves the prediction of one class.

    Attributes
    ----------
    class_index : int
        1 for the positive class of two, or one of K classes; -1 for an importance.
    feature : str
        A column, or a value of a column of categories.
    value, low, high : float
        Change of the log-odds for one standard deviation of a number, or for a category; or the
        share of what the column gained in boosting. The ends are nan where they are not known.
    """

    class_index: int
    feature: str
    value: float
    low: float
    high: float


def coefficient_intervals(clf: SetClassifier, confidence: float = 0.95) -> pd.DataFrame:
    """Return the weights of a linear model with intervals from fits to resampled sets.

    Formula: value +- z times the standard deviation over the fits. For K classes the mean over
    classes is taken off, since adding the same to all of them changes no probability.

    Parameters
    ----------
    clf : UnmixClassifier
    confidence : float

    Returns
    -------
    DataFrame
        Columns value, low and high; a row for each feature, or for each class and feature. The
        ends are nan where too few sets could be resampled.
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie inside (0, 1); got {confidence}: try 0.95.")
    weights = clf.coef_
    draws = [np.asarray(drawn) for drawn, _ in getattr(clf.learner_.fit, "resampled", ())]
    value = _centred(np.asarray(weights))
    spread = np.full(value.shape, np.nan)
    if len(draws) >= LEAST_FITS:
        spread = np.std([_centred(drawn) for drawn in draws], axis=0, ddof=1)
    half = float(ndtri((1 + confidence) / 2)) * spread
    index = weights.index
    if value.ndim == 2:
        index = pd.MultiIndex.from_product(
            [clf.classes_, weights.index], names=["class", "feature"]
        )
    table = {"value": value, "low": value - half, "high": value + half}
    return pd.DataFrame({name: part.T.ravel() for name, part in table.items()}, index=index)


def effects_of(clf: SetClassifier) -> tuple[Effect, ...]:
    """Return what a linear or boosted model goes by; nothing for other models."""
    if hasattr(clf, "coef_"):
        names = [str(name) for name in clf.encoder_.feature_names]
        table = coefficient_intervals(clf).to_numpy()
        rows = [tuple(map(float, row)) for row in table]
        first = 1 if len(clf.classes_) == 2 else 0
        return tuple(
            Effect(first + place // len(names), names[place % len(names)], *row)
            for place, row in enumerate(rows)
        )
    if hasattr(clf, "feature_importances_"):
        return tuple(
            Effect(-1, str(name), float(gain), float("nan"), float("nan"))
            for name, gain in clf.feature_importances_.items()
        )
    return ()


def _centred(
    weights: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return weights (d, K) without their mean over classes; those of two classes as they are."""
    return weights if weights.ndim == 1 else weights - weights.mean(axis=1, keepdims=True)
