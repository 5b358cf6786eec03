"""The `unmix` command itself: how errors are told, and what every command shares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import click

from unmix.errors import DivergenceError, InputError
from unmix.plugins import files_in_variable, load_file

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "about_rows",
    "fail",
    "json_option",
    "main",
    "priors_option",
    "set_option",
    "target_of",
    "target_option",
]

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class OneLineErrors(click.Group):
    """Turns the user's mistakes into one line and exit code 2, ours into exit code 1."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options before the command."""
        try:
            return super().parse_args(ctx, args)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            fail(f"{error.format_message()} See {ctx.command_path} --help", 2)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and translate what it raises."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else ctx.command_path
            fail(f"{error.format_message()} See {path} --help", 2)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            fail("stopped", 130)
        except BrokenPipeError:
            raise  # `unmix ... | head`: click ends in silence
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            if isinstance(error, InputError | DivergenceError):
                fail(str(error), 2)
            if isinstance(error, OSError):
                where = f"{error.filename}: " if error.filename else ""
                fail(f"{where}{error.strerror or error}", 2)
            fail(f"{type(error).__name__}: {error} (unmix --debug ... shows where)", 1)


def fail(message: str, code: int) -> NoReturn:
    """Print one line on standard error and stop."""
    line = " ".join(message.split())
    click.echo(f"unmix: {line}", err=True)
    sys.exit(code)


@click.group("unmix", cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="unmix")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "--load",
    "files",
    multiple=True,
    type=click.Path(),
    metavar="FILE.py",
    help="Run a Python file first, which registers methods or datasets of your own. May be given "
    "more than once. UNMIX_LOAD names files for every command.",
)
def main(debug: bool, files: tuple[str, ...]) -> None:
    """Train a classifier from sets whose class shares are known, and judge it without labels."""
    for file in (*files_in_variable(), *files):
        load_file(file)


set_option = click.option("--sets", "set_column", required=True, help="Column with the set id.")
priors_option = click.option(
    "--priors",
    "priors_file",
    required=True,
    type=click.Path(),
    help="Table with each set's share: CSV, Parquet or Excel.",
)


def _shares(ctx: Any, param: Any, value: str | None) -> float | dict[str, float] | None:
    """Return a share such as 0.2, or a dict from class to share for red=0.7,blue=0.3."""
    if value is None:
        return None
    try:
        parts = [part.rpartition("=") for part in value.split(",")]
        shares = {name.strip(): float(share) for name, _, share in parts}
    except ValueError:
        shares = {}
    total = 1 if set(shares) == {""} else sum(shares.values())
    if not all(0 < share < 1 for share in shares.values()) or abs(total - 1) > 1e-6:
        raise click.BadParameter(
            f"{value!r} is no share between 0 and 1 such as 0.2, nor one share per class that "
            "sum to 1 such as red=0.7,blue=0.3."
        )
    return shares.get("", shares)


target_option = click.option(
    "--target-prior",
    metavar="SHARE",
    callback=_shares,
    help="Share of positives where the classifier is used, or red=0.5,green=0.3,blue=0.2.",
)


@contextmanager
def about_rows(rows: str, frame: pd.DataFrame) -> Iterator[None]:
    """Name the file in errors about its rows, which are counted from 1."""
    from unmix.data.tables import naming

    frame.index += 1
    with naming(rows):
        yield


def target_of(given: float | dict[str, float] | None, classes: Any) -> Any:
    """Return the target prior as a share of the second class, or of each of K in their order."""
    names = [str(name) for name in classes]
    if given is None or (isinstance(given, float) and len(names) == 2):
        return given
    if isinstance(given, float) or set(given) != set(names):
        form = ",".join(f"{name}=..." for name in names)
        raise InputError(f"--target-prior must give a share of each class: write {form}")
    shares = [given[name] for name in names]
    return shares[1] if len(shares) == 2 else shares
