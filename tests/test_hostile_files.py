"""Files that are no tables, or that nobody can mean: one line each, which names the cause."""

import bz2
import io
import lzma
import os
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from unmix.cli import main
from unmix.data.csv_table import csv_records, open_csv
from unmix.data.rate_statement import sampling_errors
from unmix.files import atomic_write_text

SHARES = {"s1": 0.2, "s2": 0.5, "s3": 0.8}
ROWS = "region,age\n" + "".join(f"{s},{20 + i}\n" for s in SHARES for i in range(4))
RATES = "region,share\n" + "".join(f"{s},{p}\n" for s, p in SHARES.items())
DIAGNOSE = ("diagnose", "rows.csv", "--sets", "region", "--priors", "rates.csv")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Work in a folder with rows and rates."""
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / "rates.csv").write_text(RATES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(*args):
    """Return the one line of a command that refuses something."""
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 2, (result.exception, result.output)
    (line,) = result.stderr.splitlines()
    return line.removeprefix("unmix: ")


PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452") + b"\0\1\2" * 40
NO_TABLES = [
    (PNG, "is a PNG image; save its table as CSV"),
    (bz2.compress(ROWS.encode()), "is compressed by bzip2; unpack it first"),
    (lzma.compress(ROWS.encode()), "is compressed by xz; unpack it first"),
    (b"\x28\xb5\x2f\xfd\0", "is compressed by zstd; unpack it first"),
    (b"%PDF-1.7\n", "is a PDF document; save its table as CSV"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1", "is a workbook of an old Excel; save its table as CSV"),
    (b"SQLite format 3\0", "is an SQLite database; save its table as CSV"),
    (b"ARROW1\0\0", "is an Arrow file; save its table as Parquet or CSV"),
    (ROWS.encode("utf-16-le"), "is not UTF-8 but looks like UTF-16"),
    (b"\x80\x04\x95\0\0\0\0", "holds bytes that no text has"),
    (ROWS.encode() + b"s1,4\0\n", "holds bytes that no text has"),
    (ROWS.encode() + b"s1," + b"9" * 3_000_000 + b"\n", "a value on line 14 of "),
    (b"x" * 3_000_000 + b",region\n", "has more than 131,072 characters; close the quote before"),
    (ROWS.encode() + b'"s1,40\n', "ends inside a value: close the quote that opens on line 14"),
]


@pytest.mark.parametrize("name", ["rows.csv", "rates.csv"])
@pytest.mark.parametrize(("data", "words"), NO_TABLES)
def test_a_file_that_is_no_table_of_text_is_called_what_it_is(name, data, words):
    Path(name).write_bytes(data)
    message = refused(*DIAGNOSE)
    assert name in message
    assert words in message


@pytest.mark.parametrize("first", ["sep=;", "sep=,", '"sep=\t"', "\ufeffsep=;"])
def test_the_line_that_tells_a_spreadsheet_how_to_read_is_named(first):
    Path("rows.csv").write_text(first + "\n" + ROWS.replace(",", ";"))
    assert "line 1 of rows.csv is meant for a spreadsheet (sep=...)" in refused(*DIAGNOSE)


def test_a_table_of_many_columns_is_read_by_its_own_delimiter():
    names = ["region", *(f"c{i}" for i in range(40_000))]
    Path("rows.csv").write_text(";".join(names) + "\n" + ";".join(["s1"] + ["1"] * 40_000) + "\n")
    assert open_csv("rows.csv").columns == tuple(names)


def test_spaces_after_a_quote_are_no_mistake_where_arrow_reads_them():
    Path("spaced.csv").write_text('"a" ,b\n1,2\n')
    assert [values for _, _, values in csv_records("spaced.csv", ",")] == [["a ", "b"], ["1", "2"]]


@pytest.mark.parametrize("signs", ["s\u200b2", "s2\u00a0", " s2", "s2\x07"])
def test_a_sign_that_nobody_sees_is_pointed_out(signs):
    Path("rates.csv").write_text(RATES.replace("s2", signs))
    assert "the rows have 's2' where rates.csv has" in refused(*DIAGNOSE)


@pytest.mark.filterwarnings("error")
def test_counts_beyond_all_numbers_have_a_standard_error():
    errors = sampling_errors(np.array([[0.5, 0.5], [0.5, 0.5]]), np.array([1e308, 1e4]))
    assert errors[0] < 1e-150
    assert errors[1] == pytest.approx(0.005, rel=1e-3)


def sheet_with(xml, name="xl/worksheets/sheet1.xml"):
    """The bytes of a workbook of which one member says something else."""
    whole = io.BytesIO()
    pd.DataFrame({"region": list(SHARES), "share": SHARES.values()}).to_excel(whole, index=False)
    changed = io.BytesIO()
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.namelist():
            new.writestr(member, xml if member == name else old.read(member))
    return changed.getvalue()


CELL = '<row r="{row}"><c r="{cell}" t="inlineStr"><is><t>x</t></is></c></row>'
FAR = (
    '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    + CELL.format(row=1, cell="A1")
    + CELL.format(row=200_000, cell="XFD200000")
    + "</sheetData></worksheet>"
)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is no Excel workbook; save it again as .xlsx"),
        (b"PK\x03\x04 and no more", "is no Excel workbook"),
        (sheet_with(b"<worksheet><sheetData><row"), "is no Excel workbook"),
        (sheet_with(b"<a>" * 5_000), "is no Excel workbook"),
        (sheet_with(b"", "xl/workbook.xml"), "is no Excel workbook"),
        (sheet_with(b"<x/>", "[Content_Types].xml"), "is no Excel workbook"),
        (sheet_with(FAR.encode()), "has no sheet with a table of two columns or more"),
    ],
)
def test_a_workbook_of_a_stranger_is_read_or_refused_in_no_time(data, words):
    pytest.importorskip("openpyxl")
    Path("rates.xlsx").write_bytes(data)
    assert f"rates.xlsx {words}" in refused(*DIAGNOSE[:-1], "rates.xlsx")


def test_a_workbook_that_unpacks_to_more_than_it_may_is_not_unpacked(monkeypatch):
    pytest.importorskip("openpyxl")
    data = sheet_with(b"\0" * 2_000_000)
    assert len(data) < 20_000
    Path("rates.xlsx").write_bytes(data)
    monkeypatch.setattr("unmix.data.workbook.MOST_BYTES", 1_000_000)
    assert "rates.xlsx unpacks to 2,0" in refused(*DIAGNOSE[:-1], "rates.xlsx")
    monkeypatch.undo()


def test_a_pipe_called_a_workbook_is_not_waited_for():
    pytest.importorskip("openpyxl")
    os.mkfifo("pipe.xlsx")
    assert "it is a pipe or a device" in refused(*DIAGNOSE[:-1], "pipe.xlsx")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("diagnose", "", *DIAGNOSE[2:]), "the name of a file or a folder is empty"),
        ((*DIAGNOSE[:-1], " "), "the name of a file or a folder is empty"),
        (("predict", "", "rows.csv", "-o", "s.csv"), "the name of a file or a folder is empty"),
        (("predict", "m", "rows.csv", "-o", ""), "the name of a file or a folder is empty"),
        (("diagnose", "/", *DIAGNOSE[2:]), "/ is a whole disk; name the folder with the tables"),
        (("diagnose", "loop.csv", *DIAGNOSE[2:]), "a link that leads back to itself"),
        (("diagnose", "http://x.org/a.csv", *DIAGNOSE[2:]), "download the file and name the copy"),
        (("predict", "m", "rows.csv", "-o", "s.csv", "--share", "x"), "--share is about the table"),
        (("prevalence", "m", "rows.csv", "--by", "age", "--rates-are", "exact"), "--rates-are is"),
        (("prevalence", "m", "rows.csv", "--by", "age", "--class", "a"), "--class is about the"),
        (("diagnose", "empty.parquet", *DIAGNOSE[2:]), "has no column 'region'; it has none"),
    ],
)
def test_what_is_named_wrongly_is_told_by_its_own_name(args, words):
    os.symlink("loop.csv", "loop.csv")
    pd.DataFrame(index=range(3)).to_parquet("empty.parquet")
    assert words in refused(*args)


@pytest.mark.parametrize("path", ["s3://bucket/scores.csv", "file:///tmp/scores.csv"])
def test_results_are_not_written_to_a_folder_called_like_an_address(path):
    with pytest.raises(ValueError, match="are written to folders of this machine"):
        atomic_write_text(path, "scores")
