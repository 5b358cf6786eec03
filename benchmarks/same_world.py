"""The test error of `UnmixClassifier` on drawn sets of a benchmark beside that of `unmix train`.

    python benchmarks/same_world.py [--methods ssc ssc-vat] [--seed 0] [--epochs 15]

The same ten sets of MNIST, the same seed and length; labels only count the errors at the end. The
classifier gets the rows, the sets and their shares, and nothing else. Appends a line for each
method to results/same_world.jsonl.
"""

import argparse
import json

from measuring import RESULTS

from unmix import UnmixClassifier
from unmix.data.benchmarks import load_benchmark
from unmix.learn.methods import METHODS
from unmix.learn.network_models import HELD_OUT_IMAGES
from unmix.studies.cell import Cell, draw_cell, run_cell


def both(dataset, method, seed, epochs):
    """Return the test errors of the study's run and of the classifier, in percent."""
    benchmark = load_benchmark(dataset)
    length = epochs or METHODS[method].longer or 15
    cell = Cell(dataset, method, seed=seed, epochs=length, held_out=HELD_OUT_IMAGES)
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
        "dataset": dataset,
        "method": method,
        "seed": seed,
        "epochs": length,
        "study": round(100 * studied["test_error"], 2),
        "classifier": round(100 * found, 2),
    }


def main():
    """Run the methods asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--methods", nargs="+", default=["ssc", "ssc-vat"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int)
    options = parser.parse_args()
    for method in options.methods:
        line = both(options.dataset, method, options.seed, options.epochs)
        print(json.dumps(line), flush=True)
        with (RESULTS / "same_world.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
