"""Downloading a benchmark, so that only files with the published SHA-256 ever get into its folder.

Everything is downloaded, unpacked and checked in a temporary folder inside the benchmark's folder
and moved up by one rename per file. This module reads no images; `unmix.data.benchmarks` does.
"""

import logging
import shutil
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pooch
import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from unmix.data.benchmark_files import DATA_VARIABLE, dataset_folder
from unmix.data.benchmarks import Archive, BenchmarkInfo, DataFile, benchmark_info
from unmix.errors import InputError

__all__ = ["fetch_benchmark"]

_CHUNK = 1 << 16  # bytes; pooch's own 1,024 would move the bar 170,000 times for CIFAR-10
_READABLE_BY_ALL = 0o644


def fetch_benchmark(
    name: str | BenchmarkInfo, folder: str | Path | None = None, *, progress: bool = True
) -> Path:
    """Download the files of a benchmark that are missing or are not the published ones.

    Files that are already right are left alone, and a fetch that fails keeps what it had finished,
    so calling again goes on from there. A benchmark without files (`digits`) needs nothing.

    Parameters
    ----------
    name
        A name of `unmix.data.benchmarks.BENCHMARKS`, or a row of your own.
    folder
        As in `unmix.data.benchmark_files.dataset_folder`.
    progress
        Whether to draw a progress bar; it is drawn only if standard error is a terminal.

    Returns
    -------
    Path
        The folder of the benchmark.

    Raises
    ------
    InputError
        If a file cannot be downloaded, is not the published one, or cannot be written.
    """
    info = benchmark_info(name)
    place = dataset_folder(info, folder)
    try:
        wanted = [file for file in info.files if not file.is_intact(place)]
        if wanted:
            place.mkdir(parents=True, exist_ok=True)
            with (
                tempfile.TemporaryDirectory(prefix=".fetch-", dir=place) as staging,
                _open_progress(shown=progress and sys.stderr.isatty()) as bars,
            ):
                _fetch_into(place, info, wanted, Path(staging), bars)
    except OSError as error:
        raise InputError(
            f"{info.name} cannot be stored in {place} ({error.strerror or error}); check its space "
            f"and rights, or set {DATA_VARIABLE} to another folder."
        ) from error
    return place


def _fetch_into(
    place: Path, info: BenchmarkInfo, wanted: list[DataFile], staging: Path, bars: Progress
) -> None:
    """Download the wanted files, by themselves or in their archive."""
    if info.archive is None:
        for file in wanted:
            _download(info, file.url, file.sha256, staging / file.name, bars)
            _put_in_place(staging / file.name, place)
        return
    archive_path = staging / info.archive.url.rsplit("/", 1)[-1]
    _download(info, info.archive.url, info.archive.sha256, archive_path, bars)
    _unpack(info.archive, archive_path, wanted, staging)
    for file in wanted:
        _put_in_place(staging / file.name, place)


def _download(info: BenchmarkInfo, url: str, sha256: str, path: Path, bars: Progress) -> None:
    """Download one file and check it; on failure no file is left."""
    cure = (
        f"run `unmix data fetch {info.name}` again, "
        f"or set {DATA_VARIABLE} to a folder that has {info.name}/."
    )
    try:
        with _quiet_pooch(), ExitStack() as responses:
            downloader = pooch.HTTPDownloader(
                progressbar=_Bar(bars, path.name),
                chunk_size=_CHUNK,
                hooks={"response": partial(_prepare, responses)},
            )
            pooch.retrieve(url, f"sha256:{sha256}", path.name, path.parent, downloader=downloader)
    except requests.RequestException as error:
        raise InputError(f"{url} {_what_failed(error)}; {cure}") from error
    except ValueError as error:  # how pooch says that the hash differs
        raise InputError(
            f"{url} did not give the published {path.name} (the SHA-256 differs); {cure}"
        ) from error


def _prepare(responses: ExitStack, response: requests.Response, **_options: Any) -> None:
    """Mend two things in a response before its body is read."""
    # pooch leaves the connection open if the download fails.
    responses.callback(response.close)
    # Some servers call a .gz file compressed in transit, and requests would unpack it.
    response.raw.headers.pop("Content-Encoding", None)


def _what_failed(error: requests.RequestException) -> str:
    """Put a failure into a few words; the library's own run over several lines."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return "did not answer in time"
    if isinstance(error, requests.ConnectionError):
        return "cannot be reached (is there a network?)"
    return f"broke off ({type(error).__name__})"


@contextmanager
def _quiet_pooch() -> Iterator[None]:
    """Keep pooch's remarks off standard error for the length of one download."""
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _unpack(archive: Archive, path: Path, wanted: list[DataFile], staging: Path) -> None:
    """Take the wanted files, and no others, out of the archive and check them."""
    by_member = {f"{archive.folder}/{file.name}": file for file in wanted}
    try:
        # As a stream, since going back to a member would unpack all before it once more.
        with tarfile.open(path, "r|gz") as tar:
            for member in tar:
                if member.name not in by_member or not member.isfile():
                    continue
                # The name on disk comes from our table, never from the archive.
                with (staging / by_member[member.name].name).open("wb") as stream:
                    shutil.copyfileobj(tar.extractfile(member), stream)  # type: ignore[arg-type]
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise InputError(
            f"{archive.url} is not a whole .tar.gz file ({error}); correct its row."
        ) from error
    for file in wanted:
        if not file.is_intact(staging):
            raise InputError(
                f"{archive.url} does not hold the published {archive.folder}/{file.name}; "
                "correct its row."
            )


def _put_in_place(path: Path, place: Path) -> None:
    """Move a checked file up in one step; as a temporary file it was its owner's alone."""
    path.chmod(_READABLE_BY_ALL)
    path.replace(place / path.name)


def _open_progress(*, shown: bool) -> Progress:
    """Make the progress display, or one that draws nothing."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, quiet=not shown),  # disabled, older ones still end the line
        disable=not shown,
    )


class _Bar:
    """One line of the progress display, with the methods that pooch calls on a bar."""

    total = 0  # pooch sets it to the Content-Length, 0 if the server does not say

    def __init__(self, bars: Progress, description: str) -> None:
        self._bars = bars
        self._task = bars.add_task(description, total=None)

    def update(self, num_bytes: int) -> None:
        self._bars.update(self._task, advance=num_bytes, total=self.total or None)

    def reset(self) -> None:
        self._bars.update(self._task, completed=0)

    def close(self) -> None:
        self._bars.stop_task(self._task)
