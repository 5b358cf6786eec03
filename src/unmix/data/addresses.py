"""Where tables lie: files, folders, globs, partitioned folders, and addresses such as s3://...

Finds the files behind what the user wrote and opens them, wherever they are and however they are
compressed. Knows no table.
"""

from __future__ import annotations

import fnmatch
import glob
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.files import explained_os_errors

__all__ = [
    "FoundFile",
    "file_identity",
    "find_files",
    "is_csv",
    "is_remote",
    "opened_binary",
    "opened_for_parquet",
    "opened_text",
    "refuse_pipe",
    "shown",
    "suffixes",
]

PARQUET = (".parquet", ".pq")
CSV = (".csv", ".tsv", ".txt")
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
_SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]+://")
# What Hive writes where the value of a partition is missing.
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class FoundFile:
    """A file with rows, and what the names of its folders say of them."""

    path: str
    partition: tuple[tuple[str, str | None], ...] = ()
    """Name and value of each folder such as ``month=2024-01``."""


def is_remote(path: str) -> bool:
    """Say whether a path is the address of another place than this file system."""
    return bool(_SCHEME.match(path))


def suffixes(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the suffix that says what a file holds and that of its compression, in lower case."""
    name = PurePosixPath(_without_query(os.fspath(path)).replace(os.sep, "/")).name.lower()
    stem, packed = os.path.splitext(name)
    if packed in COMPRESSED:
        return os.path.splitext(stem)[1], packed
    return packed, ""


def find_files(given: Sequence[str | os.PathLike[str]]) -> list[FoundFile]:
    """
    Return the files that the user named, in the order of their names for folders and globs.

    Parameters
    ----------
    given
        Files, folders, globs or addresses.

    Raises
    ------
    InputError
        A folder has no tables, a glob fits nothing, or an address cannot be read.
    """
    found: list[FoundFile] = []
    for entry in given:
        path = os.fspath(entry)
        if is_remote(path):
            found += _remote_files(path)
        elif os.path.isdir(path):
            if os.path.dirname(os.path.realpath(path)) == os.path.realpath(path):
                raise InputError(f"{path} is a whole disk; name the folder with the tables.")
            found += _in_folder(path, _walk(path))
        elif any(sign in path for sign in "*?[") and not os.path.exists(path):
            hits = sorted(hit for hit in glob.glob(path, recursive=True) if not os.path.isdir(hit))
            if not hits:
                raise InputError(f"no file fits {path}; correct the path.")
            found += [FoundFile(hit) for hit in hits]
        else:
            found.append(FoundFile(path))
    if len(found) > 1 and not any(file.partition for file in found):
        found = _partitioned_alike(found)
    twice = sorted({f.path for f in found if sum(f.path == other.path for other in found) > 1})
    if len(found) <= 1000 and twice:
        raise InputError(f"{listed(twice)} is given more than once; name each file once.")
    return found


@contextmanager
def opened_binary(path: str, *, packed: bool = True) -> Iterator[Any]:
    """Open a file for reading bytes from its start; compressed ones are unpacked."""
    compression = COMPRESSED.get(suffixes(path)[1]) if packed else None
    with explained_os_errors(path, "read"), _opened_raw(path) as raw:
        if compression is None:
            yield raw
            return
        try:
            with pa.CompressedInputStream(raw, compression) as stream:
                yield stream
        except OSError as error:
            if error.errno is not None:
                raise
            raise InputError(
                f"{path} is no whole {compression} file ({str(error).splitlines()[0]}); write or "
                "copy it again."
            ) from None


@contextmanager
def opened_text(path: str, encoding: str = "utf-8-sig") -> Iterator[io.TextIOWrapper]:
    """Open a file for reading its text, UTF-8 with or without a byte order mark."""
    with opened_binary(path) as stream:
        text = io.TextIOWrapper(io.BufferedReader(_Readable(stream)), encoding, newline="")
        try:
            yield text
        finally:
            text.detach()


@contextmanager
def opened_for_parquet(path: str) -> Iterator[Any]:
    """Open what pyarrow reads a Parquet file from: a path, or a file of another system."""
    if not is_remote(path):
        refuse_pipe(path)
        yield path
        return
    with _opened_raw(path, seekable=True) as file:
        yield file


def refuse_pipe(path: str) -> None:
    """Raise InputError for a pipe or a device: one would wait for ever for what nobody writes."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise InputError(f"cannot read {path}: it is a pipe or a device; give an ordinary file.")


def file_identity(path: str) -> list[Any]:
    """Return what tells a file from another one, or from itself after a change."""
    if is_remote(path):
        system, inner = _system_of(path)
        info = system.get_file_info(inner)
        return [path, info.size, info.mtime_ns]
    status = os.stat(path)
    return [os.path.realpath(path), status.st_size, status.st_mtime_ns]


class _Readable(io.RawIOBase):
    """An Arrow stream as Python reads files."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer."""
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def _opened_raw(path: str, *, seekable: bool = False) -> Iterator[Any]:
    """Open the bytes of a file as they lie."""
    if not is_remote(path):
        refuse_pipe(path)
        with open(path, "rb") as file:
            yield file
        return
    system, inner = _system_of(path)
    try:
        # Unpacking is done above, the same way for all places.
        opened = (
            system.open_input_file(inner)
            if seekable
            else system.open_input_stream(inner, compression=None)
        )
        with opened as stream:
            yield stream
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, pa.ArrowInvalid):
            raise
        raise _unreadable(path, error) from error


def _system_of(path: str) -> tuple[Any, str]:
    """Return the file system of an address and the path inside it."""
    from pyarrow import fs

    if path.lower().startswith(("http://", "https://", "ftp://", "ftps://")):
        raise InputError(f"cannot read {shown(path)}: download the file and name the copy.")
    try:
        system, inner = fs.FileSystem.from_uri(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return system, inner


def _unreadable(path: str, error: Exception) -> InputError:
    """Say why an address cannot be read."""
    reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else "no reason given"
    return InputError(f"cannot read {shown(path)}: {reason.rstrip('.')}.")


def shown(path: str) -> str:
    """Return an address as messages name it, without a key and secret that it may hold."""
    return re.sub(r"^([a-zA-Z0-9+.-]+://)[^/@]*@", r"\1", _without_query(path))


def _without_query(path: str) -> str:
    """Return an address without what follows a question mark."""
    return path.partition("?")[0] if is_remote(path) else path


def _walk(folder: str) -> list[str]:
    """Return the files below a folder, as paths from there."""
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        inside = os.path.relpath(root, folder)
        found += [os.path.normpath(os.path.join(inside, name)) for name in names]
    return found


def _in_folder(folder: str, inner: Sequence[str], ending: str = "") -> list[FoundFile]:
    """Return the tables among the files of a folder, which are given as paths from there."""
    tables = sorted(path for path in inner if _is_table(path))
    if not tables:
        raise InputError(f"{shown(folder)} has no .parquet or .csv file; name another folder.")
    join = "/" if is_remote(folder) else os.sep
    base = _without_query(folder).rstrip("/" + os.sep) or join
    return [FoundFile(f"{base}{join}{path}{ending}", _folder_values(path)) for path in tables]


def _is_table(path: str) -> bool:
    """Say whether a file is to be read, by its name."""
    name = PurePosixPath(path.replace(os.sep, "/")).name
    kind, packed = suffixes(name)
    return not name.startswith((".", "_")) and (kind in CSV or (kind in PARQUET and not packed))


def _folder_values(path: str) -> tuple[tuple[str, str | None], ...]:
    """Return what folders such as ``month=2024-01`` say."""
    folders = PurePosixPath(path.replace(os.sep, "/")).parts[:-1]
    pairs = [folder.partition("=") for folder in folders if "=" in folder[1:]]
    return tuple(
        (unquote(name), None if value == NO_VALUE else unquote(value)) for name, _, value in pairs
    )


def _partitioned_alike(found: list[FoundFile]) -> list[FoundFile]:
    """Take folders for partitions where all files named one by one lie in such folders."""
    if any(is_remote(file.path) for file in found):
        return found
    values = [_folder_values(file.path) for file in found]
    names = {tuple(name for name, _ in value) for value in values}
    if len(names) != 1 or names == {()} or len(set(values)) == 1:
        return found
    return [FoundFile(file.path, value) for file, value in zip(found, values, strict=True)]


def _remote_files(path: str) -> list[FoundFile]:
    """Return the files at an address: one, those of a folder, or those that fit a glob."""
    from pyarrow import fs

    plain, sign, query = path.partition("?") if "://" in path else (path, "", "")
    ending = sign + query
    star = re.search(r"[*\[]", plain)
    folder = plain[: plain.rindex("/", 0, star.start())] if star else plain
    system, inner = _system_of(folder + ending)
    try:
        info = system.get_file_info(inner)
        if info.type == fs.FileType.File and not star:
            return [FoundFile(path)]
        if info.type == fs.FileType.NotFound:
            raise InputError(f"cannot read {shown(path)}: there is nothing there; correct it.")
        infos = system.get_file_info(fs.FileSelector(inner, recursive=True))
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error
    start = len(inner.rstrip("/")) + 1
    names = [entry.path[start:] for entry in infos if entry.type == fs.FileType.File]
    if star:
        pattern = plain[len(folder) + 1 :]
        names = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
        if not names:
            raise InputError(f"no file fits {shown(path)}; correct the address.")
    return _in_folder(folder, names, ending)


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Say whether the suffix means CSV; if not it means Parquet."""
    suffix, packed = suffixes(path)
    if suffix not in (*CSV, *PARQUET) or (packed and suffix in PARQUET):
        whole = suffix + packed
        kind = f"the suffix {whole!r}" if whole else "no suffix"
        raise InputError(
            f"{path} has {kind}; unmix reads and writes .csv and .parquet: save the table as "
            "one of them, or rename it if it is one."
        )
    return suffix in CSV
