"""One fit of a linear model: logits x w + b, to all rows at once by L-BFGS in float64.

`linear_objective` says what is minimised and how; this file puts that together for a method: where
to begin, in which coordinates, and of what length the weights end. It knows no tables and chooses
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save as save_arrays

from unmix.core.class_shares import ClassShares, check_errors
from unmix.core.risks import MeanLoss
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.learn.curvature import Coordinates, Curvature, SharedCurvature
from unmix.learn.linear_objective import (
    BLOCK_ROWS,
    NO_FREE,
    FloatArray,
    Objective,
    Progress,
    Sets,
    criterion_for,
    minimise,
)
from unmix.learn.methods import Method, method_named, risk_of
from unmix.learn.models import Form
from unmix.learn.sets_in_parts import SetsInParts
from unmix.learn.sums import product

if TYPE_CHECKING:
    from unmix.learn.checkpoint import Checkpoint

__all__ = ["LinearFit", "check_rows", "curvature_near", "fit_checked", "fit_linear"]

MAX_ITER = 200
# Of a fit that is only compared with others. Fewer steps would be a penalty of their own, by which
# a strength would be chosen that is too weak for the fit to all rows.
ROUGH_ITER, ROUGH_TOLERANCE = 50, 1e-8
# A fit to so many rows comes first, if there are several times as many and no more columns.
SOME_ROWS, WORTH_SOME, MOST_COLUMNS = 20_000, 4, 300


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A fitted linear model."""

    weights: FloatArray
    """Shape (d,), or (d, K) for K classes."""
    bias: FloatArray
    """Shape (), or (K,)."""
    base_prior: FloatArray
    """The class prior (K,) at which the logits hold."""
    set_priors: ClassShares
    """As stated, or refined where prior errors were given."""
    iterations: int
    loss: float
    """The criterion and the penalties at the end."""
    converged: bool
    resampled: tuple[tuple[FloatArray, FloatArray], ...] = ()
    """Weights and bias of fits to resampled sets."""
    curvature: list[Curvature] = field(default_factory=list)
    """That of the loss near the fit, once it was asked for; shared with fits that start here."""

    @property
    def form(self) -> Form:
        """The rows it takes and the logits it gives."""
        return (len(self.weights),), math.prod(self.weights.shape[1:])

    def logits(self, x: npt.ArrayLike) -> FloatArray:
        """Return the logits of rows (n, d): (n,), or (n, K) for K classes."""
        return np.asarray(product(np.asarray(x), self.weights) + self.bias)

    def resampled_logits(self, x: npt.ArrayLike) -> FloatArray:
        """Return the logits of the fits to resampled sets, (R, n) or (R, n, K)."""
        rows, number, (d, *classes) = np.asarray(x), len(self.resampled), self.weights.shape
        if not number:
            return np.empty((0, len(rows), *classes))
        weights, bias = zip(*self.resampled, strict=True)
        columns = np.concatenate([of_fit.reshape(d, -1) for of_fit in weights], axis=1)
        logits = product(rows, columns).T.reshape(number, -1, len(rows)).swapaxes(1, 2)
        return np.asarray(logits.reshape(number, len(rows), *classes) + np.stack(bias)[:, None])

    def with_resamples(
        self, fits: Sequence[LinearFit], *, average: bool, scale: float
    ) -> LinearFit:
        """Keep fits to resampled sets, spread by `scale`; with `average` take their mean."""
        weights = np.stack([fit.weights for fit in fits])
        bias = np.stack([fit.bias for fit in fits])
        mean = weights.mean(axis=0), bias.mean(axis=0)
        centre = mean if average else (self.weights, self.bias)
        spread = [
            (centre[0] + scale * (w - mean[0]), np.asarray(centre[1] + scale * (b - mean[1])))
            for w, b in zip(weights, bias, strict=True)
        ]
        return replace(self, weights=centre[0], bias=np.asarray(centre[1]), resampled=tuple(spread))

    def scaled(self, length: float, shift: FloatArray) -> LinearFit:
        """Return the fit, and its resamples, with all logits times `length` plus `shift`."""
        moved = [(length * w, np.asarray(length * b + shift)) for w, b in self.resampled]
        return replace(
            self,
            weights=length * self.weights,
            bias=np.asarray(length * self.bias + shift),
            resampled=tuple(moved),
        )

    def with_lengths(self, lengths: FloatArray, centre: FloatArray) -> LinearFit:
        """Return the fit with resamples that are longer, each by a part of their average.

        Parameters
        ----------
        lengths : (R,)
            Sum to 0, so that the average stays.
        centre : (), or (K,)
            The mean logit of rows, which stays too.
        """
        weights = np.mean([w for w, _ in self.resampled], axis=0)
        bias = np.mean([b for _, b in self.resampled], axis=0) - centre
        moved = [
            (w + more * weights, np.asarray(b + more * bias))
            for more, (w, b) in zip(lengths, self.resampled, strict=True)
        ]
        return replace(self, resampled=tuple(moved))

    def facts(self) -> dict[str, Any]:
        """Return what a saved model needs besides the weights."""
        return {"iterations": self.iterations, "loss": self.loss, "converged": self.converged}

    def weights_file(self) -> bytes:
        """Return the weights as a file."""
        arrays = {"weights": np.asarray(self.weights), "bias": np.atleast_1d(self.bias)}
        if self.resampled:
            weights, bias = zip(*self.resampled, strict=True)
            arrays |= {"resampled_weights": np.stack(weights), "resampled_bias": np.stack(bias)}
        return bytes(save_arrays(arrays))


def fit_linear(
    sets: Sets,
    *,
    method: str | Method,
    l2: float,
    prior_errors: npt.ArrayLike | None = None,
    max_iter: int = MAX_ITER,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    start: LinearFit | None = None,
    rough: bool = False,
) -> LinearFit:
    """Fit a linear model to sets whose rows are a matrix.

    Parameters
    ----------
    sets : UnlabeledSets or ShuffledSets
        With rows of shape (n, d), standardised; on disk they are read once or twice for each step.
    method : Method or its name
        'ssc' minimises the mean SSC cross-entropy, 'proportion' the distance between the share of
        each set and the mean predicted probability of its rows, any other method its risk.
    l2 : float
        Weight of |w|^2; the bias is free.
    prior_errors : array, shape (m,), optional
        Standard errors of the set priors; 0 for those that are certain. A method that refines
        learns the priors along with the model, see Notes; with 'proportion' the sets with
        well-known shares count more.
    max_iter : int
        Most steps of L-BFGS.
    progress : function (rows done in this pass, rows, text), optional
    checkpoint : Checkpoint, optional
        Where to save the values found so far; with them a later call comes to the same result.
    start : LinearFit, optional
        Where to begin, instead of weights of 0.
    rough : bool
        Stop early: the fit is one of many that are compared or averaged.

    Notes
    -----
    Formulas (n_j rows in set j; s_j the error of its prior; v = p (1 - p) at the pooled prior)::

        ssc           mean of ssc_cross_entropy + l2 |w|^2
          refined     + PriorRefiner.penalty / n
        proportion    - sum_j c_j sum_k Theta_jk log(mean of eta_k over set j) + l2 |w|^2
          weights     c_j proportional to 1 / (1 / n_j + 1 / 250 + s_j^2 / v)

          set effects   mean of set_effect_nll + l2 |w|^2; then w and the bias are moved to s w and
                        b' that make the mean least: a strong penalty finds the better direction
                        where there are few sets, and would shrink the slopes along it. Sets that
                        resampled fits leave out settle the length (`unmix.learn.resampling`)

    The 250 is measured. With c_j = n_j hidden shares were predicted well only if all sets had
    exactly the same p(class | x), with equal c_j only if they differed much; this does both.
    """
    learned_by = method_named(method)
    errors = check_errors(prior_errors, sets.num_sets)
    check_rows(sets)
    if not (np.isfinite(l2) and l2 >= 0):
        raise InputError(f"l2 must be a finite number of at least 0; got {l2}")
    return fit_checked(sets, learned_by, l2, errors, max_iter, progress, checkpoint, start, rough)


def fit_checked(
    sets: Sets,
    method: Method,
    l2: float,
    errors: FloatArray,
    max_iter: int = MAX_ITER,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    start: LinearFit | None = None,
    rough: bool = False,
) -> LinearFit:
    """Minimise the criterion of a method, and refine the set priors that have errors."""
    transition = Transition(sets.set_priors, sets.set_sizes, sets.target_prior, scoring=True)
    base = method.base_prior(transition)
    refiner, free, unit = None, NO_FREE, NO_FREE
    if method.refines and errors.any():
        from unmix.learn.refined_priors import PriorRefiner

        refiner = PriorRefiner(transition, errors)
        # In units in which the free numbers curve about as much as the weights.
        units = np.sqrt(len(sets)) * refiner.units(len(sets))
        unit = units.expand_as(refiner.start).ravel().numpy()
        free = refiner.start.ravel().numpy()
    criterion = criterion_for(method, sets, errors, refiner, unit)
    objective = Objective(sets, criterion, _start(base), free, l2, progress)
    start = start or _fit_to_some(sets, method, l2, certain=refiner is None)
    if start is not None:
        moved = start.bias + _start(base) - _start(start.base_prior)
        objective.start = np.concatenate((start.weights.ravel(), np.ravel(moved), free))
    if criterion.in_blocks and method.information is not None and _at_hand(sets):
        if base.size > 2:
            objective.coordinates = _coordinates_of_classes(objective, sets, method)
        elif start is not None:
            if not start.curvature:
                start.curvature.append(curvature_near(start, sets, method))
            objective.coordinates = start.curvature[0].coordinates(l2)
    limits: Any = (ROUGH_ITER, checkpoint, ROUGH_TOLERANCE) if rough else (max_iter, checkpoint)
    weights, bias, free, result = minimise(objective, *limits)
    if _scales_freely(method, l2, weights):
        if isinstance(sets, UnlabeledSets):
            weights, bias = _rescaled(sets, method, errors, weights, bias)
        elif isinstance(sets, SetsInParts):
            weights, bias = _rescaled_by_sums(sets, method, criterion, weights, bias)
    priors = sets.set_priors
    if refiner is not None:
        found = refiner.shares(refiner.start.new_tensor(free * unit).view(refiner.start.shape))
        priors = priors.with_matrix(found.numpy())
    return LinearFit(
        weights,
        bias,
        base,
        priors,
        iterations=int(result.nit),
        loss=float(result.fun),
        converged=bool(result.success),
        curvature=[] if start is None else start.curvature,
    )


def _scales_freely(method: Method, l2: float, weights: FloatArray) -> bool:
    """Say whether a penalty is only for the direction of these weights, and not for their length.

    Not one that is beyond those to choose from: it is there to say little.
    """
    free = method.free_length and weights.ndim == 1
    return free and 0 < l2 <= max(method.strengths) and bool(weights.any())


def _rescaled(
    sets: UnlabeledSets,
    method: Method,
    errors: FloatArray,
    weights: FloatArray,
    bias: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return weights of the length, and the bias, that suit the sets best without a penalty."""
    scores = sets.x @ weights
    unit = float(scores.std())
    if not unit > 0:
        return weights, bias
    along = replace(sets, x=(scores / unit)[:, None])
    objective = Objective(along, criterion_for(method, along, errors), bias, NO_FREE, 0.0, None)
    objective.start = np.concatenate(([unit], np.ravel(bias)))
    length, bias, _, _ = minimise(objective, ROUGH_ITER, None, ROUGH_TOLERANCE)
    return weights * (length[0] / unit), bias


def _rescaled_by_sums(
    sets: SetsInParts, method: Method, criterion: Any, weights: FloatArray, bias: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the same where parts are only asked for sums: two steps are free, length and bias."""
    unit = sets.score_deviation(weights, method)
    if not unit > 0:
        return weights, bias

    def along(vector: FloatArray, transposed: bool) -> FloatArray:
        steps = np.zeros_like(vector)
        direction = weights / unit
        if transposed:
            steps[0] = direction @ vector[:-1]
        else:
            steps[:-1] = vector[0] * direction
        steps[-1] = vector[-1]
        return steps

    objective = Objective(sets, criterion, bias, NO_FREE, 0.0, None)
    objective.start = np.concatenate((weights, np.ravel(bias)))
    objective.coordinates = along
    return minimise(objective, ROUGH_ITER, None, ROUGH_TOLERANCE)[:2]


def _at_hand(sets: Sets) -> bool:
    """Say whether some of the rows are here, and not only sums over them."""
    return not isinstance(sets, SetsInParts) or sets.sample is not None


def _some_rows(sets: Sets) -> UnlabeledSets:
    """Return rows from the whole of a table that is in memory, or of its first part."""
    part = sets.part(0)
    return (
        part
        if len(part) <= SOME_ROWS
        else part.rows(np.arange(0, len(part), len(part) // SOME_ROWS))
    )


def _fit_to_some(sets: Sets, method: Method, l2: float, *, certain: bool) -> LinearFit | None:
    """Fit to some of many rows, so that few steps are left to take with all.

    None where that does not pay: the curvature of many columns takes longer than the steps, and of
    K classes some rows say so little that a fit to them lies farther away than weights of 0.
    """
    few = len(sets) < WORTH_SOME * SOME_ROWS or sets.row_shape[0] > MOST_COLUMNS
    if (
        few
        or not _at_hand(sets)
        or not certain
        or sets.set_priors.num_classes > 2
        or method.information is None
        or method.batch_by != "rows"
    ):
        return None
    some = _some_rows(sets)
    present = some.set_priors.matrix[some.set_sizes > 0]
    if (present.max(axis=0) <= 0).any():  # a class is in none of these sets
        return None
    return fit_checked(some, method, l2, np.zeros(sets.num_sets), rough=True)


def _coordinates_of_classes(objective: Objective, sets: Sets, method: Method) -> Coordinates | None:
    """Return coordinates for K classes, by the curvature where a fit begins."""
    if sets.row_shape[0] > MOST_COLUMNS:
        return None
    some = _some_rows(sets)
    weights, bias, _ = objective.split(objective.start)
    risk = risk_of(method, some.scoring_transition)
    assert isinstance(risk, MeanLoss)  # only these are summed in blocks
    _, gradient = risk.sum_and_gradient(product(some.x, weights) + bias, some.set_index)
    return SharedCurvature(some.x, gradient).coordinates(objective.l2)


def curvature_near(fit: LinearFit, sets: Sets, method: Method) -> Curvature:
    """Return the curvature of the loss where a fit ended, by some of the rows."""
    assert method.information is not None
    some = _some_rows(sets)
    information = method.information(some.scoring_transition)
    return Curvature(some.x, information(fit.logits(some.x), some.set_index))


def _start(prior: FloatArray) -> FloatArray:
    """Return the bias that predicts a prior (K,) everywhere: shape () for two classes, or (K,)."""
    log_prior = np.log(np.maximum(prior, 1e-6))  # a class may be in no set of a fold
    return np.asarray(log_prior[1] - log_prior[0] if len(prior) == 2 else log_prior)


def check_rows(sets: Sets) -> None:
    """Refuse rows that are no matrix and priors that make no sense or tell nothing."""
    if len(sets.row_shape) != 1:
        shape = (len(sets), *sets.row_shape)
        raise InputError(f"a linear model takes rows of shape (n, d); got {shape}")
    if isinstance(sets, UnlabeledSets):  # rows on disk come from an encoder
        for first in range(0, len(sets), BLOCK_ROWS):
            finite = np.isfinite(sets.x[first : first + BLOCK_ROWS])
            if not finite.all():
                row = first + int(finite.all(axis=1).argmin())
                raise InputError(f"row {row} of x is not finite; encode missing values first")
    Transition(sets.set_priors, sets.set_sizes)
