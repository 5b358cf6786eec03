"""Files and folders are written whole or not at all, and failures name the path and the cure."""

import errno
import hashlib
import os
import subprocess
import sys
import threading

import pytest

from unmix import leftovers
from unmix.errors import InputError
from unmix.files import (
    atomic_folder,
    atomic_path,
    atomic_write_bytes,
    atomic_write_text,
    hold_lock,
    sha256_of,
)


def test_a_finished_file_replaces_the_old_one_and_nothing_else_remains(tmp_path):
    target = tmp_path / "model.json"
    target.write_text("old")
    atomic_write_text(target, "né\r\nw")
    assert target.read_bytes() == "né\r\nw".encode()
    assert os.listdir(tmp_path) == ["model.json"]


def test_the_temporary_file_lies_in_the_same_folder_with_the_same_suffix(tmp_path):
    with atomic_path(tmp_path / "arrays.npz") as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".npz"
        assert not (tmp_path / "arrays.npz").exists()
        temporary.write_bytes(b"1")
    assert (tmp_path / "arrays.npz").read_bytes() == b"1"


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt])
def test_a_failure_halfway_leaves_the_old_file_and_no_rubbish(tmp_path, stop):
    target = tmp_path / "model.json"
    target.write_text("old")

    def interrupted():
        with atomic_path(target) as temporary:
            temporary.write_text("half")
            raise stop

    with pytest.raises(stop):
        interrupted()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["model.json"]


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    target = tmp_path / "model.json"
    target.write_text("old")
    program = (
        "import os, sys; from unmix.files import atomic_path\n"
        "with atomic_path(sys.argv[1]) as t: t.write_text('half'); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(target)], check=False)
    assert done.returncode == 9
    assert target.read_text() == "old"


def test_content_reaches_the_disk_before_the_name_does(tmp_path, monkeypatch):
    steps = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        steps.append("folder" if os.path.isdir(path) else "file")
        real_sync(descriptor)

    def replace(source, target):
        steps.append("rename")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    atomic_write_bytes(tmp_path / "a", b"1")
    assert steps == ["file", "rename", "folder"]


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EDQUOT, "quota"),
    ],
)
def test_what_the_disk_refuses_is_one_line_with_path_and_cure(tmp_path, monkeypatch, code, word):
    target = tmp_path / "scored.csv"
    target.write_text("old")

    def refuse(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(InputError, match=word) as caught:
        atomic_write_bytes(target, b"new")
    assert str(target) in str(caught.value)
    assert "choose another place" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["scored.csv"]


def test_a_missing_folder_is_found_before_the_work_starts(tmp_path):
    started = []

    def write():
        with atomic_path(tmp_path / "no" / "a.csv"):
            started.append(True)

    with pytest.raises(InputError, match=r"no does not exist; create it"):
        write()
    assert not started


def test_a_folder_without_write_permission_is_found_before_the_work_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(InputError, match="permission denied"):
        atomic_write_bytes(tmp_path / "a.csv", b"")


def test_a_file_in_the_way_of_the_folder_is_named(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(InputError, match="f is not a folder"):
        atomic_write_bytes(tmp_path / "f" / "a.csv", b"")


def test_devices_and_folders_are_not_replaced(tmp_path):
    with pytest.raises(InputError, match="it is a folder"):
        atomic_write_bytes(tmp_path, b"")
    with pytest.raises(InputError, match="it is not an ordinary file"):
        atomic_write_bytes(os.devnull, b"")


def test_a_name_that_is_too_long_is_said_to_be(tmp_path):
    with pytest.raises(InputError, match="too long"):
        atomic_write_bytes(tmp_path / ("x" * 300), b"")


def test_an_error_about_another_file_is_not_blamed_on_the_target(tmp_path):
    def write():
        with atomic_path(tmp_path / "a"):
            (tmp_path / "input-that-is-missing").read_text()

    with pytest.raises(FileNotFoundError, match="input-that-is-missing"):
        write()


def test_a_link_is_followed_and_permissions_are_kept(tmp_path):
    real = tmp_path / "real.txt"
    real.write_text("old")
    real.chmod(0o640)
    link = tmp_path / "link.txt"
    link.symlink_to(real)
    atomic_write_text(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640


def refuse_other_things(folder):
    if others := {entry.name for entry in folder.iterdir()} - {"model.json", "deep"}:
        raise InputError(f"holds other things (such as {min(others)!r})")


def write_model(path, text, *, overwrite=False):
    with atomic_folder(path, overwrite=overwrite, refuse=refuse_other_things) as folder:
        (folder / "model.json").write_text(text)
        (folder / "deep").mkdir()
        (folder / "deep" / "weights").write_text(text)


def model_text(path):
    return (path / "model.json").read_text() + (path / "deep" / "weights").read_text()


def test_a_new_folder_appears_whole(tmp_path):
    write_model(tmp_path / "m", "1")
    assert model_text(tmp_path / "m") == "11"
    assert os.listdir(tmp_path) == ["m"]


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "m").mkdir()
    write_model(tmp_path / "m", "1")
    assert model_text(tmp_path / "m") == "11"


def test_a_filled_folder_is_kept_unless_overwriting_is_allowed(tmp_path):
    write_model(tmp_path / "m", "1")
    with pytest.raises(InputError, match="exists and is not empty; choose another name"):
        write_model(tmp_path / "m", "2")
    assert model_text(tmp_path / "m") == "11"
    write_model(tmp_path / "m", "2", overwrite=True)
    assert model_text(tmp_path / "m") == "22"
    assert os.listdir(tmp_path) == ["m"]


def test_a_folder_of_other_things_is_never_overwritten(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"holds other things \(such as 'thesis.tex'\)"):
        write_model(tmp_path, "1", overwrite=True)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_file_in_place_of_the_folder_is_kept(tmp_path):
    (tmp_path / "m").write_text("a file")
    with pytest.raises(InputError, match="a file has that name"):
        write_model(tmp_path / "m", "1", overwrite=True)
    assert (tmp_path / "m").read_text() == "a file"


def test_a_failure_halfway_leaves_the_old_folder_and_no_rubbish(tmp_path):
    write_model(tmp_path / "m", "1")

    def fail():
        with atomic_folder(tmp_path / "m", overwrite=True, refuse=refuse_other_things) as folder:
            (folder / "model.json").write_text("half")
            raise OSError(errno.ENOSPC, "full")

    with pytest.raises(InputError, match="no space left"):
        fail()
    assert model_text(tmp_path / "m") == "11"
    assert os.listdir(tmp_path) == ["m"]


def test_a_reader_finds_the_old_folder_or_the_new_one_or_for_a_moment_none(tmp_path):
    write_model(tmp_path / "m", "0")
    found = []
    done = threading.Event()

    def read():
        while not done.is_set():
            try:
                found.append((tmp_path / "m" / "model.json").read_text())
            except FileNotFoundError:
                found.append(None)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(50):
        write_model(tmp_path / "m", str(number), overwrite=True)
    done.set()
    reader.join()
    assert set(found) <= {None, *map(str, range(50))}
    assert found.count(None) < len(found) / 2
    assert model_text(tmp_path / "m") == "4949"


# Ends the process at once after so many renames, as a power cut would.
CRASH = """
import os, sys
from unmix.files import atomic_folder
real, left = os.rename, [int(sys.argv[2])]
def rename(source, target):
    if left[0] == 0:
        os._exit(9)
    left[0] -= 1
    real(source, target)
    if left[0] == 0 and sys.argv[3] == "after":
        os._exit(9)
os.rename = rename
with atomic_folder(sys.argv[1], overwrite=True, refuse=print) as folder:
    (folder / "model.json").write_text("2")
    (folder / "deep").mkdir()
    (folder / "deep" / "weights").write_text("2")
"""


def crash_while_replacing(path, renames, moment):
    write_model(path, "1")
    arguments = [str(path), str(renames), moment]
    done = subprocess.run([sys.executable, "-c", CRASH, *arguments], check=False)
    assert done.returncode == 9


def test_a_crash_before_the_renames_leaves_the_old_folder(tmp_path):
    crash_while_replacing(tmp_path / "m", 0, "before")
    assert model_text(tmp_path / "m") == "11"


def test_a_crash_between_the_renames_keeps_the_old_folder_and_the_next_write_restores_it(tmp_path):
    crash_while_replacing(tmp_path / "m", 1, "after")
    assert not (tmp_path / "m").exists()
    assert model_text(tmp_path / ".m.replaced.tmp") == "11"
    with pytest.raises(InputError, match="exists and is not empty"):
        write_model(tmp_path / "m", "3")
    assert model_text(tmp_path / "m") == "11"
    assert not (tmp_path / ".m.replaced.tmp").exists()
    write_model(tmp_path / "m", "3", overwrite=True)
    assert model_text(tmp_path / "m") == "33"


def test_a_crash_after_the_renames_leaves_the_new_folder_and_the_next_write_cleans_up(tmp_path):
    crash_while_replacing(tmp_path / "m", 2, "after")
    assert model_text(tmp_path / "m") == "22"
    assert model_text(tmp_path / ".m.replaced.tmp") == "11"
    write_model(tmp_path / "m", "3", overwrite=True)
    assert model_text(tmp_path / "m") == "33"
    assert os.listdir(tmp_path) == ["m"]


def test_if_the_second_rename_fails_the_old_folder_is_back(tmp_path, monkeypatch):
    write_model(tmp_path / "m", "1")
    real_rename, calls = os.rename, []

    def rename(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "full")
        real_rename(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(InputError, match="no space left"):
        write_model(tmp_path / "m", "2", overwrite=True)
    assert model_text(tmp_path / "m") == "11"
    assert os.listdir(tmp_path) == ["m"]


def test_a_model_in_a_folder_that_does_not_exist_names_that_folder(tmp_path):
    with pytest.raises(InputError, match="no does not exist"):
        write_model(tmp_path / "no" / "m", "1")


def test_the_checksum_is_that_of_the_bytes(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"abc" * 100_000)
    assert sha256_of(path) == hashlib.sha256(b"abc" * 100_000).hexdigest()


def test_the_checksum_of_a_missing_file_names_it(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*gone.bin: there is no such file"):
        sha256_of(tmp_path / "gone.bin")


# What a killed process leaves ---------------------------------------------------------------------

KILLED = """
import os, sys
from pathlib import Path
from unmix.files import atomic_path, atomic_folder
if sys.argv[2] == "file":
    context = atomic_path(sys.argv[1])
else:
    context = atomic_folder(sys.argv[1], overwrite=False, refuse=print)
with context as temporary:
    path = temporary if sys.argv[2] == "file" else temporary / "weights"
    path.write_text("half")
    print(temporary.name, flush=True)
    sys.stdin.readline()
"""


def half_written(target, kind):
    """Start a process that is in the middle of writing; return it and its temporary name."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(target), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, process.stdout.readline().strip()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_is_removed_by_the_next_write_in_that_folder(tmp_path, kind):
    process, name = half_written(tmp_path / "scored.csv", kind)
    with process:
        atomic_write_text(tmp_path / "other.csv", "1")
        assert (tmp_path / name).exists()  # its process lives
        process.kill()
    assert (tmp_path / name).exists()
    atomic_write_text(tmp_path / "other.csv", "2")
    assert os.listdir(tmp_path) == ["other.csv"]


def test_nothing_else_is_removed(tmp_path, monkeypatch):
    mine = leftovers.temporary_path(tmp_path / "a.csv").name
    machine, process, started = mine.split(".unmix-")[1].split("-")[:3]
    kept = [
        mine,  # of this process, which lives
        mine.replace(machine, "0" * 8),  # of another machine, whatever its number
        mine.replace(f"-{process}-", "-999999999-").replace(machine, "f" * 8),
        ".a.3f2a.tmp.csv",
        "a.tmp",
        ".a.unmix-.tmp",
        mine.removeprefix("."),
        mine + ".more.suffixes",
    ]
    gone = [
        mine.replace(f"-{process}-", "-999999999-"),  # no process has this number
        mine.replace(started, "0123456789ab"),  # a later process has it
    ]
    for name in (*kept, *gone):
        (tmp_path / name).write_text("")
    atomic_write_text(tmp_path / "b.csv", "")
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "b.csv"])


def test_where_nobody_can_tell_when_a_process_started_nothing_is_removed(tmp_path, monkeypatch):
    name = leftovers.temporary_path(tmp_path / "a.csv").name
    process = name.split(".unmix-")[1].split("-")[1]
    monkeypatch.setattr(leftovers, "_started", lambda process: leftovers.UNKNOWN)
    living = name.replace(f"-{process}-", f"-{os.getppid()}-")
    (tmp_path / living).write_text("")
    atomic_write_text(tmp_path / "b.csv", "")
    assert sorted(os.listdir(tmp_path)) == sorted([living, "b.csv"])


def test_a_long_name_still_has_a_temporary_one(tmp_path):
    for name in ("x" * 250, "é" * 120 + ".csv"):
        atomic_write_text(tmp_path / name, "1")
        assert (tmp_path / name).read_text() == "1"


def test_a_folder_of_the_name_of_the_backup_is_left_alone(tmp_path):
    other = tmp_path / ".m.replaced.tmp"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    write_model_refused = pytest.raises(InputError, match="holds other things")
    with write_model_refused:
        write_model(tmp_path / "m", "1")
    assert os.listdir(other) == ["thesis.tex"]


def test_a_link_to_a_folder_is_not_overwritten(tmp_path):
    write_model(tmp_path / "m", "1")
    (tmp_path / "link").symlink_to(tmp_path / "m")
    with pytest.raises(InputError, match="it is a link to"):
        write_model(tmp_path / "link", "2", overwrite=True)
    assert model_text(tmp_path / "m") == "11"


def test_a_whole_disk_is_no_name_for_a_folder():
    with pytest.raises(InputError, match="it is a whole disk"):
        write_model("/", "1", overwrite=True)


HOLD = """
import sys
from unmix.files import hold_lock

with open(sys.argv[1], "wb") as file:
    print(hold_lock(file, shared=sys.argv[2] == "shared"), flush=True)
    input()
"""


def holder(path, kind):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "True\n"
    return process


def test_a_lock_is_held_by_one_process_and_dropped_when_it_is_killed(tmp_path):
    process = holder(tmp_path / "lock", "alone")
    with (tmp_path / "lock").open("rb") as file:
        assert not hold_lock(file)
        assert not hold_lock(file, shared=True)
    process.kill()
    process.communicate()
    with (tmp_path / "lock").open("rb") as file:
        assert hold_lock(file)


@pytest.mark.skipif(os.name != "posix", reason="only POSIX shares locks")
def test_a_shared_lock_keeps_out_only_those_that_want_it_alone(tmp_path):
    process = holder(tmp_path / "lock", "shared")
    with (tmp_path / "lock").open("rb") as first, (tmp_path / "lock").open("rb") as second:
        assert hold_lock(first, shared=True)
        assert not hold_lock(second)
    process.communicate("\n")
