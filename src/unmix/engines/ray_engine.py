"""The engine on Ray: workers are actors that read files, in processes of this machine or a cluster.

Actors that die are started again, also on another node, and their calls are repeated; what they do
depends on the files alone, so a repeated call gives the same answer. What does not come back at all
ends the fit after `timeout` seconds in one line.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.learn.part_files import Plan, WorkerLostError
from unmix.leftovers import TemporaryFolder, short_folder
from unmix.optional import optional_module

__all__ = ["TIMEOUT", "RayEngine"]

TIMEOUT = 600.0  # seconds without an answer
LOOK_SECONDS = 1.0
KNOCK_SECONDS = 20.0  # to reach an address at all
DECIDING = ("unmix", "numpy", "pandas", "pyarrow", "scipy", "torch", "lightgbm")  # libraries
LARGE_ARRAY = 100_000  # bytes
STORE_BYTES = 500_000_000  # of the object store on this machine; what is more goes to disk
# On Linux all of 127.x is this machine alone; Ray takes 127.0.0.1 for the machine's own address.
LOOPBACK = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
# Nobody is told that Ray is used, and no package is asked about updates.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_NUM_REDIS_GET_RETRIES": "3",  # what listens and is no Ray is told soon
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # what goes wrong is told by what it raises
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class _OwnPath(list[str]):
    """Where workers look for code: nowhere that this process does not.

    Ray adds the working folder, where a stranger's file may have the name of a library.
    """

    def extend(self, places: Iterable[str]) -> None:
        """Take the places where this process looks for code itself."""
        super().extend(place for place in places if place in sys.path)


class RayEngine:
    """An engine whose workers are Ray actors.

    Parameters
    ----------
    address : str, optional
        HOST:PORT of a cluster of which this machine is a node, or 'auto' for the one that runs
        here. None: one is started on this machine for the time of the fit.
    workers : int, optional
        Actors; as many as there are processors if left out.
    timeout : float
        Seconds to wait for the next answer.
    """

    name = "ray"

    def __init__(
        self, address: str | None = None, *, workers: int | None = None, timeout: float = TIMEOUT
    ) -> None:
        self._address, self.workers, self._timeout = address, workers, timeout
        self._ray: Any = None
        self._connected = False
        self._printed: Any = None
        self._actors: list[Any] = []
        self._count = 0  # of the actors that work on this plan
        self._start: _Start | None = None
        self._held: dict[int, tuple[Any, Any]] = {}  # what workers keep, and where it lies
        self._number = 0
        self._meeting = 0  # of those who were told each other's addresses
        self._folder: TemporaryFolder | None = None

    def __enter__(self) -> RayEngine:
        _set_variables(alone=self._address is None)
        try:
            self._ray = optional_module("ray", "ray")
            with _as_it_was():
                self._connect(self._ray)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        ray, self._ray = self._ray, None
        if ray is not None and self._connected:
            with _as_it_was():
                for actor in self._actors:
                    ray.kill(actor)
                self._actors, self._held = [], {}
                ray.shutdown()
            ray._private.worker.print_to_stdstream = self._printed
        self._connected = False
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def start(self, plan: Plan) -> None:
        """Have actors for the files of a plan."""
        ray = self._ray
        there = int(ray.cluster_resources().get("CPU", 1))
        actor = ray.remote(_Actor).options(
            max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD"
        )
        self._count = min(self.workers or there, len(plan.tables))
        self._actors += [actor.remote() for _ in range(self._count - len(self._actors))]
        self._start, self._held = _Start(plan, os.getcwd(), _versions()), {}

    def each(
        self,
        work: str,
        num_parts: int,
        *arguments: Any,
        done: Callable[[int], None] = lambda part: None,
    ) -> list[Any]:
        """Spread the parts over the actors, see `unmix.learn.part_files.Engine`."""
        ray, sent = self._ray, [self._sent(argument) for argument in (self._start, *arguments)]
        waiting = {
            self._actors[part % self._count].do.remote(work, part, sent): part
            for part in range(num_parts)
        }
        found: dict[int, Any] = {}
        last = time.monotonic()
        while waiting:
            ready, _ = ray.wait(list(waiting), timeout=LOOK_SECONDS)
            if ready and len(waiting) > 1:  # and whatever else is there by now
                ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
            for answer in ready:
                part = waiting.pop(answer)
                found[part] = self._result(answer)
                done(part)
                last = time.monotonic()
            if time.monotonic() - last > self._timeout:
                raise TimeoutError(self._nobody_answers(sorted(waiting.values()), num_parts))
        return [found[part] for part in range(num_parts)]

    def addresses(self) -> list[str]:
        """Return HOST:PORT of each worker, where nobody listens yet."""
        self._meeting += 1
        actors = self._actors[: self._count]
        return self._answers([actor.address.remote(self._meeting) for actor in actors])

    def together(self, work: str, *arguments: Any) -> list[Any]:
        """Call all actors at once, see `unmix.learn.part_files.Engine`."""
        ray, sent = self._ray, [self._sent(argument) for argument in (self._start, *arguments)]
        actors = self._actors[: self._count]
        calls = [
            actor.do.options(max_task_retries=0).remote(work, rank, sent, self._meeting)
            for rank, actor in enumerate(actors)
        ]
        try:
            return self._answers(calls)
        except (InputError, TimeoutError):
            raise
        except Exception as error:
            # Those that are left wait for the one that is not, or have failed for its sake.
            with _as_it_was():
                for actor in actors:
                    ray.kill(actor, no_restart=False)
            time.sleep(LOOK_SECONDS)  # until they are dead: one that still answers would be lost
            raise WorkerLostError(str(error).strip().splitlines()[-1][:300]) from error

    def _answers(self, calls: list[Any]) -> list[Any]:
        """Return what all say who were called at once, or raise what the first raised."""
        ray, waiting, last = self._ray, list(calls), time.monotonic()
        while waiting:
            ready, waiting = ray.wait(waiting, timeout=LOOK_SECONDS)
            for answer in ready:
                self._result(answer)
                last = time.monotonic()
            if time.monotonic() - last > self._timeout:
                raise TimeoutError(self._nobody_answers(list(range(len(waiting))), len(calls)))
        return [self._result(answer) for answer in calls]

    def _connect(self, ray: Any) -> None:
        """Start Ray on this machine, or join a cluster."""
        if self._address is not None:
            self._refuse_silence(self._address)
        if ray.is_initialized():
            raise InputError("Ray is in use in this process; call ray.shutdown() first")
        options: dict[str, Any] = {
            "include_dashboard": False,
            "log_to_driver": False,
            "configure_logging": False,
        }
        if self._address is None:
            options |= self._on_this_machine()
        else:
            options |= {"address": self._address}
            del options["include_dashboard"]
        options["job_config"] = ray.job_config.JobConfig()
        options["job_config"]._py_driver_sys_path = _OwnPath()
        self._connected, self._printed = True, ray._private.worker.print_to_stdstream
        # A worker that died and was started again is no news for standard output.
        ray._private.worker.print_to_stdstream = lambda *data, **options: None
        try:
            ray.init(**options)
        except Exception as error:  # Ray says by no other type that it could not start
            said = str(error).strip().splitlines()[0] if str(error).strip() else "no answer"
            where = f" at {self._address}" if self._address else ""
            raise InputError(
                f"cannot use Ray{where}: {said[:300]}; start it on this machine first (ray start "
                "--address=...), or leave the address out"
            ) from error

    def _refuse_silence(self, address: str) -> None:
        """Refuse an address where nobody listens: Ray itself would wait for minutes."""
        host, _, port = address.rpartition(":")
        if not host:  # 'auto': Ray looks on this machine
            return
        try:
            socket.create_connection((host, int(port)), min(self._timeout, KNOCK_SECONDS)).close()
        except (OSError, OverflowError) as error:
            said = getattr(error, "strerror", None) or str(error)
            raise InputError(
                f"nobody answers at {address} ({said}); start Ray there (ray start --head "
                f"--port={port}), or leave the address out"
            ) from error

    def _on_this_machine(self) -> dict[str, Any]:
        """Return how Ray is started here: on loopback; its files are removed at the end."""
        self._folder = short_folder("unmix-ray")
        return {
            "address": "local",
            "num_cpus": self.workers or os.cpu_count(),
            "_temp_dir": self._folder.name,
            "_node_ip_address": LOOPBACK,
            "object_store_memory": STORE_BYTES,
        }

    def _sent(self, argument: Any) -> tuple[int, Any]:
        """Return an argument as it is sent: what is kept, by its number and where it lies."""
        if isinstance(argument, np.ndarray):
            # A large one is put where all workers of a machine fetch it once.
            return -1, [self._ray.put(argument)] if argument.nbytes > LARGE_ARRAY else argument
        for number, (held, place) in self._held.items():
            if held is argument:
                return number, [place]  # in a list, so that Ray does not fetch it every time
        self._number += 1
        self._held[self._number] = argument, self._ray.put(argument)
        return self._number, [self._held[self._number][1]]

    def _result(self, answer: Any) -> Any:
        """Return what an actor said, or raise what it raised."""
        ray = self._ray
        try:
            return ray.get(answer)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayActorError as error:
            said = str(error).strip().splitlines()
            raise RuntimeError(f"a worker of Ray could not be started: {said[-1][:300]}") from None

    def _nobody_answers(self, parts: list[int], num_parts: int) -> str:
        """Say that the time is up, and for whom."""
        assert self._start is not None
        tables = self._start.plan.tables
        if num_parts == len(tables):
            names = listed([tables[part].path for part in parts], 3)
        else:
            names = f"{len(parts)} of {num_parts} shares of the work"
        return (
            f"no worker of Ray answered for {self._timeout:g} seconds; waited for {names}. See "
            "that the cluster has its nodes and allow more time (--timeout); the same command "
            "resumes"
        )


@dataclass(frozen=True, eq=False)
class _Start:
    """What an actor must know before anything else."""

    plan: Plan
    folder: str
    """Of the driver: paths may be relative."""
    versions: dict[str, str]


class _Actor:
    """The worker of a plan in a process of Ray; it may start again at any time."""

    def __init__(self) -> None:
        self._worker: Any = None
        self._kept: dict[int, Any] = {}
        self._meeting = 0

    def do(
        self, work: str, part: int, sent: list[tuple[int, Any]], meeting: int | None = None
    ) -> Any:
        """Call a method of the worker with arguments as `RayEngine` sends them, a start first."""
        if meeting not in (None, self._meeting):
            raise WorkerLostError("a worker was started again")
        if sent[0][0] not in self._kept:
            self._kept.clear()  # another plan
            self._worker = _started(self._received(*sent[0]))
        arguments = [self._received(*one) for one in sent[1:]]
        return getattr(self._worker, work)(part, *arguments)

    def address(self, meeting: int) -> str:
        """Return HOST:PORT of this process, where nobody listens yet."""
        import ray

        self._meeting = meeting

        host = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        # Whoever looks for its own address among those of the machine finds one of loopback.
        return f"{'127.0.0.1' if host.startswith('127.') else host}:{port}"

    def _received(self, number: int, value: Any) -> Any:
        """Return an argument, fetched once if it is kept."""
        if number in self._kept or not isinstance(value, list):
            return self._kept.get(number, value)
        import ray

        received = ray.get(value[0])
        if number >= 0:
            self._kept[number] = received
        return received


def _started(start: _Start) -> Any:
    """Return the worker of a process."""
    ours = _versions()
    other = [name for name in ours if ours[name] != start.versions[name]]
    if other:
        raise InputError(
            f"a worker has {other[0]} {ours[other[0]]}, and the driver {start.versions[other[0]]}; "
            "install the same versions on all machines"
        )
    if os.path.isdir(start.folder):
        os.chdir(start.folder)
    return start.plan.worker()


def _set_variables(*, alone: bool) -> None:
    """Set the variables that Ray reads when it is loaded, for as long as this process lives."""
    # What it starts reads this one: else a busy machine leaves workers next to nothing.
    os.environ.setdefault("RAY_worker_niceness", "0")
    if "ray" in sys.modules:
        return
    if alone and not any(name.startswith("RAY_AUTH_") for name in os.environ):
        # Its ports are open to other users of the machine, and to others where it has no loopback.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


def _versions() -> dict[str, str]:
    """Return the versions that decide what workers answer."""
    return {
        name: version(name)
        for name in ("unmix", "numpy", "pandas", "pyarrow", "scipy", "torch", "lightgbm")
    }


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Keep what Ray does on its way to itself: handlers of signals, warnings and log lines."""
    handlers = {}
    for name in ("SIGTERM", "SIGINT"):
        number = getattr(signal, name)
        handlers[number] = signal.getsignal(number)
    level = logging.getLogger("ray").level
    logging.getLogger("ray").setLevel(logging.ERROR)
    with warnings.catch_warnings(), _silent():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            for number, handler in handlers.items():
                try:
                    signal.signal(number, handler)
                except ValueError:  # not in the main thread, where nobody changed them
                    break
            logging.getLogger("ray").setLevel(level)


@contextmanager
def _silent() -> Iterator[None]:
    """Send standard error nowhere: libraries below Python write there, and what they start."""
    try:
        kept = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
