"""Features stand in for the class: how long slopes between sets are inside sets."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax

import reference_counts as literal
import unmix.core.stand_ins as module
from unmix import UnmixClassifier
from unmix.core.effect_law import new_set_probability
from unmix.core.stand_ins import LogitMove, StandIns, lone_row_move, stand_ins

COLUMNS = [0, 1, 2, 3, 4, 4]  # of the table, the last with two features


def drawn(slope, rng, sets=80, rows=60, noise=0.1):
    """Features that follow one cause between sets, and `slope` times as much inside them."""
    index = np.repeat(np.arange(sets), rows)
    cause = rng.normal(size=sets)
    # What rows of a set share with each other, and what the features of a row share.
    own = rng.normal(size=len(index))
    loads = np.array([1.0, -0.8, 1.2, 0.7, 0.9, -1.1])
    x = np.outer(cause[index], loads) + rng.normal(scale=noise, size=(sets, 6))[index]
    # A row's features go together with covariance `slope` times that of a common cause.
    x += np.outer(own, loads) * np.sqrt(slope) + rng.normal(size=(len(index), 6)) * 1e-3
    x += rng.normal(size=(len(index), 6)) * loads * np.sqrt(1 - slope)
    return x, index


def test_the_slope_is_the_literal_one_for_one_strength(monkeypatch):
    rng = np.random.default_rng(0)
    x, index = drawn(0.4, rng, sets=30, rows=25)
    monkeypatch.setattr(module, "STRENGTHS", (0.1,))
    told, slopes = module._told_by_others(
        means := np.stack([x[index == j].mean(axis=0) for j in range(30)]) - x.mean(axis=0),
        np.array(COLUMNS),
        np.random.default_rng(1),
    )
    assert told.all()
    # The literal form leaves the length as the penalty has it.
    plain = module._ridge(means - means.mean(axis=0), np.array(COLUMNS), 0.1)
    lengths = np.sum(slopes * plain, axis=0) / np.sum(plain**2, axis=0)
    assert slopes == pytest.approx(plain * lengths)
    inside = x - np.stack([x[index == j].mean(axis=0) for j in range(30)])[index]
    expected = literal.stand_in_slope(means, inside, COLUMNS, told, 0.1)
    monkeypatch.setattr(module, "_told_by_others", lambda *_: (told, plain))
    found = stand_ins(x, index, 30, COLUMNS, np.random.default_rng(1))
    assert found == StandIns(pytest.approx(expected, abs=1e-10), 5)


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_what_features_say_of_each_other_inside_sets_is_found(slope):
    found = stand_ins(
        *drawn(slope, np.random.default_rng(2)), 80, COLUMNS, np.random.default_rng(0)
    )
    assert found.columns == 5
    # A feature is told by the mean of four or five others, each with noise of its own inside sets;
    # the assumption is one column of six.
    of_features = slope / (slope + (1 - slope) / 5)
    assert found.slope == pytest.approx((1 + 5 * of_features) / 6, abs=0.06)


def test_features_that_have_nothing_to_do_with_each_other_say_nothing():
    said = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        index = np.repeat(np.arange(40), 20)
        x = rng.normal(size=(800, 5)) + rng.normal(scale=0.4, size=(40, 5))[index]
        said += stand_ins(x, index, 40, range(5), rng).columns > 0
    assert said <= 3


def test_few_sets_and_a_single_column_say_nothing():
    x, index = drawn(0.5, np.random.default_rng(3), sets=9)
    assert stand_ins(x, index, 9, COLUMNS, np.random.default_rng(0)) == StandIns()
    x, index = drawn(0.5, np.random.default_rng(3), sets=30)
    assert stand_ins(x, index, 30, np.zeros(6), np.random.default_rng(0)) == StandIns()
    x[:] = 1.0
    assert stand_ins(x, index, 30, COLUMNS, np.random.default_rng(0)) == StandIns()


@pytest.mark.parametrize("tau", [0.0, 1.3])
def test_lone_rows_keep_the_mean_probability_and_lose_length_inside_sets(tau):
    rng = np.random.default_rng(4)
    index = np.repeat(np.arange(30), 40)
    z = rng.normal(scale=2, size=1200) + rng.normal(size=30)[index] - 1
    move = lone_row_move(z, index, 31, 0.3, tau)  # a set without rows
    assert move.length == pytest.approx(literal.lone_rows(z, index, 0.3), abs=1e-10)
    # By the approximation of the average over effects.
    scale = 1 / np.sqrt(1 + np.pi * tau**2 / 8)
    assert expit(scale * move(z)).mean() == pytest.approx(expit(scale * z).mean(), abs=1e-6)
    both = lone_row_move(np.stack([np.zeros(1200), z], axis=1), index, 31, 0.3, tau)
    pair = both(np.stack([np.zeros(1200), z], axis=1))
    assert pair[:, 1] - pair[:, 0] == pytest.approx(move(z), abs=1e-5)
    three = rng.normal(size=(1200, 3)) * 2
    moved = lone_row_move(three, index, 31, 0.3, tau)(three)
    kept = softmax(scale * moved, axis=1).mean(axis=0)
    assert kept == pytest.approx(softmax(scale * three, axis=1).mean(axis=0), abs=1e-6)


def test_slopes_that_are_the_same_inside_move_nothing():
    rng = np.random.default_rng(5)
    z, index = rng.normal(size=300), np.repeat(np.arange(10), 30)
    move = lone_row_move(z, index, 10, 1.0, 0.5)
    assert move(z) == pytest.approx(z, abs=1e-6)


@pytest.fixture(scope="module")
def confounded():
    """Sets made by a cause that moves features and class alike, and hardly works inside sets."""
    rng = np.random.default_rng(6)
    x, index = drawn(0.2, rng, sets=60, rows=50, noise=0.3)
    means = np.stack([x[index == j].mean(axis=0) for j in range(60)])[index]
    inside = x - means
    logit = 1.5 * means[:, 0] + 0.2 * inside[:, 0] + rng.normal(scale=0.5, size=60)[index]
    y = (rng.random(len(x)) < expit(logit)).astype(int)
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(6)])
    shares = pd.Series(y).groupby(index).mean()
    return (
        UnmixClassifier(shares, model="linear", random_state=0).fit(frame, index),
        frame,
        index,
        y,
    )


def test_probabilities_of_lone_rows_are_less_bold_and_the_order_stays(confounded):
    clf, frame, _, y = confounded
    lone = clf.learner_.lone
    assert clf.method_ == "set-effects"
    assert clf.learner_.inside.columns >= 2
    assert lone.length < 0.9
    plain = clf.logits_at(frame, clf.learner_.base_prior)
    moved = clf.decision_function(frame)
    assert moved == pytest.approx(lone.length * plain + lone.shift)
    p = clf.predict_proba(frame)[:, 1]
    bold = new_set_probability(plain, clf.learner_.tau)
    assert p == pytest.approx(new_set_probability(moved, clf.learner_.tau))
    assert np.mean((p - y) ** 2) < np.mean((bold - y) ** 2)
    assert (clf.predict(frame) == (p > 0.5)).all()


def test_rows_of_known_sets_are_told_apart_no_further_than_features_are(confounded):
    clf, *_ = confounded
    shown = clf.gains_[clf.method_].explained(2)
    assert clf.trust_inside_ == min(shown, clf.learner_.inside.slope)


def test_shares_by_group_of_lone_rows_are_the_means_of_their_probabilities(confounded):
    clf, frame, _, _ = confounded
    group = np.where(frame["x0"] > 0, "high", "low")
    found = clf.prevalence(frame, by=group)
    p = clf.predict_proba(frame)[:, 1]
    for entry in found.groups:
        assert entry.share == pytest.approx(p[group == entry.group[0]].mean(), abs=1e-9)


def test_saved_models_know_slopes_inside_sets(confounded, tmp_path):
    clf, frame, index, _ = confounded
    clf.save(tmp_path / "model")
    again = UnmixClassifier.load(tmp_path / "model")
    assert again.learner_.inside == clf.learner_.inside
    assert again.learner_.lone == LogitMove(
        clf.learner_.lone.length, float(clf.learner_.lone.shift)
    )
    assert again.predict_proba(frame) == pytest.approx(clf.predict_proba(frame))
    known = clf.predict_proba(frame, sets=index)
    assert again.predict_proba(frame, sets=index) == pytest.approx(known)
