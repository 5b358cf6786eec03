"""Copies of the fitted model for the parties: the server gives the files, a party checks them.

A saved model knows the name, the share and the rows of every set it was fitted to. The copy of a
party knows its own, and of all others together what the party was told in the fit.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from unmix.core.class_shares import ClassShares
from unmix.core.share_precision import SharePrecision
from unmix.data.priors import Priors
from unmix.errors import InputError
from unmix.federated.party_sets import joined_others
from unmix.federated.replies import Conversation
from unmix.federated.together import FederatedFit
from unmix.learn.estimator import SetClassifier
from unmix.learn.saved import write_model

__all__ = ["copy_for", "give_model", "write_given"]

FILES = ("manifest.json", "model.json", "weights.safetensors")
"""What a model is made of; its report and card stay with the server."""
OTHERS = "all other parties"


def give_model(conversation: Conversation, fit: FederatedFit) -> None:
    """Send every party its copy of the model."""
    contents = []
    for party in range(len(conversation.parties)):
        with tempfile.TemporaryDirectory() as folder:
            write_model(copy_for(fit, party), Path(folder), "")
            read = {name: (Path(folder) / name).read_bytes() for name in FILES}
        contents.append({name: np.frombuffer(data, np.uint8) for name, data in read.items()})
    conversation.ask("model", {}, contents, {})


def copy_for(fit: FederatedFit, party: int) -> SetClassifier:
    """Return the classifier as a party may have it: of the sets of others it knows nothing."""
    clf, agreement = fit.classifier, fit.agreement
    own = np.flatnonzero(agreement.party_of_set == party)
    matrix, sizes, counted, errors = joined_others(agreement.shares, clf.set_sizes_, own)
    ids = tuple(agreement.set_ids[j] for j in own) + (OTHERS,) * (len(sizes) > len(own))
    precision = SharePrecision(counted, errors)
    shares = ClassShares(matrix).of_positives().known(precision)
    priors = Priors(ids, shares, agreement.classes, precision.standard_errors)
    found = copy.copy(clf)
    found.set_priors, found.set_ids_, found.set_sizes_ = priors, ids, sizes
    found.stated_priors_ = dict(zip(ids, shares.as_given, strict=True))
    found.set_priors_ = dict(found.stated_priors_)
    found.prior_errors_, found.held_out_shares_ = priors.standard_errors, None
    found.learner_ = replace(clf.learner_, set_priors=shares)
    return found


def write_given(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the model that a party was given into an empty folder, and see that it is one."""
    if set(files) != set(FILES):
        raise InputError(
            "the server gave no model; ask whoever runs it for a copy (serve --give-model)"
        )
    for name in FILES:
        (folder / name).write_bytes(files[name])
    SetClassifier.load(folder)
