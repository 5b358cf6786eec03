import json
from functools import cache

import numpy as np
import pandas as pd
import pytest

from unmix import UnmixClassifier
from unmix.assess.judge import evaluate_classifier, judge
from unmix.data.priors import Priors
from unmix.errors import InputError

SHARES = np.linspace(0.1, 0.9, 8)
NAMES = [f"s{j}" for j in range(8)]
PRIORS = dict(zip(NAMES, SHARES.tolist(), strict=True))


def draw(rows=150, seed=0, drift=0.0):
    """Rows, set ids and labels; with drift the positives of some sets look different."""
    rng = np.random.default_rng(seed)
    sets = np.repeat(NAMES, rows)
    labels = (rng.random(len(sets)) < np.repeat(SHARES, rows)).astype(int)
    x = rng.normal(size=(len(sets), 3))
    x[:, 0] += 2.5 * labels
    odd = np.isin(sets, ["s2", "s5"])
    x[odd, 0] += drift * labels[odd]
    return pd.DataFrame(x, columns=list("abc")), sets, labels


@cache
def fitted(drift=0.0, **options):
    """A classifier; cached, since none of the tests changes it."""
    x, sets, _ = draw(drift=drift)
    options = {"model": "linear", "method": "ssc", "random_state": 2} | options
    return UnmixClassifier(PRIORS, **options).fit(x, sets)


def held_out(**options):
    return draw(seed=1, **options)


def test_a_good_fit_is_believable_and_says_why():
    clf = fitted(target_prior=0.3)
    x, sets, labels = held_out()
    found = judge(clf, x, sets)
    assert found.believable
    learned, assumed, hidden, accuracy, verdict = found.sentences
    worth = 1200 * SHARES.var() / 0.25
    assert learned == (
        "A linear model was trained with method ssc on 1,200 rows in 8 sets; the effective number "
        f"of labels is about {worth:.0f}."
    )
    assert assumed == "It assumes that each class looks the same in every set (label shift)."
    gain = clf.gains_["ssc"]
    assert hidden == (
        f"Gain over guessing: {gain.word} ({gain.gain:+.2f} ± {gain.error:.2f}, z = {gain.z:.1f}; "
        f"{gain.threshold:.1f} is needed). Sets were hidden in turn, and the model told their "
        "shares from their rows alone; the gain is how much better that went than answering the "
        "average share every time."
    )
    result = found.evaluation
    low, high = (round(100 * end) for end in (result.accuracy.low, result.accuracy.high))
    assert accuracy == (
        "At the base rate where it is used, its accuracy is about "
        f"{100 * result.accuracy.value:.0f} % ({low} to {high} %) and its AUC "
        f"{result.auc.value:.2f} ({result.auc.low:.2f} to {result.auc.high:.2f}), "
        "estimated without labels."
    )
    right = [(clf.predict(x) == labels)[labels == k].mean() for k in (0, 1)]
    assert result.accuracy.low < 0.7 * right[0] + 0.3 * right[1] < result.accuracy.high
    assert verdict == result.fit_test.verdict
    assert verdict.startswith("The sets are consistent with label shift (p = ")
    assert found.target_prior == pytest.approx(0.3)
    assert found.classes == ("0", "1")
    assert found.set_ids == tuple(NAMES)
    assert found.stated_priors == found.refined_priors == tuple(PRIORS.values())
    assert not found.refined


def test_sets_that_cannot_answer_are_not_believed():
    rng = np.random.default_rng(0)
    priors = dict(zip(NAMES, np.linspace(0.45, 0.55, 8), strict=True))
    _, sets, _ = draw(rows=60)
    x = rng.normal(size=(len(sets), 3))
    clf = UnmixClassifier(priors, model="linear", method="ssc", random_state=2).fit(x, sets)
    found = judge(clf)
    assert not found.believable
    assert found.sentences[2].endswith(
        "These sets cannot answer the question: do not use this model."
    )


def test_sets_whose_classes_look_different_are_not_believed():
    clf = fitted(drift=-4.0)
    x, sets, _ = held_out(rows=400, drift=-4.0)
    found = judge(clf, x, sets)
    assert found.leave_sets_out["ssc"] < found.leave_sets_out["baseline"]
    assert found.evaluation.fit_test.p_value < 1e-6
    assert not found.believable
    assert found.sentences[-1].startswith(
        "The sets are not consistent with label shift (p < 0.0001)"
    )
    assert {"s2", "s5"} <= set(found.evaluation.fit_test.misfits)


def test_a_proportion_model_does_not_need_label_shift():
    rng = np.random.default_rng(0)
    means = np.repeat(rng.normal(size=(16, 2)), 200, axis=0)  # covariate shift
    sets = np.repeat(np.arange(16), 200)
    x = means + rng.normal(size=means.shape)
    labels = rng.random(len(x)) < 1 / (1 + np.exp(-2 * x[:, 0]))
    priors = dict(enumerate(np.bincount(sets, labels) / 200))
    options = {"model": "linear", "l2": 1e-3, "random_state": 2}
    clf = UnmixClassifier(priors, method="proportion", **options).fit(x[::2], sets[::2])
    found = judge(clf, x[1::2], sets[1::2])
    assert found.evaluation.fit_test.p_value < 0.05
    assert found.leave_sets_out["proportion"] < found.leave_sets_out["baseline"]
    assert found.believable
    assert found.sentences[1] == (
        "It assumes that the class depends on the features in the same way in every set "
        "(covariate shift)."
    )
    assert found.sentences[3].startswith("Its accuracy cannot be estimated without labels")


def test_shares_of_a_proportion_model_do_not_depend_on_the_target_prior():
    x, sets, _ = held_out()
    clf = fitted(method="proportion", target_prior=0.1)
    learned = clf.learner_.base_prior
    assert learned == pytest.approx([0.5, 0.5])  # the pooled prior
    probability = 1 / (1 + np.exp(-clf.logits_at(x, learned)))
    means = [probability[sets == name].mean() for name in NAMES]
    calibration = judge(clf, x, sets).evaluation.calibration
    assert [entry.mean_share for entry in calibration] == pytest.approx(means)
    assert means == pytest.approx(SHARES.tolist(), abs=0.15)
    at_target = [clf.predict_proba(x)[sets == name, 1].mean() for name in NAMES]
    assert np.subtract(means, at_target).min() > 0.02


def test_shares_of_an_ssc_model_are_means_at_the_target_prior():
    x, sets, _ = held_out()
    clf = fitted(target_prior=0.3)
    means = [clf.predict_proba(x)[sets == name, 1].mean() for name in NAMES]
    calibration = evaluate_classifier(clf, x, sets).calibration
    assert [entry.mean_share for entry in calibration] == pytest.approx(means)


def test_without_held_out_rows_accuracy_is_not_claimed():
    clf = fitted()
    x, sets, _ = held_out()
    for found in (judge(clf), judge(clf, x[:0], sets[:0])):
        assert found.evaluation is None
        assert found.histograms == ()
        assert found.believable
        assert len(found.sentences) == 4
        assert found.sentences[-1] == ("No rows were held out, so its accuracy was not estimated.")


def test_held_out_rows_of_one_set_cannot_tell_the_classes_apart():
    x, sets, _ = held_out()
    found = judge(fitted(), x[:20], sets[:20])
    assert found.evaluation is None
    assert found.sentences[-1] == "Too few rows were held out, so its accuracy was not estimated."
    with pytest.raises(InputError, match="at least two sets with different priors"):
        evaluate_classifier(fitted(), x[:20], sets[:20])


def test_few_sets_are_said_to_be_too_few():
    x, sets, _ = draw()
    few = np.isin(sets, ["s0", "s3", "s7"])
    clf = UnmixClassifier(PRIORS, model="linear", method="ssc", random_state=2)
    found = judge(clf.fit(x[few], sets[few]))
    assert found.sentences[2] == (
        "3 sets are too few to hold some out and test the predicted shares."
    )


def test_a_set_that_all_depends_on_cannot_be_hidden():
    x, sets, _ = draw(rows=60)
    priors = dict.fromkeys(NAMES, 0.4) | {"s7": 0.9}
    clf = UnmixClassifier(priors, model="linear", method="ssc", random_state=2).fit(x, sets)
    found = judge(clf)
    assert found.leave_sets_out == {}
    assert found.sentences[2].startswith("No sets could be held out")
    assert found.sentences[2].endswith("the others cannot tell the classes apart.")


def test_labels_stand_beside_the_numbers_and_change_nothing_else():
    clf = fitted(target_prior=0.3)
    x, sets, labels = held_out()
    found = judge(clf, x, sets, labels=labels)
    decisions = clf.predict(x)
    rates = [np.mean(decisions[labels == k] == k) for k in (0, 1)]
    assert found.evaluation.labeled.accuracy == pytest.approx(0.7 * rates[0] + 0.3 * rates[1])
    assert found.sentences == judge(clf, x, sets).sentences
    for same in (labels.astype(bool), labels.astype(float), labels.astype(str)):
        assert evaluate_classifier(clf, x, sets, labels=same).labeled == found.evaluation.labeled


@pytest.mark.parametrize(
    ("value", "words"), [(2, "the labels hold '2'"), (np.nan, "row 6 has no label")]
)
def test_labels_that_are_no_class_are_named(value, words):
    x, sets, labels = held_out()
    wrong = labels.astype(float)
    wrong[5] = value
    if value == 2:
        wrong = wrong.astype(int)
    with pytest.raises(InputError, match=words):
        judge(fitted(), x, sets, labels=wrong)


def test_histograms_count_every_row_once():
    clf = fitted(target_prior=0.3)
    x, sets, _ = held_out()
    kept = sets != "s4"
    found = judge(clf, x[kept], sets[kept])
    (histograms,) = found.histograms
    assert histograms.edges == pytest.approx(np.linspace(0, 1, 21))
    assert [entry.set_id for entry in histograms.sets] == [n for n in NAMES if n != "s4"]
    for entry in histograms.sets:
        probability = clf.predict_proba(x[sets == entry.set_id])[:, 1]
        expected = np.histogram(probability, bins=20, range=(0, 1))[0] / len(probability)
        assert entry.shares == pytest.approx(expected)
        assert sum(entry.shares) == pytest.approx(1)
    assert found.evaluation.num_sets == 7


def by_class(order=("dog", "cat")):
    shares = {"dog": 1 - SHARES, "cat": SHARES}
    return {name: {c: shares[c][j] for c in order} for j, name in enumerate(NAMES)}


def test_two_named_classes_are_judged_as_shares_of_the_second():
    x, sets, _ = draw()
    clf = UnmixClassifier(by_class(), model="linear", method="ssc", random_state=2).fit(x, sets)
    new, new_sets, labels = held_out()
    found = judge(clf, new, new_sets, labels=np.array(["dog", "cat"])[labels])
    assert found.classes == ("dog", "cat")
    assert found.believable
    plain = judge(fitted(), new, new_sets, labels=labels)
    assert found.sentences == plain.sentences
    assert found.evaluation == plain.evaluation
    assert found.histograms == plain.histograms


def test_the_order_of_class_columns_does_not_matter():
    x, sets, _ = draw()
    clf = UnmixClassifier(by_class(), model="linear", method="ssc", random_state=2).fit(x, sets)
    new, new_sets, _ = held_out()
    expected = evaluate_classifier(clf, new, new_sets)
    assert expected.auc.value > 0.9
    for order in (("dog", "cat"), ("cat", "dog")):
        priors = Priors.from_mapping(by_class(order))
        assert evaluate_classifier(clf, new, new_sets, priors=priors) == expected
    with pytest.raises(InputError, match="gives one share per set, and the classes of the model"):
        evaluate_classifier(clf, new, new_sets, priors=Priors.from_mapping(PRIORS))


def three_classes(rows, seed):
    rng = np.random.default_rng(seed)
    theta = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.4, 0.3, 0.3]])
    kind = np.concatenate([rng.choice(3, p=row, size=rows) for row in theta])
    x = np.array([[2.5, 0], [-2, 2], [-2, -2]])[kind] + rng.normal(size=(4 * rows, 2))
    return x, np.repeat(list("wxyz"), rows), kind, theta


def test_three_classes_have_a_confusion_matrix_and_no_auc():
    names = np.array(["red", "green", "blue"])
    x, sets, _, theta = three_classes(150, 0)
    priors = {s: dict(zip(names, row, strict=True)) for s, row in zip("wxyz", theta, strict=True)}
    clf = UnmixClassifier(priors, model="linear", method="ssc", random_state=1).fit(x, sets)
    new, new_sets, kind, _ = three_classes(300, 1)
    found = judge(clf, new, new_sets, labels=names[kind])
    assert found.gains["ssc"].shown  # the classes lie apart; without signal 0 of 60 draws show it
    assert found.classes == tuple(names)
    assert found.target_prior == pytest.approx(tuple(theta.mean(axis=0)))
    assert "AUC" not in found.sentences[3]
    assert found.evaluation.auc is None
    np.testing.assert_allclose(
        found.evaluation.confusion.value, found.evaluation.labeled.confusion, atol=0.08
    )
    for k in range(3):
        probability = clf.predict_proba(new)[new_sets == "y", k]
        expected = np.histogram(probability, bins=20, range=(0, 1))[0] / 300
        assert found.histograms[k].class_index == k
        assert found.histograms[k].sets[2].shares == pytest.approx(expected)
    shuffled = {s: {c: row[c] for c in ("blue", "red", "green")} for s, row in priors.items()}
    again = evaluate_classifier(
        clf, new, new_sets, priors=Priors.from_mapping(shuffled), labels=names[kind]
    )
    assert again.to_dict() == found.evaluation.to_dict()


def test_refined_priors_stand_beside_the_stated_ones():
    x, sets, _ = draw()
    stated = PRIORS | {"s0": 0.3}
    clf = UnmixClassifier(stated, model="linear", method="ssc", prior_error=0.2, random_state=2)
    found = judge(clf.fit(x, sets), *held_out()[:2])
    assert found.refined
    assert found.prior_errors == (0.2,) * 8
    assert found.stated_priors[0] == 0.3
    assert found.refined_priors[0] < 0.25
    assert "errors of the stated shares" in found.evaluation.method


def test_a_judgement_is_plain_json():
    x, sets, labels = held_out()
    found = judge(fitted(), x, sets, labels=labels)
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["sentences"] == list(found.sentences)
    assert record["evaluation"]["accuracy"]["value"] == found.evaluation.accuracy.value
    assert len(record["histograms"][0]["sets"]) == 8


def test_sets_must_go_row_by_row_with_x():
    x, sets, _ = held_out()
    with pytest.raises(InputError, match="X has 1200 rows and sets has 1199"):
        evaluate_classifier(fitted(), x, sets[1:])
