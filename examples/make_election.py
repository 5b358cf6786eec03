"""Write the files of the election example into a folder: python examples/make_election.py election

    voters.csv    1,920 people on the electoral roll of 24 precincts; nobody knows how they voted
    results.csv   the votes for each of four parties in each precinct, as published
    hidden/       how each person voted, which nobody has, for the check at the end

The people are simulated. How somebody votes depends on age, education, income and home, and on
something that neighbours share and no file has.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

PARTIES = ("Labour", "Liberal", "Green", "Conservative")
PRECINCTS, PEOPLE = 24, 80
# What each trait adds to the log-odds of each party.
WEIGHTS = {
    "young": (0.3, 0.2, 1.3, -0.6),
    "old": (0.2, -0.3, -0.9, 0.8),
    "degree": (-0.4, 0.7, 0.9, -0.1),
    "income": (-0.8, 0.5, -0.1, 0.7),
    "owner": (-0.5, 0.0, -0.2, 0.8),
}
START = (0.4, -0.2, -0.9, 0.1)
SHARED = 0.35  # standard deviation of what neighbours share, on the scale of log-odds


def main(arguments):
    if len(arguments) != 1:
        print("usage: python make_election.py FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    (folder / "hidden").mkdir(parents=True, exist_ok=True)
    people = draw_people(np.random.default_rng(4))
    votes = pd.crosstab(people["precinct"], people["vote"])[list(PARTIES)].reset_index()
    _write(people.drop(columns="vote"), folder / "voters.csv")
    _write(votes, folder / "results.csv")
    _write(people, folder / "hidden" / "votes.csv")
    print(f"{len(people):,} people in {PRECINCTS} precincts written to {folder}")
    return 0


def draw_people(rng):
    """Draw people, precinct by precinct: neighbours are alike, and some precincts are richer."""
    precinct = np.repeat(np.arange(PRECINCTS), PEOPLE)
    wealth, youth = rng.normal(0, 0.8, (2, PRECINCTS))[:, precinct]
    n = len(precinct)
    age = np.clip(rng.normal(49 - 9 * youth, 15), 18, 95).round().astype(int)
    degree = rng.random(n) < _sigmoid(-0.6 + 0.7 * wealth + 0.4 * youth)
    income = np.exp(rng.normal(10.3 + 0.35 * wealth + 0.3 * degree, 0.4)).round(-2).astype(int)
    owner = rng.random(n) < _sigmoid(-0.3 + 0.9 * wealth + 0.03 * (age - 49))
    traits = {
        "young": age < 35,
        "old": age >= 60,
        "degree": degree,
        "income": np.log(income) - 10.4,
        "owner": owner,
    }
    logits = np.asarray(START) + rng.normal(0, SHARED, (PRECINCTS, len(PARTIES)))[precinct]
    for name, weights in WEIGHTS.items():
        logits = logits + np.multiply.outer(traits[name].astype(float), weights)
    chosen = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return pd.DataFrame(
        {
            "precinct": [f"precinct {j + 1:03d}" for j in precinct],
            "age": age,
            "age_group": np.select([age < 35, age < 60], ["18 to 34", "35 to 59"], "60 and over"),
            "degree": np.where(degree, "yes", "no"),
            "income": income,
            "home": np.where(owner, "owned", "rented"),
            "vote": np.take(PARTIES, chosen),
        }
    )


def _sigmoid(x):
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


def _write(frame, path):
    """Write a table."""
    frame.to_csv(path, index=False, lineterminator="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
