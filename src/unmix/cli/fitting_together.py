"""What commands about federated fits share: fitting by a transport, and telling the result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from unmix.cli.fit_results import brief_judgement, tell_fit, write_fit
from unmix.cli.group import check_figures, target_of, tell

if TYPE_CHECKING:
    from unmix.federated.ledger import Ledger
    from unmix.federated.replies import Conversation, Transport
    from unmix.federated.together import FederatedFit

__all__ = ["fitted_into"]

FitTo = Callable[["Transport", float, int], "tuple[Conversation, FederatedFit]"]


@contextmanager
def fitted_into(fitting: dict[str, Any], as_json: bool) -> Iterator[FitTo]:
    """Yield a function that fits by a transport and writes the model; then say what was found."""
    from unmix.federated.ledger import Ledger
    from unmix.federated.replies import Conversation
    from unmix.federated.together import fit_together
    from unmix.files import atomic_folder
    from unmix.learn.choose import check_choice
    from unmix.learn.saved import refuse_other_folder
    from unmix.progress import progress_bar
    from unmix.report.figure_files import write_figures

    check_figures(fitting["figures"], fitting["output"])
    check_choice(fitting["model"], fitting["method"])
    output, told = fitting["output"], Ledger()
    names = ("model", "method", "l2", "held_out", "resamples", "seed")
    options = {name: fitting[name] for name in names}
    found: list[FederatedFit] = []
    refuse = refuse_other_folder
    with atomic_folder(output, overwrite=fitting["overwrite"], refuse=refuse) as folder:

        def fit_to(
            transport: Transport, timeout: float, least: int
        ) -> tuple[Conversation, FederatedFit]:
            with progress_bar("fitting together", enabled=not as_json) as progress:
                phase = ""

                def now(line: str) -> None:
                    nonlocal phase
                    phase = line

                def answered(kind: str, number: int, _: int, received: int) -> None:
                    parties = len(transport.parties)
                    told.add(kind, received, parties)
                    progress(number, None, f"{phase}, round {number + 1}")

                conversation = Conversation(transport, timeout=timeout, told=answered)
                fit = fit_together(
                    conversation,
                    target_prior=lambda classes: target_of(fitting["target_prior"], classes),
                    least_rows=least,
                    told=now,
                    **options,
                )
            write_fit(folder, fit.classifier, fit.judgement)
            if fitting["figures"] is not None:
                write_figures(fit.judgement, fitting["figures"], fitting["figure_format"])
            found.append(fit)
            return conversation, fit

        yield fit_to
    _tell_fit(found[0], told, output, as_json)


def _tell_fit(fit: FederatedFit, told: Ledger, output: str, as_json: bool) -> None:
    """Say what came of a fit."""
    from unmix.assess.estimates import plain

    agreement, judgement = fit.agreement, fit.judgement
    if as_json:
        record = brief_judgement(judgement) | {
            "parties": list(agreement.parties),
            "rounds": fit.rounds,
            "told": told.to_json(),
            "left_out": agreement.left_out,
            "output": output,
        }
        click.echo(json.dumps(plain(record)))
        return
    rows, sets = agreement.sizes["rows"].sum(), len(agreement.set_ids)
    tell(
        f"{len(agreement.parties)} parties with {rows:,} rows in {sets} sets; {fit.rounds} rounds."
    )
    tell(f"They told: {told}.")
    for name in agreement.left_out:
        tell(f"Column {name!r} is left out: not every party has it.")
    for name, reason in fit.classifier.encoder_.left_out.items():
        tell(f"Column {name!r} is left out: {reason}.")
    tell_fit(judgement, output)
