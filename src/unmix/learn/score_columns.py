"""Scores as columns of a table: the same names wherever rows are scored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

__all__ = ["score_columns", "score_names"]

Array = np.ndarray[Any, Any]


def score_names(classes: Array) -> list[str]:
    """Return the names of the columns that scoring adds."""
    if len(classes) == 2:
        return ["probability", "prediction"]
    return [*(f"probability_{name}" for name in classes), "prediction"]


def score_columns(
    kept: pd.DataFrame, probability: Array, classes: Array, threshold: float | None = None
) -> pd.DataFrame:
    """Return columns that are kept with the scores beside them.

    Parameters
    ----------
    kept : DataFrame, n rows
    probability : array, shape (n, K)
    classes : array, shape (K,)
    threshold : float, optional
        Probability from which a row counts as the second of two classes; the more probable class
        is predicted if left out.
    """
    scored = kept.copy()
    columns = probability[:, 1:] if len(classes) == 2 else probability
    for name, values in zip(score_names(classes), columns.T, strict=False):
        scored[name] = values
    decided = probability.argmax(axis=1)
    if threshold is not None:
        decided = (probability[:, 1] >= threshold).astype(int)
    scored["prediction"] = classes[decided]
    return scored
