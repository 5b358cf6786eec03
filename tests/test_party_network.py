"""A network that parties learn together takes the steps of one that sees all rows."""

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from test_federated import Spoiling, central_sets, hospitals, nan_in, sets_of, with_array
from unmix import UnmixClassifier
from unmix.cli import main
from unmix.errors import InputError
from unmix.federated import party_network
from unmix.federated.messages import REFUSAL, Message
from unmix.federated.parties_here import PartiesHere
from unmix.federated.party_network import PartyGradients, fit_party_network
from unmix.federated.replies import Conversation
from unmix.federated.sum_noise import SumNoise
from unmix.federated.together import fit_together
from unmix.learn.methods import METHODS, risk_of
from unmix.learn.models import Setup
from unmix.learn.network_sums import build_plain, plain_options, weights_of
from unmix.learn.recipes import Recipe
from unmix.learn.training import train

HIDDEN = (2, 16)


@pytest.fixture
def short(monkeypatch):
    """Trainings of a few rounds, and a network of a few units."""
    monkeypatch.setattr(party_network, "ROUNDS", 60)
    monkeypatch.setattr(party_network, "RATE", 1e-2)
    monkeypatch.setattr(party_network, "HIDDEN", HIDDEN)


def network_for(sets, seed=0):
    base = METHODS["ssc"].base_prior(sets.transition)
    return build_plain(plain_options(sets.row_shape, base, HIDDEN), seed=seed)


@pytest.mark.parametrize("number", [3, 12])  # the same twelve wards
def test_gradients_of_parties_are_those_of_all_rows(number):
    parties, table = hospitals(number=number, wards=12 // number)
    sets = sets_of(parties)
    network = network_for(sets)
    whole = central_sets(table, sets)
    asked = PartyGradients(sets, sets.question("losses", METHODS["ssc"]), network, HIDDEN)
    found = asked.asked(network, slopes=True)
    logits = network(torch.from_numpy(whole.x).float())
    risk = risk_of(METHODS["ssc"], whole.transition)(logits, torch.tensor(whole.set_index))
    risk.backward()
    gradient = torch.cat([p.grad.ravel() for p in network.parameters()]).numpy()
    assert found[0] == pytest.approx(risk.item(), rel=1e-5)
    assert abs(gradient).max() > 0.005
    np.testing.assert_allclose(found[1:], gradient, atol=2e-7)
    assert asked.asked(network, slopes=False) == pytest.approx([risk.item()], rel=1e-5)


def test_steps_of_parties_are_those_of_one_table(short):
    parties, table = hospitals()
    sets = sets_of(parties)
    ours = fit_party_network(sets, Setup("mlp", "ssc", seed=3), rounds=6)
    whole, network = central_sets(table, sets), network_for(sets, seed=3)
    before = weights_of(network)
    recipe = Recipe("central", 60, 1e-2, "cosine", batch_size=len(whole), weight_decay=0.1)
    train(network, whole, METHODS["ssc"], recipe, seed=0, device="cpu", stop=6)
    # Adam divides small gradients by small numbers, which shows how they were rounded.
    np.testing.assert_allclose(weights_of(ours.fit.module), weights_of(network), atol=2e-4)
    assert abs(weights_of(network) - before).max() > 0.01


def test_a_network_of_parties_is_chosen_and_judged_without_labels_and_saved(short, tmp_path):
    parties, table = hospitals(rows=300)
    fit = fit_together(Conversation(PartiesHere(parties)), model="mlp")
    clf = fit.classifier
    assert clf.learner_.fit.epoch % 5 == 0
    assert clf.gains_["ssc"].z > 2
    assert fit.judgement.evaluation.auc.value > 0.7
    clf.save(tmp_path / "model")
    again = UnmixClassifier.load(tmp_path / "model")
    x = table.drop(columns=["ward", "y"])
    np.testing.assert_allclose(again.predict_proba(x), clf.predict_proba(x))
    scores = again.predict_proba(x)[:, 1]
    assert scores[table["y"]].mean() - scores[~table["y"]].mean() > 0.2
    assert again.model_ == "mlp"


def test_a_party_that_sends_no_gradient_of_a_network_is_named(short):
    for words, spoil in (
        ("NaN", lambda r: with_array(r, nan_in)),
        ("of shape", lambda r: with_array(r, lambda a: a[:-1])),
        ("as float64", lambda r: with_array(r, np.float64)),
    ):
        transport = Spoiling(hospitals()[0], "sums", spoil)
        with pytest.raises(InputError, match=f"party 'hospital 1' sent sums .*{words}"):
            fit_together(Conversation(transport), model="mlp")


def test_what_a_network_cannot_do_is_refused(short):
    parties, _ = hospitals()
    with pytest.raises(InputError, match="learn by method ssc, not by count"):
        fit_together(Conversation(PartiesHere(parties)), model="mlp", method="count")
    parties, _ = hospitals(noise=SumNoise(3.0))
    with pytest.raises(InputError, match="nothing bounds a row of a network"):
        fit_together(Conversation(PartiesHere(parties)), model="mlp")
    parties, _ = hospitals()
    with pytest.raises(InputError, match="fit model linear or mlp; got 'forest'"):
        fit_together(Conversation(PartiesHere(parties)), model="forest")


def test_a_party_asks_whether_weights_are_those_of_a_network():
    sets = sets_of(hospitals()[0])
    party = sets.asked.conversation._transport._each[0]
    for hidden, size in (
        ([10**9, 8], 100),
        ([2, 10**9], 100),
        ([2, 8], 7),
        ("x", 7),
        ([2, 8], 10**5),
    ):
        share = np.array([[0.8, 0.2], [0.3, 0.7]])
        text = {"about": "losses", "method": "ssc", "num_rows": 100, "sets": [0], "rows": "kept"}
        arrays = {"shares": share, "sizes": np.array([150, 150]), "target": np.array([0.5, 0.5])}
        arrays |= {"counted": np.full(2, -1.0), "errors": np.zeros(2)}
        arrays |= {"point": np.zeros(size, dtype=np.float32)}
        asked = Message("sums", 3, party.name, text | {"hidden": hidden, "slopes": True}, arrays)
        reply = Message.from_bytes(party.reply(asked.to_bytes()))
        assert reply.kind == REFUSAL
        assert "weights" in party.trouble or "hidden must be" in party.trouble


def test_the_command_trains_a_network(short, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, table = hospitals(wards=2, rows=100)
    for j in range(3):
        own = table[table["ward"].str.startswith(f"ward {j}.")]
        (tmp_path / f"h{j}").mkdir()
        own.drop(columns="y").to_csv(tmp_path / f"h{j}/rows.csv", index=False)
        own.groupby("ward")["y"].mean().rename("share").to_csv(tmp_path / f"h{j}/shares.csv")
    folders = ("h0", "h1", "h2", "--rows", "rows.csv", "--priors", "shares.csv", "--sets", "ward")
    command = ("federated", "try", *folders, "-o", "m")
    found = CliRunner().invoke(main, [*command, "--model", "mlp"])
    assert found.exit_code == 0, found.output
    rows = pd.read_csv("h1/rows.csv")
    assert np.ptp(UnmixClassifier.load("m").predict_proba(rows.drop(columns="ward"))[:, 1]) > 0.1
