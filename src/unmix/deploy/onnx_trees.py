"""Trees of LightGBM as nodes of an ONNX tree ensemble.

A split on categories asks whether a row's category is one of several. ONNX trees know no such
question, so each such group of categories becomes a column of 0 and 1, and the tree asks that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Split", "TreeNodes", "splits_of", "tree_nodes"]

Categories = tuple[int, ...]


@dataclass(frozen=True)
class Split:
    """What one split looks at."""

    feature: int
    categories: Categories | None
    """Codes that go left; None for a split of numbers."""


@dataclass
class TreeNodes:
    """The attributes of `TreeEnsembleRegressor`, one entry per node or per leaf."""

    trees: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    true_nodes: list[int] = field(default_factory=list)
    false_nodes: list[int] = field(default_factory=list)
    missing_true: list[int] = field(default_factory=list)
    leaf_trees: list[int] = field(default_factory=list)
    leaf_nodes: list[int] = field(default_factory=list)
    leaf_classes: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def attributes(self, tensor: Callable[[Any], Any]) -> dict[str, Any]:
        """Return them by ONNX's names; numbers as tensors of 64 bits, so that none is rounded."""
        import numpy as np

        return {
            "nodes_treeids": self.trees,
            "nodes_nodeids": self.nodes,
            "nodes_featureids": self.columns,
            "nodes_modes": self.modes,
            "nodes_values_as_tensor": tensor(np.array(self.values, dtype=np.float64)),
            "nodes_truenodeids": self.true_nodes,
            "nodes_falsenodeids": self.false_nodes,
            "nodes_missing_value_tracks_true": self.missing_true,
            "target_treeids": self.leaf_trees,
            "target_nodeids": self.leaf_nodes,
            "target_ids": self.leaf_classes,
            "target_weights_as_tensor": tensor(np.array(self.weights, dtype=np.float64)),
        }


def splits_of(dumped: dict[str, Any]) -> set[Split]:
    """Return everything that any split of a dumped model looks at."""
    found, waiting = set(), [tree["tree_structure"] for tree in dumped["tree_info"]]
    while waiting:
        node = waiting.pop()
        if "split_feature" in node:
            found.add(_split(node))
            waiting += [node["left_child"], node["right_child"]]
    return found


def tree_nodes(dumped: dict[str, Any], column_of: Callable[[Split], int]) -> TreeNodes:
    """Return the nodes of a model as `Booster.dump_model` gives it.

    Parameters
    ----------
    dumped : dict
    column_of : function
        The column that a split asks: numbers as they are, or 1 for the categories that go left.
    """
    found, classes = TreeNodes(), int(dumped["num_tree_per_iteration"])
    for position, tree in enumerate(dumped["tree_info"]):
        _add_tree(found, tree["tree_structure"], position, position % classes, column_of)
    return found


def _add_tree(
    found: TreeNodes, root: Any, tree: int, target: int, column_of: Callable[[Split], int]
) -> None:
    """Add a tree, its nodes numbered in the order in which they are met."""
    waiting, used = [(root, 0)], 1
    while waiting:
        node, number = waiting.pop()
        leaf = "split_feature" not in node
        children = (0, 0) if leaf else (used, used + 1)
        column, mode, value, missing_true = 0, "LEAF", 0.0, False
        if leaf:
            found.leaf_trees.append(tree)
            found.leaf_nodes.append(number)
            found.leaf_classes.append(target)
            found.weights.append(float(node["leaf_value"]))
        else:
            split = _split(node)
            column = column_of(split)
            waiting += zip((node["left_child"], node["right_child"]), children, strict=True)
            used += 2
            if split.categories is None:
                mode, value = "BRANCH_LEQ", float(node["threshold"])
                # Where training saw nothing missing, LightGBM takes what is missing as 0.
                learned = node["missing_type"] == "NaN"
                missing_true = bool(node["default_left"]) if learned else value >= 0
            else:
                mode, value = "BRANCH_GTE", 0.5
        found.trees.append(tree)
        found.nodes.append(number)
        found.columns.append(column)
        found.modes.append(mode)
        found.values.append(value)
        found.true_nodes.append(children[0])
        found.false_nodes.append(children[1])
        found.missing_true.append(int(missing_true))


def _split(node: dict[str, Any]) -> Split:
    """Return what a node asks."""
    if node["decision_type"] == "<=":
        return Split(int(node["split_feature"]), None)
    codes = tuple(int(code) for code in str(node["threshold"]).split("||"))
    return Split(int(node["split_feature"]), codes)
