"""The evaluation of several groupings of the same rows: each by itself, then told as one.

The sets of two groupings hold the same rows, so that a test over all of them would count each row
twice. The rates of the classes come from the grouping that tells them best; the test of label shift
is the one that speaks most clearly against it, allowed for having looked at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unmix.assess.entries import Entries
from unmix.assess.evaluate import Evaluation
from unmix.assess.fit_test import FitTest

__all__ = ["join_evaluations"]


def join_evaluations(found: Sequence[Evaluation], columns: Sequence[str]) -> Evaluation:
    """Tell the evaluations of several groupings as one.

    Parameters
    ----------
    found : sequence of Evaluation
        Of each grouping, with sets that are called by it: "region: north".
    columns : sequence of str
        What the groupings are called.
    """
    widths = [one.accuracy.high - one.accuracy.low for one in found]
    best = min(range(len(found)), key=lambda g: widths[g])
    one = found[best]
    return replace(
        one,
        rows=max(other.rows for other in found),
        num_sets=sum(other.num_sets for other in found),
        calibration=Entries.joined([other.calibration for other in found]),
        fit_test=_joined_test([other.fit_test for other in found], columns),
        method=f"Rates by the sets of {columns[best]}. {one.method}",
        grouping=columns[best],
    )


def _joined_test(tests: Sequence[FitTest], columns: Sequence[str]) -> FitTest:
    """Return the test that rejects most clearly, with the flagged sets of all."""
    made = [g for g, test in enumerate(tests) if test.degrees > 0]
    if not made:
        return tests[0]
    worst = min(made, key=lambda g: tests[g].p_value)
    test = tests[worst]
    p_value = min(1.0, test.p_value * len(made))  # Bonferroni: the least of several
    verdict = f"By {columns[worst]}: {test.verdict}"
    if test.p_value < test.level <= p_value:
        verdict = (
            f"The sets are consistent with the assumption: the least p-value of {len(made)} "
            f"groupings is {test.p_value:.3f} (by {columns[worst]}), as chance alone would give."
        )
    misfits = [(set_id, t) for t in tests for set_id in t.misfits]
    order = {set_id: m.p_value for t in tests for m in t.sets for set_id in m.set_ids}
    return replace(
        test,
        p_value=p_value,
        misfits=tuple(sorted((set_id for set_id, _ in misfits), key=lambda i: order.get(i, 0.0))),
        sets=Entries.joined([t.sets for t in tests]),
        verdict=verdict,
    )
