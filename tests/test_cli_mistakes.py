import errno
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from unmix.cli import main
from unmix.learn.estimator import SetClassifier

SHARES = {"s1": "0.2", "s2": "0.5", "s3": "0.8"}
FIT = ("fit", "rows.csv", "--sets", "region", "--priors", "rates.csv", "-o", "model")
PREDICT = ("predict", "old", "rows.csv", "-o", "scores.csv")
EVALUATE = ("evaluate", "old", "rows.csv", "--sets", "region", "--priors", "rates.csv")
DIAGNOSE = ("diagnose", "rows.csv", "--sets", "region", "--priors", "rates.csv")
PREVALENCE = ("prevalence", "old", "rows.csv", "--sets", "region")


def run(*args):
    return CliRunner().invoke(main, args)


def contents():
    """Everything in the working folder, hidden files too: path -> bytes, None for a folder."""
    paths = Path(".").rglob("*")
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def refused(*args, code=2):
    """Return the one line of a command that fails and leaves everything as it was."""
    before = contents()
    result = run(*args)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("unmix: ")
    assert contents() == before
    return lines[0].removeprefix("unmix: ")


def rows():
    rng = np.random.default_rng(0)
    region = np.repeat(list(SHARES), 40)
    sick = rng.random(120) < np.repeat([float(p) for p in SHARES.values()], 40)
    return pd.DataFrame(
        {
            "region": region,
            "age": rng.normal(np.where(sick, 60, 40), 10).round(1),
            "colour": np.where(rng.random(120) < 0.3 + 0.4 * sick, "warm", "cold"),
            "sick": sick.astype(int),
        }
    )


def rates(**changed):
    return "region,share\n" + "".join(f"{s},{p}\n" for s, p in (SHARES | changed).items())


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    rows().to_csv(folder / "rows.csv", index=False)
    (folder / "rates.csv").write_text(rates())
    args = ("--model", "linear", "--method", "ssc", "--held-out", "0", "--drop", "sick")
    paths = (str(folder / "rows.csv"), "--priors", str(folder / "rates.csv"))
    result = run("fit", *paths, "--sets", "region", "-o", str(folder / "old"), *args)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(autouse=True)
def place(fitted, tmp_path, monkeypatch):
    """Work in a folder with rows.csv, rates.csv and an older model, `old`."""
    shutil.copytree(fitted, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (rates(s2="35"), "column 'share', set 's2': 35 is above 1; if these are percentages"),
        (rates(s2="35%"), "set 's1': '0.2' has no percent sign where others have one"),
        (rates(s2='"1,234"'), "'1,234' may be 1.234 or 1234; write decimals with a point"),
        (rates(s2="-0.1"), "set 's2': -0.1 is negative; a share lies between 0 and 1"),
        (rates(s2="inf"), "set 's2': inf is above 1"),
        (rates(s2="half"), "set 's2': 'half' is not a number; correct it"),
        (rates() + "s1,0.2\n", "set 's1' more than once, in line 2 and line 5, with the same"),
        (rates() + "s1,0.3\n", "different values ('share': '0.2' and '0.3'); keep the right one"),
        (rates(s1="0.5", s3="0.5"), "all 3 sets of rates.csv have the same prior (0.5)"),
        ("region,a,b,c\ns1,.2,.3,.4\ns2,.2,.2,.6\ns3,.1,.1,.8\n", "set 's1': the shares of the "),
        ("region,share\ns1,0.2\ns3,0.8\n", "no prior in rates.csv: 's2'; add them, or leave "),
        (rates(s4="0.4"), "1 set of rates.csv has no rows: 's4'; remove their priors or allow"),
        ("region,share\ns1,0.2\n", "at least two sets with different priors are needed"),
        ("region\ns1\ns2\ns3\n", "rates.csv has no column besides the set column; add"),
        ("area,x,share\n1,a,0.2\n2,b c,0.4\n3,a,.3\n", "rates.csv has no set column 'region'"),
        ("regions,share\n1,0.2\n2,0.4\n", "(did you mean 'regions'?)"),
        ("region,positives,total\ns1,5,4\ns2,1,2\ns3,1,4\n", "set 's1': 5 positives are more"),
        ("", "rates.csv is empty"),
    ],
)
def test_priors_that_cannot_be_meant_name_the_set_and_the_cure(text, words):
    Path("rates.csv").write_text(text)
    message = refused(*FIT)
    assert "rates.csv" in message
    assert words in message


@pytest.mark.parametrize("command", [EVALUATE, DIAGNOSE])
def test_other_commands_check_the_priors_alike(command):
    Path("rates.csv").write_text(rates(s2="35%"))
    assert "rates.csv, column 'share', set 's1': '0.2' has no percent" in refused(*command)


def test_set_ids_that_only_look_alike_are_pointed_out():
    table = rows()
    table["region"] = table["region"].str[1:]
    table.to_csv("rows.csv", index=False)
    Path("rates.csv").write_text('region,share\n"01",0.2\n"02",0.5\n"03",0.8\n')
    message = refused(*FIT)
    assert "no prior in rates.csv: '1', '2', '3'; the rows have '1' where rates.csv" in message
    assert "has '01': write them alike" in message


def with_cell(column, row, value):
    """The table with one cell changed."""
    table = rows().astype({column: object})
    table.loc[row, column] = value
    table.to_csv("rows.csv", index=False)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("inf", "holds inf in row 8; replace it by a number or an empty cell"),
        ("-Inf", "holds -inf in row 8; replace it by a number"),
        ("1e308", "holds 1e+308 in row 8; looks like a missing-value code; replace it"),
    ],
)
@pytest.mark.parametrize("command", [FIT, PREDICT, EVALUATE, PREVALENCE])
def test_numbers_beyond_use_are_named_with_their_row(command, value, words):
    with_cell("age", 7, value)
    assert f"rows.csv: column 'age' {words}" in refused(*command)


@pytest.mark.parametrize("row", [3, 4, 5, 6])
def test_held_out_rows_are_checked_before_training(row, monkeypatch):
    monkeypatch.setattr(SetClassifier, "fit", None)
    with_cell("age", row, "inf")
    assert f"column 'age' holds inf in row {row + 1}" in refused(*FIT, "--held-out", "0.9")


def test_a_word_among_numbers_is_named_with_its_line():
    with_cell("age", 7, "old")
    for command in (PREDICT, EVALUATE, PREVALENCE):
        message = refused(*command)
        assert "column 'age' of rows.csv has 'old' on line 9, which cannot be read as" in message
        assert "correct it, or leave the cell empty" in message
    message = refused(*PREDICT, "--keep", "all")
    assert "rows.csv: column 'age' held numbers in training and holds 'old' in row 8" in message


def test_text_where_parquet_had_numbers_is_named():
    table = rows()
    table["age"] = table["age"].astype(str)
    table.loc[7, "age"] = "old"
    table.to_parquet("rows.parquet")
    message = refused("predict", "old", "rows.parquet", "-o", "scores.csv")
    assert "column 'age' of rows.parquet has 'old' in row 8" in message


def test_columns_that_say_nothing_are_refused():
    rows().assign(age=1, colour="warm", sick=0).to_csv("rows.csv", index=False)
    message = refused(*FIT)
    assert message.startswith("rows.csv: no column varies ('age', 'colour', 'sick')")
    assert "add columns that differ between rows" in message
    rows()[["region"]].to_csv("rows.csv", index=False)
    assert "rows.csv has no column to learn from besides the set column" in refused(*FIT)


def test_a_copy_of_the_set_column_is_refused_by_name():
    rows().assign(area=rows()["region"].str.upper()).to_csv("rows.csv", index=False)
    message = refused(*FIT)
    assert message.startswith("rows.csv: column 'area'")
    assert "names the set" in message
    assert "drop it" in message


@pytest.mark.parametrize("command", [PREDICT, EVALUATE, PREVALENCE])
def test_a_column_that_the_model_needs_is_missed_by_name(command):
    rows().drop(columns="age").to_csv("rows.csv", index=False)
    message = refused(*command)
    assert "rows.csv lacks 'age', which the model needs; it has 'region', 'colour'" in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "rows.csv is empty"),
        (b"region,age,colour\n", "rows.csv has columns but no rows"),
        (b"region,age,colour", "rows.csv has columns but no rows"),
        (b"region,age,age\ns1,1,2\n", "rows.csv has several columns named 'age'; rename all but"),
        (b"region,age,colour\ns1,1,warm\ns2,2\n", "line 3 of rows.csv has 2 values where the"),
        (b"region,age,colour\ns1,1,w\xe4rm\n", "line 2 of rows.csv is not UTF-8"),
        (b"region,age,colour\n,1,warm\n", "the set column 'region' of rows.csv is empty in line 2"),
    ],
)
def test_a_broken_file_is_named(content, words):
    Path("rows.csv").write_bytes(content)
    for command in (FIT, EVALUATE, PREVALENCE):
        assert words in refused(*command)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cut.parquet", "cut.parquet is no whole Parquet file"),
        ("folder", "folder has no .parquet or .csv file; name another folder"),
        ("nothing.csv", "cannot read nothing.csv: there is no such file; correct the path"),
        ("nothing.parquet", "cannot read nothing.parquet: there is no such file"),
        ("rows.xlsx", "rows.xlsx has the suffix '.xlsx'; unmix reads and writes .csv and"),
        ("rows", "rows has no suffix; unmix reads and writes .csv and .parquet"),
    ],
)
def test_a_file_that_cannot_be_opened_is_named(name, words):
    rows().to_parquet("cut.parquet")
    Path("cut.parquet").write_bytes(Path("cut.parquet").read_bytes()[:-40])
    Path("folder").mkdir()
    Path("rows.xlsx").write_text("not a table")
    for command in (FIT, EVALUATE, DIAGNOSE, PREVALENCE, PREDICT):
        assert words in refused(*[name if arg == "rows.csv" else arg for arg in command])
    words = words if name != "rows.xlsx" else "rows.xlsx is no Excel workbook; save it again"
    for command in (FIT, EVALUATE, DIAGNOSE):
        assert words in refused(*[name if arg == "rates.csv" else arg for arg in command])


def test_a_set_column_that_is_not_there_gets_the_nearest_guess():
    Path("rates.csv").write_text(rates().replace("region", "set"))
    for command in (FIT, EVALUATE, DIAGNOSE, PREVALENCE):
        message = refused(*["regoin" if arg == "region" else arg for arg in command])
        assert "rows.csv has no column 'regoin'; did you mean 'region'?" in message


def test_other_columns_that_are_not_there_get_the_nearest_guess():
    for args in ((*FIT, "--drop"), (*PREDICT, "--keep"), (*EVALUATE, "--labels")):
        message = refused(*args, "sik")
        assert "rows.csv has no column 'sik'; did you mean 'sick'?" in message


def test_hidden_layers_that_cannot_be_meant_are_refused():
    fit = (*FIT, "--model", "mlp", "--hidden")
    assert "'64' is not LAYERSxUNITS, such as 2x64" in refused(*fit, "64")
    assert "hidden must be (layers, units)" in refused(*fit, "0x64")
    assert "hidden is for model 'mlp'; the model is 'linear'" in refused(
        *FIT, "--model", "linear", "--hidden", "2x64"
    )


def test_a_kept_column_is_not_overwritten():
    rows().assign(prediction=1).to_csv("rows.csv", index=False)
    message = refused(*PREDICT, "--keep", "all")
    assert "column 'prediction' of rows.csv would be overwritten; rename it" in message


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("old", "cannot write the folder old: it exists and is not empty; choose another"),
        ("nowhere/model", "/nowhere does not exist; create it or correct the path"),
        ("rates.csv", "cannot write the folder rates.csv: a file has that name; choose another"),
        ("rates.csv/model", "rates.csv is not a folder; correct the path"),
    ],
)
def test_a_model_folder_that_cannot_be_written_is_told_before_training(output, words, monkeypatch):
    monkeypatch.setattr(SetClassifier, "fit", None)
    assert words in refused(*FIT[:-1], output)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("old.csv", "cannot write old.csv: it is a folder; give the name of a file"),
        ("nowhere/scores.csv", "/nowhere does not exist; create it or correct the path"),
        ("rates.csv/scores.csv", "rates.csv is not a folder; correct the path"),
        ("scores.xlsx", "scores.xlsx has the suffix '.xlsx'"),
    ],
)
def test_scores_that_cannot_be_written_are_told(output, words):
    Path("old.csv").mkdir()
    assert words in refused(*PREDICT[:-1], output)


def fail_with(number):
    """A function of the operating system that fails."""

    def fails(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    return fails


def test_a_folder_without_permission_is_told(monkeypatch):
    monkeypatch.setattr(os, "mkdir", fail_with(errno.EACCES))
    assert "cannot write model: permission denied; choose another place" in refused(*FIT)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert "cannot write scores.csv: permission denied; choose another" in refused(*PREDICT)


def test_a_read_only_disk_is_told(monkeypatch):
    monkeypatch.setattr(os, "mkdir", fail_with(errno.EROFS))
    assert "cannot write model: the file system is read-only; choose" in refused(*FIT)


def test_a_full_disk_leaves_the_older_output_whole(monkeypatch):
    Path("scores.csv").write_text("older scores")
    monkeypatch.setattr(os, "fsync", fail_with(errno.ENOSPC))  # where a full disk may first show
    message = refused(*PREDICT, "--overwrite")
    assert "cannot write scores.csv: no space left on the disk; free some or choose" in message
    options = ("--model", "linear", "--method", "ssc", "--held-out", "0", "--overwrite")
    message = refused(*FIT[:-1], "old", *options)
    assert "cannot write old: no space left on the disk" in message


@pytest.mark.parametrize("output", ["scores.csv", "scores.parquet"])
def test_a_disk_that_fills_while_scores_are_written_leaves_nothing(output):
    rng = np.random.default_rng(0)
    table = pd.concat([rows()] * 300, ignore_index=True)
    table["age"] = rng.normal(50, 10, len(table))
    table.to_parquet("many.parquet")
    before = contents()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        result = run("predict", "old", "many.parquet", "-o", output)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"unmix: cannot write {output}: the file grew beyond")
    assert len(result.stderr.splitlines()) == 1
    assert contents() == before


@pytest.mark.parametrize("command", [PREDICT, EVALUATE, PREVALENCE])
def test_a_model_that_is_not_whole_is_refused(command):
    def message(model="old"):
        return refused(command[0], model, *command[2:])

    assert "nothing holds no model: there is no manifest.json in it" in message("nothing")
    assert "rows.csv holds no model" in message("rows.csv")
    weights = Path("old/weights.safetensors")
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-4])
    assert "old/weights.safetensors was changed or cut short; copy or fit" in message()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "old/weights.safetensors was changed or cut short" in message()
    weights.unlink()
    assert "old/weights.safetensors is missing; copy the whole folder" in message()
    Path("old/manifest.json").write_text('{"format": "unmix mod')
    assert "old/manifest.json is damaged" in message()
    Path("old/manifest.json").write_text('{"format": "x", "version": 1, "files": {}}')
    assert "this unmix reads" in message()


@pytest.mark.parametrize("value", ["0", "1", "1.5", "-0.2", "20%", "0,2", "nan", "much", "1=0.5"])
@pytest.mark.parametrize("command", [FIT, PREDICT, DIAGNOSE])
def test_a_target_prior_that_is_no_share_is_refused(command, value):
    message = refused(*command, "--target-prior", value)
    assert f"Invalid value for '--target-prior': '{value}' is no share between 0 and 1" in message
    assert message.endswith(f"See unmix {command[0]} --help")


@pytest.mark.parametrize("command", [FIT, PREDICT, DIAGNOSE])
def test_a_target_prior_of_other_classes_is_refused(command):
    message = refused(*command, "--target-prior", "cat=0.5,dog=0.5")
    assert message == "--target-prior must give a share of each class: write 0=...,1=..."


def test_one_share_is_no_target_prior_of_three_classes():
    Path("rates.csv").write_text("region,a,b,c\ns1,.8,.1,.1\ns2,.1,.8,.1\ns3,.1,.1,.8\n")
    for command in (FIT, DIAGNOSE):
        message = refused(*command, "--target-prior", "0.2")
        assert message == "--target-prior must give a share of each class: write a=...,b=...,c=..."


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((*FIT, "--model", "forest"), "model must be 'auto', 'linear', 'boosting', 'mlp'"),
        ((*FIT, "--method", "magic"), "method must be 'auto' or one of the methods; there is no"),
        ((*FIT, "--prior-error", "-0.1"), "'--prior-error': '-0.1' is not a standard error from 0"),
        ((*FIT, "--prior-error", "3"), "'--prior-error': '3' is not a standard error from 0"),
        ((*FIT, "--prior-error", "few"), "'--prior-error': 'few' is not a standard error from 0"),
        ((*FIT, "--held-out", "1"), "'--held-out': 1.0 is not in the range 0<=x<1"),
        ((*FIT, "--held-out", "-0.1"), "'--held-out': -0.1 is not in the range 0<=x<1"),
        ((*FIT, "--seed", "-1"), "'--seed': -1 is not in the range"),
        ((*FIT, "--seed", str(2**32)), "'--seed': 4294967296 is not in the range"),
        ((*FIT, "--foo"), "No such option '--foo'. See unmix fit --help"),
        ((*FIT, "--targetprior", "0.2"), "Did you mean one of: '--priors', '--target-prior'?"),
        ((*FIT, "more.csv"), "cannot read more.csv: there is no such file"),
        (FIT[:-2], "Missing option '-o' / '--output'. See unmix fit --help"),
        (("fit", "rows.csv"), "Missing option '--sets'. See unmix fit --help"),
        (("fit",), "Missing argument 'ROWS...'. See unmix fit --help"),
        (("predict", "old"), "Missing argument 'ROWS...'. See unmix predict --help"),
        (("fits",), "No such command 'fits'."),
        (("--foo",), "No such option '--foo'. See unmix --help"),
    ],
)
def test_a_mistyped_command_gets_one_line(args, words):
    assert words in refused(*args)


def test_an_error_that_is_no_number_is_refused():
    assert "nan" in refused(*FIT, "--prior-error", "nan", "--model", "linear", "--method", "ssc")
    assert "nan" in refused(*FIT, "--held-out", "nan")


def test_trees_do_not_match_proportions():
    message = refused(*FIT, "--model", "boosting", "--method", "proportion")
    assert "boosting learns by ssc, count, set-effects only; use model linear or mlp" in message


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["ill"] * 120, "the labels hold 'ill', which is no class of the model (classes: 0, 1)"),
        ([1, 0, None] * 40, "rows.csv: row 3 has no label; give it one or remove it"),
        ([1] * 120, "labels hold no row of class 0"),
    ],
)
def test_labels_that_do_not_fit_the_model_are_named(labels, words):
    rows().assign(sick=pd.Series(labels, dtype=object)).to_csv("rows.csv", index=False)
    message = refused(*EVALUATE, "--labels", "sick")
    assert message.startswith("rows.csv: ")
    assert words in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("region,cat,dog\ns1,.8,.2\ns2,.5,.5\ns3,.2,.8\n", "gives shares of 'cat', 'dog', and the"),
        ("region,a,b,c\ns1,.8,.1,.1\ns2,.1,.8,.1\ns3,.1,.1,.8\n", "gives shares of 'a', 'b', 'c'"),
    ],
)
def test_shares_of_other_classes_than_the_models_are_refused(text, words):
    Path("rates.csv").write_text(text)
    message = refused(*EVALUATE)
    assert f"rates.csv {words}" in message
    assert "classes of the model are '0', '1'; give one column of shares for each" in message


def test_an_internal_error_is_one_line_and_exit_code_1(monkeypatch):
    def breaks(*args, **kwargs):
        raise RuntimeError("the ground gave way\nsecond line")

    monkeypatch.setattr(SetClassifier, "fit", breaks)
    message = refused(*FIT, "--overwrite", code=1)
    assert message == (
        "RuntimeError: the ground gave way second line (unmix --debug ... shows where)"
    )
    result = run("--debug", *FIT)
    assert isinstance(result.exception, RuntimeError)
    assert not Path("model").exists()


def test_ctrl_c_leaves_nothing_behind(monkeypatch):
    def stopped(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(SetClassifier, "fit", stopped)
    assert refused(*FIT, code=130) == "stopped"


def test_the_real_command_prints_one_line_and_no_traceback():
    command = [sys.executable, "-m", "unmix.cli", "fit", "rows.csv", "--target-prior", "20"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("unmix: Invalid value for '--target-prior': '20' is no share")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_stops_early_gets_no_complaint(monkeypatch):
    monkeypatch.setattr("unmix.cli.fit.click.echo", fail_with(errno.EPIPE))
    result = run(*DIAGNOSE)
    assert (result.exit_code, result.stderr) == (1, "")
