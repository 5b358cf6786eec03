"""Runs as text: the key of a cell, and the lines of an export. Touches no file."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from unmix.errors import InputError
from unmix.studies.cell import Cell

__all__ = ["EXPORTED", "cell_key", "cell_of", "compact", "line_of", "row_of"]

# Columns of an export; who ran a cell, and when it was claimed, is of no use elsewhere.
EXPORTED = (
    "cell",
    "state",
    "finished_at",
    "code",
    "seconds",
    "with_replacement",
    "result",
    "error",
)
DIGITS = 6  # significant, in an export
LARGEST = 2**53


def cell_key(cell: Cell) -> str:
    """Return the text that identifies a run.

    Fields at their defaults are left out, so that a field added later changes no key.

    Examples
    --------
    >>> cell_key(Cell("digits", seed=1, epochs=2))
    '{"dataset":"digits","epochs":2,"seed":1}'
    """
    changed = {f.name: getattr(cell, f.name) for f in fields(cell)}
    defaults = {f.name: f.default for f in fields(cell)}
    return compact({k: v for k, v in changed.items() if v != defaults[k]})


def cell_of(changed: dict[str, Any], where: str) -> Cell:
    """Return the cell with these fields."""
    try:
        return Cell(**changed)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except TypeError as error:
        raise InputError(
            f"{where} holds a run this version does not know ({error}); "
            "update unmix, or take another store or export"
        ) from None


def line_of(row: dict[str, Any]) -> str:
    """Return a row of the store as a line of an export, without the line end."""
    row = row | {"cell": json.loads(row["cell"])}
    if row["result"] is not None:
        result = json.loads(row["result"])
        row["result"] = result | {"history": _columns(result["history"])}
    known = {k: v for k, v in row.items() if v is not None}
    return compact(_rounded(known) | {"cell": known["cell"]})


def row_of(line: str, where: str) -> dict[str, Any]:
    """Return a line of an export as a row of the store; `where` names the line in errors."""
    try:
        row: dict[str, Any] = json.loads(line)
        changed, state, result = row["cell"], row["state"], row.get("result")
        if (state, result is None) not in (("done", False), ("failed", True)):
            raise ValueError("state and result do not agree")
        if result is not None:
            if not result["history"] or not 0 <= result["test_error"] <= 1:
                raise ValueError("it has no error or no epochs")
            row["result"] = compact(result | {"history": _history(result["history"])})
        for name in ("finished_at", "code", "error"):
            if not isinstance(row.get(name, ""), str):
                raise ValueError(f"its {name} is no text")
        for name, kinds in (("seconds", int | float), ("with_replacement", int)):
            number = row.get(name, 0)
            if not isinstance(number, kinds) or not 0 <= number < LARGEST:
                raise ValueError(f"its {name} is no number of this kind")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{where} is no exported run ({error}); export it again") from None
    return row | {"cell": cell_key(cell_of(changed, where))}


def compact(value: Any) -> str:
    """Return JSON without spaces, keys sorted."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _columns(history: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return a history as one list per metric: half as long as text."""
    names = dict.fromkeys(name for epoch in history for name in epoch)
    return {name: [epoch.get(name) for epoch in history] for name in names}


def _history(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Return a history as one dict per epoch."""
    epochs = zip(*columns.values(), strict=True)
    return [
        {k: v for k, v in zip(columns, epoch, strict=True) if v is not None} for epoch in epochs
    ]


def _rounded(value: Any) -> Any:
    """Round the floats in lists and dicts."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value
