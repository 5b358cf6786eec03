import numpy as np
import pytest
import torch
from scipy.special import expit, logit, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import reference
from unmix.core.losses import ssc_cross_entropy
from unmix.core.risks import proportion_risk
from unmix.core.set_effects import best_effect_nll
from unmix.core.transition import Transition
from unmix.data.sets import UnlabeledSets
from unmix.errors import IdentifiabilityError, InputError
from unmix.learn import linear, linear_fit, linear_objective
from unmix.learn.curvature import SharedCurvature
from unmix.learn.linear import choose_l2
from unmix.learn.linear_fit import fit_linear
from unmix.learn.methods import METHODS
from unmix.learn.refined_priors import PriorRefiner


def gaussian_classes(seed, num_sets, size, *, dim=5, distance=2.0, low=0.1, high=0.9, target=0.5):
    """Two unit Gaussians at +-distance/2 on the first axis; the true logit is distance * x0."""
    rng = np.random.default_rng(seed)
    positives = np.round(rng.uniform(low, high, num_sets) * size).astype(int)
    set_index = np.repeat(np.arange(num_sets), size)
    y = np.tile(np.arange(size), num_sets) < positives[set_index]
    x = rng.normal(size=(len(y), dim)).astype(np.float32)
    x[:, 0] += np.where(y, distance / 2, -distance / 2)
    return UnlabeledSets(x, set_index, positives / size, target), y


def covariate_shift(seed, num_sets=40, size=500, dim=8):
    """One logistic p(class | x); the sets differ most in features that say little about it."""
    rng = np.random.default_rng(seed)
    set_index = np.repeat(np.arange(num_sets), size)
    spreads, weights = np.geomspace(0.15, 1.0, dim), np.geomspace(1.2, 0.2, dim)
    x = rng.normal(size=(num_sets, dim))[set_index] * spreads
    x = x + rng.normal(size=(len(set_index), dim))
    y = rng.random(len(x)) < expit(x @ (weights * rng.choice([-1, 1], dim)) - 0.8)
    x = ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)
    priors = np.bincount(set_index, y, num_sets) / size
    return UnlabeledSets(x, set_index, priors, float(y.mean())), y


def three_classes(seed, num_sets=30, size=300):
    rng = np.random.default_rng(seed)
    centers = 2.0 * np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    set_index = np.repeat(np.arange(num_sets), size)
    shares = rng.dirichlet(np.ones(3), num_sets)
    y = (rng.random(len(set_index))[:, None] > shares.cumsum(axis=1)[set_index][:, :2]).sum(axis=1)
    x = (centers[y] + rng.normal(size=(len(y), 4))).astype(np.float32)
    stated = np.stack([np.bincount(set_index, y == k, num_sets) for k in range(3)], axis=1) / size
    return UnlabeledSets(x, set_index, stated, np.full(3, 1 / 3)), y


def supervised(sets, y):
    return LogisticRegression(C=1e3, max_iter=500).fit(sets.x, y)


def auc(y, fit, x):
    return roc_auc_score(y, fit.logits(x))


# The objectives


def small_sets(num_classes):
    rng = np.random.default_rng(num_classes)
    priors = rng.dirichlet(np.ones(num_classes), 7)
    index = rng.integers(6, size=40)  # set 6 has no rows
    stated, target = priors, np.full(num_classes, 1 / num_classes)
    if num_classes == 2:
        stated, target = priors[:, 1], 0.3
    shape = 40 if num_classes == 2 else (40, num_classes)
    return UnlabeledSets(np.zeros((40, 1)), index, stated, target), rng.normal(size=shape)


def at_once(criterion, index):
    """A criterion as a function of all logits and the free log-odds."""

    def value(logits, free):
        start, by_free, of_block = criterion(lambda: iter([(logits, index)]), free)
        of_rows, by_logits, by_free_here = of_block(logits, index)
        return start + of_rows, by_logits, by_free + by_free_here

    return value


CRITERIA = {
    "ssc": lambda sets: linear_objective.criterion_for(METHODS["ssc"], sets, np.zeros(7)),
    "ssc-mse": lambda sets: linear_objective.criterion_for(METHODS["ssc-mse"], sets, np.zeros(7)),
    "mmc-u2-c": lambda sets: linear_objective.criterion_for(METHODS["mmc-u2-c"], sets, np.zeros(7)),
    "proportion": lambda sets: linear_objective.proportion_criterion(
        sets, linear_objective.reliability(sets, np.linspace(0, 0.3, 7))
    ),
    "refining": lambda sets: linear_objective.refining_criterion(
        METHODS["ssc"],
        PriorRefiner(sets.transition, 0.1 * (np.arange(7) % 3)),
        40,
        np.linspace(1, 2, 7 * (sets.set_priors.num_classes - 1)),
    ),
}


@pytest.mark.parametrize(
    ("name", "num_classes"),
    [
        ("ssc", 2),
        ("ssc", 3),
        ("ssc-mse", 2),
        ("ssc-mse", 3),
        ("mmc-u2-c", 2),
        ("proportion", 2),
        ("proportion", 4),
        ("refining", 2),
        ("refining", 3),
    ],
)
def test_gradients_equal_finite_differences(name, num_classes):
    sets, logits = small_sets(num_classes)
    free = np.empty(0)
    if name == "refining":
        free = np.random.default_rng(1).normal(size=7 * (num_classes - 1))
    criterion, rng = at_once(CRITERIA[name](sets), sets.set_index), np.random.default_rng(0)
    _, by_logits, by_free = criterion(logits, free)
    for _ in range(10):
        dz, du = rng.normal(size=logits.shape), rng.normal(size=free.shape)
        up, down = (criterion(logits + h * dz, free + h * du)[0] for h in (1e-5, -1e-5))
        slope = (by_logits * dz).sum() + (by_free * du).sum()
        assert slope == pytest.approx((up - down) / 2e-5, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_proportion_criterion_is_the_proportion_risk_when_sets_count_alike(num_classes):
    sets, logits = small_sets(num_classes)
    equal = (sets.set_sizes > 0) / (sets.set_sizes > 0).sum()
    criterion = at_once(linear_objective.proportion_criterion(sets, equal), sets.set_index)
    value, gradient, _ = criterion(logits, np.empty(0))
    z = torch.from_numpy(logits).requires_grad_()
    risk = proportion_risk(sets.transition)(z, torch.from_numpy(sets.set_index))
    (slope,) = torch.autograd.grad(risk, z)
    assert value == pytest.approx(risk.item(), rel=1e-12)
    np.testing.assert_allclose(gradient, slope.numpy(), atol=1e-12)


def test_a_refined_fit_is_a_minimum_of_the_objective_as_it_is_documented():
    sets, _ = gaussian_classes(0, 6, 100, target=0.3)
    errors, l2 = np.array([0, 0.05, 0.1, 0.1, 0.2, 0]), 1e-3
    fit = fit_linear(sets, method="ssc", l2=l2, prior_errors=errors)
    stated, weights, index = (
        sets.set_priors.matrix,
        sets.set_sizes,
        torch.from_numpy(sets.set_index),
    )

    def objective(w, b, own):
        priors = reference.anchored(own, stated, errors)
        transition = Transition(priors, weights, 0.3)
        loss = ssc_cross_entropy(torch.from_numpy(sets.x @ w + b), index, transition).mean()
        price = reference.distance_from_stated(priors, stated, errors)
        return float(loss) + l2 * (w**2).sum() + price / len(sets)

    # The shares found are their own best line to the stated ones, but for the bend near 0 and 1.
    own = fit.set_priors.matrix
    least = objective(fit.weights, fit.bias, own)
    assert fit.loss == pytest.approx(least, abs=1e-7)
    for direction in np.vstack((np.eye(5), -np.eye(5))):
        assert objective(fit.weights + 0.01 * direction, fit.bias, own) > least
    for step in (-0.02, 0.02):
        assert objective(fit.weights, fit.bias + step, own) > least
        for j in range(1, 5):  # along the line of all others nothing changes
            moved = own + step * np.outer(np.arange(6) == j, [-1, 1])
            assert objective(fit.weights, fit.bias, moved) > least
    assert np.array_equal(fit.set_priors[errors == 0], sets.set_priors[errors == 0])


def test_pure_sets_give_logistic_regression():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3)).astype(np.float32)
    y = (rng.random(500) < expit(x[:, 0] - 1)).astype(int)
    sets = UnlabeledSets(x, y, np.array([0.0, 1.0]), y.mean())
    fit = fit_linear(sets, method="ssc", l2=0.01)
    labeled = LogisticRegression(C=1 / (2 * 500 * 0.01), tol=1e-8).fit(x.astype(float), y)
    np.testing.assert_allclose(fit.weights, labeled.coef_[0], atol=1e-4)
    assert fit.bias == pytest.approx(labeled.intercept_[0], abs=1e-4)
    assert fit.converged


# What the fits are worth


def test_ssc_comes_near_supervised_learning():
    sets, y = gaussian_classes(0, 20, 500)
    test, truth = gaussian_classes(1, 20, 500)
    fit = fit_linear(sets, method="ssc", l2=choose_l2(sets, method="ssc", rng=rng()))
    labeled = roc_auc_score(truth, supervised(sets, y).decision_function(test.x))
    assert auc(truth, fit, test.x) > labeled - 0.02


def test_ssc_logits_approach_the_true_posterior_at_the_target_prior():
    sets, _ = gaussian_classes(0, 20, 5000, target=0.2)
    fit = fit_linear(sets, method="ssc", l2=1e-6)
    assert fit.base_prior == pytest.approx([0.8, 0.2])
    np.testing.assert_allclose(fit.weights, [2, 0, 0, 0, 0], atol=0.1)
    assert fit.bias == pytest.approx(logit(0.2), abs=0.05)


def test_the_target_prior_moves_the_bias_and_nothing_else():
    low, high = (
        fit_linear(gaussian_classes(0, 20, 200, target=t)[0], method="ssc", l2=1e-3)
        for t in (0.1, 0.5)
    )
    np.testing.assert_allclose(low.weights, high.weights, atol=1e-3)
    assert high.bias - low.bias == pytest.approx(-logit(0.1), abs=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_under_covariate_shift_matching_proportions_is_right_and_ssc_is_wrong(seed):
    sets, y = covariate_shift(seed)
    assert 0.05 < sets.set_priors.matrix[:, 1].std() < 0.1
    fits = {}
    for method in ("proportion", "ssc"):
        l2 = choose_l2(sets, method=method, rng=rng())
        fits[method] = fit_linear(sets, method=method, l2=l2)
    labeled = roc_auc_score(y, supervised(sets, y).decision_function(sets.x))
    right, wrong = (auc(y, fits[method], sets.x) for method in ("proportion", "ssc"))
    print(f"AUC {labeled:.4f} supervised, {right:.4f} proportion, {wrong:.4f} ssc")
    assert right > labeled - 0.02
    assert right > wrong + 0.1


def test_proportion_logits_are_at_the_pooled_prior():
    sets, y = covariate_shift(3)
    fit = fit_linear(sets, method="proportion", l2=1e-5)
    assert fit.base_prior == pytest.approx([1 - y.mean(), y.mean()])
    assert expit(fit.logits(sets.x)).mean() == pytest.approx(y.mean(), abs=0.01)


@pytest.mark.parametrize("seed", [0, 1])
def test_proportion_fits_do_not_depend_on_the_start(seed, monkeypatch):
    sets, _ = covariate_shift(seed, size=100)
    fit = fit_linear(sets, method="proportion", l2=1e-4)
    for bias in (-4.0, 3.0):
        monkeypatch.setattr(linear_fit, "_start", lambda prior, at=bias: np.asarray(at))
        other = fit_linear(sets, method="proportion", l2=1e-4)
        assert other.loss == pytest.approx(fit.loss, rel=1e-6)
        np.testing.assert_allclose(other.weights, fit.weights, atol=0.02)


@pytest.mark.parametrize("seed", [0, 1])
def test_refining_recovers_priors_that_are_off_and_the_error_of_true_priors(seed):
    sets, _ = gaussian_classes(seed, 50, 400)
    test, truth = gaussian_classes(seed + 100, 20, 2000)
    signs = np.random.default_rng(seed).choice([-1, 1], 50)
    stated = np.clip(sets.set_priors + 0.2 * signs, 0, 1)
    wrong = UnlabeledSets(sets.x, sets.set_index, stated, 0.5)
    exact = fit_linear(sets, method="ssc", l2=1e-5)
    refined = fit_linear(wrong, method="ssc", l2=1e-5, prior_errors=np.full(50, 0.2))
    error, refined_error = (np.mean((fit.logits(test.x) > 0) != truth) for fit in (exact, refined))
    assert refined_error < error + 0.005
    before = np.sqrt(np.mean((stated - sets.set_priors) ** 2))
    after = np.sqrt(np.mean((refined.set_priors - sets.set_priors) ** 2))
    assert before > 0.18
    assert after < 0.04
    assert refined.converged
    assert np.array_equal(exact.set_priors, sets.set_priors)


def test_a_badly_known_share_counts_little_when_proportions_are_matched():
    sets, _ = covariate_shift(0, size=200)
    spoiled = np.array(sets.set_priors)
    spoiled[:8] = 0.9
    wrong = UnlabeledSets(sets.x, sets.set_index, spoiled, 0.5)
    good = fit_linear(sets.rows(sets.set_index >= 8), method="proportion", l2=1e-4)
    errors = np.where(np.arange(40) < 8, 10.0, 0.0)
    warned = fit_linear(wrong, method="proportion", l2=1e-4, prior_errors=errors)
    misled = fit_linear(wrong, method="proportion", l2=1e-4)
    np.testing.assert_allclose(warned.weights, good.weights, atol=0.01)
    assert np.abs(misled.weights - good.weights).max() > 0.1


@pytest.mark.parametrize("method", ["ssc", "proportion"])
def test_three_classes(method):
    sets, y = three_classes(0)
    l2 = choose_l2(sets, method=method, rng=rng())
    fit = fit_linear(sets, method=method, l2=l2)
    assert fit.weights.shape == (4, 3)
    assert fit.logits(sets.x).shape == (len(sets), 3)
    error = np.mean(fit.logits(sets.x).argmax(axis=1) != y)
    labeled = np.mean(supervised(sets, y).predict(sets.x) != y)
    # Label shift is what was drawn here, so only ssc is right.
    assert error < labeled + (0.01 if method == "ssc" else 0.15)
    expected = sets.target_prior if method == "ssc" else sets.set_priors.matrix.mean(axis=0)
    np.testing.assert_allclose(fit.base_prior, expected)


# Choosing the penalty


@pytest.mark.parametrize("method", ["ssc", "proportion"])
def test_more_noise_asks_for_a_stronger_penalty(method):
    many, _ = gaussian_classes(0, 10, 30, dim=60)
    few, _ = gaussian_classes(0, 30, 500, dim=2)
    assert choose_l2(many, method=method, rng=rng()) >= 1e-2
    assert choose_l2(few, method=method, rng=rng()) <= 1e-3


def test_the_choice_is_one_of_the_candidates_and_repeatable(monkeypatch):
    monkeypatch.setattr(linear, "CHOICE_ROWS", 1000)  # so that rows are left out
    sets, _ = gaussian_classes(0, 20, 200)
    for method in ("ssc", "proportion"):
        first, again = (
            choose_l2(sets, method=method, rng=rng(), candidates=(0.3, 0.002)) for _ in range(2)
        )
        assert first == again == 0.002


# Robustness


def test_twenty_thousand_sets_of_two_rows_are_no_burden():
    sets, y = gaussian_classes(0, 20_000, 2)
    for method in ("ssc", "proportion"):
        fit = fit_linear(sets, method=method, l2=1e-4)
        assert fit.converged
        assert auc(y, fit, sets.x) > 0.9


def test_sets_without_rows_keep_their_priors_and_disturb_nothing():
    sets, _ = gaussian_classes(0, 10, 100)
    priors = np.append(sets.set_priors, 0.77)
    wider = UnlabeledSets(sets.x, sets.set_index, priors, 0.5)
    for method in ("ssc", "proportion"):
        errors = np.full(11, 0.05)
        alone = fit_linear(sets, method=method, l2=1e-3, prior_errors=errors[:10])
        fit = fit_linear(wider, method=method, l2=1e-3, prior_errors=errors)
        np.testing.assert_allclose(fit.weights, alone.weights, atol=1e-6)
        assert fit.set_priors[10] == 0.77


def test_stated_priors_of_0_and_1_can_be_refined():
    sets, _ = gaussian_classes(0, 10, 300)
    stated = np.where(sets.set_priors < 0.4, 0.0, np.where(sets.set_priors > 0.6, 1.0, 0.5))
    wrong = UnlabeledSets(sets.x, sets.set_index, stated, 0.5)
    fit = fit_linear(wrong, method="ssc", l2=1e-4, prior_errors=np.full(10, 0.3))
    # They are spread too wide, and about that the stated priors alone decide.
    before, after = (np.abs(p - sets.set_priors).mean() for p in (stated, fit.set_priors))
    assert after < 0.5 * before
    assert np.corrcoef(fit.set_priors, sets.set_priors)[0, 1] > 0.99


def test_progress_is_reported_and_an_early_end_is_recorded():
    sets, _ = gaussian_classes(0, 10, 100)
    calls = []
    fit = fit_linear(
        sets, method="ssc", l2=1e-4, max_iter=3, progress=lambda *call: calls.append(call[:2])
    )
    assert len(calls) > 3
    assert set(calls) == {(1000, 1000)}
    assert fit.iterations == 3
    assert not fit.converged


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "svm"}, "there is no method 'svm'"),
        ({"l2": -1.0}, "l2 must be a finite number of at least 0; got -1.0"),
        ({"prior_errors": [0.1]}, r"one standard error per set \(4\); got shape \(1,\)"),
        (
            {"prior_errors": [0.1, 0.1, -0.1, 0.1]},
            "set 2: .* not -0.1; give 0",
        ),
    ],
)
def test_mistakes_are_named(changes, words):
    sets, _ = gaussian_classes(0, 4, 10)
    with pytest.raises(InputError, match=words):
        fit_linear(sets, **{"method": "ssc", "l2": 0.1} | changes)


def test_rows_and_priors_that_cannot_be_used_are_refused():
    sets, _ = gaussian_classes(0, 4, 10)
    hollow = sets.x.copy()
    hollow[7, 2] = np.nan
    with pytest.raises(InputError, match="row 7 of x is not finite"):
        fit_linear(UnlabeledSets(hollow, sets.set_index, sets.set_priors, 0.5), method="ssc", l2=1)
    deep = UnlabeledSets(sets.x[:, :, None], sets.set_index, sets.set_priors, 0.5)
    with pytest.raises(InputError, match=r"shape \(n, d\); got \(40, 5, 1\)"):
        fit_linear(deep, method="ssc", l2=1)
    same = UnlabeledSets(sets.x, sets.set_index, np.full(4, 0.3), 0.5)
    for method in ("ssc", "proportion"):
        with pytest.raises(IdentifiabilityError, match="all 4 sets have the same prior"):
            fit_linear(same, method=method, l2=1)
        with pytest.raises(IdentifiabilityError, match="all 4 sets have the same prior"):
            choose_l2(same, method=method, rng=rng())


def rng():
    return np.random.default_rng(0)


def test_under_set_effects_the_penalty_turns_the_slopes_and_does_not_shorten_them():
    rng = np.random.default_rng(0)
    index = np.repeat(np.arange(40), 60)
    x = rng.normal(scale=0.5, size=(40, 3))[index] + rng.normal(size=(len(index), 3))
    slopes = np.array([1.5, -1.0, 0.5])
    labels = rng.random(len(index)) < 1 / (1 + np.exp(-x @ slopes))
    shares = np.bincount(index, labels) / 60
    sets = UnlabeledSets(x, index, shares, 0.5)
    strong = fit_linear(sets, method="set-effects", l2=1.0)
    weak = fit_linear(sets, method="set-effects", l2=1e-4)
    assert np.linalg.norm(strong.weights) > 0.7 * np.linalg.norm(weak.weights)

    def mean_nll(scale):
        def at(bias):
            logits = scale * (x @ strong.weights) + bias
            return best_effect_nll(logits, index, shares)[0].mean()

        return min(at(strong.bias + step) for step in np.linspace(-0.5, 0.5, 41))

    assert mean_nll(1.0) <= min(mean_nll(0.9), mean_nll(1.1))
    # One that is beyond those to choose from is there to say little.
    assert np.linalg.norm(fit_linear(sets, method="set-effects", l2=1000.0).weights) < 0.01


# Many rows


def correlated(rows=90_000):
    """More rows than are fitted to first, in columns of other scales that go together."""
    sets, _ = gaussian_classes(5, 30, rows // 30, dim=3)
    mixed = sets.x @ np.array([[1, 0.9, 0.1], [0, 1, 3], [0, 0, 0.2]], dtype=np.float32)
    return UnlabeledSets(mixed, sets.set_index, sets.set_priors, 0.5)


def test_many_rows_are_fitted_as_if_no_fit_to_some_came_first(monkeypatch):
    sets = correlated()
    fit = fit_linear(sets, method="ssc", l2=1e-4)
    monkeypatch.setattr(linear_fit, "WORTH_SOME", 1000)
    plain = fit_linear(sets, method="ssc", l2=1e-4)
    assert fit.iterations < plain.iterations / 2
    assert fit.loss <= plain.loss + 1e-10
    np.testing.assert_allclose(fit.logits(sets.x), plain.logits(sets.x), atol=2e-3)


def test_the_curvature_that_all_rows_share_is_the_kronecker_product_of_its_parts():
    draw = np.random.default_rng(3)
    x, gradient = draw.normal(size=(50, 3)), draw.normal(size=(50, 4))
    gradient -= gradient.mean(axis=1, keepdims=True)  # as of every loss of classes
    l2 = 0.01
    mapped = SharedCurvature(x, gradient).coordinates(l2)
    with_one = np.column_stack([x, np.ones(50)])
    own = np.kron(with_one.T @ with_one / 50, gradient.T @ gradient / 50)
    least = 1e-6 * np.linalg.eigvalsh(own).max()
    literal = own + (2 * l2 + least) * np.eye(16)
    c = np.column_stack([mapped(of_one, False) for of_one in np.eye(16)])
    transposed = np.column_stack([mapped(of_one, True) for of_one in np.eye(16)])
    np.testing.assert_allclose(transposed, c.T, atol=1e-9)
    np.testing.assert_allclose(c.T @ literal @ c, np.eye(16), atol=1e-5)


def test_correlated_columns_and_several_classes_take_few_steps_to_the_same_minimum(monkeypatch):
    draw = rng()
    shares, index = draw.dirichlet(np.ones(4), 30), draw.permutation(np.arange(9_000) % 30)
    labels = (draw.random(9_000)[:, None] > shares.cumsum(axis=1)[index][:, :-1]).sum(axis=1)
    x = draw.normal(size=(9_000, 3)) + np.eye(4)[labels][:, 1:]
    mixed = x @ np.array([[1, 0.95, 0.1], [0, 0.1, 1], [0, 0, 0.05]])
    sets = UnlabeledSets((mixed / mixed.std(axis=0)).astype(np.float32), index, shares, None)
    fit = fit_linear(sets, method="ssc", l2=1e-5)
    monkeypatch.setattr(linear_fit, "MOST_COLUMNS", 0)
    plain = fit_linear(sets, method="ssc", l2=1e-5)
    assert fit.converged
    assert fit.iterations < plain.iterations / 2
    assert fit.loss <= plain.loss + 1e-9
    apart = np.abs(softmax(fit.logits(sets.x), axis=1) - softmax(plain.logits(sets.x), axis=1))
    assert apart.max() < 5e-3


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    sets = correlated()
    monkeypatch.setattr(linear_objective, "FEW_NUMBERS", 0)
    fits = []
    for threads in (1, 3):
        monkeypatch.setattr(linear_objective, "num_threads", lambda threads=threads: threads)
        fits.append(fit_linear(sets, method="ssc", l2=1e-4))
    np.testing.assert_array_equal(fits[0].weights, fits[1].weights)
