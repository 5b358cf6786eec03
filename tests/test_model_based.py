"""What a model promises of itself, against brute force and labels."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from unmix import UnmixClassifier
from unmix.assess.model_based import expected_auc, expected_scores, model_based
from unmix.errors import InputError
from unmix.learn.hidden_sets import Gain


def auc_by_pairs(p, z):
    above = total = 0.0
    for i in range(len(p)):
        for j in range(len(p)):
            if i != j:
                weight = p[i] * (1 - p[j])
                above += weight * ((z[i] > z[j]) + (z[i] == z[j]) / 2)
                total += weight
    return above / total


@pytest.mark.parametrize("seed", range(5))
def test_the_expected_auc_is_that_of_all_pairs(seed):
    rng = np.random.default_rng(seed)
    p, z = rng.random(30), rng.integers(0, 8, 30)  # with ties
    assert expected_auc(p, z) == pytest.approx(auc_by_pairs(p, z), abs=1e-12)


def test_true_probabilities_keep_their_promise():
    rng = np.random.default_rng(0)
    p = expit(rng.normal(0, 1.5, 40_000))
    y = (rng.random(len(p)) < p).astype(int)
    both = np.stack([1 - p, p], axis=1)
    found = model_based(both, both, np.full_like(both, 0.5), y).known_sets
    assert found.expected == expected_scores(both)
    for name in ("accuracy", "brier", "auc"):
        assert getattr(found.expected, name) == pytest.approx(
            getattr(found.measured, name), abs=0.01
        )


def test_labels_say_whether_the_model_beats_the_share_of_its_set():
    rng = np.random.default_rng(1)
    p = expit(rng.normal(0, 1.5, 500))
    y = (rng.random(500) < p).astype(int)
    both = np.stack([1 - p, p], axis=1)
    shares = np.full_like(both, 0.5)
    assert model_based(both, both, shares, y).audit.better
    assert model_based(both, both[:, ::-1], shares, y).audit.worse
    few = np.where(np.arange(500) < 5, y, -1)
    assert model_based(both, lambda: both, shares, few).audit.rows == 5
    assert model_based(both, both, shares).audit is None
    with pytest.raises(InputError, match=r"shapes '\(499, 2\)', '\(500, 2\)' differ"):
        model_based(both, both[1:], shares)


def test_evaluate_sets_the_model_beside_its_rivals():
    rng = np.random.default_rng(2)
    sets = np.repeat(np.arange(40), 60)
    x = rng.normal(rng.normal(0, 1, 40)[sets], 1.0)
    y = rng.random(len(x)) < expit(x + rng.normal(0, 0.4, 40)[sets])
    shares = pd.Series(y).groupby(sets).mean().to_dict()
    frame = pd.DataFrame({"x": x})
    clf = UnmixClassifier(shares, model="linear", method="set-effects", random_state=0)
    found = clf.fit(frame, sets).evaluate(frame, sets, labels=y.astype(int)).model_based
    assert found.audit.better
    by_share = np.array([shares[j] for j in sets])
    assert found.set_share.measured.brier == pytest.approx(np.mean((by_share - y) ** 2))
    assert found.majority.expected.accuracy == pytest.approx(max(y.mean(), 1 - y.mean()))
    assert found.known_sets.expected.auc == pytest.approx(found.known_sets.measured.auc, abs=0.05)
    page = clf.evaluate(frame, sets).to_dict()["model_based"]
    assert page["new_sets"]["measured"] is None


@pytest.mark.parametrize(
    ("gain", "word"), [(0.1, "not shown"), (0.3, "weak"), (0.49, "weak"), (0.51, "clear")]
)
def test_a_gain_is_clear_from_twice_its_threshold_on(gain, word):
    assert Gain(gain, 0.1, 2.5, 0.0).word == word
