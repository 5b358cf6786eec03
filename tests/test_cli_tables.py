import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.metrics import recall_score, roc_auc_score

from unmix import UnmixClassifier
from unmix.cli import main

SHARES = {f"00{j}": share for j, share in enumerate((0.1, 0.25, 0.4, 0.6, 0.75, 0.9))}
LINEAR = ("--model", "linear", "--method", "ssc")
SETS = ("--sets", "region")


def run(*args):
    """Run a command that must succeed, with only what the case is about on standard error."""
    result = CliRunner().invoke(main, [str(arg) for arg in args], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result


def strict_json(text):
    """Parse JSON as other languages do, to whom NaN is nothing."""

    def refuse(name):
        raise ValueError(name)

    return json.loads(text, parse_constant=refuse)


def people(shares=SHARES, rows=80, seed=0):
    """Rows with numbers, text and a label; the text column holds numbers but for one word."""
    rng = np.random.default_rng(seed)
    region = np.repeat(list(shares), rows)
    sick = rng.random(len(region)) < np.repeat(list(shares.values()), rows)
    code = np.where(rng.random(len(region)) < np.where(sick, 0.7, 0.3), "007", "010")
    code[rng.random(len(region)) < 0.1] = "none"
    return pd.DataFrame(
        {
            "region": region,
            "age": rng.normal(np.where(sick, 60, 40), 10),
            "visits": rng.poisson(np.where(sick, 3, 2)),
            "code": code,
            "sick": sick.astype(int),
        }
    )


def write_shares(folder, text, name="rates.csv"):
    (folder / name).write_text(text)
    return folder / name


def rates(shares=SHARES):
    return "region,share\n" + "".join(f"{s},{p}\n" for s, p in shares.items())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a table, its priors and a model; what fit printed is in `fit.txt`."""
    folder = tmp_path_factory.mktemp("tables")
    table = people()
    table.drop(columns="sick").to_csv(folder / "rows.csv", index=False)
    table.to_csv(folder / "labeled.csv", index=False)
    write_shares(folder, rates())
    result = run(
        *("fit", folder / "rows.csv", *SETS, "--priors", folder / "rates.csv"),
        *(*LINEAR, "-o", folder / "model"),
    )
    assert result.stderr == ""
    (folder / "fit.txt").write_text(result.stdout)
    return folder


def scores(model, rows, output, *options):
    result = run("predict", model, rows, "-o", output, *options)
    if not str(output).endswith(".csv"):
        return pd.read_parquet(output), result
    found, text = pd.read_csv(output), pd.read_csv(output, dtype=str)
    for column in found.select_dtypes("float"):  # pandas 2 reads some of them an ulp off
        found[column] = text[column].map(float)
    return found, result


def test_fit_prints_its_judgement_and_writes_model_and_report(place):
    lines = (place / "fit.txt").read_text().splitlines()
    assert lines[0].endswith("rates.csv: 6 sets; 'share' is the share.")
    assert lines[1] == "2 numeric and 1 text columns."
    assert lines[2].startswith("A linear model was trained with method ssc on 384 rows in 6 sets;")
    assert lines[-1].endswith(f"(open {place}/model/report.html)")
    names = {"manifest.json", "model.json", "README.md", "report.html", "weights.safetensors"}
    assert {path.name for path in (place / "model").iterdir()} == names
    assert lines[2] in (place / "model" / "report.html").read_text(encoding="utf-8")


def test_fit_json_from_parquet_has_the_promised_keys_and_the_same_model(place, tmp_path):
    pd.read_csv(place / "rows.csv", dtype={"region": str, "code": str}).to_parquet(
        tmp_path / "rows.parquet"
    )
    result = run(
        *("fit", tmp_path / "rows.parquet", *SETS, "--priors", place / "rates.csv"),
        *(*LINEAR, "-o", tmp_path / "model", "--json"),
    )
    record = strict_json(result.stdout)
    assert (record["method"], record["model"]) == ("ssc", "linear")
    assert record["set_priors"] == SHARES
    assert set(record["leave_sets_out"]) == {"ssc", "baseline"}
    assert 0 < record["leave_sets_out"]["ssc"] < record["leave_sets_out"]["baseline"]
    assert record["believable"]
    assert record["target_prior"] == pytest.approx(0.5)
    # 6 sets of 64 rows are left to learn from; see worth in labels in the design.
    shares = np.array([*SHARES.values()])
    assert record["worth_in_labels"] == pytest.approx(384 * shares.var() / 0.25)
    assert record["evaluation"]["rows"] == 96
    assert record["output"] == str(tmp_path / "model")
    for name in ("weights.safetensors", "report.html"):
        assert (tmp_path / "model" / name).read_bytes() == (place / "model" / name).read_bytes()


def test_predict_adds_probability_and_prediction_and_keeps_the_row_order(place, tmp_path):
    clf = UnmixClassifier.load(place / "model")
    table = people()
    found, result = scores(place / "model", place / "rows.csv", tmp_path / "out.csv")
    assert list(found) == ["probability", "prediction"]
    expected = clf.predict_proba(table[["age", "visits", "code"]])[:, 1]
    np.testing.assert_allclose(found["probability"], expected, rtol=1e-12)
    assert (found["prediction"] == (expected > 0.5)).all()
    assert roc_auc_score(table["sick"], found["probability"]) > 0.9
    assert (result.stdout, result.stderr) == (f"480 rows scored: {tmp_path}/out.csv\n", "")


def test_predict_keeps_the_columns_it_is_told_to_as_they_were_written(place, tmp_path):
    model, rows = place / "model", tmp_path / "rows.csv"
    (tmp_path / "rows.csv").write_text(
        'region,visits,age,code,note\n007,3,50,010,"1,5"\n08,,60.50,007,\n'
    )
    scores(model, rows, tmp_path / "some.csv", "--keep", "note", "--keep", "region")
    kept = pd.read_csv(tmp_path / "some.csv", dtype=str)
    assert list(kept) == ["note", "region", "probability", "prediction"]
    assert kept["region"].tolist() == ["007", "08"]
    assert kept["note"].tolist()[0] == "1,5"
    assert kept["note"].isna().tolist() == [False, True]
    whole, _ = scores(model, rows, tmp_path / "all.csv", "--keep", "all")
    assert list(whole)[:5] == ["region", "visits", "age", "code", "note"]
    assert list(whole)[5:] == ["probability", "prediction"]
    assert whole["probability"].tolist() == [float(p) for p in kept["probability"]]


def test_kept_numbers_stay_whole_in_parquet(place, tmp_path):
    table = people(rows=2).assign(number=2**60 + 1)
    table.to_parquet(tmp_path / "rows.parquet")
    found, _ = scores(
        *(place / "model", tmp_path / "rows.parquet", tmp_path / "out.parquet"),
        *("--keep", "number", "--keep", "visits"),
    )
    assert found["number"].tolist() == [2**60 + 1] * 12
    assert found["visits"].tolist() == table["visits"].tolist()


@pytest.mark.parametrize("given", ["0.03", "1=0.03,0=0.97"])
def test_a_target_prior_moves_probabilities_exactly_as_retarget_does(place, tmp_path, given):
    found, result = scores(
        *(place / "model", place / "rows.csv", tmp_path / "out.parquet"),
        *("--target-prior", given, "--json"),
    )
    clf = UnmixClassifier.load(place / "model").retarget(0.03)
    expected = clf.predict_proba(people()[["age", "visits", "code"]])[:, 1]
    assert found["probability"].tolist() == expected.tolist()
    record = strict_json(result.stdout)
    assert record.pop("target_prior") == pytest.approx(0.03)
    assert record.pop("drift")["rows"] == 480
    assert record == {"rows": 480, "output": str(tmp_path / "out.parquet"), "unseen": {}}


def test_the_order_of_columns_and_other_columns_do_not_matter(place, tmp_path):
    plain, _ = scores(place / "model", place / "rows.csv", tmp_path / "plain.csv")
    shuffled = people()[["sick", "code", "visits", "age"]].assign(date="2020-01-01")
    shuffled.to_csv(tmp_path / "shuffled.csv", index=False)
    other, _ = scores(place / "model", tmp_path / "shuffled.csv", tmp_path / "other.csv")
    assert plain.equals(other)


def test_predict_streams_a_file_of_several_batches_in_order(place, tmp_path):
    table = pd.concat([people(seed=seed, rows=400) for seed in range(30)], ignore_index=True)
    assert len(table) > 65_536
    table["number"] = np.arange(len(table))
    table.loc[len(table) - 3 :, "code"] = "strange"
    table.loc[0, "code"] = "odd"
    table.to_parquet(tmp_path / "rows.parquet")
    found, result = scores(
        *(place / "model", tmp_path / "rows.parquet", tmp_path / "out.parquet"),
        *("--keep", "number"),
    )
    assert found["number"].tolist() == table["number"].tolist()
    whole = UnmixClassifier.load(place / "model").predict_proba(table[["age", "visits", "code"]])
    np.testing.assert_allclose(found["probability"], whole[:, 1], rtol=1e-6)
    assert "in 4 rows" in result.stderr


def test_unseen_categories_get_a_note_and_no_more(place, tmp_path):
    table = people(rows=2)
    table.loc[:4, "code"] = "new"
    table.to_csv(tmp_path / "rows.csv", index=False)
    found, result = scores(place / "model", tmp_path / "rows.csv", tmp_path / "o.csv", "--json")
    assert result.stderr == (
        "note: column 'code' holds categories that training did not see, such as 'new', in 5 "
        "rows; they are treated as unknown\n"
    )
    assert strict_json(result.stdout)["unseen"] == {"code": 5}
    assert found["probability"].between(0, 1).all()


def test_words_that_look_like_numbers_are_read_as_in_training(place, tmp_path):
    table = people()
    part = table[table["code"] == "007"]  # alone it would be a column of numbers
    part.to_csv(tmp_path / "part.csv", index=False)
    found, result = scores(place / "model", tmp_path / "part.csv", tmp_path / "part_out.csv")
    whole, _ = scores(place / "model", place / "rows.csv", tmp_path / "out.csv")
    assert result.stderr == ""
    assert found["probability"].tolist() == whole["probability"][part.index].tolist()
    clf = UnmixClassifier.load(place / "model")
    shares = ("--priors", place / "rates.csv", "--json")
    record = strict_json(
        run("evaluate", place / "model", tmp_path / "part.csv", *SETS, *shares).stdout
    )
    logits = clf.decision_function(part[["age", "visits", "code"]])
    means = [np.mean(1 / (1 + np.exp(-logits[part["region"] == s]))) for s in SHARES]
    assert [entry["mean_share"] for entry in record["calibration"]] == pytest.approx(means)
    shares = strict_json(
        run("prevalence", place / "model", tmp_path / "part.csv", *SETS, "--json").stdout
    )
    assert [entry["share"] for entry in shares["sets"]] == pytest.approx(
        [entry["share"] for entry in record["calibration"]]
    )


@pytest.mark.parametrize("form", ["0 and 1", "true and false", "floats in Parquet"])
def test_evaluate_puts_numbers_from_labels_beside_its_own(place, tmp_path, form):
    table = people(seed=1)
    truth = table["sick"].to_numpy()
    rows = tmp_path / ("rows.parquet" if "Parquet" in form else "rows.csv")
    if form == "floats in Parquet":
        table.astype({"sick": float}).to_parquet(rows)
    else:
        labels = table["sick"] if form == "0 and 1" else table["sick"].map({0: "false", 1: "true"})
        table.assign(sick=labels).to_csv(rows, index=False)
    shares = ("--priors", place / "rates.csv", "--json")
    without = strict_json(run("evaluate", place / "model", rows, *SETS, *shares).stdout)
    record = strict_json(
        run("evaluate", place / "model", rows, *SETS, *shares, "--labels", "sick").stdout
    )
    assert without["labeled"] is None
    labeled, promised = record.pop("labeled"), record.pop("model_based")
    assert record == {key: without[key] for key in record}
    assert promised["new_sets"]["expected"] == without["model_based"]["new_sets"]["expected"]
    assert promised["new_sets"]["measured"]["accuracy"] > 0.5
    clf = UnmixClassifier.load(place / "model")
    features = table[["age", "visits", "code"]]
    decisions = clf.predict(features)
    rates = [recall_score(truth, decisions, pos_label=k) for k in (1, 0)]
    assert labeled["accuracy"] == pytest.approx(np.mean(rates))  # the target prior is 0.5
    assert labeled["auc"] == pytest.approx(roc_auc_score(truth, clf.decision_function(features)))
    assert record["accuracy"]["low"] < labeled["accuracy"] < record["accuracy"]["high"]
    assert record["num_sets"] == 6


def test_evaluate_prints_a_table(place):
    shares = ("--priors", place / "rates.csv")
    rows = place / "labeled.csv"
    plain = run("evaluate", place / "model", rows, *SETS, *shares).stdout
    beside = run("evaluate", place / "model", rows, *SETS, *shares, "--labels", "sick").stdout
    assert "'share' is the share.\n480 rows in 6 sets; 95 % intervals.\n" in plain
    assert "with labels" not in plain
    assert "with labels" in beside
    for name in ("accuracy", "balanced accuracy", "auc", "tpr", "fpr"):
        assert f"\n{name} " in beside


def test_diagnose_needs_no_training(place):
    args = ("diagnose", place / "rows.csv", *SETS, "--priors", place / "rates.csv")
    record = strict_json(run(*args, "--json").stdout)
    shares = np.array([*SHARES.values()])
    assert (record["num_rows"], record["num_sets"]) == (480, 6)
    assert record["worth_in_labels"] == pytest.approx(480 * shares.var() / 0.25)
    text = run(*args, "--target-prior", "0.95").stdout
    assert "480 rows in 6 sets.\nThe effective number of labels is about 149 (" in text
    assert (
        "warning  The base rate 0.95 of class 1 (target prior) lies outside the stated shares"
        in text
    )


def test_prevalence_estimates_the_shares_of_new_sets(place, tmp_path):
    truth = {"new": 0.3, "newer": 0.7}
    people(truth, rows=300, seed=5).to_parquet(tmp_path / "new.parquet")
    args = ("prevalence", place / "model", tmp_path / "new.parquet", *SETS)
    record = strict_json(run(*args, "--json").stdout)
    assert record["assumption"] == "label shift"
    found = {entry["set_id"]: entry for entry in record["sets"]}
    assert list(found) == list(truth)
    for name, share in truth.items():
        assert found[name]["rows"] == 300
        assert found[name]["share"] == pytest.approx(share, abs=0.1)
        assert found[name]["low"] < found[name]["share"] < found[name]["high"]
    lines = run(*args).stdout.splitlines()
    assert lines[0].split()[:2] == ["set", "rows"]
    assert lines[1].split()[:3] == ["new", "300", f"{found['new']['share']:.3f}"]


def fit_small(folder, table, shares, *options):
    """Fit three sets, too few to hide any: quick, where the choice does not matter."""
    table.to_csv(folder / "rows.csv", index=False)
    write_shares(folder, shares)
    return run(
        *("fit", folder / "rows.csv", *SETS, "--priors", folder / "rates.csv"),
        *("-o", folder / "model", "--model", "linear", *options),
    )


THREE = {"a": 0.1, "b": 0.5, "c": 0.9}


def test_counts_refine_the_priors_by_themselves(tmp_path):
    table = people(THREE, rows=100).drop(columns="sick")
    shares = "region,positives,total\na,1,10\nb,3,10\nc,9,10\n"
    record = strict_json(fit_small(tmp_path, table, shares, "--method", "ssc", "--json").stdout)
    assert record["leave_sets_out"] == {}
    stated = {"a": 0.1, "b": 0.3, "c": 0.9}
    moved = {name: record["set_priors"][name] - stated[name] for name in stated}
    assert max(map(abs, moved.values())) < 0.2
    assert moved["b"] > 0.05  # half of the rows of b are positive, not 3 in 10
    loaded = UnmixClassifier.load(tmp_path / "model")
    assert loaded.set_priors_ == pytest.approx(record["set_priors"])


def test_two_named_classes_keep_their_names_and_order(tmp_path):
    table = people(THREE, rows=100)
    table["kind"] = table.pop("sick").map({0: "dog", 1: "cat"})
    shares = "region,dog,cat\na,.9,.1\nb,.5,.5\nc,.1,.9\n"
    options = ("--method", "ssc", "--drop", "kind", "--target-prior", "cat=0.3,dog=0.7")
    record = strict_json(fit_small(tmp_path, table, shares, *options, "--json").stdout)
    assert record["target_prior"] == pytest.approx(0.3)
    model, rows = tmp_path / "model", tmp_path / "rows.csv"
    found, _ = scores(model, rows, tmp_path / "out.csv")
    assert list(found) == ["probability", "prediction"]
    assert (found["prediction"] == np.where(found["probability"] > 0.5, "cat", "dog")).all()
    assert (found["prediction"] == table["kind"]).mean() > 0.8
    other = write_shares(tmp_path, "region,cat,dog\na,.1,.9\nb,.5,.5\nc,.9,.1\n", "other.csv")
    results = [
        run("evaluate", model, rows, *SETS, "--priors", path, "--labels", "kind", "--json").stdout
        for path in (tmp_path / "rates.csv", other)
    ]
    assert results[0] == results[1]
    record = strict_json(results[0])
    assert record["accuracy"]["value"] == pytest.approx(record["labeled"]["accuracy"], abs=0.15)
    args = ("diagnose", rows, *SETS, "--priors", other, "--target-prior", "0.3", "--json")
    diagnosis = strict_json(run(*args).stdout)
    assert diagnosis["pooled_prior"] == pytest.approx(0.5)
    assert [f["level"] for f in diagnosis["findings"] if f["subject"] == "target prior"] == []


def test_three_classes_from_fit_to_prevalence(tmp_path):
    rng = np.random.default_rng(0)
    names = np.array(["red", "green", "blue"])
    theta = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.4, 0.3, 0.3]])
    kind = np.concatenate([rng.choice(3, p=row, size=80) for row in theta])
    x = np.array([[2.5, 0], [-2, 2], [-2, -2]])[kind] + rng.normal(size=(320, 2))
    table = pd.DataFrame({"region": np.repeat([1, 2, 3, 4], 80), "x": x[:, 0], "y": x[:, 1]})
    table["kind"] = names[kind]
    shares = "region,red,green,blue\n1,.8,.1,.1\n2,.1,.8,.1\n3,.1,.1,.8\n4,.4,.3,.3\n"
    options = ("--method", "ssc", "--drop", "kind", "--json")
    record = strict_json(fit_small(tmp_path, table, shares, *options).stdout)
    assert record["set_priors"]["2"] == pytest.approx([0.1, 0.8, 0.1])
    assert record["target_prior"] == pytest.approx(theta.mean(axis=0))
    assert record["evaluation"]["auc"] is None
    model, rows = tmp_path / "model", tmp_path / "rows.csv"
    target = {"red": 0.1, "green": 0.1, "blue": 0.8}
    given = ",".join(f"{name}={share}" for name, share in target.items())
    found, result = scores(model, rows, tmp_path / "o.parquet", "--target-prior", given, "--json")
    assert list(found) == [*(f"probability_{name}" for name in names), "prediction"]
    clf = UnmixClassifier.load(model).retarget(target)
    assert np.array_equal(found.iloc[:, :3], clf.predict_proba(table[["x", "y"]]))
    assert strict_json(result.stdout)["target_prior"] == pytest.approx([0.1, 0.1, 0.8])
    assert (found["prediction"] == names[found.iloc[:, :3].to_numpy().argmax(axis=1)]).all()
    other = write_shares(
        tmp_path,
        "blue,red,region,green\n.1,.8,1,.1\n.1,.1,2,.8\n.8,.1,3,.1\n.3,.4,4,.3\n",
        "other.csv",
    )
    args = ("evaluate", model, rows, *SETS, "--labels", "kind", "--priors")
    record = strict_json(run(*args, tmp_path / "rates.csv", "--json").stdout)
    assert record == strict_json(run(*args, other, "--json").stdout)
    assert record["labeled"]["accuracy"] > 0.9
    assert record["accuracy"]["value"] == pytest.approx(record["labeled"]["accuracy"], abs=0.1)
    lines = run(*args, other).stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith(tuple(names))] == list(names)
    record = strict_json(run("prevalence", model, rows, *SETS, "--json").stdout)
    for entry, row in zip(record["sets"], theta, strict=True):
        assert entry["share"] == pytest.approx(row, abs=0.15)
    line = run("prevalence", model, rows, *SETS).stdout.splitlines()[1]
    assert line.split()[:3] == ["1", "80", "red"]
    args = ("diagnose", rows, *SETS, "--priors", other, "--target-prior", given)
    assert "The stated shares tell the 3 classes apart." in run(*args).stdout


def test_no_rows_need_be_held_out(tmp_path):
    table = people(THREE, rows=30).drop(columns="sick")
    options = ("--method", "ssc", "--held-out", "0", "--json")
    record = strict_json(fit_small(tmp_path, table, rates(THREE), *options).stdout)
    assert record["evaluation"] is None
    assert record["sentences"][0].startswith(
        "A linear model was trained with method ssc on 90 rows"
    )
    assert record["sentences"][-1] == "No rows were held out, so its accuracy was not estimated."


def test_a_table_too_small_to_be_judged_still_gives_a_model(tmp_path):
    shares = {"a": 0.2, "b": 0.8}
    table = people(shares, rows=4).drop(columns="sick")
    options = ("--held-out", "0.05", "--json")  # rounded up to one row
    record = strict_json(fit_small(tmp_path, table, rates(shares), *options).stdout)
    assert record["evaluation"] is None
    none = "Too few rows were held out, so its accuracy was not estimated."
    assert none in record["sentences"]
    found, _ = scores(tmp_path / "model", tmp_path / "rows.csv", tmp_path / "out.csv")
    assert len(found) == 8


def test_matching_proportions_predicts_shares_by_mean_probability(tmp_path):
    table = people(THREE, rows=60).drop(columns="sick")
    options = ("--method", "proportion", "--target-prior", "0.2", "--json")
    record = strict_json(fit_small(tmp_path, table, rates(THREE), *options).stdout)
    assert record["method"] == "proportion"
    assert record["target_prior"] == pytest.approx(0.2)
    model, rows = tmp_path / "model", tmp_path / "rows.csv"
    result = strict_json(run("prevalence", model, rows, *SETS, "--json").stdout)
    assert result["assumption"] == "covariate shift"
    pooled, _ = scores(model, rows, tmp_path / "out.csv", "--target-prior", "0.5")
    means = pooled["probability"].groupby(table["region"]).mean()
    assert [entry["share"] for entry in result["sets"]] == pytest.approx(means.tolist())


def test_sets_that_cannot_answer_are_warned_of_and_exit_with_0(tmp_path):
    rng = np.random.default_rng(3)
    table = people({f"s{j}": 0.5 for j in range(5)}, rows=40)[["region", "age"]]
    table["age"] = rng.normal(size=len(table))
    shares = "region,share\n" + "".join(f"s{j},{0.46 + 0.02 * j}\n" for j in range(5))
    result = fit_small(tmp_path, table, shares, "--json")
    assert result.stderr.startswith("warning: these sets cannot answer the question")
    assert not strict_json(result.stdout)["believable"]


def test_semicolons_a_byte_order_mark_gaps_and_constant_columns_are_fine(tmp_path):
    table = people(THREE, rows=40).drop(columns="sick").assign(height=1.7, empty="")
    table.loc[::7, "age"] = np.nan
    table.to_csv(tmp_path / "rows.csv", index=False, sep=";", encoding="utf-8-sig")
    write_shares(tmp_path, "\ufeff" + rates(THREE).replace(",", ";"))
    run(
        *("fit", tmp_path / "rows.csv", *SETS, "--priors", tmp_path / "rates.csv"),
        *(*LINEAR, "--held-out", "0", "-o", tmp_path / "model"),
    )
    found, result = scores(tmp_path / "model", tmp_path / "rows.csv", tmp_path / "out.csv")
    assert len(found) == 120
    assert result.stderr == ""
    assert found["probability"].between(0, 1).all()
    assert found["probability"].std() > 0.1


def test_a_column_that_cannot_be_read_may_be_dropped(tmp_path):
    table = people(THREE, rows=40).drop(columns="sick")
    table["scans"] = [[1, 2]] * len(table)
    table.to_parquet(tmp_path / "rows.parquet")
    write_shares(tmp_path, rates(THREE))
    args = ("fit", tmp_path / "rows.parquet", *SETS, "--priors", tmp_path / "rates.csv")
    options = (*LINEAR, "--held-out", "0", "--drop", "scans", "--drop", "code")
    run(*args, *options, "-o", tmp_path / "model")
    clf = UnmixClassifier.load(tmp_path / "model")
    assert clf.encoder_.columns == ["age", "visits"]


def test_unused_priors_and_an_older_model_need_a_word(place, tmp_path):
    write_shares(tmp_path, rates(THREE | {"nowhere": 0.2}))
    people(THREE, rows=30).drop(columns="sick").to_csv(tmp_path / "rows.csv", index=False)
    args = ("fit", tmp_path / "rows.csv", *SETS, "--priors", tmp_path / "rates.csv", *LINEAR)
    options = ("--held-out", "0", "--allow-unused-priors", "-o", tmp_path / "model")
    run(*args, *options, "--seed", "1")
    (tmp_path / "model" / "report.html").write_text("old")
    run(*args, *options, "--overwrite")
    assert (tmp_path / "model" / "report.html").read_text().startswith("<!")
    clf = UnmixClassifier.load(tmp_path / "model")
    assert list(clf.set_priors_) == list(THREE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "rates.csv", "rows.csv"]
