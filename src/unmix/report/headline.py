"""Can this be trusted? The banner of the report: a colour, a headline and one line why.

Reads what `judge` decided and adds whether everything could be checked. Computes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from unmix.assess.judge import Judgement
from unmix.learn.choose import LEAST_SETS

__all__ = ["Verdict", "beats_guessing", "is_rejected", "verdict_of"]


TOO_WIDE = 0.5  # an interval of the accuracy that says next to nothing
LARGE_EFFECT = 1.0  # of sets on log-odds, beyond which they differ by more than their rows


@dataclass(frozen=True)
class Verdict:
    """What the banner says.

    Attributes
    ----------
    level : str
        'yes', 'partly' or 'no'.
    headline, reason : str
        The answer in a few words, and why.
    """

    level: str
    headline: str
    reason: str


def verdict_of(judgement: Judgement) -> Verdict:
    """Return the banner for a judgement."""
    rejected, audit = is_rejected(judgement), judgement.audit
    if audit is not None and audit.worse:
        return Verdict("no", f"No: {audit.rows:,} labeled rows contradict it", audit.sentence)
    if not judgement.believable:
        if beats_guessing(judgement) is False:
            return Verdict(
                "no",
                "No: the model does not beat guessing",
                "It predicts the shares of held-out sets no better than guessing the average "
                "share does. Do not use this model.",
            )
        if rejected:
            return Verdict(
                "no",
                "No: the sets are not consistent with the assumption",
                "Do not trust the numbers below until you know which sets differ, and why.",
            )
        return Verdict("no", "No: do not trust these numbers", "")
    if audit is not None and audit.supports:
        return Verdict("yes", f"Yes: audited on {audit.rows:,} labels", audit.sentence)
    missing = _unchecked(judgement)
    if not judgement.assumption.set_posterior and beats_guessing(judgement):
        return Verdict(
            "partly",
            "Partly: it predicts the shares of sets; single rows are not checked",
            _fallacy(judgement),
        )
    if missing:
        return Verdict(
            "partly",
            "Perhaps: no evidence against it, but some checks could not be made",
            f"Not checked: {'; '.join(missing)}.",
        )
    gain = judgement.gains.get(judgement.method)
    if gain is not None and gain.word != "clear":
        return Verdict(
            "partly",
            "Perhaps: the evidence is weak",
            f"Held-out sets are predicted better than by guessing, but not by much more than "
            f"chance allows (z = {gain.z:.1f}). More sets would tell.",
        )
    return Verdict(
        "yes",
        "Yes: no check found evidence against it",
        "Held-out sets are predicted better than by guessing, and the sets are consistent with "
        "label shift.",
    )


def _fallacy(judgement: Judgement) -> str:
    """Say what no score without labels can find where label shift is not shown."""
    gain = judgement.gains.get(judgement.method)
    large = gain is not None and gain.tau > LARGE_EFFECT
    return (
        "Shares of held-out sets are predicted better than by guessing. That rows of one set are "
        "told apart as well cannot be seen without labels: if the sets are made by a cause that is "
        "not among the features, they may not be (the ecological fallacy). "
        + (
            "Here the sets differ much by what the features do not explain, which is a warning. "
            if large
            else ""
        )
        + "A handful of labels settles it: unmix fit --labels, or unmix evaluate --labels."
    )


def is_rejected(judgement: Judgement) -> bool:
    """Return whether the test of label shift was made and failed."""
    return judgement.evaluation is not None and judgement.evaluation.fit_test.rejected


def beats_guessing(judgement: Judgement) -> bool | None:
    """Return whether held-out sets are predicted better than by guessing, None if not tried."""
    gain = judgement.gains.get(judgement.method)
    return None if gain is None else gain.shown


def _unchecked(judgement: Judgement) -> list[str]:
    """List the checks that could not be made."""
    missing = []
    if judgement.evaluation is None:
        missing.append("accuracy and consistency with label shift (no rows held out)")
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
