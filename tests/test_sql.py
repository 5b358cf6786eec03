"""Linear models as SQL: the database says what the classifier says."""

import sqlite3

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from exported_models import fitted, table
from unmix import UnmixClassifier
from unmix.core.stand_ins import UNMOVED, LogitMove
from unmix.deploy.sql_query import DIALECTS, sql_query
from unmix.errors import InputError


def numbered(classes=2, rows=700):
    x, _ = table(rows, np.random.default_rng(9), classes=classes, training=False)
    return x.assign(id=np.arange(rows))


def in_duckdb(query, rows):
    """Run a query on rows as DuckDB reads them from a file: missing numbers are NULL or NaN."""
    people = pa.Table.from_pandas(rows, preserve_index=False)
    connection = duckdb.connect()
    connection.register("people", people)
    return connection.execute(query).df().sort_values("id").reset_index(drop=True)


def in_sqlite(query, rows):
    connection = sqlite3.connect(":memory:")
    connection.create_function("exp", 1, np.exp, deterministic=True)  # some builds have none
    rows.to_sql("people", connection, index=False)
    found = pd.read_sql(query, connection).sort_values("id").reset_index(drop=True)
    connection.close()
    return found


def assert_same(clf, found, rows, tolerance):
    rows = rows[clf.encoder_.columns]
    expected = clf.predict_proba(rows)
    columns = ["probability"] if len(clf.classes_) == 2 else list(found.columns[1:-1])
    got = found[columns].to_numpy(dtype=float)
    wanted = expected[:, 1:] if len(clf.classes_) == 2 else expected
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance)
    assert expected.std(axis=0).min() > 0.02
    ordered = np.sort(expected, axis=1)
    clear = ordered[:, -1] - ordered[:, -2] > 1e-6
    assert clear.mean() > 0.95
    assert found["prediction"][clear].tolist() == clf.predict(rows)[clear].tolist()


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_of_unnamed_sets_are_moved_in_the_database_too(classes):
    clf, rows = fitted("linear", classes), numbered(classes)
    shift = 0.4 if classes == 2 else np.array([0.0, 0.4, -0.3])
    object.__setattr__(clf.learner_, "lone", LogitMove(0.6, shift))
    try:
        query = sql_query(clf, table="people", keep=["id"])
        assert_same(clf, in_duckdb(query, rows), rows, 1e-9)
    finally:
        object.__setattr__(clf.learner_, "lone", UNMOVED)


@pytest.mark.parametrize("tau", [0.0, 1.5])
@pytest.mark.parametrize("classes", [2, 3])
def test_duckdb_says_what_the_classifier_says(classes, tau):
    clf, rows = fitted("linear", classes), numbered(classes)
    object.__setattr__(clf.learner_, "tau", tau)
    try:
        query = sql_query(clf, table="people", keep=["id"])
        assert_same(clf, in_duckdb(query, rows), rows, 1e-9)
    finally:
        object.__setattr__(clf.learner_, "tau", 0.0)


def test_missing_numbers_may_be_nan_or_null():
    clf, rows = fitted(), numbered()
    people = pa.Table.from_pandas(rows, preserve_index=False)
    nan = pa.array(rows["age"].to_numpy(), from_pandas=False)
    assert nan.null_count == 0
    at = people.schema.get_field_index("age")
    assert people["age"].null_count > 50
    connection = duckdb.connect()
    connection.register("people", people.set_column(at, "age", nan))
    query = sql_query(clf, table="people", keep=["id"])
    found = connection.execute(query).df().sort_values("id").reset_index(drop=True)
    assert_same(clf, found, rows, 1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_sqlite_says_so_but_for_the_rounding_of_features(classes):
    clf, rows = fitted("linear", classes), numbered(classes)
    query = sql_query(clf, table="people", keep=["id"], dialect="sqlite")
    assert_same(clf, in_sqlite(query, rows), rows, 1e-5)


def test_another_target_prior_is_inside():
    clf, rows = fitted(), numbered()
    before = in_duckdb(sql_query(clf, table="people", keep=["id"]), rows)
    try:
        clf.retarget(0.7)
        after = in_duckdb(sql_query(clf, table="people", keep=["id"]), rows)
        assert_same(clf, after, rows, 1e-9)
        assert after["probability"].mean() > before["probability"].mean() + 0.1
    finally:
        clf.retarget(0.2)


def test_names_and_words_are_quoted():
    rng = np.random.default_rng(0)
    y = rng.random(600) < 0.5
    x = pd.DataFrame({'si"ze; {0}': rng.normal(y), "it's": np.where(y, "O'Neil \\ {x}", "b")})
    x["logit_0"] = rng.normal(size=600)
    sets = np.where(rng.random(600) < np.where(y, 0.8, 0.2), "high", "low")
    priors = {s: y[sets == s].mean() for s in ("high", "low")}
    clf = UnmixClassifier(priors, model="linear", method="ssc", random_state=0).fit(x, sets)
    rows = x.assign(id=range(600))
    query = sql_query(clf, table="people", keep=["id", 'si"ze; {0}'])
    found = in_duckdb(query, rows)
    np.testing.assert_array_equal(found['si"ze; {0}'], rows['si"ze; {0}'])
    assert_same(clf, found.drop(columns='si"ze; {0}'), rows, 1e-9)
    assert r"'O\'Neil \\ {x}'" in sql_query(clf, dialect="bigquery")
    assert "`it's`" in sql_query(clf, dialect="bigquery")


def test_a_logit_of_any_size_does_not_overflow():
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"a": rng.normal(np.repeat([0.0, 4.0], 100))})
    clf = UnmixClassifier({"a": 0.05, "b": 0.95}, model="linear", method="ssc", random_state=0)
    clf.fit(x, np.repeat(["a", "b"], 100))
    far = pd.DataFrame({"a": [-1e9, 1e9], "id": [0, 1]})
    assert np.abs(clf.decision_function(far[["a"]])).min() > 1e4
    for run, dialect in ((in_duckdb, "duckdb"), (in_sqlite, "sqlite")):
        found = run(sql_query(clf, table="people", keep=["id"], dialect=dialect), far)
        assert found["probability"].tolist() == pytest.approx([0, 1], abs=1e-12)
        assert found["prediction"].tolist() == [0, 1]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_writes_one_statement_with_balanced_brackets(dialect):
    query = sql_query(fitted("linear", 3), table="shop.people", dialect=dialect)
    quote = DIALECTS[dialect].quote
    assert f"FROM {quote}shop{quote}.{quote}people{quote}" in query
    assert query.count("SELECT") == 2
    assert query.count("(") == query.count(")")
    assert ";" not in query


def test_what_has_no_sql_is_refused():
    with pytest.raises(InputError, match="this is a boosting model"):
        sql_query(fitted("boosting"))
    with pytest.raises(InputError, match="dialect must be one of"):
        sql_query(fitted(), dialect="cobol")
    with pytest.raises(InputError, match="'prediction' cannot be kept"):
        sql_query(fitted(), keep=["prediction"])
