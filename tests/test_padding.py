import dataclasses

import numpy as np
import pytest
import torch

from test_training import QUICK, small_sets
from unmix.learn import padding, training
from unmix.learn.methods import METHODS
from unmix.learn.networks import MLP, ResNet32
from unmix.learn.padding import padded, unpad
from unmix.learn.recipes import RECIPES
from unmix.learn.training import train

SHORT = dataclasses.replace(QUICK, epochs=2)


def network(width=30, dropout=0.0, seed=0):
    torch.manual_seed(seed)
    return MLP(4, width=width, depth=3, dropout=dropout)


@pytest.fixture
def generous(monkeypatch):
    monkeypatch.setattr(padding, "MOST", 0.1)  # 30 units become 32


def padding_of(wide, model):
    """Return all numbers of a padded model that its original has not."""
    found = []
    for theirs, mine in padding._pairs(wide, model):
        mask = torch.ones(theirs.shape, dtype=torch.bool)
        mask[tuple(map(slice, mine.shape))] = False
        found.append(theirs[mask])
    return torch.cat(found)


def test_a_padded_network_says_the_same_and_gives_its_weights_back(generous):
    model = network()
    wide = padded(model)
    x = torch.rand(50, 4)
    assert (wide.width, wide.head.in_features) == (32, 32)
    assert wide.head.weight.shape == (1, 32)
    torch.testing.assert_close(wide(x), model(x))
    torch.testing.assert_close(wide.eval()(x), model.eval()(x))
    back = unpad(wide, network(seed=1))
    assert all(map(torch.equal, back.state_dict().values(), model.state_dict().values()))
    assert len(padding_of(wide, model)) > 0


def test_a_frozen_weight_stays_frozen(generous):
    model = network()
    model.body[0].weight.requires_grad_(False)
    assert [p.requires_grad for p in padded(model).parameters()] == [
        p.requires_grad for p in model.parameters()
    ]


def test_padding_draws_no_random_numbers(generous):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    padded(network(seed=5))
    torch.manual_seed(5)
    network(seed=5)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    padded(network(seed=5))
    assert torch.equal(torch.get_rng_state(), after)
    assert not torch.equal(before, after)


@pytest.mark.parametrize("model", [network(32), network(20), ResNet32()])
def test_what_would_not_gain_is_left_alone(model):
    assert padded(model) is model
    assert unpad(model, model) is model
    assert padded(network(300)).width == 304


@pytest.mark.parametrize("method", ["ssc", "ssc-vat", "proportion", "mmc-u2-c"])
@pytest.mark.parametrize("recipe", [SHORT, dataclasses.replace(RECIPES["paper"], epochs=2)])
def test_padding_stays_zero_and_changes_nothing_else(generous, monkeypatch, method, recipe):
    sets = small_sets()
    seen = []
    real = training.TrainingState

    def noting(*args):
        seen.append(args[:3])
        return real(*args)

    monkeypatch.setattr(training, "TrainingState", noting)
    model, plain = network(), network()
    trained = train(model, sets, METHODS[method], recipe, seed=0)
    monkeypatch.setattr(training, "padded", lambda model: model)
    other = train(plain, sets, METHODS[method], recipe, seed=0)
    for wide in seen[0]:
        assert wide.width == 32
        assert padding_of(wide, model).abs().max() == 0
    if method == "ssc-vat":
        return  # dropout has drawn another number of random words before the adversary
    x = torch.from_numpy(sets.x)  # rounding differs, and Adam makes more of it
    for mine, theirs in ((model, plain), (trained.model, other.model)):
        torch.testing.assert_close(mine.eval()(x), theirs.eval()(x), rtol=0.02, atol=0.02)
    risks = [result.history[-1]["train_risk"] for result in (trained, other)]
    assert risks[0] == pytest.approx(risks[1], rel=1e-3)


def test_learned_priors_go_with_a_padded_network(generous):
    sets = small_sets(num_sets=6)
    trained = train(network(), sets, METHODS["ssc"], SHORT, seed=0, prior_errors=np.full(6, 0.1))
    assert isinstance(trained.model, MLP)
    assert trained.model.width == 30
    assert trained.set_priors.shape == (6,)


def test_a_network_of_another_kind_keeps_its_ways(generous):
    class Doubled(MLP):
        def forward(self, x):
            return 2 * super().forward(x)

    other = Doubled(4, width=30)
    assert padded(other) is other
    model = network()
    model.body[1].momentum, model.body[1].eps = 0.01, 1e-3
    wide, x = padded(model), torch.rand(50, 4)
    torch.testing.assert_close(wide.train()(x), model.train()(x))
    torch.testing.assert_close(wide.eval()(x), model.eval()(x))
