"""Sums over rows, all that a linear fit asks of them: what is asked, and what a part answers.

The rows may lie in parts anywhere: in this process, in files that workers read, with owners who
show them to nobody. A part answers a question at a point with one vector of numbers, from its own
rows and from what is known of all sets; whoever asks adds the vectors in the order of the parts, so
that it changes no bit who answered. Nothing here loads torch or an engine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from unmix.core.risks import MeanLoss, Risk
from unmix.core.row_losses import CrossEntropyRows
from unmix.core.set_risks import SetEffectRisk, SetRisk
from unmix.core.transition import Transition
from unmix.learn.methods import method_named, risk_of

__all__ = [
    "BLOCK_ROWS",
    "NO_FREE",
    "About",
    "BlockValue",
    "Parts",
    "Question",
    "Rows",
    "SideBySide",
    "answer",
    "block_sums",
    "blocks",
    "mean_of_block",
    "num_threads",
    "one_thread",
    "product",
    "rows_of_block",
    "weights_and_bias",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Rows = npt.NDArray[Any]
"""A matrix of numbers of any type."""
# (logits, set of each row) -> value, derivative by the logits, by the free numbers of the priors
BlockValue = Callable[[FloatArray, IntArray], tuple[float, FloatArray, FloatArray]]
Answered = Callable[[int], None]
SideBySide = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""`map`, or one that works on several items at a time and keeps their order."""
About = Literal["losses", "counts", "offsets", "effects", "scores", "refined"]

NO_FREE = np.empty(0)
# Of a block in float64: it stays in the processor's cache between its two products.
BLOCK_NUMBERS, BLOCK_ROWS = 2**18, 16_384


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of every part, at one point after the other.

    Parameters
    ----------
    about : str
        What the answer holds, for d columns and K classes (of two classes one logit: K is 1)::

            'losses'    sum over rows of the loss / n and its derivatives, (1 + (d + 1) K,)
            'counts'    the same of a risk that is a sum over sets
            'offsets'   of each set its offset, and what that varies by without a set effect, each
                        (m,) or (m, K - 1); 0 for sets that have no rows in the part
            'effects'   as 'counts', at the set effect tau with which the point ends
            'scores'    rows, sum and sum of squares of the logits of two classes, (3,)
            'refined'   as 'losses', at the set priors (m, K) with which the point ends, and the
                        derivatives by these, m K more

    method : str
        A name of `unmix.learn.methods.METHODS`.
    set_priors : ClassShares
        Of all sets, wherever their rows lie.
    set_sizes : array of integers, shape (m,)
        Rows of each set in all parts together.
    num_rows : int
        Rows of all parts (n).
    target_prior : float or array, shape (K,)
    """

    about: About
    method: str
    set_priors: Any
    set_sizes: IntArray
    num_rows: int
    target_prior: Any

    @cached_property
    def risk(self) -> Risk:
        """The risk of the method, for all sets."""
        whole = Transition(self.set_priors, self.set_sizes, self.target_prior, scoring=True)
        return risk_of(method_named(self.method), whole)


class Parts(Protocol):
    """Rows in parts, wherever they are: what is known of each, and who answers for it.

    The parts and their order are always the same, and so is the answer of a part to the same
    question at the same point, bit by bit. What stands between is the business of an engine: a part
    that cannot answer is asked again, or the engine raises. It is never left out, since sums
    without it would be wrong in silence.
    """

    @property
    def part_sets(self) -> Sequence[IntArray]:
        """Rows of each set in each part, (m,) each."""

    @property
    def part_rows(self) -> Sequence[int]:
        """Rows in each part."""

    @property
    def num_features(self) -> int:
        """Columns of the matrix of a part, encoded (d)."""

    def ask(
        self, question: Question, point: FloatArray, answered: Answered = lambda part: None
    ) -> list[FloatArray]:
        """Return the answer of every part, in the order of the parts.

        Parameters
        ----------
        question : Question
            The same object as long as only the point changes.
        point : array of float64
            Weights, bias and what else the question wants, in one vector.
        answered : function (part)
            Called as answers come in, in any order.
        """


def answer(x: Rows, set_index: IntArray, question: Question, point: FloatArray) -> FloatArray:
    """Return what the rows of one part answer, in float64.

    Parameters
    ----------
    x : array of numbers, shape (n, d)
        Encoded rows of this part.
    set_index : array of integers, shape (n,) or (n, G)
        Their sets, by the numbers that these have in the question.
    question : Question
    point : array of float64
        Weights (d,) or (d, K), bias () or (K,), and what else the question wants, in one vector.
    """
    ends = {"effects": 1, "refined": question.set_priors.matrix.size}
    numbers, rest = np.split(point, [point.size - ends.get(question.about, 0)])
    weights, bias = weights_and_bias(numbers, x.shape[1])
    # Several threads might add up a product of matrices in another order.
    with one_thread():
        if question.about == "offsets":
            return _offsets(x, set_index, question.risk, product(x, weights) + bias)
        if question.about == "scores":
            scores = product(x, weights) + bias
            return np.array([len(x), scores.sum(), (scores**2).sum()])
        if question.about == "losses":
            of_block = mean_of_block(question.risk, question.num_rows)
            step = rows_of_block(x.shape[1])
        elif question.about == "refined":
            of_block = _by_priors(question, rest)
            step = max(BLOCK_ROWS, len(question.set_sizes))  # no shorter than the table of sets
        else:
            of_block = _sum_of_sets(question, rest)
            step = len(x)  # sets are whole
        total = np.zeros(1 + numbers.size + (rest.size if question.about == "refined" else 0))
        for rows, index in blocks(x, set_index, step):
            total = total + block_sums(rows, index, weights, bias, of_block, small=step < len(x))
        return total


def mean_of_block(risk: Risk, num_rows: int) -> BlockValue:
    """Return the part that a block of rows has in a mean over rows, with its derivatives."""
    if not isinstance(risk, MeanLoss):
        raise TypeError("only the mean of a loss is a sum over rows")

    def of_block(logits: FloatArray, index: IntArray) -> tuple[float, FloatArray, FloatArray]:
        value, gradient = risk.sum_and_gradient(logits, index)
        gradient /= num_rows
        return value / num_rows, gradient, NO_FREE

    return of_block


def _by_priors(question: Question, priors: FloatArray) -> BlockValue:
    """Return the part of a block in the mean loss, with its derivatives by the set priors too."""
    shares = question.set_priors.with_matrix(priors.reshape(question.set_priors.matrix.shape))
    sizes, stated = question.set_sizes, question.risk
    assert isinstance(stated, MeanLoss)  # whose target prior does not move
    target = stated.transition.arrays.target
    moved = Transition(shares, sizes, target, scoring=True)
    losses = CrossEntropyRows(moved)

    def of_block(logits: FloatArray, index: IntArray) -> tuple[float, FloatArray, FloatArray]:
        value, gradient = losses.sum_and_gradient(logits, index)
        by_priors = losses.prior_gradient(logits, index).ravel()
        n = question.num_rows
        return value / n, gradient / n, by_priors / n

    return of_block


def _sum_of_sets(question: Question, rest: FloatArray) -> BlockValue:
    """Return the part that whole sets have in a risk of sets, with its derivatives."""
    risk = question.risk
    if not isinstance(risk, SetRisk):
        raise TypeError(f"the risk of method {question.method} is no sum over sets")
    divisor = risk.divisor(int(np.count_nonzero(question.set_sizes)), question.num_rows)

    def of_block(logits: FloatArray, index: IntArray) -> tuple[float, FloatArray, FloatArray]:
        if isinstance(risk, SetEffectRisk):
            value, gradient = risk.sum_at(float(rest[0]), logits, index)
        else:
            value, gradient, _ = risk.added(logits, index)
        return value / divisor, gradient / divisor, NO_FREE

    return of_block


def _offsets(x: Rows, set_index: IntArray, risk: Risk, logits: FloatArray) -> FloatArray:
    """Return the offsets of the sets and what they vary by, one after the other."""
    if not isinstance(risk, SetEffectRisk):
        raise TypeError("only methods with set effects have offsets")
    present, offsets, variances = risk.offsets(logits, set_index)
    found = np.zeros((2, len(risk.shares), *offsets.shape[1:]))
    found[:, present] = offsets, variances
    return found.ravel()


def weights_and_bias(numbers: FloatArray, num_features: int) -> tuple[FloatArray, FloatArray]:
    """Return the weights (d,) and bias (), or (d, K) and (K,), that are in one vector."""
    classes = numbers.size // (num_features + 1)
    shape = () if classes == 1 else (classes,)
    end = num_features * classes
    return numbers[:end].reshape(num_features, *shape), numbers[end:].reshape(shape)


def block_sums(
    x: Rows,
    set_index: IntArray,
    weights: FloatArray,
    bias: FloatArray,
    of_block: BlockValue,
    *,
    small: bool,
) -> FloatArray:
    """Return the value of a block of rows and its derivatives by weights, bias and free numbers.

    Parameters
    ----------
    x : array of numbers, shape (n, d)
    set_index : array of integers, shape (n,) or (n, G)
    weights, bias : arrays, shapes (d,) and (), or (d, K) and (K,)
    of_block : function (logits, set_index) -> value and derivatives
    small : bool
        Whether a copy of the block in float64 fits into the processor's cache.
    """
    if small:
        x = x.astype(np.float64, copy=False)
    value, by_logits, by_free = of_block(product(x, weights) + bias, set_index)
    by_weights = _product_of_columns(x, by_logits)
    return np.concatenate(([value], by_weights.ravel(), np.ravel(by_logits.sum(axis=0)), by_free))


def blocks(x: Rows, set_index: IntArray, block_rows: int) -> Iterator[tuple[Rows, IntArray]]:
    """Cut rows in memory into blocks."""
    for first in range(0, len(x), block_rows):
        block = slice(first, first + block_rows)
        yield x[block], set_index[block]


def rows_of_block(columns: int) -> int:
    """Return the rows of a block of numbers, of so many a row."""
    return int(np.clip(BLOCK_NUMBERS // max(1, columns), 256, BLOCK_ROWS))


def product(x: Rows, weights: FloatArray) -> FloatArray:
    """Return x w in float64, whatever the type of x."""
    if x.dtype == np.float64:
        return np.asarray((weights.T @ x.T).T)  # a class of all rows lies together
    found = np.empty((*weights.shape[1:][::-1], len(x))).T
    for block in _slices(x):
        found[block] = (weights.T @ x[block].astype(np.float64).T).T
    return found


def _product_of_columns(x: Rows, values: FloatArray) -> FloatArray:
    """Return x' v in float64, whatever the type of x."""
    if x.dtype == np.float64:
        return np.asarray((values.T @ x).T)  # values of a class lie together
    found = np.zeros((x.shape[1], *values.shape[1:]))
    for block in _slices(x):
        found += x[block].astype(np.float64).T @ values[block]
    return found


def _slices(x: Rows) -> list[slice]:
    """Return slices of rows that are worked on at a time."""
    step = rows_of_block(x.shape[1])
    return [slice(first, first + step) for first in range(0, len(x), step)]


def num_threads() -> int:
    """Return how many threads a product of matrices would use."""
    return max((pool["num_threads"] for pool in _pools("torch" in sys.modules).info()), default=1)


@contextmanager
def one_thread(threads: int = 1) -> Iterator[SideBySide]:
    """Hold libraries to one thread, and yield a `map` that works on so many items at a time."""
    with _pools("torch" in sys.modules).limit(limits=1):
        if threads == 1:
            yield map
            return
        with ThreadPoolExecutor(threads) as executor:
            yield executor.map


@cache
def _pools(with_torch: bool) -> Any:
    """Return the libraries that have threads; torch brings some, if it has been loaded."""
    return ThreadpoolController().select(user_api="blas")
