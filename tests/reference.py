"""The paper's equations, transcribed literally and slowly: the oracle of every fast form.

Everything here loops over sets, builds all m posteriors and works on probabilities f in [0, 1]
as the paper does. float64 only; nothing here is stable for extreme values.
"""

import math

import numpy as np
import torch


def theorem_1(f, set_priors, set_weights, target_prior):
    """T(f) for all sets, (n, m): (a_j f + b_j) / (c f + d)."""
    columns = []
    c = sum(r * (p - target_prior) for r, p in zip(set_weights, set_priors, strict=True))
    d = sum(r * target_prior * (1 - p) for r, p in zip(set_weights, set_priors, strict=True))
    for r, p in zip(set_weights, set_priors, strict=True):
        a = r * (p - target_prior)
        b = r * target_prior * (1 - p)
        columns.append((a * f + b) / (c * f + d))
    return torch.stack(columns, dim=1)


def theorem_1_inverse(q, j, set_priors, set_weights, target_prior):
    """T_j^{-1}(q) by bisection on [0, 1]: T_j is monotone (Lemma 2)."""
    low, high = torch.zeros_like(q), torch.ones_like(q)
    rising = set_priors[j] > float(sum(r * p for r, p in zip(set_weights, set_priors, strict=True)))
    for _ in range(200):
        middle = (low + high) / 2
        value = theorem_1(middle, set_priors, set_weights, target_prior)[:, j]
        below = (value < q) if rising else (value > q)
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


def transition_k(eta, prior_matrix, set_weights, target):
    """The K-class set posterior from Bayes' rule, one set and one class at a time, (n, m)."""
    columns = []
    for j in range(len(prior_matrix)):
        joint = 0
        for k in range(len(target)):
            # p(x | class k) is proportional to eta_k / kappa_k
            joint = joint + set_weights[j] * prior_matrix[j, k] * eta[:, k] / target[k]
        columns.append(joint)
    joint = torch.stack(columns, dim=1)
    return joint / joint.sum(dim=1, keepdim=True)


def cross_entropy(g, set_index):
    """l_ce(g, bar y) = - sum_j 1(bar y = j) log g_j."""
    indicator = torch.nn.functional.one_hot(set_index, g.shape[1])
    return -(torch.where(indicator == 1, torch.log(g), 0.0)).sum(dim=1)


def squared_error(g, set_index):
    """sum_j (g_j - 1(bar y = j))^2."""
    indicator = torch.nn.functional.one_hot(set_index, g.shape[1])
    return ((g - indicator) ** 2).sum(dim=1)


def fisher(f, set_priors, set_weights, target_prior):
    """E over sets of (d log g_j / d z)^2 with f = sigmoid(z), by automatic differentiation."""
    z = torch.logit(f).detach().requires_grad_()
    g = theorem_1(torch.sigmoid(z), set_priors, set_weights, target_prior)
    total = torch.zeros_like(f)
    for j in range(g.shape[1]):
        (slope,) = torch.autograd.grad(torch.log(g[:, j]).sum(), z, retain_graph=True)
        total = total + g[:, j].detach() * slope**2
    return total


def l_b(f, y):
    """The binary loss of the paper's experiments: cross-entropy of f."""
    return -math.log(f) if y == 1 else -math.log(1 - f)


def u2(f_1, f_2, pi_1, pi_2, target_prior, correction=None):
    """R_U2 of two lists of model outputs, Section 2.3; with `correction`, R_U2-c."""
    c_1_plus = (1 - pi_2) * target_prior / (pi_1 - pi_2)
    c_1_minus = pi_2 * (1 - target_prior) / (pi_1 - pi_2)
    c_2_plus = (1 - pi_1) * target_prior / (pi_1 - pi_2)
    c_2_minus = pi_1 * (1 - target_prior) / (pi_1 - pi_2)
    n_1, n_2 = len(f_1), len(f_2)
    positive = sum(c_1_plus / n_1 * l_b(f, 1) for f in f_1)
    positive -= sum(c_2_plus / n_2 * l_b(f, 1) for f in f_2)
    negative = -sum(c_1_minus / n_1 * l_b(f, -1) for f in f_1)
    negative += sum(c_2_minus / n_2 * l_b(f, -1) for f in f_2)
    if correction is None:
        return positive + negative

    def corrected(r):
        return r if r >= 0 else -correction * r

    return corrected(positive) + corrected(negative)


def mmc(outputs, set_priors, target_prior, correction=None):
    """Pairs by sorted extremes, weights (pi_1 - pi_2)^2 normalised; equal and even sets only."""
    order = sorted(range(len(outputs)), key=lambda j: set_priors[j])
    pairs = [(order[-1 - i], order[i]) for i in range(len(order) // 2)]
    omega = [(set_priors[a] - set_priors[b]) ** 2 for a, b in pairs]
    return sum(
        w
        / sum(omega)
        * u2(outputs[a], outputs[b], set_priors[a], set_priors[b], target_prior, correction)
        for w, (a, b) in zip(omega, pairs, strict=True)
    )


def proportion(outputs, set_priors):
    """Mean over sets of the cross-entropy between stated and mean predicted share."""
    total = 0.0
    for f, pi in zip(outputs, set_priors, strict=True):
        share = sum(f) / len(f)
        total += -pi * math.log(share) - (1 - pi) * math.log(1 - share)
    return total / len(outputs)


def alpha(set_priors, set_weights, target_prior):
    """The alpha of Lemma 5."""
    return min(
        sum(r * p * (1 - target_prior) for r, p in zip(set_weights, set_priors, strict=True)),
        sum(r * target_prior * (1 - p) for r, p in zip(set_weights, set_priors, strict=True)),
    )


def theorem_4(m, lipschitz, alpha, rademacher, loss_bound, delta, n):
    """The estimation error bound."""
    return 8 * math.sqrt(2) * m * lipschitz / alpha**2 * rademacher + 2 * loss_bound * math.sqrt(
        math.log(2 / delta) / (2 * n)
    )


def anchored(shares, stated, errors):
    """Refined priors (m, K): the linear map of `shares` that comes nearest to the stated ones.

    Least squares with weights 1 / error^2, an error of at least 0.001; priors without an error
    stay. Entries near 0 bend away from it by 0.005 log(1 + exp(x / 0.005)).
    """
    root = 1 / np.maximum(errors, 1e-3)[:, None]
    mapping, *_ = np.linalg.lstsq(root * shares, root * stated, rcond=None)
    bent = 0.005 * np.logaddexp(0, shares @ mapping / 0.005)
    bent /= bent.sum(axis=1, keepdims=True)
    return np.where(np.asarray(errors)[:, None] > 0, bent, stated)


def distance_from_stated(shares, stated, errors):
    """What the distance of refined priors from the stated ones costs, summed over sets.

    Errors of K shares that sum to 1: independent ones of variance s^2 K / (K - 1), projected.
    """
    classes, free = shares.shape[1], np.asarray(errors) > 0
    variance = np.asarray(errors)[free] ** 2 * classes / (classes - 1)
    return (((shares - stated)[free] ** 2).sum(axis=1) / (2 * variance)).sum()


def consistency(answers, teacher):
    """Mean over rows of (K max_k q_k - 1) / (K - 1) sum_k q_k log(q_k / eta_k), one by one.

    Probabilities (n, K) of the network, eta, and of its teacher, q.
    """
    total = 0
    for eta, q in zip(answers, teacher, strict=True):
        classes = len(q)
        sure = (classes * max(float(value) for value in q) - 1) / (classes - 1)
        total = total + sure * sum(q[k] * torch.log(q[k] / eta[k]) for k in range(classes))
    return total / len(answers)


def likely_counts(told, least, shares, decision, rounds):
    """Where rows are likely to have been whose thin cells were counted nearer to the decision.

    Row by row: each group of cells that was told as one is put back, its rows spread by the
    density that expectation and maximisation find for the two classes.
    """
    cells = len(told[0])
    groups = []  # (set, the cells where its rows may have been, how many may have moved)
    kept = [[float(count) for count in own] for own in told]
    for j, own in enumerate(told):
        low = [c for c in range(decision) if own[c]]
        high = [c for c in reversed(range(decision, cells)) if own[c]]
        for side, far, until in (
            (low, 0, decision - 1 if high else cells - 1),
            (high, cells - 1, decision if low else 0),
        ):
            begin, step = far, 1 if far == 0 else -1
            for c in side:
                end = until if c == side[-1] else c
                before = least - 1 if c != begin else 0
                after = least - 1 if c != end else 0
                moved = min(own[c] - 1, before + after)
                where = sorted(range(begin, end + step, step))
                if moved:
                    groups.append((j, where, moved))
                    kept[j][c] -= moved
                begin = c + step
    pooled = [sum(own[c] for own in told) + 0.5 for c in range(cells)]
    density = [[value / sum(pooled) for value in pooled] for _ in range(2)]

    def of_set(j, c):
        return (1 - shares[j]) * density[0][c] + shares[j] * density[1][c]

    for _ in range(rounds):
        expected = [list(own) for own in kept]
        for j, where, moved in groups:
            mass = sum(of_set(j, c) for c in where)
            for c in where:
                expected[j][c] += moved * of_set(j, c) / mass
        new = [[0.0] * cells, [0.0] * cells]
        for j, own in enumerate(expected):
            for c in range(cells):
                for k, weight in enumerate((1 - shares[j], shares[j])):
                    new[k][c] += own[c] * weight * density[k][c] / of_set(j, c)
        density = [[value / sum(own) for value in own] for own in new]
    found = [[round(count) for count in own] for own in kept]
    for j, where, moved in groups:
        mass, below = sum(of_set(j, c) for c in where), 0.0
        for c in where:
            above = below + of_set(j, c)
            found[j][c] += int(moved * above / mass + 0.5) - int(moved * below / mass + 0.5)
            below = above
    return found
