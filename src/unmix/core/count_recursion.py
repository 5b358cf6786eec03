"""Exact sums over the labelings of a small set, by recursion over its rows.

Forward: the distribution of the count of the first i rows. Backward: what the evidence about the
whole count says to each count after i rows. Together they give the probability of the evidence
and of every row's class given the evidence. Sets of about equal size share one padded batch.

This file knows probabilities and evidence, not logits; `unmix.core.counts` tilts both so that
nothing underflows.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

__all__ = ["Placement", "batches", "binary_recursion", "class_recursion", "count_states"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

BATCH_NUMBERS = 1 << 20  # numbers of one forward pass: 8 MB, long enough to hide the loop


class Placement:
    """Where the rows of some sets go in a padded batch of shape (rows, sets).

    Attributes
    ----------
    sets : (b,)
        The sets of the batch, by number.
    width : int
        Rows of the largest of them.
    rows, place, column : (r,)
        The rows of the table, and where each goes in the batch.
    """

    def __init__(self, sets: IntArray, order: IntArray, first: IntArray, sizes: IntArray) -> None:
        mine = sizes[sets]
        self.sets = sets
        self.width = int(mine.max(initial=0))
        self.column = np.repeat(np.arange(len(sets)), mine)
        self.place = np.arange(mine.sum()) - np.repeat(np.cumsum(mine) - mine, mine)
        self.rows = order[first[sets][self.column] + self.place]

    def pad(self, values: FloatArray, filler: float) -> FloatArray:
        """Lay a number per row out as (width, b)."""
        padded = np.full((self.width, len(self.sets)), filler)
        padded[self.place, self.column] = values[self.rows]
        return padded


def batches(index: IntArray, sets: IntArray, num_states: IntArray) -> Iterator[Placement]:
    """Yield the given sets in batches of about equal numbers of rows and states.

    Parameters
    ----------
    index : (n,)
        The set of each row.
    sets : (b,)
        The sets wanted, each with at least one row.
    num_states : (m,)
        Counts (or vectors of counts) that each set can have.
    """
    sizes = np.bincount(index, minlength=len(num_states))
    order = np.argsort(index, kind="stable")
    first = np.cumsum(sizes) - sizes
    # Padding by a fifth at most costs less than a batch for every size.
    by_rows, by_states = (np.ceil(4 * np.log2(a[sets])) for a in (sizes, num_states))
    kinds = 1000 * by_rows + by_states
    for kind in np.unique(kinds):
        alike = sets[kinds == kind]
        numbers = (int(sizes[alike].max()) + 1) * int(num_states[alike].max())
        at_once = max(1, BATCH_NUMBERS // numbers)
        for start in range(0, len(alike), at_once):
            yield Placement(alike[start : start + at_once], order, first, sizes)


def binary_recursion(
    success: FloatArray, failure: FloatArray, evidence: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sum over all labelings of two classes.

    Parameters
    ----------
    success, failure : (w, b)
        Probability of the positive and of the negative class; padded rows are never positive.
    evidence : (w + 1, b)
        Likelihood of what was stated if the count is 0..w.

    Returns
    -------
    total : (b,)
        sum_c P(count = c) evidence_c.
    posterior : (w, b)
        Probability that the row is positive, given the evidence.
    counts : (w + 1, b)
        Probability of every count, given the evidence.
    """
    width, num_sets = success.shape
    forward = np.zeros((width + 1, width + 1, num_sets))
    forward[0, 0] = 1.0
    for i in range(width):
        forward[i + 1, : i + 1] = forward[i, : i + 1] * failure[i]
        forward[i + 1, 1 : i + 2] += forward[i, : i + 1] * success[i]
    total = np.sum(forward[width] * evidence, axis=0)
    posterior = np.empty((width, num_sets))
    backward = evidence
    for i in reversed(range(width)):
        with_one = backward[1 : i + 2] * success[i]
        posterior[i] = np.einsum("cb,cb->b", forward[i, : i + 1], with_one)
        backward = backward[: i + 1] * failure[i] + with_one
    return total, posterior / total, forward[width] * evidence / total


def count_states(limits: IntArray) -> tuple[IntArray, IntArray]:
    """Number the vectors of counts 0..limit of each class: strides (m, K) and how many (m,).

    The class of the largest limit has the stride 0: its count is what the others leave.
    """
    radix = np.where(np.arange(limits.shape[1]) == limits.argmax(axis=1)[:, None], 1, limits + 1)
    with np.errstate(over="ignore"):  # far too many is all that need be known of many classes
        products = np.minimum(np.cumprod(radix.astype(np.float64), axis=1), 1e15)
    strides = np.hstack([np.ones((len(limits), 1)), products[:, :-1]]).astype(np.int64)
    return np.where(radix == 1, 0, strides), products[:, -1].astype(np.int64)


def class_recursion(
    q: FloatArray, limits: IntArray, sizes: IntArray, evidence_of: Callable[[IntArray], FloatArray]
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Sum over all labelings of K classes.

    Parameters
    ----------
    q : (K, w, b)
        Class probabilities; a padded row has 0 for every class.
    limits : (b, K)
        Largest count of each class that the evidence allows.
    sizes : (b,)
        Rows of each set.
    evidence_of : callable
        Gives the likelihood (S, b) of what was stated from the counts of every state (K, S, b).

    Returns
    -------
    total : (b,)
    posterior : (K, w, b)
        Probability of each class of each row, given the evidence.
    states : (S, b)
        Probability of every vector of counts, given the evidence.
    counts : (K, S, b)
        The vectors themselves.
    """
    _, width, num_sets = q.shape
    strides, num_states = count_states(limits)
    most = int(num_states.max())
    state = np.arange(most)[:, None]
    alive = state < num_states
    rest, column = limits.argmax(axis=1), np.arange(num_sets)
    is_rest = np.zeros((len(q), 1, num_sets), dtype=bool)
    is_rest[rest, 0, column] = True
    steps, most_of = strides.T[:, None, :], limits.T[:, None, :]
    digits = np.where(steps == 0, 0, state // np.maximum(steps, 1) % (most_of + 1))  # (K, S, b)
    before = _flat(np.where(alive & (is_rest | (digits > 0)), state - steps, most))
    after = _flat(np.where(alive & (is_rest | (digits < most_of)), state + steps, most))
    counts = digits.copy()
    counts[rest, :, column] = (sizes - digits.sum(axis=0)).T
    rows = q.copy()
    rows[rest, :, column] += (q.sum(axis=0) == 0).T  # a padded row leaves the state as it is
    evidence = np.where(alive & (counts >= 0).all(axis=0), evidence_of(counts), 0.0)

    forward = np.zeros((width + 1, most + 1, num_sets))  # the last state is the dead one
    forward[0, 0] = 1.0
    for i in range(width):
        sources = forward[i].ravel()[before]  # (K, S, b)
        forward[i + 1, :most] = np.einsum("kb,ksb->sb", rows[:, i], sources)
    states = forward[width, :most] * evidence
    total = states.sum(axis=0)
    posterior = np.empty_like(q)
    backward = np.vstack([evidence, np.zeros((1, num_sets))])
    for i in reversed(range(width)):
        targets = backward.ravel()[after]
        posterior[:, i] = rows[:, i] * np.einsum("sb,ksb->kb", forward[i, :most], targets)
        backward[:most] = np.einsum("kb,ksb->sb", rows[:, i], targets)
    return total, posterior / total, states / total, counts.astype(np.float64)


def _flat(states: IntArray) -> IntArray:
    """Turn states (K, S, b) into positions in a raveled (S + 1, b)."""
    return np.asarray(states * states.shape[2] + np.arange(states.shape[2]))
