"""Once a model is judged by rows held out, it is fitted again to all rows."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.base import clone

from unmix import InputError, UnmixClassifier
from unmix.cli import main
from unmix.data.sets import held_out_rows
from unmix.learn import estimator
from unmix.learn.models import fit_learner

SHARES = {"north": 0.8, "east": 0.6, "south": 0.2, "west": 0.35, "mid": 0.5, "isle": 0.1}
MODELS = {
    "linear": {"model": "linear", "method": "ssc"},
    "boosting": {"model": "boosting", "method": "ssc"},
    "mlp": {"model": "mlp", "method": "ssc", "epochs": 3, "hidden": (1, 8)},
}


def people(rows=60, seed=0):
    """Return rows of a table and the set of each."""
    rng = np.random.default_rng(seed)
    sets = np.repeat(list(SHARES), rows)
    positive = rng.random(len(sets)) < [SHARES[name] for name in sets]
    x = rng.normal(size=(len(sets), 3)) + 1.5 * positive[:, None]
    return pd.DataFrame(x, columns=["a", "b", "c"]), pd.Series(sets, name="region")


def held_out(sets, share=0.25, seed=3):
    """Return which rows `fit` holds out with this seed."""
    index = pd.Series(sets).map({name: j for j, name in enumerate(SHARES)}).to_numpy()
    return held_out_rows(index, share, np.random.default_rng([seed, 7]))


def fitted(x, sets, **options):
    options = {"hide_sets": False, "held_out": 0.25, "random_state": 3} | options
    return UnmixClassifier(SHARES, **options).fit(x, sets)


@pytest.fixture
def files(tmp_path):
    x, sets = people()
    x.assign(region=sets).to_parquet(tmp_path / "rows.parquet")
    pd.Series(SHARES, name="share").rename_axis("region").to_csv(tmp_path / "rates.csv")
    return tmp_path


def fit(files, name, *options):
    """Return what `unmix fit --json` says, and the classifier it wrote."""
    command = ["fit", str(files / "rows.parquet"), "--sets", "region", "--seed", "3", "--json"]
    command += ["--priors", str(files / "rates.csv"), "-o", str(files / name), "--no-hide-sets"]
    command += ["--model", "linear", "--method", "ssc", "--held-out", "0.25", *options]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), UnmixClassifier.load(files / name)


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_rows_held_out_change_the_model_that_is_kept_and_not_the_one_that_is_judged(options):
    x, sets = people()
    other = x.copy()
    other[held_out(sets)] *= 0.5
    split, all_rows = ([fitted(of, sets, keep_split=k, **options) for of in (x, other)] for k in
                       (True, False))  # fmt: skip
    first, second = (clf.decision_function(x) for clf in split)
    np.testing.assert_array_equal(first, second)
    first, second = (clf.decision_function(x) for clf in all_rows)
    assert abs(first - second).max() > 0.01
    assert [clf.fitted_again_ for clf in (split[0], all_rows[0])] == [False, True]
    assert split[0].set_sizes_.sum() == 270
    assert all_rows[0].set_sizes_.sum() == 360


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_the_judgement_is_that_of_the_split_and_one_sentence_says_so(options):
    x, sets = people()
    split, again = (fitted(x, sets, keep_split=k, **options).judge() for k in (True, False))
    sentence = again.sentences[-1]
    assert "trained on 270 rows" in sentence
    assert "fitted again to all 360" in sentence
    first, second = split.to_dict(), again.to_dict()
    assert first.pop("sentences") == second.pop("sentences")[:-1]
    for row in (*first["history"], *second["history"]):
        row.pop("seconds", None)
    assert first == second
    assert first["evaluation"]["rows"] == 90


def test_the_second_fit_ends_where_a_fit_to_all_rows_ends():
    x, sets = people()
    again = fitted(x, sets, model="linear", method="ssc", l2=0.01)
    whole = fitted(x, sets, model="linear", method="ssc", l2=0.01, held_out=0.0)
    # Its columns are scaled as the rows of the split are.
    first, second = again.decision_function(x), whole.decision_function(x)
    np.testing.assert_allclose(first, second, atol=0.02 * np.ptp(second))
    assert again.judgement_ is not None
    assert whole.judgement_ is None


def test_the_second_fit_begins_where_the_first_ended(monkeypatch):
    fits = []

    def noted(sets, setup, **options):
        learner = fit_learner(sets, setup, **options)
        fits.append((len(sets), options["start"], learner.fit))
        return learner

    monkeypatch.setattr(estimator, "fit_learner", noted)
    fitted(*people(), model="linear", method="ssc")
    (first, fresh, ended), (second, start, _) = fits
    assert (first, second) == (270, 360)
    assert fresh is None
    np.testing.assert_array_equal(start.weights, ended.weights)


def test_trees_and_networks_are_trained_as_long_as_before():
    x, sets = people()
    split, again = (fitted(x, sets, keep_split=k, **MODELS["boosting"]) for k in (True, False))
    assert again.learner_.fit.num_rounds == split.learner_.fit.num_rounds
    assert again.history_ == split.history_  # with the losses of rows held out
    split, again = (fitted(x, sets, keep_split=k, **MODELS["mlp"]) for k in (True, False))
    assert again.learner_.fit.epoch == split.learner_.fit.epoch


def test_an_error_of_the_shares_that_was_noticed_is_not_looked_for_again(monkeypatch):
    from unmix.learn import prior_check

    found = iter([0.1])
    monkeypatch.setattr(prior_check, "estimate_prior_error", lambda *_: next(found))
    clf = fitted(*people(), prior_error="auto", **MODELS["linear"])
    assert clf.noticed_error_ == 0.1
    assert clf.refined_


def test_images_are_held_out_of_all_sets_in_which_they_lie():
    rng = np.random.default_rng(0)
    sets = np.repeat(list(SHARES), 40)
    images = rng.integers(0, 255, size=(240, 4, 4), dtype=np.uint8)
    images[120:] = images[:120]
    options = {"held_out": 0.3, "random_state": 0, "model": "mlp", "method": "ssc", "epochs": 1}
    clf = UnmixClassifier(SHARES, hidden=(1, 8), keep_split=True, **options)
    rows, judged = clf._choose_and_learn(images, sets)
    seen = {image.tobytes() for image in rows.x}
    assert len(judged.x)
    assert not any(image.tobytes() in seen for image in judged.x)


def test_the_command_fits_what_the_classifier_fits_and_writes_it_down(files):
    x, sets = people()
    said, again = fit(files, "again")
    kept, split = fit(files, "split", "--keep-split")
    assert said["fitted_again"]
    assert not kept["fitted_again"]
    for key in ("evaluation", "gains", "believable", "leave_sets_out"):
        assert said[key] == kept[key]
    assert said["sentences"][:-1] == kept["sentences"]
    np.testing.assert_allclose(clone(again).fit(x, sets).coef_, again.coef_, rtol=1e-12)
    np.testing.assert_allclose(clone(split).fit(x, sets).coef_, split.coef_, rtol=1e-12)
    assert abs(again.coef_ - split.coef_).max() > 1e-4
    state = json.loads((files / "again" / "model.json").read_text())
    assert state["fitted_again"] is True
    assert sum(state["set_sizes"]) == 360
    assert again.fitted_again_
    assert not split.fitted_again_
    assert "fitted again to all 360" in (files / "again" / "report.html").read_text()
    assert "360 rows in 6 sets" in (files / "again" / "README.md").read_text()


def test_a_table_that_is_read_in_pieces_keeps_the_split(files):
    said, clf = fit(files, "streamed", "--stream")
    assert not said["fitted_again"]
    assert not clf.fitted_again_
    assert not any("fitted again" in sentence for sentence in said["sentences"])


def test_without_rows_held_out_nothing_is_fitted_again(files):
    said, clf = fit(files, "whole", "--held-out", "0")
    assert not said["fitted_again"]
    assert clf.set_sizes_.sum() == 360


@pytest.mark.parametrize("share", [1.0, -0.1, True, "half"])
def test_a_share_to_hold_out_that_is_none_is_refused(share):
    with pytest.raises(InputError, match="held_out must be a share of the rows from 0 to below 1"):
        fitted(*people(), held_out=share, model="linear", method="ssc")
