"""One score on held-out sets, for everything that is to be chosen.

Hide some sets, and ask how likely their stated shares are given their rows, under the assumption of
each candidate, beside the answer "shares scatter about their mean".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from unmix.core.assumptions import SET_EFFECTS, ResidualRule
from unmix.core.chance_sets import chance_p_value
from unmix.core.share_density import ShareResiduals, join_residuals, log_density
from unmix.data.sets import UnlabeledSets, held_out_rows
from unmix.errors import IdentifiabilityError
from unmix.learn.hidden_sets import Gain, HeldOutShares, HiddenSets, gain_of, set_folds, z_of
from unmix.learn.methods import METHODS
from unmix.learn.models import Learner, Setup, Spread, fit_learner, model_row, tasks_here
from unmix.learn.training_rows import RowsOfModel
from unmix.progress import Progress

__all__ = [
    "LEAST_SETS",
    "SEEN",
    "Scored",
    "score_hidden_sets",
    "score_on_sets",
    "thinned",
]

Array = np.ndarray[Any, Any]
Views = Mapping[str, UnlabeledSets | RowsOfModel]
LEAST_SETS = 4  # fewer leave too little to learn from when one is hidden
LEAST_TRIED = 4  # strengths, before a path may end
CLEARLY_WORSE = -2.0  # z of the difference to the best, at which it may end before that
SEEN = 1.92  # log-likelihood that a set effect must add: chance adds more in 1 of 20
# That rules out counts before they are tried: what the error of the model adds is no set effect.
CLEARLY_SEEN = 5.0
BY_CHANCE = 0.001  # p-value of features that differ between sets, below which these are natural
HOPELESS = -1.0  # z of a line, below which its method is not tried with anything dearer
MOST_NUMBERS = 2_000_000  # rows x columns to score by
ENOUGH_SETS = 200  # to score by; more would only take longer
SETS_FOR_STRENGTH = 10  # fewer cannot choose the strength of a penalty


@dataclass(frozen=True)
class Scored:
    """A setup with its strength chosen, and how well it predicts held-out sets."""

    setup: Setup
    gain: Gain
    share_error: float
    """Root of the mean squared error of the predicted share, over sets by their rows."""
    alike: bool
    """Whether features of the sets differ by no more than their rows and classes do."""
    effect: float
    """Log-likelihood that an effect of each set adds."""
    l2_free: bool
    """Whether the strength of its penalty was to be chosen."""
    baseline_error: float
    """The same for the answer "every set has the average share"."""
    shares: HeldOutShares
    """What was predicted for the hidden sets."""


def score_on_sets(
    views: Views,
    setups: Sequence[Setup],
    *,
    categorical: Sequence[int] = (),
    folds: int = 5,
    max_rows: int = 20_000,
    seed: int = 0,
    progress: Progress | None = None,
    spread: Spread | None = None,
) -> list[Scored]:
    """Hide sets in turn and score how well each setup predicts their stated shares.

    Formula: the log density of the stated share of a hidden set given its rows, under the
    assumption of the method (`unmix.core.share_density`), minus that of a baseline that knows no
    rows; mean and standard error over sets. A linear model without a strength is fitted with
    several, down to where two in turn are no better. Under label shift it gets the best of them,
    else the strongest whose score is within a standard error of the best, paired over sets.
    Hidden sets with fewer than 20 rows are taken together with others of similar shares. Cheap
    setups come first, and what they rule out is not tried.

    Parameters
    ----------
    views : mapping from a model name to UnlabeledSets or RowsOfModel
        The same rows, as each model takes them; for the model of the first setup UnlabeledSets.
    setups : sequence of Setup
    categorical : sequence of int
        Categorical columns of views for models that know categories.
    folds : int
        Parts into which the sets are divided, each spanning the range of the shares.
    max_rows : int
        Larger data are thinned to this, or to two million numbers: by whole sets first, then
        inside each set.
    progress : function (fits done, fits at most, text), optional
    spread : function, optional
        Who makes the fits; this process if left out.

    Returns
    -------
    list of Scored
        Of the setups that were tried, in their order; empty if there are too few sets to hide any.
    """
    rng = np.random.default_rng([seed, 5])
    few = thinned(views, setups, max_rows, rng)
    first = few[setups[0].model_name]
    present = first.set_sizes.nonzero()[0]
    if len(present) < LEAST_SETS:
        return []
    divided = set_folds(first.set_priors, present, folds, rng)
    hidden_sets = [_Fold(first, hidden) for hidden in divided]
    return score_hidden_sets(
        hidden_sets,
        few,
        setups,
        categorical=categorical,
        chance=_put_together_by_chance(first),
        progress=progress,
        spread=spread,
    )


def _put_together_by_chance(sets: UnlabeledSets) -> bool:
    """Say whether features of sets differ by no more than their rows and classes do."""
    if sets.set_index.ndim == 2:
        return True
    flat, precision = sets.x.reshape(len(sets), -1), sets.set_priors.precision
    off = 0.0 if precision is None else precision.errors**2
    return chance_p_value(flat, sets.set_index, sets.set_priors.matrix, off) > BY_CHANCE


def score_hidden_sets(
    hidden_sets: Sequence[HiddenSets],
    views: Mapping[str, Any],
    setups: Sequence[Setup],
    *,
    categorical: Sequence[int] = (),
    chance: bool = True,
    progress: Progress | None = None,
    spread: Spread | None = None,
) -> list[Scored]:
    """Score how well each setup predicts the stated shares of sets that are hidden in turn.

    Parameters
    ----------
    hidden_sets : sequence of HiddenSets
        The folds, which know how to fit to the other sets and to predict those they hide.
    views : mapping from a model name to what the folds fit to
    setups, categorical, progress, spread : as for `score_on_sets`
    chance : bool
        Whether the features of the sets differ as by chance.
    """
    told = _Told(progress, setups, len(hidden_sets))
    without_rows, _ = _density([fold.baseline() for fold in hidden_sets], hidden_sets)
    baseline_error = _root_mean_square([fold.pooled for fold in hidden_sets], hidden_sets)
    scored: dict[int, Scored] = {}
    for i in sorted(range(len(setups)), key=lambda i: _cost(setups[i])):
        setup, view = setups[i], views[setups[i].model_name]
        told.begin(setup)
        if _is_hopeless(setup, list(scored.values()), chance=chance):
            continue
        path = _strengths(setup, view)
        try:
            tried = _scores_of(
                path, view, hidden_sets, categorical, told, spread or tasks_here, chance=chance
            )
        except IdentifiabilityError:  # what remains cannot tell the classes apart
            return []
        densities = np.stack([entry.density for entry in tried])
        # Under label shift the law of shares forgives timid slopes, and shares of groups of rows
        # then miss the truth: the best strength is taken as it is.
        by_class = METHODS[setup.method].assumption.set_posterior
        k = int(np.nanmean(densities, axis=1).argmax()) if by_class else _strongest(densities)
        gain = gain_of(tried[k].density - without_rows, tried[k].tau, len(setups))
        scored[i] = Scored(
            path[k],
            gain,
            tried[k].share_error,
            chance,
            tried[k].effect,
            l2_free=setup.l2 is None,
            baseline_error=baseline_error,
            shares=_held_out_shares(hidden_sets, tried[k].predicted),
        )
    return [scored[i] for i in sorted(scored)]


def _cost(setup: Setup) -> tuple[bool, bool]:
    """Order what is tried: lines before trees and networks, counts after what needs no counts."""
    return model_row(setup.model).strength is None, METHODS[setup.method].random_sets


def _is_hopeless(setup: Setup, scored: Sequence[Scored], *, chance: bool) -> bool:
    """Say whether cheaper candidates have settled that this one need not be tried.

    Trees are not, by a method whose line predicts held-out sets worse than guessing by more than a
    standard error: it is then the assumption that fails. Under label shift guessing is worse than
    another line, if the features of the sets differ by more than their classes. Counts are not
    where label shift fails in this way and sets clearly have effects of their own, for they want
    one or the other.
    """
    method = METHODS[setup.method]
    best = max((entry.gain.gain for entry in scored), default=0.0)
    failed = set()
    for entry in scored:
        strange = METHODS[entry.setup.method].assumption.set_posterior and not chance
        least = best if strange else 0.0
        if entry.gain.gain - least < HOPELESS * entry.gain.error:
            failed.add(entry.setup.method)
    if setup.method in failed:
        return True
    effects = any(
        entry.effect > CLEARLY_SEEN and not METHODS[entry.setup.method].assumption.set_posterior
        for entry in scored
    )
    alike = (METHODS[name] for name in failed)
    return method.random_sets and effects and any(m.assumption.set_posterior for m in alike)


class _Told:
    """What a bar is told while setups are scored: which one, which fold, how many fits."""

    def __init__(self, progress: Progress | None, setups: Sequence[Setup], folds: int) -> None:
        self._progress, self._folds = progress, folds
        self._total = sum(map(self._most_fits, setups))
        self._before = self._done = 0
        self._name = ""

    def _most_fits(self, setup: Setup) -> int:
        """Return how many fits a setup takes if no strength of its penalty is left out."""
        one = setup.l2 is not None or model_row(setup.model).strength is None
        return self._folds * (1 if one else len(METHODS[setup.method].strengths))

    def begin(self, setup: Setup) -> None:
        """Go on to a setup: fits that the last one needed less are not to be waited for."""
        self._done = self._before
        self._before += self._most_fits(setup)
        self._name = f"{setup.model_name}, {setup.method}"
        self._tell(self._name)

    def fold(self, f: int) -> None:
        """Begin a fit without the sets of a fold."""
        self._tell(f"{self._name}, fold {f + 1} of {self._folds}")
        self._done += 1

    def _tell(self, text: str) -> None:
        if self._progress:
            self._progress(self._done, self._total, text)


class _Tried(NamedTuple):
    """How well a setup predicts the held-out sets of all folds."""

    density: Array
    """Log density of the stated share of each set (m,)."""
    tau: float
    by_chance: bool
    """Whether sets differ by their rows alone: in their features, and no set effect is seen."""
    effect: float
    """Log-likelihood that a set effect adds."""
    share_error: float
    predicted: Array
    """Shares of the hidden sets with standard errors, fold by fold (2, m, K)."""


@dataclass(frozen=True, eq=False)
class _FoldFits:
    """Fits of a setup to each fold, which depend on nothing else: whoever is free makes them."""

    folds: Sequence[HiddenSets]
    view: Any
    setup: Setup
    before: tuple[Learner | None, ...]
    """Of a stronger penalty, by folds."""
    categorical: tuple[int, ...]

    def __call__(self, f: int) -> tuple[Learner, Array, Array, list[ShareResiduals]]:
        """Return the fit without the sets of a fold, and what it predicts for these."""
        fold = self.folds[f]
        learner = fold.fitted(self.view, self.setup, self.before[f], self.categorical)
        return learner, *fold.predicted(self.view, self.setup, learner)


def _scores_of(
    path: Sequence[Setup],
    view: Any,
    folds: Sequence[HiddenSets],
    categorical: Sequence[int],
    told: _Told,
    spread: Spread,
    *,
    chance: bool,
) -> list[_Tried]:
    """Fit each setup of a path to every fold, until two in turn were no better than the best."""
    learners: list[Learner | None] = [None] * len(folds)
    tried: list[_Tried] = []
    best: Array | None = None
    worse = 0
    for setup in path:
        rules, shares, predicted = METHODS[setup.method].residual_rules, [], []
        residuals: list[list[ShareResiduals]] = [[] for _ in rules]
        fits = _FoldFits(folds, view, setup, tuple(learners), tuple(categorical))
        for f, (learner, of_sets, errors, found) in enumerate(spread(fits, len(folds), told.fold)):
            learners[f] = learner
            predicted.append(np.stack([of_sets, errors]))
            for of_rule, of_fold in zip(residuals, found, strict=True):
                of_rule.append(of_fold)
            shares.append(of_sets)
        share_error = _root_mean_square(shares, folds)
        found_by = [
            _tried(of_rule, folds, rule, share_error, np.concatenate(predicted, axis=1), chance)
            for of_rule, rule in zip(residuals, rules, strict=True)
        ]
        # The first rule is the method's own; another needs that sets differ by chance alone.
        able = found_by[:1] + [other for other in found_by[1:] if other.by_chance]
        entry = max(able, key=lambda tried: float(np.nanmean(tried.density)))
        tried.append(entry)
        ahead = entry.density - (entry.density if best is None else best)
        if best is None or np.nanmean(ahead) > 0:
            best, worse = entry.density, 0
            continue
        worse += 1
        # The strongest penalties may all say nothing: a plateau before the rise is no end.
        if worse >= 2 and (len(tried) >= LEAST_TRIED or z_of(ahead) < CLEARLY_WORSE):
            break
    return tried


def _tried(
    residuals: Sequence[ShareResiduals],
    folds: Sequence[HiddenSets],
    rule: ResidualRule,
    share_error: float,
    predicted: Array,
    chance: bool,
) -> _Tried:
    """Return the density of the stated shares, and whether the sets have effects of their own."""
    density, tau = _density(residuals, folds)
    without, _ = _density(residuals, folds, 0.0)
    effect = float(np.nansum(density - without))
    by_chance = chance and rule is SET_EFFECTS.residuals and effect <= SEEN
    return _Tried(density, tau, by_chance, effect, share_error, predicted)


def _held_out_shares(folds: Sequence[HiddenSets], predicted: Array) -> HeldOutShares:
    """Put what was predicted beside what was stated and what could be guessed."""
    guessed = [np.broadcast_to(fold.guess, fold.truth.shape) for fold in folds]
    return HeldOutShares(
        np.concatenate([fold.truth for fold in folds]),
        predicted[0],
        np.nan_to_num(predicted[1], nan=1.0, posinf=1.0).clip(0.0, 1.0),
        np.concatenate(guessed),
        np.concatenate([fold.rows for fold in folds]).astype(np.float64),
    )


def _density(
    residuals: Sequence[ShareResiduals], folds: Sequence[HiddenSets], tau: float | None = None
) -> tuple[Array, float]:
    """Return the log density of the stated shares of all folds, and tau.

    Of several groupings each has its own tau; that of a row that is new in all of them is told.
    """
    densities, taus = [], []
    for g in sorted({fold.grouping for fold in folds}):
        own = [of for of, fold in zip(residuals, folds, strict=True) if fold.grouping == g]
        density, found = log_density(join_residuals(*own), tau)
        densities.append(density)
        taus.append(found)
    return np.concatenate(densities), float(np.sqrt(np.sum(np.square(taus))))


def _root_mean_square(shares: Sequence[Array], folds: Sequence[HiddenSets]) -> float:
    """Return the root of the mean squared error of predicted shares, over the rows of the sets."""
    squares = sum(fold.square_error(of) for fold, of in zip(folds, shares, strict=True))
    return float(np.sqrt(squares / sum(fold.rows.sum() for fold in folds)))


class _Fold(HiddenSets):
    """Some sets of a grouping hidden from the others, whose rows are here.

    Of several groupings the rows of these sets are hidden as a whole, from the sets of the other
    groupings too. Otherwise the model would learn from the very rows by which it is judged: a set
    of another grouping that is nearly the same rows would even tell it their share.
    """

    def __init__(self, sets: UnlabeledSets, hidden: Array) -> None:
        super().__init__(sets.set_priors, sets.set_sizes, hidden)
        self._kept: tuple[UnlabeledSets, UnlabeledSets] | None = None
        self.mask = sets.rows_of_sets(hidden)
        column = sets.set_index
        if sets.set_priors.grouping is not None:
            column = column[:, self.grouping]
        self.index = self.number[column[self.mask]]

    def fitted(
        self, view: UnlabeledSets, setup: Setup, before: Learner | None, categorical: Sequence[int]
    ) -> Learner:
        """Fit to the sets that are not hidden, from where a stronger penalty ended."""
        start = None if before is None else before.fit
        if self._kept is None or self._kept[0] is not view:  # a path asks for them many times
            self._kept = view, _only(view, ~self.mask)
        return fit_learner(
            self._kept[1],
            setup,
            categorical=categorical,
            start=start,
            rough=True,
        )

    def predicted(
        self, view: UnlabeledSets, setup: Setup, learner: Learner
    ) -> tuple[Array, Array, list[ShareResiduals]]:
        """Return predicted shares of the hidden sets (m, K), errors, residuals of the stated."""
        method, base = METHODS[setup.method], learner.base_prior
        assumption = method.assumption
        logits = learner.logits(view.x[self.mask])
        shares, errors = assumption.share_rule(logits, self.index, len(self.truth), base)
        if logits.ndim == 1:
            shares = np.stack([1 - shares, shares], axis=1)
            errors = np.stack([errors, errors], axis=1)
        stated = self.truth[:, 1] if logits.ndim == 1 else self.truth
        rules = method.residual_rules
        known = self.variances
        return (
            shares,
            errors,
            [rule(logits, self.index, stated, base, self.law, known) for rule in rules],
        )


def _strengths(setup: Setup, view: UnlabeledSets) -> list[Setup]:
    """Return a setup with each strength of the penalty to try, the strongest first.

    Where a few sets cannot choose between them, held-out rows do, if the method allows it.
    """
    row, method = model_row(setup.model), METHODS[setup.method]
    if setup.l2 is not None or row.strength is None:
        return [setup]
    if np.count_nonzero(view.set_sizes) < SETS_FOR_STRENGTH and method.holds_rows_out:
        return [replace(setup, l2=row.strength(view.with_sets_of_one, setup))]
    return [replace(setup, l2=l2) for l2 in method.strengths]


def _strongest(densities: Array) -> int:
    """Return the first of the candidates (c, m) that is within one standard error of the best."""
    best = densities[np.nanmean(densities, axis=1).argmax()]
    behind = best - densities  # (c, m)
    error = np.nanstd(behind, axis=1, ddof=1) / np.sqrt(densities.shape[1])
    return int(np.argmax(np.nanmean(behind, axis=1) <= error))


def _only(sets: UnlabeledSets, mask: Array) -> UnlabeledSets:
    """Return some rows, at their own pooled prior: hidden shares must not leak through a target."""
    kept = sets.rows(mask)
    return replace(kept, target_prior=sets.set_priors.pooled(kept.set_sizes))


def thinned(
    views: Views, setups: Sequence[Setup], max_rows: int, rng: np.random.Generator
) -> dict[str, UnlabeledSets]:
    """Return the views the setups need, with at most about `max_rows` rows.

    Whole sets first, down to `ENOUGH_SETS` of them; then inside each set.
    """
    first = views[setups[0].model_name]
    assert isinstance(first, UnlabeledSets)
    known = None
    if first.known is not None and len(first.known) > max_rows:
        known = rng.permutation(len(first.known))[:max_rows]
    if len(first.row_shape) == 1:  # of a table
        max_rows = min(max_rows, MOST_NUMBERS // first.row_shape[0])
    chosen = _few_rows(first, max_rows, rng)
    needed = {setup.model_name: views[setup.model_name].rows(chosen) for setup in setups}
    if known is None:
        return needed
    return {
        name: replace(view, known=view.known and view.known.take(known))
        for name, view in needed.items()
    }


def _few_rows(sets: UnlabeledSets, max_rows: int, rng: np.random.Generator) -> Array | slice:
    """Return which rows to score by."""
    if len(sets) <= max_rows:
        return slice(None)
    present = np.flatnonzero(sets.set_sizes)
    wanted = max(ENOUGH_SETS, round(len(present) * max_rows / len(sets)))
    # Without some sets of one grouping, those of another would miss a part of their rows.
    if wanted < len(present) and sets.set_priors.grouping is None:
        chosen = np.flatnonzero(np.isin(sets.set_index, rng.permutation(present)[:wanted]))
    else:
        chosen = np.arange(len(sets))
    if len(chosen) > max_rows:
        inside = held_out_rows(sets.set_index[chosen], max_rows / len(chosen), rng)
        chosen = chosen[inside]
    return chosen
