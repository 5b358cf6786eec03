"""Parties that hold one set of handwritten digits each, for benchmarks of federated fits.

Images are projected on principal components; the classes are even and odd digits. Labels form the
sets and score the test images, nothing else.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA

from unmix.core.class_shares import ClassShares
from unmix.data.benchmark_files import load_benchmark
from unmix.data.priors import Priors
from unmix.data.sets import UnlabeledSets
from unmix.federated.party import Party
from unmix.learn.encoding import TableEncoder

SHARES = np.linspace(0.1, 0.9, 10)


@dataclass
class Digits:
    """Sets of digits, one for each party, and test images."""

    frames: list
    x_test: np.ndarray
    y_test: np.ndarray

    @classmethod
    def draw(cls, rows, components, seed=0, name="mnist"):
        """Draw sets of so many rows from the training images of a benchmark."""
        mnist = load_benchmark(name)
        rng = np.random.default_rng(seed)
        flat = mnist.x_train.reshape(len(mnist.x_train), -1).astype(np.float32) / 255
        test = mnist.x_test.reshape(len(mnist.x_test), -1).astype(np.float32) / 255
        projection = PCA(components, random_state=seed, svd_solver="randomized").fit(flat)
        x = projection.transform(flat)
        order = rng.permutation(len(x))
        kinds = [iter(order[mnist.y_train[order] == y]) for y in (0, 1)]
        names = [f"c{i}" for i in range(components)]
        frames = []
        for share in SHARES:
            positive = round(rows * share)
            own = [next(kinds[1]) for _ in range(positive)]
            own += [next(kinds[0]) for _ in range(rows - positive)]
            frames.append(pd.DataFrame(x[rng.permutation(own)], columns=names))
        return cls(frames, projection.transform(test), mnist.y_test)

    def parties(self, **options):
        """Return new parties; `options` are what they have against telling too much."""
        return [
            Party(f"p{j}", frame, np.full(len(frame), f"s{j}"), one_set(f"s{j}", share), **options)
            for j, (frame, share) in enumerate(zip(self.frames, SHARES, strict=True))
        ]

    def central(self):
        """Return all sets in one place, with the encoder of their rows."""
        whole = pd.concat(self.frames, ignore_index=True)
        encoder = TableEncoder.fit(whole)
        index = np.repeat(np.arange(len(self.frames)), [len(frame) for frame in self.frames])
        shares = ClassShares(SHARES)
        return UnlabeledSets(encoder.matrix(whole), index, shares, float(SHARES.mean())), encoder

    def encoded_test(self, encoder):
        """Return the test images as the models see them."""
        return encoder.matrix(pd.DataFrame(self.x_test, columns=list(self.frames[0].columns)))


def one_set(name, share):
    """Return the priors of a party that has a single set."""
    return Priors((name,), ClassShares([float(share)]), least_sets=1)
