"""Methods and datasets of the user's own: in Python, on the command line, in studies."""

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from unmix import METHODS, UnmixClassifier, plugins, register_dataset, register_method
from unmix.cli import main
from unmix.core.risks import ssc_risk
from unmix.data.benchmarks import BENCHMARKS
from unmix.errors import DivergenceError, InputError
from unmix.learn.linear_fit import fit_linear
from unmix.learn.methods import Method
from unmix.studies.code_version import code_version
from unmix.studies.grid import STUDIES
from unmix.studies.store import RunStore

PAGE = (Path(__file__).parents[1] / "docs/extending.md").read_text()
REGISTRIES = (METHODS, BENCHMARKS, plugins._LOADED)

METHOD = """
from unmix import register_method, ssc_cross_entropy

print("a line on standard output")

@register_method("mine", title="Mine", about="ssc by hand", like="ssc", checks_priors=False)
def mine(transition):
    return lambda logits, sets: ssc_cross_entropy(logits, sets, transition).mean()
"""
DATA = """
import numpy as np
from unmix import register_dataset

rng = np.random.default_rng(0)
y = rng.random(1200) < 0.5
x = rng.normal(size=(1200, 4)) + 2 * y[:, None]
register_dataset("clouds", x[:800], y[:800], x[800:], y[800:], title="Two clouds")
"""


@contextmanager
def fresh_registries():
    """Leave the registries as they were: a new process would begin so."""
    before = [dict(registry) for registry in REGISTRIES]
    try:
        yield
    finally:
        for registry, kept in zip(REGISTRIES, before, strict=True):
            registry.clear()
            registry.update(kept)


@pytest.fixture(autouse=True)
def _fresh_registries():
    with fresh_registries():
        yield


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with a method and a dataset, and a way to rewrite them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "method.py").write_text(METHOD)
    (tmp_path / "data.py").write_text(DATA)
    return tmp_path


def run(*args):
    with fresh_registries():
        return CliRunner().invoke(main, args)


def rows(num_sets=8, each=100):
    rng = np.random.default_rng(0)
    priors = {f"s{j}": (j + 0.5) / num_sets for j in range(num_sets)}
    sets = np.repeat(list(priors), each)
    y = rng.random(len(sets)) < [priors[s] for s in sets]
    return priors, rng.normal(size=(len(sets), 3)) + 2.0 * y[:, None], sets, y


def fitted(model="linear", method="mine", **options):
    priors, X, sets, _ = rows()
    clf = UnmixClassifier(priors, method=method, model=model, random_state=0, **options)
    return clf.fit(X, sets)


# -- in Python


@pytest.mark.parametrize(("model", "options"), [("linear", {}), ("mlp", {"epochs": 3})])
def test_a_method_written_as_ssc_learns_what_ssc_learns(model, options):
    exec(METHOD, {})
    _, X, _, y = rows()
    ours = fitted(model, **options)
    ssc = fitted(model, "ssc", **options)
    assert (ours.method_, ours.method_row_.title) == ("mine", "Mine")
    assert (ours.predict(X) == y).mean() > 0.9
    assert np.abs(ours.predict_proba(X) - ssc.predict_proba(X)).max() < 0.01


def test_a_risk_of_whole_sets_is_minimised_itself_by_a_linear_model():
    # It was replaced by the criterion of 'proportion', whatever the risk.
    seen = []

    @register_method("counting", like="proportion")
    def counting(transition):
        risk = ssc_risk(transition)
        return lambda logits, sets: (seen.append(len(logits)), risk(logits, sets))[1]

    _, X, _, _ = rows()
    clf = fitted(method="counting", l2=1e-3, hide_sets=False)
    assert set(seen) == {len(X)}
    assert len(seen) > 3
    assert not np.allclose(clf.coef_, fitted(method="proportion", l2=1e-3, hide_sets=False).coef_)


def test_a_saved_model_of_a_method_that_was_not_loaded_says_how_to_load_it(tmp_path):
    with fresh_registries():
        exec(METHOD, {})
        fitted().save(tmp_path / "model")
        assert UnmixClassifier.load(tmp_path / "model").method_ == "mine"
    with pytest.raises(InputError, match=r"no method 'mine'.*unmix --load FILE.py"):
        UnmixClassifier.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("ssc", ssc_risk), {}, "there is a method 'ssc' already; pass overwrite=True"),
        (("mine", ssc_risk), {"epochs": 3}, "no field 'epochs'; it has name, title, about, risk"),
        (("two words", ssc_risk), {}, "one word without spaces"),
        ((ssc_risk,), {}, "one word without spaces"),  # @register_method without a name
        (("mine", "ssc"), {}, "a function of a Transition; got 'ssc'"),
        (("mine", ssc_risk), {"like": "scc"}, "did you mean ssc?"),
        (("mine", ssc_risk), {"batch_by": "bags"}, "'sets' or 'whole sets'; got 'bags'"),
        (("mine", ssc_risk), {"assumption": "luck"}, "luck"),
    ],
)
def test_a_method_that_cannot_be_is_refused(arguments, options, words):
    before = dict(METHODS)
    with pytest.raises(InputError, match=re.escape(words)):
        register_method(*arguments, **options)
    assert before == METHODS


def test_a_method_or_dataset_is_replaced_only_on_request():
    register_method("ssc", ssc_risk, about="again", overwrite=True)
    assert METHODS["ssc"].about == "again"
    x, y = np.zeros((4, 2)), [0, 1, 0, 1]
    with pytest.raises(InputError, match="there is a dataset 'digits' already"):
        register_dataset("digits", x, y, x, y)
    register_dataset("digits", x, y, x, y, overwrite=True)
    assert BENCHMARKS["digits"].num_train == 4


WRONG = {
    "vector": (
        lambda transition: lambda logits, sets: logits,
        r"method 'wrong': its risk must return a scalar tensor; got shape \(\d+,\). Take the mean",
    ),
    "number": (lambda transition: lambda logits, sets: 0.5, "scalar tensor; got .*float"),
    "no gradient": (
        lambda transition: lambda logits, sets: (logits > 0).double().mean(),
        "method 'wrong': its risk has no gradient",
    ),
    "raises": (
        lambda transition: lambda logits, sets: logits[len(logits)].sum(),
        r"method 'wrong': its risk raised IndexError: .*\(test_extending.py, line \d+\)",
    ),
    "no factory": (
        lambda logits, sets: logits.mean(),
        "method 'wrong': its risk raised TypeError: .*missing 1 required positional argument",
    ),
    "no function": (
        lambda transition: transition.set_weights.sum(),
        "method 'wrong': its risk must take a Transition and return a function",
    ),
    "nan": (
        lambda transition: lambda logits, sets: logits.mean() * torch.nan,
        "the risk of method wrong became nan",
    ),
    "nan gradient": (
        lambda transition: lambda logits, sets: (logits - logits).abs().sum().sqrt(),
        "the risk of method wrong became",
    ),
}


@pytest.mark.parametrize("model", ["linear", "mlp"])
@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_risk_is_one_line_that_names_the_method(mistake, model):
    risk, words = WRONG[mistake]
    register_method("wrong", risk)
    with pytest.raises((InputError, DivergenceError), match=words) as caught:
        fitted(model, "wrong", epochs=2, hide_sets=False)
    assert "\n" not in str(caught.value)


def test_a_wrong_risk_is_one_line_on_the_command_line(files):
    (files / "method.py").write_text(METHOD.replace(".mean()", ""))
    result = run("--load", "method.py", "train", "digits", "--method", "mine", "--epochs", "1")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("unmix: method 'mine': its risk must return")
    assert "Traceback" not in result.output


# -- the command line


def test_loaded_methods_and_datasets_are_listed(files):
    load = ("--load", "method.py", "--load", str(files / "data.py"))
    assert "mine         Mine                     ssc by hand" in run(*load, "methods").stdout
    assert re.search(r"^clouds +Two clouds +here$", run(*load, "data").stdout, re.MULTILINE)
    assert "mine" not in run("methods").stdout


def test_train_uses_a_loaded_method_on_a_loaded_dataset(files):
    options = ("--num-sets", "5", "--epochs", "3", "--threads", "1", "--json")
    load = ("--load", "method.py", "--load", "data.py")
    result = run(*load, "train", "clouds", "--method", "mine", *options)
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)  # what the file prints does not disturb
    assert (record["dataset"], record["method"]) == ("clouds", "mine")
    assert record["test_error"] < 0.2


def test_the_variable_loads_files_for_every_command(files, monkeypatch):
    paths = [str(files / "method.py"), str(files / "data.py")]
    monkeypatch.setenv("UNMIX_LOAD", os.pathsep.join(paths))
    assert "mine" in run("methods").stdout
    assert "mine" in run("--load", "method.py", "methods").stdout  # once, not twice
    monkeypatch.setenv("UNMIX_LOAD", "method.py")
    result = run("methods")
    assert (result.exit_code, result.stderr) == (
        2,
        "unmix: UNMIX_LOAD names method.py; write its absolute path\n",
    )


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gone.py", None, "gone.py cannot be loaded: there is no such file"),
        ("method.txt", METHOD, "give a Python file, whose name ends in .py"),
        ("bad.py", "x = 1\nx +\n", "bad.py cannot be loaded: line 2: SyntaxError: invalid syntax"),
        ("bad.py", "\n\nnothing.here\n", "line 3: NameError: name 'nothing' is not defined"),
        ("bad.py", "import sys\nsys.exit('no')", "line 2: SystemExit: no"),
        ("bad.py", "import not_there", "line 1: ModuleNotFoundError: No module named 'not_there'"),
        ("bad.py", METHOD.replace("about", "abuot"), "line 6: a method has no field 'abuot'"),
        ("bad.py", METHOD.replace('"mine"', '"ssc"'), "there is a method 'ssc' already"),
        ("folder.py", "", "Is a directory"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_one_line(files, name, text, words):
    if name == "folder.py":
        (files / name).mkdir()
    elif text is not None:
        (files / name).write_text(text)
    result = run("--load", name, "methods")
    assert result.exit_code == 2
    assert words in result.stderr
    (line,) = [x for x in result.stderr.splitlines() if x != "a line on standard output"]
    assert line.startswith(f"unmix: {name} cannot be loaded: ")
    assert result.stdout == ""


def test_debug_shows_where_a_file_fails(files):
    (files / "method.py").write_text("1 / 0")
    result = run("--debug", "--load", "method.py", "methods")
    assert isinstance(result.exception.__cause__, ZeroDivisionError)


# -- studies


def test_a_method_that_no_study_lists_is_a_row_of_its_own():
    exec(METHOD, {})
    comparison, size = (
        STUDIES[n].with_methods(["mine", "mmc-u2"]) for n in ("comparison", "set-size")
    )
    assert comparison.methods == (*STUDIES["comparison"].methods, "mine")
    assert size.methods == ("ssc", "mine")  # mmc-u2 belongs to other studies
    cells = size.cells(["digits"], ["mine"], [0], num_sets=[10])
    assert {(row.row, row.cell.method, row.paper) for row in cells} == {("mine", "mine", None)}


def test_reproduce_runs_a_loaded_method_on_a_loaded_dataset_with_two_workers(files):
    load = ("--load", "method.py", "--load", "data.py")
    command = (
        "reproduce comparison set-number --methods mine,ssc --datasets clouds --num-sets 2,10 "
        "--seeds 0,1 --epochs 1 --workers 2 --json"
    )
    command = command.split()
    noisy = METHOD.replace("    return", "    print('not a line of JSON')\n    return")
    (files / "method.py").write_text(noisy)
    result = run(*load, *command, "--report", "report")
    assert result.exit_code == 0, result.output
    studies = json.loads(result.stdout)["studies"]
    mine, ssc = (
        {e["column"]: e["mean"] for s in studies.values() for e in s if e["row"] == row}
        for row in ("mine", "ssc")
    )
    assert mine.keys() == ssc.keys() == {"2 sets", "10 sets"}
    assert mine["10 sets"] == pytest.approx(ssc["10 sets"], abs=1)
    for name in ("comparison", "set-number"):
        assert "mine" in (files / f"report/{name}.html").read_text()
        assert "mine" in (files / f"report/{name}.csv").read_text()
    with RunStore("runs", create=False) as store:
        codes = {result["code_version"] for result in store.results().values()}
    assert len(codes) == 1
    assert re.search(r" \+ method\.py \w{12} \+ data\.py \w{12}, torch ", codes.pop())
    # The file changes: old results are named as such, and measured again on request.
    (files / "method.py").write_text(METHOD.replace(".mean()", ".square().mean()"))
    old = run(*load, *command)
    assert "8 of 8 results were measured with another version of your files" in old.stderr
    again = run(*load, *command, "--again")
    assert (again.exit_code, "measured" in again.stderr) == (0, False)
    first, second = (json.loads(r.stdout)["studies"] for r in (old, again))
    assert first == studies
    assert second != studies


def test_the_code_version_tells_loaded_files_apart(tmp_path):
    plain = code_version()
    texts = ["", "x = 1", "x = 2"]
    versions = [plain]
    for text in texts:
        (tmp_path / "one.py").write_text(text)
        with fresh_registries():
            plugins.load_file(tmp_path / "one.py")
            versions.append(code_version())
    assert len(set(versions)) == 4
    assert code_version() == plain


def test_an_unknown_method_of_a_study_is_refused_with_the_way_to_load_one():
    result = run("reproduce", "comparison", "--methods", "mine", "--datasets", "digits")
    assert result.exit_code == 2
    assert "comparison has no method 'mine'" in result.stderr
    assert "unmix --load FILE.py" in result.stderr


# -- the page


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A folder with the files of the page; returns the other Python blocks."""
    monkeypatch.chdir(tmp_path)
    code = []
    for block in blocks("python"):
        name = re.match(r"# (\w+\.py)\n", block)
        if name:
            (tmp_path / name[1]).write_text(block)
        else:
            code.append(block)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "my_data.py",
        "my_k_class_method.py",
        "my_method.py",
        "my_network.py",
        "test_my_method.py",
    ]
    return code


def test_the_python_of_the_page_runs(page):
    tests = re.findall(r"def (test_\w+)", Path("test_my_method.py").read_text())
    assert len(tests) == 1
    script = "\n".join([*page, "import test_my_method as t", *map("t.{}()".format, tests)])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    linear, network = map(float, re.findall(r"accuracy: ([\d.]+)", done.stdout))
    assert "the same: True" in done.stdout
    assert linear > 0.85
    assert network > 0.75


def test_the_commands_of_the_page_run(page):
    commands = [line[2:] for b in blocks("console") for line in b.splitlines() if line[:2] == "$ "]
    assert len(commands) == 6
    for command in commands:
        words = shlex.split(command)
        assert words[:2] == ["unmix", "--load"]
        result = run(*words[1:])
        assert result.exit_code == 0, f"{command}\n{result.output}"
    assert Path("report/comparison.html").exists()
    assert Path("report/set-number.html").exists()


def test_the_method_for_k_classes_of_the_page_learns_three(page):
    plugins.load_file("my_k_class_method.py")
    rng = np.random.default_rng(0)
    shares = rng.dirichlet([1, 1, 1], size=12)
    names = np.array(["a", "b", "c"])
    priors = {j: dict(zip(names, row, strict=True)) for j, row in enumerate(shares)}
    sets = np.repeat(np.arange(12), 150)
    y = np.array([rng.choice(3, p=shares[s]) for s in sets])
    X = rng.normal(size=(len(y), 2)) + 3 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    clf = UnmixClassifier(priors, method="share-squares-k", model="linear", random_state=0)
    assert (clf.fit(X, sets).predict(X) == names[y]).mean() > 0.8
    two = {j: row[1] for j, row in enumerate(shares)}
    fit = UnmixClassifier(two, method="share-squares-k", model="linear", random_state=0)
    assert fit.fit(X, sets).decision_function(X).shape == (len(y),)


def test_the_page_explains_every_field_of_a_method():
    explained = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert explained == [field.name for field in fields(Method)]


def test_a_registered_method_is_fitted_by_name_too():
    exec(METHOD, {})
    register_method("again", METHODS["mine"].risk)
    from unmix.data.sets import UnlabeledSets

    priors, X, sets, _ = rows()
    index = np.array([list(priors).index(s) for s in sets])
    made = UnlabeledSets(X, index, np.array([*priors.values()]), target_prior=0.5)
    fits = [fit_linear(made, method=m, l2=1e-3) for m in ("again", METHODS["again"], "ssc")]
    assert np.allclose(fits[0].weights, fits[1].weights, atol=0)
    assert np.allclose(fits[0].weights, fits[2].weights, atol=1e-4)
