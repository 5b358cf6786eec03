"""One CSV file as a stream of Arrow batches with fixed column types.

Reads UTF-8, with or without a byte order mark, with commas or (if the header then has more than
one column) semicolons, tabs or bars between the values, quotes around values, and line breaks
inside quotes. Blank lines are skipped. Column types come from the whole file, which costs one more
pass over it. Knows nothing of sets or pandas; what a cell means is in `column_types`.
"""

import csv
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv

from unmix.data.addresses import opened_binary, opened_text, suffixes
from unmix.data.column_types import ColumnKind, first_unreadable, parse_text, with_points
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.files import explained_os_errors

__all__ = ["DELIMITERS", "CsvTable", "csv_records", "open_csv", "refuse_other_formats"]

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
INDEX = "Unnamed: 0"  # as pandas calls the index of a frame that was saved with it
_BLOCK_BYTES = 1 << 20  # a few blocks are in memory at a time
_DECIMAL_CURE = "write numbers with a point (0.35) and without thousands separators"


# How files begin that people rename to .csv, what they are, and what to do.
_UNPACK, _AS_CSV = "unpack it first", "save its table as CSV in UTF-8"
_NO_TEXT = {
    b"PAR1": ("a Parquet file", "give it a name that ends in .parquet"),
    b"PK\x03\x04": ("a workbook or a zip file", _AS_CSV),
    b"\xd0\xcf\x11\xe0": ("a workbook of an old Excel", _AS_CSV),
    b"\x1f\x8b": ("compressed", _UNPACK),
    b"BZh": ("compressed by bzip2", _UNPACK),
    b"\xfd7zXZ\0": ("compressed by xz", _UNPACK),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", _UNPACK),
    b"7z\xbc\xaf": ("compressed by 7-Zip", _UNPACK),
    b"\x89PNG": ("a PNG image", _AS_CSV),
    b"\xff\xd8\xff": ("a JPEG image", _AS_CSV),
    b"%PDF-": ("a PDF document", _AS_CSV),
    b"SQLite format 3\0": ("an SQLite database", _AS_CSV),
    b"ARROW1": ("an Arrow file", "save its table as Parquet or CSV"),
    b"\x93NUMPY": ("an array of NumPy", _AS_CSV),
}


@dataclass(frozen=True)
class CsvTable:
    """A CSV file whose header has been read. Made by `open_csv`."""

    path: str
    columns: tuple[str, ...]
    delimiter: str
    unnamed: bool = False
    """Whether the first column has no name in the file: it is `INDEX` here."""

    @property
    def files(self) -> tuple[str, ...]:
        """Where the rows lie."""
        return (self.path,)

    @property
    def num_rows(self) -> int | None:
        """Nobody knows how many rows there are before they are read."""
        return None

    def infer_types(self, columns: Sequence[str]) -> dict[str, Any]:
        """
        Return the Arrow type of each column, from all rows.

        Raises
        ------
        InputError
            The file cannot be parsed, has no rows, or has numbers with decimal commas.
        """
        kinds = {name: ColumnKind() for name in columns}
        rows = 0
        for block in self._text_blocks(columns):
            rows += block.num_rows
            for name, kind in kinds.items():
                kind.see(block[name])
        if not rows:
            raise InputError(f"{self.path} has columns but no rows.")
        types = {name: kind.type() for name, kind in kinds.items()}
        for name, kind in kinds.items():
            if self.delimiter == ";" and kind.decimal_commas_only:  # as half of Europe writes
                types[name] = pa.float64()
            elif kind.decimal_comma() is not None:
                raise InputError(
                    f"column {name!r} of {self.path} has numbers with a comma, such as "
                    f"{kind.decimal_comma()!r}; {_DECIMAL_CURE}."
                )
        return types

    def batches(self, types: Mapping[str, Any]) -> Iterator[Any]:
        """
        Yield record batches with the columns of ``types``, in that order and of those types.

        Raises
        ------
        InputError
            The file cannot be parsed or a cell does not fit its type.
        """
        row = 0
        for block in self._text_blocks(tuple(types)):
            arrays = []
            for name, type_ in types.items():
                try:
                    arrays.append(self._parsed(block[name], type_))
                except pa.ArrowInvalid:
                    position = first_unreadable(block[name], type_)
                    raise InputError(
                        f"column {name!r} of {self.path} has {block[name][position].as_py()!r} on "
                        f"{self.where(row + position)}, which cannot be read as {type_}; correct "
                        "it, or leave the cell empty if the value is missing."
                    ) from None
            row += block.num_rows
            yield pa.RecordBatch.from_arrays(arrays, names=list(types))

    def _parsed(self, text: Any, type_: Any) -> Any:
        """Return cells as a type; decimal commas are numbers where semicolons separate values."""
        try:
            return parse_text(text, type_)
        except pa.ArrowInvalid:
            if self.delimiter != ";" or not pa.types.is_floating(type_):
                raise
            return parse_text(with_points(text), type_)

    def where(self, row: int) -> str:
        """Return ``line 17``, where row ``row`` (from 0) starts. Reads the file up to there."""
        for number, (line, _, _) in enumerate(csv_records(self.path, self.delimiter)):
            if number == row + 1:
                return f"line {line}"
        raise IndexError(row)

    def _text_blocks(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield record batches in which every cell of ``columns`` is text as written."""
        named = {INDEX: ""} if self.unnamed else {}
        written = [named.get(name, name) for name in columns]
        # A block must hold at least one line, and wide tables have long ones.
        block_bytes = max(_BLOCK_BYTES, 32 * sum(len(name.encode()) + 1 for name in self.columns))
        try:
            with (
                explained_os_errors(self.path, "read"),
                opened_binary(self.path) as stream,
                pyarrow.csv.open_csv(
                    stream,
                    pyarrow.csv.ReadOptions(block_size=block_bytes),
                    pyarrow.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                    pyarrow.csv.ConvertOptions(
                        column_types=dict.fromkeys(written, pa.string()),
                        include_columns=written,
                        strings_can_be_null=False,
                    ),
                ) as reader,
            ):
                for block in reader:
                    yield block.rename_columns(list(columns)) if self.unnamed else block
        except pa.ArrowInvalid as error:
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> InputError:
        """Find the line that Arrow stumbled over."""
        try:
            records = 0
            for first, last, values in csv_records(self.path, self.delimiter, strict=True):
                records += 1
                if len(values) == len(self.columns):
                    continue
                found = f"{len(values)} values where the header has {len(self.columns)}"
                if last > first:
                    return InputError(
                        f"lines {first} to {last} of {self.path} are one row of {found}: "
                        f"close the quote that opens on line {first}."
                    )
                return InputError(
                    f"line {first} of {self.path} has {found}, separated by a "
                    f"{DELIMITERS[self.delimiter]}; put a value that contains one in quotes."
                )
        except InputError as explained:
            return explained
        except UnicodeDecodeError:
            return _wrong_encoding(self.path)
        if records == 1:  # without an end of line Arrow does not take it for a header
            return InputError(f"{self.path} has columns but no rows.")
        return InputError(f"{self.path} cannot be read as CSV: {str(error).splitlines()[0]}.")


def open_csv(path: str | os.PathLike[str]) -> CsvTable:
    """
    Read the header of a CSV file and find out what separates its values.

    Raises
    ------
    InputError
        The file is empty, not UTF-8 text, or its header is no list of different names.
    """
    path = os.fspath(path)
    try:
        with explained_os_errors(path, "read"):
            _refuse_separator_line(path, refuse_other_formats(path))
            delimiter, names = _delimiter_and_header(path)
    except UnicodeDecodeError:
        raise _wrong_encoding(path) from None
    if len(names) == 1 and len(re.split(r"\s{2,}|\|", names[0].strip())) > 1:
        raise InputError(
            f"{path} has one column named {names[0].strip()!r}; separate values by commas, "
            "semicolons or tabs."
        )
    unnamed = len(names) > 1 and not names[0]
    if unnamed:
        names[0] = INDEX
    if delimiter == "|" and unnamed and not names[-1].strip():
        raise InputError(f"{path} is a table in Markdown; save it as CSV.")
    for position, name in enumerate(names, start=1):
        if not name.strip():
            raise InputError(f"column {position} of {path} has no name; name it or remove it.")
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise InputError(f"{path} has several columns named {listed(doubled)}; rename all but one.")
    return CsvTable(path, tuple(names), delimiter, unnamed)


def refuse_other_formats(path: str) -> bytes:
    """Name the formats that people rename to .csv, and the encoding that spreadsheets choose.

    Returns
    -------
    bytes
        How a file that is text begins.
    """
    with opened_binary(path) as file:
        head = bytes(file.read(4096))
    if not head.strip():
        raise InputError(f"{path} is empty.")
    for start, (kind, cure) in _NO_TEXT.items():
        if head.startswith(start):
            raise InputError(f"{path} is {kind}; {cure}.")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or _every_other_is_zero(head):
        raise InputError(
            f"{path} is not UTF-8 but looks like UTF-16; save it as UTF-8 or convert it with: "
            f"iconv -f UTF-16 -t UTF-8."
        )
    if b"\0" in head:
        raise InputError(f"{path} holds bytes that no text has; save its table as CSV in UTF-8.")
    return head


def _refuse_separator_line(path: str, head: bytes) -> None:
    """Name a first line that tells a spreadsheet what separates values."""
    first = head[:16].splitlines()[0]
    if re.fullmatch(rb'(\xef\xbb\xbf)?"?sep=.?"?\s*', first, re.IGNORECASE):
        raise InputError(f"line 1 of {path} is meant for a spreadsheet (sep=...); remove it.")


def _every_other_is_zero(head: bytes) -> bool:
    """Say whether bytes are those of mostly Latin letters in UTF-16."""
    zeros = [half.count(0) / max(len(half), 1) for half in (head[::2], head[1::2])]
    return max(zeros) > 0.3 and min(zeros) < 0.05


def _wrong_encoding(path: str) -> InputError:
    """Name the first line that is not UTF-8."""
    with opened_binary(path) as file:
        for number, line in enumerate(_lines(file), start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return InputError(
                    f"line {number} of {path} is not UTF-8 (byte 0x{line[error.start]:02x}), "
                    "probably Latin-1; save it as UTF-8 or convert it with: "
                    "iconv -f LATIN1 -t UTF-8."
                )
    raise RuntimeError("every line is UTF-8")


def _lines(file: Any) -> Iterator[bytes]:
    """Yield the lines of a file of bytes, whatever opened it."""
    rest = b""
    while block := bytes(file.read(1 << 20)):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    yield rest


def _delimiter_and_header(path: str) -> tuple[str, list[str]]:
    """Return the comma (the tab for .tsv), unless only another one makes several columns.

    And the names of the columns.
    """
    usual = "\t" if suffixes(path)[0] == ".tsv" else ","
    headers: dict[str, list[str]] = {}
    refused = None
    for delimiter in dict.fromkeys((usual, *DELIMITERS)):
        try:
            headers[delimiter] = _header(path, delimiter)
        except InputError as error:  # by the wrong delimiter a long header is one endless value
            refused = refused or error
            continue
        if delimiter == usual and len(headers[usual]) > 1:
            break
    widest = max(headers, key=lambda delimiter: len(headers[delimiter]), default=usual)
    if refused is not None and len(headers.get(widest, ())) < 2:
        raise refused
    return widest, headers[widest]


def _header(path: str, delimiter: str) -> list[str]:
    """Return the values of the first line that is not blank."""
    for _, _, values in csv_records(path, delimiter):
        return values
    raise InputError(f"{path} is empty.")


def csv_records(
    path: str, delimiter: str, encoding: str = "utf-8-sig", *, strict: bool = False
) -> Iterator[tuple[int, int, list[str]]]:
    """Yield first line, last line and values of each record, slowly but with line numbers.

    `strict` refuses a quote that is never closed, and text after one that is.
    """
    line = 1
    with opened_text(path, encoding) as file:
        reader = csv.reader(file, delimiter=delimiter, strict=strict)
        try:
            for values in reader:
                if values:
                    yield line, reader.line_num, values
                line = reader.line_num + 1
        except csv.Error as error:
            if "limit" in str(error):
                problem = (
                    f"a value on line {line} of {path} has more than {csv.field_size_limit():,} "
                    "characters; close the quote before it, or shorten it"
                )
            elif "expected after" in str(error):
                problem = (
                    f"on line {line} of {path} text follows a closed quote; write a quote inside "
                    "a value twice"
                )
            else:
                problem = f"{path} ends inside a value: close the quote that opens on line {line}"
            raise InputError(f"{problem}.") from None
