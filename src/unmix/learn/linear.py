"""The linear model: how it is fitted, resampled, saved and loaded, and the strength of its penalty.

The strength is chosen without labels, by rows or sets that a fit did not see. How one fit is made,
`linear_fit` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load as load_arrays

from unmix.core.assumptions import COVARIATE_SHIFT
from unmix.core.risks import MeanLoss
from unmix.core.row_losses import set_log_loss
from unmix.core.sums_by_set import row_copies
from unmix.data.sets import UnlabeledSets
from unmix.learn.linear_fit import (
    LinearFit,
    check_rows,
    curvature_near,
    fit_checked,
    fit_linear,
)
from unmix.learn.linear_objective import FloatArray, Progress, Sets, reliability
from unmix.learn.methods import Method, method_named, risk_of
from unmix.learn.models import Learner, Model, Setup
from unmix.learn.resampled_lines import steps_to_resamples
from unmix.learn.saved_state import finite_arrays
from unmix.learn.sets_in_parts import SetsInParts, asked_criterion

if TYPE_CHECKING:
    from unmix.learn.checkpoint import Checkpoint

__all__ = ["ROWS", "choose_l2"]

Splits = list[tuple[UnlabeledSets, UnlabeledSets]]

CHOICE_ROWS = 20_000
CHOICE_FOLDS = 5


def choose_l2(
    sets: UnlabeledSets,
    *,
    method: str | Method,
    rng: np.random.Generator,
    candidates: Sequence[float] | None = None,
) -> float:
    """Choose the weight of the penalty without labels, on at most 20,000 rows.

    Parameters
    ----------
    sets : UnlabeledSets
    method : Method or its name
        Under label shift the least set log-loss of a fifth of the rows of each set decides; under
        covariate shift the least error of the shares of sets that the fit did not see, each fifth
        hidden in turn.
    rng : Generator
    candidates : sequence of float, optional
        Those of the method if left out; tried from the strongest on, until two in turn are no
        better.

    Returns
    -------
    float
        One of the candidates; the largest of those that do equally well.
    """
    learned_by = method_named(method)
    rule = _RULES[learned_by.assumption.set_posterior]
    if learned_by.batch_by != "rows":  # a set is known as a whole or not at all
        rule = rule._replace(splits=_split_sets)
    check_rows(sets)
    if len(sets) > CHOICE_ROWS:
        _, sets = sets.hold_out(CHOICE_ROWS / len(sets), rng)
    splits, certain = rule.splits(sets, rng), np.zeros(sets.num_sets)
    descending = sorted(candidates or learned_by.strengths, reverse=True)
    fits: list[LinearFit | None] = [None] * len(splits)
    best, chosen, worse = np.inf, descending[0], 0
    for l2 in descending:
        loss = 0.0
        for i, (kept, hidden) in enumerate(splits):
            fit = fit_checked(kept, learned_by, l2, certain, start=fits[i], rough=True)
            fits[i], loss = fit, loss + rule.judge(fit, hidden)
        if loss < best:
            best, chosen, worse = loss, l2, 0
        elif (worse := worse + 1) == 2:
            break
    return chosen


def _split_rows(sets: UnlabeledSets, rng: np.random.Generator) -> Splits:
    """Return (kept, hidden) with rows of every set on both sides."""
    return [sets.hold_out(1 / CHOICE_FOLDS, rng)]


def _split_sets(sets: UnlabeledSets, rng: np.random.Generator) -> Splits:
    """Return pairs (kept, hidden) of whole sets, each set hidden once."""
    present = rng.permutation(np.flatnonzero(sets.set_sizes))
    folds = np.array_split(present, min(CHOICE_FOLDS, len(present)))
    masks = [sets.rows_of_sets(fold) for fold in folds]
    return [(sets.rows(~hidden), sets.rows(hidden)) for hidden in masks]


def _set_log_loss(fit: LinearFit, sets: UnlabeledSets) -> float:
    """Return the mean set log-loss of rows that the fit did not see."""
    return set_log_loss(fit.logits(sets.x), sets.set_index, sets.scoring_transition)


def _share_error(fit: LinearFit, sets: UnlabeledSets) -> float:
    """Return the squared error of the mean predicted shares, weighted and summed over sets."""
    rows, index = row_copies(sets.set_index)
    logits = fit.logits(sets.x)[rows]
    shares = COVARIATE_SHIFT.set_shares(logits, index, sets.num_sets, fit.base_prior)
    squares = (shares - sets.set_priors.matrix) ** 2  # (m, K); nan without rows
    certain = np.zeros(sets.num_sets)
    return float(np.nansum(reliability(sets, certain)[:, None] * squares))


class _Rule(NamedTuple):
    """How the strength of the penalty is chosen, by whether rows have a set posterior."""

    splits: Callable[[UnlabeledSets, np.random.Generator], Splits]
    judge: Callable[[LinearFit, UnlabeledSets], float]


_RULES = {
    True: _Rule(_split_rows, _set_log_loss),
    False: _Rule(_split_sets, _share_error),
}


def _fit_model(
    sets: Sets,
    setup: Setup,
    *,
    prior_errors: FloatArray | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    start: LinearFit | None = None,
    rough: bool = False,
    **_: Any,
) -> Learner:
    """Fit by L-BFGS, its regularisation chosen without labels if it is not given."""
    l2 = _strength(sets.part(0), setup) if setup.l2 is None else setup.l2
    fit = fit_linear(
        sets,
        method=setup.method,
        l2=l2,
        prior_errors=prior_errors,
        progress=progress,
        checkpoint=checkpoint,
        start=start,
        rough=rough,
    )
    refined = fit.set_priors is not sets.set_priors
    return Learner(replace(setup, l2=l2), fit, fit.base_prior, fit.set_priors, [], refined)


def _fit_resamples(
    sets: UnlabeledSets, learner: Learner, times: npt.NDArray[np.int64]
) -> list[LinearFit]:
    """Fit to resampled sets by a few steps, all at once, if the risk is a sum over their rows."""
    method, fit = method_named(learner.setup.method), learner.fit
    risk = risk_of(method, sets.scoring_transition)
    if method.information is None or not isinstance(risk, MeanLoss) or risk.for_arrays is None:
        return []
    assert isinstance(fit, LinearFit)
    l2 = learner.setup.l2 or 0.0
    curvature = fit.curvature[0] if fit.curvature else curvature_near(fit, sets, method)
    coordinates = curvature.coordinates(l2)
    if coordinates is None:
        return []
    losses = risk.for_arrays(sets.scoring_transition)
    found = steps_to_resamples(sets, losses, fit.weights, fit.bias, l2, times, coordinates)
    return [
        replace(fit, weights=weights, bias=np.asarray(bias), curvature=[])
        for weights, bias in zip(*found, strict=True)
    ]


def _strength(sets: UnlabeledSets, setup: Setup) -> float:
    """Choose the weight of the penalty for a setup without labels."""
    return choose_l2(sets, method=setup.method, rng=np.random.default_rng(setup.seed))


def _load(facts: dict[str, Any], weights: bytes, base_prior: FloatArray, priors: Any) -> LinearFit:
    """Build a fit again from a saved model."""
    arrays = load_arrays(weights)
    finite_arrays(arrays)
    # Two classes have one weight for a feature, and a bias in an array of one.
    shape = arrays["weights"].shape
    sizes = {"weights": shape, "bias": shape[1:] or (1,)}
    if "resampled_weights" in arrays:  # a model of an older version has none
        number = len(arrays["resampled_weights"])
        sizes |= {"resampled_weights": (number, *shape), "resampled_bias": (number, *shape[1:])}
    found = {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
    expected = {name: (size, "float64") for name, size in sizes.items()}
    if len(shape) not in (1, 2) or found != expected:
        raise ValueError(f"the arrays are {found}")
    bias, again = arrays["bias"], "resampled_weights" in arrays
    pairs = zip(arrays["resampled_weights"], arrays["resampled_bias"], strict=True) if again else ()
    return LinearFit(
        weights=arrays["weights"],
        bias=bias if len(shape) == 2 else bias[0],
        base_prior=base_prior,
        set_priors=priors,
        iterations=int(facts["iterations"]),
        loss=float(facts["loss"]),
        converged=bool(facts["converged"]),
        resampled=tuple((w, np.asarray(b)) for w, b in pairs),
    )


def _refuse_parts(sets: SetsInParts, method: Method, errors: FloatArray) -> None:
    """Refuse what sums over parts cannot teach."""
    asked_criterion(method, sets, errors)


def _refuse(method: Method) -> str | None:
    """Say why a linear model cannot learn by a method."""
    return "its penalty needs a network" if method.penalty else None


ROWS = {
    "linear": Model(
        "linear",
        _fit_model,
        _load,
        _refuse,
        whole_sets_in_memory=True,
        in_parts=_refuse_parts,
        strength=_strength,
        cheap=True,
        resamples=20,
        resamples_at_once=_fit_resamples,
    )
}
