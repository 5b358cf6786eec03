"""Walks from files to report: published rates, counts with noise, votes. The truth is held back.

Each starts with the files as somebody would have them; `diagnose` may be asked once, and then `fit`
succeeds. What the commands claim is compared with labels that no command has seen.
"""

import json
import re

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from unmix.cli import main


def run(*args):
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    return result


def told(*args):
    """Return what a command says as JSON."""
    return json.loads(run(*args, "--json").stdout)


def test_patients_with_published_rates_intervals_and_suppressed_cells(tmp_path):
    rng = np.random.default_rng(0)
    names = [f"District {i}" for i in range(1, 31)]
    share = rng.uniform(0.1, 0.6, 30)
    sizes = rng.integers(120, 300, 30)
    district = np.repeat(np.arange(30), sizes)
    ill = rng.random(len(district)) < share[district]
    visit = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 365, len(ill)), "D")
    rows = pd.DataFrame(
        {
            "patient_id": [f"P{i:06}" for i in rng.permutation(len(ill))],
            "district": np.array(names)[district],
            "visit": visit.strftime("%Y-%m-%d"),
            "age": rng.normal(50 + 12 * ill, 12).round(),
            "pressure": np.where(
                rng.random(len(ill)) < 0.05, np.nan, rng.normal(130 + 15 * ill, 15)
            ),
            "smoker": np.where(rng.random(len(ill)) < 0.25 + 0.35 * ill, "yes", "no"),
        }
    )
    split = rng.random(len(rows)) < 0.7
    rows[split].to_csv(tmp_path / "patients.csv", index=False)
    rows[~split].assign(outcome=ill[~split].astype(int)).to_csv(tmp_path / "new.csv", index=False)
    survey = 2000  # people asked in each district
    found = rng.binomial(survey, share) / survey
    half = 1.96 * np.sqrt(found * (1 - found) / survey)
    cells = [f"{100 * p:.1f}" for p in found]
    cells[3] = cells[17] = "*"
    published = pd.DataFrame(
        {
            "District": names,
            "Prevalence (%)": cells,
            "Lower 95% CI": (100 * (found - half)).round(1),
            "Upper 95% CI": (100 * (found + half)).round(1),
            "Source": "survey",
        }
    )
    published.to_excel(tmp_path / "rates.xlsx", index=False)

    named = ("--sets", "district", "--priors", tmp_path / "rates.xlsx")
    said = run("diagnose", tmp_path / "patients.csv", *named)
    assert "in percent, 'Lower 95% CI' to 'Upper 95% CI' its 95 % interval" in said.output
    fit = run(
        "fit", tmp_path / "patients.csv", *named, "-o", tmp_path / "model", "--model", "linear"
    )
    assert "rows are left out: their 2 sets ('District" in fit.stderr
    assert "Column 'patient_id' is left out: no two rows have the same." in fit.stdout
    assert (tmp_path / "model" / "report.html").stat().st_size < 3_000_000

    judged = told(
        "evaluate", tmp_path / "model", tmp_path / "new.csv", *named, "--labels", "outcome"
    )
    assert judged["labeled"]["auc"] > 0.8
    if judged["rates_hold"]:
        for name in ("accuracy", "auc"):
            claim = judged[name]
            assert claim["low"] <= judged["labeled"][name] <= claim["high"]
    by = ("--by", "smoker", "--sets", "district", "--priors", tmp_path / "rates.xlsx")
    groups = told("prevalence", tmp_path / "model", tmp_path / "new.csv", *by)["groups"]
    truth = pd.Series(ill[~split]).groupby(rows.loc[~split, "smoker"].to_numpy()).mean()
    for group in groups:
        assert group["low"] <= truth[group["group"][0]] <= group["high"]


def test_campaigns_with_noisy_counts_in_forty_parquet_files(tmp_path):
    rng = np.random.default_rng(0)
    share, size, truth = rng.uniform(0.05, 0.35, 40), 400, []
    (tmp_path / "visits").mkdir()
    for campaign in range(40):
        bought = rng.random(size) < share[campaign]
        device = rng.random(size)[:, None] > np.where(bought[:, None], [0.35, 0.85], [0.65, 0.9])
        rows = pd.DataFrame(
            {
                "campaign": f"campaign {campaign:02}",
                "device": np.array(["phone", "desktop", "tablet"])[device.sum(axis=1)],
                "seconds": np.exp(rng.normal(3 + 0.8 * bought)),
                "pages": rng.poisson(2 + 3 * bought),
                "hour": rng.integers(0, 24, size),
            }
        )
        rows.to_parquet(tmp_path / "visits" / f"part-{campaign:02}.parquet", index=False)
        truth.append(rows.assign(bought=bought))
    visits = pd.concat(truth, ignore_index=True)
    counts = visits.groupby("campaign", as_index=False)["bought"].sum()
    counts["conversions"] = (counts.pop("bought") + rng.normal(0, 10, 40)).round(1)
    counts.assign(impressions=size).to_csv(tmp_path / "counts.csv", index=False)
    assert (counts["conversions"] < 0).sum() <= 2  # noise may leave fewer than none

    named = ("--sets", "campaign", "--priors", tmp_path / "counts.csv", "--count-noise", "10")
    fit = run("fit", tmp_path / "visits", *named, "-o", tmp_path / "model", "--model", "linear")
    assert "'conversions' of 'impressions' with noise of standard deviation 10" in fit.stdout
    assert re.search("Gain over guessing: (weak|clear)", fit.stdout)

    visits.to_csv(tmp_path / "judged.csv", index=False)
    asked = (tmp_path / "model", tmp_path / "judged.csv", *named)
    judged = told("evaluate", *asked, "--labels", "bought")
    assert judged["labeled"]["auc"] > 0.85
    for name in ("accuracy", "auc") if judged["rates_hold"] else ():
        assert judged[name]["low"] <= judged["labeled"][name] <= judged[name]["high"]
    groups = told("prevalence", tmp_path / "model", tmp_path / "visits", "--by", "device", *named)
    of_device = visits.groupby("device")["bought"].mean()
    assert {group["group"][0] for group in groups["groups"]} == set(of_device.index)
    for group in groups["groups"]:
        assert group["low"] <= of_device[group["group"][0]] <= group["high"]
        assert group["high"] - group["low"] < 0.2


def test_votes_for_four_parties_in_two_thousand_precincts(tmp_path):
    rng = np.random.default_rng(2)
    parties = np.array(["alder", "birch", "cedar", "dogwood"])
    precincts, size = 2000, 8
    precinct = np.repeat(np.arange(precincts), size)
    x = rng.normal(size=(len(precinct), 2)) + rng.normal(0, 0.8, (precincts, 2))[precinct]
    town = rng.random(len(precinct)) < 0.5
    weights = np.array([[0.0, 1.5, -1.0, 0.0], [0.0, -0.5, 1.5, -1.5]])
    logits = x @ weights + np.outer(town, [0.0, 0.7, 0.0, -0.7])
    cumulated = np.cumsum(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), axis=1)
    vote = (rng.random(len(precinct))[:, None] > cumulated).sum(axis=1).clip(0, 3)
    ids = np.array([f"{i // 100:02}-{i % 100:03}" for i in range(precincts)])
    rows = pd.DataFrame(
        {"precinct": ids[precinct], "income": x[:, 0], "age": x[:, 1], "town": town}
    )
    rows.to_parquet(tmp_path / "voters.parquet", index=False)
    votes = np.stack([np.bincount(precinct, vote == k) for k in range(4)], axis=1).astype(int)
    table = pd.DataFrame(votes, columns=parties)
    table.insert(0, "precinct", ids)
    table.assign(total=votes.sum(axis=1)).to_csv(tmp_path / "votes.csv", index=False)

    named = ("--sets", "precinct", "--priors", tmp_path / "votes.csv")
    options = ("--model", "linear", "--method", "count", "--held-out", "0", "--no-hide-sets")
    fit = run("fit", tmp_path / "voters.parquet", *named, "-o", tmp_path / "model", *options)
    assert "counts of the classes 'alder', 'birch', 'cedar', 'dogwood'" in fit.stdout
    run("predict", tmp_path / "model", tmp_path / "voters.parquet", "-o", tmp_path / "s.csv")
    predicted = pd.read_csv(tmp_path / "s.csv")
    accuracy = (predicted["prediction"].to_numpy() == parties[vote]).mean()
    assert accuracy > 0.55  # a quarter by guessing
    probability = predicted[[f"probability_{name}" for name in parties]].to_numpy()
    claimed = probability.max(axis=1).mean()
    assert claimed == pytest.approx(accuracy, abs=0.03)

    by_town = told(
        "prevalence", tmp_path / "model", tmp_path / "voters.parquet", "--by", "town", *named
    )
    for group in by_town["groups"]:
        inside = town == bool(int(group["group"][0]))
        true = np.bincount(vote[inside], minlength=4) / inside.sum()
        assert (np.array(group["low"]) <= true).all()
        assert (true <= np.array(group["high"])).all()
        assert (np.array(group["high"]) - np.array(group["low"]) < 0.05).all()
    # Every vote was counted, so that the shares of both groups make up those of all.
    together = np.average(
        [group["share"] for group in by_town["groups"]],
        axis=0,
        weights=[group["rows"] for group in by_town["groups"]],
    )
    np.testing.assert_allclose(together, np.bincount(vote) / len(vote), atol=2e-3)
