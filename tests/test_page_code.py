"""Every command and every Python block of README and docs is run, here or by its own test."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import build_page
from play_page import Player, steps_of
from unmix.cli import main

ROOT = Path(__file__).parents[1]
TESTS, DOCS = ROOT / "tests", ROOT / "docs"
INDENTED = re.compile(r"^ {4}(unmix .+)$", re.MULTILINE)
# Pages whose code this file runs; that of others is run by a test that names the page.
HERE = {
    "deploy": "test_deploy_page.py",
    "extending": "test_extending.py",
    "worked-example": "test_examples.py",
    "failure-modes": "test_examples.py",
    "tour": "test_examples.py",
    "election": "test_examples.py",
}
HERE = {"install", "reproduce"}
# A command that another test runs whole, and what it says there.
RUN_ELSEWHERE = {"unmix demo": ("test_cli.py", '"demo"')}


def run(command, folder):
    """Run a command in this process."""
    words = shlex.split(command)
    assert words[0] == "unmix", command
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(main, words[1:])
    return result.exit_code, result.output


def understood(command):
    """Parse a command that takes too long, or a network, without running it."""
    words = shlex.split(command)[1:]
    with main.make_context("unmix", words[:1]) as context:
        _, found, _ = main.resolve_command(context, words[:1])
    rest = words[1:]
    if hasattr(found, "commands"):
        found, rest = found.commands[rest[0]], rest[1:]
    return found.make_context(found.name, rest)


def test_every_page_with_code_is_run_by_a_test():
    pages = {path.stem: path.read_text() for path in DOCS.glob("*.md")}
    with_code = {name for name, text in pages.items() if steps_of(text) or INDENTED.search(text)}
    assert with_code >= HERE
    tests = [path for path in TESTS.glob("test_*.py") if path.name != Path(__file__).name]
    named = "\n".join(path.read_text() for path in tests)
    built = {page.name for page in build_page.PAGES}
    left = {name for name in with_code - HERE - built if f"{name}.md" not in named}
    assert not left, "a test has to run the code of these pages, and name them"


@pytest.mark.parametrize("name", sorted(HERE))
def test_the_code_of_a_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.setenv("UNMIX_DATA", str(tmp_path))
    text = (DOCS / f"{name}.md").read_text()
    player, ran = Player(tmp_path, run), 0
    for step in steps_of(text):
        if step.source in RUN_ELSEWHERE:
            test, words = RUN_ELSEWHERE[step.source]
            assert words in (TESTS / test).read_text()
            continue
        code, output = player.play(step)
        assert code == 0, f"{step.source}\n{output}"
        assert output
        ran += 1
    assert ran
    monkeypatch.chdir(ROOT)
    for command in INDENTED.findall(text):
        assert understood(command)


@pytest.fixture
def practice(tmp_path):
    """The files that the README speaks of: rows, rates, new rows and rows held back."""
    rng = np.random.default_rng(0)
    shares = pd.Series(np.linspace(0.1, 0.8, 8).round(2), [f"r{j}" for j in range(8)])
    for name, each in {"rows": 120, "new": 20, "held": 60}.items():
        region = np.repeat(shares.index.to_numpy(), each)
        y = rng.random(len(region)) < shares[region].to_numpy()
        x = rng.normal(size=(len(region), 2)) + 2.0 * y[:, None]
        frame = pd.DataFrame({"region": region, "a": x[:, 0], "b": x[:, 1]})
        frame.to_parquet(tmp_path / f"{name}.parquet")
    for name in ("rates", "newer"):
        shares.rename_axis("region").rename("share").to_csv(tmp_path / f"{name}.csv")
    return tmp_path


def test_the_commands_of_the_readme_run(practice, monkeypatch):
    monkeypatch.setenv("UNMIX_DATA", str(practice))
    commands = INDENTED.findall((ROOT / "README.md").read_text())
    ours = [command for command in commands if "reproduce" not in command]
    assert [command.split()[1] for command in ours] == [
        *("diagnose", "fit", "predict", "evaluate", "prevalence"),
        *("methods", "data", "train"),
    ]
    for command in ours:
        if command.startswith("unmix train"):
            command += " --epochs 2"
        # What stands in brackets may be left out.
        for form in {re.sub(r" *\[.*?\]", "", command), re.sub(r"[\[\]]", "", command)}:
            if " predict " in form:  # which replaces no file unasked
                (practice / "scored.parquet").unlink(missing_ok=True)
            code, output = run(form, practice)
            assert code == 0, f"{form}\n{output}"
    assert "probability" in pd.read_parquet(practice / "scored.parquet")
    assert (practice / "model/report.html").exists()
    (study,) = set(commands) - set(ours)
    assert understood(study).params["datasets"] == ("mnist",)
