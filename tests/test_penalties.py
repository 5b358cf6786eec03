import pytest
import torch

from reference import consistency
from unmix.core.penalties import consistency_penalty, vat_penalty
from unmix.learn.networks import MLP


class Line(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(weight))

    def forward(self, x):
        return x @ self.weight


def test_the_worst_direction_of_a_linear_model_is_its_weight():
    # For z = w.x the worst perturbation of norm r moves z by r |w|, to the side of larger KL.
    model = Line([3.0, 4.0])
    x = torch.tensor([[0.1, -0.2], [0.3, 0.0]])
    got = vat_penalty(model, x, radius=0.5, generator=torch.Generator().manual_seed(0))
    p = torch.sigmoid(model(x))
    moved = {}
    for sign in (1, -1):
        q = torch.sigmoid(model(x) + sign * 0.5 * 5)
        moved[sign] = p * torch.log(p / q) + (1 - p) * torch.log((1 - p) / (1 - q))
    candidates = [(moved[a][0] + moved[b][1]).item() / 2 for a in (1, -1) for b in (1, -1)]
    assert min(abs(got.item() - c) for c in candidates) < 1e-5


def test_k_class_logits_of_two_classes_agree_with_one_logit():
    class Two(Line):
        def forward(self, x):
            z = super().forward(x)
            return torch.stack((torch.zeros_like(z), z), dim=1)

    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(1))
    one = vat_penalty(Line([1.0, -2.0]), x, radius=1.0, generator=torch.Generator().manual_seed(2))
    two = vat_penalty(Two([1.0, -2.0]), x, radius=1.0, generator=torch.Generator().manual_seed(2))
    assert one.item() == pytest.approx(two.item(), rel=1e-5)


def test_a_flat_model_has_no_penalty_and_a_finite_gradient():
    model = Line([0.0, 0.0])
    penalty = vat_penalty(model, torch.ones(4, 2), radius=1.0)
    penalty.backward()
    assert penalty.item() == 0
    assert torch.equal(model.weight.grad, torch.zeros(2))


def test_batch_norm_statistics_and_mode_are_left_alone():
    model = MLP(5, width=8).train()
    before = {k: v.clone() for k, v in model.named_buffers()}
    vat_penalty(model, torch.randn(16, 5), radius=1.0)
    assert model.training
    for name, value in model.named_buffers():
        assert torch.equal(value, before[name]), name


def test_a_larger_radius_costs_more():
    model = Line([1.0, 1.0])
    x = torch.zeros(8, 2)
    small, large = (vat_penalty(model, x, radius=r).item() for r in (0.1, 1.0))
    assert 0 < small < large


@pytest.mark.parametrize("classes", [2, 3])
def test_consistency_is_the_literal_divergence_weighted_by_confidence(classes):
    generator = torch.Generator().manual_seed(classes)
    logits, teacher = torch.randn(2, 7, classes, generator=generator).double() * 3
    if classes == 2:  # one logit says the same as two
        logits, teacher = logits[:, 1] - logits[:, 0], teacher[:, 1] - teacher[:, 0]

    def probabilities(z):
        p = z.sigmoid() if classes == 2 else z.softmax(1)
        return torch.stack((1 - p, p), 1) if classes == 2 else p

    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    got = consistency_penalty(ours, teacher.requires_grad_())
    expected = consistency(probabilities(theirs), probabilities(teacher.detach()))
    assert got.item() == pytest.approx(expected.item(), rel=1e-12)
    got.backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-14)
    assert teacher.grad is None


def test_a_teacher_who_does_not_know_teaches_nothing_and_extremes_stay_finite():
    z = torch.tensor([3.0, -2.0], requires_grad=True)
    assert consistency_penalty(z, torch.zeros(2)).item() == 0
    extreme = torch.tensor([1000.0, -1000.0], requires_grad=True)
    penalty = consistency_penalty(extreme, torch.tensor([-1000.0, -1000.0]))
    penalty.backward()
    assert penalty.item() == pytest.approx(500.0)  # one of two rows is off by 1000
    torch.testing.assert_close(extreme.grad, torch.tensor([0.5, 0.0]))
    with pytest.raises(ValueError, match="differ in shape"):
        consistency_penalty(torch.zeros(3, 1), torch.zeros(3))
