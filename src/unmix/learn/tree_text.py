"""LightGBM's text of a model, read strictly before LightGBM's own parser may see it.

That parser trusts its file: a child that does not exist, or a count that is not true, ends in a
crash or a loop without end. So every number is checked here, and what the parser gets is written
anew from what was found right. This file knows no rows and no other part of a saved model.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

__all__ = ["checked_trees"]

Array = np.ndarray[Any, Any]

MOST_LEAVES = 131_072  # LightGBM makes no larger trees
LARGEST = 1e300
FIRST_LINE, AFTER_TREES = "tree", "end of trees"
HEADER = (
    "version",
    "num_class",
    "num_tree_per_iteration",
    "label_index",
    "max_feature_idx",
    "feature_names",
    "feature_infos",
    "tree_sizes",
)
# The numbers of a tree: how many there are (of its n leaves), and whether they are whole.
NODES = {
    "split_feature": True,
    "split_gain": False,
    "threshold": False,
    "decision_type": True,
    "left_child": True,
    "right_child": True,
}
LEAVES = {"leaf_value": False, "leaf_weight": False, "leaf_count": True}
INSIDE = {"internal_value": False, "internal_weight": False, "internal_count": True}
CATEGORIES = {"cat_boundaries": True, "cat_threshold": True}
ONE = {"num_leaves": True, "num_cat": True, "is_linear": True, "shrinkage": False}
# In this order LightGBM writes them.
ORDER = ("num_leaves", "num_cat", *NODES, *LEAVES, *INSIDE, *CATEGORIES, "is_linear", "shrinkage")
WHOLE = ONE | NODES | LEAVES | INSIDE | CATEGORIES

_INTEGERS = re.compile(r"(?:-?[0-9]{1,10}(?: -?[0-9]{1,10})*)?")
_NUMBER = r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:e[+-]?[0-9]{1,3})?"
_NUMBERS = re.compile(rf"(?:{_NUMBER}(?: {_NUMBER})*)?")


def checked_trees(text: bytes, num_features: int, num_outputs: int) -> str:
    """Return the text of a model with nothing in it that was not checked.

    Parameters
    ----------
    text : bytes
        As `Booster.model_to_string` writes it.
    num_features : int
        Columns of the rows.
    num_outputs : int
        Trees in each round: 1, or K for K classes.

    Raises
    ------
    ValueError
        It is not such a text, or a tree in it makes no sense; the message says which.
    """
    head, found, _ = text.decode("ascii").partition(f"\n{AFTER_TREES}\n")
    if not found:
        raise ValueError(f"the trees have no line {AFTER_TREES!r}")
    first, *blocks = re.split(r"\n+(?=Tree=)", head)
    _check_header(first, num_features, num_outputs)
    trees = []
    for number, block in enumerate(blocks):
        name, *lines = block.rstrip("\n").split("\n")
        if name != f"Tree={number}":
            raise ValueError(f"tree {number} is called {name[:20]!r}")
        try:
            trees.append(f"{name}\n{_checked_tree(_fields(lines), num_features)}\n\n")
        except ValueError as error:
            raise ValueError(f"tree {number}: {error}") from None
    if len(trees) % num_outputs:
        raise ValueError(f"{len(trees)} trees are not {num_outputs} in each round")
    return _whole_text(trees, num_features, num_outputs)


def _whole_text(trees: list[str], num_features: int, num_outputs: int) -> str:
    """Return trees with the header that belongs to them."""
    columns = range(num_features)
    values: dict[str, Any] = {
        "version": "v4",
        "num_class": num_outputs,
        "num_tree_per_iteration": num_outputs,
        "label_index": 0,
        "max_feature_idx": num_features - 1,
        "feature_names": " ".join(f"Column_{i}" for i in columns),
        "feature_infos": " ".join("none" for _ in columns),
        "tree_sizes": " ".join(str(len(tree)) for tree in trees),
    }
    header = "".join(f"{name}={values[name]}\n" for name in HEADER)
    ending = f"{AFTER_TREES}\n\nfeature_importances:\n\nparameters:\n\nend of parameters\n\n"
    return f"{FIRST_LINE}\n{header}\n{''.join(trees)}{ending}pandas_categorical:null\n"


def _check_header(text: str, num_features: int, num_outputs: int) -> None:
    """Refuse a header that contradicts the rest of the model."""
    first, *lines = text.rstrip("\n").split("\n")
    found = _fields(lines, HEADER)
    expected = {
        "version": "v4",
        "num_class": str(num_outputs),
        "num_tree_per_iteration": str(num_outputs),
        "max_feature_idx": str(num_features - 1),
    }
    for name, value in expected.items():
        if first != FIRST_LINE or found.get(name) != value:
            raise ValueError(f"the trees have {name} {found.get(name, '')[:20]!r}, not {value}")


def _fields(lines: list[str], known: tuple[str, ...] = ORDER) -> dict[str, str]:
    """Return name -> value of lines NAME=VALUE, each of them once."""
    fields: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals or name not in known or name in fields:
            raise ValueError(f"line {line[:40]!r} is unknown or there twice")
        fields[name] = value
    return fields


def _checked_tree(fields: dict[str, str], num_features: int) -> str:
    """Return the lines of one tree in order, all of their numbers checked."""
    numbers = {name: _numbers(name, value) for name, value in fields.items()}
    missing = [name for name in (*ONE, *NODES, *LEAVES, *INSIDE) if name not in numbers]
    if missing:
        raise ValueError(f"there is no {missing[0]}")
    for name in ONE:
        _check_length(name, numbers[name], 1)
    leaves, num_cat = int(numbers["num_leaves"][0]), int(numbers["num_cat"][0])
    if not 1 <= leaves <= MOST_LEAVES or numbers["is_linear"][0] != 0:
        raise ValueError(f"{leaves} leaves, or linear ones")
    _check_length("leaf_value", numbers["leaf_value"], leaves)
    # A tree of one leaf may leave out its rows.
    for name in ("leaf_weight", "leaf_count"):
        _check_length(name, numbers[name], leaves, *([0] if leaves == 1 else []))
    for name in (*NODES, *INSIDE):
        _check_length(name, numbers[name], leaves - 1)
    _check_children(numbers["left_child"], numbers["right_child"], leaves)
    _check_range("split_feature", numbers["split_feature"], num_features)
    _check_range("decision_type", numbers["decision_type"], 12)  # 4 bits, the kind of missing < 3
    _check_categories(numbers, num_cat)
    return "".join(f"{name}={fields[name]}\n" for name in ORDER if name in fields)


def _numbers(name: str, value: str) -> Array:
    """Return finite numbers from text that is nothing but numbers."""
    whole = WHOLE[name]
    if not (_INTEGERS if whole else _NUMBERS).fullmatch(value):
        raise ValueError(f"{name} holds something else than numbers")
    found = np.array(value.split(), dtype=np.int64 if whole else np.float64)
    # Infinite ones come from an exponent that is too large.
    if not (np.abs(found) <= (2**32 if whole else LARGEST)).all():
        raise ValueError(f"{name} is out of range")
    if name in ("leaf_count", "internal_count") and (np.abs(found) >= 2**31).any():
        raise ValueError(f"{name} is out of range")
    return found


def _check_length(name: str, values: Array, *lengths: int) -> None:
    if len(values) not in lengths:
        raise ValueError(f"{name} has {len(values)} values, not {lengths[0]}")


def _check_range(name: str, values: Array, end: int) -> None:
    """Refuse values outside 0 .. end - 1."""
    if ((values < 0) | (values >= end)).any():
        raise ValueError(f"{name} is out of range")


def _check_children(left: Array, right: Array, leaves: int) -> None:
    """Refuse what is no tree: each node but the root, and each leaf, is the child of one node.

    Node i has children by their number, and leaf i is called -i - 1. A node is always younger than
    its parent, so that there is no way round in a circle.
    """
    nodes = leaves - 1
    children = np.concatenate((left, right))
    parents = np.concatenate((np.arange(nodes), np.arange(nodes)))
    inner = children >= 0
    if (children[inner] <= parents[inner]).any():
        raise ValueError("a child is older than its parent")
    wanted = np.concatenate((np.arange(-leaves, 0), np.arange(1, nodes))) if nodes else children
    if not np.array_equal(np.sort(children), wanted):
        raise ValueError("a node or a leaf is missing, or has two parents")


def _check_categories(numbers: dict[str, Array], num_cat: int) -> None:
    """Refuse sets of categories that point beyond what is there."""
    splits = numbers["threshold"][(numbers["decision_type"] & 1) == 1]
    if not num_cat:
        if len(splits) or numbers.keys() & CATEGORIES.keys():
            raise ValueError("categories are split and there are none")
        return
    bounds, bits = (numbers.get(name, np.empty(0)) for name in CATEGORIES)
    _check_length("cat_boundaries", bounds, num_cat + 1)
    if bounds[0] != 0 or (np.diff(bounds) < 1).any() or bounds[-1] != len(bits):
        raise ValueError("cat_boundaries do not fit cat_threshold")
    _check_range("cat_threshold", bits, 2**32)
    _check_range("threshold", splits, num_cat)
    if (splits != np.floor(splits)).any():
        raise ValueError("threshold of categories is no whole number")
