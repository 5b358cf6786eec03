"""Any table, any rates, any options: the right answer, or one line and nothing written.

UNMIX_EXAMPLES=2000 python -m pytest tests/test_properties.py    tries more than a few
"""

import csv
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mutated_rates import mutated_rates
from test_cli_mistakes import contents, rates, rows, run
from unmix import read_rates
from unmix.errors import InputError

EXAMPLES = int(os.environ.get("UNMIX_EXAMPLES", "15"))
FEW = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

NAMES = st.sampled_from(["s1", "s2", "s3", "007", "7", "NA", "é", "e\u0301", "\u202e", "a,b"])
ANY_NAME = st.one_of(NAMES, st.text(max_size=8))
NUMBERS = st.one_of(
    st.floats(-1e6, 1e6),
    st.sampled_from([np.nan, np.inf, 1e308, -0.0, 1e-300, 10**18, -999]),
)
CELLS = st.one_of(
    NUMBERS.map(str),
    st.sampled_from(["", "NA", "warm", "cold", "1,5", "=1+1", "\x1b[31m", "x\ny", "0x1F", "true"]),
    st.text(max_size=6),
)
SHARES = st.one_of(
    st.floats(0, 1).map(lambda share: f"{share:.3f}"),
    st.sampled_from(["0", "1", "1.5", "-0.1", "50%", "", "nan", "much", "0,5", "1e-9"]),
)
FIT_OPTIONS = st.lists(
    st.sampled_from(
        [
            ("--target-prior", "0.3"),
            ("--target-prior", "nan"),
            ("--target-prior", "0=0.5,1=0.5"),
            ("--held-out", "0.5"),
            ("--held-out", "0"),
            ("--allow-unused-priors",),
            ("--drop", "b"),
            ("--drop", "nothing"),
            ("--seed", "7"),
            ("--prior-error", "0.05"),
            ("--method", "proportion"),
            ("--no-hide-sets",),
            ("--json",),
            ("--stream",),
        ]
    ),
    max_size=3,
)
PREDICT_OPTIONS = st.lists(
    st.sampled_from(
        [
            ("--target-prior", "0.1"),
            ("--target-prior", "0.7,0.2"),
            ("--threshold", "0.3"),
            ("--threshold", "2"),
            ("--keep", "all"),
            ("--keep", "id"),
            ("--keep", "nothing"),
            ("--sets", "region"),
            ("--quote-formulas",),
            ("--overwrite",),
            ("--json",),
        ]
    ),
    max_size=3,
)


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """Return the folder of a model of the columns age and colour."""
    folder = tmp_path_factory.mktemp("old")
    rows().to_csv(folder / "rows.csv", index=False)
    (folder / "rates.csv").write_text(rates())
    where = (str(folder / "rows.csv"), "--sets", "region", "--priors", str(folder / "rates.csv"))
    quick = ("--model", "linear", "--method", "ssc", "--held-out", "0", "--drop", "sick")
    assert run("fit", *where, "-o", str(folder / "model"), *quick).exit_code == 0
    return folder / "model"


def in_new_folder(check):
    """Call a check in an empty folder that is removed afterwards."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            check()
        finally:
            os.chdir(before)


def write_table(header, cells, suffix):
    """Write a table of text to a file, and return its name."""
    if suffix == ".csv":
        with open("table.csv", "w", newline="", encoding="utf-8", errors="replace") as file:
            csv.writer(file).writerows([header, *cells])
        return "table.csv"
    frame = pd.DataFrame(cells, columns=header, dtype=str)
    for name in header:
        numbers = pd.to_numeric(frame[name], errors="coerce")
        if numbers.notna().all():
            frame[name] = numbers
    frame.map(lambda v: v.encode("utf-8", "replace").decode() if isinstance(v, str) else v)
    frame.to_parquet("table.parquet", index=False)
    return "table.parquet"


def answered(*args):
    """Run a command: it ends well, or with one line and everything as it was."""
    before = contents()
    result = run(*args)
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code in (0, 2), (result.exit_code, result.output)
    assert all(c.isprintable() or c == "\n" for c in result.output)
    if result.exit_code == 2:
        assert result.stdout == ""
        words = [line for line in result.stderr.splitlines() if line.startswith("unmix: ")]
        assert len(words) == 1, result.stderr
        assert contents() == before
    return result.exit_code == 0


TEXT = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)


@FEW
@given(
    st.lists(st.tuples(TEXT, ANY_NAME, CELLS, CELLS), min_size=1, max_size=30),
    PREDICT_OPTIONS,
    st.sampled_from([".csv", ".parquet"]),
    st.sampled_from([".csv", ".parquet"]),
    st.booleans(),
)
@example([("1", "s1", "4", "w"), ("2", "s2", "", "x")], [("--keep", "id")], ".csv", ".csv", 1)
@example([("=1", "s1", "4", "w")] * 3, [("--keep", "all"), ("--json",)], ".csv", ".parquet", 1)
def test_predict_scores_every_row_in_order_or_writes_nothing(
    old, table, options, suffix, output_suffix, tame
):
    header = ["id", "region", "age", "colour"]
    if tame:  # so that more than a few tables can be scored
        table = [(i, "s2", str(j), c) for j, (i, _, _, c) in enumerate(table)]

    def check():
        try:
            name = write_table(header, table, suffix)
        except (UnicodeEncodeError, ValueError):
            return  # no such file can be made
        flat = [word for option in options for word in option]
        output = f"scores{output_suffix}"
        if not answered("predict", str(old), name, "-o", output, *flat):
            return
        text = {"dtype": str, "keep_default_na": False}
        read = pd.read_csv if output_suffix == ".csv" else pd.read_parquet
        scores = read(output)
        assert len(scores) == len(table)
        assert scores["probability"].between(0, 1).all()
        assert set(scores["prediction"]) <= {0, 1}
        threshold = 0.3 if ("--threshold", "0.3") in options else 0.5
        decided = (scores["probability"] >= threshold).astype(int)
        assert (decided == scores["prediction"]).all()
        if {("--keep", "id")} & {*options} and suffix == output_suffix == ".csv":
            kept = pd.read_csv(output, **text)["id"].tolist()
            given = pd.read_csv(name, **text)["id"].tolist()
            quote = ("--quote-formulas",) in options
            assert kept == [f"'{i}" if quote and i[:1] in tuple("=+-@\t\r") else i for i in given]

    in_new_folder(check)


@FEW
@given(
    st.lists(st.tuples(ANY_NAME, CELLS, NUMBERS), min_size=1, max_size=40),
    st.lists(st.tuples(ANY_NAME, SHARES), max_size=5),
    FIT_OPTIONS,
    st.booleans(),
)
@example([(f"s{i % 2}", "x", i) for i in range(30)], [("s0", "0.2"), ("s1", "0.7")], [], True)
@example([(f"s{i}", "x", i) for i in range(9)], [("s0", "0.2"), ("s1", "0.7")], [], False)
def test_fit_makes_a_model_that_loads_or_writes_nothing(table, shares, options, tame):
    if tame:
        given = [name for name, _ in shares] or ["s1"]
        table = [(given[i % len(given)], c, i * 0.5) for i, (_, c, _) in enumerate(table)]

    def check():
        name = write_table(["region", "a", "b"], table, ".csv")
        with open("rates.csv", "w", newline="", encoding="utf-8", errors="replace") as file:
            csv.writer(file).writerows([["region", "share"], *shares])
        flat = [word for option in options for word in option]
        where = (name, "--sets", "region", "--priors", "rates.csv")
        answered("diagnose", *where)
        method = () if any("--method" in option for option in options) else ("--method", "ssc")
        if answered("fit", *where, "-o", "model", "--model", "linear", *method, *flat):
            assert sorted(os.listdir()) == ["model", "rates.csv", name]
            assert {"manifest.json", "model.json", "report.html"} <= {*os.listdir("model")}
            answered("predict", "model", name, "-o", "scores.csv")
            answered("prevalence", "model", name, "--sets", "region", "-o", "shares.csv")
            answered("evaluate", "model", *where)

    in_new_folder(check)


def test_a_mutated_rates_file_is_read_or_refused(tmp_path):
    outcomes = {"read": 0, "refused": 0}
    for number in range(max(EXAMPLES, 120)):
        path = mutated_rates(tmp_path, 1, number)
        try:
            shares = read_rates(path, "region").set_priors.matrix
        except InputError:
            outcomes["refused"] += 1
        else:
            assert ((shares >= 0) & (shares <= 1)).all()
            outcomes["read"] += 1
    assert min(outcomes.values()) > 0
    shutil.rmtree(tmp_path)
