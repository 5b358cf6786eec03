"""What the commands about tables have in common: options, and how their rows are spoken of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from unmix.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["about_rows", "priors_option", "set_option", "target_of", "target_option"]

set_option = click.option("--sets", "set_column", required=True, help="Column with the set id.")
priors_option = click.option(
    "--priors",
    "priors_file",
    required=True,
    type=click.Path(),
    help="Table with each set's share: CSV or Parquet.",
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
