"""Processes that are stopped, short of a stream, or started in a folder of somebody else's."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from test_cli_mistakes import fitted, place  # noqa: F401  (fixtures)
from unmix import UnmixClassifier
from unmix.errors import InputError
from unmix.studies.runner import WORKER

UNMIX = [sys.executable, "-P", "-m", "unmix.cli"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_predict_that_is_stopped_leaves_nothing(number):
    table = pd.concat([pd.read_csv("rows.csv")] * 20_000, ignore_index=True)
    table.to_parquet("many.parquet")
    before = sorted(os.listdir())
    command = [*UNMIX, "predict", "old", "many.parquet", "-o", "scores.csv", "--keep", "all"]
    told = signal.signal(number, signal.SIG_DFL)  # a run under nohup hands down that it is deaf
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    signal.signal(number, told)
    end = time.monotonic() + 60
    while sorted(os.listdir()) == before and time.monotonic() < end:
        time.sleep(0.01)
    assert sorted(os.listdir()) != before  # it has begun to write
    process.send_signal(number)
    _, words = process.communicate()
    assert process.returncode == 128 + number
    assert words == "unmix: stopped\n"
    assert sorted(os.listdir()) == before


def test_a_signal_that_is_ignored_on_purpose_stays_ignored():
    code = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from unmix.cli.group import _stopped_by_signals\n"
        "with _stopped_by_signals():\n"
        "    print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN,\n"
        "          signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)\n"
        "print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "True"]


@pytest.mark.parametrize("closed", ["2>&-", "2>&- <&-", ">&- 2>&- <&-"])
def test_a_fit_without_standard_streams_works_all_the_same(closed):
    quick = "--model linear --method ssc --held-out 0 --drop sick"
    line = f"fit rows.csv --sets region --priors rates.csv -o model {quick} {closed}"
    command = " ".join([*UNMIX, line])
    done = subprocess.run(["sh", "-c", command], check=False)
    assert done.returncode == 0
    UnmixClassifier.load("model")


def test_a_wrong_backend_of_matplotlib_disturbs_no_report():
    quick = ["--model", "linear", "--method", "ssc", "--drop", "sick"]
    files = ["rows.csv", "--sets", "region", "--priors", "rates.csv", "-o", "model"]
    command = [*UNMIX, "fit", *files, *quick]
    environment = os.environ | {"MPLBACKEND": "no such thing"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path("model/report.html").exists()


def test_a_worker_runs_no_code_of_the_working_folder(tmp_path):
    for name in ("torch.py", "numpy.py", "json.py", "unmix.py"):
        (tmp_path / name).write_text("raise SystemExit('a stranger ran')")
    job = {"load": [], "threads": 1, "cells": [], "store": str(tmp_path / "runs"), "data": None}
    done = subprocess.run(
        WORKER, cwd=tmp_path, input=json.dumps(job) + "\n", capture_output=True, text=True
    )
    # Standard input closes before it is done: it may leave with its runner.
    assert "a stranger ran" not in done.stderr
    assert "SystemExit" not in done.stderr


@pytest.mark.parametrize(
    ("argument", "value", "words"),
    [
        ("epochs", 1.5, "epochs must be a whole number of 1 or more, or None; got 1.5"),
        ("epochs", "3", "epochs must be a whole number of 1 or more, or None; got '3'"),
        ("epochs", 0, "epochs must be a whole number"),
        ("epochs", True, "epochs must be a whole number"),
        ("l2", "0.1", "l2 must be a finite number of 0 or more, or None; got '0.1'"),
        ("l2", float("nan"), "l2 must be a finite number"),
        ("l2", -1, "l2 must be a finite number"),
        ("shift", 0.5, "shift must be a whole number of 0 or more"),
        ("flip", "no", "flip must be True or False; got 'no'"),
        ("hide_sets", "no", "hide_sets must be True, False or None"),
        ("allow_set_feature", 1, "allow_set_feature must be True or False"),
        ("prior_error", 5, "prior_error must be a standard error between 0 and 0.5"),
        ("prior_error", "0.1", "prior_error must be"),
        ("prior_error", float("nan"), "prior_error must be a standard error"),
        ("target_prior", "0.3", "target_prior must be numbers; got '0.3'"),
        ("target_prior", float("nan"), "target_prior must lie strictly between 0 and 1"),
        ("target_prior", [0.5, "0.5"], "target_prior must be numbers"),
        ("hidden", "2x64", "hidden"),
        ("method", "magic", "method must be"),
        ("model", "forest", "model must be"),
    ],
)
def test_an_argument_of_another_kind_is_refused_by_name(argument, value, words):
    x, sets = np.arange(40.0)[:, None], np.repeat(["a", "b"], 20)
    options = {"model": "linear", "method": "ssc"} | {argument: value}
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        UnmixClassifier({"a": 0.2, "b": 0.8}, **options).fit(x, sets)
