"""Adam on flat tensors is torch's own, and parameters keep their shapes and layouts."""

import pytest
import torch

from unmix.learn.training_state import Adam, flatten, unflatten


def some_parameters():
    torch.manual_seed(0)
    kernel = torch.randn(4, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    return [torch.nn.Parameter(t) for t in (torch.randn(7, 9), kernel, torch.randn(3))]


@pytest.mark.parametrize("decoupled", [True, False])
def test_steps_are_those_of_torch(decoupled):
    ours, theirs = some_parameters(), some_parameters()
    adam = Adam(flatten(ours), 0.1, decoupled=decoupled, scale=2.0)
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    reference = kind(theirs, lr=0.02, weight_decay=0.1)
    for _ in range(5):
        for parameters in (ours, theirs):
            sum((p**3).sum() for p in parameters).backward()
        adam.step(0.01)
        reference.step()
        reference.zero_grad()
    for mine, other, old in zip(ours, theirs, some_parameters(), strict=True):
        torch.testing.assert_close(mine, other)
        assert not torch.equal(mine, old)
        assert mine.grad.abs().sum() == 0


def test_parameters_become_views_and_can_leave_again():
    parameters, old = some_parameters(), some_parameters()
    whole = flatten(parameters)
    assert len(whole) == 63 + 300 + 3
    for p, q in zip(parameters, old, strict=True):
        assert torch.equal(p, q)
        assert p.stride() == q.stride()
    whole.zero_()
    assert all((p == 0).all() for p in parameters)
    unflatten(parameters)
    whole += 1
    assert all((p == 0).all() and p.grad is None for p in parameters)
    assert parameters[1].is_contiguous(memory_format=torch.channels_last)


def test_parameters_with_gaps_are_packed():
    parameters = [torch.nn.Parameter(torch.arange(24.0).view(4, 6)[:, :2]), *some_parameters()]
    old = [p.detach().clone() for p in parameters]
    assert len(flatten(parameters)) == 8 + 63 + 300 + 3
    assert all(torch.equal(p, q) for p, q in zip(parameters, old, strict=True))


def test_training_does_not_load_what_compiles_programs():
    import subprocess
    import sys

    code = (
        "import sys; from unmix.studies.cell import Cell, run_cell\n"
        "run_cell(Cell('digits', epochs=1))\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
