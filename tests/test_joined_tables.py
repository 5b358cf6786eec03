"""Rows may lie in several files, folders, globs and packed files: they are one table."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from unmix.cli import main
from unmix.data.addresses import find_files, suffixes
from unmix.data.tables import count_rows, infer_dtypes, open_table, read_rows, scan_rows, write_rows
from unmix.errors import InputError


def frame(rows=600, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "region": rng.choice(["n", "s", "e", "w"], rows),
            "x": rng.normal(size=rows),
            "n": rng.integers(0, 9, rows),
            "word": rng.choice(["red", "blue"], rows),
        }
    )


def refused(function, *args, **options):
    with pytest.raises(InputError) as caught:
        function(*args, **options)
    return str(caught.value)


@pytest.fixture
def parts(tmp_path):
    """The same table as one file and as several, of both kinds."""
    whole = frame()
    whole.to_parquet(tmp_path / "whole.parquet")
    whole.to_csv(tmp_path / "whole.csv", index=False)
    for kind in ("parquet", "csv"):
        (tmp_path / kind).mkdir()
        for i in range(4):
            piece = whole.iloc[150 * i : 150 * (i + 1)]
            path = tmp_path / kind / f"{i}.{kind}"
            piece.to_parquet(path) if kind == "parquet" else piece.to_csv(path, index=False)
        (tmp_path / kind / "_SUCCESS").write_text("")
        (tmp_path / kind / ".hidden.csv").write_text("")
    return tmp_path


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_several_files_a_folder_and_a_glob_are_one_table(parts, kind):
    expected = read_rows(parts / f"whole.{kind}")
    names = sorted((parts / kind).glob("[0-9]*"))
    for given in (names, parts / kind, str(parts / kind / f"*.{kind}"), [parts / kind]):
        pd.testing.assert_frame_equal(read_rows(given), expected)
        pieces = list(scan_rows(given, batch_rows=77))
        pd.testing.assert_frame_equal(pd.concat(pieces), expected)
    assert count_rows(parts / kind) == (600 if kind == "parquet" else None)


def test_gzip_and_zstd_are_unpacked_and_packed(parts):
    expected = read_rows(parts / "whole.csv")
    text = (parts / "whole.csv").read_bytes()
    (parts / "a.csv.gz").write_bytes(gzip.compress(text))
    (parts / "a.csv.zst").write_bytes(pa.compress(text, "zstd", asbytes=True))
    for name in ("a.csv.gz", "a.csv.zst"):
        pd.testing.assert_frame_equal(read_rows(parts / name), expected)
        write_rows(parts / f"again.{name}", [expected])
        pd.testing.assert_frame_equal(read_rows(parts / f"again.{name}"), expected)
    assert (
        gzip.decompress((parts / "again.a.csv.gz").read_bytes())
        == ("".join(f"{line}\n" for line in _quoted(text))).encode()
    )
    (parts / "cut.csv.gz").write_bytes(gzip.compress(text)[:-200])
    assert "cut.csv.gz" in refused(read_rows, parts / "cut.csv.gz")
    assert suffixes("s3://bucket/rows.CSV.gz?region=x") == (".csv", ".gz")
    assert "no whole gzip file" in refused(read_rows, _plain(parts / "no.csv.gz"))


def _plain(path):
    path.write_text("a,b\n1,2\n")
    return path


def _quoted(text):
    """Lines as pyarrow writes them: names and words in quotes."""
    header, *lines = text.decode().splitlines()
    yield ",".join(f'"{name}"' for name in header.split(","))
    for line in lines:
        region, x, n, word = line.split(",")
        yield f'"{region}",{x},{n},"{word}"'


def test_folders_of_partitions_are_columns(tmp_path):
    whole = frame()
    for region, part in whole.groupby("region"):
        for half in (0, 1):
            folder = tmp_path / "rows" / f"year={2020 + half}" / f"region={region}%20x"
            folder.mkdir(parents=True)
            piece = part[part.index % 2 == half].drop(columns="region")
            piece.to_parquet(folder / "part-0.parquet", index=False)
    found = read_rows(tmp_path / "rows", set_column="region")
    assert found["year"].dtype == "int64"
    assert set(found["region"]) == {"n x", "s x", "e x", "w x"}
    assert found["x"].sum() == pytest.approx(whole["x"].sum())
    by_year = found.groupby("year")["x"].sum()
    assert by_year[2021] == pytest.approx(whole["x"][1::2].sum())
    only = read_rows(tmp_path / "rows", columns=["region"], set_column="region")
    assert len(only) == 600
    one_by_one = sorted(str(path) for path in (tmp_path / "rows").rglob("*.parquet"))
    pd.testing.assert_frame_equal(read_rows(one_by_one), read_rows(tmp_path / "rows"))
    assert infer_dtypes(tmp_path / "rows")["year"] == "int64"


def test_types_are_those_of_all_files(tmp_path):
    pq.write_table(
        pa.table({"a": pa.array([1, 2], pa.int32()), "b": [True, False]}), tmp_path / "1.pq"
    )
    pq.write_table(pa.table({"a": pa.array([1.5]), "b": [None]}), tmp_path / "2.pq")
    found = read_rows(tmp_path)
    assert found["a"].tolist() == [1, 2, 1.5]
    assert found["b"].tolist()[:2] == [1.0, 0.0]
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "1.csv").write_text("a\n1\n2\n")
    (tmp_path / "w" / "2.csv").write_text("a\nmany\n")
    assert read_rows(tmp_path / "w")["a"].tolist() == ["1", "2", "many"]
    pq.write_table(
        pa.table({"a": pa.array([], pa.string()), "b": pa.array([], pa.int8())}), tmp_path / "0.pq"
    )
    pd.testing.assert_frame_equal(
        read_rows(tmp_path / "1.pq"), read_rows([tmp_path / "0.pq", tmp_path / "1.pq"])
    )


def test_files_that_do_not_go_together_are_named(tmp_path):
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("a\n1\n")
    message = refused(open_table, tmp_path)
    assert "2.csv lacks 'b', unlike" in message
    (tmp_path / "2.csv").write_text("b,a\n4,\n")
    assert read_rows(tmp_path)["b"].tolist() == [2, 4]
    message = refused(read_rows, tmp_path, set_column="a")
    assert "line 2 of" in message
    assert "2.csv" in message
    one = tmp_path / "1.csv"
    assert "more than once" in refused(open_table, [one, one])
    (tmp_path / "empty").mkdir()
    assert "has no .parquet or .csv file" in refused(open_table, tmp_path / "empty")
    assert "no file fits" in refused(open_table, tmp_path / "*.parquet")
    assert "there is no such file" in refused(open_table, [one, tmp_path / "3.csv"])
    assert [file.path for file in find_files([one])] == [str(one)]


def test_a_file_address_is_a_file(parts):
    expected = read_rows(parts / "whole.parquet")
    pd.testing.assert_frame_equal(read_rows(f"file://{parts}/whole.parquet"), expected)
    pd.testing.assert_frame_equal(read_rows(f"file://{parts}/parquet"), expected)
    pd.testing.assert_frame_equal(read_rows(f"file://{parts}/parquet/*.parquet"), expected)
    pd.testing.assert_frame_equal(read_rows(f"file://{parts}/whole.csv"), expected)
    assert "nothing there" in refused(open_table, f"file://{parts}/gone.parquet")
    assert "cannot read ftp://x/y.csv" in refused(open_table, "ftp://x/y.csv")


def test_batches_hold_bytes_not_rows(tmp_path):
    wide = pd.DataFrame(
        np.zeros((3000, 2000), dtype=np.float32), columns=[f"c{i}" for i in range(2000)]
    )
    wide.to_parquet(tmp_path / "wide.parquet")
    sizes = [len(piece) for piece in scan_rows(tmp_path / "wide.parquet")]
    assert max(sizes) == (1 << 25) // (8 * 2000)
    assert sum(sizes) == 3000


def run(*args):
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    return result


def test_columns_that_are_kept_come_out_as_they_went_in(parts):
    rates = parts / "rates.csv"
    rates.write_text("region,share\nn,.2\ns,.4\ne,.6\nw,.8\n")
    whole = pq.read_table(parts / "whole.parquet")
    stamps = pa.array([None if i % 5 == 0 else 1_600_000_000_000_000 + i for i in range(600)])
    numbers = pa.array([None if i % 3 == 0 else 2**53 + i for i in range(600)], pa.int64())
    whole = whole.append_column("when", stamps.cast(pa.timestamp("us", "UTC")))
    whole = whole.append_column("number", numbers)
    whole = whole.append_column("tags", pa.array([["a"], None] * 300))
    (parts / "kept").mkdir()
    for i in range(3):
        pq.write_table(whole.slice(200 * i, 200), parts / "kept" / f"{i}.parquet")
    named = ("--sets", "region", "--priors", rates, "--drop", "tags", "--drop", "number")
    fit = ("--model", "linear", "--method", "ssc", "--list-columns")
    said = run("fit", parts / "kept", *named, "-o", parts / "m", *fit).output
    assert "  word                     text     a mark for each of 2 words" in said
    keep = [word for name in ("number", "when", "tags", "x") for word in ("--keep", name)]
    for output in ("kept.parquet", "kept.csv"):
        some = keep[:6] if output == "kept.parquet" else keep[:4]
        run("predict", parts / "m", parts / "kept", "-o", parts / output, *some)
    found = pq.read_table(parts / "kept.parquet")
    assert found.column_names == ["number", "when", "tags", "probability", "prediction"]
    for name in ("number", "when", "tags"):
        assert found[name].combine_chunks() == whole[name].combine_chunks()
    text = (parts / "kept.csv").read_text().splitlines()
    assert text[2].startswith(f"{2**53 + 1},2020-09-13 12:26:40.000001Z,")


def test_every_command_takes_a_folder_and_several_files(parts):
    rates = parts / "rates.csv"
    rates.write_text("region,share\nn,.2\ns,.4\ne,.6\nw,.8\n")
    named = ("--sets", "region", "--priors", rates)
    pieces = sorted((parts / "parquet").glob("*.parquet"))
    models = []
    for name, given in (("one", [parts / "whole.parquet"]), ("many", pieces)):
        run("fit", *given, *named, "-o", parts / name, "--model", "linear", "--method", "ssc")
        models.append((parts / name / "weights.safetensors").read_bytes())
    assert models[0] == models[1]
    assert (
        run("diagnose", *pieces, *named).output == run("diagnose", parts / "parquet", *named).output
    )
    run("predict", parts / "one", parts / "whole.parquet", "-o", parts / "a.parquet")
    run("predict", parts / "one", *pieces, "-o", parts / "b.parquet")
    pd.testing.assert_frame_equal(read_rows(parts / "a.parquet"), read_rows(parts / "b.parquet"))
    for command, more in (("evaluate", named), ("prevalence", ("--by", "word"))):
        texts = {
            run(command, parts / "one", *given, *more).output
            for given in ([parts / "whole.parquet"], pieces, [parts / "parquet"])
        }
        assert len(texts) == 1
    assert Path(parts / "many" / "report.html").exists()
