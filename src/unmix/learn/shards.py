"""A network whose rows lie in shards with workers: they work out gradients, this process learns.

A shard is some files, shuffled together. Their number follows from the files and the size of a
batch, never from the number of workers: who works out the gradients of which shard, and how often,
then changes no bit. The weights, their optimizer and what is saved of a run are with whoever asks;
workers get the weights with each batch and keep nothing but rows, so that one that dies is replaced
without a word.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.learn.methods import Method
from unmix.learn.part_files import FileParts
from unmix.learn.recipes import Recipe
from unmix.learn.refined_priors import RefiningNetwork
from unmix.learn.training import TrainingOptions, TrainingRun, stream
from unmix.learn.training_state import TrainingState

__all__ = ["Lesson", "Shard", "Shards", "balanced_shards"]

Array = np.ndarray[Any, Any]
RowsOfPart = Callable[[int], tuple[Array, Array]]

MOST_SHARDS = 8
LEAST_ROWS = 32  # of a batch in a shard: batch norm wants some


@dataclass(frozen=True, eq=False)
class Lesson:
    """What all workers must know to work out gradients, beside the rows and the weights."""

    shards: tuple[tuple[int, ...], ...]
    """The files of each."""
    network: nn.Module
    """Its weights do not count."""
    method: Method
    recipe: Recipe
    batches: int
    """In an epoch, of every shard."""
    seed: int
    prior_errors: Array | None
    deviation: float
    """Of the input, by which penalties go."""
    num_rows: int
    """In all shards, as all that follows."""
    set_sizes: Array
    set_priors: Any
    target_prior: Any


@dataclass(frozen=True, eq=False)
class Shards:
    """The `Collective` of a run whose rows lie with the workers of an engine."""

    parts: FileParts
    lesson: Lesson

    @classmethod
    def of(cls, run: TrainingRun) -> Shards:
        """Divide the files of a run; each worker makes the same run of its shards."""
        sets: Any = run.sets
        model, errors = run.network, run.options.prior_errors
        if isinstance(model, RefiningNetwork):
            model = model.model
        lesson = Lesson(
            balanced_shards(sets.part_sizes, run.recipe.batch_size),
            copy.deepcopy(model).cpu(),
            run.method,
            run.recipe,
            run.batches,
            run.options.seed,
            errors,
            run.deviation,
            len(sets),
            sets.set_sizes,
            sets.set_priors,
            sets.target_prior,
        )
        return cls(sets.parts, lesson)

    def learn(self, state: TrainingState) -> Tensor:
        """Average the gradients of a batch over shards, by their rows, and the statistics."""
        point = np.concatenate([t.numpy(force=True).ravel() for t in state.current])
        when = np.array([state.epoch, state.batch])
        replies = self.parts.engine.each(
            "gradient", len(self.lesson.shards), self.parts.known, self.lesson, point, when
        )
        rows = sum(reply.rows for reply in replies)
        found = np.zeros_like(point)
        for reply in replies:  # in the order of the shards
            found += np.float32(reply.rows / rows) * reply.vector
        pieces = _pieces(found, state)
        optimizers = {id(optimizer.values): optimizer for optimizer in state.optimizers}
        with torch.no_grad():
            for tensor, piece in zip(state.current, pieces, strict=True):
                trained = id(tensor) in optimizers
                place = tensor.grad if trained else tensor
                assert place is not None
                place.copy_(piece.view_as(place))
        return torch.tensor(sum(reply.risk * reply.rows for reply in replies) / rows)


@dataclass(frozen=True)
class Reply:
    """What a shard says of a batch."""

    risk: float
    rows: int
    vector: Array
    """As the weights came: their gradients, then the statistics after this batch."""


@dataclass(frozen=True, eq=False)
class _RowsOfShard:
    """The rows of a shard as sets to train on, with what is known of all rows."""

    rows: UnlabeledSets
    lesson: Lesson

    def __len__(self) -> int:
        return self.lesson.num_rows

    @property
    def set_priors(self) -> Any:
        return self.lesson.set_priors

    @property
    def part_sizes(self) -> tuple[int, ...]:
        return self.rows.part_sizes

    def part(self, position: int) -> UnlabeledSets:
        return self.rows.part(position)

    @cached_property
    def transition(self) -> Transition:
        """Of all rows: a set of which this shard has many is no larger for that."""
        lesson = self.lesson
        return Transition(lesson.set_priors, lesson.set_sizes, lesson.target_prior)


class Shard:
    """A shard with its worker.

    Parameters
    ----------
    lesson : Lesson
    number : int
        Which shard.
    rows_of : function (part) -> x (n, d), set_index (n,) or (n, G)
        Reads a file.
    """

    def __init__(self, lesson: Lesson, number: int, rows_of: RowsOfPart) -> None:
        self._seed = stream(lesson.seed, 4, number)
        read = [rows_of(part) for part in lesson.shards[number]]
        x, set_index = (np.concatenate(arrays) for arrays in zip(*read, strict=True))
        rows = UnlabeledSets(x, set_index, lesson.set_priors, lesson.target_prior)
        options = TrainingOptions(
            self._seed,
            prior_errors=lesson.prior_errors,
            device="cpu",
            batches=lesson.batches,
            deviation=lesson.deviation,
        )
        sets: Any = _RowsOfShard(rows, lesson)
        network = copy.deepcopy(lesson.network)
        with _one_thread():
            self._run = TrainingRun(network, sets, lesson.method, lesson.recipe, options)
        self._rows: Iterator[tuple[Tensor, Tensor]] = iter(())
        self._next: tuple[int, int] | None = None

    def gradient(self, point: Array, epoch: int, batch: int) -> Reply:
        """Work out the gradients of a batch at some weights: a function of these alone."""
        run, state = self._run, self._run.state
        pieces = _pieces(np.array(point), state)
        with torch.no_grad():
            for tensor, piece in zip(state.current, pieces, strict=True):
                tensor.copy_(piece.view_as(tensor))
        for optimizer in state.optimizers:
            assert optimizer.values.grad is not None
            optimizer.values.grad.zero_()
        state.epoch, state.batch = epoch, batch
        if self._next != (epoch, batch):
            self._rows = run.remaining_rows()
        self._next = epoch, batch + 1
        x, set_index = next(self._rows)
        with _one_thread(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream(self._seed, epoch, batch))
            run.network.train()
            risk = run.learn(x, set_index).item()
        trained = {id(optimizer.values) for optimizer in state.optimizers}
        found = [t.grad if id(t) in trained else t for t in state.current]
        vector = np.concatenate([t.numpy(force=True).ravel() for t in found if t is not None])
        return Reply(risk, len(x), vector)


def balanced_shards(part_sizes: Sequence[int], batch_size: int) -> tuple[tuple[int, ...], ...]:
    """Divide files into shards of about as many rows: as many shards as pay.

    Parameters
    ----------
    part_sizes : sequence of int
        Rows of each file.
    batch_size : int
        Of all shards together.
    """
    order = sorted(range(len(part_sizes)), key=lambda part: (-part_sizes[part], part))
    for number in range(min(MOST_SHARDS, len(part_sizes), batch_size // LEAST_ROWS), 1, -1):
        shards: list[list[int]] = [[] for _ in range(number)]
        rows = [0] * number
        for part in order:  # the largest first, to whoever has least
            least = rows.index(min(rows))
            shards[least].append(part)
            rows[least] += part_sizes[part]
        if min(rows) >= sum(rows) / number / 2:
            return tuple(tuple(sorted(shard)) for shard in shards)
    return (tuple(range(len(part_sizes))),)


def _pieces(vector: Array, state: TrainingState) -> Sequence[Tensor]:
    """Cut a vector into the tensors of a state."""
    return torch.split(torch.from_numpy(vector), [t.numel() for t in state.current])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Hold torch to one thread, so that every machine comes to the same bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
