"""A web service that scores rows with a saved model, in FastAPI.

    pip install fastapi uvicorn
    UNMIX_MODEL=model uvicorn serve:app

    curl localhost:8000/score -H 'content-type: application/json' \\
      -d '{"rows": [{"age": 71, "visits": 4, "code": "007"}]}'
"""

import copy
import os
from functools import lru_cache

import pandas as pd
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

from unmix import InputError, UnmixClassifier

app = FastAPI(title="unmix")


class Request(BaseModel):
    """Rows by column, and the base rate where they come from; null or left out: missing."""

    rows: list[dict[str, float | bool | str | None]] = Field(min_length=1, max_length=10_000)
    target_prior: float | None = Field(default=None, gt=0, lt=1)


@lru_cache(maxsize=1)
def model():
    return UnmixClassifier.load(os.environ["UNMIX_MODEL"])


@app.get("/model")
def about():
    clf = model()
    return {
        "columns": clf.encoder_.columns,
        "classes": clf.classes_.tolist(),
        "target_prior": clf.target_prior_.tolist(),
    }


@app.post("/score")
def score(request: Request):
    clf = copy.copy(model())  # requests run side by side, each at its own base rate
    rows = pd.DataFrame(request.rows)
    absent = [name for name in clf.encoder_.columns if name not in rows]
    if absent:
        raise HTTPException(422, f"no row has the columns {absent}; send null where unknown")
    try:
        if request.target_prior is not None:
            clf.retarget(request.target_prior)
        probability = clf.predict_proba(rows[clf.encoder_.columns])
        drift = clf.drift(rows[clf.encoder_.columns])
    except InputError as mistake:
        raise HTTPException(422, str(mistake)) from None
    return {
        "classes": clf.classes_.tolist(),
        "probabilities": probability.tolist(),
        "predictions": clf.classes_[probability.argmax(axis=1)].tolist(),
        "drift": drift.sentences if drift else [],
    }
