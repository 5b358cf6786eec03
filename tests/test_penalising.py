import dataclasses

import numpy as np
import pytest
import torch

from test_training import QUICK, small_model, small_sets
from unmix import UnmixClassifier
from unmix.core.penalties import consistency_penalty
from unmix.learn import penalising
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.gradients import Gradients
from unmix.learn.methods import METHODS
from unmix.learn.networks import MLP
from unmix.learn.penalising import learn_by
from unmix.learn.penalty_options import Consistency
from unmix.learn.training import train

METHOD = METHODS["ssc-consistency"]
ALWAYS = dataclasses.replace(METHOD, penalty=Consistency(weight=1.0))


def networks(seed):
    torch.manual_seed(seed)
    return MLP(5, width=8).train(), MLP(5, width=8).train()


def of_sets(logits, sets):
    """A risk that tells rows and sets apart."""
    return (logits * (sets + 1)).square().mean()


def learning(penalty, student, teacher):
    options = {"average": teacher, "deviation": 1.0, "flip": False}
    return learn_by(penalty, Gradients(student), **options)


def test_a_step_adds_the_gradients_of_risk_and_literal_penalty_on_the_changed_rows(monkeypatch):
    student, teacher = networks(0)
    x, sets = torch.randn(16, 5), torch.arange(16) % 3
    monkeypatch.setattr(penalising, "Changes", lambda flip: lambda rows: rows + 1)
    learn = learning(Consistency(weight=3.0, ramp=0.5), student, teacher)
    for p in student.parameters():
        p.grad = torch.zeros_like(p)
    torch.manual_seed(1)
    value = learn(of_sets, x, sets, 1.0, 0.25)  # half of the ramp
    assert teacher.training

    again, _ = networks(0)
    with torch.no_grad():
        answers = teacher.eval()(x)
    torch.manual_seed(1)
    # Dropout is drawn for all layers at once where the passes are written out.
    wanted = Gradients(again).add(
        lambda logits, index: of_sets(logits, index) + 1.5 * consistency_penalty(logits, answers),
        x + 1,
        sets,
    )
    assert value.item() == pytest.approx(wanted.item(), rel=1e-6)
    for mine, theirs in zip(student.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    for mine, theirs in zip(student.buffers(), again.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert all(p.grad is None or not p.grad.any() for p in teacher.parameters())


@pytest.mark.parametrize("penalty", [None, Consistency(weight=0.0)])
def test_without_strength_the_risk_of_the_rows_as_they_are_is_all(penalty):
    student, teacher = networks(0)
    again, _ = networks(0)
    x, sets = torch.randn(16, 5), torch.arange(16) % 3
    torch.manual_seed(1)
    value = learning(penalty, student, teacher)(of_sets, x, sets, 1.0, 0.9)
    torch.manual_seed(1)
    assert value.item() == Gradients(again).add(of_sets, x, sets).item()
    for mine, theirs in zip(student.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=0)


def test_consistency_draws_the_network_towards_agreement():
    sets = small_sets(num_sets=4)
    x = torch.from_numpy(sets.x).float()

    def disagreement(weight):
        method = dataclasses.replace(METHOD, penalty=Consistency(weight=weight))
        model = train(small_model(sets), sets, method, QUICK, seed=0).model
        torch.manual_seed(0)
        changes = penalising.Changes()
        with torch.no_grad():
            return float(consistency_penalty(model(changes(x)), model(x)))

    assert disagreement(30.0) < 0.7 * disagreement(0.0)


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_a_run_with_consistency_goes_on_from_a_checkpoint_to_the_same_bits(tmp_path, average):
    sets = small_sets(num_sets=4)
    recipe = dataclasses.replace(QUICK, epochs=3, average=average)
    whole = train(small_model(sets), sets, ALWAYS, recipe, seed=0)
    checkpoint = Checkpoint(tmp_path, {"run": 1})

    def stop(done, total, text):
        if done == total // 2:
            raise KeyboardInterrupt

    options = {"seed": 0, "checkpoint": checkpoint, "checkpoint_seconds": 0.0}
    with pytest.raises(KeyboardInterrupt):
        train(small_model(sets), sets, ALWAYS, recipe, progress=stop, **options)
    resumed = train(small_model(sets), sets, ALWAYS, recipe, **options)
    for mine, theirs in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert np.isfinite(whole.history[-1]["train_risk"])


@pytest.mark.parametrize("shape", [(8, 8), (3, 8, 8)])
def test_grey_and_colour_images_learn_by_consistency(shape, monkeypatch):
    rng = np.random.default_rng(0)
    positive = rng.random(240) < 0.5
    x = rng.integers(0, 100, (240, *shape), dtype=np.uint8)
    x[positive, ..., 4:] += 100
    sets = np.where(rng.random(240) < 0.8, positive, ~positive).astype(int)
    seen = []
    real = penalising.consistency_penalty

    def noted(logits, teacher):
        seen.append((len(logits), float(real(logits.detach(), teacher))))
        return real(logits, teacher)

    monkeypatch.setattr(penalising, "consistency_penalty", noted)
    clf = UnmixClassifier(
        {0: 0.2, 1: 0.8}, target_prior=0.5, method="ssc-consistency", epochs=4, random_state=0
    )
    clf.fit(x, sets)
    assert clf.model_ == ("mlp" if len(shape) == 2 else "resnet32")
    batches = -(-228 // 32)  # of the rows that are not held out
    assert len(seen) == 3 * batches  # as a candidate from the second of four epochs to the end
    assert all(0 < value < 10 for _, value in seen)
