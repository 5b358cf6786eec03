"""Do the sets share their class distributions? A chi-square test on binned scores, without labels.

Under label shift the share of a set's rows in each bin of the score is a mixture of K class rates.
With more sets than classes the mixture is overdetermined, and the misfit of the sets tests it. This
file knows bins, counts and set priors; where the bins come from is the caller's affair.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from unmix.assess.class_rates import fit_class_rates, rate_variances, set_combination, share_moves
from unmix.assess.entries import Entries
from unmix.assess.estimates import p_value as written
from unmix.core.class_shares import share_rank

__all__ = [
    "FitTest",
    "JoinedSets",
    "SetMisfit",
    "cell_counts",
    "chi_square_test",
    "contributions",
    "fit_cells",
    "join_small_sets",
    "score_bins",
    "sum_members",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

NUM_BINS = 4  # quartiles of the pooled scores
MIN_ROWS_PER_BIN = 10  # sets with fewer rows than this times the bins are tested together
MIN_EXPECTED = 5.0  # the chi-square approximation wants this many expected rows in a cell
LEVEL = 0.05


@dataclass(frozen=True, slots=True)
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
    sets : Entries of SetMisfit
        All sets, in the order given, joined small ones last.
    verdict : str
        The result in a sentence.
    """

    chi_square: float
    degrees: int
    p_value: float
    level: float
    misfits: tuple[str, ...]
    sets: Entries[SetMisfit]
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
    flagged = [entry for entry in sets if not entry.fits]
    flagged.sort(key=lambda entry: entry.p_value)
    misfits = tuple(name for entry in flagged for name in entry.set_ids)
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
) -> Entries[SetMisfit]:
    """Give every set its p-value and Holm's correction."""
    p_values = np.where(degrees > 0, chdtrc(np.maximum(degrees, 1), chi_squares), 1.0)
    order = np.argsort(p_values, kind="stable")
    steps = p_values[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    rows, fits = rows.astype(np.int64), adjusted >= LEVEL
    columns = (names, rows, chi_squares, degrees, p_values, adjusted, residuals, fits)
    return Entries(SetMisfit, *columns)


def _no_test(reason: str) -> FitTest:
    """Return the result of a test that cannot be made."""
    return FitTest(float("nan"), 0, float("nan"), LEVEL, (), Entries.none(SetMisfit), reason)


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


def cell_counts(bins: IntArray, set_index: IntArray, num_sets: int, num_classes: int) -> FloatArray:
    """Count the rows of each set in each bin that is in use (m, B)."""
    totals = np.bincount(bins)
    # Bins too thin to learn a rate per class from are put together.
    thin = totals < MIN_EXPECTED * (num_classes + 1)
    _, label = np.unique(np.where(thin, len(totals), np.arange(len(totals))), return_inverse=True)
    num_bins = int(label.max()) + 1
    cells = np.bincount(set_index * num_bins + label[bins], minlength=num_sets * num_bins)
    counts = cells.reshape(num_sets, num_bins).astype(np.float64)
    return counts[:, counts.sum(axis=0) > 0]


@dataclass(frozen=True, eq=False)
class JoinedSets:
    """Sets that are tested together: those in `order` from each start to the next."""

    order: IntArray
    starts: IntArray

    def __iter__(self) -> Iterator[list[int]]:
        ends = [*self.starts[1:].tolist(), len(self.order)]
        for first, last in zip(self.starts.tolist(), ends, strict=True):
            yield self.order[first:last].tolist()


def join_small_sets(rows: FloatArray, set_priors: FloatArray, least: float) -> JoinedSets:
    """List the sets to test alone, then small ones of similar shares joined to `least` rows."""
    alone = np.flatnonzero(rows >= least)
    small = np.flatnonzero(rows < least)
    if not len(small):
        return JoinedSets(alone, np.arange(len(alone)))
    # Similar shares: the order along the direction in which the shares differ most.
    centred = set_priors[small] - set_priors[small].mean(axis=0)
    along = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    small = small[np.argsort(along, kind="stable")]
    starts: list[int] = []
    held = least
    for place, j in enumerate(small):
        if held >= least:
            starts.append(place)
            held = 0
        held += rows[j]
    if held < least and len(starts) > 1:
        starts.pop()
    own = np.concatenate((np.arange(len(alone)), len(alone) + np.array(starts)))
    return JoinedSets(np.concatenate((alone, small)), own)


def sum_members(
    members: JoinedSets,
    counts: FloatArray,
    set_priors: FloatArray,
    covariance: FloatArray | None,
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Give joined sets the sum of their counts and the mean of their shares."""
    order, starts = members.order, members.starts
    rows = counts[order].sum(axis=1)
    total = np.add.reduceat(rows, starts)
    joint_counts = np.add.reduceat(counts[order], starts, axis=0)
    joint_priors = np.add.reduceat(set_priors[order] * rows[:, None], starts, axis=0)
    if covariance is not None:
        weighted = covariance[order] * rows[:, None, None] ** 2
        covariance = np.add.reduceat(weighted, starts, axis=0) / total[:, None, None] ** 2
    return joint_counts, joint_priors / total[:, None], covariance


def fit_cells(
    counts: FloatArray, priors: FloatArray, covariance: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Fit the rate of each bin in each class (K, B); return it with the fitted set rates (m, B)."""
    sizes = counts.sum(axis=1)
    rates = counts / sizes[:, None]
    fitted = np.tile(counts.sum(axis=0) / counts.sum(), (len(counts), 1))
    shares = priors
    for _ in range(4 if covariance is None else 40):
        weights = sizes[:, None] / fitted  # (m, B)
        normal = np.einsum("jb,jk,jl->bkl", weights, shares, shares)
        right = np.einsum("jb,jk,jb->bk", weights, shares, rates)
        inverse = np.linalg.inv(normal)
        free = np.einsum("bkl,bl->bk", inverse, right)
        # Lagrange multipliers of "every class has all its rows in some bin".
        pull = np.linalg.solve(inverse.sum(axis=0), 1 - free.sum(axis=0))
        class_rates = (free + inverse @ pull).T  # (K, B)
        fitted = np.maximum(priors @ class_rates, 0.5 / sizes[:, None])
        if covariance is not None:
            deviations = rates - priors @ class_rates
            moves = share_moves(deviations, fitted, sizes, class_rates, covariance)
            last, shares = shares, priors + np.einsum("jkl,jl->jk", covariance, moves)
            if abs(shares - last).max() < 1e-8:
                break
    return class_rates, fitted


def contributions(
    counts: FloatArray,
    priors: FloatArray,
    class_rates: FloatArray,
    fitted: FloatArray,
    covariance: FloatArray | None,
) -> tuple[FloatArray, IntArray]:
    """Return each set's part of the statistic and the number of its cells after merging."""
    sizes = counts.sum(axis=1)
    merge, cells = _merge_cells(fitted * sizes[:, None])  # (m, B, B), (m,)
    rates = np.einsum("jb,jbg->jg", counts / sizes[:, None], merge)
    own_rates = np.einsum("kb,jbg->jkg", class_rates, merge)  # (m, K, B)
    expected = np.einsum("jb,jbg->jg", fitted, merge)
    expected[expected == 0] = 1.0  # a cell merged away: nothing observed, nothing expected
    deviations = rates - np.einsum("jk,jkg->jg", priors, own_rates)
    precision = sizes[:, None] / expected
    statistic = np.sum(precision * deviations**2, axis=1)
    if covariance is not None:
        moves = share_moves(deviations, expected, sizes, own_rates, covariance)
        pull = np.einsum("jkg,jg->jk", own_rates, precision * deviations)
        statistic = statistic - np.einsum("jk,jkl,jl->j", pull, covariance, moves)
    return statistic, cells


def _merge_cells(expected: FloatArray) -> tuple[FloatArray, IntArray]:
    """Map each set's cells to merged ones with at least MIN_EXPECTED rows (m, B, B), and count."""
    num_sets, num_bins = expected.shape
    label = np.zeros((num_sets, num_bins), dtype=np.int64)
    current = np.zeros(num_sets, dtype=np.int64)
    held = expected[:, 0].copy()
    for b in range(1, num_bins):
        full = held >= MIN_EXPECTED
        current += full
        held = np.where(full, 0.0, held) + expected[:, b]
        label[:, b] = current
    # A last cell that stayed small goes back to the one before.
    short = (held < MIN_EXPECTED) & (current > 0)
    label[(label == current[:, None]) & short[:, None]] -= 1
    merge = (label[:, :, None] == np.arange(num_bins)).astype(np.float64)
    return merge, current - short + 1
