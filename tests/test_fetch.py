import gzip
import hashlib
import io
import logging
import resource
import stat
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pooch
import pytest

from unmix.data.benchmark_files import dataset_folder, is_present, load_benchmark
from unmix.data.benchmarks import Archive, BenchmarkInfo, DataFile
from unmix.data.fetch import fetch_benchmark
from unmix.errors import InputError

IDX_NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
CIFAR_NAMES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")


@dataclass
class Reply:
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Server:
    url: str
    replies: dict[str, Reply] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    """Serve `replies` on this machine and note what was asked for."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.lstrip("/")
            served.asked.append(name)
            reply = served.replies.get(name, Reply(status=404))
            self.send_response(reply.status)
            for key, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(key, value)
            # A client that gives up is what some tests are about.
            with suppress(ConnectionError):
                self.end_headers()
                self.wfile.write(reply.body)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        served = Server(f"http://127.0.0.1:{http.server_port}/")
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        http.shutdown()
        thread.join()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def idx_file(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return gzip.compress(header + array.tobytes())


@pytest.fixture
def tiny(server) -> BenchmarkInfo:
    """Four idx files on the server and the row that describes them."""
    rng = np.random.default_rng(0)
    arrays = (
        rng.integers(0, 256, (40, 28, 28), dtype=np.uint8),
        np.arange(40, dtype=np.uint8) % 10,
        rng.integers(0, 256, (10, 28, 28), dtype=np.uint8),
        np.arange(10, dtype=np.uint8),
    )
    contents = dict(zip(IDX_NAMES, map(idx_file, arrays), strict=True))
    server.replies = {name: Reply(body) for name, body in contents.items()}
    return BenchmarkInfo(
        name="tiny",
        title="Tiny",
        positive=(1, 8, 9),
        target_prior=0.3,
        model="mlp",
        num_train=40,
        num_test=10,
        shape=(28, 28),
        kind="idx",
        files=tuple(DataFile(n, sha256(b), server.url + n) for n, b in contents.items()),
    )


def tar_gz(members: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type = tarfile.SYMTYPE
            member.linkname = target
            tar.addfile(member)
    return buffer.getvalue()


def cifar_batches() -> dict[str, bytes]:
    rng = np.random.default_rng(1)
    batches = {}
    for name in CIFAR_NAMES:
        rows = rng.integers(0, 256, (10, 3073), dtype=np.uint8)
        rows[:, 0] = np.arange(10)
        batches[name] = rows.tobytes()
    return batches


def cifar_row(server: Server, archive: bytes) -> BenchmarkInfo:
    """The row of a tiny CIFAR-10 whose archive the server gives as told."""
    server.replies["all.tar.gz"] = Reply(archive)
    return BenchmarkInfo(
        name="tiny-cifar",
        title="Tiny CIFAR",
        positive=(0, 2, 3, 4, 5, 6, 7),
        target_prior=0.7,
        model="resnet32",
        num_train=50,
        num_test=10,
        shape=(3, 32, 32),
        kind="cifar",
        files=tuple(DataFile(name, sha256(body)) for name, body in cifar_batches().items()),
        archive=Archive(server.url + "all.tar.gz", sha256(archive), "inner"),
    )


def good_archive() -> bytes:
    return tar_gz(
        {"inner/readme.html": b"hello"} | {f"inner/{n}": b for n, b in cifar_batches().items()}
    )


def failure(info: BenchmarkInfo, folder: Path) -> str:
    """The one line of a fetch that fails, after which no load may find the benchmark."""
    with pytest.raises(InputError) as caught:
        fetch_benchmark(info, folder)
    assert "\n" not in str(caught.value)
    assert not is_present(info, folder)
    with pytest.raises(InputError):
        load_benchmark(info, folder)
    return str(caught.value)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_what_was_fetched_can_be_loaded(tmp_path, tiny):
    place = fetch_benchmark(tiny, tmp_path)
    assert place == tmp_path / "tiny" == dataset_folder(tiny, tmp_path)
    assert names_in(place) == set(IDX_NAMES)
    data = load_benchmark(tiny, tmp_path)
    assert data.x_train.shape == (40, 28, 28)
    assert data.y_train.mean() == data.y_test.mean() == 0.3


def test_the_files_can_be_read_by_others_on_the_machine(tmp_path, tiny):
    place = fetch_benchmark(tiny, tmp_path)
    for name in IDX_NAMES:
        assert stat.S_IMODE((place / name).stat().st_mode) == 0o644


def test_the_folder_comes_from_the_variable_as_in_loading(tmp_path, monkeypatch, tiny):
    monkeypatch.setenv("UNMIX_DATA", str(tmp_path / "from-variable"))
    assert fetch_benchmark(tiny) == tmp_path / "from-variable" / "tiny"
    assert load_benchmark(tiny).info is tiny


def test_files_that_are_right_are_not_fetched_again(tmp_path, server, tiny):
    place = fetch_benchmark(tiny, tmp_path)
    assert server.asked == list(IDX_NAMES)
    before = {name: (place / name).stat().st_mtime_ns for name in IDX_NAMES}
    server.asked.clear()
    fetch_benchmark(tiny, tmp_path)
    assert server.asked == []
    assert before == {name: (place / name).stat().st_mtime_ns for name in IDX_NAMES}


def test_only_missing_and_damaged_files_are_fetched(tmp_path, server, tiny):
    place = fetch_benchmark(tiny, tmp_path)
    (place / IDX_NAMES[1]).unlink()
    (place / IDX_NAMES[2]).write_bytes(b"damaged")
    server.asked.clear()
    fetch_benchmark(tiny, tmp_path)
    assert server.asked == [IDX_NAMES[1], IDX_NAMES[2]]
    assert load_benchmark(tiny, tmp_path).x_test.shape == (10, 28, 28)


def test_digits_needs_no_download(tmp_path):
    assert fetch_benchmark("digits", tmp_path) == tmp_path / "digits"
    assert names_in(tmp_path) == set()


def test_an_unknown_name_is_refused(tmp_path):
    with pytest.raises(InputError, match="Did you mean 'mnist'"):
        fetch_benchmark("mnsit", tmp_path)


def test_a_tampered_file_is_thrown_away(tmp_path, server, tiny):
    body = bytearray(server.replies[IDX_NAMES[2]].body)
    body[100] ^= 1
    server.replies[IDX_NAMES[2]].body = bytes(body)
    message = failure(tiny, tmp_path)
    assert f"{server.url}{IDX_NAMES[2]} did not give the published {IDX_NAMES[2]}" in message
    assert "`unmix data fetch tiny`" in message
    assert names_in(tmp_path / "tiny") == set(IDX_NAMES[:2])


def test_a_shorter_file_is_thrown_away(tmp_path, server, tiny):
    server.replies[IDX_NAMES[0]].body = server.replies[IDX_NAMES[0]].body[:-100]
    assert "SHA-256 differs" in failure(tiny, tmp_path)
    assert names_in(tmp_path / "tiny") == set()


def test_a_connection_that_breaks_off_leaves_nothing(tmp_path, server, tiny):
    reply = server.replies[IDX_NAMES[0]]
    reply.headers["Content-Length"] = str(len(reply.body))
    reply.body = reply.body[: len(reply.body) // 2]
    message = failure(tiny, tmp_path)
    assert f"{server.url}{IDX_NAMES[0]} broke off" in message
    assert names_in(tmp_path / "tiny") == set()


def test_a_failed_fetch_goes_on_where_it_stopped(tmp_path, server, tiny):
    good = server.replies.pop(IDX_NAMES[3])
    failure(tiny, tmp_path)
    server.replies[IDX_NAMES[3]] = good
    server.asked.clear()
    fetch_benchmark(tiny, tmp_path)
    assert server.asked == [IDX_NAMES[3]]
    assert load_benchmark(tiny, tmp_path).y_train.sum() == 12


def test_a_damaged_file_is_kept_until_its_replacement_is_there(tmp_path, server, tiny):
    place = fetch_benchmark(tiny, tmp_path)
    (place / IDX_NAMES[0]).write_bytes(b"mine")
    server.replies.clear()
    with pytest.raises(InputError, match="404"):
        fetch_benchmark(tiny, tmp_path)
    assert (place / IDX_NAMES[0]).read_bytes() == b"mine"


@pytest.mark.parametrize(("status", "words"), [(404, "404 Not Found"), (503, "503 Service")])
def test_an_error_of_the_server_is_told(tmp_path, server, tiny, status, words):
    server.replies[IDX_NAMES[0]] = Reply(b"<html>sorry</html>", status)
    message = failure(tiny, tmp_path)
    assert f"{server.url}{IDX_NAMES[0]} answered {words}" in message
    assert "set UNMIX_DATA" in message


def moved_to(info: BenchmarkInfo, base_url: str) -> BenchmarkInfo:
    files = tuple(DataFile(f.name, f.sha256, base_url + f.name) for f in info.files)
    return BenchmarkInfo(**{**vars(info), "files": files})


@pytest.mark.parametrize("base_url", ["http://127.0.0.1:1/", "http://no-such-host.invalid/"])
def test_without_a_network_the_error_is_one_line(tmp_path, tiny, base_url):
    message = failure(moved_to(tiny, base_url), tmp_path)
    assert f"{base_url}{IDX_NAMES[0]} cannot be reached (is there a network?)" in message


def test_a_server_that_does_not_answer_is_given_up(tmp_path, monkeypatch, server, tiny):
    waiting = threading.Event()

    class Slow(Reply):
        @property
        def headers(self):
            waiting.wait(10)
            return {}

        @headers.setter
        def headers(self, value):
            pass

    server.replies[IDX_NAMES[0]] = Slow()
    monkeypatch.setattr(pooch.downloaders, "DEFAULT_TIMEOUT", 0.1)
    message = failure(tiny, tmp_path)
    waiting.set()
    assert "did not answer in time" in message


def test_a_gz_file_that_the_server_calls_compressed_stays_as_it_is(tmp_path, server, tiny):
    for reply in server.replies.values():
        reply.headers["Content-Encoding"] = "x-gzip"
    fetch_benchmark(tiny, tmp_path)
    assert load_benchmark(tiny, tmp_path).x_train.shape == (40, 28, 28)


def test_a_redirection_is_followed(tmp_path, server, tiny):
    server.replies["moved"] = server.replies[IDX_NAMES[0]]
    server.replies[IDX_NAMES[0]] = Reply(status=301, headers={"Location": "/moved"})
    fetch_benchmark(tiny, tmp_path)
    assert is_present(tiny, tmp_path)


def test_a_folder_that_is_a_file_is_an_input_error(tmp_path, tiny):
    (tmp_path / "blocked").write_text("a file")
    message = failure(tiny, tmp_path / "blocked")
    assert f"tiny cannot be stored in {tmp_path / 'blocked' / 'tiny'} (Not a directory)" in message
    assert "set UNMIX_DATA to another folder" in message


def test_a_folder_that_may_not_be_written_is_an_input_error(tmp_path, monkeypatch, tiny):
    # Rights do not stop the superuser, under whom tests often run, so the system's answer is ours.
    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    assert "(Permission denied); check its space and rights" in failure(tiny, tmp_path)


def test_a_full_disk_is_an_input_error_and_leaves_nothing(tmp_path, tiny):
    # A limit on the size of files makes the system refuse a write in the middle of a download.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        message = failure(tiny, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "(File too large)" in message
    assert names_in(tmp_path / "tiny") == set()


def test_an_interrupted_fetch_leaves_nothing(tmp_path, monkeypatch, tiny):
    def interrupt(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("pooch.core.hash_matches", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch_benchmark(tiny, tmp_path)
    assert names_in(tmp_path / "tiny") == set()


def test_the_files_of_an_archive_and_no_others_are_unpacked(tmp_path, server):
    info = cifar_row(server, good_archive())
    place = fetch_benchmark(info, tmp_path)
    assert names_in(place) == set(CIFAR_NAMES)
    data = load_benchmark(info, tmp_path)
    assert data.x_train.shape == (50, 3, 32, 32)
    assert data.y_test.tolist() == [True, False, *[True] * 6, False, False]
    batches = cifar_batches()
    assert (
        data.x_train[10:20].tobytes()
        == np.frombuffer(batches["data_batch_2.bin"], dtype=np.uint8)
        .reshape(10, 3073)[:, 1:]
        .tobytes()
    )
    fetch_benchmark(info, tmp_path)
    assert server.asked == ["all.tar.gz"]


def test_a_member_that_points_out_of_the_folder_is_not_unpacked(tmp_path, server):
    members = {f"inner/{n}": b for n, b in cifar_batches().items()}
    hostile = {"../escaped": b"x", "inner/../../escaped": b"x", str(tmp_path / "absolute"): b"x"}
    info = cifar_row(server, tar_gz(hostile | members, {"inner/link": "/etc/passwd"}))
    place = fetch_benchmark(info, tmp_path / "data")
    assert names_in(place) == set(CIFAR_NAMES)
    assert names_in(tmp_path) == {"data"}
    assert names_in(tmp_path / "data") == {"tiny-cifar"}


def test_a_link_in_the_place_of_a_file_is_refused(tmp_path, server):
    members = {f"inner/{n}": b for n, b in cifar_batches().items()}
    real = tmp_path / "real.bin"
    real.write_bytes(members.pop("inner/test_batch.bin"))
    info = cifar_row(server, tar_gz(members, {"inner/test_batch.bin": str(real)}))
    assert "does not hold the published inner/test_batch.bin" in failure(info, tmp_path / "data")
    assert names_in(tmp_path / "data" / "tiny-cifar") == set()


def test_a_member_with_other_bytes_is_refused(tmp_path, server):
    members = {f"inner/{n}": b for n, b in cifar_batches().items()}
    members["inner/data_batch_3.bin"] = bytes(10 * 3073)
    message = failure(cifar_row(server, tar_gz(members)), tmp_path)
    assert "does not hold the published inner/data_batch_3.bin" in message
    assert names_in(tmp_path / "tiny-cifar") == set()


def test_an_archive_without_a_member_is_refused(tmp_path, server):
    members = {n: b for n, b in cifar_batches().items()}  # right names, not in the folder
    message = failure(cifar_row(server, tar_gz(members)), tmp_path)
    assert "does not hold the published inner/data_batch_1.bin" in message


@pytest.mark.parametrize("damage", ["cut", "not a tar", "not gzip"])
def test_an_archive_that_cannot_be_unpacked_is_refused(tmp_path, server, damage):
    whole = good_archive()
    content = {
        "cut": whole[: len(whole) // 2],
        "not a tar": gzip.compress(b"plain text" * 1000),
        "not gzip": b"<html>sorry</html>",
    }[damage]
    message = failure(cifar_row(server, content), tmp_path)
    assert f"{server.url}all.tar.gz is not a whole .tar.gz file" in message
    assert names_in(tmp_path / "tiny-cifar") == set()


def test_a_tampered_archive_is_not_opened(tmp_path, server):
    info = cifar_row(server, good_archive())
    server.replies["all.tar.gz"].body = tar_gz({"inner/test_batch.bin": b"other"})
    message = failure(info, tmp_path)
    assert "did not give the published all.tar.gz (the SHA-256 differs)" in message
    assert names_in(tmp_path / "tiny-cifar") == set()


def test_in_a_pipe_nothing_is_written(tmp_path, capfd, tiny):
    fetch_benchmark(tiny, tmp_path)
    assert capfd.readouterr() == ("", "")


def test_pooch_is_quiet_during_a_fetch_and_keeps_its_own_level(
    tmp_path, monkeypatch, request, caplog, tiny
):
    logger = pooch.get_logger()
    request.addfinalizer(partial(logger.setLevel, logger.level))
    logger.setLevel("DEBUG")
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    fetch_benchmark(tiny, tmp_path)
    assert caplog.records == []
    assert logger.level == logging.DEBUG


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_each_file_has_a_bar_that_fills(tmp_path, monkeypatch, tiny):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    fetch_benchmark(tiny, tmp_path)
    drawn = sys.stderr.getvalue()
    size = (tmp_path / "tiny" / IDX_NAMES[1]).stat().st_size
    assert all(name in drawn for name in IDX_NAMES)
    assert f"{size}/{size} bytes" in drawn


def test_the_bar_can_be_turned_off(tmp_path, monkeypatch, tiny):
    monkeypatch.setattr(sys, "stderr", Terminal())
    fetch_benchmark(tiny, tmp_path, progress=False)
    assert sys.stderr.getvalue() == ""
