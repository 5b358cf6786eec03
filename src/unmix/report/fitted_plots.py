"""The plots of a fitted classifier, for notebooks: each takes an axis and returns its figure."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unmix.assess.judge import Judgement
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.learn.estimator import SetClassifier
from unmix.report import plots
from unmix.report.number_words import class_names
from unmix.report.report_figures import class_share_points, roc_points

__all__ = ["gain_plot", "history_plot", "roc_plot", "shares_plot"]


def shares_plot(
    clf: SetClassifier, judgement: Judgement | None, class_name: Any, ax: Axes | None
) -> Figure:
    """Draw stated against predicted shares: of held-out rows, or of sets hidden while choosing."""
    k = _class_place(clf, class_name)
    names = class_names([str(name) for name in clf.classes_])
    place = 0 if len(names) == 1 else k
    labels: dict[str, Any] = {
        "x_label": f"stated share of {names[place]}",
        "y_label": f"predicted share of {names[place]}",
        "ax": ax,
    }
    if judgement is not None and judgement.evaluation is not None:
        return plots.plot_shares(
            **class_share_points(judgement, judgement.evaluation, place), **labels
        )
    held_out = clf.held_out_shares_
    if held_out is None:
        raise InputError(
            "no sets were hidden while this model was chosen; give held-out rows and their sets"
        )
    return plots.plot_shares(
        [""] * len(held_out.rows), held_out.stated[:, k], held_out.predicted[:, k], **labels
    )


def roc_plot(judgement: Judgement, ax: Axes | None) -> Figure:
    """Draw the ROC curve, where it may be drawn."""
    evaluation = judgement.evaluation
    if evaluation is None or evaluation.roc is None:
        raise InputError("a ROC curve needs two classes and held-out rows of several sets")
    if not judgement.rates_hold:
        raise InputError(
            "a ROC curve without labels assumes label shift, which does not hold here, was not "
            "tested, or is not assumed by the method; see the report"
        )
    point, labeled = roc_points(evaluation)
    return plots.plot_roc(evaluation.roc, point=point, labeled_point=labeled, ax=ax)


def gain_plot(clf: SetClassifier, ax: Axes | None) -> Figure:
    """Draw the gain over guessing of every method that was tried."""
    if not clf.gains_:
        raise InputError("no sets were hidden while this model was chosen, so there is no gain")
    return plots.plot_gain(clf.gains_, used=clf.method_, ax=ax)


def history_plot(clf: SetClassifier, ax: Axes | None) -> Figure:
    """Draw the learning curve."""
    if not clf.history_:
        raise InputError(f"a model of kind {clf.model_} has no learning curve")
    return plots.plot_history(clf.history_, ax=ax)


def _class_place(clf: SetClassifier, class_name: Any) -> int:
    """Return the position of a class; the positive or last one if none is named."""
    if class_name is None:
        return len(clf.classes_) - 1
    found = np.flatnonzero([str(name) == str(class_name) for name in clf.classes_])
    if not len(found):
        names = listed([str(name) for name in clf.classes_], 10)
        raise InputError(f"{class_name!r} is no class of the model; it has {names}")
    if len(clf.classes_) == 2 and found[0] == 0:
        raise InputError("for two classes shares are drawn of the second one")
    return int(found[0])
