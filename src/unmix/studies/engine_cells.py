"""The cells of a study on an engine: workers run them, and the run store stays with whoever asks.

A worker is told which cell is its own and says how far that is, again and again. One that was
started again begins the cell it is told of, from the last state that was saved where it can reach
the store's folder; so nobody needs to notice that it died.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unmix.errors import InputError
from unmix.plugins import loaded_files
from unmix.studies.cell import Cell
from unmix.studies.code_version import code_version
from unmix.studies.grid import cell_title
from unmix.studies.store import RunStore

__all__ = ["CellPlan", "CellWorker", "CellsOnEngine"]

NONE = -1  # in place of the number of a cell


@dataclass(frozen=True)
class NamedCell:
    """A cell as an engine names it."""

    path: str


@dataclass(frozen=True)
class CellPlan:
    """What every worker knows from the start."""

    cells: tuple[dict[str, Any], ...]
    """Their fields."""
    resume: tuple[str, ...]
    """Where the training of each saves its state."""
    store: str
    data: str | None
    threads: int
    load: tuple[str, ...]
    """Files of the user's own methods and datasets."""
    code: str

    @property
    def tables(self) -> tuple[Any, ...]:
        """The parts of the work."""
        return tuple(NamedCell(cell_title(Cell(**fields))) for fields in self.cells)

    def worker(self) -> CellWorker:
        """Return what does the work in its process."""
        from unmix.plugins import load_file

        for path in self.load:
            load_file(path)
        if code_version() != self.code:
            raise InputError(
                f"a worker has other code ({code_version()} and not {self.code}); install the same "
                "version on all machines"
            )
        return CellWorker(self)


@dataclass
class CellWorker:
    """Runs one cell at a time, in a thread, so that it can be asked meanwhile."""

    plan: CellPlan
    number: int = NONE
    share: float = 0.0
    text: str = ""
    ended: dict[str, Any] = field(default_factory=dict)

    def look(self, worker: int, numbers: np.ndarray[Any, Any]) -> dict[str, Any]:
        """Say how far the worker's own cell is; begin it if it is another than before."""
        number = int(numbers[worker])
        begun = number != self.number
        if begun:
            self.number, self.share, self.text, self.ended = number, 0.0, "", {}
            if number != NONE:
                threading.Thread(target=self._run, args=[number], daemon=True).start()
        if number == NONE:
            return {}
        return {"begun": begun, "share": self.share, "text": self.text} | self.ended

    def _run(self, number: int) -> None:
        """Run a cell; what comes of it is told when somebody asks."""
        import torch

        from unmix.studies.cell import run_cell

        plan = self.plan
        torch.set_num_threads(plan.threads)
        try:
            found = run_cell(
                Cell(**plan.cells[number]),
                data_folder=plan.data,
                resume=Path(plan.resume[number]) if os.path.isdir(plan.store) else None,
                progress=self._tell,
            )
        except Exception as error:
            self.ended = {"failed": f"{type(error).__name__}: {error}"}
        else:
            self.ended = {"result": found}

    def _tell(self, done: int, total: int | None, text: str) -> None:
        self.share, self.text = done / (total or 1), text


class CellsOnEngine:
    """The cells that an engine's workers are at.

    Parameters
    ----------
    cells : sequence of Cell
    store : RunStore
    engine : Engine
    threads : int
        Of each worker.
    data_folder : path, optional
        On every machine.
    most_deaths : int
        Of workers in one cell, after which it has failed.
    """

    def __init__(
        self,
        cells: list[Cell],
        store: RunStore,
        engine: Any,
        *,
        threads: int,
        data_folder: str | Path | None,
        most_deaths: int,
    ) -> None:
        self._cells, self._store, self._engine = cells, store, engine
        plan = CellPlan(
            tuple(asdict(cell) for cell in cells),
            tuple(os.path.abspath(store.checkpoint_folder(cell, threads)) for cell in cells),
            os.path.abspath(store.folder),
            None if data_folder is None else os.path.abspath(data_folder),
            threads,
            tuple(os.path.abspath(path) for path, _ in loaded_files()),
            code_version(),
        )
        engine.start(plan)
        self.numbers = np.full(len(engine.addresses()), NONE)
        self._most_deaths = most_deaths
        self._begun: Counter[int] = Counter()

    def hand_out(self, left: list[Cell]) -> bool:
        """Give cells to workers that have none; say whether any worker has one."""
        for worker in np.flatnonzero(self.numbers == NONE):
            cell = self._store.claim(left)
            if cell is None:
                break
            self.numbers[worker] = self._cells.index(cell)
        return bool((self.numbers != NONE).any())

    def look(self) -> list[dict[str, Any]]:
        """Return what each worker says of its cell, and write what has ended to the store."""
        found = self._engine.each("look", len(self.numbers), self.numbers)
        told = []
        for worker, said in enumerate(found):
            number = int(self.numbers[worker])
            if number == NONE:
                continue
            cell = self._cells[number]
            self._begun[number] += said["begun"]
            if self._begun[number] > self._most_deaths:
                said = {"failed": f"its process died {self._most_deaths} times"}
            if "result" in said:
                result = said.pop("result")
                self._store.finish(cell, result)
                said |= {"test_error": result["test_error"], "seconds": result["seconds"]}
                self._store.drop_checkpoints(cell)
                del said["share"]
            elif "failed" in said:
                self._store.fail(cell, said["failed"])
                said.pop("share", None)
            if "share" not in said:
                self.numbers[worker] = NONE
            told.append(said | {"cell": number, "worker": worker})
        return told
