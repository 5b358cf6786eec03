"""Methods: the rows of the paper's tables, as data. Adding one is its risk and its row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from unmix.core.risks import Risk, mmc_risk, proportion_risk, ssc_mse_risk, ssc_risk, u2_risk
from unmix.core.transition import Transition
from unmix.data.batching import BatchBy
from unmix.data.wording import nearest
from unmix.errors import InputError

__all__ = ["METHODS", "Method", "Vat", "method_named"]


@dataclass(frozen=True)
class Vat:
    """A VAT penalty (`core.penalties.vat_penalty`) added to a risk."""

    weight: float
    radius: float
    """In standard deviations of the input, since its authors standardise theirs."""
    ramp: float = 0.0
    """Share of the training over which the weight grows from 0."""
    candidates: tuple[float, ...] = ()
    """Radii to choose from without labels, by `strength.train_choosing_radius`."""

    def weight_at(self, done: float) -> float:
        """Return the weight when a share of the training is done."""
        return self.weight * (min(1.0, done / self.ramp) if self.ramp else 1.0)


@dataclass(frozen=True)
class Method:
    """One way to learn from sets."""

    name: str
    title: str
    """As the paper writes it."""
    about: str
    risk: Callable[[Transition], Risk]
    batch_by: BatchBy = "rows"
    vat: Vat | None = None
    labeled: bool = False
    """Wants sets of one class each, that is labels: the reference, not a competitor."""
    paper_rates: tuple[float, float] = (1e-4, 1e-5)
    """Learning rates of Appendix B: for the MLP, for ResNet-32."""


_SSC_RATES = (1e-5, 5e-6)

METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method(
            "ssc",
            "U^m-SSC",
            "surrogate set classification, cross-entropy",
            ssc_risk,
            paper_rates=_SSC_RATES,
        ),
        Method(
            "ssc-mse",
            "U^m-SSC (squared error)",
            "surrogate set classification, squared error",
            ssc_mse_risk,
            paper_rates=_SSC_RATES,
        ),
        Method("u2", "U^2", "two sets, unbiased risk", u2_risk),
        Method("u2-b", "U^2-b", "two sets, balanced risk", partial(u2_risk, balanced=True)),
        Method("u2-c", "U^2-c", "two sets, corrected risk", partial(u2_risk, correction=1.0)),
        Method("mmc-u2-b", "MMC-U^2-b", "pairs, balanced risk", partial(mmc_risk, balanced=True)),
        Method("mmc-u2", "MMC-U^2", "pairs of sets, unbiased risk", mmc_risk),
        Method("mmc-u2-c", "MMC-U^2-c", "pairs, corrected risk", partial(mmc_risk, correction=1.0)),
        Method(
            "proportion",
            "EPR",
            "match the predicted share of each set to its prior",
            proportion_risk,
            batch_by="sets",
        ),
        Method(
            "llp-vat",
            "LLP-VAT",
            "proportion with virtual adversarial training",
            proportion_risk,
            batch_by="sets",
            vat=Vat(weight=0.05, radius=6.0),
        ),
        Method(
            "ssc-vat",
            "U^m-SSC-VAT",
            "ssc with a virtual adversary whose strength is chosen without labels",
            ssc_risk,
            vat=Vat(weight=1.0, radius=3.0, ramp=0.4, candidates=(0.0, 3.0)),
            paper_rates=_SSC_RATES,
        ),
        Method(
            "supervised",
            "supervised",
            "labels as sets with priors 1 and 0: the reference",
            ssc_risk,
            labeled=True,
            paper_rates=_SSC_RATES,
        ),
    )
}


def method_named(name: str) -> Method:
    """Return a method by name, or say which names there are."""
    if name in METHODS:
        return METHODS[name]
    near = nearest(name, METHODS)
    hint = f"; did you mean {near}?" if near else ""
    raise InputError(f"there is no method {name!r}{hint} (methods: {', '.join(METHODS)})")
