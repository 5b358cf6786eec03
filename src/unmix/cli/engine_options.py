"""Options about engines, the same for every command that can spread its work."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click

from unmix.errors import InputError

__all__ = ["engine_of", "engine_option", "timeout_option", "workers_option"]

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
