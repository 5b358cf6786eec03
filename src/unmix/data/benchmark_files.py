"""The files of benchmarks: where they lie, whether all are there, and the arrays they hold.

Loading turns files into arrays with one boolean label per image. This module downloads nothing (see
`unmix.data.fetch`), scales nothing and draws no sets.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmix.data.benchmarks import BENCHMARKS, CIFAR_NAMES, IDX_NAMES, BenchmarkInfo, benchmark_info
from unmix.data.formats import read_cifar_binary, read_idx
from unmix.errors import InputError

__all__ = ["DATA_VARIABLE", "Benchmark", "dataset_folder", "is_present", "load_benchmark"]

DATA_VARIABLE = "UNMIX_DATA"


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A loaded benchmark: images, and for each image whether it is positive."""

    x_train: NDArray[Any]
    """(num_train, ...) uint8 pixels 0..255; float32 in [0, 1] for `digits`."""
    y_train: NDArray[np.bool_]
    """(num_train,) true for positives. For drawing sets and judging, never for training."""
    x_test: NDArray[Any]
    """(num_test, ...), as `x_train`."""
    y_test: NDArray[np.bool_]
    """(num_test,), as `y_train`."""
    info: BenchmarkInfo
    """The row it was loaded from."""

    @property
    def target_prior(self) -> float:
        """The target prior of the paper."""
        return self.info.target_prior


def dataset_folder(name: str | BenchmarkInfo, folder: str | Path | None = None) -> Path:
    """Say where the files of a benchmark lie, or would lie.

    Parameters
    ----------
    name
        A name of `BENCHMARKS`, or a row of your own.
    folder
        The folder that holds one folder per benchmark; None means the environment variable
        UNMIX_DATA, or else the user's cache folder.

    Returns
    -------
    Path
        `<folder>/<name>`; nothing is created.
    """
    root = folder or os.environ.get(DATA_VARIABLE)
    if not root:
        import pooch

        root = pooch.os_cache("unmix")
    return Path(root).expanduser() / benchmark_info(name).name


def is_present(name: str | BenchmarkInfo, folder: str | Path | None = None) -> bool:
    """Say whether all files of a benchmark are in place; their bytes are checked on loading."""
    return not _missing_files(benchmark_info(name), dataset_folder(name, folder))


def _missing_files(info: BenchmarkInfo, place: Path) -> list[str]:
    """Name the files that are not there."""
    return [file.name for file in info.files if not os.path.isfile(place / file.name)]


def load_benchmark(name: str | BenchmarkInfo, folder: str | Path | None = None) -> Benchmark:
    """Load a benchmark and split its classes into positive and negative as the paper does.

    Every file is checked by its SHA-256 first: MNIST, Fashion-MNIST and Kuzushiji-MNIST use the
    same file names and shapes, so nothing else would notice that two of them were confused.

    Parameters
    ----------
    name
        A name of `BENCHMARKS`, or a row of your own.
    folder
        As in `dataset_folder`.

    Returns
    -------
    Benchmark
        Images in their own shape, and one boolean label per image.

    Raises
    ------
    InputError
        If the name is unknown, or a file is missing or not the published one.

    Examples
    --------
    >>> digits = load_benchmark("digits")
    >>> digits.x_train.shape, digits.x_test.shape
    ((1297, 8, 8), (500, 8, 8))
    """
    info = benchmark_info(name)
    place = dataset_folder(info, folder)
    _check_files(info, place)
    load = info.load or (lambda: _LOADERS[info.kind](place))
    x_train, classes_train, x_test, classes_test = load()
    for part, x, classes, num in (
        ("training", x_train, classes_train, info.num_train),
        ("test", x_test, classes_test, info.num_test),
    ):
        if x.shape != (num, *info.shape) or classes.shape != (num,):
            raise InputError(
                f"{info.name} in {place}: the {part} images have shape {x.shape} and the labels "
                f"{classes.shape}, expected {(num, *info.shape)} and {(num,)}; correct the row."
            )
    return Benchmark(
        x_train=x_train,
        y_train=np.isin(classes_train, info.positive),
        x_test=x_test,
        y_test=np.isin(classes_test, info.positive),
        info=info,
    )


def _check_files(info: BenchmarkInfo, place: Path) -> None:
    """Raise unless every file is there and is the published one."""
    missing = _missing_files(info, place)
    if missing:
        raise InputError(
            f"{info.name} is not in {place} (no {missing[0]}); run `unmix data fetch {info.name}`, "
            f"or set {DATA_VARIABLE} to the folder that holds {info.name}/."
        )
    for file in info.files:
        if not file.is_intact(place):
            raise InputError(
                f"{place / file.name} is not the published file (its SHA-256 differs); "
                f"run `unmix data fetch {info.name}` to replace it."
            )


_Parts = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def _load_idx(place: Path) -> _Parts:
    """Read training images and classes, then those for testing."""
    x_train, classes_train, x_test, classes_test = (read_idx(place / n) for n in IDX_NAMES)
    return x_train, classes_train, x_test, classes_test


def _load_cifar(place: Path) -> _Parts:
    """Read and join the five training batches, then read the test batch."""
    *batches, (x_test, classes_test) = (read_cifar_binary(place / n) for n in CIFAR_NAMES)
    x_train = np.concatenate([x for x, _ in batches])
    classes_train = np.concatenate([classes for _, classes in batches])
    return x_train, classes_train, x_test, classes_test


def _load_digits(_place: Path) -> _Parts:
    """Split scikit-learn's digits: in order of class, evenly spaced images are the test images."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = (bunch.images / 16).astype(np.float32)
    classes = bunch.target
    # No random numbers, so the split is the same with every version of every library, and each
    # class gives its share to within one image.
    by_class = np.argsort(classes, kind="stable")
    num_test = BENCHMARKS["digits"].num_test
    test = np.zeros(len(classes), dtype=bool)
    test[by_class[np.arange(num_test) * len(classes) // num_test]] = True
    return x[~test], classes[~test], x[test], classes[test]


_LOADERS: dict[str, Callable[[Path], _Parts]] = {
    "idx": _load_idx,
    "cifar": _load_cifar,
    "digits": _load_digits,
}
