import copy

import numpy as np
import pytest
import torch

from test_training import QUICK, small_sets
from unmix.core.transition import Transition
from unmix.learn import gradients
from unmix.learn.gradients import Gradients, WrittenOut
from unmix.learn.methods import METHODS
from unmix.learn.networks import MLP, ResNet32
from unmix.learn.refined_priors import RefiningNetwork
from unmix.learn.training import train

SETS = 5


def mlp(dtype=torch.float64, **options):
    torch.manual_seed(0)
    model = MLP(9, **{"width": 12} | options).to(dtype).train()
    for p in model.parameters():
        torch.nn.init.normal_(p)
    return model


def batch(dtype=torch.float64, rows=36):  # units in fours: the same random words
    torch.manual_seed(1)
    return torch.rand(rows, 3, 3, dtype=dtype), torch.arange(rows) % SETS


def transition(classes=1):
    if classes == 1:
        return Transition(np.linspace(0, 1, SETS), np.arange(1, SETS + 1), 0.3)
    shares = np.random.default_rng(0).dirichlet(np.ones(classes), SETS)
    return Transition(shares, np.arange(1, SETS + 1), np.full(classes, 1 / classes))


def after(model, risk, way, times=2):
    """Return the risk, the gradients and the statistics after some passes with the same noise."""
    torch.manual_seed(2)
    for _ in range(times):  # gradients add up
        loss = way(model, risk, *batch(next(model.parameters()).dtype))
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return loss, found, dict(model.named_buffers())


def ours(model, risk, x, set_index):
    adder = Gradients(model)
    assert adder.written_out is not None
    return adder.add(risk, x, set_index)


def by_autograd(model, risk, x, set_index):
    loss = risk(model(x), set_index)
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize(
    ("depth", "dropout", "dtype", "tolerance"),
    [
        (3, 0.2, torch.float64, 1e-10),
        (3, 0.0, torch.float64, 1e-10),
        (1, 0.2, torch.float64, 1e-10),
        (3, 0.2, torch.float32, 1e-4),
    ],
)
@pytest.mark.parametrize("frozen", [(), ("body.0.weight", "body.1.bias"), ("head.weight",)])
def test_the_passes_written_out_are_those_of_the_modules(depth, dropout, dtype, tolerance, frozen):
    risk = METHODS["ssc"].risk(transition())
    results = []
    for way in (ours, by_autograd):
        model = mlp(dtype, depth=depth, dropout=dropout)
        for name in frozen:  # these get no gradient
            model.get_parameter(name).requires_grad_(False)
        results.append(after(model, risk, way))
    torch.testing.assert_close(*results, rtol=tolerance, atol=tolerance / 100)
    _, found, statistics = results[0]
    assert set(found) == {name for name, _ in model.named_parameters()} - set(frozen)
    assert max(gradient.abs().max() for gradient in found.values()) > 0.01
    assert statistics["body.1.num_batches_tracked"] == 2


@pytest.mark.parametrize("name", [name for name in METHODS if not name.startswith("u2")])
def test_every_method_gets_the_gradients_of_autograd(name):
    risk = METHODS[name].risk(transition())
    results = [after(mlp(), risk, way) for way in (ours, by_autograd)]
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["ssc", "ssc-mse", "proportion"])
def test_more_classes_than_two(name):
    risk = METHODS[name].risk(transition(classes=3))
    results = [after(mlp(num_outputs=3), risk, way) for way in (ours, by_autograd)]
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-11)


def test_learned_priors_get_their_gradients_too():
    results = []
    for way in (ours, by_autograd):
        model = RefiningNetwork(mlp(torch.float32), transition(), np.full(SETS, 0.1), 1000).train()
        results.append(after(model, METHODS["ssc"].risk(model.transition()), way, times=1))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)
    assert results[0][1]["prior_steps"].abs().max() > 0


def test_rows_that_are_not_numbers_are_not_hidden():
    x, set_index = batch()
    x[5, 1, 1] = torch.nan
    model = mlp()
    loss = Gradients(model).add(METHODS["ssc"].risk(transition()), x, set_index)
    assert loss.isnan()
    assert model.body[0].weight.grad.isnan().any()


def test_only_the_mlp_itself_is_written_out():
    class Doubled(MLP):
        def forward(self, x):
            return 2 * super().forward(x)

    assert WrittenOut.suits(mlp())
    assert not WrittenOut.suits(Doubled(9, width=12))
    assert not WrittenOut.suits(ResNet32())
    assert not WrittenOut.suits(mlp().to("meta"))
    for name, value in {"momentum": None, "track_running_stats": False, "affine": False}.items():
        model = mlp()
        setattr(model.body[1], name, value)
        assert not WrittenOut.suits(model)
    model = Doubled(9, width=12)
    loss = Gradients(model).add(METHODS["ssc"].risk(transition()), *batch(torch.float32))
    assert not loss.requires_grad
    assert all(p.grad is not None for p in model.parameters())


def test_training_uses_the_passes_written_out_and_leaves_nothing_behind(monkeypatch):
    calls = []
    forward = WrittenOut.forward
    monkeypatch.setattr(
        gradients.WrittenOut, "forward", lambda self, x: calls.append(1) or forward(self, x)
    )
    sets = small_sets()
    model = MLP(4, width=8)
    first = copy.deepcopy(model)
    train(model, sets, METHODS["ssc"], QUICK, seed=0)
    assert len(calls) == QUICK.epochs * -(-len(sets) // QUICK.batch_size)
    assert not torch.equal(model.head.weight, first.head.weight)
    assert all(p.grad is None for p in model.parameters())
    assert all(p.untyped_storage().nbytes() == p.nbytes for p in model.parameters())
    loss = model.train()(torch.from_numpy(sets.x[:8])).sum()
    found = torch.autograd.grad(loss, list(model.parameters()))  # as with any other module
    assert max(gradient.abs().max() for gradient in found) > 0
