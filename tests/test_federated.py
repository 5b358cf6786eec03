"""Parties that fit together by sums find what one table of all rows would have given."""

import random
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from unmix.assess.evaluate import evaluate
from unmix.assess.judge import judge_logits
from unmix.core.class_shares import ClassShares
from unmix.data.benchmark_files import is_present, load_benchmark
from unmix.data.priors import Priors
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.federated.agreement import agree
from unmix.federated.messages import REFUSAL, Message
from unmix.federated.parties_here import PartiesHere
from unmix.federated.party import ANSWERS, Party
from unmix.federated.party_sets import PartySets, fit_party_sets
from unmix.federated.replies import Conversation
from unmix.federated.score_cells import FIXED, ScoreGrid, cell_counts_of_sets
from unmix.federated.sum_noise import SumNoise, epsilon_of
from unmix.federated.together import fit_together
from unmix.learn.encoding import TableEncoder
from unmix.learn.estimator import SetClassifier
from unmix.learn.linear_fit import fit_linear
from unmix.learn.models import Setup, fit_learner, move_logits

METHODS = ("ssc", "count", "set-effects")
ROWS = 150


def hospitals(number=3, wards=4, rows=ROWS, **options):
    """Return parties with some wards each, and their rows in one table."""
    rng = np.random.default_rng(0)
    parties, tables = [], []
    for j in range(number):
        frames, shares = [], {}
        for k in range(wards):
            share = 0.1 + 0.8 * (wards * j + k) / (wards * number - 1)
            y = rng.random(rows) < share
            table = {
                "age": 50 + 10 * rng.normal(size=rows) + 12 * y,
                "lab": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows) - y),
                "unit": np.where(rng.random(rows) < 0.3 + 0.3 * y, "acute", "day"),
            }
            name = f"ward {j}.{k}"
            shares[name] = float(y.mean())
            frames.append(pd.DataFrame(table).assign(ward=name, y=y))
        whole = pd.concat(frames, ignore_index=True)
        tables.append(whole)
        priors = Priors.from_mapping(shares) if wards > 1 else one_set(shares)
        x = whole.drop(columns=["ward", "y"])
        parties.append(Party(f"hospital {j}", x, whole["ward"].to_numpy(), priors, **options))
    return parties, pd.concat(tables, ignore_index=True)


def one_set(shares):
    """Return priors of a single set."""
    return Priors(tuple(shares), ClassShares([*shares.values()]), least_sets=1)


def sets_of(parties, held_out=0.0):
    """Return all sets of parties, agreed on."""
    conversation = Conversation(PartiesHere(parties))
    agreement = agree(conversation, held_out=held_out, seed=0)
    return PartySets.of(conversation, agreement, agreement.shares.pooled(agreement.sizes["kept"]))


def central_sets(table, sets):
    """Return the same sets with all rows in one place."""
    x = TableEncoder.fit(table.drop(columns=["ward", "y"]))
    index = pd.Series(table["ward"]).map({n: j for j, n in enumerate(sets.set_ids)})
    matrix = x.matrix(table.drop(columns=["ward", "y"]))
    return UnlabeledSets(matrix, np.array(index), sets.set_priors, sets.target_prior, sets.set_ids)


def test_the_encoder_that_parties_agree_on_is_that_of_one_table():
    parties, table = hospitals()
    ours = sets_of(parties).asked.agreement.encoder.to_dict()["columns"]
    theirs = TableEncoder.fit(table.drop(columns=["ward", "y"])).to_dict()["columns"]
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert value == (
                pytest.approx(other[key]) if key in ("mean", "deviation") else other[key]
            )


@pytest.mark.parametrize("wards", [1, 4])
@pytest.mark.parametrize("method", METHODS)
def test_the_fit_of_parties_is_that_of_one_table(method, wards):
    parties, table = hospitals(number=6 if wards == 1 else 3, wards=wards)
    sets = sets_of(parties)
    setup = Setup("linear", method, l2=1e-3)
    ours, central = fit_party_sets(sets, setup), central_sets(table, sets)
    theirs = fit_learner(central, setup)
    # Of set effects the size is searched for at every step, to nine digits.
    close = {"rtol": 1e-5, "atol": 1e-5} if method == "set-effects" else {"atol": 1e-9}
    np.testing.assert_allclose(ours.fit.weights, theirs.fit.weights, **close)
    np.testing.assert_allclose(ours.fit.bias, theirs.fit.bias, **close)
    assert ours.tau == pytest.approx(theirs.tau, rel=1e-5)


@pytest.mark.skipif(not is_present("mnist"), reason="MNIST is not there")
def test_ten_parties_with_one_set_of_digits_each_fit_the_model_of_all_digits():
    from sklearn.decomposition import PCA

    mnist = load_benchmark("mnist")
    flat = mnist.x_train[:6_000].reshape(6_000, -1) / 255
    x = PCA(64, random_state=0, svd_solver="randomized").fit_transform(flat)
    positive, negative = (iter(np.flatnonzero(mnist.y_train[:6_000] == y)) for y in (1, 0))
    shares, size = np.linspace(0.1, 0.9, 10), 500
    parties, rows = [], []
    for j, share in enumerate(shares):
        count = round(size * share)
        own = [next(positive if i < count else negative) for i in range(size)]
        frame = pd.DataFrame(x[own], columns=[f"c{i}" for i in range(64)])
        parties.append(Party(f"p{j}", frame, np.array([f"s{j}"] * size), one_set({f"s{j}": share})))
        rows += own
    sets = sets_of(parties)
    ours = fit_party_sets(sets, Setup("linear", "ssc", l2=1e-4)).fit
    matrix = TableEncoder.fit(pd.DataFrame(x[rows])).matrix(pd.DataFrame(x[rows]))
    index = np.repeat(np.arange(10), size)
    central = UnlabeledSets(matrix, index, sets.set_priors, sets.target_prior)
    theirs = fit_linear(central, method="ssc", l2=1e-4)
    assert abs(ours.weights - theirs.weights).max() < 1e-8
    assert abs(ours.bias - theirs.bias) < 1e-8
    assert ours.iterations == theirs.iterations


def test_held_out_sets_choose_as_in_one_place():
    parties, table = hospitals(wards=4)
    fit = fit_together(Conversation(PartiesHere(parties)), l2=1e-3, held_out=0.0, resamples=0)
    shares = fit.agreement.shares.as_given
    priors = dict(zip(fit.agreement.set_ids, shares, strict=True))
    central = SetClassifier(priors, model="linear", l2=1e-3, random_state=0)
    central.fit(table.drop(columns=["ward", "y"]), table["ward"])
    assert fit.classifier.method_ == central.method_
    assert fit.classifier.learner_.setup.l2 == central.learner_.setup.l2
    assert fit.classifier.gains_.keys() == central.gains_.keys()
    for name, gain in central.gains_.items():
        # A party is not told the shares of the others' sets, and goes by their average alone.
        far = {"abs": 1e-3} if name == "set-effects" else {"rel": 0.1}
        assert fit.classifier.gains_[name].z == pytest.approx(gain.z, **far)


class Watched(PartiesHere):
    """Remembers every reply, and the grids that were asked for."""

    def __init__(self, parties):
        super().__init__(parties)
        self.replies, self.grids = [], set()

    def exchange(self, outgoing, timeout):
        for data in outgoing.values():
            if "grid" in (text := Message.from_bytes(data).text):
                self.grids.add(ScoreGrid.of_json(text["grid"]))
        came = super().exchange(outgoing, timeout)
        self.replies += [Message.from_bytes(data) for _, data in came]
        return came


@pytest.fixture(scope="module")
def judged():
    """A fit with rows held out, and the scores of these rows in one place."""
    parties, _ = hospitals(rows=400, least_cell=1)
    transport = Watched(parties)
    fit = fit_together(Conversation(transport), method="ssc", l2=1e-3, resamples=2)
    clf, held = fit.classifier, {"frame": [], "sets": []}
    for party in parties:
        out = party._use == 2
        held["frame"].append(party.frame[out])
        held["sets"].append(np.asarray(party.sets)[out])
    logits = clf.logits_at(pd.concat(held["frame"], ignore_index=True), clf.target_prior_)
    index = np.array([clf.set_ids_.index(name) for name in np.concatenate(held["sets"])])
    return fit, logits, index, transport


def test_evaluation_from_counts_is_to_the_last_bit_that_of_all_rows_in_one_place(judged):
    fit, logits, index, transport = judged
    told = [reply.arrays["cells"] for reply in transport.replies if reply.kind == "cells"]
    ours, (grid,) = np.concatenate(told), transport.grids
    assert 14 <= logits.std() / grid.step < 32
    theirs = cell_counts_of_sets(logits, index, len(fit.agreement.set_ids), 1, grid)
    np.testing.assert_array_equal(ours, theirs)
    # In one place: each row by itself, its score rounded to the middle of its cell.
    clf = fit.classifier
    rounded = grid.scores[np.searchsorted(grid.edges, logits, side="left")]
    order = np.lexsort((rounded, index))  # sums of probabilities hang on it
    at_base = move_logits(rounded, clf.target_prior_, clf.learner_.base_prior)[order]
    again = judge_logits(clf, at_base, np.array(clf.set_ids_, dtype=object)[index[order]])
    assert again.evaluation == fit.judgement.evaluation
    assert again.sentences == fit.judgement.sentences


def test_what_is_decided_is_judged_as_by_the_rows_themselves(judged):
    fit, logits, index, _ = judged
    ours = fit.judgement.evaluation
    theirs = evaluate(
        logits, index, fit.agreement.shares, float(fit.classifier.target_prior_[1]),
        set_ids=fit.agreement.set_ids,
    )  # fmt: skip
    for name in ("accuracy", "balanced_accuracy", "tpr", "fpr", "rows", "num_sets"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.auc.value == pytest.approx(theirs.auc.value, abs=0.001)
    assert ours.fit_test.rejected == theirs.fit_test.rejected


def test_no_reply_grows_with_the_rows():
    sent = {}
    for rows in (120, 480):
        transport = Watched(hospitals(rows=rows)[0])
        fit_together(Conversation(transport), method="ssc", l2=1e-3, resamples=2)
        for reply in transport.replies:
            for name, array in reply.arrays.items():
                kind = reply.kind, name
                sent.setdefault(kind, {}).setdefault(rows, set()).add(array.shape)
    assert {kind for kind, _ in sent} == {"table", "sums", "shares", "cells"}
    assert all(of[120] == of[480] for of in sent.values())
    assert set(ANSWERS) == {"table", "encoder", "sums", "shares", "cells", "model"}


def spoiled(reply, **changes):
    """Return the bytes of a reply with changes."""
    return replace(reply, **changes).to_bytes()


def with_array(reply, change):
    """Return the bytes of a reply with its sums changed."""
    return spoiled(reply, arrays={"sums": change(reply.arrays["sums"])})


def with_numbers(reply, name, change):
    """Return the bytes of a reply with one array changed."""
    return spoiled(reply, arrays=dict(reply.arrays) | {name: change(reply.arrays[name])})


def nan_in(array):
    array = array.copy()
    array[0] = np.nan
    return array


MISBEHAVIOUR = {
    "is silent": ("sums", lambda r: None, "did not answer round"),
    "answers twice": ("sums", lambda r: [r.to_bytes(), r.to_bytes()], "twice"),
    "sends NaN": ("sums", lambda r: with_array(r, nan_in), "NaN"),
    "sends infinity": ("sums", lambda r: with_array(r, lambda a: a + np.inf), "infinite"),
    "sends a short vector": ("sums", lambda r: with_array(r, lambda a: a[:-1]), "of shape"),
    "sends another shape": ("sums", lambda r: with_array(r, lambda a: a[None]), "of shape"),
    "sends float32": ("sums", lambda r: with_array(r, np.float32), "as float32"),
    "sends too much": ("sums", lambda r: with_array(r, lambda a: np.zeros(10**7)), "bytes where"),
    "sends huge numbers": ("sums", lambda r: with_array(r, lambda a: a + 1e200), "above"),
    "takes another's name": ("sums", lambda r: spoiled(r, party="hospital 0"), "in the name of"),
    "answers an old round": ("sums", lambda r: spoiled(r, round=r.round - 1), "answered round"),
    "answers something else": ("sums", lambda r: spoiled(r, kind="cells"), "where 'sums'"),
    "adds an array": ("sums", lambda r: spoiled(r, arrays={**r.arrays, "x": np.ones(1)}), "'x'"),
    "sends noise": ("sums", lambda r: b"\x00" * 100, "no message"),
    "counts below 0": ("cells", lambda r: with_numbers(r, "cells", lambda a: a - 50), "negative"),
    "counts too many": ("cells", lambda r: with_numbers(r, "cells", lambda a: a + 5), "scores in"),
    "counts few": ("cells", lambda r: spoiled(r, text={"least_cell": 50}), "no fewer than 50"),
    "hides its rule": ("cells", lambda r: spoiled(r, text={}), "which counts are too few"),
    "has few rows": ("table", lambda r: with_numbers(r, "rows", lambda a: a // 100), "fewer than"),
    "has shares of 2": ("table", lambda r: with_numbers(r, "shares", lambda a: a + 1), "above 1"),
    "has odd shares": ("table", lambda r: with_numbers(r, "shares", lambda a: a / 2), "sum to 1"),
    "names no sets": ("table", lambda r: spoiled(r, text=dict(r.text) | {"sets": [1]}), "names"),
    "has odd columns": ("table", lambda r: spoiled(r, text={**r.text, "columns": [1]}), "column"),
    "refuses": ("sums", lambda r: spoiled(r, kind=REFUSAL, text={"reason": "no"}), "stopped: no"),
}  # fmt: skip


class Spoiling(PartiesHere):
    """One party misbehaves the second time that it is asked something."""

    def __init__(self, parties, kind, spoil):
        super().__init__(parties)
        self._kind, self._spoil, self._times = kind, spoil, 0

    def exchange(self, outgoing, timeout):
        came = []
        for sender, data in super().exchange(outgoing, timeout):
            reply, bad = Message.from_bytes(data), data
            if sender == "hospital 1" and reply.kind == self._kind:
                self._times += 1
                if self._times > 1 or self._kind != "sums":
                    bad = self._spoil(reply)
            of_sender = [] if bad is None else bad if isinstance(bad, list) else [bad]
            came += [(sender, one) for one in of_sender]
        return came


def test_two_parties_of_one_name_are_refused():
    parties, _ = hospitals()
    parties[2].name = "hospital 1"
    with pytest.raises(InputError, match="two parties have the name 'hospital 1'"):
        Conversation(PartiesHere(parties))


def test_a_party_tells_of_no_set_with_few_rows():
    with pytest.raises(InputError, match=r"set 'ward 0\.0' has 12 rows"):
        hospitals(rows=12)
    with pytest.raises(InputError, match=r"6 rows of set .* would be held out and 19 be left"):
        sets_of(hospitals(rows=25)[0], held_out=0.25)
    parties, _ = hospitals(rows=40, least_rows=30)
    asked = Message("sums", 5, "hospital 0", {"about": "losses", "sets": [], "rows": "kept"})
    reply = Message.from_bytes(parties[0].reply(asked.to_bytes()))
    assert reply.kind == REFUSAL


def asked_for_sums(party, uses, sets):
    """Return the reply of a party to a question for sums over some of its rows."""
    text = {"about": "losses", "method": "ssc", "num_rows": 100, "sets": sets, "rows": uses}
    point = np.zeros(1 + len(party._rows.x[0]))
    share, m = np.linspace(0.2, 0.7, len(sets) + 1), len(sets) + 1  # one for all other parties
    arrays = {"shares": np.stack((1 - share, share), axis=1), "sizes": np.full(m, 50)}
    arrays |= {"counted": np.full(m, -1.0), "errors": np.zeros(m), "target": np.array([0.5, 0.5])}
    asked = Message("sums", 5, party.name, text, arrays | {"point": point})
    return Message.from_bytes(party.reply(asked.to_bytes()))


def test_no_two_replies_differ_by_a_few_rows():
    parties, _ = hospitals(rows=100)
    sets_of(parties, held_out=0.2)
    party = parties[0]
    for sets in ([1], [1, 2], [1, 1, 2]):
        assert asked_for_sums(party, "kept", sets).kind == "sums"
    for uses in ("fitted", "checked"):
        assert asked_for_sums(party, uses, [0, 1, 2, 3]).kind == "sums"
    for uses, sets, words in (
        ("checked", [1], "all sets at once"),  # 16 rows
        ("checked", [1, 2], "all sets at once"),
        ("fitted", [0, 0, 1, 2, 3], "all sets at once"),
        ("judged", [1, 2], "no sum"),
        ("rows", [1, 2], "no sum"),
        ("kept", [], "no set"),
        ("kept", [-1, 3], "that there is not"),
        ("kept", [4], "that there is not"),
    ):
        reply = asked_for_sums(party, uses, sets)
        assert reply.kind == REFUSAL
        assert words in reply.text["reason"]
    again = Message("table", 6, party.name, {"held_out": 0.01, "seed": 1})
    assert "told once" in Message.from_bytes(party.reply(again.to_bytes())).text["reason"]
    asked = {"shift": 0.0, "grid": FIXED.to_json()}
    cells = Message("cells", 7, party.name, asked, {"point": np.zeros(6)})
    assert Message.from_bytes(party.reply(cells.to_bytes())).kind == "cells"
    assert "counted once" in Message.from_bytes(party.reply(cells.to_bytes())).text["reason"]


@pytest.mark.parametrize("epsilon", [8.0, 1e6])
def test_a_fit_by_noisy_sums_is_near_that_without_noise(epsilon):
    rng = random.Random(0)
    parties, table = hospitals(rows=2_000)
    noisy, _ = hospitals(rows=2_000)
    for party in noisy:
        party.noise = SumNoise(epsilon, norm=8.0, rng=rng)
    exact = fit_party_sets(sets_of(parties), Setup("linear", "ssc", l2=1e-4)).fit
    fit = fit_together(Conversation(PartiesHere(noisy)), method="ssc", l2=1e-4, held_out=0.0)
    assert fit.agreement.noise["answers"] == 20
    x = fit.classifier.encoder_.matrix(table.drop(columns=["ward", "y"]))
    ours = x @ fit.classifier.learner_.fit.weights
    correlation = np.corrcoef(ours, x @ exact.weights)[0, 1]
    assert correlation > (0.98 if epsilon == 8 else 0.9995)
    if epsilon > 8:
        assert ours.std() == pytest.approx((x @ exact.weights).std(), rel=0.05)


def test_columns_that_differ_between_parties_are_told():
    parties, _ = hospitals()
    parties[0].frame = parties[0].frame.assign(extra=1.0)
    assert sets_of(parties).asked.agreement.left_out == ["extra"]
    parties, _ = hospitals()
    parties[1].frame = parties[1].frame.assign(age="old")
    with pytest.raises(InputError, match="'age' holds numbers at party 'hospital 2' and text"):
        sets_of(parties)


def test_rare_and_hidden_words_are_not_told():
    parties, _ = hospitals()
    parties[0].frame.loc[:2, "unit"] = "private room of Mr X"
    words = {c.name: c for c in parties[0].shared_columns(parties[0].frame)}["unit"].words
    assert set(words) == {"acute", "day"}
    for party in parties:
        party.hidden_words = ("unit",)
    encoder = sets_of(parties).asked.agreement.encoder
    assert encoder.left_out == {"unit": "no party shares a word of it"}


def test_sets_of_one_name_get_that_of_their_party():
    parties, _ = hospitals(wards=2)
    for party in parties[:2]:
        ids = ("A", party.priors.set_ids[1])
        party.priors = replace(party.priors, set_ids=ids)
    ids = sets_of(parties).set_ids
    assert ids[0] == "hospital 0/A"
    assert ids[2] == "hospital 1/A"
    assert len(set(ids)) == 6


def test_noise_buys_its_epsilon_and_is_as_large_as_it_says():
    noise = SumNoise(epsilon=2.0, norm=5.0, answers=10, rng=random.Random(0))
    assert epsilon_of(noise.sigma / 5.0, 10, noise.delta) == pytest.approx(2.0)
    x = noise.clipped(np.random.default_rng(1).normal(size=(500, 40)) * 3)
    assert np.sqrt((x**2).sum(axis=1) + 1).max() == pytest.approx(5.0)
    rows = UnlabeledSets(x, np.arange(500) % 2, [0.2, 0.7], None)
    from unmix.learn.sums import Question, answer

    question = Question("losses", "ssc", rows.set_priors, rows.set_sizes, 500, None)
    exact = answer(x, rows.set_index, question, np.zeros(41))
    found = np.array([noise.added(exact, question, [0, 1]) for _ in range(10)]) * 500
    assert (found[:, 0] == 0).all()
    spread = (found[:, 1:] - exact[1:] * 500).std()
    assert spread == pytest.approx(noise.sigma, rel=0.15)
    with pytest.raises(InputError, match="all 10 sums"):
        noise.added(exact, question, [0, 1])
    # A row more moves a sum by no more than the length that is assumed.
    without = answer(x[1:], rows.set_index[1:], question, np.zeros(41))
    assert np.sqrt(((exact - without)[1:] ** 2).sum()) * 500 <= 5.0
