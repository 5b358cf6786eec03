"""Networks and trees learn from files of workers what they learn in one process."""

import os
import signal
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from unmix.core.class_shares import ClassShares
from unmix.core.transition import Transition
from unmix.data.priors import Priors
from unmix.engines.choice import engine_named
from unmix.engines.local_engine import LocalEngine
from unmix.errors import InputError
from unmix.learn import trees_in_parts
from unmix.learn.choose import choose_setup
from unmix.learn.methods import METHODS, risk_of
from unmix.learn.models import Setup, fit_learner, model_row
from unmix.learn.part_files import WorkerLostError
from unmix.learn.penalty_options import Vat
from unmix.learn.recipes import RECIPES
from unmix.learn.resampling import with_resamples
from unmix.learn.sets_in_parts import SetsInParts
from unmix.learn.shards import Lesson, Shard, balanced_shards
from unmix.learn.table_source import TableSource
from unmix.learn.training import TrainingRun
from unmix.studies.cell import Cell
from unmix.studies.runner import run_study
from unmix.studies.store import RunStore

pytest.importorskip("ray", reason="the extra ray is not installed")

NUM_SETS, FILES, ROWS = 10, 4, 1300
PRIORS = Priors(
    tuple(f"r{j}" for j in range(NUM_SETS)), np.linspace(0.05, 0.95, NUM_SETS), source="rates.csv"
)


def table_of(k, rows=ROWS):
    """One file, whose sets are more and more those of many positives; and the classes."""
    rng = np.random.default_rng([3, k])
    weights = np.linspace(1, 1 + k, NUM_SETS)
    sets = rng.choice(NUM_SETS, rows, p=weights / weights.sum())
    positive = rng.random(rows) < PRIORS.set_priors.as_given[sets]
    frame = pd.DataFrame(rng.normal(size=(rows, 3)), columns=list("abc"))
    frame["a"] += 1.5 * positive
    frame["b"] *= 1 + positive
    frame["town"] = rng.choice(["Rome", "Oslo"], rows)
    frame["region"] = np.array(PRIORS.set_ids)[sets]
    return frame, positive


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    top = tmp_path_factory.mktemp("rows")
    for k in range(FILES):
        table_of(k)[0].to_parquet(top / f"part-{k}.parquet", index=False)
    return top


@pytest.fixture(scope="module")
def ray_engine():
    """One Ray for all tests of this file, since it takes seconds to start."""
    with engine_named("ray", workers=2, timeout=600) as engine:
        yield engine


def fitted(folder, engine, output, model, **options):
    """Fit a model, and return it with its AUC on other rows."""
    source = TableSource.open(folder, "region", PRIORS, engine=engine, held_out=0)
    with source.rows(output, {}) as (rows, _):
        rows.target = PRIORS.set_priors.pooled(rows.set_sizes)
        row = model_row(model)
        sets = rows.all(row, METHODS["ssc"])
        assert isinstance(sets, SetsInParts)
        learner = fit_learner(
            sets,
            Setup(model, "ssc", **options),
            categorical=rows.encoder.categorical,
            checkpoint=rows.checkpoint,
        )
        frame, positive = table_of(FILES, 5000)
        logits = learner.logits(getattr(rows.encoder, row.view)(frame))
    return learner, roc_auc_score(positive, logits)


def killing(engine, monkeypatch, name, work, after):
    """Kill one worker after another while an engine does some work."""
    asked, killed, call = [], [], getattr(engine, name)

    def and_kill(what, *arguments, **options):
        if what == work:
            asked.append(what)
            if len(asked) in after:
                import ray

                actor = engine._actors[len(killed)]
                process = ray.get(actor.__ray_call__.remote(lambda self: os.getpid()))
                killed.append(process)
                os.kill(process, signal.SIGKILL)
        return call(what, *arguments, **options)

    monkeypatch.setattr(engine, name, and_kill)
    return killed


def test_a_network_has_the_same_bits_after_kills_of_workers(
    folder, tmp_path, ray_engine, monkeypatch
):
    options = {"epochs": 1, "hidden": (1, 16)}
    expected, auc = fitted(folder, LocalEngine(), tmp_path / "m", "mlp", **options)
    killed = killing(ray_engine, monkeypatch, "each", "gradient", (10, 40))
    found, _ = fitted(folder, ray_engine, tmp_path / "m", "mlp", **options)
    assert len(set(killed)) == 2
    assert found.fit.weights_file() == expected.fit.weights_file()
    assert auc > 0.6  # after 79 steps
    assert os.listdir(tmp_path) == []


def test_a_network_whose_driver_was_stopped_resumes_to_the_same_bits(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(
        TrainingRun,
        "save_now_and_then",
        lambda run: run.options.checkpoint.save(*run.state.saved()),
    )
    options = {"epochs": 1, "hidden": (1, 16)}
    calls = []

    class Stopping(LocalEngine):
        def __init__(self, after):
            super().__init__()
            self.after = after

        def each(self, work, *arguments, **others):
            calls.append(work)
            if work == "gradient" and calls.count(work) == self.after:
                raise KeyboardInterrupt
            return super().each(work, *arguments, **others)

    expected, _ = fitted(folder, Stopping(-1), tmp_path / "a", "mlp", **options)
    steps = calls.count("gradient")
    with pytest.raises(KeyboardInterrupt):
        fitted(folder, Stopping(steps + 30), tmp_path / "b", "mlp", **options)
    found, _ = fitted(folder, Stopping(-1), tmp_path / "b", "mlp", **options)
    assert calls.count("gradient") == 2 * steps + 1  # only the one that was stopped was repeated
    assert found.fit.weights_file() == expected.fit.weights_file()


def test_gradients_of_shards_add_to_that_of_all_their_rows():
    rng = np.random.default_rng(0)
    sizes, shares = np.array([30, 10, 40]), ClassShares.of(np.array([0.1, 0.5, 0.8]))
    index = np.repeat([0, 1, 2], sizes)
    x = rng.normal(size=(80, 2)).astype(np.float32)
    files = [slice(0, 35), slice(35, 80)]  # no set is spread evenly
    network = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    target = shares.pooled(sizes)
    method, recipe = METHODS["ssc"], RECIPES["fast"]
    shards = ((0,), (1,))
    lesson = Lesson(shards, network, method, recipe, 1, 0, None, 0.0, len(x), sizes, shares, target)
    point = np.concatenate([p.detach().numpy().ravel() for p in network.parameters()])
    replies = [
        Shard(lesson, number, lambda part: (x[files[part]], index[files[part]])).gradient(
            point, 0, 0
        )
        for number in range(2)
    ]
    risk = risk_of(method, Transition(shares, sizes, target))
    loss = risk(network(torch.from_numpy(x)).float(), torch.from_numpy(index))
    loss.backward()
    expected = torch.cat([p.grad.ravel() for p in network.parameters()]).numpy()
    rows = np.array([reply.rows for reply in replies])
    found = sum(n * reply.vector for n, reply in zip(rows, replies, strict=True)) / rows.sum()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    risks = np.array([reply.risk for reply in replies])
    assert risks @ rows / rows.sum() == pytest.approx(loss.item(), rel=1e-5)


def test_shards_follow_from_files_and_batches_alone():
    assert balanced_shards([100] * 8, 64) == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert len(balanced_shards([100] * 8, 8192)) == 8
    assert len(balanced_shards([100] * 800, 8192)) == 8
    # A file is not divided, and no shard is left with next to nothing.
    assert balanced_shards([1000, 10, 10], 8192) == ((0, 1, 2),)
    assert balanced_shards([900, 100, 100, 100], 8192) == ((0,), (1, 2, 3))


def test_trees_of_a_group_go_on_from_the_last_round_if_a_worker_dies(
    folder, tmp_path, ray_engine, monkeypatch
):
    monkeypatch.setattr("unmix.learn.boosting.MOST_ROUNDS", 40)
    alone, expected = fitted(folder, LocalEngine(), tmp_path / "m", "boosting")
    killed = killing(ray_engine, monkeypatch, "together", "grow", (3,))
    starts, begin = [], trees_in_parts.Start
    monkeypatch.setattr(
        trees_in_parts, "Start", lambda *known: starts.append(known) or begin(*known)
    )
    group, auc = fitted(folder, ray_engine, tmp_path / "m", "boosting")
    assert len(killed) == 1
    assert [rounds for _, _, rounds in starts] in ([0, 20], [0, 20, 20])  # killed slowly: once more
    assert not set(starts[0][0]) & set(starts[-1][0])  # fresh ports
    assert len(group.history) == len(alone.history) == 40
    assert auc == pytest.approx(expected, abs=0.01)
    assert expected > 0.85
    assert os.listdir(tmp_path) == []


def test_trees_whose_driver_was_stopped_are_continued(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("unmix.learn.boosting.MOST_ROUNDS", 30)
    calls = []

    class Stopping(LocalEngine):
        def together(self, work, *arguments):
            calls.append(work)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return super().together(work, *arguments)

    with pytest.raises(KeyboardInterrupt):
        fitted(folder, Stopping(), tmp_path / "m", "boosting")
    learner, _ = fitted(folder, Stopping(), tmp_path / "m", "boosting")
    assert len(calls) == 4  # only the last ten rounds were left
    assert [row["round"] for row in learner.history] == list(range(1, 31))


def test_a_group_that_dies_again_and_again_is_given_up(folder, tmp_path, monkeypatch):
    class Dying(LocalEngine):
        def together(self, work, *arguments):
            raise WorkerLostError("killed")

    with pytest.raises(RuntimeError, match="died 5 times in turn: killed"):
        fitted(folder, Dying(), tmp_path / "m", "boosting")


def test_what_trees_and_networks_cannot_learn_with_an_engine_is_refused(folder, tmp_path):
    source = TableSource.open(folder, "region", PRIORS, engine=LocalEngine(), held_out=0)
    with source.rows(tmp_path / "m", {}) as (rows, _):
        with pytest.raises(InputError, match="mlp cannot learn by count from rows with an engine"):
            rows.refuse_parts("mlp", "count")
        with pytest.raises(InputError, match="model resnet32 is not available with an engine"):
            rows.refuse_parts("resnet32", "auto")
        with pytest.raises(InputError, match="ssc-consistency from rows with an engine; use 'ssc'"):
            rows.refuse_parts("mlp", "ssc-consistency")
        rows.priors = rows.priors.with_errors(np.full(NUM_SETS, 0.05))
        for model in ("linear", "boosting", "mlp"):
            rows.refuse_parts(model, "ssc")
            assert not rows.sampled(model_row(model), METHODS["ssc"])


def test_workers_score_hidden_sets_like_one_process(folder, tmp_path, ray_engine, monkeypatch):
    asked, each = [], ray_engine.each
    monkeypatch.setattr(
        ray_engine,
        "each",
        lambda work, *rest, **how: asked.append(work) or each(work, *rest, **how),
    )
    source = TableSource.open(folder, "region", PRIORS, engine=ray_engine, held_out=0)
    with source.rows(tmp_path / "m", {}) as (rows, _):
        rows.target = PRIORS.set_priors.pooled(rows.set_sizes)
        told = []
        _, found = choose_setup(
            rows, "linear", "ssc", progress=lambda *how: told.append(how[2]), l2=1e-3
        )
        monkeypatch.setattr(type(rows), "spread", None)
        _, expected = choose_setup(rows, "linear", "ssc", l2=1e-3)
    assert asked.count("run") == 1  # for all folds together
    assert found.gains["ssc"] == expected.gains["ssc"]
    assert found.errors == expected.errors
    assert sorted(told)[1:] == [f"linear, ssc, fold {f} of 5" for f in range(1, 6)]


def test_cells_of_a_study_run_on_workers_and_survive_them(tmp_path, ray_engine, monkeypatch):
    cells = [Cell("digits", seed=seed, epochs=2, scale=0.3, held_out=0.1) for seed in (0, 1)]
    broken = Cell("digits", "u2", epochs=2, scale=0.3)  # takes two sets, and there are ten
    killed = killing(ray_engine, monkeypatch, "each", "look", (3,))
    notes = []
    with RunStore(tmp_path / "runs") as store:
        failed = run_study([broken, *cells], store, workers=1, engine=ray_engine, note=notes.append)
        results = store.results()
    assert len(killed) == 1
    assert list(failed) == [broken]
    assert "exactly 2 sets; got 10" in failed[broken]
    assert len(notes) == 3
    with RunStore(tmp_path / "here") as store:
        run_study(cells, store, workers=1, engine=LocalEngine())
        expected = store.results()
    for cell in cells:
        for name in ("test_error", "selected_test_error", "num_rows", "worth_in_labels"):
            assert results[cell][name] == expected[cell][name]
    assert not list((tmp_path / "runs" / "checkpoints").iterdir())


def test_shares_with_errors_are_refined_by_trees_with_an_engine(folder, tmp_path):
    stated = PRIORS.set_priors.as_given.copy()
    stated[[2, 7]] = 0.6, 0.35  # .25 and .75 in truth
    wrong = Priors(PRIORS.set_ids, stated, source="rates.csv")
    found = {}
    for name, errors in (("believed", 0.0), ("refined", 0.1)):
        source = TableSource.open(folder, "region", wrong, engine=LocalEngine(), held_out=0)
        with source.rows(tmp_path / "m", {}) as (rows, _):
            rows.target = 0.5
            rows.priors = rows.priors.with_errors(np.full(NUM_SETS, errors))
            rows.refuse_parts("boosting", "ssc")
            learner = fit_learner(
                rows.all(model_row("boosting"), METHODS["ssc"]),
                Setup("boosting", "ssc"),
                categorical=rows.encoder.categorical,
                prior_errors=np.full(NUM_SETS, errors),
            )
        found[name] = learner
    assert not found["believed"].refined
    np.testing.assert_array_equal(found["believed"].set_priors.as_given, stated)
    assert found["refined"].refined
    truth, ours = PRIORS.set_priors.as_given, found["refined"].set_priors.as_given
    assert abs(ours - truth)[[2, 7]].max() < 0.6 * abs(stated - truth)[[2, 7]].min()
    assert found["refined"].fit.weights_file() != found["believed"].fit.weights_file()


def test_an_error_that_trees_notice_is_not_ignored_with_an_engine(folder, tmp_path):
    stated = PRIORS.set_priors.as_given.copy()
    stated[[1, 2, 3, 6, 7, 8]] += (0.3, -0.2, 0.25, -0.25, 0.2, -0.3)
    wrong = Priors(PRIORS.set_ids, stated, source="rates.csv")
    source = TableSource.open(folder, "region", wrong, engine=LocalEngine(), held_out=0)
    with source.rows(tmp_path / "m", {}) as (rows, _):
        rows.target = 0.5
        learner = fit_learner(
            rows.all(model_row("boosting"), METHODS["ssc"]),
            Setup("boosting", "ssc"),
            categorical=rows.encoder.categorical,
            check_priors=True,
        )
    assert learner.noticed_error > 0
    assert learner.refined


def test_an_adversary_of_a_network_works_in_shards(folder, tmp_path, ray_engine):
    """Its strength is chosen on the way, as in one process; who works changes no bit."""
    found = {}
    for name, engine in (("here", LocalEngine()), ("there", ray_engine)):
        source = TableSource.open(folder, "region", PRIORS, engine=engine, held_out=0)
        with source.rows(tmp_path / name, {}) as (rows, _):
            rows.target = 0.5
            rows.refuse_parts("mlp", "ssc-vat")
            learner = fit_learner(
                rows.all(model_row("mlp"), METHODS["ssc-vat"]),
                Setup("mlp", "ssc-vat", epochs=4, hidden=(1, 16)),
            )
            frame, positive = table_of(FILES, 5000)
            found[name] = (
                learner,
                roc_auc_score(positive, learner.logits(rows.encoder.matrix(frame))),
            )
    assert found["here"][0].fit.weights_file() == found["there"][0].fit.weights_file()
    assert found["here"][1] > 0.75


def test_gradients_of_an_adversary_are_those_of_all_rows_with_the_deviation_of_all():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(256, 3)).astype(np.float32)
    x[128:] *= 4  # shards differ, their adversaries do not
    index = rng.integers(4, size=256)
    shares = ClassShares(np.array([0.2, 0.4, 0.6, 0.8]))
    method = replace(METHODS["ssc-vat"], penalty=Vat(weight=1.0, radius=2.0))
    network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(0))
    recipe = replace(RECIPES["fast"], epochs=1, batch_size=128, average=0.0)
    whole = Transition(shares, np.bincount(index, minlength=4), 0.5)
    seen = []
    lesson = Lesson(
        ((0,), (1,)), network, method, recipe, 1, 0, None, float(x.std()), 256,
        np.bincount(index, minlength=4), shares, 0.5,
    )  # fmt: skip
    assert whole.num_sets == 4
    for number in (0, 1):
        half = slice(128 * number, 128 * (number + 1))
        shard = Shard(lesson, number, lambda part, half=half: (x[half], index[half]))
        seen.append(shard._run.deviation)
    assert seen == [float(x.std())] * 2


@pytest.mark.parametrize("method", ["ssc", "set-effects"])
def test_resampled_fits_by_workers_are_those_of_one_process(tmp_path, ray_engine, method):
    top = tmp_path / "rows"
    top.mkdir()
    for j, name in enumerate(PRIORS.set_ids):  # a set in each file
        table = table_of(j)[0].assign(region=name)
        table.to_parquet(top / f"{name}.parquet", index=False)
    found = {}
    for name, engine in (("here", LocalEngine()), ("there", ray_engine)):
        source = TableSource.open(top, "region", PRIORS, engine=engine, held_out=0)
        with source.rows(tmp_path / name, {}) as (rows, _):
            rows.target = 0.5
            learner = fit_learner(
                rows.all(model_row("linear"), METHODS[method]), Setup("linear", method, l2=1e-3)
            )
            alone = with_resamples(
                rows.in_memory(model_row("linear")), learner, thinned=False, seed=0
            )
            found[name] = with_resamples(
                rows.in_memory(model_row("linear")),
                learner,
                thinned=False,
                seed=0,
                spread=rows.spread,
            )
    here, there = (found[name].fit.resampled for name in ("here", "there"))
    assert len(here) == len(there) > 10
    for ours, theirs, one in zip(here, there, alone.fit.resampled, strict=True):
        for mine, its, once in zip(ours, theirs, one, strict=True):
            np.testing.assert_array_equal(mine, its)
            np.testing.assert_array_equal(mine, once)


@pytest.mark.parametrize("model", ["linear", "boosting"])
def test_rows_held_out_to_judge_by_are_scored_by_workers(folder, tmp_path, ray_engine, model):
    row, found = model_row(model), {}
    for name, engine in (("here", LocalEngine()), ("there", ray_engine)):
        source = TableSource.open(folder, "region", PRIORS, engine=engine, held_out=0.2, seed=3)
        with source.rows(tmp_path / name, {}) as (rows, judged):
            assert list(judged.x.columns) == []  # no feature of theirs came here
            if name == "here":
                rows.target = 0.5
                learner = fit_learner(rows.in_memory(row), Setup(model, "ssc", l2=1e-3))
            found[name], sets = judged.score(learner), judged.sets
            view = getattr(rows.encoder, row.view)
    frames = []
    for k in range(FILES):
        frame, _ = table_of(k)
        frames.append(frame[np.random.default_rng([3, 8, k]).random(len(frame)) < 0.2])
    held = pd.concat(frames, ignore_index=True)
    assert sets.tolist() == held["region"].tolist()
    np.testing.assert_array_equal(found["here"], found["there"])
    np.testing.assert_allclose(found["here"], learner.logits(view(held)), rtol=1e-12)
