"""Can this be trusted? The banner of the report: a colour, a headline and one line why.

Reads what `judge` decided and adds whether everything could be checked. Computes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from unmix.assess.judge import Judgement
from unmix.assess.model_based import Audit
from unmix.learn.held_out_score import LEAST_SETS
from unmix.learn.hidden_sets import Gain
from unmix.report.number_words import counted

__all__ = ["Verdict", "beats_guessing", "fallacy_signs", "is_rejected", "verdict_of"]


TOO_WIDE = 0.5  # an interval of the accuracy that says next to nothing
LARGE_EFFECT = 1.0  # of sets on log-odds, beyond which they differ by more than their rows
# Of two rows that are alike, in two sets: median ratio of their odds is exp(MEDIAN_RATIO tau).
MEDIAN_RATIO = 0.954
SINGLE_ROWS = "single rows are not checked"


@dataclass(frozen=True)
class Verdict:
    """What the banner says.

    Attributes
    ----------
    level : str
        'yes', 'partly' or 'no'.
    headline, reason : str
        The answer in a few words, and why.
    warnings : tuple of str
        What could be wrong all the same, most alarming first.
    """

    level: str
    headline: str
    reason: str
    warnings: tuple[str, ...] = ()


def verdict_of(judgement: Judgement) -> Verdict:
    """Return the banner for a judgement."""
    return _against(judgement) or _for(judgement)


def _against(judgement: Judgement) -> Verdict | None:
    """Return the banner of a model that something speaks against, None if nothing does."""
    gain, audit, labels = _gain(judgement), _audit(judgement), judgement.audit
    if labels is not None and labels.worse:
        return Verdict("no", f"No: {labels.rows:,} labeled rows contradict it", labels.sentence)
    if gain is not None and not gain.shown:
        if audit is not None and audit.better:
            return Verdict(
                "partly",
                "Partly: labels show that it beats giving every row its set's share",
                f"{audit.rows:,} labels show that rows of one set are told apart. That shares of "
                "new sets are predicted better than by guessing is not shown.",
            )
        return Verdict(
            "no",
            "No: not shown to beat giving every row its set's share",
            "It predicts the shares of held-out sets no better than guessing the average share "
            f"does (z = {gain.z:.1f}; {gain.threshold:.1f} is needed). Do not use this model.",
        )
    if audit is not None and audit.worse:
        return Verdict(
            "no",
            "No: labels show that giving every row its set's share is better",
            f"On {counted(audit.rows, 'labeled row', 'labeled rows')} the model has the larger "
            "Brier score. Do not use this model.",
        )
    if judgement.assumption.set_posterior and is_rejected(judgement):
        return Verdict(
            "no",
            "No: the sets are not consistent with the assumption",
            "Do not trust the numbers below until you know which sets differ, and why.",
        )
    if not judgement.believable:
        return Verdict("no", "No: do not trust these numbers", "")
    return None


def _for(judgement: Judgement) -> Verdict:
    """Return the banner of a model that nothing speaks against."""
    if judgement.audit is not None and judgement.audit.supports:
        rows = f"{judgement.audit.rows:,}"
        return Verdict("yes", f"Yes: audited on {rows} labels", judgement.audit.sentence)
    gain, audit, missing = _gain(judgement), _audit(judgement), _unchecked(judgement)
    warnings = () if judgement.rates_hold else _fallacy(judgement)
    weak = gain is not None and gain.word != "clear"
    unseen = [one for one in judgement.class_gains if not one.shown]
    of_all = f"of {len(judgement.class_gains)} classes"
    if gain is not None and not judgement.assumption.set_posterior:
        if audit is not None and audit.better:
            return Verdict(
                "yes",
                "Yes, for rows like those with labels: it beats giving every row its set's share",
                f"{audit.rows:,} labels show that rows of one set are told apart. The gain over "
                f"guessing on held-out sets is {gain.word}.",
            )
        told = "it predicts the shares of sets"
        if unseen:
            told = f"it predicts the shares of {len(judgement.class_gains) - len(unseen)} {of_all}"
        answer = f"Perhaps: weak evidence that {told}" if weak else f"Partly: {told}"
        labels = "A handful of labels settles it: unmix fit --labels, or unmix evaluate --labels."
        if audit is not None:
            labels = f"The {counted(audit.rows, 'label', 'labels')} at hand do not settle it."
        return Verdict(
            "partly",
            f"{answer}; {SINGLE_ROWS}",
            f"Whether rows of one set are told apart cannot be seen without labels. {labels}",
            warnings,
        )
    if missing:
        return Verdict(
            "partly",
            "Perhaps: no evidence against it, but some checks could not be made",
            f"Not checked: {'; '.join(missing)}.",
            warnings,
        )
    if gain is not None and weak:
        return Verdict(
            "partly",
            "Perhaps: the evidence is weak",
            f"Held-out sets are predicted better than by guessing, but not by much more than "
            f"chance allows (z = {gain.z:.1f}). More sets would tell.",
            warnings,
        )
    if unseen:
        return Verdict(
            "partly",
            f"Partly: {len(unseen)} {of_all} not shown to be predicted",
            "The others are predicted better than by guessing, and the sets are consistent with "
            "label shift.",
        )
    return Verdict(
        "yes",
        "Yes: no check found evidence against it",
        "Held-out sets are predicted better than by guessing, and the sets are consistent with "
        "label shift.",
    )


def _fallacy(judgement: Judgement) -> tuple[str, ...]:
    """Say what no score without labels can find where label shift is not shown, signs first."""
    return (
        *(f"Warning: {sign}." for sign in fallacy_signs(judgement)),
        "The ecological fallacy: if the sets are made by a cause that is not among the features, "
        "a model can predict their shares well and still be wrong about the rows in them.",
    )


def fallacy_signs(judgement: Judgement) -> list[str]:
    """List what makes the ecological fallacy likely here, each in words that follow "Warning:"."""
    signs, gain = [], _gain(judgement)
    if gain is not None and gain.tau > LARGE_EFFECT:
        ratio = math.exp(MEDIAN_RATIO * gain.tau)
        signs.append(
            "the sets differ much by what the features do not explain: the same row has "
            f"{ratio:.1f} times the odds in one set as in another (median over pairs of sets)"
        )
    return signs


def is_rejected(judgement: Judgement) -> bool:
    """Return whether the test of label shift was made and failed."""
    return judgement.evaluation is not None and judgement.evaluation.fit_test.rejected


def beats_guessing(judgement: Judgement) -> bool | None:
    """Return whether held-out sets are predicted better than by guessing, None if not tried."""
    gain = _gain(judgement)
    return None if gain is None else gain.shown


def _gain(judgement: Judgement) -> Gain | None:
    """Return the gain of the method that was used, if sets were hidden."""
    return judgement.gains.get(judgement.method)


def _audit(judgement: Judgement) -> Audit | None:
    """Return what labels say of the model beside the share of each row's set, if there are any."""
    if judgement.evaluation is None or judgement.evaluation.model_based is None:
        return None
    return judgement.evaluation.model_based.audit


def _unchecked(judgement: Judgement) -> list[str]:
    """List the checks that could not be made."""
    missing = []
    if judgement.evaluation is None:
        missing.append("accuracy and consistency with label shift (no held-out rows here)")
    else:
        accuracy = judgement.evaluation.accuracy
        if not accuracy.high - accuracy.low < TOO_WIDE:
            missing.append("accuracy (the interval is too wide to be useful)")
        if math.isnan(judgement.evaluation.fit_test.p_value):
            missing.append("consistency with label shift (too few sets or rows for the test)")
    if beats_guessing(judgement) is None:
        why = "too few sets" if len(judgement.set_ids) < LEAST_SETS else "none were held out"
        missing.append(f"prediction of held-out sets ({why})")
    if not judgement.diagnosis.usable:
        missing.append("the stated shares (see the errors under 'Data check')")
    return missing
