"""How often the label-free claims hold, over repeated simulated data sets.

    python benchmarks/without_labels.py [--repetitions 100]

Label shift: Gaussian classes in 20 sets, priors in [0.1, 0.9]. Coverage of the 95 % intervals of
accuracy and AUC, and how often the test of the assumption rejects, when it holds and when
p(x | class) shifts between sets. Covariate shift: 40 sets, shared p(class | x). How often `auto`
picks `proportion`, and AUC beside ssc and supervised learning.
"""

import argparse

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from unmix import UnmixClassifier
from unmix.assess.judge import evaluate_classifier

DIM = 5
DIRECTION = np.array([1.0, -0.8, 0.5, 0.0, 0.0])


def label_shift(rng, num_sets=20, rows=1000, shift=0.0):
    priors = {j: p for j, p in enumerate(rng.uniform(0.1, 0.9, num_sets))}
    sets = np.repeat(np.arange(num_sets), rows)
    labels = rng.random(len(sets)) < np.array([*priors.values()])[sets]
    x = rng.normal(size=(len(sets), DIM)) + labels[:, None] * DIRECTION
    moved = shift * rng.normal(size=(num_sets, 1)) * DIRECTION / np.linalg.norm(DIRECTION)
    return x + moved[sets], sets, labels, priors


def covariate_shift(rng, num_sets=40, rows=500):
    means = rng.normal(scale=0.25, size=(num_sets, DIM))
    sets = np.repeat(np.arange(num_sets), rows)
    x = means[sets] + rng.normal(size=(len(sets), DIM))
    labels = rng.random(len(sets)) < 1 / (1 + np.exp(-(x @ (1.5 * DIRECTION))))
    priors = dict(enumerate(np.bincount(sets, labels) / rows))
    return x, sets, labels, priors


def judged(rng, shift, truth_rows=200_000):
    """Fit on half of the rows of each set, judge on the other half, and find out the truth."""
    x, sets, _, priors = label_shift(rng, shift=shift)
    half = np.arange(len(x)) % 2 == 0
    clf = UnmixClassifier(
        priors, target_prior=0.3, model="linear", method="ssc", l2=1e-4, random_state=0
    )
    clf.fit(x[half], sets[half])
    result = evaluate_classifier(clf, x[~half], sets[~half])
    labels = rng.random(truth_rows) < 0.3
    fresh = rng.normal(size=(truth_rows, DIM)) + labels[:, None] * DIRECTION
    logits = clf.decision_function(fresh)
    truth = {"accuracy": ((logits > 0) == labels).mean(), "auc": roc_auc_score(labels, logits)}
    return result, truth


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=100)
    repetitions = parser.parse_args().repetitions
    covered = {"accuracy": 0, "auc": 0}
    rejected = {0.0: 0, 0.5: 0}
    for seed in range(repetitions):
        for shift in rejected:
            result, truth = judged(np.random.default_rng([seed, 1]), shift)
            rejected[shift] += result.fit_test.p_value < 0.05
            if shift == 0:
                for name in covered:
                    estimate = getattr(result, name)
                    covered[name] += estimate.low <= truth[name] <= estimate.high
    print(f"label shift, {repetitions} repetitions")
    for name, count in covered.items():
        print(f"  95 % interval of {name} covers the truth: {count}")
    print(f"  the test rejects when the assumption holds: {rejected[0.0]}")
    print(f"  the test rejects when p(x | class) shifts by 0.5: {rejected[0.5]}")
    chosen, rows = 0, []
    for seed in range(10):
        rng = np.random.default_rng([seed, 2])
        x, sets, labels, priors = covariate_shift(rng)
        clf = UnmixClassifier(priors, model="linear", random_state=0).fit(x, sets)
        ssc = UnmixClassifier(priors, model="linear", method="ssc", random_state=0).fit(x, sets)
        chosen += clf.method_ == "proportion"
        models = (clf, ssc, LogisticRegression().fit(x, labels))
        rows.append([roc_auc_score(labels, m.decision_function(x)) for m in models])
        spread = np.std([*priors.values()])
        errors = ", ".join(f"{k} {v:.3f}" for k, v in clf.leave_sets_out_.items())
        print(
            f"covariate shift, seed {seed}, spread {spread:.3f}: {clf.method_} ({errors}); AUC "
            f"auto {rows[-1][0]:.3f}, ssc {rows[-1][1]:.3f}, supervised {rows[-1][2]:.3f}",
            flush=True,
        )
    worst = max(row[2] - row[0] for row in rows)
    print(f"auto picks proportion in {chosen} of 10; largest gap to supervised {worst:.3f}")


if __name__ == "__main__":
    main()
