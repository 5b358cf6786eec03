"""A judgement in a few lines of text: the answer, why, and what the model goes by."""

from __future__ import annotations

import math
import textwrap

from unmix.assess.judge import Judgement
from unmix.report.headline import verdict_of
from unmix.report.number_words import class_names, shortened

__all__ = ["summary_text"]

WIDTH = 96
MOST_EFFECTS = 8
NAME_CELLS = 32


def summary_text(judgement: Judgement) -> str:
    """Return the answer, the reasons and the largest effects as plain text.

    Parameters
    ----------
    judgement : Judgement
    """
    verdict = verdict_of(judgement)
    parts = [verdict.headline, verdict.reason, *verdict.warnings]
    lines = [line for part in parts if part for line in textwrap.wrap(part, WIDTH)]
    lines.append("")
    for sentence in judgement.sentences:
        lines += textwrap.wrap(sentence, WIDTH, initial_indent="- ", subsequent_indent="  ")
    return "\n".join([*lines, *_effects(judgement)])


def _effects(judgement: Judgement) -> list[str]:
    """List the largest weights or importances."""
    if not judgement.effects:
        return []
    weights = judgement.effects[0].class_index >= 0
    lines = [
        "",
        "Largest effects on the log-odds, with 95 % intervals from resampled sets:"
        if weights
        else "Share of what all columns gained:",
    ]
    names = class_names(judgement.classes)
    for effect in sorted(judgement.effects, key=lambda effect: -abs(effect.value))[:MOST_EFFECTS]:
        name = f"{shortened(effect.feature, NAME_CELLS):{NAME_CELLS}}"
        value = f"{effect.value:+.2f}" if weights else f"{effect.value:.3f}"
        if math.isfinite(effect.low):
            value += f" ({effect.low:+.2f} to {effect.high:+.2f})"
        of_class = f"  {names[effect.class_index]}" if len(names) > 1 and weights else ""
        lines.append(f"  {name} {value}{of_class}")
    return lines
