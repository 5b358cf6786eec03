"""Options that nobody can mean, and memory that is short: one line, and nothing half-written."""

import hashlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from test_flower import PYTHON, ROOT
from unmix.cli import main
from unmix.cli.group import OneLineErrors
from unmix.studies.cell import Cell
from unmix.studies.store import RunStore

STUDY = ("reproduce", "comparison", "--datasets", "digits", "--methods", "ssc", "--seeds", "0")
STUDY += ("--epochs", "1", "--num-sets", "10", "--workers", "1")
FIT = ("--sets", "region", "--priors", "rates.csv", "--model", "linear", "--method", "ssc")
TRY = ("federated", "try", "north", "south", "--rows", "rows.csv", "--sets", "region")
TRY += ("--priors", "rates.csv", "--method", "ssc", "--l2", "1e-3", "--resamples", "0")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Two owners with two sets each, all rows in one table, and things that are in the way."""
    monkeypatch.chdir(tmp_path)
    rng, shares = np.random.default_rng(0), {"a": 0.2, "b": 0.5, "c": 0.8, "d": 0.4}
    region = np.repeat(list(shares), 150)
    sick = rng.random(600) < np.array([shares[name] for name in region])
    table = pd.DataFrame({"x": rng.normal(2.0 * sick).round(3), "region": region})
    rates = pd.Series(shares, name="share").rename_axis("region")
    table.to_csv("rows.csv", index=False)
    rates.to_csv("rates.csv")
    for name, own in {"north": ["a", "b"], "south": ["c", "d"]}.items():
        Path(name).mkdir()
        table[table["region"].isin(own)].to_csv(f"{name}/rows.csv", index=False)
        rates[own].to_csv(f"{name}/rates.csv")
    Path("file.txt").write_text("mine")
    Path("folder").mkdir()
    Path("folder/report.html").write_text("mine")
    Path("bytes.jsonl").write_bytes(bytes(range(256)))
    Path("deep.jsonl").write_text("[" * 100_000 + "\n")
    Path("words.jsonl").write_text('{"no": 1}\nnot json\n')
    os.symlink("nowhere", "dangling")
    os.mkfifo("pipe")


def everything():
    """Return every file below the working folder with its digest, and every folder."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in Path().rglob("*")
    }


def refused(*args):
    """Return the one line of a command that refuses something, and changes nothing."""
    before = everything()
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 2, (result.exception, result.output)
    told = [line for line in result.stderr.splitlines() if line.startswith("unmix: ")]
    assert len(told) == 1, result.stderr
    assert "Traceback" not in result.output
    made = {name for name in everything() if name not in before}
    assert all(name.split("/")[0] == "runs" for name in made), made  # a store may have begun
    assert everything().items() >= before.items()
    return told[0]


OF_STUDIES = [
    ("--datasets", "nope", "there is no benchmark 'nope'"),
    ("--datasets", "../digits", "there is no benchmark '../digits'"),
    ("--datasets", "\x1b[31m", "there is no benchmark '\\x1b[31m'"),
    ("--methods", "nope", "comparison has no method 'nope'"),
    ("--methods", ",", "no cell is left of comparison"),
    ("--seeds", "", "is no list of whole numbers"),
    ("--seeds", "-1", "is no list of whole numbers"),
    ("--seeds", "0,,1", "is no list of whole numbers"),
    ("--seeds", "4294967296", "seed must lie between 0 and 4,294,967,295; got 4294967296"),
    ("--num-sets", "7", "no cell is left of comparison"),
    ("--num-sets", "-10", "is no list of whole numbers"),
    ("--recipe", "../fast", "recipe must be one of fast, paper"),
    ("--epochs", "0", "epochs must lie between 1 and 1,000,000; got 0"),
    ("--epochs", "1.5", "is not a valid integer"),
    ("--scale", "0", "is not in the range 0<x<=1"),
    ("--scale", "nan", "scale must lie between 1e-06 and 1; got nan"),
    ("--workers", "-1", "workers and threads must lie between 1 and 1,024"),
    ("--workers", "99999999999999999999", "workers and threads must lie between 1 and 1,024"),
    ("--threads", "0", "workers and threads must lie between 1 and 1,024"),
    ("--threads", "100000", "workers and threads must lie between 1 and 1,024"),
    ("--threads", "99999999999999999999", "workers and threads must lie between 1 and 1,024"),
    ("--store", "file.txt", "file.txt"),
    ("--store", "file.txt/x", "file.txt/x"),
    ("--store", "dangling", "dangling"),
    ("--store", "/proc/x", "/proc/x"),
    ("--import", "nope.jsonl", "nope.jsonl"),
    ("--import", "words.jsonl", "words.jsonl, line 1 is no exported run"),
    ("--import", "bytes.jsonl", "bytes.jsonl is no export of runs"),
    ("--import", "deep.jsonl", "deep.jsonl, line 1 is no exported run"),
    ("--import", "pipe", "cannot read pipe: it is a pipe or a device"),
    ("--import", "/dev/zero", "cannot read /dev/zero: it is a pipe or a device"),
    ("--import", "folder", "folder"),
    ("--export", "file.txt", "it exists and does not end in .jsonl"),
    ("--export", "folder", "folder"),
    ("--export", "nowhere/x.jsonl", "nowhere"),
    ("--report", "file.txt", "--report file.txt is a file"),
    ("--engine", "nope", "nope"),
    ("--timeout", "0", "--timeout"),
]


@pytest.mark.parametrize(("option", "value", "words"), OF_STUDIES)
def test_an_option_of_a_study_that_nobody_can_mean_is_named(option, value, words):
    assert words in refused(*STUDY, option, value)


DAMAGE = [
    *((name, 10**40) for name in ("finished_at", "code", "seconds", "with_replacement", "error")),
    *((name, {}) for name in ("finished_at", "code", "seconds", "with_replacement", "result")),
    *(("seconds", value) for value in (float("nan"), -1, "x", None)),
    ("with_replacement", 1.5),
    ("state", "running"),
    ("state", None),
    ("cell", None),
    ("cell", "digits"),
    ("cell", {"dataset": "digits", "epochs": 10**40}),
    ("result", {"test_error": 2.0, "history": {"epoch": [1]}}),
    ("result", {"test_error": "x", "history": {"epoch": [1]}}),
    ("result", {"test_error": 0.5, "history": {}}),
]


@pytest.mark.parametrize(("name", "value"), DAMAGE)
def test_a_line_of_an_export_that_is_no_run_is_named_and_nothing_imported(name, value):
    result = {"test_error": 0.5, "history": {"epoch": [1], "loss": [0.1]}}
    run = {"cell": {"dataset": "digits", "epochs": 1}, "state": "done", "code": "x"}
    run |= {"finished_at": "2026-01-01T00:00:00+00:00", "seconds": 1.5, "with_replacement": 0}
    good = json.dumps(run | {"result": result})
    Path("in.jsonl").write_text(good + "\n")
    with RunStore("good") as store:
        assert store.import_("in.jsonl") == 1
        assert store.results()[Cell("digits", epochs=1)]["test_error"] == 0.5
    Path("in.jsonl").write_text(f"{good}\n{json.dumps(run | {'result': result} | {name: value})}\n")
    line = refused(*STUDY, "--report-only", "--import", "in.jsonl")
    assert "line 2" in line
    with RunStore("runs") as store:
        assert not store.results()


def test_a_store_that_is_damaged_is_called_no_store():
    with RunStore("runs") as store:
        store.add([Cell("digits", epochs=i + 1) for i in range(200)])
    whole = Path("runs/runs.sqlite").read_bytes()
    Path("runs/runs.sqlite").write_bytes(whole[:5000])
    before = everything()
    line = refused(*STUDY, "--report-only")
    assert "is no run store: database disk image is malformed; choose another folder" in line
    assert everything() == before


OF_PARTIES = [
    ("--rows", "nope.csv", "north/nope.csv"),
    ("--rows", "/dev/zero", "/dev/zero"),
    ("--priors", "nope.csv", "north/nope.csv"),
    ("--priors", "rows.csv", "rows.csv"),
    ("--sets", "nope", "nope"),
    ("--sets", "\x1b[2J", "\\x1b[2J"),
    ("--l2", "-1", "--l2"),
    ("--l2", "nan", "l2"),
    ("--method", "nope", "nope"),
    ("--method", "", "method"),
    ("--model", "boosting", "--model"),
    ("--resamples", "-1", "--resamples"),
    ("--held-out", "1", "--held-out"),
    ("--held-out", "nan", "held"),
    ("--seed", "-1", "--seed"),
    ("--target-prior", "1.5", "1.5"),
    ("--target-prior", "a=0.2", "a"),
    ("--least-rows", "0", "--least-rows"),
    ("--least-rows", "100000000", "100,000,000"),
    ("--epsilon", "0", "--epsilon"),
    ("--epsilon", "nan", "epsilon"),
    ("--answers", "99999", "--answers"),
    ("--drop", "nope", "nope"),
    ("--figures", "file.txt", "file.txt"),
    ("--figures", "dangling", "cannot write figures to dangling: a file has that name"),
    ("--figures", "model", "--figures model lies in the folder of the model, model"),
    ("--figures", "model/pictures", "lies in the folder of the model, model"),
    ("--figure-format", "nope", "--figure-format"),
    ("--rates-are", "nope", "--rates-are"),
    ("-o", "file.txt", "file.txt"),
    ("-o", "folder", "folder"),
    ("-o", "north", "north"),
    ("-o", ".", "."),
    ("-o", "/", "/"),
    ("-o", "pipe", "pipe"),
    ("-o", "file.txt/x", "file.txt"),
]


@pytest.mark.parametrize(("option", "value", "words"), OF_PARTIES)
@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
def test_an_option_of_a_fit_together_that_nobody_can_mean_is_named(option, value, words, overwrite):
    if overwrite and option != "-o":
        pytest.skip("overwriting is about -o")
    output = () if option == "-o" else ("-o", "model")
    assert words in refused(*TRY, *output, option, value, *overwrite)


@pytest.mark.parametrize("figures", ["model", "model/pictures", "file.txt", "dangling"])
def test_figures_that_have_no_place_are_refused_before_a_fit(figures, monkeypatch):
    monkeypatch.setattr("unmix.learn.table_source.TableSource.open", None)  # nothing is read
    line = refused("fit", "rows.csv", *FIT, "-o", "model", "--figures", figures)
    assert figures in line


def test_errors_that_say_that_memory_is_short_are_told_as_that(monkeypatch):
    for error in (
        MemoryError(),
        OSError(12, "Cannot allocate memory"),
        ImportError("libx.so: failed to map segment from shared object"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("can't start new thread"),
    ):

        def run(*_, error=error):
            raise error

        monkeypatch.setattr("click.Group.invoke", run)
        result = CliRunner().invoke(main, ["methods"])
        assert isinstance(main, OneLineErrors)
        assert result.exit_code == 2
        assert result.stderr == (
            "unmix: memory is short; free some, or take a machine that has more\n"
        )


OF_JOINING = [
    ("--code-file", "bytes.jsonl", "bytes.jsonl is no text"),
    ("--code-file", "pipe", "cannot read pipe: it is a pipe or a device"),
    ("--code-file", "/dev/zero", "cannot read /dev/zero: it is a pipe or a device"),
    ("--code-file", "folder", "folder"),
    ("--code-file", "nope", "nope"),
    ("--timeout", "nan", "nan is no number of seconds"),
    ("--timeout", "inf", "inf is no number of seconds"),
    ("--timeout", "0", "--timeout"),
    ("--server", "", "'' is no address"),
    ("--server", "x:99999", "'x:99999' is no address"),
    ("--server", "http://x", "'http://x' is no address"),
]


@pytest.mark.skipif(PYTHON is None, reason="Flower is not here: make .venv-federated")
@pytest.mark.parametrize(("option", "value", "words"), OF_JOINING)
def test_an_option_of_a_party_that_nobody_can_mean_is_named(option, value, words):
    join = ("federated", "join", "north/rows.csv", "--sets", "region", "--priors")
    paths = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    before = everything()
    done = subprocess.run(
        [str(PYTHON), "-m", "unmix.cli", *join, "north/rates.csv", option, value],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert done.returncode == 2, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("unmix: ")]
    assert len(told) == 1, done.stderr
    assert words in told[0]
    assert "Traceback" not in done.stderr
    assert everything() == before


@pytest.mark.parametrize("model", ["/", "folder", "file.txt", "nope", ""])
@pytest.mark.parametrize("command", ["predict", "export", "evaluate", "prevalence"])
def test_what_is_no_model_is_refused_by_every_command(model, command):
    words = {
        "predict": ("predict", model, "rows.csv", "-o", "scores.csv"),
        "export": ("export", model, "--sql"),
        "evaluate": ("evaluate", model, "rows.csv", *FIT[:4]),
        "prevalence": ("prevalence", model, "rows.csv", "--by", "region"),
    }
    refused(*words[command])


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
@pytest.mark.parametrize("megabytes", [250, 350])
@pytest.mark.parametrize("command", ["fit", "predict"])
def test_a_command_that_gets_no_memory_says_so_and_leaves_nothing(command, megabytes):
    words = ["fit", "rows.csv", *FIT, "-o", "model"]
    if command == "predict":
        words = ["predict", "model", "rows.csv", "-o", "scores.csv"]
    before = everything()

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    done = subprocess.run(
        [sys.executable, "-m", "unmix.cli", *words],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        timeout=300,
        env=os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    )
    assert done.returncode == 2, done.stderr
    told = "unmix: memory is short; free some, or take a machine that has more\n"
    assert done.stderr == told
    assert everything() == before
