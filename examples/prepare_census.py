"""Write the files of the worked example into a folder: python examples/prepare_census.py story

    customers.csv    9,000 people of 39 occupations; nobody knows who earns more than $50,000
    rates.csv        for each of these occupations the published share of people who do
    new.csv          3,000 people of six occupations without a published share
    lists.csv        the second case: people dealt into ten lists of known shares
    list_rates.csv   these shares
    hidden/          what nobody in the story has, for the check at the end

The data come with this folder (data/README.md says from where): nothing is downloaded.
"""

import sys
from pathlib import Path

import pandas as pd

DATA = Path(__file__).parent / "data"


def main(arguments):
    if len(arguments) != 1:
        print("usage: python prepare_census.py FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    hidden = folder / "hidden"
    hidden.mkdir(parents=True, exist_ok=True)

    people = pd.read_csv(DATA / "census_people.csv.gz", dtype=str)
    people.insert(0, "customer", [f"c{number:05d}" for number in range(1, len(people) + 1)])
    shares = pd.read_csv(DATA / "occupation_shares.csv", dtype=str)[["occupation", "share"]]
    part = people.pop("part")
    lists = people.drop(columns="occupation")
    people = people.drop(columns="list")
    known = people.drop(columns="over_50k")
    answers = people[["customer", "over_50k"]]
    is_new = shares["occupation"].isin(people["occupation"][part == "new"])
    list_shares = lists[part == "lists"].astype({"over_50k": int}).groupby("list")["over_50k"]

    _write(known[part == "customers"], folder / "customers.csv")
    _write(shares[~is_new], folder / "rates.csv")
    _write(known[part == "new"], folder / "new.csv")
    _write(lists[part == "lists"].drop(columns="over_50k"), folder / "lists.csv")
    _write(list_shares.mean().rename("share").reset_index(), folder / "list_rates.csv")
    _write(answers[part == "customers"], hidden / "answers.csv")
    _write(people[part == "check"], hidden / "check.csv")
    _write(answers[part == "new"], hidden / "new_answers.csv")
    _write(shares[is_new], hidden / "new_rates.csv")
    _write(lists[part == "list_check"], hidden / "list_check.csv")
    print(f"10 tables written to {folder}")
    return 0


def _write(frame, path):
    """Write a table."""
    frame.to_csv(path, index=False, lineterminator="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
