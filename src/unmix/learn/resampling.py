"""Resampled sets: how far another draw of the sets would have moved the model.

Sets are drawn with replacement, as many as there are, and the model is fitted to each draw, from
where the fit to all sets ended. The spread of these fits is the model's own error, for intervals.
Where every set has an effect of its own, their average is the better model: it depends less on the
few sets with large effects. Each fit leaves out about a third of the sets, and these say how long
the slopes should be: sets of which a model was learned would make it too bold, and a penalty too
timid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from unmix.core.set_risks import SetEffectRisk, SetRisk
from unmix.core.slope_length import length_and_shift
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets, held_out_rows
from unmix.errors import IdentifiabilityError
from unmix.learn.methods import method_named
from unmix.learn.models import Learner, Spread, fit_learner, model_row, tasks_here
from unmix.progress import Progress

__all__ = ["with_resamples"]

Array = np.ndarray[Any, Any]
Resamples = list[tuple[UnlabeledSets, Array]]
"""Of each draw the sets, and which of them were drawn."""

LEAST_SETS = 6  # of fewer, most draws are alike
MOST_ROWS = 20_000  # for each draw; of a larger table each set lends some of its rows
LEAST_ROWS = 20  # of a set that is thinned; below it whole sets are left out


def with_resamples(
    sets: UnlabeledSets,
    learner: Learner,
    *,
    thinned: bool,
    seed: int,
    progress: Progress | None = None,
    spread: Spread | None = None,
) -> Learner:
    """Return the learner with fits to resampled sets, as many as its model's row asks for.

    Parameters
    ----------
    sets : UnlabeledSets
        The rows of training as the model takes them, or a sample of them.
    learner : Learner
        Fitted to all sets.
    thinned : bool
        Whether `sets` is only a sample of what the learner was fitted to.
    seed : int
    progress : function (fits done, fits in all, text), optional
    spread : function, optional
        Who makes the fits; this process if left out.
    """
    draws = model_row(learner.setup.model).resamples
    present = np.flatnonzero(sets.set_sizes)
    if draws == 0 or len(present) < LEAST_SETS:
        return learner
    rng = np.random.default_rng([seed, 7])
    used = _thinned(sets, present, rng)
    thinned = thinned or used is not sets
    kept = np.flatnonzero(used.set_sizes)
    stated = replace(used, set_priors=learner.set_priors)
    resamples = [_drawn(stated, kept, rng) for _ in range(draws)]
    by = spread or tasks_here
    if progress:
        progress(0, draws, f"{draws} fits")
    fits, seen = _fits_at_once(stated, learner, resamples, by)
    if not fits:
        fits, seen = _fits_one_by_one(learner, resamples, progress, by)
    if len(fits) < 2:
        return learner
    # Fewer sets than there are spread more, in proportion to the root of their number.
    scale = float(np.sqrt(len(kept) / len(present)))
    halves = stated.set_priors.grouping is not None  # of which the average would be more timid
    by_class = method_named(learner.setup.method).assumption.set_posterior
    average = not (thinned or by_class or halves)
    fit: Any = learner.fit  # of a model whose row asks for resamples
    joined = fit.with_resamples(fits, average=average, scale=scale)
    # Rows of a set that is left out lie in sets of other groupings that are not; and labels know
    # more of lengths than sets do.
    if halves or sets.known is not None:
        return replace(learner, fit=joined)
    return _of_honest_length(replace(learner, fit=joined), stated, fits, seen)


@dataclass(frozen=True, eq=False)
class _AtOnce:
    """Fits to all resampled sets at once: one task, since a division would round otherwise."""

    sets: UnlabeledSets
    learner: Learner
    times: Array
    """How often each set is in each resample (R, m)."""

    def __call__(self, number: int) -> list[Any]:
        """Return the fits; none by a method for which they are fitted one by one."""
        at_once = model_row(self.learner.setup.model).resamples_at_once
        return [] if at_once is None else at_once(self.sets, self.learner, self.times)


def _fits_at_once(
    sets: UnlabeledSets, learner: Learner, resamples: Resamples, spread: Spread
) -> tuple[list[Any], list[Array]]:
    """Return fits to resampled sets and the sets of each, if the model can make them at once."""
    at_once = model_row(learner.setup.model).resamples_at_once
    if at_once is None or sets.known is not None or sets.set_priors.grouping is not None:
        return [], []
    seen = []
    for _, chosen in resamples:
        try:
            Transition(sets.set_priors.take(chosen), sets.set_sizes[chosen])
        except IdentifiabilityError:  # the same share over and over
            continue
        seen.append(chosen)
    if not seen:
        return [], []
    times = np.stack([np.bincount(chosen, minlength=sets.num_sets) for chosen in seen])
    (fits,) = spread(_AtOnce(sets, learner, times), 1, lambda number: None)
    return fits, seen


@dataclass(frozen=True, eq=False)
class _EachFit:
    """The fit to one draw of sets, from where the fit to all ended: a task for whoever is free."""

    learner: Learner
    resamples: Resamples

    def __call__(self, number: int) -> Any:
        """Return the fit; None where the draw cannot tell the classes apart."""
        sets, chosen = self.resamples[number]
        grouped = sets.set_priors.grouping is not None
        try:
            drawn = sets.keep_sets(chosen) if grouped else sets.take_sets(chosen)
            return fit_learner(drawn, self.learner.setup, start=self.learner.fit, rough=True).fit
        except IdentifiabilityError:  # the same share over and over
            return None


def _fits_one_by_one(
    learner: Learner, resamples: Resamples, progress: Progress | None, spread: Spread
) -> tuple[list[Any], list[Array]]:
    """Return fits to resampled sets, each from where the fit to all ended, and the sets of each."""

    def told(number: int) -> None:
        if progress:
            progress(number, len(resamples), f"{number + 1} of {len(resamples)}")

    found = spread(_EachFit(learner, resamples), len(resamples), told)
    pairs = [
        (fit, chosen) for fit, (_, chosen) in zip(found, resamples, strict=True) if fit is not None
    ]
    return [fit for fit, _ in pairs], [chosen for _, chosen in pairs]


def _of_honest_length(
    learner: Learner, sets: UnlabeledSets, fits: list[Any], drawn: list[Array]
) -> Learner:
    """Return the learner with slopes as long, and a set effect as large, as left-out sets say.

    The logits of a row are the average of those by the fits that left out its set (R, n); what is
    found for it goes to a fit of another length by least squares.
    """
    risk = method_named(learner.setup.method).risk(sets.scoring_transition)
    if not isinstance(risk, SetRisk):
        return learner
    logits = np.stack([fit.logits(sets.x) for fit in fits])
    left_out = np.stack([~sets.rows_of_sets(chosen) for chosen in drawn])
    known = left_out.any(axis=0)
    weights = left_out[:, known] / left_out[:, known].sum(axis=0)
    unseen = np.einsum("rn...,rn->n...", logits[:, known], weights)
    index = sets.set_index[known]
    seen = logits.mean(axis=0)
    found = length_and_shift(risk, unseen, index, seen, sets.set_index)
    honest = found.length * unseen + found.shift
    tau = risk.tau(honest, index) if isinstance(risk, SetEffectRisk) else 0.0
    wanted = found.length * seen + found.shift
    own = learner.logits(sets.x)
    centred = own - own.mean(axis=0)
    spread = np.sum(centred**2)
    times = float(np.sum(centred * wanted) / spread) if spread > 0 else 1.0
    fit: Any = learner.fit
    scaled = fit.scaled(times, np.asarray(wanted.mean(axis=0) - times * own.mean(axis=0)))
    more = _missing_lengths(logits, found.error / max(found.length, found.error))
    return replace(learner, fit=scaled.with_lengths(more, wanted.mean(axis=0)), tau=tau)


def _missing_lengths(logits: Array, error: float) -> Array:
    """Return how much longer each fit should be for their lengths to scatter as far as they may.

    The same sets are in most resamples, and a penalty holds all fits to nearly the same length.

    Parameters
    ----------
    logits : (R, n) or (R, n, K)
    error : float
        Standard error of the length, relative to it.
    """
    mean = logits.mean(axis=0) - logits.mean(axis=(0, 1))
    spread = np.sum(mean**2)
    lengths = np.sum(logits * mean, axis=tuple(range(1, logits.ndim))) / spread if spread else 1.0
    missing = max(error**2 - float(np.var(lengths)), 0.0)
    number = len(logits)
    scores = ndtri((np.arange(number) + 0.5) / number)
    order = np.random.default_rng(number).permutation(number)  # in no order of the fits
    # Lengths are off by factors: that of a flat likelihood may be much larger, never below 0.
    factors = np.exp(np.sqrt(missing) * (scores / scores.std()))
    return np.asarray((factors - factors.mean())[order])


def _drawn(
    sets: UnlabeledSets, kept: Array, rng: np.random.Generator
) -> tuple[UnlabeledSets, Array]:
    """Draw as many sets as there are, with replacement; of several groupings half of each.

    Returned are the sets to take them from, with the rows of known class of this draw.

    A set of one grouping that is drawn twice would double its rows in sets of the others, whose
    shares would no longer be theirs. Half of the sets, drawn without replacement, spread just as
    much and leave every set whole.
    """
    if sets.known is not None:  # sets of one, of which as many are drawn
        draw = rng.integers(len(sets.known), size=len(sets.known))
        sets = replace(sets, known=sets.known.take(draw))
    grouping = sets.set_priors.grouping
    if grouping is None:
        return sets, rng.choice(kept, len(kept))
    halves = []
    for g in np.unique(grouping[kept]):
        own = kept[grouping[kept] == g]
        halves.append(rng.permutation(own)[: max(1, (len(own) + 1) // 2)])
    return sets, np.concatenate(halves)


def _thinned(sets: UnlabeledSets, present: Array, rng: np.random.Generator) -> UnlabeledSets:
    """Return at most about `MOST_ROWS` rows: some of each set, or some sets if they are small."""
    if len(sets) <= MOST_ROWS:
        return sets
    share = MOST_ROWS / len(sets)
    if share * len(sets) / len(present) >= LEAST_ROWS:
        return sets.rows(held_out_rows(sets.set_index, share, rng))
    wanted = max(LEAST_SETS, int(share * len(present)))
    return sets.keep_sets(rng.permutation(present)[:wanted])
