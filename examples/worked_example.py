"""The worked example in Python: python examples/worked_example.py story

Reads the folder that prepare_census.py wrote. The first half uses what the bank has; the second
half opens the hidden answers to see how well that went.
"""

import sys
from pathlib import Path

import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from unmix import UnmixClassifier

NUM_LETTERS = 300
NO_FEATURES = ["customer", "occupation", "over_50k"]


def main(folder):
    customers, new, check = (
        _read(folder / f"{n}.csv") for n in ("customers", "new", "hidden/check")
    )
    rates = pd.read_csv(folder / "rates.csv").set_index("occupation")["share"]

    clf = UnmixClassifier(rates, random_state=0).fit(_features(customers), customers["occupation"])
    errors = ", ".join(f"{name} {error:.3f}" for name, error in clf.leave_sets_out_.items())
    print(f"method {clf.method_}, model {clf.model_}")
    print(f"error of the share of held-out sets: {errors}")

    new["probability"] = clf.predict_proba(_features(new))[:, 1]
    letters = new.nlargest(NUM_LETTERS, "probability")

    print("\nHere the hidden answers are opened.")
    answers = _read(folder / "hidden/new_answers.csv").set_index("customer")["over_50k"]
    print(f"letters that reach someone over $50,000: {answers[letters['customer']].mean():.0%}")
    print(f"  if sent at random:                     {answers.mean():.0%}")
    print(f"  if the probabilities were right:       {letters['probability'].mean():.0%}")

    print("\nshares of new occupations    predicted   published later")
    published = _read(folder / "hidden/new_rates.csv").set_index("occupation")["share"]
    shares = clf.prevalence(_features(new), new["occupation"]).sets
    predicted = {entry.set_id: entry.share for entry in shares}
    for name, share in published.sort_values(ascending=False).items():
        print(f"{name:28} {predicted[name]:9.3f} {share:17.3f}")

    labels = _read(folder / "hidden/answers.csv")["over_50k"]  # in the order of customers.csv
    between, within = degree_slopes(customers, labels)
    print("\nhow much more often people with a degree are over $50,000")
    print(f"between occupations {between:.2f}, between people of one occupation {within:.2f}")

    check = _read(folder / "hidden/check.csv")
    answers = check["over_50k"]
    print(f"\n{len(check):,} other customers of known occupations       AUC   Brier score")
    scores = {
        "unmix, no label": clf.predict_proba(_features(check))[:, 1],
        "unmix, share of the occupation known": clf.predict_proba(
            _features(check), sets=check["occupation"]
        )[:, 1],
        "share of the occupation": check["occupation"].map(rates),
    }
    for name, model in supervised().items():
        fitted = model.fit(_features(customers), labels)
        scores[name] = fitted.predict_proba(_features(check))[:, 1]
    for name, score in scores.items():
        brier = ((score - answers) ** 2).mean()
        print(f"{name:38} {roc_auc_score(answers, score):.3f}         {brier:.3f}")


def degree_slopes(people, labels):
    """Return the slope of the label on having a degree, between and within occupations."""
    degree = people["education"].str.contains("Bachelor|Master|Prof school|Doctor").astype(float)
    table = pd.DataFrame({"degree": degree, "label": labels})
    means = table.groupby(people["occupation"]).transform("mean")
    between, within = means - table.mean(), table - means
    slopes = [(t["degree"] @ t["label"]) / (t["degree"] @ t["degree"]) for t in (between, within)]
    return tuple(slopes)


def supervised():
    """Return the usual models, which need 9,000 labels."""
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
        (StandardScaler(), make_column_selector(dtype_include="number")),
    )
    trees = LGBMClassifier(
        n_estimators=150, learning_rate=0.05, num_leaves=15, n_jobs=1, random_state=0, verbose=-1
    )
    return {
        "logistic regression, 9,000 labels": make_pipeline(
            columns, LogisticRegression(max_iter=1000)
        ),
        "gradient boosting, 9,000 labels": make_pipeline(columns, trees),
    }


def _read(path):
    """Read a table."""
    return pd.read_csv(path)


def _features(frame):
    """Return the columns to learn from."""
    return frame.drop(columns=[*NO_FEATURES, "probability"], errors="ignore")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python worked_example.py FOLDER")
    main(Path(sys.argv[1]))
