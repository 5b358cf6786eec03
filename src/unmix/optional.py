"""Libraries that only some uses need: imported when asked for, by the name of their extra."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from unmix.errors import InputError

__all__ = ["optional_module"]


def optional_module(name: str, extra: str) -> ModuleType:
    """Import a library that is not installed with unmix, or say how to install it.

    Parameters
    ----------
    name : str
        Of the module.
    extra : str
        Of the group in pyproject.toml that installs it.
    """
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise InputError(
            f"this needs {package}, which is not installed: pip install 'unmix[{extra}]'"
        ) from None
