"""A progress bar on a terminal, and nothing at all in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Progress", "progress_bar"]

Progress = Callable[[int, int | None, str], None]
"""(done, total or None, text)."""


@contextmanager
def progress_bar(label: str, *, enabled: bool = True, unit: str = "") -> Iterator[Progress]:
    """Yield a function (done, total or None, text) that moves a bar on standard error.

    Parameters
    ----------
    label : str
        What is going on; the text of a call says how far it is, as in "choosing: fold 2 of 5".
    enabled : bool
        False: no bar, whatever the terminal.
    unit : str
        With a unit, such as 'rows', the bar shows how many were done and how fast.
    """
    if not (enabled and sys.stderr.isatty()):
        yield lambda done, total, text: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """Things done, and done per second."""

        def render(self, task: Task) -> Text:
            speed = f", {task.speed:,.0f} {unit}/s" if task.speed else ""
            return Text(f"{int(task.completed):,} {unit}{speed}")

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
    columns += [Rate()] if unit else []
    columns += [TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)

        def move(done: int, total: int | None, text: str) -> None:
            words = f"{label}: {text}" if text else label
            bar.update(task, completed=done, total=total, description=words)

        yield move
