"""A linear classifier as one SELECT: a row of the table in, its probabilities and class out.

Only arithmetic, CASE and EXP, so that any database can run it where the rows are. It computes what
`predict_proba(X)` does for rows of sets that nobody knows, target prior and set effect included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unmix.core.effect_law import effect_points, effect_scale
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.learn.columns import CategoryColumn, Column, NumberColumn
from unmix.learn.encoding import TableEncoder
from unmix.learn.linear_fit import LinearFit
from unmix.learn.models import move_logits, score_names
from unmix.learn.table_blocks import FARTHEST, Place

if TYPE_CHECKING:
    from unmix.learn.estimator import SetClassifier

__all__ = ["DIALECTS", "Dialect", "sql_query"]

Array = np.ndarray[Any, Any]

# Beyond it a probability is 0 or 1 to the last digit, and EXP of twice as much overflows.
FARTHEST_LOGIT = 300.0


@dataclass(frozen=True)
class Dialect:
    """What databases write differently."""

    quote: str
    """Stands around names, and is doubled inside."""
    text: str
    """The type of text."""
    number: str
    """A column as a number of 64 bits, NULL where it is NaN; {} is the column."""
    single: str
    """A number rounded to 32 bits, as the model has learned it; {} where there is no such type."""
    least: str = "LEAST"
    greatest: str = "GREATEST"
    backslash: bool = False
    """Whether a backslash in a text has to be doubled."""


DIALECTS = {
    "duckdb": Dialect(
        '"',
        "VARCHAR",
        "NULLIF(CAST({} AS DOUBLE), CAST('NaN' AS DOUBLE))",
        "CAST(CAST({} AS REAL) AS DOUBLE)",
    ),
    "postgres": Dialect(
        '"',
        "TEXT",
        "NULLIF(CAST({} AS DOUBLE PRECISION), CAST('NaN' AS DOUBLE PRECISION))",
        "CAST(CAST({} AS REAL) AS DOUBLE PRECISION)",
    ),
    "sqlite": Dialect('"', "TEXT", "CAST({} AS REAL)", "{}", "MIN", "MAX"),
    "bigquery": Dialect(
        "`",
        "STRING",
        "IF(IS_NAN(CAST({0} AS FLOAT64)), NULL, CAST({0} AS FLOAT64))",
        "{}",
        backslash=True,
    ),
}


def sql_query(
    clf: SetClassifier,
    *,
    table: str = "rows",
    keep: Sequence[str] = (),
    dialect: str = "duckdb",
) -> str:
    """Return a SELECT that scores the rows of a table.

    Parameters
    ----------
    clf : UnmixClassifier
        A linear model of a table.
    table : str
        Name of the table, which has the columns of training; with dots for schema and table.
    keep : sequence of str
        Columns of the table that stand before the scores, such as an id.
    dialect : str
        A name of `DIALECTS`.

    Returns
    -------
    str
        The columns of its result are those that `unmix predict` writes.
    """
    fit, encoder = clf.learner_.fit, clf.encoder_
    if not isinstance(fit, LinearFit) or not isinstance(encoder, TableEncoder):
        raise InputError(
            f"only linear models of tables can be written as SQL; this is a {clf.model_} model: "
            "fit it again with model linear, or export it as ONNX"
        )
    if dialect not in DIALECTS:
        raise InputError(f"dialect must be one of {listed(sorted(DIALECTS))}; got {dialect!r}")
    names, write = score_names(clf.classes_), _Writer(DIALECTS[dialect])
    for name in keep:
        if name in names:
            raise InputError(f"column {name!r} cannot be kept beside the score of that name")
    taken = {*encoder.columns, *keep}
    logits = {_unused(f"logit_{k}", taken): text for k, text in enumerate(_logits(write, clf))}
    aliases = [write.name(name) for name in logits]
    rule = _two_classes if len(aliases) == 1 else _several_classes
    probabilities, conditions = rule(write, aliases, clf.learner_.tau)
    kept = [write.name(name) for name in dict.fromkeys(keep)]
    inner = [*kept, *(f"{text} AS {write.name(name)}" for name, text in logits.items())]
    scores = [*probabilities, _prediction(write, conditions, clf.classes_.tolist())]
    outer = [*kept, *(f"{t} AS {write.name(n)}" for t, n in zip(scores, names, strict=True))]
    source = ".".join(write.name(part) for part in table.split("."))
    # The inner SELECT names the logits, which the outer one uses several times.
    return (
        f"SELECT\n  {_lines(outer)}\nFROM (\n  SELECT\n    {_lines(inner, 4)}\n  FROM {source}\n"
        ") AS logits\n"
    )


def _logits(write: _Writer, clf: Any) -> list[str]:
    """Return the logits at the target prior: one for two classes, else one for each."""
    fit, encoder, classes = clf.learner_.fit, clf.encoder_, len(clf.classes_)
    start = np.zeros(1 if classes == 2 else (1, classes))
    shift = move_logits(start, clf.learner_.base_prior, clf.target_prior_).reshape(-1)
    lone = clf.learner_.lone
    weights = lone.length * fit.weights.reshape(len(fit.weights), -1)
    bias = lone(fit.bias).reshape(-1) + shift
    found = []
    for k in range(len(bias)):
        terms = [_literal(float(bias[k]))]
        for column, place in zip(encoder.summaries, encoder.places, strict=True):
            terms += _terms(write, column, place, weights[:, k])
        found.append("\n      + ".join(terms))
    return found


def _terms(write: _Writer, column: Column, place: Place, weights: Array) -> list[str]:
    """Return what a column adds to a logit: nothing, or one or two terms."""
    terms = []
    if isinstance(column, NumberColumn):
        value = write.number(column.name)
        if place.value is not None:
            scaled = f"({value} - {_literal(column.mean)}) / {_literal(column.deviation)}"
            filled = write.clipped(f"COALESCE({scaled}, 0e0)", FARTHEST)
            terms.append(f"{_literal(weights[place.value])} * {write.single(filled)}")
        if place.missing is not None:
            weight = _literal(weights[place.missing])
            terms.append(f"CASE WHEN {value} IS NULL THEN {weight} ELSE 0e0 END")
    elif isinstance(column, CategoryColumn) and place != Place():
        value, cases = write.name(column.name), []
        if place.missing is not None:
            cases.append(f"WHEN {value} IS NULL THEN {_literal(weights[place.missing])}")
        if place.value is not None:
            text = write.text(value)
            for word, weight in zip(column.categories, weights[place.value :], strict=False):
                cases.append(f"WHEN {text} = {write.value(word)} THEN {_literal(weight)}")
        terms.append(f"CASE {' '.join(cases)} ELSE 0e0 END")
    return terms


def _two_classes(write: _Writer, logits: list[str], tau: float) -> tuple[list[str], list[str]]:
    """Return the probability of the second class and the condition for it."""
    (logit,) = logits
    bounded = write.clipped(logit, FARTHEST_LOGIT)
    if not tau:
        return [f"1e0 / (1e0 + EXP(-{bounded}))"], [f"{logit} > 0"]
    terms = [
        f"{_literal(weight)} / (1e0 + EXP(-({bounded} + {_literal(tau * point)})))"
        for point, weight in zip(*effect_points(), strict=True)
    ]
    return ["\n  + ".join(terms)], [f"{logit} > 0"]


def _several_classes(write: _Writer, logits: list[str], tau: float) -> tuple[list[str], list[str]]:
    """Return the probability of each class, and the conditions for all but the first."""
    scale = _literal(effect_scale(tau))
    found = []
    for one in logits:
        others = [write.clipped(f"{scale} * ({z} - {one})", FARTHEST_LOGIT) for z in logits]
        found.append("1e0 / (" + " + ".join(f"EXP({z})" for z in others) + ")")
    # The first of those that are equal, as argmax does.
    places = range(len(logits) - 1, 0, -1)
    conditions = [" AND ".join(f"{logits[k]} > {z}" for z in logits[:k]) for k in places]
    conditions = [
        " AND ".join([condition, *(f"{logits[k]} >= {z}" for z in logits[k + 1 :])])
        for k, condition in zip(places, conditions, strict=True)
    ]
    return found, conditions


def _prediction(write: _Writer, conditions: list[str], classes: list[Any]) -> str:
    """Return the choice of a class: the conditions are for the last class, then the one before."""
    cases = " ".join(
        f"WHEN {condition} THEN {write.value(name)}"
        for condition, name in zip(conditions, classes[:0:-1], strict=True)
    )
    return f"CASE {cases} ELSE {write.value(classes[0])} END"


class _Writer:
    """Names, values and columns as a dialect writes them."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def name(self, name: str) -> str:
        """Return a quoted name."""
        quote = self.dialect.quote
        return quote + name.replace(quote, 2 * quote) + quote

    def value(self, value: Any) -> str:
        """Return a class or a category."""
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return _literal(value)
        text = str(value)
        if self.dialect.backslash:
            return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return "'" + text.replace("'", "''") + "'"

    def number(self, column: str) -> str:
        """Return a column as a number, NULL where it is missing."""
        return self.dialect.number.format(self.name(column))

    def text(self, value: str) -> str:
        """Return a value as text."""
        return f"CAST({value} AS {self.dialect.text})"

    def single(self, value: str) -> str:
        """Return a number rounded to 32 bits."""
        return self.dialect.single.format(value)

    def clipped(self, value: str, bound: float) -> str:
        """Return a number no farther from 0 than a bound."""
        least, greatest, limit = self.dialect.least, self.dialect.greatest, _literal(bound)
        return f"{least}({greatest}({value}, -{limit}), {limit})"


def _literal(value: float) -> str:
    """Return a number with an exponent: without one it would be a decimal number, not a float."""
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def _unused(name: str, taken: set[str]) -> str:
    """Return a name that no column has, whatever the case of its letters."""
    folded = {other.casefold() for other in taken}
    while name.casefold() in folded:
        name += "_"
    return name


def _lines(parts: list[str], indent: int = 2) -> str:
    """Return the columns of a SELECT, one in each line."""
    return (",\n" + " " * indent).join(parts)
