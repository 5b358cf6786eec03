import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

from unmix.errors import InputError
from unmix.studies import runner, worker
from unmix.studies.cell import Cell, run_cell
from unmix.studies.runner import check_cells, run_study
from unmix.studies.store import RunStore

SMALL = {"epochs": 2, "scale": 0.3, "held_out": 0.1}
CELLS = [Cell("digits", seed=seed, **SMALL) for seed in range(3)]
COMMAND = "reproduce supervised --datasets digits --seeds 0,1,2 --epochs 60 --workers 2 --json"


def without_times(result):
    """Return a result without what differs from run to run."""
    history = [{k: v for k, v in row.items() if k != "seconds"} for row in result["history"]]
    return {k: v for k, v in result.items() if k not in ("seconds", "code_version")} | {
        "history": history
    }


def alone(cell):
    """Run a cell here, with one thread as workers do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return without_times(run_cell(cell))
    finally:
        torch.set_num_threads(threads)


def results_of(store):
    return {cell: without_times(result) for cell, result in store.results().items()}


def test_a_killed_worker_is_replaced_and_a_failing_cell_stops_no_other(tmp_path, monkeypatch):
    started = []
    start = runner._Run._start

    def remember(run):
        start(run)
        started.append(run.workers[-1].process)

    monkeypatch.setattr(runner._Run, "_start", remember)
    broken = Cell("digits", "u2", **SMALL)  # takes two sets, and there are ten
    notes, bars = [], []

    def watch(done, total, text):
        if not bars:
            started[0].send_signal(signal.SIGKILL)
        bars.append((done, total, text))

    with RunStore(tmp_path) as store:
        failed = run_study([broken, *CELLS], store, workers=1, progress=watch, note=notes.append)
        assert len(started) == 2
        assert list(failed) == [broken]
        assert "exactly 2 sets; got 10" in failed[broken]
        assert results_of(store) == {cell: alone(cell) for cell in CELLS}
        assert store.unfinished([broken, *CELLS]) == []
    assert [note.split("]")[0].split(",")[0] for note in notes] == ["[1/4", "[2/4", "[3/4", "[4/4"]
    assert "digits, u2, 10 sets, seed 0: failed: " in notes[0]
    assert "digits, ssc, 10 sets, seed 0: test error" in notes[1]
    assert bars[-1][:2] == (400, 400)
    assert list((tmp_path / "checkpoints").iterdir()) == []


def processes_with(text):
    """Return the numbers of the processes whose environment holds a text."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if text.encode() in file.read():
                    found.append(int(name))
        except OSError:
            continue
    return found


def test_a_killed_runner_takes_its_workers_along_and_the_next_one_goes_on(tmp_path):
    args = [sys.executable, "-m", "unmix.cli", *COMMAND.split(), "--store", str(tmp_path / "runs")]
    mark = f"MARK={tmp_path}"
    first = subprocess.Popen(args, env=os.environ | {"MARK": str(tmp_path)})
    workers = tmp_path / "runs" / "workers"
    with first:
        while not workers.exists() or len(list(workers.iterdir())) < 2:
            assert first.poll() is None
            time.sleep(0.01)
        first.send_signal(signal.SIGKILL)
    until = time.monotonic() + 60
    while processes_with(mark):
        assert time.monotonic() < until, "workers outlive their runner"
        time.sleep(0.05)
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    assert '"failed": {}' in done.stdout
    with RunStore(tmp_path / "runs", create=False) as store:
        results = results_of(store)
    assert [cell.seed for cell in results] == [1, 2, 0]
    cell = next(iter(results))
    assert results[cell] == alone(cell)


def test_two_runners_share_a_store_and_no_cell_is_lost_or_run_twice(tmp_path):
    cells = [Cell("digits", seed=seed, **SMALL) for seed in range(8)]
    notes = []

    def run():
        with RunStore(tmp_path) as store:
            run_study(cells, store, workers=1, note=notes.append)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(note.split("seed ")[1][0] for note in notes) == list("01234567")
    with RunStore(tmp_path, create=False) as store:
        assert list(store.results(cells)) == cells


def test_a_cell_that_kills_its_worker_every_time_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "MOST_DEATHS", 1)
    notes = []
    with RunStore(tmp_path) as store:
        store.add(CELLS[:1])
        run = runner._Run(CELLS[:1], store, 1, None, None, notes.append)
        monkeypatch.setattr(run, "_start", lambda: notes.append("started"))
        with RunStore(tmp_path) as other:
            other.claim(CELLS[:1])
        dead = subprocess.Popen(["sleep", "60"])
        dead.kill()
        run.workers.append(runner._Worker(dead, cell=0))
        run._worker_died(run.workers[0])
        assert "died 1 times, with exit code -9" in store.failures()[CELLS[0]]
    assert "is memory short?" in notes[0]
    assert notes[1] == "started"


def test_a_cell_that_fails_keeps_its_saved_state_until_it_has_a_result(tmp_path, monkeypatch):
    def full_disk(*_, **__):
        raise OSError("no space left")

    (cell,) = CELLS[:1]
    with RunStore(tmp_path) as store:
        saved = store.checkpoint_folder(cell, torch.get_num_threads())
        saved.mkdir(parents=True)
        result = {"test_error": 0.1, "seconds": 1.0, "with_replacement": 0, "history": []}
        for run, kept in ((full_disk, True), (lambda *_, **__: result, False)):
            monkeypatch.setattr("unmix.studies.cell.run_cell", run)
            store.add([cell])
            assert store.claim([cell]) == cell
            worker._run(cell, 0, store, None)
            assert saved.exists() == kept
        assert store.results()[cell]["test_error"] == 0.1


def test_what_cannot_run_is_named_before_anything_starts(tmp_path):
    with RunStore(tmp_path / "runs") as store:
        for cells, words in [
            ([Cell("mnist"), Cell("digits"), Cell("kmnist")], "mnist, kmnist; run `unmix data fe"),
            ([Cell("digits", "scc")], "did you mean ssc"),
            ([Cell("digits", recipe="slow")], "recipe must be one of"),
            ([Cell("digit")], "Did you mean 'digits'"),
            ([Cell("digits", "ssc-vat", epochs=1)], "ssc-vat .* needs 2 epochs or more"),
        ]:
            with pytest.raises(InputError, match=words):
                run_study(cells, store, workers=1, data_folder=tmp_path)
            assert store.claim(cells) is None
        with pytest.raises(
            InputError, match="workers and threads must lie between 1 and 1,024; got 0 and 1"
        ):
            run_study(CELLS, store, workers=0)
    check_cells([Cell("digits")])


class Nobody:
    """A pipe without a reader."""

    def write(self, text):
        raise BrokenPipeError


def test_a_worker_whose_runner_is_gone_goes_too_and_calls_no_cell_a_failure(tmp_path, monkeypatch):
    def leave(code):
        raise SystemExit(code)

    monkeypatch.setattr(worker, "_out", Nobody())
    monkeypatch.setattr(os, "_exit", leave)
    (cell,) = CELLS[:1]
    with RunStore(tmp_path) as store:
        store.add([cell])
        assert store.claim([cell]) == cell
        with pytest.raises(SystemExit):
            worker._run(cell, 0, store, None)
        assert store.failures() == {}
        assert store.unfinished([cell]) == [cell]
