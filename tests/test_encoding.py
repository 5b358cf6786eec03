import datetime
import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from unmix.data.tables import read_rows
from unmix.errors import InputError
from unmix.learn import encoding, table_blocks
from unmix.learn.columns import CategoryColumn, EmptyColumn, NumberColumn
from unmix.learn.encoding import TableEncoder

NAN = np.nan


def people():
    return pd.DataFrame(
        {
            "age": [20.0, 40.0, NAN, 30.0],
            "city": ["Rome", "Oslo", None, "Rome"],
            "member": [True, False, True, False],
            "country": ["IT", "IT", "IT", "IT"],
            "version": [3, 3, 3, 3],
            "note": [NAN, NAN, NAN, NAN],
        }
    )


def stored(encoder):
    return TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))


def column(values, dtype=None):
    return pd.DataFrame({"a": pd.Series(values, dtype=dtype), "b": np.arange(len(values))})


# The matrix


def test_numbers_are_standardised_and_categories_get_a_column_each():
    encoder = TableEncoder.fit(people())
    assert encoder.columns == ["age", "city", "member", "country", "version", "note"]
    names = ["age", "member", "age is missing", "city is missing", "city=Oslo", "city=Rome"]
    assert encoder.feature_names == names
    deviation = np.std([20, 30, 40])
    expected = [
        [-10 / deviation, 1, 0, 0, 0, 1],
        [10 / deviation, -1, 0, 0, 1, 0],
        [0, 1, 1, 1, 0, 0],
        [0, -1, 0, 0, 0, 1],
    ]
    x = encoder.matrix(people())
    assert x.dtype == np.float32
    np.testing.assert_allclose(x, expected, atol=1e-7)


def test_native_keeps_numbers_and_gives_categories_codes():
    encoder = TableEncoder.fit(people())
    assert encoder.categorical == [1, 3]
    expected = [
        [20, 1, 1, 0, 3, NAN],
        [40, 0, 0, 0, 3, NAN],
        [NAN, NAN, 1, 0, 3, NAN],
        [30, 1, 0, 0, 3, NAN],
    ]
    np.testing.assert_array_equal(encoder.native(people()), expected)


def test_a_stored_encoder_encodes_to_the_same_bits():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.lognormal(10, 3, size=(500, 3)), columns=list("abc"))
    frame["d"] = rng.choice(["x", "y", "zürich"], 500)
    frame.loc[::7, ["a", "d"]] = None
    encoder = TableEncoder.fit(frame)
    again = stored(encoder)
    assert again.to_dict() == encoder.to_dict()
    assert again.feature_names == encoder.feature_names
    assert again.matrix(frame).tobytes() == encoder.matrix(frame).tobytes()
    assert again.native(frame).tobytes() == encoder.native(frame).tobytes()


def test_the_state_of_the_scaler_is_that_of_the_data():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.normal(1e6, 3, 1000), "b": rng.exponential(1e-9, 1000)})
    frame.loc[:9, "b"] = NAN
    x = TableEncoder.fit(frame).matrix(frame).astype(float)
    np.testing.assert_allclose(x[:, :2].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(x[:, 0].std(), 1, rtol=1e-6)
    np.testing.assert_allclose(x[10:, 1].std(), 1, rtol=1e-6)
    np.testing.assert_array_equal(x[:, 2], np.arange(1000) < 10)


@pytest.mark.parametrize("mean", [0.0, 1e3, 1e8])
def test_standardised_numbers_are_right_to_the_last_bit(mean):
    frame = pd.DataFrame({"a": np.random.default_rng(2).normal(mean, 1.0, 5000)})
    encoder = TableEncoder.fit(frame)
    (column,) = encoder.summaries
    exact = [(Fraction(v) - Fraction(column.mean)) / Fraction(column.deviation) for v in frame["a"]]
    wanted = np.array([float(value) for value in exact]).astype(np.float32)
    np.testing.assert_array_equal(encoder.matrix(frame)[:, 0], wanted)


def test_long_tables_are_encoded_block_by_block_alike(monkeypatch):
    frame = pd.concat([people()] * 5)
    whole = TableEncoder.fit(frame).matrix(frame)
    monkeypatch.setattr(encoding, "BLOCK_ROWS", 3)
    np.testing.assert_array_equal(TableEncoder.fit(frame).matrix(frame), whole)


@pytest.mark.parametrize("blocks", [1, 3])
def test_columns_looked_at_together_show_what_each_shows_alone(monkeypatch, blocks):
    rng = np.random.default_rng(4)
    values = rng.normal(rng.normal(0, 1e3, 70), rng.lognormal(0, 3, 70), (5_000, 70))
    values[:, 0], values[:, 1] = 7.0, np.arange(5_000)  # says nothing; numbers the rows
    values[:, 2] = np.arange(5_000)[::-1]
    values[4_000:, 3], values[:, 3] = 0.0, np.arange(5_000) - (np.arange(5_000) > 4_500)
    table = pd.DataFrame(values, columns=[f"c{i}" for i in range(70)])
    found = []
    for by_row in (table_blocks.numbers_by_row, lambda frame: None):
        monkeypatch.setattr(table_blocks, "numbers_by_row", by_row)
        summary = encoding.TableSummary()
        for block in np.array_split(np.arange(5_000), blocks):
            summary.add(table.iloc[block])
        found.append(summary)
    for together, alone in zip(*(summary.columns for summary in found), strict=True):
        exact = ("name", "count", "low", "high", "missing", "names_rows")
        assert [getattr(together, name) for name in exact] == [
            getattr(alone, name) for name in exact
        ]
        assert together.mean == pytest.approx(alone.mean, rel=1e-12, abs=1e-12)
        assert together.variance == pytest.approx(alone.variance, rel=1e-11)
    encoders = [summary.encoder() for summary in found]
    assert encoders[0].left_out == encoders[1].left_out == {"c1": "numbers the rows"}
    assert encoders[0].feature_names == encoders[1].feature_names


@pytest.mark.parametrize("rows", [1, 7, 85, 1_000])
def test_the_ends_of_columns_are_those_of_each(rows):
    values = np.random.default_rng(rows).normal(size=(rows, 3))
    values[rows // 2, 0] = np.nan
    values[:, 2] = np.nan
    found = table_blocks.column_ends(values)
    expected = [[np.fmin.reduce(column), np.fmax.reduce(column)] for column in values.T]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, 1e200])
def test_a_number_out_of_range_among_many_columns_is_named(wrong):
    values = np.random.default_rng(0).normal(size=(100, 70))
    values[17, 5] = wrong
    with pytest.raises(InputError, match=r"column 'x5' holds .* in row 17"):
        TableEncoder.fit(values)


def test_only_the_thirty_most_frequent_categories_are_kept():
    words = [f"w{i:02}" for i in range(40) for _ in range(1 + (i % 2))]  # odd ones are frequent
    encoder = TableEncoder.fit(pd.DataFrame({"a": words}))
    kept = [f"w{i:02}" for i in range(40) if i % 2 or i < 20]
    assert encoder.feature_names == [f"a={word}" for word in kept]
    rare = pd.DataFrame({"a": ["w38", "w01", "never seen"]})
    np.testing.assert_array_equal(encoder.matrix(rare).sum(axis=1), [0, 1, 0])
    np.testing.assert_array_equal(encoder.native(rare)[:, 0], [NAN, 1, NAN])
    # The model has met rare categories in this column, so a new one is no news.
    assert encoder.unseen(rare) == {}


# What is different at prediction


def test_missing_numbers_that_training_did_not_have_are_put_at_the_mean():
    encoder = TableEncoder.fit(pd.DataFrame({"a": [1.0, 2.0, 6.0]}))
    assert encoder.feature_names == ["a"]
    new = pd.DataFrame({"a": [NAN, 3.0]})
    np.testing.assert_array_equal(encoder.matrix(new), [[0], [0]])
    np.testing.assert_array_equal(encoder.native(new), [[NAN], [3]])


def test_missing_categories_that_training_did_not_have_are_like_unknown_ones():
    encoder = TableEncoder.fit(pd.DataFrame({"a": ["x", "y"]}))
    new = pd.DataFrame({"a": [None, "z", "y"]})
    np.testing.assert_array_equal(encoder.matrix(new), [[0, 0], [0, 0], [0, 1]])
    np.testing.assert_array_equal(encoder.native(new), [[NAN], [NAN], [1]])


def test_unseen_categories_are_counted_with_an_example():
    encoder = TableEncoder.fit(people())
    new = pd.concat([people()] * 2, ignore_index=True)
    new.loc[[5, 7], "city"] = ["Bern", "Paris"]
    new["note"] = "anything"
    assert encoder.unseen(new) == {"city": (2, "Bern")}
    assert encoder.unseen(people()) == {}


def test_columns_are_taken_by_name_and_others_are_ignored():
    encoder = TableEncoder.fit(people())
    shuffled = people().assign(extra=pd.Timestamp("2020-01-01"))[
        ["note", "extra", "city", "member", "age", "version", "country"]
    ]
    np.testing.assert_array_equal(encoder.matrix(shuffled), encoder.matrix(people()))


def test_missing_columns_are_named():
    encoder = TableEncoder.fit(people())
    with pytest.raises(InputError, match="table are missing: 'age', 'member'; add them"):
        encoder.matrix(people().drop(columns=["age", "member"]))


def test_text_in_a_column_of_numbers_is_named_with_its_row():
    encoder = TableEncoder.fit(people())
    new = people().astype({"age": object})
    new.loc[2, "age"] = "forty"
    words = "column 'age' held numbers in training and holds 'forty' in row 2; make it numbers"
    with pytest.raises(InputError, match=words):
        encoder.matrix(new)
    for dtype in ("str", "category", pd.ArrowDtype(pa.string())):
        text = people().assign(age=pd.Series([None, "9", "10", "11"], dtype=dtype))
        with pytest.raises(InputError, match="holds '9' in row 1"):
            encoder.native(text)


@pytest.mark.parametrize("dtype", ["int64", "float32", "Int8", "category", object, "str"])
def test_numbers_in_a_column_of_text_are_read_as_text(dtype):
    encoder = TableEncoder.fit(pd.DataFrame({"code": ["7", "12", "x"]}))
    new = pd.DataFrame({"code": pd.Series([12, 7, 8]).astype(dtype)})
    np.testing.assert_array_equal(encoder.native(new)[:, 0], [0, 1, NAN])
    assert encoder.unseen(new) == {"code": (1, "8")}


def test_dtypes_say_how_a_file_has_to_be_read():
    encoder = TableEncoder.fit(people())
    assert encoder.dtypes["age"] == encoder.dtypes["member"] == "float64"
    assert encoder.dtypes["city"] == encoder.dtypes["note"] == "str"


# Columns that say nothing


def test_constant_and_empty_columns_are_left_out_whatever_they_hold_later():
    encoder = TableEncoder.fit(people())
    new = people().assign(version=1e100, country="FR", note="text")
    np.testing.assert_array_equal(encoder.matrix(new), encoder.matrix(people()))
    assert np.isnan(encoder.native(new)[:, 5]).all()


def test_a_constant_with_gaps_is_a_mark_for_the_gaps():
    frame = pd.DataFrame({"a": [5.0, NAN, 5.0], "b": ["yes", None, None]})
    encoder = TableEncoder.fit(frame)
    assert encoder.feature_names == ["a is missing", "b is missing", "b=yes"]
    expected = [[0, 0, 1], [1, 1, 0], [0, 1, 0]]
    np.testing.assert_array_equal(encoder.matrix(frame), expected)


@pytest.mark.parametrize("values", [[None, None], [NAN, None], [pd.NA, pd.NA]])
@pytest.mark.parametrize("dtype", [object, "str", "category", "Float64"])
def test_a_column_without_values_is_empty_whatever_its_type(values, dtype):
    encoder = TableEncoder.fit(column(values, dtype))
    assert encoder.summaries[0] == EmptyColumn("a")
    assert encoder.feature_names == ["b"]


def test_numbers_that_differ_only_in_rounding_count_as_constant():
    frame = pd.DataFrame({"a": [1e16, 1e16 + 2, 1e16], "b": [1, 2, 3]})
    assert TableEncoder.fit(frame).feature_names == ["b"]


def test_a_table_in_which_nothing_varies_is_refused():
    with pytest.raises(InputError, match=r"no column varies \('version', 'note'\)"):
        TableEncoder.fit(people()[["version", "note"]])


def test_values_far_beyond_training_stay_finite():
    encoder = TableEncoder.fit(pd.DataFrame({"a": [0.0, 1.0]}))
    new = pd.DataFrame({"a": [1e149, -1e149]})
    np.testing.assert_array_equal(encoder.matrix(new), [[1e6], [-1e6]])


# Kinds of columns


@pytest.mark.parametrize(
    "dtype",
    ["int8", "uint64", "float16", "float32", "Int64", "Float32", "boolean", "bool"]
    + [pd.ArrowDtype(t) for t in (pa.int32(), pa.float64(), pa.bool_(), pa.decimal128(5, 2))]
    + [pd.SparseDtype("float64"), object],
)
def test_every_type_of_number_is_a_number(dtype):
    values = [Decimal(0), Decimal(1)] if "decimal" in str(dtype) else [0, 1]
    frame = column(values, dtype)
    encoder = TableEncoder.fit(frame)
    assert encoder.summaries[0] == NumberColumn("a", 0.5, 0.5, False)
    np.testing.assert_array_equal(encoder.matrix(frame)[:, 0], [-1, 1])


@pytest.mark.parametrize(
    "dtype", ["Int64", "boolean", "Float32", pd.ArrowDtype(pa.float32()), object]
)
def test_missing_values_of_every_type_are_missing(dtype):
    frame = column([0, None, 1], dtype)
    assert TableEncoder.fit(frame).summaries[0] == NumberColumn("a", 0.5, 0.5, True)
    np.testing.assert_array_equal(TableEncoder.fit(frame).native(frame)[:, 0], [0, NAN, 1])


def test_a_nan_inside_an_arrow_column_is_missing_too():
    values = pd.arrays.ArrowExtensionArray(pa.array([0.0, NAN, None, 1.0], from_pandas=False))
    assert TableEncoder.fit(column(values)).summaries[0] == NumberColumn("a", 0.5, 0.5, True)


@pytest.mark.parametrize(
    "dtype",
    ["str", object, "string", "category"]
    + [pd.ArrowDtype(t) for t in (pa.string(), pa.dictionary(pa.int32(), pa.string()))],
)
def test_every_type_of_text_is_a_category(dtype):
    frame = column(["u", None, "v"], dtype)
    encoder = TableEncoder.fit(frame)
    assert encoder.summaries[0] == CategoryColumn("a", ("u", "v"), False, True)
    np.testing.assert_array_equal(encoder.native(frame)[:, 0], [0, NAN, 1])


def test_a_categorical_of_numbers_stays_a_category_and_text_mixed_with_numbers_is_text():
    frame = pd.DataFrame({"a": pd.Categorical([3, 1, 3]), "b": ["x", 2.0, 2]})
    first, second = TableEncoder.fit(frame).summaries
    assert first == CategoryColumn("a", ("1", "3"), False, False)
    assert second == CategoryColumn("b", ("2", "x"), False, False)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (datetime.time(1, 2), "type time; turn times into numbers"),
        (b"bytes", "type bytes; decode bytes into text"),
        ([1, 2], "type list; turn them into one number or one word per cell"),
        ({"a": 1}, "type dict; turn them into one number"),
        (1 + 2j, "type complex; turn them into one number"),
    ],
)
def test_other_values_are_refused_with_a_cure(value, words):
    with pytest.raises(InputError, match=f"column 'a' holds values of {words}"):
        TableEncoder.fit(column([value, value]))
    encoder = TableEncoder.fit(column(["x", "y"]))
    for use in (encoder.matrix, encoder.native, encoder.unseen):
        with pytest.raises(InputError, match=f"column 'a' holds values of {words}"):
            use(column([value, value]))


# Arrays


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool, object])
def test_an_array_is_a_table_of_numbers(dtype):
    x = np.array([[0, 1], [1, 1], [1, 0]]).astype(dtype)
    encoder = TableEncoder.fit(x)
    assert encoder.columns == encoder.feature_names == ["x0", "x1"]
    np.testing.assert_array_equal(encoder.native(x), x.astype(float))
    np.testing.assert_allclose(encoder.matrix(x).mean(axis=0), 0, atol=1e-7)


def test_arrays_that_are_no_tables_of_numbers_are_refused():
    with pytest.raises(InputError, match=r"shape \(n, d\); got \(3,\)"):
        TableEncoder.fit(np.arange(3))
    with pytest.raises(InputError, match="column 'x1' of the array holds text; give a DataFrame"):
        TableEncoder.fit(np.array([[1, "a"], [2, "b"]], dtype=object))
    with pytest.raises(InputError, match="column 'x0' holds values of type dict"):
        TableEncoder.fit(np.array([[{"foo": 1}], [2]], dtype=object))
    with pytest.raises(InputError, match=r"a pandas DataFrame or a numpy array .* got list"):
        TableEncoder.fit([[1, 2], [3, 4]])
    encoder = TableEncoder.fit(np.eye(2))
    with pytest.raises(InputError, match="the array has 3 columns and training had 2"):
        encoder.matrix(np.eye(3))


# Tables that cannot be used


def test_extreme_numbers_are_named_with_column_and_row():
    for value, words in [
        (np.inf, "holds inf in row second; replace it by a number or an empty cell"),
        (-np.inf, "holds -inf in row second; replace it"),
        (1e308, r"holds 1e\+308 in row second; looks like a missing-value code; replace it by an"),
        (-2e150, r"holds -2e\+150 in row second; looks like"),
        (10**400, "holds an integer with more than 300 digits"),
    ]:
        dtype = object if isinstance(value, int) else float
        bad = pd.DataFrame(
            {"a": [1, value, value]}, index=["first", "second", "third"], dtype=dtype
        )
        with pytest.raises(InputError, match=f"column 'a' {words}"):
            TableEncoder.fit(bad)
        encoder = TableEncoder.fit(pd.DataFrame({"a": [1.0, 2.0]}))
        for encode in (encoder.matrix, encoder.native):
            with pytest.raises(InputError, match=f"column 'a' {words}"):
                encode(bad)


def test_the_largest_allowed_numbers_do_no_harm():
    frame = pd.DataFrame({"a": [1e150, -1e150, 0.0], "b": [1e-200, 2e-200, 3e-200], "c": [1, 2, 3]})
    x = TableEncoder.fit(frame).matrix(frame)
    assert np.isfinite(x).all()
    assert x[0, 0] == pytest.approx(np.sqrt(1.5))


def test_repeated_column_names_are_refused_where_they_matter():
    twice = pd.DataFrame([[1, 2], [3, 5]], columns=["a", "a"])
    with pytest.raises(InputError, match="column 'a' appears more than once; rename one"):
        TableEncoder.fit(twice)
    with pytest.raises(InputError, match="column '1' appears more than once"):
        TableEncoder.fit(pd.DataFrame([[1, 2], [3, 5]], columns=[1, "1"]))
    encoder = TableEncoder.fit(pd.DataFrame({"b": [1, 2]}))
    with pytest.raises(InputError, match="column 'b' appears more than once"):
        encoder.matrix(pd.DataFrame([[1, 2]], columns=["b", "b"]))
    harmless = pd.concat([pd.DataFrame({"b": [1, 2]}), twice], axis=1)
    np.testing.assert_array_equal(encoder.matrix(harmless), [[-1], [1]])


def test_names_that_are_no_text_are_taken_as_text():
    encoder = TableEncoder.fit(pd.DataFrame({0: [1, 2], 10: ["a", "b"]}))
    assert stored(encoder).columns == ["0", "10"]


def test_tables_without_rows_or_columns_are_refused():
    encoder = TableEncoder.fit(people())
    for use in (TableEncoder.fit, encoder.matrix, encoder.native, encoder.unseen):
        with pytest.raises(InputError, match="the table has no rows"):
            use(people().iloc[:0])
        with pytest.raises(InputError, match="the table has no columns"):
            use(pd.DataFrame(index=range(3)))


# Stored encoders


def broken(**changes):
    state = json.loads(json.dumps(TableEncoder.fit(people()).to_dict()))
    state["columns"][0] |= changes
    return state


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ([], r"'version' and 'columns'; got \[\]"),
        ({"version": 1}, "'version' and 'columns'; got 'version'"),
        (broken() | {"more": 1}, "got 'columns', 'more', 'version'"),
        (broken() | {"version": 2}, "format version 2, and this unmix reads 1"),
        ({"version": 1, "columns": []}, "no list of columns"),
        ({"version": 1, "columns": ["age"]}, "column 0 .* none of the kinds 'number', 'category'"),
        (broken(kind="date"), "column 0 .* none of the kinds"),
        (broken(kind=["number"]), "column 0 .* none of the kinds"),
        (broken(scale=2), "column 0 .* lacks or adds 'scale'"),
        (broken(kind="category"), "lacks or adds 'categories', 'deviation', 'mean', 'rare'"),
        (broken(name=3), "column 0 .* has name = 3"),
        (broken(name="city"), "has column 'city' twice"),
        (broken(mean="20"), "column 0 .* has mean = '20'"),
        (broken(mean=float("nan")), "has mean = nan"),
        (broken(mean=10**400), "has mean = 1000"),
        (broken(deviation=-1.0), "has deviation = -1.0"),
        (broken(deviation=True), "has deviation = True"),
        (broken(missing=1), "has missing = 1"),
        ({"version": 1, "columns": [{"kind": "category", "name": "a", "categories": ["x", "x"],
          "rare": False, "missing": False}]}, "has categories = "),
    ],
)  # fmt: skip
def test_a_stored_encoder_that_is_not_as_it_should_be_is_refused(state, words):
    with pytest.raises(InputError, match=words):
        TableEncoder.from_dict(state)


def test_errors_are_one_line():
    for bad in (people().iloc[:0], people().assign(age=np.inf), people().assign(age=b"x")):
        with pytest.raises(InputError) as caught:
            TableEncoder.fit(bad)
        assert "\n" not in str(caught.value)


# What becomes of columns


def long(**columns):
    return pd.DataFrame({"y": np.random.default_rng(0).normal(size=80), **columns})


@pytest.mark.parametrize(
    "dates",
    [
        pd.date_range("2020-01-01", periods=80),
        pd.date_range("2020-01-01", periods=80, tz="Europe/Rome").tz_convert("UTC"),
        [datetime.date(2020, 1, 1) + datetime.timedelta(days=i) for i in range(80)],
    ],
)
def test_dates_are_numbers_of_days(dates):
    encoder = TableEncoder.fit(long(day=pd.Series(dates).sample(frac=1, random_state=0).to_numpy()))
    day = encoder.summaries[1]
    assert isinstance(day, NumberColumn)
    assert day.mean == pytest.approx(18262 + 39.5, abs=1)


def test_spans_of_time_are_days_in_memory_and_in_files(tmp_path):
    hours = np.random.default_rng(3).integers(1, 500, 80)
    spans = pd.Series(pd.to_timedelta(hours, "h"))
    frame = long(stay=spans)
    frame.to_parquet(tmp_path / "rows.parquet")
    as_objects = frame.assign(stay=spans.astype(object))
    for rows in (frame, as_objects, read_rows(tmp_path / "rows.parquet")):
        stay = TableEncoder.fit(rows).summaries[1]
        assert isinstance(stay, NumberColumn)
        assert stay.mean == pytest.approx(hours.mean() / 24)


def test_names_and_numbers_of_rows_are_left_out():
    frame = long(
        uuid=[f"id-{i * 37 % 80}" for i in range(80)],
        row=np.arange(1, 81),
        held=np.sort(np.random.default_rng(0).choice(100, 80, replace=False)),
        income=np.random.default_rng(1).permutation(np.arange(1000, 9000, 100)),
        word=["a", "b"] * 40,
    )
    encoder = TableEncoder.fit(frame)
    assert set(encoder.left_out) == {"uuid", "row", "held"}
    assert encoder.left_out["row"] == "numbers the rows"
    shuffled = np.random.default_rng(2).permutation(80)
    for index in ("Unnamed: 0", "__index_level_0__"):
        encoder_of = TableEncoder.fit(frame.assign(**{index: shuffled}))
        assert encoder_of.left_out[index] == "is the index of a saved frame"
    assert encoder.needed == ["y", "income", "word"]
    assert encoder.feature_names == ["y", "income", "word=a", "word=b"]
    x = encoder.matrix(frame)
    np.testing.assert_array_equal(encoder.matrix(frame[["y", "income", "word"]]), x)
    again = stored(encoder)
    assert again.left_out == encoder.left_out
    np.testing.assert_array_equal(again.matrix(frame), x)
    assert dict((name, becomes) for name, _, becomes in encoder.listing())["word"] == (
        "a mark for each of 2 words"
    )
    short = TableEncoder.fit(frame.iloc[:40])
    assert not short.left_out
    only = TableEncoder.fit(frame[["row", "uuid"]])  # better than nothing
    assert not only.left_out
    assert not TableEncoder.fit(np.arange(160.0).reshape(80, 2)).left_out


@pytest.mark.parametrize("form", ["${:,}", "{}%", "{} €", "{:,}.50"])
def test_numbers_written_as_text_are_refused_by_name(form):
    frame = long(income=[form.format(1000 + 7 * i) for i in range(80)])
    with pytest.raises(InputError, match=r"column 'income' holds numbers"):
        TableEncoder.fit(frame)
    codes = long(code=[f"{i:03}" for i in range(80)], sku=[f"{i}-{i + 1}" for i in range(80)])
    assert set(TableEncoder.fit(codes).left_out) == {"code", "sku"}


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%m/%d/%Y", "%d %B %Y", "%Y/%m/%d", "%d-%b-%y"])
@pytest.mark.parametrize("days", [80, 7])
def test_dates_that_may_be_meant_in_several_ways_are_left_out(form, days):
    dates = pd.Series(pd.date_range("2024-01-01", periods=80)).dt.strftime(form)
    encoder = TableEncoder.fit(long(visit=[dates[i % days] for i in range(80)]))
    assert "dates such as" in encoder.left_out["visit"]


@pytest.mark.parametrize("odd", [".", "35%", "n.d.", "?"])
def test_text_that_is_nearly_numbers_is_refused_by_name(odd):
    frame = long(income=[str(1000 + 7 * i) for i in range(78)] + [odd] * 2)
    with pytest.raises(InputError) as caught:
        TableEncoder.fit(frame)
    assert "column 'income' holds numbers, but for 2 of 80 rows with text such as" in str(
        caught.value
    )
    assert "--drop income" in str(caught.value)
    category = frame.assign(income=frame["income"].astype("category"))
    assert TableEncoder.fit(category).summaries[1].kind == "category"


def test_codes_and_a_few_words_among_numbers_stay_words():
    codes = TableEncoder.fit(long(zip=[f"{i:05}" for i in range(40)] * 2))
    assert codes.summaries[1].kind == "category"
    grades = TableEncoder.fit(long(grade=[str(i % 9) for i in range(78)] + ["?"] * 2))
    assert grades.summaries[1].kind == "category"
    percent = long(share=[f"{i}%" for i in range(80)])
    with pytest.raises(InputError, match="'0%'"):
        TableEncoder.fit(percent)


def test_tables_of_other_libraries_give_the_model_of_a_file(tmp_path):
    polars = pytest.importorskip("polars")
    from unmix import UnmixClassifier
    from unmix.data.arrow_frames import as_frame

    rng = np.random.default_rng(0)
    frame = polars.DataFrame(
        {
            "x": rng.normal(size=60),
            "n": [None if i % 7 == 0 else i % 5 for i in range(60)],
            "day": [datetime.date(2020, 1, 1) + datetime.timedelta(days=i % 30) for i in range(60)],
            "word": ["a", "b", None] * 20,
            "kind": polars.Series(["u", "v"] * 30, dtype=polars.Categorical),
            "flag": [True, False] * 30,
        }
    )
    frame.write_parquet(tmp_path / "rows.parquet")
    wanted = read_rows(tmp_path / "rows.parquet")
    forms = [frame, frame.lazy(), frame.to_arrow(), frame.to_arrow().to_batches()[0]]
    try:
        import duckdb
    except ModuleNotFoundError:
        pass
    else:
        forms.append(duckdb.sql(f"select * from '{tmp_path / 'rows.parquet'}'"))
    for form in forms:
        pd.testing.assert_frame_equal(as_frame(form), wanted, check_dtype=False)
    rates = {"s": 0.2, "t": 0.8}
    sets = np.repeat(["s", "t"], 30)
    options = {"model": "linear", "method": "ssc", "l2": 0.1, "hide_sets": False}
    one = UnmixClassifier(rates, **options).fit(wanted, sets)
    for form in (frame, frame.to_arrow()):
        other = UnmixClassifier(rates, **options).fit(form, sets)
        np.testing.assert_array_equal(one.predict_proba(wanted), other.predict_proba(form))


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    values = np.random.default_rng(0).normal(size=(1_000, 70))
    values[3, 4] = np.nan
    table = pd.DataFrame(values, columns=[f"x{i}" for i in range(70)])
    monkeypatch.setattr(table_blocks, "BLOCK_ROWS", 100)
    monkeypatch.setattr(encoding, "BLOCK_ROWS", 64)
    monkeypatch.setattr(encoding, "MANY_NUMBERS", 0)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(encoding, "num_threads", lambda threads=threads: threads)
        encoder = TableEncoder.fit(table)
        found.append((encoder.to_dict(), encoder.matrix(table).tobytes()))
    assert found[0] == found[1]
    means = np.array([column.mean for column in encoder.summaries])
    np.testing.assert_allclose(means, np.nanmean(values, axis=0))


def test_a_whole_number_too_large_for_numpy_is_a_mean_like_any_other():
    # As JSON may hold it: NumPy would make an array of Python's numbers of it.
    frame = pd.DataFrame({"a": [1.0, 2.0, np.nan]})
    column = NumberColumn(name="a", mean=10**30, deviation=1.0, missing=False)
    written = np.zeros((3, 1), np.float32)
    place = table_blocks.Place(value=0)
    table_blocks.FeatureColumns(frame, [column], [place]).write(written, slice(0, 1), slice(0, 3))
    assert written.ravel().tolist() == [-table_blocks.FARTHEST, -table_blocks.FARTHEST, 0.0]
