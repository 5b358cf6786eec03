"""Tables with every kind of column and models of them, for tests of what a model is exported to."""

import functools

import numpy as np
import pandas as pd

from unmix import UnmixClassifier

NAMES = ["ant", "bee", "cow"]


def table(rows, rng, *, classes=2, training=True):
    """Rows with numbers, booleans, categories and missing values; new ones hold new categories."""
    y = rng.integers(0, classes, rows)
    x = pd.DataFrame(
        {
            "age": rng.normal(40 + 8 * y, 10),
            "seen at": 1.7e9 + rng.normal(3e3 * y, 1e4),  # float32 would keep two minutes of it
            "member": rng.random(rows) < 0.3 + 0.2 * y,
            "visits": rng.poisson(2 + y).astype(float),
            "city": np.array(["Rome", "Oslo", "København", 'it\'s "q"'])[
                (y + rng.integers(0, 3, rows)) % 4
            ],
            "code": np.array(["007", "7", "n/a"])[rng.integers(0, 3, rows)],
            "same": 3.0,
            "nothing": np.nan,
        }
    )
    x.loc[rng.random(rows) < 0.2, "age"] = np.nan
    x.loc[rng.random(rows) < 0.2, "city"] = None
    if not training:
        x.loc[rng.random(rows) < 0.2, "visits"] = np.nan  # missing where training had all
        x.loc[rng.random(rows) < 0.1, "code"] = None
        x.loc[rng.random(rows) < 0.1, "city"] = "Atlantis"
        x.loc[rng.random(rows) < 0.05, "age"] = 1e12  # beyond what the encoder lets through
        x.loc[rng.random(rows) < 0.05, "visits"] = -1e140
    return x, y


@functools.lru_cache
def fitted(model="linear", classes=2):
    rng = np.random.default_rng(classes)
    x, y = table(1600, rng, classes=classes)
    shares = rng.dirichlet(np.ones(classes), size=10)
    chance = shares[:, y].T  # of each set, given the class of a row
    sets = (chance.cumsum(axis=1) > rng.random((len(y), 1)) * chance.sum(axis=1)[:, None]).argmax(1)
    known = pd.DataFrame(np.eye(classes)[y]).groupby(sets).mean()
    if classes == 2:
        priors, target = known[1].to_dict(), 0.2
    else:
        names = NAMES[:classes]
        priors = {j: dict(zip(names, row, strict=True)) for j, row in known.iterrows()}
        target = dict(zip(names, (0.6, 0.3, 0.1), strict=True))
    clf = UnmixClassifier(
        priors,
        target_prior=target,
        method="ssc",
        model=model,
        epochs=3,
        hidden=(2, 16) if model == "mlp" else None,
        random_state=0,
        hide_sets=False,
    )
    return clf.fit(x, sets)
