"""Write the files of the advertising example into a folder: python examples/make_ads.py ads

    visits.csv      7,200 visits with campaign and country; nobody knows which led to a sale
    campaigns.csv   visits and conversions of each of 24 campaigns, with noise added for privacy
    countries.csv   the same for each of 8 countries
    hidden/         which visit led to a sale, which nobody has, for the check at the end

The visits are simulated. The noise is Gaussian with a known standard deviation, as in aggregate
reports of browsers and advertising platforms: counts are fractional and may be negative.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

CAMPAIGNS, COUNTRIES, VISITS = 24, 8, 7_200
NOISE = 6.0  # standard deviation added to each count


def main(arguments):
    if len(arguments) != 1:
        print("usage: python make_ads.py FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    (folder / "hidden").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    visits = draw_visits(rng)
    for name, column in {"campaigns": "campaign", "countries": "country"}.items():
        counts = visits.groupby(column)["bought"].agg(visits="size", conversions="sum")
        counts["conversions"] = (counts["conversions"] + rng.normal(0, NOISE, len(counts))).round(2)
        _write(counts.reset_index(), folder / f"{name}.csv")
    _write(visits.drop(columns="bought"), folder / "visits.csv")
    _write(visits, folder / "hidden" / "visits.csv")
    print(f"{VISITS:,} visits of {CAMPAIGNS} campaigns in {COUNTRIES} countries in {folder}")
    return 0


def draw_visits(rng):
    """Draw visits: campaigns and countries reach other people, and what they do decides."""
    campaign = rng.integers(CAMPAIGNS, size=VISITS)
    country = rng.integers(COUNTRIES, size=VISITS)
    reach = rng.normal(0, 1.0, CAMPAIGNS)[campaign] + rng.normal(0, 0.7, COUNTRIES)[country]
    pages = rng.poisson(np.exp(0.6 + 0.35 * reach))
    minutes = np.exp(rng.normal(0.7 + 0.4 * reach, 0.8)).round(1)
    cart = rng.random(VISITS) < _sigmoid(-1.4 + 0.9 * reach)
    phone = rng.random(VISITS) < 0.6
    logit = -3.6 + 0.25 * pages + 0.35 * np.log1p(minutes) + 2.2 * cart - 0.5 * phone
    logit += rng.normal(0, 0.2, CAMPAIGNS)[campaign] + rng.normal(0, 0.2, COUNTRIES)[country]
    return pd.DataFrame(
        {
            "campaign": [f"campaign {j + 1:02d}" for j in campaign],
            "country": [f"country {chr(ord('A') + j)}" for j in country],
            "pages": pages,
            "minutes": minutes,
            "cart": np.where(cart, "yes", "no"),
            "device": np.where(phone, "phone", "computer"),
            "bought": (rng.random(VISITS) < _sigmoid(logit)).astype(int),
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
