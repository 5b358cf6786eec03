"""Parties in this process: for trying a federated fit, and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unmix.errors import InputError
from unmix.federated.party import Party

__all__ = ["PartiesHere"]


class PartiesHere:
    """`Transport` to parties in this process; messages are bytes as on any line.

    Parameters
    ----------
    parties : sequence of Party
    """

    def __init__(self, parties: Sequence[Party]) -> None:
        self._each = parties

    @property
    def parties(self) -> list[str]:
        """The names of the parties."""
        return [party.name for party in self._each]

    def exchange(self, outgoing: Mapping[str, bytes], timeout: float) -> list[tuple[str, bytes]]:
        """Let each party that is asked reply, one after the other."""
        asked = [party for party in self._each if party.name in outgoing]
        replies = []
        for party in asked:
            replies.append((party.name, party.reply(outgoing[party.name])))
            if party.trouble:  # who tries it owns all parties
                raise InputError(f"party {party.name!r}: {party.trouble}")
        return replies
