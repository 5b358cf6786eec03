"""What the server lets through: every reply is checked before a number of it is used.

A party may be missing, late, broken or dishonest. Whatever is wrong is told in one line that names
the party, and ends the fit: nothing partial is used, since sums without a party, or with one that
counts twice, are wrong in silence. This file knows no transport and no model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np

from unmix.data.wording import listed, printable
from unmix.errors import InputError
from unmix.federated.messages import REFUSAL, Array, Message

__all__ = ["Conversation", "Field", "Form", "Transport", "checked_reply", "stop"]

LARGEST = 1e150  # of a number in a reply; the square of a larger one overflows
MOST_BYTES = 2**26  # of a reply
TIMEOUT = 600.0  # seconds


class Transport(Protocol):
    """Whatever carries messages to the parties and brings their replies."""

    @property
    def parties(self) -> Sequence[str]:
        """The names of the parties, each in its own line of communication."""

    def exchange(self, outgoing: Mapping[str, bytes], timeout: float) -> list[tuple[str, bytes]]:
        """Send a message to each party and return what came back in time, with its sender."""


@dataclass(frozen=True)
class Field:
    """What an array of a reply must look like; a length of -1 is any."""

    shape: tuple[int, ...]
    dtype: str = "float64"
    least: float = -LARGEST
    most: float = LARGEST


Form = Mapping[str, Field]


class Conversation:
    """Questions to all parties, one round after the other.

    Parameters
    ----------
    transport : Transport
    timeout : float
        Seconds that a party has for its reply.
    told : function (kind, round, bytes sent, bytes received), optional
        Called after each round.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        timeout: float = TIMEOUT,
        most_bytes: int = MOST_BYTES,
        told: Callable[[str, int, int, int], None] | None = None,
    ) -> None:
        twice = [name for name, times in Counter(transport.parties).items() if times > 1]
        if twice:
            raise InputError(f"two parties have the name {twice[0]!r}; give each its own (--name)")
        self.parties = tuple(sorted(transport.parties))  # an order that no arrival changes
        self.rounds = 0
        self._transport, self._timeout = transport, timeout
        self._most_bytes, self._told = most_bytes, told

    def ask(
        self,
        kind: str,
        texts: Any,
        arrays: Any,
        forms: Any,
        only: Sequence[int] | None = None,
    ) -> list[Message]:
        """Ask parties, and return their replies in the order of the parties.

        Parameters
        ----------
        kind : str
        texts : mapping, or sequence of one for each party that is asked
        arrays : mapping from names to arrays, or sequence of one for each
        forms : Form of the reply, or sequence of one for each
        only : sequence of int, optional
            Which parties are asked; all if left out.

        Raises
        ------
        InputError
            A reply is missing or wrong; the message names the party.
        """
        number, self.rounds = self.rounds, self.rounds + 1
        parties = self.parties if only is None else [self.parties[i] for i in only]
        outgoing = {
            party: Message(kind, number, party, _own(texts, i), _own(arrays, i)).to_bytes()
            for i, party in enumerate(parties)
        }
        came = self._transport.exchange(outgoing, self._timeout)
        by_party: dict[str, bytes] = {}
        for sender, data in came:
            if sender not in outgoing:
                stop(sender, "answers, but is none of the parties that were asked")
            if sender in by_party:
                stop(sender, f"answered round {number} twice")
            by_party[sender] = data
        absent = [party for party in parties if party not in by_party]
        if absent:
            stop(absent[0], f"did not answer round {number} within {self._timeout:g} seconds")
        replies = [
            checked_reply(
                Message(kind, number, party), by_party[party], _own(forms, i), self._most_bytes
            )
            for i, party in enumerate(parties)
        ]
        if self._told is not None:
            sent = sum(len(data) for data in outgoing.values())
            self._told(kind, number, sent, sum(len(data) for data in by_party.values()))
        return replies


def _own(given: Any, position: int) -> Any:
    """Return what is for one of the parties, where all may be given the same."""
    return given if isinstance(given, Mapping) else given[position]


def checked_reply(asked: Message, data: bytes, form: Form, most_bytes: int) -> Message:
    """Return the reply to a question, or say what is wrong with it.

    Parameters
    ----------
    asked : Message
        The question; nothing but its kind, round and party is looked at.
    data : bytes
        What came on the line of this party.
    form : Form
        Of the arrays.
    most_bytes : int
    """
    party = asked.party
    if len(data) > most_bytes:
        stop(party, f"sent {len(data):,} bytes where at most {most_bytes:,} can be an answer")
    try:
        reply = Message.from_bytes(data)
    except ValueError:
        stop(party, "sent bytes that are no message")
    if reply.party != party:
        stop(party, f"answered in the name of {reply.party[:100]!r}")
    if reply.round != asked.round:
        stop(party, f"answered round {reply.round} where round {asked.round} was asked")
    if reply.kind == REFUSAL:
        stop(party, f"stopped: {printable(str(reply.text.get('reason')))[:1000]}")
    if reply.kind != asked.kind:
        stop(party, f"answered {reply.kind[:100]!r} where {asked.kind!r} was asked")
    if set(reply.arrays) != set(form):
        odd = sorted(set(reply.arrays) ^ set(form))
        stop(party, f"left out, or added, {listed(odd)} in its reply")
    for name, field in form.items():
        _check_array(party, name, reply.arrays[name], field)
    return reply


def _check_array(party: str, name: str, array: Array, field: Field) -> None:
    """Refuse an array of another type or shape, and numbers that cannot be."""
    if str(array.dtype) != field.dtype:
        stop(party, f"sent {name} as {array.dtype} and not as {field.dtype}")
    fits = (want in (-1, found) for want, found in zip(field.shape, array.shape, strict=False))
    if array.ndim != len(field.shape) or not all(fits):
        stop(party, f"sent {name} of shape {array.shape} and not {field.shape}")
    if np.isnan(array).any():
        stop(party, f"sent {name} that hold NaN")
    if np.isinf(array).any():
        stop(party, f"sent {name} that are infinite")
    # As Python's numbers: the limits are beyond floats of 32 bits.
    least, most = array.min(initial=0).item(), array.max(initial=0).item()
    if least < field.least:
        what = "negative" if field.least == 0 else f"below {field.least:g}"
        stop(party, f"sent {name} that are {what} ({least:g})")
    if most > field.most:
        stop(party, f"sent {name} above {field.most:g} ({most:g})")


def stop(party: str, what: str) -> NoReturn:
    """End the fit because of a party, which is named."""
    raise InputError(f"party {printable(party)[:100]!r} {what}; nothing of this fit is kept")
