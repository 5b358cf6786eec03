"""The likelihoods of stated counts and shares, transcribed literally and slowly.

Every labeling of a set is visited, set effects are integrated numerically, gradients are finite
differences. float64 only; nothing here is stable for extreme values.
"""

import itertools
import math

import numpy as np
from scipy.integrate import quad


def softmax(row):
    powers = [math.exp(a) for a in row]
    return [a / sum(powers) for a in powers]


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def labelings(probabilities):
    """Every labeling of the rows (n, K): its probability and its class counts."""
    n, num_classes = np.shape(probabilities)
    for labels in itertools.product(range(num_classes), repeat=n):
        yield (
            math.prod(probabilities[i][y] for i, y in enumerate(labels)),
            [labels.count(k) for k in range(num_classes)],
        )


def both(z):
    return [[1 - sigmoid(a), sigmoid(a)] for a in z]


def poisson_binomial(z, count):
    """P(count positives) of logits (n,)."""
    return sum(p for p, counts in labelings(both(z)) if counts[1] == count)


def normal(x, variance):
    return math.exp(-(x**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)


def count_likelihood(z, stated, variance):
    """p(stated count | logits (n,)): the count itself, or with normal noise."""
    if variance == 0:
        return poisson_binomial(z, stated)
    return sum(p * normal(stated - counts[1], variance) for p, counts in labelings(both(z)))


def class_noise_density(error, covariance):
    """Normal density of class errors that sum to 0, as that of all but the first class."""
    e, c = np.asarray(error)[1:], np.asarray(covariance)[1:, 1:]
    return math.exp(-e @ np.linalg.inv(c) @ e / 2) / math.sqrt(np.linalg.det(2 * math.pi * c))


def class_count_likelihood(z, stated, covariance=None):
    """p(stated class counts | logits (n, K)); `covariance` (K, K) that of the noise."""
    total = 0.0
    for p, counts in labelings([softmax(row) for row in z]):
        if covariance is None:
            total += p * (counts == list(stated))
        else:
            total += p * class_noise_density(np.subtract(stated, counts), covariance)
    return total


def binomial(count, n, share):
    return math.comb(n, count) * share**count * (1 - share) ** (n - count)


def ssc(z, share, pooled):
    """Sum over rows of the SSC loss at the pooled prior, without -log rho."""
    total = 0.0
    for a in z:
        f = sigmoid(a)
        total -= math.log(share / pooled * f + (1 - share) / (1 - pooled) * (1 - f))
    return total


def share_log_posterior(logits, prior, mean, covariance, ratios):
    """Log p(rows of a set | shares) + log p(shares) at log-ratios, up to a constant.

    Rows (n, K) of logits at the class prior (K,), the shares softmax(0, ratios), and the normal law
    of the log-ratios.
    """
    shares = softmax([0.0, *ratios])
    value = 0.0
    for row in logits:
        value += math.log(np.dot(shares, np.divide(softmax(row), prior)))
    off = np.subtract(ratios, mean)
    return value - off @ np.linalg.inv(np.atleast_2d(covariance)) @ off / 2


def share_posterior_density(z, prior, mean, variance, share):
    """p(share | rows of the set) of logits (n,) at a prior of positives, by integration."""
    logits = [[0.0, a] for a in z]

    def posterior(ratio):
        log_value = share_log_posterior(logits, [1 - prior, prior], [mean], variance, [ratio])
        return math.exp(log_value - top)

    grid = np.linspace(mean - 8 * variance**0.5, mean + 8 * variance**0.5, 801)
    top = max(
        share_log_posterior(logits, [1 - prior, prior], [mean], variance, [t]) for t in grid[::20]
    )
    total = np.trapezoid([posterior(t) for t in grid], grid)
    return posterior(math.log(share / (1 - share))) / total / (share * (1 - share))


def recursion(z, count):
    """P(count positives) for larger sets: one row after the other."""
    distribution = np.ones(1)
    for a in z:
        q = sigmoid(a)
        distribution = np.append(distribution * (1 - q), 0) + np.append(0, distribution * q)
    return distribution[count]


def set_effect_likelihood(z, count, tau):
    """P(count positives) averaged over b ~ N(0, tau^2)."""
    value, _ = quad(
        lambda b: recursion(np.asarray(z) + b, count) * normal(b, tau**2), -9 * tau, 9 * tau
    )
    return value


def offset(z, share):
    """b with mean sigma(z + b) = share, by bisection."""
    low, high = -60.0, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.mean([sigmoid(a + middle) for a in z]) < share else (low, middle)
        )
    return (low + high) / 2


def set_effect_nll(z, share, tau, variance, lattice=1 / (2 * math.pi)):
    """-log N(b; 0, T) / v, as likelihood.md writes it; `lattice` is what n v gains."""
    n, b = len(z), offset(z, share)
    q = [sigmoid(a + b) for a in z]
    v = np.mean([a * (1 - a) for a in q]) + lattice / n
    total = tau**2 + 1 / (n * v) + variance / (n * v) ** 2
    return b**2 / (2 * total) + math.log(total) / 2 + math.log(v) + math.log(2 * math.pi) / 2


def slope(function, point, step=1e-5):
    """Central differences of a number by every entry of an array."""
    result = np.zeros_like(point)
    for place in np.ndindex(point.shape):
        move = np.zeros_like(point)
        move[place] = step
        result[place] = (function(point + move) - function(point - move)) / (2 * step)
    return result


def explained_share(tau_with, tau_without):
    """Share of the variance between sets that goes when features are known."""
    return 1 - tau_with**2 / tau_without**2


def tempered(z, trust):
    """Rows of one set: differences cut down to a part of them, the mean probability kept."""
    mean = sum(sigmoid(value) for value in z) / len(z)
    flat = [trust * value for value in z]
    return [value + offset(flat, mean) for value in flat]


def stand_in_slope(means, inside, owner, told, strength):
    """Slope inside sets by regression of each feature on other columns, one by one (lists)."""
    m, d = means.shape
    centred = means - means.mean(axis=0)
    variance = np.mean([np.mean(centred[:, k] ** 2) for k in range(d)])
    by_column = {}
    for k in range(d):
        if not told[k]:
            continue
        others = [i for i in range(d) if owner[i] != owner[k]]
        x, y = centred[:, others], centred[:, k]
        b = np.linalg.solve(x.T @ x / m + strength * variance * np.eye(len(others)), x.T @ y / m)
        guess = inside[:, others] @ b
        by_column.setdefault(owner[k], []).append(np.sum(guess * inside[:, k]) / np.sum(guess**2))
    found = [np.mean(values) for values in by_column.values()]
    return (1 + np.sum(found)) / (1 + len(found))


def lone_rows(z, sets, slope):
    """Length for lone rows: the share of variance between sets, and `slope` of what is inside."""
    groups = [z[sets == j] for j in np.unique(sets)]
    n, m = len(z), len(groups)
    between = sum(len(g) * (g.mean() - z.mean()) ** 2 for g in groups)
    inside = sum(np.sum((g - g.mean()) ** 2) for g in groups)
    share = (between - (m - 1) * inside / (n - m)) / (between + inside)
    return share + (1 - share) * slope
