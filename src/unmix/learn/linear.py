"""The linear learner: logits x w + b, fitted to all rows at once by L-BFGS in float64.

Two criteria, one per assumption: surrogate set classification (sets share p(x | class)) and
matching of proportions (sets share p(class | x)). A criterion is a sum over rows of a function of
the logits, and of the set priors where they are learned too; this file adds the penalty and the
affine map. Rows may lie on disk: they are taken block by block. It knows no tables and no labels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import OptimizeResult, minimize
from scipy.special import expit, logit, softmax
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from unmix.core.losses import ssc_cross_entropy, ssc_cross_entropy_gradient
from unmix.core.shares import share_by_mean
from unmix.core.simplex import set_sums
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.data.shuffled import ShuffledSets
from unmix.errors import InputError
from unmix.learn.checkpoint import Checkpoint

__all__ = ["LinearFit", "choose_l2", "fit_linear"]

FloatArray = npt.NDArray[np.float64]
Method = Literal["ssc", "proportion"]
Progress = Callable[[int, int, str], None]
Splits = list[tuple[UnlabeledSets, UnlabeledSets]]
Sets = UnlabeledSets | ShuffledSets
IntArray = npt.NDArray[np.int64]
# (logits, set of each row) -> value, derivative by the logits, by the free log-odds
BlockValue = Callable[[FloatArray, IntArray], tuple[float, FloatArray, FloatArray]]
# What the criterion is at one point: a part that needs no rows, and the sum over blocks of rows.
AtPoint = tuple[float, FloatArray, BlockValue]
# (function that goes through all logits, free log-odds of set priors) -> AtPoint
Sweep = Callable[[], Iterator[tuple[FloatArray, IntArray]]]
Criterion = Callable[[Sweep, FloatArray], AtPoint]

L2_CANDIDATES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
MAX_ITER = 200
CHOICE_ROWS = 50_000
CHOICE_FOLDS = 5
# Stated priors of 0 and 1 have infinite log-odds; if they may be wrong they start here.
START_MARGIN = 0.01
# A share of 0 in floating point must not become an infinite risk.
SMALLEST_SHARE = 1e-100
# Sets share p(class | x) only roughly, so a large set counts as no more than this many rows.
MOST_ROWS = 250
# Below this many numbers in x, threads of BLAS and torch wait for each other more than they help.
FEW_NUMBERS = 2_000_000
BLOCK_ROWS = 16_384  # of rows on disk: what stays in the processor's cache
SAVE_SECONDS = 10.0
NOTHING = np.empty(0)


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A fitted linear model."""

    weights: FloatArray
    """Shape (d,), or (d, K) for K classes."""
    bias: FloatArray
    """Shape (), or (K,)."""
    base_prior: float | FloatArray
    """The class shares at which the logits hold: the target prior (ssc), the pooled one."""
    set_priors: FloatArray
    """Shape (m,) or (m, K): as stated, or refined where prior errors were given."""
    iterations: int
    loss: float
    """The criterion and the penalties at the end."""
    converged: bool

    def logits(self, x: npt.ArrayLike) -> FloatArray:
        """Return the logits of rows (n, d): (n,), or (n, K) for K classes."""
        return np.asarray(np.asarray(x, dtype=np.float64) @ self.weights + self.bias)


def fit_linear(
    sets: Sets,
    *,
    method: Method,
    l2: float,
    prior_errors: npt.ArrayLike | None = None,
    max_iter: int = MAX_ITER,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> LinearFit:
    """Fit a linear model to sets whose rows are a matrix.

    Parameters
    ----------
    sets : UnlabeledSets or ShuffledSets
        With rows of shape (n, d), standardised; on disk they are read once or twice for each step.
    method : 'ssc' or 'proportion'
        Minimise the mean SSC cross-entropy, or the distance between the share of each set and the
        mean predicted probability of its rows.
    l2 : float
        Weight of |w|^2; the bias is free.
    prior_errors : array, shape (m,), optional
        Standard errors of the set priors; 0 for those that are certain. With 'ssc' (two classes)
        the priors are learned along with the model, see Notes; with 'proportion' the sets with
        well-known shares count more.
    max_iter : int
        Most steps of L-BFGS.
    progress : function (rows done in this pass, rows, text), optional
    checkpoint : Checkpoint, optional
        Where to save the values found so far; with them a later call comes to the same result.

    Notes
    -----
    Formulas (n_j rows in set j; s_j the error of its prior; v = p (1 - p) at the pooled prior)::

        ssc           mean of ssc_cross_entropy + l2 |w|^2
          refined     + sum_j (pi_j - stated_j)^2 / (2 s_j^2) / n
        proportion    - sum_j c_j sum_k Theta_jk log(mean of eta_k over set j) + l2 |w|^2
          weights     c_j proportional to 1 / (1 / n_j + 1 / 250 + s_j^2 / v)

    The 250 is measured. With c_j = n_j hidden shares were predicted well only if all sets had
    exactly the same p(class | x), with equal c_j only if they differed much; this does both.
    """
    rule = _rule(method)
    errors = _checked_errors(prior_errors, sets.num_sets)
    _check_sets(sets)
    if not (np.isfinite(l2) and l2 >= 0):
        raise InputError(f"l2 must be a finite number of at least 0; got {l2}")
    return rule.fit(sets, l2, errors, max_iter, progress, checkpoint)


def choose_l2(
    sets: UnlabeledSets,
    *,
    method: Method,
    rng: np.random.Generator,
    candidates: Sequence[float] = L2_CANDIDATES,
) -> float:
    """Choose the weight of the penalty without labels, on at most 50,000 rows.

    Parameters
    ----------
    sets : UnlabeledSets
    method : 'ssc' or 'proportion'
        'ssc' takes the least set log-loss of a fifth of the rows of each set; 'proportion' the
        least error of the shares of sets that the fit did not see, each fifth hidden in turn.
    rng : Generator
    candidates : sequence of float

    Returns
    -------
    float
        One of the candidates; the largest of those that do equally well.
    """
    rule = _rule(method)
    _check_sets(sets)
    if len(sets) > CHOICE_ROWS:
        _, sets = sets.hold_out(CHOICE_ROWS / len(sets), rng)
    splits, certain = rule.splits(sets, rng), np.zeros(sets.num_sets)
    descending = sorted(candidates, reverse=True)
    losses = [
        sum(rule.judge(rule.fit(kept, l2, certain), hidden) for kept, hidden in splits)
        for l2 in descending
    ]
    return descending[int(np.argmin(losses))]


def _split_rows(sets: UnlabeledSets, rng: np.random.Generator) -> Splits:
    """Return (kept, hidden) with rows of every set on both sides."""
    return [sets.hold_out(1 / CHOICE_FOLDS, rng)]


def _split_sets(sets: UnlabeledSets, rng: np.random.Generator) -> Splits:
    """Return pairs (kept, hidden) of whole sets, each set hidden once."""
    present = rng.permutation(np.flatnonzero(sets.set_sizes))
    folds = np.array_split(present, min(CHOICE_FOLDS, len(present)))
    masks = [np.isin(sets.set_index, fold) for fold in folds]
    return [(sets.rows(~hidden), sets.rows(hidden)) for hidden in masks]


def _set_log_loss(fit: LinearFit, sets: UnlabeledSets) -> float:
    """Return the mean set log-loss of rows that the fit did not see."""
    logits, set_index = torch.from_numpy(fit.logits(sets.x)), _index(sets)
    return float(ssc_cross_entropy(logits, set_index, sets.scoring_transition).mean())


def _share_error(fit: LinearFit, sets: UnlabeledSets) -> float:
    """Return the squared error of the mean predicted shares, weighted and summed over sets."""
    shares, _ = share_by_mean(fit.logits(sets.x), sets.set_index, sets.num_sets)
    squares = (_columns(shares) - _columns(sets.set_priors)) ** 2  # (m, K); nan without rows
    certain = np.zeros(sets.num_sets)
    return float(np.nansum(_reliability(sets, certain)[:, None] * squares))


def _fit_ssc(
    sets: Sets,
    l2: float,
    errors: FloatArray,
    max_iter: int = MAX_ITER,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> LinearFit:
    """Minimise the SSC cross-entropy, and refine the set priors that have errors."""
    transition = sets.transition
    stated, target = transition.set_priors.numpy(), transition.target.numpy()
    learned = (errors > 0) & (sets.set_sizes > 0)
    if learned.any() and not transition.binary:
        raise InputError(
            f"ssc refines set priors of two classes only; there are {transition.num_classes}. "
            "Leave prior_errors out"
        )
    # Log-odds in units in which they curve about as much as the weights: steps are half as many.
    unit = 1 / np.sqrt(transition.set_weights.numpy()[learned])
    if learned.any():
        criterion = _refining_criterion(transition, len(sets), learned, errors[learned], unit)
        free = logit(np.clip(stated[learned], START_MARGIN, 1 - START_MARGIN)) / unit
    else:
        criterion, free = _ssc_criterion(transition, len(sets)), NOTHING
    bias = _start(target, transition.binary)
    objective = _Objective(sets, criterion, bias, free, l2, progress)
    weights, bias, free, result = _minimise(objective, max_iter, checkpoint)
    priors = stated.copy()
    if learned.any():
        priors[learned] = expit(free * unit)
    return _linear_fit(weights, bias, target, priors, result)


def _fit_proportion(
    sets: Sets,
    l2: float,
    errors: FloatArray,
    max_iter: int = MAX_ITER,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> LinearFit:
    """Minimise the distance between the shares of the sets and the mean probabilities."""
    priors = np.asarray(sets.set_priors, dtype=np.float64)
    pooled = _pooled(sets)
    criterion = _proportion_criterion(sets, _reliability(sets, errors))
    bias = _start(pooled, priors.ndim == 1)
    objective = _Objective(sets, criterion, bias, NOTHING, l2, progress)
    weights, bias, _, result = _minimise(objective, max_iter, checkpoint)
    return _linear_fit(weights, bias, pooled, priors, result)


def _ssc_criterion(transition: Transition, num_rows: int) -> Criterion:
    """Return the mean SSC cross-entropy with its closed-form gradient."""

    def of_block(logits: FloatArray, index: IntArray) -> tuple[float, FloatArray, FloatArray]:
        z, set_index = torch.from_numpy(logits), torch.from_numpy(index)
        value = ssc_cross_entropy(z, set_index, transition).sum() / num_rows
        gradient = ssc_cross_entropy_gradient(z, set_index, transition) / num_rows
        return float(value), gradient.numpy(), NOTHING

    return lambda sweep, free: (0.0, NOTHING, of_block)


def _refining_criterion(
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


def _proportion_criterion(sets: Sets, set_weights: FloatArray) -> Criterion:
    """Return the weighted cross-entropy between stated shares and mean probabilities."""
    rows = np.maximum(sets.set_sizes, 1)  # sets without rows have no weight
    weighted = set_weights * _columns(sets.set_priors).T  # (K, m)
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


def _reliability(sets: Sets, errors: FloatArray) -> FloatArray:
    """Return how much the share of each set counts when shares are matched, summing to 1 (m,)."""
    pooled = _pooled(sets)
    variance = max(float((pooled * (1 - pooled)).mean()), SMALLEST_SHARE)
    rows = sets.set_sizes
    # 1 / (1 / rows + ...), written so that a set without rows gets 0
    precision = rows / (1 + rows * (1 / MOST_ROWS + errors**2 / variance))
    return np.asarray(precision / precision.sum())


def _pooled(sets: Sets) -> FloatArray:
    """Return the pooled prior (K,), of sets that need not tell the classes apart."""
    return np.asarray(sets.set_sizes @ _columns(sets.set_priors) / len(sets))


def _columns(shares: npt.ArrayLike) -> FloatArray:
    """Return shares as one column per class, (m, K)."""
    shares = np.asarray(shares, dtype=np.float64)
    return np.stack((1 - shares, shares), axis=1) if shares.ndim == 1 else shares


class _Objective:
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


def _blocks(sets: UnlabeledSets, block_rows: int) -> Iterator[tuple[FloatArray, IntArray]]:
    """Cut rows in memory into blocks, in the types that the criteria want."""
    for first in range(0, len(sets), block_rows):
        block = slice(first, first + block_rows)
        yield sets.x[block].astype(np.float64), sets.set_index[block].astype(np.int64)


def _minimise(
    objective: _Objective, max_iter: int, checkpoint: Checkpoint | None
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


def _recorded(
    objective: _Objective, checkpoint: Checkpoint
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


def _start(prior: FloatArray, binary: bool) -> FloatArray:
    """Return the bias that predicts a prior (K,) everywhere: shape () or (K,)."""
    log_prior = np.log(np.maximum(prior, 1e-6))  # a class may be in no set of a fold
    return np.asarray(log_prior[1] - log_prior[0] if binary else log_prior)


def _linear_fit(
    weights: FloatArray,
    bias: FloatArray,
    base_prior: FloatArray,
    set_priors: FloatArray,
    result: OptimizeResult,
) -> LinearFit:
    """Put together what a fit leaves behind."""
    return LinearFit(
        weights,
        bias,
        float(base_prior[1]) if weights.ndim == 1 else base_prior,
        set_priors,
        iterations=int(result.nit),
        loss=float(result.fun),
        converged=bool(result.success),
    )


def _index(sets: UnlabeledSets) -> torch.Tensor:
    """Return the set of each row as torch wants it."""
    return torch.from_numpy(sets.set_index).long()


def _check_sets(sets: Sets) -> None:
    """Refuse rows that are no matrix and priors that make no sense or tell nothing."""
    if len(sets.row_shape) != 1:
        shape = (len(sets), *sets.row_shape)
        raise InputError(f"a linear model takes rows of shape (n, d); got {shape}")
    if isinstance(sets, UnlabeledSets):  # rows on disk come from an encoder
        finite = np.isfinite(sets.x).all(axis=1)
        if not finite.all():
            row = int(finite.argmin())
            raise InputError(f"row {row} of x is not finite; encode missing values first")
    Transition(sets.set_priors, sets.set_sizes)


def _checked_errors(prior_errors: npt.ArrayLike | None, num_sets: int) -> FloatArray:
    """Return the errors of the set priors (m,), 0 if none are given, or say what is wrong."""
    if prior_errors is None:
        return np.zeros(num_sets)
    errors = np.asarray(prior_errors, dtype=np.float64)
    if errors.shape != (num_sets,):
        raise InputError(
            f"prior_errors must hold one number per set ({num_sets}); got shape {errors.shape}"
        )
    wrong = ~(np.isfinite(errors) & (errors >= 0))
    if wrong.any():
        j = int(wrong.argmax())
        raise InputError(
            f"prior_errors must be finite and at least 0; got {errors[j]} for set {j}. "
            "Use 0 for a prior that is certain"
        )
    return errors


class _Rule(NamedTuple):
    """What sets the two methods apart."""

    fit: Callable[..., LinearFit]
    splits: Callable[[UnlabeledSets, np.random.Generator], Splits]
    judge: Callable[[LinearFit, UnlabeledSets], float]


_RULES = {
    "ssc": _Rule(_fit_ssc, _split_rows, _set_log_loss),
    "proportion": _Rule(_fit_proportion, _split_sets, _share_error),
}


def _rule(method: str) -> _Rule:
    """Return the rule of a method, or say that there is none."""
    if method not in _RULES:
        raise InputError(f"method must be 'ssc' or 'proportion'; got {method!r}")
    return _RULES[method]
