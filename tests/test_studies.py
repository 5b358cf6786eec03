import dataclasses
import inspect
import json
from importlib.resources import files

import numpy as np
import pytest
from click.testing import CliRunner

from fake_study import fake_result
from test_structure import HEAVY, loaded_by
from unmix.cli import main
from unmix.data.benchmark_files import load_benchmark
from unmix.data.sets import UnlabeledSets
from unmix.errors import InputError
from unmix.studies import cell as cell_module
from unmix.studies import grid, runner, store, worker
from unmix.studies.cell import Cell, draw_cell, run_cell
from unmix.studies.grid import STUDIES, Row, cell_title, running_order, studies_named
from unmix.studies.published import Published, published
from unmix.studies.store import RunStore
from unmix.studies.summary import summarize

EVERY_DATASET = ("mnist", "fashion-mnist", "kmnist", "cifar10")


def test_every_published_number_has_its_place_in_a_study():
    rows = json.loads(files("unmix.studies").joinpath("published.json").read_text())["rows"]
    assert len(rows) == 156
    tables = ("comparison", "set-size", "set-number", "prior-noise")
    places = [
        (name, row.cell.dataset, row.cell.num_sets, row.row, row.paper)
        for name in tables
        for row in STUDIES[name].cells(EVERY_DATASET, seeds=[0])
        if row.paper is not None
    ]
    expected = [
        (r["table"], r["dataset"], r["num_sets"], r["method"], Published(r["error"], r["std"]))
        for r in rows
    ]
    assert sorted(places) == sorted(expected)


def test_published_numbers_are_those_of_the_paper():
    assert published("comparison", "kmnist", 50, "ssc") == (8.97, 0.52)
    assert published("set-size", "mnist", 10, "ssc", shift="random") == (2.66, 0.08)
    assert published("set-size", "fashion-mnist", 50, "ssc", shift=0.8) == (8.29, 0.19)
    assert published("prior-noise", "mnist", 50, "ssc", epsilon=0.2) == (3.16, 0.13)
    assert published("prior-noise", "mnist", 50, "ssc-refined", epsilon=0.2) is None
    assert published("comparison", "digits", 10, "ssc") is None


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("comparison", 21),
        ("set-size", 10),
        ("set-number", 4),
        ("prior-noise", 30),
        ("curves", 10),
        ("noise-boxes", 15),
        ("supervised", 1),
    ],
)
def test_a_study_has_the_papers_places_for_each_dataset_and_seed(name, places):
    rows = STUDIES[name].cells(["mnist", "kmnist"], seeds=[4, 5])
    assert len(rows) == len({row.cell for row in rows}) == 4 * places
    labels = {(r.cell.dataset, r.cell.num_sets, r.row, r.column, r.cell.seed) for r in rows}
    assert len(labels) == len(rows)
    assert {row.cell.held_out for row in rows} == {grid.HELD_OUT}


def test_the_fields_of_a_cell_say_what_its_column_says():
    def cells(name):
        return {(r.cell.num_sets, r.row, r.column): r.cell for r in STUDIES[name].cells(["mnist"])}

    sizes, noise = cells("set-size"), cells("prior-noise")
    assert (sizes[50, "ssc", "tau 0.4"].sizes, sizes[50, "ssc", "tau 0.4"].tau) == ("shrunk", 0.4)
    assert sizes[10, "ssc", "random"].sizes == "random"
    refined = noise[10, "ssc-refined", "epsilon 0.15"]
    assert (refined.method, refined.prior_noise, refined.prior_error) == ("ssc", 0.15, 0.15)
    assert noise[10, "ssc", "epsilon 0.15"].prior_error is None
    assert noise[10, "ssc-believing", "epsilon 0.15"].prior_error == 0
    right = noise[10, "ssc-refined", "epsilon 0"]  # refined although nothing is wrong
    assert (right.prior_noise, right.prior_error) == (0.0, 0.2)
    assert cells("comparison")[25, "mmc-u2-c", "25 sets"].method == "mmc-u2-c"


def test_studies_share_their_runs_and_every_cell_comes_before_the_next_seed():
    parts = [STUDIES[name].cells(["mnist"]) for name in ("comparison", "prior-noise", "curves")]
    order = running_order(row for part in parts for row in part)
    assert len(order) == len(set(order)) == 3 * (21 + 30 - 2)
    assert [cell.seed for cell in order] == [0] * 49 + [1] * 49 + [2] * 49
    shared = Cell("mnist", num_sets=10, epochs=15, held_out=grid.HELD_OUT)
    for part in parts:
        epochs = part[0].cell.epochs
        assert dataclasses.replace(shared, epochs=epochs) in {row.cell for row in part}


def test_epochs_are_part_of_the_cell_so_that_a_changed_recipe_means_other_runs():
    fast, paper = (STUDIES["supervised"].cells(["mnist"], None, [0], r) for r in ("fast", "paper"))
    assert fast[0].cell.epochs == cell_module.RECIPES["fast"].epochs
    assert paper[0].cell.epochs == 300
    convolutions = STUDIES["supervised"].cells(["cifar10"], seeds=[0])[0].cell
    assert convolutions.epochs == cell_module.RECIPES["fast"].convolutional.epochs
    assert convolutions.resolve_recipe() == cell_module.RECIPES["fast"].convolutional
    short = STUDIES["supervised"].cells(["mnist"], seeds=[0], epochs=3, scale=0.5)
    assert (short[0].cell.epochs, short[0].cell.scale) == (3, 0.5)


def test_two_sets_have_priors_that_differ_by_half():
    benchmark = load_benchmark("digits")
    rows = STUDIES["set-number"].cells(["digits"], seeds=range(8))
    spreads = [
        np.ptp(draw_cell(row.cell, benchmark).set_priors) for row in rows if row.column == "2 sets"
    ]
    assert len(spreads) == 8
    assert min(spreads) >= 0.5


def test_a_cell_has_a_name_for_people():
    cell = Cell("mnist", num_sets=50, seed=2, prior_noise=0.1, prior_error=0.1)
    assert cell_title(cell) == "mnist, ssc-refined, 50 sets, epsilon 0.1, seed 2"
    cell = dataclasses.replace(cell, prior_error=0.0)
    assert cell_title(cell) == "mnist, ssc-believing, 50 sets, epsilon 0.1, seed 2"
    assert cell_title(Cell("mnist", "supervised")) == "mnist, supervised, seed 0"
    assert cell_title(Cell("mnist", sizes="shrunk", tau=0.4)).endswith("tau 0.4, seed 0")


def test_an_unknown_study_is_named_with_the_nearest():
    assert studies_named(["curves", "curves"]) == [STUDIES["curves"]]
    with pytest.raises(InputError, match="no study 'comparision'; did you mean comparison"):
        studies_named(["comparision"])


# What the numbers mean


def place(row, errors, column="10 sets", dataset="mnist", chosen=None):
    """Return the rows and results of one place, one seed per error (None: not run)."""
    rows, results = [], {}
    for seed, error in enumerate(errors):
        cell = Cell(dataset, row, seed=seed, epochs=4, held_out=0.1)
        rows.append(Row(cell, row, column, Published(5.0, 0.1)))
        if error is not None:
            results[cell] = dataclasses.asdict(cell) | {"test_error": error / 100}
            if chosen is not None:
                results[cell]["selected_test_error"] = chosen[seed] / 100
    return rows, results


def entries_of(*places):
    rows = [row for part, _ in places for row in part]
    results = {cell: result for _, part in places for cell, result in part.items()}
    return {entry.row: entry for entry in summarize(STUDIES["comparison"], results, rows).entries}


def test_means_and_sample_deviations_are_over_the_seeds_that_were_run():
    entry = entries_of(place("ssc", [2.0, None, 3.0], chosen=[1.0, None, 2.0]))["ssc"]
    assert entry.seeds == (0, 2)
    assert entry.errors == pytest.approx((2.0, 3.0))
    assert entry.mean == pytest.approx(2.5)
    assert entry.std == pytest.approx(0.5 * 2**0.5)
    assert entry.selected_errors == pytest.approx((1.0, 2.0))
    assert entry.selected_mean == pytest.approx(1.5)
    assert (entry.epochs, entry.num_sets, entry.paper) == (4, 10, (5.0, 0.1))
    assert [run["seed"] for run in entry.runs] == [0, 2]


def test_what_was_not_run_is_blank_and_one_seed_has_no_deviation():
    entries = entries_of(place("ssc", [None, None]), place("mmc-u2", [4.0, None]))
    blank, one = entries["ssc"], entries["mmc-u2"]
    assert (blank.mean, blank.std, blank.epochs, blank.seeds) == (None, None, None, ())
    assert blank.paper == (5.0, 0.1)
    assert (one.mean, one.std, one.selected_mean) == (pytest.approx(4.0), None, None)
    assert not blank.best
    assert not one.best  # it has no rival


def best_of(*places):
    return {row for row, entry in entries_of(*places).items() if entry.best}


def test_best_is_the_least_mean_and_what_a_paired_test_cannot_tell_from_it():
    best = place("ssc", [2.0, 2.1, 2.2])
    # Differences 1.0, 1.1, 0.9: t = 17; and 0.5, -0.3, 0.2: t = 0.6.
    assert best_of(best, place("mmc-u2", [3.0, 3.2, 3.1])) == {"ssc"}
    assert best_of(best, place("mmc-u2", [2.5, 1.8, 2.4])) == {"ssc", "mmc-u2"}


def test_constant_differences_are_told_apart_and_no_difference_is_not():
    best = place("ssc", [2.0, 2.5, 3.0])
    assert best_of(best, place("mmc-u2", [3.0, 3.5, 4.0])) == {"ssc"}
    assert best_of(best, place("mmc-u2", [2.0, 2.5, 3.0])) == {"ssc", "mmc-u2"}


def test_without_two_common_seeds_only_the_best_is_best():
    best = place("ssc", [2.0, 2.1, None])
    assert best_of(best, place("mmc-u2", [None, 2.2, 2.3])) == {"ssc"}


def test_rivals_are_in_the_same_column_of_the_same_dataset():
    parts = [place("ssc", [2.0, 2.1]), place("mmc-u2", [9.0, 9.2], dataset="kmnist")]
    assert best_of(*parts) == set()


def test_the_supervised_reference_goes_with_the_recipe_epochs_and_scale():
    rows, results = place("ssc", [2.0, 3.0])
    for epochs, error in ((4, 1.0), (5, 0.5)):
        for row in STUDIES["supervised"].cells(["mnist"], seeds=[0, 1], epochs=epochs):
            results[row.cell] = dataclasses.asdict(row.cell) | {"test_error": error / 100}
    summary = summarize(STUDIES["comparison"], results, rows)
    assert summary.supervised["mnist"].mean == pytest.approx(1.0)
    assert summary.supervised["mnist"].num_sets == 0
    assert summarize(STUDIES["comparison"], {}, rows).supervised == {}


# Labels


def test_no_function_of_a_study_has_a_parameter_for_labels():
    forbidden = {"y", "label", "labels", "y_true", "y_train", "y_test", "targets"}
    for module in (cell_module, grid, runner, store, worker):
        for name, thing in inspect.getmembers(module, callable):
            if getattr(thing, "__module__", "").startswith(("unmix.studies", "unmix.learn")):
                taken = set(inspect.signature(thing).parameters)
                assert not taken & forbidden, f"{module.__name__}.{name}"
    # A run is decided by its cell, and a cell holds names and numbers; what trains and what
    # selects are sets, and they have no place for labels.
    assert set(inspect.signature(run_cell).parameters) == {
        "cell",
        "data_folder",
        "resume",
        "progress",
        "device",
    }
    for holder in (Cell, UnlabeledSets):
        assert not {field.name for field in dataclasses.fields(holder)} & forbidden


@pytest.mark.parametrize("method", ["ssc", "ssc-vat", "llp-vat"])
def test_other_test_labels_change_the_counted_errors_and_nothing_else(method, monkeypatch):
    cell = Cell("digits", method, epochs=3, scale=0.3, held_out=0.2)
    honest = run_cell(cell)

    def flipped(*args):
        benchmark = load_benchmark(*args)
        return dataclasses.replace(benchmark, y_test=~benchmark.y_test)

    monkeypatch.setattr(cell_module, "load_benchmark", flipped)
    lied_to = run_cell(cell)
    assert lied_to["test_error"] == pytest.approx(1 - honest["test_error"])
    assert lied_to["selected_epoch"] == honest["selected_epoch"]
    for key in ("train_risk", "held_out_loss"):
        assert [r[key] for r in lied_to["history"]] == [r[key] for r in honest["history"]]


# The command


def run(*args):
    return CliRunner().invoke(main, ["reproduce", *args])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["comparision"], "did you mean comparison?"),
        (["comparison", "--methods", "ssc,scc"], "comparison has no method 'scc'; choose from mmc"),
        (["set-size", "set-number", "--methods", "llp-vat"], "set-size and set-number has no"),
        (["comparison", "--datasets", "digit"], "Did you mean 'digits'?"),
        (["comparison", "--datasets", "digits", "--recipe", "slow"], "recipe must be one of"),
        (["comparison", "--datasets", "digits", "--epochs", "0"], "epochs must lie between 1"),
        (
            ["comparison", "--datasets", "digits", "--workers", "0"],
            "workers and threads must lie between 1 and 1,024; got 0 and 1",
        ),
        (["comparison", "--seeds", "0,x"], "'0,x' is no list of whole numbers"),
        (["comparison", "--datasets", "mnist,kmnist", "--data", "."], "not in .: mnist, kmnist;"),
        (["comparison", "--report-only", "--store", "nowhere"], "nowhere holds no runs"),
        ([], "Missing argument 'STUDY...'"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(args, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*args)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout


def test_report_only_prints_what_the_store_holds_beside_the_paper(tmp_path):
    (row,) = STUDIES["set-number"].cells(["mnist"], seeds=[1])[:1]
    with RunStore(tmp_path) as runs:
        runs.add([row.cell])
        errors = {"test_error": 0.0123, "selected_test_error": 0.0121}
        result = errors | {"seconds": 9.0, "with_replacement": 0, "history": []}
        runs.finish(runs.claim([row.cell]), result)
    args = ("set-number", "--datasets", "mnist", "--report-only", "--store", str(tmp_path))
    lines = run(*args).stdout.splitlines()
    assert len(lines) == 2 + 4
    assert lines[2].split() == ["mnist", "2", "sets", "ssc", "1.23", "1.21", "2.36", "(0.27)"]
    assert lines[3].split() == ["mnist", "100", "sets", "ssc", "2.59", "(0.11)"]
    record = json.loads(run(*args, "--json").stdout)
    first, second = record["studies"]["set-number"][:2]
    assert (first["mean"], first["std"], first["seeds"]) == (pytest.approx(1.23), None, [1])
    assert first["paper"] == {"error": 2.36, "std": 0.27}
    assert second["mean"] is None
    assert record["failed"] == {}


def test_a_failed_cell_is_named_and_the_exit_code_is_1(tmp_path):
    (row,) = STUDIES["supervised"].cells(["digits"], seeds=[0])
    with RunStore(tmp_path) as runs:
        runs.add([row.cell])
        runs.fail(runs.claim([row.cell]), "DivergenceError: the risk became nan")
    args = ("supervised", "--datasets", "digits", "--seeds", "0", "--report-only")
    result = run(*args, "--store", str(tmp_path))
    assert result.exit_code == 1
    assert "1 of 1 cells failed: digits, supervised, seed 0 (DivergenceError" in result.stderr


def test_ctrl_c_says_how_much_is_left_and_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(cells, store, **options):
        store.add(cells)
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_study", interrupted)
    result = run("supervised", "--datasets", "digits", "--store", str(tmp_path))
    assert result.exit_code == 130
    assert "stopped with 3 of 3 cells to go; the same command goes on" in result.stderr


def test_a_whole_study_runs_the_reference_and_a_chosen_method_does_not(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(runner, "run_study", lambda cells, store, **options: asked.append(cells))
    common = ("--datasets", "digits", "--seeds", "0,1", "--store", str(tmp_path))
    run("set-number", *common)
    run("set-number", "--methods", "ssc", *common)
    run("supervised", "set-number", *common)
    methods = [[cell.method for cell in cells] for cells in asked]
    assert methods[0].count("supervised") == methods[2].count("supervised") == 2
    assert len(methods[0]) == len(methods[2]) == len(methods[1]) + 2
    assert set(methods[1]) == {"ssc"}


def test_help_loads_nothing_heavy():
    code = "import unmix.cli\ntry:\n    unmix.cli.main(['reproduce', '--help'])\n"
    assert not loaded_by(code + "except SystemExit:\n    print()") & HEAVY


def test_the_reference_is_listed_once():
    rows = STUDIES["supervised"].cells(["mnist"]) + STUDIES["comparison"].cells(["mnist"])
    found = {row.cell: fake_result(row.cell) for row in rows}
    for name, listed in (("supervised", 1), ("comparison", 22)):
        summary = summarize(STUDIES[name], found, STUDIES[name].cells(["mnist"]))
        entries = summary.all_entries
        assert len(entries) == listed
        assert [e.row for e in entries].count("supervised") == 1
