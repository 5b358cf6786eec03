"""Promises about the whole package: which room imports which, and what importing costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import unmix

ROOT = Path(unmix.__file__).parent
ROOMS = ["core", "data", "learn", "assess", "studies", "report", "classifier", "cli"]
FOUNDATION = ["errors", "files", "plugins", "progress"]  # know no room


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def room_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    room = room_of(path)
    if room == "__init__":
        return
    allowed = FOUNDATION if room in FOUNDATION else FOUNDATION + ROOMS[: ROOMS.index(room) + 1]
    for module in imports_of(path):
        parts = module.split(".")
        if parts[0] == "unmix" and len(parts) > 1:
            assert parts[1] in allowed, f"{room} imports {module}"
        if parts[0] in ("matplotlib", "jinja2"):
            assert room == "report", f"{room} imports {module}"


def loaded_by(code):
    script = f"import sys\n{code}\nprint(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


HEAVY = {"torch", "pandas", "sklearn", "matplotlib", "lightgbm", "pyarrow", "scipy"}


def test_import_unmix_loads_nothing_heavy():
    assert not loaded_by("import unmix") & (HEAVY | {"numpy"})


@pytest.mark.parametrize("args", [["--help"], ["train", "--help"], ["methods", "--help"]])
def test_help_loads_nothing_heavy(args):
    code = f"import unmix.cli\ntry:\n    unmix.cli.main({args!r})\nexcept SystemExit:\n    print()"
    assert not loaded_by(code) & HEAVY


def test_every_public_name_exists():
    for name in unmix.__all__:
        thing = getattr(unmix, name)
        assert name.isupper() or thing.__name__ == name
        assert thing.__doc__
    assert set(unmix.__all__) <= set(dir(unmix))
    with pytest.raises(AttributeError, match="nonsense"):
        unmix.nonsense
