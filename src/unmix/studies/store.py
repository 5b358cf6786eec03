"""The run store: one row per cell in a SQLite file, and who is at work on it.

A worker holds an operating-system lock on a file of its own for as long as it lives. The system
drops the lock when the process dies, however it dies, so a cell whose worker is gone is free
again; no process number is trusted. The store knows nothing of training.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Self

from unmix.errors import InputError
from unmix.files import atomic_write_text, explained_os_errors, hold_lock
from unmix.studies.cell import Cell
from unmix.studies.code_version import code_version
from unmix.studies.run_text import EXPORTED, cell_key, cell_of, compact, line_of, row_of

__all__ = ["RunStore", "code_version"]

FILE = "runs.sqlite"
LASTING = ("SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_CORRUPT")
SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    cell TEXT PRIMARY KEY,     -- JSON of the fields that are not at their defaults
    state TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'done', 'failed')),
    worker TEXT,               -- name of its lock in workers/
    claimed_at TEXT,
    finished_at TEXT,
    code TEXT,                 -- what ran: see code_version
    seconds REAL,
    with_replacement INTEGER,  -- how many sets were drawn so
    result TEXT,               -- JSON, with the metrics of each epoch
    error TEXT                 -- why it failed, in one line
) STRICT
"""


class RunStore:
    """A folder with the runs of studies; any number of processes may use it at once.

    Parameters
    ----------
    folder : path
    create : bool
        False: the folder must hold a store already.
    """

    def __init__(self, folder: str | Path, *, create: bool = True) -> None:
        self.folder = Path(folder)
        self._name = secrets.token_hex(8)
        self._lock: IO[bytes] | None = None
        path = self.folder / FILE
        if not create and not path.exists():
            raise InputError(f"{folder} holds no runs (no {FILE}); correct --store")
        with explained_os_errors(folder, "write"):
            self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._database = sqlite3.connect(path, timeout=60, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute(SCHEMA)
            columns = ", ".join((*EXPORTED, "worker", "claimed_at"))
            self._database.execute(f"SELECT {columns} FROM runs LIMIT 0")  # a table of ours?
        except sqlite3.Error as error:
            with suppress(AttributeError, sqlite3.Error):
                self._database.close()  # and what SQLite put beside it
            # What the file is lasts; that it is locked, or the disk full, passes.
            if getattr(error, "sqlite_errorname", "") in LASTING:
                problem = f"is no run store: {error}; choose another folder"
            else:
                problem = f"cannot be used: {error}; try again when it can be written"
            raise InputError(f"{path} {problem}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file, and of what this store claimed."""
        self._database.close()
        if self._lock is not None:
            self._lock_path(self._name).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def add(self, cells: Iterable[Cell], *, again: bool = False) -> None:
        """Enter cells that are not there yet; those that failed get another chance.

        With `again` those that other code ran wait again too; until they end, their old result is
        no longer counted.
        """
        with self._transaction():
            for cell in cells:
                self._execute(
                    "INSERT INTO runs (cell, state) VALUES (?, 'waiting') ON CONFLICT (cell) DO "
                    "UPDATE SET state = 'waiting', error = NULL WHERE state = 'failed' "
                    "OR (? AND state = 'done' AND code != ?)",
                    [cell_key(cell), again, code_version()],
                )

    def claim(self, cells: Iterable[Cell]) -> Cell | None:
        """Take the first of these cells that waits, or whose worker is gone; None if there is none.

        The cell is this store's until `finish`, `fail`, `close` or the death of the process.
        """
        if self._lock is None:
            path = self._lock_path(self._name)
            path.parent.mkdir(exist_ok=True)
            self._lock = path.open("wb")
            if not hold_lock(self._lock):
                raise RuntimeError(f"another process holds {path}")
        with self._transaction():
            workers = self._open_runs()
            for cell in cells:
                key = cell_key(cell)
                if key in workers and not self._is_alive(workers[key]):
                    self._execute(
                        "UPDATE runs SET state = 'running', worker = ?, claimed_at = ? "
                        "WHERE cell = ?",
                        [self._name, _now(), key],
                    )
                    return cell
        return None

    def finish(self, cell: Cell, result: dict[str, Any]) -> bool:
        """Record the result of a claimed cell; say whether it was still this store's."""
        given = asdict(cell)
        new = {k: v for k, v in result.items() if k not in given or given[k] != v}
        return self._end(
            cell,
            "state = 'done', result = ?, seconds = ?, with_replacement = ?",
            [compact(new), result["seconds"], result["with_replacement"]],
        )

    def fail(self, cell: Cell, error: str) -> bool:
        """Record why a claimed cell has no result; say whether it was still this store's."""
        return self._end(cell, "state = 'failed', error = ?", [" ".join(error.split())])

    def unfinished(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return those of these cells that wait or are being run."""
        workers = self._open_runs()
        return [cell for cell in cells if cell_key(cell) in workers]

    def results(self, cells: Iterable[Cell] | None = None) -> dict[Cell, dict[str, Any]]:
        """Return what `run_cell` returned, and `code_version`, of all or some finished cells."""
        query = "SELECT cell, result, code FROM runs WHERE state = 'done' ORDER BY cell"
        found = {}
        for key, result, code in self._execute(query):
            cell = self._cell(key)
            found[cell] = asdict(cell) | json.loads(result) | {"code_version": code}
        return found if cells is None else {cell: found[cell] for cell in cells if cell in found}

    def failures(self) -> dict[Cell, str]:
        """Return why cells failed."""
        query = "SELECT cell, error FROM runs WHERE state = 'failed' ORDER BY cell"
        return {self._cell(key): error for key, error in self._execute(query)}

    def export(self, path: str | Path) -> int:
        """Write what has ended as JSON lines, sorted, with six significant digits; count them.

        The text depends on the runs alone: exporting what was imported gives the same bytes.
        """
        query = f"SELECT {', '.join(EXPORTED)} FROM runs WHERE state IN ('done', 'failed')"
        lines = []
        for values in self._execute(f"{query} ORDER BY cell"):
            lines.append(line_of(dict(zip(EXPORTED, values, strict=True))) + "\n")
        atomic_write_text(path, "".join(lines))
        return len(lines)

    def import_(self, path: str | Path) -> int:
        """Add the runs of an export and count the new; what is done here stays as it is."""
        from unmix.data.addresses import refuse_pipe  # no part of a run

        refuse_pipe(os.fspath(path))
        with explained_os_errors(path, "read"):
            data = Path(path).read_bytes()
        try:
            lines = data.decode("utf-8").splitlines()
        except UnicodeDecodeError:
            raise InputError(f"{path} is no export of runs; give a file of JSON lines") from None
        marks = ", ".join("?" * len(EXPORTED))
        changes = ", ".join(f"{name} = excluded.{name}" for name in EXPORTED[1:])
        new = 0
        with self._transaction():
            for number, line in enumerate(lines, 1):
                row = row_of(line, f"{path}, line {number}")
                new += self._execute(
                    f"INSERT INTO runs ({', '.join(EXPORTED)}) VALUES ({marks}) "
                    f"ON CONFLICT (cell) DO UPDATE SET {changes} WHERE runs.state = 'waiting' "
                    "OR (runs.state = 'failed' AND excluded.state = 'done')",
                    [row.get(name) for name in EXPORTED],
                ).rowcount
        return new

    def checkpoint_folder(self, cell: Cell, threads: int) -> Path:
        """Return where the training of a cell saves its state.

        Other code and another number of threads, which lead to other bits, have another place.
        """
        return self._checkpoints(cell) / _digest(f"{code_version()}, {threads} threads")

    def drop_checkpoints(self, cell: Cell) -> None:
        """Delete the saved state of a cell that has a result."""
        shutil.rmtree(self._checkpoints(cell), ignore_errors=True)

    def _checkpoints(self, cell: Cell) -> Path:
        return self.folder / "checkpoints" / _digest(cell_key(cell))

    def _end(self, cell: Cell, changes: str, values: list[Any]) -> bool:
        """Close a claimed row."""
        done = self._execute(
            f"UPDATE runs SET {changes}, worker = NULL, code = ?, finished_at = ? "
            "WHERE cell = ? AND state = 'running' AND worker = ?",
            [*values, code_version(), _now(), cell_key(cell), self._name],
        )
        return done.rowcount == 1

    def _open_runs(self) -> dict[str, str | None]:
        """Return the keys of the cells without an end, each with its worker if it has one."""
        return dict(
            self._execute("SELECT cell, worker FROM runs WHERE state IN ('waiting', 'running')")
        )

    def _is_alive(self, worker: str | None) -> bool:
        """Say whether there is a worker that still holds its lock."""
        if worker is None:
            return False
        path = self._lock_path(worker)
        try:
            with path.open("rb") as lock:
                if not hold_lock(lock, shared=True):
                    return True
        except FileNotFoundError:
            return False
        path.unlink(missing_ok=True)  # names are never used twice
        return False

    def _lock_path(self, worker: str) -> Path:
        return self.folder / "workers" / worker

    def _cell(self, key: str) -> Cell:
        """Return the cell of a key."""
        return cell_of(json.loads(key), str(self.folder / FILE))

    def _execute(self, command: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run one command, or say why the file cannot be used."""
        try:
            return self._database.execute(command, values)
        except sqlite3.Error as error:
            raise InputError(
                f"{self.folder / FILE} cannot be used: {error}; free some space or correct its "
                "rights, and give the same command again"
            ) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Do all of it or nothing, and nobody else anything meanwhile."""
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with suppress(InputError):  # a full disk has ended it already
                self._execute("ROLLBACK")
            raise
        self._execute("COMMIT")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
