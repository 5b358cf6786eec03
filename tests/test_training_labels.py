"""Labels of a few rows, learned from beside the sets: each such row is a set of one."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.special import expit, log_softmax
from sklearn.linear_model import LogisticRegression

from unmix import InputError, UnmixClassifier, read_rates
from unmix.cli import main
from unmix.core.class_shares import ClassShares
from unmix.core.set_risks import CountRisk, SetEffectRisk
from unmix.core.share_precision import SharePrecision
from unmix.core.transition import Transition
from unmix.data.known_rows import KnownRows, label_codes, remaining_shares
from unmix.data.priors import Priors
from unmix.data.sets import UnlabeledSets
from unmix.learn.encoding import TableEncoder
from unmix.learn.models import Setup, fit_learner, model_row
from unmix.learn.training_rows import TrainingRows


def labeled_rows(classes, rows=300, seed=0, apart=1.0):
    """Return rows and their classes, which overlap."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=rows)
    return rng.normal(size=(rows, 3)) + apart * np.eye(3)[y], y


def all_labeled(x, y, classes):
    """Return two or three sets without rows, and every row with its class."""
    shares = [0.3, 0.6] if classes == 2 else np.eye(3) * 0.4 + 0.2
    index, pooled = np.empty(0, dtype=np.int64), np.bincount(y) / len(y)
    return UnlabeledSets(x[:0], index, shares, pooled, known=KnownRows(x, y))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    ("method", "l2"), [("count", 0.01), ("count", 0.0), ("set-effects", 0.0), ("ssc", 0.01)]
)
def test_with_all_rows_labeled_a_line_is_a_logistic_regression(method, l2, classes):
    x, y = labeled_rows(classes)
    learner = fit_learner(all_labeled(x, y, classes), Setup("linear", method, l2=l2))
    oracle = LogisticRegression(C=1 / (2 * len(x) * l2) if l2 else np.inf, tol=1e-10, max_iter=999)
    expected = oracle.fit(x, y).decision_function(x)
    found = learner.logits(x)
    if classes == 3:  # of which only differences count
        found, expected = (z - z.mean(axis=1, keepdims=True) for z in (found, expected))
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert len(learner.set_priors) == classes  # nobody else knows of sets of one


@pytest.mark.parametrize(
    ("model", "method", "classes"),
    [
        ("boosting", "ssc", 2),
        ("boosting", "count", 3),
        ("boosting", "set-effects", 2),
        ("boosting", "set-effects", 3),
        ("mlp", "count", 3),
        ("mlp", "set-effects", 2),
    ],
)
def test_trees_and_networks_learn_from_labels_alone(model, method, classes):
    x, y = labeled_rows(classes, 600, apart=3.0)
    setup = Setup(model, method, epochs=60, hidden=(1, 16) if model == "mlp" else None)
    learner = fit_learner(all_labeled(x.astype(np.float32), y, classes), setup)
    z = learner.logits(x.astype(np.float32))
    said = z.argmax(axis=1) if classes == 3 else (z > 0).astype(int)
    assert (said == y).mean() > 0.8


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("risk", [SetEffectRisk, CountRisk])
def test_labels_add_their_log_loss_to_a_risk_of_sets_and_nothing_else(risk, classes):
    rng = np.random.default_rng(1)
    shape = (12,) if classes == 2 else (12, 3)
    z, index = rng.normal(size=shape), np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2])
    shares = [0.25, 0.4, 2 / 3] if classes == 2 else [[0.5, 0.25, 0.25], [0.4, 0.4, 0.2], [1, 0, 0]]
    sets = UnlabeledSets(z, index, shares, None, known=KnownRows(z[:3] * 2, np.array([0, 1, 1])))
    joined = sets.with_sets_of_one
    target = [0.5, 0.5] if classes == 2 else np.full(3, 1 / 3)
    alone = risk(Transition(sets.set_priors, sets.set_sizes, target))
    both = risk(Transition(joined.set_priors, joined.set_sizes, target))
    of_sets, slope, number = alone.added(z, index)
    found, gradient, with_labels = both.added(joined.x, joined.set_index)
    logits = z[:3] * 2
    full = logits if classes == 3 else np.stack([np.zeros(3), logits], axis=1)
    loss = -log_softmax(full, axis=1)[np.arange(3), [0, 1, 1]]
    assert found == pytest.approx(of_sets + loss.sum(), rel=1e-9)
    assert with_labels == number + 3
    np.testing.assert_allclose(gradient[:12], slope, atol=1e-12)
    by_label = np.exp(log_softmax(full, axis=1)) - np.eye(classes)[[0, 1, 1]]
    np.testing.assert_allclose(gradient[12:], by_label[:, 1] if classes == 2 else by_label)
    curved = both.row_information(joined.x, joined.set_index)[12:]
    p = expit(logits) if classes == 2 else np.exp(log_softmax(full, axis=1))
    np.testing.assert_allclose(curved, p * (1 - p), rtol=1e-9)


def test_the_size_of_set_effects_is_that_of_the_sets_alone():
    rng = np.random.default_rng(2)
    z, index = rng.normal(size=400), np.repeat(np.arange(8), 50)
    shares = expit(rng.normal(size=8))
    sets = UnlabeledSets(z, index, shares, 0.5, known=KnownRows(z[:50], np.ones(50, dtype=int)))
    joined = sets.with_sets_of_one
    alone, both = SetEffectRisk(sets.transition), SetEffectRisk(joined.transition)
    assert alone.tau(z, index) > 0.1
    assert both.tau(joined.x, joined.set_index) == alone.tau(z, index)


@pytest.mark.parametrize("classes", [2, 3])
def test_counts_and_labels_together_have_the_likelihood_of_every_labeling_that_fits(classes):
    rng = np.random.default_rng(3)
    truth = rng.integers(classes, size=10)
    sets = np.repeat([0, 1], 5)
    counts = np.stack([np.bincount(truth[sets == j], minlength=classes) for j in (0, 1)])
    labels = np.where(np.isin(np.arange(10), [1, 2, 7]), truth, -1)
    z = rng.normal(size=(10, 1 if classes == 2 else 3))
    full = np.column_stack([np.zeros(10), z]) if classes == 2 else z
    log_p, total = log_softmax(full, axis=1), 0.0
    for labeling in itertools.product(range(classes), repeat=10):
        y = np.array(labeling)
        fits = all(
            (np.bincount(y[sets == j], minlength=classes) == counts[j]).all() for j in (0, 1)
        )
        if fits and (y[labels >= 0] == labels[labels >= 0]).all():
            total += np.exp(log_p[np.arange(10), y].sum())
    names = None if classes == 2 else tuple("abc")
    stated = counts[:, 1] / 5 if classes == 2 else counts / 5
    priors = Priors((0, 1), ClassShares(stated), names).resolved([5, 5])
    frame = pd.DataFrame(z).rename(columns=str)
    rows = TrainingRows(frame, sets, priors, TableEncoder.fit(frame), labels=labels)
    rows.target = counts.sum(axis=0) / 10
    joined = rows.in_memory(model_row("linear")).with_sets_of_one
    order = np.concatenate([np.flatnonzero(labels < 0), np.flatnonzero(labels >= 0)])
    logits = z[order, 0] if classes == 2 else z[order]
    found, _ = CountRisk(joined.transition).value_and_gradient(logits, joined.set_index)
    assert found * 10 == pytest.approx(-np.log(total), rel=1e-9)


def test_rates_of_a_population_stay_and_counts_with_noise_keep_their_noise():
    taken = np.array([[0, 0], [2, 3], [10, 0], [0, 10]])
    known = SharePrecision(np.array([50, 50, np.inf, 50]), np.array([0, 0, 0, 0.1]))
    shares = ClassShares([0.3, 0.5, 0.2, 0.1], precision=known)
    left = remaining_shares(shares, taken, list("abcd"), (0, 1))
    np.testing.assert_allclose(left.matrix[:, 1], [0.3, 22 / 45, 0.2, 0.0])
    assert left.precision is not None
    np.testing.assert_allclose(left.precision.counted, [50, 45, np.inf, 40])
    np.testing.assert_allclose(left.precision.errors, [0, 0, 0, 0.125])
    # Five positives by the noisy count, ten by labels: five too few.
    stated = left.precision.stated(left.matrix)
    np.testing.assert_allclose(stated[3], [1.125, -0.125])


def test_labels_that_contradict_a_count_are_refused_by_the_name_of_the_set():
    x, sets, _, truth = natural_sets()
    shares = pd.Series(truth).groupby(sets).mean().to_dict()
    labels = np.where(sets == "s1", 1.0, np.nan)
    message = r"set 's1' has 60 rows labeled 1, and its share says that there are \d+; correct"
    with pytest.raises(InputError, match=message):
        learn(x, sets, labels, shares=shares)


def natural_sets(sets=12, rows=60, seed=5):
    """Return rows, their sets and classes: `a` differs between sets, `b` inside them only."""
    rng = np.random.default_rng(seed)
    level = rng.normal(size=sets).repeat(rows)
    a, b = level + rng.normal(size=len(level)), rng.normal(size=len(level))
    truth = rng.random(len(a)) < expit(a + 2 * b)
    names = np.array([f"s{j}" for j in range(sets)]).repeat(rows)
    x = pd.DataFrame({"a": a, "b": b})
    shares = dict(zip(names[::rows], expit(level)[::rows].round(3), strict=True))
    return x, names, shares, truth.astype(int)


def learn(x, sets, labels=None, *, shares=None, labels_for="training", **options):
    options = {"model": "linear", "method": "set-effects", "random_state": 0, "l2": 0.01} | options
    options.setdefault("hide_sets", False)
    clf = UnmixClassifier(shares or natural_sets()[2], **options)
    return clf.fit(x, sets, labels, labels_for=labels_for)


def some_labels(truth, number=150, seed=0):
    """Return labels of some rows, nan for the others."""
    kept = np.random.default_rng(seed).permutation(len(truth))[:number]
    labels = np.full(len(truth), np.nan)
    labels[kept] = truth[kept]
    return labels


@pytest.mark.parametrize(
    "options",
    [
        {"method": "set-effects"},
        {"method": "count"},
        {"method": "proportion"},
        {"model": "boosting", "method": "ssc"},
        {"model": "mlp", "method": "ssc", "epochs": 20, "hidden": (1, 16)},
    ],
    ids=lambda options: " ".join(str(v) for v in list(options.values())[:2]),
)
def test_labels_teach_what_the_sets_cannot(options):
    x, sets, _, truth = natural_sets()
    labels = some_labels(truth, 300)
    without, beside = learn(x, sets, **options), learn(x, sets, labels, **options)
    new, _, _, of_new = natural_sets(seed=6)
    right = [(clf.predict(new) == of_new).mean() for clf in (without, beside)]
    assert right[1] > max(right[0] + 0.03, 0.65)
    assert (without.training_labels_, beside.training_labels_) == (0, 300)
    assert beside.set_priors_ == without.set_priors_  # as stated, of whole sets
    assert beside.set_sizes_.sum() == len(x)


def test_three_classes_learn_from_labels_too():
    rng = np.random.default_rng(0)
    x, y = labeled_rows(3, 900)
    sets = np.array([f"s{j}" for j in rng.integers(6, size=900)])
    x = pd.DataFrame(x, columns=list("abc"))
    classes = np.array(["red", "green", "blue"])[y]
    table = pd.crosstab(sets, classes, normalize="index")
    shares = table.to_dict("index")
    labels = np.where(rng.random(900) < 0.3, classes, None)
    for method in ("set-effects", "count"):
        beside = learn(x, sets, labels, shares=shares, method=method)
        assert (beside.predict(x) == classes).mean() > 0.6  # of sets alike nothing is learned
        assert beside.training_labels_ == (labels != None).sum()  # noqa: E711


def test_labels_for_an_audit_change_no_weight():
    x, sets, _, truth = natural_sets()
    labels = some_labels(truth)
    without = learn(x, sets, method="ssc")
    audited = learn(x, sets, labels, labels_for="audit", method="ssc")
    np.testing.assert_array_equal(without.coef_, audited.coef_)
    assert audited.audit_.rows == 150
    assert audited.training_labels_ == 0
    assert learn(x, sets, labels, method="ssc").audit_ is None


def test_hidden_sets_are_scored_without_labeled_rows_and_labels_are_not_held_out():
    x, sets, _, truth = natural_sets()
    clf = learn(x, sets, some_labels(truth), hide_sets=True, held_out=0.2, method="ssc")
    assert len(clf.held_out_shares_.stated) == 12
    assert clf.held_out_shares_.rows.sum() < len(x) - 150
    assert clf.fitted_again_
    assert clf.judgement_.evaluation.rows < 0.2 * len(x)
    assert any("150 labeled rows" in s and "no audit" in s for s in clf.judgement_.sentences)
    assert len(clf.coef_interval()) == 2  # of resampled sets and labels


def test_labels_go_with_several_groupings():
    x, sets, shares, truth = natural_sets()
    month = np.arange(len(x)) % 4
    groups = pd.DataFrame({"place": sets, "month": [f"m{k}" for k in month]})
    priors = {"place": shares, "month": {f"m{k}": 0.4 + 0.05 * k for k in range(4)}}
    without = learn(x, groups, shares=priors, method="count")
    beside = learn(x, groups, some_labels(truth), shares=priors, method="count")
    assert beside.coef_["b"] > without.coef_["b"] + 0.3
    assert len(beside.set_priors_) == 16


@pytest.mark.parametrize(
    ("options", "labels", "message"),
    [
        ({"method": "mmc-u2", "model": "mlp"}, "some", "mmc-u2 cannot learn from labeled rows"),
        ({}, "all", "every row has a label: leave set_priors out"),
        ({}, "none", "no row has a label"),
        ({}, "other", "the labels hold '2.0', which is no class of the model"),
        ({}, "few", "X has 720 rows and labels has 3"),
        ({"labels_for": "testing"}, "some", "labels_for must be 'audit' or 'training'"),
        ({"method": "ssc", "prior_error": "auto"}, "some", "give the error as a number"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_in_one_line(options, labels, message):
    x, sets, _, truth = natural_sets()
    given = {
        "some": some_labels(truth),
        "all": truth,
        "none": np.full(len(truth), np.nan),
        "other": np.where(truth == 1, 2.0, np.nan),
        "few": truth[:3],
    }
    with pytest.raises(InputError, match=message) as caught:
        learn(x, sets, given[labels], **options)
    assert "\n" not in str(caught.value)


def test_labels_are_found_by_the_name_of_their_class():
    np.testing.assert_array_equal(label_codes([True, None, False, ""], (0, 1)), [1, -1, 0, -1])
    np.testing.assert_array_equal(label_codes(["1", "0.0", np.nan], (0, 1)), [1, 0, -1])


@pytest.fixture
def files(tmp_path):
    x, sets, shares, truth = natural_sets()
    labels = pd.Series(some_labels(truth)).map({0.0: "0", 1.0: "1"})
    x.assign(region=sets, found=labels).to_parquet(tmp_path / "rows.parquet")
    pd.Series(shares, name="share").rename_axis("region").to_csv(tmp_path / "rates.csv")
    return tmp_path


def fit(files, name, *options):
    command = ["fit", str(files / "rows.parquet"), "--sets", "region", "--labels", "found"]
    command += ["--priors", str(files / "rates.csv"), "-o", str(files / name), "--no-hide-sets"]
    return CliRunner().invoke(main, [*command, "--model", "linear", "--method", "ssc", *options])


def test_the_command_learns_from_labels_only_if_it_is_told_to(files):
    result = fit(files, "model", "--labels-for", "training", "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["training_labels"], said["audit"]) == (150, None)
    assert any("no audit" in sentence for sentence in said["sentences"])
    clf = UnmixClassifier.load(files / "model")
    assert clf.training_labels_ == 150
    assert list(clf.feature_names_in_) == ["a", "b"]
    assert "Labels used in training: 150." in (files / "model" / "README.md").read_text()
    assert "no audit" in (files / "model" / "report.html").read_text()
    x, sets, _, truth = natural_sets()
    rates = read_rates(files / "rates.csv", "region")
    same = UnmixClassifier(
        rates, model="linear", method="ssc", hide_sets=False, held_out=0.2, random_state=0
    ).fit(x, sets, some_labels(truth), labels_for="training")
    np.testing.assert_allclose(clf.coef_, same.coef_)
    audited = json.loads(fit(files, "audited", "--json").stdout)
    assert (audited["training_labels"], audited["audit"]["rows"]) == (0, 150)


def test_a_table_in_pieces_refuses_labels_for_training(files):
    result = fit(files, "model", "--labels-for", "training", "--stream")
    assert result.exit_code == 2
    assert "labels for training need all rows in memory; pass --in-memory" in result.output
    assert not (files / "model").exists()
