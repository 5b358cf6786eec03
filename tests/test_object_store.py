"""Rows in an object store are read where they lie: a real S3 server on this machine."""

import socket
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow import fs

from unmix.cli import main
from unmix.data.tables import count_rows, open_table, read_rows
from unmix.errors import InputError

pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def store():
    """An S3 server: (file system, what follows the question mark of its addresses)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        system = fs.S3FileSystem(
            access_key="key",
            secret_key="secret",
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{port}",
            allow_bucket_creation=True,
        )
        system.create_dir("shop")
        yield system, f"?scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def rows(store):
    """The same rows as one object and as three in folders by month."""
    system, _ = store
    rng = np.random.default_rng(0)
    sets = rng.choice(["n", "s", "e"], 300)
    sick = rng.random(300) < pd.Series(sets).map({"n": 0.2, "s": 0.5, "e": 0.8})
    frame = pd.DataFrame({"region": sets, "x": rng.normal(size=300) + 2 * sick})
    pq.write_table(pa.Table.from_pandas(frame), "shop/whole.parquet", filesystem=system)
    for month in range(3):
        piece = pa.Table.from_pandas(frame.iloc[100 * month : 100 * (month + 1)])
        pq.write_table(piece, f"shop/rows/month={month}/part.parquet", filesystem=system)
    with system.open_output_stream("shop/rows.csv.gz", compression="gzip") as stream:
        stream.write(frame.to_csv(index=False).encode())
    return frame


def at(path, ending):
    return f"s3://key:secret@shop/{path}{ending}"


def test_objects_folders_and_globs_are_tables(store, rows):
    _, ending = store
    whole = read_rows(at("whole.parquet", ending))
    pd.testing.assert_frame_equal(whole, rows.astype(whole.dtypes))
    folder = read_rows(at("rows", ending))
    assert folder["month"].tolist() == np.repeat([0, 1, 2], 100).tolist()
    pd.testing.assert_frame_equal(folder[["region", "x"]], whole)
    assert count_rows(at("rows/*/part.parquet", ending)) == 300
    packed = read_rows(at("rows.csv.gz", ending))
    assert packed["x"].tolist() == pytest.approx(rows["x"].tolist(), abs=1e-15)


def test_what_is_not_there_is_said_without_the_secret(store, rows):
    _, ending = store
    for path in ("gone.parquet", "rows/*.csv"):
        with pytest.raises(InputError) as caught:
            open_table(at(path, ending))
        assert f"s3://shop/{path}" in str(caught.value)
        assert "secret" not in str(caught.value)


def test_fit_and_predict_read_from_the_store(store, rows, tmp_path):
    _, ending = store
    (tmp_path / "rates.csv").write_text("region,share\nn,.2\ns,.5\ne,.8\n")
    models = []
    rows.to_parquet(tmp_path / "rows.parquet")
    for name, given in (
        ("near", str(tmp_path / "rows.parquet")),
        ("far", at("whole.parquet", ending)),
    ):
        options = ["--sets", "region", "--priors", str(tmp_path / "rates.csv")]
        options += ["-o", str(tmp_path / name), "--model", "linear", "--method", "ssc"]
        result = CliRunner().invoke(main, ["fit", given, *options])
        assert result.exit_code == 0, result.output
        models.append((tmp_path / name / "weights.safetensors").read_bytes())
    assert models[0] == models[1]
    scored = str(tmp_path / "scored.parquet")
    result = CliRunner().invoke(
        main, ["predict", str(tmp_path / "far"), at("rows", ending), "-o", scored]
    )
    assert result.exit_code == 0, result.output
    assert len(read_rows(scored)) == 300
