import dataclasses

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from test_training import QUICK, small_model, small_sets
from unmix.core.losses import ssc_cross_entropy
from unmix.errors import InputError
from unmix.learn import chosen_strength
from unmix.learn.augment import Augment
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.chosen_strength import calibrate, calibrated_loss, train_choosing_strength
from unmix.learn.methods import METHODS
from unmix.learn.training import held_out_loss, logits_of, train

VAT = METHODS["ssc-vat"]


class Scaled(torch.nn.Module):
    def __init__(self, model, scale, shift):
        super().__init__()
        self.model, self.scale, self.shift = model, scale, shift

    def forward(self, x):
        return self.scale * self.model(x) + self.shift


def kept_and_held_out():
    return small_sets(num_sets=6).hold_out(0.2, np.random.default_rng(0))


def test_the_calibrated_loss_is_the_least_over_scale_and_shift():
    kept, held_out = kept_and_held_out()
    model = train(small_model(kept), kept, METHODS["ssc"], QUICK, seed=0).model
    z = logits_of(model, held_out.x).double()
    index = torch.from_numpy(held_out.set_index)

    def loss(p):
        return float(ssc_cross_entropy(p[0] * z + p[1], index, held_out.scoring_transition).mean())

    slow = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12})
    assert calibrated_loss(model, held_out) == pytest.approx(slow.fun, abs=1e-7)
    timid = Scaled(model, 0.2, -0.5)
    assert calibrated_loss(timid, held_out) == pytest.approx(slow.fun, abs=1e-6)
    assert held_out_loss(timid, held_out) > slow.fun + 1e-3


@pytest.mark.parametrize("radii", [(0.0, 30.0), (30.0, 0.0)])
def test_the_radius_with_the_least_calibrated_loss_goes_on_to_the_end(radii):
    kept, held_out = kept_and_held_out()
    trained, choice = train_choosing_strength(
        small_model(kept), kept, VAT, QUICK, radii, held_out=held_out, seed=0
    )
    losses = {c["strength"]: c["calibrated_loss"] for c in choice.candidates}
    assert losses[0.0] != losses[30.0]
    assert choice.strength == min(losses, key=losses.get)
    assert [row["epoch"] for row in trained.history] == list(range(1, QUICK.epochs + 1))
    # What went on is the chosen candidate: its row of the comparison is in the history.
    (own,) = (c for c in choice.candidates if c["strength"] == choice.strength)
    assert trained.history[own["epoch"] - 1]["held_out_loss"] == own["held_out_loss"]


@pytest.mark.parametrize("weights", [(0.0, 1.0), (1.0,)])
def test_candidates_may_be_compared_at_the_end_and_the_best_is_what_its_own_training_makes(weights):
    kept, held_out = kept_and_held_out()
    method = METHODS["ssc-consistency"]
    assert method.penalty.compared == 1

    def trained(*given):
        return train_choosing_strength(
            small_model(kept), kept, method, QUICK, given, held_out=held_out, seed=0
        )

    whole, choice = trained(*weights)
    assert [row["epoch"] for row in choice.candidates] == [QUICK.epochs] * len(weights)
    alone, _ = trained(choice.strength)
    assert [row["epoch"] for row in whole.history] == list(range(1, QUICK.epochs + 1))
    assert whole.selected_epoch == alone.selected_epoch
    for mine, theirs in (whole.model, alone.model), (whole.selected, alone.selected):
        for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(p, q)


def test_without_a_penalty_the_stages_make_the_same_model_as_one_training():
    kept, held_out = kept_and_held_out()
    trained, _ = train_choosing_strength(
        small_model(kept), kept, VAT, QUICK, (0.0,), held_out=held_out, seed=3
    )
    plain = train(small_model(kept), kept, METHODS["ssc"], QUICK, seed=3, held_out=held_out)
    for mine, theirs in zip(trained.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_finished_choice_is_read_back_from_its_checkpoints(tmp_path):
    kept, held_out = kept_and_held_out()
    recipe = dataclasses.replace(QUICK, epochs=4)

    def run():
        return train_choosing_strength(
            small_model(kept),
            kept,
            VAT,
            recipe,
            (0.0, 1.0),
            held_out=held_out,
            seed=0,
            checkpoint=Checkpoint(tmp_path, {"run": 1}),
        )

    first, chosen = run()
    again, same = run()
    assert chosen == same
    for mine, theirs in zip(first.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_without_a_weight_average_each_radius_is_judged_by_its_own_weights():
    kept, held_out = kept_and_held_out()
    recipe = dataclasses.replace(QUICK, average=0.0)
    _, choice = train_choosing_strength(
        small_model(kept), kept, VAT, recipe, (0.0, 30.0), held_out=held_out, seed=0
    )
    first, second = choice.candidates
    assert first["calibrated_loss"] != second["calibrated_loss"]
    assert first["calibrated_loss"] <= first["held_out_loss"]
    assert second["calibrated_loss"] <= second["held_out_loss"]


def test_a_monitor_cannot_choose_the_radius():
    kept, held_out = kept_and_held_out()
    chosen = [
        train_choosing_strength(
            small_model(kept),
            kept,
            VAT,
            QUICK,
            (0.0, 1.0, 30.0),
            held_out=held_out,
            seed=0,
            monitor=lambda model, sign=sign: {
                "calibrated_loss": sign * next(model.parameters()).norm().item(),
                "held_out_loss": sign,
            },
        )[1]
        for sign in (1.0, -1.0)
    ]
    without_times = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in choice.candidates]
        for choice in chosen
    ]
    assert chosen[0].strength == chosen[1].strength
    assert without_times[0] == without_times[1]


def test_one_epoch_is_too_short_to_choose():
    kept, held_out = kept_and_held_out()
    recipe = dataclasses.replace(QUICK, epochs=1)
    with pytest.raises(InputError, match="2 epochs or more"):
        train_choosing_strength(
            small_model(kept), kept, VAT, recipe, (0.0, 1.0), held_out=held_out, seed=0
        )


def test_a_method_without_vat_has_no_radius_to_choose():
    kept, held_out = kept_and_held_out()
    with pytest.raises(InputError, match="ssc has no penalty"):
        train_choosing_strength(
            small_model(kept), kept, METHODS["ssc"], QUICK, (1.0,), held_out=held_out, seed=0
        )


def test_calibrating_puts_scale_and_shift_into_the_head():
    kept, held_out = kept_and_held_out()
    model = train(small_model(kept), kept, METHODS["ssc"], QUICK, seed=0).model
    z, best = logits_of(model, held_out.x), calibrated_loss(model, held_out)
    scale, shift = calibrate(model, held_out)
    torch.testing.assert_close(logits_of(model, held_out.x), scale * z + shift)
    assert held_out_loss(model, held_out) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(("radii", "calibrated"), [((0.0,), False), ((3.0,), True)])
@pytest.mark.parametrize("flip", [False, True])
def test_only_a_network_with_an_adversary_is_calibrated_and_not_shifted_but_still_mirrored(
    radii, calibrated, flip, monkeypatch
):
    kept, held_out = kept_and_held_out()
    seen = []

    def noted(*args, augment=None, **options):
        seen.append((args[2].penalty.strength, augment))
        return train(*args, **options)  # of rows, which cannot be shifted

    monkeypatch.setattr(chosen_strength, "train", noted)
    shifts = Augment(2, flip)
    trained, choice = train_choosing_strength(
        small_model(kept), kept, VAT, QUICK, radii, held_out=held_out, seed=0, augment=shifts
    )
    assert (choice.calibration != [1.0, 0.0]) is calibrated
    unmoved = Augment(0, flip=True) if flip else None
    assert {shifted for radius, shifted in seen if radius} <= {unmoved}
    assert {shifted for radius, shifted in seen if not radius} == {shifts}
    if calibrated:
        for model in (trained.model, trained.selected):
            assert held_out_loss(model, held_out) == pytest.approx(
                calibrated_loss(model, held_out), abs=1e-6
            )


def test_candidates_are_compared_when_they_have_seen_images_of_full_size(monkeypatch):
    kept, held_out = kept_and_held_out()
    recipe = dataclasses.replace(QUICK, half_size=0.6)
    shares = []

    def noted(model, sets, method, given, **options):
        shares.append(given.half_size)
        return train(model, sets, method, dataclasses.replace(given, half_size=0.0), **options)

    monkeypatch.setattr(chosen_strength, "train", noted)
    train_choosing_strength(
        small_model(kept), kept, VAT, recipe, (0.0, 1.0), held_out=held_out, seed=0
    )
    assert set(shares) == {VAT.penalty.compared / 2}
