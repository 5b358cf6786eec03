"""Runs the cells of studies in worker processes; can be killed at any moment.

Workers take cells from the run store themselves, so several runners may share a store. The runner
starts workers, replaces those that die, and tells how far they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unmix.data.benchmark_files import dataset_folder, is_present
from unmix.errors import InputError
from unmix.plugins import loaded_files
from unmix.progress import Progress
from unmix.studies.cell import Cell
from unmix.studies.grid import cell_title
from unmix.studies.store import RunStore

__all__ = ["check_cells", "run_study"]

# A cell that takes its worker down this often is not run again: memory, most likely.
MOST_DEATHS = 5
MOST = 1024  # workers, and threads of each: more take all that the machine has
ASK_EVERY = 0.5  # seconds between two questions to the workers of an engine
# Not a file of the working folder that has the name of a library (-P).
WORKER = [sys.executable, "-P", "-m", "unmix.studies.worker"]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

Note = Callable[[str], None]


@dataclass
class _Worker:
    """A worker process and what it is doing."""

    process: subprocess.Popen[str] | None = None
    """None: it belongs to an engine."""
    cell: int | None = None
    share: float = 0.0
    text: str = ""
    listener: threading.Thread | None = None

    def leave(self) -> int:
        """Wait for the end of the process and return its exit code."""
        if self.listener:
            self.listener.join()
        assert self.process is not None
        with contextlib.suppress(BrokenPipeError), self.process:
            pass  # closes the pipes and waits
        return self.process.wait()


def check_cells(cells: Iterable[Cell], data_folder: str | Path | None = None) -> None:
    """Refuse what no run can do, and data that is not there, before anything starts."""
    cells = list(cells)
    for cell in cells:
        recipe, method = cell.resolve_recipe(), cell.resolve_method()
        if method.penalty and method.penalty.candidates and recipe.epochs < 2:
            raise InputError(
                f"{cell.method} compares candidates on the way and needs 2 epochs or more; raise "
                "--epochs, or leave it out of --methods"
            )
    absent = [
        name
        for name in dict.fromkeys(cell.dataset for cell in cells)
        if not is_present(name, data_folder)
    ]
    if absent:
        raise InputError(
            f"not in {dataset_folder(absent[0], data_folder).parent}: {', '.join(absent)}; run "
            + ", ".join(f"`unmix data fetch {name}`" for name in absent)
            + ", or give the folder with --data"
        )


def run_study(
    cells: Sequence[Cell],
    store: RunStore,
    *,
    workers: int,
    threads: int = 1,
    data_folder: str | Path | None = None,
    progress: Progress | None = None,
    note: Note | None = None,
    again: bool = False,
    engine: Any = None,
) -> dict[Cell, str]:
    """Run the cells that have no result yet, in the order given.

    Parameters
    ----------
    cells : sequence of Cell
    store : RunStore
    workers : int
        Processes side by side.
    threads : int
        Of each: two trainings of one thread are faster than one of two after the other.
    data_folder : path, optional
        Folder of the datasets.
    progress : function (hundredths of cells done, in all, text), optional
    note : function of one line of text, optional
        Called when a cell has ended.
    again : bool
        Run cells again whose result another version of the code made.
    engine : Engine, optional
        Whose workers run the cells; processes of this machine if left out.

    Returns
    -------
    dict
        Why cells failed; empty if none did.
    """
    if not (1 <= workers <= MOST and 1 <= threads <= MOST):
        raise InputError(
            f"workers and threads must lie between 1 and {MOST:,}; got {workers} and {threads}"
        )
    check_cells(cells, data_folder)
    store.add(cells, again=again)
    if store.unfinished(cells):
        run = _Run(cells, store, threads, data_folder, progress, note)
        try:
            if engine is None:
                run.until_done(workers)
            else:
                run.until_done_by(engine)
        finally:
            run.stop()
    for cell in store.results(cells):
        store.drop_checkpoints(cell)  # should a worker have died between its result and this
    failures = store.failures()
    return {cell: failures[cell] for cell in cells if cell in failures}


class _Run:
    """The workers of one call of `run_study`, and what they have told."""

    def __init__(
        self,
        cells: Sequence[Cell],
        store: RunStore,
        threads: int,
        data_folder: str | Path | None,
        progress: Progress | None,
        note: Note | None,
    ) -> None:
        self.cells, self.store, self.progress, self.note = cells, store, progress, note
        self.threads, self.data_folder = threads, data_folder
        self.environment = os.environ | dict.fromkeys(THREADS, str(threads))
        self.left = store.unfinished(cells)
        self.total = len(self.left)
        self.started = time.monotonic()
        self.job = json.dumps(
            {
                "store": str(store.folder),
                "threads": threads,
                "data": None if data_folder is None else str(data_folder),
                "cells": [asdict(cell) for cell in cells],
                "load": [str(path) for path, _ in loaded_files()],
            }
        )
        self.workers: list[_Worker] = []
        self.told: queue.SimpleQueue[tuple[_Worker, str]] = queue.SimpleQueue()
        self.deaths: Counter[int | None] = Counter()

    def until_done(self, workers: int) -> None:
        """Start workers and listen to them until all have left for want of work."""
        for _ in range(min(workers, self.total)):
            self._start()
        while self.workers:
            worker, line = self.told.get()
            if line:
                self._handle_message(worker, json.loads(line))
            else:
                self._worker_died(worker)
            self._show()

    def until_done_by(self, engine: Any) -> None:
        """Hand cells to the workers of an engine, and ask these how far they are."""
        from unmix.studies.engine_cells import CellsOnEngine

        asked = CellsOnEngine(
            list(self.cells),
            self.store,
            engine,
            threads=self.threads,
            data_folder=self.data_folder,
            most_deaths=MOST_DEATHS,
        )
        self.workers = [_Worker() for _ in asked.numbers]
        while left := self.store.unfinished(self.cells):
            if asked.hand_out(left):
                for message in asked.look():
                    self._handle_message(self.workers[message["worker"]], message)
                self._show()
            time.sleep(ASK_EVERY)

    def stop(self) -> None:
        """End the workers that are left; what they saved is whole at every moment."""
        for worker in self.workers:
            if worker.process is not None:
                worker.process.kill()
                worker.leave()

    def _start(self) -> None:
        """Start a worker and a thread that listens to it."""
        process = subprocess.Popen(
            WORKER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
            start_new_session=True,  # Ctrl-C is for the runner alone
        )
        worker = _Worker(process)
        self.workers.append(worker)
        worker.listener = threading.Thread(target=self._listen, args=[worker], daemon=True)
        worker.listener.start()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died already: heard of in a moment
            process.stdin.write(self.job + "\n")
            process.stdin.flush()

    def _listen(self, worker: _Worker) -> None:
        """Pass on each line a worker tells, and an empty one when it has ended."""
        assert worker.process is not None
        assert worker.process.stdout is not None
        for line in worker.process.stdout:
            self.told.put((worker, line))
        self.told.put((worker, ""))

    def _handle_message(self, worker: _Worker, message: dict[str, Any]) -> None:
        """Take note of what a worker tells."""
        if "stopped" in message:
            raise InputError(message["stopped"])
        number = message["cell"]
        self.deaths[None] = 0  # workers do start
        if "share" in message:
            worker.cell, worker.share, worker.text = number, message["share"], message["text"]
            return
        worker.cell, worker.share = None, 0.0
        if "failed" in message:
            self._ended(number, f"failed: {message['failed']}")
        else:
            error, seconds = 100 * message["test_error"], message["seconds"]
            self._ended(number, f"test error {error:.2f} % in {seconds:.0f} s")

    def _ended(self, number: int, outcome: str) -> None:
        """Count what is left, and tell the user."""
        self.left = self.store.unfinished(self.cells)
        if self.note:
            done = len(self.cells) - len(self.left)
            to_go = f", {self._time_to_go()} to go" if self.left else ""
            title = cell_title(self.cells[number])
            self.note(f"[{done}/{len(self.cells)}{to_go}] {title}: {outcome}")

    def _worker_died(self, worker: _Worker) -> None:
        """Replace a worker that died at work; one that left had nothing more to do."""
        self.workers.remove(worker)
        code = worker.leave()
        if code == 0:
            return
        self.deaths[worker.cell] += 1
        if self.deaths[worker.cell] >= MOST_DEATHS:
            why = f"its process died {MOST_DEATHS} times, with exit code {code}"
            if code == -getattr(signal, "SIGKILL", 9):  # Windows has no name for it
                why += "; is memory short?"
            if worker.cell is None:
                raise RuntimeError(f"a worker died at its start: {why}")
            cell = self.store.claim([self.cells[worker.cell]])
            if cell is not None and self.store.fail(cell, why):
                self._ended(worker.cell, f"failed: {why}")
        self._start()

    def _show(self) -> None:
        """Move the progress bar."""
        if self.progress:
            running = [
                f"{cell_title(self.cells[w.cell])} {w.text}"
                for w in self.workers
                if w.cell is not None
            ]
            done, total = len(self.cells) - len(self.left), len(self.cells)
            percent = round(100 * (done + self._shares()))
            self.progress(percent, 100 * total, "; ".join([f"{done}/{total}", *running]))

    def _shares(self) -> float:
        """Return how much of the running cells is done, in cells."""
        return sum(worker.share for worker in self.workers)

    def _time_to_go(self) -> str:
        """Guess from the time the cells so far took."""
        done = self.total - len(self.left) + self._shares()
        seconds = (time.monotonic() - self.started) / max(done, 1e-9) * (self.total - done)
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
