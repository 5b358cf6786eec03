"""The banner says no more than was shown: by the gain, the test of label shift, and labels."""

from types import SimpleNamespace

import numpy as np
import pytest

from unmix.assess.estimates import Estimate
from unmix.assess.model_based import Audit
from unmix.assess.sentences import rates_hold
from unmix.core.assumptions import LABEL_SHIFT, SET_EFFECTS
from unmix.learn.hidden_sets import Gain
from unmix.report.headline import fallacy_signs, verdict_of
from unmix.report.page import environment


def judged(
    *,
    z=10.0,
    tau=0.3,
    assumption=SET_EFFECTS,
    p=0.5,
    labels=None,
    hidden=True,
    held_out=True,
    class_z=(),
):
    """What the banner reads of a judgement; `labels` is the gain by them in standard errors."""
    gain = Gain(z / 10, 0.1, 2.0, tau)
    audit = None if labels is None else Audit(200, labels / 100, 0.01)
    test = SimpleNamespace(p_value=p, rejected=p < 0.05, stands=p >= 0.05)
    evaluation = SimpleNamespace(
        accuracy=Estimate(0.8, 0.75, 0.85),
        fit_test=test,
        model_based=SimpleNamespace(audit=audit),
    )
    return SimpleNamespace(
        gains={"used": gain} if hidden else {},
        method="used",
        assumption=assumption,
        evaluation=evaluation if held_out else None,
        rates_hold=held_out and rates_hold(assumption, evaluation, gain if hidden else None),
        class_gains=tuple(Gain(one / 10, 0.1, 2.0, tau) for one in class_z),
        audit=None,
        believable=(not hidden or gain.shown) and not (assumption.set_posterior and test.rejected),
        set_ids=tuple("abcdefgh"),
        diagnosis=SimpleNamespace(usable=True),
    )


@pytest.mark.parametrize("assumption", [LABEL_SHIFT, SET_EFFECTS], ids=lambda a: a.name)
def test_a_gain_that_is_not_shown_is_a_no_that_names_the_rival(assumption):
    verdict = verdict_of(judged(z=1.9, assumption=assumption))
    assert verdict.level == "no"
    assert verdict.headline == "No: not shown to beat giving every row its set's share"
    assert "z = 1.9; 2.0 is needed" in verdict.reason


@pytest.mark.parametrize(
    ("z", "word", "level"), [(3.9, "Perhaps", "partly"), (4.1, "Yes", "yes")], ids=["weak", "clear"]
)
def test_under_label_shift_the_headline_follows_z(z, word, level):
    verdict = verdict_of(judged(z=z, assumption=LABEL_SHIFT))
    assert verdict.headline.startswith(f"{word}: ")
    assert verdict.level == level
    assert verdict.warnings == ()


@pytest.mark.parametrize("z", [2.0, 3.9, 4.1, 50.0])
@pytest.mark.parametrize("p", [0.5, 1e-9, np.nan])
def test_without_label_shift_there_is_no_yes_without_labels(z, p):
    verdict = verdict_of(judged(z=z, p=p))
    assert verdict.level == "partly"
    assert verdict.headline.startswith("Perhaps: weak evidence" if z < 4 else "Partly: ")
    assert verdict.headline.endswith("single rows are not checked")
    assert "A handful of labels settles it" in verdict.reason
    assert verdict.warnings[-1].startswith("The ecological fallacy")


def test_a_large_set_effect_is_a_warning_with_its_size():
    assert fallacy_signs(judged(tau=0.9)) == []
    (sign,) = fallacy_signs(judged(tau=1.6))
    # The median odds ratio of two sets, by drawing the sets.
    effects = np.random.default_rng(0).normal(0, 1.6, (2, 100_000))
    ratio = np.exp(np.median(abs(effects[0] - effects[1])))
    assert ratio == pytest.approx(4.6, abs=0.05)
    assert "4.6 times the odds" in sign
    loud = verdict_of(judged(tau=1.6))
    assert loud.warnings[0] == f"Warning: {sign}."
    assert loud.warnings[-1] == verdict_of(judged(tau=0.9)).warnings[-1]


def test_the_fallacy_is_also_told_where_label_shift_could_not_be_tested():
    verdict = verdict_of(judged(assumption=LABEL_SHIFT, p=np.nan))
    assert verdict.headline.startswith("Perhaps")
    assert verdict.warnings[-1].startswith("The ecological fallacy")
    unseen = verdict_of(judged(assumption=LABEL_SHIFT, held_out=False))
    assert unseen.warnings[-1].startswith("The ecological fallacy")


def test_sets_that_contradict_label_shift_are_a_no_only_for_methods_that_assume_it():
    assert verdict_of(judged(p=1e-9, assumption=LABEL_SHIFT)).headline.startswith(
        "No: the sets are not consistent"
    )
    assert verdict_of(judged(p=1e-9)).level == "partly"


@pytest.mark.parametrize("z", [3.0, 10.0])
def test_labels_settle_what_sets_cannot(z):
    better = verdict_of(judged(z=z, labels=5))
    assert better.level == "yes"
    assert better.headline.startswith("Yes, for rows like those with labels")
    assert "200 labels" in better.reason
    undecided = verdict_of(judged(z=z, labels=1))
    assert undecided.level == "partly"
    assert "The 200 labels at hand do not settle it." in undecided.reason


@pytest.mark.parametrize("assumption", [LABEL_SHIFT, SET_EFFECTS], ids=lambda a: a.name)
def test_labels_can_speak_against_a_model_of_any_method(assumption):
    verdict = verdict_of(judged(labels=-5, assumption=assumption))
    assert verdict.level == "no"
    assert verdict.headline == "No: labels show that giving every row its set's share is better"


def test_labels_in_favour_do_not_turn_an_unshown_gain_into_a_yes():
    verdict = verdict_of(judged(z=1.0, labels=5))
    assert verdict.level == "partly"
    assert "of new sets are predicted better than by guessing is not shown" in verdict.reason


@pytest.mark.parametrize(
    ("assumption", "p", "z", "hold"),
    [
        (LABEL_SHIFT, 0.5, 10.0, True),
        (LABEL_SHIFT, 0.01, 10.0, False),
        (LABEL_SHIFT, np.nan, 10.0, False),
        (LABEL_SHIFT, 0.5, 1.0, False),
        (SET_EFFECTS, 0.5, 10.0, False),
    ],
)
def test_numbers_of_label_shift_need_the_assumption_its_test_and_a_gain(assumption, p, z, hold):
    assert judged(assumption=assumption, p=p, z=z).rates_hold is hold


def test_classes_that_are_not_predicted_are_counted_in_the_headline():
    verdict = verdict_of(judged(assumption=LABEL_SHIFT, class_z=(5, 6, 1, 0.5)))
    assert verdict.headline == "Partly: 2 of 4 classes not shown to be predicted"
    assert verdict_of(judged(assumption=LABEL_SHIFT, class_z=(5, 6, 7))).level == "yes"
    natural = verdict_of(judged(class_z=(5, 6, 1)))
    assert natural.headline.startswith("Partly: it predicts the shares of 2 of 3 classes; single")


def test_a_line_never_ends_within_a_command():
    text = (
        environment()
        .from_string("{{ text|with_commands }}")
        .render(text="Settled by <labels>: unmix fit --labels, or unmix evaluate --labels.")
    )
    assert "<code>unmix fit --labels</code>, or <code>unmix evaluate --labels</code>." in text
    assert "&lt;labels&gt;" in text
