"""What the parties agree on before a fit: their sets, and how columns become numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unmix.core.class_shares import ClassShares, check_identifiable
from unmix.core.share_precision import SharePrecision
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.federated.messages import Message
from unmix.federated.party import LEAST_ROWS, RATE, USES
from unmix.federated.replies import Conversation, Field, stop
from unmix.federated.shared_columns import agreed_encoder, left_out_columns, read_columns
from unmix.learn.encoding import TableEncoder

__all__ = ["Agreement", "agree"]

IntArray = npt.NDArray[np.int64]

MOST_SETS, MOST_CLASSES, MOST_ROWS = 1_000_000, 1_000, 10**12
MOST_JUDGED = 50_000_000  # rows of all parties whose scores are counted; each takes memory


@dataclass(frozen=True, eq=False)
class Agreement:
    """What is known of all parties together.

    Attributes
    ----------
    parties : tuple of str
    set_ids : tuple of str
        Of all sets (m), party after party.
    party_of_set : array of integers, shape (m,)
    first : array of integers
        The number of the first set of each party.
    shares : ClassShares
        Of all sets, with how well they are known.
    sizes : dict
        Use of rows, see `unmix.federated.party.USES` -> rows of each set (m,).
    classes : tuple of str, or None
    encoder : TableEncoder
    left_out : list of str
        Columns that only some parties have.
    noise : dict or None
        Of the sums, by the party with the fewest answers.
    """

    parties: tuple[str, ...]
    set_ids: tuple[str, ...]
    party_of_set: IntArray
    first: IntArray
    shares: ClassShares
    sizes: dict[str, IntArray]
    classes: tuple[str, ...] | None
    encoder: TableEncoder
    left_out: list[str]
    noise: dict[str, Any] | None


TABLE_FORM = {
    **{name: Field((-1,), "int64", 0, MOST_ROWS) for name in USES},
    "shares": Field((-1, -1), "float64", 0.0, 1.0),
    "counted": Field((-1,), "float64", RATE, MOST_ROWS),
    "errors": Field((-1,), "float64", 0.0, 1.0),
}


def agree(
    conversation: Conversation, *, held_out: float, seed: int, least_rows: int = LEAST_ROWS
) -> Agreement:
    """Ask all parties for their sets and columns, and tell them the encoder that follows.

    Parameters
    ----------
    conversation : Conversation
    held_out : float
        Share of the rows of each set that are held out to judge by.
    seed : int
    least_rows : int
        Of each set; a party with fewer rows in one is refused.
    """
    if not 0 <= held_out < 1:
        raise InputError(f"the held-out share must lie between 0 and 1; got {held_out}")
    asked = {"held_out": held_out, "seed": seed}
    replies = conversation.ask("table", asked, {}, TABLE_FORM)
    parties = conversation.parties
    for reply in replies:
        _check_sets(reply, least_rows)
    judged = [int(reply.arrays["judged"].sum()) for reply in replies]
    if sum(judged) > MOST_JUDGED:
        most = int(np.argmax(judged))
        what = f"holds {judged[most]:,} rows out where {MOST_JUDGED:,} of all parties are enough"
        stop(parties[most], f"{what} (--held-out)")
    classes = _same_classes(replies)
    told = [read_columns(reply.party, reply.text.get("columns")) for reply in replies]
    encoder = agreed_encoder(parties, told)
    numbers = [len(reply.arrays["rows"]) for reply in replies]
    joined = {name: np.concatenate([r.arrays[name] for r in replies]) for name in TABLE_FORM}
    counted = np.where(joined["counted"] == RATE, np.inf, joined["counted"])
    shares = ClassShares(joined["shares"], source="the parties' shares").of_positives()
    check_identifiable(shares.matrix, "all parties")
    agreement = Agreement(
        parties=parties,
        set_ids=_set_ids(replies),
        party_of_set=np.repeat(np.arange(len(parties)), numbers),
        first=np.cumsum([0, *numbers[:-1]]),
        shares=shares.known(SharePrecision(counted, joined["errors"])),
        sizes={name: joined[name] for name in USES},
        classes=classes,
        encoder=encoder,
        left_out=left_out_columns(told),
        noise=_noise(replies),
    )
    conversation.ask("encoder", {"encoder": encoder.to_dict()}, {}, {})
    return agreement


def _check_sets(reply: Message, least_rows: int) -> None:
    """Refuse sets that are none."""
    party, arrays, names = reply.party, reply.arrays, reply.text.get("sets")
    rows, shares = arrays["rows"], arrays["shares"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        stop(party, "sent no names of its sets")
    if not 0 < len(names) <= MOST_SETS or len(set(names)) < len(names):
        stop(party, "sent no set, or a set twice")
    if any(len(array) != len(names) for array in arrays.values()):
        stop(party, f"sent {len(names)} sets, and numbers of {len(rows)}")
    if not 2 <= shares.shape[1] <= MOST_CLASSES or (abs(shares.sum(axis=1) - 1) > 1e-6).any():
        stop(party, "sent shares that do not sum to 1")
    if (rows < least_rows).any():
        few = int(rows.argmin())
        stop(party, f"has {rows[few]} rows in set {names[few][:100]!r}, fewer than {least_rows}")
    kept = arrays["fitted"] + arrays["checked"]
    if (kept != arrays["kept"]).any() or (kept + arrays["judged"] != rows).any():
        stop(party, "sent parts of its sets that do not add up to their rows")
    if (kept < 1).any():
        stop(party, "holds all rows of a set out")


def _same_classes(replies: list[Message]) -> tuple[str, ...] | None:
    """Return the names of the classes, on which all parties must agree."""
    first = replies[0]
    for reply in replies:
        names = reply.text.get("classes")
        if names is not None and not (
            isinstance(names, list) and all(isinstance(name, str) for name in names)
        ):
            stop(reply.party, "sent no names of classes")
        same = names == first.text.get("classes")
        if not same or reply.arrays["shares"].shape[1] != first.arrays["shares"].shape[1]:
            raise InputError(
                f"party {reply.party!r} gives shares of {_named(names)} and party "
                f"{first.party!r} of {_named(first.text.get('classes'))}; give the same classes in "
                "the same order"
            )
    names = first.text.get("classes")
    return None if names is None else tuple(names)


def _named(classes: Any) -> str:
    """Say which classes shares are of."""
    return "positives" if classes is None else listed(classes)


def _set_ids(replies: list[Message]) -> tuple[str, ...]:
    """Return the names of all sets, with that of the party where two have one of the same name."""
    times = Counter(name for reply in replies for name in reply.text["sets"])
    named = [
        name if times[name] == 1 else f"{reply.party}/{name}"
        for reply in replies
        for name in reply.text["sets"]
    ]
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise InputError(f"two parties have a set named {twice!r}; rename one of them")
    return tuple(named)


def _noise(replies: list[Message]) -> dict[str, Any] | None:
    """Return the noise of the sums, None if no party adds any."""
    noises = []
    for reply in replies:
        noise = reply.text.get("noise")
        if noise is None:
            continue
        if not isinstance(noise, dict) or type(noise.get("answers")) is not int:
            stop(reply.party, "sent noise that is none")
        if not 1 <= noise["answers"] <= 10_000:
            stop(reply.party, f"would tell {noise['answers']} sums, not 1 to 10,000")
        noises.append(noise)
    return min(noises, key=lambda noise: noise["answers"]) if noises else None
