"""The linear learner: logits x w + b, fitted to all rows at once by L-BFGS in float64.

`criteria` says what is minimised, `lbfgs` how; this file puts them together for a method and
chooses the strength of the penalty without labels. It knows no tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import OptimizeResult
from scipy.special import expit, logit

from unmix.core.losses import ssc_cross_entropy
from unmix.core.shares import share_by_mean
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.criteria import (
    NOTHING,
    FloatArray,
    Sets,
    class_columns,
    pooled_prior,
    proportion_criterion,
    refining_criterion,
    reliability,
    ssc_criterion,
)
from unmix.learn.lbfgs import Objective, Progress, minimise

__all__ = ["LinearFit", "choose_l2", "fit_linear"]

Method = Literal["ssc", "proportion"]
Splits = list[tuple[UnlabeledSets, UnlabeledSets]]

L2_CANDIDATES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
MAX_ITER = 200
CHOICE_ROWS = 50_000
CHOICE_FOLDS = 5
# Stated priors of 0 and 1 have infinite log-odds; if they may be wrong they start here.
START_MARGIN = 0.01


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
    squares = (
        class_columns(shares) - class_columns(sets.set_priors)
    ) ** 2  # (m, K); nan without rows
    certain = np.zeros(sets.num_sets)
    return float(np.nansum(reliability(sets, certain)[:, None] * squares))


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
        criterion = refining_criterion(transition, len(sets), learned, errors[learned], unit)
        free = logit(np.clip(stated[learned], START_MARGIN, 1 - START_MARGIN)) / unit
    else:
        criterion, free = ssc_criterion(transition, len(sets)), NOTHING
    bias = _start(target, transition.binary)
    objective = Objective(sets, criterion, bias, free, l2, progress)
    weights, bias, free, result = minimise(objective, max_iter, checkpoint)
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
    pooled = pooled_prior(sets)
    criterion = proportion_criterion(sets, reliability(sets, errors))
    bias = _start(pooled, priors.ndim == 1)
    objective = Objective(sets, criterion, bias, NOTHING, l2, progress)
    weights, bias, _, result = minimise(objective, max_iter, checkpoint)
    return _linear_fit(weights, bias, pooled, priors, result)


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
