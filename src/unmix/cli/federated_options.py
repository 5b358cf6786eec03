"""Options of federated fits: what a party tells, how the server fits, how they find each other."""

from __future__ import annotations

import functools
import ipaddress
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from unmix.cli.group import PathName, figure_format_option, figures_option, target_option
from unmix.errors import InputError

__all__ = [
    "address_of",
    "code_in",
    "finite",
    "is_loopback",
    "with_fit_options",
    "with_party_options",
]

Command = TypeVar("Command", bound=Callable[..., Any])

PORT = 9092
"""That of Flower's Fleet API."""

_PARTY = (
    click.option("--drop", multiple=True, help="Column to leave out; repeat the option for more."),
    click.option(
        "--hide-words",
        "hidden_words",
        multiple=True,
        metavar="COLUMN",
        help="Text column of which no word is told; repeat the option for more.",
    ),
    click.option(
        "--least-rows",
        type=click.IntRange(1),
        default=20,
        show_default=True,
        help="Rows that a set must have, and every sum that is told.",
    ),
    click.option(
        "--least-cell",
        type=click.IntRange(1),
        default=5,
        show_default=True,
        help="Rows below which a count of scores, or a word, is not told.",
    ),
    click.option(
        "--epsilon",
        type=click.FloatRange(0, min_open=True),
        help="Add noise to sums of gradients, so that all of them together keep a row secret up to "
        "this epsilon (delta 1e-5). Default: no noise.",
    ),
    click.option(
        "--row-length",
        type=click.FloatRange(1, min_open=True),
        default=8.0,
        show_default=True,
        help="With --epsilon: longer rows, standardised, are shortened to this.",
    ),
    click.option(
        "--answers",
        type=click.IntRange(1, 10_000),
        default=20,
        show_default=True,
        help="With --epsilon: sums of gradients that are told, and so steps of the fit.",
    ),
)
_FIT = (
    click.option("-o", "--output", required=True, type=PathName(), help="Folder for the model."),
    click.option("--overwrite", is_flag=True, help="Replace an existing model."),
    target_option,
    click.option(
        "--model",
        type=click.Choice(["linear", "mlp"]),
        default="linear",
        show_default=True,
        help="mlp is a network, by method ssc; it takes some hundred rounds.",
    ),
    click.option(
        "--method",
        default="auto",
        show_default=True,
        help="auto, or a method listed by `unmix methods` that is a sum over rows or sets.",
    ),
    click.option(
        "--l2",
        type=click.FloatRange(0),
        help="Strength of the penalty. Default: chosen without labels.",
    ),
    click.option(
        "--held-out",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.2,
        show_default=True,
        help="Share of the rows of each set that only count when the model is judged.",
    ),
    click.option(
        "--resamples",
        type=click.IntRange(0),
        help="Fits to resampled sets, for the model's own error; each takes some rounds. Default: "
        "those of any linear model.",
    ),
    click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True),
    figures_option,
    figure_format_option,
)


def with_party_options(command: Command) -> Command:
    """Add what a party has against telling too much; the command gets it as `guards`."""
    return _gathered(command, _PARTY, "guards")


def with_fit_options(command: Command) -> Command:
    """Add the options of the fit; the command gets them as one mapping `fitting`."""
    return _gathered(command, _FIT, "fitting")


def _gathered(command: Command, options: Any, name: str) -> Command:
    """Add options to a command, which gets them as one mapping."""
    own: list[str] = []

    @functools.wraps(command)
    def gathered(**given: Any) -> Any:
        those = {key: given.pop(key) for key in own}
        return command(**given, **{name: those})

    before = len(getattr(gathered, "__click_params__", []))
    found: Any = gathered
    for option in reversed(options):
        found = option(found)
    own += [param.name for param in found.__click_params__[before:]]
    return found  # type: ignore[no-any-return]


def finite(ctx: Any, param: Any, value: float) -> float:
    """Refuse a time to wait that never ends."""
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number of seconds.")
    return value


def address_of(server: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT, or HOST."""
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        host, port = server, str(PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise InputError(f"{server[:100]!r} is no address such as unmix.example.org:{PORT}")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Say whether what is sent to a host never leaves this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def code_in(file: str | None) -> str:
    """Return the code in a file; none if there is no file."""
    if file is None:
        return ""
    from unmix.data.addresses import refuse_pipe

    refuse_pipe(file)
    try:
        code = Path(file).read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise InputError(f"{file} is no text; a code is a line of letters and digits") from None
    if len(code) < 8:
        raise InputError(f"{file}: a code has at least 8 characters; `openssl rand -hex 16` is one")
    return code
