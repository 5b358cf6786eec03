"""What torch keeps to itself may be missing: then plain torch does the same."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import unmix
from test_gradients import after, mlp, ours, transition
from test_training import QUICK, small_sets
from unmix.learn import fast_ops
from unmix.learn.methods import METHODS
from unmix.learn.networks import MLP
from unmix.learn.training import train
from unmix.learn.training_state import Adam


def use_plain_forms(monkeypatch):
    for name, (_, plain) in fast_ops._FORMS.items():
        monkeypatch.setattr(fast_ops, name, plain)


def test_a_torch_without_them_gets_the_plain_forms(monkeypatch):
    assert set(fast_ops._FORMS) == set(fast_ops.__all__)
    for name, (_, plain) in fast_ops._FORMS.items():
        assert fast_ops._found(name) is getattr(fast_ops, name)
        assert fast_ops._found(name) is not plain  # this torch has them all
    monkeypatch.setattr(fast_ops, "torch", SimpleNamespace(ops=torch.ops, nn=torch.nn))
    for name in ("batch_norm", "add_to_all", "move_all", "adam", "adamw"):
        assert fast_ops._found(name) is fast_ops._FORMS[name][1]
    for name, (_, plain) in list(fast_ops._FORMS.items()):
        monkeypatch.setitem(fast_ops._FORMS, name, ("ops.aten.no_such_operator.default", plain))
        assert fast_ops._found(name) is plain


@pytest.mark.parametrize("frozen", [(), ("body.1.weight", "head.weight")])
def test_the_passes_of_the_network_are_the_same_by_plain_forms(monkeypatch, frozen):
    risk = METHODS["ssc"].risk(transition())
    results = []
    for plain in (False, True):
        if plain:
            use_plain_forms(monkeypatch)
        model = mlp()
        for name in frozen:
            model.get_parameter(name).requires_grad_(False)
        results.append(after(model, risk, ours))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)
    assert max(gradient.abs().max() for gradient in results[0][1].values()) > 0.01


@pytest.mark.parametrize("decoupled", [True, False])
def test_adam_takes_the_same_steps_by_plain_forms(monkeypatch, decoupled):
    ends = []
    for plain in (False, True):
        if plain:
            use_plain_forms(monkeypatch)
        torch.manual_seed(0)
        values = torch.randn(50, dtype=torch.float64)
        values.grad = torch.zeros_like(values)
        adam = Adam(values, 0.1, decoupled=decoupled)
        for _ in range(20):
            values.grad.copy_(values**3 - 1)
            adam.step(0.01)
        ends.append((values, adam.mean, adam.square, adam.steps))
    torch.testing.assert_close(*ends, rtol=1e-12, atol=1e-12)
    assert adam.steps == 20


def test_averages_move_by_the_same_share_and_counts_by_one(monkeypatch):
    ends = []
    for plain in (False, True):
        if plain:
            use_plain_forms(monkeypatch)
        tensors = [torch.arange(3.0), torch.ones(2, 2)]
        fast_ops.move_all(tensors, [torch.full((3,), 5.0), torch.zeros(2, 2)], 0.25)
        fast_ops.add_to_all(tensors, 1)
        fast_ops.add_to_all(tensors, [torch.ones(3), torch.full((2, 2), 2.0)])
        ends.append(tensors)
    assert [t.tolist() for t in ends[0]] == [t.tolist() for t in ends[1]]
    assert ends[0][0].tolist() == [3.25, 4.0, 4.75]


def test_training_by_plain_forms_ends_where_it_does_by_torchs_own(monkeypatch):
    sets = small_sets()
    ends = []
    for plain in (False, True):
        if plain:
            use_plain_forms(monkeypatch)
        torch.manual_seed(0)
        trained = train(MLP(4, width=16), sets, METHODS["ssc"], QUICK, seed=0)
        logits = trained.model(torch.from_numpy(sets.x))
        ends.append((logits, torch.tensor(trained.history[-1]["train_risk"])))
    torch.testing.assert_close(*ends, rtol=0.02, atol=0.02)  # Adam makes more of rounding


def test_nothing_else_calls_what_torch_keeps_to_itself():
    private = re.compile(r"torch\.(ops\.|_|native_)\w+")
    for path in Path(unmix.__file__).parent.rglob("*.py"):
        if path.name != "fast_ops.py":
            assert not private.search(path.read_text()), path
