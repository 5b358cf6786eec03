"""Saved models: a folder of JSON and safetensors or LightGBM's text. Never pickle.

    manifest.json        format, version, and the size and SHA-256 of the other files
    model.json           sets, classes, columns, choices: everything that is not weights
    weights.safetensors  linear models and networks
    trees.txt            boosting

Everything is checked before anything is built: sizes first, then digests, then the shape of the
JSON. The digests find damage, not malice: whoever can write the folder can write the manifest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from unmix.errors import InputError
from unmix.files import atomic_folder, explained_os_errors, sha256_of
from unmix.learn.boosting import BoostingFit
from unmix.learn.encoding import TableEncoder
from unmix.learn.learners import Learner, NetworkFit, Setup
from unmix.learn.linear import LinearFit
from unmix.learn.models import build_model
from unmix.learn.sizing import check_hidden

if TYPE_CHECKING:
    from unmix.learn.estimator import UnmixClassifier

__all__ = ["FORMAT_VERSION", "load_model", "save_model"]

FORMAT, FORMAT_VERSION = "unmix model", 1
MANIFEST = "manifest.json"
# Larger files are refused unread: a million sets take about 100 MB of JSON.
LIMITS = {"model.json": 2**30, "weights.safetensors": 2**32, "trees.txt": 2**32}
WEIGHTS = {"linear": "weights.safetensors", "mlp": "weights.safetensors", "boosting": "trees.txt"}

Array = np.ndarray[Any, Any]
Classifier = TypeVar("Classifier", bound="UnmixClassifier")


def save_model(clf: UnmixClassifier, folder: str | Path, *, overwrite: bool = False) -> None:
    """Write a fitted classifier to a folder, all of it or nothing.

    Parameters
    ----------
    clf : UnmixClassifier
    folder : path
    overwrite : bool
        Replace a model that is there; otherwise a folder with files in it is refused.
    """
    with atomic_folder(folder, overwrite=overwrite) as temporary:
        write_model(clf, temporary)


def write_model(clf: UnmixClassifier, folder: Path) -> None:
    """Write the files of a model into an empty folder."""
    if clf.model_ not in WEIGHTS:
        raise InputError(
            "a torch module of your own cannot be saved without pickle; save its state_dict "
            "(clf.learner_.fit.module) and build it again"
        )
    contents = {"model.json": json.dumps(_describe(clf)).encode()}
    contents[WEIGHTS[clf.model_]] = _weights(clf.learner_)
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    files = {
        name: {"bytes": len(data), "sha256": sha256_of(folder / name)}
        for name, data in contents.items()
    }
    manifest = {"format": FORMAT, "version": FORMAT_VERSION, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))


def load_model(kind: type[Classifier], folder: str | Path) -> Classifier:
    """Read a model, or say what is wrong with the folder.

    Parameters
    ----------
    kind : class
        `UnmixClassifier` or a subclass.
    folder : path
    """
    path = Path(folder)
    contents = _checked_contents(path)
    try:
        state = json.loads(contents["model.json"])
        weights = contents[WEIGHTS[state["model"]]]
        return _rebuild(kind, state, weights)
    except (KeyError, TypeError, ValueError, SafetensorError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path} is not a model that this version can read ({type(error).__name__}: "
            f"{reason}); fit it again"
        ) from None


def _checked_contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a model after their sizes and digests were found right."""
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder} holds no model: there is no {MANIFEST} in it")
    with explained_os_errors(folder, "read"):
        if (folder / MANIFEST).stat().st_size > 2**16:
            raise InputError(f"{folder / MANIFEST} is too large to be a manifest")
        try:
            manifest = json.loads((folder / MANIFEST).read_bytes())
            form, version, files = manifest["format"], manifest["version"], manifest["files"]
            stated = {name: (int(f["bytes"]), str(f["sha256"])) for name, f in files.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(
                f"{folder / MANIFEST} is damaged; copy or fit the model again"
            ) from None
        if form != FORMAT or version != FORMAT_VERSION:
            raise InputError(
                f"{folder} has format {form!r} version {version!r}; this unmix reads {FORMAT!r} "
                f"version {FORMAT_VERSION}"
            )
        contents = {}
        for name, (size, digest) in stated.items():
            if name not in LIMITS:
                raise InputError(f"{folder / MANIFEST} names an unknown file {name!r}")
            path = folder / name
            if not path.is_file():
                raise InputError(f"{path} is missing; copy the whole folder")
            actual = path.stat().st_size
            if actual > LIMITS[name] or size > LIMITS[name]:
                raise InputError(f"{path} is too large to be part of a model ({actual:,} bytes)")
            if actual != size or sha256_of(path) != digest:
                raise InputError(f"{path} was changed or cut short; copy or fit the model again")
            contents[name] = path.read_bytes()
    if "model.json" not in contents or len(contents) != 2:
        raise InputError(f"{folder / MANIFEST} must name model.json and one file of weights")
    return contents


def _describe(clf: UnmixClassifier) -> dict[str, Any]:
    """Return everything but the weights as JSON values."""
    learner = clf.learner_
    return {
        "model": clf.model_,
        "method": clf.method_,
        "classes": [_json_value(c, "class") for c in clf.classes_.tolist()],
        "labels": clf.set_priors is None,
        "per_class": clf.set_priors is not None and clf.classes_.tolist() != [0, 1],
        "set_ids": [_json_value(i, "set id") for i in clf.set_ids_],
        "stated_priors": np.stack([*clf.stated_priors_.values()]).tolist(),
        "set_priors": np.asarray(learner.set_priors).tolist(),
        "prior_errors": None if clf.prior_errors_ is None else clf.prior_errors_.tolist(),
        "set_sizes": clf.set_sizes_.tolist(),
        "target_prior": clf.target_prior_.tolist(),
        "base_prior": np.asarray(learner.base_prior).tolist(),
        "leave_sets_out": clf.leave_sets_out_,
        "history": [{k: v for k, v in row.items() if math.isfinite(v)} for row in clf.history_],
        "encoder": clf.encoder_.to_dict(),
        "named_columns": hasattr(clf, "feature_names_in_"),
        "num_features": int(clf.n_features_in_),
        "hidden": check_hidden(clf.hidden, clf.model_),  # plain numbers, whatever was given
        "setup": {
            "l2": learner.setup.l2,
            "epochs": learner.setup.epochs,
            "seed": learner.setup.seed,
        },
        "fit": _fit_facts(learner.fit),
    }


def _json_value(value: Hashable, what: str) -> Any:
    """Return a name as JSON has it, or refuse what would come back as something else."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or not isinstance(value, str | int | float | bool):
        raise InputError(f"only text and numbers can be saved as a {what}; got {value!r}")
    return value


def _fit_facts(fit: Any) -> dict[str, Any]:
    """Return what a learner needs besides its weights."""
    if isinstance(fit, LinearFit):
        return {"iterations": fit.iterations, "loss": fit.loss, "converged": fit.converged}
    if isinstance(fit, BoostingFit):
        return {
            "base_logits": np.asarray(fit.base_logits).tolist(),
            "num_rounds": fit.num_rounds,
            "num_features": fit.num_features,
        }
    return dict(fit.options)


def _weights(learner: Learner) -> bytes:
    """Return the weights file of a learner."""
    fit = learner.fit
    if isinstance(fit, BoostingFit):
        return fit.model_text.encode()
    if isinstance(fit, LinearFit):
        arrays = {"weights": np.asarray(fit.weights), "bias": np.atleast_1d(fit.bias)}
        return bytes(save_arrays(arrays))
    if not isinstance(fit, NetworkFit):
        raise TypeError(f"cannot save {type(fit).__name__}")
    arrays = {k: v.cpu().contiguous().numpy() for k, v in fit.module.state_dict().items()}
    return bytes(save_arrays(arrays))


def _rebuild(kind: type[Classifier], state: dict[str, Any], weights: bytes) -> Classifier:
    """Build a classifier from what a folder said."""
    ids: list[Hashable] = state["set_ids"]
    classes = np.array(state["classes"])
    per_set = (len(ids),) if len(classes) == 2 else (len(ids), len(classes))
    stated = _numbers(state, "stated_priors", per_set)
    refined = _numbers(state, "set_priors", per_set)
    clf = kind(
        None if state["labels"] else _prior_mapping(ids, stated, state),
        method=state["method"],
        model=state["model"],
        l2=state["setup"]["l2"],
        epochs=state["setup"]["epochs"],
        # Folders written before it could be chosen do not say.
        hidden=check_hidden(state.get("hidden"), state["model"]),
    )
    clf.classes_, clf.set_ids_ = classes, tuple(ids)
    clf.stated_priors_ = dict(zip(ids, stated, strict=True))
    clf.set_priors_ = dict(zip(ids, refined, strict=True))
    errors = state["prior_errors"]
    clf.prior_errors_ = None if errors is None else _numbers(state, "prior_errors", (len(ids),))
    clf.method_, clf.model_ = state["method"], state["model"]
    clf.leave_sets_out_, clf.history_ = state["leave_sets_out"], state["history"]
    clf.set_sizes_ = _numbers(state, "set_sizes", (len(ids),)).astype(int)
    clf.target_prior_ = _numbers(state, "target_prior", (len(classes),))
    clf.encoder_ = TableEncoder.from_dict(state["encoder"])
    clf.n_features_in_ = state["num_features"]
    if state["named_columns"]:
        clf.feature_names_in_ = np.array(clf.encoder_.columns, dtype=object)
    setup = Setup(state["model"], state["method"], **state["setup"])
    base = _numbers(state, "base_prior", (len(classes),))
    fit = _rebuild_fit(state, weights, base, refined)
    clf.learner_ = Learner(setup, fit, base, refined, state["history"])
    return clf


def _numbers(state: dict[str, Any], name: str, shape: tuple[int, ...]) -> Array:
    """Return an array of finite numbers of the shape it must have."""
    values = np.array(state[name], dtype=np.float64)
    if values.shape != shape or not np.isfinite(values).all():
        raise ValueError(f"{name} must be numbers of shape {shape}")
    return values


def _prior_mapping(ids: list[Hashable], stated: Array, state: dict[str, Any]) -> dict[Any, Any]:
    """Return the priors as the user gave them."""
    if not state["per_class"]:
        return dict(zip(ids, stated.tolist(), strict=True))
    names = state["classes"]
    if stated.ndim == 1:
        stated = np.stack((1 - stated, stated), axis=1)
    return {
        i: dict(zip(names, row, strict=True)) for i, row in zip(ids, stated.tolist(), strict=True)
    }


def _rebuild_fit(state: dict[str, Any], weights: bytes, base: Array, refined: Array) -> Any:
    """Build the learner's own part from its weights."""
    facts = state["fit"]
    if state["model"] == "boosting":
        return BoostingFit(
            model_text=weights.decode(),
            base_logits=np.array(facts["base_logits"]),
            num_rounds=facts["num_rounds"],
            set_priors=refined,
            history=state["history"],
            num_features=facts["num_features"],
        )
    arrays = load_arrays(weights)
    if state["model"] == "linear":
        bias = arrays["bias"]
        return LinearFit(
            weights=arrays["weights"],
            bias=bias if arrays["weights"].ndim == 2 else bias[0],
            base_prior=base if refined.ndim == 2 else float(base[1]),
            set_priors=refined,
            **facts,
        )
    import torch

    prior = np.array(facts["prior"])
    start = prior[1] if refined.ndim == 1 else prior
    module = build_model("mlp", facts["row_shape"], start, seed=0, **facts.get("network", {}))
    module.load_state_dict({k: torch.from_numpy(v) for k, v in arrays.items()})
    return NetworkFit(module.eval(), facts)
