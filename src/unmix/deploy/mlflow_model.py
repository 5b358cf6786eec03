"""A saved model as a pyfunc of MLflow: MLflow keeps the folder, unmix reads it. Never pickle.

Needs mlflow or mlflow-skinny, of any size; the version of unmix goes with the model.
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmix.optional import optional_module

if TYPE_CHECKING:
    import pandas as pd

    from unmix.learn.estimator import SetClassifier

__all__ = ["ScoredRows", "log_model", "save_model"]


class ScoredRows:
    """What `mlflow.pyfunc.load_model` returns inside: rows in, the columns of `unmix predict` out.

    Parameters
    ----------
    clf : UnmixClassifier
    """

    def __init__(self, clf: SetClassifier) -> None:
        self.clf = clf

    def predict(self, rows: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the probability and the class of each row, with the index of the rows.

        Parameters
        ----------
        rows : DataFrame
            With the columns of training; others are left alone.
        params : ignored
            Here for MLflow.
        """
        from unmix.learn.models import score_columns

        probability = self.clf.predict_proba(rows[self.clf.encoder_.columns])
        return score_columns(rows[[]], probability, self.clf.classes_)


def save_model(clf: SetClassifier, path: str | Path, **options: Any) -> None:
    """Write a fitted classifier of a table as an MLflow model to a folder.

    Parameters
    ----------
    clf : UnmixClassifier
    path : path
        A folder that is not there.
    **options
        Passed to `mlflow.pyfunc.save_model`: signature, input_example, pip_requirements, ...
    """
    pyfunc = optional_module("mlflow.pyfunc", "mlflow")
    with tempfile.TemporaryDirectory() as folder:
        pyfunc.save_model(path, **_described(clf, folder, options))


def log_model(clf: SetClassifier, name: str, **options: Any) -> Any:
    """Log a fitted classifier of a table to the active run of MLflow and return what MLflow says.

    Parameters
    ----------
    clf : UnmixClassifier
    name : str
        Of the model in the run.
    **options
        Passed to `mlflow.pyfunc.log_model`: registered_model_name, signature, ...
    """
    pyfunc = optional_module("mlflow.pyfunc", "mlflow")
    with tempfile.TemporaryDirectory() as folder:
        return pyfunc.log_model(name=name, **_described(clf, folder, options))


def _described(clf: SetClassifier, folder: str, options: dict[str, Any]) -> dict[str, Any]:
    """Save the model into a folder, and return what MLflow needs to know of it."""
    clf.save(Path(folder) / "model")
    # Said here, for otherwise MLflow would load the model to find it out.
    stated = {"pip_requirements": [f"unmix=={version('unmix')}"]}
    return stated | options | {"loader_module": __name__, "data_path": str(Path(folder) / "model")}


def _load_pyfunc(path: str) -> ScoredRows:
    """Read the folder; MLflow calls this by name."""
    from unmix.learn.estimator import SetClassifier

    return ScoredRows(SetClassifier.load(path))
