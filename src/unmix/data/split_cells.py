"""Columns of rates whose cells hold two numbers, as two columns: ``31/310``, ``12.3 (0.8)``.

So tables are written for people: a count of a total, a standard error or a percentage in brackets
behind a number, both ends of an interval in one cell. What the columns mean together is none of
this file's business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from unmix.data.rate_cells import is_suppressed
from unmix.data.rate_names import plain_name, says_percent
from unmix.data.rate_table import RateOptions
from unmix.data.wording import listed
from unmix.errors import InputError

__all__ = ["split_cells"]

_NUMBER = r"[+-]?(?:\d[\d.,]*)?\d\s*%?"
_FRACTION = re.compile(rf"^({_NUMBER})\s*(?:/|of|out of)\s*({_NUMBER})$")
_BRACKET = re.compile(rf"^({_NUMBER})\s*[(\[]\s*({_NUMBER})\s*[)\]]$")
_ENDS = re.compile(rf"^[(\[]?\s*({_NUMBER})\s*(?:-|\u2013|\u2014|to|,\s|;)\s*({_NUMBER})\s*[)\]]?$")
_INTERVAL = re.compile(r"(^|_)(ci|ic|ki|interval|intervall|limits)(_|$)")
_ERROR = re.compile(
    r"\s*[(\[,;]\s*(?:se|s\.\s?e\.|std\.? ?err(?:or)?|standard error)\s*[)\]]?\s*$", re.IGNORECASE
)

Columns = dict[str, Any]


def split_cells(columns: Mapping[str, Any], options: RateOptions) -> tuple[Columns, RateOptions]:
    """
    Return the columns, two where cells hold two numbers, and what is known of them.

    Parameters
    ----------
    columns
        Name -> string array (m,).
    options
        What the user said of the columns.

    Raises
    ------
    InputError
        Several columns hold counts of totals, and nobody said which one is meant.

    Examples
    --------
    >>> columns = {"positive": pa.array(["12/310", "7/190"])}
    >>> split, options = split_cells(columns, RateOptions())
    >>> options.positives, split[options.positives].to_pylist()
    ('positive, first number', ['12', '7'])
    """
    found: Columns = {}
    fractions: dict[str, Columns] = {}
    for name, cells in columns.items():
        counts = _counts_of_totals(name, cells)
        if counts:
            fractions[name] = counts
        parts = counts or _in_brackets(name, cells) or _both_ends(name, cells) or {name: cells}
        if options.share == name:
            options = replace(options, share=next(iter(parts)))
        found.update(parts)
    asked = {options.positives, options.share}
    meant = [name for name in fractions if name in asked or asked & set(fractions[name])]
    if not meant and not any((options.classes, options.share, options.positives)):
        meant = list(fractions)
    if len(meant) > 1:
        raise InputError(
            f"several columns hold counts of totals: {listed(meant)}; say which one with "
            "--positives NAME."
        )
    if meant:
        part, whole = fractions[meant[0]]
        options = replace(options, share=None, positives=part, total=whole)
    return found, options


def _counts_of_totals(name: str, cells: Any) -> Columns:
    """Split ``31/310`` and ``31 of 310``."""
    parts = _parts(cells, _FRACTION)
    return _named(parts, (f"{name}, first number", f"{name}, second number"))


def _in_brackets(name: str, cells: Any) -> Columns:
    """Split ``12.3 (0.8)`` under a name such as 'rate (SE)'; keep 10.0% of ``31 (10.0%)``."""
    parts = _parts(cells, _BRACKET)
    if parts and _ERROR.search(name):
        bare = _ERROR.sub("", name)
        return _named(parts, (bare, f"{bare} (SE)"))
    behind = [b for _, b in parts if b is not None]
    if not behind or any("%" in (a or "") for a, _ in parts):
        return {}
    if not says_percent(name) and not all("%" in b for b in behind):
        return {}
    percent = [None if b is None else b.rstrip("% ") + "%" for _, b in parts]
    return {f"{name} in brackets": pa.array(percent, pa.string())}


def _both_ends(name: str, cells: Any) -> Columns:
    """Split ``10.1 - 14.5`` under a name such as '95% CI'."""
    if not _INTERVAL.search(plain_name(name)):
        return {}
    return _named(_parts(cells, _ENDS), (f"{name} lower", f"{name} upper"))


def _parts(cells: Any, pattern: re.Pattern[str]) -> list[tuple[str | None, str | None]]:
    """Return both numbers of every cell, or nothing if a cell holds something else."""
    found: list[tuple[str | None, str | None]] = []
    for cell in cells.to_pylist():
        bare = "" if cell is None else cell.strip()
        pair = pattern.match(bare)
        if pair is None and not is_suppressed(bare):
            return []
        found.append((None, None) if pair is None else (pair[1], pair[2]))
    return found if any(one is not None for one, _ in found) else []


def _named(parts: list[tuple[str | None, str | None]], names: tuple[str, str]) -> Columns:
    """Return two columns, or none of no parts."""
    if not parts:
        return {}
    both = zip(*parts, strict=True)
    return {
        name: pa.array(list(cells), pa.string()) for name, cells in zip(names, both, strict=True)
    }
