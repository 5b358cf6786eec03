"""Ninety files of rates as published: each is understood as docs/rates.md says, or refused."""

import json
from pathlib import Path

import numpy as np
import pytest

import build_rates
from unmix.data.rates_file import read_rates
from unmix.errors import InputError

CASES = json.loads((build_rates.CASES / "cases.json").read_text(encoding="utf-8"))


def test_the_page_of_rates_is_what_its_script_writes():
    assert build_rates.PAGE.read_text(encoding="utf-8") == build_rates.page()


def test_there_are_ninety_files_and_each_is_on_the_page():
    on_disk = {path.name for path in build_rates.CASES.iterdir()} - {"cases.json"}
    assert {case["file"] for case in CASES} == on_disk
    assert len(on_disk) >= 90


@pytest.mark.parametrize("case", CASES, ids=[Path(case["file"]).name for case in CASES])
def test_a_file_of_rates_holds_the_numbers_that_a_reader_sees(case):
    path = build_rates.CASES / case["file"]
    if case["share"] is None:
        with pytest.raises(InputError) as caught:
            read_rates(path, case["sets"], **case["options"])
        assert case["file"] in str(caught.value)
        assert "\n" not in str(caught.value)
        return
    priors = read_rates(path, case["sets"], **case["options"])
    np.testing.assert_allclose(priors.set_priors[0], case["share"], atol=1e-12)
    if case["error"] is not None:
        assert priors.standard_errors[0] == pytest.approx(case["error"], abs=2e-4)
