"""The file tree of CONTRIBUTING.md, from the first line of each module's docstring.

python tests/source_tree.py      writes it into CONTRIBUTING.md
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = [
    "core",
    "data",
    "learn",
    "engines",
    "deploy",
    "assess",
    "studies",
    "report",
    "federated",
    "cli",
]
FENCE = re.compile(r"(## What is where\n\n```\n).*?(```\n)", re.DOTALL)


def first_line(path):
    return ast.get_docstring(ast.parse(path.read_text())).splitlines()[0].rstrip(".")


def tree():
    package = ROOT / "src/unmix"
    lines = ["src/unmix/"]
    for name in ("classifier", "errors", "files", "leftovers", "optional", "plugins", "progress"):
        lines.append(f"  {name + '.py':20} {first_line(package / f'{name}.py')}")
    for room in ROOMS:
        lines.append(f"  {room + '/':20} {first_line(package / room / '__init__.py')}")
        for path in sorted((package / room).glob("*.py")):
            if path.name != "__init__.py":
                lines.append(f"    {path.name:18} {first_line(path)}")
    lines.append("tests/")
    lines.append(f"  {'reference.py':20} {first_line(ROOT / 'tests/reference.py')}")
    lines.append("benchmarks/")
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        lines.append(f"  {path.name:20} {first_line(path)}")
    return "\n".join(lines)


def with_tree(page):
    return FENCE.sub(lambda m: m[1] + tree() + "\n" + m[2], page)


if __name__ == "__main__":
    path = ROOT / "CONTRIBUTING.md"
    path.write_text(with_tree(path.read_text()))
