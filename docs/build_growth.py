"""Write docs/growth.md and its pictures from benchmarks/results, the output of the benchmarks.

    python docs/build_growth.py

No number on that page is typed by hand.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from readme_sections import with_section
from unmix.files import atomic_write_text
from unmix.report.plot_style import BLUE, GREY, ORANGE, STYLE
from unmix.report.study_style import style_panel
from unmix.report.study_tables import PAPER_EPOCHS, dataset_title, markdown_table
from unmix.report.svg import figure_to_svg, standalone_svg

DOCS = Path(__file__).resolve().parent
RESULTS, PAGE, IMAGES = DOCS.parent / "benchmarks/results", DOCS / "growth.md", DOCS / "images"
README = DOCS.parent / "README.md"
NOT_YET = "Not measured yet.\n"
NAMES = (
    "growth",
    "step_cost",
    "against_literal",
    "bigger_than_memory",
    "folder_of_files",
    "small_network",
    "many_sets",
    "time_to_error",
    "tried",
)
RUN_BY_RUN = ("beside_supervised", "slopes", "against_version", "same_choices")

MODELS = {"linear": GREY, "mlp": BLUE, "boosting": ORANGE}
MARKERS = {"linear": "s", "mlp": "o", "boosting": "^"}
PLACES = {
    "one_thread": "one process, one thread",
    "two_threads": "one process, two threads",
    "two_sleepless_threads": "one process, two busy threads",
    "two_processes": "two processes, one thread each",
}
VERSIONS = {
    "plain": "plain torch",
    "now": "unmix",
    "shifted": "unmix, images shifted",
    # Of runs made when layers were padded.
    "padded": "unmix, padded",
    "padded_shifted": "unmix, padded, images shifted",
}
PART_COLORS = {
    "matrix products": BLUE,
    "batch norm": "#c79a1e",
    "dropout": ORANGE,
    "optimizer": "#1f9e89",
    "weight average": "#9a5fc4",
    "gathering rows": "#c9485b",
    "loss": "#7d8c2e",
    "rest": GREY,
}
# Part of beside_supervised -> ours, what it is compared with, the ratio aimed at.
PAIRS = {
    "linear": (
        ("ours_alone", "plain", 1.5),
        ("ours", "plain", 1.5),
        ("ours", "with_labels", 3.0),
    ),
    "boosting": (("ours", "with_labels", 1.1),),
    "commands": (("fit", "import", 1.5), ("predict", "bare", 1.2)),
    "streamed": (("fit", "scan", 4.0),),
}
WIDE, WIDE_GOAL = 1_000, 5.0  # from so many columns on, beside labels
SLOPE_GOAL, SPEED_UP_GOAL = 1.05, 1.6
# Models whose main thread is one of the two; they also count while they wait for each other.
MAIN_WORKS = {"boosting"}
MEMORY_GOALS = {"linear": 1.5, "boosting": 2.0}
SIDES = {
    ("linear", "ours_alone"): "linear, no set held out",
    ("linear", "ours"): "linear, all included",
    ("linear", "plain"): "the same loss in plain scipy",
    ("linear", "with_labels"): "LogisticRegression with labels",
    ("boosting", "ours"): "boosting",
    ("boosting", "with_labels"): "LightGBM with labels",
    ("commands", "fit"): "`unmix fit`, linear, whole process",
    ("commands", "import"): "`import sklearn.linear_model`",
    ("commands", "predict"): "`unmix predict`, linear, whole process",
    ("commands", "bare"): "a bare read, product and write",
    ("streamed", "fit"): "`unmix fit`, linear, a file read in pieces, whole process",
    ("streamed", "scan"): "a bare scan of the file",
}
# Of against_version, in the order of the page.
VERSION_PARTS = ("fit", "growth", "step_cost", "bigger_than_memory", "streamed")
# What the page speaks of when it says how many rows fit.
GIGABYTES = 16

Results = Mapping[str, Any]
Pictures = list[tuple[str, str, Figure]]
"""The name of a picture, what it shows, and the picture."""
Section = Callable[[Any], tuple[str, Pictures]]


def main() -> int:
    """Write the page and its pictures."""
    page, images = render_growth_page(read_results(RESULTS))
    for name, drawing in images.items():
        atomic_write_text(IMAGES / name, drawing)
    atomic_write_text(PAGE, page)
    readme = README.read_text(encoding="utf-8")
    atomic_write_text(README, with_ratios(readme, read_results(RESULTS)))
    return 0


def read_results(folder: Path) -> Results:
    """Return what each benchmark wrote, for those that have been run."""
    paths = {name: folder / f"{name}.json" for name in NAMES}
    found = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if path.exists()
    }
    for name in RUN_BY_RUN:
        path = folder / f"{name}.jsonl"
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            found[name] = [json.loads(line) for line in lines]
    return found


def render_growth_page(results: Results) -> tuple[str, dict[str, str]]:
    """Return the page as Markdown, and its pictures by the names of their files."""
    sections: list[tuple[str, str, Section]] = [
        ("Rows, sets, columns, epochs", "growth", _growth),
        ("Beside the same models with labels", "beside_supervised", _beside_supervised),
        ("Slopes, memory, threads", "slopes", _slopes),
        ("The same choices", "same_choices", _same_choices),
        ("Beside version 0.1", "against_version", _against_version),
        ("How close to the machine's limit", "step_cost", _limit),
        ("Where the time of a step goes", "step_cost", _breakdown),
        ("Compared with one output per set", "against_literal", _literal),
        ("More rows than memory", "bigger_than_memory", _streamed),
        ("A folder of files", "folder_of_files", _folder),
        ("The network for millions of rows", "small_network", _small_network),
        ("A million sets", "many_sets", _many_sets),
        ("Time to the paper's error", "time_to_error", _time_to_error),
        ("What was tried and dropped", "tried", _tried),
    ]
    parts = [
        "# What it costs\n",
        "<!-- Written by docs/build_growth.py from benchmarks/results; do not edit. -->\n",
        f"Time and memory as tables grow, and what they are spent on. {_machine(results)}Seconds "
        "hold for that machine; ratios within a table transfer better to others. Each section "
        "names its benchmark, so that you can run it on your machine.\n",
    ]
    images: dict[str, str] = {}
    for title, name, section in sections:
        parts.append(f"## {title}\n")
        if name not in results:
            parts.append(NOT_YET)
            continue
        text, pictures = section(results[name])
        parts.append(text)
        for picture, words, figure in pictures:
            file = f"growth-{picture}.svg"
            images[file] = standalone_svg(figure_to_svg(figure, label=words, prefix=f"{picture}-"))
            parts.append(f"![{words}](images/{file})\n")
    parts += ["## On a bigger machine\n", _bigger(results)]
    return "\n".join(parts), images


def with_ratios(readme: str, results: Results) -> str:
    """Return the README with the ratios that stand for the whole page."""
    return with_section(readme, "ratios", _ratios(results))


def _ratios(results: Results) -> str:
    """Return one line for each thing that has been measured."""
    lines = []
    if "time_to_error" in results:
        reached = [line for line in results["time_to_error"]["lines"] if line.get("reached")]
        times = ", ".join(f"{dataset_title(x['dataset'])} {x['ratio']:.0f}" for x in reached)
        lines.append(
            [
                "from a cold start to the paper's error (a schedule of "
                f"{results['time_to_error']['epochs']} epochs), times sooner than its recipe",
                times,
            ]
        )
    if "against_literal" in results:
        found = results["against_literal"]
        most = max(line["num_sets"] for line in found["lines"])
        seconds = {
            x["how"]: x["seconds_per_epoch"] for x in found["lines"] if x["num_sets"] == most
        }
        ratio, flat = seconds["literal"] / seconds["ours"], found["flat"]["seconds_per_epoch"]
        lines += [
            [f"an epoch with {most:,} sets, times faster than one output per set", f"{ratio:.0f}"],
            ["an epoch over all numbers of sets, slowest to fastest", f"{flat:.2f}"],
        ]
    if "bigger_than_memory" in results:
        found = results["bigger_than_memory"]
        peaks = ", ".join(f"{fit['model']} {fit['peak_mb']:,.0f} MB" for fit in found["fits"])
        lines.append([f"a streamed fit of {found['gigabytes']:.1f} GB, peak memory", peaks])
        if "rates" in found:
            rates = dict(found["rates"])
            scan = rates.pop("scan")
            speeds = ", ".join(f"{model} {rate / scan:.1f}" for model, rate in rates.items())
            lines.append(["a pass over shuffled rows, times as fast as a scan", speeds])
    for model, title, limit in (
        ("mlp", "the paper's MLP", "sgemm"),
        ("resnet32", "ResNet-32", "its best convolution"),
    ):
        for place, one in results.get("step_cost", {}).get(model, {}).items():
            if place in ("two_threads", "two_processes"):
                share = one["percent"].get("now") or one["percent"]["shifted"]
                plain = one["percent"].get("plain")
                beside = "" if plain is None else f" (plain torch {plain:.0f} %)"
                lines.append(
                    [f"{title}, {PLACES[place]}, share of {limit}", f"{share:.0f} %{beside}"]
                )
    return markdown_table(("what", "measured"), lines, words=1) if lines else NOT_YET


def _machine(results: Results) -> str:
    """Say what was measured on."""
    for found in results.values():
        if isinstance(found, dict):
            machine = found["machine"]
            return (
                f"Measured on a machine with {machine['cores']} cores ({machine['processor']}), "
                f"torch {machine['torch']}. "
            )
    return ""


def _growth(found: Results) -> tuple[str, Pictures]:
    """Return what a fit costs as its table grows."""
    base = found["base"]
    lines = []
    for what in dict.fromkeys(line["what"] for line in found["lines"]):
        for model in MODELS:
            curve = _curve(found, what, model)
            if curve:
                first, last = curve[0], curve[-1]
                lines.append(
                    [
                        what,
                        model,
                        f"{first['size']:,} to {last['size']:,}",
                        f"{last['size'] / first['size']:g}",
                        f"{first['seconds']:.2f} to {last['seconds']:.2f}",
                        f"{last['seconds'] / first['seconds']:.1f}",
                        f"{first['peak_mb']:.0f} to {last['peak_mb']:.0f}",
                    ]
                )
    heads = ("what grows", "model", "size", "grows by", "seconds", "grow by", "peak MB")
    kept = ", ".join(f"{base[key]:,} {key}" for key in base)
    libraries = min(line["base_mb"] for line in found["lines"])
    text = (
        "`UnmixClassifier.fit`, method ssc, tables of random numbers; one thing grows, the others "
        f"stay at {kept} (`benchmarks/growth.py`). Epochs are those of the network. Of the memory, "
        f"{libraries:.0f} MB are Python, its libraries and the smallest table.\n\n"
        + markdown_table(heads, lines, words=2)
    )
    return text, [
        ("seconds", "Seconds of a fit as each grows", _curves(found, "seconds", "seconds")),
        ("memory", "Peak memory of a fit as each grows", _curves(found, "peak_mb", "peak MB")),
    ]


def _curve(found: Results, what: str, model: str) -> list[dict[str, Any]]:
    """Return the lines of one model for one thing that grows."""
    return [x for x in found["lines"] if (x["what"], x["model"]) == (what, model)]


def _curves(found: Results, key: str, label: str) -> Figure:
    """Draw one panel per thing that grows, one line per model."""
    grown = list(dict.fromkeys(line["what"] for line in found["lines"]))
    with rc_context(STYLE):
        figure = Figure(figsize=(8.2, 2.7), layout="constrained")
        axes = figure.subplots(1, len(grown), sharey=True, squeeze=False)[0]
        for ax, what in zip(axes, grown, strict=True):
            for model, color in MODELS.items():
                curve = _curve(found, what, model)
                if curve:
                    ax.plot(
                        [line["size"] for line in curve],
                        [line[key] for line in curve],
                        color=color,
                        marker=MARKERS[model],
                        markersize=4,
                        label=model,
                    )
            style_panel(ax, what, grid="y")
            _sizes_across(ax, (x["size"] for x in found["lines"] if x["what"] == what))
            (_from_zero if key == "peak_mb" else _logarithmic)(ax)
        axes[0].set_ylabel(label)
        keys = axes[0].get_legend_handles_labels()
        figure.legend(*keys, loc="outside upper left", ncols=3, frameon=False, fontsize=8)
        return figure


def _limit(found: Results) -> tuple[str, Pictures]:
    """Return rates of training as shares of what the machine can do."""
    lines = []
    for model, limit in (("mlp", "sgemm"), ("resnet32", "convolution")):
        for place, one in found[model].items():
            lines += [
                [
                    model,
                    PLACES[place],
                    VERSIONS[version],
                    f"{one['milliseconds_per_step'][version]:.2f}",
                    f"{one['rate'][version]:.1f}",
                    f"{one['limit']:.1f} ({limit})",
                    f"{percent:.0f} %",
                ]
                for version, percent in one["percent"].items()
            ]
    heads = ("model", "run as", "loop", "ms a step", "Gflop/s", "limit", "share")
    return (
        "Training in batches of 256, compared with the fastest operation of its kind: for "
        "the paper's MLP a matrix product (sgemm, the best of the network's own shapes and 1024 x "
        "1024), for ResNet-32 the best of its large convolutions alone, forward and backward. "
        "Operations are counted by formula: forward, gradients of weights, gradients of inputs but "
        "the first. Plain torch: the same step in ordinary eager torch. unmix: both passes "
        "and the gradient of the loss written out instead of autograd, one flat tensor for Adam "
        "and the average, dropout from 16 random bits. Padded: layers of 304 units, four of which "
        "stay 0, as in an earlier version. Both sides are the best of tenths of a "
        "second. Images shifted: as recipe `fast` does where the benchmark allows it. Busy "
        "threads: OMP_WAIT_POLICY=active, for a machine that runs nothing else "
        "(`benchmarks/step_cost.py`, all in one run).\n\n" + markdown_table(heads, lines, words=3)
    ), []


def _breakdown(found: Results) -> tuple[str, Pictures]:
    """Return the parts of a step, in plain torch and in unmix."""
    places = {p: one for p, one in found["mlp"].items() if one["breakdown_percent"]}
    columns = _profiled(places)
    heads = [f"{VERSIONS[v]} ({PLACES[p].split(', ')[1]})" for p, v in columns]
    lines = [
        [part, *(f"{places[p]['breakdown_percent'][v][part]:.0f} %" for p, v in columns)]
        for part in PART_COLORS
    ]
    steps = [f"{places[p]['milliseconds_per_step'][v]:.2f} ms" for p, v in columns]
    text = (
        "The paper's MLP, by torch's profiler, which makes parts of many small operations look "
        "somewhat larger than they are; the last line is the step without the profiler. Rest: "
        "ReLU, Python, and what lies between the operations (`benchmarks/step_cost.py`).\n\n"
        + markdown_table(("part", *heads), [*lines, ["a step", *steps]], words=1)
    )
    return text, [
        ("step", "Where the time of a step goes, in plain torch and in unmix", _bars(places))
    ]


def _profiled(places: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the places and versions whose parts are known."""
    return [(p, version) for p, one in places.items() for version in one["breakdown_percent"]]


def _bars(places: Mapping[str, Any]) -> Figure:
    """Draw the milliseconds of a step as bars of its parts."""
    rows = _profiled(places)[::-1]
    with rc_context(STYLE):
        figure = Figure(figsize=(8.2, 0.9 + 0.36 * len(rows)), layout="constrained")
        ax = figure.add_subplot()
        for row, (place, version) in enumerate(rows):
            start, step = 0.0, places[place]["milliseconds_per_step"][version]
            for part, color in PART_COLORS.items():
                width = step * places[place]["breakdown_percent"][version][part] / 100
                label = part if row == 0 else None
                ax.barh(row, width, left=start, height=0.7, color=color, label=label)
                start += width
        names = [f"{PLACES[p].split(', ')[1]}, {VERSIONS[v]}" for p, v in rows]
        ax.set_yticks(range(len(rows)), names)
        style_panel(ax, "", grid="x")
        ax.set_xlabel("milliseconds a step")
        figure.legend(loc="outside right center", frameon=False, fontsize=8)
        return figure


def _literal(found: Results) -> tuple[str, Pictures]:
    """Return time and memory, compared with a layer of m outputs."""
    by = {(line["how"], line["num_sets"]): line for line in found["lines"]}
    sizes = sorted({num_sets for _, num_sets in by})
    lines = [
        [
            f"{m:,}",
            *(f"{by[how, m]['seconds_per_epoch']:.2f}" for how in ("ours", "literal")),
            f"{by['literal', m]['seconds_per_epoch'] / by['ours', m]['seconds_per_epoch']:.1f}",
            *(f"{by[how, m]['peak_mb']:.0f}" for how in ("ours", "literal")),
        ]
        for m in sizes
    ]
    heads = ("sets", "unmix, s an epoch", "m outputs, s an epoch", "ratio")
    flat = found["flat"]
    text = (
        f"The paper's MLP on {found['rows']:,} images, {found['threads']} threads. m outputs: the "
        "posterior of every set is computed and one is read, as the paper writes it, in a plain "
        "loop. unmix: its closed form, in its own loop (`benchmarks/against_literal.py`).\n\n"
        + markdown_table((*heads, "unmix, peak MB", "m outputs, peak MB"), lines, words=0)
        + f"\nOver all numbers of sets, the slowest epoch of unmix takes "
        f"{flat['seconds_per_epoch']:.2f} times as long as the fastest, and the largest peak is "
        f"{flat['peak_mb']:.2f} times the smallest.\n"
    )
    return text, [("sets", "Time and memory of an epoch against sets", _beside(by, sizes))]


def _beside(by: Mapping[tuple[str, int], Any], sizes: Sequence[int]) -> Figure:
    """Draw time and memory of both against the number of sets."""
    with rc_context(STYLE):
        figure = Figure(figsize=(6.4, 2.7), layout="constrained")
        for ax, key, label in zip(
            figure.subplots(1, 2),
            ("seconds_per_epoch", "peak_mb"),
            ("seconds an epoch", "peak MB"),
            strict=True,
        ):
            for how, name, color in (("ours", "unmix", BLUE), ("literal", "m outputs", ORANGE)):
                values = [by[how, m][key] for m in sizes]
                ax.plot(sizes, values, color=color, marker="o", markersize=4, label=name)
            style_panel(ax, label, grid="y")
            _sizes_across(ax, sizes)
            (_from_zero if key == "peak_mb" else _logarithmic)(ax)
            ax.set_xlabel("sets")
        keys = figure.axes[0].get_legend_handles_labels()
        figure.legend(*keys, loc="outside upper left", ncols=2, frameon=False, fontsize=8)
        return figure


def _streamed(found: Results) -> tuple[str, Pictures]:
    """Return fits of a table on disk, and streamed results beside those in memory."""
    fits = [
        [
            fit["model"],
            f"{fit['cpu_seconds'] / 60:.0f}",
            f"{found['rows'] / fit['cpu_seconds'] / 1e3:,.0f}",
            f"{fit['peak_mb']:,.0f}",
            f"{fit['auc']:.3f}",
        ]
        for fit in found["fits"]
    ]
    text = (
        f"`unmix fit` on a Parquet file of {found['rows']:,} rows and {found['columns']} columns, "
        f"{found['gigabytes']:.1f} GB, sorted by set, on one thread: shuffled on disk once, then "
        "read part by part (`benchmarks/bigger_than_memory.py`). Rows a second: all rows over the "
        "processor time of the whole fit, choosing and judging included.\n\n"
        + markdown_table(
            ("model", "processor minutes", "thousand rows a second", "peak MB", "AUC, no labels"),
            fits,
            words=1,
        )
    )
    if "rates" in found:
        scan, linear, mlp = (found["rates"][name] for name in ("scan", "linear", "mlp"))
        text += (
            f"\nA bare scan of such a file that turns its columns into tensors reads "
            f"{scan / 1e6:.1f} million rows a second. Over rows already shuffled a pass of the "
            f"linear fit reads {linear / 1e6:.1f} million, {linear / scan:.1f} times as many, and "
            f"an epoch of the network {mlp / 1e6:.1f} million, {mlp / scan:.2f} times as many (a "
            "smaller file, all on one thread, in turns).\n"
        )
    if "compare" in found:
        lines = [
            [
                line["model"],
                f"{line['rows']:,}",
                "sorted by set" if line["sorted"] else "in random order",
                *(" ".join(f"{a:.4f}" for a in line[key]) for key in ("streamed", "in_memory")),
            ]
            for line in found["compare"]
        ]
        text += (
            "\nThe same rows streamed and in memory (AUC, one number per seed):\n\n"
            + markdown_table(("model", "rows", "file", "streamed", "in memory"), lines, words=3)
        )
    return text, []


def _folder(found: dict[str, Any]) -> Section:
    """Compare a folder of Parquet files with one file of the same rows."""
    lines = [
        [name, *(f"{found[key][what]['peak_mb']:,.0f}" for what in ("fit", "predict"))]
        for name, key in (("40 files", "folder"), ("one file", "file"))
    ]
    most = found["largest difference of a score"]
    same = "the same scores" if most == 0 else f"scores that differ by {most:.1g} at most"
    text = (
        f"`unmix fit` and `predict` on {found['rows']:,} rows of 400 campaigns in 40 Parquet "
        "files, with counts of conversions to which noise of a known size was added, and on the "
        f"same rows in one file (`benchmarks/folder_of_files.py`): {same}.\n\n"
        + markdown_table(("rows in", "fit, peak MB", "predict, peak MB"), lines, words=1)
    )
    return text, []


def _small_network(found: Results) -> tuple[str, Pictures]:
    """Return what the network of large tables is worth beside larger ones."""
    names = ("small", "wider", "paper")
    lines = [
        [
            line["surface"],
            f"{line['best']:.4f}",
            *(f"{line[name]['auc']:.4f}" for name in names),
            *(f"{line[name]['seconds']:.0f}" for name in names),
        ]
        for line in found["lines"]
    ]
    heads = [f"{what}, {net}" for what in ("AUC", "s") for net in ("2 x 48", "2 x 96", "3 x 300")]
    return (
        "From two million rows on `mlp` has two layers, two units for each column but at least "
        "48 and at most 304, no dropout, and with method ssc batches of up to 8192 rows and a "
        "high rate; below it is the paper's, three layers of 300 units. Tables of "
        f"{found['rows']:,} rows and 20 columns, {found['epochs']} epochs, one thread; 3 x 300 "
        "is trained as on smaller tables. Plain: the table above. Waves: products and "
        "oscillations. Boxes: edges. Teacher: a random network. Best: the true probabilities. "
        "Rates and widths were chosen on other draws of these surfaces and by another teacher, "
        "with labels in view. `unmix fit --hidden 2x96` takes other layers "
        "(`benchmarks/small_network.py`).\n\n"
        + markdown_table(("table", "best AUC", *heads), lines, words=1)
    ), []


def _beside_supervised(runs: Sequence[Mapping[str, Any]]) -> tuple[str, Pictures]:
    """Return what a fit costs beside the same model with labels, and commands beside bare ones."""
    lines = []
    for run in runs:
        for ours, other, goal in PAIRS[run["part"]]:
            size = run.get("new_rows") if ours == "predict" else run["rows"]
            columns = f" x {run['columns']:,}" if "columns" in run else ""
            if other == "with_labels" and run.get("columns", 0) >= WIDE:
                goal = WIDE_GOAL
            lines.append(
                [
                    SIDES[run["part"], ours],
                    SIDES[run["part"], other],
                    f"{size:,}{columns}",
                    f"{run[ours]:.2f}",
                    f"{run[other]:.2f}",
                    f"{run[ours] / run[other]:.2f}",
                    f"{goal:g}",
                ]
            )
    names = ("what", "beside", "rows", "seconds", "seconds beside", "ratio", "goal")
    return (
        "Processor seconds on one thread, both sides in turns (`benchmarks/beside_supervised.py`); "
        "goals are what the cost of having no labels should come to.\n\n"
        + markdown_table(names, lines, words=3)
        + "\nWhere a linear fit takes longer, by profiles. Of 100,000 rows: a third is five fits "
        "without some of the sets and a fifth 20 fits to resampled sets, for intervals; these see "
        "20,000 rows whatever the table holds, so that small tables pay most. Of 1,000 columns: "
        "a quarter are the fits to resampled sets, half of which is the curvature that they "
        "share (20,000 rows x 1,000 columns squared), a quarter five fits without some of the "
        "sets, which see fewer rows than columns and take 50 steps each, a quarter looking at, "
        "encoding and summarising the columns, which the other side leaves to the user, and a "
        "tenth the fit. A file read in pieces is read twice, which is a quarter of its fit, and "
        "the rows to judge and to choose by are written and read once more, another quarter; "
        "judging and the report take as long for any file. Of a command on few rows a third is "
        "matplotlib, which draws the report.\n"
    ), []


def _slopes(runs: Sequence[Mapping[str, Any]]) -> tuple[str, Pictures]:
    """Return how fits grow, what they hold in memory and what two threads share."""
    grown: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    fits: dict[str, dict[int, Mapping[str, Any]]] = {}
    for run in runs:
        if run["what"] in run:
            grown.setdefault((run["what"], run["model"]), []).append(run)
        else:
            fits.setdefault(run["model"], {})[run["threads"]] = run
    lines = []
    for (what, model), both in grown.items():
        if len(both) < 2:
            continue
        small, large = both
        growth = log(large["cpu_seconds"] / small["cpu_seconds"]) / log(large[what] / small[what])
        lines.append(
            [
                what,
                model,
                f"{small[what]:,} to {large[what]:,}",
                f"{small['cpu_seconds']:.2f} to {large['cpu_seconds']:.2f}",
                f"{growth:.2f}",
                f"{SLOPE_GOAL:g}",
            ]
        )
    shared = []
    for model, by_threads in fits.items():
        if len(by_threads) < 2:
            continue
        one, two = by_threads[1], by_threads[2]
        both = two["main_seconds"]  # in which it grows trees beside the other
        if model not in MAIN_WORKS:
            both += (two["cpu_seconds"] - two["main_seconds"]) / 2
        shared.append(
            [
                model,
                f"{one['over_table']:.2f} x",
                f"{MEMORY_GOALS[model]:g} x",
                f"{one['cpu_seconds']:.2f}",
                f"{two['cpu_seconds']:.2f}",
                f"{two['main_seconds']:.2f}",
                f"{one['cpu_seconds'] / both:.2f}",
                f"{SPEED_UP_GOAL:g}",
            ]
        )
    one = next(iter(fits.values()))[1]
    heads = ("what grows", "model", "size", "seconds", "slope", "goal")
    of_fits = ("model", "memory", "goal", "seconds, one thread", "two", "of these the main thread")
    return (
        "Processor seconds of `UnmixClassifier.fit`, method ssc, no set held out; slopes are those "
        "on logarithmic axes, 1 where the work grows as fast as what it is done to; boosting grows "
        "30 rounds (`benchmarks/slopes.py`).\n\n"
        + markdown_table(heads, lines, words=3)
        + f"\nMemory: the peak of a fit to {one['rows']:,} rows x {one['columns']:,} over the "
        "array of float64 that it is given, in sizes of that array. Times as fast with two "
        "threads: worked out from seconds of processors, as if what is not the main thread's were "
        "shared by two cores that do nothing else; the clock of a busy machine cannot say. Of "
        "boosting they are those of the main thread, which grows trees itself, and waits for the "
        "other where the machine is busy: at most what it would take. A third of a boosted fit of "
        "30 rounds sorts columns into bins, two fifths grow trees, both in LightGBM, a tenth are "
        "gradients, and copying the rows that are held out is on one thread. With 50 classes in "
        "place of 5 a linear fit takes 39 evaluations in place of 16, since 100 sets say little "
        "of so many classes; each evaluation grows more slowly than the classes.\n\n"
        + markdown_table((*of_fits, "times as fast", "goal"), shared, words=1)
    ), []


def _same_choices(runs: Sequence[Mapping[str, Any]]) -> tuple[str, Pictures]:
    """Return in how many tables another version chose the same."""
    by_table: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        key = tuple(run[name] for name in ("model", "shift", "sets", "seed"))
        by_table.setdefault(key, {})[run["version"]] = run
    lines = []
    for model in dict.fromkeys(key[0] for key in by_table):
        pairs = [
            (found["before"], found["now"])
            for key, found in by_table.items()
            if key[0] == model and {"before", "now"} <= set(found)
        ]
        if not pairs:
            continue
        same = [all(old[w] == new[w] for w in ("method", "used", "l2")) for old, new in pairs]
        apart = max(abs(old["brier"] - new["brier"]) for old, new in pairs)
        lines.append([model, f"{len(pairs)}", f"{sum(same)}", f"{apart:.1g}"])
    heads = ("model", "tables", "the same method and strength", "Brier scores apart by at most")
    return (
        "What `auto` chooses on small tables under label shift and covariate shift, of 20 and "
        "1,000 sets, three draws each, with the code before the last changes for speed and with "
        "this one (`benchmarks/same_choices.py`).\n\n" + markdown_table(heads, lines, words=1)
    ), []


def _against_version(runs: Sequence[Mapping[str, Any]]) -> tuple[str, Pictures]:
    """Return what the same work took with another version."""
    lines = [
        [run["what"], f"{run['old']:.2f}", f"{run['new']:.2f}", f"{run['ratio']:.2f}"]
        for run in sorted(runs, key=lambda run: VERSION_PARTS.index(run["part"]))
    ]
    return (
        "The same work with the code of 0.1 and with this one, in turns; processor seconds on one "
        "thread, or, where it says over, times as long as what it is compared with in the same "
        "turn (`benchmarks/against_version.py`). An explicit method no longer pays for fits "
        "without some of the sets where these are dear, which is most of what networks and "
        "boosting gain.\n\n" + markdown_table(("what", "0.1", "now", "ratio"), lines, words=1)
    ), []


def _many_sets(found: Results) -> tuple[str, Pictures]:
    """Return what a fit and its predictions cost as the number of sets grows."""
    lines = [
        [
            line["command"],
            f"{line['num_sets']:,}",
            f"{line['cpu_seconds']:.0f}",
            f"{line['peak_mb']:,.0f}",
        ]
        for line in found["lines"]
    ]
    return (
        f"`unmix fit` and `unmix predict` on {found['rows']:,} rows of {found['columns']} columns, "
        f"model {found['model']}; the rows stay as many while the sets grow "
        "(`benchmarks/many_sets.py`).\n\n"
        + markdown_table(("command", "sets", "processor seconds", "peak MB"), lines, words=1)
    ), []


def _time_to_error(found: Results) -> tuple[str, Pictures]:
    """Return seconds from a cold start to the paper's error."""
    lines = []
    for line in found["lines"]:
        reached = line.get("reached")
        lines.append(
            [
                dataset_title(line["dataset"]),
                f"{line['paper_error']:.2f}",
                f"{reached['chosen']['test_error']:.2f}" if reached else "",
                str(reached["epoch"]) if reached else "",
                f"{line['marks']['training_starts']:.1f}",
                f"{reached['seconds']:.1f}" if reached else "not reached",
                f"{line['paper_seconds']:.0f}",
                f"{line['ratio']:.0f}" if reached else "",
            ]
        )
    heads = ("dataset", "paper, %", "ours, %", "epoch", "s before training", "s in all")
    heads += (f"s, {PAPER_EPOCHS} epochs of `paper`", "times faster")
    return (
        f"Ten sets, seed {found['seed']}, {found['threads']} threads. From the start of the "
        "process, data on disk, to the end of the first epoch whose model, chosen without labels "
        "by the set log-loss of held-out images, is below the error that the paper published after "
        f"{PAPER_EPOCHS} epochs. Time to compute test errors is excluded; the stated priors are "
        "right and assumed known, as in the paper. The schedule was fixed before the run: "
        f"{found['epochs']} epochs, "
        f"learning rate {found['rate']:g}, images shifted by {found['shift']} pixels; it was "
        "tuned on seed 1, with its test errors in view. For comparison, the time of "
        f"{PAPER_EPOCHS} epochs of recipe `paper` in the same code, from the faster of two epochs "
        "(`benchmarks/time_to_error.py`).\n\n" + markdown_table(heads, lines, words=1)
    ), []


def _tried(tried: Sequence[Mapping[str, str]]) -> tuple[str, Pictures]:
    """Return what was tried and dropped, with its number."""
    lines = [[entry[key] for key in ("what", "gain", "why")] for entry in tried]
    return (
        "Time saved; negative if it took longer (`benchmarks/dropped_tricks.py`):\n\n"
        + markdown_table(("what", "saved", "why it was dropped"), lines, words=3)
    ), []


def _bigger(results: Results) -> str:
    """Say what the numbers let one expect of a bigger machine."""
    parts = []
    if "step_cost" in results:
        mlp = results["step_cost"]["mlp"]
        rate = {place: one["rate"]["now"] for place, one in mlp.items()}
        workers = rate["two_processes"] / rate["one_thread"]
        threads = rate["two_threads"] / rate["one_thread"]
        parts_of = mlp["one_thread"]["breakdown_percent"]
        products = (parts_of.get("now") or parts_of["padded"])["matrix products"] / 100
        parts += [
            f"- More cores, many runs (a study): two one-thread processes do {workers:.2f} times "
            "the work of one. Runs share nothing but memory, so give every core its own worker "
            "(`unmix reproduce --workers`) and expect time to fall nearly by the number of cores, "
            "until they compete for the memory bus.",
            f"- More cores, one run: two threads do {threads:.2f} times the work of one. The "
            "paper's MLP has small matrices, which do not divide well; do not expect much of "
            "more than a few threads.",
            f"- Faster arithmetic (wider vectors, a GPU): matrix products are {products:.0%} of a "
            f"step with one thread. If they cost nothing, a step would be {1 / (1 - products):.1f} "
            "times as fast and no more; the rest waits for memory and for Python. No GPU was "
            "measured.",
        ]
    if "growth" in results:
        found = results["growth"]
        limits = []
        for model in MODELS:
            curve = _curve(found, "rows", model)
            first, last = curve[0], curve[-1]
            per_row = (last["peak_mb"] - first["peak_mb"]) / (last["size"] - first["size"])
            if per_row > 0:
                rows = (1024 * GIGABYTES - first["peak_mb"]) / per_row / 1e6
                limits.append(f"{model} {1000 * per_row:.1f} kB, {rows:.0f} million rows")
        parts.append(
            f"- More memory: what a row of {found['base']['columns']} columns takes, and how many "
            f"{GIGABYTES} GB hold if memory grows as it does up to {last['size']:,} rows: "
            f"{'; '.join(limits)}. Tables beyond that are streamed from Parquet by `unmix fit`, "
            "for which memory does not grow with rows."
        )
    if "against_literal" in results:
        found = results["against_literal"]
        sizes = [line["num_sets"] for line in found["lines"]]
        parts.append(
            f"- More sets: between {min(sizes):,} and {max(sizes):,} sets the time of an epoch "
            f"varies by a factor of {found['flat']['seconds_per_epoch']:.2f}; memory holds a few "
            "numbers per set."
        )
    return "".join(f"{part}\n" for part in parts) or NOT_YET


def _sizes_across(ax: Axes, sizes: Iterable[int]) -> None:
    """Mark the measured sizes, and nothing else, on a logarithmic axis."""
    ticks = sorted(set(sizes))
    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(ticks, [_short(tick) for tick in ticks])


def _logarithmic(ax: Axes) -> None:
    """Let the values grow by factors, with plain numbers beside them."""
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    ax.yaxis.set_minor_locator(NullLocator())


def _from_zero(ax: Axes) -> None:
    """Begin the values at zero."""
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _short(value: float) -> str:
    """Return 300000 as 300k."""
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


if __name__ == "__main__":
    sys.exit(main())
