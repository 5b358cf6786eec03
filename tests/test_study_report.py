"""The tables, pictures and pages of a study, made from runs that never were."""

import csv
import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import build_results
from fake_study import fake_result, fake_results
from test_report import check_harmless
from unmix.report.study_page import (
    pictures_of_study,
    render_study,
    write_study_report,
)
from unmix.report.study_tables import (
    against_paper,
    chosen_epoch_table,
    error_table,
    notes_of,
    to_csv,
    to_markdown,
)
from unmix.report.svg import standalone_svg
from unmix.studies.cell import Cell
from unmix.studies.grid import HELD_OUT, STUDIES
from unmix.studies.published import Published
from unmix.studies.summary import summarize

SMALL = {"datasets": ("mnist", "kmnist"), "seeds": (0, 1)}


@pytest.fixture(scope="module")
def runs():
    return fake_results(seeds=(0, 1))


def small(name, runs):
    return summarize(STUDIES[name], runs, STUDIES[name].cells(**SMALL))


def lines_of(markdown):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in markdown.splitlines()]


def words_of(drawing):
    return [element.text for element in ElementTree.fromstring(drawing).iter() if element.text]


def test_the_comparison_has_the_layout_of_the_paper_with_ours_above_it(runs):
    summary = small("comparison", runs)
    head, _, *lines = lines_of(to_markdown(error_table(summary)))
    ours = ["ssc", "ssc-vat", "ssc-consistency"]
    methods = ["mmc-u2-b", "mmc-u2", "mmc-u2-c", "llp-vat", *ours]
    assert head == ["dataset", "sets", "from", *methods, "supervised"]
    assert [line[:3] for line in lines[:3]] == [
        ["MNIST", "10", "ours"],
        ["", "", "paper"],
        ["", "25", "ours"],
    ]
    assert len(lines) == 12
    assert lines[1][3:] == [
        "7.70 (0.55)",
        "8.03 (0.74)",
        "4.46 (0.23)",
        "3.62 (0.38)",
        "3.05 (0.08)",
        *[""] * 3,
    ]
    (entry,) = (
        e for e in summary.entries if (e.dataset, e.row, e.num_sets) == ("mnist", "mmc-u2", 10)
    )
    assert lines[0][4] == f"{entry.mean:.2f} ({entry.std:.2f})"
    reference = summary.supervised["kmnist"]
    assert lines[6][-1] == f"{reference.mean:.2f} ({reference.std:.2f})"
    assert [line[-1] != "" for line in lines] == [number in (0, 6) for number in range(12)]


def test_bold_is_what_the_summary_calls_best(runs):
    summary = small("comparison", runs)
    entries = tuple(
        replace(e, best=(e.dataset, e.num_sets, e.row) == ("kmnist", 25, "llp-vat"))
        for e in summary.entries
    )
    text = to_markdown(error_table(replace(summary, entries=entries)))
    assert re.findall(r"\*\*(.*?)\*\*", text) == [
        f"{e.mean:.2f} ({e.std:.2f})" for e in entries if e.best
    ]


def test_wrong_priors_have_a_line_each_for_taken_as_true_refined_and_published(runs):
    head, _, *lines = lines_of(to_markdown(error_table(small("prior-noise", runs))))
    assert head[:4] == ["dataset", "sets", "from", "epsilon 0"]
    assert [line[2] for line in lines[:8]] == [
        "ours, ssc",
        "ours, ssc-believing",
        "ours, ssc-refined",
        "paper",
    ] * 2
    assert lines[2][3] != ""  # refined although nothing is wrong
    assert lines[3][3:8] == [
        "2.54 (0.02)",
        "2.64 (0.06)",
        "3.31 (0.18)",
        "2.98 (0.14)",
        "3.84 (0.25)",
    ]


def test_numbers_of_sets_are_columns(runs):
    head, _, *lines = lines_of(to_markdown(error_table(small("set-number", runs))))
    assert head == ["dataset", "from", "2 sets", "100 sets", "500 sets", "1000 sets", "supervised"]
    assert lines[1] == ["", "paper", "2.36 (0.27)", "2.59 (0.11)", "3.07 (0.14)", "2.84 (0.16)", ""]


def test_the_supervised_reference_does_not_stand_beside_itself(runs):
    head, _, *lines = lines_of(to_markdown(error_table(small("supervised", runs))))
    assert head == ["dataset", "from", "all labels"]
    assert len(lines) == 2


def test_cells_not_run_are_blank_everywhere():
    rows = STUDIES["comparison"].cells(**SMALL)
    only = {r.cell: fake_result(r.cell) for r in rows if r.row == "ssc" and r.cell.seed == 0}
    summary = summarize(STUDIES["comparison"], only, rows)
    ours = lines_of(to_markdown(error_table(summary)))[2]
    assert ours[3:7] == [""] * 4
    assert re.fullmatch(r"\d+\.\d\d", ours[7])  # one seed has no deviation
    assert ours[8:] == ["", ""]  # and no column for a reference that was not run
    first, *_ = csv.DictReader(io.StringIO(to_csv(summary)))
    assert first["row"] == "mmc-u2-b"
    assert first["mean"] == first["seeds"] == first["supervised_mean"] == first["epochs"] == ""
    assert first["paper_error"] == "7.7000"
    nothing = summarize(STUDIES["comparison"], {}, rows)
    assert notes_of(nothing) == ["Nothing of this study has been run yet."]
    assert pictures_of_study(nothing) == []
    assert "not been run" not in render_study(summary, ())
    check_harmless(render_study(nothing, ()))


def test_the_csv_has_a_line_per_entry(runs):
    summary = small("set-size", runs)
    lines = list(csv.DictReader(io.StringIO(to_csv(summary))))
    assert len(lines) == len(summary.entries) == 20
    for line, entry in zip(lines, summary.entries, strict=True):
        assert line["column"] == entry.column
        assert line["seeds"] == "0 1"
        assert float(line["mean"]) == pytest.approx(entry.mean, abs=1e-4)
        assert float(line["selected_std"]) == pytest.approx(entry.selected_std, abs=1e-4)
        assert float(line["paper_std"]) == entry.paper.std
        assert line["epochs"] == str(entry.epochs)


def test_the_second_table_has_the_epoch_chosen_without_labels(runs):
    summary = small("set-number", runs)
    entry = summary.entries[0]
    table = lines_of(to_markdown(chosen_epoch_table(summary)))
    epoch = sum(run["selected_epoch"] for run in entry.runs) / 2
    assert table[0][0:2] == ["dataset", "2 sets"]
    assert table[2][1] == f"{entry.selected_mean:.2f} ({entry.selected_std:.2f}) @ {epoch:.0f}"


def test_the_notes_say_how_the_numbers_were_made(runs):
    summary = small("set-number", runs)
    text = " ".join(notes_of(summary))
    assert "over seeds 0, 1." in text
    assert "recipe fast, 15 epochs" in text
    assert "drawn until they differ by at least 0.5" in text
    assert "None of the 6,408 sets of these runs was drawn with replacement." in text
    assert "Code: unmix 0.0.0 fake." in text
    assert "differ by at least 0.5" not in " ".join(notes_of(small("set-size", runs)))


def test_mixed_versions_and_sets_with_replacement_are_told():
    rows = STUDIES["set-number"].cells(("fashion-mnist",), seeds=(0, 1))
    mixed = {r.cell: fake_result(r.cell, f"code {r.cell.seed}") for r in rows}
    text = " ".join(notes_of(summarize(STUDIES["set-number"], mixed, rows)))
    assert "Made with 2 versions of the code; an export gives that of each run." in text
    assert "2 of the 3,204 sets of these runs (2 of 8 runs) were drawn with replacement" in text


def test_where_the_paper_is_better_is_said(runs):
    summary = small("set-number", runs)
    entries = [replace(entry, paper=Published(99.0, 0.1)) for entry in summary.entries]
    better = replace(summary, entries=tuple(entries))
    assert against_paper(better) == "Below the paper's mean: ssc in 8 of 8 settings."
    entries[1] = replace(entries[1], paper=Published(0.1, 0.1))
    worse = replace(summary, entries=tuple(entries))
    assert against_paper(worse) == (
        "Below the paper's mean: ssc in 7 of 8 settings (exceptions: MNIST, 100 sets)."
    )


def test_a_report_is_four_kinds_of_files_and_the_same_bytes_again(runs, tmp_path):
    summaries = [small("set-number", runs), small("noise-boxes", runs)]
    paths = write_study_report(summaries, tmp_path / "new" / "report")
    assert sorted(path.name for path in paths) == [
        "noise-boxes-boxes.svg",
        "noise-boxes.csv",
        "noise-boxes.html",
        "noise-boxes.md",
        "set-number-errors.svg",
        "set-number.csv",
        "set-number.html",
        "set-number.md",
    ]
    again = write_study_report(summaries[0], tmp_path / "again")
    for path in again:
        assert path.read_bytes() == (tmp_path / "new" / "report" / path.name).read_bytes()
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".html":
            page = check_harmless(text)
            assert page.count("svg") == 1
            assert page.count("table") == 2
        if path.suffix == ".md":
            (image,) = re.findall(r"\]\((.*?)\)", text)
            assert (path.parent / image).exists()


def test_curves_show_errors_risks_below_zero_and_the_paper(runs):
    errors, risks = pictures_of_study(small("curves", runs))
    words = words_of(standalone_svg(errors.drawing))
    assert "Kuzushiji-MNIST, 50 sets" in words
    assert {"ssc", "llp-vat", "mmc-u2-b", "paper", "epoch", "test error (%)"} <= {*words}
    words = words_of(standalone_svg(risks.drawing))
    assert {"0", "-10", "below zero: impossible for a true risk"} <= {*words}
    assert "paper" not in words


@pytest.mark.parametrize(
    "name", ["comparison", "set-number", "prior-noise", "noise-boxes", "curves"]
)
def test_a_legend_has_only_what_is_drawn(name, runs):
    full = small(name, runs)
    entries = tuple(replace(entry, paper=None) for entry in full.entries)
    for summary, drawn in ((full, True), (replace(full, entries=entries, supervised={}), False)):
        picture = pictures_of_study(summary)[0]
        words = " ".join(words_of(standalone_svg(picture.drawing)))
        assert ("the paper, 300 epochs" in words) == drawn
        if name != "curves":
            assert ("supervised, all labels" in words) == drawn


def test_every_method_has_its_own_color():
    from unmix.report.study_style import METHOD_COLORS

    shown = {method for study in STUDIES.values() for method in study.methods} - {"supervised"}
    assert shown <= METHOD_COLORS.keys()
    assert len({*METHOD_COLORS.values()}) == len(METHOD_COLORS)


def test_a_drawing_becomes_a_file_of_its_own():
    text = standalone_svg('<svg viewBox="0 0 100 40" role="img"><g /></svg>')
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert (root.get("width"), root.get("height")) == ("125", "50")


def test_the_results_page_without_any_run_has_all_its_sections():
    page, images = build_results.render_results_page({}, [])
    assert images == {}
    sections = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert sections[0] == "In short"
    assert sections[-5:] == [
        "The paper's recipe, 300 epochs",
        "CIFAR-10",
        "CIFAR-10, ten classes, random sets with exact counts",
        "The recipe, judged without labels",
        "What we tried and dropped",
    ]
    assert page.count("Not run yet.") == 9


def test_the_errors_that_ssc_noticed_are_listed_by_place_and_seed():
    rows = STUDIES["prior-noise"].cells(("mnist",), seeds=(0, 1), num_sets=(10,))
    found = {row.cell: fake_result(row.cell) for row in rows}
    believed = Cell("mnist", epochs=15, held_out=HELD_OUT, prior_noise=0.2, prior_error=0.0)
    for seed, error in enumerate((0.038, 0.04)):
        found[replace(believed, seed=seed)]["test_error"] = error
    summary = summarize(STUDIES["prior-noise"], found, rows)
    text = build_results._noticed(summary)
    assert lines_of(text)[2][:4] == ["MNIST", "10", "0, 0", "0.05, 0.05"]
    assert (
        "in 4 of 5 settings; exceptions: MNIST, 10 sets, epsilon 0.2 (3.90 against 3.84)." in text
    )
    notes = " ".join(notes_of(summary))
    assert "after 20% of the epochs" in notes
    assert "In 8 of 10 runs the check rejected them" in notes
    head, _, line = lines_of(build_results._refined(summary))
    assert head[2:4] == ["ours, ssc, 0.2", "ours, ssc-refined, 0.2"]
    assert line[4:] == ["2.54 (0.02)", "3.84 (0.25)"]


def special_runs():
    """Fake runs of some of the comparison, and of what is outside the studies."""
    rows = STUDIES["comparison"].cells(("mnist",), methods=("ssc", "ssc-vat"), seeds=(0, 1))
    rows += STUDIES["supervised"].cells(("mnist",), seeds=(0, 1))
    found = {row.cell: fake_result(row.cell) for row in rows}
    cell = next(iter(found))
    for other in (
        replace(cell, recipe="paper", epochs=300, num_sets=10),
        replace(cell, dataset="cifar10", num_sets=50, epochs=10),
    ):
        found[other] = fake_result(other)
    return found


def test_the_results_page_has_the_runs_outside_the_studies():
    found = special_runs()
    tried = [{"what": "a | b", "where": "MNIST", "numbers": "1.9 to 2.0", "why": "worse"}]
    settled = [
        {"dataset": "kmnist", "seed": 3, "scale": 0.3, "share": 0.2, "setting": setting} | losses
        for setting, losses in (
            ({}, {"loss": 2.25, "least": 2.125}),
            ({"epochs": 30}, {"loss": 2.5, "least": 2.0}),
            (
                {"method": "ssc-vat", "epochs": 20},
                {"loss": 1.5, "least": 1.0, "candidates": {"0": 2.25, "3": 1.375}},
            ),
        )
    ]
    page, images = build_results.render_results_page(found, tried, settled)
    assert "| as it is | 2.2500, 2.1250 |\n| epochs 30 | 2.5000, 2.0000 |" in page
    assert "Kuzushiji-MNIST, seed 3, 30% of the images, 20% held out" in page
    assert "| ssc-vat, epochs 20 | 1.5000, 1.0000 (0: 2.2500, 3: 1.3750) |" in page
    assert "| a \\| b | MNIST | 1.9 to 2.0 | worse |" in page
    assert re.search(r"\| CIFAR-10 \| ssc \| 50 \| 0 \| 10 \| \d+\.\d\d \| .* \| 13.32 ", page)
    assert re.search(
        r"\| MNIST \| ssc \| 10 \| 0 \| 300 \| \d+\.\d\d \| .* \| 3.05 \(0.08\) ", page
    )
    expected = "| MNIST | 10 | 2.2000, 3.45 | 2.1000, 2.34 | 2.3000, 1.23 | 3, 3 | 2.34 | 1.23 |"
    assert expected in page
    assert {*re.findall(r"\]\(images/(.*?)\)", page)} == images.keys()
    assert re.search(
        r"[Ww]ithin two of the paper's standard deviations: MNIST \([+-]\d\.\d\d\)\.", page
    )


def test_random_sets_of_ten_classes_stand_beside_all_labels_and_what_was_published():
    runs = [
        {"size": 0, "method": "all labels", "epochs": 6, "last": 70.0},
        {"size": 16, "method": "count", "epochs": 6, "last": 61.0, "chosen": 61.5, "at": 5},
    ]
    _, _, labels, count, *published = lines_of(build_results._bags(runs))
    assert labels == ["ours, all labels", "6", *["70.00"] * 4]
    assert count == ["ours, count", "6", "61.00, 61.50 @ 5", "", "", ""]
    assert published[0] == ["LLP-MM, published", "", "94.04", "92.33", "89.12", "75.19"]


def test_the_headline_is_blank_until_everything_in_it_was_run():
    found = special_runs()
    summary = summarize(STUDIES["comparison"], found, STUDIES["comparison"].cells(("mnist",)))
    line = lines_of(build_results._headline(summary))[2]
    own = [e for e in summary.entries if e.row == "ssc"]
    assert line[:3] == ["MNIST", "2.81", f"{sum(e.mean for e in own) / 3:.2f}"]
    strong = [e for e in summary.entries if e.row == "ssc-vat"]
    chosen = sum(e.selected_mean for e in strong) / 3
    assert line[5] == f"{sum(e.mean for e in strong) / 3:.2f}"
    assert line[6] == f"{chosen:.2f}"
    paper, reference = sum(e.paper.error for e in own) / 3, summary.supervised["mnist"].mean
    assert line[7] == f"{100 * (paper - chosen) / (paper - reference):.0f}%"
    assert line[8] == f"{reference:.2f}"
    missing = {c: r for c, r in found.items() if not (c.method == "ssc" and c.num_sets == 25)}
    summary = summarize(STUDIES["comparison"], missing, STUDIES["comparison"].cells(("mnist",)))
    line = lines_of(build_results._headline(summary))[2]
    assert line[2] == ""
    assert line[5] != ""


def test_the_results_page_says_what_the_sets_of_each_seed_are_worth():
    summary = summarize(
        STUDIES["comparison"], special_runs(), STUDIES["comparison"].cells(("mnist",))
    )
    head, _, *lines = lines_of(build_results._worth(summary))
    assert head[2:] == ["seed 0: labels", "error", "seed 1: labels", "error"]
    (ten,) = (e for e in summary.entries if e.row == "ssc" and e.num_sets == 10)
    assert lines[0] == [
        "MNIST",
        "10",
        *(text for error in ten.errors for text in ("12,000", f"{error:.2f}")),
    ]
    assert [line[1] for line in lines[:3]] == ["10", "25", "50"]


@pytest.mark.skipif(not build_results.PAGE.exists(), reason="the results are not there yet")
def test_the_committed_page_is_what_the_committed_runs_give():
    page, images = build_results.render_results_page(
        build_results.read_export(build_results.EXPORT),
        build_results.read_tried(build_results.TRIED),
        build_results.read_lines(build_results.SETTLED),
        build_results.read_lines(build_results.BAGS),
    )
    rebuild = "run python docs/build_results.py"
    assert page == build_results.PAGE.read_text(encoding="utf-8"), rebuild
    readme = build_results.README.read_text(encoding="utf-8")
    assert build_results.with_headline(readme, page) == readme, rebuild
    for name, drawing in images.items():
        # Not the bytes: another version of matplotlib draws the same words elsewhere.
        committed = (build_results.IMAGES / name).read_text(encoding="utf-8")
        assert words_of(committed) == words_of(drawing), f"{name}: {rebuild}"


def test_what_was_tried_is_complete():
    if build_results.TRIED.exists():
        for entry in json.loads(build_results.TRIED.read_text(encoding="utf-8")):
            assert entry.keys() == {"what", "where", "numbers", "why"}
            assert all(entry.values())
