"""The report says the right thing first, shows every value, and is one harmless file."""

import math
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest

from unmix import UnmixClassifier
from unmix.assess.evaluate import evaluate
from unmix.assess.histograms import ClassHistograms, ScoreHistogram
from unmix.assess.judge import judge
from unmix.core.class_shares import ClassShares
from unmix.core.stand_ins import NO_STAND_INS
from unmix.data.priors import Priors
from unmix.learn.hidden_sets import Gain
from unmix.learn.methods import METHODS
from unmix.report.headline import verdict_of
from unmix.report.page import render_report
from unmix.report.report_figures import pictures_of
from unmix.report.report_tables import MOST_ROWS, misfit_rows

BETTER = {"ssc": 0.021, "proportion": 0.064, "baseline": 0.23}
WORSE = {"ssc": 0.142, "proportion": 0.051, "baseline": 0.034}
HISTORY = ({"round": 1, "held_out_loss": 3.0}, {"round": 2, "held_out_loss": 2.5})
SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(1)>'
HOSTILE = (
    SCRIPT,
    "{{7*7}}",
    IMAGE,
    "endless " * 500,
    "שלום עולם",
    "😀 家族",
    "$\\frac{1}{0}$",
    "nul\x00esc\x1bnew\nline",
    "",
    "\u202esdrawkcab",
    "&amp;<!--",
)
VOID = {"meta", "link", "br", "img", "input", "hr"}


class StandIn:
    """What `judge` reads of a fitted classifier; the rows are their own logits."""

    def __init__(
        self, priors, *, rows=1000, target=0.3, method="ssc", classes=(0, 1), hidden=(), **rest
    ):
        self.set_ids_ = tuple(priors)
        self.stated_priors_ = dict(priors)
        self.set_priors_ = dict(zip(priors, rest.get("refined", priors.values()), strict=True))
        self.prior_errors_ = rest.get("errors")
        self.set_sizes_ = np.full(len(priors), rows)
        self.target_prior_ = np.array([1 - target, target] if np.ndim(target) == 0 else target)
        self.classes_ = np.array(classes)
        self.method_, self.model_ = method, rest.get("model", "linear")
        self.leave_sets_out_ = dict(hidden)
        self.gains_ = {
            name: Gain(1.0 if error < hidden["baseline"] else -1.0, 0.1, 2.5, 0.2)
            for name, error in self.leave_sets_out_.items()
            if name != "baseline"
        }
        self.history_ = list(rest.get("history", ()))
        self.held_out_shares_ = rest.get("held_out_shares")
        self.groupings_, self.sampled_rows_, self.training_labels_ = (), 0, 0

        self.refined_ = "refined" in rest
        self.method_row_ = METHODS[method]
        self.shares_ = ClassShares(np.stack([*priors.values()]))

        setup = SimpleNamespace(model=self.model_)
        self.learner_ = SimpleNamespace(
            base_prior=self.target_prior_,
            setup=setup,
            tau=0.0,
            fit=None,
            lone=lambda logits: logits,
            inside=NO_STAND_INS,
        )
        self.set_priors, self.method, self.hide_sets = dict(priors), method, None

    def decision_function(self, X):
        return X[:, 0] if X.shape[1] == 1 else X

    def logits_at(self, X, prior):
        return self.decision_function(X)

    def lone_logits(self, logits):
        return logits  # the base prior is the target

    def priors_of_training(self):
        return Priors(self.set_ids_, self.shares_, source="the model")

    def probabilities_in_sets(self, logits, set_index, priors):
        return self.predict_proba(logits.reshape(len(logits), -1))

    def predict_proba(self, X):
        logits = np.column_stack([np.zeros(len(X)), X]) if X.shape[1] == 1 else X
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)


def two_classes(names, rows=300, wrong=(), seed=0):
    """Priors, logits at a target prior of 0.3, set ids and labels of Gaussian scores."""
    rng = np.random.default_rng(seed)
    stated = np.linspace(0.15, 0.85, len(names))
    true = stated.copy()
    true[list(wrong)] = 1 - stated[list(wrong)]
    index = np.repeat(np.arange(len(names)), rows)
    labels = (rng.random(len(index)) < true[index]).astype(int)
    logits = 2 * rng.normal(2 * labels - 1.0) + math.log(0.3 / 0.7)
    ids = np.array(names, dtype=object)[index]
    return dict(zip(names, stated, strict=True)), logits[:, None], ids, labels


def three_classes(names, rows=400, seed=0):
    rng = np.random.default_rng(seed)
    stated = rng.dirichlet(np.ones(3), len(names))
    index = np.repeat(np.arange(len(names)), rows)
    labels = (rng.random(len(index))[:, None] > stated.cumsum(axis=1)[index]).sum(axis=1)
    logits = 2 * np.eye(3)[labels] + rng.normal(size=(len(index), 3))
    ids = np.array(names, dtype=object)[index]
    return dict(zip(names, stated, strict=True)), logits, ids, labels


def named(count):
    return [f"county {j}" for j in range(count)]


@pytest.fixture(scope="module")
def good():
    priors, X, ids, labels = two_classes(named(20))
    clf = StandIn(priors, hidden=BETTER, history=HISTORY, model="boosting")
    return judge(clf, X, ids, labels=labels)


@pytest.fixture(scope="module")
def good_page(good):
    return render_report(good, created="16 November")


@pytest.fixture(scope="module")
def misfit():
    priors, X, ids, _ = two_classes(named(50), wrong=(3, 40))
    return judge(StandIn(priors, hidden=BETTER), X, ids)


@pytest.fixture(scope="module")
def misfit_page(misfit):
    return render_report(misfit)


@pytest.fixture(scope="module")
def three():
    priors, X, ids, labels = three_classes(named(12))
    classes = np.array(["fox", "hare", "owl"])
    clf = StandIn(priors, target=(0.5, 0.3, 0.2), classes=classes, hidden=BETTER)
    return judge(clf, X, ids, labels=classes[labels])


@pytest.fixture(scope="module")
def three_page(three):
    return render_report(three)


@pytest.fixture(scope="module")
def hostile_page():
    priors, X, ids, _ = two_classes([*HOSTILE, *named(12)], wrong=range(4), rows=400)
    errors = np.full(len(priors), 0.01)
    clf = StandIn(
        priors,
        classes=(SCRIPT, "$x^2$ <i>"),
        hidden=BETTER,
        errors=errors,
        refined=[p + 0.03 for p in priors.values()],
        history=HISTORY,
    )
    judgement = judge(clf, X, ids)
    return render_report(judgement, title=f"Title {SCRIPT}", created=IMAGE)


class Page(HTMLParser):
    """Checks that elements nest, and keeps elements, attributes and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words, self.style = [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.words.append(data)

    def count(self, tag):
        return sum(name == tag for name, _ in self.elements)


def check_harmless(text):
    """One well-formed file that runs nothing and asks nobody for anything."""
    page = Page(text)
    assert page.count("script") == page.count("img") == page.count("iframe") == 0
    assert "@import" not in page.style
    assert "url(" not in page.style
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(set(ids)) == len(ids)
    for _, attrs in page.elements:
        for name, value in attrs.items():
            assert not name.startswith("on")
            assert value.startswith("data:image/png;base64,") or "//" not in value
            if name in ("href", "src", "xlink:href"):
                assert value.startswith(("data:", "#"))
            if "url(" in value:
                assert value.startswith("url(#")
    text.encode("utf-8")
    return page


def test_the_answer_comes_first_and_then_the_numbers(good, good_page):
    page = check_harmless(good_page)
    places = [
        page.text.index(words)
        for words in ("Yes: no check found evidence against it", *good.sentences)
    ]
    assert places == sorted(places)
    order = (
        "Performance",
        "Plots",
        "Test of label shift",
        "Data check",
        "What this does not tell you",
        "How it was made",
    )
    places += [page.text.index(heading, places[-1]) for heading in order]
    assert places == sorted(places)
    assert "16 November" in page.text


def test_a_fitted_classifier_gets_its_report():
    priors, _, ids, labels = two_classes(named(20))
    X = np.random.default_rng(1).normal(size=(len(ids), 2)) + 2 * labels[:, None]
    options = {"method": "ssc", "model": "linear", "l2": 1e-3, "random_state": 0}
    clf = UnmixClassifier(priors, target_prior=0.3, **options)
    half = np.arange(len(ids)) % 2 == 0
    judgement = judge(clf.fit(X[half], ids[half]), X[~half], ids[~half], labels=labels[~half])
    page = check_harmless(render_report(judgement))
    assert "Can this be trusted? ✓ Yes" in page.text
    assert "A linear model was trained with method ssc on 3,000 rows in 20 sets" in page.text
    assert page.count("svg") == 5  # shares, ROC, gain, scores, weights


def test_every_number_stands_beside_its_interval_and_its_labeled_value(good, good_page):
    text = Page(good_page).text.replace("\xa0", " ")
    evaluation = good.evaluation
    for name in ("accuracy", "balanced_accuracy", "tpr", "fpr"):
        found = getattr(evaluation, name)
        assert f"{100 * found.value:.1f} %" in text
        assert f"{100 * found.low:.1f} to {100 * found.high:.1f} %" in text
        assert f"{100 * getattr(evaluation.labeled, name):.1f} %" in text
    assert f"{evaluation.auc.low:.3f} to {evaluation.auc.high:.3f}" in text
    assert f"{evaluation.labeled.auc:.3f}" in text
    assert f"about {good.diagnosis.worth_in_labels:,.0f}" in text
    assert "With 6,000 labels" in text
    assert "inside the interval" in text
    assert "No set is flagged." in text


def test_the_same_judgement_gives_the_same_bytes(good, good_page):
    assert render_report(good, created="16 November") == good_page


def test_a_page_of_fifty_sets_is_small(misfit_page):
    assert len(misfit_page.encode()) < 300_000


def test_misfits_turn_the_banner_red_and_are_listed_with_a_direction(misfit, misfit_page):
    text = check_harmless(misfit_page).text.replace("\xa0", " ")
    assert verdict_of(misfit).level == "no"
    assert "No: the sets are not consistent with the assumption" in text
    assert "Accuracy, AUC and rates that need no labels are not shown" in text
    assert "and the test below rejects it" in text
    assert "Predicted against stated shares: 2 sets are flagged" in text
    rows = {row.names[0]: row for row in misfit_rows(misfit)}
    assert set(rows) == {"county 3", "county 40"}
    assert rows["county 3"].direction.endswith("a larger share of positives than stated")
    assert rows["county 40"].direction.endswith("a smaller share of positives than stated")
    assert rows["county 3"].p_value == "< 0.0001"
    assert rows["county 3"].stated.startswith("19.3")
    assert float(rows["county 3"].predicted.split("\xa0")[0]) > 60
    assert rows["county 3"].direction in text


def test_sets_that_cannot_answer_are_called_so():
    priors, X, ids, _ = two_classes(named(12))
    judgement = judge(StandIn(priors, hidden=WORSE), X, ids)
    text = Page(render_report(judgement)).text
    assert "No: not shown to beat giving every row its set's share" in text
    assert "Held-out sets are predicted no better than by guessing" in text


def test_three_classes_get_a_confusion_matrix_and_a_panel_each(three):
    page = check_harmless(render_report(three))
    text = page.text.replace("\xa0", " ")
    matrix = three.evaluation.confusion
    for truth in range(3):
        for decision in range(3):
            assert f"{100 * matrix.value[truth][decision]:.1f} %" in text
            assert (
                f"labels: {100 * three.evaluation.labeled.confusion[truth][decision]:.1f} %" in text
            )
    for name in ("fox", "hare", "owl"):
        assert f"stated share of class {name}" in text
        assert f"actual {name}" in text
    assert "True positive rate" not in text
    assert "fox 50 %, hare 30 %, owl 20 %" in text
    assert page.count("svg") == 7  # shares and scores of each class, gain


def test_two_classes_with_a_logit_each_are_shown_as_well(misfit):
    priors, X, _, _ = two_classes(named(50), wrong=(3, 40))
    share = np.array([*priors.values()])
    evaluation = evaluate(
        np.column_stack([np.zeros(len(X)), X]),
        np.repeat(np.arange(50), 300),
        np.column_stack([1 - share, share]),
        (0.7, 0.3),
        set_ids=named(50),
    )
    judgement = replace(misfit, evaluation=evaluation, classes=("no", "yes"), histograms=())
    text = check_harmless(render_report(judgement)).text.replace("\xa0", " ")
    assert "are not shown" in text
    assert "predicted share of class yes" in text
    rows = {row.names[0]: row for row in misfit_rows(judgement)}
    assert set(rows) == {"county 3", "county 40"}
    assert rows["county 3"].stated == "19.3\xa0%"
    assert "a larger share of class yes" in rows["county 3"].direction


def test_what_was_not_checked_is_said():
    priors, X, ids, _ = two_classes(named(2))
    two_sets = judge(StandIn(priors), X, ids)
    assert verdict_of(two_sets).level == "partly"
    text = check_harmless(render_report(two_sets)).text
    assert "The assumption cannot be tested with two sets" in text
    assert "prediction of held-out sets (too few sets)" in text
    no_rows = judge(StandIn(priors, hidden=BETTER))
    assert no_rows.evaluation is None
    page = check_harmless(render_report(no_rows))
    assert "no held-out rows here" in page.text
    assert "Accuracy" not in page.text
    assert page.count("svg") == 1  # hidden sets


def test_the_method_proportion_is_told_apart():
    priors, X, ids, _ = two_classes(named(12), wrong=(2,))
    clf = StandIn(priors, method="proportion", hidden={**BETTER, "proportion": 0.01})
    judgement = judge(clf, X, ids)
    verdict = verdict_of(judgement)
    assert verdict.headline.startswith(
        "Partly: it predicts the shares of sets; single rows are not"
    )
    assert "The ecological fallacy" in verdict.warnings[-1]
    text = Page(render_report(judgement)).text.replace("\xa0", " ")
    assert "not shown: they assume label shift" in text
    assert "and method proportion does not" in text
    assert "AUC 0" not in text
    assert "No intervals are shown: the available ones assume label shift." in text
    entry = {e.set_id: e for e in judgement.evaluation.calibration}["county 2"]
    row = misfit_rows(judgement)[0]
    assert row.names == ("county 2",)
    assert row.predicted.replace("\xa0", " ") == f"{100 * entry.mean_share:.1f} %"


def test_refined_shares_and_the_learning_curve_are_shown_only_if_there_are_any(
    good_page, misfit, misfit_page
):
    assert "The loss on held-out rows was lowest in round 2" in good_page
    assert Page(good_page).count("svg") == 5
    assert Page(misfit_page).count("svg") == 3  # no ROC curve
    refined = replace(
        misfit,
        evaluation=None,
        histograms=(),
        gains={},
        prior_errors=(0.02,) * 50,
        refined=True,
        refined_priors=tuple(p + 0.125 * (j == 7) for j, p in enumerate(misfit.stated_priors)),
    )
    (picture,) = pictures_of(refined)
    assert picture.heading == (
        "Estimated against stated shares: changes of up to 12.5 percentage points"
    )
    assert ">county 7<" in picture.drawings[0]


def test_hostile_names_are_text_everywhere(hostile_page):
    page = check_harmless(hostile_page)
    words = [data.strip() for data in page.words]
    assert words.count(SCRIPT) >= 1
    assert words.count(IMAGE) >= 2  # the table and the date
    assert words.count("{{7*7}}") >= 3  # shares, scores and the table
    assert "$\\frac{1}{0}$" in words
    assert "שלום עולם" in words
    assert "(no name)" in words
    assert "nul\ufffdesc\ufffdnew line" in words
    assert f"Title {SCRIPT}" in words
    assert "49" not in words
    assert "\x00" not in hostile_page
    assert "\u202e" not in hostile_page
    assert max(map(len, words)) < 1000  # the endless name is cut


def test_five_thousand_sets_make_a_page_that_says_what_it_leaves_out():
    priors, X, _, _ = two_classes(named(5000), rows=40, wrong=range(0, 5000, 2))
    index = np.repeat(np.arange(5000), 40)
    evaluation = evaluate(X[:, 0], index, [*priors.values()], 0.3, set_ids=[*priors])
    judgement = replace(
        judge(StandIn(priors, hidden=BETTER)),
        evaluation=evaluation,
        histograms=(
            ClassHistograms(
                1,
                tuple(np.linspace(0, 1, 21)),
                tuple(ScoreHistogram(name, (0.05,) * 20) for name in priors),
            ),
        ),
    )
    text = render_report(judgement)
    assert len(text.encode()) < 600_000
    plain = check_harmless(text).text
    assert "Shows 2,000 of 5,000 sets" in plain
    assert "Each row is an average over sets with similar stated shares" in plain


def test_a_long_table_is_cut_and_says_so(misfit):
    test = misfit.evaluation.fit_test
    wrong = next(entry for entry in test.sets if not entry.fits)
    many = replace(test, sets=(wrong,) * (MOST_ROWS + 50))
    judgement = replace(
        misfit,
        evaluation=replace(misfit.evaluation, fit_test=many),
        histograms=(),
        gains={},
    )
    page = Page(render_report(judgement))
    assert "50 entries more not shown." in page.text
    assert sum(attrs.get("data-label") == "rows" for _, attrs in page.elements) == MOST_ROWS


def test_small_sets_tested_together_are_named_together(misfit):
    test = misfit.evaluation.fit_test
    wrong = next(entry for entry in test.sets if not entry.fits)
    together = replace(wrong, set_ids=tuple(named(9)), residual=0.5)
    judgement = replace(
        misfit,
        evaluation=replace(misfit.evaluation, fit_test=replace(test, sets=(together,))),
    )
    (row,) = misfit_rows(judgement)
    assert row.names == tuple(named(5))
    assert row.more == 4
    assert row.direction == "its scores are distributed differently than in the other sets"
    mean = np.mean(misfit.stated_priors[:9])
    assert row.stated == f"{100 * mean:.1f}\xa0%"


CHROMIUM = shutil.which("chromium")
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield browser
        browser.close()


@pytest.mark.parametrize("scripts", [False, True], ids=["without scripts", "with scripts"])
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (400, "dark")])
def test_a_browser_shows_the_page_and_asks_nobody(
    browser, hostile_page, tmp_path, scripts, width, scheme
):
    path = tmp_path / "report.html"
    path.write_text(hostile_page, encoding="utf-8")
    context = browser.new_context(
        java_script_enabled=scripts,
        viewport={"width": width, "height": 800},
        color_scheme=scheme,
    )
    page = context.new_page()
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto(path.as_uri(), wait_until="load")
    assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
    assert complaints == []
    drawings = page.locator("svg").all()
    assert len(drawings) == 5
    for drawing in drawings:
        box = drawing.bounding_box()
        assert box["width"] > 200
        assert box["height"] > 80
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert page.locator("table.misfits").get_by_text(SCRIPT, exact=True).is_visible()
    assert page.locator("svg").get_by_text("{{7*7}}", exact=True).first.is_visible()
    box = page.locator("main").bounding_box()
    assert box["width"] <= width
    context.close()


@pytest.mark.parametrize("name", ["good_page", "misfit_page", "three_page", "hostile_page"])
def test_axe_finds_nothing_on_a_desk_on_a_phone_in_the_dark(browser, request, tmp_path, name):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    path = tmp_path / "report.html"
    path.write_text(request.getfixturevalue(name), encoding="utf-8")
    for width, scheme in ((1200, "light"), (400, "dark")):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page = context.new_page()
        page.goto(path.as_uri(), wait_until="load")
        found = axe.run(page).response["violations"]
        said = [(one["id"], one["nodes"][0]["html"][:200]) for one in found]
        assert said == [], (width, scheme)
        context.close()
