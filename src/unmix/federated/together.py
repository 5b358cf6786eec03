"""A fit to the rows of several parties: choosing, learning and judging, all by what they tell.

The steps are those of a fit in one place, and so are the rules by which a method and a strength are
chosen; what comes out is an ordinary classifier with an ordinary judgement of it. Left out are only
the summary of training rows that drift is compared with, and the refinement of shares with errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from unmix.assess.judge import Judgement, judge_logits
from unmix.core.class_shares import check_prior
from unmix.data.priors import Priors
from unmix.data.wording import listed
from unmix.errors import IdentifiabilityError, InputError
from unmix.federated.agreement import MOST_JUDGED, Agreement, agree
from unmix.federated.messages import Message
from unmix.federated.noisy_descent import fit_noisy_sums
from unmix.federated.party import LEAST_ROWS
from unmix.federated.party_sets import (
    FitTo,
    PartyFold,
    PartySets,
    fit_party_sets,
    point_of,
    told_of,
    with_effect,
)
from unmix.federated.replies import Conversation, Field, stop
from unmix.federated.score_cells import FIXED, NUM_CELLS, ScoreGrid, likely_counts
from unmix.learn.choose import AUTO, HeldOutSets, choice_of
from unmix.learn.estimator import SetClassifier
from unmix.learn.held_out_score import (
    LEAST_SETS,
    SETS_FOR_STRENGTH,
    Scored,
    score_hidden_sets,
)
from unmix.learn.hidden_sets import set_folds
from unmix.learn.linear import ROWS
from unmix.learn.methods import METHODS, Method, method_named
from unmix.learn.models import Learner, Setup, move_logits
from unmix.learn.resampling import LEAST_SETS as SETS_TO_DRAW
from unmix.learn.sets_in_parts import asked_criterion

__all__ = ["MODELS", "FederatedFit", "fit_together", "rows_of_counts", "score_counts"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LINEAR, NETWORK = "linear", "mlp"
MODELS = (LINEAR, NETWORK)
FOLDS = 5
Told = Callable[[str], None]
TargetPrior = float | Sequence[float] | Callable[[Sequence[Any]], Any] | None


@dataclass(frozen=True, eq=False)
class FederatedFit:
    """What came of a fit to the rows of several parties."""

    classifier: SetClassifier
    judgement: Judgement
    agreement: Agreement
    rounds: int
    """Questions that the parties answered."""


def fit_together(
    conversation: Conversation,
    *,
    model: str = LINEAR,
    method: str = AUTO,
    l2: float | None = None,
    target_prior: TargetPrior = None,
    held_out: float = 0.2,
    resamples: int | None = None,
    least_rows: int = LEAST_ROWS,
    seed: int = 0,
    told: Told = lambda line: None,
) -> FederatedFit:
    """Fit a classifier to the rows of all parties, none of which leaves its owner.

    Parameters
    ----------
    conversation : Conversation
    model : 'linear' or 'mlp'
    method : str
        'auto', or a name of `METHODS` whose risk is a sum over rows or sets.
    l2 : float, optional
        Strength of the penalty; chosen without labels if left out.
    target_prior : float, list of float, or function of the classes, optional
        Share of positives, or of each class, where the classifier will be used; the average share
        if left out.
    held_out : float
        Share of the rows of each set that only count when the model is judged.
    resamples : int, optional
        Fits to resampled sets; those of a linear model if left out.
    least_rows : int
        Of each set; a party with fewer is refused.
    seed : int
    told : function (line), optional
        Called with what is being done.

    Raises
    ------
    InputError
        A party misbehaves, or the parties' tables do not go together; nothing is kept then.
    """
    agreement = agree(conversation, held_out=held_out, seed=seed, least_rows=least_rows)
    told(
        f"{len(agreement.parties)} parties, {len(agreement.set_ids)} sets, "
        f"{agreement.sizes['rows'].sum():,} rows, {len(agreement.encoder.feature_names)} features"
    )
    target = agreement.shares.pooled(agreement.sizes["kept"])
    if callable(target_prior):
        target_prior = target_prior(agreement.classes or (0, 1))
    if target_prior is not None:
        target = check_prior(target_prior, agreement.shares.num_classes)
    sets = PartySets.of(conversation, agreement, target)
    if model not in MODELS:
        raise InputError(f"parties fit model {' or '.join(MODELS)}; got {model!r}")
    if agreement.noise is not None:
        if model != LINEAR:
            raise InputError("noise is for linear models: nothing bounds a row of a network")
        learner, found = _by_noisy_sums(sets, method, l2, seed, told), HeldOutSets()
    elif model == NETWORK:
        learner, found = _network(sets, method, seed, told)
    else:
        setup, found = _chosen(sets, method, l2, seed, told)
        told(f"fitting {setup.method} with l2 = {setup.l2:g}")
        learner = fit_party_sets(sets, setup)
        learner = _with_resamples(sets, learner, resamples, told)
    clf = _classifier(
        sets,
        learner,
        found,
        {"method": method, "l2": l2, "target_prior": target_prior, "held_out": held_out},
    )
    told("counting scores")
    judgement = _judged(clf, sets, held_out=held_out > 0)
    return FederatedFit(clf, judgement, agreement, conversation.rounds)


def _by_noisy_sums(
    sets: PartySets, method: str, l2: float | None, seed: int, told: Told
) -> Learner:
    """Fit by as many noisy sums as the parties tell; nothing is left of them to choose by."""
    by_rows = (row for row in METHODS.values() if row.in_auto and row.holds_rows_out)
    row = next(by_rows) if method == AUTO else method_named(method)
    strength = row.strengths[len(row.strengths) // 2] if l2 is None else l2
    answers = sets.asked.agreement.noise["answers"]  # type: ignore[index]
    told(f"fitting {row.name} with l2 = {strength:g} by {answers} sums with noise")
    return fit_noisy_sums(sets, Setup(LINEAR, row.name, l2=strength, seed=seed), answers)


def _network(sets: PartySets, method: str, seed: int, told: Told) -> tuple[Learner, HeldOutSets]:
    """Return a network, and how well it predicts hidden sets after as many rounds."""
    from unmix.federated.party_network import METHOD, fit_party_network

    setup = Setup(NETWORK, METHOD if method == AUTO else method, seed=seed)
    told("training a network")
    learner = fit_party_network(sets, setup)

    def fit(some: PartySets, setup: Setup, start: Learner | None) -> Learner:
        return fit_party_network(some, setup, rounds=learner.fit.epoch)  # type: ignore[attr-defined]

    found = _hidden_in_turn(sets, [setup], fit) if sets.num_sets >= LEAST_SETS else []
    return learner, choice_of(found)[1] if found else HeldOutSets()


def _hidden_in_turn(
    sets: PartySets, setups: Sequence[Setup], fit: FitTo | None = None
) -> list[Scored]:
    """Return how well setups predict sets that are hidden in turn; nothing where they cannot be."""
    rng = np.random.default_rng([setups[0].seed, 5])
    divided = set_folds(sets.set_priors, np.arange(sets.num_sets), FOLDS, rng)
    with suppress(IdentifiabilityError):  # what remains cannot tell the classes apart
        folds = [PartyFold(sets, hidden, fit) for hidden in divided]
        return score_hidden_sets(folds, {setups[0].model_name: sets}, setups)
    return []


def _chosen(
    sets: PartySets, method: str, l2: float | None, seed: int, told: Told
) -> tuple[Setup, HeldOutSets]:
    """Return what to fit, and how well each candidate predicts hidden sets."""
    rows = [method_named(method)] if method != AUTO else []
    if not rows:
        rows = [row for row in METHODS.values() if row.in_auto and row.suits(sets.transition)]
    for row in rows:
        asked_criterion(row, sets, np.zeros(sets.num_sets))  # says why a method cannot be summed
    many = sets.num_sets >= LEAST_SETS
    names = listed([row.name for row in rows])
    told(f"hiding sets in turn to choose between {names}" if many else f"method {rows[0].name}")
    setups = [_setup(sets, row, l2, seed, many=many) for row in (rows if many else rows[:1])]
    found = _hidden_in_turn(sets, setups) if many else []
    if found:
        return choice_of(found)
    first = setups[0]
    if first.l2 is None:
        first = replace(first, l2=_strength_by_rows(sets, method_named(first.method)))
    return first, HeldOutSets()


def _setup(sets: PartySets, method: Method, l2: float | None, seed: int, *, many: bool) -> Setup:
    """Return how to fit by a method; without a strength where hidden sets are to choose it."""
    setup = Setup(LINEAR, method.name, l2=l2, seed=seed)
    by_sets = many and (sets.num_sets >= SETS_FOR_STRENGTH or not method.holds_rows_out)
    if l2 is not None or by_sets:
        return setup
    return replace(setup, l2=_strength_by_rows(sets, method))


def _strength_by_rows(sets: PartySets, method: Method) -> float:
    """Return the strength whose fit has the least loss on rows of the sets that it did not see.

    From the strongest on, until two in turn are no better. A method that matches whole sets cannot
    hold rows out; with so few sets it gets a strength in the middle of its list.
    """
    if not method.holds_rows_out:
        return method.strengths[len(method.strengths) // 2]
    fitted, checked = sets.rows_for("fitted"), sets.rows_for("checked")
    question = checked.question("losses", method)
    before: Learner | None = None
    best, chosen, worse = np.inf, method.strengths[0], 0
    for l2 in method.strengths:
        before = fit_party_sets(fitted, Setup(LINEAR, method.name, l2=l2), start=before, rough=True)
        answers = checked.parts.ask(question, point_of(before.fit))
        loss = float(np.sum(answers, axis=0)[0])
        if loss < best:
            best, chosen, worse = loss, l2, 0
        elif (worse := worse + 1) == 2:
            break
    return chosen


def _with_resamples(sets: PartySets, learner: Learner, draws: int | None, told: Told) -> Learner:
    """Return the learner with fits to resampled sets, as `unmix.learn.resampling` makes them."""
    draws = ROWS[LINEAR].resamples if draws is None else draws
    if draws < 2 or sets.num_sets < SETS_TO_DRAW:
        return learner
    told(f"fitting to {draws} draws of sets")
    rng = np.random.default_rng([learner.setup.seed, 7])
    fits: list[Any] = []
    for _ in range(draws):
        drawn = sets.take_sets(rng.choice(sets.num_sets, sets.num_sets))
        with suppress(IdentifiabilityError):  # the same share over and over
            fits.append(fit_party_sets(drawn, learner.setup, start=learner, rough=True).fit)
    if len(fits) < 2:
        return learner
    average = not method_named(learner.setup.method).assumption.set_posterior
    fit: Any = learner.fit
    joined = fit.with_resamples(fits, average=average, scale=1.0)
    return with_effect(replace(learner, fit=joined), sets)


def _classifier(
    sets: PartySets, learner: Learner, found: HeldOutSets, given: dict[str, Any]
) -> SetClassifier:
    """Return the classifier that a fit to all rows in one place would have left."""
    agreement = sets.asked.agreement
    encoder, shares, ids = agreement.encoder, agreement.shares, agreement.set_ids
    priors = Priors(ids, shares, agreement.classes, shares.precision.standard_errors)  # type: ignore[union-attr]
    # As it was judged: deciles and a second fit are for whoever has the rows.
    clf = SetClassifier(
        priors,
        model=learner.setup.model,
        random_state=learner.setup.seed,
        keep_split=True,
        **given,
    )
    clf.leave_sets_out_, clf.gains_ = found.errors, found.gains
    clf.held_out_shares_, clf.learner_, clf.encoder_ = found.shares, learner, encoder
    clf.groupings_, clf.grouping_of_sets_ = (), None
    clf.classes_ = np.array([0, 1] if agreement.classes is None else agreement.classes)
    clf.set_ids_ = ids
    clf.stated_priors_ = dict(zip(ids, shares.as_given, strict=True))
    clf.set_priors_ = dict(clf.stated_priors_)
    clf.prior_errors_, clf.noticed_error_, clf.refined_ = priors.standard_errors, 0.0, False
    clf.method_, clf.model_ = learner.setup.method, learner.setup.model_name
    clf.history_ = learner.history
    clf.set_sizes_ = sets.set_sizes
    clf.target_prior_ = np.asarray(sets.target_prior)
    clf.fitted_again_, clf.sampled_rows_ = False, 0
    clf.training_summary_ = None  # deciles and extremes are rows
    clf.n_features_in_ = len(encoder.columns)
    clf.feature_names_in_ = np.array(encoder.columns, dtype=object)
    return clf


def _judged(clf: SetClassifier, sets: PartySets, *, held_out: bool) -> Judgement:
    """Judge the classifier by counts of the scores of held-out rows, where there are any."""
    if not held_out or len(clf.classes_) > 2:
        return judge_logits(clf, None, None)
    logits, set_index = rows_of_counts(clf, *score_counts(clf, sets))
    if not len(logits):
        return judge_logits(clf, None, None)
    names = np.array(clf.set_ids_, dtype=object)[set_index]
    return judge_logits(clf, logits, names)


def score_counts(clf: SetClassifier, sets: PartySets) -> tuple[IntArray, ScoreGrid]:
    """Ask the parties how many held-out rows of each set fall into each cell of the scores.

    Rows of thin cells, which were told in a neighbour, are where they are likely to have been.
    """
    agreement, conversation = sets.asked.agreement, sets.asked.conversation
    base, target = clf.learner_.base_prior, clf.target_prior_
    shift = float(move_logits(np.zeros(1), base, target)[0])
    numbers = np.bincount(agreement.party_of_set)
    judged = agreement.sizes["judged"]
    most = float(judged.max())
    forms = [{"cells": Field((int(m), NUM_CELLS), "int64", 0, most)} for m in numbers]
    about, point = told_of(clf.learner_.fit)
    grid = _grid(clf, sets, shift)
    text = {"shift": shift, "grid": grid.to_json()}
    replies = conversation.ask("cells", text | about, point, forms)
    counts = np.concatenate([reply.arrays["cells"] for reply in replies])
    told = counts.sum(axis=1)
    wrong = np.flatnonzero((told != judged) & (told != 0))
    if len(wrong):
        party = agreement.parties[agreement.party_of_set[wrong[0]]]
        stop(party, f"counts {told[wrong[0]]} scores in a set with {judged[wrong[0]]} such rows")
    told_by = zip(agreement.parties, replies, strict=True)
    least = np.concatenate([_least_cell(party, reply) for party, reply in told_by])
    return likely_counts(counts, least, agreement.shares.matrix[:, 1], grid), grid


def _least_cell(party: str, reply: Message) -> IntArray:
    """Return the least count that a party tells, for each of its sets (m,)."""
    counts, least = reply.arrays["cells"], reply.text.get("least_cell")
    if type(least) is not int or not 1 <= least <= MOST_JUDGED:
        stop(party, "does not say which counts are too few to tell")
    if ((counts > 0) & (counts < least)).any():
        few = counts[counts > 0].min()
        stop(party, f"counts {few} rows in a cell and says that it tells no fewer than {least}")
    return np.full(len(counts), least, dtype=np.int64)


def _grid(clf: SetClassifier, sets: PartySets, shift: float) -> ScoreGrid:
    """Return a grid that suits the scores, if their mean and deviation are sums that are told."""
    fit = clf.learner_.fit
    if clf.learner_.setup.model != LINEAR or sets.asked.agreement.noise is not None:
        return FIXED
    question = sets.question("scores", method_named(clf.learner_.setup.method))
    _, total, squares = np.sum(sets.parts.ask(question, point_of(fit)), axis=0)
    mean = float(total) / len(sets)
    return ScoreGrid.around(mean + shift, math.sqrt(max(float(squares) / len(sets) - mean**2, 0.0)))


def rows_of_counts(
    clf: SetClassifier, counts: IntArray, grid: ScoreGrid
) -> tuple[FloatArray, IntArray]:
    """Return a logit at the base prior for every row that was counted, and its set.

    Parameters
    ----------
    clf : SetClassifier
    counts : array of integers, shape (m, cells)
    grid : ScoreGrid
    """
    m = len(counts)
    scores = np.tile(grid.scores, m)
    index = np.repeat(np.arange(m), NUM_CELLS)
    logits = move_logits(scores, clf.target_prior_, clf.learner_.base_prior)
    return np.repeat(logits, counts.ravel()), np.repeat(index, counts.ravel())
