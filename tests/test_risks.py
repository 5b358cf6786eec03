import numpy as np
import pytest
import torch

import reference
from unmix.core.risks import mmc_risk, proportion_risk, ssc_risk, u2_risk
from unmix.core.transition import Transition
from unmix.errors import InputError


def rows_of(outputs):
    """Model outputs per set as logits and set index."""
    logits = torch.logit(torch.tensor(np.concatenate(outputs)))
    index = torch.from_numpy(np.repeat(np.arange(len(outputs)), [len(f) for f in outputs]))
    return logits, index


@pytest.mark.parametrize("correction", [None, 0.0, 1.0, 0.3])
@pytest.mark.parametrize("balanced", [False, True])
def test_u2_equals_the_papers_formula(balanced, correction):
    rng = np.random.default_rng(0)
    outputs = [rng.uniform(0.01, 0.99, 30), rng.uniform(0.01, 0.99, 50)]
    t = Transition([0.8, 0.3], [30, 50], 0.4)
    risk = u2_risk(t, balanced=balanced, correction=correction)
    expected = reference.u2(*outputs, 0.8, 0.3, 0.5 if balanced else 0.4, correction)
    assert risk(*rows_of(outputs)).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("correction", [None, 1.0])
def test_mmc_equals_the_papers_formula(correction):
    rng = np.random.default_rng(1)
    priors = [0.3, 0.9, 0.15, 0.7, 0.55, 0.2]
    outputs = [rng.uniform(0.01, 0.99, 20) for _ in priors]
    risk = mmc_risk(Transition(priors, None, 0.6), correction=correction)
    expected = reference.mmc(outputs, priors, 0.6, correction)
    assert risk(*rows_of(outputs)).item() == pytest.approx(expected, abs=1e-12)


def test_the_u2_gradient_equals_finite_differences_of_the_papers_formula():
    rng = np.random.default_rng(2)
    outputs = [rng.uniform(0.1, 0.9, 3), rng.uniform(0.1, 0.9, 4)]
    logits, index = rows_of(outputs)
    logits.requires_grad_()
    u2_risk(Transition([0.8, 0.3], [3, 4], 0.4))(logits, index).backward()
    step = 1e-6
    for i in range(7):
        values = []
        for sign in (1, -1):
            moved = logits.detach().clone()
            moved[i] += sign * step
            f = torch.sigmoid(moved).numpy()
            values.append(reference.u2(f[:3], f[3:], 0.8, 0.3, 0.4))
        assert logits.grad[i].item() == pytest.approx(
            (values[0] - values[1]) / (2 * step), abs=1e-8
        )


@pytest.mark.parametrize(
    ("make", "priors"),
    [
        (u2_risk, [0.8, 0.3]),
        (mmc_risk, [0.1, 0.9, 0.6, 0.3]),
        (mmc_risk, [0.1, 0.9, 0.6, 0.3, 0.5]),  # an odd number of sets
    ],
)
@pytest.mark.parametrize("balanced", [False, True])
def test_the_unbiased_risks_have_the_right_mean_over_draws(make, priors, balanced):
    # A scalar x with known class densities N(1, 1) and N(-1, 1), and the fixed logit z = x.
    rng = np.random.default_rng(3)
    rows, draws, target = 40, 3000, 0.35
    risk = make(Transition(priors, None, target), balanced=balanced)
    index = torch.from_numpy(np.repeat(np.arange(len(priors)), rows))
    values = []
    for _ in range(draws):
        positive = rng.random(len(index)) < np.repeat(priors, rows)
        x = rng.normal(np.where(positive, 1.0, -1.0))
        values.append(risk(torch.from_numpy(x), index).item())
    target = 0.5 if balanced else target
    z = rng.normal(1.0, size=1_000_000)
    truth = np.log1p(np.exp(-z)).mean()  # l(z, +1) over positives; the same for negatives
    error = np.std(values) / np.sqrt(draws)
    assert abs(np.mean(values) - truth) < 4 * error
    assert error < 0.02 * truth  # tight enough to notice a wrong coefficient


def test_the_corrected_risk_is_never_negative():
    rng = np.random.default_rng(4)
    outputs = [np.full(20, 0.999), np.full(20, 0.001)]
    t = Transition([0.6, 0.4], None, 0.5)
    assert u2_risk(t)(*rows_of(outputs)).item() < 0
    assert u2_risk(t, correction=1.0)(*rows_of(outputs)).item() > 0
    for _ in range(20):
        outputs = [rng.uniform(0, 1, 10), rng.uniform(0, 1, 10)]
        assert u2_risk(t, correction=0.5)(*rows_of(outputs)).item() >= 0


def test_a_batch_that_misses_a_set_is_part_of_an_unbiased_average():
    rng = np.random.default_rng(5)
    outputs = [rng.uniform(0.1, 0.9, 8) for _ in range(4)]
    logits, index = rows_of(outputs)
    risk = mmc_risk(Transition([0.1, 0.9, 0.6, 0.3], None, 0.5))
    halves = [risk(logits[:16], index[:16]), risk(logits[16:], index[16:])]
    assert torch.stack(halves).mean().item() == pytest.approx(risk(logits, index).item())


def test_proportion_risk_equals_its_formula():
    rng = np.random.default_rng(6)
    priors = [0.2, 0.9, 0.5]
    outputs = [rng.uniform(0.01, 0.99, k) for k in (5, 9, 12)]
    got = proportion_risk(Transition(priors, [5, 9, 12]))(*rows_of(outputs))
    assert got.item() == pytest.approx(reference.proportion(outputs, priors), abs=1e-12)


def test_proportion_risk_is_least_at_the_stated_shares_and_survives_saturation():
    t = Transition([0.0, 1.0], None, 0.5)
    index = torch.tensor([0, 1])
    right, wrong = torch.tensor([-1000.0, 1000.0]), torch.tensor([1000.0, -1000.0])
    assert proportion_risk(t)(right, index).item() == pytest.approx(0)
    assert 50 < proportion_risk(t)(wrong, index).item() < 1e4


def test_ssc_risk_of_a_gaussian_mixture_finds_the_posterior_as_rows_grow():
    # x given class is N(+-1, 1), so the log-odds at target prior t are 2 x + logit(t).
    priors, target = np.linspace(0.1, 0.9, 10), 0.3
    errors = []
    for rows in (100, 1000, 10_000):
        rng = np.random.default_rng(7)
        index = np.repeat(np.arange(10), rows)
        positive = rng.random(len(index)) < priors[index]
        x = torch.from_numpy(rng.normal(np.where(positive, 1.0, -1.0)))
        weights = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([weights], max_iter=50, line_search_fn="strong_wolfe")
        risk = ssc_risk(Transition(priors, None, target))
        set_index = torch.from_numpy(index)

        def closure(weights=weights, optimizer=optimizer, risk=risk, x=x, set_index=set_index):
            optimizer.zero_grad()
            loss = risk(weights[0] * x + weights[1], set_index)
            loss.backward()
            return loss

        optimizer.step(closure)
        truth = torch.tensor([2.0, np.log(target / (1 - target))])
        errors.append((weights.detach() - truth).abs().max().item())
    assert errors[2] < errors[0]
    assert errors[2] < 0.06


def test_methods_for_two_sets_refuse_more():
    with pytest.raises(InputError, match="exactly 2 sets; got 3"):
        u2_risk(Transition([0.1, 0.5, 0.9]))


def test_methods_for_two_classes_refuse_more():
    with pytest.raises(InputError, match="two classes"):
        mmc_risk(Transition(np.eye(3)))
