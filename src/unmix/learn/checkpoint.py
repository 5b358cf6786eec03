"""Checkpoints of a training run: two slots written in turn, each with its own digest.

A slot is SHA-256, then safetensors with a JSON text inside. Whatever moment the process is
killed at, one valid slot remains. Knows nothing of models: it stores named tensors and JSON.
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
    """A folder with the last two states of one run.

    Parameters
    ----------
    folder : path
    run : dict
        What identifies the run. A folder that holds another run is refused, not overwritten.
    """

    def __init__(self, folder: str | Path, run: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self.run = json.loads(json.dumps(run))  # as it will read back
        self.slots = [self.folder / "checkpoint-0", self.folder / "checkpoint-1"]
        self.turn = 0

    def part(self, name: str) -> Checkpoint:
        """Return the checkpoint of one stage of the run, in a folder inside this one."""
        return Checkpoint(self.folder / name.replace(" ", "-"), self.run | {"stage": name})

    def save(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write the older slot anew."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.turn += 1
        text = json.dumps({"run": self.run, "turn": self.turn, "state": state})
        payload = save(tensors, metadata={"unmix": text})
        digest = hashlib.sha256(payload).hexdigest().encode()
        atomic_write_bytes(self.slots[self.turn % 2], digest + payload)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the newest valid state, or None where there is none."""
        found = [slot for slot in map(_read, self.slots) if slot is not None]
        if not found:
            return None
        tensors, text = max(found, key=lambda slot: int(slot[1]["turn"]))
        for key in sorted(set(self.run) | set(text["run"])):
            there, here = text["run"].get(key), self.run.get(key)
            if there != here:
                raise InputError(
                    f"{self.folder} holds another run ({key} is {there!r} there, {here!r} here); "
                    "choose another folder or delete it"
                )
        self.turn = int(text["turn"])
        return tensors, text["state"]


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return a slot's tensors and JSON, or None if it is missing or damaged."""
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
