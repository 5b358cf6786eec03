"""A few labels as an audit: nothing is trained by them, and the verdict follows what they show."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from unmix import UnmixClassifier
from unmix.assess.audit import auc_interval, audit_labels
from unmix.cli import main
from unmix.errors import InputError
from unmix.report.headline import verdict_of


def natural_sets(inside, between=1.5, rows=120, num_sets=40, seed=0):
    """Sets whose mean of x moves their log-odds by `between`, rows in them by `inside`."""
    rng = np.random.default_rng(seed)
    means = np.repeat(rng.normal(size=num_sets), rows)
    x = means + rng.normal(size=len(means))
    labels = (rng.random(len(x)) < expit(between * means + inside * (x - means))).astype(int)
    sets = np.repeat([f"s{j}" for j in range(num_sets)], rows)
    return x[:, None], sets, labels, pd.Series(labels).groupby(sets).mean()


def some_labels(labels, count, seed=1):
    """The labels of a few rows, None for all others."""
    few = np.full(len(labels), None, dtype=object)
    chosen = np.random.default_rng(seed).permutation(len(labels))[:count]
    few[chosen] = labels[chosen]
    return few


def fitted(inside, count=300):
    x, sets, labels, shares = natural_sets(inside)
    clf = UnmixClassifier(shares, model="linear", method="set-effects", random_state=0)
    few = some_labels(labels, count)
    return clf.fit(x, sets, labels=few), x, sets, labels, few


def test_labels_that_support_the_model_make_it_a_yes():
    clf, x, sets, _labels, _few = fitted(inside=1.5)
    assert clf.audit_.better
    judged = clf.judge(x[::5], sets[::5])
    assert judged.audit is clf.audit_
    assert judged.sentences[-1] == clf.audit_.sentence
    assert "They support the model" in clf.audit_.sentence
    assert verdict_of(judged).headline == "Yes: audited on 300 labels"
    assert verdict_of(replace(judged, audit=None)).level == "partly"


def test_labels_find_the_ecological_fallacy():
    # Between sets x raises the odds, inside them it lowers them: held-out sets cannot tell.
    clf, x, sets, _labels, _few = fitted(inside=-1.5)
    assert clf.gains_["set-effects"].shown
    assert clf.audit_.worse
    judged = clf.judge(x[::5], sets[::5])
    assert not judged.believable
    assert verdict_of(judged).headline == "No: 300 labeled rows contradict it"
    assert verdict_of(replace(judged, audit=None, believable=True)).level == "partly"


def test_nothing_is_trained_by_the_labels_of_an_audit():
    clf, x, sets, labels, few = fitted(inside=1.0, count=100)
    without = UnmixClassifier(**clf.get_params()).fit(x, sets)
    turned = np.array([None if value is None else 1 - value for value in few], dtype=object)
    other = UnmixClassifier(**clf.get_params()).fit(x, sets, labels=turned)
    assert without.audit_ is None
    for again in (without, other):
        np.testing.assert_array_equal(again.decision_function(x), clf.decision_function(x))
    known = clf.predict_proba(x, sets)
    rows = np.flatnonzero([value is not None for value in few])
    truth = labels[rows]
    assert clf.audit_.rows == 100
    assert clf.audit_.accuracy.value == np.mean((known[rows, 1] > 0.5) == truth)
    assert clf.audit_.brier.value == pytest.approx(np.mean((known[rows, 1] - truth) ** 2))
    assert clf.audit_.auc.value == pytest.approx(roc_auc_score(truth, known[rows, 1]))


@pytest.mark.parametrize("classes", [2, 3])
def test_an_audit_of_right_probabilities_is_calibrated_and_covers(classes):
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(200):
        p = rng.dirichlet(np.ones(classes), size=60)
        labels = (rng.random((60, 1)) > p.cumsum(axis=1)).sum(axis=1)
        found = audit_labels(p, np.full_like(p, 1 / classes), labels)
        covered.append([off.low <= 0 <= off.high for off in found.calibration])
        assert found.gain.value == pytest.approx(
            np.mean(((1 / classes - np.eye(classes)[labels]) ** 2).sum(axis=1))
            / (2 if classes == 2 else 1)
            - found.brier.value
        )
        assert (found.auc is None) == (classes > 2)
    assert np.shape(covered)[1] == (1 if classes == 2 else 3)
    assert np.mean(covered) > 0.9


def test_the_interval_of_an_auc_covers_the_truth():
    # Two normals whose means are 1 apart: the AUC is Phi(1 / sqrt 2).
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        labels = rng.random(80) < 0.4
        found = auc_interval(rng.normal(size=80) + labels, labels.astype(int), 0.95)
        hits += found.low <= 0.7602 <= found.high
    assert hits >= 0.9 * 300
    tied = auc_interval(np.array([1.0, 1, 0, 0]), np.array([1, 0, 1, 0]), 0.95)
    assert tied.value == 0.5


def test_few_labels_show_nothing():
    p = np.full((10, 2), 0.5)
    p[:5] = (0.9, 0.1)
    p[5:] = (0.1, 0.9)
    found = audit_labels(p, np.full((10, 2), 0.5), np.repeat([0, 1], 5))
    assert found.better
    assert not found.supports
    assert "at least 20 labels are needed" in found.sentence


def test_mistakes_with_labels_are_told():
    x, sets, labels, shares = natural_sets(1.0, num_sets=6)
    clf = UnmixClassifier(shares, model="linear", method="ssc", l2=0.01, hide_sets=False)
    with pytest.raises(InputError, match="0 of 720 rows have a label"):
        clf.fit(x, sets, labels=[None] * len(x))
    with pytest.raises(InputError, match="X has 720 rows and labels has 3"):
        clf.fit(x, sets, labels=[0, 1, 1])
    with pytest.raises(InputError, match="labels hold 'sick', which is no class"):
        clf.fit(x, sets, labels=["sick", "well"] + [None] * 718)
    with pytest.raises(InputError, match="without set_priors the sets are labels"):
        UnmixClassifier(model="linear").fit(x, labels, labels=labels)


def test_the_command_line_audits_by_a_column_that_is_no_feature(tmp_path):
    x, sets, labels, shares = natural_sets(1.5)
    few = pd.array(some_labels(labels, 200), dtype="Int64")
    frame = pd.DataFrame({"u": x[:, 0].round(4), "region": sets, "sick": few})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    pd.DataFrame({"region": shares.index, "share": shares.to_numpy()}).to_csv(
        tmp_path / "rates.csv", index=False
    )
    args = ["fit", tmp_path / "rows.csv", "--sets", "region", "--priors", tmp_path / "rates.csv"]
    args += ["-o", tmp_path / "model", "--model", "linear", "--method", "set-effects"]
    result = CliRunner().invoke(main, [*map(str, args), "--labels", "sick", "--json"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["audit"]["rows"] == 200
    assert record["audit"]["better"] is True
    assert any("Audit by 200 labeled rows" in sentence for sentence in record["sentences"])
    described = json.loads((tmp_path / "model" / "model.json").read_text())
    assert "sick" not in json.dumps(described["encoder"])
    assert "audited on 200 labels" in (tmp_path / "model" / "report.html").read_text()
    args[-1] = "ssc"
    result = CliRunner().invoke(main, [*map(str, args), "--labels", "ill", "--overwrite"])
    assert result.exit_code == 2
    assert "no column 'ill'" in result.output
