"""A fitted classifier as one ONNX file: from the columns of a table to classes and probabilities.

The file takes each column of the table under its own name, (n, 1): numbers and booleans as 64-bit
floats with NaN for missing values, categories as text with the empty text for missing ones. The
target prior, and the average over the set effect, are inside. Rows are those of sets that nobody
knows, as `predict_proba(X)` takes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from unmix.core.effect_law import effect_points, effect_scale
from unmix.deploy.onnx_graph import ML, OnnxGraph
from unmix.deploy.onnx_trees import Split, splits_of, tree_nodes
from unmix.errors import InputError
from unmix.learn.boosting import BoostingFit
from unmix.learn.columns import CategoryColumn, EmptyColumn, LeftOutColumn, NumberColumn
from unmix.learn.encoding import TableEncoder
from unmix.learn.linear_fit import LinearFit
from unmix.learn.models import move_logits
from unmix.learn.network_models import NetworkFit
from unmix.learn.networks import Dropout
from unmix.learn.table_blocks import FARTHEST

if TYPE_CHECKING:
    from unmix.learn.estimator import SetClassifier

__all__ = ["onnx_model"]

Array = np.ndarray[Any, Any]

LABEL, PROBABILITIES = "label", "probabilities"  # as other exporters of scikit-learn call them


def onnx_model(clf: SetClassifier) -> bytes:
    """Return a fitted classifier as an ONNX file.

    Parameters
    ----------
    clf : UnmixClassifier
        Fitted to a table: linear, boosting or mlp.

    Returns
    -------
    bytes
        A graph with one input (n, 1) per column that the model looks at, and the outputs `label`
        (n,) and `probabilities` (n, K) of 64 bits.
    """
    fit, encoder = clf.learner_.fit, clf.encoder_
    logits_of = _LOGITS.get(type(fit))
    if logits_of is None or not isinstance(encoder, TableEncoder):
        what = f"a {clf.model_} model" + ("" if encoder.feature_names else " of images")
        raise InputError(
            f"{what} cannot be written as ONNX by unmix, only linear, boosting and mlp models of "
            "tables; torch.onnx.export writes the network itself (clf.learner_.fit.module)"
        )
    _check_names(encoder)
    graph = OnnxGraph([*encoder.columns, LABEL, PROBABILITIES])
    logits = logits_of(graph, encoder, fit)  # (n, 1) or (n, K) at the base prior, of 64 bits
    num_classes = len(clf.classes_)
    start = np.zeros((1,) if num_classes == 2 else (1, num_classes))
    shift = move_logits(start, clf.learner_.base_prior, clf.target_prior_)
    lone = clf.learner_.lone
    if lone.length != 1:
        logits = graph.add("Mul", logits, np.array([[lone.length]]))
    logits = graph.add("Add", logits, (shift + lone.shift).reshape(1, -1))
    position, probabilities = _outputs(graph, logits, clf.learner_.tau, num_classes)
    classes = clf.classes_
    label = graph.add("Gather", classes, position)
    kind = np.dtype(object) if classes.dtype.kind in "OU" else classes.dtype
    graph.output(label, LABEL, kind, ("rows",))
    graph.output(probabilities, PROBABILITIES, np.float64, ("rows", num_classes))
    facts = {
        "classes": json.dumps(classes.tolist()),
        "target_prior": json.dumps(clf.target_prior_.tolist()),
        "model": clf.model_,
        "method": clf.method_,
    }
    about = "One input (rows, 1) per column; missing: NaN in numbers, empty text in categories"
    return graph.model_bytes("unmix", about, facts)


def _outputs(graph: OnnxGraph, logits: str, tau: float, num_classes: int) -> tuple[str, str]:
    """Return the position of the class (n,) and the probabilities (n, K), averaged over effects."""
    if num_classes > 2:
        position = graph.add("ArgMax", logits, axis=1, keepdims=0)
        scaled = graph.add("Mul", logits, np.array(effect_scale(tau)))
        return position, graph.add("Softmax", scaled, axis=1)
    above = graph.cast(graph.add("Greater", logits, np.zeros((1, 1))), np.int64)
    position = graph.add("Squeeze", above, np.array([1]))
    if tau:
        points, weights = effect_points()
        moved = graph.add("Add", logits, tau * points[None])  # (n, number of points)
        positive = graph.add("MatMul", graph.add("Sigmoid", moved), weights[:, None])
    else:
        positive = graph.add("Sigmoid", logits)
    return position, graph.joined([graph.add("Sub", np.ones((1, 1)), positive), positive])


def _matrix(graph: OnnxGraph, encoder: TableEncoder) -> str:
    """Add what `TableEncoder.matrix` does: (n, number of feature names) of 32 bits."""
    parts: list[str] = []
    features: list[int] = []  # of the columns of the parts, in their order
    placed = list(zip(encoder.summaries, encoder.places, strict=True))
    numbers = [(c, p) for c, p in placed if isinstance(c, NumberColumn) and p != (None, None)]
    if numbers:
        raw = graph.joined([graph.input(column.name, np.float64) for column, _ in numbers])
        absent = graph.add("IsNaN", raw)
        scaled = [i for i, (_, place) in enumerate(numbers) if place.value is not None]
        if scaled:
            kept, missing = _columns(graph, raw, scaled), _columns(graph, absent, scaled)
            mean = np.array([[numbers[i][0].mean for i in scaled]])
            deviation = np.array([[numbers[i][0].deviation for i in scaled]])
            x = graph.add("Div", graph.add("Sub", kept, mean), deviation)
            x = graph.add("Where", missing, np.zeros((1, 1)), x)
            x = graph.add("Clip", x, np.array(-FARTHEST), np.array(FARTHEST))
            parts.append(graph.cast(x, np.float32))
            features += [numbers[i][1].value for i in scaled]  # type: ignore[misc]
        marked = [i for i, (_, place) in enumerate(numbers) if place.missing is not None]
        if marked:
            parts.append(graph.cast(_columns(graph, absent, marked), np.float32))
            features += [numbers[i][1].missing for i in marked]  # type: ignore[misc]
    for column, place in placed:
        if isinstance(column, CategoryColumn) and place != (None, None):
            words = list(column.categories)
            where = list(range(place.value or 0, (place.value or 0) + len(words)))
            if place.missing is not None:
                words, where = ["", *words], [place.missing, *where]
            name = graph.input(column.name, np.dtype(object))
            hot = graph.add("OneHotEncoder", name, domain=ML, cats_strings=words, zeros=1)
            parts.append(graph.add("Squeeze", hot, np.array([1])))
            features += where
    order = np.argsort(features)
    return _columns(graph, graph.joined(parts), order.tolist())


def _columns(graph: OnnxGraph, value: str, kept: Sequence[int]) -> str:
    """Add the choice of some columns, in their order."""
    return graph.add("Gather", value, np.array(kept, dtype=np.int64), axis=1)


def _linear(graph: OnnxGraph, encoder: TableEncoder, fit: LinearFit) -> str:
    """Add a linear model, in 64 bits as it is computed."""
    x = graph.cast(_matrix(graph, encoder), np.float64)
    weights = fit.weights.reshape(len(fit.weights), -1)
    return graph.add("Add", graph.add("MatMul", x, weights), fit.bias.reshape(1, -1))


def _network(graph: OnnxGraph, encoder: TableEncoder, fit: NetworkFit) -> str:
    """Add a network of fully connected layers."""
    x = _matrix(graph, encoder)
    for layer in _layers(fit.module):
        write = _LAYERS.get(type(layer))
        if write is None:
            raise InputError(
                f"layers of type {type(layer).__name__} cannot be written as ONNX by unmix; use "
                "torch.onnx.export on clf.learner_.fit.module"
            )
        x = write(graph, x, layer)
    return graph.cast(x, np.float64)


def _layers(module: Any) -> list[nn.Module]:
    """Return the layers of a network in which each follows the one before."""
    if isinstance(module, nn.Sequential):
        return [layer for part in module for layer in _layers(part)]
    if hasattr(module, "body") and hasattr(module, "head"):
        return [layer for part in (module.body, module.head) for layer in _layers(part)]
    return [module]


def _affine(graph: OnnxGraph, x: str, layer: Any) -> str:
    terms = [layer.weight] + ([] if layer.bias is None else [layer.bias])
    return graph.add("Gemm", x, *(t.numpy(force=True) for t in terms), transB=1)


def _batch_norm(graph: OnnxGraph, x: str, layer: Any) -> str:
    terms = layer.weight, layer.bias, layer.running_mean, layer.running_var
    arrays = [t.numpy(force=True) for t in terms]
    return graph.add("BatchNormalization", x, *arrays, epsilon=layer.eps)


def _relu(graph: OnnxGraph, x: str, layer: Any) -> str:
    return graph.add("Relu", x)


def _nothing(graph: OnnxGraph, x: str, layer: Any) -> str:
    return x


_LAYERS: dict[type, Callable[[OnnxGraph, str, Any], str]] = {
    nn.Linear: _affine,
    nn.BatchNorm1d: _batch_norm,
    nn.ReLU: _relu,
    Dropout: _nothing,  # when it predicts
}


def _boosting(graph: OnnxGraph, encoder: TableEncoder, fit: BoostingFit) -> str:
    """Add boosted trees: on numbers as they are, and on 0 and 1 for groups of categories."""
    dumped = fit.booster.dump_model()
    usable = [
        i for i, c in enumerate(encoder.summaries) if not isinstance(c, EmptyColumn | LeftOutColumn)
    ]
    # A model without any split predicts the same for all rows; some column tells how many.
    none = Split(usable[0], () if usable[0] in encoder.categorical else None)
    splits = splits_of(dumped) or {none}
    order = sorted(splits, key=lambda split: (split.categories or (), split.feature))
    numbers = [split for split in order if split.categories is None]
    parts: list[str] = []
    places: dict[Split, int] = {}
    for split in sorted(numbers, key=lambda split: split.feature):
        places[split] = len(places)
        parts.append(graph.input(encoder.columns[split.feature], np.float64))
    for feature in encoder.categorical:
        asked = [s for s in order if s.feature == feature and s.categories is not None]
        if asked:
            places |= {split: len(places) + i for i, split in enumerate(asked)}
            parts.append(_members(graph, encoder.summaries[feature], asked))
    found = tree_nodes(dumped, places.__getitem__)
    base = np.atleast_1d(fit.base_logits)[None]
    raw = graph.add(
        "TreeEnsembleRegressor",
        graph.joined(parts),
        domain=ML,
        n_targets=base.size,
        aggregate_function="SUM",
        post_transform="NONE",
        **found.attributes(graph.tensor),
    )
    return graph.add("Add", graph.cast(raw, np.float64), base)


def _members(graph: OnnxGraph, column: Any, asked: Sequence[Split]) -> str:
    """Add, for each split, whether a row's category is among those that go left: (n, splits)."""
    words = column.categories
    table = np.zeros((len(words) + 1, len(asked)))  # the last row: unknown and missing
    for i, split in enumerate(asked):
        table[[code for code in split.categories or () if 0 <= code < len(words)], i] = 1
    name = graph.input(column.name, np.dtype(object))
    codes = graph.add(
        "LabelEncoder",
        name,
        domain=ML,
        keys_strings=list(words),
        values_int64s=list(range(len(words))),
        default_int64=len(words),
    )
    return graph.add("Gather", table, graph.add("Squeeze", codes, np.array([1])), axis=0)


_LOGITS: dict[type, Callable[[OnnxGraph, TableEncoder, Any], str]] = {
    LinearFit: _linear,
    BoostingFit: _boosting,
    NetworkFit: _network,
}


def _check_names(encoder: TableEncoder) -> None:
    """Refuse columns that no graph can tell apart from something else."""
    for column in encoder.summaries:
        if column.name in ("", LABEL, PROBABILITIES):
            raise InputError(
                f"a column named {column.name!r} cannot be an input of an ONNX file, whose outputs "
                f"are {LABEL!r} and {PROBABILITIES!r}; rename it and fit again"
            )
        if isinstance(column, CategoryColumn) and column.missing and "" in column.categories:
            raise InputError(
                f"column {column.name!r} holds the empty text as a category beside missing values, "
                "and in an ONNX file the empty text is what marks a missing value; replace it by a "
                "word and fit again"
            )
