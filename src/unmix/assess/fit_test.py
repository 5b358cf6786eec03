"""Do the sets share their class distributions? A chi-square test on binned scores, without labels.

Under label shift the share of a set's rows in each bin of the score is a mixture of K class rates.
With more sets than classes the mixture is overdetermined, and the misfit of the sets tests it. This
file knows bins, counts and set priors; where the bins come from is the caller's affair.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from unmix.assess.class_rates import fit_class_rates, rate_variances, set_combination
from unmix.assess.estimates import p_value as written
from unmix.assess.score_counts import (
    cell_counts,
    contributions,
    fit_cells,
    join_small_sets,
    sum_members,
)
from unmix.core.class_shares import share_rank

__all__ = ["FitTest", "SetMisfit", "chi_square_test", "score_bins"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

NUM_BINS = 4  # quartiles of the pooled scores
MIN_ROWS_PER_BIN = 10  # sets with fewer rows than this times the bins are tested together
LEVEL = 0.05


@dataclass(frozen=True, slots=True)  # there may be a million
class SetMisfit:
    """How badly one set, or several small ones taken together, disagrees with the rest.

    Attributes
    ----------
    set_ids : tuple of str
        The set, or the small sets that were taken together.
    rows : int
        Their held-out rows.
    chi_square, degrees : float, int
        Contribution to the test, scaled up for the set's own pull on the fit; its cells minus 1.
    p_value, adjusted_p_value : float
        Of this set alone, and after Holm's correction for looking at all sets.
    residual : float
        Two classes: (rows that score high - fitted) in standard deviations; above 0 if the set
        looks more positive than its stated share explains. nan for K classes.
    fits : bool
        False if the adjusted p-value is below the level.
    """

    set_ids: tuple[str, ...]
    rows: int
    chi_square: float
    degrees: int
    p_value: float
    adjusted_p_value: float
    residual: float
    fits: bool


@dataclass(frozen=True)
class FitTest:
    """Test of label shift: all sets have the same p(x | class) and the stated shares.

    Attributes
    ----------
    chi_square, degrees, p_value : float, int, float
        The test over all sets; nan, 0, nan where it cannot be made.
    level : float
        Level of the verdict and of the names.
    misfits : tuple of str
        The flagged sets, worst first. Small sets tested together are named together.
    sets : tuple of SetMisfit
        All sets, in the order given, joined small ones last.
    verdict : str
        The result in a sentence.
    """

    chi_square: float
    degrees: int
    p_value: float
    level: float
    misfits: tuple[str, ...]
    sets: tuple[SetMisfit, ...]
    verdict: str

    @property
    def rejected(self) -> bool:
        """Whether the test was made and speaks against label shift."""
        return bool(self.p_value < self.level)

    @property
    def stands(self) -> bool:
        """Whether the test was made and does not speak against label shift."""
        return bool(self.p_value >= self.level)


def score_bins(logits: FloatArray) -> IntArray:
    """Cut the scores into bins: quartiles of one logit, the largest of K logits (n,)."""
    if logits.ndim == 2:
        return np.asarray(np.argmax(logits, axis=1))
    edges = np.quantile(logits, np.arange(1, NUM_BINS) / NUM_BINS)
    return np.asarray(np.searchsorted(edges, logits, side="left"))


def chi_square_test(
    bins: IntArray,
    set_index: IntArray,
    set_priors: FloatArray,
    set_ids: tuple[str, ...],
    covariance: FloatArray | None = None,
) -> FitTest:
    """Test whether the sets share their class distributions, and name those that do not fit.

    Parameters
    ----------
    bins : (n,)
        Bin of each row; for two classes in the order of the score.
    set_index : (n,)
        The set of each row; every set has rows.
    set_priors : (m, K)
        Stated class shares Theta.
    set_ids : tuple of str, length m
        Names of the sets.
    covariance : (m, K, K), optional
        Covariance of the errors of the stated shares.

    Returns
    -------
    FitTest

    Notes
    -----
    Formula, with R (m, B) the share of each set's rows in each bin and r = Theta Q::

        X2 = min over Q (K, B) of  sum_jb n_j (R_jb - r_jb)^2 / r_jb,   rows of Q sum to 1
        degrees = (m - K) (B - 1)

    with denominators from the round before. Q is not held to the simplex: that would make X2 too
    large when a class never visits a bin. Errors of the stated shares add `Q' S_j Q` to the
    covariance of R_j.

    Sets with fewer than 10 B rows are joined with others of similar shares: a mean of mixtures is a
    mixture with the mean share, so only the names are lost. Cells with fewer than 5 expected rows
    are merged with a neighbour and cost their degree. A set's own contribution is divided by
    1 - leverage, so that it has about the chi-square distribution of its cells.
    """
    num_stated, num_classes = set_priors.shape
    counts = cell_counts(bins, set_index, num_stated, num_classes)
    members = join_small_sets(counts.sum(axis=1), set_priors, MIN_ROWS_PER_BIN * counts.shape[1])
    counts, priors, covariance = sum_members(members, counts, set_priors, covariance)
    num_sets, num_bins = counts.shape
    if num_bins < 2:
        return _no_test("All scores are equal, so the assumption cannot be tested.")
    if num_sets <= num_classes or share_rank(priors) < num_classes:
        return _no_test(_too_few(num_stated, num_sets, num_classes))

    class_rates, fitted = fit_cells(counts, priors, covariance)
    parts, cells = contributions(counts, priors, class_rates, fitted, covariance)
    degrees = int(np.sum(cells - 1)) - num_classes * (num_bins - 1)
    if degrees < 1:
        return _no_test("The sets have too few rows to test the assumption.")
    statistic = float(parts.sum())
    p_value = float(chdtrc(degrees, statistic))
    sets = _judge_sets(
        [tuple(set_ids[j] for j in group) for group in members],
        counts.sum(axis=1),
        parts / _one_minus_leverage(counts, priors, class_rates, fitted, covariance),
        cells - 1,
        _residuals(counts, priors, covariance),
    )
    worst_first = sorted(sets, key=lambda entry: entry.p_value)
    misfits = tuple(name for entry in worst_first if not entry.fits for name in entry.set_ids)
    verdict = _verdict(p_value, len(misfits))
    return FitTest(statistic, degrees, p_value, LEVEL, misfits, sets, verdict)


def _one_minus_leverage(
    counts: FloatArray,
    priors: FloatArray,
    class_rates: FloatArray,
    fitted: FloatArray,
    covariance: FloatArray | None,
) -> FloatArray:
    """Return 1 - leverage of each set: how free it is to disagree with the fit (m,)."""
    variances = rate_variances(fitted, counts.sum(axis=1), covariance, class_rates)
    combination = set_combination(priors, priors, 1 / variances.mean(axis=1))
    leverage = np.sum(priors * combination.T, axis=1)
    return np.asarray(np.maximum(1 - leverage, 1e-6))


def _residuals(counts: FloatArray, priors: FloatArray, covariance: FloatArray | None) -> FloatArray:
    """Return how much more each set scores in the upper bins than fitted, standardised (m,)."""
    num_sets, num_bins = counts.shape
    if priors.shape[1] > 2:
        return np.full(num_sets, np.nan)
    sizes = counts.sum(axis=1)
    upper = counts[:, (num_bins + 1) // 2 :].sum(axis=1) / sizes
    rates = np.stack([1 - upper, upper], axis=1)
    return fit_class_rates(rates, sizes, priors, covariance).residuals(rates, priors)[:, 1]


def _judge_sets(
    names: list[tuple[str, ...]],
    rows: FloatArray,
    chi_squares: FloatArray,
    degrees: IntArray,
    residuals: FloatArray,
) -> tuple[SetMisfit, ...]:
    """Give every set its p-value and Holm's correction."""
    p_values = np.where(degrees > 0, chdtrc(np.maximum(degrees, 1), chi_squares), 1.0)
    order = np.argsort(p_values, kind="stable")
    steps = p_values[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return tuple(
        SetMisfit(
            set_ids=names[j],
            rows=int(rows[j]),
            chi_square=float(chi_squares[j]),
            degrees=int(degrees[j]),
            p_value=float(p_values[j]),
            adjusted_p_value=float(adjusted[j]),
            residual=float(residuals[j]),
            fits=bool(adjusted[j] >= LEVEL),
        )
        for j in range(len(names))
    )


def _no_test(reason: str) -> FitTest:
    """Return the result of a test that cannot be made."""
    return FitTest(float("nan"), 0, float("nan"), LEVEL, (), (), reason)


def _too_few(num_stated: int, num_sets: int, num_classes: int) -> str:
    """Say why these sets leave no degrees of freedom."""
    if num_stated == 2:
        return "The assumption cannot be tested with two sets; it takes a third with another share."
    if num_stated <= num_classes:
        return (
            f"The assumption cannot be tested with {num_stated} sets for {num_classes} classes; "
            f"it takes at least {num_classes + 1}."
        )
    return (
        f"The sets are so small that {num_sets} remain after joining small ones, too few to test "
        f"the assumption; it takes at least {num_classes + 1}."
    )


def _verdict(p_value: float, num_misfits: int) -> str:
    """Say what the test found."""
    found = written(p_value)
    p = f"p {found}" if found.startswith("<") else f"p = {found}"
    if p_value >= LEVEL:
        return (
            f"The sets are consistent with label shift ({p}): the test found no "
            "evidence against it."
        )
    flagged = "no single set is flagged"
    if num_misfits:
        flagged = f"{num_misfits} {'set is' if num_misfits == 1 else 'sets are'} flagged"
    return (
        f"The sets are not consistent with label shift ({p}); {flagged}. Either "
        "stated shares are wrong or p(x | class) differs between sets. Do not trust numbers that "
        "assume label shift, such as accuracy and AUC."
    )
