"""Temporary names that say whose they are, and the end of those whose process is dead.

A process that is killed cannot clean up. So the name of a temporary file or folder holds the
machine, the process number and the moment the process started, and the next process that writes
beside it removes it if that process is gone. Names of other machines and of other containers are
left alone, since nobody here can tell whether their processes live; so is every other name.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import secrets
import shutil
import socket
import tempfile
from pathlib import Path

__all__ = ["TemporaryFolder", "remove_leftovers", "short_folder", "temporary_path"]

_NAME = re.compile(r"\..*\.unmix-([0-9a-f]{8})-([0-9]+)-([0-9a-f]{12})-[0-9a-f]{8}\.tmp(\.[^.]+)?")
UNKNOWN = "0" * 12
_SHORT = 12  # bytes of the path of a folder with sockets, of which 107 are allowed
_STEM_BYTES = 100  # of a name; file systems allow 255 in all


def temporary_path(target: Path) -> Path:
    """Return an unused hidden name in the folder of ``target``, with the same suffix."""
    stem = target.stem.encode("utf-8", "surrogateescape")[:_STEM_BYTES].decode("utf-8", "ignore")
    owner = f"{_machine()}-{os.getpid()}-{_started(os.getpid())}"
    return target.with_name(f".{stem}.unmix-{owner}-{secrets.token_hex(4)}.tmp{target.suffix}")


class TemporaryFolder:
    """A folder for as long as somebody wants it. Made by `short_folder`."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)

    def cleanup(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.name, ignore_errors=True)


def short_folder(name: str) -> TemporaryFolder:
    """Make a folder for temporary files with so short a path that sockets can lie in it.

    Those that dead processes left under the same name are removed.
    """
    place = Path(tempfile.gettempdir())
    if len(str(place)) > _SHORT and os.path.isdir("/tmp"):
        place = Path("/tmp")
    start = f"{name}-{_machine()}-"
    with contextlib.suppress(OSError):
        for entry in os.scandir(place):
            owner = entry.name.removeprefix(start).partition("-")[0]
            if entry.name.startswith(start) and owner.isdigit() and _is_dead(int(owner)):
                shutil.rmtree(entry.path, ignore_errors=True)
    path = place / f"{start}{os.getpid()}-{secrets.token_hex(2)}"
    path.mkdir(mode=0o700)
    return TemporaryFolder(path)


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that are dead left in a folder under a temporary name of ours."""
    with contextlib.suppress(OSError):  # whatever cannot be removed is in nobody's way
        for entry in os.scandir(folder):
            if not _is_left(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def _is_left(name: str) -> bool:
    """Say whether a name is a temporary one of a process of this machine that is dead."""
    found = _NAME.fullmatch(name)
    if found is None or found[1] != _machine():
        return False
    if _is_dead(int(found[2])):
        return True
    if os.name != "posix":
        return False
    # A later process may have the number of a dead one.
    started = _started(int(found[2]))
    return started not in (found[3], UNKNOWN)


def _is_dead(process: int) -> bool:
    """Say whether there is no process of this number; elsewhere than on POSIX nobody knows."""
    if os.name != "posix":  # there the signal 0 interrupts a process
        return False
    try:
        os.kill(process, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # another user's
        pass
    return False


@functools.lru_cache(1)
def _machine() -> str:
    """Return what tells this machine, and the container on it, from others."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/etc/machine-id").read_text())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _started(process: int) -> str:
    """Return when a process started, as 12 digits that no later process of that number has."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:  # not on Linux, or hidden from this user
        return UNKNOWN
    ticks = status.rpartition(")")[2].split()[19]
    return hashlib.sha256(f"{boot} {ticks}".encode()).hexdigest()[:12]
