"""The study and a user's own rows are one world: the same sets and seed give the same network."""

import numpy as np
import pytest

from unmix import UnmixClassifier, register_dataset
from unmix.data.benchmark_files import load_benchmark
from unmix.data.benchmarks import BENCHMARKS
from unmix.learn import training, training_rows
from unmix.learn.models import model_row
from unmix.learn.network_models import HELD_OUT_IMAGES
from unmix.studies import cell as studies
from unmix.studies.cell import Cell, draw_cell, run_cell

ROWS = 17_500  # so many that batches are those of the recipe


@pytest.fixture
def squares():
    """Small images, bright on the right in one class, in sets that a study has drawn."""
    rng = np.random.default_rng(0)
    y = rng.random(ROWS + 500) < 0.5
    x = rng.integers(0, 120, size=(len(y), 6, 6), dtype=np.uint8)
    x[y, :, 3:] += 60
    register_dataset("squares", x[:ROWS], y[:ROWS], x[ROWS:], y[ROWS:], target_prior=0.5)
    yield load_benchmark("squares")
    del BENCHMARKS["squares"]


@pytest.mark.parametrize("method", ["ssc", "ssc-vat", "ssc-consistency"])
def test_the_classifier_trains_the_very_network_of_the_study(method, squares, monkeypatch):
    cell = Cell("squares", method, seed=5, epochs=3, held_out=HELD_OUT_IMAGES, prior_error=0)
    logits = []

    def counted(benchmark, model):
        logits.append(training.logits_of(model, benchmark.x_test).numpy())
        return {"test_error": 0.0}

    monkeypatch.setattr(studies, "_errors", counted)
    # The study knows which image of the collection each row is; the classifier sees equal images.
    sets = draw_cell(cell, squares)
    assert len(np.unique(sets.source)) < len(sets)
    run_cell(cell)
    clf = UnmixClassifier(
        dict(enumerate(sets.set_priors.tolist())),
        target_prior=squares.target_prior,
        model="mlp",
        method=method,
        epochs=3,
        shift=0,
        random_state=5,
    ).fit(sets.x, sets.set_index)
    # The last network of which errors were counted is the one at the chosen epoch.
    np.testing.assert_array_equal(clf.decision_function(squares.x_test), logits[-1])
    assert (clf.predict(squares.x_test) == squares.y_test).mean() > 0.6


def test_an_image_that_lies_in_two_sets_is_held_out_of_both():
    images = np.random.default_rng(0).integers(0, 255, size=(200, 3, 3), dtype=np.uint8)
    twice = np.concatenate([images, images[:150]])
    source = training_rows.same_images(twice)
    np.testing.assert_array_equal(source, [*range(200), *range(150)])
    assert training_rows.same_images(images) is None
    clf = UnmixClassifier({"a": 0.3, "b": 0.7}, model="mlp")
    rows, _ = clf._rows(twice, np.repeat(["a", "b"], [200, 150]), seed=0)
    rows.target = np.array([0.5, 0.5])
    sets = rows.in_memory(model_row("mlp"))
    kept, out = sets.hold_out(0.3, np.random.default_rng(0))
    assert len(out) > 60
    assert not {row.tobytes() for row in kept.x} & {row.tobytes() for row in out.x}
