"""Models behind MLflow and behind a web service, both run for real."""

import asyncio
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest

from exported_models import fitted, table
from unmix import UnmixClassifier

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serving") / "model"
    fitted("boosting").save(folder)
    return folder


class Client:
    """Sends requests to an application in this process."""

    def __init__(self, app):
        self.transport = httpx.ASGITransport(app)

    def request(self, *arguments, **options):
        async def answer():
            async with httpx.AsyncClient(
                transport=self.transport, base_url="http://test"
            ) as client:
                return await client.request(*arguments, **options)

        return asyncio.run(answer())

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, json):
        return self.request("POST", path, json=json)


@pytest.fixture
def client(saved, monkeypatch):
    monkeypatch.setenv("UNMIX_MODEL", str(saved))
    spec = importlib.util.spec_from_file_location("serve", ROOT / "examples/serve.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "serve", module)  # where pydantic looks types up
    spec.loader.exec_module(module)
    return Client(module.app)


def new_rows(count=40):
    return table(count, np.random.default_rng(9), training=False)[0]


def as_json(rows):
    cells = rows.astype(object).where(rows.notna(), None)
    return [{k: v for k, v in row.items()} for row in cells.to_dict("records")]


def test_the_service_says_what_the_classifier_says(client):
    rows = new_rows()
    answer = client.post("/score", json={"rows": as_json(rows)})
    assert answer.status_code == 200, answer.text
    clf = fitted("boosting")
    np.testing.assert_allclose(answer.json()["probabilities"], clf.predict_proba(rows), atol=1e-12)
    assert answer.json()["predictions"] == clf.predict(rows).tolist()
    assert client.get("/model").json()["target_prior"] == pytest.approx([0.8, 0.2])


def test_a_request_has_a_base_rate_of_its_own(client):
    rows = as_json(new_rows())
    first, rare, again = (
        client.post("/score", json={"rows": rows} | more).json()["probabilities"]
        for more in ({}, {"target_prior": 0.01}, {})
    )
    assert np.mean(rare, axis=0)[1] < np.mean(first, axis=0)[1] - 0.05
    assert again == first


def test_what_the_caller_got_wrong_is_said_in_one_line(client):
    rows = as_json(new_rows(2))
    for row in rows:
        del row["age"]
    answer = client.post("/score", json={"rows": rows})
    assert answer.status_code == 422
    assert "no row has the columns ['age']" in answer.json()["detail"]
    rows = as_json(new_rows(2))
    rows[0]["age"] = "old"
    answer = client.post("/score", json={"rows": rows})
    assert answer.status_code == 422
    assert "column 'age' held numbers in training" in answer.json()["detail"]
    assert client.post("/score", json={"rows": []}).status_code == 422


SCRIPT = """
import os, sys
import mlflow
import pandas as pd
from unmix import UnmixClassifier
from unmix.deploy.mlflow_model import log_model, save_model

clf = UnmixClassifier.load(sys.argv[1])
save_model(clf, "model")
mlflow.set_tracking_uri("file:" + os.path.abspath("runs"))
with mlflow.start_run():
    logged = log_model(clf, "scorer")
rows = pd.read_pickle("rows.pickle")  # of this test, not of the model
for n, place in enumerate(["model", logged.model_uri]):
    mlflow.pyfunc.load_model(place).predict(rows).to_pickle(f"scored{n}.pickle")
"""


def test_mlflow_keeps_the_folder_and_scores_as_the_classifier(saved, tmp_path):
    rows = new_rows().set_index(np.arange(100, 140))
    rows.to_pickle(tmp_path / "rows.pickle")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(saved)],
        cwd=tmp_path,
        # A run in files needs no database and no server.
        env=os.environ | {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    clf = UnmixClassifier.load(saved)
    for n in range(2):
        scored = pd.read_pickle(tmp_path / f"scored{n}.pickle")
        assert scored.columns.tolist() == ["probability", "prediction"]
        assert scored.index.tolist() == rows.index.tolist()
        np.testing.assert_allclose(scored["probability"], clf.predict_proba(rows)[:, 1], atol=1e-12)
        assert scored["prediction"].tolist() == clf.predict(rows).tolist()
    kept = {path.name for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert {"MLmodel", "manifest.json", "model.json", "trees.txt"} <= kept
    assert not [name for name in kept if name.endswith((".pkl", ".pickle", ".joblib"))]
    assert "unmix==" in (tmp_path / "model/requirements.txt").read_text()
