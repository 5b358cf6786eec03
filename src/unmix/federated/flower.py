"""What server and parties share of Flower: how bytes are put into its messages and taken out."""

from __future__ import annotations

import hmac
import logging
import os
from typing import Any

from unmix.optional import optional_module

__all__ = [
    "END",
    "HELLO",
    "enclosed",
    "import_flower",
    "inflated",
    "objects_of",
    "opened",
    "sealed",
    "unsealed",
]

HELLO, END = "hello", "end"
"""Kinds of messages about the connection itself: who is there, and that it is over."""
RECORD, KEY = "unmix", "data"
SEAL_BYTES = 32


def import_flower() -> None:
    """Import Flower, silent and without its telemetry, or say how to install it."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
    optional_module("flwr", "federated")
    for name in ("flwr", "httpx", "uvicorn"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def sealed(code: str, data: bytes) -> bytes:
    """Return bytes behind a seal that only those can make who know the code."""
    return hmac.digest(code.encode(), data, "sha256") + data


def unsealed(code: str, data: bytes) -> tuple[bytes, bool]:
    """Return bytes without their seal, and whether it was made by the code."""
    seal, inside = data[:SEAL_BYTES], data[SEAL_BYTES:]
    return inside, hmac.compare_digest(seal, hmac.digest(code.encode(), inside, "sha256"))


def enclosed(data: bytes) -> Any:
    """Return the content of a message of Flower that holds bytes."""
    from flwr.app import ConfigRecord, RecordDict

    return RecordDict({RECORD: ConfigRecord({KEY: data})})


def objects_of(message: Any) -> tuple[str, dict[str, bytes]]:
    """Return the id of a message, which is set by it, and the bytes of all that it is made of."""
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        no_object_id_recompute,
    )

    with no_object_id_recompute():
        name = message.object_id
        message.metadata.__dict__["_message_id"] = name
        contents = {key: part.deflate() for key, part in get_all_nested_objects(message).items()}
    return name, contents


def opened(name: str, contents: dict[str, bytes]) -> bytes | None:
    """Return the bytes that a message holds; None if it holds none."""
    message = inflated(name, contents)
    if not message.has_content():
        return None
    record = message.content.get(RECORD)
    data = None if record is None else record.get(KEY)
    return data if isinstance(data, bytes) else None


def inflated(name: str, contents: dict[str, bytes]) -> Any:
    """Return a message of Flower from the bytes of all that it is made of."""
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    message: Any = inflate_object_from_contents(name, dict(contents))
    message.metadata.__dict__["_message_id"] = name
    return message
