"""What a call of the SSC loss costs, forward and backward, as the number of sets grows.

Prints ratios to 10 sets, all measured in one run in turns, so that a busy machine slows every
line alike. The literal form (all m set posteriors, as in the paper) stands beside it.
"""

import time

import numpy as np
import torch

from unmix import Transition, ssc_cross_entropy, ssc_squared_error

ROWS = 4096
LITERAL_UP_TO = 10_000  # beyond this the literal form needs gigabytes


def literal(logits, set_index, transition):
    """The paper's way: the posterior of every set, then the one that is needed."""
    posterior = transition.set_posterior(logits)
    return -torch.log(posterior.gather(1, set_index[:, None])[:, 0])


def problem(num_sets):
    rng = np.random.default_rng(num_sets)
    transition = Transition(rng.uniform(0.1, 0.9, num_sets), None, 0.4)
    logits = torch.from_numpy(rng.normal(size=ROWS).astype(np.float32)).requires_grad_()
    return logits, torch.from_numpy(rng.integers(num_sets, size=ROWS)), transition


def seconds(loss, args, calls):
    started = time.perf_counter()
    for _ in range(calls):
        loss(*args).mean().backward()
    return (time.perf_counter() - started) / calls


def main():
    torch.set_num_threads(1)
    sizes = (10, 1_000, 10_000, 100_000, 1_000_000)
    problems = {m: problem(m) for m in sizes}
    losses = {"cross-entropy": ssc_cross_entropy, "squared error": ssc_squared_error}
    best = {(name, m): np.inf for name in losses for m in sizes}
    for _ in range(30):  # in turns: every size meets the same disturbances
        for name, loss in losses.items():
            for m in sizes:
                best[name, m] = min(best[name, m], seconds(loss, problems[m], 20))
    slow = {m: seconds(literal, problems[m], 2) for m in sizes if m <= LITERAL_UP_TO}
    print(f"{ROWS} rows, forward and backward, one thread; best of 30 turns")
    for name in losses:
        for m in sizes:
            ratio = best[name, m] / best[name, 10]
            print(
                f"{name:14} {m:>9,} sets: {1e6 * best[name, m]:7.0f} us, {ratio:5.2f} times 10 sets"
            )
    for m, value in slow.items():
        ratio = value / best["cross-entropy", m]
        print(f"literal        {m:>9,} sets: {1e6 * value:7.0f} us, {ratio:5.0f} times ours")


if __name__ == "__main__":
    main()
