import itertools
import json
import shutil
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from unmix import UnmixClassifier
from unmix.cli import main
from unmix.data import shuffled
from unmix.data.priors import Priors
from unmix.data.sets import UnlabeledSets
from unmix.data.shuffled import ShuffledSets, scatter_rows, scattered_parts
from unmix.data.tables import open_table
from unmix.errors import InputError
from unmix.learn import linear_objective, recipes, streaming, table_source, training
from unmix.learn.checkpoint import Checkpoint
from unmix.learn.encoding import TableEncoder, TableSummary
from unmix.learn.held_out_score import score_on_sets
from unmix.learn.linear_fit import fit_linear
from unmix.learn.models import Setup, fit_learner
from unmix.learn.streaming import StreamedTable, scratch_folder
from unmix.learn.table_source import fits_in_memory

NUM_SETS = 12


def table_of_sets(num_rows=4000, seed=0):
    """Rows sorted by set, the worst order for a stream."""
    rng = np.random.default_rng(seed)
    priors = np.linspace(0.1, 0.9, NUM_SETS)
    index = np.sort(rng.integers(NUM_SETS, size=num_rows))
    positive = rng.random(num_rows) < priors[index]
    x = rng.normal(size=(num_rows, 3)) + 1.5 * positive[:, None]
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(
        colour=np.where(rng.random(num_rows) < 0.5, "red", "blue"),
        region=[f"r{j}" for j in index],
    )
    frame.loc[::7, "b"] = np.nan
    return frame, priors


@pytest.fixture
def files(tmp_path):
    frame, priors = table_of_sets()
    frame.to_parquet(tmp_path / "rows.parquet")
    rates = pd.DataFrame({"region": [f"r{j}" for j in range(NUM_SETS)], "share": priors})
    rates.to_csv(tmp_path / "rates.csv", index=False)
    return tmp_path


def streamed_table(files, **changes):
    _, priors = table_of_sets()
    options = {
        "source": str(files / "rows.parquet"),
        "columns": ["a", "b", "c", "colour"],
        "set_columns": ("region",),
        "priors": Priors(tuple(f"r{j}" for j in range(NUM_SETS)), priors),
        "allow_unused": False,
        "held_out": 0.0,
        "seed": 0,
        "scratch": files / "scratch",
        "progress": lambda *_: None,
    }
    return StreamedTable(**options | changes)


def shuffled_sets(folder, num_rows=3000, seed=0):
    """The same rows on disk and in memory, sorted by set."""
    rng = np.random.default_rng(seed)
    priors = np.linspace(0.1, 0.9, NUM_SETS)
    index = np.sort(rng.integers(NUM_SETS, size=num_rows))
    positive = rng.random(num_rows) < priors[index]
    x = (rng.normal(size=(num_rows, 4)) + positive[:, None]).astype(np.float32)
    blocks = [(x[i : i + 500], index[i : i + 500]) for i in range(0, num_rows, 500)]
    parts = scatter_rows(folder, blocks, 10, rng)
    sizes = np.bincount(index)
    on_disk = ShuffledSets(folder, parts, 4, sizes, priors, 0.4, tuple(range(NUM_SETS)))
    return on_disk, UnlabeledSets(x, index, priors, 0.4)


def fit(files, name, *options):
    """Run the command; return its JSON record and the bytes of the weights."""
    rows, rates, output = (str(files / f) for f in ("rows.parquet", "rates.csv", name))
    args = ["fit", rows, "--sets", "region", "--priors", rates, "-o", output, "--json"]
    result = CliRunner().invoke(main, [*args, "--method", "ssc", *options])
    assert result.exit_code == 0, result.output
    weights = next((files / name).glob("weights.*"), None)
    return json.loads(result.stdout), weights and weights.read_bytes()


# Shuffling


def test_every_row_lands_in_exactly_one_part_with_its_set(tmp_path):
    on_disk, whole = shuffled_sets(tmp_path)
    parts = [on_disk.part(i) for i in range(len(on_disk.part_sizes))]
    x = np.concatenate([p.x for p in parts])
    index = np.concatenate([p.set_index for p in parts])
    assert len(on_disk) == len(x) == 3000
    order, expected = np.lexsort(x.T), np.lexsort(whole.x.T)
    assert np.array_equal(x[order], whole.x[expected])
    assert np.array_equal(index[order], whole.set_index[expected])


def test_each_part_of_a_sorted_table_holds_every_set_in_proportion(tmp_path):
    on_disk, whole = shuffled_sets(tmp_path, num_rows=30_000)
    share = whole.set_sizes / len(whole)
    for i, rows in enumerate(on_disk.part_sizes):
        found = np.bincount(on_disk.part(i).set_index, minlength=NUM_SETS)
        statistic = ((found - rows * share) ** 2 / (rows * share)).sum()
        assert statistic < 40  # 11 degrees of freedom: once in 30,000


def test_the_held_out_part_is_not_among_the_kept_ones(tmp_path):
    on_disk, whole = shuffled_sets(tmp_path)
    kept, out = on_disk.hold_out(0.1, np.random.default_rng(0))
    assert len(kept) + len(out) == len(whole)
    assert len(kept.part_sizes) == 9
    assert np.array_equal(kept.set_sizes + out.set_sizes, whole.set_sizes)
    seen = np.concatenate([kept.part(i).x for i in range(9)])
    assert not (np.isin(out.x[:, 0], seen[:, 0])).any()


def test_scattering_that_was_cut_off_is_not_taken_for_complete(tmp_path):
    def cut_off():
        yield np.zeros((5, 2)), np.zeros(5, int)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scatter_rows(tmp_path, cut_off(), 10, np.random.default_rng(0))
    assert scattered_parts(tmp_path) is None


def test_the_number_of_parts_stays_within_what_a_system_opens():
    assert shuffled.number_of_parts(1000, 5) == 10
    assert shuffled.number_of_parts(50_000_000, 20) == 66
    assert shuffled.number_of_parts(10**10, 100) == 400


def test_a_part_that_was_cut_short_is_refused(tmp_path):
    on_disk, _ = shuffled_sets(tmp_path)
    file = tmp_path / "sets-000"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(InputError, match="rows-000 was changed or cut short"):
        on_disk.part(0)


# Learning from parts


@pytest.mark.parametrize(("method", "errors"), [("ssc", None), ("ssc", 0.05), ("proportion", None)])
def test_a_linear_fit_from_disk_is_the_one_in_memory(tmp_path, method, errors):
    on_disk, whole = shuffled_sets(tmp_path)
    prior_errors = None if errors is None else np.full(NUM_SETS, errors)
    ours, theirs = (
        fit_linear(sets, method=method, l2=1e-3, prior_errors=prior_errors)
        for sets in (on_disk, whole)
    )
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-9)
    assert np.abs(ours.weights - theirs.weights).max() < 2e-4  # both stop at a gradient of 1e-6
    assert np.abs(ours.set_priors - theirs.set_priors).max() < 2e-4


def test_a_linear_fit_that_was_cut_off_ends_in_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(linear_objective, "SAVE_SECONDS", 0.0)
    on_disk, _ = shuffled_sets(tmp_path)
    checkpoint = Checkpoint(tmp_path / "training", {})
    passes = []

    def cut_off(done, total, text):
        passes.append(done == total)
        if sum(passes) == 4:
            raise KeyboardInterrupt

    options = {"method": "ssc", "l2": 1e-3}
    whole = fit_linear(on_disk, **options)
    with pytest.raises(KeyboardInterrupt):
        fit_linear(on_disk, **options, checkpoint=checkpoint, progress=cut_off)
    later = []
    resumed = fit_linear(
        on_disk,
        **options,
        checkpoint=Checkpoint(tmp_path / "training", {}),
        progress=lambda done, total, text: later.append(text),
    )
    assert resumed.weights.tobytes() == whole.weights.tobytes()
    assert resumed.iterations == whole.iterations
    assert later[0] == "pass 1 of a linear fit"
    first_run = fit_linear(on_disk, **options, progress=lambda *call: passes.append(False))
    assert first_run.iterations == whole.iterations
    assert len(set(later)) < whole.iterations  # the first passes came from the checkpoint


def test_a_network_trained_from_disk_is_as_good_as_one_in_memory(tmp_path):
    on_disk, whole = shuffled_sets(tmp_path, num_rows=6000)
    rng = np.random.default_rng(9)
    positive = rng.random(4000) < 0.4
    x = (rng.normal(size=(4000, 4)) + positive[:, None]).astype(np.float32)
    right = {
        name: ((fit_learner(sets, Setup("mlp", "ssc", epochs=3)).logits(x) > 0) == positive).mean()
        for name, sets in (("disk", on_disk), ("memory", whole))
    }
    assert right["memory"] > 0.78
    assert abs(right["disk"] - right["memory"]) < 0.03


# Tables


def test_a_summary_of_blocks_is_the_summary_of_the_whole():
    frame, _ = table_of_sets()
    summary = TableSummary()
    for first in range(0, len(frame), 333):
        summary.add(frame.iloc[first : first + 333])
    ours, theirs = summary.encoder().to_dict(), TableEncoder.fit(frame).to_dict()
    for column, expected in zip(ours["columns"], theirs["columns"], strict=True):
        for key, value in expected.items():
            assert column[key] == (pytest.approx(value, rel=1e-12) if key in _NUMBERS else value)


_NUMBERS = ("mean", "deviation")


def test_a_column_of_ever_new_words_does_not_fill_the_memory(monkeypatch):
    from unmix.learn import columns

    monkeypatch.setattr(columns, "MOST_WORDS", 100)
    summary = TableSummary()
    for block in range(50):
        words = [f"w{block * 40 + i}" for i in range(40)]
        summary.add(pd.DataFrame({"id": ["often"] * 10 + words}))
    assert len(summary._seen["id"].words) < 200
    (column,) = summary.encoder().summaries
    assert "often" in column.categories
    assert column.rare


def test_held_out_rows_are_kept_from_training_and_all_others_are_trained_on(files):
    table = streamed_table(files, held_out=0.25)
    table.prepare()
    judged, rows = table.judged(), table.rows
    assert len(judged) + len(rows) == table.num_rows == 4000
    assert abs(len(judged) - 1000) < 120  # four standard deviations
    assert len(table.sample()) == len(rows)  # small enough to be a sample of itself
    frame, _ = table_of_sets()
    kept = frame[~frame["a"].isin(judged["a"])]
    expected = np.bincount([int(name[1:]) for name in kept["region"]], minlength=NUM_SETS)
    assert np.array_equal(rows.set_sizes, expected)
    mean = next(c.mean for c in table.encoder.summaries if c.name == "a")
    assert mean == pytest.approx(kept["a"].mean(), rel=1e-12)


def test_the_samples_are_bounded_whatever_the_table(files, monkeypatch):
    monkeypatch.setattr(streaming, "MOST_IN_MEMORY", 500)
    table = streamed_table(files, held_out=0.5)
    table.prepare()
    for sample in (table.judged(), table.sample()):
        assert abs(len(sample) - 500) < 100
    assert len(table.rows) + len(table.judged()) == 4000


def test_csv_and_small_parquet_are_read_whole(files, monkeypatch):
    rows = files / "rows.parquet"
    assert fits_in_memory(open_table(rows), ["a"])
    assert fits_in_memory(open_table(files / "rates.csv"), ["share"])
    monkeypatch.setattr(table_source, "IN_MEMORY_BYTES", 4000 * (8 + 64))
    assert fits_in_memory(open_table(rows), ["a"])
    assert not fits_in_memory(open_table(rows), ["a", "b"])


def test_a_disk_too_small_for_the_shuffled_rows_is_refused_before_they_are_written(
    files, monkeypatch
):
    monkeypatch.setattr(streaming.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(InputError, match=r"GB beside the model for a while, and 0\.0 GB are free"):
        streamed_table(files).prepare()
    assert scattered_parts(files / "scratch") is None


# Many small sets


def sets_of_one_row(num_sets=5000):
    rng = np.random.default_rng(0)
    priors = rng.uniform(0.1, 0.9, num_sets)
    positive = rng.random(num_sets) < priors
    x = (rng.normal(size=(num_sets, 3)) + positive[:, None]).astype(np.float32)
    return UnlabeledSets(x, np.arange(num_sets), priors, 0.5)


def test_rows_can_be_held_out_of_sets_of_one_row_each():
    kept, out = sets_of_one_row().hold_out(0.2, np.random.default_rng(0))
    assert len(kept) + len(out) == 5000
    assert 850 < len(out) < 1150


def test_hidden_sets_of_one_row_are_judged_together():
    (found,) = score_on_sets({"linear": sets_of_one_row()}, [Setup("linear", "ssc", l2=1e-3)])
    # A share seen in 20 rows is off by 0.1 with labels; single rows would be off by 0.45.
    assert found.share_error < 0.85 * found.baseline_error
    assert found.baseline_error == pytest.approx(0.8 / 12**0.5, rel=0.03)
    assert found.gain.shown


# The command


def test_the_command_streams_to_the_same_model_as_in_memory(files):
    streamed, _ = fit(files, "streamed", "--model", "linear", "--held-out", "0", "--stream")
    whole, _ = fit(files, "whole", "--model", "linear", "--held-out", "0", "--in-memory")
    ours, theirs = (
        json.loads((files / name / "model.json").read_text()) for name in ("streamed", "whole")
    )
    assert ours["set_sizes"] == theirs["set_sizes"]
    # The strength of the penalty is chosen on a part, here of 400 rows.
    assert ours["fit"]["loss"] == pytest.approx(theirs["fit"]["loss"], rel=0.02)
    assert streamed["method"] == whole["method"] == "ssc"
    assert not [*files.glob(".*")]  # nothing is left behind


def test_a_killed_command_goes_on_to_the_same_bits(files, monkeypatch):
    _, whole = fit(files, "whole", "--model", "linear", "--stream")
    scatter = streaming.StreamedTable._scatter

    def killed(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(streaming.StreamedTable, "_scatter", killed)
    rows, rates, output = (str(files / f) for f in ("rows.parquet", "rates.csv", "cut"))
    args = ["fit", rows, "--sets", "region", "--priors", rates, "-o", output, "--stream"]
    args += ["--json", "--method", "ssc", "--model", "linear"]
    stopped = CliRunner().invoke(main, args)
    assert stopped.exit_code == 130
    assert "the same command resumes" in stopped.stderr
    left = files / ".cut.unfinished" / "statistics.json"
    written = left.stat().st_mtime_ns
    monkeypatch.setattr(streaming.StreamedTable, "_scatter", scatter)
    summarised = []
    monkeypatch.setattr(streaming.StreamedTable, "_summarise", summarised.append)
    _, resumed = fit(files, "cut", "--model", "linear", "--stream")
    assert written
    assert not summarised  # the first pass was not made again
    assert resumed == whole


@pytest.mark.parametrize("many_rows", [recipes.MANY_ROWS, 1000])
def test_a_network_stopped_in_training_goes_on_to_the_same_bits(files, monkeypatch, many_rows):
    monkeypatch.setattr(recipes, "MANY_ROWS", many_rows)  # the paper's network, or the small one
    monkeypatch.setattr(recipes, "LARGE_BATCH", 256)
    monkeypatch.setattr(recipes, "ENOUGH_ROWS", 3000)  # one epoch
    options = ("--model", "mlp", "--stream")
    _, whole = fit(files, "whole", *options)
    state = json.loads((files / "whole" / "model.json").read_text())
    assert state["fit"]["network"]["depth"] == (2 if many_rows == 1000 else 3)
    save, saved = Checkpoint.save, []

    def killed(self, *state):
        save(self, *state)
        saved.append(state[1]["epoch"])
        if len(saved) == 7:
            raise KeyboardInterrupt

    ticks = itertools.count(0, 100)
    with monkeypatch.context() as patched:
        patched.setattr(training, "time", SimpleNamespace(perf_counter=time.perf_counter))
        training.time.monotonic = lambda: next(ticks)  # so that every step is saved
        patched.setattr(Checkpoint, "save", killed)
        rows, rates, output = (str(files / f) for f in ("rows.parquet", "rates.csv", "cut"))
        args = ["fit", rows, "--sets", "region", "--priors", rates, "-o", output, "--json"]
        stopped = CliRunner().invoke(main, [*args, "--method", "ssc", *options])
    assert stopped.exit_code == 130
    assert len(saved) == 7
    taken_up = []
    load = Checkpoint.load
    monkeypatch.setattr(
        Checkpoint, "load", lambda self: taken_up.append(load(self)) or taken_up[-1]
    )
    _, resumed = fit(files, "cut", *options)
    assert [state[1]["batch"] for state in taken_up if state] == [7]  # and not from the start
    assert resumed == whole


def test_hidden_layers_are_those_asked_for(files):
    fit(files, "net", "--model", "mlp", "--hidden", "2x8")
    state = json.loads((files / "net" / "model.json").read_text())
    assert state["fit"]["network"] == {"depth": 2, "width": 8}
    assert state["parameters"]["hidden"] == [2, 8]


def test_boosting_says_that_it_trains_on_a_sample(files, monkeypatch):
    monkeypatch.setattr(streaming, "MOST_IN_MEMORY", 1200)
    rows, rates, output = (str(files / f) for f in ("rows.parquet", "rates.csv", "trees"))
    args = ["fit", rows, "--sets", "region", "--priors", rates, "-o", output, "--stream"]
    result = CliRunner().invoke(main, [*args, "--method", "ssc", "--model", "boosting", "--json"])
    assert result.exit_code == 0, result.output
    assert "boosting with ssc trains in memory, on a random sample of 1," in result.stderr
    said = json.loads(result.stdout)["sentences"][0]
    assert "with method ssc on a random sample of 1," in said


@pytest.mark.parametrize("method", ["set-effects", "count"])
def test_a_method_of_whole_sets_learns_from_a_sample_where_rows_are_too_many(
    files, monkeypatch, method
):
    monkeypatch.setattr(streaming, "MOST_IN_MEMORY", 1200)
    found, _ = fit(files, "large", "--stream", "--method", method, "--model", "linear")
    assert f"with method {method} on a random sample of 1," in found["sentences"][0]
    whole, _ = fit(files, "whole", "--method", method, "--model", "linear")
    assert "sample" not in whole["sentences"][0]
    rows = pd.read_parquet(files / "rows.parquet").drop(columns="region")
    models = [UnmixClassifier.load(files / name) for name in ("large", "whole")]
    scores = [clf.decision_function(rows) for clf in models]
    assert np.corrcoef(*scores)[0, 1] > 0.97
    assert models[0].sampled_rows_ > 1000


def test_a_bad_cell_is_named_with_its_file_and_row(files):
    frame, _ = table_of_sets()
    frame.loc[17, "c"] = np.inf
    frame.to_parquet(files / "rows.parquet")
    with pytest.raises(InputError, match=r"rows.parquet: column 'c' holds inf in row 18"):
        streamed_table(files).prepare()


def test_a_prior_without_rows_is_refused_unless_it_is_allowed(files):
    frame, _ = table_of_sets()
    frame[frame["region"] != "r3"].to_parquet(files / "rows.parquet")
    with pytest.raises(InputError, match="1 set of set_priors has no rows: 'r3'"):
        streamed_table(files).prepare()
    table = streamed_table(files, allow_unused=True)
    table.prepare()
    assert len(table.used_priors) == NUM_SETS - 1
    assert table.rows.part(0).set_index.max() == NUM_SETS - 2


# The scratch folder


def test_the_scratch_of_another_run_is_emptied_and_that_of_the_same_run_is_kept(tmp_path):
    output = tmp_path / "model"

    def interrupted(run, expected):
        with scratch_folder(output, run) as folder:
            assert (folder / "training").exists() == expected
            (folder / "training").mkdir(exist_ok=True)
            raise KeyboardInterrupt

    for run, expected in (({"seed": 1}, False), ({"seed": 1}, True), ({"seed": 2}, False)):
        with pytest.raises(KeyboardInterrupt):
            interrupted(run, expected)
    with scratch_folder(output, {"seed": 2}) as folder:
        assert (folder / "training").exists()
    assert not folder.exists()


def test_two_fits_do_not_write_the_same_model_at_once(tmp_path):
    with (
        scratch_folder(tmp_path / "model", {}),
        pytest.raises(InputError, match="another fit is writing"),
        scratch_folder(tmp_path / "model", {}),
    ):
        pass
    assert not (tmp_path / ".model.unfinished").exists()


@pytest.mark.parametrize("kind", ["link", "file", "folder", "locked", "marked"])
def test_what_only_has_the_name_of_a_scratch_folder_is_left_alone(tmp_path, kind):
    other, scratch = tmp_path / "other", tmp_path / ".model.unfinished"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    if kind == "link":
        scratch.symlink_to(other)
    elif kind == "file":
        scratch.write_text("years of work")
    else:
        shutil.copytree(other, scratch)
    if kind == "locked":
        (scratch / "lock").touch()
    if kind == "marked":
        (scratch / "lock").write_text("scratch folder of unmix fit\n")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    with (
        pytest.raises(InputError, match=r"cannot use .*unfinished to work in: it is"),
        scratch_folder(tmp_path / "model", {}),
    ):
        pass
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_a_scratch_folder_that_was_half_removed_is_removed(tmp_path):
    scratch = tmp_path / ".model.unfinished"
    for left in (("lock", "rows-001"), ("lock",), ()):
        scratch.mkdir(exist_ok=True)
        for name in left:
            text = "scratch folder of unmix fit\n" if len(left) == 2 else ""
            (scratch / name).write_text(text)
        with scratch_folder(tmp_path / "model", {}):
            assert not (scratch / "rows-001").exists()
        assert not scratch.exists()
