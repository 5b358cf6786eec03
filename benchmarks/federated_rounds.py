"""Rounds that parties with one set each need for a linear model, by this project and by others.

python benchmarks/federated_rounds.py
python benchmarks/federated_rounds.py --noise    the fits with noise alone, again

Ten parties hold one set of MNIST each (even against odd digits, 64 principal components). One round
is one question to all parties. The rivals are trained by the same loss, with a learning rate, and
for FedProx a pull, that were chosen by the *test* AUC they end with: better than anybody could.
"""

import json
import random
import time

import numpy as np
from digit_parties import SHARES, Digits
from measuring import parse_options, write_results
from sklearn.metrics import roc_auc_score

from unmix.federated.agreement import agree
from unmix.federated.messages import Message
from unmix.federated.parties_here import PartiesHere
from unmix.federated.party_sets import PartySets, fit_party_sets
from unmix.federated.replies import Conversation
from unmix.federated.sum_noise import SumNoise
from unmix.federated.together import fit_together
from unmix.learn.linear_fit import fit_linear
from unmix.learn.models import Setup

L2, CLOSE, BATCH = 1e-4, 0.002, 128
RATES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
STEPS = (*RATES, 30.0, 100.0)  # of the server, which sees all rows
PULLS = (0.01, 0.1, 1.0)
EPSILONS = (8.0, 3.0, 1.0)


class Watched(PartiesHere):
    """Keeps the weights at which parties are asked for sums, and counts bytes."""

    def __init__(self, parties):
        super().__init__(parties)
        self.points, self.bytes = [], 0

    def exchange(self, outgoing, timeout):
        asked = Message.from_bytes(next(iter(outgoing.values())))
        # Only the fit itself asks for losses here.
        if asked.kind == "sums" and asked.text["about"] == "losses":
            self.points.append(asked.arrays["point"])
        came = super().exchange(outgoing, timeout)
        self.bytes += sum(len(data) for _, data in came)
        return came


def by_sums(digits):
    """Fit as `unmix federated` does; return the fit, and what it asked."""
    watched = Watched(digits.parties())
    conversation = Conversation(watched)
    agreement = agree(conversation, held_out=0.0, seed=0)
    target = agreement.shares.pooled(agreement.sizes["kept"])
    sets = PartySets.of(conversation, agreement, target)
    return fit_party_sets(sets, Setup("linear", "ssc", l2=L2)).fit, watched


def by_noisy_sums(digits, epsilon, seed):
    """Fit as `unmix federated` does where every party adds noise."""
    parties = digits.parties()
    for j, party in enumerate(parties):
        party.noise = SumNoise(epsilon, norm=8.0, rng=random.Random(100 * seed + j))
    conversation = Conversation(PartiesHere(parties))
    return fit_together(conversation, l2=L2, held_out=0.0).classifier.learner_.fit


def slopes(logits, share, average):
    """Return the derivative of the loss of rows of one set by their logits."""
    stated, pooled = np.log(share / (1 - share)), np.log(average / (1 - average))
    sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    return sigmoid(logits) - sigmoid(logits + stated - pooled)


class Rivals:
    """The same rows and loss, for algorithms that average weights or gradients."""

    def __init__(self, sets, rounds, score):
        self.x = np.hstack((sets.x.astype(float), np.ones((len(sets), 1))))
        self.parts = [np.flatnonzero(sets.set_index == j) for j in range(len(SHARES))]
        self.average, self.rounds, self.score = float(SHARES.mean()), rounds, score

    def gradient(self, rows, share, point):
        """Return the gradient of the mean loss of some rows of a set, with the penalty."""
        x = self.x[rows]
        found = x.T @ slopes(x @ point, share, self.average) / len(rows)
        found[:-1] += L2 * point[:-1]
        return found

    def averaging(self, rate, pull, epochs=1):
        """Return the AUC after each round of FedAvg, or of FedProx with a pull to the server."""
        rng, point, found = np.random.default_rng(0), np.zeros(self.x.shape[1]), []
        for _ in range(self.rounds):
            ends = []
            for rows, share in zip(self.parts, SHARES, strict=True):
                own = point.copy()
                for _ in range(epochs):
                    mixed = rng.permutation(rows)
                    for first in range(0, len(mixed), BATCH):
                        step = self.gradient(mixed[first : first + BATCH], share, own)
                        own -= rate * (step + pull * (own - point))
                ends.append(own)
            point = np.mean(ends, axis=0)  # sets are equally large
            found.append(self.score(point))
        return found

    def gradients(self, rate, *, adam):
        """Return the AUC after each round of FedSGD, by plain steps of the server or Adam."""
        point, found = np.zeros(self.x.shape[1]), []
        first, second = np.zeros_like(point), np.zeros_like(point)
        for number in range(1, self.rounds + 1):
            pairs = zip(self.parts, SHARES, strict=True)
            step = np.mean([self.gradient(rows, share, point) for rows, share in pairs], axis=0)
            if adam:
                first, second = 0.9 * first + 0.1 * step, 0.999 * second + 0.001 * step**2
                step = first / (1 - 0.9**number)
                step = step / (np.sqrt(second / (1 - 0.999**number)) + 1e-8)
            point = point - rate * step
            found.append(self.score(point))
        return found


def summary(scores, central):
    """Return the last AUC and error, and from which round on the AUC is close to `central`."""
    far = [n for n, (auc, _) in enumerate(scores, 1) if abs(auc - central) > CLOSE]
    since = (far[-1] if far else 0) + 1
    auc, error = scores[-1]
    return {"auc": auc, "error": error, "close_from": since if since <= len(scores) else None}


def main():
    """Fit in one place, by sums, and by what others do."""
    options = parse_options("federated_rounds", rows=5_500, rounds=100, components=64, noise=False)
    rows, rounds = (200, 5) if options.quick else (options.rows, options.rounds)
    digits = Digits.draw(rows, options.components)
    sets, encoder = digits.central()
    test = digits.encoded_test(encoder)

    def score(point):
        logits = test @ point[:-1] + point[-1]
        auc = float(roc_auc_score(digits.y_test, logits))
        return auc, float(((logits > 0) != (digits.y_test == 1)).mean())

    central = fit_linear(sets, method="ssc", l2=L2)
    central_auc, central_error = score(np.append(central.weights, central.bias))
    started = time.perf_counter()
    ours, watched = by_sums(digits)
    apart = float(max(abs(ours.weights - central.weights).max(), abs(ours.bias - central.bias)))
    found = {"unmix": summary([score(point) for point in watched.points], central_auc)}
    found["unmix"] |= {"rounds": len(watched.points), "bytes": watched.bytes}
    print("central", central_auc, "apart", apart, found, time.perf_counter() - started, flush=True)
    noisy = with_noise(digits, score)
    if options.noise:
        results = json.loads(options.output.read_text(encoding="utf-8"))
        assert results["rows"] == rows * len(SHARES)
        assert results["ways"]["unmix"] == found["unmix"]
        write_results(options, results | {"noise": noisy})
        return
    found |= of_rivals(sets, rounds, score, central_auc)
    results = {"rows": rows * len(SHARES), "parties": len(SHARES), "components": options.components}
    results |= {"central_auc": central_auc, "central_error": central_error}
    results |= {"apart": apart, "close": CLOSE, "ways": found}
    write_results(options, results | {"noise": noisy})


def of_rivals(sets, rounds, score, central_auc):
    """Return how soon each rival arrives, at the rate that is best for it."""
    found = {}
    rivals = Rivals(sets, rounds, score)
    tried = {
        "FedAvg, 1 epoch": [({"rate": r}, rivals.averaging(r, 0)) for r in RATES],
        "FedAvg, 5 epochs": [({"rate": r}, rivals.averaging(r, 0, 5)) for r in RATES[:5]],
        "FedProx": [
            ({"rate": r, "pull": p}, rivals.averaging(r, p)) for r in RATES[:5] for p in PULLS
        ],
        "FedSGD": [({"rate": r}, rivals.gradients(r, adam=False)) for r in STEPS],
        "FedSGD with Adam": [({"rate": r}, rivals.gradients(r, adam=True)) for r in STEPS],
    }
    for name, runs in tried.items():
        of_runs = [summary(scores, central_auc) | chosen for chosen, scores in runs]
        # Of those that arrive, the one that does so first; else the one that ends best.
        found[name] = min(of_runs, key=lambda run: (run["close_from"] or np.inf, -run["auc"])) | {
            "rounds": rounds,
            "tried": len(runs),
        }
        found[name]["arrived"] = sum(run["close_from"] is not None for run in of_runs)
        found[name]["errors"] = [round(run["error"], 4) for run in of_runs]
        print(name, found[name], flush=True)
    return found


def with_noise(digits, score):
    """Return the AUC of fits with noise, by their epsilon."""
    noisy = {}
    for epsilon in EPSILONS:
        scores = []
        for seed in range(3):
            fit = by_noisy_sums(digits, epsilon, seed)
            scores.append(score(np.append(fit.weights, fit.bias))[0])
        noisy[f"{epsilon:g}"] = scores
        print("epsilon", epsilon, scores, flush=True)
    return noisy


if __name__ == "__main__":
    main()
