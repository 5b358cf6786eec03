"""The `unmix` command itself: how errors are told, and what every command shares."""

from __future__ import annotations

import errno
import math
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from unmix.data.wording import printable, quoted
from unmix.errors import DivergenceError, InputError
from unmix.files import refuse_same_file
from unmix.plugins import files_in_variable, load_file

if TYPE_CHECKING:
    import pandas as pd

    from unmix.data.priors import Priors
    from unmix.data.tables import Rows

__all__ = [
    "PathName",
    "Stopped",
    "about_rows",
    "check_figures",
    "check_output",
    "check_report",
    "exit_code_of",
    "fail",
    "figure_format_option",
    "figures_option",
    "formulas_option",
    "json_option",
    "main",
    "overwrite_option",
    "priors_option",
    "rates_of",
    "rows_argument",
    "set_option",
    "target_of",
    "target_option",
    "tell",
]

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


LONGEST = 2_000  # characters of a message
# The loader of shared libraries, torch, LightGBM, and a thread that gets no stack.
NO_MEMORY = ("failed to map segment", "allocate memory", "bad_alloc", "can't start new thread")
SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Stopped(KeyboardInterrupt):
    """Somebody ended the process by a signal: it cleans up, as it does after Ctrl-C."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.exit_code = 128 + number


class PathName(click.Path):
    """The name of a file or a folder: an empty one, of a variable that nobody set, is refused."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the name as it was given."""
        if not os.fspath(value).strip():
            self.fail("the name of a file or a folder is empty.", param, ctx)
        return super().convert(value, param, ctx)


class OneLineErrors(click.Group):
    """Turns the user's mistakes into one line and exit code 2, ours into exit code 1."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command, with whatever streams there are."""
        _open_closed_streams()
        os.environ["MPLBACKEND"] = "agg"  # files are all that is drawn here, whatever was set
        with _stopped_by_signals():
            return super().main(*args, **kwargs)

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
        except KeyboardInterrupt as stop:
            fail("stopped", exit_code_of(stop))
        except BrokenPipeError:
            raise  # `unmix ... | head`: click ends in silence
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            if isinstance(error, InputError | DivergenceError):
                fail(str(error), 2)
            if _lacks_memory(error):
                fail("memory is short; free some, or take a machine that has more", 2)
            if isinstance(error, OSError):
                fail(_os_words(error), 2)
            fail(f"{type(error).__name__}: {error} (unmix --debug ... shows where)", 1)


def _lacks_memory(error: Exception) -> bool:
    """Say whether an error is that there is no memory, which libraries tell in many ways."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    return any(words in str(error).lower() for words in NO_MEMORY)


def _os_words(error: OSError) -> str:
    """Return what the system refused, and the cure where it does not lie in the file it names."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "too many files are open; allow more (ulimit -n)"
    if error.errno == errno.ENOENT and not _has_working_folder():
        return "the working folder does not exist any more; change to another one"
    if error.filename:
        return f"{error.filename}: {error.strerror or error}"
    return f"what the command prints, or a file it writes: {error.strerror or error}"


def _has_working_folder() -> bool:
    """Say whether the folder in which the process works is still there."""
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def fail(message: str, code: int) -> NoReturn:
    """Print one line on standard error and stop."""
    # An address of an object store may hold a key and its secret.
    line = re.sub(r"://[^/@\s]+@", "://", re.sub(r"\s*\n\s*", " ", message.strip()))
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 4 :]}"
    tell(f"unmix: {line}", err=True)
    sys.exit(code)


def tell(line: str, *, err: bool = False) -> None:
    """Print one line of which a terminal obeys nothing, wherever its names come from."""
    click.echo(printable(line), err=err)


def exit_code_of(stop: KeyboardInterrupt) -> int:
    """Return the exit code of a process that was interrupted."""
    return getattr(stop, "exit_code", 128 + signal.SIGINT)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """End by SIGTERM and SIGHUP as by Ctrl-C, so that nothing half-written stays."""

    def stop(number: int, _: Any) -> None:
        for other in SIGNALS:  # the second must not disturb the end that the first began
            signal.signal(other, signal.SIG_IGN)
        raise Stopped(number)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        # Whoever ignores them on purpose, as nohup does, keeps it so.
        before = {number: signal.getsignal(number) for number in SIGNALS}
        before = {number: how for number, how in before.items() if how is signal.SIG_DFL}
        for number in before:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, how in before.items():
            signal.signal(number, how)


def _open_closed_streams() -> None:
    """Put nothing in the place of a standard stream that is closed (`2>&-`).

    Otherwise the next file that is opened would get its number, and what a library prints.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        with suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
        setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


@click.group("unmix", cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="unmix")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "--load",
    "files",
    multiple=True,
    type=PathName(),
    metavar="FILE.py",
    help="Run a Python file first, which registers methods or datasets of your own. May be given "
    "more than once. UNMIX_LOAD names files for every command.",
)
def main(debug: bool, files: tuple[str, ...]) -> None:
    """Train a classifier from sets whose class shares are known, and judge it without labels."""
    for file in (*files_in_variable(), *files):
        load_file(file)


rows_argument = click.argument("rows", type=PathName(), nargs=-1, required=True, metavar="ROWS...")
figures_option = click.option(
    "--figures",
    type=PathName(file_okay=False),
    metavar="DIR",
    help="Also write the pictures of the report to this folder.",
)
figure_format_option = click.option(
    "--figure-format",
    type=click.Choice(["svg", "png", "pdf"]),
    default="svg",
    show_default=True,
    help="Format of the files in --figures.",
)
set_option = click.option(
    "--sets",
    "set_columns",
    required=True,
    multiple=True,
    help="Column with the set id; repeat the option for several groupings of the same rows.",
)
priors_option = click.option(
    "--priors",
    "priors_files",
    required=True,
    multiple=True,
    type=PathName(),
    help="Table with each set's share: CSV, Parquet or Excel; one for each --sets, in their order.",
)


def rates_of(
    set_columns: Sequence[str], priors_files: Sequence[str], reading: dict[str, Any]
) -> Priors:
    """Read the shares of the sets, of one grouping or several, as the options about rates say."""
    from unmix.data.grouped_priors import grouped_priors
    from unmix.data.rates_file import read_rates

    if len(set_columns) != len(priors_files):
        raise InputError(
            f"there are {len(set_columns)} --sets and {len(priors_files)} --priors; give one table "
            "of shares for each column of sets, in the same order"
        )
    if len(set(set_columns)) < len(set_columns):
        raise InputError(f"--sets names column {set_columns[0]!r} more than once")
    if len(set_columns) == 1:
        read: Priors = read_rates(priors_files[0], set_columns[0], **reading)
        return read
    pairs = zip(set_columns, priors_files, strict=True)
    return grouped_priors(
        {name: read_rates(file, name, **reading) for name, file in pairs}, set_columns
    )


def _shares(ctx: Any, param: Any, value: str | None) -> float | dict[str, float] | None:
    """Return a share such as 0.2, or a dict from class to share for red=0.7,blue=0.3."""
    if value is None:
        return None
    shares = _share_list(value)
    total = 1 if set(shares) == {""} else sum(shares.values())
    if not all(0 < share < 1 for share in shares.values()) or not abs(total - 1) <= 1e-6:
        raise click.BadParameter(
            f"{quoted(value)} is no share between 0 and 1 such as 0.2, nor one share per class "
            "that sum to 1 such as red=0.7,blue=0.3."
        )
    return shares.get("", shares)


def _share_list(value: str) -> dict[str, float]:
    """Return class -> share, '' for one share without a class; a NaN if it is no such list."""
    shares: dict[str, float] = {}
    parts = value.split(",")
    for part in parts:
        name, equals, share = (word.strip() for word in part.rpartition("="))
        # A name goes with a number, and a number without one stands alone.
        if bool(name) != bool(equals) or (not name and len(parts) > 1):
            return {"": math.nan}
        if name in shares:
            raise click.BadParameter(f"{quoted(value)} names class {quoted(name)} more than once.")
        try:
            shares[name] = float(share)
        except ValueError:
            return {"": math.nan}
    return shares


overwrite_option = click.option("--overwrite", is_flag=True, help="Replace an existing file.")
formulas_option = click.option(
    "--quote-formulas",
    is_flag=True,
    help="Put ' before text cells of a CSV output that a spreadsheet would take for a formula.",
)


def check_output(output: str | None, overwrite: bool, *inputs: str | None) -> None:
    """Refuse an output that is one of the inputs, or that is there and may not be replaced."""
    if output is None:
        return
    refuse_same_file(output, *inputs)
    if os.path.isfile(output) and not overwrite:
        raise InputError(
            f"cannot write {output}: it exists; choose another name or allow overwriting "
            "(--overwrite)"
        )


def check_report(report: str | None, *inputs: str | None) -> None:
    """Refuse a report in the place of an input, or of a file that is no report.

    An older report is replaced.
    """
    if report is None:
        return
    refuse_same_file(report, *inputs)
    if os.path.isfile(report) and not report.lower().endswith((".html", ".htm")):
        raise InputError(
            f"cannot write {report}: it exists and does not end in .html; choose another name"
        )


def check_figures(figures: str | None, output: str | None = None) -> None:
    """Refuse a folder of pictures that is a file, or that lies where the model will be."""
    if figures is None:
        return
    if os.path.lexists(figures) and not os.path.isdir(figures):
        raise InputError(
            f"cannot write figures to {figures}: a file has that name; choose another."
        )
    if output is not None:
        own, model = (Path(os.path.realpath(path)) for path in (figures, output))
        if own.is_relative_to(model):
            raise InputError(
                f"--figures {figures} lies in the folder of the model, {output}; give another "
                "folder"
            )


target_option = click.option(
    "--target-prior",
    metavar="SHARE",
    callback=_shares,
    help="Share of positives where the classifier is used, or red=0.5,green=0.3,blue=0.2.",
)


@contextmanager
def about_rows(rows: Rows, frame: pd.DataFrame, *others: str | None) -> Iterator[None]:
    """Name the file in errors about its rows, which are counted from 1.

    An error that names another file, one of the priors, is not about the rows.
    """
    from unmix.data.tables import naming

    frame.index += 1
    try:
        with naming(rows):
            yield
    except InputError as error:
        cause = error.__cause__
        if any(other is not None and str(cause).startswith(other) for other in others):
            raise type(error)(str(cause)) from cause
        raise


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
