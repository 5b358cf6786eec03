"""Every model learns by every method that it takes, with two and three classes, and says which
it does not take. Each pair is fitted once for each of the tests below.
"""

import re
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from unmix import UnmixClassifier
from unmix.core.assumptions import COVARIATE_SHIFT
from unmix.errors import InputError
from unmix.learn.methods import METHODS
from unmix.learn.models import MODELS, model_row

CENTRES = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
NETWORK = "module"
KINDS = ("linear", "boosting", "mlp", NETWORK)
TWO_SETS = tuple(name for name in METHODS if name.startswith("u2"))
PAIRS_OF_SETS = (*TWO_SETS, *(name for name in METHODS if name.startswith("mmc")))
PENALISED = tuple(name for name, row in METHODS.items() if row.penalty)


class OwnNetwork(nn.Module):
    """A network of the user's own: logits (n,) for two classes, else (n, K)."""

    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 32), nn.ReLU())
        self.head = nn.Linear(32, 1 if classes == 2 else classes)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(-1)


def own_network(classes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return OwnNetwork(classes)


def shares_of_sets(num_sets, classes):
    """Return the shares (m, K) of sets that tell the classes apart."""
    if classes == 2:
        positives = np.linspace(0.1, 0.9, num_sets)
        return np.stack((1 - positives, positives), axis=1)
    return np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]])


@cache
def label_shift(num_sets, classes, seed):
    """Gaussians that all sets share; returns x, set ids, labels, shares by set."""
    rng = np.random.default_rng(seed)
    theta = shares_of_sets(num_sets, classes)
    index = np.repeat(np.arange(len(theta)), 400 // len(theta))
    labels = (rng.random(len(index))[:, None] > theta[index].cumsum(axis=1)).sum(axis=1)
    x = CENTRES[labels] + rng.normal(size=(len(index), 2))
    return x, index, labels, theta


@cache
def covariate_shift(classes, seed):
    """Sets lie in different places and share p(class | x); their shares are those of their rows."""
    rng = np.random.default_rng(seed)
    num_sets, rows = 24, 30
    places = np.random.default_rng(0).uniform(-2, 2, size=(num_sets, 2))
    index = np.repeat(np.arange(num_sets), rows)
    x = places[index] + rng.normal(size=(len(index), 2))
    logits = 4 * np.stack((-x[:, 0], x[:, 0], 1.5 * x[:, 1]), axis=1)[:, :classes]
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    theta = np.stack([np.bincount(index, labels == k) / rows for k in range(classes)], axis=1)
    return x, index, labels, theta


@cache
def small_sets(classes, seed):
    """The same Gaussians in sets of ten rows, of which the shares are exact counts."""
    of_sets, rng = np.random.default_rng(0), np.random.default_rng(seed)
    counts = of_sets.multinomial(10, of_sets.dirichlet(np.ones(classes), size=40))  # (m, K)
    labels = np.concatenate([np.repeat(np.arange(classes), row) for row in counts])
    x = CENTRES[labels] + rng.normal(size=(len(labels), 2))
    return x, np.repeat(np.arange(len(counts)), 10), labels, counts / 10


def data_for(method, classes, seed=0):
    """Return x, set ids, labels, shares by set, of a kind that the method can learn from."""
    row = METHODS[method]
    if row.assumption is COVARIATE_SHIFT:
        return covariate_shift(classes, seed)
    if row.labeled:
        x, _, labels, _ = label_shift(4, classes, seed)
        return x, labels, labels, np.eye(classes)
    if row.batch_by != "rows":  # a method for many small sets
        return small_sets(classes, seed)
    return label_shift(2 if method in TWO_SETS else 4, classes, seed)


def classes_of(method):
    return (2,) if method in PAIRS_OF_SETS else (2, 3)


def takes(kind, method):
    row = model_row(own_network(2) if kind == NETWORK else kind)
    return row.refuse(METHODS[method]) is None


CASES = [
    (kind, method, classes, error)
    for kind in KINDS
    for method in METHODS
    if takes(kind, method)
    for classes in classes_of(method)
    for error in (None, 0.1)
    if not (error and METHODS[method].labeled)
]
by_case = pytest.mark.parametrize(
    "case", CASES, ids=lambda c: f"{c[0]}-{c[1]}-{c[2]}{'-errors' if c[3] else ''}"
)


def epochs_of(kind, method):
    """Return enough epochs for a few hundred rows; batches of sets make few steps of each."""
    if kind in ("linear", "boosting"):
        return None
    return 120 if method.batch_by != "rows" else 30 if method.penalty else 40


def unfitted(kind, method, classes, error):
    theta = data_for(method, classes)[3]
    priors = {j: dict(enumerate(shares)) for j, shares in enumerate(theta.tolist())}
    if classes == 2:
        priors = {j: shares[1] for j, shares in priors.items()}
    return UnmixClassifier(
        None if METHODS[method].labeled else priors,
        method=method,
        model=own_network(classes) if kind == NETWORK else kind,
        prior_error=error,
        hidden=(1, 32) if kind == "mlp" else None,
        epochs=epochs_of(kind, METHODS[method]),
        l2=1e-3 if kind == "linear" else None,
        hide_sets=False,
        random_state=0,
    )


@cache
def fitted(case):
    x, sets, _, _ = data_for(case[1], case[2])
    return unfitted(*case).fit(x, sets)


@by_case
def test_each_pair_learns_the_classes(case):
    _, method, classes, _ = case
    clf, (x, _, labels, _) = fitted(case), data_for(method, classes, seed=1)
    logits, probability = clf.decision_function(x), clf.predict_proba(x)
    assert np.isfinite(logits).all()
    assert logits.shape == ((len(x),) if classes == 2 else (len(x), classes))
    assert probability.shape == (len(x), classes)
    assert probability.sum(axis=1) == pytest.approx(1)
    assert (probability >= 0).all()
    assert (clf.classes_[probability.argmax(axis=1)] == clf.predict(x)).all()
    chance = np.bincount(labels).max() / len(labels)
    accuracy = (clf.predict(x) == labels).mean()
    # The Gaussians can be told apart in 93 and 88 % of the rows.
    least = {2: 0.88, 3: 0.82}[classes]
    if METHODS[method].assumption is COVARIATE_SHIFT:
        least = chance + (1 - chance) / 3
    assert accuracy > least, f"{accuracy:.2f}, chance {chance:.2f}"


@by_case
def test_shares_are_refined_exactly_when_the_method_can_and_they_have_errors(case):
    _, method, _, error = case
    clf = fitted(case)
    assert clf.refined_ is (METHODS[method].refines and error is not None)
    stated, used = np.stack([*clf.stated_priors_.values()]), np.stack([*clf.set_priors_.values()])
    assert (abs(stated - used).max() > 1e-6) == clf.refined_
    assert abs(stated - used).max() < 0.2


@by_case
def test_each_pair_comes_back_from_a_folder(case, tmp_path):
    kind, method, classes, _ = case
    clf, (x, _, _, _) = fitted(case), data_for(method, classes, seed=1)
    clf.save(tmp_path / "model")
    own = clf.model if kind == NETWORK else None
    loaded = UnmixClassifier.load(tmp_path / "model", module=own)
    assert (loaded.predict_proba(x) == clf.predict_proba(x)).all()
    assert (loaded.method_, loaded.model_, loaded.refined_) == (method, kind, clf.refined_)


@by_case
def test_each_pair_is_judged_without_labels(case):
    _, method, classes, _ = case
    clf, (x, sets, labels, theta) = fitted(case), data_for(method, classes, seed=1)
    told = clf.evaluate(x, sets, labels=labels)
    if METHODS[method].assumption.set_posterior:
        # At the target prior, which is near the shares of these rows.
        assert told.accuracy.value == pytest.approx((clf.predict(x) == labels).mean(), abs=0.08)
    shares = {entry.set_id: entry.share for entry in clf.prevalence(x, sets).sets}
    found = np.array([shares[str(j)] for j in range(len(theta))])
    stated = theta[:, 1] if classes == 2 else theta
    # A timid network of a few epochs puts shares too far out, in the right order.
    assert np.corrcoef(found.ravel(), stated.ravel())[0, 1] > 0.85
    assert clf.diagnose().num_sets == len(theta)
    assert clf.diagnose().num_rows == len(data_for(method, classes)[0])


REPORTED = [
    (kind, method, classes_of(method)[-1], None if METHODS[method].labeled else 0.1)
    for kind in KINDS
    for method in METHODS
    if takes(kind, method)
]


@pytest.mark.parametrize("case", REPORTED, ids=lambda c: f"{c[0]}-{c[1]}")
def test_each_pair_is_reported(case, tmp_path):
    kind, method, classes, error = case
    clf, (x, sets, _, _) = fitted(case), data_for(method, classes, seed=1)
    page = clf.report(tmp_path / "report.html", x, sets).read_text()
    assert method in page
    assert kind in page
    assert ("estimated along with the model" in page) == clf.refined_
    assert ("does not estimate them" in page) == (error is not None and not clf.refined_)


REFUSED = [(kind, method) for kind in KINDS for method in METHODS if not takes(kind, method)]


def test_networks_take_every_method_and_others_what_their_rows_say():
    assert {m for k, m in REFUSED if k == "linear"} == set(PENALISED)
    assert {m for k, m in REFUSED if k == "boosting"} == {
        name for name, row in METHODS.items() if row.information is None
    }
    assert not {k for k, _ in REFUSED} & {"mlp", NETWORK}
    assert {*KINDS, "resnet32"} == {*MODELS, NETWORK}  # resnet32 takes images only


@pytest.mark.parametrize(("kind", "method"), REFUSED)
def test_what_a_model_refuses_it_says_in_one_line_with_what_to_use(kind, method):
    x, sets, _, _ = data_for(method, 2)
    with pytest.raises(InputError) as caught:
        unfitted(kind, method, 2, None).fit(x, sets)
    message = str(caught.value)
    assert "\n" not in message
    instead = re.search(r"use model (.+) with method", message)[1].split(" or ")
    assert instead == [k for k in KINDS if k != NETWORK and takes(k, method)]


@pytest.mark.parametrize("kind", ["linear", "mlp", NETWORK])
@pytest.mark.parametrize("method", TWO_SETS)
def test_two_set_methods_send_more_sets_to_the_methods_of_pairs(kind, method):
    x, sets, _, theta = label_shift(4, 2, 0)
    clf = unfitted(kind, method, 2, None).set_params(set_priors=dict(enumerate(theta[:, 1])))
    with pytest.raises(InputError, match=r"exactly 2 sets; got 4. The MMC methods") as caught:
        clf.fit(x, sets)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["linear", "mlp", NETWORK])
@pytest.mark.parametrize("method", [m for m in PAIRS_OF_SETS if m not in TWO_SETS])
def test_methods_of_pairs_send_three_classes_to_ssc(kind, method):
    x, sets, _, _ = label_shift(4, 3, 0)
    with pytest.raises(InputError, match="two classes; use ssc for more") as caught:
        unfitted(kind, method, 3, None).fit(x, sets)
    assert "\n" not in str(caught.value)


def test_a_network_that_cannot_be_calibrated_is_told_how_it_can():
    x, sets, _, _ = label_shift(4, 2, 0)
    nameless = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    clf = unfitted(NETWORK, "ssc-vat", 2, None).set_params(model=nameless)
    with pytest.raises(
        InputError, match="Sequential has none; name it so, or use method"
    ) as caught:
        clf.fit(x, sets)
    assert "\n" not in str(caught.value)


def test_the_method_for_labels_takes_labels_and_nothing_else():
    x, sets, labels, theta = label_shift(4, 2, 0)
    clf = UnmixClassifier(method="supervised", model="linear").fit(x, labels)
    assert clf.method_ == "supervised"
    with pytest.raises(InputError, match="leave set_priors out"):
        clf.set_params(set_priors=dict(enumerate(theta[:, 1]))).fit(x, sets)
    with pytest.raises(InputError, match="'proportion' needs set_priors"):
        UnmixClassifier(method="proportion", model="linear").fit(x, labels)
