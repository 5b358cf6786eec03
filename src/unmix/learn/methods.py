"""Methods: the rows of the paper's tables, as data. Adding one is its risk and its row."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from unmix.core.assumptions import (
    COVARIATE_SHIFT,
    LABEL_SHIFT,
    SET_EFFECTS,
    Assumption,
    ResidualRule,
    assumption_named,
)
from unmix.core.groupings import of_groupings, on_copies
from unmix.core.risks import (
    MeanLoss,
    Risk,
    ShareMatch,
    mmc_risk,
    proportion_risk,
    ssc_mse_risk,
    ssc_risk,
    u2_risk,
)
from unmix.core.set_risks import CountRisk, SetEffectRisk, SetRisk
from unmix.core.transition import Transition
from unmix.data.batching import BatchBy
from unmix.data.wording import nearest
from unmix.errors import InputError
from unmix.learn.curvature import FisherTable
from unmix.learn.penalty_options import Consistency, Penalty, Vat

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "METHODS",
    "Method",
    "is_registered",
    "method_named",
    "register_method",
    "risk_of",
]

Array = np.ndarray[Any, Any]

SMALL_SET = 64  # rows: in larger sets the exact count says little more than the rate


@dataclass(frozen=True)
class Method:
    """One way to learn from sets. All that anybody needs to know about it is a field here."""

    name: str
    title: str
    """As the paper writes it."""
    about: str
    risk: Callable[[Transition], Risk]
    """From set priors, set weights and target prior to the risk of a batch."""
    assumption: Assumption = LABEL_SHIFT
    """What it assumes that sets share."""
    batch_by: BatchBy = "rows"
    penalty: Penalty | None = None
    """Added to the risk; needs a network."""
    labeled: bool = False
    """Wants sets of one class each, that is labels: the reference, not a competitor."""
    in_auto: bool = False
    """Whether method 'auto' tries it."""
    refines: bool = False
    """Whether set priors with standard errors are learned along with the model."""
    checks_priors: bool = False
    """Whether rows held out are asked, early in training, if the stated priors are right."""
    information: Callable[[Transition], Callable[[Array, Array], Array]] | None = None
    """From logits and set index to the Hessian of its risk as boosting wants it; without it trees
    do not learn by it."""
    prior: Callable[[Transition], Array] | None = None
    """The class prior at which its logits hold, if not that of its assumption."""
    paper_rates: tuple[float, float] = (1e-4, 1e-5)
    """Learning rates of Appendix B: for the MLP, for ResNet-32."""
    strengths: tuple[float, ...] = (0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)
    """Penalties of a linear model to choose from, the strongest first."""
    free_length: bool = False
    """Whether such a penalty is only for the direction of the weights, and not for their length."""
    suits: Callable[[Transition], bool] = lambda transition: True
    """Whether method 'auto' tries it for these sets."""
    random_sets: bool = False
    """Whether it is also right for sets that were formed at random, and differ by chance."""
    takes_labels: bool = False
    """Whether single rows of known class may be among its sets, as sets of one."""
    longer: int | None = None
    """Epochs of recipe `fast` in a study, if it needs more than others."""

    def base_prior(self, transition: Transition) -> Array:
        """Return the class prior (K,) at which a model trained by it states its logits."""
        return (self.prior or self.assumption.base_prior)(transition)

    @property
    def residual_rules(self) -> tuple[ResidualRule, ...]:
        """How stated shares of held-out sets are compared with their rows, by all it is right for.

        In sets that differ by chance the shares follow from the rows alone, as under covariate
        shift.
        """
        own = self.assumption.residuals
        return (own, SET_EFFECTS.residuals) if self.random_sets else (own,)

    @property
    def holds_rows_out(self) -> bool:
        """Whether some rows of each set can be held out to choose an epoch or a round.

        Not if it matches the shares or counts of whole sets, which would be broken by it.
        """
        return self.assumption.set_posterior and self.batch_by == "rows"


def _even(transition: Transition) -> Array:
    """Return equal class shares, for methods that are balanced whatever the target prior."""
    return np.full(transition.num_classes, 1 / transition.num_classes)


def _pooled(transition: Transition) -> Array:
    """Return the pooled prior, at which the likelihood of counts takes its logits."""
    return transition.arrays.pooled


def _fisher(transition: Transition) -> Callable[[Array, Array], Array]:
    """Return the information of a row's set index, which does not depend on its own set."""
    tables = [FisherTable(part) for part in transition.parts]

    def information(logits: Array, set_index: Array) -> Array:
        if set_index.ndim == 1:
            return tables[0](logits)
        total = np.zeros_like(logits)
        for rows, _, _, g in of_groupings(set_index, transition):
            total[rows] += tables[g](logits[rows])
        return total

    return information


def _small_exact_sets(transition: Transition) -> bool:
    """Say whether shares are counts of these very rows in sets so small that it matters."""
    risk = CountRisk(transition)
    return bool(risk.exact.all() and np.median(risk.rows) <= SMALL_SET)


def _of_counts(transition: Transition) -> Callable[[Array, Array], Array]:
    """Return the information of the sets' counts."""
    return CountRisk(transition).row_information


def _of_shares(transition: Transition) -> Callable[[Array, Array], Array]:
    """Return the information of the shares of sets with effects of their own."""
    return SetEffectRisk(transition).row_information


_SSC_RATES = (1e-5, 5e-6)

METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method(
            "ssc",
            "U^m-SSC",
            "surrogate set classification, cross-entropy",
            ssc_risk,
            takes_labels=True,
            in_auto=True,
            refines=True,
            checks_priors=True,
            information=_fisher,
            paper_rates=_SSC_RATES,
        ),
        Method(
            "ssc-mse",
            "U^m-SSC (squared error)",
            "surrogate set classification, squared error",
            ssc_mse_risk,
            takes_labels=True,
            refines=True,
            paper_rates=_SSC_RATES,
        ),
        Method(
            "count",
            "count likelihood",
            "likelihood of each set's count, for small sets whose counts are known exactly",
            CountRisk,
            takes_labels=True,
            batch_by="whole sets",
            in_auto=True,
            suits=_small_exact_sets,
            information=_of_counts,
            prior=_pooled,
            random_sets=True,
        ),
        Method("u2", "U^2", "two sets, unbiased risk", u2_risk),
        Method(
            "u2-b",
            "U^2-b",
            "two sets, balanced risk",
            partial(u2_risk, balanced=True),
            prior=_even,
        ),
        Method("u2-c", "U^2-c", "two sets, corrected risk", partial(u2_risk, correction=1.0)),
        Method(
            "mmc-u2-b",
            "MMC-U^2-b",
            "pairs, balanced risk",
            partial(mmc_risk, balanced=True),
            prior=_even,
        ),
        Method("mmc-u2", "MMC-U^2", "pairs of sets, unbiased risk", mmc_risk),
        Method("mmc-u2-c", "MMC-U^2-c", "pairs, corrected risk", partial(mmc_risk, correction=1.0)),
        Method(
            "proportion",
            "EPR",
            "match the predicted share of each set to its prior",
            proportion_risk,
            COVARIATE_SHIFT,
            takes_labels=True,
            batch_by="sets",
        ),
        Method(
            "set-effects",
            "set effects",
            "natural sets: sets share p(class | x) up to an effect of each set",
            SetEffectRisk,
            SET_EFFECTS,
            takes_labels=True,
            batch_by="whole sets",
            in_auto=True,
            information=_of_shares,
            strengths=(10.0, 1.0, 0.1, 0.01, 1e-3, 1e-4),
            free_length=True,
        ),
        Method(
            "llp-vat",
            "LLP-VAT",
            "proportion with virtual adversarial training",
            proportion_risk,
            COVARIATE_SHIFT,
            takes_labels=True,
            batch_by="sets",
            penalty=Vat(weight=0.05, radius=6.0),
        ),
        Method(
            "ssc-vat",
            "U^m-SSC-VAT",
            "ssc with a virtual adversary whose strength is chosen without labels",
            ssc_risk,
            takes_labels=True,
            penalty=Vat(weight=1.0, radius=3.0, ramp=0.4, candidates=(0.0, 3.0)),
            refines=True,
            paper_rates=_SSC_RATES,
            longer=20,
        ),
        Method(
            "ssc-consistency",
            "U^m-SSC with consistency",
            "ssc whose answers on changed images agree with those of its averaged weights",
            ssc_risk,
            takes_labels=True,
            penalty=Consistency(weight=1.0, ramp=0.4, candidates=(0.0, 1.0), compared=1.0),
            refines=True,
            paper_rates=_SSC_RATES,
        ),
        Method(
            "supervised",
            "supervised",
            "labels as sets with priors 1 and 0: the reference",
            ssc_risk,
            labeled=True,
            information=_fisher,
            paper_rates=_SSC_RATES,
        ),
    )
}


_BUILT_IN = dict(METHODS)


def is_registered(name: str) -> bool:
    """Say whether a method was added, or replaced, by `register_method`."""
    return name in METHODS and METHODS[name] is not _BUILT_IN.get(name)


def method_named(name: str | Method) -> Method:
    """Return a method by name, or say which names there are."""
    if isinstance(name, Method):
        return name
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    near = nearest(str(name), METHODS)
    hint = f"; did you mean {near}?" if near else ""
    raise InputError(
        f"there is no method {name!r}{hint} (methods: {', '.join(METHODS)}; unmix --load FILE.py "
        "loads your own)"
    )


def risk_of(method: Method, transition: Transition) -> Risk:
    """Return the risk of a method; one of the user's own says what is wrong with it in one line.

    Raises
    ------
    InputError
        Here or when the risk is called: if it fails, or returns no scalar with a gradient.
    """
    if method is _BUILT_IN.get(method.name):
        return method.risk(transition)
    with _naming_mistakes(method.name):
        risk = method.risk(transition)
    if isinstance(risk, MeanLoss | SetRisk | ShareMatch):
        return risk
    if not callable(risk):
        raise InputError(
            f"method {method.name!r}: its risk must take a Transition and return a function "
            f"(logits, set_index) -> scalar; it returned {type(risk).__name__}"
        )

    from torch import Tensor

    @on_copies
    def checked(logits: Tensor, set_index: Tensor) -> Tensor:
        with _naming_mistakes(method.name):
            value = risk(logits, set_index)
        if not isinstance(value, Tensor) or value.ndim:
            what = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value)
            raise InputError(
                f"method {method.name!r}: its risk must return a scalar tensor; got {what}. Take "
                "the mean over the rows"
            )
        if logits.requires_grad and not value.requires_grad:
            raise InputError(
                f"method {method.name!r}: its risk has no gradient; compute it from the logits "
                "with torch functions that have one (no comparison, detach, item or numpy)"
            )
        return value

    return checked


@contextmanager
def _naming_mistakes(name: str) -> Iterator[None]:
    """Name the method, and the place in its file, when its risk raises."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise InputError(
            f"method {name!r}: its risk raised {type(error).__name__}: {error} "
            f"({Path(place.filename).name}, line {place.lineno})"
        ) from error


def register_method(
    name: str,
    risk: Callable[[Transition], Risk] | None = None,
    *,
    like: str | None = None,
    assumption: str | Assumption | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Any:
    """Add a method of your own, for `UnmixClassifier`, `unmix train` and `unmix reproduce`.

    Parameters
    ----------
    name : str
        What it is called from then on.
    risk : function
        Takes a `Transition` and returns a function (logits, set_index) -> scalar tensor with a
        gradient. If it is left out, `register_method` is a decorator of that function.
    like : str, optional
        A method whose other fields it takes over, such as 'ssc' or 'proportion'.
    assumption : 'label shift' or 'covariate shift', optional
        What it assumes that sets share; that of `like`, or label shift.
    overwrite : bool
        Replace a method of that name; otherwise it is refused.
    **options
        Further fields of `Method`: title, about, batch_by, penalty, ...

    Returns
    -------
    function
        The risk, so that a decorated function stays what it was.

    Examples
    --------
    >>> from unmix import METHODS, register_method, ssc_cross_entropy
    >>> @register_method("ssc-sum", about="ssc with a sum instead of a mean", overwrite=True)
    ... def ssc_sum(transition: Transition):
    ...     return lambda logits, sets: ssc_cross_entropy(logits, sets, transition).sum()
    >>> METHODS["ssc-sum"].assumption.name
    'label shift'
    >>> del METHODS["ssc-sum"]
    """
    # First, for `@register_method` without a name would otherwise register nothing, in silence.
    if not isinstance(name, str) or not name or set(name) & set(" ,\t\n"):
        raise InputError(f"a method is named by one word without spaces and commas; got {name!r}")
    if risk is None:
        return partial(
            register_method, name, like=like, assumption=assumption, overwrite=overwrite, **options
        )
    if not callable(risk):
        raise InputError(f"the risk of a method is a function of a Transition; got {risk!r}")
    if name in METHODS and not overwrite:
        raise InputError(f"there is a method {name!r} already; pass overwrite=True to replace it")
    known = [field.name for field in fields(Method)]
    for option in options:
        if option not in known:
            raise InputError(f"a method has no field {option!r}; it has {', '.join(known)}")
    if options.get("batch_by", "rows") not in get_args(BatchBy):
        raise InputError(
            f"batch_by must be 'rows', 'sets' or 'whole sets'; got {options['batch_by']!r}"
        )
    # Of a method that it is like it takes the ways of learning, not what is true of its own risk.
    own: dict[str, Any] = {"in_auto": False, "information": None, "title": name, "about": "yours"}
    first = method_named(like) if like else Method(name, name, "yours", risk)
    if assumption is not None:
        own["assumption"] = assumption_named(assumption)
    METHODS[name] = replace(first, **{**own, **options, "name": name, "risk": risk})
    return risk
