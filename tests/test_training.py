import dataclasses
import errno
import inspect
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from unmix.data.draw import draw_sets, labeled_sets
from unmix.data.sets import UnlabeledSets
from unmix.errors import DivergenceError, InputError
from unmix.learn import checkpoint, gradients, methods, networks, penalising, recipes, training
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.methods import METHODS
from unmix.learn.networks import MLP, Dropout, ResNet32, build_model
from unmix.learn.recipes import RECIPES, Recipe
from unmix.learn.training import held_out_loss, logits_of, train

QUICK = Recipe("quick", 8, 5e-3, "cosine", batch_size=64, average=0.99)


def gaussian_pool(seed=0, rows=2000):
    rng = np.random.default_rng(seed)
    labels = rng.random(rows) < 0.4
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    x[:, 0] += np.where(labels, 2.5, -2.5)
    return x, labels


def small_sets(num_sets=4, **options):
    x, labels = gaussian_pool()
    return draw_sets(x, labels, **{"num_sets": num_sets, "target_prior": 0.4, "seed": 0} | options)


def small_model(sets, seed=0):
    return build_model("mlp", sets.x.shape[1:], sets.target_prior, seed=seed, width=16, depth=2)


def error_of(model):
    x, labels = gaussian_pool(seed=1)
    return float(((logits_of(model, x) > 0).numpy() != labels).mean())


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_an_easy_problem(name):
    method = METHODS[name]
    if method.labeled:
        sets = labeled_sets(*gaussian_pool(), target_prior=0.4)
    else:
        two = name in ("u2", "u2-b", "u2-c")
        sets = small_sets(num_sets=2 if two else 6, min_spread=0.5 if two else 0.0)
    trained = train(small_model(sets), sets, method, QUICK, seed=0)
    assert error_of(trained.model) < 0.06  # the Bayes error is 0.006, chance is 0.4
    assert len(trained.history) == QUICK.epochs


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_lowers_the_risk(name):
    sets = small_sets()
    recipe = dataclasses.replace(RECIPES[name], epochs=6, batch_size=32)
    history = train(small_model(sets), sets, METHODS["ssc"], recipe, seed=0).history
    assert history[-1]["train_risk"] < history[0]["train_risk"]


def test_k_classes_train_by_the_same_loop():
    rng = np.random.default_rng(0)
    theta = np.array([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7], [0.4, 0.3, 0.3]])
    index = np.repeat(np.arange(4), 500)
    classes = np.array([rng.choice(3, p=theta[j]) for j in index])
    centers = np.array([[3.0, 0.0], [-2.0, 2.0], [-2.0, -2.0]])
    x = (centers[classes] + rng.normal(size=(2000, 2))).astype(np.float32)
    sets = UnlabeledSets(x, index, theta, np.full(3, 1 / 3))
    model = build_model("mlp", (2,), sets.target_prior, seed=0, width=16, depth=2)
    trained = train(model, sets, METHODS["ssc"], QUICK, seed=0)
    assert (logits_of(trained.model, x).argmax(1).numpy() == classes).mean() > 0.93


def test_the_same_seed_gives_the_same_bits_and_leaves_the_global_stream_alone():
    sets = small_sets()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    runs = [train(small_model(sets), sets, METHODS["llp-vat"], QUICK, seed=3) for _ in range(2)]
    assert torch.equal(before, torch.get_rng_state())
    for a, b in zip(*(r.model.state_dict().values() for r in runs), strict=True):
        assert torch.equal(a, b)
    other = train(small_model(sets), sets, METHODS["llp-vat"], QUICK, seed=4)
    assert not torch.equal(other.model.head.weight, runs[0].model.head.weight)


def test_the_output_starts_at_the_target_prior():
    model = build_model("mlp", (4,), 0.01, seed=0)
    assert torch.sigmoid(model.head.bias).item() == pytest.approx(0.01)
    many = build_model("linear", (4,), [0.5, 0.3, 0.2], seed=0)
    torch.testing.assert_close(torch.softmax(many.head.bias, 0), torch.tensor([0.5, 0.3, 0.2]))


def test_the_mlp_has_the_papers_layers():
    model = MLP(784)
    shapes = [tuple(m.weight.shape) for m in model.modules() if isinstance(m, torch.nn.Linear)]
    assert shapes == [(300, 784), (300, 300), (300, 300), (1, 300)]
    assert sum(isinstance(m, torch.nn.BatchNorm1d) for m in model.modules()) == 3
    assert {m.probability for m in model.modules() if isinstance(m, Dropout)} == {0.2}
    assert len([m for m in MLP(9, depth=4).modules() if isinstance(m, torch.nn.Linear)]) == 5


def test_dropout_drops_the_share_it_says_and_keeps_the_mean():
    torch.manual_seed(0)
    dropout = Dropout(0.2)
    x = torch.ones(400, 301)
    y = dropout(x)
    assert set(y.unique().tolist()) == {0.0, 1.25}
    assert (y == 0).float().mean().item() == pytest.approx(0.2, abs=0.005)
    each = (y == 0).float().mean(0)  # no unit is favoured by its place in a random word
    assert each.std().item() == pytest.approx(0.4 / 400**0.5, rel=0.2)
    assert torch.equal(dropout.eval()(x), x)


def test_a_monitor_cannot_meddle_with_training():
    sets = small_sets()

    def meddle(model):
        model.zero_grad()
        for p in model.parameters():
            p.data.zero_()
        return {}

    recipe = dataclasses.replace(QUICK, average=0.0)
    ours, theirs = (
        train(small_model(sets), sets, METHODS["ssc"], recipe, seed=0, monitor=monitor).history
        for monitor in (meddle, None)
    )
    risks = [[row["train_risk"] for row in history] for history in (ours, theirs)]
    assert risks[0] == risks[1]


def test_a_buffer_that_is_not_saved_is_not_averaged():
    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(4, 1)
            self.register_buffer("mask", torch.tensor([0.0, -torch.inf]), persistent=False)

        def forward(self, x):
            return torch.logsumexp(self.head(x) + self.mask, dim=1)

    sets = small_sets()
    model = train(Masked(), sets, METHODS["ssc"], QUICK, seed=0).model
    assert torch.isfinite(logits_of(model, sets.x)).all()


def test_resnet32_has_32_weighted_layers_and_returns_one_logit():
    model = ResNet32()
    layers = [
        m
        for name, m in model.named_modules()
        if isinstance(m, torch.nn.Conv2d | torch.nn.Linear) and "shortcut" not in name
    ]
    assert len(layers) == 32
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2,)


def test_resnet32_trains_on_byte_images():
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 2 == 0
    x = rng.integers(0, 90, size=(120, 3, 32, 32), dtype=np.uint8)
    x[labels, 0] += 150
    sets = draw_sets(x, labels, num_sets=2, target_prior=0.5, seed=0, min_spread=0.5)
    model = build_model("resnet32", (3, 32, 32), 0.5, seed=0)
    recipe = dataclasses.replace(QUICK, epochs=3, batch_size=40, average=0.0)
    history = train(model, sets, METHODS["ssc"], recipe, seed=0).history
    assert history[-1]["train_risk"] < history[0]["train_risk"]
    weight = model.stem[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("rows", [0, 1, 4096, 4097])
def test_logits_come_in_one_piece_whatever_the_number_of_rows(rows):
    x = np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32)
    model = MLP(4, width=8).eval()
    with torch.no_grad():
        torch.testing.assert_close(logits_of(model, x), model(torch.from_numpy(x)))


def test_the_rate_rises_and_falls_and_that_of_the_paper_decays_by_updates():
    fast, paper = (dataclasses.replace(RECIPES[name], epochs=10) for name in ("fast", "paper"))
    rates = [fast.rate_at(step, 10) for step in range(100)]
    assert max(rates) == rates[10] == 1.0
    assert rates[0] == pytest.approx(0.05)
    assert rates[55] == pytest.approx(0.5)
    assert rates[99] < 0.001
    # Keras counts updates, not epochs, for all that the paper's formula says.
    assert [paper.rate_at(step, 10) for step in (0, 10_000)] == [1.0, 0.5]


def test_convolutions_may_see_small_images_first(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (40, 3, 8, 8), dtype=np.uint8)
    sets = UnlabeledSets(x, np.arange(40) % 2, [0.2, 0.8], 0.5)
    recipe = Recipe("halves", 5, 1e-3, "cosine", batch_size=20, half_size=0.4)
    model = build_model("resnet32", (3, 8, 8), 0.5, seed=0)
    seen = []
    model.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    train(model, sets, METHODS["ssc"], recipe, seed=0, held_out=sets)
    sizes = [batch.shape[-1] for batch in seen if len(batch) == 20]
    assert sizes == [4] * 4 + [8] * 6
    # Each pixel is the mean of four, so it varies half as much; what is held out keeps its size.
    assert seen[0].std().item() == pytest.approx(x.std() / 255 / 2, rel=0.1)
    assert {batch.shape[-1] for batch in seen if len(batch) == 40} == {8}
    radii = []
    nothing = torch.zeros((), requires_grad=True)
    monkeypatch.setattr(
        penalising, "vat_penalty", lambda *args, radius: radii.append(radius) or 0 * nothing
    )
    train(model, sets, METHODS["llp-vat"], recipe, seed=0)
    # The same change of each pixel is half as long a vector.
    assert radii[:4] == [radii[-1] / 2] * 4
    assert radii[4:] == radii[-1:] * 6
    with pytest.raises(InputError, match="networks of convolutions only"):
        train(MLP(192), sets, METHODS["ssc"], recipe, seed=0)
    with pytest.raises(InputError, match="half_size"):
        dataclasses.replace(recipe, half_size=1.0)


def test_resnet32_goes_on_from_a_checkpoint_to_the_same_bits(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2 == 0
    x = rng.integers(0, 255, size=(60, 3, 16, 16), dtype=np.uint8)
    sets = draw_sets(x, labels, num_sets=2, target_prior=0.5, seed=0, min_spread=0.5)
    recipe = dataclasses.replace(QUICK, epochs=3, batch_size=20)

    def run(folder, monitor=None):
        model = build_model("resnet32", (3, 16, 16), 0.5, seed=0)
        store = Checkpoint(tmp_path / folder, {})
        options = {"checkpoint": store, "checkpoint_seconds": 0.0, "monitor": monitor}
        return train(model, sets, METHODS["ssc"], recipe, seed=0, **options).model

    def stop(model):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("cut", stop)
    for a, b in zip(
        run("cut").state_dict().values(), run("whole").state_dict().values(), strict=True
    ):
        assert torch.equal(a, b)


def test_the_epoch_with_the_least_held_out_loss_is_selected():
    kept, out = small_sets().hold_out(0.2, np.random.default_rng(0))
    recipe = dataclasses.replace(QUICK, learning_rate=0.05, average=0.0)
    trained = train(small_model(kept), kept, METHODS["ssc"], recipe, seed=0, held_out=out)
    losses = [row["held_out_loss"] for row in trained.history]
    assert trained.selected_epoch == 1 + int(np.argmin(losses))
    assert held_out_loss(trained.selected, out) == pytest.approx(min(losses))


def test_what_the_monitor_says_is_recorded_and_changes_nothing():
    sets = small_sets()
    watched = train(
        small_model(sets), sets, METHODS["ssc"], QUICK, seed=0, monitor=lambda m: {"e": np.nan}
    )
    alone = train(small_model(sets), sets, METHODS["ssc"], QUICK, seed=0)
    assert all("e" in row for row in watched.history)
    for a, b in zip(
        watched.model.state_dict().values(), alone.model.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b)


def test_no_function_that_trains_has_a_parameter_for_labels():
    forbidden = {"y", "label", "labels", "y_true", "targets", "classes_of_rows"}
    for module in (training, methods, networks, gradients, recipes, checkpoint):
        for name, thing in inspect.getmembers(module, callable):
            if getattr(thing, "__module__", "").startswith("unmix.learn"):
                parameters = set(inspect.signature(thing).parameters)
                assert not parameters & forbidden, f"{module.__name__}.{name}"


def test_a_runaway_risk_stops_with_the_cure():
    sets = small_sets()
    broken = dataclasses.replace(sets, x=np.where(sets.x > 4, np.nan, sets.x))
    with pytest.raises(DivergenceError, match=r"nan in epoch 1.*lower the learning rate"):
        train(small_model(sets), broken, METHODS["ssc"], QUICK, seed=0)
    huge = dataclasses.replace(QUICK, learning_rate=1e6, average=0.0)
    model = build_model("linear", (4,), 0.4, seed=0)
    with pytest.raises(DivergenceError, match=r"it is 1e\+06"):
        train(model, sets, METHODS["mmc-u2"], huge, seed=0)


def test_progress_counts_every_batch():
    sets = small_sets()
    seen = []
    train(
        small_model(sets), sets, METHODS["ssc"], QUICK, seed=0, progress=lambda *a: seen.append(a)
    )
    batches = -(-len(sets) // 64)
    assert [done for done, _, _ in seen] == list(range(1, 8 * batches + 1))
    assert {total for _, total, _ in seen} == {8 * batches}


def test_an_unknown_device_or_model_or_method_is_named():
    with pytest.raises(InputError, match="device 'nowhere'"):
        training.pick_device("nowhere")
    with pytest.raises(InputError, match="linear, mlp, resnet32; got 'cnn'"):
        build_model("cnn", (4,), 0.4, seed=0)
    with pytest.raises(InputError, match="did you mean mmc-u2-c"):
        methods.method_named("mmc-u2c")
    with pytest.raises(InputError, match="takes images"):
        build_model("resnet32", (784,), 0.4, seed=0)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    sets = small_sets()
    train(
        small_model(sets),
        sets,
        METHODS["ssc"],
        QUICK,
        seed=0,
        checkpoint=Checkpoint(tmp_path, {"seed": 0}),
    )
    with pytest.raises(InputError, match="seed is 0 there, 1 here"):
        Checkpoint(tmp_path, {"seed": 1}).load()


def test_the_last_state_is_the_one_that_is_read(tmp_path):
    store = Checkpoint(tmp_path, {"a": 1})
    assert store.load() is None
    for i in range(3):
        store.save({"w": torch.full((4,), float(i))}, {"step": i})
    tensors, state = Checkpoint(tmp_path, {"a": 1}).load()
    assert state == {"step": 2}
    assert torch.equal(tensors["w"], torch.full((4,), 2.0))
    assert os.listdir(tmp_path) == ["checkpoint"]


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty"])
def test_a_damaged_checkpoint_counts_as_none(tmp_path, damage):
    store = Checkpoint(tmp_path, {"a": 1})
    store.save({"w": torch.ones(4)}, {"step": 1})
    data = bytearray(store.file.read_bytes())
    if damage == "flip":
        data[-3] ^= 1
    store.file.write_bytes({"flip": data, "truncate": data[:80], "empty": b""}[damage])
    assert Checkpoint(tmp_path, {"a": 1}).load() is None


def test_a_save_that_fails_leaves_the_state_before_it(tmp_path, monkeypatch):
    store = Checkpoint(tmp_path, {"a": 1})
    store.save({"w": torch.ones(4)}, {"step": 1})

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="no space left"):
        store.save({"w": torch.zeros(4)}, {"step": 2})
    tensors, state = Checkpoint(tmp_path, {"a": 1}).load()
    assert state == {"step": 1}
    assert torch.equal(tensors["w"], torch.ones(4))


CHILD = """
import sys, torch
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
from test_training import *
sets = small_sets()
store = Checkpoint({folder!r}, {{"seed": 0}})
kept, out = sets.hold_out(0.2, np.random.default_rng(0))
recipe = dataclasses.replace(QUICK, epochs=60)
trained = train(small_model(kept), kept, METHODS["llp-vat"], recipe, seed=0, held_out=out,
                checkpoint=store, checkpoint_seconds=0.0)
from safetensors.torch import save_file
save_file({{k: v.contiguous() for k, v in trained.model.state_dict().items()}}, {result!r})
"""


def run_child(folder, result, kill_after=None):
    code = CHILD.format(tests=os.path.dirname(__file__), folder=str(folder), result=str(result))
    process = subprocess.Popen([sys.executable, "-c", code])
    if kill_after is None:
        assert process.wait() == 0
        return
    folder.mkdir(exist_ok=True)
    while not any(folder.iterdir()) and process.poll() is None:
        time.sleep(0.005)  # start-up is not training
    time.sleep(kill_after)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_kills_at_random_moments_end_in_identical_weights(tmp_path):
    run_child(tmp_path / "whole", tmp_path / "whole.safetensors")
    moments = random.Random(0)
    for _ in range(5):
        run_child(tmp_path / "cut", tmp_path / "cut.safetensors", moments.uniform(0.0, 0.5))
    run_child(tmp_path / "cut", tmp_path / "cut.safetensors")
    whole, cut = ((tmp_path / f"{n}.safetensors").read_bytes() for n in ("whole", "cut"))
    assert whole == cut
