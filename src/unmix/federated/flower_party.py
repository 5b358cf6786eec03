"""Flower as the transport, on a party's side: a SuperNode whose app is this process.

It fetches one question after the other from the SuperLink, lets the party reply, and sends that
back. Nothing that Flower brings is run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from unmix.errors import InputError
from unmix.federated.flower import (
    END,
    HELLO,
    enclosed,
    import_flower,
    inflated,
    objects_of,
    opened,
    sealed,
    unsealed,
)
from unmix.federated.messages import Message
from unmix.federated.party import Party

__all__ = ["join"]

SOON, LATER = 0.01, 0.5  # seconds between two looks for a question


def join(
    party: Party,
    server: str,
    *,
    root_certificate: str | None = None,
    insecure: bool = False,
    code: str = "",
    patience: float = 600.0,
    told: Callable[[Message, int], None] = lambda asked, length: None,
) -> None:
    """Answer the questions of a server until it says that it is over.

    Parameters
    ----------
    party : Party
    server : str
        HOST:PORT.
    root_certificate : path, optional
        PEM file of the authority that signed the server's certificate.
    insecure : bool
        Do not encrypt.
    code : str
        That the server asks for.
    patience : float
        Seconds to wait for a server that does not answer, or asks nothing.
    told : function (question, length of the reply in bytes), optional
        Called after each answer.

    Raises
    ------
    InputError
        The server cannot be reached, or ended the fit because of a mistake.
    """
    import_flower()
    from flwr.supernode.fleet_http_connection import http_request_response

    lost = f"there is no server at {server}, or it is gone; look at its address and certificate"
    ended: Message | None = None
    try:
        with http_request_response(
            server, insecure, root_certificate, max_wait_time=patience
        ) as connection:
            ended = _answered(party, connection, code, patience, told)
    except SystemExit:  # Flower's way to say that it cannot connect
        raise InputError(lost) from None
    if ended is None:
        raise InputError(lost)
    if party.trouble:
        raise InputError(party.trouble)
    if ended.text.get("reason"):
        raise InputError(f"the fit was ended: {str(ended.text['reason'])[:1000]}")


def _answered(
    party: Party,
    connection: Any,
    code: str,
    patience: float,
    told: Callable[[Message, int], None],
) -> Message:
    """Answer until the end, and return the last message."""
    _, receive, send, _, _, pull, push, confirm = connection
    pause, silent = SOON, time.monotonic()
    while True:
        received = receive()
        if received is None:
            if time.monotonic() - silent > patience:
                raise InputError(f"the server asked nothing for {patience:g} seconds")
            time.sleep(pause)
            pause = min(1.2 * pause, LATER)
            continue
        pause, silent = SOON, time.monotonic()
        message, came = _fetched(received[0], received[1], pull, confirm)
        data, by_code = unsealed(code, came)
        asked = Message.from_bytes(data)
        if asked.kind == END:
            return asked
        if asked.kind == HELLO:  # whoever asks, the name and the seal tell it who is here
            text = {"nonce": str(asked.text.get("nonce"))}
            reply = Message(HELLO, -1, party.name, text).to_bytes()
        elif by_code:
            reply = party.reply(data)
        else:
            raise InputError("the server does not know the code of this fit (--code-file)")
        _sent(sealed(code, reply), message, send, push)
        told(asked, len(reply))


def _fetched(message: Any, tree: Any, pull: Any, confirm: Any) -> tuple[Any, bytes]:
    """Return a message of Flower with all that it is made of, and the bytes that it holds."""
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
    from flwr.supercore.inflatable.inflatable_utils import pull_objects

    run, name = message.metadata.run_id, message.metadata.message_id
    keys = [part.object_id for part in iterate_object_tree(tree)]
    contents = pull_objects(keys, pull_object_fn=lambda key: pull(run, key))
    confirm(run, name)
    data = opened(name, contents)
    if data is None:
        raise InputError("the server sent a message without a question")
    return inflated(name, contents), data


def _sent(data: bytes, asked: Any, send: Any, push: Any) -> None:
    """Send bytes in reply to a message of Flower."""
    from flwr.app import Message as FlowerMessage
    from flwr.supercore.inflatable.inflatable_object import get_object_tree

    reply = FlowerMessage(enclosed(data), reply_to=asked)
    _, contents = objects_of(reply)
    wanted, session = send(reply, get_object_tree(reply), 0.0)
    for key in wanted:
        push(asked.metadata.run_id, session, key, contents[key])
