"""Rates as they are published: what their columns and cells mean, and how well they are known."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import beta

from unmix import UnmixClassifier
from unmix.core.class_shares import ClassShares
from unmix.core.counts import count_nll
from unmix.core.set_effects import set_effect_nll
from unmix.core.set_risks import CountRisk, SetEffectRisk
from unmix.core.share_density import set_effect_residuals
from unmix.core.share_precision import SharePrecision, nearest_counts
from unmix.core.stated_counts import count_variance
from unmix.core.transition import Transition
from unmix.data.priors import Priors
from unmix.data.rate_names import is_total
from unmix.data.rates_file import read_rates
from unmix.data.set_columns import UnratedRows, UnratedWarning
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError


@pytest.fixture
def read(tmp_path):
    def from_text(text, *args, name="rates.csv", **options):
        (tmp_path / name).write_text(text)
        return read_rates(tmp_path / name, *args, **options)

    return from_text


def refused(function, *args, **options):
    with pytest.raises(InputError) as caught:
        function(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Cells and scales


@pytest.mark.parametrize(
    "cells",
    [
        ("35%", "12.5 %", "0%"),
        ("35", "12.5", "0"),
        ("0.35", "0.125", "0"),
        ("0,35", "0,125", "0"),
        ("35,0%", "12,5%", "0 %"),
        ("0.35*", "0.125 a", "0\u2020"),
    ],
)
def test_percentages_commas_and_footnotes_are_the_same_shares(read, cells):
    rows = "".join(f"{name};{cell}\n" for name, cell in zip("abc", cells, strict=True))
    assert read(f"set;rate\n{rows}").set_priors.tolist() == pytest.approx([0.35, 0.125, 0])


def test_a_column_that_may_be_percent_or_not_is_asked_about(read):
    assert "say --percent" in refused(read, "set,rate\na,0.5\nb,35\n")
    assert read("set,rate\na,0.5\nb,35\n", percent=True).set_priors.tolist() == [0.005, 0.35]
    small = "set,pct_ill\na,0.5\nb,0.7\n"
    assert "--no-percent" in refused(read, small)
    assert read(small, percent=True).set_priors.tolist() == pytest.approx([0.005, 0.007])
    assert read(small, percent=False).set_priors.tolist() == [0.5, 0.7]
    per = read('set,"deaths per 1,000"\na,35\nb,7\n', share="deaths per 1,000")
    assert per.set_priors.tolist() == pytest.approx([0.035, 0.007])


def test_whole_numbers_of_which_nothing_is_known_are_not_taken_for_percentages(read):
    assert "above 1" in refused(read, "set,x\na,12\nb,35\n")


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("lower", "upper"),
        ("ci_low", "ci_high"),
        ("lcl", "ucl"),
        ("LCI", "UCI"),
        ("Lower 95% CI", "Upper 95% CI"),
        ("conf.low", "conf.high"),
        ("2.5%", "97.5%"),
    ],
)
def test_intervals_become_standard_errors(read, low, high):
    priors = read(f"set,rate,{low},{high}\na,.30,.25,.35\nb,.5,.5,.5\n")
    np.testing.assert_allclose(priors.standard_errors, [0.1 / (2 * 1.959964), 0], rtol=1e-6)
    wide = read(f"set,rate,{low},{high}\na,30,25,35\nb,50,50,50\n")
    np.testing.assert_allclose(wide.standard_errors, priors.standard_errors)
    message = refused(read, f"set,rate,{low},{high}\na,.30,.35,.45\nb,.5,.4,.6\n")
    assert "set 'a': the share 0.3 lies outside its interval" in message


def test_the_level_of_an_interval_is_in_its_name_and_brackets_hold_one_too(read):
    ninety = read("set,rate,lower_90,upper_90\na,.3,.2,.4\nb,.5,.5,.5\n")
    assert ninety.standard_errors[0] == pytest.approx(0.1 / 1.644854)
    brackets = read("set,rate\na,30 (20-40)\nb,50 [45; 55]\n")
    assert brackets.set_priors.tolist() == pytest.approx([0.3, 0.5])
    np.testing.assert_allclose(brackets.standard_errors, np.array([0.1, 0.05]) / 1.959964)


@pytest.mark.parametrize(
    ("positives", "total"),
    [
        ("cases", "population"),
        ("conversions", "impressions"),
        ("k", "n"),
        ("clicks", "views"),
        ("Deaths", "Births"),
        ("n_positive", "n_total"),
        ("numerator", "denominator"),
    ],
)
def test_counts_are_known_by_the_names_people_use(read, positives, total):
    priors = read(f'set,{total},{positives}\na,"1,000",120\nb,400,0\n')
    assert priors.set_priors.tolist() == [0.12, 0.0]
    assert f"{positives!r} of {total!r}" in priors.understood


@pytest.mark.parametrize("cell", ["*", "-", "..", "", "x", "(D)", "n/a", "suppressed", "\u2014"])
def test_suppressed_cells_leave_their_sets_out(read, cell):
    priors = read(f"set,rate\na,.1\nb,{cell}\nc,.3\n")
    assert (priors.set_ids, priors.unrated) == (("a", "c"), ("b",))
    assert "1 without a rate ('b')" in priors.understood
    counts = read(f"set,cases,n\na,1,10\nb,{cell},10\nc,3,{cell}\nd,5,10\n")
    assert counts.unrated == ("b", "c")


def test_a_range_is_its_middle_with_the_error_of_a_uniform_law(read):
    priors = read("set,cases,n\na,<5,100\nb,40,100\nc,10-14,100\n", rates_are="population")
    assert priors.set_priors.tolist() == [0.02, 0.4, 0.12]
    known = priors.resolved([50, 50, 50]).set_priors.precision
    # Uniform on 0..4 and on 10..14: variance (5^2 - 1) / 12 = 2.
    np.testing.assert_allclose(known.errors, [np.sqrt(2) / 100, 0, np.sqrt(2) / 100])
    shares = read("set,rate\na,<5%\nb,40%\nc,>95%\n")
    assert shares.set_priors.tolist() == pytest.approx([0.025, 0.4, 0.975])
    np.testing.assert_allclose(shares.standard_errors, np.array([5, 0, 5]) / 100 / np.sqrt(12))


# Classes


def test_counts_of_classes_are_shares_and_totals(read):
    priors = read("precinct,red,blue,green\n1,10,30,60\n2,50,40,10\n3,3,3,3\n", "precinct")
    assert priors.classes == ("red", "blue", "green")
    np.testing.assert_allclose(priors.set_priors[0], [0.1, 0.3, 0.6])
    assert "counts of the classes 'red', 'blue', 'green'" in priors.understood
    assert priors.statement.totals.tolist() == [100, 100, 9]
    total = read("precinct,red,blue,green,total\n1,10,30,60,100\n2,50,40,10,100\n", "precinct")
    assert total.classes == ("red", "blue", "green")
    message = refused(read, "precinct,red,blue,green,total\n1,10,30,60,101\n2,50,40,10,100\n")
    assert "set column" in message  # named only by --sets precinct
    message = refused(
        read, "precinct,red,blue,green,total\n1,10,30,60,101\n2,50,40,10,100\n", "precinct"
    )
    assert "do not add up to 'total'" in message


def test_columns_that_may_be_anything_are_never_taken_for_classes(read):
    for header, cells in (
        ("x,y,z", [".3,.2,.4", ".5,.4,.6"]),  # looks like a share with an interval
        ("x,y", ["10,100", "20,100"]),  # the first may be a part of the second
        ("year,x,y", ["2001,10,100", "2001,20,100"]),
    ):
        message = refused(read, f"set,{header}\na,{cells[0]}\nb,{cells[1]}\n")
        assert "cannot tell what the columns" in message
    by_name = read("set,x,y\na,10,100\nb,20,100\n", positives="x", total="y")
    assert by_name.set_priors.tolist() == [0.1, 0.2]
    classes = read("set,x,y\na,10,100\nb,20,100\n", classes=["x", "y"])
    np.testing.assert_allclose(classes.set_priors[:, 0], [10 / 110, 20 / 120])
    named = read("set,x,y,z\na,.3,.2,.4\nb,.5,.4,.6\n", share="x", lower="y", upper="z")
    assert named.standard_errors[0] == pytest.approx(0.1 / 1.959964)


def test_percentages_of_classes_sum_to_a_hundred(read):
    priors = read("set,a,b,c\nx,20,30,50\ny,10,10,80\n")
    np.testing.assert_allclose(priors.set_priors, [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    assert "in percent" in priors.understood


# Noise


def test_noisy_counts_may_be_negative_and_fractional(read):
    text = "set,clicks,views,noise\na,-3.5,100,5\nb,120.25,300,5\nc,104,100,5\n"
    priors = read(text)
    np.testing.assert_allclose(priors.set_priors, [0, 120.25 / 300, 1])
    known = priors.resolved([100, 300, 100]).set_priors.precision
    np.testing.assert_allclose(known.errors, [0.05, 5 / 300, 0.05])
    np.testing.assert_allclose(known.stated(np.array([0, 0.4, 1.0])), [-0.035, 0.4, 1.04])
    without = text.replace(",noise", ",remark")
    assert "the count -3.5 is negative" in refused(read, without)
    same = read(without, count_noise=5.0).resolved([100, 300, 100]).set_priors.precision
    np.testing.assert_allclose(same.errors, known.errors)
    laplace = read(text.replace("noise", "laplace_noise"))
    np.testing.assert_allclose(laplace.statement.noise, 5 * np.sqrt(2))
    variance = read(text.replace("noise", "noise_variance"))
    np.testing.assert_allclose(variance.statement.noise, np.sqrt(5))


# How well a share is known: section by section the variance of the count


def literal_variance(n, share, *, counted=np.inf, error=0.0):
    """The table of variances, term by term, for one set."""
    sampled = n * share * (1 - share)
    if np.isfinite(counted):
        sampled *= (counted - n) / max(counted - 1, 1)
    return sampled + n**2 * error**2


def test_the_variance_of_a_count_is_that_of_the_table():
    counted = np.array([10.0, 100.0, np.inf, 10.0, np.inf])
    errors = np.array([0.0, 0.0, 0.0, 0.05, 0.02])
    shares, rows = np.array([0.2, 0.31, 0.5, 0.4, 0.0]), np.array([10, 40, 7, 10, 30])
    known = SharePrecision(counted, errors)
    expected = [
        literal_variance(n, p, counted=N, error=e)
        for n, p, N, e in zip(rows, shares, counted, errors, strict=True)
    ]
    np.testing.assert_allclose(known.count_variances(rows, shares), expected)
    np.testing.assert_allclose(known.error_variances(rows, shares), rows**2 * errors**2)
    both = np.stack([1 - shares, shares], axis=1)  # d_0 d_1 / (d_0 + d_1) for two of K classes
    d = known.count_variances(rows, both)
    with np.errstate(invalid="ignore"):
        two = np.nan_to_num(d.prod(axis=1) / d.sum(axis=1))
    np.testing.assert_allclose(two[:4], expected[:4])  # a share of 0 has no error in the others


def statement(text, read, sizes, **options):
    priors = read(text, **options).resolved(sizes)
    return priors.set_priors.precision, priors


def test_totals_that_are_the_rows_of_the_set_make_counts_exact(read):
    text = "set,positives,total\na,4,10\nb,100,400\n"
    known, priors = statement(text, read, [10, 50])
    assert known.counted.tolist() == [10, np.inf]
    a, b = 100.5, 300.5
    expected = beta.std(a, b)  # Jeffreys' prior
    np.testing.assert_allclose(known.errors, [0, expected])
    np.testing.assert_allclose(priors.standard_errors, [0, expected])
    exact, priors = statement(text, read, [10, 400])
    assert exact.counted.tolist() == [10, 400]
    assert priors.standard_errors is None
    assert statement(text, read, [10, 400], rates_are="sample")[0].errors.all()
    assert statement(text, read, [10, 400], rates_are="population")[0].counted.min() == np.inf
    assert statement(text, read, [8, 50], rates_are="exact")[0].counted.tolist() == [10, 400]
    message = refused(read(text, rates_are="exact").resolved, [11, 50])
    assert "a total of 10 cannot be an exact count of 11 rows" in message


def test_shares_alone_are_exact_where_they_are_whole_counts_or_said_to_be(read):
    text = "set,share\na,.4\nb,.333\n"
    assert statement(text, read, [10, 3])[0].counted.tolist() == [10, 3]
    assert statement(text, read, [10, 31])[0].counted.tolist() == [10, np.inf]
    known, priors = statement(text, read, [10, 31], rates_are="exact")
    assert known.counted.tolist() == [10, 31]
    np.testing.assert_allclose(priors.set_priors, [0.4, 10 / 31])
    assert (
        statement(text, read, [10, 3], rates_are="population")[0].counted.tolist() == [np.inf] * 2
    )
    assert "add a column with totals" in refused(
        read(text, rates_are="sample").resolved, np.array([10, 3])
    )
    assert "exact, sample, population" in refused(read, text, rates_are="guess")


def test_nearest_counts_keep_the_rows_of_every_set():
    shares = np.array([[0.333, 0.333, 0.334], [0.5, 0.25, 0.25], [0, 0, 1.0]])
    found = nearest_counts(shares, np.array([10.0, 3.0, 4.0])) * [[10], [3], [4]]
    assert found.sum(axis=1).tolist() == pytest.approx([10, 3, 4])
    np.testing.assert_allclose(found, [[3, 3, 4], [1, 1, 1], [0, 0, 4]])


def transition_of(shares, counted, errors, rows, beyond=None):
    known = SharePrecision(np.array(counted, float), np.array(errors, float), beyond)
    return Transition(ClassShares(shares, precision=known), np.array(rows))


def test_the_count_risk_is_the_likelihood_at_these_variances():
    rng = np.random.default_rng(0)
    index, z = np.repeat([0, 1, 2], [10, 30, 20]), rng.normal(size=60)
    shares, beyond = np.array([0.2, 0.5, 0.0]), np.array([0.0, 0.0, -0.05])
    transition = transition_of(shares, [10, np.inf, 20], [0, 0.1, 0.06], [10, 30, 20], beyond)
    value, gradient = CountRisk(transition).value_and_gradient(z, index)
    variances = [0, 30 * 0.25 + 30**2 * 0.01, 20**2 * 0.06**2]
    pooled = float(np.array([10, 30, 20]) @ shares / 60)
    natural = np.array([10, 30, 20]) * pooled * (1 - pooled)
    s2 = np.minimum(variances, 0.999 * natural)
    moved = 1 / (1 - s2 / natural)
    counts = np.array([2.0, 15.0, -1.0])  # the last is what was stated, below 0
    expected = np.array([10, 30, 20]) * pooled
    counts = np.where(s2 > 0, (counts - expected * s2 / natural) * moved, counts)
    values, by_logit = count_nll(z, index, counts, np.where(s2 > 0, s2 * moved, 0))
    assert value == pytest.approx(values.sum() / 60)
    np.testing.assert_allclose(gradient, by_logit / 60)


def test_set_effects_and_their_residuals_know_the_errors_of_shares():
    rng = np.random.default_rng(1)
    index, z = np.repeat([0, 1, 2, 3], 25), rng.normal(size=100)
    shares, errors = np.array([0.2, 0.4, 0.6, 0.5]), np.array([0.0, 0.05, 0.1, 0.0])
    risk = SetEffectRisk(transition_of(shares, [np.inf] * 4, errors, [25] * 4))
    variances = (25 * errors) ** 2
    tau = risk.tau(z, index)
    value, _ = risk.value_and_gradient(z, index)
    assert value == pytest.approx(set_effect_nll(z, index, shares, tau, variances)[0].mean())
    with_errors = set_effect_residuals(z, index, shares, variances).variances[:, 0]
    without = set_effect_residuals(z, index, shares).variances[:, 0]
    assert with_errors[0] == without[0]
    assert with_errors[2] > with_errors[1] > without[1]


def test_the_errors_of_shares_travel_with_the_sets():
    known = SharePrecision(np.array([10.0, np.inf]), np.array([0.0, 0.1]))
    shares = ClassShares([0.2, 0.5], precision=known)
    sets = UnlabeledSets(np.zeros((4, 1)), np.array([0, 0, 1, 1]), shares, None)
    for found in (
        sets.transition.precision,
        sets.rows(np.array([True, False, True, True])).transition.precision,
        sets.take_sets(np.array([0, 1])).set_priors.precision,
        ClassShares([[0.8, 0.2], [0.5, 0.5]], precision=known).of_positives().precision,
    ):
        assert found.counted.tolist() == [10, np.inf]
        assert found.errors.tolist() == [0, 0.1]
    assert shares.take([1]).precision.errors.tolist() == [0.1]


def test_known_sets_are_shrunken_by_the_error_of_their_share():
    rng = np.random.default_rng(2)
    sizes, m = 60, 12
    sets = np.repeat(np.arange(m), sizes)
    x = rng.normal(size=(m * sizes, 2))
    effect = rng.normal(0, 1.0, m)
    y = rng.random(m * sizes) < 1 / (1 + np.exp(-(2 * x[:, 0] + effect[sets])))
    shares = np.bincount(sets, y) / sizes
    exact = {j: float(shares[j]) for j in range(m)}
    clf = UnmixClassifier(exact, model="linear", method="set-effects", l2=0.01, hide_sets=False)
    clf.fit(pd.DataFrame(x, columns=["a", "b"]), sets)
    frame = pd.DataFrame(x, columns=["a", "b"])
    moved = clf.predict_proba(frame, sets=sets, set_priors=exact)[:, 1]
    doubtful = Priors(tuple(range(m)), ClassShares(shares), None, np.full(m, 0.2))
    held = clf.predict_proba(frame, sets=sets, set_priors=doubtful)[:, 1]
    by_set = lambda p: np.bincount(sets, p) / sizes  # noqa: E731
    assert abs(by_set(held) - shares).mean() > 2 * abs(by_set(moved) - shares).mean()


# From Python


def test_tables_in_memory_are_read_by_the_same_rules():
    frame = pd.DataFrame({"set": [1, 2], "rate": [30, 12.5], "lower": [25, 10], "upper": [35, 15]})
    priors = read_rates(frame)
    assert priors.set_ids == (1, 2)
    assert priors.set_priors.tolist() == pytest.approx([0.3, 0.125])
    for same in (
        frame.set_index("set"),
        pa.table(frame),
        {name: frame.set_index("set")[name] for name in ("rate", "lower", "upper")},
    ):
        other = read_rates(same)
        assert other.set_ids == (1, 2)
        np.testing.assert_allclose(other.standard_errors, priors.standard_errors)
    series = read_rates(frame.set_index("set")["rate"])
    assert series.set_priors.tolist() == pytest.approx([0.3, 0.125])
    assert read_rates({"a": 0.5, "b": 0.25}).set_ids == ("a", "b")
    several = read_rates(
        {"region": frame, "month": frame.rename(columns={"set": "month"}).set_index("month")}
    )
    assert set(several) == {"region", "month"}
    assert several["month"].set_ids == (1, 2)
    assert "mapping from set to share" in refused(read_rates, 5)


def test_polars_frames_are_tables_too():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"set": ["a", "b"], "cases": [3, 8], "n": [10, 10]})
    assert read_rates(frame).set_priors.tolist() == [0.3, 0.8]
    clf = UnmixClassifier(frame, model="linear", method="ssc", l2=0.1, hide_sets=False)
    x = pd.DataFrame({"x": np.arange(20.0)})
    clf.fit(x, np.repeat(["a", "b"], 10))
    assert clf.set_ids_ == ("a", "b")


def test_workbooks_are_read_past_their_title_and_notes(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    for row in (
        ["Table 3: prevalence by region"],
        [],
        ["Region", "Prevalence", "Lower CI", "Upper CI"],
        [1, 0.31, 0.29, 0.33],
        ["North East", 0.12, 0.1, 0.14],
        ["West", "*", None, None],
        ["* suppressed"],
    ):
        sheet.append(row)
    for cell in ("B4", "B5"):
        sheet[cell].number_format = "0.0%"
    book.save(tmp_path / "rates.xlsx")
    with pytest.raises(InputError, match="'Lower CI'"):
        read_rates(tmp_path / "rates.xlsx", "region")  # 0.29 beside 31 %
    for cell in ("C4", "C5", "D4", "D5"):
        sheet[cell].number_format = "0.0%"
    book.save(tmp_path / "rates.xlsx")
    priors = read_rates(tmp_path / "rates.xlsx", "region")
    assert priors.set_ids == ("1", "North East")
    assert priors.unrated == ("West",)
    assert priors.set_priors.tolist() == pytest.approx([0.31, 0.12])
    (tmp_path / "no.xlsx").write_text("set,share")
    assert "is no Excel workbook" in refused(read_rates, tmp_path / "no.xlsx")


# Rows of sets without a rate


def test_rows_of_suppressed_sets_are_left_out_and_counted(read):
    priors = read("set,rate\na,.1\nb,*\nc,.3\n")
    others = UnratedRows(priors)
    assert others.rated(np.array(["a", "b", "c", "b"])).tolist() == [True, False, True, False]
    assert others.rated(np.array(["a", "c"])) is None
    assert str(others).startswith("2 of 6 rows are left out: their 1 set ('b') has no rate in ")
    with pytest.raises(InputError, match="'d'; add them, or leave those rows out"):
        priors.find_sets(["a", "d"], unused="keep")
    also = UnratedRows(read("set,rate\na,.1\nb,*\nc,.3\n", drop_unrated=True))
    assert also.rated(["a", "d"]).tolist() == [True, False]
    assert "no row has a set with a rate" in refused(UnratedRows(priors).rated, ["b", "b"])


def test_fit_leaves_rows_of_unrated_sets_out_with_a_warning():
    frame = pd.DataFrame({"set": ["a", "b", "c"], "rate": [0.2, np.nan, 0.8]})
    sets = np.repeat(["a", "b", "c"], 20)
    x = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60)})
    clf = UnmixClassifier(read_rates(frame), model="linear", method="ssc", l2=0.1, hide_sets=False)
    with pytest.warns(UnratedWarning, match="20 of 60 rows are left out: their 1 set"):
        clf.fit(x, sets)
    assert clf.set_sizes_.tolist() == [20, 20]


def test_variance_of_class_counts_has_the_population_covariance():
    known = SharePrecision(np.array([np.inf]), np.zeros(1))
    shares = np.array([[0.2, 0.3, 0.5]])
    np.testing.assert_allclose(
        known.count_variances([10], shares), count_variance([10], shares, population=True)
    )


def test_a_saved_model_gives_back_what_was_known_of_its_rates(tmp_path):
    frame = pd.DataFrame(
        {"set": ["a", "b", "c"], "clicks": [-2.0, 9.5, 12.0], "views": [20] * 3, "noise": [3.0] * 3}
    )
    x = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60)})
    given = read_rates(frame, rates_are="exact")
    clf = UnmixClassifier(given, model="linear", method="ssc", l2=0.1, hide_sets=False)
    clf.fit(x, np.repeat(["a", "b", "c"], 20)).save(tmp_path / "model")
    loaded = UnmixClassifier.load(tmp_path / "model").set_priors
    assert loaded.set_ids == given.set_ids
    assert loaded.statement.as_json() == given.statement.as_json()
    resolved = given.resolved([20, 20, 20])
    again = Priors(given.set_ids, given.set_priors).with_known(resolved.known_as_json())
    assert again.set_priors.precision.as_json() == resolved.set_priors.precision.as_json()
    np.testing.assert_allclose(again.set_priors.precision.beyond, [-0.1, 0, 0])


def test_a_title_does_not_hide_a_line_with_a_cell_too_few(tmp_path):
    path = tmp_path / "rates.csv"
    path.write_text("Table 4\n\nset,rate,n\na,0.2,10\nb,0.3\nc,0.4,10\nSource: survey\n")
    assert "line 3 of" in refused(read_rates, path)
    path.write_text("Table 4\n\nset,rate,n\na,0.2,10\nb,0.3,\nc,0.4,10\nSource: survey\n")
    assert read_rates(path).understood.endswith(
        "3 sets, names in line 3, notes from line 7 on; 'rate' is the share, of 'n'; 1 without a "
        "rate ('b')"
    )


def test_a_repeated_set_is_named_with_its_line_below_a_title(tmp_path):
    path = tmp_path / "rates.csv"
    path.write_text("Table 4\n\nset,rate\na,0.2\nb,0.3\na,0.4\n")
    assert "'a' more than once, in line 4 and line 6" in refused(read_rates, path)


def test_units_that_differ_are_refused(tmp_path):
    frame = pd.DataFrame({"set": ["a", "b"], "value": [2.0, 30.0], "unit": ["%", "per 1,000"]})
    assert "in several units, '%', 'per 1,000' in column 'unit'" in refused(read_rates, frame)


@pytest.mark.parametrize(
    ("name", "column", "total"),
    [
        ("All counties", "county", True),
        ("all districts", "Kreis", True),
        ("Total", "set", True),
        ("Total: Account", "Campaign", True),
        ("Allentown", "city", False),
        ("All Saints", "parish", False),
        ("Total Wine", "store", False),
        (7, "set", False),
    ],
)
def test_a_set_is_taken_for_a_total_by_its_name(name, column, total):
    assert is_total(name, column) is total
