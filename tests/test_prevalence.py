"""Shares of new sets: values, coverage over many sets, and words."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import binom

from unmix import UnmixClassifier, read_rates
from unmix.assess.prevalence import prevalence
from unmix.core.share_draws import ScoredSets, known_set_fits
from unmix.core.shares import share_by_likelihood, share_by_mean
from unmix.errors import InputError

TARGET = 0.3
TARGETS = np.array([0.5, 0.3, 0.2])
MEANS = np.array([[1.5, 0.0], [-0.7, 1.2], [-0.7, -1.2]])


def two_class_rows(rng, shares, rows):
    """Exact log-odds of unit normals at +1 and -1, one set per share."""
    index = np.repeat(np.arange(len(shares)), rows)
    positive = rng.random(len(index)) < np.asarray(shares)[index]
    x = rng.normal(size=len(index)) + np.where(positive, 1, -1)
    return 2 * x + np.log(TARGET / (1 - TARGET)), index


def three_class_rows(rng, shares, rows):
    index = np.repeat(np.arange(len(shares)), rows)
    classes = (rng.random(len(index))[:, None] > np.cumsum(shares, axis=1)[index]).sum(axis=1)
    x = rng.normal(size=(len(index), 2)) + MEANS[classes]
    return x @ MEANS.T - (MEANS**2).sum(axis=1) / 2 + np.log(TARGETS), index


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.95])
@pytest.mark.parametrize("rows", [25, 200])
def test_intervals_cover_the_share_even_near_zero(share, rows):
    logits, index = two_class_rows(np.random.default_rng(0), [share] * 500, rows)
    table = prevalence(logits, index, 500, TARGET)
    covered = np.mean([entry.low <= share <= entry.high for entry in table.sets])
    assert covered >= 0.92
    narrow = prevalence(logits, index, 500, TARGET, confidence=0.5)
    widths = [[entry.high - entry.low for entry in found.sets] for found in (narrow, table)]
    assert np.mean(widths[0]) < 0.6 * np.mean(widths[1])


@pytest.mark.parametrize("share", [(0.5, 0.3, 0.2), (0.9, 0.08, 0.02), (0.0, 0.4, 0.6)])
def test_three_class_intervals_cover_the_shares(share):
    logits, index = three_class_rows(np.random.default_rng(1), [share] * 300, 200)
    table = prevalence(logits, index, 300, TARGETS)
    low, high = (np.array([getattr(entry, end) for entry in table.sets]) for end in ("low", "high"))
    covered = np.mean((low <= share) & (share <= high), axis=0)
    assert covered.min() >= 0.90
    assert low.min() >= 0
    assert high.max() <= 1


def test_shares_and_rows_are_those_of_the_core():
    logits, index = two_class_rows(np.random.default_rng(2), [0.2, 0.6, 0.5], 100)
    table = prevalence(logits, index + 1, 4, TARGET, set_ids=["none", "a", "b", "c"])
    shares, _ = share_by_likelihood(logits, index, 3, TARGET)
    assert [entry.share for entry in table.sets[1:]] == pytest.approx(shares)
    assert [entry.rows for entry in table.sets] == [0, 100, 100, 100]
    assert [entry.set_id for entry in table.sets] == ["none", "a", "b", "c"]
    values = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    assert values["sets"][0]["share"] is None
    assert values["sets"][2]["low"] == table.sets[2].low
    assert values["assumption"] == "label shift"
    assert "model held fixed" in values["method"]


def test_covariate_shift_uses_the_mean_probability():
    logits, index = three_class_rows(np.random.default_rng(3), [(0.2, 0.2, 0.6)] * 2, 50)
    table = prevalence(logits, index, 2, TARGETS, assumption="covariate shift")
    shares, _ = share_by_mean(logits, index, 2)
    assert table.sets[1].share == pytest.approx(tuple(shares[1]))
    for k, share in enumerate(shares[1]):
        low, high = binom.ppf([0.025, 0.975], 50, share) / 50
        assert (table.sets[1].low[k], table.sets[1].high[k]) == pytest.approx((low, high), abs=0.03)


def test_the_share_of_a_new_set_varies_by_its_effect_the_fit_and_its_rows():
    rng = np.random.default_rng(0)
    logits, fits = rng.normal(size=60), rng.normal(size=(5, 60))
    table = prevalence(
        logits, np.zeros(60, int), 1, 0.5, assumption="set effects", tau=0.7, resampled=fits
    )
    many = [
        rng.binomial(60, expit(fits[rng.integers(5)] + rng.normal(0, 0.7)).mean()) / 60
        for _ in range(20_000)
    ]
    low, high = np.quantile(many, [0.025, 0.975])
    assert (table.sets[0].low, table.sets[0].high) == pytest.approx((low, high), abs=0.035)
    fixed = prevalence(logits, np.zeros(60, int), 1, 0.5, assumption="covariate shift")
    assert fixed.sets[0].high - fixed.sets[0].low < high - low


def test_twenty_fits_reach_as_far_as_the_law_that_they_are_drawn_from():
    rng = np.random.default_rng(1)
    held = []
    for _ in range(400):
        # Only the fit varies: a share that is known but for a shift of all logits.
        moves = rng.normal(scale=0.2, size=20)
        fits = np.repeat(moves[:, None], 2, axis=1)
        sets = ScoredSets(np.zeros(2), np.zeros(2, int), 1, np.array([0.5, 0.5]), 0.0, fits)
        moved = known_set_fits(sets, lambda *_: None)[:, 0]
        low, high = np.quantile(moved, [0.025, 0.975])
        held.append(low <= moves.mean() + rng.normal(scale=0.2) <= high)
    assert np.mean(held) > 0.91  # of the fits as they are .88, and .95 is asked
    few = ScoredSets(np.zeros(2), np.zeros(2, int), 1, np.array([0.5, 0.5]), 0.0, fits[:5])
    assert (known_set_fits(few, lambda *_: None) == fits[:5]).all()


def test_resampled_fits_widen_the_interval_under_label_shift():
    logits, index = two_class_rows(np.random.default_rng(6), [0.4], 300)
    moved = logits + np.linspace(-1, 1, 11)[:, None]
    one = prevalence(logits, index, 1, TARGET).sets[0]
    more = prevalence(logits, index, 1, TARGET, resampled=moved).sets[0]
    spread = np.std([share_by_likelihood(z, index, 1, TARGET)[0] for z in moved], ddof=1)
    half = np.hypot(one.high - one.share, 1.959964 * spread)
    assert more.share == one.share
    assert more.high - more.share == pytest.approx(half, rel=0.1)


def natural(seed, num_sets=60, rows=80, tau=0.4, new=0):
    """Draw sets with effects: frame of features and group, sets, classes."""
    rng = np.random.default_rng(seed)
    sets = np.repeat(np.arange(num_sets + new), rows)
    x = rng.normal(rng.normal(0, 1, num_sets + new)[sets], 1.0)
    effect = rng.normal(0, tau, num_sets + new)
    y = rng.random(len(x)) < expit(x - 0.5 + effect[sets])
    frame = pd.DataFrame({"x": x, "group": np.where(x > rng.normal(size=len(x)), "a", "b")})
    return frame, sets, y


def test_intervals_cover_the_shares_of_new_sets_and_of_groups():
    held, groups = [], []
    for seed in range(5):
        frame, sets, y = natural(seed, new=8)
        seen = sets < 60
        shares = pd.Series(y[seen]).groupby(sets[seen]).mean().to_dict()
        # A strong penalty is a bias that no interval knows of.
        clf = UnmixClassifier(shares, model="linear", method="set-effects", l2=1e-4, random_state=0)
        clf.fit(frame.loc[seen, ["x"]], sets[seen])
        new = clf.prevalence(frame.loc[~seen, ["x"]], sets[~seen])
        truth = pd.Series(y[~seen]).groupby(sets[~seen]).mean()
        held += [e.low <= truth[int(e.set_id)] <= e.high for e in new.sets]
        by = clf.prevalence(frame.loc[seen, ["x"]], sets[seen], by=frame.loc[seen, "group"])
        in_group = pd.Series(y[seen]).groupby(frame.loc[seen, "group"]).mean()
        groups += [e.low <= in_group[e.group[0]] <= e.high for e in by.groups]
        assert by.known_sets == 60
    assert sum(held) >= 35  # of 40
    assert sum(groups) >= 9  # of 10


def test_shares_by_set_come_near_the_stated_ones_where_these_are_known():
    frame, sets, y = natural(1)
    shares = pd.Series(y).groupby(sets).mean().to_dict()
    clf = UnmixClassifier(shares, model="linear", method="set-effects", random_state=0)
    clf.fit(frame[["x"]], sets)
    table = clf.prevalence(frame[["x"]], sets, set_priors=shares).to_frame()
    stated = np.array([shares[int(i)] for i in table["set"]])
    new = clf.prevalence(frame[["x"]], sets).to_frame()
    assert np.abs(table["share"] - stated).mean() < np.abs(new["share"] - stated).mean() / 1.5
    both = clf.prevalence(frame[["x"]], sets, by=frame.assign(set=sets)[["set", "group"]])
    assert len(both.groups) == 120
    assert both.by == ("set", "group")


def test_by_needs_something_to_be_by():
    frame, sets, y = natural(1, num_sets=12)
    shares = pd.Series(y).groupby(sets).mean().to_dict()
    clf = UnmixClassifier(shares, model="linear", method="set-effects", random_state=0)
    clf.fit(frame[["x"]], sets)
    with pytest.raises(InputError, match="sets, by, or both"):
        clf.prevalence(frame[["x"]])
    with pytest.raises(InputError, match="no column 'colour'"):
        clf.prevalence(frame[["x"]], sets, by="colour")


def test_a_different_target_prior_moves_nothing_when_the_logits_move_with_it():
    logits, index = two_class_rows(np.random.default_rng(4), [0.1, 0.7], 80)
    moved = logits - np.log(TARGET / (1 - TARGET)) + np.log(0.05 / 0.95)
    first, second = prevalence(logits, index, 2, TARGET), prevalence(moved, index, 2, 0.05)
    for a, b in zip(first.sets, second.sets, strict=True):
        assert (a.share, a.low, a.high) == pytest.approx((b.share, b.low, b.high), abs=1e-10)


def test_mistakes_are_named():
    with pytest.raises(InputError, match="'concept shift'"):
        prevalence([0.0], [0], 1, 0.5, assumption="concept shift")
    with pytest.raises(InputError, match="inside"):
        prevalence([0.0], [0], 1, 0.5, confidence=95)
    with pytest.raises(InputError, match="all 1 sets; got 2"):
        prevalence([0.0], [0], 1, 0.5, set_ids=["a", "b"])


def test_counts_whose_totals_are_the_rows_of_new_sets_are_met():
    rng = np.random.default_rng(11)
    sets = np.repeat(np.arange(300), 8)
    y = rng.random(len(sets)) < rng.beta(1, 2, 300)[sets]
    x = rng.normal(size=(len(sets), 1)) + 1.5 * y[:, None]
    counted = pd.DataFrame({"set": np.arange(300), "cases": np.bincount(sets, y), "people": 8})
    clf = UnmixClassifier(
        {j: share for j, share in enumerate(np.bincount(sets, y) / 8)},
        model="linear", method="count", held_out=0, hide_sets=False,
    ).fit(x, sets)  # fmt: skip
    new = rng.permutation(300)[sets]  # the same sets by other names
    names = np.empty(300, dtype=int)
    names[sets] = new
    rates = read_rates(counted.assign(set=names))
    group = np.where(x[:, 0] > 0.7, "high", "low")
    found = clf.prevalence(x, new, by=group, set_priors=rates).groups
    share = np.average([one.share for one in found], weights=[one.rows for one in found])
    assert share == pytest.approx(y.mean(), abs=1e-6)
    for one in found:
        assert one.low <= y[group == one.group[0]].mean() <= one.high
    judged = clf.evaluate(x, new, set_priors=rates)
    plain = clf.evaluate(x, new, set_priors=dict(zip(rates.set_ids, rates.set_priors, strict=True)))
    assert judged.calibration == plain.calibration  # as where counts are known by their shares
