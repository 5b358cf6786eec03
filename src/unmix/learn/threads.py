"""The threads there are: as many as BLAS would use, which the usual variables decide."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

__all__ = ["SideBySide", "num_threads", "one_thread"]

SideBySide = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""`map`, or one that works on several items at a time and keeps their order."""


def num_threads() -> int:
    """Return how many threads a product of matrices would use."""
    return max((pool["num_threads"] for pool in _pools("torch" in sys.modules).info()), default=1)


@contextmanager
def one_thread(threads: int = 1) -> Iterator[SideBySide]:
    """Hold libraries to one thread, and yield a `map` that works on so many items at a time."""
    with _pools("torch" in sys.modules).limit(limits=1):
        if threads == 1:
            yield map
            return
        with ThreadPoolExecutor(threads) as executor:
            yield executor.map


@cache
def _pools(with_torch: bool) -> Any:
    """Return the libraries that have threads; torch brings some, if it has been loaded."""
    return ThreadpoolController().select(user_api="blas")
