"""What a party has told so far: how many replies of each kind, and how long they were."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Ledger"]


@dataclass
class Ledger:
    """Counts what leaves a party, or several.

    Examples
    --------
    >>> ledger = Ledger()
    >>> ledger.add("table", 4_500)
    >>> ledger.add("sums", 300, 2)
    >>> str(ledger)
    '1 table (4,500 bytes), 2 sums (300 bytes)'
    """

    replies: Counter[str] = field(default_factory=Counter)
    """By their kind."""
    bytes: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, length: int, replies: int = 1) -> None:
        """Count replies that are so many bytes long together."""
        self.replies[kind] += replies
        self.bytes[kind] += length

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return {kind: {"replies": n, "bytes": self.bytes[kind]} for kind, n in self.replies.items()}

    def __str__(self) -> str:
        told = (f"{n:,} {kind} ({self.bytes[kind]:,} bytes)" for kind, n in self.replies.items())
        return ", ".join(told)
