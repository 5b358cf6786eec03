"""How good a model would be if its own probabilities were right, beside rivals that know no rows.

Where label shift is not assumed or does not hold, nothing better can be said without labels. Labels
of a few rows, if there are any, measure the same numbers and settle it. This file knows no model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unmix.assess.blocks import in_blocks
from unmix.data.wording import listed
from unmix.errors import InputError

__all__ = [
    "HOW_FAR_OFF",
    "Audit",
    "Contestant",
    "ModelBased",
    "Scores",
    "expected_auc",
    "expected_scores",
    "measured_scores",
    "model_based",
    "square_errors",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Probabilities = FloatArray | Callable[[], FloatArray]  # of each row and class (n, K)

HOW_FAR_OFF = (
    "Model-based numbers hold if the model's own probabilities are right. On 17 real tables the "
    "model-based AUC of rows of new sets was off by 0.10 on average and by 0.23 at most, in both "
    "directions."
)
AUDIT_ERRORS = 2.0  # standard errors from which labels show a difference


@dataclass(frozen=True)
class Scores:
    """Accuracy, Brier score and, for two classes, AUC of one way to predict.

    The Brier score is the mean of (p - y)^2 for two classes and its sum over classes for more.
    """

    accuracy: float
    brier: float
    auc: float | None


@dataclass(frozen=True)
class Contestant:
    """One way to predict the rows, how good it should be, and how good labels say it is."""

    name: str
    about: str
    is_model: bool
    """Whether it is the model: then `expected` is model-based, else it follows from the shares."""
    expected: Scores
    measured: Scores | None = None
    """From labels, at the class shares of the labeled rows."""


@dataclass(frozen=True)
class Audit:
    """What labels say of the model for known sets against "every row gets its set's share"."""

    rows: int
    gain: float
    """Brier score of the rival minus that of the model, over labeled rows: above 0 is good."""
    error: float
    """Its standard error."""

    @property
    def better(self) -> bool:
        """Whether the labels show that the model beats the share of the set."""
        return self.gain >= AUDIT_ERRORS * self.error and self.gain > 0

    @property
    def worse(self) -> bool:
        """Whether the labels show that the share of the set beats the model."""
        return -self.gain >= AUDIT_ERRORS * self.error and self.gain < 0


@dataclass(frozen=True)
class ModelBased:
    """The model for rows of new and of known sets, the two rivals, and what labels say of them."""

    new_sets: Contestant
    known_sets: Contestant
    set_share: Contestant
    majority: Contestant
    audit: Audit | None = None

    @property
    def contestants(self) -> tuple[Contestant, ...]:
        """All four, the model first."""
        return (self.known_sets, self.new_sets, self.set_share, self.majority)


def expected_auc(probability: npt.ArrayLike, score: npt.ArrayLike) -> float:
    """Return the chance that a positive scores above a negative, if the probabilities are right.

    Formula, in O(n log n)::

        sum_ij p_i (1 - p_j) ([z_i > z_j] + [z_i = z_j] / 2)  /  sum_ij p_i (1 - p_j),   i != j

    Parameters
    ----------
    probability : (n,)
        p, of the positive class.
    score : (n,)
        z; only its order matters.

    Returns
    -------
    float
        nan where no pair of a positive and a negative is possible.

    Examples
    --------
    >>> expected_auc([0.0, 1.0], [0.2, 0.7])
    1.0
    """
    p = np.asarray(probability, dtype=np.float64)
    group = np.unique(np.asarray(score), return_inverse=True)[1]
    positive, negative = np.bincount(group, p), np.bincount(group, 1 - p)
    del group
    above = positive @ (np.cumsum(negative) - negative / 2)
    itself = np.sum(p * (1 - p))  # a row is no pair, and would count as a tie
    pairs = p.sum() * np.sum(1 - p) - itself
    return float((above - itself / 2) / pairs) if pairs > 1e-12 * max(len(p), 1) else float("nan")


def expected_scores(probability: FloatArray) -> Scores:
    """Return what probabilities (n, K) promise of themselves.

    Formula: accuracy = mean of max_k p_k; Brier = mean of sum_k p_k (1 - p_k), half of it for two
    classes; AUC by `expected_auc`.
    """
    brier = float(np.mean(in_blocks(lambda p: np.sum(p * (1 - p), axis=1), probability)))
    binary = probability.shape[1] == 2
    return Scores(
        accuracy=float(np.mean(in_blocks(lambda p: p.max(axis=1), probability))),
        brier=brier / 2 if binary else brier,
        auc=expected_auc(probability[:, 1], probability[:, 1]) if binary else None,
    )


def measured_scores(probability: FloatArray, labels: IntArray) -> Scores:
    """Return what labels (n,) say of probabilities (n, K), at the class shares of these rows.

    Of equal probabilities the first class is decided; the AUC is nan if a class has no row.
    """
    binary = probability.shape[1] == 2
    right = probability.argmax(axis=1) == labels
    truth = (labels == 1).astype(np.float64)
    return Scores(
        accuracy=float(np.mean(right)),
        brier=float(np.mean(square_errors(probability, labels))),
        auc=expected_auc(truth, probability[:, 1]) if binary else None,
    )


def model_based(
    new_sets: Probabilities,
    known_sets: Probabilities,
    set_share: Probabilities,
    labels: Any = None,
) -> ModelBased:
    """Put the model beside its rivals.

    Parameters
    ----------
    new_sets, known_sets : (n, K), or functions that return them
        The model's probabilities, without and with the share of a row's set. There may be many
        rows: what functions return is looked at one after the other.
    set_share : (n, K), or a function that returns it
        The class shares of the set of each row.
    labels : (n,), optional
        Class of each row, -1 where it is not known.
    """
    codes = None if labels is None else np.asarray(labels)
    known = None if codes is None else np.flatnonzero(codes >= 0)
    shapes, errors, average = set(), list[FloatArray](), np.empty(0)

    def contestant(name: str, about: str, given: Probabilities, *, is_model: bool) -> Contestant:
        nonlocal average
        p, measured = given() if callable(given) else given, None
        shapes.add(p.shape)
        if codes is not None and known is not None and len(known):
            measured = measured_scores(p[known], codes[known])
            errors.append(square_errors(p[known], codes[known]))
        average = p.mean(axis=0)
        return Contestant(name, about, is_model, expected_scores(p), measured)

    def each_the_average() -> FloatArray:
        shape = next(iter(shapes))
        return np.broadcast_to(average, shape)

    new = contestant(
        "This model, rows of new sets", "share of the set unknown", new_sets, is_model=True
    )
    own = contestant(
        "This model, rows of known sets", "share of the set used", known_sets, is_model=True
    )
    share = contestant(
        "Every row gets its set's share", "no features used", set_share, is_model=False
    )
    if len(shapes) > 1:
        raise InputError(f"probabilities of shapes {listed(sorted(map(str, shapes)))} differ.")
    majority = contestant(
        "Majority class", "no features, no sets used", each_the_average, is_model=False
    )
    audit = None
    if known is not None and len(known) > 1:
        gains = errors[2] - errors[1]
        error = float(gains.std(ddof=1) / np.sqrt(len(gains)))
        audit = Audit(len(known), float(gains.mean()), error)
    return ModelBased(new, own, share, majority, audit)


def square_errors(probability: FloatArray, labels: IntArray) -> FloatArray:
    """Return (p - y)^2 of every row, summed over the classes of more than two (n,)."""
    truth = np.eye(probability.shape[1])[labels]
    squares = ((probability - truth) ** 2).sum(axis=1)
    return np.asarray(squares / 2 if probability.shape[1] == 2 else squares)
