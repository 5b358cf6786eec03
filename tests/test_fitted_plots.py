"""What one sees of a fitted model outside the report: plots, figures as files, text, model card."""

import hashlib
import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure
from scipy.stats import norm

from unmix import UnmixClassifier
from unmix.cli import main
from unmix.errors import InputError
from unmix.report.headline import verdict_of

SHARES = np.linspace(0.1, 0.9, 12)
NAMES = [f"county {j}" for j in range(12)]


def draw(seed, rows=100):
    rng = np.random.default_rng(seed)
    sets = np.repeat(NAMES, rows)
    labels = (rng.random(len(sets)) < np.repeat(SHARES, rows)).astype(int)
    job = np.where(rng.random(len(sets)) < 0.3 + 0.4 * labels, "law|yer", "far<b>mer")
    x = pd.DataFrame(
        {"age": rng.normal(2.0 * labels), "job": job, "shoe": rng.normal(size=len(sets))}
    )
    return x, sets, labels


@pytest.fixture(scope="module")
def clf():
    x, sets, _ = draw(0)
    priors = dict(zip(NAMES, SHARES.tolist(), strict=True))
    clf = UnmixClassifier(priors, target_prior=0.3, method="ssc", model="linear", random_state=0)
    return clf.fit(x, sets)


@pytest.fixture(scope="module")
def trees():
    x, sets, _ = draw(0)
    priors = dict(zip(NAMES, SHARES.tolist(), strict=True))
    return UnmixClassifier(priors, method="ssc", model="boosting", random_state=0).fit(x, sets)


def test_plots_draw_on_the_axes_given_and_return_the_figure(clf, trees):
    x, sets, labels = draw(1)
    figure = Figure()
    axes = figure.subplots(2, 2).ravel()
    assert clf.plot_shares(x, sets, ax=axes[0]) is figure
    assert clf.plot_roc(x, sets, labels=labels, ax=axes[1]) is figure
    assert clf.plot_gain(ax=axes[2]) is figure
    assert trees.plot_history(ax=axes[3]) is figure
    assert all(ax.has_data() for ax in axes)
    assert axes[0].get_xlabel() == "stated share of positives"
    assert [label.get_text() for label in axes[2].get_yticklabels()] == ["ssc (this model)"]


def test_without_rows_the_shares_of_hidden_sets_are_drawn(clf):
    (ax,) = clf.plot_shares().axes
    points = np.concatenate([part.get_offsets() for part in ax.collections])
    assert sorted(points[:, 0]) == pytest.approx(SHARES)
    np.testing.assert_allclose(points[:, 1], clf.held_out_shares_.predicted[:, 1])
    assert np.corrcoef(points.T)[0, 1] > 0.95


def test_what_cannot_be_drawn_is_said(clf, trees):
    x, sets, _ = draw(1)
    with pytest.raises(InputError, match="a model of kind linear has no learning curve"):
        clf.plot_history()
    with pytest.raises(InputError, match="'red' is no class of the model"):
        clf.plot_shares(class_name="red")
    with pytest.raises(InputError, match="no sets were hidden"):
        trees.plot_gain()
    with pytest.raises(InputError, match="no sets were hidden"):
        trees.plot_shares()
    few = np.isin(sets, NAMES[:2])
    with pytest.raises(InputError, match="assumes label shift"):
        clf.plot_roc(x[few], sets[few])


def test_intervals_of_weights_come_from_the_resampled_fits(clf):
    table = clf.coef_interval(0.9)
    drawn = np.array([weights for weights, _ in clf.learner_.fit.resampled])
    half = norm.ppf(0.95) * drawn.std(axis=0, ddof=1)
    np.testing.assert_allclose(table["value"], clf.coef_)
    np.testing.assert_allclose(table["high"] - table["value"], half)
    np.testing.assert_allclose(table["value"] - table["low"], half)
    assert list(table.index) == list(clf.coef_.index)
    assert table.loc["age", "low"] > 0
    assert table.loc["shoe", "low"] < 0 < table.loc["shoe", "high"]
    with pytest.raises(InputError, match=r"confidence must lie inside \(0, 1\)"):
        clf.coef_interval(1.0)


def test_weights_of_several_classes_add_up_to_nothing():
    rng = np.random.default_rng(0)
    theta = rng.dirichlet(np.ones(3), 10)
    index = np.repeat(np.arange(10), 60)
    kind = (rng.random(600)[:, None] > theta.cumsum(axis=1)[index]).sum(axis=1)
    x = np.eye(3)[kind][:, :2] * 2 + rng.normal(size=(600, 2))
    priors = {j: dict(zip("abc", theta[j].tolist(), strict=True)) for j in range(10)}
    clf = UnmixClassifier(
        priors, model="linear", method="ssc", l2=1e-2, hide_sets=False, random_state=0
    ).fit(pd.DataFrame(x, columns=["u", "v"]), index)
    table = clf.coef_interval()
    assert table.index.names == ["class", "feature"]
    assert table["value"].groupby("feature").sum().tolist() == pytest.approx([0, 0], abs=1e-12)
    centred = clf.coef_.sub(clf.coef_.mean(axis=1), axis=0)
    assert table.loc[("b", "v"), "value"] == pytest.approx(centred.loc["v", "b"])
    assert table.loc[("a", "u"), "low"] > 0
    assert {effect.class_index for effect in clf.judge().effects} == {0, 1, 2}


def test_the_report_shows_weights_or_importances(clf, trees):
    effects = {effect.feature: effect for effect in clf.judge().effects}
    assert effects["age"].low == pytest.approx(clf.coef_interval().loc["age", "low"])
    importances = trees.judge().effects
    assert sum(effect.value for effect in importances) == pytest.approx(1)
    assert {effect.feature for effect in importances} == {"age", "job", "shoe"}


def test_the_summary_begins_with_the_answer_and_names_the_largest_effect(clf):
    x, sets, _ = draw(1)
    text = clf.summary(x, sets)
    judgement = clf.judge(x, sets)
    assert text.startswith(verdict_of(judgement).headline)
    assert "Gain over guessing" in text
    weights = text.partition("Largest effects")[2].splitlines()
    low, high = clf.coef_interval().loc["age", ["low", "high"]]
    assert weights[1].split()[0] == "age"
    assert f"({low:+.2f} to {high:+.2f})" in weights[1]
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("form", "start"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")]
)
def test_a_report_writes_its_pictures_as_files(clf, tmp_path, form, start):
    x, sets, _ = draw(1)
    page = clf.report(
        tmp_path / "report.html", x, sets, figures=tmp_path / "figures", figure_format=form
    )
    files = sorted((tmp_path / "figures").iterdir())
    assert [file.stem for file in files] == ["effects", "gain", "roc", "scores", "shares"]
    for file in files:
        assert file.suffix == f".{form}"
        assert file.read_bytes().startswith(start)
    assert page.read_text(encoding="utf-8").count("<svg") == len(files)


def test_equal_figures_are_equal_files_and_another_format_is_refused(clf, tmp_path):
    x, sets, _ = draw(1)
    digests = set()
    for name in ("first", "second"):
        clf.report(tmp_path / "r.html", x, sets, figures=tmp_path / name, figure_format="pdf")
        digests.add(hashlib.sha256((tmp_path / name / "gain.pdf").read_bytes()).hexdigest())
    assert len(digests) == 1
    with pytest.raises(InputError, match="not as 'bmp'"):
        clf.report(tmp_path / "r.html", x, sets, figures=tmp_path / "f", figure_format="bmp")
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="a file has that name"):
        clf.report(tmp_path / "r.html", x, sets, figures=tmp_path / "taken")


def test_a_saved_model_has_a_card_that_nothing_depends_on(clf, tmp_path):
    x, sets, _ = draw(1)
    judgement = clf.judge(x, sets)
    clf.save(tmp_path / "model", judgement=judgement)
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert f"**{verdict_of(judgement).headline}.**" in card
    assert "12 sets" in card
    assert "| county 3 | 100 | 31.8" in card
    assert "ssc" in card
    assert all(sentence in card for sentence in judgement.sentences)
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    assert set(manifest["files"]) == {"model.json", "weights.safetensors"}
    clf.save(tmp_path / "again", judgement=judgement)
    assert (tmp_path / "again" / "README.md").read_text(encoding="utf-8") == card
    # People may add to the card, or throw it away.
    (tmp_path / "model" / "README.md").write_text("mine")
    back = UnmixClassifier.load(tmp_path / "model")
    (tmp_path / "model" / "README.md").unlink()
    UnmixClassifier.load(tmp_path / "model")
    for one, other in zip(back.held_out_shares_, clf.held_out_shares_, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(back.predict_proba(x), clf.predict_proba(x))


def test_a_card_without_held_out_rows_says_what_was_not_checked(clf, tmp_path):
    clf.save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "Not checked: accuracy and consistency with label shift (no held-out rows here)" in card


def test_names_are_text_in_the_card_whatever_they_hold(tmp_path):
    x, sets, _ = draw(0, rows=40)
    bad = {name: name for name in NAMES} | {"county 0": "<script>|`*[a](b)\n# head"}
    priors = dict(zip(bad.values(), SHARES.tolist(), strict=True))
    clf = UnmixClassifier(priors, model="linear", method="ssc", l2=0.01, random_state=0)
    clf.fit(x.rename(columns={"age": "a|ge_1"}), pd.Series(sets).map(bad))
    clf.save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "<script>" not in card.replace("\\<", "")
    assert r"\<script\>\|\`\*\[a\](b) \# head" in card
    assert r"a\|ge\_1" in card


def test_the_commands_write_figures_a_report_and_a_card(tmp_path):
    x, sets, labels = draw(0, rows=60)
    x.assign(county=sets, sick=labels).to_csv(tmp_path / "rows.csv", index=False)
    pd.DataFrame({"county": NAMES, "share": SHARES}).to_csv(tmp_path / "rates.csv", index=False)
    common = ["--sets", "county", "--priors", str(tmp_path / "rates.csv")]
    fit = ["fit", str(tmp_path / "rows.csv"), *common, "-o", str(tmp_path / "model")]
    fit += ["--drop", "sick", "--model", "linear", "--method", "ssc"]
    done = CliRunner().invoke(main, [*fit, "--figures", str(tmp_path / "figures")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "figures" / "gain.svg").exists()
    report = (tmp_path / "model" / "report.html").read_text(encoding="utf-8")
    headline = report.partition('class="headline"')[2].partition("</p>")[0].rpartition("</span>")[2]
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert f"**{headline}.**" in card.replace("'", "&#39;")
    evaluate = ["evaluate", str(tmp_path / "model"), str(tmp_path / "rows.csv"), *common]
    evaluate += ["--labels", "sick", "--report", str(tmp_path / "audit.html")]
    done = CliRunner().invoke(
        main, [*evaluate, "--figures", str(tmp_path / "png"), "--figure-format", "png"]
    )
    assert done.exit_code == 0, done.output
    assert "Confusion matrix, by labels" in (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert (tmp_path / "png" / "shares.png").read_bytes().startswith(b"\x89PNG")
