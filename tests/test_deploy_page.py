"""docs/deploy.md: its commands and blocks run as they stand, in their order."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from test_cli_tables import SHARES, people, rates
from unmix.cli import main

PAGE = Path(__file__).parents[1] / "docs/deploy.md"
BLOCK = re.compile(r"```(console|python)\n(.*?)```", re.DOTALL)


def test_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    people().drop(columns="sick").to_csv("rows.csv", index=False)
    new = people(seed=1).drop(columns=["sick", "region"])
    new["code"] = np.where(np.arange(len(new)) % 7 == 0, None, new["code"])
    new.assign(id=np.arange(len(new))).to_csv("new.csv", index=False)
    Path("rates.csv").write_text(rates())
    Path("newer.csv").write_text(rates({name: share * 0.95 for name, share in SHARES.items()}))
    blocks = BLOCK.findall(PAGE.read_text())
    assert {kind for kind, _ in blocks} == {"console", "python"}
    script = []
    for kind, block in blocks:
        if kind == "python":
            script.append(block)
            continue
        for line in block.splitlines():
            words = shlex.split(line.removeprefix("$ "))
            assert words[0] == "unmix", line
            result = CliRunner().invoke(main, words[1:])
            assert result.exit_code == 0, f"{line}\n{result.output}"

    done = subprocess.run([sys.executable, "-c", "\n".join(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    people().drop(columns="sick").to_csv(folder / "rows.csv", index=False)
    (folder / "rates.csv").write_text(rates())
    words = ["fit", "rows.csv", "--sets", "region", "--priors", "rates.csv", "-o", "model"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(main, [*words, "--model", "linear", "--method", "ssc"])
    assert result.exit_code == 0, result.output
    return folder / "model"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "say where to: -o model.onnx, or --sql"),
        (["-o", "model.pt"], "must end in .onnx or .sql"),
        (["--sql", "-o", "model.onnx"], "ends in .sql; got model.onnx"),
        (["-o", "model.onnx", "--keep", "id"], "are for --sql"),
        (["--sql", "--dialect", "cobol"], "dialect must be one of"),
        (["--sql", "--target-prior", "a=0.5,b=0.5"], "--target-prior must give a share"),
    ],
)
def test_what_cannot_be_exported_is_one_line(model, options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["export", str(model), *options])
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_library_that_is_not_there_is_named_with_its_extra(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    result = CliRunner().invoke(main, ["export", str(model), "-o", str(tmp_path / "m.onnx")])
    assert result.exit_code == 2
    assert "pip install 'unmix[onnx]'" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_printed_select_is_at_the_target_prior_asked_for(model):
    queries = [
        CliRunner().invoke(main, ["export", str(model), "--sql", *options]).stdout
        for options in ([], ["--target-prior", "0.9"])
    ]
    assert queries[0].startswith("SELECT\n")
    different = [a for a, b in zip(*map(str.splitlines, queries), strict=True) if a != b]
    assert len(different) == 1  # the constant of the logit
