"""The site is built without a warning: every link inside it leads somewhere."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import unmix

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


def test_every_public_name_has_its_parameters_on_the_site(site):
    text = (site / "api.html").read_text()
    for name in unmix.__all__:
        assert f'id="unmix.{name}"' in text, name


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
