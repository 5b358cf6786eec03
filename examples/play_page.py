"""Run what a page shows: its files, its Python and its commands, one after the other in a folder.

```python       a file, if the first line is "# name.py"; otherwise run, all in one namespace
```text         right after Python: what it prints
```console      commands after "$ ", and below each command what it prints
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

BLOCK = re.compile(r"^```(python|text|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
PROMPT = re.compile(r"^\$ ", re.MULTILINE)


class Step(NamedTuple):
    """One thing that a page runs: 'file', 'python' or 'command', and what it says that prints."""

    kind: str
    source: str
    shown: str | None = None


def steps_of(text):
    """Return the steps of a page in their order."""
    found = []
    for kind, body in BLOCK.findall(text):
        if kind == "text":
            if found and found[-1].kind == "python":
                found[-1] = found[-1]._replace(shown=body)
        elif kind == "python":
            found.append(Step("file" if FILE.match(body) else "python", body))
        else:
            for part in PROMPT.split(body)[1:]:
                command, _, shown = part.partition("\n")
                found.append(Step("command", command, shown))
    return found


def in_shell(command, folder):
    """Run a command and return its exit code and all that it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


@dataclass
class Player:
    """Runs steps in a folder; `cd` moves it."""

    folder: Path
    run: Any = in_shell
    """(command, folder) -> exit code, output."""
    names: dict[str, Any] = field(default_factory=dict)

    def play(self, step):
        """Return the exit code of a step and what it prints."""
        if step.kind == "file":
            (self.folder / FILE.match(step.source)[1]).write_text(step.source, encoding="utf-8")
            return 0, ""
        if step.kind == "python":
            printed = io.StringIO()
            with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed):
                exec(step.source, self.names)
            return 0, printed.getvalue()
        if step.source.startswith("cd "):
            self.folder = self.folder / step.source.removeprefix("cd ")
            return 0, ""
        return self.run(step.source, self.folder)


def with_outputs(text, outputs):
    """Return the page with what its steps print, in the order of `steps_of`."""
    left = iter(zip(steps_of(text), outputs, strict=True))
    last = ""  # what the Python block above printed

    def fill(block):
        nonlocal last
        kind, body = block.groups()
        if kind == "text":
            return f"```text\n{last}```" if last else block[0]
        if kind == "python":
            _, last = next(left)
            return block[0]
        last = ""
        commands = [next(left) for _ in PROMPT.split(body)[1:]]
        fresh = "".join(f"$ {step.source}\n{output}" for step, output in commands)
        return f"```console\n{fresh}```"

    return BLOCK.sub(fill, text)
