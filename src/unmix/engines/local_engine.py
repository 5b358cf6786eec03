"""The engine of this process: the parts that others send to workers are worked on here in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unmix.errors import InputError
from unmix.learn.part_files import Plan

__all__ = ["LocalEngine"]


class LocalEngine:
    """An engine with one worker, which is this process."""

    name = "local"

    def __init__(self) -> None:
        self._worker: Any = None

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *exception: object) -> None:
        self._worker = None

    def start(self, plan: Plan) -> None:
        """Work on the files of a plan from now on."""
        self._worker = plan.worker()

    def addresses(self) -> list[str]:
        """Return that of the one worker, with whom nobody speaks."""
        return ["localhost:0"]

    def together(self, work: str, *arguments: Any) -> list[Any]:
        """Call the one worker."""
        return self.each(work, 1, *arguments)

    def each(
        self,
        work: str,
        num_parts: int,
        *arguments: Any,
        done: Callable[[int], None] = lambda part: None,
    ) -> list[Any]:
        """Do one part after the other, see `unmix.learn.part_files.Engine`."""
        if self._worker is None:
            raise InputError("the engine has no plan yet; start it first")
        found = []
        for part in range(num_parts):
            found.append(getattr(self._worker, work)(part, *arguments))
            done(part)
        return found
