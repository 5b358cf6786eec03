"""What a linear model is fitted by: functions of the logits, summed over rows.

One criterion per assumption: surrogate set classification (sets share p(x | class)), with or
without learning the set priors too, and matching of proportions (sets share p(class | x)). Each
comes with its gradient. It knows no weights and no rows, only logits and the set of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit, softmax

from unmix.core.losses import ssc_cross_entropy, ssc_cross_entropy_gradient
from unmix.core.simplex import set_sums
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.data.shuffled import ShuffledSets

__all__ = [
    "NOTHING",
    "Criterion",
    "FloatArray",
    "IntArray",
    "Sets",
    "class_columns",
    "pooled_prior",
    "proportion_criterion",
    "refining_criterion",
    "reliability",
    "ssc_criterion",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Sets = UnlabeledSets | ShuffledSets
# (logits, set of each row) -> value, derivative by the logits, by the free log-odds
BlockValue = Callable[[FloatArray, IntArray], tuple[float, FloatArray, FloatArray]]
# What the criterion is at one point: a part that needs no rows, and the sum over blocks of rows.
AtPoint = tuple[float, FloatArray, BlockValue]
# (function that goes through all logits, free log-odds of set priors) -> AtPoint
Sweep = Callable[[], Iterator[tuple[FloatArray, IntArray]]]
Criterion = Callable[[Sweep, FloatArray], AtPoint]

# A share of 0 in floating point must not become an infinite risk.
SMALLEST_SHARE = 1e-100
# Sets share p(class | x) only roughly, so a large set counts as no more than this many rows.
MOST_ROWS = 250
NOTHING = np.empty(0)


def ssc_criterion(transition: Transition, num_rows: int) -> Criterion:
    """Return the mean SSC cross-entropy with its closed-form gradient."""

    def of_block(logits: FloatArray, index: IntArray) -> tuple[float, FloatArray, FloatArray]:
        z, set_index = torch.from_numpy(logits), torch.from_numpy(index)
        value = ssc_cross_entropy(z, set_index, transition).sum() / num_rows
        gradient = ssc_cross_entropy_gradient(z, set_index, transition) / num_rows
        return float(value), gradient.numpy(), NOTHING

    return lambda sweep, free: (0.0, NOTHING, of_block)


def refining_criterion(
    transition: Transition,
    num_rows: int,
    learned: npt.NDArray[np.bool_],
    errors: FloatArray,
    unit: FloatArray,
) -> Criterion:
    """Return the mean SSC cross-entropy as a function of the learned set priors too."""
    chosen = torch.from_numpy(learned)
    stated, deviation = transition.set_priors[chosen], torch.from_numpy(errors)
    units = torch.from_numpy(unit)

    def at_point(sweep: Sweep, free: FloatArray) -> AtPoint:
        log_odds = torch.from_numpy(free).requires_grad_()
        penalty = (((_refined(log_odds) - stated) / deviation) ** 2).sum() / (2 * num_rows)
        (by_log_odds,) = torch.autograd.grad(penalty, log_odds)

        def of_block(logits: FloatArray, index: IntArray) -> tuple[float, FloatArray, FloatArray]:
            z = torch.from_numpy(logits).requires_grad_()
            priors = transition.set_priors.masked_scatter(chosen, _refined(log_odds))
            moved = Transition.unchecked(
                torch.stack((1 - priors, priors), dim=1),
                transition.set_weights,
                transition.target,
                binary=True,
            )
            value = ssc_cross_entropy(z, torch.from_numpy(index), moved).sum() / num_rows
            by_logits, by_log_odds = torch.autograd.grad(value, (z, log_odds))
            return value.item(), by_logits.numpy(), by_log_odds.numpy()

        return penalty.item(), by_log_odds.numpy(), of_block

    def _refined(log_odds: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(log_odds * units)

    return at_point


def proportion_criterion(sets: Sets, set_weights: FloatArray) -> Criterion:
    """Return the weighted cross-entropy between stated shares and mean probabilities."""
    rows = np.maximum(sets.set_sizes, 1)  # sets without rows have no weight
    weighted = set_weights * class_columns(sets.set_priors).T  # (K, m)
    in_memory = len(sets.part_sizes) == 1  # in one block, whose probabilities are needed twice

    # One row per class, here only: sums and products over rows are then five times as fast.
    def probabilities(logits: FloatArray) -> FloatArray:
        if logits.ndim == 1:
            return np.stack((expit(-logits), expit(logits)))
        return np.asarray(softmax(logits.T, axis=0))

    def at_point(sweep: Sweep, _: FloatArray) -> AtPoint:
        sums, kept = np.zeros_like(weighted), []
        for logits, index in sweep():
            eta = probabilities(logits)
            sums += np.stack([set_sums(of_class, index, len(rows)) for of_class in eta])
            if in_memory:
                kept.append(eta)
        shares = np.maximum(sums / rows, SMALLEST_SHARE)  # (K, m)
        by_eta = -weighted / shares / rows

        def of_block(logits: FloatArray, index: IntArray) -> tuple[float, FloatArray, FloatArray]:
            eta, slope = kept[0] if kept else probabilities(logits), by_eta[:, index]  # (K, n)
            gradient = eta * (slope - (eta * slope).sum(axis=0))
            return 0.0, gradient[1] if logits.ndim == 1 else gradient.T, NOTHING

        return -float((weighted * np.log(shares)).sum()), NOTHING, of_block

    return at_point


def reliability(sets: Sets, errors: FloatArray) -> FloatArray:
    """Return how much the share of each set counts when shares are matched, summing to 1 (m,)."""
    pooled = pooled_prior(sets)
    variance = max(float((pooled * (1 - pooled)).mean()), SMALLEST_SHARE)
    rows = sets.set_sizes
    # 1 / (1 / rows + ...), written so that a set without rows gets 0
    precision = rows / (1 + rows * (1 / MOST_ROWS + errors**2 / variance))
    return np.asarray(precision / precision.sum())


def pooled_prior(sets: Sets) -> FloatArray:
    """Return the pooled prior (K,), of sets that need not tell the classes apart."""
    return np.asarray(sets.set_sizes @ class_columns(sets.set_priors) / len(sets))


def class_columns(shares: npt.ArrayLike) -> FloatArray:
    """Return shares as one column per class, (m, K)."""
    shares = np.asarray(shares, dtype=np.float64)
    return np.stack((1 - shares, shares), axis=1) if shares.ndim == 1 else shares
