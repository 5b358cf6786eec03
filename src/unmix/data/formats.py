"""Readers of the two file formats the benchmarks come in: idx (MNIST's) and CIFAR-10's binary one.

A reader returns the bytes as they lie in the file and refuses every file that does not add up. It
knows no benchmark, no download and no binary split of the classes.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from unmix.errors import InputError

__all__ = ["CIFAR_IMAGE_SHAPE", "read_cifar_binary", "read_idx"]

CIFAR_IMAGE_SHAPE = (3, 32, 32)

_GZIP_START = b"\x1f\x8b"
_IDX_NUM_DIMS = {0x00000801: 1, 0x00000803: 3}  # 08 is unsigned byte, the last byte the dimensions
_CIFAR_ROW = 1 + math.prod(CIFAR_IMAGE_SHAPE)  # one byte of label, then the pixels
_CIFAR_CLASSES = 10
_CHUNK = 1 << 20
_CURE = "get the file again"


def read_idx(path: str | Path) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes: labels (one dimension) or images (three).

    Memory grows with the bytes that are really there, not with what the header claims, so a damaged
    header cannot ask for more than the file can fill.

    Parameters
    ----------
    path
        The file, plain or compressed by gzip; its first bytes tell which, not its name.

    Returns
    -------
    ndarray, shape (n,) or (n, height, width), uint8
        A writable array of its own.

    Raises
    ------
    InputError
        If the file is missing, damaged, cut short, too long or of another kind.
    """
    path = Path(path)
    try:
        with path.open("rb") as raw:
            zipped = raw.read(len(_GZIP_START)) == _GZIP_START
            raw.seek(0)
            if not zipped:
                return _parse_idx(raw, path)
            with gzip.GzipFile(fileobj=raw) as unzipped:
                return _parse_idx(unzipped, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a whole gzip file ({error}); {_CURE}.") from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _parse_idx(stream: BinaryIO | gzip.GzipFile, path: Path) -> NDArray[np.uint8]:
    """Read header and bytes of an open idx stream."""
    magic = _read_header(stream, 1, path)[0]
    if magic not in _IDX_NUM_DIMS:
        known = " or ".join(f"0x{value:08x}" for value in _IDX_NUM_DIMS)
        raise InputError(
            f"{path} is not an idx file of bytes: it starts with 0x{magic:08x}, expected {known}; "
            "check that it is the right file or get it again."
        )
    shape = _read_header(stream, _IDX_NUM_DIMS[magic], path)
    expected = math.prod(shape)
    # One byte more than expected is asked for: it shows a file that is too long, and only at its
    # end does gzip compare the checksum.
    values = bytearray()
    while chunk := stream.read(min(_CHUNK, expected + 1 - len(values))):
        values += chunk
    if len(values) != expected:
        found = "more" if len(values) > expected else f"{len(values):,}"
        raise InputError(
            f"{path} announces {expected:,} bytes of data (shape {shape}) but holds {found}; "
            f"{_CURE}."
        )
    return np.frombuffer(values, dtype=np.uint8).reshape(shape)


def _read_header(
    stream: BinaryIO | gzip.GzipFile, num_integers: int, path: Path
) -> tuple[int, ...]:
    """Read big-endian 32-bit integers."""
    header = stream.read(4 * num_integers)
    if len(header) < 4 * num_integers:
        raise InputError(f"{path} ends within its header; {_CURE}.")
    return struct.unpack(f">{num_integers}I", header)


def read_cifar_binary(path: str | Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read one batch file of CIFAR-10's binary version.

    Parameters
    ----------
    path
        The file: rows of 3,073 bytes, the label and then the red, green and blue 32 x 32 planes.

    Returns
    -------
    x : ndarray, shape (n, 3, 32, 32), uint8
        The images.
    y : ndarray, shape (n,), uint8
        The class indices, 0 to 9.

    Raises
    ------
    InputError
        If the file is missing, not made of whole rows, or holds a label above 9.
    """
    path = Path(path)
    try:
        values = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    except OSError as error:
        raise _unreadable(path, error) from error
    if values.size == 0 or values.size % _CIFAR_ROW != 0:
        raise InputError(
            f"{path} has {values.size:,} bytes, which is not a whole number of CIFAR-10 images "
            f"({_CIFAR_ROW:,} bytes each); {_CURE}."
        )
    rows = values.reshape(-1, _CIFAR_ROW)
    y = rows[:, 0].copy()
    if y.max() >= _CIFAR_CLASSES:
        bad = int(np.argmax(y >= _CIFAR_CLASSES))
        raise InputError(
            f"{path} gives image {bad} the label {y[bad]}, but CIFAR-10 has classes 0 to "
            f"{_CIFAR_CLASSES - 1}; check that it is the right file or get it again."
        )
    return rows[:, 1:].copy().reshape(-1, *CIFAR_IMAGE_SHAPE), y


def _unreadable(path: Path, error: OSError) -> InputError:
    """Say why the system would not give us the file."""
    return InputError(f"{path} cannot be read ({error.strerror or error}); check path and rights.")
