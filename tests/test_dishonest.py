"""What a server or a party could try that is not honest: what is refused, and what is only said."""

import random
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from test_federated import Spoiling, asked_for_sums, hospitals, one_set, sets_of, with_array
from unmix import UnmixClassifier
from unmix.errors import InputError
from unmix.federated.flower import sealed, unsealed
from unmix.federated.messages import REFUSAL, Message
from unmix.federated.model_copies import give_model, write_given
from unmix.federated.parties_here import PartiesHere
from unmix.federated.party import Party
from unmix.federated.replies import Conversation
from unmix.federated.sum_noise import SumNoise, epsilon_of
from unmix.federated.together import fit_together
from unmix.learn.encoding import TableEncoder


def agreed(**options):
    """Return a party that has told its table and agreed on an encoder."""
    parties, _ = hospitals(**options)
    sets_of(parties)
    return parties[0]


def changed(asked, **arrays):
    """Return the reply to a question with some arrays changed."""
    return replace(asked, arrays=asked.arrays | arrays)


def question_for(party, sets, about="losses", method="ssc"):
    """Return a question for sums over whole sets, at weights of 0."""
    share, m = np.linspace(0.2, 0.7, len(sets) + 1), len(sets) + 1
    text = {"about": about, "method": method, "num_rows": 100, "sets": sets, "rows": "kept"}
    arrays = {"shares": np.stack((1 - share, share), axis=1), "sizes": np.full(m, 50)}
    arrays |= {"counted": np.full(m, -1.0), "errors": np.zeros(m), "target": np.array([0.5, 0.5])}
    point = np.zeros(1 + party._rows.x.shape[1])
    return Message("sums", 5, party.name, text, arrays | {"point": point})


def reply_of(party, asked):
    return Message.from_bytes(party.reply(asked.to_bytes()))


def narrow(party, sets, column, place):
    """Ask for sums at weights so large that only rows at one place of a column count."""
    asked = question_for(party, sets)
    point = np.zeros_like(asked.arrays["point"])
    point[column], point[-1] = 1e7, -1e7 * place
    return reply_of(party, changed(asked, point=point))


def test_a_server_can_work_out_a_row_from_exact_sums_and_not_from_sums_with_noise():
    # The page says so: whoever runs the server must be trusted, or parties add noise.
    party = agreed()
    x = party._rows.x[party.set_index == 1].astype(float)
    found = narrow(party, [1], 0, x[7, 0]).arrays["sums"][1:]
    np.testing.assert_allclose(found[:-1] / found[-1], x[7], rtol=1e-6)
    noisy = agreed(noise=SumNoise(3.0, rng=random.Random(0)))
    found = narrow(noisy, [1], 0, x[7, 0]).arrays["sums"][1:]
    assert abs(found[:-1] / found[-1] - x[7]).max() > 0.5


@pytest.mark.parametrize(
    ("sets", "method", "words"),
    [
        ([1, 1], "ssc", "counts once"),
        ([1, 2], "ssc-mse", "method ssc"),
        ([1, 2], "count", "method ssc"),
    ],
)
def test_noise_is_not_made_smaller_by_another_question(sets, method, words):
    party = agreed(noise=SumNoise(3.0))
    about = "counts" if method == "count" else "losses"
    reply = reply_of(party, question_for(party, sets, about, method))
    assert reply.kind == REFUSAL
    assert words in reply.text["reason"]
    assert party.noise.told == 0


def test_with_noise_no_share_is_told_that_a_model_predicts():
    party = agreed(noise=SumNoise(3.0))
    arrays = {"point": np.zeros(1 + party._rows.x.shape[1]), "base": np.array([0.5, 0.5])}
    asked = Message("shares", 5, party.name, {"sets": [0], "method": "ssc"}, arrays)
    assert "no share" in reply_of(party, asked).text["reason"]
    party.noise = None
    assert reply_of(party, asked).kind == "shares"


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0, 50.0])
@pytest.mark.parametrize("answers", [1, 20, 10_000])
def test_noise_is_enough_by_the_exact_account_of_composed_gaussians(epsilon, answers):
    # T answers with noise s, of sensitivity C each and asked one after the other, tell as much as
    # one of sensitivity C sqrt(T) (Dong, Roth and Su 2022), whose delta at an epsilon is exactly
    # (Balle and Wang 2018): Phi(a - eps / 2a) - exp(eps) Phi(-a - eps / 2a), a = C sqrt(T) / 2s.
    noise = SumNoise(epsilon, answers=answers)
    a = noise.norm * np.sqrt(answers) / (2 * noise.sigma)

    def delta(a):
        shift = epsilon / (2 * a)
        return norm.cdf(a - shift) - np.exp(epsilon + norm.logcdf(-a - shift))

    assert 0 < delta(a) <= noise.delta
    assert delta(1.7 * a) > noise.delta  # and is not much more than enough
    assert epsilon_of(noise.sigma / noise.norm, answers, noise.delta) == pytest.approx(epsilon)


def test_no_row_moves_a_sum_by_more_than_its_length_whatever_is_asked():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": [*rng.normal(size=60), 1e6], "b": [*rng.normal(size=60), -1e6]})
    ids = np.array(["s"] * 61)
    frames = (frame, frame[:60])  # with and without the last row, far from all others

    def sums(frame, share, others, point, encoder):
        party = Party("p", frame, ids[: len(frame)], one_set({"s": 0.5}))
        party.noise = SumNoise(3.0)
        party.noise.added = lambda found, question, sets: found
        reply_of(party, Message("table", 0, "p", {"held_out": 0.0, "seed": 0}))
        reply_of(party, Message("encoder", 1, "p", {"encoder": encoder}))
        shares = np.array([[1 - share, share], [1 - others, others]])
        asked = changed(
            question_for(party, [0]), shares=shares, sizes=np.array([61, 61_000]), point=point
        )
        return reply_of(party, asked).arrays["sums"][1:] * 100

    encoder = TableEncoder.fit(frame[:60]).to_dict()
    largest = 0.0
    for share, others, scale in ((0.5, 0.2, 0), (1.0, 0.0, -1), (0.0, 1.0, 1), (1.0, 0.0, 1e5)):
        point = scale * np.array([1.0, -1.0, 0.0])
        one, other = (sums(frame, share, others, point, encoder) for frame in frames)
        moved = np.sqrt(((one - other) ** 2).sum())
        assert moved <= 8.0 * (1 + 1e-9)
        largest = max(largest, moved)
    assert largest > 7.9  # a row can come close to the bound


def test_a_word_that_was_not_told_stays_unknown_though_the_encoder_names_it():
    parties, _ = hospitals()
    party = parties[0]
    party.frame.loc[party.frame.index[:2], "unit"] = "room of Mr X"
    sets_of(parties)
    encoder = TableEncoder.fit(party.frame).to_dict()
    assert "room of Mr X" in str(encoder)
    assert "numbers" not in str(encoder)
    age = {"kind": "category", "name": "age", "categories": [str(party.frame["age"].iloc[3])]}
    guessed = [*encoder["columns"][1:], age | {"rare": True, "missing": False}]
    for columns in (encoder["columns"], guessed):
        state = {"version": encoder["version"], "columns": columns}
        reply_of(party, Message("encoder", 9, party.name, {"encoder": state}))
        names = TableEncoder.from_dict(state).feature_names
        secret = [i for i, name in enumerate(names) if "Mr X" in name or "age=" in name]
        assert secret
        assert not party._rows.x[:, secret].any()
        assert party._rows.x[:, names.index("unit=day")].any()


def test_a_seal_is_made_by_the_code_and_for_these_bytes():
    data = sealed("our code", b"a question")
    assert unsealed("our code", data) == (b"a question", True)
    assert unsealed("their code", data) == (b"a question", False)
    assert not unsealed("our code", data[:-1])[1]
    assert not unsealed("our code", b"")[1]


def test_numbers_of_a_few_rows_are_not_told_and_count_as_missing():
    parties, _ = hospitals()
    party = parties[0]
    party.frame["lab"] = np.nan
    party.frame.loc[party.frame.index[:7], "lab"] = 123.25
    told = {column.name: column for column in party.shared_columns(party.frame)}["lab"]
    assert told.kind == "empty"
    assert (told.count, told.mean) == (0, 0.0)
    sets = sets_of(parties)
    names = sets.asked.agreement.encoder.feature_names
    x = party._rows.x
    assert not x[:, names.index("lab")].any()
    assert x[:, names.index("lab is missing")].all()
    assert parties[1]._rows.x[:, names.index("lab")].any()


def test_what_is_wrong_with_a_row_is_told_to_its_owner_alone():
    parties, _ = hospitals()
    party = parties[0]
    party.frame.loc[party.frame.index[5], "age"] = 7.5e299
    odd = {"kind": "number", "name": "unit", "mean": 0.0, "deviation": 1.0, "missing": False}
    told = Message("table", 0, party.name, {"held_out": 0.0, "seed": 0})
    asked = Message("encoder", 1, party.name, {"encoder": {"version": 1, "columns": [odd]}})
    for question, words in ((told, r"7\.5e\+299 in row 5"), (asked, "'day'|'acute'")):
        if question is asked:
            party = agreed()
        reply = reply_of(party, question)
        assert reply.kind == REFUSAL
        assert reply.text["reason"] == "it cannot answer; its owner is told why"
        assert re.search(words, party.trouble)
    parties, _ = hospitals()
    parties[2].frame = parties[2].frame.assign(age=pd.Timestamp("2026-01-01").time())
    with pytest.raises(InputError, match=r"party 'hospital 2': column 'age' holds values of type"):
        sets_of(parties)  # who tries it owns them all


@pytest.mark.parametrize(("wards", "method"), [(1, "set-effects"), (3, "ssc")])
def test_the_copy_of_a_party_knows_no_set_of_another(wards, method, tmp_path):
    parties, table = hospitals(number=3, wards=wards, rows=90)
    fit = fit_together(Conversation(PartiesHere(parties)), method=method, l2=1e-3, resamples=2)
    conversation = Conversation(PartiesHere(parties))
    give_model(conversation, fit)
    x = table.drop(columns=["ward", "y"])
    for j, party in enumerate(parties):
        folder = tmp_path / party.name
        folder.mkdir()
        write_given(party.model, folder)
        clf = UnmixClassifier.load(folder)
        ours = fit.classifier
        np.testing.assert_array_equal(clf.predict_proba(x), ours.predict_proba(x))
        own = table["ward"].str.startswith(f"ward {j}.")
        known = {name: ours.stated_priors_[name] for name in table["ward"][own].unique()}
        if wards > 1:
            args = x[own], table["ward"][own]
            np.testing.assert_array_equal(
                clf.predict_proba(args[0], sets=args[1], set_priors=known),
                ours.predict_proba(args[0], sets=args[1], set_priors=known),
            )
        text = (folder / "model.json").read_text()
        assert set(re.findall(r"ward \d\.\d", text)) == set(known)
        others = [repr(float(s)) for name, s in ours.stated_priors_.items() if name not in known]
        long = [share for share in others if len(share) > 10]  # 0.1 is in many numbers
        assert long
        assert not any(share in text for share in long)
        assert clf.set_ids_[-1] == "all other parties"
        assert len(clf.set_ids_) == wards + 1


LIES = {
    "turns its gradient round": ("ssc", lambda a: -a),
    "multiplies it": ("ssc", lambda a: 1e6 * a),
    "sends any numbers": ("ssc", lambda a: np.random.default_rng(0).normal(size=a.shape)),
    "has a loss below 0": ("ssc", lambda a: np.append(-1.0, a[1:])),
    "has variances below 0": ("set-effects", lambda a: a - 1.0),
}


@pytest.mark.parametrize("what", LIES)
def test_sums_that_no_rows_can_have_end_the_fit(what):
    method, lie = LIES[what]
    transport = Spoiling(hospitals()[0], "sums", lambda reply: with_array(reply, lie))
    with pytest.raises(InputError, match="party 'hospital 1' sent") as found:
        fit_together(Conversation(transport), method=method, l2=1e-3, resamples=0)
    assert "cannot have" in str(found.value) or "negative" in str(found.value)


def test_a_party_that_claims_very_many_rows_does_not_fill_the_memory_of_the_server():
    def many(reply):
        kinds = ("rows", "judged")
        more = {name: reply.arrays[name] + 10**11 for name in kinds}
        return replace(reply, arrays=reply.arrays | more).to_bytes()

    transport = Spoiling(hospitals()[0], "table", many)
    with pytest.raises(InputError, match=r"party 'hospital 1' holds 400,000,000,\d+ rows out"):
        fit_together(Conversation(transport), method="ssc", l2=1e-3, resamples=0)


def test_a_name_that_cannot_be_written_is_no_message():
    def half(reply):
        return replace(reply, text=reply.text | {"sets": ["\ud800", "b", "c", "d"]}).to_bytes()

    transport = Spoiling(hospitals()[0], "table", half)
    with pytest.raises(InputError, match="party 'hospital 1' sent bytes that are no message"):
        fit_together(Conversation(transport))


def test_sums_over_sets_that_a_party_does_not_have_are_refused():
    party = agreed()
    for sets in ([-1], [0, 99], []):
        assert asked_for_sums(party, "kept", sets).kind == REFUSAL
