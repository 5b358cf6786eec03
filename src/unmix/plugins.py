"""Python files of the user's own that register methods and datasets: `unmix --load FILE.py`.

A file is run once per process. What it registers is its own business; this module knows no room.
"""

from __future__ import annotations

import hashlib
import os
import sys
import traceback
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

from unmix.errors import InputError

__all__ = ["LOAD_VARIABLE", "files_in_variable", "load_file", "loaded_files"]

LOAD_VARIABLE = "UNMIX_LOAD"

_LOADED: dict[Path, str] = {}


def load_file(path: str | Path) -> None:
    """Run a Python file, as `import` would; a file that was loaded already is left alone.

    Parameters
    ----------
    path : path
        Of a file that ends in .py. What it prints goes to standard error.

    Raises
    ------
    InputError
        If there is no such file, or it raises: one line with the file, the line and the reason.
    """
    file = Path(path).expanduser()
    if file.suffix != ".py":
        raise InputError(f"{path} cannot be loaded: give a Python file, whose name ends in .py")
    try:
        source = file.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} cannot be loaded: there is no such file") from None
    except OSError as error:
        raise InputError(f"{path} cannot be loaded: {error.strerror}") from None
    file = file.resolve()
    digest = hashlib.sha256(source).hexdigest()[:12]
    if _LOADED.get(file) == digest:
        return
    module = ModuleType(f"unmix_loaded_{file.stem}_{hashlib.sha256(bytes(file)).hexdigest()[:8]}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        # The bytes of the digest, and no others.
        with redirect_stdout(sys.stderr):
            exec(compile(source, str(file), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise InputError(f"{path} cannot be loaded: {_reason(error, str(file))}") from error
    _LOADED[file] = digest


def loaded_files() -> tuple[tuple[Path, str], ...]:
    """Return the files that were loaded, in order, each with the digest of its text."""
    return tuple(_LOADED.items())


def files_in_variable() -> list[str]:
    """Return the files that the environment variable UNMIX_LOAD names."""
    return _absolute(filter(None, os.environ.get(LOAD_VARIABLE, "").split(os.pathsep)))


def _absolute(names: Iterable[str]) -> list[str]:
    """Return the names; a relative one would mean another file in every folder."""
    found = list(names)
    for name in found:
        if not os.path.isabs(name):
            raise InputError(f"{LOAD_VARIABLE} names {name}; write its absolute path")
    return found


def _reason(error: BaseException, file: str) -> str:
    """Say what went wrong and in which line of the file."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    where = f"line {lines[-1]}: " if lines else ""
    words = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
    return where + words
