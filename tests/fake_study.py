"""Results of runs that never were: plausible curves made up from a formula, for tests only."""

from dataclasses import asdict
from zlib import crc32

import numpy as np

from unmix.studies.grid import STUDIES

FLOOR = {"mnist": 1.0, "fashion-mnist": 4.0, "kmnist": 3.9, "cifar10": 5.0}
FACTOR = {
    "mmc-u2-b": 3.4,
    "mmc-u2": 2.9,
    "mmc-u2-c": 1.9,
    "llp-vat": 3.0,
    "ssc": 1.6,
    "ssc-vat": 1.25,
    "ssc-consistency": 1.2,
    "supervised": 1.0,
}


def fake_result(cell, code="unmix 0.0.0 fake"):
    """Return what a run of the cell might have returned."""
    rng = np.random.default_rng(crc32(repr(cell).encode()))
    epochs = np.arange(1, cell.resolve_recipe().epochs + 1)
    last = FLOOR[cell.dataset] * FACTOR[cell.method] * (1 + 0.04 * rng.normal())
    last += 25 * cell.prior_noise**2 * FLOOR[cell.dataset] * (cell.prior_error == 0)
    overfits = 0.03 * np.maximum(epochs - 6, 0) * (cell.method in ("mmc-u2", "mmc-u2-b"))
    errors = last * (1 + 6 * np.exp(-epochs / 1.7) + overfits) + 0.02 * rng.normal(size=len(epochs))
    if cell.method in ("mmc-u2", "mmc-u2-b"):
        risks = 0.6 - 0.02 * epochs**2.5 * (1 + 0.05 * rng.random())
    elif cell.method.startswith("ssc"):
        risks = np.log(cell.num_sets) - 0.05 - 0.1 * np.log(epochs)
    else:
        risks = 0.3 + 0.4 / epochs
    held_out = 2 + 0.01 * errors
    selected = int(held_out.argmin()) + 1
    history = [
        {"epoch": int(e), "train_risk": float(r), "held_out_loss": float(h), "test_error": t / 100}
        for e, r, h, t in zip(epochs, risks, held_out, errors.tolist(), strict=True)
    ]
    result = asdict(cell) | {
        "epochs": len(epochs),
        "test_error": history[-1]["test_error"],
        "history": history,
        "seconds": 60.0,
        "selected_epoch": selected,
        "selected_test_error": history[selected - 1]["test_error"],
        "worth_in_labels": 12000.0,
        "num_rows": 54000,
        "with_replacement": int(cell.dataset == "fashion-mnist" and cell.num_sets == 2),
        "code_version": code,
    }
    if cell.method == "supervised":
        result["num_sets"] = 2
    if cell.method == "ssc" and cell.prior_error is None and cell.recipe == "fast":
        result["noticed_error"] = cell.prior_noise
    if cell.method == "ssc-vat" and cell.strength is None:
        result["chosen"] = {
            "strength": 3.0,
            "candidates": [
                {"strength": 0.0, "epoch": 8, "calibrated_loss": 2.2, "test_error": 0.0345},
                {"strength": 3.0, "epoch": 8, "calibrated_loss": 2.1, "test_error": 0.0234},
                {"strength": 6.0, "epoch": 8, "calibrated_loss": 2.3, "test_error": 0.0123},
            ],
        }
    return result


def fake_results(names=STUDIES, **options):
    """Return fake runs of all cells of the named studies and of the supervised reference."""
    rows = [row for name in {*names, "supervised"} for row in STUDIES[name].cells(**options)]
    return {row.cell: fake_result(row.cell) for row in rows}
