import json
import signal
import sqlite3
import subprocess
import sys

import pytest

from unmix.errors import InputError
from unmix.studies.cell import Cell
from unmix.studies.code_version import CODE, code_version
from unmix.studies.run_text import cell_key
from unmix.studies.store import RunStore

CELLS = [Cell("digits", seed=seed, epochs=2) for seed in range(4)]


def fake_result(cell, error=0.123456789):
    history = [{"epoch": e, "train_risk": -e / 3, "test_error": error} for e in (1, 2)]
    return {
        "dataset": cell.dataset,
        "num_sets": 2,
        "test_error": error,
        "history": history,
        "seconds": 1.5,
        "with_replacement": 3,
    }


@pytest.fixture
def store(tmp_path):
    with RunStore(tmp_path / "runs") as store:
        store.add(CELLS)
        yield store


def run_all(store, cells=CELLS):
    while cell := store.claim(cells):
        store.finish(cell, fake_result(cell, 0.1 + cell.seed / 7))


def test_cells_are_claimed_in_the_order_given_and_once(store, tmp_path):
    with RunStore(tmp_path / "runs") as other:
        order = [CELLS[2], CELLS[0], CELLS[1]]
        taken = [store.claim(order), other.claim(order), store.claim(order), other.claim(order)]
        assert taken == [CELLS[2], CELLS[0], CELLS[1], None]
        assert store.unfinished(CELLS) == CELLS


def test_a_result_reads_back_with_the_fields_of_its_cell_and_the_code_that_made_it(store):
    cell = store.claim(CELLS)
    assert store.finish(cell, fake_result(cell))
    result = store.results()[cell]
    assert (result["seed"], result["recipe"], result["epochs"]) == (0, "fast", 2)
    assert result["num_sets"] == 2  # the run's word, not the cell's
    assert result["history"] == fake_result(cell)["history"]
    assert result["code_version"] == code_version()
    assert store.results([CELLS[1]]) == {}
    assert store.unfinished(CELLS) == CELLS[1:]


def test_only_the_owner_of_a_cell_may_end_it(store, tmp_path):
    cell = store.claim(CELLS)
    with RunStore(tmp_path / "runs") as other:
        assert not other.finish(cell, fake_result(cell))
        assert not other.fail(cell, "no")
    assert store.finish(cell, fake_result(cell))
    assert not store.finish(cell, fake_result(cell, 0.9))
    assert store.results()[cell]["test_error"] == fake_result(cell)["test_error"]


def test_a_store_that_is_closed_lets_go_of_its_cell(store, tmp_path):
    with RunStore(tmp_path / "runs") as other:
        assert other.claim(CELLS) == CELLS[0]
    assert store.claim(CELLS) == CELLS[0]
    assert len(list((tmp_path / "runs" / "workers").iterdir())) == 1


CHILD = """
import sys
from unmix.studies.cell import Cell
from unmix.studies.store import RunStore
store = RunStore(sys.argv[1])
store.claim([Cell("digits", seed=0, epochs=2)])
print("claimed", flush=True)
sys.stdin.read()
"""


def test_a_cell_of_a_killed_process_is_free_again_and_not_before(store, tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "runs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout.readline() == b"claimed\n"
        assert store.claim(CELLS) == CELLS[1]
        child.send_signal(signal.SIGKILL)
    assert store.claim(CELLS) == CELLS[0]


def test_a_failed_cell_keeps_its_line_and_gets_another_chance(store):
    cell = store.claim(CELLS)
    store.fail(cell, "DivergenceError: the risk\n became nan")
    assert store.failures() == {cell: "DivergenceError: the risk became nan"}
    assert cell not in store.unfinished(CELLS)
    store.add(CELLS)
    assert store.failures() == {}
    assert store.claim(CELLS) == cell


def test_adding_cells_again_changes_no_result(store):
    run_all(store)
    before = store.results()
    store.add(CELLS)
    assert store.results() == before
    assert store.claim(CELLS) is None


def test_a_key_is_the_fields_that_are_not_at_their_defaults():
    # Should one of these change, no stored run would be found again.
    assert cell_key(Cell("mnist")) == '{"dataset":"mnist"}'
    spelled = Cell("mnist", "ssc", 10, 0, "fast", None, sizes="uniform", tau=1, held_out=0)
    assert cell_key(spelled) == '{"dataset":"mnist"}'
    other = Cell("mnist", "llp-vat", 50, 2, "paper", 3, prior_noise=0.05, held_out=0.1)
    assert cell_key(other) == (
        '{"dataset":"mnist","epochs":3,"held_out":0.1,"method":"llp-vat","num_sets":50,'
        '"prior_noise":0.05,"recipe":"paper","seed":2}'
    )


def test_an_export_is_sorted_short_and_the_same_after_import(store, tmp_path):
    run_all(store, CELLS[:3])
    store.fail(store.claim(CELLS), "it would not")
    assert store.export(tmp_path / "a.jsonl") == 4
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert lines == sorted(lines)
    rows = {row["cell"].get("seed", 0): row for row in map(json.loads, lines)}
    assert rows[1]["result"]["test_error"] == 0.242857  # six digits of 0.1 + 1 / 7
    assert rows[0]["result"]["history"]["train_risk"] == [-0.333333, -0.666667]
    assert rows[3]["error"] == "it would not"
    with RunStore(tmp_path / "copy") as copy:
        assert copy.import_(tmp_path / "a.jsonl") == 4
        assert copy.import_(tmp_path / "a.jsonl") == 0
        copy.export(tmp_path / "b.jsonl")
        assert copy.results()[CELLS[0]]["history"][1]["train_risk"] == -0.666667
        assert copy.failures() == {CELLS[3]: "it would not"}
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_an_import_fills_in_what_is_missing_and_keeps_what_is_there(store, tmp_path):
    run_all(store)
    store.export(tmp_path / "a.jsonl")
    with RunStore(tmp_path / "copy") as copy:
        copy.add(CELLS)
        copy.finish(copy.claim(CELLS), fake_result(CELLS[0], 0.5))
        copy.fail(copy.claim(CELLS), "bad luck")
        assert copy.import_(tmp_path / "a.jsonl") == 3
        assert copy.results()[CELLS[0]]["test_error"] == 0.5
        assert copy.failures() == {}
        assert copy.unfinished(CELLS) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"cell":', "line 1 is no exported run"),
        ("[]", "line 1 is no exported run"),
        ('{"cell": {"dataset": "mnist"}, "state": "done"}', "state and result do not agree"),
        (
            '{"cell": {"dataset": "mnist", "color": 1}, "state": "failed"}',
            "a run this version does not know.*color",
        ),
    ],
)
def test_a_damaged_export_is_refused_by_line_and_adds_nothing(store, tmp_path, line, words):
    (tmp_path / "bad.jsonl").write_text(line + "\n")
    with pytest.raises(InputError, match=words):
        store.import_(tmp_path / "bad.jsonl")
    assert store.claim(CELLS) == CELLS[0]  # the store goes on working


def test_a_file_that_is_no_store_and_a_store_that_is_missing_are_named(tmp_path):
    (tmp_path / "runs.sqlite").write_text("once upon a time there was no database at all")
    with pytest.raises(InputError, match=r"runs\.sqlite is no run store"):
        RunStore(tmp_path)
    with pytest.raises(InputError, match="nowhere holds no runs"):
        RunStore(tmp_path / "nowhere", create=False)
    assert not (tmp_path / "nowhere").exists()


def test_the_database_is_written_ahead_and_synced_in_full(store, tmp_path):
    database = sqlite3.connect(tmp_path / "runs" / "runs.sqlite")
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    database.close()
    assert store._database.execute("PRAGMA synchronous").fetchone() == (2,)


def test_other_code_and_other_threads_have_other_checkpoints(store, monkeypatch):
    before = store.checkpoint_folder(CELLS[0], 1)
    assert before == store.checkpoint_folder(CELLS[0], 1)
    assert before != store.checkpoint_folder(CELLS[1], 1)
    assert before != store.checkpoint_folder(CELLS[0], 2)
    monkeypatch.setattr("unmix.studies.store.code_version", lambda: "unmix 9")
    assert store.checkpoint_folder(CELLS[0], 1) != before


def test_a_store_that_cannot_be_written_now_is_not_called_something_else(tmp_path):
    (tmp_path / "runs.sqlite").mkdir()
    with pytest.raises(InputError, match=r"runs\.sqlite cannot be used: .*; try again"):
        RunStore(tmp_path)


def test_an_import_refuses_what_is_no_run(tmp_path):
    with RunStore(tmp_path / "runs") as store:
        binary = tmp_path / "binary"
        binary.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(InputError, match="is no export of runs"):
            store.import_(binary)
        empty = tmp_path / "empty.jsonl"
        empty.write_text(
            '{"cell":{"dataset":"digits"},"state":"done","result":{"history":{},"test_error":0.1}}\n'
        )
        with pytest.raises(InputError, match="it has no error or no epochs"):
            store.import_(empty)
        assert store.results() == {}


def test_a_database_of_somebody_else_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "runs.sqlite") as other:
        other.execute("CREATE TABLE runs (cell TEXT, speed REAL)")
    with pytest.raises(InputError, match="is no run store: no such column"):
        RunStore(tmp_path)


def test_the_digest_covers_every_module_that_a_run_loads():
    code = "import sys, unmix.studies.cell; print(*(m for m in sys.modules if m[:6] == 'unmix.'))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    digested = {f"unmix.{room}.{module}" for room, names in CODE.items() for module in names}
    rooms = {f"unmix.{room}" for room in CODE}
    # These save, word messages, or tell how much sets are worth: no error depends on them.
    neutral = {
        "unmix.errors",
        "unmix.files",
        "unmix.leftovers",
        "unmix.plugins",  # what it loads has a digest of its own
        "unmix.core.assumptions",
        "unmix.core.effect_law",
        "unmix.core.groupings",  # the sets of a study are in one grouping
        "unmix.core.joint_offsets",
        "unmix.core.known_offsets",
        "unmix.core.set_effects",
        "unmix.core.share_density",
        "unmix.core.share_draws",
        "unmix.core.share_law",
        "unmix.core.shares",
        "unmix.core.simplex",
        "unmix.core.within_sets",
        "unmix.progress",
        "unmix.studies.code_version",
        "unmix.data.known_rows",  # a study lets training know no label
        "unmix.data.shuffled",
        "unmix.data.wording",
        "unmix.learn.checkpoint",
        "unmix.learn.curvature",
        "unmix.learn.models",
        "unmix.learn.own_modules",
        "unmix.learn.saved_state",
        "unmix.learn.sets_in_parts",
        "unmix.learn.sums",
        "unmix.assess.effective_labels",
        # Tables that lie in files: the rows of a study are arrays in memory.
        "unmix.core.stand_ins",
        "unmix.data.addresses",
        "unmix.data.column_types",
        "unmix.data.csv_table",
        "unmix.data.joined_tables",
        "unmix.data.parquet_table",
        "unmix.data.priors",
        "unmix.data.rate_statement",
        "unmix.data.row_writer",
        "unmix.data.set_columns",
        "unmix.data.tables",
        "unmix.learn.columns",
        "unmix.learn.encoding",
        "unmix.learn.part_files",
        "unmix.learn.shards",
        "unmix.learn.table_blocks",
    }
    assert digested <= set(loaded.split())
    assert set(loaded.split()) - digested - rooms - neutral == set()
