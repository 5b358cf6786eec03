"""Sets whose rows lie in parts elsewhere: a linear model is fitted to them by sums alone.

What a method minimises becomes questions (`learn.sums`); whoever answers them, an engine, is not
known here. The rows that are at hand are a sample, by which strengths are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from unmix.core.class_shares import ClassShares
from unmix.core.effect_law import fit_tau
from unmix.core.risks import MeanLoss
from unmix.core.set_risks import CountRisk, SetEffectRisk
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.learn.methods import METHODS, Method, risk_of
from unmix.learn.sums import NO_FREE, About, FloatArray, IntArray, Parts, Question, answer

if TYPE_CHECKING:
    from unmix.learn.penalty_options import Penalty
    from unmix.learn.refined_priors import PriorRefiner

__all__ = ["AskedCriterion", "PartsHere", "SetsInParts", "asked_criterion", "refuse_whole_sets"]

Progress = Callable[[int, int, str], None]

ENGINE_BYTES = 8_000_000_000  # of rows that all workers keep for a network or for trees


@dataclass(frozen=True, eq=False)
class SetsInParts:
    """Sets whose rows lie in parts; like `ShuffledSets`, but a part is only asked for sums.

    Parameters
    ----------
    parts : Parts
        Who is asked.
    sample : UnlabeledSets or None
        Some of the rows, of all parts, encoded; None where rows are shown to nobody.
    set_priors : ClassShares
    target_prior : float or array, shape (K,)
    set_ids : tuple
    """

    parts: Parts
    sample: UnlabeledSets | None
    set_priors: ClassShares
    target_prior: Any
    set_ids: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return sum(self.parts.part_rows)

    @property
    def num_sets(self) -> int:
        """The number of sets m."""
        return len(self.set_priors)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return (self.parts.num_features,)

    @property
    def part_sizes(self) -> tuple[int, ...]:
        """Rows in each part."""
        return tuple(self.parts.part_rows)

    @cached_property
    def set_sizes(self) -> IntArray:
        """Rows of each set in all parts (m,)."""
        return np.asarray(np.sum(self.parts.part_sets, axis=0, dtype=np.int64))

    @cached_property
    def transition(self) -> Transition:
        """The transition these sets define; set weights are their shares of the rows."""
        return Transition(self.set_priors, self.set_sizes, self.target_prior)

    def part(self, position: int) -> UnlabeledSets:
        """Return the rows that are at hand, whichever part is asked for."""
        sample, priors, target = self.sample, self.set_priors, self.target_prior
        if sample is None:
            raise TypeError("no row of these sets is at hand")
        return UnlabeledSets(sample.x, sample.set_index, priors, target, self.set_ids)

    def hold_out(self, share: float, rng: np.random.Generator) -> tuple[SetsInParts, UnlabeledSets]:
        """Set rows aside, as many as may be here, and return (kept, held out).

        Of the others no more are kept than the memory of workers holds.
        """
        parts: Any = self.parts  # of an engine: nobody else shows rows
        share = min(share, len(self.part(0)) / len(self))
        parts, x, set_index = parts.hold_out(share, ENGINE_BYTES // (8 * parts.num_features))
        known = self.set_priors, self.target_prior, self.set_ids
        return replace(self, parts=parts), UnlabeledSets(x, set_index, *known)

    def taken_as(self, view: Literal["matrix", "native"]) -> SetsInParts:
        """Return the same sets as a model takes their rows, those at hand too."""
        if view == "matrix":
            return self
        parts: Any = self.parts  # of an engine: nobody else has them in another form
        parts, some = parts.as_taken_by(view), len(self.part(0))
        _, x, set_index = parts.hold_out(min(1.0, some / max(len(self), 1)), 0)
        shares = self.set_priors, self.target_prior, self.set_ids
        return replace(self, parts=parts, sample=UnlabeledSets(x, set_index, *shares))

    def question(self, about: About, method: Method) -> Question:
        """Return a question about these sets."""
        sizes, rows = self.set_sizes, len(self)
        return Question(about, method.name, self.set_priors, sizes, rows, self.target_prior)

    def score_deviation(self, weights: FloatArray, method: Method) -> float:
        """Return the standard deviation of x w over the rows at hand, or over all if none are."""
        if self.sample is not None:
            return float((self.sample.x @ weights).std())
        point = np.append(weights, 0.0)
        rows, total, squares = np.sum(
            self.parts.ask(self.question("scores", method), point), axis=0
        )
        return float(np.sqrt(max(squares / rows - (total / rows) ** 2, 0.0)))

    def effect_size(self, point: FloatArray, method: Method) -> float:
        """Return the set effect tau that suits all sets best, at weights and bias in one vector."""
        offsets = np.sum(self.parts.ask(self.question("offsets", method), point), axis=0)
        return _effect_size(offsets, self.set_sizes)

    def split_set(self) -> str | None:
        """Return a set that lies in more than one part, if there is one."""
        times = np.sum([sizes > 0 for sizes in self.parts.part_sets], axis=0)
        if times.max() <= 1:
            return None
        first = int(times.argmax())
        return str(self.set_ids[first] if self.set_ids else first)


def refuse_whole_sets(model: str, method: Method, *penalties: type[Penalty]) -> None:
    """Refuse a method that wants more than any rows in a batch, for models that learn in parts.

    Parameters
    ----------
    model : str
    method : Method
    *penalties : types
        Those that the model can add to the loss of rows.
    """

    def able(method: Method) -> bool:
        known = isinstance(method.penalty, (type(None), *penalties))
        return method.batch_by == "rows" and known

    if not able(method):
        others = [name for name, row in METHODS.items() if able(row) and not row.labeled]
        linear = "" if method.penalty else ", or model linear"
        raise InputError(
            f"{model} cannot learn by {method.name} from rows with an engine; use "
            f"{listed(others)}{linear}"
        )


@dataclass(frozen=True)
class AskedCriterion:
    """What a linear model minimises, as questions to the parts."""

    about: About
    method: Method
    refiner: PriorRefiner | None = None
    unit: FloatArray = field(default_factory=lambda: NO_FREE)

    @property
    def in_blocks(self) -> bool:
        """Whether it is a sum over rows."""
        return self.about == "losses"

    def sums(self, sets: Any, progress: Progress | None) -> AskedSums | RefinedSums:
        """Return who asks for the sums over the rows of sets."""
        kind = AskedSums if self.refiner is None else RefinedSums
        return kind(sets, self, progress)


def asked_criterion(
    method: Method,
    sets: SetsInParts,
    errors: FloatArray,
    refiner: PriorRefiner | None = None,
    unit: FloatArray = NO_FREE,
) -> AskedCriterion:
    """Return what a linear model minimises to learn by a method, as questions to the parts.

    Parameters are those of `unmix.learn.linear_objective.criterion_for`.

    Raises
    ------
    InputError
        The method is no sum over rows or whole sets, or a set does not lie in one part.
    """
    risk = risk_of(method, sets.transition)
    if method.refines and errors.any():
        by_arrays = isinstance(risk, MeanLoss) and risk.for_arrays is not None
        if not by_arrays or sets.set_priors.grouping is not None:
            raise InputError(
                f"shares with standard errors cannot be refined from sums by method {method.name} "
                "or for several groupings; leave the errors out, or use ssc and one grouping"
            )
        return AskedCriterion("refined", method, refiner, unit)
    if isinstance(risk, MeanLoss):
        return AskedCriterion("losses", method)
    kinds: dict[type, About] = {CountRisk: "counts", SetEffectRisk: "effects"}
    if type(risk) not in kinds:
        able = [n for n, other in METHODS.items() if _summed(other, sets) and not other.labeled]
        raise InputError(
            f"method {method.name} needs all rows at once and cannot be learned from sums over "
            f"parts; use {listed(able)}"
        )
    if sets.set_priors.grouping is not None:
        raise InputError(
            f"method {method.name} needs each set whole in one part, and sets of several "
            "groupings overlap; use one grouping, or ssc"
        )
    split = sets.split_set()
    if split is not None:
        raise InputError(
            f"method {method.name} needs each set whole in one part, and rows of set {split!r} "
            "lie in several; write the rows of a set to one file, or use ssc"
        )
    return AskedCriterion(kinds[type(risk)], method)


def _summed(method: Method, sets: SetsInParts) -> bool:
    """Say whether a method is a sum over rows or sets."""
    if method.penalty is not None:
        return False
    try:
        risk = method.risk(sets.transition)
    except InputError:
        return False
    return isinstance(risk, MeanLoss | CountRisk | SetEffectRisk)


class AskedSums:
    """Sums of a criterion that the parts are asked for, see `linear_objective.Sums`.

    Parameters
    ----------
    sets : SetsInParts
    criterion : AskedCriterion
    progress : function (rows done in this pass, rows, text), optional
    """

    def __init__(
        self, sets: SetsInParts, criterion: AskedCriterion, progress: Progress | None
    ) -> None:
        self._sets, self._progress, self._passes = sets, progress, 0
        self.question = sets.question(criterion.about, criterion.method)
        self._offsets = None
        if criterion.about == "effects":
            self._offsets = sets.question("offsets", criterion.method)

    def at(
        self, weights: FloatArray, bias: FloatArray, free: FloatArray
    ) -> tuple[float, FloatArray, Iterable[FloatArray]]:
        """Ask every part; with set effects twice, since their size depends on all sets."""
        point = np.concatenate((weights.ravel(), np.ravel(bias)))
        if self._offsets is not None:
            found = np.sum(self.ask(self._offsets, point), axis=0)
            point = np.append(point, _effect_size(found, self._sets.set_sizes))
        return 0.0, NO_FREE, self.ask(self.question, point)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Hold nothing: the work is done by others."""
        yield

    def ask(self, question: Question, point: FloatArray) -> list[FloatArray]:
        """Ask every part one question."""
        self._passes += 1
        done, rows = 0, self._sets.part_sizes

        def answered(part: int) -> None:
            nonlocal done
            done += rows[part]
            if self._progress:
                self._progress(done, sum(rows), f"pass {self._passes} of a linear fit")

        return self._sets.parts.ask(question, point, answered)


class RefinedSums:
    """The same where the set priors move too: the parts say which way, this process how far."""

    def __init__(
        self, sets: SetsInParts, criterion: AskedCriterion, progress: Progress | None
    ) -> None:
        assert criterion.refiner is not None
        self._refiner, self._unit = criterion.refiner, criterion.unit
        self._asked, self._num_rows = AskedSums(sets, criterion, progress), len(sets)
        self.working = self._asked.working

    def at(
        self, weights: FloatArray, bias: FloatArray, free: FloatArray
    ) -> tuple[float, FloatArray, Iterable[FloatArray]]:
        """Ask every part at the priors of the free numbers."""
        import torch

        leaf = torch.from_numpy(free).requires_grad_()
        moved = (leaf * torch.from_numpy(self._unit)).view(self._refiner.start.shape)
        shares = self._refiner.shares(moved)
        penalty = self._refiner.penalty(moved) / self._num_rows
        here = weights.size + bias.size
        priors = shares.detach().numpy().ravel()
        point = np.concatenate((weights.ravel(), np.ravel(bias), priors))
        vectors = self._asked.ask(self._asked.question, point)
        by_shares = np.sum([vector[1 + here :] for vector in vectors], axis=0)
        slope = torch.from_numpy(by_shares).view(shares.shape)
        (by_free,) = torch.autograd.grad(penalty + (shares * slope).sum(), leaf)
        none = np.zeros(free.size)
        return (
            penalty.item(),
            by_free.numpy(),
            (np.concatenate((vector[: 1 + here], none)) for vector in vectors),
        )


def _effect_size(offsets: FloatArray, set_sizes: IntArray) -> float:
    """Return the tau that suits the offsets of all sets best."""
    residuals, variances = offsets.reshape(2, len(set_sizes), -1)
    present = set_sizes > 0
    return fit_tau(residuals[present], variances[present])


@dataclass(frozen=True, eq=False)
class PartsHere:
    """`Parts` in this process: rows in memory, or on disk and read at each question.

    Parameters
    ----------
    each : sequence of UnlabeledSets, or of functions that return them
    sizes : sequence of arrays of integers, shape (m,)
        Rows of each set in each part.
    num_rows : sequence of int
        Rows of each part.
    num_features : int
    """

    each: Sequence[Callable[[], UnlabeledSets]]
    part_sets: Sequence[IntArray]
    part_rows: Sequence[int]
    num_features: int

    @classmethod
    def of(cls, parts: Sequence[UnlabeledSets]) -> PartsHere:
        """Return parts that are in memory."""

        def reading(part: UnlabeledSets) -> Callable[[], UnlabeledSets]:
            return lambda: part

        return cls(
            [reading(part) for part in parts],
            [part.set_sizes for part in parts],
            [len(part) for part in parts],
            int(parts[0].row_shape[0]),
        )

    def ask(
        self,
        question: Question,
        point: FloatArray,
        answered: Callable[[int], None] = lambda part: None,
    ) -> list[FloatArray]:
        """Return the answer of every part, one after the other."""
        answers = []
        for position, read in enumerate(self.each):
            part = read()
            answers.append(answer(part.x, part.set_index, question, point))
            answered(position)
        return answers
