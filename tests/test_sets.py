import numpy as np
import pytest

from unmix.data.batching import _sorted_order, row_order
from unmix.data.draw import draw_priors, draw_sets, draw_sizes, labeled_sets, perturb_priors
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError

LABELS = np.arange(1000) % 10 < 3  # 300 positives
X = np.arange(1000, dtype=np.float32)[:, None]


def draw(**options):
    return draw_sets(X, LABELS, **{"num_sets": 10, "target_prior": 0.3, "seed": 0} | options)


def test_each_set_holds_exactly_its_share_of_positives():
    sets = draw()
    for j in range(10):
        rows = sets.source[sets.set_index == j]
        assert LABELS[rows].sum() == round(sets.set_priors[j] * 100)
        assert len(rows) == 100
    assert np.array_equal(sets.x[:, 0], sets.source)


def test_a_row_appears_once_in_a_set_but_may_appear_in_several_sets():
    sets = draw()
    for j in range(10):
        rows = sets.source[sets.set_index == j]
        assert len(np.unique(rows)) == len(rows)
    assert len(np.unique(sets.source)) < len(sets)
    assert sets.with_replacement == ()


def test_a_pool_that_is_too_small_is_drawn_with_replacement_and_recorded():
    few = np.arange(1000) < 40
    sets = draw_sets(X, few, num_sets=4, target_prior=0.3, seed=1)
    needed = np.round(sets.set_priors * 250)
    assert sets.with_replacement == tuple(np.flatnonzero(needed > 40))
    assert len(sets.with_replacement) > 0


def test_the_same_seed_draws_the_same_sets_and_another_seed_others():
    assert np.array_equal(draw().source, draw().source)
    assert not np.array_equal(draw().source, draw(seed=1).source)


def test_noise_changes_the_stated_priors_and_not_the_rows():
    exact, noisy = draw(), draw(prior_noise=0.1)
    assert np.array_equal(exact.source, noisy.source)
    inside = (noisy.set_priors > 0) & (noisy.set_priors < 1)
    moved = np.abs(noisy.set_priors - exact.set_priors)[inside]
    np.testing.assert_allclose(moved, 0.1)


def test_priors_lie_in_the_papers_range_and_can_be_forced_apart():
    rng = np.random.default_rng(0)
    priors = draw_priors(1000, rng)
    assert priors.min() >= 0.1
    assert priors.max() <= 0.9
    assert abs(priors.mean() - 0.5) < 0.03
    for _ in range(20):
        assert np.ptp(draw_priors(2, rng, min_spread=0.5)) > 0.5


def test_noise_is_plus_or_minus_epsilon_clipped():
    rng = np.random.default_rng(1)
    noisy = perturb_priors(np.full(1000, 0.05), 0.1, rng)
    assert set(np.round(noisy, 12)) == {0.0, 0.15}


def test_set_sizes_follow_the_three_schemes():
    rng = np.random.default_rng(2)
    assert draw_sizes(10, 6000, rng).tolist() == [600] * 10
    shrunk = draw_sizes(5, 6000, rng, kind="shrunk", tau=0.2)
    assert sorted(shrunk.tolist()) == [240, 240, 240, 1200, 1200]
    random = draw_sizes(7, 6000, rng, kind="random")
    assert random.sum() == 6000
    assert random.min() >= 1
    assert len(set(random.tolist())) > 1


def test_labels_become_sets_with_priors_zero_and_one():
    sets = labeled_sets(X, LABELS, target_prior=0.3)
    assert sets.set_priors.tolist() == [0.0, 1.0]
    assert np.array_equal(sets.set_index, LABELS.astype(int))


def test_held_out_pool_rows_appear_in_no_kept_set():
    kept, out = draw().hold_out(0.1, np.random.default_rng(0))
    assert len(kept) + len(out) == 1000
    assert not set(kept.source) & set(out.source)
    assert 50 < len(out) < 150


def test_rows_without_a_pool_are_held_out_inside_each_set():
    index = np.repeat([0, 1, 2], [10, 20, 70])
    sets = UnlabeledSets(X[:100], index, np.array([0.1, 0.5, 0.9]), 0.3)
    kept, out = sets.hold_out(0.2, np.random.default_rng(0))
    assert out.set_sizes.tolist() == [2, 4, 14]
    assert kept.set_sizes.tolist() == [8, 16, 56]
    assert not set(kept.x[:, 0]) & set(out.x[:, 0])


def test_mistakes_in_sets_are_named():
    with pytest.raises(InputError, match="one entry per row"):
        UnlabeledSets(X, np.zeros(3, int), np.array([0.1, 0.2]), 0.3)
    with pytest.raises(InputError, match=r"0\.\.1; got 0\.\.9"):
        UnlabeledSets(X, np.arange(1000) % 10, np.array([0.1, 0.2]), 0.3)
    with pytest.raises(InputError, match="both classes"):
        draw_sets(X, np.zeros(1000, bool), num_sets=2, target_prior=0.3, seed=0)
    with pytest.raises(InputError, match="at least 2 sets"):
        draw(num_sets=1)


@pytest.mark.parametrize("by", ["rows", "sets"])
def test_an_epoch_visits_each_row_once(by):
    index = np.random.default_rng(0).integers(7, size=500)
    order = row_order(index, 64, np.random.default_rng(1), by=by)
    assert sorted(order.tolist()) == list(range(500))
    again = row_order(index, 64, np.random.default_rng(2), by=by)
    assert not np.array_equal(order, again)


def test_batches_by_rows_hold_each_set_in_proportion():
    index = np.repeat([0, 1, 2], [1000, 500, 100])
    order = row_order(index, 160, np.random.default_rng(0))
    for start in range(0, 1600, 160):
        counts = np.bincount(index[order[start : start + 160]], minlength=3)
        assert (np.abs(counts - [100, 50, 10]) <= 2).all()


def test_batches_by_sets_hold_few_sets():
    index = np.repeat(np.arange(20), 256)
    order = row_order(index, 256, np.random.default_rng(0), by="sets", sets_per_batch=4)
    for start in range(0, len(index), 256):
        assert len(np.unique(index[order[start : start + 256]])) <= 4


@pytest.mark.parametrize("most", [10, 200_000, 2**32 - 1])
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_sorting_by_halves_is_a_stable_sort(most, dtype):
    key = np.random.default_rng(0).integers(most, size=3000, endpoint=True).astype(dtype)
    key[:2] = most, 0
    np.testing.assert_array_equal(_sorted_order(key), np.argsort(key, kind="stable"))
