import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from test_estimator import label_shift
from unmix import UnmixClassifier
from unmix.learn import learners, sizing
from unmix.learn.recipes import RECIPES
from unmix.learn.sizing import is_large, recipe_for, small_network


def test_only_tables_of_millions_get_the_small_network():
    assert [is_large(n, "ssc") for n in (10, 1_999_999, 2_000_000)] == [False, False, True]
    assert not is_large(10**9, "proportion")
    assert [small_network(d)["width"] for d in (1, 20, 25, 100, 5000)] == [48, 48, 64, 208, 304]


def test_batches_and_epochs_go_with_the_rows():
    fast = RECIPES["fast"]
    sizes = [recipe_for(n, "ssc", 30, small=False).batch_size for n in (100, 6400, 10**6, 10**7)]
    assert sizes == [32, 100, 256, 1024]
    assert recipe_for(10**4, "proportion", 30, small=False).batch_size == 1024
    assert recipe_for(10**4, "ssc", 30, small=False).learning_rate == fast.learning_rate
    large = recipe_for(10**7, "ssc", 30, small=True)
    assert (large.batch_size, large.epochs) == (4096, 5)
    assert large.learning_rate > fast.learning_rate
    assert recipe_for(10**9, "ssc", 30, small=True).epochs == 1
    assert recipe_for(10**9, "ssc", 1, small=True).epochs == 1


@pytest.fixture
def recipes(monkeypatch):
    """Make a few hundred rows a large table, and note how networks are trained."""
    monkeypatch.setattr(sizing, "MANY_ROWS", 500)
    monkeypatch.setattr(sizing, "LARGE_BATCH", 128)
    used, train = [], learners.train
    monkeypatch.setattr(
        learners, "train", lambda *args, **kw: used.append(args[3]) or train(*args, **kw)
    )
    return used


def test_the_small_network_learns_and_can_be_saved(recipes, tmp_path):
    x, sets, labels, priors = label_shift(num_sets=6, rows=400)
    clf = UnmixClassifier(
        priors, target_prior=0.5, model="mlp", method="ssc", epochs=10, random_state=0
    ).fit(x, sets)
    assert recipes[-1].batch_size == 128
    module = clf.learner_.fit.module
    assert (module.width, module.depth, module.dropout) == (48, 2, 0.0)
    assert roc_auc_score(labels, clf.decision_function(x)) > 0.85
    clf.save(tmp_path / "model")
    again = UnmixClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(x), clf.decision_function(x))


def test_a_module_of_ones_own_is_trained_as_on_any_table(recipes):
    class Flat(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(5, 1)

        def forward(self, x):
            return self.inner(x)[:, 0]

    x, sets, _, priors = label_shift(num_sets=6, rows=400)
    UnmixClassifier(priors, model=Flat(), method="ssc", epochs=1, random_state=0).fit(x, sets)
    assert recipes[-1].learning_rate == RECIPES["fast"].learning_rate
