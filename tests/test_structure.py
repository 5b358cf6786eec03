"""Promises about the whole package: which room imports which, who decides what, what it costs."""

import ast
import inspect
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import unmix
from unmix.learn.methods import METHODS
from unmix.learn.models import MODELS, MODULE

ROOT = Path(unmix.__file__).parent
ROOMS = [
    "core",
    "data",
    "learn",
    "engines",  # carry calls of learn to workers; who starts a fit chooses one
    "deploy",
    "assess",
    "studies",
    "report",
    "classifier",
    "federated",
    "cli",
]
FOUNDATION = ["errors", "files", "leftovers", "optional", "plugins", "progress"]  # know no room


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


POSIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}


def imported_at_once(tree):
    """Yield the modules that are imported when a module is: not those inside functions."""
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import fcntl", True),
        ("try:\n    from resource import getrusage\nexcept ImportError:\n    pass", True),
        ("class A:\n    import pwd", True),
        ("def f():\n    import fcntl", False),
        ("import tty_like", False),
    ],
)
def test_an_import_that_only_posix_has_is_found(source, found):
    assert bool(POSIX_ONLY & set(imported_at_once(ast.parse(source)))) is found


def test_modules_can_be_imported_where_there_is_no_posix():
    paths = [*ROOT.rglob("*.py"), *(ROOT.parents[1] / "examples").glob("*.py")]
    offenders = [
        str(path)
        for path in paths
        if POSIX_ONLY & set(imported_at_once(ast.parse(path.read_text())))
    ]
    assert offenders == []
    assert len(paths) > 100


HEAVY = {"torch", "pandas", "sklearn", "matplotlib", "lightgbm", "pyarrow", "scipy"}


def test_import_unmix_loads_nothing_heavy():
    assert not loaded_by("import unmix") & (HEAVY | {"numpy"})


@pytest.mark.parametrize("args", [["--help"], ["train", "--help"], ["methods", "--help"]])
def test_help_loads_nothing_heavy(args):
    code = f"import unmix.cli\ntry:\n    unmix.cli.main({args!r})\nexcept SystemExit:\n    print()"
    assert not loaded_by(code) & HEAVY


def test_commands_with_linear_models_load_neither_torch_nor_scikit_learn(tmp_path):
    rng = np.random.default_rng(0)
    sets = np.arange(400) % 8
    positive = rng.random(400) < sets / 8
    frame = pd.DataFrame({"a": rng.normal(size=400) + positive, "b": rng.normal(size=400)})
    frame.assign(region=sets).to_csv(tmp_path / "rows.csv", index=False)
    shares = pd.DataFrame({"region": range(8), "share": np.arange(8) / 8})
    shares.to_csv(tmp_path / "rates.csv", index=False)
    rows, rates, model = (str(tmp_path / name) for name in ("rows.csv", "rates.csv", "model"))
    known = ["--sets", "region", "--priors", rates]
    fit = ["fit", rows, *known, "-o", model, "--model", "linear", "--method", "ssc", "--json"]
    commands = (
        fit,
        ["predict", model, rows, "-o", str(tmp_path / "scored.csv"), "--json"],
        ["evaluate", model, rows, *known, "--json"],
        ["diagnose", rows, *known, "--json"],
        ["prevalence", model, rows, "--sets", "region", "--json"],
    )
    code = "import unmix.cli\n" + "".join(
        f"unmix.cli.main({command!r}, standalone_mode=False)\n" for command in commands
    )
    assert not loaded_by(code) & {"torch", "sklearn", "scipy.stats"}


def test_every_public_name_exists():
    for name in unmix.__all__:
        thing = getattr(unmix, name)
        assert name.isupper() or thing.__name__ == name
        assert thing.__doc__
    assert set(unmix.__all__) <= set(dir(unmix))
    with pytest.raises(AttributeError, match="nonsense"):
        unmix.nonsense


def test_type_checkers_find_public_names_where_they_are():
    told = {
        (alias.asname, node.module)
        for node in ast.walk(ast.parse(Path(unmix.__file__).read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert told == set(unmix._PLACES.items())


NAMES = {*METHODS, *MODELS, MODULE}
TABLES = {"learn/methods.py", "learn/models.py"}  # where a name is looked up, nobody asks for it


def names_in(node):
    """Return the names of methods and models in a constant, or in a literal of constants."""
    if isinstance(node, ast.Constant):
        return {node.value} & NAMES if isinstance(node.value, str) else set()
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return set().union(*map(names_in, node.elts))
    if isinstance(node, ast.Dict):
        return set().union(*(names_in(key) for key in node.keys if key))
    return set()


def name_comparisons(source):
    """Yield the line and text of comparisons with the name or the risk of a method, or a model."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
            is_risk = isinstance(node.left, ast.Attribute) and node.left.attr == "risk"
            if is_risk and not isinstance(node.comparators[0], ast.Constant):
                yield node.lineno, ast.unparse(node)
                continue
        elif isinstance(node, ast.MatchValue):
            compared = [node.value]
        else:
            continue
        if any(names_in(part) for part in compared):
            yield node.lineno if hasattr(node, "lineno") else 0, ast.unparse(node)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("if method == 'ssc': pass", 1),
        ("x = 'linear' != model", 1),
        ("x = model in ('linear', 'mlp')", 1),
        ("x = method not in {'u2'}", 1),
        ("match method:\n    case 'proportion': pass", 1),
        ("x = method.risk is ssc_risk", 1),
        ("x = method.risk is None", 0),
        ("x = TABLE['ssc'] == 1", 0),
        ("x = name == 'auto' and name in METHODS", 0),
        ("x = {'ssc': 1}", 0),
    ],
)
def test_a_comparison_with_a_name_is_found(source, found):
    assert len(list(name_comparisons(source))) == found


def test_nobody_asks_for_the_name_of_a_method_or_a_model():
    offenders = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted(ROOT.rglob("*.py"))
        if str(path.relative_to(ROOT)) not in TABLES
        for line, text in name_comparisons(path.read_text())
    ]
    assert not offenders, "make it a field of Method or of Model: " + "; ".join(offenders)


def test_no_two_files_have_the_same_name_nor_that_of_a_standard_module():
    names = Counter(path.stem for path in ROOT.rglob("*.py"))
    names = {name: count for name, count in names.items() if name not in ("__init__", "__main__")}
    assert len(names) > 50
    assert [name for name, count in names.items() if count > 1] == []
    assert sorted(set(names) & sys.stdlib_module_names) == []


FUNCTIONS = [name for name in unmix.__all__ if inspect.isfunction(getattr(unmix, name))]
CLASSES = [name for name in unmix.__all__ if inspect.isclass(getattr(unmix, name))]


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_what_users_call_says_what_it_takes_and_shows_how(name):
    thing = getattr(unmix, name)
    if isinstance(thing, type) and issubclass(thing, Exception):
        assert thing.__doc__  # nobody calls it
        return
    text = inspect.getdoc(thing)
    assert re.search(r"^(Parameters|Attributes)\n-+$", text, re.MULTILINE), f"{name} takes what?"
    assert re.search(r"^Examples\n-+$", text, re.MULTILINE), f"{name} has no example"


@pytest.mark.skipif(not (ROOT.parents[1] / "docs").exists(), reason="installed without its pages")
def test_the_page_of_public_names_has_all_of_them_and_no_other():
    page = (ROOT.parents[1] / "docs" / "api.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(unmix.__all__)
    described = re.findall(r"^\.\. (?:auto\w+|py:data):: unmix\.(\w+)", page, re.MULTILINE)
    assert sorted(described) == sorted(unmix.__all__)
