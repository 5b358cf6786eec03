"""Options about tables of rates, the same for every command that reads one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from unmix.cli.group import tell

if TYPE_CHECKING:
    from unmix.data.priors import Priors

__all__ = ["tell_left_out", "tell_understood", "with_rates_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

_COLUMNS = {
    "share": "shares",
    "lower": "lower ends of intervals",
    "upper": "upper ends of intervals",
    "positives": "counts of positives",
    "total": "counts of all",
    "noise": "standard deviations of noise in the counts",
}
_OPTIONS = (
    click.option(
        "--percent/--no-percent",
        default=None,
        help="Shares in the rates are percentages. Default: told by signs, names and numbers.",
    ),
    *(
        click.option(f"--{role}", metavar="COLUMN", help=f"Column of the rates with {what}.")
        for role, what in _COLUMNS.items()
    ),
    click.option(
        "--class",
        "classes",
        multiple=True,
        metavar="COLUMN",
        help="Column with the shares or counts of a class; once for each class.",
    ),
    click.option(
        "--count-noise",
        type=click.FloatRange(0),
        metavar="SIGMA",
        help="Standard deviation of noise that was added to each count.",
    ),
    click.option(
        "--rates-are",
        type=click.Choice(["auto", "exact", "sample", "population"]),
        default="auto",
        show_default=True,
        help="Counts of these very rows, counts in a sample of others, or rates of the population. "
        "auto: exact where totals are the rows of their sets.",
    ),
    click.option("--drop-unrated", is_flag=True, help="Leave out rows of sets that have no rate."),
)


def with_rates_options(command: Command) -> Command:
    """Add the options to a command, which gets them as one mapping `reading`."""
    names = ("percent", *_COLUMNS, "classes", "count_noise", "rates_are", "drop_unrated")

    @functools.wraps(command)
    def gathered(**given: Any) -> Any:
        reading = {name: given.pop(name) for name in names}
        reading["classes"] = reading["classes"] or None
        return command(**given, reading=reading)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered  # type: ignore[return-value]


def tell_understood(priors: Priors | None) -> None:
    """Say in one line how the rates were understood: with the results, never before a mistake."""
    if priors is not None and priors.understood:
        tell(f"{priors.understood}.")


def tell_left_out(note: str) -> None:
    """Say on standard error which rows are left out."""
    if note:
        tell(f"note: {note}", err=True)
