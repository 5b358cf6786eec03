import dataclasses
import inspect

import lightgbm as lgb
import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import reference
from unmix.core.losses import ssc_cross_entropy, ssc_cross_entropy_gradient
from unmix.core.row_losses import fisher_information
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.learn import boosting, refined_priors
from unmix.learn.boosting import BoostingFit, fit_boosting
from unmix.learn.curvature import FisherTable
from unmix.learn.refined_priors import refine_priors


def gaussian(labels, rng, num_features=6, distance=1.8):
    """Two classes whose means lie `distance` apart."""
    x = rng.normal(size=(len(labels), num_features))
    x += np.where(labels, 0.5, -0.5)[:, None] * distance / np.sqrt(num_features)
    return x.astype(np.float32)


def interacting(labels, rng, num_features=5):
    """Two classes with the same means: only products of columns tell them apart."""
    x = rng.normal(size=(len(labels), num_features))
    sign = np.where(labels, 1, -1)
    x[:, 0] *= sign * np.sign(x[:, 0] * x[:, 1]) * np.where(rng.random(len(x)) < 0.8, 1, -1)
    x[:, 2] *= np.where(labels, 1.8, 1.0)
    return x.astype(np.float32)


def draw(rows_of, priors, size, seed=0, target_prior=0.5):
    """Sets of `size` rows with the given priors, and their labels, which no fit sees."""
    rng = np.random.default_rng(seed)
    set_index = np.repeat(np.arange(len(priors)), size)
    labels = rng.random(len(set_index)) < np.asarray(priors)[set_index]
    x = rows_of(labels, rng)
    return UnlabeledSets(x, set_index, np.asarray(priors, float), target_prior), labels


def uniform_priors(num_sets, seed=0):
    return np.random.default_rng(seed).uniform(0.1, 0.9, num_sets)


def fit(sets, seed=0, **options):
    kept, held_out = sets.hold_out(0.2, np.random.default_rng(99))
    return fit_boosting(kept, held_out=held_out, seed=seed, num_threads=1, **options)


def fresh(rows_of, rows=4000, seed=1000):
    rng = np.random.default_rng(seed)
    labels = rng.random(rows) < 0.5
    return rows_of(labels, rng), labels


def mean_loss(logits, sets):
    set_index = torch.from_numpy(sets.set_index)
    return float(ssc_cross_entropy(torch.from_numpy(logits), set_index, sets.transition).mean())


@pytest.mark.parametrize(
    "priors",
    [
        uniform_priors(20),
        np.array([0.0, 1.0]),
        np.array([0.0, 0.3, 0.30001]),
        np.random.default_rng(0).beta(0.5, 20, 2000),
    ],
    ids=["twenty", "pure", "lopsided", "two thousand"],
)
@pytest.mark.parametrize("target_prior", [0.5, 0.01])
def test_the_fisher_table_equals_the_fisher_information(priors, target_prior):
    rng = np.random.default_rng(0)
    transition = Transition(priors, rng.integers(1, 1000, len(priors)), target_prior)
    z = np.log(target_prior / (1 - target_prior)) + rng.uniform(-8, 8, 200)
    exact = fisher_information(z, transition)
    # Where there is a millionth of the most information, it no longer matters.
    np.testing.assert_allclose(
        FisherTable(transition)(z), exact, rtol=1e-4, atol=1e-6 * exact.max()
    )


def test_the_fisher_table_of_a_million_sets_is_built_from_few():
    rng = np.random.default_rng(0)
    priors = rng.uniform(0, 1, 1_000_000)
    table = FisherTable(Transition(priors, target_prior=0.3))
    # With uniform priors the information at the target prior is their variance, 1/12.
    at_pooled = np.array([np.log(0.3 / 0.7)])
    np.testing.assert_allclose(table(at_pooled), 1 / 12, rtol=1e-2)
    some = Transition(priors[:2000], target_prior=0.3)
    np.testing.assert_allclose(table(at_pooled), FisherTable(some)(at_pooled), rtol=0.05)


def test_the_fisher_table_of_k_classes_is_near_the_diagonal_and_exact_at_the_target_prior():
    rng = np.random.default_rng(0)
    transition = Transition(rng.dirichlet(np.ones(3), 20), None, [0.2, 0.3, 0.5])
    table = FisherTable(transition)
    start = np.log([[0.2, 0.3, 0.5]])
    exact = fisher_information(start, transition)
    np.testing.assert_allclose(table(start), exact, rtol=1e-4)
    z = start + rng.normal(size=(2000, 3))
    exact = fisher_information(z, transition)
    assert 0.8 < table(z).sum() / exact.sum() < 1.1


def test_boosting_lowers_the_exact_loss():
    sets, _ = draw(gaussian, uniform_priors(10), 300)
    start = mean_loss(np.zeros(len(sets)), sets)
    losses = [
        mean_loss(
            fit_boosting(sets, held_out=None, max_rounds=r, num_threads=1).logits(sets.x), sets
        )
        for r in (1, 10, 40)
    ]
    assert start - 0.002 > losses[0] > losses[1] + 0.01
    assert losses[1] > losses[2] + 0.005


def test_the_first_tree_takes_the_newton_step_of_the_exact_loss():
    sets, _ = draw(gaussian, [0.2, 0.8], 500)
    one = fit_boosting(
        sets, held_out=None, max_rounds=1, num_threads=1, bagging_fraction=1.0, num_leaves=2
    )
    step = one.logits(sets.x)
    start, set_index = torch.zeros(len(sets)).double(), torch.from_numpy(sets.set_index)
    gradient = ssc_cross_entropy_gradient(start, set_index, sets.transition).numpy()
    hessian = fisher_information(start, sets.transition)
    for value in np.unique(step):
        leaf = step == value
        newton = -gradient[leaf].sum() / (hessian[leaf].sum() + 10)  # lambda_l2
        assert value == pytest.approx(0.1 * newton, rel=1e-4)  # learning_rate


def test_predictions_start_at_a_rare_target_prior():
    sets, _ = draw(gaussian, uniform_priors(6), 200, target_prior=0.01)
    one = fit_boosting(sets, held_out=None, max_rounds=1, num_threads=1)
    assert one.base_logits == pytest.approx(np.log(0.01 / 0.99))
    shares = 1 / (1 + np.exp(-one.logits(sets.x)))
    assert 0.008 < shares.min() < shares.max() < 0.0125


@pytest.mark.parametrize(("rows_of", "rows"), [(gaussian, 500), (interacting, 1000)])
def test_sets_come_close_to_labels(rows_of, rows):
    sets, labels = draw(rows_of, uniform_priors(20), rows)
    labeled = UnlabeledSets(sets.x, labels.astype(int), np.array([0.0, 1.0]), 0.5)
    x, truth = fresh(rows_of)
    with_labels = roc_auc_score(truth, fit(labeled).logits(x))
    own_objective = lgb.train(
        {"objective": "binary", "num_leaves": 7, "verbosity": -1, "num_threads": 1},
        lgb.Dataset(sets.x, labels),
        num_boost_round=100,
    )
    assert with_labels > roc_auc_score(truth, own_objective.predict(x)) - 0.005
    assert roc_auc_score(truth, fit(sets).logits(x)) > with_labels - 0.02


def test_defaults_overfit_less_than_those_of_lightgbm():
    sets, _ = draw(gaussian, uniform_priors(20), 100)
    x, truth = fresh(gaussian)
    careless = {
        "num_leaves": 31,
        "min_sum_hessian_in_leaf": 1e-3,
        "lambda_l2": 0.0,
        "bagging_fraction": 1.0,
    }
    kept, _ = sets.hold_out(0.2, np.random.default_rng(99))
    ours, theirs = (
        fit_boosting(kept, held_out=None, max_rounds=100, num_threads=1, **options)
        for options in ({}, careless)
    )
    assert roc_auc_score(truth, ours.logits(x)) > roc_auc_score(truth, theirs.logits(x)) + 0.03


def test_categories_and_missing_values_are_used():
    rng = np.random.default_rng(0)

    def rows_of(labels, rng):
        # Odd codes are positive: no threshold on the code can tell. The second column says
        # something only by being missing.
        code = 2 * rng.integers(0, 15, len(labels)) + (labels ^ (rng.random(len(labels)) < 0.15))
        missing = rng.random(len(labels)) < np.where(labels, 0.7, 0.3)
        return np.stack((code, np.where(missing, np.nan, rng.normal(size=len(labels)))), axis=1)

    sets, _ = draw(rows_of, uniform_priors(10), 600)
    x, truth = rows_of(np.arange(4000) % 2 == 1, rng), np.arange(4000) % 2 == 1
    both = fit(sets, categorical=[0])
    assert roc_auc_score(truth, both.logits(x)) > 0.87
    odd, even = (np.array([[code, np.nan]]) for code in (7.0, 8.0))
    assert both.logits(odd) > both.logits(even) + 1
    known, unknown = np.array([[7.0, 0.0]]), np.array([[7.0, np.nan]])
    assert both.logits(unknown) > both.logits(known) + 0.5
    as_numbers = fit(sets, max_rounds=30)
    categories = fit(sets, max_rounds=30, categorical=[0])
    assert roc_auc_score(truth, categories.logits(x)) > roc_auc_score(truth, as_numbers.logits(x))


def test_early_stopping_keeps_the_best_round():
    sets, _ = draw(gaussian, uniform_priors(10), 100)
    kept, held_out = sets.hold_out(0.3, np.random.default_rng(0))
    options = {"num_threads": 1, "patience": 15, "learning_rate": 0.3, "num_leaves": 15}
    stopped = fit_boosting(kept, held_out=held_out, **options)
    losses = [row["held_out_loss"] for row in stopped.history]
    assert [row["round"] for row in stopped.history] == list(range(1, len(losses) + 1))
    assert stopped.num_rounds == np.argmin(losses) + 1 == len(losses) - 15 < 400
    assert mean_loss(stopped.logits(held_out.x), held_out) == pytest.approx(min(losses), rel=1e-6)
    assert stopped.booster.num_trees() == stopped.num_rounds
    # The same trees, all of them, are worse.
    everything = fit_boosting(kept, held_out=None, max_rounds=len(losses), **options)
    assert everything.num_rounds == len(losses)
    worse = mean_loss(everything.logits(held_out.x), held_out)
    assert worse == pytest.approx(losses[-1], rel=1e-6)
    assert worse > min(losses)


def test_three_classes():
    rng = np.random.default_rng(0)
    means = np.array([[1.5, 0, 0, 0], [0, 1.5, 0, 0], [-1, -1, 0, 0]])
    target = np.array([0.5, 0.3, 0.2])
    theta = rng.dirichlet(np.ones(3), 12)
    set_index = np.repeat(np.arange(12), 500)
    labels = (rng.random(6000)[:, None] > theta.cumsum(axis=1)[set_index]).sum(axis=1)
    x = means[labels] + rng.normal(size=(6000, 4))
    model = fit(UnlabeledSets(x, set_index, theta, target))
    np.testing.assert_allclose(model.base_logits, np.log(target))
    truth = rng.choice(3, 6000, p=target)
    x = means[truth] + rng.normal(size=(6000, 4))
    densities = -0.5 * ((x[:, None, :] - means) ** 2).sum(axis=2) + np.log(target)
    best_error = (densities.argmax(axis=1) != truth).mean()
    assert model.logits(x).shape == (6000, 3)
    assert (model.logits(x).argmax(axis=1) != truth).mean() < best_error + 0.025
    shares = np.exp(model.logits(x))
    shares /= shares.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares.mean(axis=0), target, atol=0.04)


def test_wrong_priors_are_refined_and_the_model_gets_better():
    true = uniform_priors(50)
    rng = np.random.default_rng(1)
    stated = np.clip(true + rng.choice([-0.2, 0.2], 50), 0.01, 0.99)
    sets, _ = draw(gaussian, true, 400)
    sets = dataclasses.replace(sets, set_priors=stated)
    plain = fit(sets, learning_rate=0.2, patience=20)
    refined = fit(sets, learning_rate=0.2, patience=20, prior_errors=np.full(50, 0.2))
    np.testing.assert_array_equal(plain.set_priors, stated)
    # Clipping draws the stated priors together, and about that they alone decide.
    assert np.abs(refined.set_priors - true).mean() < np.abs(stated - true).mean() / 3
    x, truth = fresh(gaussian, rows=20_000)
    errors = [((model.logits(x) > 0) != truth).mean() for model in (plain, refined)]
    assert errors[1] < errors[0] - 0.003


def truth_and_logits(num_sets=20, size=500, stretch=1.0, seed=0):
    """Rows of one Gaussian column, whose logit at a target prior of 0.5 is 2 x exactly."""
    rng = np.random.default_rng(seed)
    true = uniform_priors(num_sets, seed)
    set_index = np.repeat(np.arange(num_sets), size)
    labels = rng.random(len(set_index)) < true[set_index]
    return true, set_index, stretch * 2 * (rng.normal(size=len(labels)) + np.where(labels, 1, -1))


@pytest.mark.parametrize("stretch", [0.5, 1.0, 2.0])
def test_refining_is_not_misled_by_timid_or_bold_logits(stretch):
    true, set_index, logits = truth_and_logits(stretch=stretch)
    stated = np.clip(true + np.random.default_rng(1).normal(0, 0.1, 20), 0.02, 0.98)
    refined = refine_priors(logits, set_index, stated, np.full(20, 0.1), np.ones(20), 0.5)
    assert np.abs(refined - true).mean() < 0.5 * np.abs(stated - true).mean()
    assert np.polyfit(true, refined, 1)[0] == pytest.approx(1, abs=0.15)


def test_refining_reaches_a_minimum_of_what_it_says_it_minimises():
    _, set_index, logits = truth_and_logits(num_sets=4, size=200)
    stated, errors = np.array([0.3, 0.5, 0.4, 0.7]), np.array([0.1, 0.2, 0.05, 0.1])
    refined = refine_priors(logits, set_index, stated, errors, np.full(4, 200), 0.5)

    def least(priors):
        """The sum, minimised over shift and stretch on a grid around the optimum."""
        transition = Transition(priors, None, 0.5)
        losses = [
            ssc_cross_entropy(
                a + b * torch.from_numpy(logits), torch.from_numpy(set_index), transition
            ).sum()
            for a in np.linspace(-0.5, 0.5, 11)
            for b in np.exp(np.linspace(-0.7, 0.7, 15))
        ]
        return float(min(losses)) + ((priors - stated) ** 2 / (2 * errors**2)).sum()

    def moved(j, step):
        """Another share for one set, and the best line from all to the stated ones."""
        own = np.asarray(refined) + step * np.eye(4)[j]
        pairs = (np.stack((1 - share, share), axis=1) for share in (own, stated))
        return reference.anchored(*pairs, errors)[:, 1]

    np.testing.assert_allclose(moved(0, 0.0), refined, atol=1e-4)
    for j in range(4):
        for step in (-0.03, 0.03):
            assert least(moved(j, step)) > least(refined)


def test_exact_priors_stay_and_priors_of_zero_and_one_may_move():
    true, set_index, logits = truth_and_logits(num_sets=4)
    stated, errors = np.array([0.0, true[1], 1.0, true[3]]), np.array([0.3, 0.0, 0.3, 0.0])
    refined = refine_priors(logits, set_index, stated, errors, np.ones(4), 0.5)
    np.testing.assert_array_equal(refined[[1, 3]], true[[1, 3]])
    np.testing.assert_allclose(refined, true, atol=0.1)
    kept = refine_priors(logits, set_index, stated, np.zeros(4), np.ones(4), 0.5)
    np.testing.assert_array_equal(kept, stated)
    pure = np.array([0.0, 0.4, 1.0, 0.6])
    refined = refine_priors(logits, set_index, pure, errors[::-1].copy(), np.ones(4), 0.5)
    np.testing.assert_array_equal(refined[[0, 2]], [0, 1])


def test_the_same_seed_gives_the_same_model_and_another_seed_another():
    sets, _ = draw(gaussian, uniform_priors(6), 100)
    texts = [fit(sets, seed=seed, max_rounds=10).model_text for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


def test_a_model_survives_as_text():
    sets, _ = draw(gaussian, uniform_priors(6), 100)
    model = fit(sets, max_rounds=10)
    copy = BoostingFit(**{f.name: getattr(model, f.name) for f in dataclasses.fields(model)})
    assert copy.booster is not model.booster
    np.testing.assert_array_equal(copy.logits(sets.x), model.logits(sets.x))
    assert len(np.unique(copy.logits(sets.x))) > 10


def test_sets_that_say_nearly_nothing_give_the_base_rate():
    sets, _ = draw(gaussian, [0.5, 0.501], 50, target_prior=0.2)
    model = fit(sets)
    assert model.num_rounds == 0
    np.testing.assert_allclose(model.logits(sets.x), np.log(0.2 / 0.8))


def test_progress_is_reported_each_round():
    sets, _ = draw(gaussian, uniform_priors(4), 100)
    seen = []
    fit(sets, max_rounds=5, progress=lambda *step: seen.append(step))
    assert seen == [(done, 5, "boosting") for done in range(1, 6)]


def test_nothing_is_printed(capfd):
    # Sparse codes, a constant column, missing rows and leaves that cannot be split: LightGBM
    # has a warning for each.
    rng = np.random.default_rng(0)
    x = np.stack((rng.integers(0, 1e6, 300), np.ones(300), rng.normal(size=300)), axis=1)
    x[::3] = np.nan
    sets = UnlabeledSets(x, np.arange(300) % 3, np.array([0.0, 0.4, 1.0]), 0.5)
    model = fit_boosting(sets, held_out=sets, categorical=[0], max_rounds=80, num_threads=1)
    model.logits(x)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"num_leafs": 7}, "no option 'num_leafs'; it has num_leaves"),
        ({}, {"num_leaves": 1}, "num_leaves must lie between 2 and 131072; got 1"),
        ({}, {"max_rounds": 0}, "max_rounds must be 1 or more; got 0"),
        ({}, {"categorical": [6]}, "categorical column 6 is not one of 0..5"),
        ({}, {"prior_errors": np.ones(3)}, "one standard error per set (2); got shape (3,)"),
        ({}, {"prior_errors": np.array([0.1, -1])}, "set 1: a standard error is a number of 0 or"),
        ({"x": np.zeros((100, 2, 3))}, {}, "takes a matrix of numbers; rows have shape (2, 3)"),
        ({"x": np.full((100, 6), "a")}, {}, "turn text into category codes"),
        ({}, {"method": "mmc-u2"}, "boosting cannot learn by mmc-u2"),
    ],
)
def test_mistakes_are_named(change, options, message):
    sets, _ = draw(gaussian, [0.2, 0.8], 50)
    with pytest.raises(InputError) as caught:
        fit_boosting(dataclasses.replace(sets, **change), held_out=None, num_threads=1, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_held_out_rows_and_new_rows_need_the_same_columns():
    sets, _ = draw(gaussian, [0.2, 0.8], 50)
    narrow = dataclasses.replace(sets, x=sets.x[:, :5])
    with pytest.raises(InputError, match="same 2 sets of 6 columns"):
        fit_boosting(sets, held_out=narrow, num_threads=1)
    model = fit_boosting(sets, held_out=None, max_rounds=2, num_threads=1)
    with pytest.raises(
        InputError, match=r"takes rows of 6 columns; got an array of shape \(100, 5"
    ):
        model.logits(narrow.x)


@pytest.mark.parametrize("module", [boosting, refined_priors])
def test_no_function_takes_labels(module):
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == module.__name__:
            taken = set(inspect.signature(function).parameters)
            assert not taken & {"y", "label", "labels", "targets"}, name


@pytest.mark.parametrize(("rows", "rate"), [(60_000, 0.1), (100_000, 0.2)])
def test_steps_are_larger_where_there_is_plenty_of_information(rows, rate):
    set_index = np.arange(rows) % 2
    x = (np.random.default_rng(0).normal(size=rows) + set_index)[:, None]
    sets = UnlabeledSets(x, set_index, np.array([0.0, 1.0]), 0.5)
    options = {"held_out": None, "max_rounds": 1, "num_threads": 1}
    assert f"[learning_rate: {rate}]" in fit_boosting(sets, **options).model_text
    chosen = fit_boosting(sets, **options, learning_rate=0.05)
    assert "[learning_rate: 0.05]" in chosen.model_text
