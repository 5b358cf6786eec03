"""What commands write and print: nobody's file is lost, and no name is obeyed by what shows it."""

import csv
import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from test_cli_mistakes import (
    DIAGNOSE,
    EVALUATE,
    FIT,
    PREDICT,
    PREVALENCE,
    fitted,  # noqa: F401  (a fixture, and the one below)
    place,  # noqa: F401
    rates,
    refused,
    rows,
    run,
)
from unmix.data.wording import printable, quoted

QUICK = ("--model", "linear", "--method", "ssc", "--held-out", "0", "--drop", "sick")


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
def test_scores_never_replace_the_rows_or_the_rates_they_come_from(link, overwrite):
    for name in ("rows.csv", "rates.csv"):
        output = name if link is None else f"link-to-{name}"
        if link is not None:
            link(name, output)
        sets = ("--sets", "region", "--priors", "rates.csv")
        message = refused(*PREDICT[:-1], output, *sets, *overwrite)
        assert message.startswith(f"cannot write {output}: it is the file {name} that is read")
        message = refused(*PREVALENCE, "--priors", "rates.csv", "-o", output, *overwrite)
        assert message.startswith(f"cannot write {output}: it is the file {name} that is read")


def test_an_existing_file_is_replaced_only_if_asked():
    for command in (PREDICT[:-1], (*PREVALENCE, "-o")):
        Path("old.csv").unlink(missing_ok=True)
        Path("old.csv").write_text("years of work")
        assert "it exists; choose another name or allow" in refused(*command, "old.csv")
        assert Path("old.csv").read_text() == "years of work"
        assert run(*command, "old.csv", "--overwrite").exit_code == 0
        assert "years of work" not in Path("old.csv").read_text()


def test_fit_replaces_no_folder_of_somebody_else():
    Path("folder").mkdir()
    Path("folder/report.html").write_text("years of work")
    message = refused(*FIT[:-1], "folder", *QUICK, "--overwrite")
    assert "will not overwrite the folder" in message
    assert "it is a whole disk" in refused(*FIT[:-1], "/", *QUICK, "--overwrite")
    Path("link").symlink_to("old")
    assert "it is a link to" in refused(*FIT[:-1], "link", *QUICK, "--overwrite")


# Names --------------------------------------------------------------------------------------------

STRANGE = "s1\x1b[31m\u202e\r\n9 9.9"


def strange_rows():
    frame = rows()
    return frame.assign(region=frame["region"].replace("s1", STRANGE))


def rates_of(*names):
    shares = (0.2, 0.5, 0.8)
    frame = pd.DataFrame({"region": [*names], "share": shares[: len(names)]})
    return frame.to_csv(index=False)


def test_nothing_that_a_terminal_obeys_is_printed():
    strange_rows().to_csv("rows.csv", index=False)
    Path("rates.csv").write_text(rates_of(STRANGE, "s2", "s3"))
    for command in (
        DIAGNOSE,
        (*FIT, *QUICK),
        EVALUATE,
        (*PREVALENCE, "--by", "region"),
        PREVALENCE,
    ):
        result = run(*command)
        assert result.exit_code == 0, result.output
        assert all(c.isprintable() or c == "\n" for c in result.output), command
    assert r"s1\x1b[31m\u202e\r\n9 9.9" in result.output  # in one line, not two
    Path("rates.csv").write_text(rates_of("s1", "s2", "s3"))
    message = refused(*FIT[:-1], "other", *QUICK)
    assert message.isprintable()


def test_json_escapes_what_is_not_ascii():
    strange_rows().to_csv("rows.csv", index=False)
    Path("rates.csv").write_text(rates_of(STRANGE, "s2", "s3"))
    result = run(*PREVALENCE, "--json")
    assert result.output.isascii()
    assert STRANGE in [entry["set_id"] for entry in json.loads(result.output)["sets"]]


def test_two_names_that_look_alike_do_not_in_a_message():
    assert quoted("caf\u00e9") == "'café'"
    assert quoted("cafe\u0301") == r"'cafe\u0301'"
    assert quoted("a\u00a0b") == r"'a\xa0b'"
    frame = rows()
    frame.assign(region=frame["region"].replace("s1", "s  1")).to_csv("rows.csv", index=False)
    Path("rates.csv").write_text(rates_of("s 1", "s2", "s3"))
    message = refused(*FIT, *QUICK)
    assert "'s  1'" in message  # both of its spaces


def test_a_name_of_a_million_characters_makes_no_message_of_a_million():
    assert quoted("x" * 10**6) == f"'{'x' * 100}'... (1,000,000 characters)"
    Path("rates.csv").write_text(rates_of("s1", "s2", "s" * 100_000))
    assert len(refused(*FIT, *QUICK)) < 3_000
    assert len(refused(*FIT, "--target-prior", "x" * 100_000)) < 3_000


def test_text_is_shown_as_it_is_where_nothing_is_wrong_with_it():
    for text in ("Región 1", "北京", "a b", "emoji 🙂"):
        assert printable(text) == text
    assert printable("a\tb\x00\u200b") == r"a\tb\x00\u200b"


def test_text_that_a_spreadsheet_takes_for_a_formula_is_quoted_if_asked():
    formulas = ["=1+1", "+1x", "-1x", "@x", "\tx", "plain", "1=1"]
    frame = pd.concat([rows()] * 1, ignore_index=True).assign(note="plain")
    frame.loc[: len(formulas) - 1, "note"] = formulas
    frame.rename(columns={"note": "=note"}).to_csv("rows.csv", index=False)
    keep = ("--keep", "=note", "--keep", "age", "--overwrite")
    for option, expected in ((), formulas), (("--quote-formulas",), None):
        assert run(*PREDICT, *keep, *option).exit_code == 0
        with open("scores.csv", newline="") as file:
            header, *cells = csv.reader(file)
        expected = expected or [f"'{t}" if t[0] in "=+-@\t" else t for t in formulas]
        assert [row[0] for row in cells[: len(formulas)]] == expected
        assert header[0] == ("'=note" if option else "=note")
        assert [float(row[1]) for row in cells] == frame["age"].tolist()  # numbers stay numbers
    assert run(*PREVALENCE[:3], "--by", "=note", "-o", "by.csv", "--quote-formulas").exit_code == 0
    assert "'=1+1" in Path("by.csv").read_text()
    assert run(*PREDICT[:-1], "s.parquet", *keep, "--quote-formulas").exit_code == 0
    assert pd.read_parquet("s.parquet")["=note"].tolist()[: len(formulas)] == formulas


# Who is to blame ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "start"),
    [
        ((*FIT, "--target-prior", "0=0.7,0=0.3"), "Invalid value for '--target-prior': '0=0.7,0"),
        (
            (*FIT, "--target-prior", "0.7,0.2"),
            "Invalid value for '--target-prior': '0.7,0.2' is no",
        ),
        ((*FIT, "--target-prior", "0=0.7,0.3"), "Invalid value for '--target-prior'"),
        ((*FIT, "--target-prior", "=0.3"), "Invalid value for '--target-prior'"),
        ((*FIT, "--target-prior", "nan"), "Invalid value for '--target-prior'"),
        ((*FIT, "--target-prior", "0=nan,1=nan"), "Invalid value for '--target-prior'"),
        ((*FIT, *QUICK, "--target-prior", "a=0.5,b=0.5"), "--target-prior must give a share"),
    ],
)
def test_an_option_is_not_blamed_on_a_file(args, start):
    message = refused(*args)
    assert message.startswith(start), message


def test_rates_are_not_blamed_on_the_rows():
    Path("rates.csv").write_text("region,cat,dog\ns1,.8,.2\ns2,.5,.5\ns3,.2,.8\n")
    assert refused(*EVALUATE).startswith("rates.csv gives shares of 'cat', 'dog'")


@pytest.mark.parametrize("sizes", [(40, 40, 1), (40, 2, 2), (1, 1, 1), (2, 1, 40)])
def test_small_sets_lose_no_share_to_the_held_out_rows(sizes):
    frame = rows()
    kept = [frame[frame["region"] == s][:n] for s, n in zip(("s1", "s2", "s3"), sizes, strict=True)]
    pd.concat(kept).to_csv("rows.csv", index=False)
    result = run(*FIT, "--model", "linear", "--method", "ssc", "--drop", "sick")
    if result.exit_code:  # too little to learn from, and the rates are not to blame
        assert result.exit_code == 2
        assert "rates.csv" not in result.stderr
        assert "no rows" not in result.stderr


def test_a_pipe_with_the_name_of_a_table_is_not_waited_for():
    for name in ("pipe.csv", "pipe.csv.gz", "pipe.parquet", "pipe.xlsx"):
        os.mkfifo(name)
        if not name.endswith(".xlsx"):  # rows do not come in workbooks
            assert "it is a pipe or a device" in refused("diagnose", name, *DIAGNOSE[2:])
        assert "it is a pipe or a device" in refused(*DIAGNOSE[:-1], name)


def refused_training(*args):
    result = run("train", "digits", "--epochs", "1", *args)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--threads", ["0", "-1", "100000", "1.5"]),
        ("--width", ["0", "-3", "100000000"]),
        ("--depth", ["0", "1000"]),
        ("--shift", ["-1", "100000"]),
        ("--seed", ["-1", str(2**40)]),
        ("--scale", ["0", "-1", "5", "nan", "1e-9"]),
        ("--tau", ["0", "5", "nan", "-1"]),
        ("--epochs", ["0", "-1", "99999999"]),
        ("--learning-rate", ["0", "-1", "nan", "inf"]),
        ("--num-sets", ["0", "-1", "99999999"]),
        ("--held-out", ["1", "-0.1", "nan"]),
        ("--prior-noise", ["2", "-1", "nan"]),
        ("--prior-error", ["5", "-1", "nan"]),
        ("--strength", ["-1", "nan", "inf"]),
        ("--device", ["gpu", "cuda:99", "", "meta"]),
        ("--model", ["forest"]),
        ("--recipe", ["slow"]),
        ("--method", ["magic"]),
    ],
)
def test_training_with_what_is_out_of_range_is_refused(option, values):
    for value in values:
        words = refused_training(option, value)
        assert option.strip("-").split("-")[0] in words, words


def test_an_export_that_cannot_be_written_is_told_before_the_cells_are_run(monkeypatch):
    monkeypatch.setattr("unmix.studies.runner.run_study", None)
    study = ("reproduce", "comparison", "--datasets", "digits", "--methods", "ssc")
    assert "nowhere does not exist; create it" in refused(*study, "--export", "nowhere/runs.jsonl")
    shutil.rmtree("runs", ignore_errors=True)


def test_an_error_of_ours_in_rates_with_classes_that_repeat_is_one_line():
    Path("rates.csv").write_text(rates().replace("region,share", "region,region"))
    refused(*DIAGNOSE)


@pytest.mark.parametrize("name", ["rows.csv", "rates.csv", "link.html", "notes.txt"])
def test_a_report_replaces_no_input_and_nothing_that_is_no_report(name):
    Path("notes.txt").write_text("mine")
    os.link("rows.csv", "link.html")
    message = refused(*EVALUATE, "--report", name)
    assert f"cannot write {name}" in message


def test_scores_of_a_folder_do_not_replace_the_folder_that_is_read():
    Path("parts").mkdir()
    for name in ("a", "b"):
        rows().to_parquet(f"parts/{name}.parquet")
    score = ("predict", "old", "parts", "--engine", "local", "-o", "scored", "--keep", "all")
    assert run(*score).exit_code == 0
    again = ("predict", "old", "scored", "--engine", "local", "-o")
    assert "is read, lies in it" in refused(*again, "scored", "--overwrite")
    os.symlink("scored", "link")
    assert "is read, lies in it" in refused(*again, "link", "--overwrite")


def test_an_export_replaces_no_file_of_another_kind(monkeypatch):
    monkeypatch.setattr("unmix.studies.runner.run_study", None)
    study = ("reproduce", "comparison", "--datasets", "digits", "--methods", "ssc")
    assert "does not end in .jsonl" in refused(*study, "--export", "rows.csv")
