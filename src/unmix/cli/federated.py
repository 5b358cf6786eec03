"""Commands for rows that may not leave their owners: federated serve, join, try."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unmix.cli.federated_options import (
    address_of,
    code_in,
    finite,
    is_loopback,
    with_fit_options,
    with_party_options,
)
from unmix.cli.fitting_together import fitted_into
from unmix.cli.group import PathName, json_option, main, rows_argument, tell
from unmix.cli.shared_options import tell_left_out, tell_understood, with_rates_options
from unmix.errors import InputError

if TYPE_CHECKING:
    from unmix.federated.party import Party

set_column_option = click.option(
    "--sets",
    "set_column",
    help="Column with the set id. Default: all rows of a party are one set, the only one with a "
    "share.",
)
code_option = click.option(
    "--code-file",
    type=PathName(),
    help="File with the code that server and parties agreed on: who does not know it cannot join.",
)
insecure_option = click.option(
    "--insecure", is_flag=True, help="Do not encrypt, though the line leaves this machine."
)
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    callback=finite,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the next message.",
)


@main.group()
def federated() -> None:
    """Fit where rows may not leave their owners: parties tell sums and counts, never rows."""


@federated.command()
@click.option("--parties", type=click.IntRange(1), required=True, help="How many take part.")
@with_fit_options
@click.option(
    "--listen",
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="Where parties reach this server; 0.0.0.0 is every address of this machine.",
)
@click.option("--certificate", type=PathName(), help="Of this server, a PEM file.")
@click.option("--key", type=PathName(), help="Of the certificate, a PEM file.")
@insecure_option
@code_option
@click.option(
    "--wait",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    callback=finite,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the parties to join.",
)
@timeout_option
@click.option(
    "--least-rows",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Rows that every set of every party must have.",
)
@click.option("--give-model", is_flag=True, help="Give every party a copy of the model.")
@json_option
def serve(
    parties: int,
    listen: str,
    certificate: str | None,
    key: str | None,
    insecure: bool,
    code_file: str | None,
    wait: float,
    timeout: float,
    least_rows: int,
    give_model: bool,
    as_json: bool,
    fitting: dict[str, Any],
) -> None:
    """Fit a model together with parties that join, and report how good it is.

    Needs Flower (pip install 'unmix[federated]'). Parties join by `unmix federated join`.
    """
    from unmix.federated.flower_server import FlowerParties
    from unmix.federated.model_copies import give_model as give

    host, port = address_of(listen)
    certificates = _certificates(host, certificate, key, insecure)
    code = code_in(code_file)
    if not code and not is_loopback(host):
        raise InputError(
            f"whoever reaches {listen} could join; agree on a code with the parties and give its "
            "file (--code-file)"
        )
    with (
        fitted_into(fitting, as_json) as fit_to,
        FlowerParties(host, port, certificates, code) as link,
    ):
        lock = "unencrypted, on this machine" if is_loopback(host) else "unencrypted"
        lock = lock if certificates is None else "encrypted"
        tell(f"listening on {host}:{port} ({lock}) for {parties} parties", err=True)
        link.wait_for(parties, wait, lambda name: tell(f"party {name!r} joined", err=True))
        conversation, fit = fit_to(link, timeout, least_rows)
        if give_model:
            give(conversation, fit)


@federated.command()
@rows_argument
@set_column_option
@click.option("--priors", required=True, type=PathName(), help="Table with the share of each set.")
@with_rates_options
@click.option("--name", help="Of this party. Default: the name of its first file.")
@click.option("--server", default="127.0.0.1:9092", show_default=True, metavar="HOST:PORT")
@click.option(
    "--authority",
    type=PathName(),
    help="PEM file of the authority that signed the server's certificate. Default: those that this "
    "system trusts.",
)
@insecure_option
@code_option
@timeout_option
@with_party_options
@click.option("-o", "--output", type=PathName(), help="Folder for a copy of the model.")
@click.option("--overwrite", is_flag=True, help="Replace an existing model.")
@click.option("--dry-run", is_flag=True, help="Show what would leave this party; ask nobody.")
@json_option
def join(
    rows: tuple[str, ...],
    set_column: str | None,
    priors: str,
    name: str | None,
    server: str,
    authority: str | None,
    insecure: bool,
    code_file: str | None,
    timeout: float,
    output: str | None,
    overwrite: bool,
    dry_run: bool,
    as_json: bool,
    reading: dict[str, Any],
    guards: dict[str, Any],
) -> None:
    """Take part in a fit with rows that stay here: the server is told sums and counts.

    Every set needs a share; one set is enough. --dry-run shows all that would be told.
    """
    from contextlib import nullcontext

    from unmix.federated.ledger import Ledger
    from unmix.federated.model_copies import write_given
    from unmix.federated.party_table import name_of_rows
    from unmix.files import atomic_folder
    from unmix.learn.saved import refuse_other_folder

    party = _party(name or name_of_rows(rows), rows, set_column, priors, reading, guards, as_json)
    if dry_run:
        from unmix.federated.what_leaves import what_leaves

        shown = what_leaves(party)
        for line in [json.dumps(shown.to_json())] if as_json else shown.lines():
            tell(line)
        return
    from unmix.data.addresses import refuse_pipe
    from unmix.federated.flower_party import join as join_server

    host, _ = address_of(server)
    if authority is not None:
        refuse_pipe(authority)
    code, told = code_in(code_file), Ledger()
    place: Any = nullcontext()
    if output is not None:
        place = atomic_folder(output, overwrite=overwrite, refuse=refuse_other_folder)
    with place as folder:
        tell(f"party {party.name!r} joins {server}", err=True)
        join_server(
            party,
            "{}:{}".format(*address_of(server)),
            root_certificate=authority,
            insecure=insecure or (authority is None and is_loopback(host)),
            code=code,
            patience=timeout,
            told=lambda asked, length: told.add(asked.kind, length),
        )
        if folder is not None:
            write_given(party.model, folder)
    if as_json:
        click.echo(json.dumps({"party": party.name, "told": told.to_json(), "output": output}))
        return
    tell(f"Party {party.name!r} told the server: {told}.")
    if output is not None:
        tell(f"Model: {output}")


@federated.command("try")
@click.argument("folders", type=PathName(), nargs=-1, required=True, metavar="FOLDER...")
@click.option("--rows", required=True, help="Name of the table in each folder.")
@set_column_option
@click.option("--priors", required=True, help="Name of the table of shares in each folder.")
@with_rates_options
@with_fit_options
@with_party_options
@json_option
def try_here(
    folders: tuple[str, ...],
    rows: str,
    set_column: str | None,
    priors: str,
    as_json: bool,
    reading: dict[str, Any],
    fitting: dict[str, Any],
    guards: dict[str, Any],
) -> None:
    """Try a federated fit in one process: every FOLDER is a party, of that name.

    The parties are told apart as over a line: what each tells is the same, byte by byte.
    """
    from unmix.federated.parties_here import PartiesHere

    with fitted_into(fitting, as_json) as fit_to:
        parties = [
            _party(
                Path(folder).resolve().name,
                (str(Path(folder) / rows),),
                set_column,
                str(Path(folder) / priors),
                reading,
                guards,
                as_json,
            )
            for folder in folders
        ]
        fit_to(PartiesHere(parties), 600.0, guards["least_rows"])


def _party(
    name: str,
    rows: tuple[str, ...],
    set_column: str | None,
    priors: str,
    reading: dict[str, Any],
    guards: dict[str, Any],
    as_json: bool,
) -> Party:
    """Read the table of a party, and say how its shares were understood."""
    from unmix.federated.messages import check_party_name
    from unmix.federated.party_table import party_of_table
    from unmix.federated.sum_noise import SumNoise

    check_party_name(name)
    own = dict(guards)
    epsilon, length, answers = (own.pop(key) for key in ("epsilon", "row_length", "answers"))
    if epsilon is not None:
        own["noise"] = SumNoise(epsilon, norm=length, answers=answers)
    party, read, left_out = party_of_table(name, rows, set_column, priors, reading=reading, **own)
    if not as_json:
        tell_understood(read)
    tell_left_out(left_out)
    return party


def _certificates(
    host: str, certificate: str | None, key: str | None, insecure: bool
) -> tuple[str, str] | None:
    """Return the files to encrypt with; None on this machine, or where it is asked for."""
    if (certificate is None) != (key is None):
        raise InputError("--certificate and --key go together; give both")
    if certificate is not None and key is not None:
        from unmix.data.addresses import refuse_pipe

        refuse_pipe(certificate)
        refuse_pipe(key)
        return certificate, key
    if not (insecure or is_loopback(host)):
        raise InputError(
            f"what parties send to {host} must be encrypted: give --certificate and --key (the "
            "documentation has the two commands that make them), or --insecure"
        )
    return None
