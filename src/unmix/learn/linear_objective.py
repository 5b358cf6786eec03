"""What a linear model is fitted by, and how: functions of the logits, minimised by L-BFGS.

A risk that is a mean over rows is summed block by block, with or without learning the set priors
too; matching of proportions goes through the rows twice; any other risk wants all rows at once.
Each comes with its gradient. Rows may lie on disk, and are then read block by block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import OptimizeResult, minimize
from scipy.special import expit, softmax
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from unmix.core.groupings import row_copies
from unmix.core.risks import MeanLoss, Risk, proportion_risk
from unmix.core.set_risks import SetRisk
from unmix.core.simplex import set_sums
from unmix.data.sets import UnlabeledSets
from unmix.data.shuffled import ShuffledSets
from unmix.errors import DivergenceError, InputError
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.methods import Method, risk_of
from unmix.learn.refined_priors import PriorRefiner

__all__ = [
    "NO_FREE",
    "Criterion",
    "FloatArray",
    "IntArray",
    "Objective",
    "Progress",
    "Sets",
    "criterion_for",
    "minimise",
    "reliability",
]

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
    if method.risk is proportion_risk:  # here sets that are known better count more
        return proportion_criterion(sets, reliability(sets, errors))
    risk = risk_of(method, sets.transition)
    if isinstance(risk, MeanLoss):
        return mean_loss_criterion(risk, len(sets))
    if len(sets.part_sizes) > 1:
        raise InputError(
            f"method {method.name} needs all rows at once, and they do not fit in memory; use "
            "another method, or fewer rows"
        )
    return whole_risk_criterion(risk, method.name)


def mean_loss_criterion(risk: MeanLoss, num_rows: int) -> Criterion:
    """Return the mean of a loss over rows, with its closed-form gradient."""

    def of_block(logits: FloatArray, index: IntArray) -> tuple[float, FloatArray, FloatArray]:
        z, set_index = torch.from_numpy(logits), torch.from_numpy(index)
        value = risk.loss(z, set_index, risk.transition).sum() / num_rows
        gradient = risk.by_logits(z, set_index, risk.transition) / num_rows
        return float(value), gradient.numpy(), NO_FREE

    return lambda sweep, free: (0.0, NO_FREE, of_block)


def whole_risk_criterion(risk: Risk, name: str) -> Criterion:
    """Return any risk of all rows, which are one block, with its gradient by autograd."""

    def of_block(logits: FloatArray, index: IntArray) -> tuple[float, FloatArray, FloatArray]:
        if isinstance(risk, SetRisk):
            return *risk.value_and_gradient(logits, index), NO_FREE
        z = torch.from_numpy(logits).requires_grad_()
        value = risk(z, torch.from_numpy(index))
        (gradient,) = torch.autograd.grad(value, z)
        if not (value.isfinite() and gradient.isfinite().all()):
            raise DivergenceError(
                f"the risk of method {name} became {value.item():g}, or its gradient did, in a "
                "linear fit; keep logarithms and divisions away from 0, or look for extreme "
                "values in the rows"
            )
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
            risk = risk_of(method, refiner.transition((leaf * units).view(shape)))
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
        for logits, set_index in sweep():
            copies, index = row_copies(set_index)
            eta = probabilities(logits[copies])
            sums += np.stack([set_sums(of_class, index, len(rows)) for of_class in eta])
            if in_memory:
                kept.append(eta)
        shares = np.maximum(sums / rows, SMALLEST_SHARE)  # (K, m)
        by_eta = -weighted / shares / rows

        def of_block(
            logits: FloatArray, set_index: IntArray
        ) -> tuple[float, FloatArray, FloatArray]:
            copies, index = row_copies(set_index)
            eta = kept[0] if kept else probabilities(logits[copies])
            slope = by_eta[:, index]  # (K, n)
            gradient = eta * (slope - (eta * slope).sum(axis=0))
            of_copies = gradient[1] if logits.ndim == 1 else gradient.T
            if set_index.ndim == 1:
                return 0.0, of_copies, NO_FREE
            return 0.0, set_sums(of_copies, copies, len(logits)), NO_FREE

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


Progress = Callable[[int, int, str], None]

# Below this many numbers in x, threads of BLAS and torch wait for each other more than they help.
FEW_NUMBERS = 2_000_000
BLOCK_ROWS = 16_384  # of rows on disk: what stays in the processor's cache
SAVE_SECONDS = 10.0


class Objective:
    """criterion(x w + b, free) + l2 |w|^2 and its gradient, as functions of one long vector."""

    def __init__(
        self,
        sets: Sets,
        criterion: Criterion,
        bias: FloatArray,
        free: FloatArray,
        l2: float,
        progress: Progress | None,
    ) -> None:
        self.criterion, self.l2, self.progress = criterion, l2, progress
        self.shapes = ((*sets.row_shape, *bias.shape), bias.shape, free.shape)
        self.ends = np.cumsum([np.prod(shape, dtype=int) for shape in self.shapes])
        self.start = np.concatenate((np.zeros(self.ends[0]), bias.ravel(), free))
        self.num_rows, self.num_numbers = len(sets), len(sets) * int(self.ends[0])
        self.passes = 0
        self._sets = sets
        self._in_memory: list[tuple[FloatArray, IntArray]] = []
        if len(sets.part_sizes) == 1:
            self._in_memory = [*_blocks(sets.part(0), len(sets))]

    def split(self, point: FloatArray) -> list[FloatArray]:
        """Return weights, bias and free log-odds."""
        pieces = np.split(point, self.ends[:-1])
        return [piece.reshape(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def __call__(self, point: FloatArray) -> tuple[float, FloatArray]:
        """Return the value and the gradient: a pass over the rows, or two."""
        weights, bias, free = self.split(point)
        value, by_free, of_block = self.criterion(
            lambda: ((x @ weights + bias, index) for x, index in self._rows()), free
        )
        by_weights, by_bias = 2 * self.l2 * weights, np.zeros_like(bias)
        for x, index in self._rows():
            of_rows, by_logits, by_free_here = of_block(x @ weights + bias, index)
            value += of_rows
            by_weights = by_weights + x.T @ by_logits
            by_bias = by_bias + by_logits.sum(axis=0)
            by_free = by_free + by_free_here
        value += self.l2 * float((weights**2).sum())
        return value, np.concatenate((by_weights.ravel(), np.ravel(by_bias), by_free))

    def _rows(self) -> Iterator[tuple[FloatArray, IntArray]]:
        """Go through all rows in float64: one block if they are in memory, else many."""
        self.passes += 1
        done = 0
        for x, index in self._in_memory or self._from_disk():
            yield x, index
            done += len(x)
            if self.progress:
                self.progress(done, self.num_rows, f"pass {self.passes} of a linear fit")

    def _from_disk(self) -> Iterator[tuple[FloatArray, IntArray]]:
        """Read part by part; blocks are no shorter than tables of all sets, which they meet."""
        for position in range(len(self._sets.part_sizes)):
            yield from _blocks(self._sets.part(position), max(BLOCK_ROWS, self._sets.num_sets))


def minimise(
    objective: Objective, max_iter: int, checkpoint: Checkpoint | None, tolerance: float = 1e-10
) -> tuple[FloatArray, FloatArray, FloatArray, OptimizeResult]:
    """Minimise from w = 0 and return w, b, free, result."""
    recorded = objective if checkpoint is None else _recorded(objective, checkpoint)
    limits = {"maxiter": max_iter, "maxfun": 10 * max_iter}
    options: Any = limits | {"ftol": tolerance, "gtol": 1e-6}
    with threadpool_limits(1 if objective.num_numbers < FEW_NUMBERS else None):
        result: OptimizeResult = minimize(
            recorded, objective.start, jac=True, method="L-BFGS-B", options=options
        )
    weights, bias, free = objective.split(result.x)
    return weights, bias, free, result


def _blocks(sets: UnlabeledSets, block_rows: int) -> Iterator[tuple[FloatArray, IntArray]]:
    """Cut rows in memory into blocks, in the types that the criteria want."""
    for first in range(0, len(sets), block_rows):
        block = slice(first, first + block_rows)
        yield sets.x[block].astype(np.float64), sets.set_index[block].astype(np.int64)


def _recorded(
    objective: Objective, checkpoint: Checkpoint
) -> Callable[[FloatArray], tuple[float, FloatArray]]:
    """Return the objective with a memory on disk.

    L-BFGS asks the same questions again if it gets the same answers, so the answers alone bring a
    fit back to where it was cut off.
    """
    saved = checkpoint.load()
    answers: list[FloatArray] = [] if saved is None else [*saved[0]["answers"].numpy()]
    asked, last_save = 0, time.monotonic()

    def recorded(point: FloatArray) -> tuple[float, FloatArray]:
        nonlocal asked, last_save
        if asked == len(answers):
            value, gradient = objective(point)
            answers.append(np.concatenate(([value], gradient)))
            if time.monotonic() - last_save >= SAVE_SECONDS:
                checkpoint.save({"answers": torch.from_numpy(np.stack(answers))}, {})
                last_save = time.monotonic()
        answer = answers[asked]
        asked += 1
        return float(answer[0]), answer[1:]

    return recorded
