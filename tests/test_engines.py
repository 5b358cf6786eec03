"""A fit by workers that read files is the fit by one process, whatever their number and fate."""

import json
import os
import shlex
import signal
import socket
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from play_page import Player, steps_of
from unmix.classifier import UnmixClassifier
from unmix.cli import main
from unmix.data.grouped_priors import grouped_priors
from unmix.data.priors import Priors
from unmix.data.set_columns import UnratedWarning
from unmix.data.sets import UnlabeledSets
from unmix.engines.choice import engine_named
from unmix.engines.local_engine import LocalEngine
from unmix.engines.ray_engine import _OwnPath
from unmix.errors import InputError
from unmix.files import sha256_of
from unmix.learn import linear_objective, part_files
from unmix.learn.encoding import TableSummary
from unmix.learn.estimator import SetClassifier
from unmix.learn.methods import METHODS
from unmix.learn.models import Setup, fit_learner, model_row
from unmix.learn.table_source import TableSource

pytest.importorskip("ray", reason="the extra ray is not installed")

NUM_SETS, FILES, ROWS = 12, 8, 120


def table_of(k, sets):
    """One file: integers that are missing in one file only, words of which some are rare."""
    rng = np.random.default_rng([5, k])
    positive = rng.random(len(sets)) < (sets + 1) / (NUM_SETS + 1)
    frame = pd.DataFrame(
        {
            "height": rng.normal(size=len(sets)) + positive,
            "count": rng.poisson(3 + 2 * positive),
            "town": rng.choice(["Rome", "Oslo", "Bonn"], len(sets)),
            "region": [f"r{j}" for j in sets],
            "month": [f"m{j}" for j in rng.integers(3, size=len(sets))],
        }
    )
    if k == 3:
        frame["count"] = frame["count"].astype("Int64")
        frame.loc[5, "count"] = pd.NA
        frame.loc[:2, "town"] = None
    return frame


def write(folder, sets_of):
    folder.mkdir()
    for k in range(FILES):
        table_of(k, sets_of(k)).to_parquet(folder / f"part-{k}.parquet", index=False)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same kind of table with sets spread over the files, and with each set in one file."""
    top = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(1)
    spread = write(top / "spread", lambda k: rng.integers(NUM_SETS, size=ROWS))
    whole = write(
        top / "whole",
        lambda k: rng.choice(np.arange(NUM_SETS)[np.arange(NUM_SETS) % FILES == k], ROWS),
    )
    return {"spread": spread, "whole": whole}


@pytest.fixture(scope="module")
def ray_engine():
    """One Ray for all tests of this file, since it takes seconds to start."""
    with engine_named("ray", workers=3, timeout=600) as engine:
        yield engine


def shares(count=NUM_SETS):
    names = [f"r{j}" for j in range(count)]
    return Priors(tuple(names), (np.arange(count) + 1) / (NUM_SETS + 1), source="rates.csv")


def fitted(folder, engine, output, *, method="ssc", priors=None, sets="region", **options):
    """Fit a linear model, and return it with its rows and those that were held out."""
    drop = [name for name in ("month", "region") if name not in sets]
    source = TableSource.open(folder, sets, priors or shares(), drop=drop, engine=engine, **options)
    with source.rows(output, {"method": method}) as (rows, judged):
        sets = rows.all(model_row("linear"), METHODS[method])
        learner = fit_learner(sets, Setup("linear", method, l2=1e-3), checkpoint=rows.checkpoint)
    return learner, rows, judged


def weights_of(learner):
    return learner.fit.weights_file()


def test_summaries_of_parts_join_to_that_of_the_whole():
    frames = [
        table_of(k, np.arange(200) % NUM_SETS).assign(row=np.arange(200) + 200 * k)
        for k in range(4)
    ]
    whole, joined = TableSummary(), TableSummary()
    whole.add(pd.concat(frames))
    for frame in frames:
        part = TableSummary()
        part.add(frame)
        joined.take_in(part)
    ours, theirs = joined.encoder(), whole.encoder()
    assert ours.left_out == theirs.left_out == {"row": "numbers the rows"}
    assert ours.feature_names == theirs.feature_names
    for one, other in zip(ours.summaries, theirs.summaries, strict=True):
        for name, value in vars(other).items():
            number = isinstance(value, float)
            assert getattr(one, name) == (pytest.approx(value, rel=1e-12) if number else value)


def test_words_that_come_back_in_another_file_do_not_name_rows():
    alone, joined = TableSummary(), TableSummary()
    words = pd.DataFrame({"word": [f"w{i}" for i in range(60)], "x": np.arange(60) % 7})
    alone.add(words)
    for _ in range(2):
        part = TableSummary()
        part.add(words)
        joined.take_in(part)
    assert "word" in alone.encoder().left_out
    assert "word" not in joined.encoder().left_out


def test_the_fit_by_parts_is_the_fit_in_memory(folders, tmp_path):
    ours, seen, _ = fitted(folders["spread"], LocalEngine(), tmp_path / "a", held_out=0)
    theirs, rows, _ = fitted(folders["spread"], None, tmp_path / "b", held_out=0, stream=False)
    assert seen.encoder.feature_names == rows.encoder.feature_names
    assert seen.set_sizes.tolist() == rows.set_sizes.tolist()
    assert np.abs(ours.fit.weights - theirs.fit.weights).max() < 1e-3
    assert np.abs(theirs.fit.weights).max() > 0.2


@pytest.mark.parametrize(
    ("method", "kind"), [("ssc", "spread"), ("count", "whole"), ("set-effects", "whole")]
)
def test_every_number_of_workers_comes_to_the_same_bits(
    folders, tmp_path, ray_engine, method, kind
):
    expected, rows, judged = fitted(folders[kind], LocalEngine(), tmp_path / "m", method=method)
    for workers in (1, 2, 3) if method == "ssc" else (2,):
        ray_engine.workers = workers
        fit, seen, also = fitted(folders[kind], ray_engine, tmp_path / "m", method=method)
        assert weights_of(fit) == weights_of(expected)
        assert seen.set_sizes.tolist() == rows.set_sizes.tolist()
        pd.testing.assert_frame_equal(also.x, judged.x)
    assert 0.1 < len(judged.x) / (FILES * ROWS) < 0.3
    assert sorted(os.listdir(tmp_path)) == []


def test_a_killed_worker_is_started_again_and_changes_no_bit(
    folders, tmp_path, ray_engine, monkeypatch
):
    expected, *_ = fitted(folders["spread"], LocalEngine(), tmp_path / "m")
    ray_engine.workers, killed, each = 2, [], ray_engine.each

    def killing(work, num_parts, *arguments, done=lambda part: None):
        def and_kill(part):
            done(part)
            if work == "answer" and len(killed) < 2 and part == FILES // 2:
                killed.append(process_of(ray_engine, len(killed)))
                os.kill(killed[-1], signal.SIGKILL)

        return each(work, num_parts, *arguments, done=and_kill)

    monkeypatch.setattr(ray_engine, "each", killing)
    fit, *_ = fitted(folders["spread"], ray_engine, tmp_path / "m")
    assert len(set(killed)) == 2
    assert weights_of(fit) == weights_of(expected)


def test_workers_of_ray_look_for_code_where_this_process_does_and_nowhere_else(ray_engine):
    import ray

    job = ray._private.worker.global_worker.core_worker.get_job_config()
    assert os.getcwd() in sys.path or os.getcwd() not in job.py_driver_sys_path
    assert set(job.py_driver_sys_path) <= set(sys.path)
    own = _OwnPath()
    own.extend(["/nowhere/of/ours", sys.path[-1]])
    assert own == [sys.path[-1]]


def process_of(engine, number):
    """Return the process of an actor."""
    import ray

    return ray.get(engine._actors[number].__ray_call__.remote(lambda actor: os.getpid()))


def test_a_worker_that_does_not_answer_ends_the_fit_in_one_line(
    folders, tmp_path, ray_engine, monkeypatch
):
    ray_engine.workers = 2
    with ExitStack() as stack:
        each = ray_engine.each

        def halting(work, num_parts, *arguments, done=lambda part: None):
            if work == "check":
                process = process_of(ray_engine, 0)
                monkeypatch.setattr(ray_engine, "_timeout", 2.0)
                os.kill(process, signal.SIGSTOP)
                stack.callback(os.kill, process, signal.SIGCONT)
            return each(work, num_parts, *arguments, done=done)

        monkeypatch.setattr(ray_engine, "each", halting)
        with pytest.raises(
            TimeoutError, match=r"no worker of Ray answered for 2 seconds; .*part-0"
        ) as caught:
            fitted(folders["spread"], ray_engine, tmp_path / "m")
    assert "\n" not in str(caught.value)
    # What was found so far is kept for the next run.
    assert (tmp_path / ".m.unfinished" / "statistics.json").exists()


def test_a_cell_that_cannot_be_used_is_named_with_its_file(folders, tmp_path, ray_engine):
    bad = write(tmp_path / "bad", lambda k: np.arange(ROWS) % NUM_SETS)
    frame = table_of(6, np.arange(ROWS) % NUM_SETS)
    frame.loc[7, "height"] = np.inf
    frame.to_parquet(bad / "part-6.parquet", index=False)
    for engine in (LocalEngine(), ray_engine):
        with pytest.raises(
            InputError, match=r"part-6.parquet: column 'height' holds inf in row 8;"
        ):
            fitted(bad, engine, tmp_path / "m")


def test_a_fit_whose_driver_was_stopped_resumes_to_the_same_bits(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(linear_objective, "SAVE_SECONDS", 0.0)
    expected, *_ = fitted(folders["spread"], LocalEngine(), tmp_path / "whole")
    calls = []

    class Stopping(LocalEngine):
        def __init__(self, after):
            super().__init__()
            self.after = after

        def each(self, work, *arguments, **options):
            calls.append(work)
            if calls.count("answer") == self.after:
                raise KeyboardInterrupt
            return super().each(work, *arguments, **options)

    with pytest.raises(KeyboardInterrupt):
        fitted(folders["spread"], Stopping(4), tmp_path / "m")
    first = calls.copy()
    calls.clear()
    fit, *_ = fitted(folders["spread"], Stopping(-1), tmp_path / "m")
    assert weights_of(fit) == weights_of(expected)
    assert first.count("summarise") == 1
    assert calls.count("summarise") == 0  # it lay in the scratch folder
    passes = calls.count("answer")
    calls.clear()
    fitted(folders["spread"], Stopping(-1), tmp_path / "whole")
    assert calls.count("answer") == passes + 3
    assert os.listdir(tmp_path) == []


def test_files_with_rows_of_unrated_sets_only_are_no_mistake(folders, tmp_path):
    few = Priors(shares(6).set_ids, shares(6).set_priors, source="rates.csv", drop_unrated=True)
    with pytest.warns(UnratedWarning, match=r"'r8', .* have no rate in rates.csv"):
        _, rows, _ = fitted(folders["whole"], LocalEngine(), tmp_path / "m", priors=few)
    assert sorted(rows.priors.set_ids) == [f"r{j}" for j in range(6)]
    none = Priors(("x", "y"), [0.2, 0.6], source="rates.csv", drop_unrated=True)
    with pytest.raises(InputError, match=r"no row has a set with a rate in rates.csv"):
        fitted(folders["whole"], LocalEngine(), tmp_path / "m", priors=none, allow_unused=True)


def test_several_groupings_are_summed_like_one(folders, tmp_path):
    by_month = {f"m{j}": 0.4 + 0.1 * j for j in range(3)}
    by_region = dict(zip(shares().set_ids, shares().set_priors.as_given, strict=True))
    both = grouped_priors({"region": by_region, "month": by_month}, ["region", "month"])
    options = {"priors": both, "sets": ["region", "month"], "held_out": 0}
    ours, *_ = fitted(folders["spread"], LocalEngine(), tmp_path / "a", **options)
    theirs, *_ = fitted(folders["spread"], None, tmp_path / "b", stream=False, **options)
    np.testing.assert_allclose(ours.fit.weights, theirs.fit.weights, atol=2e-3)


@pytest.fixture(scope="module")
def rates(folders):
    path = folders["spread"].parent / "rates.csv"
    pd.DataFrame({"region": shares().set_ids, "share": shares().set_priors.as_given}).to_csv(
        path, index=False
    )
    return str(path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--engine", "ray", "--model", "resnet32"],
            "resnet32 is not available with --engine ray; use 'linear', 'boosting', 'mlp'",
        ),
        (["--engine", "spark"], "there is no engine 'spark'; use local, ray, or ray://HOST:PORT"),
        (["--workers", "2"], "--workers is about --engine ray; add that or leave --workers out"),
        (["--engine", "local", "--method", "mmc-u2"], "mmc-u2 needs all rows at once"),
        (["--engine", "local", "--method", "count"], "needs each set whole in one part"),
        (
            ["--engine", "local", "--prior-error", "0.1", "--method", "ssc-mse"],
            "cannot be refined from sums",
        ),
    ],
)
def test_what_an_engine_cannot_do_is_refused_in_one_line(folders, rates, tmp_path, options, said):
    command = [
        "fit",
        str(folders["spread"]),
        "--sets",
        "region",
        "--priors",
        rates,
        "--drop",
        "month",
    ]
    result = CliRunner().invoke(main, [*command, "-o", str(tmp_path / "m"), *options])
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_the_classifier_takes_files_and_an_engine(folders, tmp_path):
    given = dict(zip(shares().set_ids, shares().set_priors.as_given, strict=True))
    options = {"method": "ssc", "l2": 1e-3, "random_state": 0, "hide_sets": False, "held_out": 0.2}
    folder = str(folders["spread"])
    clf = UnmixClassifier(given, engine="local", **options).fit(folder, "region")
    frame = pd.concat([table_of_folder(folder, k) for k in range(FILES)])
    assert len(clf.predict_proba(frame.drop(columns="region"))) == FILES * ROWS
    assert clf.judgement_ is not None
    clf.save(tmp_path / "m")
    assert UnmixClassifier.load(tmp_path / "m").get_params()["engine"] == "local"
    with pytest.raises(InputError, match="with engine='local' fit takes files"):
        UnmixClassifier(given, engine="local", **options).fit(frame, frame["region"])
    with pytest.raises(InputError, match="model resnet32 is not available with an engine"):
        UnmixClassifier(given, engine="local", model="resnet32").fit(folder, "region")


def table_of_folder(folder, k):
    return pd.read_parquet(f"{folder}/part-{k}.parquet")


def test_what_auto_chooses_for_sets_in_several_files_learns_from_a_sample(folders, tmp_path):
    priors, output = shares(), tmp_path / "m"
    source = TableSource.open(folders["spread"], "region", priors, engine=LocalEngine(), held_out=0)
    with source.rows(output, {}) as (rows, _):
        chosen = METHODS["set-effects"]
        assert rows.sampled(model_row("linear"), chosen)
        assert not rows.sampled(model_row("linear"), METHODS["ssc"])
        assert isinstance(rows.all(model_row("linear"), chosen), UnlabeledSets)
    with (
        TableSource.open(folders["whole"], "region", priors, engine=LocalEngine(), held_out=0).rows(
            output, {}
        ) as (rows, _),
    ):
        assert not rows.sampled(model_row("linear"), chosen)


def test_csv_is_refused_by_engines(rates, tmp_path):
    command = ["fit", rates, "--sets", "region", "--priors", rates, "--engine", "local"]
    result = CliRunner().invoke(main, [*command, "-o", str(tmp_path / "m")])
    assert (result.exit_code, "reads Parquet only" in result.stderr) == (2, True)


def test_the_command_writes_the_model_of_the_engine(folders, rates, tmp_path):
    command = ["fit", str(folders["spread"]), "--sets", "region", "--priors", rates, "--json"]
    options = ["--engine", "local", "-o", str(tmp_path / "m"), "--drop", "month"]
    result = CliRunner().invoke(main, [*command, *options, "--method", "ssc"])
    assert result.exit_code == 0, result.stderr
    assert os.listdir(tmp_path) == ["m"]
    loaded = SetClassifier.load(tmp_path / "m")
    assert loaded.gains_["ssc"].shown
    assert json.loads(result.stdout)["gains"]["ssc"]["gain"] > 0


@pytest.fixture(scope="module")
def model(folders, rates):
    """A model of the files, and how it was made."""
    path = folders["spread"].parent / "model"
    command = ["fit", str(folders["spread"]), "--sets", "region", "--priors", rates]
    command += ["--engine", "local", "--method", "ssc", "--no-hide-sets", "--drop", "month"]
    result = CliRunner().invoke(main, [*command, "-o", str(path)])
    assert result.exit_code == 0, result.stderr
    return str(path)


def test_scores_of_files_are_those_of_the_whole_table(folders, model, tmp_path):
    words = ["predict", model, str(folders["spread"]), "--keep", "region", "--json"]
    whole, parts = tmp_path / "whole.parquet", tmp_path / "parts"
    runs = [
        CliRunner().invoke(main, [*words, "-o", str(whole)]),
        CliRunner().invoke(main, [*words, "-o", str(parts), "--engine", "local"]),
    ]
    assert [run.exit_code for run in runs] == [0, 0], [run.stderr for run in runs]
    said = [json.loads(run.stdout) for run in runs]
    assert said[0]["rows"] == said[1]["rows"] == FILES * ROWS
    assert said[0]["drift"] == said[1]["drift"] is not None
    manifest = json.loads((parts / "manifest.json").read_text())
    assert sorted(os.listdir(parts)) == ["manifest.json", *sorted(manifest["files"])]
    assert sum(file["rows"] for file in manifest["files"].values()) == FILES * ROWS
    for name, file in manifest["files"].items():
        assert sha256_of(parts / name) == file["sha256"]
    read = pd.concat([pd.read_parquet(parts / name) for name in manifest["files"]])
    pd.testing.assert_frame_equal(read.reset_index(drop=True), pd.read_parquet(whole))
    assert sorted(os.listdir(tmp_path)) == ["parts", "whole.parquet"]


def test_scores_are_replaced_only_if_all_of_them_are_ours(folders, model, tmp_path):
    words = ["predict", model, str(folders["spread"]), "-o", str(tmp_path / "p")]
    words += ["--engine", "local"]
    assert CliRunner().invoke(main, words).exit_code == 0
    assert "exists" in CliRunner().invoke(main, words).stderr
    assert CliRunner().invoke(main, [*words, "--overwrite"]).exit_code == 0
    (tmp_path / "p" / "notes.txt").write_text("mine")
    refused = CliRunner().invoke(main, [*words, "--overwrite"])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "notes.txt in it is no file of scores" in refused.stderr
    known = CliRunner().invoke(main, [*words, "--sets", "region"])
    assert "leave --engine or --sets out" in known.stderr


def test_workers_of_ray_score_files_alike(folders, model, tmp_path, ray_engine, monkeypatch):
    written = []
    for engine, carrier in (("local", LocalEngine()), ("ray", nullcontext(ray_engine))):
        monkeypatch.setattr("unmix.cli.predict.engine_of", lambda *asked, of=carrier: of)
        words = ["predict", model, str(folders["spread"]), "-o", str(tmp_path / engine)]
        run = CliRunner().invoke(main, [*words, "--engine", engine])
        assert run.exit_code == 0, run.stderr
        manifest = json.loads((tmp_path / engine / "manifest.json").read_text())
        written.append({name: file["sha256"] for name, file in manifest["files"].items()})
    assert written[0] == written[1]
    assert len(set(written[0].values())) == FILES


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "--sets", "region", "--priors", "RATES"],
        ["evaluate", "--sets", "region", "--priors", "RATES", "--labels", "sick"],
        ["prevalence", "--by", "town", "--sets", "region"],
        ["prevalence", "--sets", "region"],
    ],
)
def test_what_files_say_together_is_the_same_to_the_last_bit_with_engines(
    folders, rates, model, tmp_path, ray_engine, monkeypatch, words
):
    (tmp_path / "rows").mkdir()
    for k in range(FILES):
        frame = table_of_folder(folders["spread"], k)
        frame = frame.iloc[: k * 15].assign(sick=[("0", "1")[i % 2] for i in range(k * 15)])
        frame.to_parquet(tmp_path / "rows" / f"{k}.parquet", index=False)
    command = [words[0], model, str(tmp_path / "rows"), *words[1:], "--json"]
    command = [rates if word == "RATES" else word for word in command]
    told = []
    for options in ([], ["--engine", "local"], ["--engine", "ray"]):
        if "ray" in options:
            monkeypatch.setattr("unmix.cli.judging.engine_of", lambda *_: nullcontext(ray_engine))
        run = CliRunner().invoke(main, [*command, *options])
        assert run.exit_code == 0, run.stderr
        told.append(run.stdout)
    assert told[0] == told[1] == told[2]
    found = json.loads(told[0])
    each = found.get("groups") or found.get("sets", ())
    assert found.get("rows", sum(one["rows"] for one in each)) == 15 * sum(range(FILES))


def test_a_bad_cell_is_named_with_its_file_where_files_are_evaluated(
    folders, rates, model, tmp_path
):
    (tmp_path / "rows").mkdir()
    for k in range(2):
        frame = table_of_folder(folders["spread"], k)
        frame.loc[7, "height"] = [0.0, np.inf][k]
        frame.to_parquet(tmp_path / "rows" / f"{k}.parquet", index=False)
    command = ["evaluate", model, str(tmp_path / "rows"), "--sets", "region", "--priors", rates]
    said = [CliRunner().invoke(main, [*command, *more]) for more in ([], ["--engine", "local"])]
    assert [run.exit_code for run in said] == [2, 2]
    assert said[0].stderr == said[1].stderr
    assert "1.parquet: column 'height' holds inf in row 8" in said[0].stderr


def test_the_page_about_engines_runs_from_top_to_bottom(
    folders, rates, tmp_path, ray_engine, monkeypatch
):
    for name in ("rows", "new"):
        (tmp_path / name).mkdir()
        for k in range(3):
            table_of_folder(folders["spread"], k).to_parquet(tmp_path / name / f"{k}.parquet")
    (tmp_path / "rates.csv").write_text(Path(rates).read_text())
    for command in ("fit", "judging", "predict"):
        monkeypatch.setattr(f"unmix.cli.{command}.engine_of", lambda *_: nullcontext(ray_engine))
    monkeypatch.setattr("unmix.engines.file_rows.engine_named", lambda *_: nullcontext(ray_engine))
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[1] / "docs/engines.md").read_text()

    def run(command, folder):
        result = CliRunner().invoke(main, shlex.split(command)[1:])
        return result.exit_code, result.output

    player = Player(tmp_path, run)
    played = [player.play(step) for step in steps_of(page)]
    assert [code for code, _ in played] == [0] * len(played), played
    assert played[-1][1] == "ssc linear\n"
    assert (tmp_path / "scored/manifest.json").exists()


@pytest.mark.parametrize(
    ("gigabytes", "limit", "expected"),
    [(64, None, 8e9), (64, "max", 8e9), (64, "32000000000", 4e9), (4, None, 2e9)],
)
def test_a_worker_keeps_rows_in_half_of_the_memory_of_its_processor(
    tmp_path, monkeypatch, gigabytes, limit, expected
):
    container = tmp_path / "memory.max"
    if limit is not None:
        container.write_text(limit)
    machine = {"SC_PHYS_PAGES": gigabytes * 10**6, "SC_PAGE_SIZE": 1000}
    monkeypatch.setattr(part_files, "CONTAINER", container)
    monkeypatch.setattr(part_files.os, "sysconf", machine.__getitem__)
    monkeypatch.setattr(part_files.os, "cpu_count", lambda: 4)
    assert part_files.memory_of_worker() == expected


def test_an_address_where_nobody_listens_is_named_at_once():
    with socket.socket() as free:  # a port that is bound, where nobody listens
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(InputError, match=f"nobody answers at {address} .*start Ray there"):
            engine_named(f"ray://{address}").__enter__()
