"""Minimising a criterion of x w + b over all rows by L-BFGS, block by block if they lie on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from scipy.optimize import OptimizeResult, minimize
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from unmix.data.sets import UnlabeledSets
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.criteria import Criterion, FloatArray, IntArray, Sets

__all__ = ["Objective", "Progress", "minimise"]

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
    objective: Objective, max_iter: int, checkpoint: Checkpoint | None
) -> tuple[FloatArray, FloatArray, FloatArray, OptimizeResult]:
    """Minimise from w = 0 and return w, b, free, result."""
    recorded = objective if checkpoint is None else _recorded(objective, checkpoint)
    options: Any = {"maxiter": max_iter, "maxfun": 10 * max_iter, "ftol": 1e-10, "gtol": 1e-6}
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
