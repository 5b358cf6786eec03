"""A network that parties with one set each train together, beside one that has all rows.

python benchmarks/federated_network.py

Ten parties hold one set of MNIST each (even against odd digits, 64 principal components). One round
is one question to all parties. The network of one place has the same layers, without norm and
dropout, and small batches; rows held out of training choose its epoch, as they choose the rounds of
the parties. Labels score what is done, and choose nothing.
"""

import numpy as np
from digit_parties import SHARES, Digits
from measuring import open_runs
from sklearn.metrics import roc_auc_score

from unmix.federated.agreement import agree
from unmix.federated.messages import Message
from unmix.federated.parties_here import PartiesHere
from unmix.federated.party_network import HIDDEN, fit_party_network
from unmix.federated.party_sets import PartySets
from unmix.federated.replies import Conversation
from unmix.learn.methods import METHODS
from unmix.learn.models import Setup
from unmix.learn.network_models import train_in_stages
from unmix.learn.network_sums import build_plain, network_logits, plain_options, weights_of
from unmix.learn.networks import build_model
from unmix.learn.recipes import recipe_for

CLOSE = 0.005
METHOD = METHODS["ssc"]


class Watched(PartiesHere):
    """Keeps the weights at which parties are asked for the gradient over all rows."""

    def __init__(self, parties):
        super().__init__(parties)
        self.points, self.rounds, self.bytes = [], 0, 0

    def exchange(self, outgoing, timeout):
        asked = Message.from_bytes(next(iter(outgoing.values())))
        if asked.kind == "sums" and asked.text["rows"] == "kept":
            self.points.append(asked.arrays["point"])
        came = super().exchange(outgoing, timeout)
        self.rounds += 1
        self.bytes += sum(len(data) for _, data in came)
        return came


class Scores:
    """The AUC and the error of networks on test images."""

    def __init__(self, digits, encoder):
        self.x, self.y = digits.encoded_test(encoder), digits.y_test

    def of(self, logits):
        error = ((logits > 0) != (self.y == 1)).mean()
        return {"auc": float(roc_auc_score(self.y, logits)), "error": float(error)}

    def at(self, point):
        return self.of(network_logits(self.x, 2, HIDDEN, point))


def central(digits, seed, norm):
    """Train in one place, as any network is trained."""
    sets, encoder = digits.central()
    kept, held_out = sets.hold_out(0.1, np.random.default_rng([seed, 3]))
    base = METHOD.base_prior(sets.transition)
    options = plain_options(sets.row_shape, base, HIDDEN)
    network = build_plain(options, seed=seed)
    if norm:
        more = options["network"] | {"norm": True}
        network = build_model("mlp", sets.row_shape, base[1], seed=seed, **more)
    recipe = recipe_for(kept, METHOD, None, fast=False)
    trained, _ = train_in_stages(network, kept, METHOD, recipe, seed=seed, held_out=held_out)
    scores = Scores(digits, encoder)
    if not norm:
        return scores.at(weights_of(trained.selected)) | {"epoch": trained.selected_epoch}
    import torch

    with torch.no_grad():
        logits = trained.selected(torch.from_numpy(scores.x).float()).numpy()
    return scores.of(logits) | {"epoch": trained.selected_epoch}


def parties(digits, seed):
    """Train by the gradients of parties."""
    watched = Watched(digits.parties())
    conversation = Conversation(watched)
    agreement = agree(conversation, held_out=0.0, seed=0)
    target = agreement.shares.pooled(agreement.sizes["kept"])
    sets = PartySets.of(conversation, agreement, target)
    learner = fit_party_network(sets, Setup("mlp", METHOD.name, seed=seed))
    scores = Scores(digits, agreement.encoder)
    found = scores.at(weights_of(learner.fit.module))
    path = [round(scores.at(point)["auc"], 4) for point in watched.points[1:]]
    about = {"epoch": learner.fit.epoch, "rounds": watched.rounds, "path": [*path, found["auc"]]}
    return found | about | {"bytes": watched.bytes}


def main():
    """Train in one place and by parties, from several starts."""
    options, runs = open_runs("federated_network", rows=2_000, components=64, seeds=3)
    rows, seeds = (100, 1) if options.quick else (options.rows, options.seeds)
    digits = Digits.draw(rows, options.components)
    about = {"rows": rows * len(SHARES), "components": options.components}
    for seed in range(seeds):
        runs.once(lambda seed, **_: parties(digits, seed), way="parties", seed=seed, **about)
        for way, norm in (("one place", False), ("one place, batch norm", True)):
            runs.once(
                lambda seed, norm=norm, **_: central(digits, seed, norm),
                way=way,
                seed=seed,
                **about,
            )


if __name__ == "__main__":
    main()
