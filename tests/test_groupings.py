"""Several groupings of the same rows: by region and by month, say."""

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from scipy.special import expit

import reference_counts
from unmix import UnmixClassifier
from unmix.assess.diagnose_groupings import diagnose_groupings
from unmix.cli import main
from unmix.core.assumptions import LABEL_SHIFT, SET_EFFECTS
from unmix.core.class_shares import ClassShares
from unmix.core.risks import proportion_risk, ssc_mse_risk, ssc_risk
from unmix.core.set_effects import best_effect_nll, effect_size, known_set_offsets
from unmix.core.set_risks import CountRisk, SetEffectRisk
from unmix.core.transition import Transition
from unmix.data.batching import batches_of
from unmix.data.grouped_priors import grouped_priors
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.learn.held_out_score import _Fold
from unmix.learn.methods import METHODS
from unmix.learn.models import Setup, fit_learner


def crossed(classes=2, rows=60, seed=0, missing=0.2):
    """Rows in 3 regions and 2 months, some without a month; shares are counts of these rows."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    x = rng.normal(size=(rows, 3)) + labels[:, None]
    region = np.where(rng.random(rows) < 0.6, labels % 3, rng.integers(3, size=rows))
    month = 3 + np.where(rng.random(rows) < 0.6, labels % 2, rng.integers(2, size=rows))
    month[rng.random(rows) < missing] = -1
    index = np.stack((region, month), axis=1)
    share = np.stack(
        [
            np.bincount(labels[(index == j).any(axis=1)], minlength=classes)
            / (index == j).any(axis=1).sum()
            for j in range(5)
        ]
    )
    shares = ClassShares(share[:, 1] if classes == 2 else share)
    return x, labels, index, shares.grouped(np.array([0, 0, 0, 1, 1]))


def alone(index, shares, target, g):
    """The rows of one grouping: which, their sets, and what these define by themselves."""
    rows = np.flatnonzero(index[:, g] >= 0)
    first = 3 * g
    own = shares.matrix[first : first + (3, 2)[g]]
    local = index[rows, g] - first
    return rows, local, Transition(own, np.bincount(local), target, scoring=True)


def some_logits(rows, classes, seed=1):
    z = np.random.default_rng(seed).normal(size=(rows, classes))
    return z[:, 1] if classes == 2 else z


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("risk", [ssc_risk, ssc_mse_risk])
def test_the_loss_of_a_row_is_the_sum_over_its_groupings(classes, risk):
    _, _, index, shares = crossed(classes)
    target = np.full(classes, 1 / classes)
    sizes = [np.sum(index == j) for j in range(5)]
    whole = risk(Transition(shares, sizes, target))
    z = torch.from_numpy(some_logits(len(index), classes)).requires_grad_()
    value = whole(z, torch.from_numpy(index))
    expected = 0.0
    for g in (0, 1):
        rows, local, transition = alone(index, shares, target, g)
        expected += risk(transition)(z[rows], torch.from_numpy(local)) * len(rows)
    expected = expected / len(index)
    torch.testing.assert_close(value, expected)
    (by_autograd,) = torch.autograd.grad(expected, z)
    closed = whole.gradient(z.detach(), torch.from_numpy(index))
    torch.testing.assert_close(closed, by_autograd)


def test_the_loss_of_one_row_is_that_of_the_literal_form():
    _, _, index, shares = crossed(2)
    sizes = np.array([np.sum(index == j) for j in range(5)])
    transition = Transition(shares, sizes, 0.4)
    z = some_logits(len(index), 2)
    found = ssc_risk(transition).loss(torch.from_numpy(z), torch.from_numpy(index), transition)
    for i in (0, 7, 30):
        eta = expit(z[i])
        total = 0.0
        for g, own in ((0, slice(0, 3)), (1, slice(3, 5))):
            if index[i, g] < 0:
                continue
            rho = sizes[own] / sizes[own].sum()
            theta = shares.matrix[own, 1]
            density = theta / 0.4 * eta + (1 - theta) / 0.6 * (1 - eta)
            total -= np.log(rho * density / (rho @ density))[index[i, g] - own.start]
        assert float(found[i]) == pytest.approx(total)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", [CountRisk, SetEffectRisk])
def test_whole_sets_of_groupings_add(classes, kind):
    _, _, index, shares = crossed(classes, missing=0.0)
    sizes = [np.sum(index == j) for j in range(5)]
    risk = kind(Transition(shares, sizes))
    z = some_logits(len(index), classes)
    value, gradient = risk.value_and_gradient(z, index)
    total, by_logits, information, num_sets = 0.0, np.zeros_like(z), np.zeros_like(z), 0
    for g in (0, 1):
        rows, local, transition = alone(index, shares, None, g)
        own = kind(transition)
        by_logits[rows] += own.row_gradients(z[rows], local)
        information[rows] += own.row_information(z[rows], local)
        scale = len(rows) if kind is CountRisk else transition.num_sets
        total += own.value_and_gradient(z[rows], local)[0] * scale
        num_sets += transition.num_sets
    scale = len(z) if kind is CountRisk else num_sets
    assert value == pytest.approx(total / scale)
    np.testing.assert_allclose(gradient, by_logits / scale, atol=1e-12)
    np.testing.assert_allclose(risk.row_gradients(z, index), by_logits)
    np.testing.assert_allclose(risk.row_information(z, index), information)


def test_counts_of_groupings_are_probabilities_over_all_labelings():
    _, _, index, shares = crossed(2, rows=14, missing=0.0)
    sizes = np.array([np.sum(index == j) for j in range(5)])
    z = some_logits(14, 2)
    value, _ = CountRisk(Transition(shares, sizes)).value_and_gradient(z, index)
    expected = 0.0
    for j in range(5):
        own = z[(index == j).any(axis=1)]
        count = round(sizes[j] * shares.matrix[j, 1])
        expected -= np.log(reference_counts.poisson_binomial(own, count))
    assert value == pytest.approx(expected / 14, rel=1e-9)


@pytest.mark.parametrize("kind", [CountRisk, SetEffectRisk])
def test_gradients_of_groupings_equal_finite_differences(kind):
    _, _, index, shares = crossed(2, rows=30)
    risk = kind(Transition(shares, [np.sum(index == j) for j in range(5)]))
    z = some_logits(30, 2)
    _, gradient = risk.value_and_gradient(z, index)
    for i in (0, 3, 11):
        step = np.zeros(30)
        step[i] = 1e-5
        up, down = (risk.value_and_gradient(z + s, index)[0] for s in (step, -step))
        assert gradient[i] == pytest.approx((up - down) / 2e-5, abs=1e-6)


def test_each_grouping_has_its_own_set_effect():
    rng = np.random.default_rng(0)
    rows, z = 4000, rng.normal(size=4000)
    index = np.stack((rng.integers(20, size=rows), 20 + rng.integers(20, size=rows)), axis=1)
    effect = np.append(rng.normal(0, 1.0, 20), np.zeros(20))
    effect[:20] -= effect[:20].mean()
    p = expit(z + effect[index].sum(axis=1))
    share = [p[(index == j).any(axis=1)].mean() for j in range(40)]
    shares = ClassShares(share).grouped(np.repeat([0, 1], 20))
    risk = SetEffectRisk(Transition(shares, [np.sum(index == j) for j in range(40)]))
    taus = [
        best_effect_nll(z, index[:, g] - 20 * g, share[20 * g : 20 * g + 20])[2] for g in (0, 1)
    ]
    assert taus[0] > 0.6
    assert taus[1] < 0.3
    assert risk.tau(z, index) == pytest.approx(np.hypot(*taus))


def test_a_risk_of_proportions_takes_the_sets_of_all_groupings():
    _, _, index, shares = crossed(2)
    transition = Transition(shares, [np.sum(index == j) for j in range(5)])
    z = torch.from_numpy(some_logits(len(index), 2))
    p, stated = torch.sigmoid(z).numpy(), shares.matrix[:, 1]
    found = [p[(index == j).any(axis=1)].mean() for j in range(5)]
    expected = -np.mean(stated * np.log(found) + (1 - stated) * np.log1p(-np.array(found)))
    assert float(proportion_risk(transition)(z, torch.from_numpy(index))) == pytest.approx(expected)


def sets_of(classes=2, rows=400, seed=0):
    x, labels, index, shares = crossed(classes, rows, seed)
    target = np.bincount(labels, minlength=classes) / rows
    return UnlabeledSets(x, index, shares, target, tuple("abcde")), labels


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("method", ["ssc", "count", "set-effects", "proportion", "ssc-mse"])
def test_a_linear_fit_ends_where_the_sum_of_the_groupings_has_no_slope(classes, method):
    sets, _ = sets_of(classes)
    # Under set effects a penalty is for the direction of the slopes alone.
    l2 = 0.0 if method == "set-effects" else 1e-3
    learner = fit_learner(sets, Setup("linear", method, l2=l2))
    rows, index = np.nonzero(sets.set_index.T >= 0)[1], sets.set_index.T[sets.set_index.T >= 0]
    z = torch.from_numpy(learner.logits(sets.x)).requires_grad_()
    row = METHODS[method]
    if method == "proportion":  # weighs sets by how well they are known
        eta = torch.sigmoid(z) if z.ndim == 1 else torch.softmax(z, dim=1)
        weights = sets.set_sizes / (1 + sets.set_sizes / 250)
        weights = torch.from_numpy(weights / weights.sum())
        stated = torch.from_numpy(sets.set_priors.matrix)
        eta = torch.stack((1 - eta, eta), dim=1) if z.ndim == 1 else eta
        sums = torch.zeros_like(stated).index_add(0, torch.from_numpy(index), eta[rows])
        share = sums / torch.from_numpy(sets.set_sizes)[:, None]
        value = -(weights[:, None] * stated * share.log()).sum()
    else:
        value = 0.0
        for g in (0, 1):
            own, local, transition = alone(sets.set_index, sets.set_priors, sets.target_prior, g)
            part = row.risk(transition)
            if isinstance(part, CountRisk):
                part = CountRisk(transition, at=sets.transition.pooled.numpy())
            per = transition.num_sets if method == "set-effects" else len(own)
            value = value + per * part(z[own], torch.from_numpy(local))
        value = value / (5 if method == "set-effects" else len(sets))
    (by_logits,) = torch.autograd.grad(value, z)
    by_weights = sets.x.T @ by_logits.numpy() + 2 * l2 * learner.fit.weights
    assert abs(by_weights).max() < 2e-5
    assert abs(by_logits.sum(0)).max() < 2e-5


def many_sets(classes, rows=800, num_sets=(24, 16)):
    """Rows whose classes prefer some sets of each grouping to others."""
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=rows)
    x = rng.normal(size=(rows, 3)) + 2 * labels[:, None]
    columns = []
    for first, m in zip((0, num_sets[0]), num_sets, strict=True):
        likes = rng.dirichlet(np.full(m, 0.5), size=classes) + 0.01
        likes = (likes / likes.sum(axis=1, keepdims=True)).cumsum(axis=1)
        columns.append(first + (rng.random((rows, 1)) > likes[labels]).sum(axis=1).clip(0, m - 1))
    index = np.stack(columns, axis=1)
    present, compact = np.unique(index, return_inverse=True)
    index, m = compact.reshape(index.shape), len(present)
    counts = sum(np.eye(classes)[labels].T @ np.eye(m)[column] for column in index.T).T
    shares = counts / counts.sum(axis=1, keepdims=True)
    shares = ClassShares(shares[:, 1] if classes == 2 else shares)
    grouping = (present >= num_sets[0]).astype(int)
    target = np.bincount(labels) / rows
    return UnlabeledSets(x.astype(np.float32), index, shares.grouped(grouping), target), labels


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("model", ["linear", "boosting", "mlp"])
@pytest.mark.parametrize("method", ["ssc", "count", "set-effects"])
def test_every_model_learns_from_groupings(model, method, classes):
    sets, labels = many_sets(classes)
    learner = fit_learner(sets, Setup(model, method, epochs=6, l2=1e-3))
    z = learner.logits(sets.x)
    for k in range(1, classes):
        score = z if z.ndim == 1 else z[:, k] - z[:, 0]
        pair = (labels == k) | (labels == 0)
        assert np.corrcoef(score[pair], labels[pair] == k)[0, 1] > 0.3


def test_batches_of_whole_sets_hold_sets_of_one_grouping():
    sets, _ = sets_of(rows=200)
    rng = np.random.default_rng(0)
    batches = [*batches_of(sets.set_index, 100, 3, rng, "whole sets", epoch=1)]
    turns = [np.flatnonzero((index >= 0).any(axis=0)).tolist() for _, index in batches]
    assert turns == [[1], [0], [1]]
    for rows, index in batches:
        g = int((index >= 0).any(axis=0).argmax())
        np.testing.assert_array_equal(index[:, g], sets.set_index[rows, g])


def test_rows_of_a_hidden_set_are_in_no_set_of_training():
    # Else a set of another grouping with the same rows would tell the share that is to be guessed.
    sets, _ = sets_of()
    fold = _Fold(sets, np.array([1]))
    assert set(np.flatnonzero(fold.mask)) == set(np.flatnonzero(sets.set_index[:, 0] == 1))
    fold = _Fold(sets, np.array([4]))
    assert fold.grouping == 1
    assert set(np.flatnonzero(fold.mask)) == set(np.flatnonzero(sets.set_index[:, 1] == 4))
    assert fold.truth[0, 1] == sets.set_priors.matrix[4, 1]


def frame_of(index):
    names = np.array(["north", "south", "east", "1", "2"], dtype=object)
    return pd.DataFrame(
        {
            "region": names[index[:, 0]],
            "month": pd.array(np.where(index[:, 1] < 0, None, names[index[:, 1]]), dtype=object),
        }
    )


def shares_of(shares):
    values = shares.matrix[:, 1]
    return {
        "region": dict(zip(("north", "south", "east"), values[:3], strict=True)),
        "month": pd.Series(values[3:], index=[1, 2]),
    }


def test_a_classifier_takes_a_frame_of_groupings(tmp_path):
    x, labels, index, shares = crossed(rows=600)
    sets = frame_of(index)
    clf = UnmixClassifier(shares_of(shares), model="linear", method="ssc", random_state=0)
    clf.fit(x, sets)
    assert clf.set_ids_ == (
        "region: north",
        "region: south",
        "region: east",
        "month: 1",
        "month: 2",
    )
    assert np.mean(clf.predict(x) == labels) > 0.75
    known = clf.predict_proba(x, sets=sets)
    assert np.mean((known[:, 1] - labels) ** 2) < np.mean(
        (clf.predict_proba(x)[:, 1] - labels) ** 2
    )
    clf.save(tmp_path / "model")
    again = UnmixClassifier.load(tmp_path / "model")
    assert again.groupings_ == ("region", "month")
    np.testing.assert_array_equal(again.predict_proba(x, sets=sets), known)
    assert again.score(x, sets) == clf.score(x, sets)
    renewed = UnmixClassifier(**again.get_params()).fit(x, sets)
    np.testing.assert_array_equal(renewed.decision_function(x), clf.decision_function(x))
    # Some of the groupings are enough to predict by.
    np.testing.assert_allclose(again.predict_proba(x, sets=sets[["region"]]).sum(axis=1), 1)


def test_mistakes_with_groupings_are_named():
    _, _, index, shares = crossed(rows=100)
    sets, given = frame_of(index), shares_of(shares)
    with pytest.raises(InputError, match=r"no shares for grouping 'month'.*it has 'region'"):
        grouped_priors({"region": given["region"]}, ["region", "month"])
    by_class = {1: {"a": 0.2, "b": 0.8}, 2: {"a": 0.6, "b": 0.4}}
    with pytest.raises(InputError, match=r"shares of 'region' are of positives, those of 'month'"):
        grouped_priors({"region": given["region"], "month": by_class}, ["region", "month"])
    priors = grouped_priors(given, ["region", "month"])
    with pytest.raises(InputError, match=r"2 groupings.*pass sets as a frame"):
        priors.find_sets(sets["region"].to_numpy())
    with pytest.raises(InputError, match=r"no prior in set_priors: 'west'"):
        priors.find_sets(sets.replace({"region": {"north": "west"}}))
    sets.loc[4] = None
    with pytest.raises(InputError, match="row 5 has no set in any of 'region', 'month'"):
        priors.find_sets(sets)


def test_known_shares_of_all_groupings_are_met_together():
    # Under label shift the odds before the features meet the share of every set.
    _, _, index, shares = crossed(2, rows=500, missing=0.0)
    p = np.array([0.6, 0.4])
    flat = np.full(len(index), np.log(p[1] / p[0]))
    moved = LABEL_SHIFT.known_set(flat, index, shares.matrix, p)
    for j in range(5):
        inside = (index == j).any(axis=1)
        assert expit(moved[inside]).mean() == pytest.approx(shares.matrix[j, 1], abs=1e-5)
    # Two groupings that are the same say no more than one does.
    twice = np.stack((index[:, 0], index[:, 0]), axis=1)
    once = LABEL_SHIFT.known_set(flat, index[:, 0], shares.matrix, p)
    np.testing.assert_allclose(
        LABEL_SHIFT.known_set(flat, twice, shares.matrix, p), once, atol=1e-5
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_expected_effects_of_groupings_are_found_given_each_other(classes):
    _, _, index, shares = crossed(classes, rows=500)
    z = some_logits(len(index), classes)
    moved = SET_EFFECTS.known_set(z, index, shares.matrix, np.full(classes, 1 / classes))
    stated = shares.matrix[:, 1] if classes == 2 else shares.matrix
    rows = index[:, 1] >= 0
    sizes = [
        effect_size(
            z[index[:, g] >= 0], index[index[:, g] >= 0, g] - 3 * g, stated[3 * g :][: 3 - g]
        )
        for g in (0, 1)
    ]
    # Without the months' offsets, those of the regions are what they would be alone, and so on.
    months = np.zeros_like(z)
    for _ in range(300):
        regions = known_set_offsets(z + months, index[:, 0], stated[:3], sizes[0])[index[:, 0]]
        months[rows] = known_set_offsets(
            (z + regions)[rows], index[rows, 1] - 3, stated[3:], sizes[1]
        )[index[rows, 1] - 3]
    np.testing.assert_allclose(moved, z + regions + months, atol=1e-5)


@pytest.fixture(scope="module")
def fitted():
    x, labels, index, shares = crossed(rows=700)
    clf = UnmixClassifier(
        shares_of(shares), model="linear", method="ssc", l2=1e-3, hide_sets=False, random_state=0
    )
    return clf.fit(x, frame_of(index)), x, frame_of(index), labels


def test_judging_says_which_grouping_it_speaks_of(fitted):
    clf, x, sets, labels = fitted
    judged = clf.judge(x, sets, labels=labels)
    found = judged.evaluation
    assert found.grouping in ("region", "month")
    assert found.method.startswith(f"Rates by the sets of {found.grouping}.")
    assert [entry.set_id for entry in found.calibration] == list(clf.set_ids_)
    assert found.rows == 700
    assert {entry.set_id for entry in judged.histograms[0].sets} == set(clf.set_ids_)
    assert abs(found.accuracy.value - found.labeled.accuracy) < 0.1
    # The rival is told the sets of both groupings.
    assert found.model_based.set_share.measured.brier < 0.24
    assert "2 groupings of the same rows" in judged.diagnosis.expectation
    assert any(of.message.startswith("month: ") for of in judged.diagnosis.findings)


def test_groupings_that_disagree_are_told_with_both_averages():
    shares = ClassShares([0.2, 0.6, 0.5, 0.7]).grouped(np.array([0, 0, 1, 1]))
    ids = ("region: a", "region: b", "month: 1", "month: 2")
    told = diagnose_groupings(shares, [500] * 4, ("region", "month"), set_ids=ids)
    (finding,) = [f for f in told.findings if f.subject == "groupings"]
    assert "0.400 by region and 0.600 by month" in finding.message
    unsure = diagnose_groupings(
        shares, [500] * 4, ("region", "month"), set_ids=ids, prior_errors=[0.2] * 4
    )
    assert not [f for f in unsure.findings if f.subject == "groupings"]


def test_prevalence_tells_the_sets_of_each_grouping_and_uses_all_known_shares(fitted):
    clf, x, sets, labels = fitted
    found = clf.prevalence(x, sets)
    assert {entry.set_id for entry in found.sets} == set(clf.set_ids_)
    assert sum(entry.rows for entry in found.sets) == sets.notna().to_numpy().sum()
    groups = pd.Series(np.where(x[:, 0] > 0, "high", "low"), name="side")
    by = clf.prevalence(x, sets, by=groups)
    for entry in by.groups:
        truth = labels[groups == entry.group[0]].mean()
        assert abs(entry.share - truth) < 0.08
    one = clf.prevalence(x, sets["region"])
    assert {entry.set_id for entry in one.sets} == {i for i in clf.set_ids_ if "region" in i}


@pytest.fixture
def files(tmp_path):
    x, _labels, index, shares = crossed(rows=500)
    frame = pd.DataFrame(x, columns=["u", "v", "w"]).round(4)
    frame = pd.concat([frame, frame_of(index)], axis=1)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet", index=False)
    for name, of in shares_of(shares).items():
        pd.DataFrame({name: list(of.keys()), "share": list(dict(of).values())}).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    return tmp_path


def run(*args, code=0):
    found = CliRunner().invoke(main, [str(arg) for arg in args])
    assert found.exit_code == code, found.output
    return found.output


def of_groupings(folder):
    pairs = [("--sets", name, "--priors", folder / f"{name}.csv") for name in ("region", "month")]
    return [part for pair in pairs for part in pair]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_every_command_takes_several_groupings(files, kind):
    rows, both = files / f"rows.{kind}", of_groupings(files)
    assert "2 groupings of the same rows" in run("diagnose", rows, *both)
    quick = ["--model", "linear", "--method", "ssc", "--no-hide-sets"]
    quick += ["--stream"] if kind == "parquet" else []
    model = files / "model"
    run("fit", rows, *both, "-o", model, *quick)
    sets = ["--sets", "region", "--sets", "month"]
    run("predict", model, rows, "-o", files / "known.csv", *sets)
    run("predict", model, rows, "-o", files / "new.csv")
    known, new = (pd.read_csv(files / f"{name}.csv")["probability"] for name in ("known", "new"))
    assert abs(known - new).max() > 0.02
    told = run("prevalence", model, rows, *sets)
    assert "region: north" in told
    assert "month: 2" in told
    assert "By " in run("evaluate", model, rows, *both)


def test_groupings_are_paired_with_their_shares_on_the_command_line(files):
    region = ["--sets", "region", "--priors", files / "region.csv"]
    told = run("diagnose", files / "rows.csv", *region, "--sets", "month", code=2)
    assert "there are 2 --sets and 1 --priors" in told
    told = run("diagnose", files / "rows.csv", *region, *region, code=2)
    assert "column 'region' more than once" in told
