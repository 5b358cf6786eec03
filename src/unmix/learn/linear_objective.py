"""What a linear model is fitted by, and how: functions of the logits, minimised by L-BFGS.

A risk that is a mean over rows is summed block by block, side by side on the threads there are; any
other wants the logits of all rows at once. Each comes with its gradient. Rows may lie on disk, and
are then read block by block, twice to match proportions. Rows stay in float32, as an encoder makes
them; a block at a time is float64, so that it is read from memory once and no copy is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from scipy.optimize import OptimizeResult, minimize
from scipy.special import expit, softmax

from unmix.core.class_shares import num_logits
from unmix.core.risks import MeanLoss, Risk, ShareMatch
from unmix.core.set_risks import SetRisk
from unmix.core.sums_by_set import row_copies, set_sums
from unmix.data.sets import UnlabeledSets
from unmix.data.shuffled import ShuffledSets
from unmix.errors import DivergenceError, InputError
from unmix.learn.curvature import Coordinates
from unmix.learn.methods import Method, risk_of
from unmix.learn.sets_in_parts import AskedCriterion, SetsInParts, asked_criterion
from unmix.learn.sums import (
    BLOCK_ROWS,
    NO_FREE,
    BlockValue,
    FloatArray,
    IntArray,
    Rows,
    SideBySide,
    block_sums,
    blocks,
    mean_of_block,
    num_threads,
    one_thread,
    product,
    rows_of_block,
)

if TYPE_CHECKING:
    from unmix.learn.checkpoint import Checkpoint
    from unmix.learn.refined_priors import PriorRefiner

__all__ = [
    "BLOCK_ROWS",
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

Sets = UnlabeledSets | ShuffledSets | SetsInParts
Progress = Callable[[int, int, str], None]
# What the criterion is at one point: a part that needs no rows, and the sum over blocks of rows.
AtPoint = tuple[float, FloatArray, BlockValue]
# (function that goes through all logits, free numbers of the set priors) -> AtPoint
Sweep = Callable[[], Iterator[tuple[FloatArray, IntArray]]]


@dataclass(frozen=True)
class Criterion:
    """What a linear model minimises, apart from the penalty."""

    at_point: Callable[[Sweep, FloatArray], AtPoint]
    in_blocks: bool = False
    """Whether it is a sum over rows: then they may come in any blocks, on several threads."""

    def __call__(self, sweep: Sweep, free: FloatArray) -> AtPoint:
        """Return what it is at one point."""
        return self.at_point(sweep, free)

    def sums(self, sets: Sets, progress: Progress | None) -> RowsHere:
        """Return who sums it over the rows of sets."""
        return RowsHere(sets, self, progress)


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
) -> Criterion | AskedCriterion:
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
    if isinstance(sets, SetsInParts):
        return asked_criterion(method, sets, errors, refiner, unit)
    if refiner is not None:
        return refining_criterion(method, refiner, len(sets), unit)
    risk = risk_of(method, sets.transition)
    if isinstance(risk, ShareMatch):
        return proportion_criterion(sets, reliability(sets, errors))
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
    of_block = mean_of_block(risk, num_rows)
    return Criterion(lambda sweep, free: (0.0, NO_FREE, of_block), in_blocks=True)


def whole_risk_criterion(risk: Risk, name: str) -> Criterion:
    """Return any risk of all rows, which are one block, with its gradient by autograd."""

    def of_block(logits: FloatArray, index: IntArray) -> tuple[float, FloatArray, FloatArray]:
        if isinstance(risk, SetRisk):
            return *risk.value_and_gradient(logits, index), NO_FREE
        import torch

        z = torch.from_numpy(logits).requires_grad_()
        value = risk(z, torch.from_numpy(index).long())
        (gradient,) = torch.autograd.grad(value, z)
        if not (value.isfinite() and gradient.isfinite().all()):
            raise DivergenceError(
                f"the risk of method {name} became {value.item():g}, or its gradient did, in a "
                "linear fit; keep logarithms and divisions away from 0, or look for extreme "
                "values in the rows"
            )
        return value.item(), gradient.numpy(), NO_FREE

    return Criterion(lambda sweep, free: (0.0, NO_FREE, of_block))


def refining_criterion(
    method: Method, refiner: PriorRefiner, num_rows: int, unit: FloatArray
) -> Criterion:
    """Return the mean loss of a method as a function of the set priors too."""
    import torch

    shape, units = refiner.start.shape, torch.from_numpy(unit)

    def at_point(sweep: Sweep, free: FloatArray) -> AtPoint:
        leaf = torch.from_numpy(free).requires_grad_()
        penalty = refiner.penalty((leaf * units).view(shape)) / num_rows
        (by_free,) = torch.autograd.grad(penalty, leaf)

        def of_block(logits: FloatArray, index: IntArray) -> tuple[float, FloatArray, FloatArray]:
            z = torch.from_numpy(logits).requires_grad_()
            risk = risk_of(method, refiner.transition((leaf * units).view(shape)))
            value = risk(z, torch.from_numpy(index).long()) * (len(z) / num_rows)
            by_logits, by_free_here = torch.autograd.grad(value, (z, leaf))
            return value.item(), by_logits.numpy(), by_free_here.numpy()

        return penalty.item(), by_free.numpy(), of_block

    return Criterion(at_point)


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

    return Criterion(at_point)


def reliability(sets: Sets, errors: FloatArray) -> FloatArray:
    """Return how much the share of each set counts when shares are matched, summing to 1 (m,)."""
    pooled = sets.set_priors.pooled(sets.set_sizes)
    variance = max(float((pooled * (1 - pooled)).mean()), SMALLEST_SHARE)
    rows = sets.set_sizes
    # 1 / (1 / rows + ...), written so that a set without rows gets 0
    precision = rows / (1 + rows * (1 / MOST_ROWS + errors**2 / variance))
    return np.asarray(precision / precision.sum())


class Sums(Protocol):
    """Who sums a criterion over all rows: here, or by asking the parts in which they lie."""

    def at(
        self, weights: FloatArray, bias: FloatArray, free: FloatArray
    ) -> tuple[float, FloatArray, Iterable[FloatArray]]:
        """Return what needs no rows, its derivative by the free numbers, and one vector per part.

        A vector holds a value and its derivatives by weights, bias and free numbers.
        """

    def working(self) -> AbstractContextManager[Any]:
        """Hold what is needed while a fit asks for sums again and again."""


# Below this many numbers in x, threads wait for each other more than they help.
FEW_NUMBERS = 2_000_000
SAVE_SECONDS = 10.0


class RowsHere:
    """`Sums` over rows in memory or on this disk, whose parts are blocks, on the threads there are.

    Parameters
    ----------
    sets : UnlabeledSets or ShuffledSets
    criterion : Criterion
    progress : function (rows done in this pass, rows, text), optional
    """

    def __init__(self, sets: Sets, criterion: Criterion, progress: Progress | None) -> None:
        self.criterion, self.progress = criterion, progress
        self.passes = 0
        self._sets = sets
        self._in_memory = len(sets.part_sizes) == 1
        self._map: SideBySide = map

    def at(
        self, weights: FloatArray, bias: FloatArray, free: FloatArray
    ) -> tuple[float, FloatArray, Iterable[FloatArray]]:
        """Make a pass over the rows, or two; see `Sums`."""
        value, by_free, of_block = self.criterion(
            lambda: ((product(x, weights) + bias, index) for x, index in self._rows()), free
        )

        def of_rows(block: tuple[Rows, IntArray]) -> FloatArray:
            small = self.criterion.in_blocks
            return block_sums(*block, weights, bias, of_block, small=small)

        return value, by_free, self._map(of_rows, self._rows())

    @contextmanager
    def working(self) -> Iterator[None]:
        """Use as many threads as BLAS would."""
        numbers = len(self._sets) * int(np.prod(self._sets.row_shape, dtype=int))
        # Of K classes each number of x is used K times.
        threads = 1 if numbers * self._logits() < FEW_NUMBERS else num_threads()
        in_blocks = self.criterion.in_blocks and self._in_memory
        # What wants all rows at once leaves the threads to BLAS.
        held = one_thread(threads) if threads == 1 or in_blocks else nullcontext(map)
        with held as self._map:
            yield

    def _logits(self) -> int:
        """Return the logits of each row."""
        return num_logits(self._sets.set_priors.num_classes)

    def _rows(self) -> Iterator[tuple[Rows, IntArray]]:
        """Go through all rows, in blocks where these are on disk or the criterion allows it."""
        self.passes += 1
        done = 0
        for x, index in self._all() if self._in_memory else self._from_disk():
            yield x, index
            done += len(x)
            if self.progress:
                self.progress(done, len(self._sets), f"pass {self.passes} of a linear fit")

    def _all(self) -> Iterator[tuple[Rows, IntArray]]:
        """Return the rows in memory."""
        sets = self._sets.part(0)
        step = rows_of_block(sets.x.shape[1]) if self.criterion.in_blocks else len(sets)
        yield from blocks(sets.x, sets.set_index, step)

    def _from_disk(self) -> Iterator[tuple[Rows, IntArray]]:
        """Read part by part; blocks are no shorter than tables of all sets, which they meet."""
        for position in range(len(self._sets.part_sizes)):
            sets = self._sets.part(position)
            yield from blocks(sets.x, sets.set_index, max(BLOCK_ROWS, sets.num_sets))


class Objective:
    """criterion(x w + b, free) + l2 |w|^2 and its gradient, as functions of one long vector.

    All that it asks of the rows is sums: one vector for each part of them, added in their order.
    """

    def __init__(
        self,
        sets: Sets,
        criterion: Criterion | AskedCriterion,
        bias: FloatArray,
        free: FloatArray,
        l2: float,
        progress: Progress | None,
    ) -> None:
        self.l2 = l2
        self.shapes = ((*sets.row_shape, *bias.shape), bias.shape, free.shape)
        self.ends = np.cumsum([np.prod(shape, dtype=int) for shape in self.shapes])
        self.start = np.concatenate((np.zeros(self.ends[0]), bias.ravel(), free))
        self.coordinates: Coordinates | None = None
        self.sums = criterion.sums(sets, progress)

    def split(self, point: FloatArray) -> list[FloatArray]:
        """Return weights, bias and free log-odds."""
        pieces = np.split(point, self.ends[:-1])
        return [piece.reshape(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def __call__(self, point: FloatArray) -> tuple[float, FloatArray]:
        """Return the value and the gradient: a pass over the rows, or two."""
        weights, bias, free = self.split(point)
        value, by_free, of_parts = self.sums.at(weights, bias, free)
        by_point = np.concatenate((2 * self.l2 * weights.ravel(), np.zeros(bias.size), by_free))
        total = np.concatenate(([value], by_point))
        # The sums are added in the order of the parts, whoever is done first.
        for vector in of_parts:
            total = total + vector
        return float(total[0]) + self.l2 * float((weights**2).sum()), total[1:]

    def moved(self, steps: FloatArray) -> FloatArray:
        """Return the point that lies so many steps, in coordinates of the curvature, from start."""
        return self.start + self._mapped(steps, transposed=False)

    def _mapped(self, vector: FloatArray, *, transposed: bool) -> FloatArray:
        """Return steps as a move of the point, or its gradient as that by the steps."""
        if self.coordinates is None:
            return vector
        numbers = self.ends[1]  # weights and bias; what is free has its own units
        return np.concatenate((self.coordinates(vector[:numbers], transposed), vector[numbers:]))

    def by_steps(self, steps: FloatArray) -> tuple[float, FloatArray]:
        """Return the value and the gradient as functions of steps from the start."""
        value, gradient = self(self.moved(steps))
        return value, self._mapped(gradient, transposed=True)

    def minimise(
        self, max_iter: int, checkpoint: Checkpoint | None, tolerance: float
    ) -> OptimizeResult:
        """Minimise over steps from the start by L-BFGS, on as many threads as BLAS would use."""
        recorded = self.by_steps if checkpoint is None else _recorded(self.by_steps, checkpoint)
        limits = {"maxiter": max_iter, "maxfun": 10 * max_iter}
        options: Any = limits | {"ftol": tolerance, "gtol": 1e-6}
        with self.sums.working():
            start = np.zeros_like(self.start)
            return minimize(recorded, start, jac=True, method="L-BFGS-B", options=options)


def minimise(
    objective: Objective, max_iter: int, checkpoint: Checkpoint | None, tolerance: float = 1e-10
) -> tuple[FloatArray, FloatArray, FloatArray, OptimizeResult]:
    """Minimise and return w, b, free, result."""
    result = objective.minimise(max_iter, checkpoint, tolerance)
    weights, bias, free = objective.split(objective.moved(result.x))
    return weights, bias, free, result


def _recorded(
    objective: Callable[[FloatArray], tuple[float, FloatArray]], checkpoint: Checkpoint
) -> Callable[[FloatArray], tuple[float, FloatArray]]:
    """Return the objective with a memory on disk.

    L-BFGS asks the same questions again if it gets the same answers, so the answers alone bring a
    fit back to where it was cut off.
    """
    import torch

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
