"""Messages between the server and the parties: a kind, a round, some JSON and some arrays.

One form for everything that crosses the line, so that what leaves a party can be listed, weighed
and checked in one place. As bytes a message is a safetensors file: no code can hide in it. This
file knows no transport and no model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from unmix.errors import InputError

__all__ = ["REFUSAL", "Message", "RefusedError", "check_party_name"]

Array = npt.NDArray[Any]

HEAD = "head"  # the array that holds everything else, as JSON
LONGEST_NAME = 64
REFUSAL = "refusal"
"""The kind of a reply in which a party says why it does not answer."""


class RefusedError(InputError):
    """A question that a party does not answer, for a reason that all may know.

    What else goes wrong may name a row or a word, and is told to the owner alone.
    """


@dataclass(frozen=True, eq=False)
class Message:
    """A question to a party, or its reply.

    Parameters
    ----------
    kind : str
        What is asked, such as 'table' or 'sums'; a reply repeats it, or is a refusal.
    round : int
        Which question of the conversation it is, from 0; a reply repeats it.
    party : str
        Who is asked, and who replies.
    text : mapping
        JSON values.
    arrays : mapping from names to arrays
    """

    kind: str
    round: int
    party: str
    text: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the message as a safetensors file.

        Examples
        --------
        >>> sent = Message("sums", 3, "north", arrays={"sums": np.array([1.0, 2.0])})
        >>> Message.from_bytes(sent.to_bytes()).arrays["sums"]
        array([1., 2.])
        """
        head = {"kind": self.kind, "round": self.round, "party": self.party}
        text = json.dumps(head | {"text": self.text}).encode()
        # A copy: the file keeps the memory of an array, and not its strides.
        arrays = {name: np.array(array, order="C") for name, array in self.arrays.items()}
        return bytes(save_arrays(arrays | {HEAD: np.frombuffer(text, dtype=np.uint8)}))

    @classmethod
    def from_bytes(cls, data: bytes) -> Message:
        """Read a message, or raise ValueError if the bytes are none."""
        try:
            arrays = load_arrays(data)
            head = json.loads(arrays.pop(HEAD).tobytes())
            json.dumps(head, ensure_ascii=False).encode()  # half a character could not be written
            kind, number, party, text = (head[k] for k in ("kind", "round", "party", "text"))
        except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError("these bytes are no message") from error
        plain = isinstance(kind, str) and type(number) is int and isinstance(party, str)
        if not plain or not isinstance(text, dict):
            raise ValueError("these bytes are no message")
        return cls(kind, number, party, text, arrays)

    def reply(self, text: Mapping[str, Any] | None = None, **arrays: Array) -> Message:
        """Return the reply of the party that was asked."""
        return Message(self.kind, self.round, self.party, text or {}, arrays)

    def refusal(self, reason: str) -> Message:
        """Return the reply of a party that does not answer."""
        return Message(REFUSAL, self.round, self.party, {"reason": reason})


def check_party_name(name: str) -> str:
    """Return the name of a party, or say what is wrong with it."""
    if not (0 < len(name) <= LONGEST_NAME and name.isprintable() and name == name.strip()):
        raise InputError(
            f"a party is named by 1 to {LONGEST_NAME} printable characters, such as 'north'; got "
            f"{name[:LONGEST_NAME]!r} (--name)"
        )
    return name
