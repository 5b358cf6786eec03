"""Writes tests/golden: run once for each version of the format, never to mend a test."""

import json

from test_saved import GOLDEN, fitted

for model in ("linear", "boosting", "mlp"):
    clf, x = fitted(model)
    clf.save(GOLDEN / model, overwrite=True)
    rows = x.iloc[::40]
    record = {"rows": rows.to_dict("list"), "logits": clf.decision_function(rows).tolist()}
    (GOLDEN / f"{model}.json").write_text(json.dumps(record))
