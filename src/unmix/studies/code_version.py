"""Which code made a run: a digest of the modules that decide its result."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from unmix.plugins import loaded_files

__all__ = ["CODE", "code_version"]

# What decides the result of a run, beside the cell and torch.
CODE = {
    "core": (
        "class_shares",
        "count_recursion",
        "counts",
        "losses",
        "pairing",
        "penalties",
        "risks",
        "row_losses",
        "set_risks",
        "share_precision",
        "stated_counts",
        "sums_by_set",
        "transition",
    ),
    "data": ("batching", "benchmark_files", "benchmarks", "draw", "formats", "sets"),
    "learn": (
        "augment",
        "chosen_strength",
        "fast_ops",
        "gradients",
        "methods",
        "network_models",
        "networks",
        "penalising",
        "penalty_options",
        "prior_check",
        "recipes",
        "refined_priors",
        "training",
        "training_state",
    ),
    "assess": ("class_rates", "labeled"),
    "studies": ("cell",),
}


def code_version() -> str:
    """Return the versions of unmix and torch, and a digest of the code that decides results.

    Files of the user's own that were loaded (`unmix --load`) stand beside it with theirs.
    """
    own = "".join(f" + {path.name} {digest}" for path, digest in loaded_files())
    return f"unmix {version('unmix')} {_digest()}{own}, torch {version('torch')}"


@cache
def _digest() -> str:
    """Return the digest of our own code, as it was when it was first asked for."""
    digest = hashlib.sha256()
    root = Path(str(files("unmix")))
    for room, modules in CODE.items():
        for module in modules:
            digest.update(
                f"{room}/{module}\0".encode() + (root / room / f"{module}.py").read_bytes()
            )
    return digest.hexdigest()[:12]
