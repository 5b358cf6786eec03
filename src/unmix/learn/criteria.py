"""What a linear model is fitted by: functions of the logits, summed over rows.

A risk that is a mean over rows is summed block by block, with or without learning the set priors
too; matching of proportions goes through the rows twice; any other risk wants all rows at once.
Each comes with its gradient. This file knows no weights and no rows, only logits and the set of
each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit, softmax

from unmix.core.risks import MeanLoss, Risk
from unmix.core.simplex import set_sums
from unmix.data.sets import UnlabeledSets
from unmix.data.shuffled import ShuffledSets
from unmix.errors import InputError
from unmix.learn.methods import Method
from unmix.learn.refined_priors import PriorRefiner

__all__ = ["NO_FREE", "Criterion", "FloatArray", "IntArray", "Sets", "criterion_for", "reliability"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Sets = UnlabeledSets | ShuffledSets
# (logits, set of each row) -> value, derivative by the logits, by the free numbers of the priors
BlockValue = Callable[[FloatArray, IntArray], tuple[float, FloatArray, FloatArray]]
# What the criterion is at one point: a part that needs no rows, and the sum over blocks of rows.
AtPoint = tuple[float, FloatArray, BlockValue]
# (function that goes through all logits, free numbers of the set priors) -> AtPoint
Sweep = Callable[[], Iterator[tuple[FloatArray, IntArray]]]
Criterion = Callable[[Sweep, FloatArray], AtPoint]

NO_FREE = np.empty(0)
# A share of 0 in floating point must not become an infinite risk.
SMALLEST_SHARE = 1e-100
# Sets share p(class | x) only roughly, so a large set counts as no more than this many rows.
MOST_ROWS = 250


def criterion_for(
    method: Method,
    sets: Sets,
    errors: FloatArray,
    refiner: PriorRefiner | None = None,
    unit: FloatArray = NO_FREE,
) -> Criterion:
    """Return what a linear model minimises to learn by a method.

    Parameters
    ----------
    method : Method
    sets : UnlabeledSets or ShuffledSets
    errors : array, shape (m,)
        Standard errors of the set priors.
    refiner : PriorRefiner, optional
        Learns the priors too.
    unit : array, shape (m (K - 1),)
        In which the free numbers of the refiner are counted.
    """
    if refiner is not None:
        return refining_criterion(method, refiner, len(sets), unit)
    if method.batch_by == "sets":  # it looks at the shares of whole sets
        return proportion_criterion(sets, reliability(sets, errors))
    risk = method.risk(sets.transition)
    if isinstance(risk, MeanLoss):
        return mean_loss_criterion(risk, len(sets))
    if len(sets.part_sizes) > 1:
        raise InputError(
            f"method {method.name} needs all rows at once, and they do not fit in memory; use "
            "another method, or fewer rows"
        )
    return whole_risk_criterion(risk)


def mean_loss_criterion(risk: MeanLoss, num_rows: int) -> Criterion:
    """Return the mean of a loss over rows, with its closed-form gradient."""

    def of_block(logits: FloatArray, index: IntArray) -> tuple[float, FloatArray, FloatArray]:
        z, set_index = torch.from_numpy(logits), torch.from_numpy(index)
        value = risk.loss(z, set_index, risk.transition).sum() / num_rows
        gradient = risk.by_logits(z, set_index, risk.transition) / num_rows
        return float(value), gradient.numpy(), NO_FREE

    return lambda sweep, free: (0.0, NO_FREE, of_block)


def whole_risk_criterion(risk: Risk) -> Criterion:
    """Return any risk of all rows, which are one block, with its gradient by autograd."""

    def of_block(logits: FloatArray, index: IntArray) -> tuple[float, FloatArray, FloatArray]:
        z = torch.from_numpy(logits).requires_grad_()
        value = risk(z, torch.from_numpy(index))
        (gradient,) = torch.autograd.grad(value, z)
        return value.item(), gradient.numpy(), NO_FREE

    return lambda sweep, free: (0.0, NO_FREE, of_block)


def refining_criterion(
    method: Method, refiner: PriorRefiner, num_rows: int, unit: FloatArray
) -> Criterion:
    """Return the mean loss of a method as a function of the set priors too."""
    shape, units = refiner.start.shape, torch.from_numpy(unit)

    def at_point(sweep: Sweep, free: FloatArray) -> AtPoint:
        leaf = torch.from_numpy(free).requires_grad_()
        penalty = refiner.penalty((leaf * units).view(shape)) / num_rows
        (by_free,) = torch.autograd.grad(penalty, leaf)

        def of_block(logits: FloatArray, index: IntArray) -> tuple[float, FloatArray, FloatArray]:
            z = torch.from_numpy(logits).requires_grad_()
            risk = method.risk(refiner.transition((leaf * units).view(shape)))
            value = risk(z, torch.from_numpy(index)) * (len(z) / num_rows)
            by_logits, by_free_here = torch.autograd.grad(value, (z, leaf))
            return value.item(), by_logits.numpy(), by_free_here.numpy()

        return penalty.item(), by_free.numpy(), of_block

    return at_point


def proportion_criterion(sets: Sets, set_weights: FloatArray) -> Criterion:
    """Return the weighted cross-entropy between stated shares and mean probabilities."""
    rows = np.maximum(sets.set_sizes, 1)  # sets without rows have no weight
    weighted = set_weights * sets.set_priors.matrix.T  # (K, m)
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
            return 0.0, gradient[1] if logits.ndim == 1 else gradient.T, NO_FREE

        return -float((weighted * np.log(shares)).sum()), NO_FREE, of_block

    return at_point


def reliability(sets: Sets, errors: FloatArray) -> FloatArray:
    """Return how much the share of each set counts when shares are matched, summing to 1 (m,)."""
    pooled = sets.set_priors.pooled(sets.set_sizes)
    variance = max(float((pooled * (1 - pooled)).mean()), SMALLEST_SHARE)
    rows = sets.set_sizes
    # 1 / (1 / rows + ...), written so that a set without rows gets 0
    precision = rows / (1 + rows * (1 / MOST_ROWS + errors**2 / variance))
    return np.asarray(precision / precision.sum())
