"""The site is built without a warning: every link inside it leads somewhere."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import build_concepts
import build_methods
from unmix import METHODS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it."""
    pytest.importorskip("sphinx")
    folder = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "-q", "-d", str(folder / "trees")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(DOCS), str(folder / "html")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_the_site_has_every_page_and_fetches_nothing(site):
    pages = {path.stem for path in DOCS.glob("*.md")}
    assert pages <= {path.stem for path in site.glob("*.html")}
    for path in site.glob("*.html"):
        text = path.read_text()
        # Nothing is fetched from elsewhere: the site reads the same without a network.
        assert re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"https?:[^\"]*\"", text) == []


def test_formulas_are_drawn_without_a_script(site):
    for name in METHODS:
        assert f'id="{name}"' in (site / "methods.html").read_text()
    formulas = re.findall(r'<div class="math"><math', (site / "methods.html").read_text())
    assert len(formulas) == len(METHODS)


def test_the_page_of_methods_is_that_of_the_method_table():
    page = build_methods.PAGE.read_text(encoding="utf-8")
    assert page == build_methods.render_page(METHODS), "run python docs/build_methods.py"
    cited = {key for found in build_methods.EXPLAINED.values() for key in found.sources}
    assert cited == set(build_methods.SOURCES)


def test_the_pictures_of_concepts_are_those_of_their_script():
    for name, drawing in build_concepts.pictures().items():
        kept = (DOCS / f"images/{name}.svg").read_text(encoding="utf-8")
        assert re.sub(r"[\d.]+", "", kept) == re.sub(r"[\d.]+", "", drawing), name
        assert len(drawing) < 60_000


def test_what_pages_say_of_make_and_extras_is_so():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md")]:
        text = page.read_text()
        assert set(re.findall(r"(?:^ {4}|`)make (\w+)", text, re.MULTILINE)) <= targets, page
        assert set(re.findall(r"pip install '[\w.]*\[(\w+)\]'", text)) <= extras, page
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", (DOCS / "install.md").read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == extras, "list every extra of pyproject.toml in install.md"
