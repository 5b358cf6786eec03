"""Shares of new sets: values, coverage over many sets, and words."""

import json

import numpy as np
import pytest

from unmix.assess.prevalence import prevalence
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
    shares, errors = share_by_mean(logits, index, 2)
    assert table.sets[1].share == pytest.approx(tuple(shares[1]))
    assert table.sets[1].high == pytest.approx(tuple(shares[1] + 1.959964 * errors[1]))


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
