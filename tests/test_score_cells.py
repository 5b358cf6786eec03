"""Counts of scores: what a party tells, and where rows of thin cells are likely to have been."""

import numpy as np
import pytest

import reference
from unmix.assess.evaluate import evaluate
from unmix.errors import InputError
from unmix.federated.score_cells import (
    FIXED,
    NUM_CELLS,
    ScoreGrid,
    cell_counts_of_sets,
    likely_counts,
)


def drawn(sizes, seed, gap=2.0, scale=2.0, top=0.9):
    """Scores of two normal classes, their sets, and the shares of these."""
    rng = np.random.default_rng(seed)
    shares = np.linspace(0.05, top, len(sizes))
    index = np.repeat(np.arange(len(sizes)), sizes)
    positive = rng.random(len(index)) < shares[index]
    return scale * (rng.normal(size=len(index)) + gap * positive - gap / 2), index, shares


def rows_of(counts, grid):
    """Scores and sets of rows that were counted."""
    index = np.repeat(np.arange(len(counts)), counts.sum(axis=1))
    return np.concatenate([np.repeat(grid.scores, own) for own in counts]), index


def told_and_read(scores, index, shares, least=5):
    """What is told of scores, and what is made of it."""
    grid = ScoreGrid.around(scores.mean(), scores.std())
    told = cell_counts_of_sets(scores, index, len(shares), least, grid)
    return told, likely_counts(told, np.full(len(shares), least), shares, grid), grid


def test_thin_cells_are_counted_in_a_neighbour_and_never_beyond_the_decision():
    scores = np.concatenate((np.linspace(-6, -2, 11), [-0.2], np.linspace(0.1, 3, 40), [7.0]))
    counts = cell_counts_of_sets(scores, np.zeros(len(scores), dtype=int), 1, 5)[0]
    assert ((counts == 0) | (counts >= 5)).all()
    decision = FIXED.decision
    assert counts[:decision].sum() == 12
    assert counts[decision:].sum() == 41
    few = cell_counts_of_sets(np.append(np.full(30, -2.0), [1, 2]), np.zeros(32, int), 1, 5)[0]
    assert few.sum() == 32
    assert few[decision:].sum() == 0  # two rows on the other side are not told apart
    assert cell_counts_of_sets(np.ones(4), np.zeros(4, int), 1, 5).sum() == 0


@pytest.mark.parametrize(
    ("mean", "deviation"), [(0.0, 2.0), (-5.0, 0.4), (0.7, 0.01), (300.0, 40.0)]
)
def test_a_grid_suits_its_scores_and_has_an_edge_where_classes_are_told_apart(mean, deviation):
    grid = ScoreGrid.around(mean, deviation)
    assert len(grid.scores) == NUM_CELLS
    assert 0.0 in grid.edges
    assert grid.scores[grid.decision - 1] <= 0 <= grid.scores[grid.decision]
    assert 14 <= deviation / grid.step < 28
    for side in (-1, 1):
        assert abs(grid.edges - (mean + side * 2 * deviation)).min() <= grid.step / 2
    assert ScoreGrid.of_json(grid.to_json()) == grid


@pytest.mark.parametrize("given", [[0, 1], [float("nan"), 1], [-1.0, 0], [1.0, 2**60]])
def test_a_grid_that_cannot_be_is_refused(given):
    with pytest.raises(InputError, match="no such grid"):
        ScoreGrid.of_json(given)


@pytest.mark.parametrize("spread", [0.0, 1e-12, float("inf")])
def test_scores_that_do_not_differ_get_the_fixed_grid(spread):
    assert ScoreGrid.around(3.0, spread) == FIXED


def test_counts_that_no_rule_has_moved_are_left_as_they_are():
    scores, index, shares = drawn([40, 60, 80], 0)
    told, read, _ = told_and_read(scores, index, shares, least=1)
    np.testing.assert_array_equal(read, told)


@pytest.mark.parametrize("sizes", [[60, 45, 30, 80], [7, 5, 9, 200]])
def test_likely_counts_are_those_of_the_literal_rule(sizes):
    scores, index, shares = drawn(sizes, 1)
    told, read, grid = told_and_read(scores, index, shares)
    literal = reference.likely_counts(told.tolist(), 5, shares.tolist(), grid.decision, rounds=20)
    np.testing.assert_array_equal(read, literal)
    np.testing.assert_array_equal(read.sum(axis=1), told.sum(axis=1))
    both = (told[:, : grid.decision].sum(axis=1) > 0) & (told[:, grid.decision :].sum(axis=1) > 0)
    for counts in (read, told):
        np.testing.assert_array_equal(
            counts[both, : grid.decision].sum(axis=1), told[both, : grid.decision].sum(axis=1)
        )
    assert (read != told).any()


@pytest.mark.parametrize(
    ("sizes", "off", "told_off"), [([66] * 12, 0.005, 0.02), ([30] * 100, 0.005, 0.03)]
)
def test_small_sets_are_judged_without_bias_by_what_is_told_of_them(sizes, off, told_off):
    errors, as_told, rejected = [], [], []
    for seed in range(20):
        scores, index, shares = drawn(sizes, seed)
        told, read, grid = told_and_read(scores, index, shares)
        exact = evaluate(scores, index, shares, shares.mean())
        ours = evaluate(*rows_of(read, grid), shares, shares.mean())
        errors.append(ours.auc.value - exact.auc.value)
        rejected.append(ours.fit_test.rejected)
        as_told.append(
            evaluate(*rows_of(told, grid), shares, shares.mean()).auc.value - exact.auc.value
        )
    assert abs(np.mean(errors)) < off
    assert np.mean(as_told) > told_off  # what it would be, if counts were taken as they are told
    assert sum(rejected) <= 3  # of 20, by chance 1


def test_a_set_that_does_not_fit_is_still_found_in_counts():
    scores, index, shares = drawn([100] * 12, 5)
    shares = shares.copy()
    shares[3] = 0.8
    _, read, grid = told_and_read(scores, index, shares)
    found = evaluate(*rows_of(read, grid), shares, shares.mean())
    assert found.fit_test.rejected
    assert found.fit_test.misfits[0] == "3"
