"""An ONNX graph under construction: operations by name, constants in place, weights as float32 or int8.

    g = Graph(int8=False)
    total = g.op("Add", x, np.float32(1))      # x is the name of a value; anything else becomes a constant
    model = g.finish(inputs, outputs, "about")

The graph is built operation by operation, not traced from torch: it has no shapes of an example input, takes texts of
any length, and needs only opset 17, which all current runtimes support.

With int8, weights take a quarter of the space. An embedding table has one scale per row, and rows are dequantized when
they are looked up. A matrix has one scale per output channel, and its input is quantized to uint8 at run time (dynamic
quantization). Its values stay within ±63: processors without VNNI instructions sum pairs of products in 16 bits, where
larger values would overflow.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    Array = NDArray[Any]

OPSET = 17
IR_VERSION = 8  # of the file format, to match the opset
TABLE_MAX, MATRIX_MAX = 127, 63  # largest quantized value

Value = Any
"The name of a value in the graph, or a number or array, which becomes a constant."


class Graph:
    """Nodes and constants of a graph, in order."""

    def __init__(self, *, int8: bool) -> None:
        self.int8 = int8
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.count = 0

    def op(self, kind: str, *inputs: Value, **attributes: Any) -> str:  # noqa: ANN401 (those of the operation)
        """Add an operation; return the name of its output."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, outputs: int, *inputs: Value, **attributes: Any) -> list[str]:  # noqa: ANN401
        """Add an operation with several outputs; return their names."""
        from onnx import helper

        names = [self._new(kind) for _ in range(outputs)]
        given = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self.nodes.append(helper.make_node(kind, given, names, **attributes))
        return names

    def constant(self, value: Value, name: str | None = None) -> str:
        """Add a constant. Python integers become int64, floats float32; arrays keep their type."""
        from onnx import numpy_helper

        if not isinstance(value, np.ndarray | np.generic):
            whole = np.asarray(value).dtype.kind in "iub"
            value = np.asarray(value, np.int64 if whole else np.float32)
        array = np.asarray(value)
        if name is None:
            name = f"c_{array.dtype}_{array.shape}_{array.tobytes().hex()}" if array.size <= 8 else self._new("c")
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        return name

    def cast(self, value: Value, to: type[Any]) -> str:
        """Cast a value to a type: np.float32, np.int64."""
        from onnx import helper

        return self.op("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))

    def lookup(self, name: str, table: Array, rows: str) -> str:
        """Look up rows of an embedding table (R, W): integers (…) → (…, W)."""
        if not self.int8:
            return self.op("Gather", self.constant(table, name), rows, axis=0)
        values, scale = quantize(table, TABLE_MAX)
        found = self.cast(self.op("Gather", self.constant(values, f"{name}.int8"), rows, axis=0), np.float32)
        scales = self.op("Gather", self.constant(scale[:, None], f"{name}.scale"), rows, axis=0)  # (…, 1)
        return self.op("Mul", found, scales)

    def linear(self, name: str, x: str, weight: Array, bias: Array | None = None) -> str:
        """Apply a linear layer with weight (W, V): (…, V) → (…, W)."""
        if self.int8:
            values, scale = quantize(weight, MATRIX_MAX)
            quantized, x_scale, zero = self.ops("DynamicQuantizeLinear", 3, x)
            right = self.constant(values.T, f"{name}.int8")
            product = self.cast(self.op("MatMulInteger", quantized, right, zero), np.float32)
            product = self.op("Mul", product, self.op("Mul", x_scale, self.constant(scale, f"{name}.scale")))
        else:
            product = self.op("MatMul", x, self.constant(weight.T, name))
        return product if bias is None else self.op("Add", product, self.constant(bias, f"{name}.bias"))

    def norm(self, name: str, x: str, weight: Array, bias: Array | None, eps: float) -> str:
        """Apply a LayerNorm: (…, W)."""
        shift = [] if bias is None else [self.constant(bias, f"{name}.bias")]
        return self.op("LayerNormalization", x, self.constant(weight, name), *shift, axis=-1, epsilon=eps)

    def gelu(self, x: str) -> str:
        """Apply GELU, by the error function."""
        bent = self.op("Add", self.op("Erf", self.op("Mul", x, np.float32(1 / math.sqrt(2)))), np.float32(1))
        return self.op("Mul", self.op("Mul", x, np.float32(0.5)), bent)

    def unit(self, x: str) -> str:
        """Bring vectors to the length one: (…, W)."""
        length = self.op("Sqrt", self.op("ReduceSum", self.op("Mul", x, x), [-1], keepdims=1))
        return self.op("Div", x, self.op("Max", length, np.float32(1e-12)))

    def finish(
        self,
        inputs: dict[str, tuple[Any, list[str | int]]],
        outputs: dict[str, tuple[str, list[str | int]]],
        about: str,
    ) -> onnx.ModelProto:
        """Build the model: inputs by name with type and shape, outputs (float32) by name with value and shape."""
        from onnx import TensorProto, helper

        for name, (value, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name]))
        graph = helper.make_graph(
            self.nodes,
            "rehead",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)
                for name, (kind, shape) in inputs.items()
            ],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, (_, shape) in outputs.items()],
            list(self.constants.values()),
            doc_string=about,
        )
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, producer_name="rehead", ir_version=IR_VERSION, opset_imports=[opset])

    def _new(self, kind: str) -> str:
        self.count += 1
        return f"{kind}_{self.count}"


def quantize(rows: Array, maximum: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantize rows (R, W) to integers within ±maximum, with one scale per row (R,)."""
    scale = np.abs(rows).max(1, initial=0.0) / maximum
    scale = np.where(scale == 0, 1.0, scale).astype(np.float32)
    return np.rint(rows / scale[:, None]).astype(np.int8), scale
