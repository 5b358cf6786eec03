"""Writing files and folders so that a crash, a full disk or Ctrl-C leaves the old ones whole.

Everything is written under a temporary name beside its destination and renamed when it is
complete; what a killed process left there, the next one removes. A file is replaced in one step. A
folder takes two renames, since no portable call replaces a filled one: a crash between them leaves
the old folder whole under a hidden name, and the next write puts it back. This module does not know
what is inside the files it writes.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from unmix.errors import InputError
from unmix.leftovers import remove_leftovers, temporary_path

__all__ = [
    "atomic_folder",
    "atomic_path",
    "atomic_write_bytes",
    "atomic_write_text",
    "check_writable",
    "explained_os_errors",
    "hold_lock",
    "is_being_replaced",
    "open_ordinary",
    "refuse_folder_of",
    "refuse_same_file",
    "sha256_of",
]

# What a user can cure, and how. Anything else is not the user's mistake and stays an OSError.
_CAUSES = {
    errno.ENOENT: "{folder} does not exist; create it or correct the path",
    errno.ENOTDIR: "{folder} is not a folder; correct the path",
    errno.EACCES: "permission denied; choose another place or change its permissions",
    errno.EPERM: "permission denied; choose another place or change its permissions",
    errno.EROFS: "the file system is read-only; choose another place",
    errno.ENOSPC: "no space left on the disk; free some or choose another place",
    errno.EDQUOT: "the disk quota is used up; free some space or choose another place",
    errno.EFBIG: "the file grew beyond the allowed size; choose another place",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.EISDIR: "it is a folder; give the name of a file",
    errno.ELOOP: "it is a link that leads back to itself; correct it",
    errno.EIO: "the disk reports an input/output error; check it or choose another place",
}


@contextlib.contextmanager
def explained_os_errors(
    path: str | os.PathLike[str], verb: str, *names: str | os.PathLike[str]
) -> Iterator[None]:
    """
    Say in one line why ``path`` cannot be read or written, instead of raising an OSError.

    Errors that a user could not mend, and errors about another file, pass as they are.

    Parameters
    ----------
    path
        The path as the user gave it.
    verb
        ``"read"`` or ``"write"``.
    *names
        Further paths that stand for ``path``, such as its temporary name.

    Raises
    ------
    InputError
        With the path, the cause and the cure.
    """
    try:
        yield
    except OSError as error:
        said = None if error.filename is None else os.fsdecode(error.filename)
        ours = said is None or said.startswith(tuple(os.fspath(name) for name in (path, *names)))
        if not ours or error.errno not in _CAUSES:
            raise
        cause = _CAUSES[error.errno].format(folder=Path(path).absolute().parent)
        if verb == "read" and error.errno == errno.ENOENT:
            cause = "there is no such file; correct the path"
        raise InputError(f"cannot {verb} {path}: {cause}.") from error


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """
    Yield a temporary path in the folder of ``path`` and rename it to ``path`` on success.

    If the block raises, the temporary file is removed and the old file is untouched. A symbolic
    link is followed, and a replaced file keeps its permissions.

    Parameters
    ----------
    path
        Where the finished file goes. The temporary path has the same suffix.

    Yields
    ------
    pathlib.Path
        A path that does not exist yet; the block creates and closes it.

    Raises
    ------
    InputError
        The folder is missing, not writable or full, or ``path`` is not an ordinary file.
    """
    target = Path(os.path.realpath(path))
    temporary = temporary_path(target)
    try:
        with explained_os_errors(path, "write", target, temporary):
            _check_file_is_free(target, path)
            remove_leftovers(target.parent)
            yield temporary
            if target.exists():
                shutil.copymode(target, temporary)
            _sync_file(temporary)
            os.replace(temporary, target)
            _sync_folder(target.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def atomic_write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write ``data`` to ``path``, all of it or nothing."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def atomic_write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` to ``path`` as UTF-8 with its line ends as given, all of it or nothing."""
    atomic_write_bytes(path, text.encode("utf-8"))


@contextlib.contextmanager
def atomic_folder(
    path: str | os.PathLike[str], *, overwrite: bool, refuse: Callable[[Path], None]
) -> Iterator[Path]:
    """
    Yield a temporary folder beside ``path`` and rename it to ``path`` on success.

    At ``path`` is the old folder or the new one, never half of one, or for the moment between two
    renames nothing. A crash in that moment leaves the old folder whole at ``.NAME.replaced.tmp``
    beside it; the next call for ``path`` puts it back before it does anything else. A crash just
    after it leaves the new folder at ``path`` and the old one to be removed by the next call.

    Parameters
    ----------
    path
        Where the finished folder goes. An empty folder there counts as absent.
    overwrite
        Whether a folder at ``path`` may be replaced.
    refuse
        Raises InputError for a folder that may not be replaced whatever ``overwrite`` says: one
        with anything in it that is not ours. A mistyped path must not cost somebody a file.

    Yields
    ------
    pathlib.Path
        An empty folder to write into.

    Raises
    ------
    InputError
        ``path`` is taken, or its parent is missing, not writable or full.
    """
    target = Path(os.path.realpath(path))
    if not target.name:
        raise InputError(f"cannot write the folder {path}: it is a whole disk; choose a name.")
    temporary, replaced = temporary_path(target), _backup_path(target)
    try:
        with explained_os_errors(path, "write", target, temporary, replaced):
            if target.parent.is_dir():
                remove_leftovers(target.parent)
            _restore_backup(target, refuse)
            _check_folder_is_free(target, path, overwrite, refuse)
            temporary.mkdir()
            yield temporary
            _sync_tree(temporary)
            _check_folder_is_free(target, path, overwrite, refuse)
            if target.is_dir() and any(target.iterdir()):
                _put_in_place(temporary, target)
            else:
                os.replace(temporary, target)
            _sync_folder(target.parent)
            # Only now: until the names are on the disk, this is the folder to fall back on.
            _remove_backup(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def open_ordinary(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """
    Open an ordinary file to read its bytes: no link, and nothing that one could wait on for ever.

    Raises
    ------
    InputError
        It is missing, may not be read, or is something else than an ordinary file.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with explained_os_errors(path, "read"):
        try:
            descriptor = os.open(path, flags)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise InputError(f"{path} is a link; put the file itself there.") from None
            raise
        try:
            ordinary = stat.S_ISREG(os.fstat(descriptor).st_mode)
        except BaseException:
            os.close(descriptor)
            raise
        if not ordinary:
            os.close(descriptor)
            raise InputError(f"{path} is not an ordinary file; put one there.")
        with os.fdopen(descriptor, "rb") as file:
            yield file


def check_writable(path: str | os.PathLike[str]) -> None:
    """
    Raise InputError if a file cannot be written, before the work that it is for.

    Its folder is missing or not writable, or something else has its name.
    """
    with explained_os_errors(path, "write"):
        _check_file_is_free(Path(os.path.realpath(path)), path)


def refuse_same_file(
    output: str | os.PathLike[str], *inputs: str | os.PathLike[str] | None
) -> None:
    """
    Raise InputError if an output is one of the inputs, by whatever name or link.

    Parameters
    ----------
    output
        Where something will be written.
    *inputs
        What is read for it; None and what does not exist are nobody's.
    """
    for given in inputs:
        with contextlib.suppress(OSError):
            if given is not None and os.path.samefile(output, given):
                raise InputError(
                    f"cannot write {output}: it is the file {given} that is read; choose another "
                    "name."
                )


def refuse_folder_of(
    output: str | os.PathLike[str], *inputs: str | os.PathLike[str] | None
) -> None:
    """Raise InputError if an input lies in a folder that will be replaced."""
    whole = os.path.realpath(output)
    for given in inputs:
        if given is not None and Path(whole) in Path(os.path.realpath(given)).parents:
            raise InputError(
                f"cannot write the folder {output}: {given}, which is read, lies in it; choose "
                "another name."
            )


def hold_lock(file: IO[Any], *, shared: bool = False) -> bool:
    """
    Lock an open file until it is closed, or until the process ends in whatever way.

    Parameters
    ----------
    file : open file
    shared : bool
        Others may hold a shared lock as well. Windows knows no such lock of its own: there it is
        held by one at a time.

    Returns
    -------
    bool
        False if another process holds it.
    """
    try:
        if os.name == "posix":
            import fcntl

            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        else:
            import msvcrt

            windows: Any = msvcrt
            windows.locking(file.fileno(), windows.LK_NBLCK, 1)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            return False
        raise
    return True


def sha256_of(path: str | os.PathLike[str]) -> str:
    """
    Return the SHA-256 of a file as 64 hexadecimal digits.

    Raises
    ------
    InputError
        The file is missing or may not be read.
    """
    with explained_os_errors(path, "read"), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_file_is_free(target: Path, path: str | os.PathLike[str]) -> None:
    """Fail before the caller spends hours on what cannot be stored."""
    _refuse_address(path)
    if target.is_dir():
        raise InputError(f"cannot write {path}: it is a folder; give the name of a file.")
    if target.exists() and not target.is_file():
        # Renaming over a device such as /dev/null would replace the device.
        raise InputError(f"cannot write {path}: it is not an ordinary file; choose another name.")
    if target.parent.exists() and not target.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not target.parent.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _refuse_address(path: str | os.PathLike[str]) -> None:
    """Refuse what is meant for another place than the file system: it would become a folder."""
    if "://" in os.fspath(path):
        raise InputError(
            f"cannot write {path}: results are written to folders of this machine; write it to one "
            "and copy it there."
        )


def _check_folder_is_free(
    target: Path, path: str | os.PathLike[str], overwrite: bool, refuse: Callable[[Path], None]
) -> None:
    """Refuse a path that is a file, or a filled folder that may not be replaced."""
    _refuse_address(path)
    if not target.exists():
        return
    if not target.is_dir():
        raise InputError(f"cannot write the folder {path}: a file has that name; choose another.")
    if not any(target.iterdir()):
        return
    if not overwrite:
        raise InputError(
            f"cannot write the folder {path}: it exists and is not empty; "
            "choose another name or allow overwriting (--overwrite)."
        )
    if os.path.islink(path):
        raise InputError(
            f"will not overwrite the folder {path}: it is a link to {target}; name the folder "
            "itself."
        )
    refuse(target)


def _sync_file(path: Path) -> None:
    """Force the content of a file to the disk."""
    with open(path, "rb+") as file:  # Windows syncs only what is open for writing
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """Force the names in a folder to the disk, so that a rename survives a power cut."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(folder: Path) -> None:
    """Force a folder and everything below it to the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            _sync_file(Path(parent, name))
        _sync_folder(Path(parent))


def _backup_path(target: Path) -> Path:
    """Return where a folder waits while another takes its name: always the same, to be found."""
    return target.parent / f".{target.name}.replaced.tmp"


def is_being_replaced(path: str | os.PathLike[str]) -> bool:
    """Say whether the folder that was at ``path`` has stepped aside for another."""
    return _backup_path(Path(os.path.realpath(path))).exists()


def _put_in_place(new: Path, target: Path) -> None:
    """Give a new folder the name of an old one, which steps aside."""
    replaced = _backup_path(target)
    os.rename(target, replaced)
    try:
        os.rename(new, target)
    except BaseException:
        os.rename(replaced, target)
        raise


def _restore_backup(target: Path, refuse: Callable[[Path], None]) -> None:
    """Put right what a crash in the middle of a replacement left."""
    replaced = _backup_path(target)
    if replaced.is_symlink() or not replaced.is_dir():
        return
    refuse(replaced)  # somebody else may have a folder of that name
    if target.exists():
        _remove_backup(target)
    else:
        os.rename(replaced, target)


def _remove_backup(target: Path) -> None:
    """Remove the folder that stepped aside; killed on the way, it is a leftover like others."""
    doomed = temporary_path(target)
    with contextlib.suppress(FileNotFoundError):
        os.rename(_backup_path(target), doomed)
        shutil.rmtree(doomed, ignore_errors=True)
