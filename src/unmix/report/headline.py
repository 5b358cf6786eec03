"""May it be believed? The banner of the report: a colour, a headline and one line why.

Reads what `judge` decided and adds whether everything could be checked. Computes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from unmix.assess.judge import Judgement
from unmix.learn.choose import BASELINE, LEAST_SETS

__all__ = ["Verdict", "beats_guessing", "is_rejected", "verdict_of"]


TOO_WIDE = 0.5  # an interval of the accuracy that says next to nothing


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
    rejected = is_rejected(judgement)
    if not judgement.believable:
        if beats_guessing(judgement) is False:
            return Verdict(
                "no",
                "No: these sets cannot answer the question",
                "The share of a hidden set is predicted no better than by guessing. "
                "Do not use this model.",
            )
        if rejected:
            return Verdict(
                "no",
                "No: the sets do not fit together",
                "The numbers below are not to be trusted until the sets that do not fit are "
                "understood.",
            )
        return Verdict("no", "No: do not believe these numbers", "")
    if not judgement.assumption.set_posterior and rejected:
        return Verdict(
            "partly",
            "Partly: believe the shares, not the accuracy",
            "Shares of hidden sets are predicted better than by guessing. The accuracy below "
            "assumes label shift, which these sets contradict.",
        )
    missing = _unchecked(judgement)
    if missing:
        return Verdict(
            "partly",
            "Perhaps: nothing speaks against it, but not all was checked",
            f"Not checked: {'; '.join(missing)}.",
        )
    return Verdict(
        "yes",
        "Yes: nothing speaks against believing it",
        "Hidden sets are predicted better than by guessing, and the sets fit together.",
    )


def is_rejected(judgement: Judgement) -> bool:
    """Return whether the test of label shift was made and failed."""
    if judgement.evaluation is None:
        return False
    test = judgement.evaluation.fit_test
    return test.p_value < test.level


def beats_guessing(judgement: Judgement) -> bool | None:
    """Return whether hidden sets are predicted better than by guessing, None if not tried."""
    errors = judgement.leave_sets_out
    if judgement.method not in errors or BASELINE not in errors:
        return None
    return errors[judgement.method] < errors[BASELINE]


def _unchecked(judgement: Judgement) -> list[str]:
    """List the checks that could not be made."""
    missing = []
    if judgement.evaluation is None:
        missing.append("how accurate it is and whether the sets fit together (no rows held out)")
    else:
        accuracy = judgement.evaluation.accuracy
        if not accuracy.high - accuracy.low < TOO_WIDE:
            missing.append("how accurate it is (the interval is too wide to say)")
        if math.isnan(judgement.evaluation.fit_test.p_value):
            missing.append("whether the sets fit together (too few sets or rows for the test)")
    if beats_guessing(judgement) is None:
        why = "too few sets" if len(judgement.set_ids) < LEAST_SETS else "none were hidden"
        missing.append(f"whether the shares of hidden sets are predicted ({why})")
    if not judgement.diagnosis.usable:
        missing.append("the stated shares (see the errors under 'What the sets allow')")
    return missing
