import copy
import functools
import json
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from test_estimator import label_shift
from unmix import UnmixClassifier
from unmix.errors import InputError
from unmix.files import sha256_of
from unmix.learn.saved import MANIFEST

GOLDEN = Path(__file__).parent / "golden"


@functools.lru_cache
def fitted(model="linear", **options):
    x, sets, _, priors = label_shift(num_sets=4, rows=80)
    x["colour"] = np.where(x["a"] > 0, "warm", "cold")
    clf = UnmixClassifier(
        priors, target_prior=0.3, model=model, method="ssc", epochs=3, random_state=0, **options
    )
    return clf.fit(x, sets), x


@pytest.mark.parametrize("model", ["linear", "boosting", "mlp"])
def test_a_model_comes_back_with_the_same_predictions(tmp_path, model):
    clf, x = fitted(model)
    clf = copy.copy(clf).retarget(0.2)
    clf.save(tmp_path / "model")
    back = UnmixClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(back.decision_function(x), clf.decision_function(x))
    np.testing.assert_array_equal(back.predict(x), clf.predict(x))
    assert back.set_priors_ == clf.set_priors_
    assert back.target_prior_.tolist() == clf.target_prior_.tolist()
    assert back.leave_sets_out_ == clf.leave_sets_out_
    assert back.retarget(0.5).predict_proba(x).shape == (len(x), 2)


def test_a_model_that_is_replaced_while_it_is_read_is_one_or_the_other(tmp_path):
    clf, _ = fitted()
    models = [copy.copy(clf).retarget(share) for share in (0.2, 0.4)]
    models[0].save(tmp_path / "model")
    done = threading.Event()

    def replace():
        for number in range(16):
            models[number % 2].save(tmp_path / "model", overwrite=True)
        done.set()

    writer = threading.Thread(target=replace)
    writer.start()
    found = []
    while not done.is_set():
        back = UnmixClassifier.load(tmp_path / "model")
        found.append(round(float(back.target_prior_[1]), 6))
    writer.join()
    assert set(found) == {0.2, 0.4}


def test_k_classes_and_labels_come_back(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    labels = np.array(["a", "b", "c"])[np.digitize(x[:, 0], [-0.5, 0.5])]
    clf = UnmixClassifier(random_state=0, model="linear").fit(x, labels)
    clf.save(tmp_path / "model")
    back = UnmixClassifier.load(tmp_path / "model")
    assert back.set_priors is None
    assert back.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(back.predict(x), clf.predict(x))
    assert back.score(x, labels) == pytest.approx(clf.score(x, labels))


def test_refined_priors_come_back(tmp_path):
    clf, _ = fitted(prior_error=0.1)
    clf.save(tmp_path / "model")
    back = UnmixClassifier.load(tmp_path / "model")
    assert back.set_priors_ == clf.set_priors_
    assert back.stated_priors_ == clf.stated_priors_
    assert back.prior_errors_.tolist() == [0.1] * 4


def test_no_file_is_a_pickle(tmp_path):
    clf, _ = fitted()
    clf.save(tmp_path / "model")
    names = sorted(p.name for p in (tmp_path / "model").iterdir())
    assert names == ["README.md", "manifest.json", "model.json", "weights.safetensors"]


def test_a_folder_is_not_overwritten_unless_asked(tmp_path):
    clf, _ = fitted()
    clf.save(tmp_path / "model")
    with pytest.raises(InputError, match="model"):
        clf.save(tmp_path / "model")
    copy.copy(clf).retarget(0.9).save(tmp_path / "model", overwrite=True)
    assert UnmixClassifier.load(tmp_path / "model").target_prior_[1] == pytest.approx(0.9)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def grow(path):
    with path.open("ab") as f:
        f.write(b" ")


def edit(**changes):
    def change(path):
        manifest = json.loads(path.read_text())
        path.write_text(json.dumps(manifest | changes))

    return change


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("weights.safetensors", flip, "changed or cut short"),
        ("weights.safetensors", cut, "changed or cut short"),
        ("model.json", flip, "changed or cut short"),
        ("model.json", grow, "changed or cut short"),
        ("model.json", Path.unlink, "is missing"),
        (MANIFEST, Path.unlink, "no manifest.json"),
        (MANIFEST, cut, "damaged"),
        (MANIFEST, edit(version=2), "version 2"),
        (MANIFEST, edit(format="pickle"), "format 'pickle'"),
        (MANIFEST, edit(files={"../../etc/passwd": {"bytes": 1, "sha256": ""}}), "unknown file"),
        (MANIFEST, edit(files={"model.json": {"bytes": 2**40, "sha256": ""}}), "too large"),
        (MANIFEST, lambda p: p.write_bytes(b" " * 2**17), "too large to be a manifest"),
    ],
)
def test_damage_is_refused_by_name(tmp_path, name, damage, words):
    clf, _ = fitted()
    folder = tmp_path / "model"
    clf.save(folder)
    damage(folder / name)
    with pytest.raises(InputError, match=words):
        UnmixClassifier.load(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"model": "unknown"},
        {"set_ids": ["only one"]},
        {"encoder": {}},
        {"fit": {"os": "system"}},
        {"target_prior": "none"},
    ],
)
def test_contents_that_make_no_sense_are_refused(tmp_path, change):
    folder = changed(tmp_path / "model", lambda state: state | change)
    with pytest.raises(InputError):
        UnmixClassifier.load(folder).predict(pd.DataFrame())


def changed(folder, change):
    """Return a folder with a model whose description was changed by someone who knows hashes."""
    fitted()[0].save(folder)
    path = folder / "model.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"]["model.json"] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return folder


def test_a_folder_without_the_arguments_of_later_versions_loads_with_their_defaults(tmp_path):
    def earlier(state):
        for name in ("engine", "keep_split"):
            del state["parameters"][name]
        return state

    back = UnmixClassifier.load(changed(tmp_path / "model", earlier))
    assert (back.engine, back.keep_split) == (None, False)


@pytest.mark.parametrize("model", ["linear", "boosting", "mlp"])
def test_the_golden_folders_of_version_0_1_load_and_predict_the_same(model):
    # It was written before hidden layers could be chosen, and does not say which it has.
    clf = UnmixClassifier.load(GOLDEN / model)
    expected = json.loads((GOLDEN / f"{model}.json").read_text())
    got = clf.decision_function(pd.DataFrame(expected["rows"]))
    np.testing.assert_allclose(got, expected["logits"], rtol=1e-5, atol=1e-5)


def test_a_folder_that_holds_more_than_a_model_is_not_overwritten(tmp_path):
    clf, _ = fitted()
    folder = tmp_path / "model"
    clf.save(folder)
    for name in ("report.html", "README.md"):  # a fit writes them for people
        (folder / name).write_text("")
    clf.save(folder, overwrite=True)
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"it holds 'thesis.tex' besides the model; move that"):
        clf.save(folder, overwrite=True)
    assert (folder / "thesis.tex").read_text() == "years of work"
    assert UnmixClassifier.load(folder).set_priors_ == clf.set_priors_


@pytest.mark.parametrize("name", ["report.html", MANIFEST, "model.json"])
def test_a_folder_without_a_manifest_of_ours_is_not_overwritten(tmp_path, name):
    clf, _ = fitted()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / name).write_text('{"format": "something else"}')
    with pytest.raises(InputError, match=r"will not overwrite the folder .* it is no model"):
        clf.save(tmp_path / "model", overwrite=True)
    assert [p.name for p in (tmp_path / "model").iterdir()] == [name]
