import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from unmix.data.formats import read_cifar_binary, read_idx
from unmix.errors import InputError

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
LABELS = np.array([7, 0, 9, 3, 1], dtype=np.uint8)


def idx_bytes(array: np.ndarray) -> bytes:
    magic = bytes([0, 0, 8, array.ndim])
    return magic + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def cifar_bytes(labels: list[int]) -> bytes:
    rows = [bytes([label]) + bytes((label + i) % 256 for i in range(3072)) for label in labels]
    return b"".join(rows)


def write(folder: Path, content: bytes, name: str = "some-file") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def error_of(reader, path: Path) -> str:
    with pytest.raises(InputError) as caught:
        reader(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


@pytest.mark.parametrize("array", [IMAGES, LABELS], ids=["images", "labels"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_an_idx_file_gives_back_what_was_written(tmp_path, array, pack):
    read = read_idx(write(tmp_path, pack(idx_bytes(array))))
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, array)
    read[0] = 1  # torch.from_numpy warns about arrays it may not write to
    assert (read[0] == 1).all()


def test_an_idx_file_longer_than_one_chunk_is_read_whole(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (3, 700, 800), dtype=np.uint8)
    np.testing.assert_array_equal(
        read_idx(write(tmp_path, gzip.compress(idx_bytes(images)))), images
    )


def test_gzip_is_told_by_content_not_by_name(tmp_path):
    path = write(tmp_path, idx_bytes(LABELS), "labels-idx1-ubyte.gz")
    np.testing.assert_array_equal(read_idx(path), LABELS)


@pytest.mark.parametrize("keep", [1, 5, 20, -9, -1])
def test_a_gzip_file_cut_short_is_named_in_the_error(tmp_path, keep):
    whole = gzip.compress(idx_bytes(IMAGES))
    message = error_of(read_idx, write(tmp_path, whole[:keep]))
    # One byte is too little even to see that it is gzip.
    assert ("not a whole gzip file" if keep != 1 else "ends within its header") in message


def test_a_large_gzip_file_cut_in_the_middle_is_refused(tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (100, 28, 28), dtype=np.uint8)
    whole = gzip.compress(idx_bytes(images))
    assert "not a whole gzip file" in error_of(read_idx, write(tmp_path, whole[: len(whole) // 2]))


def test_a_flipped_bit_in_a_gzip_file_never_gives_wrong_values(tmp_path):
    whole = gzip.compress(idx_bytes(IMAGES), mtime=0)
    num_refused = 0
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            read = read_idx(write(tmp_path, bytes(damaged)))
        except InputError:
            num_refused += 1
        else:  # a bit without meaning: the time in gzip's header, padding after the last code
            np.testing.assert_array_equal(read, IMAGES)
    assert num_refused > 0.8 * 8 * len(whole)


@pytest.mark.parametrize(
    "start", ["00000d03", "00000802", "00000000", "03080000", "89504e47", "50304b04"]
)
def test_a_wrong_magic_number_is_told(tmp_path, start):
    content = bytes.fromhex(start) + idx_bytes(IMAGES)[4:]
    message = error_of(read_idx, write(tmp_path, content))
    assert f"starts with 0x{start}" in message
    assert "0x00000803" in message


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_byte_too_many_is_refused(tmp_path, pack):
    message = error_of(read_idx, write(tmp_path, pack(idx_bytes(IMAGES) + b"\0")))
    assert "announces 24 bytes of data (shape (2, 3, 4)) but holds more" in message


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_byte_too_few_is_refused(tmp_path, pack):
    message = error_of(read_idx, write(tmp_path, pack(idx_bytes(IMAGES)[:-1])))
    assert "announces 24 bytes of data (shape (2, 3, 4)) but holds 23" in message


@pytest.mark.parametrize("length", [0, 3, 4, 15])
def test_a_file_that_ends_in_its_header_is_refused(tmp_path, length):
    message = error_of(read_idx, write(tmp_path, idx_bytes(IMAGES)[:length]))
    assert "ends within its header" in message


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_header_that_claims_the_moon_takes_no_memory(tmp_path, pack):
    claim = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**32 - 1, 2**32 - 1, 2**32 - 1)
    path = write(tmp_path, pack(claim + b"abc"))
    tracemalloc.start()
    try:
        message = error_of(read_idx, path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert f"announces {(2**32 - 1) ** 3:,} bytes" in message
    assert "holds 3;" in message
    assert peak < 8 << 20


def test_a_gzip_file_that_unpacks_far_beyond_its_header_is_not_unpacked(tmp_path):
    path = write(tmp_path, gzip.compress(idx_bytes(LABELS) + bytes(64 << 20)))
    tracemalloc.start()
    try:
        assert "holds more" in error_of(read_idx, path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("reader", [read_idx, read_cifar_binary])
def test_a_file_that_is_not_there_or_a_folder_is_an_input_error(tmp_path, reader):
    assert "No such file" in error_of(reader, tmp_path / "absent")
    assert "Is a directory" in error_of(reader, tmp_path)


def test_a_cifar_file_gives_labels_and_colour_planes(tmp_path):
    x, y = read_cifar_binary(write(tmp_path, cifar_bytes([3, 9, 0])))
    assert x.shape == (3, 3, 32, 32)
    assert x.dtype == y.dtype == np.uint8
    np.testing.assert_array_equal(y, [3, 9, 0])
    # Byte i of a row is label + i: red at 0, green at 1024, blue at 2048; rows of 32.
    assert x[0, 0, 0, 0] == 3
    assert x[0, 0, 1, 0] == 3 + 32
    assert x[1, 1, 0, 5] == (9 + 1024 + 5) % 256
    assert x[2, 2, 31, 31] == 3071 % 256
    x[0] = 0
    assert x.flags.c_contiguous


@pytest.mark.parametrize("length", [0, 1, 3072, 3074, 2 * 3073 - 1])
def test_a_cifar_file_of_broken_rows_is_refused(tmp_path, length):
    message = error_of(read_cifar_binary, write(tmp_path, cifar_bytes([1, 2])[:length]))
    assert f"has {length:,} bytes" in message
    assert "3,073" in message


def test_a_cifar_label_above_nine_is_refused_and_counted_from_zero(tmp_path):
    message = error_of(read_cifar_binary, write(tmp_path, cifar_bytes([0, 9, 10, 255])))
    assert "image 2 the label 10" in message
