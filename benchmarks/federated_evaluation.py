"""What parties' counts of scores say of a model, beside all held-out rows in one place.

python benchmarks/federated_evaluation.py

Parties hold one set of MNIST each (even against odd digits, 64 principal components), large sets
and small ones. A model is fitted together, and judged without labels twice: by what the parties
tell, and by the scores of their held-out rows. Rows differ in whether thin cells are told
(`--least-cell`); with none kept back, both are one evaluation of scores on a grid.
"""

import numpy as np
import pandas as pd
from digit_parties import SHARES, Digits
from measuring import parse_options, write_results

from unmix.assess.evaluate import evaluate
from unmix.federated.parties_here import PartiesHere
from unmix.federated.party import JUDGED, LEAST_CELL
from unmix.federated.replies import Conversation
from unmix.federated.together import fit_together

SIZES = (5_500, 1_000, 250)
DRAWS = 5


def judged(digits, least_cell):
    """Fit together; return what counts say, and what the held-out rows say in one place."""
    parties = digits.parties(least_cell=least_cell)
    fit = fit_together(
        Conversation(PartiesHere(parties)), method="ssc", l2=1e-4, resamples=0, held_out=0.2
    )
    clf, ours = fit.classifier, fit.judgement.evaluation
    out = [party._use == JUDGED for party in parties]
    frames = [party.frame[rows] for party, rows in zip(parties, out, strict=True)]
    logits = clf.logits_at(pd.concat(frames, ignore_index=True), clf.target_prior_)
    index = np.repeat(np.arange(len(SHARES)), [rows.sum() for rows in out])
    return ours, evaluate(logits, index, SHARES, float(clf.target_prior_[1]))


def main():
    """Compare both evaluations."""
    options = parse_options("federated_evaluation", components=64, seed=0)
    lines = []
    for rows in (200,) if options.quick else SIZES:
        for least_cell in (1, LEAST_CELL):
            pairs = [
                judged(Digits.draw(rows, options.components, seed), least_cell)
                for seed in range(options.seed, options.seed + (1 if options.quick else DRAWS))
            ]
            off = [ours.auc.value - theirs.auc.value for ours, theirs in pairs]
            same = ("accuracy", "balanced_accuracy", "tpr", "fpr")
            lines.append(
                {
                    "held_out": pairs[0][0].rows // len(SHARES),
                    "least_cell": least_cell,
                    "draws": len(pairs),
                    "auc": [theirs.auc.value for _, theirs in pairs],
                    "off": off,
                    "width": [(t.auc.high - t.auc.low) / 2 for _, t in pairs],
                    "same_rates": sum(
                        all(getattr(o, name) == getattr(t, name) for name in same) for o, t in pairs
                    ),
                    "p_values": [[o.fit_test.p_value, t.fit_test.p_value] for o, t in pairs],
                }
            )
            print(lines[-1], flush=True)
    write_results(options, {"parties": len(SHARES), "lines": lines})


if __name__ == "__main__":
    main()
