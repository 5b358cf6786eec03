"""Set priors are what the user meant, or the error says which set is wrong and how to mend it."""

import datetime
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unmix.data.priors import Priors
from unmix.data.rates_file import read_rates
from unmix.data.wording import quoted
from unmix.errors import IdentifiabilityError, InputError


@pytest.fixture
def priors_file(tmp_path):
    def write(content, name="rates.csv"):
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


def error_of(function, *arguments, **options):
    """Return the one line of an InputError."""
    with pytest.raises(InputError) as caught:
        function(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# The forms


def test_one_column_of_shares(priors_file):
    path = priors_file("region,share\nnorth,0.31\nsouth,.12\neast,0\nwest,1\n")
    priors = read_rates(path, "region")
    assert priors.set_ids == ("north", "south", "east", "west")
    assert priors.set_priors.tolist() == [0.31, 0.12, 0.0, 1.0]
    assert priors.set_priors.matrix.dtype == np.float64
    assert priors.classes is None
    assert priors.standard_errors is None
    assert priors.source == str(path)
    assert len(priors) == 4


def test_set_ids_stay_exactly_what_is_written(priors_file):
    priors = read_rates(priors_file('set,p\n007,.1\nNA,.2\n1.0,.3\n" x",.4\nnull,.5\n'))
    assert priors.set_ids == ("007", "NA", "1.0", " x", "null")


def test_the_column_set_is_found_without_being_named(priors_file):
    assert read_rates(priors_file("share,set\n.1,a\n.2,b\n")).set_ids == ("a", "b")
    assert read_rates(priors_file("share,set\n.1,a\n.2,b\n"), "region").set_ids == ("a", "b")
    both = priors_file("region,set\nn,.1\ns,.2\n")
    assert read_rates(both, "region").set_ids == ("n", "s")


def test_semicolons_tabs_and_parquet_are_read_alike(priors_file, tmp_path):
    expected = [0.31, 0.12]
    for content in ("set;share\na;0.31\nb;0.12\n", "set\tshare\na\t0.31\nb\t0.12\n"):
        assert read_rates(priors_file(content)).set_priors.tolist() == expected
    path = tmp_path / "rates.parquet"
    for dtype in (pa.float32(), pa.float64()):
        pq.write_table(pa.table({"set": [7, 8], "share": pa.array(expected, dtype)}), path)
        priors = read_rates(path)
        assert priors.set_priors.tolist() == expected
        assert priors.set_ids == ("7", "8")


def test_shares_with_standard_errors(priors_file):
    for name in ("se", "Std Error", "standard_error", "stderr"):
        priors = read_rates(priors_file(f"set,{name},rate\na,0.01,0.3\nb,0,0.5\n"))
        assert priors.set_priors.tolist() == [0.3, 0.5]
        assert priors.standard_errors.tolist() == [0.01, 0.0]
        assert priors.classes is None


@pytest.mark.parametrize(
    ("positives", "total"),
    [("positives", "total"), ("cases", "n"), ("count", "size"), ("n_positive", "Totals")],
)
def test_counts_give_shares_and_standard_errors(priors_file, positives, total):
    path = priors_file(f"set,{total},{positives}\na,5,0\nb,400,100\nc,5,5\n")
    priors = read_rates(path)
    assert priors.set_priors.tolist() == [0.0, 0.25, 1.0]
    # Beta(k + 1/2, n - k + 1/2): variance a b / ((a + b)^2 (a + b + 1)), by hand
    expected = np.sqrt([0.5 * 5.5 / (36 * 7), 100.5 * 300.5 / (401**2 * 402), 5.5 * 0.5 / (36 * 7)])
    np.testing.assert_allclose(priors.standard_errors, expected, rtol=1e-12)
    assert abs(priors.standard_errors[1] - np.sqrt(0.25 * 0.75 / 400)) < 2e-4


def test_one_column_per_class(priors_file):
    path = priors_file("set,flu,cold,none\na,.2,.3,.5\nb,.1,.1,.8\n")
    priors = read_rates(path)
    assert priors.classes == ("flu", "cold", "none")
    np.testing.assert_allclose(priors.set_priors, [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]], rtol=1e-15)
    assert priors.standard_errors is None
    chosen = read_rates(path, classes=("none", "flu", "cold"))
    assert chosen.classes == ("none", "flu", "cold")
    np.testing.assert_allclose(chosen.set_priors[0], [0.5, 0.2, 0.3], rtol=1e-15)


def test_named_classes_leave_other_columns_alone(priors_file):
    path = priors_file("set,remark,flu,none,n\na,x,.2,.8,10\nb,y,.1,.9,20\n")
    assert read_rates(path, classes=["flu", "none"]).classes == ("flu", "none")
    assert "no column 'cold'" in error_of(read_rates, path, classes=["flu", "cold"])
    assert "two classes" in error_of(read_rates, path, classes=["flu"])


@pytest.mark.parametrize("names", ["no,yes", "0,1", "Negative,Positive", "false,true", "neg,pos"])
def test_two_classes_are_binary_if_their_names_leave_no_doubt(priors_file, names):
    priors = read_rates(priors_file(f"set,{names}\na,.8,.2\nb,.4,.6\n"))
    assert priors.classes is None
    np.testing.assert_allclose(priors.set_priors, [0.2, 0.6], rtol=1e-15)
    swapped = ",".join(reversed(names.split(",")))
    priors = read_rates(priors_file(f"set,{swapped}\na,.2,.8\nb,.6,.4\n"))
    np.testing.assert_allclose(priors.set_priors, [0.2, 0.6], rtol=1e-15)


def test_two_other_classes_stay_two_classes(priors_file):
    priors = read_rates(priors_file("set,cat,dog\na,.8,.2\nb,.4,.6\n"))
    assert priors.classes == ("cat", "dog")
    assert priors.set_priors.shape == (2, 2)


def test_rounded_class_shares_are_scaled_and_others_refused(priors_file):
    priors = read_rates(priors_file("set,a,b,c\nx,.333,.333,.333\ny,.5,.3,.2\n"))
    np.testing.assert_allclose(priors.set_priors[0], 1 / 3, rtol=1e-15)
    np.testing.assert_allclose(priors.set_priors.matrix.sum(axis=1), 1, rtol=1e-15)
    message = error_of(read_rates, priors_file("set,a,b\nx,.5,.5\ny,.5,.4\n"))
    assert "set 'y'" in message
    assert "sum to 0.9" in message


# Numbers that cannot be meant


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("35", "35 is above 1; if these are percentages say --percent"),
        ("1.3", "1.3 is above 1"),
        ("-0.1", "-0.1 is negative; a share lies between 0 and 1"),
        ("412", "412 is above 1; a share lies between 0 and 1 (counts need two columns"),
        ("inf", "inf is above 1"),
        ("high", "'high' is not a number"),
    ],
)
def test_a_share_that_is_none_names_file_column_set_value_and_cure(priors_file, cell, said):
    message = error_of(
        read_rates, priors_file(f"region,share\nnorth,0.5\nsouth,{cell}\n"), "region"
    )
    assert "rates.csv, column 'share', set 'south': " in message
    assert said in message


def test_a_share_that_arithmetic_left_just_above_one_is_one(priors_file):
    priors = read_rates(priors_file("set,p\na,1.0000000000000002\nb,0.5\n"))
    assert priors.set_priors.tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("7,5", "7 positives are more than the total in column 'total'"),
        ("-1,5", "the count -1 is negative"),
        ("1.5,5", "the count 1.5 is not whole"),
        ("0,0", "the total is 0; remove the set"),
    ],
)
def test_counts_that_cannot_be_are_refused(priors_file, line, said):
    message = error_of(read_rates, priors_file(f"set,positives,total\na,1,5\nb,{line}\n"))
    assert "rates.csv" in message
    assert "set 'b'" in message
    assert said in message


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("-0.1", "-0.1 is negative"),
        ("2", "2 is more than 0.5"),
        ("", "is missing"),
        ("inf", "inf is more than 0.5"),
    ],
)
def test_standard_errors_that_cannot_be_are_refused(priors_file, cell, said):
    message = error_of(read_rates, priors_file(f"set,share,se\na,.1,.1\nb,.2,{cell}\n"))
    assert "column 'se', set 'b'" in message
    assert said in message


def test_columns_without_a_clear_meaning_are_refused(priors_file):
    for header in ("set,cases,x,y", "set,a,b,c", "set,se,a,b"):
        cells = ",".join([".4"] * header.count(","))
        message = error_of(read_rates, priors_file(f"{header}\na,{cells}\nb,{cells}\n"))
        assert "cannot tell what the columns" in message or "no column of totals" in message
        assert "--total" in message
    message = error_of(read_rates, priors_file("set,share,rate_a,rate_b\na,,.1,.2\nb,,.2,.3\n"))
    assert "several columns that may be the share: 'rate_a', 'rate_b'" in message


def test_a_remark_beside_the_shares_is_left_out_with_a_word(priors_file):
    priors = read_rates(priors_file("set,name,x\n09,Bavaria,.5\n10,Hesse,.4\n"))
    assert priors.set_priors.tolist() == [0.5, 0.4]
    assert priors.understood.endswith("'x' is the share; 'name' left out")


# Sets that cannot be


def test_an_absent_set_column_lists_the_columns(priors_file):
    path = priors_file("Regions,share\n1,.1\n2,.2\n")
    message = error_of(read_rates, path, "region")
    assert "no set column 'region' (did you mean 'Regions'?)" in message
    assert "'Regions', 'share'" in message
    assert "no set column 'set'" in error_of(read_rates, path)


def test_a_file_of_ids_alone_is_refused(priors_file):
    assert "no column besides the set column" in error_of(read_rates, priors_file("set\na\nb\n"))


def test_an_empty_set_id_names_the_line(priors_file, tmp_path):
    message = error_of(read_rates, priors_file("set,share\na,.1\n\n,.2\n"))
    assert "line 4 of" in message
    assert "empty set id" in message
    path = tmp_path / "rates.parquet"
    pq.write_table(pa.table({"set": ["a", None], "share": [0.1, 0.2]}), path)
    assert "row 2 of" in error_of(read_rates, path)


def test_repeated_sets_are_worded_by_whether_they_agree(priors_file):
    message = error_of(read_rates, priors_file("set,share\na,.1\nb,.2\na,.1\n"))
    assert "lists set 'a' more than once, in line 2 and line 4, with the same values" in message
    message = error_of(read_rates, priors_file("set,share\na,.1\nb,.2\na,.3\n"))
    assert "with different values ('share': '.1' and '.3'); keep the right one" in message


def test_one_set_or_none_is_too_few(priors_file):
    assert "at least two sets" in error_of(read_rates, priors_file("set,share\na,.1\n"))
    assert "no rows" in error_of(read_rates, priors_file("set,share\n"))
    assert "at least two sets" in error_of(Priors.from_mapping, {})


def test_equal_priors_are_not_identifiable(priors_file):
    with pytest.raises(IdentifiabilityError, match=r"all 2 sets .* the same prior \(0.3\)"):
        read_rates(priors_file("set,share\na,.3\nb,0.30\n"))
    with pytest.raises(IdentifiabilityError, match=r"the same prior \(0.7\)"):
        Priors.from_mapping({"a": {"x": 0.3, "y": 0.7}, "b": {"y": 0.7, "x": 0.3}})


def test_broken_files_are_named_like_any_table(priors_file, tmp_path):
    assert "no such file" in error_of(read_rates, tmp_path / "gone.csv")
    message = error_of(read_rates, priors_file("set,share\na,0,31\nb,0,12\n"))
    assert "line 2 of" in message
    assert "3 values where the header has 2" in message


# From Python


def test_a_mapping_keeps_its_ids_whatever_they_are():
    day = datetime.date(2020, 1, 1)
    priors = Priors.from_mapping({1: 0.5, "1": 0.25, ("a", 2): 0, day: np.float32(1)})
    assert priors.set_ids == (1, "1", ("a", 2), day)
    assert priors.set_priors.tolist() == [0.5, 0.25, 0.0, 1.0]
    assert priors.source == "set_priors"


def test_a_mapping_of_classes_may_name_them_in_any_order():
    priors = Priors.from_mapping({"a": {0: 0.2, 1: 0.8}, "b": {1: 0.5, 0: 0.5}})
    assert priors.classes == (0, 1)
    assert priors.set_priors.tolist() == [[0.2, 0.8], [0.5, 0.5]]


def test_a_series_is_a_mapping_too():
    priors = Priors.from_mapping(pd.Series([0.1, 0.2], index=["a", "b"]))
    assert priors.set_ids == ("a", "b")
    twice = pd.Series([0.1, 0.2], index=["a", "a"])
    assert "more than once" in error_of(Priors.from_mapping, twice)


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (35, "35 is above 1; if these are percentages"),
        ("0.35", "'0.35' is not a number; give a share such as 0.35"),
        (None, "None is not a number"),
        (float("nan"), "the share is missing"),
        (-1, "-1 is negative"),
        ({"x": 1.0}, "where other sets have a share"),
    ],
)
def test_a_mapping_is_checked_like_a_file(share, said):
    message = error_of(Priors.from_mapping, {"a": 0.5, "b": share})
    assert "set_priors" in message
    assert said in message


def test_classes_must_be_the_same_in_every_set():
    message = error_of(Priors.from_mapping, {"a": {"x": 0.5, "y": 0.5}, "b": {"x": 1.0}})
    assert "set 'b'" in message
    assert "'x', 'y'" in message
    message = error_of(Priors.from_mapping, {"a": {"x": 0.5, "y": 0.4}, "b": {"x": 1.0, "y": 0}})
    assert "set 'a'" in message
    assert "sum to 0.9" in message
    message = error_of(Priors.from_mapping, {"a": {"x": 50, "y": 0.4}, "b": {"x": 1.0, "y": 0}})
    assert "class 'x', set 'a': 50 is above 1" in message


# Matching


@pytest.fixture
def priors():
    return Priors.from_mapping({"north": 0.1, "south": 0.2, "east": 0.3})


@pytest.mark.parametrize(
    "container",
    [
        list,
        tuple,
        np.array,
        pd.Series,
        pd.Index,
        pd.Categorical,
        lambda ids: np.array(ids, dtype=object),
        lambda ids: pd.Series(ids, dtype="category", index=range(5, 5 + len(ids))),
    ],
)
def test_rows_are_numbered_by_the_order_of_the_priors(priors, container):
    set_index, used_ids = priors.find_sets(container(["east", "north", "south", "north"]))
    assert set_index.tolist() == [2, 0, 1, 0]
    assert set_index.dtype == np.int64
    assert used_ids == ("north", "south", "east")


def test_ids_of_any_type_match_by_equality():
    priors = Priors.from_mapping({1: 0.1, "1": 0.2, ("a", 2): 0.3})
    set_index, _ = priors.find_sets([("a", 2), "1", 1])
    assert set_index.tolist() == [2, 1, 0]
    numbers = Priors.from_mapping({7: 0.1, 8: 0.2})
    assert numbers.find_sets(np.array([8.0, 7.0]))[0].tolist() == [1, 0]


def test_a_set_without_a_prior_is_named(priors):
    message = error_of(priors.find_sets, ["north", "west", "south"])
    assert message == (
        "1 set of the rows has no prior in set_priors: 'west'; "
        "add them, or leave those rows out (--drop-unrated)."
    )


def test_many_sets_without_a_prior_are_counted(priors):
    message = error_of(priors.find_sets, [f"s{number}" for number in range(17)])
    assert "17 sets of the rows have no prior" in message
    assert "'s0', 's1', 's2', 's3', 's4' and 12 more" in message


@pytest.mark.parametrize(
    ("in_rows", "in_priors"),
    [
        ("1", "01"),
        (" north", "north"),
        ("North", "north"),
        (1, "1"),
        (1.0, "1"),
        ("1.0", "1"),
        ("1", 1),
        (np.int64(7), "007"),
        ("Zu\u0308rich", "Z\u00fcrich"),
    ],
)
def test_ids_that_only_look_alike_are_pointed_out(in_rows, in_priors):
    priors = Priors.from_mapping({in_priors: 0.1, "other": 0.2}, source="rates.csv")
    message = error_of(priors.find_sets, ["other", in_rows])
    shown = in_rows.item() if isinstance(in_rows, np.generic) else in_rows
    # Letters put together from parts are told by their codes, or nobody sees the difference.
    words = f"the rows have {quoted(shown)} where rates.csv has {quoted(in_priors)}"
    assert f"{words}: write them alike" in message


def test_different_large_numbers_do_not_look_alike():
    priors = Priors.from_mapping({"12345671": 0.1, "12345672": 0.2})
    assert "alike" not in error_of(priors.find_sets, ["12345673"])


def test_a_prior_without_rows_is_an_error_unless_dropped_or_kept(priors):
    rows = ["east", "north", "north"]
    message = error_of(priors.find_sets, rows)
    assert "1 set of set_priors has no rows: 'south'" in message
    set_index, used_ids = priors.find_sets(rows, unused="drop")
    assert used_ids == ("north", "east")
    assert set_index.tolist() == [1, 0, 0]
    assert priors.keep(used_ids).set_priors.tolist() == [0.1, 0.3]
    set_index, used_ids = priors.find_sets(rows, unused="keep")
    assert used_ids == priors.set_ids
    assert set_index.tolist() == [2, 0, 0]


def test_kept_sets_bring_all_that_is_known_about_them(priors_file):
    priors = read_rates(priors_file("set,cases,n\na,1,4\nb,2,4\nc,4,4\n")).keep(["c", "a"])
    assert priors.set_ids == ("c", "a")
    assert priors.set_priors.tolist() == [1.0, 0.25]
    np.testing.assert_allclose(priors.standard_errors[0], np.sqrt(4.5 * 0.5 / (25 * 6)))
    assert priors.source.endswith("rates.csv")
    assert "at least two" in error_of(priors.keep, ["a"])


@pytest.mark.parametrize("missing", [None, np.nan, pd.NaT])
def test_a_row_without_a_set_is_named(priors, missing):
    rows = pd.Series(["north", "south", missing], dtype=object)
    assert "row 3 has no set" in error_of(priors.find_sets, rows)


def test_a_set_called_na_or_nan_is_a_set_like_any_other():
    priors = Priors.from_mapping({"NA": 0.1, "nan": 0.2})
    assert priors.find_sets(pd.Series(["nan", "NA"]))[0].tolist() == [1, 0]


def test_set_ids_must_be_one_column(priors):
    assert "shape (2, 2)" in error_of(priors.find_sets, np.array([["north"] * 2] * 2))


def test_a_million_rows_are_matched_in_well_under_a_second():
    ids = [f"region {number}" for number in range(1000)]
    priors = Priors.from_mapping({set_id: number / 1000 for number, set_id in enumerate(ids)})
    expected = np.random.default_rng(0).permutation(np.arange(1_000_000) % 1000)
    rows = pd.Series(ids).take(expected).reset_index(drop=True)
    start = time.process_time()
    set_index, _ = priors.find_sets(rows)
    assert time.process_time() - start < 1
    np.testing.assert_array_equal(set_index, expected)
