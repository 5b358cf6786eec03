"""The page about cost: made from the benchmarks' output, all of it or the part that is there."""

import json
import re

import pytest

import build_growth

MACHINE = {"processor": "Abacus", "cores": 2, "torch": "9.9"}


def cost_of_step(rate):
    """What step_cost.py says of a place where training runs at this rate."""
    versions = ("plain", "now", "shifted")
    parts = dict.fromkeys(build_growth.PART_COLORS, 10.0) | {"matrix products": 30.0}
    return {
        "limit": 80.0,
        "rate": dict.fromkeys(versions, rate),
        "milliseconds_per_step": dict.fromkeys(versions, 2.5),
        "percent": dict.fromkeys(versions, 100 * rate / 80),
        "breakdown_percent": dict.fromkeys(versions, parts),
    }


def made_up():
    """Results of benchmarks that were never run, with numbers that are easy to check."""
    sizes = {"rows": (1000, 8000), "sets": (10, 100), "columns": (5, 20), "epochs": (2, 4)}
    rates = {"one_thread": 20, "two_threads": 30, "two_processes": 38}
    step = {place: cost_of_step(rate) for place, rate in rates.items()}
    resnet = {"two_threads": {**cost_of_step(40), "breakdown_percent": {}}}
    resnet["two_threads"]["percent"] = {"shifted": 50.0}
    epoch = {"epoch": 3, "seconds": 4.0, "held_out_loss": 2.2, "test_error": 2.5}
    reached = {"seconds": 4.0, "epoch": 3, "chosen": epoch}
    line = {"paper_error": 3.05, "paper_seconds": 200.0, "marks": {"training_starts": 1.5}}
    peaks = {"fit": {"peak_mb": 400.0}, "predict": {"peak_mb": 200.0}}
    results = {
        "folder_of_files": {
            "rows": 8000,
            "folder": peaks,
            "file": peaks,
            "largest difference of a score": 0.0,
        },
        "growth": {
            "base": {"rows": 1000, "sets": 10, "columns": 20, "epochs": 2},
            "threads": 2,
            "lines": [
                {
                    "what": what,
                    "model": model,
                    "size": size,
                    "seconds": 0.001 * size,
                    "peak_mb": 300 + 0.01 * size,
                    "base_mb": 300.0,
                }
                for what, both in sizes.items()
                for model in build_growth.MODELS
                for size in both
                if what != "epochs" or model == "mlp"
            ],
        },
        "step_cost": {"mlp": step, "resnet32": resnet},
        "against_literal": {
            "rows": 5000,
            "threads": 2,
            "lines": [
                {"how": how, "num_sets": m, "seconds_per_epoch": slow * m, "peak_mb": 100.0 * slow}
                for how, slow in (("ours", 1), ("literal", 3))
                for m in (10, 1000)
            ],
            "flat": {"seconds_per_epoch": 1.25, "peak_mb": 1.0},
        },
        "bigger_than_memory": {
            "rows": 6_000_000,
            "columns": 20,
            "gigabytes": 1.25,
            "fits": [{"model": "linear", "cpu_seconds": 120.0, "peak_mb": 1234.0, "auc": 0.75}],
            "rates": {"scan": 2e6, "linear": 5e6, "mlp": 1.2e6},
            "compare": [
                {
                    "model": "mlp",
                    "rows": 9000,
                    "sorted": True,
                    "streamed": [0.75, 0.76],
                    "in_memory": [0.74, 0.75],
                }
            ],
        },
        "time_to_error": {
            "epochs": 4,
            "rate": 0.003,
            "shift": 0,
            "seed": 0,
            "threads": 2,
            "lines": [
                {"dataset": "mnist", **line, "reached": reached, "ratio": 50.0},
                {"dataset": "kmnist", **line},
            ],
        },
    }
    results["many_sets"] = {"rows": 30, "columns": 5, "model": "linear"} | {
        "lines": [{"command": "fit", "num_sets": 1_000_000, "cpu_seconds": 99.0, "peak_mb": 3456.0}]
    }
    nets = {"small": (0.8, 1.0), "wider": (0.81, 2.0), "paper": (0.82, 30.0)}
    line = {"surface": "waves", "best": 0.9}
    line |= {name: dict(zip(("auc", "seconds"), pair, strict=True)) for name, pair in nets.items()}
    results["small_network"] = {"rows": 9, "epochs": 1, "lines": [line]}
    results = {name: {"machine": MACHINE, **found} for name, found in results.items()}
    results["beside_supervised"] = [
        {"part": "linear", "rows": 7000, "columns": 20}
        | {"ours": 6.0, "ours_alone": 3.0, "plain": 2.0, "with_labels": 4.0},
        {"part": "commands", "rows": 70, "new_rows": 9000}
        | {"fit": 3.0, "import": 2.0, "predict": 5.0, "bare": 4.0},
        {"part": "streamed", "rows": 90, "columns": 20, "fit": 8.0, "scan": 2.0},
    ]
    shape = {"model": "linear", "rows": 900, "columns": 20, "over_table": 0.5}
    results["slopes"] = [
        {"what": "rows", "threads": 1} | shape | {"rows": 100, "cpu_seconds": 2.0},
        {"what": "rows", "threads": 1} | shape | {"rows": 10_000, "cpu_seconds": 20.0},
        {"what": "both", "threads": 1} | shape | {"cpu_seconds": 3.0, "main_seconds": 3.0},
        {"what": "both", "threads": 2} | shape | {"cpu_seconds": 3.0, "main_seconds": 1.0},
    ]
    table = {"model": "linear", "shift": "label", "sets": 20, "method": "ssc", "used": "linear"}
    results["same_choices"] = [
        table | {"version": "before", "seed": 0, "l2": 0.1, "brier": 0.2},
        table | {"version": "now", "seed": 0, "l2": 0.1, "brier": 0.2003},
        table | {"version": "before", "seed": 1, "l2": 0.1, "brier": 0.2},
        table | {"version": "now", "seed": 1, "l2": 1.0, "brier": 0.24},
        table | {"version": "now", "seed": 2, "l2": 1.0, "brier": 0.9},  # not yet run before
    ]
    results["against_version"] = [
        {"part": "streamed", "what": "a stream", "old": 4.0, "new": 3.0, "ratio": 0.75},
        {"part": "fit", "what": "a fit", "old": 2.0, "new": 0.5, "ratio": 0.25},
    ]
    return results | {"tried": [{"what": "a | b", "gain": "1 %", "why": "too little"}]}


def test_the_page_without_any_measurement_has_all_its_sections():
    page, images = build_growth.render_growth_page({})
    assert images == {}
    assert page.count("Not measured yet.") == len(re.findall(r"^## ", page, re.MULTILINE)) == 15


def test_the_page_shows_what_was_measured():
    page, images = build_growth.render_growth_page(made_up())
    assert "2 cores (Abacus), torch 9.9" in page
    assert "| rows | mlp | 1,000 to 8,000 | 8 | 1.00 to 8.00 | 8.0 | 310 to 380 |" in page
    assert "| linear | 2 | 1 | 0.04 |" in page
    assert "| mlp | one process, two threads | unmix | 2.50 | 30.0 | 80.0 (sgemm) | 38 % |" in page
    assert "| matrix products | 30 % | 30 % |" in page
    assert "| fit | 1,000,000 | 99 | 3,456 |" in page
    assert "| 1,000 | 1000.00 | 3000.00 | 3.0 | 100 | 300 |" in page
    assert "| MNIST | 3.05 | 2.50 | 3 | 1.5 | 4.0 | 200 | 50 |" in page
    assert "| Kuzushiji-MNIST | 3.05 |  |  | 1.5 | not reached | 200 |  |" in page
    sides = "linear, no set held out | the same loss in plain scipy"
    assert f"| {sides} | 7,000 x 20 | 3.00 | 2.00 | 1.50 | 1.5 |" in page
    assert "| a bare read, product and write | 9,000 | 5.00 | 4.00 | 1.25 | 1.2 |" in page
    assert "a bare scan of the file | 90 x 20 | 8.00 | 2.00 | 4.00 | 4 |" in page
    assert "| rows | linear | 100 to 10,000 | 2.00 to 20.00 | 0.50 | 1.05 |" in page
    assert "| linear | 0.50 x | 1.5 x | 3.00 | 3.00 | 1.00 | 1.50 | 1.6 |" in page
    assert "| a fit | 2.00 | 0.50 | 0.25 |" in page
    assert "| a \\| b | 1 % | too little |" in page
    assert "| linear | 2 | 50 | 1,234 | 0.750 |" in page
    assert "5.0 million, 2.5 times as many" in page
    assert "1.2 million, 0.60 times as many" in page
    assert "| waves | 0.9000 | 0.8000 | 0.8100 | 0.8200 | 1 | 2 | 30 |" in page
    assert "| mlp | 9,000 | sorted by set | 0.7500 0.7600 | 0.7400 0.7500 |" in page
    assert "1.90 times the work of one" in page  # 38 / 20
    assert "1.4 times as fast" in page  # 1 / (1 - 0.3)
    assert "mlp 10.0 kB, 2 million rows" in page  # 16 GB less 310 MB, at 10 kB a row
    assert "Not measured yet." not in page
    assert {*re.findall(r"\]\(images/(.*?)\)", page)} == images.keys()
    assert build_growth.render_growth_page(made_up()) == (page, images)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("bigger_than_memory", 14),
        ("many_sets", 14),
        ("growth", 13),
        ("step_cost", 12),
        ("against_literal", 13),
        ("time_to_error", 14),
        ("tried", 14),
        ("small_network", 14),
        ("folder_of_files", 14),
        ("beside_supervised", 14),
        ("against_version", 14),
        ("slopes", 14),
        ("same_choices", 14),
    ],
)
def test_one_benchmark_alone_fills_its_sections(name, missing):
    page, _ = build_growth.render_growth_page({name: made_up()[name]})
    assert page.count("Not measured yet.") == missing


def words_of(drawing):
    return re.findall(r"<text[^>]*>([^<]*)", drawing)


@pytest.mark.skipif(not build_growth.PAGE.exists(), reason="nothing has been measured yet")
def test_the_committed_page_is_what_the_committed_results_give():
    page, images = build_growth.render_growth_page(build_growth.read_results(build_growth.RESULTS))
    rebuild = "run python docs/build_growth.py"
    assert page == build_growth.PAGE.read_text(encoding="utf-8"), rebuild
    for name, drawing in images.items():
        # Not the bytes: another version of matplotlib draws the same words elsewhere.
        committed = (build_growth.IMAGES / name).read_text(encoding="utf-8")
        assert words_of(committed) == words_of(drawing), f"{name}: {rebuild}"


def test_the_readme_quotes_the_ratios():
    readme = build_growth.README.read_text(encoding="utf-8")
    results = build_growth.read_results(build_growth.RESULTS)
    assert build_growth.with_ratios(readme, results) == readme, "run python docs/build_growth.py"
    page = build_growth.with_ratios(
        "a\n<!-- ratios -->\nstale\n<!-- end of ratios -->\nb", made_up()
    )
    assert "times sooner than its recipe | MNIST 50" in page
    assert "| an epoch with 1,000 sets, times faster than one output per set | 3 |" in page
    assert "| the paper's MLP, one process, two threads, share of sgemm | 38 % (plain torch" in page
    assert "| ResNet-32, one process, two threads, share of its best convolution | 50 % |" in page
    assert "| a streamed fit of 1.2 GB, peak memory | linear 1,234 MB |" in page
    speeds = "linear 2.5, mlp 0.6"
    assert f"| a pass over shuffled rows, times as fast as a scan | {speeds} |" in page
    assert page.endswith("<!-- end of ratios -->\nb")
    assert "stale" not in page


def test_what_was_tried_is_complete():
    path = build_growth.RESULTS / "tried.json"
    for entry in json.loads(path.read_text(encoding="utf-8")) if path.exists() else []:
        assert entry.keys() == {"what", "gain", "why"}
        assert all(entry.values())
