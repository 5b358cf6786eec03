"""Rows come in as they were meant, whole or streamed, and broken files say where and why."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unmix.data import addresses, csv_table, parquet_table
from unmix.data.tables import (
    column_names,
    count_rows,
    infer_dtypes,
    open_table,
    read_rows,
    scan_rows,
    write_rows,
)
from unmix.errors import InputError


@pytest.fixture
def csv_file(tmp_path):
    def write(content, name="rows.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def parquet_file(tmp_path):
    def write(columns, name="rows.parquet", **options):
        path = tmp_path / name
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        pq.write_table(table, path, **options)
        return path

    return write


@pytest.fixture
def small_blocks(monkeypatch):
    """Let a short file have many blocks."""
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 256)


def error_of(function, *arguments, **options):
    """Return the one line of an InputError."""
    with pytest.raises(InputError) as caught:
        list(function(*arguments, **options))  # a scan meets some errors on its way
    message = str(caught.value)
    assert "\n" not in message
    return message


# What cells mean


def test_set_ids_stay_exactly_what_is_written(csv_file):
    path = csv_file('region,x\n007,1\nNA,2\n1.0,3\n" north",4\nnull,5\n1e3,6\n')
    rows = read_rows(path, set_column="region")
    assert rows["region"].tolist() == ["007", "NA", "1.0", " north", "null", "1e3"]


def test_columns_become_numbers_booleans_or_text(csv_file):
    path = csv_file("i,f,b,t,n\n1,1.5,true,x,\n-2,1e-3,FALSE,NA,\n3,inf,True,2020-01-01,\n")
    rows = read_rows(path)
    assert [str(dtype) for dtype in rows.dtypes[:3]] == ["int64", "float64", "bool"]
    assert rows["i"].tolist() == [1, -2, 3]
    assert rows["f"].tolist() == [1.5, 0.001, np.inf]
    assert rows["b"].tolist() == [True, False, True]
    assert rows["t"].tolist() == ["x", "NA", "2020-01-01"]
    assert rows["n"].dtype == np.float64
    assert rows["n"].isna().all()


def test_missing_numbers_are_nan_and_missing_words_are_missing(csv_file):
    path = csv_file("i,f,b,t\n1,2.5,true,x\n,NA,,\nn/a, 3 ,false,NA\n")
    rows = read_rows(path)
    np.testing.assert_array_equal(rows["i"], [1.0, np.nan, np.nan])
    np.testing.assert_array_equal(rows["f"], [2.5, np.nan, 3.0])
    np.testing.assert_array_equal(rows["b"], [1.0, np.nan, 0.0])
    assert rows["t"].isna().tolist() == [False, True, False]
    assert rows["t"].iloc[2] == "NA"


def test_digits_that_are_no_integer_are_still_numbers(csv_file):
    rows = read_rows(csv_file("big,sign\n99999999999999999999,+5\n1,6\n"))
    assert rows["big"].tolist() == [1e20, 1.0]
    assert rows["sign"].tolist() == [5.0, 6.0]


def test_codes_that_look_hexadecimal_are_text(csv_file):
    assert read_rows(csv_file("code\n0x1F\n7\n"))["code"].tolist() == ["0x1F", "7"]


def test_quotes_protect_commas_quotes_and_line_breaks(csv_file):
    rows = read_rows(csv_file('a,b\n"x,\ny","say ""hi"""\n5" pipe,2\n'))
    assert rows.to_numpy().tolist() == [["x,\ny", 'say "hi"'], ['5" pipe', "2"]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_blank_lines_do_not_matter(csv_file, end):
    content = "\n\na,b\n\n1,x\n\n2,y".replace("\n", end)
    assert read_rows(csv_file(content)).to_dict("list") == {"a": [1, 2], "b": ["x", "y"]}


def test_a_byte_order_mark_is_accepted(csv_file):
    path = csv_file(b"\xef\xbb\xbfregion,x\nn\xc3\xb6rd,1\n")
    assert column_names(path) == ("region", "x")
    assert read_rows(path, set_column="region")["region"].tolist() == ["nörd"]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_other_delimiters_are_recognised_by_the_header(csv_file, delimiter):
    path = csv_file("region;x;note\na;1.5;p,q\n".replace(";", delimiter))
    rows = read_rows(path, set_column="region")
    assert rows.to_dict("list") == {"region": ["a"], "x": [1.5], "note": ["p,q"]}


def test_a_single_column_needs_no_delimiter(csv_file):
    assert read_rows(csv_file("x\n1\n2\n"))["x"].tolist() == [1, 2]


def test_a_tsv_file_may_have_commas_in_its_header(csv_file):
    path = csv_file("a,b\tc\n1\t2\n", "rows.tsv")
    assert column_names(path) == ("a,b", "c")


# One type per column, whatever the batch


def test_a_column_that_turns_to_text_late_is_text_from_the_first_row(csv_file, small_blocks):
    path = csv_file("x,y\n" + "007,1\n" * 500 + "late,2.5\n")
    batches = list(scan_rows(path, batch_rows=100))
    assert [len(batch) for batch in batches] == [100] * 5 + [1]
    assert {str(batch.dtypes["y"]) for batch in batches} == {"float64"}
    assert len({str(batch.dtypes["x"]) for batch in batches}) == 1
    assert batches[0]["x"].iloc[0] == "007"
    assert batches[-1]["x"].iloc[0] == "late"


def test_a_single_missing_value_at_the_end_makes_all_integers_floats(csv_file, small_blocks):
    path = csv_file("x,b\n" + "1,true\n" * 500 + ",\n")
    batches = list(scan_rows(path, batch_rows=100))
    assert {str(dtype) for batch in batches for dtype in batch.dtypes} == {"float64"}
    assert batches[0].to_numpy().tolist() == [[1.0, 1.0]] * 100


def test_the_same_holds_in_parquet(parquet_file):
    x = pa.array([1] * 500 + [None], pa.int32())
    path = parquet_file({"x": x, "full": pa.array(range(501), pa.int16())}, row_group_size=50)
    batches = list(scan_rows(path, batch_rows=100))
    assert {str(batch.dtypes["x"]) for batch in batches} == {"float64"}
    assert {str(batch.dtypes["full"]) for batch in batches} == {"int16"}
    assert infer_dtypes(path) == {"x": "float64", "full": "int16"}


def test_parquet_without_statistics_is_read_as_if_values_might_be_missing(parquet_file):
    path = parquet_file({"x": [1, 2]}, write_statistics=False)
    assert infer_dtypes(path) == {"x": "float64"}


@pytest.fixture
def mixed_frame():
    rng = np.random.default_rng(0)
    n = 1000
    return pd.DataFrame(
        {
            "region": rng.choice(["007", "NA", "north"], n),
            "x": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "count": rng.integers(0, 9, n),
            "flag": rng.random(n) < 0.5,
            "word": rng.choice(["a", "b,c", 'd"e', "f\ng"], n),
        }
    )


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_what_is_written_is_read_back_whole_or_streamed(
    tmp_path, mixed_frame, suffix, small_blocks
):
    path = tmp_path / f"rows{suffix}"
    pieces = (mixed_frame.iloc[start : start + 300] for start in range(0, 1000, 300))
    assert write_rows(path, pieces) == 1000
    whole = read_rows(path, set_column="region")
    pd.testing.assert_frame_equal(whole, mixed_frame)
    for batch_rows in (7, 256, 5000):
        batches = list(scan_rows(path, batch_rows=batch_rows, set_column="region"))
        assert {len(batch) for batch in batches[:-1]} <= {batch_rows}
        pd.testing.assert_frame_equal(pd.concat(batches), whole)
    assert infer_dtypes(path) == {name: str(dtype) for name, dtype in whole.dtypes.items()}


def test_columns_are_chosen_and_ordered_and_the_set_column_comes_along(csv_file, parquet_file):
    csv_path = csv_file("region,x,y\n1,2,3\n")
    parquet_path = parquet_file({"region": [1], "x": [2], "y": [3]})
    for path in (csv_path, parquet_path):
        (batch,) = scan_rows(path, columns=["y", "x"], set_column="region")
        assert batch.to_dict("list") == {"y": [3], "x": [2], "region": ["1"]}


def test_given_dtypes_decide(csv_file, parquet_file):
    csv_path = csv_file("code,x,b,other\n007,1,true,3\n012,,false,4\n")
    dtypes = {"code": "str", "x": "float64", "b": "float64", "absent": "str"}
    (batch,) = scan_rows(csv_path, dtypes=dtypes)
    assert batch["code"].tolist() == ["007", "012"]
    np.testing.assert_array_equal(batch["x"], [1.0, np.nan])
    assert batch["b"].tolist() == [1.0, 0.0]
    assert str(batch["other"].dtype) == "int64"
    parquet_path = parquet_file({"code": [7, 12], "x": ["1", "NA"], "b": [True, False]})
    (batch,) = scan_rows(parquet_path, dtypes=dtypes)
    assert batch["code"].tolist() == ["7", "12"]
    np.testing.assert_array_equal(batch["x"], [1.0, np.nan])
    assert batch["b"].tolist() == [1.0, 0.0]


def test_a_frames_own_dtypes_can_be_given(csv_file):
    trained = pd.DataFrame(
        {"c": pd.Categorical(["a"]), "x": [1.0], "o": pd.Series([1], dtype=object)}
    )
    (batch,) = scan_rows(csv_file("c,x,o\n01,2,03\n"), dtypes=dict(trained.dtypes))
    assert batch.to_numpy().tolist() == [["01", 2.0, "03"]]


def test_a_cell_that_does_not_fit_its_dtype_is_named(csv_file, parquet_file, small_blocks):
    path = csv_file("x,y\n" + "1,2\n" * 300 + "\nseven,2\n")
    message = error_of(scan_rows, path, dtypes={"x": "float64"})
    assert "column 'x'" in message
    assert "'seven' on line 303" in message
    path = parquet_file({"x": ["1"] * 40_000 + ["seven"]})
    assert "'seven' in row 40001" in error_of(scan_rows, path, dtypes={"x": "float64"})
    path = parquet_file({"x": [1.0, 1.5]})
    assert "1.5 in row 2" in error_of(scan_rows, path, dtypes={"x": "int64"})
    path = parquet_file({"x": [datetime.time(1, 2)]})
    assert "cannot be read as double" in error_of(scan_rows, path, dtypes={"x": "float64"})


def test_a_missing_value_where_integers_are_demanded_is_named(csv_file):
    path = csv_file("x,y\n1,1\n,2\n")
    message = error_of(scan_rows, path, dtypes={"x": "int64"})
    assert "column 'x'" in message
    assert "line 3" in message
    assert "float64" in message


def test_an_unknown_dtype_is_refused(csv_file):
    message = error_of(scan_rows, csv_file("x\n1\n"), dtypes={"x": "datetime64[ns]"})
    assert "datetime64[ns]" in message


# Streaming


def test_the_first_batches_come_before_the_end_of_the_file_is_read(csv_file):
    line = "1.25,7,word\n"
    path = csv_file("x,i,t\n" + line * 1_000_000 + "1,2\n")  # 12 MB, broken at the very end
    batches = scan_rows(path, dtypes={"x": "float64", "i": "int64", "t": "str"})
    assert len(next(batches)) == 65536
    message = error_of(list, batches)
    assert "line 1000002" in message
    assert "2 values where the header has 3" in message


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_four_times_the_rows_take_no_more_memory_to_stream(tmp_path, monkeypatch, suffix):
    # Arrow reads some blocks ahead; they must be few beside the short file.
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 1 << 15)
    rng = np.random.default_rng(0)
    columns = [f"x{number}" for number in range(8)]

    def peak(batches):
        path = tmp_path / f"rows-{batches}{suffix}"
        frames = (pd.DataFrame(rng.random((5_000, 8)), columns=columns) for _ in range(batches))
        assert write_rows(path, frames) == 5_000 * batches
        most = rows = 0
        before = pa.total_allocated_bytes()
        for batch in scan_rows(path, batch_rows=1_000):
            most = max(most, pa.total_allocated_bytes() - before)
            rows += len(batch)
        assert rows == 5_000 * batches
        return most

    short, long = peak(4), peak(16)
    assert long < 1.5 * short
    assert long < 16 * 5_000 * 8 * 8  # all the numbers at once


def test_abandoning_a_scan_is_harmless(csv_file):
    batches = scan_rows(csv_file("x\n" + "1\n" * 1000), batch_rows=10)
    next(batches)
    batches.close()


def test_rows_are_counted_only_where_that_is_cheap(csv_file, parquet_file):
    assert count_rows(csv_file("x\n1\n")) is None
    assert count_rows(parquet_file({"x": [1, 2, 3]})) == 3


def test_a_batch_has_at_least_one_row(csv_file):
    assert "batch_rows" in error_of(scan_rows, csv_file("x\n1\n"), batch_rows=0)


# Parquet's own types


def test_dates_are_days_since_1970_wherever_they_come_from(csv_file, parquet_file):
    days = [18263.0, 18263.125, np.nan]
    text = 'x\n2020-01-02\n2020-01-02 03:00:00\n""\n'
    assert read_rows(csv_file(text))["x"].tolist()[:2] == days[:2]
    zoned = csv_file("x\n2020-01-02T00:00:00Z\n2020-01-02T05:00:00+02:00\n")
    assert read_rows(zoned)["x"].tolist() == days[:2]
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC"):
            times = pa.array([1577923200, 1577934000, None], pa.int64()).cast(pa.timestamp("s"))
            path = parquet_file(
                {"x": times.cast(pa.timestamp(unit)).cast(pa.timestamp(unit, zone))}
            )
            np.testing.assert_array_equal(read_rows(path)["x"], days)
    not_a_day = csv_file("x\n2020-01-02\n2020-02-31\n")
    assert read_rows(not_a_day)["x"].tolist() == ["2020-01-02", "2020-02-31"]


def test_parquet_types_become_numbers_and_text(parquet_file):
    path = parquet_file(
        {
            "region": pa.array([7, 8], pa.int8()),
            "half": pa.array([np.float16(1.5), None]),
            "single": pa.array([0.5, None], pa.float32()),
            "decimal": pa.array([decimal.Decimal("0.31"), None]),
            "nothing": pa.nulls(2),
            "category": pa.array(["u", None]).dictionary_encode(),
            "large": pa.array(["v", ""], pa.large_string()),
            "date": pa.array([datetime.date(2020, 1, 2), None]),
            "time": pa.array([datetime.datetime(2020, 1, 2, 3), None], pa.timestamp("s")),
            "flag": pa.array([True, None]),
        }
    )
    rows = read_rows(path, set_column="region")
    assert rows["region"].tolist() == ["7", "8"]
    assert [str(rows[name].dtype) for name in ("half", "single", "decimal", "nothing", "flag")] == [
        "float32",
        "float32",
        "float64",
        "float64",
        "float64",
    ]
    assert rows.iloc[0, 1:].tolist()[:3] == [1.5, 0.5, 0.31]
    assert rows.loc[0, ["category", "large", "date", "time"]].tolist() == [
        "u",
        "v",
        18263.0,  # days since 1970
        18263.125,
    ]
    assert rows.iloc[1, 1:].isna().all()


def test_types_that_pandas_adds_are_read_as_what_they_are_stored(tmp_path):
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"month": pd.period_range("1970-01", periods=2, freq="M")}).to_parquet(path)
    assert read_rows(path, set_column="month")["month"].tolist() == ["0", "1"]


def test_set_ids_that_parquet_holds_as_floats_are_written_short(parquet_file):
    rows = read_rows(parquet_file({"region": [7.0, 0.5]}), set_column="region")
    assert rows["region"].tolist() == ["7", "0.5"]


def test_integers_beyond_the_exact_floats_do_not_stop_the_reading(parquet_file):
    rows = read_rows(parquet_file({"x": [2**60 + 1, None]}))
    assert rows["x"].iloc[0] == float(2**60)


def test_lists_and_bytes_are_refused_unless_left_out(parquet_file):
    path = parquet_file({"x": [1], "embedding": [[0.5, 1.0]], "raw": [b"\xff"]})
    message = error_of(read_rows, path)
    assert "column 'embedding'" in message
    assert "leave the column out" in message
    assert "column 'raw'" in error_of(scan_rows, path, columns=["raw"])
    assert "column 'embedding'" in error_of(scan_rows, path, columns=["x"], set_column="embedding")
    (batch,) = scan_rows(path, columns=["x"])
    assert batch.to_dict("list") == {"x": [1]}


def test_the_nameless_index_of_pandas_is_no_column(tmp_path):
    path = tmp_path / "rows.parquet"
    frame = pd.DataFrame({"x": [1, 2, 3]}, index=[5, 6, 9])
    frame.to_parquet(path)
    rows = read_rows(path)
    assert rows.to_dict("list") == {"x": [1, 2, 3]}
    assert rows.index.tolist() == [0, 1, 2]


def test_a_named_index_of_pandas_is_a_column(tmp_path):
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"x": [1]}, index=pd.Index(["n"], name="region")).to_parquet(path)
    assert read_rows(path, set_column="region")["region"].tolist() == ["n"]


# Errors


def test_a_missing_file_is_named(tmp_path):
    for name in ("gone.csv", "gone.parquet"):
        message = error_of(read_rows, tmp_path / name)
        assert name in message
        assert "no such file" in message


def test_a_folder_is_not_a_table(tmp_path):
    assert "has no .parquet or .csv file" in error_of(read_rows, tmp_path)


@pytest.mark.parametrize("name", ["rows.xlsx", "rows", "rows.parquet.gz"])
def test_other_suffixes_are_refused(csv_file, name):
    message = error_of(read_rows, csv_file("x\n1\n", name))
    assert ".csv and .parquet" in message


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_an_empty_file_is_said_to_be(csv_file, content):
    assert "rows.csv is empty" in error_of(read_rows, csv_file(content))


@pytest.mark.parametrize("content", ["a,b\n", "a,b", "a,b\n\n\n"])
def test_a_header_alone_is_said_to_be(csv_file, content):
    path = csv_file(content)
    assert "no rows" in error_of(read_rows, path)
    assert "no rows" in error_of(scan_rows, path, dtypes={"a": "str", "b": "str"})


def test_a_parquet_file_without_rows_is_said_to_be(parquet_file):
    path = parquet_file({"x": pa.array([], pa.int64())})
    assert "no rows" in error_of(read_rows, path)
    assert "no rows" in error_of(scan_rows, path, dtypes={"x": "int64"})


@pytest.mark.parametrize(("line", "count"), [("1", 1), ("1,2,3", 3)])
def test_a_ragged_line_is_named_with_both_counts(csv_file, line, count):
    message = error_of(read_rows, csv_file(f'a,b\n1,"x\ny"\n\n{line}\n1,2\n'))
    assert "line 5 of" in message
    assert f"{count} values where the header has 2" in message


def test_a_quote_that_is_never_closed_is_named(csv_file):
    message = error_of(read_rows, csv_file('a,b\n1,2\n"3,4\n5,6\n'))
    assert "ends inside a value" in message
    assert "close the quote that opens on line 3" in message
    message = error_of(read_rows, csv_file('a,b\n1,2\n"3,4\n' + "5,6\n" * 500_000))
    assert "line 3 of" in message
    assert "quote" in message


def test_a_semicolon_file_with_decimal_commas_holds_numbers(csv_file):
    path = csv_file("region;x;y\na;0,35;1\nb;1;2,5\nc;NA;-,5\n")
    rows = read_rows(path, set_column="region")
    assert rows["x"].tolist()[:2] == [0.35, 1.0]
    assert np.isnan(rows["x"][2])
    assert rows["y"].tolist() == [1, 2.5, -0.5]
    types = {"x": "float64", "y": "float64"}
    again = pd.concat(scan_rows(path, set_column="region", dtypes=types, batch_rows=2))
    pd.testing.assert_frame_equal(again, rows[again.columns], check_index_type=False)


@pytest.mark.parametrize("cell", ["1.234,5", "1,234,567"])
def test_decimal_commas_beside_points_are_asked_about(csv_file, cell):
    message = error_of(read_rows, csv_file(f"region;x\na;0,35\nb;{cell}\n"), set_column="region")
    assert "column 'x'" in message
    assert "0.35" in message


@pytest.mark.parametrize("value", ["1,234,567.5", "1,234", "1.234,5"])
def test_thousands_separators_are_errors_too(csv_file, value):
    assert repr(value) in error_of(read_rows, csv_file(f'x,y\n"{value}",1\n12,2\n'))


@pytest.mark.parametrize("cell", ["1,2,3", "a,b", "north, 3"])
def test_text_with_commas_is_text(csv_file, cell):
    assert read_rows(csv_file(f'x,y\n"{cell}",1\n"0,5",2\n'))["x"].tolist() == [cell, "0,5"]


def test_decimal_commas_in_set_ids_are_part_of_the_id(csv_file):
    rows = read_rows(csv_file("region;x\n0,5;1\n0,7;2\n"), set_column="region")
    assert rows["region"].tolist() == ["0,5", "0,7"]


def test_a_semicolon_file_that_does_not_parse_names_line_and_delimiter(csv_file):
    message = error_of(read_rows, csv_file("a;b\n1;2\n1;2;3\n"))
    assert "line 3" in message
    assert "semicolon" in message


def test_repeated_column_names_are_refused(csv_file, parquet_file):
    assert "several columns named 'a'" in error_of(read_rows, csv_file("a,b,a\n1,2,3\n"))
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert "several columns named 'a'" in error_of(read_rows, parquet_file(table))


def test_a_column_without_a_name_is_refused(csv_file):
    assert "column 2 of" in error_of(read_rows, csv_file("x,\n0,1\n"))


def test_the_index_of_a_saved_frame_has_the_name_that_pandas_gives_it(csv_file):
    path = csv_file(",x,name\n3,1,a\n4,2,b\n")
    pd.testing.assert_frame_equal(read_rows(path), pd.read_csv(path), check_dtype=False)
    assert list(read_rows(path, columns=["name"])) == ["name"]
    assert "2 values where the header has 3" in error_of(read_rows, csv_file(",x,y\n0,1\n"))


def test_columns_that_nothing_known_separates_are_asked_about(csv_file):
    assert "separate values by commas" in error_of(read_rows, csv_file("a   b\n1   2\n"))
    markdown = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert "table in Markdown" in error_of(read_rows, csv_file(markdown))


def test_latin_1_is_named_with_its_line_and_the_cure(csv_file):
    message = error_of(read_rows, csv_file("region,x\na,1\nn\xf6rd,1\n".encode("latin-1")))
    assert "line 3" in message
    assert "0xf6" in message
    assert "iconv -f LATIN1 -t UTF-8" in message
    late = ("x,y\n" + "1,2\n" * 300_000 + "1,\xf6\n").encode("latin-1")
    assert "line 300002" in error_of(read_rows, csv_file(late))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_named(csv_file, encoding):
    message = error_of(read_rows, csv_file("region,x\na,1\n".encode(encoding)))
    assert "UTF-16" in message
    assert "save it as UTF-8" in message


def test_other_formats_under_a_csv_name_are_recognised(csv_file, parquet_file):
    assert "workbook" in error_of(read_rows, csv_file(b"PK\x03\x04\x00\x00"))
    assert "compressed" in error_of(read_rows, csv_file(b"\x1f\x8b\x08\x00"))
    assert ".parquet" in error_of(read_rows, parquet_file({"x": [1]}, "disguised.csv"))


def test_parquet_that_is_cut_short_or_damaged_is_named(tmp_path, parquet_file):
    path = parquet_file({"x": np.random.default_rng(0).normal(size=50_000)})
    whole = path.read_bytes()
    broken = tmp_path / "broken.parquet"
    for content in (
        b"",
        b"x,y\n1,2\n",
        whole[:-100],
        whole[:1000],
        whole[:4] + bytes(100) + whole[104:],
    ):
        broken.write_bytes(content)
        message = error_of(read_rows, broken)
        assert "broken.parquet is no whole Parquet file" in message
        assert "again" in message


def test_an_absent_set_column_lists_the_columns_and_guesses(csv_file, parquet_file):
    for path in (csv_file("Region,x\na,1\n"), parquet_file({"Region": ["a"], "x": [1]})):
        for read in (read_rows, scan_rows):
            message = error_of(read, path, set_column="region")
            assert "no column 'region'" in message
            assert "did you mean 'Region'?" in message
            assert "'Region', 'x'" in message
    assert "did you mean" not in error_of(scan_rows, path, columns=["zzz"])


def test_a_missing_set_is_named_with_its_line_or_row(csv_file, parquet_file, small_blocks):
    path = csv_file("region,x\n" + "a,1\n" * 200 + '"b\nb",2\n,3\n')
    message = error_of(read_rows, path, set_column="region")
    assert "set column 'region'" in message
    assert "line 204" in message
    path = parquet_file({"region": ["a"] * 20_000 + [None], "x": range(20_001)})
    assert "row 20001" in error_of(read_rows, path, set_column="region")


# Writing


def test_missing_values_are_empty_cells_in_csv(tmp_path):
    path = tmp_path / "scored.csv"
    frame = pd.DataFrame({"p": [0.25, np.nan], "t": ["a,b", None], "i": [1, 2]})
    assert write_rows(path, [frame]) == 2
    assert path.read_text() == '"p","t","i"\n0.25,"a,b",1\n,,2\n'


def test_probabilities_survive_the_round_trip_exactly(tmp_path):
    p = np.random.default_rng(0).random(1000) ** 9
    for suffix in (".csv", ".parquet"):
        path = tmp_path / f"scored{suffix}"
        write_rows(path, [pd.DataFrame({"p": p})])
        np.testing.assert_array_equal(read_rows(path)["p"], p)


def test_categories_and_empty_text_keep_one_type_over_batches(tmp_path):
    first = pd.DataFrame({"c": pd.Categorical(["a"]), "t": pd.Series([None], dtype=object)})
    second = pd.DataFrame({"c": pd.Categorical(["b"]), "t": ["word"]})
    for suffix in (".csv", ".parquet"):
        path = tmp_path / f"rows{suffix}"
        write_rows(path, [first, second])
        rows = read_rows(path)
        assert rows["c"].tolist() == ["a", "b"]
        assert rows["t"].iloc[1] == "word"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_failure_in_a_later_batch_leaves_the_old_file(tmp_path, suffix):
    path = tmp_path / f"scored{suffix}"
    path.write_bytes(b"old")

    def batches():
        yield pd.DataFrame({"p": [0.5]})
        raise RuntimeError("the model failed")

    with pytest.raises(RuntimeError, match="the model failed"):
        write_rows(path, batches())
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_batches_that_do_not_fit_together_are_refused(tmp_path):
    path = tmp_path / "scored.csv"
    first = pd.DataFrame({"p": [0.5]})
    for second in (pd.DataFrame({"q": [0.5]}), pd.DataFrame({"p": ["half"]})):
        with pytest.raises(InputError, match=r"cannot write .*scored.csv"):
            write_rows(path, [first, second])
        assert not path.exists()


def test_nothing_to_write_and_unknown_suffixes_are_errors(tmp_path):
    with pytest.raises(InputError, match="no rows to write"):
        write_rows(tmp_path / "a.csv", [])
    with pytest.raises(InputError, match=r"the suffix '.json'"):
        write_rows(tmp_path / "a.json", iter([]))
    with pytest.raises(InputError, match="does not exist"):
        write_rows(tmp_path / "no" / "a.csv", [pd.DataFrame({"x": [1]})])


@pytest.mark.parametrize(("name", "most"), [("rows.parquet", 2), ("rows.csv", 4)])
def test_a_fit_opens_its_table_for_what_it_says_of_itself_and_once_for_its_rows(
    tmp_path, monkeypatch, name, most
):
    # CSV: how it begins, its header, the types of its columns, its rows.
    opened = []
    for module, function in (
        (csv_table, "opened_binary"),
        (addresses, "opened_binary"),
        (parquet_table, "opened_for_parquet"),
    ):
        plain = getattr(module, function)

        def counted(path, *args, plain=plain, **options):
            opened.append(str(path))
            return plain(path, *args, **options)

        monkeypatch.setattr(module, function, counted)
    rows = tmp_path / name
    frame = pd.DataFrame({"a": [1.0, 2.0, None], "b": [1, 2, 3], "region": ["x", "y", "y"]})
    write_rows(rows, [frame])
    opened.clear()
    table = open_table(rows)
    assert len(read_rows(table, set_column="region")) == 3
    assert opened.count(str(rows)) == most
