"""A graph of ONNX under construction: nodes and constants with names that no input has.

This file knows operators and arrays, but no model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from unmix.optional import optional_module

__all__ = ["ML", "OnnxGraph"]

ML = "ai.onnx.ml"
# Of May 2022; what reads them, from onnxruntime 1.12 on, reads them for good.
OPSETS = {"": 17, ML: 3}
IR_VERSION = 8

Array = np.ndarray[Any, Any]


class OnnxGraph:
    """Nodes in the order in which they run; values go by their names.

    Parameters
    ----------
    reserved : iterable of str
        Names that belong to inputs and outputs.
    """

    def __init__(self, reserved: Iterable[str]) -> None:
        self.onnx = optional_module("onnx", "onnx")
        self._taken = set(reserved)
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, dtype: Any, columns: int = 1) -> str:
        """Add an input of any number of rows (n, columns); return its name."""
        self._inputs.append(self._value_info(name, dtype, ("rows", columns)))
        return name

    def output(self, value: str, name: str, dtype: Any, shape: tuple[str | int, ...]) -> None:
        """Give a value out under a name."""
        self._nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._value_info(name, dtype, shape))

    def constant(self, array: Any) -> str:
        """Add numbers or text; return their name."""
        values, name = np.asarray(array), self._name("constant")
        if values.dtype.kind in "OU":
            text = [str(value).encode() for value in values.ravel()]
            kind = self.onnx.TensorProto.STRING
            tensor = self.onnx.helper.make_tensor(name, kind, values.shape, text)
        else:
            tensor = self.onnx.numpy_helper.from_array(np.ascontiguousarray(values), name)
        self._constants.append(tensor)
        return name

    def add(self, operator: str, *values: Any, domain: str = "", **attributes: Any) -> str:
        """Add a node; return the name of its output. Arrays among the values become constants."""
        names = [value if isinstance(value, str) else self.constant(value) for value in values]
        output = self._name(operator)
        node = self.onnx.helper.make_node(operator, names, [output], domain=domain, **attributes)
        self._nodes.append(node)
        return output

    def cast(self, value: str, dtype: Any) -> str:
        """Add a change of type."""
        return self.add("Cast", value, to=self._tensor_type(dtype))

    def joined(self, values: list[str]) -> str:
        """Join columns side by side."""
        return values[0] if len(values) == 1 else self.add("Concat", *values, axis=1)

    def tensor(self, array: Array) -> Any:
        """Return numbers as the attribute of a node."""
        return self.onnx.numpy_helper.from_array(np.ascontiguousarray(array))

    def model_bytes(self, name: str, about: str, facts: dict[str, str]) -> bytes:
        """Return the checked graph as a file."""
        helper = self.onnx.helper
        graph = helper.make_graph(
            self._nodes, name, self._inputs, self._outputs, self._constants, doc_string=about
        )
        opsets = [helper.make_opsetid(domain, number) for domain, number in OPSETS.items()]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="unmix"
        )
        helper.set_model_props(model, facts)
        self.onnx.checker.check_model(model)
        return bytes(model.SerializeToString())

    def _name(self, stem: str) -> str:
        """Return a name that nothing else has."""
        number = len(self._nodes) + len(self._constants)
        name = f"{stem}_{number}"
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name)
        return name

    def _tensor_type(self, dtype: Any) -> int:
        """Return ONNX's number for a type of NumPy."""
        if np.dtype(dtype).kind in "OU":
            return int(self.onnx.TensorProto.STRING)
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def _value_info(self, name: str, dtype: Any, shape: tuple[str | int, ...]) -> Any:
        """Return what ONNX knows of an input or output."""
        return self.onnx.helper.make_tensor_value_info(name, self._tensor_type(dtype), shape)
