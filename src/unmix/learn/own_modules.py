"""Torch modules of the user's own in saved models: the name of a class, its arguments, its state.

A folder only names a class. The class itself comes from whoever loads the model, passed or
registered; nothing that a folder names is ever imported.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from torch import nn

from unmix.data.wording import listed
from unmix.errors import InputError

__all__ = ["MODULES", "ModuleMaker", "build_module", "describe_module", "register_module"]

ModuleMaker = Callable[..., nn.Module]

MODULES: dict[str, ModuleMaker] = {}
"""Name of a class -> the class, as registered in this process."""


def register_module(module: type[nn.Module]) -> type[nn.Module]:
    """Let saved models name a torch module of your own: a decorator of its class.

    Parameters
    ----------
    module : class
        A subclass of `torch.nn.Module`. The arguments that built an instance are stored with the
        model if the instance has them as a dict `module_args`; without it the class is called
        without arguments.

    Returns
    -------
    class
        The class as it is. A later class of the same name takes its place.

    Examples
    --------
    >>> from torch import nn
    >>> from unmix import register_module
    >>> @register_module
    ... class Wide(nn.Sequential):
    ...     def __init__(self, columns, units=64):
    ...         super().__init__(nn.Linear(columns, units), nn.ReLU(), nn.Linear(units, 1))
    ...         self.module_args = {"columns": columns, "units": units}
    """
    if not (isinstance(module, type) and issubclass(module, nn.Module)):
        raise InputError(f"register_module takes a class of torch modules; got {module!r}")
    MODULES[module.__name__] = module
    return module


def describe_module(module: nn.Module) -> dict[str, Any]:
    """Return what a saved model says of a module: its class and the arguments that built it."""
    kind, arguments = type(module), getattr(module, "module_args", {})
    try:
        if not isinstance(arguments, dict) or not all(isinstance(key, str) for key in arguments):
            raise TypeError("no mapping of names")
        arguments = json.loads(json.dumps(arguments, allow_nan=False))
    except (TypeError, ValueError):
        raise InputError(
            f"module_args of {kind.__name__} must be a dict of the arguments that built it, with "
            f"text, numbers and lists only, so that it can be saved; got {arguments!r}"
        ) from None
    return {"class": kind.__name__, "source": kind.__module__, "arguments": arguments}


def build_module(described: dict[str, Any], given: Any = None) -> nn.Module:
    """Return a module as a saved model describes it, by a class that the caller vouches for.

    Parameters
    ----------
    described : dict
        What `describe_module` returned.
    given : class or nn.Module, optional
        The class, or an instance of it, which is copied; a registered class if left out.
    """
    name, source = str(described["class"]), str(described["source"])
    if isinstance(given, nn.Module):
        _check_name(type(given).__name__, name)
        return copy.deepcopy(given)
    if given is None and name not in MODULES:
        known = f"; registered are {listed(sorted(MODULES))}" if MODULES else ""
        raise InputError(
            f"the model is a torch module {name} of your own (from {source}), which a folder only "
            f"names: pass the class, UnmixClassifier.load(folder, module={name}), or register it "
            f"(@register_module; on the command line --load FILE.py){known}"
        )
    maker = MODULES[name] if given is None else given
    if not (isinstance(maker, type) and issubclass(maker, nn.Module)):
        raise InputError(f"module must be a class of torch modules or one of them; got {maker!r}")
    _check_name(maker.__name__, name)
    arguments = dict(described["arguments"])
    try:
        return maker(**arguments)
    except TypeError as error:
        raise InputError(
            f"{name} cannot be built with the saved arguments {arguments} ({error}); keep the "
            "arguments of the constructor in its attribute module_args, or pass an instance as "
            "module"
        ) from None


def _check_name(found: str, wanted: str) -> None:
    """Refuse another class than the one that was saved."""
    if found != wanted:
        raise InputError(f"the model was saved with the module {wanted}; got {found}")
