import gzip
import hashlib
import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest

from unmix.data.benchmark_files import dataset_folder, is_present, load_benchmark
from unmix.data.benchmarks import BENCHMARKS, BenchmarkInfo, DataFile, benchmark_info
from unmix.errors import InputError

# The table 'Specification of datasets' of the paper.
PUBLISHED = {
    "mnist": (60_000, 10_000, 784, 0.49, "mlp"),
    "fashion-mnist": (60_000, 10_000, 784, 0.8, "mlp"),
    "kmnist": (60_000, 10_000, 784, 0.3, "mlp"),
    "cifar10": (50_000, 10_000, 3_072, 0.7, "resnet32"),
}

# The classes in the order of their indices, and those the paper's Appendix B calls negative.
CLASSES = {
    "mnist": "0 1 2 3 4 5 6 7 8 9",
    "fashion-mnist": "T-shirt Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag Boot",
    "kmnist": "o ki su tsu na ha ma ya re wo",
    "cifar10": "airplane automobile bird cat deer dog frog horse ship truck",
    "digits": "0 1 2 3 4 5 6 7 8 9",
}
NEGATIVE = {
    "mnist": "1 3 5 7 9",
    "fashion-mnist": "Coat Sandal",
    "kmnist": "o su tsu na ha ma ya",
    "cifar10": "automobile ship truck",
    "digits": "1 3 5 7 9",
}


@pytest.fixture
def no_data_variable(monkeypatch):
    monkeypatch.delenv("UNMIX_DATA", raising=False)


def write_idx(path: Path, array: np.ndarray) -> DataFile:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    content = gzip.compress(header + array.tobytes())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return DataFile(path.name, hashlib.sha256(content).hexdigest())


@pytest.fixture
def tiny(tmp_path) -> BenchmarkInfo:
    """A row of four training and two test images whose files lie in tmp_path/tiny."""
    rng = np.random.default_rng(0)
    arrays = {
        "train-images-idx3-ubyte.gz": rng.integers(0, 256, (4, 5, 6), dtype=np.uint8),
        "train-labels-idx1-ubyte.gz": np.array([0, 1, 2, 1], dtype=np.uint8),
        "t10k-images-idx3-ubyte.gz": rng.integers(0, 256, (2, 5, 6), dtype=np.uint8),
        "t10k-labels-idx1-ubyte.gz": np.array([2, 0], dtype=np.uint8),
    }
    files = tuple(write_idx(tmp_path / "tiny" / name, array) for name, array in arrays.items())
    return BenchmarkInfo(
        name="tiny",
        title="Tiny",
        positive=(1, 2),
        target_prior=0.75,
        model="mlp",
        num_train=4,
        num_test=2,
        shape=(5, 6),
        kind="idx",
        files=files,
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_table_says_what_the_paper_says(name):
    info = BENCHMARKS[name]
    row = (info.num_train, info.num_test, int(np.prod(info.shape)), info.target_prior, info.model)
    assert row == PUBLISHED[name]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_positive_classes_are_those_of_the_paper(name):
    classes = CLASSES[name].split()
    assert len(classes) == 10
    negative = [classes.index(word) for word in NEGATIVE[name].split()]
    assert sorted((*BENCHMARKS[name].positive, *negative)) == list(range(10))


def test_every_row_is_frozen_and_stands_under_its_own_name():
    for name, info in BENCHMARKS.items():
        assert info.name == name
        with pytest.raises(FrozenInstanceError):
            info.target_prior = 0.1


def test_every_file_has_a_checksum_of_its_own_and_an_address():
    files = [file for info in BENCHMARKS.values() for file in info.files]
    sums = [file.sha256 for file in files]
    assert len(files) == 3 * 4 + 6
    assert len(set(sums)) == len(sums)
    assert all(len(bytes.fromhex(sha256)) == 32 for sha256 in sums)
    for info in BENCHMARKS.values():
        for file in info.files:
            assert bool(file.url) != bool(info.archive)
            assert file.url == "" or file.url.endswith("/" + file.name)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_dataset_has_the_published_shape_and_share_of_positives(name):
    folder = os.environ.get("UNMIX_DATA")
    if not folder or not is_present(name, folder):
        pytest.skip(f"{name} is not under UNMIX_DATA")
    data = load_benchmark(name)
    num_train, num_test, num_features, target_prior, _ = PUBLISHED[name]
    assert data.x_train.dtype == data.x_test.dtype == np.uint8
    assert data.x_train.shape == (num_train, *BENCHMARKS[name].shape)
    assert data.x_train[0].size == num_features
    assert data.x_test.shape == (num_test, *BENCHMARKS[name].shape)
    assert data.y_train.dtype == data.y_test.dtype == bool
    assert round(data.y_train.mean(), 2) == target_prior == data.target_prior
    assert round(data.y_test.mean(), 2) == target_prior
    assert data.x_train.min() == 0
    assert data.x_train.max() == 255


def test_digits_is_split_into_disjoint_parts_that_make_up_the_whole():
    from sklearn.datasets import load_digits

    data = load_benchmark("digits")
    whole = load_digits()
    assert data.x_train.shape == (1_297, 8, 8)
    assert data.x_test.shape == (500, 8, 8)
    assert data.x_train.dtype == np.float32
    assert (data.x_train.min(), data.x_train.max()) == (0.0, 1.0)
    # No two of the 1,797 images are equal, so equal multisets of (image, label) mean a partition.
    parts = np.concatenate([data.x_train, data.x_test]).reshape(-1, 64) * 16
    labels = np.concatenate([data.y_train, data.y_test])
    joined = sorted(map(tuple, np.column_stack([parts, labels])))
    assert joined == sorted(map(tuple, np.column_stack([whole.data, whole.target % 2 == 0])))
    assert len(set(joined)) == 1_797


def test_digits_is_stratified_by_digit_and_its_target_prior_is_its_share_of_even_digits():
    from sklearn.datasets import load_digits

    whole = load_digits()
    data = load_benchmark("digits")
    digit_of = {image.tobytes(): d for image, d in zip(whole.data, whole.target, strict=True)}
    test_rows = (data.x_test.reshape(-1, 64) * 16).astype(np.float64)
    counts = np.bincount([digit_of[row.tobytes()] for row in test_rows], minlength=10)
    assert np.abs(counts - np.bincount(whole.target) * 500 / 1_797).max() < 1
    share = (whole.target % 2 == 0).mean()
    assert round(share, 2) == data.target_prior == 0.5
    assert abs(data.y_train.mean() - share) < 0.005
    assert abs(data.y_test.mean() - share) < 0.005


def test_digits_is_the_same_split_each_time_and_on_every_machine():
    first, second = load_benchmark("digits"), load_benchmark("digits")
    np.testing.assert_array_equal(first.x_test, second.x_test)
    np.testing.assert_array_equal(first.y_train, second.y_train)
    # The pixels are sixteenths, exact in one byte each; computed once, when the split was fixed.
    pixels = (first.x_test * 16).astype(np.uint8)
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == (
        "b85a488da788e3548e44de1ae7a1e7e05a159a0a2dadeba81bf43934e634e368"
    )


def test_a_row_of_ones_own_is_loaded_from_its_folder(tmp_path, tiny):
    data = load_benchmark(tiny, tmp_path)
    assert data.x_train.shape == (4, 5, 6)
    assert data.y_train.tolist() == [False, True, True, True]
    assert data.y_test.tolist() == [True, False]
    assert data.target_prior == 0.75
    assert data.info is tiny


def test_a_row_whose_shape_is_not_that_of_the_files_is_refused(tmp_path, tiny):
    with pytest.raises(InputError, match=r"test images have shape \(2, 5, 6\).*\(3, 5, 6\)"):
        load_benchmark(replace(tiny, num_test=3), tmp_path)


def test_the_argument_goes_before_the_variable_and_the_variable_before_the_cache(
    tmp_path, monkeypatch, no_data_variable
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert dataset_folder("mnist") == tmp_path / "cache" / "unmix" / "mnist"
    monkeypatch.setenv("UNMIX_DATA", "")
    assert dataset_folder("mnist") == tmp_path / "cache" / "unmix" / "mnist"
    monkeypatch.setenv("UNMIX_DATA", str(tmp_path / "variable"))
    assert dataset_folder("kmnist") == tmp_path / "variable" / "kmnist"
    assert dataset_folder("kmnist", tmp_path / "given") == tmp_path / "given" / "kmnist"
    assert dataset_folder("kmnist", "~/data") == Path.home() / "data" / "kmnist"
    assert not any(tmp_path.iterdir())


def test_a_dataset_is_present_only_with_all_its_files(tmp_path, tiny):
    assert is_present(tiny, tmp_path)
    (tmp_path / "tiny" / "t10k-labels-idx1-ubyte.gz").unlink()
    assert not is_present(tiny, tmp_path)
    assert is_present("digits", tmp_path)
    assert not is_present("mnist", tmp_path / "nowhere")


def test_missing_files_name_the_command_that_fetches_them(tmp_path, monkeypatch):
    monkeypatch.setenv("UNMIX_DATA", str(tmp_path))
    with pytest.raises(InputError) as caught:
        load_benchmark("cifar10")
    message = str(caught.value)
    assert "\n" not in message
    assert f"{tmp_path / 'cifar10'} (no data_batch_1.bin)" in message
    assert "`unmix data fetch cifar10`" in message
    assert "set UNMIX_DATA" in message


def test_a_file_of_another_benchmark_under_the_same_name_is_noticed(tmp_path, tiny):
    path = tmp_path / "tiny" / "train-images-idx3-ubyte.gz"
    write_idx(path, np.zeros((4, 5, 6), dtype=np.uint8))
    with pytest.raises(InputError, match="not the published file") as caught:
        load_benchmark(tiny, tmp_path)
    assert str(path) in str(caught.value)
    assert "`unmix data fetch tiny`" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "guess"),
    [("minst", "mnist"), ("MNIST", "mnist"), ("cifar-10", "cifar10"), ("fashion", "fashion-mnist")],
)
@pytest.mark.parametrize("ask", [benchmark_info, dataset_folder, is_present, load_benchmark])
def test_an_unknown_name_gets_the_known_ones_and_the_nearest(ask, name, guess):
    with pytest.raises(InputError) as caught:
        ask(name)
    assert f"there is no benchmark '{name}'" in str(caught.value)
    assert "mnist, fashion-mnist, kmnist, cifar10, digits" in str(caught.value)
    assert f"Did you mean '{guess}'?" in str(caught.value)


def test_a_name_like_no_other_gets_no_guess():
    with pytest.raises(InputError) as caught:
        benchmark_info("weather")
    assert "Did you mean" not in str(caught.value)


def test_importing_the_table_loads_no_heavy_library():
    code = (
        "import sys, unmix.data.benchmarks;"
        "print([m for m in ('torch', 'sklearn', 'pooch', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
