"""Which of K classes are predicted: the gain of each against the rest on held-out sets."""

import json

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from scipy.stats import norm

from unmix.assess.class_gains import class_gains
from unmix.learn.hidden_sets import HeldOutShares
from unmix.report.report_figures import pictures_of


def held_out(m=40, seed=0, known=(0, 1)):
    """Shares of K = 3 classes of which only some are predicted."""
    rng = np.random.default_rng(seed)
    stated = rng.dirichlet(np.ones(3) * 2, m)
    guessed = np.broadcast_to(expit(logit(stated).mean(axis=0)), stated.shape)
    predicted = np.array(guessed)
    for k in known:
        predicted[:, k] = expit(logit(stated[:, k]) + 0.2 * rng.normal(size=m))
    rows = rng.integers(50, 200, m).astype(float)
    errors = rng.uniform(0.005, 0.02, stated.shape)
    return HeldOutShares(stated, predicted, errors, guessed, rows)


def literal_density(stated, predicted, errors, rows):
    """Log density of log-odds about predicted ones, tau by maximum likelihood."""
    residual = logit(stated) - logit(predicted)
    variance = 1 / (rows * stated * (1 - stated)) + (errors / (predicted * (1 - predicted))) ** 2

    def minus_log_likelihood(tau):
        return -norm.logpdf(residual, 0, np.sqrt(tau**2 + variance)).sum()

    tau = minimize_scalar(minus_log_likelihood, bounds=(0, 20), options={"xatol": 1e-9}).x
    return norm.logpdf(residual, 0, np.sqrt(tau**2 + variance)), tau


def test_the_gain_of_a_class_is_that_of_its_formula():
    shares = held_out()
    for k, gain in enumerate(class_gains(shares)):
        column, rows = shares.stated[:, k], shares.rows
        model, tau = literal_density(column, shares.predicted[:, k], shares.errors[:, k], rows)
        guess, _ = literal_density(column, shares.guessed[:, k], 0.0, rows)
        assert gain.gain == pytest.approx(np.mean(model - guess), abs=1e-4)
        assert gain.error == pytest.approx(np.std(model - guess, ddof=1) / np.sqrt(40), abs=1e-4)
        assert gain.tau == pytest.approx(tau, abs=1e-3)


def test_a_class_that_is_only_guessed_is_not_shown():
    shares = held_out()
    shares.errors[:, 2] = 1e-9
    first, second, third = class_gains(shares)
    assert first.word == second.word == "clear"
    assert third.gain == pytest.approx(0, abs=0.01)
    assert not third.shown


def test_chance_shows_a_class_rarely_though_three_are_looked_at():
    shown = 0
    for seed in range(200):
        shares, rng = held_out(seed=seed, known=()), np.random.default_rng([seed, 1])
        noise = expit(logit(shares.guessed) + 0.3 * rng.normal(size=shares.guessed.shape))
        shown += any(gain.shown for gain in class_gains(shares._replace(predicted=noise)))
    assert shown <= 10  # 5 %; a fit that is off by chance is no better than the guess


def test_held_out_shares_come_back_from_json_and_wrong_ones_are_refused():
    shares = held_out(m=5)
    state = json.loads(json.dumps(shares.to_dict()))
    for one, other in zip(HeldOutShares.from_dict(state, 3), shares, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="guessed must be numbers of shape"):
        HeldOutShares.from_dict(state | {"guessed": [[0.5]]}, 3)
    with pytest.raises(ValueError, match="stated must be shares"):
        HeldOutShares.from_dict(state | {"stated": [[2.0] * 3] * 5}, 3)


@pytest.fixture(scope="module")
def judgement():
    """A model that tells two of three classes apart: the third looks like a mixture of both."""
    from unmix import UnmixClassifier

    rng = np.random.default_rng(0)
    m, names = 30, np.array(["fox", "hare", "owl"])
    theta = rng.dirichlet([3, 3, 0.3], m)
    index = np.repeat(np.arange(m), 60)
    kind = (rng.random(len(index))[:, None] > theta.cumsum(axis=1)[index]).sum(axis=1)
    x = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 0.0]])[kind] + rng.normal(size=(len(index), 2))
    priors = {j: dict(zip(names, theta[j], strict=True)) for j in range(m)}
    clf = UnmixClassifier(priors, model="linear", method="ssc", l2=1e-5, random_state=0)
    return clf, clf.fit(x, index).judge()


def test_a_fitted_model_says_which_classes_are_predicted(judgement):
    clf, found = judgement
    held_out = clf.held_out_shares_
    assert held_out.stated.shape == held_out.predicted.shape == (30, 3)
    order = np.argsort(held_out.stated[:, 0])
    stated = np.stack([[*row.values()] for row in clf.set_priors.values()])
    np.testing.assert_allclose(held_out.stated[order], stated[np.argsort(stated[:, 0])])
    assert np.corrcoef(held_out.stated[:, 0], held_out.predicted[:, 0])[0, 1] > 0.8
    fox, hare, _ = found.class_gains
    assert fox.shown
    assert hare.shown
    (picture,) = [p for p in pictures_of(found) if "than by guessing" in p.heading]
    assert [drawing.name for drawing in picture.figures] == ["gain", "gain-by-class"]
    assert ">hare<" in picture.drawings[1]


def test_classes_that_are_not_predicted_are_named(judgement):
    _, found = judgement
    gains = zip(found.classes, found.class_gains, strict=True)
    missing = [name for name, gain in gains if not gain.shown]
    told = found.sentences[2].partition("Not shown to be predicted against the rest: ")[2]
    assert told == ", ".join(f"'{name}'" for name in missing) + "." * bool(missing)
