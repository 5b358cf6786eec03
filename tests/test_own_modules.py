"""Torch modules of one's own in saved models: named by their class, never imported."""

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

from test_estimator import label_shift
from unmix import UnmixClassifier, register_module
from unmix.errors import InputError
from unmix.files import sha256_of
from unmix.learn.own_modules import MODULES
from unmix.learn.saved import MANIFEST


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 1)
        self.norm = nn.BatchNorm1d(5)  # it counts batches: a whole number among the weights

    def forward(self, x):
        return self.inner(self.norm(x))[:, 0]


class Wide(nn.Module):
    def __init__(self, units, *, outputs=1):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, units), nn.ReLU(), nn.Linear(units, outputs))
        self.module_args = {"units": units, "outputs": outputs}

    def forward(self, x):
        return self.layers(x).squeeze(-1)


@pytest.fixture(autouse=True)
def _fresh_registry():
    before = dict(MODULES)
    MODULES.clear()
    yield
    MODULES.clear()
    MODULES.update(before)


def fitted(module):
    x, sets, _, priors = label_shift(num_sets=4, rows=80)
    clf = UnmixClassifier(
        priors, target_prior=0.3, model=module, method="ssc", epochs=2, random_state=0
    )
    return clf.fit(x, sets), x, sets


def edited(folder, change):
    """Change model.json as somebody would who can write the folder."""
    path = folder / "model.json"
    state = json.loads(path.read_text())
    change(state)
    path.write_text(json.dumps(state))
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"]["model.json"] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(("made", "given"), [(Line(), Line), (Wide(8), Wide), (Wide(8), Wide(8))])
def test_a_module_comes_back_by_its_class_or_an_instance(tmp_path, made, given):
    clf, x, sets = fitted(made)
    clf.save(tmp_path / "model")
    back = UnmixClassifier.load(tmp_path / "model", module=given)
    np.testing.assert_array_equal(back.decision_function(x), clf.decision_function(x))
    assert type(back.model) is type(made)
    again = back.fit(x, sets)  # with all that the constructor was given
    assert again.predict_proba(x).shape == (len(x), 2)
    again.save(tmp_path / "again")
    saved = UnmixClassifier.load(tmp_path / "again", module=given)
    np.testing.assert_array_equal(saved.decision_function(x), again.decision_function(x))


def test_a_registered_class_needs_not_be_passed(tmp_path):
    assert register_module(Wide) is Wide
    clf, x, _ = fitted(Wide(6))
    clf.save(tmp_path / "model")
    back = UnmixClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(back.decision_function(x), clf.decision_function(x))


def test_no_file_is_a_pickle_and_tied_weights_are_kept(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(5, 5)
            self.second = nn.Linear(5, 5)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x).relu()).sum(dim=1)

    clf, x, _ = fitted(Tied())
    clf.save(tmp_path / "model")
    names = sorted(p.name for p in (tmp_path / "model").iterdir())
    assert names == ["README.md", "manifest.json", "model.json", "weights.safetensors"]
    back = UnmixClassifier.load(tmp_path / "model", module=Tied)
    np.testing.assert_array_equal(back.decision_function(x), clf.decision_function(x))


def test_a_folder_cannot_make_unmix_import_or_call_what_it_names(tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text("raise SystemExit('run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    clf, _, _ = fitted(Line())
    clf.save(tmp_path / "model")

    def name_a_stranger(state):
        state["fit"]["module"] = {"class": "Evil", "source": "stranger", "arguments": {}}

    edited(tmp_path / "model", name_a_stranger)
    with pytest.raises(InputError, match=r"Evil of your own \(from stranger\)"):
        UnmixClassifier.load(tmp_path / "model")
    with pytest.raises(InputError, match="saved with the module Evil; got Line"):
        UnmixClassifier.load(tmp_path / "model", module=Line)
    assert "stranger" not in sys.modules


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, r"load\(folder, module=Wide\), or register it"),
        (Line, "saved with the module Wide; got Line"),
        (Line(), "saved with the module Wide; got Line"),
        ("test_own_modules.Wide", "must be a class of torch modules"),
        (dict, "must be a class of torch modules"),
        (Wide(9), "not those of this Wide .*size mismatch"),
    ],
)
def test_what_cannot_be_the_module_is_refused_in_one_line(tmp_path, given, words):
    clf, _, _ = fitted(Wide(8))
    clf.save(tmp_path / "model")
    with pytest.raises(InputError, match=words) as caught:
        UnmixClassifier.load(tmp_path / "model", module=given)
    assert "\n" not in str(caught.value)


def test_arguments_that_are_not_told_are_asked_for(tmp_path):
    class Silent(Wide):
        def __init__(self, units):
            super().__init__(units)
            del self.module_args

    clf, x, _ = fitted(Silent(4))
    clf.save(tmp_path / "model")
    with pytest.raises(InputError, match=r"keep the arguments .* in its attribute module_args"):
        UnmixClassifier.load(tmp_path / "model", module=Silent)
    back = UnmixClassifier.load(tmp_path / "model", module=Silent(4))
    np.testing.assert_array_equal(back.decision_function(x), clf.decision_function(x))


@pytest.mark.parametrize("arguments", [{"units": torch.ones(2)}, [8], {"units": float("nan")}])
def test_arguments_that_are_no_json_are_refused_before_anything_is_written(tmp_path, arguments):
    module = Wide(8)
    module.module_args = arguments
    clf, _, _ = fitted(module)
    with pytest.raises(InputError, match="module_args of Wide must be a dict"):
        clf.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_module_for_a_model_that_is_none_is_refused(tmp_path):
    clf, _, _ = fitted("linear")
    clf.save(tmp_path / "model")
    with pytest.raises(InputError, match="this is a linear model"):
        UnmixClassifier.load(tmp_path / "model", module=Line)


def test_only_classes_of_modules_are_registered():
    with pytest.raises(InputError, match="takes a class of torch modules"):
        register_module(Line())
