"""Flower as the transport, on the server's side: a SuperLink in this process.

Parties connect to it as SuperNodes, over Flower's Fleet API (HTTP, or HTTPS with certificates). No
process is started for a message, as `flwr run` would do: a fit asks hundreds of small questions.
Only what Flower is asked to carry is known here, bytes to a party and bytes back.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from unmix.errors import InputError
from unmix.federated.flower import (
    END,
    HELLO,
    enclosed,
    import_flower,
    objects_of,
    opened,
    sealed,
    unsealed,
)
from unmix.federated.messages import Message, check_party_name
from unmix.federated.replies import stop

__all__ = ["FlowerParties"]

POLL_SECONDS, PATIENT_SECONDS = 0.005, 0.1  # between two looks, at first and after a while
HEARTBEAT_SECONDS = 10.0
START_SECONDS = 60.0
GOODBYE_SECONDS = 10.0
FOR_PARTIES = "/v1/fleet/"  # where a SuperLink serves SuperNodes


class FlowerParties:
    """`Transport` to parties that connect as SuperNodes of Flower.

    Parameters
    ----------
    host, port : str, int
        To listen on.
    certificates : (certificate, key), optional
        Paths of PEM files; without them nothing is encrypted.
    code : str, optional
        That a party must know to take part.
    """

    def __init__(
        self, host: str, port: int, certificates: tuple[str, str] | None = None, code: str = ""
    ) -> None:
        import_flower()
        import uvicorn
        from flwr.common.constant import NOOP_FLWR_AID
        from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
        from flwr.supercore.task_identity import TaskIdentity
        from flwr.superlink.main import create_app

        app = create_app()
        self._state: Any = app.state.linkstate_factory.state()
        files: dict[str, Any] = {}
        if certificates is not None:
            files = {"ssl_certfile": certificates[0], "ssl_keyfile": certificates[1]}
        try:
            self._server = uvicorn.Server(
                uvicorn.Config(
                    _for_parties(app), host, port, log_config=None, access_log=False, **files
                )
            )
            self._server.config.load()
        except OSError as error:
            raise InputError(f"the certificate or its key cannot be used: {error}") from None
        self._run = self._state.create_run(
            None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
        )
        run = self._state.get_run_info(run_ids=[self._run])[0]
        self._task = run.primary_task_id
        self._state.claim_task(self._task)
        self._state.activate_task(self._task)
        # Whose messages these are; every message that is made in this process looks here.
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = self._run, self._task, 1
        self._code, self._nodes = code, dict[str, int]()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._address = f"{host}:{port}"

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise InputError(
                    f"cannot listen on {self._address}: choose another address or port (--port)"
                )
            time.sleep(POLL_SECONDS)
        threading.Thread(target=self._stay_alive, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Tell all parties that it is over, and why; then stop listening."""
        reason = "" if error is None else "the server was stopped"
        if isinstance(error, InputError):
            reason = str(error)
        with suppress(Exception):
            text = {"reason": reason}
            goodbye = {n: Message(END, -1, n, text).to_bytes() for n in self._nodes}
            self._wait_until_fetched(self._push(goodbye))
        self._ended.set()
        self._server.should_exit = True
        self._thread.join(5.0)

    @property
    def parties(self) -> list[str]:
        """The names of the parties that have joined."""
        return list(self._nodes)

    def wait_for(
        self, number: int, timeout: float, joined: Callable[[str], None] = lambda name: None
    ) -> None:
        """Wait until so many parties have joined.

        Parameters
        ----------
        number : int
        timeout : float
            Seconds.
        joined : function (name), optional
            Called for each.
        """
        known: set[int] = set()
        deadline = time.monotonic() + timeout
        while len(self._nodes) < number:
            if time.monotonic() > deadline:
                names = ", ".join(sorted(self._nodes)) or "none"
                raise InputError(
                    f"{len(self._nodes)} of {number} parties joined within {timeout:g} seconds "
                    f"({names}); start the others, or wait longer (--wait)"
                )
            for node in set(self._state.get_nodes(self._run)) - known:
                known.add(node)
                name = self._name_of(node)
                self._nodes[name] = node
                joined(name)
            time.sleep(10 * POLL_SECONDS)

    def exchange(self, outgoing: Mapping[str, bytes], timeout: float) -> list[tuple[str, bytes]]:
        """Send each party its bytes, and return what came back in time."""
        found = []
        for party, data in self._pull(self._push(outgoing), timeout):
            reply, by_code = unsealed(self._code, data)
            if not by_code:
                stop(party, "answered without the seal of this fit's code")
            found.append((party, reply))
        return found

    def _name_of(self, node: int) -> str:
        """Ask a node for the name of its party, and check that it knows the code."""
        nonce = secrets.token_hex(16)
        self._nodes[""] = node  # so that it is told of the end, if it is not let in
        asked = Message(HELLO, -1, "", {"nonce": nonce}).to_bytes()
        came = self._pull(self._push({"": asked}), START_SECONDS)
        if not came:
            raise InputError("somebody connected and did not say its name; start it again")
        data, by_code = unsealed(self._code, came[0][1])
        try:
            reply = Message.from_bytes(data)
            name = check_party_name(reply.party)
        except ValueError:
            raise InputError("somebody connected that is no party of this version") from None
        if not by_code or reply.text.get("nonce") != nonce:
            stop(name, "does not know the code of this fit (--code-file)")
        if name in self._nodes:
            stop(name, "joined twice; give each party its own name (--name)")
        del self._nodes[""]
        return name

    def _push(self, outgoing: Mapping[str, bytes]) -> dict[str, str]:
        """Lay messages out for their nodes; return the id of each with its party."""
        from flwr.app import Message as FlowerMessage
        from flwr.app.message import remove_content_from_message
        from flwr.supercore.inflatable.inflatable_object import get_object_tree

        ids = {}
        for party, data in outgoing.items():
            message = FlowerMessage(
                enclosed(sealed(self._code, data)),
                dst_node_id=self._nodes[party],
                message_type="query",
            )
            name, contents = objects_of(message)
            session = self._state.start_session(self._run)
            # First what it holds, then the message: a node never finds one without the other.
            self._state.preregister_object_tree(get_object_tree(message), session)
            for key, content in contents.items():
                self._state.store_object(self._run, session, key, content)
            if self._state.store_message_ins(remove_content_from_message(message)) is None:
                stop(party, "is no longer connected")
            ids[name] = party
        return ids

    def _pull(self, ids: dict[str, str], timeout: float) -> list[tuple[str, bytes]]:
        """Collect the replies to messages until all are there or time is up."""
        deadline, waiting, found = time.monotonic() + timeout, dict(ids), []
        pause = POLL_SECONDS
        while waiting and time.monotonic() < deadline:
            for reply in self._state.get_message_res(set(waiting), self._run):
                party = waiting.pop(reply.metadata.reply_to_message_id, None)
                if party is None:
                    continue
                data = self._content(reply, deadline)
                if data is not None:
                    found.append((party, data))
                pause = POLL_SECONDS
            if waiting:
                time.sleep(pause)
                pause = min(1.2 * pause, PATIENT_SECONDS)
        self._state.delete_messages(message_ins_ids=set(ids))
        return found

    def _content(self, reply: Any, deadline: float) -> bytes | None:
        """Return the bytes of a reply, which arrive after it; None if they do not."""
        if reply.has_error():  # Flower's own word for a node that is gone
            return None
        name, store = reply.metadata.message_id, self._state.object_store
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

        contents: dict[str, bytes] = {}
        for tree in iterate_object_tree(store.get_object_tree(name)):
            while not (content := store.get(tree.object_id)):
                if time.monotonic() > deadline:
                    return None
                time.sleep(POLL_SECONDS)
            contents[tree.object_id] = content
        store.delete(name)
        return opened(name, contents)

    def _wait_until_fetched(self, ids: Mapping[str, str]) -> None:
        """Give the parties time to fetch their last message, which they confirm."""
        deadline, store = time.monotonic() + GOODBYE_SECONDS, self._state.object_store
        while any(store.get(key) is not None for key in ids) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _stay_alive(self) -> None:
        """Tell Flower, while there is a fit, that whoever started it is still here."""
        while not self._ended.wait(HEARTBEAT_SECONDS):
            self._state.acknowledge_task_heartbeat(self._task)

    def _serve(self) -> None:
        """Serve until the end; uvicorn exits where it cannot listen."""
        with suppress(SystemExit):
            self._server.run()


def _for_parties(app: Any) -> Any:
    """Return what a SuperLink serves to SuperNodes, and nothing else of it.

    Flower would serve on the same port, to anybody who reaches it, how runs are started and how
    SuperNodes are asked.
    """

    async def served(scope: Any, receive: Any, send: Any) -> None:
        kind = scope["type"]
        if kind == "lifespan" or (kind == "http" and scope["path"].startswith(FOR_PARTIES)):
            await app(scope, receive, send)
        elif kind == "http":
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    return served
