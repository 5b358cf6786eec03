"""Kills the runner and the workers of a small study at random moments, compares the final table.

python benchmarks/study_kills.py 50

Each time the study is started again and goes on. Should it be finished before all kills are used
up, another one begins in a new folder, so that every kill hits a study at work.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

# 22 cells of a second or two.
STUDY = (
    "reproduce comparison prior-noise --datasets digits --methods ssc,mmc-u2-c,ssc-refined "
    "--seeds 0 --epochs 30 --workers 2 --json"
)


def start(store):
    """Start the study, or go on with it."""
    command = [sys.executable, "-m", "unmix.cli", *STUDY.split(), "--store", str(store)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def table_of(runner, store):
    """Let the study end and return what it prints: errors over seeds, no times."""
    for _ in range(3):  # a cell given up after five deaths gets its next chance
        output, _ = runner.communicate()
        if runner.returncode == 0:
            break
        runner = start(store)
    return json.loads(output)


def workers_of(runner):
    """Return the process numbers of the workers."""
    try:
        text = Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text()
    except OSError:  # it has just ended
        return []
    return [int(number) for number in text.split()]


def claims(store):
    """Return which cells are being run, and by whom."""
    try:
        with closing(sqlite3.connect(f"file:{store}/runs.sqlite?mode=ro", uri=True)) as database:
            return set(database.execute("SELECT cell, worker FROM runs WHERE state = 'running'"))
    except sqlite3.Error:  # not created yet
        return set()


def kill_once(runner, store, before, moments, tally):
    """Kill the runner or a worker some time after a cell was begun."""
    while not claims(store) - before and runner.poll() is None:
        time.sleep(0.02)
    time.sleep(moments.uniform(0.0, 2.0))
    whom, victims = "worker", workers_of(runner)
    if moments.random() < 0.5 or not victims:
        whom, victims = "runner", [runner.pid]
    if runner.poll() is not None:
        return
    try:
        os.kill(moments.choice(victims), signal.SIGKILL)
    except ProcessLookupError:  # the worker has just left
        return
    tally[whom] += 1
    if whom == "runner":
        runner.wait()


def disturbed_tables(kills, folder, moments, tally):
    """Kill so many times; yield the table of every study that was finished in the end."""
    number = 0
    while tally.total() < kills:
        number += 1
        store = folder / f"cut-{number}"
        before, runner = set(), start(store)
        while tally.total() < kills:
            kill_once(runner, store, before, moments, tally)
            if runner.poll() == 0:
                break
            if runner.poll() is not None:
                runner.stdout.close()
                before, runner = claims(store), start(store)
        yield table_of(runner, store)


def main(kills=50):
    moments, tally = random.Random(0), Counter()
    with tempfile.TemporaryDirectory() as name:
        store = Path(name) / "whole"
        whole = table_of(start(store), store)
        tables = list(disturbed_tables(kills, Path(name), moments, tally))
        leftovers = list(Path(name).glob("*/checkpoints/*"))
    places = [entry for entries in whole["studies"].values() for entry in entries]
    complete = all(entry["mean"] is not None for entry in places)
    same = [table == whole for table in tables]
    print(
        f"{tally['runner']} kills of the runner and {tally['worker']} of workers over "
        f"{len(tables)} studies of {len(places)} places; undisturbed study complete: {complete}; "
        f"tables identical: {all(same)}; checkpoints left: {len(leftovers)}"
    )
    sys.exit(not (complete and all(same)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
