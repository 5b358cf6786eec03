"""The page beyond these machines has the tables of its results; its model is followed by hand."""

import json
import sys
from pathlib import Path

import pytest

import build_scaling

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from scaling import Constants, fit_seconds, pass_seconds

# A row takes a second, its reading three; the driver needs a tenth to ask and two to take.
KNOWN = Constants(
    row=1.0, read=3.0, send=0.1, take=0.2, worker_call=0.5, message=0, start=7.0, recovery=10.0
)


def test_one_worker_answers_one_file_after_the_other():
    # Asked at 0.1, done at 1.6 and 4.1; each answer takes the driver 0.2.
    assert pass_seconds([1, 2], 1, KNOWN) == (pytest.approx(4.3), pytest.approx(0.6 / 4.3))


def test_two_workers_answer_side_by_side():
    # Asked at 0.1 and 0.2: done at 1.6 and 2.7.
    assert pass_seconds([1, 2], 2, KNOWN)[0] == pytest.approx(2.9)


def test_the_driver_is_the_limit_where_files_are_tiny():
    # 100 questions take 10 seconds, and as many answers wait until then.
    seconds, busy = pass_seconds([0] * 100, 100, KNOWN)
    assert (seconds, busy) == (pytest.approx(30.0), pytest.approx(1.0))


def test_rows_that_do_not_fit_are_read_in_every_pass():
    assert pass_seconds([1], 1, KNOWN, kept=0.0)[0] == pytest.approx(0.1 + 0.5 + 4.0 + 0.2)


def test_a_worker_that_dies_reads_its_rows_again():
    deaths = iter([1.0, 1000.0])
    seconds, _ = pass_seconds([1], 1, KNOWN, deaths=lambda: next(deaths))
    # Dead at 1, there again at 11, rows read at 14, answered at 15.5.
    assert seconds == pytest.approx(15.7)


def test_a_fit_is_its_phases():
    known = Constants(
        row=1e-8,
        read=1e-6,
        send=1e-4,
        take=2e-4,
        worker_call=1e-3,
        message=1e3,
        start=9.0,
        recovery=10.0,
    )
    few, many = fit_seconds(10**9, 10, known), fit_seconds(10**9, 100, known)
    assert few["kept"] < 1 == many["kept"]
    assert few["pass"] > 50 * many["pass"]
    assert many["fit"] == pytest.approx(9.0 + many["reading"] + many["passes"], rel=0.01)


def test_the_page_has_the_tables_of_its_results():
    found = json.loads((build_scaling.RESULTS / "scaling.json").read_text())
    page = build_scaling.PAGE.read_text()
    for section in (
        build_scaling.constants_section,
        build_scaling.checked_section,
        build_scaling.told_section,
    ):
        assert section(found) in page
    speed = json.loads((build_scaling.RESULTS / "engine_speed.json").read_text())
    assert build_scaling.speed_section(speed) in page
