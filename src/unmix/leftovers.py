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
from pathlib import Path

__all__ = ["remove_leftovers", "temporary_path"]

_NAME = re.compile(r"\..*\.unmix-([0-9a-f]{8})-([0-9]+)-([0-9a-f]{12})-[0-9a-f]{8}\.tmp(\.[^.]+)?")
UNKNOWN = "0" * 12
_STEM_BYTES = 100  # of a name; file systems allow 255 in all


def temporary_path(target: Path) -> Path:
    """Return an unused hidden name in the folder of ``target``, with the same suffix."""
    stem = target.stem.encode("utf-8", "surrogateescape")[:_STEM_BYTES].decode("utf-8", "ignore")
    owner = f"{_machine()}-{os.getpid()}-{_started(os.getpid())}"
    return target.with_name(f".{stem}.unmix-{owner}-{secrets.token_hex(4)}.tmp{target.suffix}")


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
    if os.name != "posix":  # elsewhere the signal 0 interrupts a process
        return False
    try:
        os.kill(int(found[2]), 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # another user's
        pass
    # A later process may have the number of a dead one.
    started = _started(int(found[2]))
    return started not in (found[3], UNKNOWN)


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
