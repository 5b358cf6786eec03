"""A judgement as one HTML file that needs nothing else: no network, no script, no font.

Fills the template. Words and numbers come from `headline`, `report_tables`, `figures`; names that
users gave are escaped by the template engine wherever they stand.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from unmix import __version__
from unmix.assess.judge import Judgement
from unmix.assess.model_based import HOW_FAR_OFF
from unmix.report.headline import beats_guessing, is_rejected, verdict_of
from unmix.report.number_words import clean, percent_level, share_words
from unmix.report.report_figures import pictures_of
from unmix.report.report_tables import (
    MOST_ROWS,
    NumberRow,
    fact_rows,
    left_out,
    misfit_rows,
    number_rows,
)

__all__ = ["environment", "render_report"]


def render_report(
    judgement: Judgement,
    *,
    title: str = "Classifier trained on sets with known class shares",
    created: str | None = None,
) -> str:
    """Return the report of a judgement as one HTML page.

    The same arguments give the same text, byte for byte.

    Parameters
    ----------
    judgement : Judgement
    title : str
        Heading of the page.
    created : str, optional
        When or from what it was made, as it shall be shown; nothing is shown if left out.

    Returns
    -------
    str
        To be written in UTF-8.
    """
    evaluation = judgement.evaluation
    misfits = misfit_rows(judgement)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            title=title,
            created=created,
            version=__version__,
            judgement=judgement,
            evaluation=evaluation,
            verdict=verdict_of(judgement),
            numbers=_numbers(judgement),
            level="" if evaluation is None else percent_level(evaluation.confidence),
            facts=fact_rows(judgement),
            model_based=None if judgement.rates_hold else getattr(evaluation, "model_based", None),
            how_far_off=HOW_FAR_OFF,
            rejected=is_rejected(judgement),
            why_not_shown=_why_not_shown(judgement),
            pictures=pictures_of(judgement),
            misfits=misfits[:MOST_ROWS],
            misfits_left_out=left_out(len(misfits), "entry", "entries"),
            target=share_words(judgement.target_prior, judgement.classes),
        )
    )


def _why_not_shown(judgement: Judgement) -> str:
    """Say why numbers that assume label shift are not shown, in words that follow "they"."""
    if not judgement.assumption.set_posterior:
        return f"and method {judgement.method} does not"
    if is_rejected(judgement):
        return "and the test below rejects it"
    if beats_guessing(judgement) is False:
        return "and held-out sets are predicted no better than by guessing"
    return "and these sets could not test it"


def _numbers(judgement: Judgement) -> list[NumberRow]:
    """Return the rows of the table: estimates only where what they assume was tested and stands."""
    evaluation = judgement.evaluation
    if evaluation is None or not (judgement.rates_hold or evaluation.labeled):
        return []
    rows = number_rows(evaluation, judgement.classes)
    if judgement.rates_hold:
        return rows
    return [replace(row, value=row.labeled, labeled="", bar=None, inside=None) for row in rows]


# A command of ours in a sentence, with its options.
_COMMAND = re.compile(r"\bunmix [a-z]+(?: --[a-z][a-z-]*)*")


@cache
def environment() -> Environment:
    """Return the template engine, which escapes everything that is not markup."""
    made = Environment(
        loader=PackageLoader("unmix.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["with_commands"] = _with_commands
    return made


def _with_commands(text: str) -> Markup:
    """Set commands apart, so that no line ends within one."""
    return Markup(_COMMAND.sub(r"<code>\g<0></code>", str(escape(clean(text)))))


def _printable(value: Any) -> Any:
    """Return text without characters that a page cannot hold."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
