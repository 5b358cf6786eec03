import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from unmix.cli import main
from unmix.data.benchmark_files import load_benchmark
from unmix.report import curves
from unmix.studies.cell import Cell, run_cell


def run(*args):
    return CliRunner().invoke(main, args)


def test_train_prints_the_test_error():
    result = run("train", "digits", "--num-sets", "5", "--epochs", "2", "--threads", "1")
    assert result.exit_code == 0
    assert result.output.startswith("digits, ssc, 5 sets, seed 0: test error ")


def test_train_json_is_one_object_with_the_promised_keys():
    result = run("train", "digits", "--epochs", "3", "--json", "--seed", "1", "--threads", "1")
    record = json.loads(result.output)
    promised = {"dataset", "method", "num_sets", "seed", "epochs", "test_error", "seconds"}
    assert promised | {"history"} <= set(record)
    assert (record["dataset"], record["seed"], record["epochs"]) == ("digits", 1, 3)
    assert 0 < record["test_error"] < 0.5
    assert [row["epoch"] for row in record["history"]] == [1, 2, 3]
    assert record["history"][-1]["test_error"] == record["test_error"]


def test_train_resumes_where_it_stopped(tmp_path):
    args = ("train", "digits", "--epochs", "4", "--json", "--threads", "1")
    whole = json.loads(run(*args).output)
    first = json.loads(run(*args, "--resume", str(tmp_path)).output)
    again = json.loads(run(*args, "--resume", str(tmp_path)).output)
    errors = [[row["test_error"] for row in r["history"]] for r in (whole, first, again)]
    assert errors[0] == errors[1] == errors[2]


def test_a_folder_of_another_run_is_refused(tmp_path):
    run("train", "digits", "--epochs", "1", "--resume", str(tmp_path), "--threads", "1")
    other = run("train", "digits", "--epochs", "2", "--resume", str(tmp_path), "--threads", "1")
    assert other.exit_code == 2
    assert "epochs is 1 there, 2 here" in other.output


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["train", "digit"], "Did you mean 'digits'?"),
        (["train", "digits", "--method", "scc"], "did you mean ssc?"),
        (["train", "digits", "--method", "u2"], "exactly 2 sets; got 10"),
        (["train", "digits", "--num-sets", "1"], "at least 2 sets"),
        (["train", "digits", "--recipe", "slow"], "fast, paper"),
        (["train", "digits", "--epochs", "0"], "epochs must lie between 1"),
        (["train", "digits", "--model", "resnet32"], "takes images"),
        (["train", "digits", "--device", "abacus"], "device 'abacus'"),
        (["train", "digits", "--prior-noise", "2"], "prior_noise must lie between 0 and 1"),
        (["train", "digits", "--num-sets", "5000"], "5000 sets need at least 5000 rows"),
        (["train", "mnist", "--data", "/nowhere"], "unmix data fetch mnist"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_code_2(args, words):
    result = run(*args)
    assert result.exit_code == 2
    lines = result.output.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("unmix: ")
    assert words in lines[0]


def test_debug_shows_the_traceback():
    result = run("--debug", "train", "digit")
    assert result.exception is not None
    assert not isinstance(result.exception, SystemExit)


def test_methods_lists_every_method():
    assert set(json.loads(run("methods", "--json").output)) >= {"ssc", "llp-vat", "mmc-u2-c"}
    assert "surrogate set classification" in run("methods").output


def test_data_says_which_benchmarks_are_here(tmp_path):
    rows = json.loads(run("data", "--json", "--data", str(tmp_path)).output)
    present = {row["dataset"]: row["present"] for row in rows}
    assert present["digits"]
    assert not present["mnist"]
    assert "not in" in run("data", "--data", str(tmp_path)).output


def test_the_demo_beats_chance_and_draws_its_picture(tmp_path):
    result = run("demo", "--output", str(tmp_path / "out"))
    assert result.exit_code == 0
    assert "Test error without a single label" in result.output
    assert "effective number of labels is about" in result.output
    picture = (tmp_path / "out" / "learning-curve.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 5_000


def test_the_curve_of_the_demo_does_not_end_above_its_best_point(monkeypatch, tmp_path):
    drawn = {}

    def plot(curves, **options):
        drawn.update(curves)
        return SimpleNamespace(savefig=lambda file, **_: Path(file).write_bytes(b""))

    monkeypatch.setattr(curves, "plot_learning_curves", plot)
    assert run("demo", "--output", str(tmp_path)).exit_code == 0
    errors = [epoch["test_error"] for epoch in next(iter(drawn.values()))]
    assert errors[-1] <= min(errors) + 0.005  # 5 of 1,000 test digits hang on chance


def test_on_digits_ten_sets_come_near_the_labels():
    ours, labeled = (
        run_cell(Cell("digits", method))["test_error"] for method in ("ssc", "supervised")
    )
    assert labeled < 0.05
    assert ours < 0.12


def test_the_command_is_installed_and_prints_help_in_plain_words():
    done = subprocess.run(
        [sys.executable, "-m", "unmix.cli", "--help"], capture_output=True, text=True, check=True
    )
    for command in ("train", "demo", "data", "methods"):
        assert command in done.stdout


def test_held_out_selection_reports_an_epoch_chosen_without_labels():
    result = run_cell(Cell("digits", epochs=4, held_out=0.2))
    losses = [row["held_out_loss"] for row in result["history"]]
    assert result["selected_epoch"] == 1 + losses.index(min(losses))
    assert load_benchmark("digits").target_prior == 0.5
