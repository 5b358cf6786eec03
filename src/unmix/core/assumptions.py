"""What sets are assumed to share, and everything that follows from it, as one value each.

A method makes one of these assumptions; nobody asks for its name to find out what it means: the
prior at which a model states its logits, the rule for the share of a set, what may be said about
accuracy without labels, and the words for people all stand here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from unmix.core.class_shares import ClassShares
from unmix.core.effect_law import new_set_probability
from unmix.core.joint_offsets import add_joint_offsets
from unmix.core.known_offsets import KnownOffsets, offsets_by_effect, offsets_by_prior
from unmix.core.set_effects import effect_size, known_set_offsets, set_offsets
from unmix.core.share_density import (
    ShareResiduals,
    label_shift_residuals,
    set_effect_residuals,
)
from unmix.core.share_draws import (
    NUM_DRAWS,
    KnownRule,
    OffsetDraws,
    ScoredSets,
    class_prior_draws,
    draw_intervals,
    known_set_fits,
    known_set_logits,
    set_effect_draws,
)
from unmix.core.share_law import ShareLaw, inside_shares
from unmix.core.shares import share_by_likelihood, share_by_mean, share_interval
from unmix.core.sums_by_set import set_rows, set_sums
from unmix.core.transition import Transition
from unmix.core.within_sets import tempered_logits
from unmix.errors import InputError

__all__ = [
    "ASSUMPTIONS",
    "COVARIATE_SHIFT",
    "LABEL_SHIFT",
    "SET_EFFECTS",
    "Assumption",
    "ShareEstimate",
    "assumption_named",
    "shares_of_rows",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ShareEstimate:
    """Class shares of sets with their intervals, (m,) for one logit per row or (m, K) each."""

    shares: FloatArray
    low: FloatArray
    high: FloatArray
    how: str
    """How they were made, in words."""


# rows of sets -> probabilities of the rows of sets that nobody knows, (n,) or (n, K)
NewSetRule = Callable[[ScoredSets], FloatArray]


# (logits, set_index, num_sets, prior of the logits (K,)) -> shares, standard errors
ShareRule = Callable[[FloatArray, IntArray, int, FloatArray], tuple[FloatArray, FloatArray]]
# the same, and the confidence -> low, high
IntervalRule = Callable[[FloatArray, IntArray, int, FloatArray, float], tuple[FloatArray, ...]]


# (logits, set_index (n,) or (n, G), shares of the sets (m, K), prior of the logits (K,), variances
# of the stated counts, rows of which the shares were counted (m,), tau) -> logits of the rows in
# sets with these shares; of several groupings each has a tau of its own
KnownSetRule = Callable[..., FloatArray]


# (logits, set_index, shares of the sets, prior of the logits (K,), law of the shares of the sets of
# training, variances of the stated counts) -> residuals of the shares
ResidualRule = Callable[..., ShareResiduals]


@dataclass(frozen=True)
class Assumption:
    """What is the same in all sets."""

    name: str
    shared: str
    """What sets share, in words that follow "It assumes that"."""
    base_prior: Callable[[Transition], FloatArray]
    """The class prior (K,) at which a model that was trained under it states its logits."""
    at_target: bool
    """Whether probabilities hold at a target prior, and not as they were learned."""
    set_posterior: bool
    """Whether a row's set can be predicted from its class: then rows held out have a set log-loss,
    set priors can be refined, and rates of the classes can be told without labels."""
    share_rule: ShareRule
    how: str
    """How the share of a set is found, in words."""
    residuals: ResidualRule
    """How far the stated shares of sets are from what their rows say, for the score."""
    known_set: KnownSetRule
    """How the logits of rows move when the share of their set is known."""
    new_set: NewSetRule
    """How probable the classes of rows are when nobody knows the share of their set."""
    known_offsets: KnownRule
    """What known shares of sets add to the logits of their rows, and how far off that may be."""
    offset_draws: Callable[[ScoredSets, KnownRule], OffsetDraws]
    """What is not known of what sets add to the logits of their rows, as draws."""
    profile: IntervalRule | None = None
    """A better interval than share +- z standard errors, where there is one (two classes)."""
    profile_how: str = ""
    """What kind of interval that is."""

    def set_shares(
        self, logits: FloatArray, set_index: IntArray, num_sets: int, prior: FloatArray
    ) -> FloatArray:
        """Return the class shares of each set by this assumption's rule, (m, K); nan without rows.

        Parameters
        ----------
        logits : array, shape (n,) or (n, K)
        set_index : array of integers, shape (n,)
        num_sets : int
        prior : array, shape (K,)
            At which the logits hold.
        """
        shares, _ = self.share_rule(logits, set_index, num_sets, prior)
        return np.stack((1 - shares, shares), axis=1) if shares.ndim == 1 else shares

    def new_set_shares(self, sets: ScoredSets, confidence: float) -> ShareEstimate:
        """Return the class shares of each set with intervals, whatever was stated of them."""
        if self.profile is None:
            return self.group_shares(
                replace(sets, stated=None), sets.set_index, sets.num_sets, confidence
            )
        from scipy.special import ndtri

        point = (sets.logits, sets.set_index, sets.num_sets, sets.prior)
        shares, errors = self.share_rule(*point)
        z = ndtri((1 + confidence) / 2)
        spread = np.zeros_like(shares)
        for fit in range(sets.num_fits):
            moved, _ = self.share_rule(sets.fits[fit], *point[1:])
            spread += (moved - shares) ** 2 / sets.num_fits
        if shares.ndim == 1:
            low, high = self.profile(*point, confidence)
            how = self.profile_how
        else:
            low, high, how = shares - z * errors, shares + z * errors, "normal interval"
        low = shares - np.sqrt((shares - low) ** 2 + z**2 * spread)
        high = shares + np.sqrt((high - shares) ** 2 + z**2 * spread)
        how = f"{self.how}; {how}, {_model_error(sets, 'widened by the spread of')}"
        return ShareEstimate(shares, low.clip(0, 1), high.clip(0, 1), how)

    def row_probabilities(self, sets: ScoredSets) -> FloatArray:
        """Return the probability of each row in its set, known or new: (n,) or (n, K)."""
        known = sets.known
        if not known.any():
            return self.new_set(sets)
        part, rows = sets.only_known(), sets.part(known)[0]
        moved = known_set_logits(part, part.logits, self.known_offsets)
        moved = tempered_logits(moved, part.set_index, part.num_sets, part.trust)
        found = np.empty_like(sets.logits)
        found[rows] = new_set_probability(moved, 0.0)
        if not rows.all():
            others, new = sets.part(~known)
            part = ScoredSets(sets.logits[others], new, int((~known).sum()), sets.prior, sets.tau)
            found[others] = self.new_set(part)
        return found

    def group_shares(
        self, sets: ScoredSets, groups: IntArray, num_groups: int, confidence: float
    ) -> ShareEstimate:
        """Return the class shares of groups of rows, which may cross the sets, with intervals.

        Parameters
        ----------
        sets : ScoredSets
        groups : array of integers, shape (n,)
        num_groups : int
        confidence : float
        """
        found = self.row_probabilities(sets)
        counts = np.bincount(groups, minlength=num_groups)
        with np.errstate(invalid="ignore"):
            sums = set_sums(found, groups, num_groups)
            shares = sums / (counts if found.ndim == 1 else counts[:, None])
        fits, draws = (
            known_set_fits(sets, self.known_offsets),
            self.offset_draws(sets, self.known_offsets),
        )
        low, high = draw_intervals(sets, fits, draws, groups, num_groups, confidence)
        drawn = "set effects" if self.profile is None else "shares of sets"
        how = (
            f"mean probability; interval by {max(NUM_DRAWS, 25 * sets.num_fits)} draws of {drawn} "
            f"and rows, {_model_error(sets, 'and of')}"
        )
        # An estimate lies in its interval, also where a few draws end beside it.
        return ShareEstimate(shares, np.fmin(low, shares), np.fmax(high, shares), how)


def _model_error(sets: ScoredSets, words: str) -> str:
    """Say whether the error of the model is part of an interval."""
    return f"{words} {sets.num_fits} resampled fits" if sets.num_fits else "model held fixed"


def _averaged_over_effects(sets: ScoredSets) -> FloatArray:
    """Average over the effect of a set."""
    return new_set_probability(sets.logits, sets.tau)


def _at_likely_prior(sets: ScoredSets) -> FloatArray:
    """Move each row to the class prior that is most likely for its set."""
    shares, _ = share_by_likelihood(sets.logits, sets.set_index, sets.num_sets, sets.prior)
    if shares.ndim == 1:
        shares = np.stack((1 - shares, shares), axis=1)
    shares = np.where(np.isnan(shares), sets.prior, shares)
    # Shares of 0 and 1 by likelihood are moved in by half a row, as stated ones are.
    return new_set_probability(_at_own_prior(sets.logits, sets.set_index, shares, sets.prior), 0.0)


def _by_mean(
    logits: FloatArray, set_index: IntArray, num_sets: int, prior: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the mean predicted probability, whatever the prior."""
    return share_by_mean(logits, set_index, num_sets)


def _at_own_prior(
    logits: FloatArray,
    set_index: IntArray,
    shares: FloatArray,
    prior: FloatArray,
    variances: npt.ArrayLike = 0.0,
    counted: IntArray | None = None,
    tau: float | None = None,
) -> FloatArray:
    """Move each row to the class prior of its set: a shift by log(share / prior).

    Of several groupings each has its factor in the odds of a row's class before its features are
    seen, such that these odds meet the shares of all sets.
    """
    if set_index.ndim == 2:
        start = np.broadcast_to(np.log(prior), (len(logits), len(prior)))
        before = start[:, 1] - start[:, 0] if logits.ndim == 1 else start

        def offsets(z: FloatArray, index: IntArray, sets: IntArray, _: int) -> FloatArray:
            return set_offsets(z, index, shares[sets, 1] if z.ndim == 1 else shares[sets])

        return np.asarray(logits + add_joint_offsets(before, set_index, offsets) - before)
    rows = np.bincount(set_index, minlength=len(shares)) if counted is None else counted
    shift = np.log(inside_shares(shares, rows)) - np.log(prior)  # (m, K)
    moved = shift[:, 1] - shift[:, 0] if logits.ndim == 1 else shift
    return np.asarray(logits + moved[set_index])


def _with_own_effect(
    logits: FloatArray,
    set_index: IntArray,
    shares: FloatArray,
    prior: FloatArray,
    variances: npt.ArrayLike = 0.0,
    counted: IntArray | None = None,
    tau: float | None = None,
) -> FloatArray:
    """Add the expected effect of each set; effects are as large as these sets speak for, or tau."""
    if set_index.ndim == 2:
        return _with_own_effects(logits, set_index, shares, variances, counted)
    stated = shares[:, 1] if logits.ndim == 1 else shares
    scale = effect_size(logits, set_index, stated, variances) if tau is None else tau
    offsets = known_set_offsets(logits, set_index, stated, scale, variances, counted)
    return np.asarray(logits + offsets[set_index])


def _with_own_effects(
    logits: FloatArray,
    set_index: IntArray,
    shares: FloatArray,
    variances: npt.ArrayLike,
    counted: IntArray | None,
) -> FloatArray:
    """Add the expected effects of the sets of several groupings, found together.

    How large those of a grouping are is told by its sets alone.
    """
    taus: dict[int, float] = {}
    noise = np.broadcast_to(variances, shares.shape[: logits.ndim])

    def effects(z: FloatArray, index: IntArray, sets: IntArray, grouping: int) -> FloatArray:
        stated, own = (shares[sets, 1] if z.ndim == 1 else shares[sets]), noise[sets]
        if grouping not in taus:
            rows = set_index[:, grouping] >= 0
            taus[grouping] = effect_size(logits[rows], index, stated, own)
        rows_of = None if counted is None else counted[sets]
        return known_set_offsets(z, index, stated, taus[grouping], own, rows_of)

    return add_joint_offsets(logits, set_index, effects)


def _known_by_prior(sets: ScoredSets, logits: FloatArray) -> KnownOffsets:
    """Return the offsets of known sets, by the class priors that their shares are."""
    assert sets.stated is not None
    assert sets.precision is not None
    return offsets_by_prior(logits, sets.set_index, sets.stated, sets.prior, sets.precision)


def _known_by_effect(sets: ScoredSets, logits: FloatArray) -> KnownOffsets:
    """Return the effects of known sets; as large as `tau` says, or else as these sets do."""
    assert sets.stated is not None
    assert sets.precision is not None
    tau = sets.tau
    if tau == 0:
        stated = sets.stated[:, 1] if logits.ndim == 1 else sets.stated
        rows = np.bincount(sets.set_index, minlength=sets.num_sets)
        errors = sets.precision.error_variances(rows, stated)
        tau = effect_size(sets.logits, sets.set_index, stated, errors)
    return offsets_by_effect(logits, sets.set_index, sets.stated, tau, sets.precision)


def _by_set_effect(
    logits: FloatArray,
    set_index: IntArray,
    shares: FloatArray,
    prior: FloatArray,
    law: ShareLaw,
    variances: npt.ArrayLike = 0.0,
) -> ShareResiduals:
    """Return the offsets that the stated shares speak for, whatever the prior and the law."""
    return set_effect_residuals(logits, set_index, shares, variances)


def _by_class_prior(
    logits: FloatArray,
    set_index: IntArray,
    shares: FloatArray,
    prior: FloatArray,
    law: ShareLaw,
    variances: npt.ArrayLike = 0.0,
) -> ShareResiduals:
    """Return stated shares against those that their rows and the law say."""
    target = prior[1] if logits.ndim == 1 else prior
    return label_shift_residuals(logits, set_index, shares, target, law, variances)


LABEL_SHIFT = Assumption(
    name="label shift",
    shared="each class looks the same in every set (label shift)",
    base_prior=lambda transition: transition.arrays.target,
    at_target=True,
    set_posterior=True,
    share_rule=share_by_likelihood,
    residuals=_by_class_prior,
    known_set=_at_own_prior,
    new_set=_at_likely_prior,
    known_offsets=_known_by_prior,
    offset_draws=class_prior_draws,
    how="maximum likelihood",
    profile=share_interval,
    profile_how="profile-likelihood interval",
)
COVARIATE_SHIFT = Assumption(
    name="covariate shift",
    shared="the class depends on the features in the same way in every set (covariate shift)",
    base_prior=lambda transition: transition.arrays.pooled,
    at_target=False,
    set_posterior=False,
    share_rule=_by_mean,
    residuals=_by_set_effect,
    known_set=_with_own_effect,
    new_set=_averaged_over_effects,
    known_offsets=_known_by_effect,
    offset_draws=set_effect_draws,
    how="mean predicted probability",
)
SET_EFFECTS = replace(
    COVARIATE_SHIFT,
    name="set effects",
    shared=(
        "sets share how class depends on the features, up to an effect of each set (covariate "
        "shift with set effects)"
    ),
)
ASSUMPTIONS = {row.name: row for row in (LABEL_SHIFT, COVARIATE_SHIFT, SET_EFFECTS)}


def shares_of_rows(set_index: IntArray, shares: ClassShares) -> FloatArray:
    """Return the class shares (n, K) that the sets of each row say, whatever its features.

    Of several groupings: by the odds that meet the shares of all sets.
    """
    matrix = shares.matrix
    if set_index.ndim == 1:
        return np.asarray(matrix[set_index])
    prior = shares.pooled(set_rows(set_index, len(matrix)))
    flat = np.broadcast_to(np.log(prior), (len(set_index), len(prior)))
    return new_set_probability(_at_own_prior(flat, set_index, matrix, prior), 0.0)


def assumption_named(assumption: str | Assumption) -> Assumption:
    """Return an assumption by its name, or say which there are."""
    if isinstance(assumption, Assumption):
        return assumption
    if assumption not in ASSUMPTIONS:
        names = " or ".join(repr(name) for name in ASSUMPTIONS)
        raise InputError(f"assumption must be {names}; got {assumption!r}.")
    return ASSUMPTIONS[assumption]
