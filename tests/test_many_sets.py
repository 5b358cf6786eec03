"""Judging a million sets: entries kept as columns, work in blocks, JSON in pieces."""

import json
import math
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from unmix.assess.blocks import in_blocks
from unmix.assess.entries import Entries
from unmix.assess.estimates import json_pieces, plain
from unmix.assess.prevalence import new_set_shares
from unmix.cli import main
from unmix.core.assumptions import LABEL_SHIFT, assumption_named
from unmix.core.share_draws import ScoredSets
from unmix.data.priors import Priors, factor_ids
from unmix.data.set_columns import CodedColumns, as_taken


@dataclass(frozen=True, slots=True)
class Named:
    name: str
    share: float | tuple[float, ...]


def entries(m, classes=1):
    shares = np.random.default_rng(0).random((m, classes))
    return Entries(Named, [f"set {j}" for j in range(m)], shares[:, 0] if classes == 1 else shares)


@pytest.mark.parametrize("classes", [1, 3])
def test_entries_are_those_that_a_tuple_would_hold(classes):
    found = entries(10_000, classes)
    share = np.random.default_rng(0).random((10_000, classes)).tolist()
    expected = tuple(
        Named(f"set {j}", tuple(share[j]) if classes > 1 else share[j][0]) for j in range(10_000)
    )
    assert found == expected
    assert found[-1] == expected[-1]
    assert found[4090:4100] == expected[4090:4100]
    assert type(found[7].share) is (tuple if classes > 1 else float)
    assert found != expected[:-1]
    assert found != entries(10_000, 2)
    assert pickle.loads(pickle.dumps(found)) == expected
    with pytest.raises(IndexError):
        found[10_000]


def test_entries_are_joined_and_get_another_column():
    first, second = entries(3), entries(2)
    both = Entries.joined([first, Entries.none(Named), second])
    assert both == (*first, *second)
    assert not Entries.joined([Entries.none(Named)])
    moved = first.with_column("share", np.array([0.5, 0.25, 0.125]))
    assert [entry.share for entry in moved] == [0.5, 0.25, 0.125]
    assert [entry.name for entry in moved] == [entry.name for entry in first]
    assert repr(entries(12)).endswith("and 2 more)")
    with pytest.raises(ValueError, match="3, 2"):
        Entries(Named, [1, 2, 3], [1, 2])


@pytest.mark.parametrize("m", [0, 1, 4096, 4097, 9000])
def test_pieces_of_json_are_what_json_writes_at_once(m):
    record = {
        "sets": entries(m, 2),
        "few": (1, math.nan, None, True),
        "text": "x" * 5000 + '"\n\N{SNOWMAN}',
        "inside": {"a": [], "b": Named("n", math.inf)},
        "array": np.arange(3),
    }
    text = "".join(json_pieces(record))
    assert text == json.dumps(plain(record))
    assert len(json.loads(text)["sets"]) == m


def test_blocks_change_no_bit():
    x = np.random.default_rng(1).normal(size=(1000, 3))
    whole = np.sum(np.exp(x), axis=1)
    for size in (1, 7, 999, 1000):
        found = in_blocks(lambda part: np.sum(np.exp(part), axis=1), x, at_a_time=size)
        np.testing.assert_array_equal(found, whole)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("fits", [0, 2])
def test_shares_of_some_sets_at_a_time_are_those_of_all_at_once(classes, fits):
    rng = np.random.default_rng(2)
    shape = (600,) if classes == 2 else (600, classes)
    logits, index = 3 * rng.normal(size=shape), rng.integers(0, 90, 600)
    index[index == 17] = 18  # a set without rows
    resampled = rng.normal(size=(fits, *shape)) if fits else None
    sets = ScoredSets(logits, index, 90, np.full(classes, 1 / classes), resampled=resampled)
    whole = LABEL_SHIFT.new_set_shares(sets, 0.95)
    for size in (1, 32, 89):
        found = new_set_shares(LABEL_SHIFT, sets, 0.95, at_a_time=size)
        for end in ("shares", "low", "high"):
            np.testing.assert_array_equal(getattr(found, end), getattr(whole, end))
        assert found.how == whole.how
    # Draws are of all sets together, whatever their number.
    effects = assumption_named("set effects")
    drawn = new_set_shares(effects, sets, 0.95, at_a_time=32)
    np.testing.assert_array_equal(drawn.low, effects.new_set_shares(sets, 0.95).low)


def test_names_that_come_batch_by_batch_are_kept_once_and_in_order():
    frame = pd.DataFrame(
        {"region": list("bcabxb"), "age": np.arange(6.0), "note": ["n", None, "b", "n", None, "z"]},
        index=[5, 3, 1, 0, 2, 4],
    )
    known = Priors.of({"a": 0.2, "b": 0.5, "c": 0.7}).index
    for names in (None, known):
        coded = CodedColumns(names)
        for first in range(0, 6, 2):
            coded.add(frame.iloc[first : first + 2])
        found = coded.joined()
        assert found["region"].tolist() == frame["region"].tolist()
        assert found["note"].isna().tolist() == frame["note"].isna().tolist()
        assert found["note"].dropna().tolist() == ["n", "b", "n", "z"]
        assert found["age"].tolist() == frame["age"].tolist()
        codes, ids = factor_ids(found["region"])
        assert (codes.tolist(), ids) == ([0, 1, 2, 0, 3, 0], ["b", "c", "a", "x"])
    assert as_taken(found[["region"]]).name == "region"
    assert as_taken(found[[]]) is None
    assert as_taken(found).shape == (6, 3)


PEAK = """
import re, sys
from unmix.cli import main
try:
    main(sys.argv[1:], prog_name="unmix")
except SystemExit as end:
    assert not end.code
status = open("/proc/self/status").read()
print(int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]), file=sys.stderr)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is told by /proc")
def test_a_set_takes_some_hundred_bytes_when_it_is_judged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng, few, many = np.random.default_rng(0), 40_000, 160_000

    def rows(m):
        """Write rows, two a set, and the shares of m sets."""
        share = rng.uniform(0.1, 0.9, m)
        index = np.repeat(np.arange(m), 2)
        x = rng.normal(3.0 * (rng.random(2 * m) < share[index]))
        names = np.char.add("set number ", index.astype(str))
        pd.DataFrame({"x": x, "region": names}).to_parquet(f"rows{m}.parquet")
        rates = pd.DataFrame({"region": names[::2], "share": share.round(3)})
        rates.to_csv(f"rates{m}.csv", index=False)

    for m in (2_000, few, many):
        rows(m)
    fit = ["fit", "rows2000.parquet", "--sets", "region", "--priors", "rates2000.csv"]
    fit += ["--model", "linear", "--method", "ssc", "-o", "model"]
    assert CliRunner().invoke(main, fit).exit_code == 0

    def peak(command, m):
        words = [command, "model", f"rows{m}.parquet", "--sets", "region", "--json"]
        words += ["--priors", f"rates{m}.csv"] if command == "evaluate" else []
        done = subprocess.run(
            [sys.executable, "-c", PEAK, *words], capture_output=True, text=True, check=True
        )
        listed = json.loads(done.stdout)["calibration" if command == "evaluate" else "sets"]
        assert len(listed) == m
        return 1024 * int(re.findall(r"\d+", done.stderr)[-1])

    # Prevalence holds the logits of 20 resampled fits too.
    for command, most in (("evaluate", 900), ("prevalence", 1200)):
        more = (peak(command, many) - peak(command, few)) / (many - few)
        assert more < most, f"{command}: {more:.0f} bytes a set"
