"""The model card: README.md beside a saved model, for whoever finds the folder.

Says what it is, what it was trained on, whether it can be trusted and how to use it. Holds no date,
so that the same model gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from unmix import __version__
from unmix.assess.judge import Judgement, diagnose_classifier
from unmix.learn.estimator import SetClassifier
from unmix.report.headline import verdict_of
from unmix.report.number_words import counted, percent, share_words, shortened

__all__ = ["model_card"]

MOST_SETS = 20
MOST_COLUMNS = 40
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def model_card(clf: SetClassifier, judgement: Judgement) -> str:
    """Return the model card of a fitted classifier as Markdown.

    Parameters
    ----------
    clf : UnmixClassifier
    judgement : Judgement
        What was found of it, with or without held-out rows.
    """
    verdict = verdict_of(judgement)
    target = share_words(judgement.target_prior, judgement.classes)
    trained = [
        f"Model: {judgement.model}, trained with method {judgement.method} "
        f"({judgement.method_about}).",
        f"Assumption: {judgement.assumption.shared}.",
        f"Classes: {_listed(judgement.classes, MOST_COLUMNS)}.",
        f"Base rate where it is used: {_text(target)}.",
        f"Labels used in training: {_labels(clf)}.",
        f"Written by unmix {__version__}.",
    ]
    lines = [
        f"# A classifier trained on {counted(len(judgement.set_ids), 'set', 'sets')}",
        "",
        f"**{verdict.headline}.** {verdict.reason}",
        "",
        *(f"> {warning}\n" for warning in verdict.warnings),
        *_bullets(judgement.sentences),
        "",
        "## What it is",
        "",
        *_bullets(trained),
        "",
        "## What it was trained on",
        "",
        *_sets(clf, judgement),
        "",
        *_columns(clf),
        "## Limits",
        "",
        *_bullets(_limits(judgement)),
        "",
        "## How to use it",
        "",
        "```python",
        "from unmix import UnmixClassifier",
        "",
        'clf = UnmixClassifier.load("this folder")',
        "clf.predict_proba(X)             # rows of sets that nobody knows",
        "clf.predict_proba(X, sets=sets)  # rows of sets whose shares are known: more accurate",
        "```",
        "",
        "```console",
        "unmix predict FOLDER new.csv -o scored.csv",
        "unmix evaluate FOLDER held.csv --sets COLUMN --priors rates.csv --labels COLUMN",
        "```",
    ]
    return "\n".join(lines) + "\n"


def _labels(clf: SetClassifier) -> str:
    """Say how many labels were learned from."""
    if clf.set_priors is None:
        return "all"
    return f"{clf.training_labels_:,}" if clf.training_labels_ else "none"


def _sets(clf: SetClassifier, judgement: Judgement) -> list[str]:
    """Return a table of the sets, of the first ones if there are many."""
    diagnosis, several = diagnose_classifier(clf), len(judgement.classes) > 2
    head = [_text(name) for name in judgement.classes] if several else ["share of positives"]
    if not several and tuple(judgement.classes) != ("0", "1"):
        head = [f"share of {_text(judgement.classes[1])}"]
    lines = [
        f"{diagnosis.num_rows:,} rows in {counted(diagnosis.num_sets, 'set', 'sets')}; the "
        f"effective number of labels is about {diagnosis.worth_in_labels:,.0f}.",
        "",
        f"| set | rows | {' | '.join(head)} |",
        f"| --- | ---: |{' ---: |' * len(head)}",
    ]
    rows = zip(judgement.set_ids, clf.set_sizes_, judgement.stated_priors, strict=True)
    for name, size, share in list(rows)[:MOST_SETS]:
        shares = share if isinstance(share, tuple) else (share,)
        shown = shares if several else shares[-1:]
        told = " | ".join(percent(part) for part in shown)
        lines.append(f"| {_text(name)} | {int(size):,} | {told} |")
    rest = len(judgement.set_ids) - MOST_SETS
    return [*lines, *(["", f"{counted(rest, 'set', 'sets')} more not shown."] if rest > 0 else [])]


def _columns(clf: SetClassifier) -> list[str]:
    """Return the columns that rows must have."""
    columns = [str(name) for name in getattr(clf.encoder_, "columns", ())]
    if not columns:
        return []
    return [f"Columns: {_listed(columns, MOST_COLUMNS)}.", ""]


def _limits(judgement: Judgement) -> list[str]:
    """List what nobody should expect of the model."""
    limits = [
        "It applies to rows like those in these sets. Other places and later years may differ.",
        "An error that all stated shares have in common cannot be seen from them.",
        "For a single row it gives a probability, not a class. Its accuracy may differ between "
        "groups of people that are not sets here.",
    ]
    if not judgement.rates_hold:
        limits.insert(
            0, "Its accuracy was not measured: that takes labels, and a handful is enough."
        )
    return limits


def _listed(names: Sequence[str], most: int) -> str:
    """Return names with commas, the first ones if there are many."""
    shown = ", ".join(_text(name) for name in names[:most])
    rest = len(names) - most
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def _bullets(items: Sequence[str]) -> list[str]:
    """Return a list."""
    return [f"- {item}" for item in items]


def _text(name: str) -> str:
    """Return a name of the user's as text of Markdown, whatever it holds."""
    return SPECIAL.sub(r"\\\1", shortened(name, 60))
