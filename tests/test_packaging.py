"""What is published: what the archives hold, and that the wheel works on its own."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import check_dist
from unmix.data.benchmarks import BENCHMARKS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
sys.path.insert(0, str(ROOT))
from hatch_build import readme_for_index, urls_of  # noqa: E402


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return check_dist.build(tmp_path_factory.mktemp("dist"), isolated=False)


def test_the_wheel_holds_the_package_and_all_that_it_reads(built):
    wheel, _ = built
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src"
    wanted = {
        path.relative_to(package).as_posix()
        for path in (package / "unmix").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"unmix/py.typed", "unmix/report/report.html.j2", "unmix/report/report.css"} <= wanted
    others = {name for name in names if ".dist-info/" not in name}
    assert others == wanted
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_source_archive_can_be_tested_and_built_again(built):
    _, sdist = built
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for wanted in ("pyproject.toml", "hatch_build.py", "Makefile", "constraints.txt", "README.md"):
        assert wanted in names
    assert {"tests/test_packaging.py", "docs/index.md", "src/unmix/cli/__main__.py"} <= names
    assert not [name for name in names if re.search(r"__pycache__|\.pyc$|^\.venv|^docs/site", name)]


def test_the_metadata_is_what_an_index_shows(built):
    wheel, _ = built
    archive = zipfile.ZipFile(wheel)
    (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
    facts = message_from_bytes(archive.read(name))
    assert facts["Version"] == PROJECT["project"]["version"]
    assert facts["Requires-Python"] == ">=3.11"
    for python in ("3.11", "3.12", "3.13"):
        assert f"Programming Language :: Python :: {python}" in facts.get_all("Classifier")
    extras = set(PROJECT["project"]["optional-dependencies"])
    assert set(facts.get_all("Provides-Extra")) == extras
    assert {"excel", "onnx", "mlflow", "docs", "test"} <= extras
    text = facts.get_payload()
    assert text.startswith("# unmix")
    home = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["home"]
    assert [url.partition(", ")[2] for url in facts.get_all("Project-URL", [])] == list(
        urls_of(home).values()
    )
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert target.startswith(("https://", "#")), target


def test_links_of_the_readme_are_absolute_where_the_project_has_a_home():
    page = "[a](docs/a.md), ![b](docs/b.png), [c](https://c.org/x), [d](#here)"
    home = "https://host.example/us/unmix"
    assert readme_for_index(page, home) == (
        f"[a]({home}/blob/main/docs/a.md), ![b]({home}/raw/main/docs/b.png), "
        "[c](https://c.org/x), [d](#here)"
    )
    assert readme_for_index(page, "") == "a, , [c](https://c.org/x), [d](#here)"
    assert urls_of(home)["Source"] == home
    assert all((ROOT / url.partition("/blob/main/")[2]).exists() for url in urls_of(home).values())
    assert urls_of("") == {}


def test_the_wheel_works_without_the_repository(built, tmp_path):
    wheel, _ = built
    target = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(target), str(wheel)], check=True)
    place = tmp_path / "place"
    place.mkdir()
    environment = os.environ | {"PYTHONPATH": str(target)}
    where = "import unmix; print(unmix.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", where], env=environment, cwd=place, capture_output=True, text=True
    )
    assert Path(done.stdout.strip()).is_relative_to(target)
    printed = check_dist.try_out(sys.executable, place, environment)
    assert f", version {PROJECT['project']['version']}\n" in printed
    assert "1,200 rows scored" in printed


def test_oldest_versions_are_those_that_the_project_asks_for():
    pinned = dict(
        line.split("==")
        for line in (ROOT / "oldest.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    )
    asked = [re.match(r"([\w-]+) >= ([\d.]+)", d) for d in PROJECT["project"]["dependencies"]]
    assert all(asked)
    wanted = {found[1]: found[2] for found in asked}
    assert set(pinned) == set(wanted)
    for name, version in wanted.items():
        assert (pinned[name] + ".").startswith(version + "."), name


def test_the_workflow_runs_what_everybody_runs_with_files_that_exist():
    text = (ROOT / ".github/workflows/test.yml").read_text()
    commands = re.findall(r"- run: make (\w+)", text)
    assert commands[0] == "test"
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(commands) <= targets
    files = set(re.findall(r"constraints: ([\w.]+)", text))
    assert files == {"constraints.txt", "oldest.txt", "newest.txt"}
    assert all((ROOT / name).exists() for name in files)
    assert {"ubuntu-latest", "macos-latest", "windows-latest"} <= set(
        re.findall(r"[\w-]+latest", text)
    )
    asked = re.search(r"Python :: (3\.\d+)\",\n  \"Topic", (ROOT / "pyproject.toml").read_text())
    assert f'python: "{asked[1]}"' in text


def test_the_citation_names_this_version():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited[1] == PROJECT["project"]["version"]


def test_the_lock_answers_every_wish_of_the_project_with_one_archive_each():
    lines = [t for t in (ROOT / "lock.txt").read_text().splitlines() if not t.startswith("#")]
    parts = [re.fullmatch(r"([\w.-]+)==(\S+) --hash=sha256:[0-9a-f]{64}", line) for line in lines]
    assert all(parts)
    locked = {canonicalize_name(part[1]): part[2] for part in parts}
    assert len(locked) == len(lines)
    extras = PROJECT["project"]["optional-dependencies"]
    for wish in [*PROJECT["project"]["dependencies"], *extras["test"], *extras["docs"]]:
        asked = Requirement(wish)
        if asked.name != "unmix":  # an extra of its own
            assert asked.specifier.contains(locked[canonicalize_name(asked.name)]), wish
    constraint = Requirement((ROOT / "constraints.txt").read_text().splitlines()[-1])
    assert constraint.specifier.contains(locked["torch"])


def test_data_comes_by_https_and_with_its_hash():
    files = [file for info in BENCHMARKS.values() for file in info.files]
    archives = [info.archive for info in BENCHMARKS.values() if info.archive]
    addresses = [file.url for file in files if file.url] + [archive.url for archive in archives]
    assert len(addresses) >= 13
    assert all(address.startswith("https://") for address in addresses)
    assert all(len(file.sha256) == 64 for file in [*files, *archives])
