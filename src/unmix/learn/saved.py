"""Saved models: a folder of JSON and safetensors or LightGBM's text. Never pickle.

    manifest.json        format, version, and the size and SHA-256 of the other files
    model.json           sets, classes, columns, choices: everything that is not weights
    README.md            the model card; not read
    weights.safetensors  linear models and networks
    trees.txt            boosting

Everything is checked before anything is built: sizes first, then digests, then every entry of the
JSON and every weight. The digests find damage, not malice: whoever can write the folder can write
the manifest, so that nothing in a folder is trusted.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import time
from collections.abc import Hashable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
from safetensors import SafetensorError

from unmix.core.class_shares import ClassShares, num_logits
from unmix.data.priors import Priors
from unmix.data.wording import listed
from unmix.errors import InputError
from unmix.files import atomic_folder, is_being_replaced, open_ordinary
from unmix.learn.encoding import TableEncoder
from unmix.learn.hidden_sets import Gain, HeldOutShares
from unmix.learn.methods import method_named
from unmix.learn.models import MODELS, Form, Learner, Model, Setup, model_row, saved_row
from unmix.learn.recipes import check_hidden
from unmix.learn.saved_state import (
    check_state,
    grouping_of,
    image_shape,
    inside_of,
    numbers,
    shares_of,
)
from unmix.learn.training_rows import ImageEncoder
from unmix.learn.training_summary import TrainingSummary

if TYPE_CHECKING:
    from unmix.learn.estimator import SetClassifier

__all__ = ["FORMAT_VERSION", "load_model", "refuse_other_folder", "save_model", "write_model"]

FORMAT, FORMAT_VERSION = "unmix model", 1
MANIFEST, CARD = "manifest.json", "README.md"
MANIFEST_BYTES = 2**16
MOST_REPLACED = 20  # times that a folder is read again since another took its name
# What a fit writes beside a model, for people; it is never read back.
BESIDE = ("report.html", CARD)
# Larger files are refused unread: a million sets take about 100 MB of JSON.
LIMITS = {"model.json": 2**30, "weights.safetensors": 2**32, "trees.txt": 2**32}
# Constructor arguments as they were given; `set_priors` is told by the sets themselves.
PARAMETERS = (
    "target_prior",
    "method",
    "model",
    "prior_error",
    "l2",
    "epochs",
    "hidden",
    "shift",
    "flip",
    "hide_sets",
    "allow_set_feature",
    "held_out",
    "keep_split",
    "engine",
    "random_state",
    "verbose",
)

Array = np.ndarray[Any, Any]
Classifier = TypeVar("Classifier", bound="SetClassifier")


def save_model(
    clf: SetClassifier, folder: str | Path, *, overwrite: bool = False, card: str = ""
) -> None:
    """Write a fitted classifier to a folder, all of it or nothing.

    Parameters
    ----------
    clf : UnmixClassifier
    folder : path
    overwrite : bool
        Replace a model that is there; otherwise a folder with files in it is refused.
    card : str
        Of the model, as Markdown.
    """
    with atomic_folder(folder, overwrite=overwrite, refuse=refuse_other_folder) as temporary:
        write_model(clf, temporary, card)


def write_model(clf: SetClassifier, folder: Path, card: str = "") -> None:
    """Write the files of a model into an empty folder, with a model card if there is one.

    The card is for people, who may add to it: no digest holds it.
    """
    row, fit = model_row(clf.learner_.setup.model), clf.learner_.fit
    contents = {
        "model.json": json.dumps({"fit": fit.facts()} | _describe(clf)).encode(),
        row.weights_name: fit.weights_file(),
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    files = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in contents.items()
    }
    manifest = {"format": FORMAT, "version": FORMAT_VERSION, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))
    if card:
        (folder / CARD).write_text(card, encoding="utf-8")


def load_model(kind: type[Classifier], folder: str | Path, *, module: Any = None) -> Classifier:
    """Read a model, or say what is wrong with the folder.

    Parameters
    ----------
    kind : class
        `UnmixClassifier`.
    folder : path
    module : class or torch module, optional
        The class of a model that is a torch module of the user's own, or an instance of it; one
        that is registered if left out. A folder never names code to run.
    """
    path = Path(folder)
    contents = _checked_contents(path)
    try:
        state = json.loads(contents["model.json"])
        check_state(state)
        weights = contents[saved_row(state["model"]).weights_name]
        return _rebuild(kind, state, weights, module)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    # Whatever a stranger may have written, down to brackets nested ten thousand deep.
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        RuntimeError,
        SafetensorError,
    ) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path} is not a model that this version can read ({type(error).__name__}: "
            f"{reason}); fit it again"
        ) from None


def refuse_other_folder(folder: Path) -> None:
    """Raise InputError if a folder is no model, or holds more than one: it may not be replaced."""
    try:
        ours = {MANIFEST, *BESIDE, *_read_manifest(folder)}
    except InputError:
        raise InputError(
            f"will not overwrite the folder {folder}: it is no model (there is no {MANIFEST} of "
            "one in it); choose another name"
        ) from None
    others = sorted(entry.name for entry in folder.iterdir() if entry.name not in ours)
    if others:
        raise InputError(
            f"will not overwrite the folder {folder}: it holds {listed(others)} besides the model; "
            "move that, or choose another name"
        )


def _read_manifest(folder: Path) -> dict[str, tuple[int, str]]:
    """Return the files that the manifest names: name -> size and digest."""
    path = folder / MANIFEST
    try:
        with open_ordinary(path) as file:
            if os.fstat(file.fileno()).st_size > MANIFEST_BYTES:
                raise InputError(f"{path} is too large to be a manifest")
            manifest = json.loads(file.read(MANIFEST_BYTES))
        form, version, files = manifest["format"], manifest["version"], manifest["files"]
        stated = {name: (int(f["bytes"]), str(f["sha256"])) for name, f in files.items()}
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        raise InputError(f"{path} is damaged; copy or fit the model again") from None
    if form != FORMAT or version != FORMAT_VERSION:
        raise InputError(
            f"{folder} has format {form!r} version {version!r}; this unmix reads {FORMAT!r} "
            f"version {FORMAT_VERSION}"
        )
    for name, (size, _) in stated.items():
        if name not in LIMITS:
            raise InputError(f"{path} names an unknown file {name!r}")
        if size > LIMITS[name]:
            raise InputError(f"{folder / name} is too large to be part of a model ({size:,} bytes)")
    if "model.json" not in stated or len(stated) != 2:
        raise InputError(f"{path} must name model.json and one file of weights")
    return stated


def _checked_contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a model, of one moment, after sizes and digests were found right."""
    for _ in range(MOST_REPLACED):
        before = _identity(folder)
        try:
            return _contents(folder)
        except InputError:
            if _identity(folder) == before and not is_being_replaced(folder):
                raise
            # Another takes its place: the files were of two models, or for a moment there was none.
            time.sleep(0.01)
    return _contents(folder)


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return what tells a folder from the one that takes its name."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a model after their sizes and digests were found right."""
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder} holds no model: there is no {MANIFEST} in it")
    contents = {}
    for name, (size, digest) in _read_manifest(folder).items():
        path = folder / name
        if not path.exists():
            raise InputError(f"{path} is missing; copy the whole folder")
        with open_ordinary(path) as file:
            # Its size first: what nobody stated is not read.
            right = os.fstat(file.fileno()).st_size == size
            data = file.read(size) if right else b""
        if not right or hashlib.sha256(data).hexdigest() != digest:
            raise InputError(f"{path} was changed or cut short; copy or fit the model again")
        contents[name] = data
    return contents


def _describe(clf: SetClassifier) -> dict[str, Any]:
    """Return everything but the weights as JSON values."""
    learner, shares = clf.learner_, clf.shares_
    return {
        "model": clf.model_,
        "method": clf.method_,
        "classes": [_json_value(c, "class") for c in clf.classes_.tolist()],
        "labels": clf.set_priors is None,
        "per_class": clf.set_priors is not None and clf.classes_.tolist() != [0, 1],
        "set_ids": [_json_value(i, "set id") for i in clf.set_ids_],
        "groupings": list(clf.groupings_),
        "grouping_of_sets": [] if shares.grouping is None else shares.grouping.tolist(),
        "stated_priors": shares.tolist(),
        "set_priors": learner.set_priors.tolist(),
        "fitted_again": clf.fitted_again_,
        "sampled_rows": clf.sampled_rows_,
        "training_labels": clf.training_labels_,
        "refined": learner.refined,
        "noticed_error": learner.noticed_error,
        "tau": learner.tau,
        "inside": {"slope": learner.inside.slope, "columns": learner.inside.columns},
        "lone": {"length": learner.lone.length, "shift": np.ravel(learner.lone.shift).tolist()},
        "prior_errors": None if clf.prior_errors_ is None else clf.prior_errors_.tolist(),
        "set_sizes": clf.set_sizes_.tolist(),
        "target_prior": clf.target_prior_.tolist(),
        "base_prior": np.asarray(learner.base_prior).tolist(),
        "leave_sets_out": clf.leave_sets_out_,
        "gains": {name: asdict(gain) for name, gain in clf.gains_.items()},
        "held_out_shares": None if clf.held_out_shares_ is None else clf.held_out_shares_.to_dict(),
        "history": [{k: v for k, v in row.items() if math.isfinite(v)} for row in clf.history_],
        "encoder": clf.encoder_.to_dict(),
        "training": None if clf.training_summary_ is None else clf.training_summary_.to_dict(),
        "named_columns": hasattr(clf, "feature_names_in_"),
        "num_features": int(clf.n_features_in_),
        "setup": {
            "l2": learner.setup.l2,
            "epochs": learner.setup.epochs,
            "seed": learner.setup.seed,
        },
        "parameters": {name: _parameter(getattr(clf, name), name) for name in PARAMETERS},
        "given_priors": _given_priors(clf),
    }


def _parameter(value: Any, name: str) -> Any:
    """Return a constructor argument as JSON has it."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping | pd.Series):
        items = dict(value).items()
        return {"mapping": [[_json_value(k, name), _json_value(v, name)] for k, v in items]}
    if isinstance(value, tuple | list):
        return [_json_value(entry, name) for entry in value]
    own_module = name == "model" and not isinstance(value, str)
    if own_module or isinstance(value, np.random.RandomState | np.random.Generator):
        return None  # a stream of numbers has no place in a file; a seed has. A module: see `fit`
    return None if value is None else _json_value(value, name)


def _restored(value: Any) -> Any:
    """Return a constructor argument as it was given."""
    if isinstance(value, dict):
        return {key: entry for key, entry in value["mapping"]}
    return tuple(value) if isinstance(value, list) else value


def _given_priors(clf: SetClassifier) -> dict[str, Any] | None:
    """Return set priors that the used ones do not tell: of sets without rows, or with errors."""
    if clf.set_priors is None:
        return None
    given = clf.given_by_grouping()
    if clf.groupings_:
        return {"groupings": {name: _priors_as_json(of) for name, of in given.items()}}
    of = given[""]
    known = of.statement is None and of.set_priors.precision is None
    if len(of) == len(clf.set_ids_) and of.standard_errors is None and known:
        return None
    return _priors_as_json(of)


def _priors_as_json(given: Priors) -> dict[str, Any]:
    """Return the priors of one grouping as JSON values."""
    errors, classes = given.standard_errors, given.classes
    return {
        "set_ids": [_json_value(i, "set id") for i in given.set_ids],
        "shares": given.set_priors.tolist(),
        "standard_errors": None if errors is None else errors.tolist(),
        "known": given.known_as_json(),
        "classes": None if classes is None else [_json_value(c, "class") for c in classes],
    }


def _json_value(value: Hashable, what: str) -> Any:
    """Return a name as JSON has it, or refuse what would come back as something else."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or not isinstance(value, str | int | float | bool):
        raise InputError(f"only text and numbers can be saved as a {what}; got {value!r}")
    return value


def _rebuild(
    kind: type[Classifier], state: dict[str, Any], weights: bytes, given: Any
) -> Classifier:
    """Build a classifier from what a folder said."""
    ids: list[Hashable] = state["set_ids"]
    classes = np.array(state["classes"])
    stated = shares_of(state, "stated_priors", len(ids), len(classes))
    refined = shares_of(state, "set_priors", len(ids), len(classes))
    row, method = saved_row(state["model"]), method_named(state["method"])
    clf = kind(_prior_argument(ids, stated, state), **_arguments(state))
    clf.classes_, clf.set_ids_ = classes, tuple(ids)
    # Folders of 0.1 have none.
    clf.groupings_ = tuple(state.get("groupings", ()))
    names = state.get("groupings", [])
    clf.grouping_of_sets_ = grouping_of(state.get("grouping_of_sets", []), names, len(ids))
    stated, refined = (of.grouped(clf.grouping_of_sets_) for of in (stated, refined))
    clf.stated_priors_ = dict(zip(ids, stated.as_given, strict=True))
    clf.set_priors_ = dict(zip(ids, refined.as_given, strict=True))
    errors = state["prior_errors"]
    clf.prior_errors_ = None if errors is None else numbers(state, "prior_errors", (len(ids),))
    clf.method_, clf.model_ = method.name, row.name
    clf.leave_sets_out_, clf.history_ = state["leave_sets_out"], state["history"]
    # Folders of 0.1 have none.
    clf.gains_ = {name: Gain(**gain) for name, gain in state.get("gains", {}).items()}
    hidden = state.get("held_out_shares")
    clf.held_out_shares_ = None if hidden is None else HeldOutShares.from_dict(hidden, len(classes))
    clf.set_sizes_ = numbers(state, "set_sizes", (len(ids),)).astype(int)
    clf.target_prior_ = numbers(state, "target_prior", (len(classes),))
    clf.encoder_ = _encoder(state["encoder"])
    seen = state.get("training")  # older folders have none
    clf.training_summary_ = None
    if seen is not None:
        clf.training_summary_ = TrainingSummary.from_dict(seen, clf.encoder_, classes)
    clf.n_features_in_ = state["num_features"]
    if state["named_columns"]:
        clf.feature_names_in_ = np.array(clf.encoder_.columns, dtype=object)
    own = None
    if row.name not in MODELS:
        from unmix.learn.own_modules import build_module

        own = build_module(state["fit"]["module"], given)
    if own is None and given is not None:
        raise InputError(f"module is for a torch module of your own; this is a {row.name} model")
    clf.model = clf.model if own is None else copy.deepcopy(own)
    setup = Setup(row.name if own is None else own, method.name, **state["setup"])
    base = numbers(state, "base_prior", (len(classes),))
    facts = state["fit"] if own is None else {"module": own}
    fit = row.load(facts, weights, base, refined)
    _check_form(fit.form, clf, row)
    # Folders of 0.1 do not say, and refined whenever there were errors to refine by.
    told = state.get("refined", errors is not None and method.refines)
    tau, noticed = float(state.get("tau", 0.0)), float(state.get("noticed_error", 0.0))
    inside, lone = inside_of(state, len(classes))
    clf.learner_ = Learner(
        setup, fit, base, refined, state["history"], bool(told), tau, noticed, inside, lone
    )
    clf.refined_, clf.noticed_error_ = clf.learner_.refined, clf.learner_.noticed_error
    clf.fitted_again_ = state.get("fitted_again", False)
    clf.sampled_rows_ = state.get("sampled_rows", 0)
    clf.training_labels_ = state.get("training_labels", 0)
    return clf


def _check_form(form: Form | None, clf: SetClassifier, row: Model) -> None:
    """Refuse weights for other rows or other classes than those of the encoder."""
    encoder = clf.encoder_
    if isinstance(encoder, ImageEncoder):
        row_shape, num_features = encoder.row_shape, math.prod(encoder.row_shape)
    else:
        names = encoder.columns if row.view == "native" else encoder.feature_names
        row_shape, num_features = (len(names),), len(encoder.columns)
        if len(set(encoder.columns)) < num_features:
            raise ValueError("a column of the encoder is there twice")
    outputs = num_logits(len(clf.classes_))
    if form is not None and form != (row_shape, outputs):
        raise ValueError(f"the weights are for rows {form[0]} and {form[1]} outputs")
    if clf.n_features_in_ != num_features:
        raise ValueError("num_features is not that of the encoder")


# Constructor arguments that a folder of an earlier version lacks.
_LATEST = {"keep_split", "engine"}


def _arguments(state: dict[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments; folders of 0.1 tell only what was used."""
    if "parameters" in state:
        stored = state["parameters"]
        known = [name for name in PARAMETERS if name in stored or name not in _LATEST]
        return {name: _restored(stored[name]) for name in known}
    return {
        "method": state["method"],
        "model": state["model"],
        "l2": state["setup"]["l2"],
        "epochs": state["setup"]["epochs"],
        "hidden": check_hidden(state.get("hidden"), state["model"]),
    }


def _encoder(state: dict[str, Any]) -> Any:
    """Return what turns rows into numbers."""
    if "images" in state:
        return ImageEncoder(image_shape(state["images"]))
    return TableEncoder.from_dict(state)


def _prior_argument(ids: list[Hashable], stated: ClassShares, state: dict[str, Any]) -> Any:
    """Return the argument `set_priors`: None for labels, a mapping, or `Priors` with errors."""
    if state["labels"]:
        return None
    names, given = state["classes"], state.get("given_priors")
    if given is not None and "groupings" in given:
        return {name: _priors_of_json(of) for name, of in given["groupings"].items()}
    if given is not None:
        told = {"classes": names if state["per_class"] else None}  # folders of 0.1 do not say
        return _priors_of_json(told | given)
    if not state["per_class"]:
        return dict(zip(ids, stated.as_given.tolist(), strict=True))
    return {
        i: dict(zip(names, row, strict=True))
        for i, row in zip(ids, stated.matrix.tolist(), strict=True)
    }


def _priors_of_json(given: dict[str, Any]) -> Priors:
    """Return the priors of one grouping as they were given."""
    shares = ClassShares(np.array(given["shares"], dtype=np.float64))
    errors, classes = given["standard_errors"], given["classes"]
    known = None if errors is None else np.array(errors, dtype=np.float64)
    of_classes = None if classes is None else tuple(classes)
    read = Priors(tuple(given["set_ids"]), shares, of_classes, known)
    return read.with_known(given.get("known"))  # folders of 0.1 have none
