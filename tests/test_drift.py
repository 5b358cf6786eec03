"""How new rows differ from those of training: counted in blocks and told in words."""

import functools
import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.special import logsumexp

from exported_models import fitted, table
from test_own_modules import edited
from test_saved import GOLDEN
from unmix import UnmixClassifier
from unmix.assess.drift import DriftCount, stability_index
from unmix.cli import main
from unmix.errors import InputError
from unmix.learn.training_summary import class_log_odds


@functools.lru_cache
def people(rows=3000, seed=0):
    """Rows with a class that moves them, in four sets."""
    rng = np.random.default_rng(seed)
    shares = {"a": 0.1, "b": 0.3, "c": 0.6, "d": 0.9}
    sets = np.repeat(list(shares), rows // 4)
    y = rng.random(rows) < np.repeat(list(shares.values()), rows // 4)
    x = pd.DataFrame(
        {
            "income": rng.lognormal(10 + 0.5 * y, 0.4),
            "visits": rng.poisson(2 + 2 * y),
            "member": rng.random(rows) < 0.3 + 0.4 * y,
            "city": np.array(["Rome", "Oslo", "Bonn"])[(rng.random(rows) * 3).astype(int)],
        }
    )
    x.loc[rng.random(rows) < 0.05, "income"] = np.nan
    return x, sets, shares


@functools.lru_cache
def model(name="linear"):
    x, sets, shares = people()
    return UnmixClassifier(shares, model=name, method="ssc", random_state=0).fit(x, sets)


def literal_psi(new, old, edges):
    """The formula with loops: cells up to each edge, beyond the last, and missing."""

    def shares(values):
        counts = [0.0] * (len(edges) + 2)
        for value in values:
            if value != value:
                counts[-1] += 1
            else:
                counts[sum(value > edge for edge in edges)] += 1
        filled = [max(count, 0.5) for count in counts]
        return [count / sum(filled) for count in filled]

    return sum((q - p) * np.log(q / p) for q, p in zip(shares(new), shares(old), strict=True))


def test_the_index_is_the_formula_between_the_deciles_of_training():
    x, _, _ = people()
    new = people(seed=5)[0].assign(income=lambda t: t["income"] * 1.3)
    drift = model().drift(new)
    edges = np.nanquantile(x["income"], np.arange(1, 10) / 10, method="inverted_cdf")
    found = {one.name: one.psi for one in drift.columns}
    wanted = literal_psi(new["income"], x["income"], edges)
    assert wanted > 0.2
    assert found["income"] == pytest.approx(wanted, rel=1e-9)
    assert drift.rows == len(new)


@pytest.mark.parametrize("name", ["linear", "boosting"])
def test_rows_like_those_of_training_do_not_differ(name):
    for seed in range(1, 6):
        drift = model(name).drift(people(seed=seed)[0])
        assert not drift.differs, drift.sentences
        assert drift.sentences == []
        assert max(one.psi for one in (*drift.columns, *drift.scores)) < 0.1


def test_few_rows_are_not_said_to_differ_by_chance():
    x = people(seed=3)[0]
    index = [model().drift(x.iloc[k : k + 30]) for k in range(0, 1200, 30)]
    assert max(one.psi for drift in index for one in drift.columns) > 0.3
    assert sum(drift.differs for drift in index) <= 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: t.assign(income=t["income"].where(np.arange(len(t)) % 8 > 0, 1e6)),
            r"income: 1\d % of values are above anything seen in training \(at most \d+",
        ),
        (
            lambda t: t.assign(income=t["income"].where(np.arange(len(t)) % 8 > 0, -5.0)),
            r"income: 1\d % of values are below anything seen in training",
        ),
        (
            lambda t: t.assign(income=t["income"].where(np.arange(len(t)) % 2 > 0)),
            r"income: 5\d % of values are missing, [56] % in training",
        ),
        (
            lambda t: t.assign(city=t["city"].where(np.arange(len(t)) % 5 > 0, "Atlantis")),
            r"city: 20 % of rows hold categories that the model does not know, 0 % in training",
        ),
        (
            lambda t: t.assign(city=t["city"].where(np.arange(len(t)) % 2 > 0, "Rome")),
            r"city: 6\d % of rows are 'Rome', 3\d % in training",
        ),
        (
            lambda t: t.assign(income=t["income"] * 1.6),
            r"income: [789]\d % of values are above 2.*e\+04, [45]\d % in training",
        ),
        (
            lambda t: t.assign(member=True),
            r"member: 100 % of values are above 0, 4\d % in training|member: .*PSI",
        ),
    ],
)
def test_what_changed_is_said_in_a_sentence_about_its_column(change, words):
    x = people(seed=2)[0]
    drift = model().drift(change(x.copy()))
    assert drift.differs
    told = [s for s in drift.sentences if not s.startswith("probability")]
    assert len(told) == 1, told
    assert pd.Series(told).str.match(words).all(), told


def test_scores_are_compared_at_the_prior_of_training_whatever_the_target():
    moved = people(seed=2)[0].assign(income=lambda t: t["income"] * 3, visits=9)
    clf = model()
    before = clf.drift(moved)
    assert before.scores[0].differs
    assert before.sentences[0].startswith("probability: ")
    target = clf.target_prior_
    try:
        assert clf.retarget(0.01).drift(moved).to_dict() == before.to_dict()
        logits = clf.decision_function(moved)
        count = DriftCount(clf)
        count.add(moved, logits, clf.target_prior_)
        got = count.result().scores[0].psi
        assert got == pytest.approx(before.scores[0].psi, rel=1e-9)
    finally:
        clf.target_prior_ = target


def test_blocks_give_what_all_rows_give_and_a_sample_takes_every_so_many():
    clf, x = model(), people(seed=2)[0].assign(visits=20)
    logits = clf.decision_function(x)
    for every in (1, 7):
        whole, blocks = DriftCount(clf, every=every), DriftCount(clf, every=every)
        whole.add(x, logits, clf.target_prior_)
        for first in range(0, len(x), 101):
            rows = slice(first, first + 101)
            blocks.add(x.iloc[rows], logits[rows], clf.target_prior_)
        assert blocks.result().to_dict() == whole.result().to_dict()
        assert whole.result().rows == -(-len(x) // every)


@pytest.mark.parametrize("scale", [1, 30, 2000])
def test_the_log_odds_of_a_class_are_those_against_all_others_together(scale):
    logits = np.random.default_rng(0).normal(size=(200, 7)) * scale
    rest = [logsumexp(np.delete(logits, k, axis=1), axis=1) for k in range(7)]
    found = class_log_odds(logits)
    np.testing.assert_allclose(found, logits - np.stack(rest, axis=1), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(class_log_odds(logits[:, 0]), logits[:, :1])


def test_three_classes_have_a_score_each():
    clf = fitted("linear", 3)
    rows, _ = table(900, np.random.default_rng(3), classes=3)
    drift = clf.drift(rows)
    assert [one.name for one in drift.scores] == [
        "probability_ant",
        "probability_bee",
        "probability_cow",
    ]
    assert not drift.differs, drift.sentences
    older = rows.assign(age=rows["age"] + 30)
    assert clf.drift(older).scores[2].psi > 0.1


def test_images_are_compared_by_their_scores():
    rng = np.random.default_rng(0)
    y = rng.random(400) < 0.5
    images = rng.random((400, 4, 4)) + y[:, None, None]
    sets = np.where(rng.random(400) < np.where(y, 0.8, 0.2), "high", "low")
    priors = {s: y[sets == s].mean() for s in ("high", "low")}
    clf = UnmixClassifier(priors, model="mlp", method="ssc", epochs=2, random_state=0)
    clf.fit(images, sets)
    assert clf.drift(images).columns == ()
    assert not clf.drift(images).differs
    assert clf.drift(images[y] + 1).scores[0].differs


def test_a_saved_model_knows_its_training_and_an_old_one_says_nothing(tmp_path):
    new = people(seed=2)[0].assign(visits=20)
    model().save(tmp_path / "model")
    back = UnmixClassifier.load(tmp_path / "model")
    assert back.drift(new).to_dict() == model().drift(new).to_dict()
    old = UnmixClassifier.load(GOLDEN / "linear")
    rows = pd.DataFrame(json.loads((GOLDEN / "linear.json").read_text())["rows"])
    assert old.drift(rows) is None


@pytest.mark.parametrize("known_sets", [False, True])
def test_predict_tells_drift_in_words_and_in_json(tmp_path, monkeypatch, known_sets):
    monkeypatch.chdir(tmp_path)
    clf, (x, sets, _) = model(), people(seed=2)
    clf.save("model")
    x = x.assign(income=x["income"].where(np.arange(len(x)) % 8 > 0, 1e6), region=sets)
    x.to_csv("new.csv", index=False)
    words = ["predict", "model", "new.csv", "-o", "scored.csv", "--overwrite"]
    words += ["--sets", "region"] if known_sets else []
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    assert "These rows differ from those of training:\n" in told.stdout
    assert "above anything seen in training" in told.stdout
    record = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    assert record["drift"] == clf.drift(x.drop(columns="region")).to_dict()
    assert record["drift"]["differs"] is True
    people(seed=4)[0].assign(region=sets).to_csv("new.csv", index=False)
    told = CliRunner().invoke(main, words)
    assert "differ" not in told.stdout


def test_equal_counts_have_no_index_and_disjoint_ones_a_large_one():
    assert stability_index(np.array([30, 70, 0]), np.array([300, 700, 0]), 0.01)[0] == 0
    psi, bound = stability_index(np.array([100, 0]), np.array([0, 100]), 0.01)
    assert psi == pytest.approx(2 * (1 - 1 / 100.5 * 1) * np.log(200), rel=0.02)
    assert bound < psi
    assert stability_index(np.array([5, 0]), np.array([9, 0]), 0.01) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("columns", 0, "counts"), [1, 2]),
        (("columns", 0, "counts", 0), -1),
        (("columns", 0, "counts", 0), 0.5),
        (("columns", 0, "edges", 0), 1e300),
        (("columns", 0, "edges", 0), "a"),
        (("columns", 0, "low"), None),
        (("columns", 0, "high"), float("inf")),
        (("columns", 0, "name"), "city"),
        (("columns", 0, "name"), "nobody"),
        (("columns", 3, "counts"), [1, 1, 1]),
        (("scores",), []),
        (("scores", 0, "name"), "other"),
        (("columns",), {"a": 1}),
    ],
)
def test_a_summary_that_makes_no_sense_is_refused(tmp_path, path, value):
    model().save(tmp_path / "model")

    def change(state):
        entry = state["training"]
        for key in path[:-1]:
            entry = entry[key]
        entry[path[-1]] = value

    edited(tmp_path / "model", change)
    with pytest.raises(InputError, match="not a model that this version can read"):
        UnmixClassifier.load(tmp_path / "model")
