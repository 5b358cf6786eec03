import dataclasses

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from test_boosting import truth_and_logits
from test_training import QUICK, small_model, small_sets
from unmix.learn import prior_check, refined_priors
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.methods import METHODS
from unmix.learn.prior_check import estimate_prior_error, train_checking_priors
from unmix.learn.training import train
from unmix.studies.cell import Cell, run_cell

SSC = METHODS["ssc"]
RECIPE = dataclasses.replace(QUICK, look=0.25)


def noisy(true, error, seed=0):
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=len(true))
    return np.clip(true + error * signs, 0, 1)


def estimated(stated, set_index, logits):
    return estimate_prior_error(logits, set_index, stated, np.ones(len(stated)), 0.5)


@pytest.mark.parametrize("stretch", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("error", [0.05, 0.1, 0.2])
def test_the_rows_say_how_far_off_the_stated_priors_are(error, stretch):
    true, set_index, logits = truth_and_logits(num_sets=30, stretch=stretch)
    found = estimated(noisy(true, error), set_index, logits)
    assert error / 1.6 < found < 1.6 * error


def test_priors_that_are_right_are_rarely_doubted():
    found = []
    for seed in range(40):
        true, set_index, logits = truth_and_logits(num_sets=12, size=200, seed=seed)
        found.append(estimated(true, set_index, logits))
    assert np.count_nonzero(found) <= 2


def test_small_sets_show_their_errors_together():
    true, set_index, logits = truth_and_logits(num_sets=1000, size=8)
    assert estimated(true, set_index, logits) == 0
    assert estimated(noisy(true, 0.2), set_index, logits) in (0.1, 0.15, 0.2)


def test_two_sets_and_a_set_without_rows():
    true, set_index, logits = truth_and_logits(num_sets=2, size=5000)
    assert estimated(true, set_index, logits) == 0
    true, set_index, logits = truth_and_logits(num_sets=20)
    seen = set_index != 3
    stated, weights = noisy(true, 0.1), np.bincount(set_index[seen], minlength=20)
    found = estimate_prior_error(logits[seen], set_index[seen], stated, weights, 0.5)
    assert 0.05 <= found <= 0.15
    many = np.concatenate((stated, np.full(10**6, 0.5)))  # no room for 200 numbers per empty set
    weights = np.bincount(set_index[seen], minlength=len(many))
    assert estimate_prior_error(logits[seen], set_index[seen], many, weights, 0.5) == found


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.9), (0.01, 0.1), (0.05, 0.25), (0.7, 0.99)])
def test_right_priors_that_are_rare_or_close_together_are_not_doubted(low, high):
    found = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        true = rng.uniform(low, high, 20)
        set_index = np.repeat(np.arange(20), 300)
        labels = rng.random(len(set_index)) < true[set_index]
        logits = 3 * (rng.normal(size=len(labels)) + 3 * labels) - 4.5
        found.append(estimated(true, set_index, logits))
    assert np.count_nonzero(found) <= 1


def test_the_likelihood_is_the_integral_over_the_true_priors(monkeypatch):
    true, set_index, logits = truth_and_logits(num_sets=3, size=60)
    stated = noisy(true, 0.2, seed=1)
    monkeypatch.setattr(refined_priors, "SHIFT", 1e-9)  # the logits as they are
    monkeypatch.setattr(refined_priors, "STRETCH", 1e-9)
    seen = {}
    monkeypatch.setattr(prior_check, "_likeliest", lambda values: seen.update(values) or 0.0)
    estimated(stated, set_index, logits)
    # All three priors at once, and the pooled one that belongs to them.
    grid = (np.arange(100) + 0.5) / 100
    rows = np.log1p(grid[:, None] * np.expm1(logits))  # (grid, n)
    own = np.stack([rows[:, set_index == j].sum(axis=1) for j in range(3)])
    sums = (np.arange(298) + 1.5) / 300
    pooled = np.log1p(sums[:, None] * np.expm1(logits)).sum(axis=1)
    i, j, k = np.ogrid[:100, :100, :100]
    likelihood = own[0][i] + own[1][j] + own[2][k] - pooled[i + j + k]

    def surprise(error):
        density = -((grid - stated[:, None]) ** 2) / (2 * error**2)
        density -= logsumexp(density, axis=1, keepdims=True)
        return -logsumexp(likelihood + density[0][i] + density[1][j] + density[2][k])

    for error in (0.05, 0.1, 0.3):  # to first order it claims a little less, and never more
        assert surprise(error) < seen[error] < surprise(error) + 1.5
    plain = own[[0, 1, 2], np.round(100 * stated - 0.5).astype(int)].sum()
    at = np.interp(stated.mean(), sums, pooled)
    assert seen[0.0] == pytest.approx(at - plain, abs=0.5)  # the grid is coarse


def split(sets):
    return sets.hold_out(0.3, np.random.default_rng(1))


def same(mine, theirs):
    pairs = zip(mine.parameters(), theirs.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_right_priors_are_believed_to_the_same_bits_as_without_a_look():
    kept, held_out = split(small_sets(num_sets=6))
    trained, error = train_checking_priors(
        small_model(kept), kept, SSC, RECIPE, held_out=held_out, seed=3
    )
    plain = train(small_model(kept), kept, SSC, RECIPE, held_out=held_out, seed=3)
    assert error == 0
    assert same(trained.model, plain.model)
    assert same(trained.selected, plain.selected)
    assert [row["epoch"] for row in trained.history] == list(range(1, RECIPE.epochs + 1))


def test_wrong_priors_are_learned_from_the_start_with_the_error_found():
    kept, held_out = split(small_sets(num_sets=12, prior_noise=0.2))
    trained, error = train_checking_priors(
        small_model(kept), kept, SSC, RECIPE, held_out=held_out, seed=3
    )
    assert 0.1 <= error <= 0.3
    told = train(
        small_model(kept),
        kept,
        SSC,
        RECIPE,
        held_out=held_out,
        seed=3,
        prior_errors=np.full(12, error),
    )
    assert same(trained.model, told.model)
    np.testing.assert_array_equal(trained.set_priors, told.set_priors)
    true = small_sets(num_sets=12).set_priors
    assert np.abs(trained.set_priors - true).mean() < 0.6 * np.abs(kept.set_priors - true).mean()


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_doubting_run_goes_on_from_its_checkpoints(tmp_path, noise):
    kept, held_out = split(small_sets(num_sets=12, prior_noise=noise))

    def run(folder, stop_at=None):
        calls = []

        def progress(done, total, text):
            calls.append(done)
            if len(calls) == stop_at:
                raise KeyboardInterrupt

        return train_checking_priors(
            small_model(kept),
            kept,
            SSC,
            RECIPE,
            held_out=held_out,
            seed=0,
            checkpoint=Checkpoint(folder, {"run": 1}),
            checkpoint_seconds=0.0,
            progress=progress,
        )

    whole, error = run(tmp_path / "whole")
    for stop_at in (10, 60, 30):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "killed", stop_at)
    again, same_error = run(tmp_path / "killed")
    assert (error > 0) == (noise > 0)
    assert same_error == error
    assert same(again.model, whole.model)


@pytest.mark.parametrize(
    ("changes", "looks"),
    [
        ({}, True),
        ({"prior_error": 0.0}, False),
        ({"prior_error": 0.1}, False),
        ({"held_out": 0.0}, False),
        ({"recipe": "paper"}, False),
        ({"method": "ssc-mse"}, False),
    ],
)
def test_a_cell_looks_unless_it_is_told_or_cannot(changes, looks):
    cell = dataclasses.replace(
        Cell("digits", num_sets=10, epochs=2, width=16, depth=1, held_out=0.2), **changes
    )
    assert ("noticed_error" in run_cell(cell)) is looks


def test_believing_and_refining_cells_are_what_the_look_decides_between():
    cell = Cell("digits", num_sets=6, epochs=60, width=32, held_out=0.4, prior_noise=0.3)
    own = run_cell(cell)
    rival = run_cell(dataclasses.replace(cell, prior_error=own["noticed_error"]))
    assert own["noticed_error"] > 0
    assert own["test_error"] == rival["test_error"]
