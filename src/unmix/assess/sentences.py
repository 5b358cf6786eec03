"""The answer in at most five plain sentences: what was learned, and whether it can be trusted.

Puts numbers into words. Computes none, and knows no page.
"""

from __future__ import annotations

from collections.abc import Sequence

from unmix.assess.diagnose import Diagnosis
from unmix.assess.evaluate import Evaluation
from unmix.core.assumptions import Assumption
from unmix.core.stand_ins import StandIns
from unmix.data.wording import listed
from unmix.learn.choose import hides_sets
from unmix.learn.estimator import SetClassifier
from unmix.learn.held_out_score import LEAST_SETS
from unmix.learn.hidden_sets import Gain

__all__ = ["rates_hold", "summarise"]


def rates_hold(assumption: Assumption, evaluation: Evaluation, gain: Gain | None) -> bool:
    """Say whether accuracy, AUC and rates may be shown that assume label shift.

    Only if the method assumes it, the test of it was made and does not reject, and held-out sets,
    where some were hidden, are predicted better than by guessing.
    """
    useful = gain is None or gain.shown
    return assumption.set_posterior and evaluation.fit_test.stands and useful


def summarise(
    clf: SetClassifier,
    diagnosis: Diagnosis,
    evaluation: Evaluation | None,
    *,
    held_out: bool,
    class_gains: Sequence[Gain] = (),
) -> tuple[tuple[str, ...], bool]:
    """Return the sentences, and whether nothing speaks against the model.

    Parameters
    ----------
    clf : UnmixClassifier
    diagnosis : Diagnosis
    evaluation : Evaluation, optional
    held_out : bool
        Whether there were rows to evaluate on.
    class_gains : sequence of Gain
        One for each of more than two classes, if sets were hidden.
    """
    assumption, gain = clf.method_row_.assumption, clf.gains_.get(clf.method_)
    sample = f"a random sample of {clf.sampled_rows_:,} of " if clf.sampled_rows_ else ""
    learned = (
        f"A {clf.model_} model was trained with method {clf.method_} on {sample}"
        f"{diagnosis.num_rows:,} rows in {diagnosis.num_sets:,} sets; the effective number of "
        f"labels is about {diagnosis.worth_in_labels:,.0f}.",
        f"It assumes that {assumption.shared}.{_inside(clf.learner_.inside)}",
        _no_gain(clf, diagnosis.num_sets)
        if gain is None
        else _gain(gain) + _by_class(clf.classes_.tolist(), class_gains),
    )
    believable = gain is None or gain.shown
    if evaluation is None:
        return (*learned, _not_evaluated(clf, held_out)), believable
    test = evaluation.fit_test
    believable &= not (assumption.set_posterior and test.rejected)
    accuracy = _accuracy(assumption, evaluation, gain)
    return (*learned, accuracy, test.verdict), believable


def _not_evaluated(clf: SetClassifier, held_out: bool) -> str:
    """Say why accuracy was not estimated."""
    if getattr(clf, "fitted_again_", False) and not held_out:
        return (
            "It was judged by rows held out before it was fitted again to all rows, and the report "
            "of the fit tells the result; give rows that it was not trained on to judge it anew."
        )
    none = "Too few rows were held out" if held_out else "No rows were held out"
    return f"{none}, so its accuracy was not estimated."


def _gain(gain: Gain) -> str:
    """Say how much better held-out sets are predicted than by guessing, and what that means."""
    found = (
        f"Gain over guessing: {gain.word} ({gain.gain:+.2f} ± {gain.error:.2f}, z = {gain.z:.1f}; "
        f"{gain.threshold:.1f} is needed). Sets were hidden in turn, and the model told their "
        "shares from their rows alone; the gain is how much better that went than answering the "
        "average share every time."
    )
    if gain.shown:
        return found
    return f"{found} These sets cannot answer the question: do not use this model."


def _inside(inside: StandIns) -> str:
    """Say how long slopes are taken to be inside sets, nothing if they are as learned."""
    if not inside.columns:
        return ""
    return (
        f" Inside a set its slopes are taken {inside.slope:.2f} times as long as between sets, as "
        f"those of {inside.columns} columns on each other are."
    )


def _by_class(classes: Sequence[object], gains: Sequence[Gain]) -> str:
    """Say which of more than two classes are predicted, nothing if it is all of them."""
    missing = [name for name, gain in zip(classes, gains, strict=False) if not gain.shown]
    if not missing:
        return ""
    return f" Not shown to be predicted against the rest: {listed(missing, 10)}."


def _no_gain(clf: SetClassifier, num_sets: int) -> str:
    """Say why no sets were hidden."""
    if clf.set_priors is None or not hides_sets(
        clf.hide_sets, clf.learner_.setup.model, clf.method
    ):
        return (
            "No sets were hidden from training, so its prediction of shares was not tested on "
            + ("any." if clf.set_priors is None else "any; hide_sets=True does that.")
        )
    if num_sets < LEAST_SETS:
        return f"{num_sets} sets are too few to hold some out and test the predicted shares."
    return (
        "No sets could be held out to test the predicted shares: without some of the sets, the "
        "others cannot tell the classes apart."
    )


def _accuracy(assumption: Assumption, evaluation: Evaluation, gain: Gain | None) -> str:
    """Say how accurate the model is, or why that is not shown."""
    test = evaluation.fit_test
    if not assumption.set_posterior:
        return (
            "Its accuracy cannot be estimated without labels: the estimates that need no labels "
            "assume label shift, and this method does not."
        )
    if not rates_hold(assumption, evaluation, gain):
        why = "held-out sets are predicted no better than by guessing"
        if test.rejected:
            why = "the sets contradict it"
        elif not test.stands:
            why = "that could not be tested here"
        return (
            "Its accuracy is not shown: the estimates that need no labels assume label shift, and "
            f"{why}."
        )
    accuracy, auc = evaluation.accuracy, evaluation.auc
    text = (
        f"At the base rate where it is used, its accuracy is about {100 * accuracy.value:.0f} % "
        f"({100 * accuracy.low:.0f} to {100 * accuracy.high:.0f} %)"
    )
    if auc is not None:
        text += f" and its AUC {auc.value:.2f} ({auc.low:.2f} to {auc.high:.2f})"
    return text + ", estimated without labels."
