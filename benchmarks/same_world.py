"""The test error of `UnmixClassifier` on drawn sets of a benchmark beside that of `unmix train`.

    python benchmarks/same_world.py [--methods ssc,ssc-vat] [--seed 0] [--scale 0.3 --epochs 6]

The same ten sets, seed and length; labels only count the errors at the end. The classifier gets the
rows, the sets and their shares, and nothing else; it keeps the epoch that held-out rows choose, of
which the study tells the error beside that of the last. Runs are kept in results/same_world.jsonl.
"""

from measuring import open_runs

from unmix import UnmixClassifier
from unmix.data.benchmark_files import load_benchmark
from unmix.learn.methods import METHODS
from unmix.learn.network_models import HELD_OUT_IMAGES
from unmix.learn.recipes import RECIPES
from unmix.studies.cell import Cell, draw_cell, run_cell


def both(dataset, method, seed, scale, epochs):
    """Return the test errors of the study's run and of the classifier, in percent."""
    benchmark = load_benchmark(dataset)
    options = {"seed": seed, "scale": scale, "epochs": epochs, "held_out": HELD_OUT_IMAGES}
    cell = Cell(dataset, method, **options)
    studied = run_cell(cell)
    sets = draw_cell(cell, benchmark)
    clf = UnmixClassifier(
        dict(enumerate(sets.set_priors.tolist())),
        target_prior=benchmark.target_prior,
        model="mlp",
        method=method,
        epochs=epochs,
        random_state=seed,
        hide_sets=False,
    ).fit(sets.x, sets.set_index)
    found = float((clf.predict(benchmark.x_test) != benchmark.y_test).mean())
    return {
        "study": round(100 * studied["test_error"], 2),
        "study, epoch chosen": round(100 * studied["selected_test_error"], 2),
        "classifier": round(100 * found, 2),
    }


def main():
    """Run the methods asked for."""
    names = {"dataset": "mnist", "methods": "ssc,ssc-vat", "seed": 0, "scale": 1.0, "epochs": 0}
    options, runs = open_runs("same_world", **names)
    for method in options.methods.split(","):
        epochs = options.epochs or METHODS[method].longer or RECIPES["fast"].epochs
        key = {"dataset": options.dataset, "method": method, "seed": options.seed}
        runs.once(both, **key, scale=options.scale, epochs=epochs)


if __name__ == "__main__":
    main()
