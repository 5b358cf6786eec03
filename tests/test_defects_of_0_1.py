"""What 0.1 did wrong and may not do again: one test or more for each defect."""

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from sklearn.base import clone
from torch import nn

from unmix import Priors, UnmixClassifier
from unmix.cli import main
from unmix.core.class_shares import ClassShares
from unmix.errors import InputError
from unmix.learn import held_out_score, network_models
from unmix.learn.models import model_row
from unmix.report.page import render_report

CENTRES = np.array([[0.0, 0.0], [2.5, 0.0], [0.0, 2.5]])
QUICK = {
    "linear": {"l2": 1e-4},
    "boosting": {},
    "mlp": {"hidden": (2, 64), "epochs": 10},
}


def drawn(theta, rows, seed=0, apart=1.0):
    """Return rows of shared Gaussians in sets with shares theta (m, K): x, set ids, labels."""
    rng = np.random.default_rng(seed)
    index = np.repeat(np.arange(len(theta)), rows)
    labels = (rng.random(len(index))[:, None] > theta[index].cumsum(axis=1)).sum(axis=1)
    return apart * CENTRES[labels] + rng.normal(size=(len(index), 2)), index, labels


def two_classes(positives):
    return np.stack((1 - positives, positives), axis=1)


def as_priors(theta):
    rows = theta.tolist()
    if theta.shape[1] == 2:
        return {j: row[1] for j, row in enumerate(rows)}
    return {j: dict(enumerate(row)) for j, row in enumerate(rows)}


# Refining: the same data gave slopes of .99, 1.30 and .94, by learner.


def slope_of_refined_on_stated(model, theta, seed):
    x, sets, _ = drawn(theta, 800, seed)
    clf = UnmixClassifier(
        as_priors(theta),
        model=model,
        method="ssc",
        prior_error=0.1,
        hide_sets=False,
        random_state=seed,
        **QUICK[model],
    ).fit(x, sets)
    assert clf.refined_
    refined, stated = (np.stack([*p.values()]) for p in (clf.set_priors_, clf.stated_priors_))
    refined, stated = refined - refined.mean(axis=0), stated - stated.mean(axis=0)
    return (refined * stated).sum() / (stated**2).sum()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("classes", [2, 3])
def test_no_learner_stretches_shares_that_are_exact(classes, seed):
    theta = two_classes(np.linspace(0.1, 0.9, 10))
    if classes == 3:
        theta = np.random.default_rng(seed).dirichlet(np.ones(3), 10)
    slopes = {model: slope_of_refined_on_stated(model, theta, seed) for model in QUICK}
    assert list(slopes.values()) == pytest.approx([1, 1, 1], abs=0.05), slopes
    assert max(slopes.values()) - min(slopes.values()) < 0.05, slopes


# Reports and judgements said that priors were refined because there were errors.


def with_errors(method, model):
    theta = two_classes(np.linspace(0.1, 0.9, 6))
    x, sets, _ = drawn(theta, 60)
    options = {"epochs": 3, "hidden": (1, 8)} if model == "mlp" else {"l2": 1e-3}
    return UnmixClassifier(
        as_priors(theta), model=model, method=method, prior_error=0.1, random_state=0, **options
    ).fit(x, sets), (x, sets)


@pytest.mark.parametrize("model", ["linear", "mlp"])
@pytest.mark.parametrize("method", ["proportion", "mmc-u2", "mmc-u2-c"])
def test_what_a_method_cannot_refine_is_not_said_to_be_refined(method, model, tmp_path):
    clf, rows = with_errors(method, model)
    assert clf.refined_ is False
    judgement = clf.judge(*rows)
    assert judgement.refined is False
    assert judgement.refined_priors == judgement.stated_priors
    page = clf.report(tmp_path / "report.html", *rows).read_text()
    assert f"assumed known: {method} does not estimate them" in page
    assert "Estimated against stated shares" not in page
    assert "Stated against refined shares" not in page


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_what_was_refined_is_said_and_shown(model, tmp_path):
    clf, rows = with_errors("ssc", model)
    page = clf.report(tmp_path / "report.html", *rows).read_text()
    assert "estimated along with the model" in page
    assert "Estimated against stated shares" in page
    assert "does not estimate them" not in page


# A network with a method of its own choice said that its sets could not be hidden.


@pytest.mark.parametrize(
    ("model", "hide_sets", "words"),
    [
        ("mlp", None, "No sets were hidden from training"),
        ("mlp", True, "Gain over guessing: "),
        ("linear", None, "Gain over guessing: "),
        ("linear", False, "No sets were hidden from training"),
    ],
)
def test_a_judgement_says_whether_sets_were_hidden(model, hide_sets, words):
    theta = two_classes(np.linspace(0.1, 0.9, 6))
    x, sets, _ = drawn(theta, 60)
    options = {"epochs": 3, "hidden": (1, 8)} if model == "mlp" else {"l2": 1e-3}
    clf = UnmixClassifier(
        as_priors(theta), model=model, method="ssc", hide_sets=hide_sets, random_state=0, **options
    ).fit(x, sets)
    judgement = clf.judge()
    assert any(sentence.startswith(words) for sentence in judgement.sentences)
    assert ("none were held out" in render_report(judgement)) == words.startswith("No sets")


def test_labels_are_no_sets_that_could_have_been_hidden():
    x, _, labels = drawn(two_classes(np.array([0.3, 0.7])), 100)
    clf = UnmixClassifier(model="linear", l2=1e-3).fit(x, labels)
    assert any(s.startswith("No sets were hidden") for s in clf.judge().sentences)


# Three classes with errors trained, and then could not be written.


@pytest.mark.parametrize("error", ["0.1", "auto"])
def test_the_command_line_fits_and_writes_three_classes_with_errors(error, tmp_path):
    theta = np.random.default_rng(0).dirichlet(np.ones(3), 6).round(3)
    theta[:, 0] = 1 - theta[:, 1:].sum(axis=1)
    x, sets, labels = drawn(theta, 100)
    names = np.array([f"region {j}" for j in range(len(theta))])
    rows, rates, model = tmp_path / "rows.csv", tmp_path / "rates.csv", tmp_path / "model"
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "region": names[sets]}).to_csv(rows, index=False)
    table = pd.DataFrame(theta.round(3), columns=["red", "green", "blue"])
    table.assign(region=names).to_csv(rates, index=False)
    args = f"fit {rows} --sets region --priors {rates} -o {model} --model linear"
    done = CliRunner().invoke(main, [*args.split(), "--method", "ssc", "--prior-error", error])
    assert done.exit_code == 0, done.output
    page = (model / "report.html").read_text()
    assert ("estimated along with the model" in page) == (error != "auto")
    clf = UnmixClassifier.load(model)
    assert clf.refined_ is (error != "auto")
    truth = np.array(["red", "green", "blue"])[labels]
    assert (clf.predict(pd.DataFrame({"a": x[:, 0], "b": x[:, 1]})) == truth).mean() > 0.8


# A loaded model forgot most of its constructor arguments.

SETS = two_classes(np.linspace(0.1, 0.9, 6))
MANY_ARGUMENTS = {
    "linear": {
        "model": "linear",
        "target_prior": 0.3,
        "l2": 0.01,
        "prior_error": {j: 0.05 for j in range(len(SETS))},
        "hide_sets": False,
        "allow_set_feature": True,
        "random_state": 7,
        "verbose": True,
    },
    "auto": {
        "model": "auto",
        "method": "auto",
        "random_state": 3,
        "target_prior": {0: 0.6, 1: 0.4},
    },
    "boosting": {"model": "boosting", "prior_error": "auto", "random_state": 1, "hide_sets": False},
    "mlp": {
        "model": "mlp",
        "method": "ssc",
        "epochs": 2,
        "hidden": (1, 8),
        "shift": 1,
        "flip": True,
        "hide_sets": True,
        "random_state": np.int64(5),
    },
}


@pytest.mark.parametrize("name", MANY_ARGUMENTS)
def test_a_loaded_model_fits_again_as_the_original_does(name, tmp_path):
    x, sets, _ = drawn(SETS, 80)
    original = UnmixClassifier(as_priors(SETS), **MANY_ARGUMENTS[name]).fit(x, sets)
    original.save(tmp_path / "model")
    loaded = UnmixClassifier.load(tmp_path / "model")
    assert loaded.get_params() == original.get_params()
    again, before = clone(loaded).fit(x, sets), clone(original).fit(x, sets)
    assert (again.predict_proba(x) == before.predict_proba(x)).all()
    assert (again.predict_proba(x) == original.predict_proba(x)).all()
    assert again.leave_sets_out_ == before.leave_sets_out_


@pytest.mark.parametrize("classes", [2, 3])
def test_priors_with_errors_and_of_sets_without_rows_come_back(classes, tmp_path):
    theta = SETS if classes == 2 else np.random.default_rng(0).dirichlet(np.ones(3), 6)
    x, sets, _ = drawn(theta, 80)
    seen = sets != 2
    shares = ClassShares(theta[:, 1] if classes == 2 else theta)
    names = None if classes == 2 else ("red", "green", "blue")
    priors = Priors(tuple(range(6)), shares, names, np.linspace(0.01, 0.1, 6))
    original = UnmixClassifier(priors, model="linear", method="ssc", l2=1e-3, random_state=0)
    original.fit(x[seen], sets[seen]).save(tmp_path / "model")
    loaded = UnmixClassifier.load(tmp_path / "model")
    given = Priors.of(loaded.set_priors)
    assert given.set_ids == priors.set_ids
    assert given.classes == priors.classes
    assert (given.standard_errors == priors.standard_errors).all()
    assert (np.asarray(given.set_priors) == np.asarray(priors.set_priors)).all()
    again, before = (clone(c).fit(x, sets) for c in (loaded, original))  # with set 2
    assert (again.predict_proba(x) == before.predict_proba(x)).all()
    assert again.refined_ is before.refined_ is True


# Methods that match shares held rows out that nobody looked at.


@pytest.mark.parametrize(("method", "held_out"), [("proportion", 0), ("llp-vat", 0), ("ssc", 36)])
def test_methods_that_match_shares_train_on_all_rows(method, held_out, monkeypatch):
    seen = []

    def spy(module, sets, *args, held_out=None, **options):
        seen.append((len(sets), 0 if held_out is None else len(held_out)))
        return network_models_train(module, sets, *args, held_out=held_out, **options)

    network_models_train = network_models.train_in_stages
    monkeypatch.setattr(network_models, "train_in_stages", spy)
    x, sets, _ = drawn(SETS, 60)
    UnmixClassifier(
        as_priors(SETS), model="mlp", method=method, epochs=1, hidden=(1, 4), random_state=0
    ).fit(x, sets)
    assert seen == [(360 - held_out, held_out)]


# A network was fitted five more times although the method was given.


@pytest.mark.filterwarnings("ignore::unmix.learn.estimator.NotShownWarning")
@pytest.mark.parametrize(
    ("method", "hide_sets", "fits"),
    [
        ("ssc", None, 0),
        ("proportion", None, 0),
        ("ssc", True, 5),
        ("auto", None, 10),
        ("auto", False, 0),
    ],
)
def test_networks_hide_sets_only_to_choose_or_if_asked(method, hide_sets, fits, monkeypatch):
    counted = []

    def counting(sets, setup, **options):
        counted.append(setup.method)
        return fit_learner(sets, setup, **options)

    fit_learner = held_out_score.fit_learner
    monkeypatch.setattr(held_out_score, "fit_learner", counting)
    x, sets, _ = drawn(SETS, 60)
    clf = UnmixClassifier(
        as_priors(SETS),
        model="mlp",
        method=method,
        hide_sets=hide_sets,
        epochs=3,
        hidden=(1, 32),
        random_state=0,
    ).fit(x, sets)
    assert len(counted) == fits
    assert bool(clf.leave_sets_out_) == bool(fits)


# Images could be trained on by `unmix train` only.


def images(shape, seed=0, sets=4, rows=100):
    """Return images that are bright above or below, by class: images, set ids, labels, priors."""
    rng = np.random.default_rng(seed)
    theta = two_classes(np.linspace(0.1, 0.9, sets))
    index = np.repeat(np.arange(sets), rows)
    labels = (rng.random(len(index)) < theta[index, 1]).astype(int)
    x = rng.uniform(0, 0.4, size=(len(index), *shape)).astype(np.float32)
    half = shape[-2] // 2
    x[labels == 1, ..., :half, :] += 0.5
    x[labels == 0, ..., half:, :] += 0.5
    return x, index, labels, as_priors(theta)


class Convolution(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Conv2d(channels, 4, 8)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        x = x if x.ndim == 4 else x[:, None]
        return self.head(self.body(x).flatten(1))[:, 0]


def image_model(name, shape):
    """Return a classifier of images, and whether it trains long enough to learn."""
    _, _, _, priors = images(shape)
    model = name
    if name == "module":
        torch.manual_seed(0)
        model = Convolution(shape[0] if len(shape) == 3 else 1)
    slow = name == "resnet32" or (name == "auto" and len(shape) == 3)
    options = {"epochs": 1 if slow else 15, "hidden": (1, 16) if name == "mlp" else None}
    clf = UnmixClassifier(priors, model=model, method="ssc", shift=0, random_state=0, **options)
    return clf, not slow


GREY, COLOUR = (8, 8), (3, 8, 8)
IMAGE_CASES = [
    ("mlp", GREY),
    ("mlp", COLOUR),
    ("resnet32", COLOUR),
    ("module", GREY),
    ("module", COLOUR),
    ("auto", GREY),
    ("auto", COLOUR),
]


@pytest.mark.parametrize(
    ("name", "shape"), IMAGE_CASES, ids=lambda v: {GREY: "grey", COLOUR: "colour"}.get(v, v)
)
def test_images_are_learned_and_come_back(name, shape, tmp_path):
    x, sets, labels, _ = images(shape)
    clf, learns = image_model(name, shape)
    clf.fit(x, sets)
    by_itself = {GREY: "mlp", COLOUR: "resnet32"}[shape]
    assert clf.model_ == (by_itself if name == "auto" else name)
    assert clf.predict_proba(x).sum(axis=1) == pytest.approx(1)
    if learns:  # one epoch of a ResNet shows that it runs
        assert (clf.predict(x) == labels).mean() > 0.9
    pixels = np.clip(x, 0, 1)
    as_bytes = (255 * pixels).astype(np.uint8)
    assert abs(clf.predict_proba(as_bytes) - clf.predict_proba(pixels)).max() < 0.05
    with pytest.raises(InputError, match="images have shape") as caught:
        clf.predict(x[..., :7])
    assert "\n" not in str(caught.value)
    clf.save(tmp_path / "model")
    own = clf.model if name == "module" else None
    loaded = UnmixClassifier.load(tmp_path / "model", module=own)
    assert (loaded.predict_proba(x) == clf.predict_proba(x)).all()
    assert loaded.evaluate(x, sets).rows == len(x)
    with pytest.raises(InputError, match="images have shape"):
        loaded.predict(x[..., :7])


def test_grey_images_are_told_how_a_resnet_takes_them():
    clf, _ = image_model("resnet32", GREY)
    x, sets, _, _ = images(GREY)
    with pytest.raises(InputError, match=r"Use mlp, or give grey images a channel") as caught:
        clf.fit(x, sets)
    assert "\n" not in str(caught.value)
    assert clf.fit(x[:, None], sets).model_ == "resnet32"


@pytest.mark.parametrize("shape", [(8, 8), (3, 8, 8)], ids=["grey", "colour"])
@pytest.mark.parametrize("model", ["linear", "boosting"])
def test_models_for_tables_send_images_to_networks(model, shape, monkeypatch):
    x, sets, _, priors = images(shape, rows=10)
    monkeypatch.setattr(held_out_score, "fit_learner", None)  # nothing is trained before it is said
    with pytest.raises(InputError, match=r"mlp.*resnet32.*module") as caught:
        UnmixClassifier(priors, model=model, method="ssc").fit(x, sets)
    assert model in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_network_for_images_sends_tables_to_the_others():
    x, sets, _ = drawn(SETS, 20)
    with pytest.raises(InputError, match=r"resnet32.*images.*linear, boosting, mlp") as caught:
        UnmixClassifier(as_priors(SETS), model="resnet32", method="ssc").fit(x, sets)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x.reshape(len(x), 1, 1, 8, 8), "5"),
        (lambda x: x[:0], "at least one"),
        (lambda x: np.where(x > 0.89, np.nan, x), "not finite"),
        (lambda x: x.astype(str), "numbers"),
    ],
    ids=["five dimensions", "none", "nan", "text"],
)
def test_images_that_are_none_are_refused_in_one_line(change, words):
    x, sets, _, priors = images((8, 8), rows=10)
    wrong = change(x)
    with pytest.raises(ValueError, match=words) as caught:
        UnmixClassifier(priors, model="mlp", method="ssc").fit(wrong, sets[: len(wrong)])
    assert "\n" not in str(caught.value)


def test_a_table_and_images_are_not_exchanged_after_training():
    x, sets, _, priors = images((8, 8))
    quick = {"model": "mlp", "method": "ssc", "epochs": 1, "hidden": (1, 4)}
    of_images = UnmixClassifier(priors, **quick).fit(x, sets)
    with pytest.raises(ValueError, match="images") as caught:
        of_images.predict(x.reshape(len(x), -1))
    assert "\n" not in str(caught.value)
    of_tables = UnmixClassifier(priors, **quick).fit(x.reshape(len(x), -1), sets)
    with pytest.raises(ValueError, match=r"must have shape \(n, d\); got \(400, 8, 8\)") as caught:
        of_tables.predict(x)
    assert "\n" not in str(caught.value)


# Only networks of a study asked whether the stated priors are right.


def noticing(model, stated, true):
    x, sets, _ = drawn(true, 400, apart=1.4)
    options = {"epochs": 15, "hidden": (2, 64)} if model == "mlp" else QUICK[model]
    return UnmixClassifier(
        as_priors(stated),
        model=model,
        method="ssc",
        prior_error="auto",
        hide_sets=False,
        random_state=0,
        **options,
    ).fit(x, sets)


@pytest.mark.parametrize("model", QUICK)
def test_right_priors_are_noticed_to_be_right(model):
    true = two_classes(np.linspace(0.1, 0.9, 20))
    clf = noticing(model, true, true)
    assert clf.noticed_error_ == 0
    assert clf.refined_ is False
    assert clf.set_priors_ == clf.stated_priors_


@pytest.mark.parametrize("model", QUICK)
def test_wrong_priors_are_noticed_and_mended(model):
    positives = np.linspace(0.1, 0.9, 20)
    signs = np.random.default_rng(0).choice([-0.2, 0.2], size=20)
    stated = np.clip(positives + signs, 0, 1)
    clf = noticing(model, two_classes(stated), two_classes(positives))
    assert 0.1 <= clf.noticed_error_ <= 0.3
    assert clf.refined_ is True
    found = np.array([*clf.set_priors_.values()])
    assert abs(found - positives).mean() < abs(stated - positives).mean() / 2


@pytest.mark.parametrize("model", QUICK)
def test_errors_that_came_with_the_priors_are_kept_when_auto_asks(model):
    true = two_classes(np.linspace(0.1, 0.9, 10))
    x, sets, _ = drawn(true, 200)
    errors = np.linspace(0.02, 0.1, 10)
    priors = Priors(tuple(range(10)), ClassShares(true[:, 1]), None, errors)
    options = {"model": model, "method": "ssc", "hide_sets": False, "random_state": 0}
    clf = UnmixClassifier(priors, prior_error="auto", **options, **QUICK[model]).fit(x, sets)
    assert clf.refined_ is True
    assert clf.prior_errors_.tolist() == errors.tolist()


def test_only_models_that_take_images_say_so():
    names = {"linear": False, "boosting": False, "mlp": True, "resnet32": True}
    assert {name: model_row(name).images for name in names} == names
