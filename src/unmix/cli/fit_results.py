"""What every fit leaves and says, whoever fitted: the folder, the sentences, the JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmix.cli.group import tell

if TYPE_CHECKING:
    from unmix.assess.judge import Judgement
    from unmix.learn.estimator import SetClassifier

__all__ = ["brief_judgement", "tell_fit", "write_fit"]


def write_fit(folder: Path, clf: SetClassifier, judgement: Judgement) -> None:
    """Write the model, its card and the report into a folder."""
    from unmix.learn.saved import write_model
    from unmix.report.model_card import model_card
    from unmix.report.page import render_report

    write_model(clf, folder, model_card(clf, judgement))
    (folder / "report.html").write_text(render_report(judgement), encoding="utf-8")


def brief_judgement(judgement: Judgement) -> dict[str, Any]:
    """Return what a judgement says in a few values."""
    keys = ("method", "target_prior", "leave_sets_out", "gains", "believable", "sentences")
    return {key: getattr(judgement, key) for key in keys}


def tell_fit(judgement: Judgement, output: str) -> None:
    """Print what a judgement says, how each method predicts held-out sets, and where all is."""
    for sentence in judgement.sentences:
        tell(sentence)
    if judgement.gains:
        _tell_gains(judgement)
    tell(f"Model and report: {output} (open {output.rstrip('/')}/report.html)")


def _tell_gains(judgement: Judgement) -> None:
    """Print how well each method predicts sets that were hidden from it."""
    from unmix.learn.choose import BASELINE

    needed = max(gain.threshold for gain in judgement.gains.values())
    z = f"z ({needed:.1f} is needed)"
    tell(f"{'held-out sets':14} {'gain over guessing':20} {z:20} error of the share")
    for name, gain in judgement.gains.items():
        found, z = f"{gain.gain:+.2f} +- {gain.error:.2f}", f"{gain.z:.1f} {gain.word}"
        tell(f"{name:14} {found:20} {z:20} {judgement.leave_sets_out[name]:.3f}")
    tell(f"{'average share':14} {'':41} {judgement.leave_sets_out[BASELINE]:.3f}")
