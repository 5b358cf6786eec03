"""The paper's four image benchmarks (Appendix B) and a small bundled one, as rows of a table.

A row says where the files come from, what their checksums are, which classes count as positive and
which target prior and model the paper used. `unmix.data.benchmark_files` loads them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unmix.data.wording import nearest
from unmix.errors import InputError
from unmix.files import sha256_of

__all__ = [
    "BENCHMARKS",
    "Archive",
    "BenchmarkInfo",
    "DataFile",
    "benchmark_info",
    "is_registered",
    "register_dataset",
]


@dataclass(frozen=True)
class DataFile:
    """One file of a benchmark."""

    name: str
    """Its name in the benchmark's folder, and in the archive if there is one."""
    sha256: str
    """The SHA-256 of its bytes, in hexadecimal."""
    url: str = ""
    """Where it is published by itself; empty if it comes in an archive."""

    def is_intact(self, folder: Path) -> bool:
        """Say whether the folder holds this file with exactly these bytes."""
        path = folder / self.name
        return path.exists() and sha256_of(path) == self.sha256


@dataclass(frozen=True)
class Archive:
    """A compressed tar file that holds all files of a benchmark."""

    url: str
    """Where it is published."""
    sha256: str
    """The SHA-256 of its bytes, in hexadecimal."""
    folder: str
    """The folder inside the archive in which the files lie."""


@dataclass(frozen=True)
class BenchmarkInfo:
    """What is known of a benchmark before it is loaded: one row of `BENCHMARKS`."""

    name: str
    """The name in commands and the name of its folder."""
    title: str
    """The name in tables and figures."""
    positive: tuple[int, ...]
    """The class indices that make up the positive class."""
    target_prior: float
    """The target prior of the paper: the share of positives, to two digits."""
    model: str
    """The model the paper trains on it."""
    num_train: int
    """Number of training images."""
    num_test: int
    """Number of test images."""
    shape: tuple[int, ...]
    """Shape of one image."""
    kind: Literal["idx", "cifar", "digits", "arrays"]
    """How it is read."""
    files: tuple[DataFile, ...] = ()
    """Its files; none if it comes with scikit-learn."""
    archive: Archive | None = None
    """The archive its files come in, if they are not published one by one."""
    shift: int = 0
    """Pixels an image may be moved by without changing its class, for recipes that do so."""
    flip: bool = False
    """Whether left and right may be exchanged."""
    load: Callable[[], tuple[Any, Any, Any, Any]] | None = None
    """For a dataset of one's own: returns its training rows, labels, test rows and labels."""


# Training images, training labels, test images, test labels.
IDX_NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
# Five training batches and the test batch.
CIFAR_NAMES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")


def _idx_files(base_url: str, *sums: str) -> tuple[DataFile, ...]:
    """List the files of an idx benchmark; all of them use the same four names."""
    return tuple(
        DataFile(name, sha256, base_url + name)
        for name, sha256 in zip(IDX_NAMES, sums, strict=True)
    )


def _cifar_files(*sums: str) -> tuple[DataFile, ...]:
    """List the files in CIFAR-10's archive."""
    return tuple(DataFile(name, sha256) for name, sha256 in zip(CIFAR_NAMES, sums, strict=True))


BENCHMARKS: dict[str, BenchmarkInfo] = {
    "mnist": BenchmarkInfo(
        name="mnist",
        title="MNIST",
        positive=(0, 2, 4, 6, 8),
        target_prior=0.49,
        model="mlp",
        num_train=60_000,
        num_test=10_000,
        shape=(28, 28),
        kind="idx",
        shift=1,
        files=_idx_files(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    "fashion-mnist": BenchmarkInfo(
        name="fashion-mnist",
        title="Fashion-MNIST",
        positive=(0, 1, 2, 3, 6, 7, 8, 9),  # all but 4 coat and 5 sandal
        target_prior=0.8,
        model="mlp",
        num_train=60_000,
        num_test=10_000,
        shape=(28, 28),
        kind="idx",
        shift=1,
        files=_idx_files(
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    "kmnist": BenchmarkInfo(
        name="kmnist",
        title="Kuzushiji-MNIST",
        positive=(1, 8, 9),  # ki, re, wo
        target_prior=0.3,
        model="mlp",
        num_train=60_000,
        num_test=10_000,
        shape=(28, 28),
        kind="idx",
        shift=1,
        files=_idx_files(
            "https://codh.rois.ac.jp/kmnist/dataset/kmnist/",
            "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
            "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
            "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
            "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
        ),
    ),
    "cifar10": BenchmarkInfo(
        name="cifar10",
        title="CIFAR-10",
        positive=(0, 2, 3, 4, 5, 6, 7),  # all but 1 automobile, 8 ship and 9 truck
        target_prior=0.7,
        model="resnet32",
        num_train=50_000,
        num_test=10_000,
        shape=(3, 32, 32),
        kind="cifar",
        shift=4,
        flip=True,
        files=_cifar_files(
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        ),
        archive=Archive(
            url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            folder="cifar-10-batches-bin",
        ),
    ),
    # Not of the paper: small enough for examples and tests, and always there.
    "digits": BenchmarkInfo(
        name="digits",
        title="Digits",
        positive=(0, 2, 4, 6, 8),
        target_prior=0.5,  # 891 of 1,797
        model="mlp",
        num_train=1_297,
        num_test=500,
        shape=(8, 8),
        kind="digits",
    ),
}


_BUILT_IN = dict(BENCHMARKS)


def is_registered(name: str) -> bool:
    """Say whether a dataset was added, or replaced, by `register_dataset`."""
    return name in BENCHMARKS and BENCHMARKS[name] is not _BUILT_IN.get(name)


def benchmark_info(name: str | BenchmarkInfo) -> BenchmarkInfo:
    """Look a benchmark up by name; a row is returned as it is.

    Raises
    ------
    InputError
        If there is no such name; the message lists the known ones.
    """
    if isinstance(name, BenchmarkInfo):
        return name
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    near = nearest(str(name), BENCHMARKS)
    guess = f" Did you mean '{near}'?" if near else ""
    raise InputError(
        f"there is no benchmark '{name}'; choose one of {', '.join(BENCHMARKS)}.{guess}"
    )


def register_dataset(
    name: str,
    x_train: Any,
    y_train: Any,
    x_test: Any,
    y_test: Any,
    *,
    title: str | None = None,
    model: str = "mlp",
    target_prior: float | None = None,
    shift: int = 0,
    flip: bool = False,
    overwrite: bool = False,
) -> None:
    """Add a labeled dataset of your own, for `unmix train` and `unmix reproduce`.

    Sets are drawn from its training rows as from the paper's benchmarks; its test labels are
    counted and never used.

    Parameters
    ----------
    name : str
        What it is called from then on.
    x_train, x_test : array, shape (n, ...)
        Rows as a network takes them: vectors or images, bytes (pixels) or floats.
    y_train, y_test : array, shape (n,)
        True or 1 for positives.
    title : str, optional
        The name in tables and figures.
    model : 'linear', 'mlp' or 'resnet32'
    target_prior : float, optional
        Share of positives where the classifier is judged; that of the test rows if left out.
    shift, flip
        By how many pixels images may be moved, and whether they may be mirrored.
    overwrite : bool
        Replace a dataset of that name; otherwise it is refused.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> x, y = load_breast_cancer(return_X_y=True)
    >>> register_dataset("cancer", x[::2], y[::2], x[1::2], y[1::2])
    >>> from unmix.data.benchmark_files import load_benchmark
    >>> load_benchmark("cancer").x_train.shape
    (285, 30)
    >>> del BENCHMARKS["cancer"]
    """
    if not isinstance(name, str) or not name or set(name) & set(" ,/\\\t\n"):
        raise InputError(f"a dataset is named by one word without spaces and commas; got {name!r}")
    if name in BENCHMARKS and not overwrite:
        raise InputError(f"there is a dataset {name!r} already; pass overwrite=True to replace it")
    parts = [(np.asarray(x), np.asarray(y)) for x, y in ((x_train, y_train), (x_test, y_test))]
    for x, y in parts:
        if x.ndim < 2 or y.shape != x.shape[:1] or x.shape[1:] != parts[0][0].shape[1:]:
            raise InputError(
                f"rows must have shape (n, ...) with one label each, the same for training and "
                f"test; got {x.shape} and {y.shape}"
            )
        if x.dtype.kind not in "fiub" or not np.isin(y, (0, 1)).all():
            raise InputError("rows must be numbers and labels 0 or 1; recode them")
    (x_train, y_train), (x_test, y_test) = (
        (x if x.dtype == np.uint8 else x.astype(np.float32), y.astype(int)) for x, y in parts
    )
    BENCHMARKS[name] = BenchmarkInfo(
        name=name,
        title=title or name,
        positive=(1,),
        target_prior=float(y_test.mean()) if target_prior is None else float(target_prior),
        model=model,
        num_train=len(x_train),
        num_test=len(x_test),
        shape=x_train.shape[1:],
        kind="arrays",
        shift=shift,
        flip=flip,
        load=lambda: (x_train, y_train, x_test, y_test),
    )
