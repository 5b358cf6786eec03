import itertools

import numpy as np
import pytest
import torch
from scipy.stats import binom, hypergeom
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

import reference_counts
from unmix import UnmixClassifier
from unmix.core.risks import ssc_risk
from unmix.core.set_risks import CountRisk
from unmix.core.transition import Transition
from unmix.data.batching import batch_edges, row_order
from unmix.errors import InputError


def small_sets(num_classes=2, sizes=(3, 5, 1, 4), seed=0):
    """Sets with exact counts: rows of each, set index, class counts (m, K)."""
    rng = np.random.default_rng(seed)
    counts = np.stack([rng.multinomial(n, rng.dirichlet(np.ones(num_classes))) for n in sizes])
    set_index = np.repeat(np.arange(len(sizes)), sizes)
    logits = 2 * rng.normal(size=(len(set_index), num_classes))
    logits = logits[:, 1] if num_classes == 2 else logits
    return np.array(sizes), set_index, counts, logits


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_risk_of_whole_sets_is_the_probability_of_their_counts(num_classes):
    sizes, set_index, counts, logits = small_sets(num_classes)
    risk = CountRisk(Transition(counts / sizes[:, None], sizes, scoring=True))
    value, _ = risk.value_and_gradient(logits, set_index)
    stated = counts[:, 1] if num_classes == 2 else counts
    literal = {
        2: reference_counts.poisson_binomial,
        3: reference_counts.class_count_likelihood,
    }[num_classes]
    expected = sum(-np.log(literal(logits[set_index == j], stated[j])) for j in range(len(sizes)))
    assert value == pytest.approx(expected / len(set_index), rel=1e-10)


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("part", ["whole", "some rows"])
def test_gradients_equal_finite_differences(num_classes, part):
    sizes, set_index, counts, logits = small_sets(num_classes, sizes=(6, 9, 5, 8))
    risk = CountRisk(Transition(counts / sizes[:, None], sizes, scoring=True))
    if part == "some rows":
        kept = np.random.default_rng(1).random(len(set_index)) < 0.6
        set_index, logits = set_index[kept], logits[kept]
    z = torch.from_numpy(logits).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: risk(x, torch.from_numpy(set_index)), z, atol=1e-6)
    _, gradient = risk.value_and_gradient(logits, set_index)
    rows = risk.row_gradients(logits, set_index)
    np.testing.assert_allclose(rows, len(logits) * gradient)
    assert (risk.row_information(logits, set_index) > 0).all()


def test_some_rows_of_a_set_tell_what_a_draw_from_it_would():
    # 40 of 100 rows: their count is hypergeometric, and under label shift the pooled prior's
    # binomial is divided out. Two normal laws stand in for both.
    rng = np.random.default_rng(0)
    share, pooled, drawn, whole = 0.7, 0.5, 40, 100
    transition = Transition([share, 2 * pooled - share], [whole, whole])
    risk = CountRisk(transition)
    z = rng.normal(size=drawn)

    def literal(logits):
        k = np.arange(drawn + 1)
        each = [reference_counts.recursion(logits, c) for c in k]
        weights = hypergeom.pmf(k, whole, whole * share, drawn) / binom.pmf(k, drawn, pooled)
        return -np.log(np.sum(weights * each))

    _, gradient = risk.value_and_gradient(z, np.zeros(drawn, dtype=int))
    step = 1e-5 * np.eye(drawn)
    expected = np.array([(literal(z + e) - literal(z - e)) / 2e-5 for e in step]) / drawn
    assert np.linalg.norm(gradient - expected) < 0.05 * np.linalg.norm(expected)


def test_a_rate_of_a_population_teaches_what_ssc_does():
    rng = np.random.default_rng(0)
    shares, sizes = np.array([0.2137, 0.4519, 0.7753]), np.array([60, 50, 70])
    set_index = np.repeat(np.arange(3), sizes)
    logits = rng.normal(size=len(set_index))
    transition = Transition(shares, sizes)  # the pooled prior is the target
    z, index = torch.from_numpy(logits).requires_grad_(), torch.from_numpy(set_index)
    (expected,) = torch.autograd.grad(ssc_risk(transition)(z, index), z)
    _, gradient = CountRisk(transition).value_and_gradient(logits, set_index)
    assert np.corrcoef(gradient, expected)[0, 1] > 0.99


def test_the_number_of_rows_must_be_known():
    with pytest.raises(InputError, match="needs its number of rows"):
        CountRisk(Transition([0.2, 0.8]))


@pytest.mark.parametrize(("size", "batch"), [(8, 64), (32, 256), (30, 64), (7, 20)])
def test_batches_of_whole_sets_cut_none(size, batch):
    set_index = np.repeat(np.arange(50), size)
    order = row_order(set_index, batch, np.random.default_rng(0), by="whole sets")
    assert sorted(order.tolist()) == list(range(len(set_index)))
    batches = -(-len(order) // batch)
    edges = batch_edges(set_index[order], batches, by="whole sets")
    assert (edges[0], edges[-1]) == (0, len(order))
    counts = [
        np.bincount(set_index[order[a:b]], minlength=50) for a, b in itertools.pairwise(edges)
    ]
    assert set(np.unique(counts)) == {0, size}
    assert min(np.diff(edges)) >= size


def test_sets_larger_than_a_batch_come_in_pieces_and_batches_hold_several():
    set_index = np.repeat(np.arange(6), 1000)
    order = row_order(set_index, 256, np.random.default_rng(0), by="whole sets")
    edges = batch_edges(set_index[order], 24, by="whole sets")
    for a, b in itertools.pairwise(edges):
        assert len(np.unique(set_index[order[a:b]])) > 1
        assert 200 < b - a < 320


@pytest.mark.parametrize("model", ["linear", "boosting", "mlp"])
def test_exact_counts_of_small_random_sets_teach_more_than_their_rates(model):
    x, labels = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    order = np.random.default_rng(0).permutation(len(x))
    x, labels = x[order], labels[order]
    train, sets = slice(0, 400), np.arange(400) // 8
    priors = dict(enumerate(np.bincount(sets, labels[train]) / 8))
    auc = {}
    for method in ("ssc", "count"):
        clf = UnmixClassifier(
            priors, model=model, method=method, epochs=40, hide_sets=False, random_state=0
        )
        clf.fit(x[train], sets)
        auc[method] = roc_auc_score(labels[400:], clf.decision_function(x[400:]))
    assert auc["count"] > 0.97
    assert auc["count"] > auc["ssc"] - 0.005
