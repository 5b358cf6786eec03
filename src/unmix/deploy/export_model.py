"""A fitted classifier as a file that needs no unmix; the name of the file says which kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sklearn.utils.validation import check_is_fitted

from unmix.errors import InputError
from unmix.files import atomic_write_bytes

if TYPE_CHECKING:
    from unmix.learn.estimator import SetClassifier

__all__ = ["export_model"]


def export_model(
    clf: SetClassifier,
    path: str | Path,
    *,
    table: str = "rows",
    keep: Sequence[str] = (),
    dialect: str = "duckdb",
) -> Path:
    """Write a model as ONNX or SQL, all of the file or nothing.

    Parameters
    ----------
    clf : UnmixClassifier
    path : path
        Ends in .onnx or .sql.
    table, keep, dialect
        As for `sql_query`.
    """
    check_is_fitted(clf)
    file = Path(path)
    kind = file.suffix.lower()
    if kind == ".onnx":
        from unmix.deploy.onnx_model import onnx_model

        content = onnx_model(clf)
    elif kind == ".sql":
        from unmix.deploy.sql_query import sql_query

        content = sql_query(clf, table=table, keep=keep, dialect=dialect).encode()
    else:
        raise InputError(f"{path} must end in .onnx or .sql, which says what to write")
    atomic_write_bytes(file, content)
    return file
