"""unmix federated: fits together that leave an ordinary model, or one line and nothing at all."""

import importlib.util
import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from test_federated import MISBEHAVIOUR, Spoiling, hospitals
from unmix import UnmixClassifier
from unmix.cli import main

HERE = ("--rows", "rows.csv", "--priors", "shares.csv", "-o", "model", "--resamples", "0")
QUICK = (*HERE, "--method", "ssc", "--l2", "1e-3")


def run(*args, code=0):
    result = CliRunner().invoke(main, ["federated", *args])
    assert result.exit_code == code, result.output
    return result


def refused(*args):
    """Return the one line of a command that fails and writes nothing."""
    result = run(*args, code=2)
    assert result.stdout == "" or all("sets; " in line for line in result.stdout.splitlines())
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("unmix: "))
    written = args[args.index("-o") + 1] if "-o" in args else "model"
    assert not any(written in path.name for path in Path.cwd().iterdir())
    return line


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Three hospitals with four wards each."""
    monkeypatch.chdir(tmp_path)
    _, table = hospitals(rows=200)
    for j in range(3):
        own = table[table["ward"].str.startswith(f"ward {j}.")]
        (tmp_path / f"hospital {j}").mkdir()
        own.drop(columns="y").to_csv(tmp_path / f"hospital {j}/rows.csv", index=False)
        shares = own.groupby("ward")["y"].mean().rename("share")
        shares.to_csv(tmp_path / f"hospital {j}/shares.csv")


HOSPITALS = tuple(f"hospital {j}" for j in range(3))


def test_trying_leaves_an_ordinary_model_and_a_report():
    result = run("try", *HOSPITALS, "--sets", "ward", *QUICK)
    assert "3 parties with 2,400 rows in 12 sets" in result.stdout
    assert "They told: 3 table" in result.stdout
    assert "<html" in Path("model/report.html").read_text()
    clf = UnmixClassifier.load("model")
    rows = pd.read_csv("hospital 1/rows.csv").drop(columns="ward")
    assert clf.predict_proba(rows).shape == (800, 2)
    assert clf.set_ids_[4:6] == ("ward 1.0", "ward 1.1")
    scored = CliRunner().invoke(main, ["predict", "model", "hospital 2/rows.csv", "-o", "s.csv"])
    assert scored.exit_code == 0, scored.output
    told = json.loads(
        run("try", *HOSPITALS, "--sets", "ward", *QUICK, "--overwrite", "--json").stdout
    )
    assert told["parties"] == list(HOSPITALS)
    assert told["told"]["cells"]["replies"] == 3


@pytest.mark.parametrize("what", MISBEHAVIOUR)
def test_a_party_that_misbehaves_is_named_in_one_line_and_nothing_is_written(what, monkeypatch):
    kind, spoil, words = MISBEHAVIOUR[what]

    def transport(parties):
        return Spoiling(parties, kind, spoil)

    monkeypatch.setattr("unmix.federated.parties_here.PartiesHere", transport)
    line = refused("try", *HOSPITALS, "--sets", "ward", *QUICK)
    assert "party 'hospital 1'" in line
    assert words.replace("\\", "") in line


def test_parties_with_one_set_need_no_column_of_sets():
    for j in range(3):
        rows = pd.read_csv(f"hospital {j}/rows.csv")
        shares = pd.read_csv(f"hospital {j}/shares.csv")
        rows.drop(columns="ward").to_csv(f"hospital {j}/rows.csv", index=False)
        one = {"hospital": [f"H{j}"], "share": [shares["share"].mean()]}
        pd.DataFrame(one).to_csv(f"hospital {j}/shares.csv", index=False)
    assert "2,400 rows in 3 sets" in run("try", *HOSPITALS, *QUICK).stdout
    assert UnmixClassifier.load("model").set_ids_ == ("H0", "H1", "H2")


def test_shares_of_several_sets_need_their_column():
    assert "has shares of 4 sets" in refused("try", *HOSPITALS, *QUICK)


def test_a_column_that_names_the_party_is_refused():
    for j in range(3):
        rows = pd.read_csv(f"hospital {j}/rows.csv")
        rows.assign(town=f"town {j}", beds=100 + j).to_csv(f"hospital {j}/rows.csv", index=False)
    line = refused("try", *HOSPITALS, "--sets", "ward", *QUICK, "--drop", "beds")
    assert "column 'town' has one value at each party" in line
    line = refused("try", *HOSPITALS, "--sets", "ward", *QUICK, "--drop", "town")
    assert "column 'beds'" in line
    for j in range(3):  # the same everywhere: it names nobody, and teaches nothing
        rows = pd.read_csv(f"hospital {j}/rows.csv").assign(beds=100)
        rows.to_csv(f"hospital {j}/rows.csv", index=False)
    run("try", *HOSPITALS, "--sets", "ward", *QUICK, "--drop", "town")


JOIN = ("join", "hospital 1/rows.csv", "--sets", "ward", "--priors", "hospital 1/shares.csv")


def test_a_dry_run_shows_all_kinds_of_replies_and_no_row():
    shown = run(*JOIN, "--dry-run", "--name", "north").stdout
    assert "ward 1.0: 200 rows (40 of them held out)" in shown
    assert "numbers, mean" in shown
    assert "words day" in shown
    assert "7 sums over the rows" in shown
    told = json.loads(run(*JOIN, "--dry-run", "--json").stdout)
    counts = np.array(told["cells"]["cells"])
    assert counts.shape == (4, 131)
    assert (counts.sum(axis=1) == 40).all()
    assert ((counts == 0) | (counts >= 5)).all()
    assert len(told["sums"]["sums"]) == 7
    ages = pd.read_csv("hospital 1/rows.csv")["age"]
    assert not any(repr(float(age)) in shown + json.dumps(told) for age in ages)


def test_a_dry_run_says_what_noise_buys():
    shown = run(*JOIN, "--dry-run", "--epsilon", "3").stdout
    assert "at most 20 are told, and together they keep a row secret up to epsilon 3" in shown


def test_a_fit_with_noise_asks_for_no_more_sums_than_it_was_made_for():
    told = json.loads(
        run("try", *HOSPITALS, "--sets", "ward", *HERE, "--epsilon", "8", "--json").stdout
    )
    assert told["told"]["sums"]["replies"] == 3 * 20
    assert "shares" not in told["told"]  # nothing is left to choose by
    clf = UnmixClassifier.load("model")
    scores = clf.predict_proba(pd.read_csv("hospital 1/rows.csv").drop(columns="ward"))[:, 1]
    assert np.isfinite(scores).all()
    line = refused(
        *("try", *HOSPITALS, "--sets", "ward", *HERE[:-4], "-o", "other"),
        *("--epsilon", "8", "--method", "set-effects"),
    )
    assert "goes with two classes and method ssc" in line


@pytest.mark.parametrize(
    ("words", "args"),
    [
        ("must be encrypted", ("--listen", "0.0.0.0:9092")),
        ("go together", ("--certificate", "server.pem")),
        ("--code-file", ("--listen", "0.0.0.0:9092", "--insecure")),
        ("is no address", ("--listen", "here:there")),
        ("method must be 'auto' or one of", ("--method", "magic")),
    ],
)
def test_a_server_that_others_could_listen_to_or_join_is_refused(words, args):
    assert words in refused("serve", "--parties", "2", "-o", "model", *args)


@pytest.mark.parametrize("page", ["federated", "hospitals"])
def test_the_commands_of_pages_that_need_several_machines_are_understood(page):
    text = (Path(__file__).parents[1] / f"docs/{page}.md").read_text().replace("\\\n", "")
    commands = [line for line in text.splitlines() if line.startswith("unmix federated ")]
    assert len(commands) == 2
    for line in commands:
        _, _, name, *words = shlex.split(line)
        found = main.commands["federated"].commands[name]
        assert found.make_context(name, words).params["code_file"] == "code.txt"


@pytest.mark.skipif(importlib.util.find_spec("flwr") is not None, reason="Flower is installed")
@pytest.mark.parametrize("command", [("serve", "--parties", "2", "-o", "model"), JOIN])
def test_without_flower_it_is_said_how_to_get_it(command):
    assert "pip install 'unmix[federated]'" in refused(*command)
