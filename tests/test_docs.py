import doctest
import importlib
import re
from pathlib import Path

import pytest

import source_tree
import unmix

ROOT = Path(__file__).parents[1]
PACKAGE = Path(unmix.__file__).parent
WITH_EXAMPLES = sorted(p for p in PACKAGE.rglob("*.py") if ">>>" in p.read_text())


def module_name(path):
    return ".".join(("unmix", *path.relative_to(PACKAGE).with_suffix("").parts))


@pytest.mark.parametrize("name", [module_name(path) for path in WITH_EXAMPLES])
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0


def test_the_readme_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    exec(code, {})
    assert "accuracy: 0.9" in capsys.readouterr().out


def test_the_tree_for_contributors_is_that_of_the_package():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert "    risks.py " in page
    assert source_tree.with_tree(page) == page, "run python tests/source_tree.py"


def test_the_readme_is_a_page_or_two_with_a_small_picture():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 115
    picture = (ROOT / "docs/images/report.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert 20_000 < len(picture) < 200_000


def test_every_public_name_is_explained_once():
    page = (ROOT / "docs/api.md").read_text()
    lines = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE))
    assert sorted(lines) == sorted(unmix.__all__)
    described = re.findall(r"^\.\. (?:auto|py:)\w+:: unmix\.(\w+)$", page, re.MULTILINE)
    assert sorted(described) == sorted(unmix.__all__), "add .. autofunction:: to docs/api.md"
    methods = re.findall(r"`(\w+)(?:\([^`]*\))?`", lines["UnmixClassifier"])
    assert [name for name in methods if not hasattr(unmix.UnmixClassifier, name)] == []


def test_links_in_the_documents_lead_somewhere():
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if not target.startswith("http"):
                assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_no_document_names_a_machine_or_a_registry():
    # In pieces, so that this file may be searched as well.
    parts = [
        ("/wor", "k/"),
        ("/tmp", "/w"),
        ("py", r"pi\.org"),
        ("python", "hosted"),
        ("npm", "js"),
    ]
    words = re.compile("|".join(map("".join, parts)))
    endings = (".py", ".md", ".toml", ".j2", ".txt", ".json", ".jsonl", ".svg", ".css", "")
    for path in ROOT.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        if path.suffix in endings and path.is_file() and not hidden:
            assert not words.search(path.read_text()), path
