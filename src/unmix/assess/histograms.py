"""How the predicted probabilities of each set's rows are spread: histograms, one per set and class.

Near 0 and 1 the bins are those of log-odds. This file knows no classifier and draws nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

__all__ = ["ClassHistograms", "ScoreHistogram", "class_histograms", "uses_log_odds"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

NUM_BINS = 20
MOST_SETS = 1000  # of more sets than this, so many, evenly spread over the stated shares
RARE = 0.1  # where nearly all shares are below this, or above 1 minus this
LEAST = 1e-6  # nearest to 0 that log-odds go


@dataclass(frozen=True)
class ScoreHistogram:
    """How the predicted probabilities of one set's held-out rows are spread."""

    set_id: str
    shares: tuple[float, ...]
    """Share of the set's rows in each bin."""


@dataclass(frozen=True)
class ClassHistograms:
    """The probabilities of one class in every set, or in at most 1,000 of them."""

    class_index: int
    edges: tuple[float, ...]
    """Of the 20 bins: equal in probability, or in log-odds where nearly all are near 0 or 1."""
    sets: tuple[ScoreHistogram, ...]


def class_histograms(
    probability: FloatArray,
    set_index: IntArray,
    shares: FloatArray,
    names: Sequence[str],
    classes: Sequence[int],
) -> tuple[ClassHistograms, ...]:
    """Count predicted probabilities in bins, class by class and set by set.

    Parameters
    ----------
    probability : (n, K)
    set_index : (n,)
        The set of each row; all sets have rows.
    shares : (m, K)
        Stated shares, by which sets are chosen where there are too many.
    names : sequence of str, length m
    classes : sequence of int
        The classes to count.
    """
    return tuple(_of_class(probability[:, k], set_index, shares[:, k], names, k) for k in classes)


def _of_class(
    p: FloatArray, set_index: IntArray, shares: FloatArray, names: Sequence[str], k: int
) -> ClassHistograms:
    """Count the probabilities of one class."""
    m = len(names)
    edges = bin_edges(p)
    bins = np.clip(np.searchsorted(edges, p, side="right") - 1, 0, NUM_BINS - 1)
    cells = np.bincount(set_index * NUM_BINS + bins, minlength=m * NUM_BINS)
    counts = cells.reshape(m, NUM_BINS)
    shown = np.arange(m)
    if m > MOST_SETS:
        places = np.linspace(0, m - 1, MOST_SETS).round().astype(int)
        shown = np.sort(np.argsort(shares, kind="stable")[places])
    sets = tuple(
        ScoreHistogram(names[j], tuple((counts[j] / counts[j].sum()).tolist()))
        for j in shown.tolist()
    )
    return ClassHistograms(int(k), tuple(edges.tolist()), sets)


def bin_edges(probability: npt.ArrayLike) -> FloatArray:
    """Return the edges of the bins (21,); probabilities beyond them go to the nearest bin."""
    p = np.asarray(probability, dtype=np.float64)
    if not uses_log_odds(p):
        return np.linspace(0, 1, NUM_BINS + 1)
    low, high = logit(np.clip(np.quantile(p, [0.005, 0.995]), LEAST, 1 - LEAST))
    return np.asarray(expit(np.linspace(low, max(high, low + 0.1), NUM_BINS + 1)))


def uses_log_odds(shares: npt.ArrayLike) -> bool:
    """Say whether shares are so near 0 or 1 that log-odds show them better.

    Examples
    --------
    >>> uses_log_odds([0.001, 0.01, 0.03]), uses_log_odds([0.1, 0.5, 0.02])
    (True, False)
    """
    values = np.asarray(shares, dtype=np.float64)
    values = values[np.isfinite(values)]
    if not len(values):
        return False
    low, high = np.quantile(values, [0.1, 0.9])
    return bool(high < RARE or low > 1 - RARE)
