"""The checkpoint of a training run: one file, replaced in one step, with its own digest.

The file is SHA-256, then safetensors with a JSON text inside. Whatever moment the process is
killed at, the file is the last state that was written whole. Knows nothing of models: it stores
named tensors and JSON.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from unmix.errors import InputError
from unmix.files import atomic_write_bytes

__all__ = ["Checkpoint"]

DIGEST = 64  # hexadecimal characters of SHA-256


class Checkpoint:
    """A folder with the last state of one run.

    Parameters
    ----------
    folder : path
    run : dict
        What identifies the run. A folder that holds another run is refused, not overwritten.
    """

    def __init__(self, folder: str | Path, run: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self.run = json.loads(json.dumps(run))  # as it will read back
        self.file = self.folder / "checkpoint"

    def part(self, name: str) -> Checkpoint:
        """Return the checkpoint of one stage of the run, in a folder inside this one."""
        return Checkpoint(self.folder / name.replace(" ", "-"), self.run | {"stage": name})

    def save(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Put a state in the place of the last one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"run": self.run, "state": state})
        payload = save(tensors, metadata={"unmix": text})
        digest = hashlib.sha256(payload).hexdigest().encode()
        atomic_write_bytes(self.file, digest + payload)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the last state, or None where there is none or the file is damaged."""
        found = _read(self.file)
        if found is None:
            return None
        tensors, text = found
        for key in sorted(set(self.run) | set(text["run"])):
            there, here = text["run"].get(key), self.run.get(key)
            if there != here:
                raise InputError(
                    f"{self.folder} holds another run ({key} is {there!r} there, {here!r} here); "
                    "choose another folder or delete it"
                )
        return tensors, text["state"]


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return a file's tensors and JSON, or None if it is missing or damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    payload = data[DIGEST:]
    if hashlib.sha256(payload).hexdigest().encode() != data[:DIGEST]:
        return None
    try:
        length = int.from_bytes(payload[:8], "little")
        header = json.loads(payload[8 : 8 + length])
        return load(payload), json.loads(header["__metadata__"]["unmix"])
    except (SafetensorError, ValueError, KeyError):
        return None
