"""Which engine a user means by a word: the table of engines, each with how it is made."""

from __future__ import annotations

import re
from typing import Any

from unmix.data.wording import quoted
from unmix.engines.local_engine import LocalEngine
from unmix.errors import InputError

__all__ = ["engine_named"]


def engine_named(name: str, *, workers: int | None = None, timeout: float | None = None) -> Any:
    """Return the engine of a name, not yet started: use it as a context.

    Parameters
    ----------
    name : str
        'local', 'ray', or 'ray://HOST:PORT'.
    workers : int, optional
        Of engines that have several.
    timeout : float, optional
        Seconds to wait for the next answer of a worker.
    """
    if name == LocalEngine.name:
        return LocalEngine()
    found = re.fullmatch(r"ray(?:://(auto|[^/\s]+:[0-9]+))?/?", name)
    if found is None:
        raise InputError(f"there is no engine {quoted(name)}; use local, ray, or ray://HOST:PORT")
    from unmix.engines.ray_engine import TIMEOUT, RayEngine

    return RayEngine(found[1], workers=workers, timeout=TIMEOUT if timeout is None else timeout)
