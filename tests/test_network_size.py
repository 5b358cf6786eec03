from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from test_estimator import label_shift
from unmix import UnmixClassifier
from unmix.errors import InputError
from unmix.learn import network_models, recipes
from unmix.learn.methods import METHODS
from unmix.learn.recipes import RECIPES, check_hidden, hidden_for, recipe_for


def test_only_tables_of_millions_get_the_small_network():
    assert [hidden_for(n, 20) for n in (10, 1_999_999, 2_000_000)] == [(3, 300), (3, 300), (2, 48)]
    assert [hidden_for(10**7, d)[1] for d in (1, 20, 25, 100, 5000)] == [48, 48, 64, 208, 304]


class Table(SimpleNamespace):
    """Only how many rows there are, and how many in each set, is looked at."""

    set_priors = SimpleNamespace(precision=None)

    def __len__(self):
        return self.rows

    @property
    def set_sizes(self):
        return np.full(self.num_sets, self.rows // self.num_sets)


def recipe(rows, method="ssc", epochs=30, *, fast=False, num_sets=2):
    return recipe_for(Table(rows=rows, num_sets=num_sets), METHODS[method], epochs, fast=fast)


def test_batches_and_epochs_go_with_the_rows():
    fast = RECIPES["fast"]
    assert [recipe(n).batch_size for n in (100, 6400, 10**6, 10**7)] == [32, 100, 256, 1024]
    assert recipe(10**4).learning_rate == fast.learning_rate
    large = recipe(10**7, fast=True)
    assert (large.batch_size, large.epochs) == (8192, 5)
    assert large.learning_rate > fast.learning_rate
    assert recipe(3 * 10**6, epochs=1, fast=True).batch_size == 500  # few rows, many steps
    assert recipe(10**9, fast=True).epochs == 1
    assert recipe(10**7, "proportion", fast=True).learning_rate == fast.learning_rate


def test_batches_of_methods_that_match_shares_hold_whole_sets_if_these_are_small():
    sizes = [recipe(10**4, "proportion", num_sets=m).batch_size for m in (2, 100, 300, 1000)]
    assert sizes == [1024, 800, 264, 256]


@pytest.mark.parametrize(
    "hidden", [(0, 5), (2,), (2, 3, 4), "25", 7, (2, 10**6), (1.5, 20), (2, float("inf"))]
)
def test_what_is_no_number_of_layers_and_units_is_refused(hidden):
    with pytest.raises(InputError, match=r"hidden must be \(layers, units\)"):
        check_hidden(hidden, "mlp")


def test_hidden_layers_are_for_the_mlp():
    x, sets, _, priors = label_shift(num_sets=4, rows=50)
    with pytest.raises(InputError, match="hidden is for model 'mlp'; the model is 'auto'"):
        UnmixClassifier(priors, hidden=(2, 8)).fit(x, sets)


@pytest.fixture
def recipes_used(monkeypatch):
    """Make a few hundred rows a large table, and note how networks are trained."""
    monkeypatch.setattr(recipes, "MANY_ROWS", 500)
    monkeypatch.setattr(recipes, "LARGE_BATCH", 128)
    used, train = [], network_models.train_in_stages
    monkeypatch.setattr(
        network_models,
        "train_in_stages",
        lambda *args, **kw: used.append(args[3]) or train(*args, **kw),
    )
    return used


@pytest.mark.parametrize(("hidden", "expected"), [(None, (2, 48)), (np.array([1, 20]), (1, 20))])
def test_the_small_network_learns_and_can_be_saved(recipes_used, tmp_path, hidden, expected):
    x, sets, labels, priors = label_shift(num_sets=6, rows=400)
    clf = UnmixClassifier(
        priors,
        target_prior=0.5,
        model="mlp",
        method="ssc",
        epochs=10,
        hidden=hidden,
        random_state=0,
    ).fit(x, sets)
    assert recipes_used[-1].learning_rate == recipes.LARGE_RATE
    module = clf.learner_.fit.module
    assert (module.depth, module.width, module.dropout) == (*expected, 0.0)
    assert roc_auc_score(labels, clf.decision_function(x)) > 0.85
    clf.save(tmp_path / "model")
    again = UnmixClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(x), clf.decision_function(x))
    asked = None if hidden is None else expected
    assert again.hidden == asked  # what was asked for, so that another fit asks again
    assert again.learner_.fit.module.width == expected[1]


def test_a_small_table_keeps_the_papers_network_unless_told():
    x, sets, _, priors = label_shift(num_sets=6, rows=100)
    options = {"model": "mlp", "method": "ssc", "epochs": 1, "random_state": 0}
    paper = UnmixClassifier(priors, **options).fit(x, sets).learner_.fit.module
    told = UnmixClassifier(priors, hidden=(2, 8), **options).fit(x, sets).learner_.fit.module
    assert (paper.depth, paper.width, paper.dropout) == (3, 300, 0.2)
    assert (told.depth, told.width, told.dropout) == (2, 8, 0.2)


def test_a_module_of_ones_own_is_trained_as_on_any_table(recipes_used):
    class Flat(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(5, 1)

        def forward(self, x):
            return self.inner(x)[:, 0]

    x, sets, _, priors = label_shift(num_sets=6, rows=400)
    UnmixClassifier(priors, model=Flat(), method="ssc", epochs=1, random_state=0).fit(x, sets)
    assert recipes_used[-1].learning_rate == RECIPES["fast"].learning_rate
