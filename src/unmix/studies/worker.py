"""One worker process of a study: takes cells from the run store, one after the other.

Started by `runner`, which writes the job as one JSON line to its standard input and keeps that
open: when it closes, the runner is gone and the worker goes too. What happens is told on standard
output, one JSON line each. The result goes straight into the store.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from unmix.errors import InputError

if TYPE_CHECKING:
    from unmix.studies.cell import Cell
    from unmix.studies.store import RunStore

TELL_EVERY = 0.5  # seconds between two words about progress
LOOK_EVERY = 1.0  # seconds until looking again whether another process left its cell behind

_out: Any = None  # where the runner listens; None: standard output


def main() -> None:
    """Do the job on standard input."""
    global _out
    job = json.loads(sys.stdin.readline())
    # Standard output belongs to the runner, whatever a method of the user's own may print.
    _out, sys.stdout = sys.stdout, sys.stderr
    threading.Thread(target=_leave_with_runner, daemon=True).start()

    import torch

    from unmix.plugins import load_file
    from unmix.studies.cell import Cell
    from unmix.studies.code_version import code_version
    from unmix.studies.store import RunStore

    for path in job["load"]:
        load_file(path)
    code_version()  # of the code as it was loaded, should a file change meanwhile
    torch.set_num_threads(job["threads"])
    cells = [Cell(**fields) for fields in job["cells"]]
    try:
        with RunStore(job["store"]) as store:
            while left := store.unfinished(cells):
                cell = store.claim(left)
                if cell is None:
                    time.sleep(LOOK_EVERY)
                else:
                    _run(cell, cells.index(cell), store, job["data"])
    except InputError as error:  # the store cannot be written: no cell can be run
        _tell(stopped=str(error))


def _run(cell: Cell, number: int, store: RunStore, data_folder: str | None) -> None:
    """Run a claimed cell and record its result or its failure."""
    import torch

    from unmix.studies.cell import run_cell

    told = 0.0

    def progress(done: int, total: int | None, text: str) -> None:
        nonlocal told
        if time.monotonic() - told > TELL_EVERY:
            told = time.monotonic()
            _tell(cell=number, share=done / (total or 1), text=text)

    _tell(cell=number, share=0.0, text="")
    resume = store.checkpoint_folder(cell, torch.get_num_threads())
    try:
        result = run_cell(cell, data_folder=data_folder, resume=resume, progress=progress)
    except Exception as error:
        # Its saved state stays: a full disk or short memory may have passed at the next attempt.
        store.fail(cell, f"{type(error).__name__}: {error}")
        _tell(cell=number, failed=str(error))
    else:
        store.finish(cell, result)
        _tell(cell=number, test_error=result["test_error"], seconds=result["seconds"])
        store.drop_checkpoints(cell)


def _tell(**message: Any) -> None:
    """Tell the runner; if it is gone, go too, and call no cell a failure for that."""
    try:
        print(json.dumps(message), file=_out, flush=True)
    except BrokenPipeError:
        os._exit(1)


def _leave_with_runner() -> None:
    """End this process at once when standard input closes; the state on disk is always whole."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
