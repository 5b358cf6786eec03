"""The `unmix` command itself: how errors are told, and what every command shares."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import click

from unmix.errors import DivergenceError, InputError

__all__ = ["fail", "json_option", "main"]

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
def main(debug: bool) -> None:
    """Train a classifier from sets whose class shares are known, and judge it without labels."""
