"""Options that several commands share: about tables of rates, and about engines."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import click

from unmix.cli.group import tell
from unmix.errors import InputError

if TYPE_CHECKING:
    from unmix.data.priors import Priors

__all__ = [
    "engine_of",
    "engine_option",
    "refuse_unread",
    "tell_left_out",
    "tell_understood",
    "timeout_option",
    "with_rates_options",
    "workers_option",
]

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
    click.option("--sheet", metavar="NAME", help="Sheet of a workbook with the rates."),
)

engine_option = click.option(
    "--engine",
    metavar="ENGINE",
    help="Who works on the files of ROWS: ray (on this machine), ray://HOST:PORT (a cluster), or "
    "local (the same in this process).",
)
workers_option = click.option(
    "--workers",
    type=click.IntRange(1),
    help="With --engine ray: processes. Default: one for each processor.",
)
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="With --engine ray: how long to wait for the next answer of a worker. Default: 600.",
)


def with_rates_options(command: Command) -> Command:
    """Add the options about rates to a command, which gets them as one mapping `reading`."""
    names = ("percent", *_COLUMNS, "classes", "count_noise", "rates_are", "drop_unrated", "sheet")

    @functools.wraps(command)
    def gathered(**given: Any) -> Any:
        reading = {name: given.pop(name) for name in names}
        reading["classes"] = reading["classes"] or None
        return command(**given, reading=reading)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered  # type: ignore[return-value]


def refuse_unread(reading: dict[str, Any]) -> None:
    """Refuse options about rates where no table of rates is read."""
    for name, value in reading.items():
        if value not in (None, False, "auto"):
            option = {"classes": "class"}.get(name, name).replace("_", "-")
            raise InputError(f"--{option} is about the table of rates: give that with --priors")


def tell_understood(priors: Priors | None) -> None:
    """Say in one line how the rates were understood: with the results, never before a mistake."""
    if priors is not None and priors.understood:
        tell(f"{priors.understood}.")


def tell_left_out(note: str) -> None:
    """Say on standard error which rows are left out."""
    if note:
        tell(f"note: {note}", err=True)


def engine_of(
    engine: str | None, workers: int | None, timeout: float | None
) -> AbstractContextManager[Any]:
    """Return the engine that was asked for, to be entered; nothing if there is none."""
    if engine is not None:
        from unmix.engines.choice import engine_named

        found: AbstractContextManager[Any] = engine_named(engine, workers=workers, timeout=timeout)
        return found
    for option, value in (("--workers", workers), ("--timeout", timeout)):
        if value is not None:
            raise InputError(f"{option} is about --engine ray; add that or leave {option} out")
    return nullcontext(None)
