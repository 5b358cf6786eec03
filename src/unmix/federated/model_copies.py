"""Copies of the fitted model for the parties: the server gives the files, a party checks them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from unmix.errors import InputError
from unmix.federated.replies import Conversation
from unmix.learn.estimator import SetClassifier

__all__ = ["give_model", "write_given"]

FILES = ("manifest.json", "model.json", "weights.safetensors")
"""What a linear model is made of; its report and card stay with the server."""


def give_model(conversation: Conversation, folder: Path) -> None:
    """Send the model in a folder to all parties."""
    contents = {name: np.frombuffer((folder / name).read_bytes(), np.uint8) for name in FILES}
    conversation.ask("model", {}, contents, {})


def write_given(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the model that a party was given into an empty folder, and see that it is one."""
    if set(files) != set(FILES):
        raise InputError(
            "the server gave no model; ask whoever runs it for a copy (serve --give-model)"
        )
    for name in FILES:
        (folder / name).write_bytes(files[name])
    SetClassifier.load(folder)
