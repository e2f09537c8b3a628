"""Shapes inside a plan for one shape signature: the shape rules, run on the shapes that a step brought.

What a rule finds from shapes and constants alone is the same in every step of that signature, so its buffer
can be planned; what depends on data stays unknown, and so does everything after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.compiler.step_graph import Node
from graphrt.core import resources
from graphrt.core.constant_value import run_kernel
from graphrt.core.registry import KernelContext
from graphrt.core.resources import VariableState
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.runtime.ownership import FORWARDING, Value
from graphrt.runtime.schedule import updated_variable

_SHAPE_OPS = frozenset(("Shape", "ShapeN", "Size", "Rank"))
# Small integer results of these are followed: shapes are computed with them.
_FOLLOWED = frozenset(
    (
        "Pack",
        "ConcatV2",
        "StridedSlice",
        "Cast",
        "Mul",
        "Add",
        "AddV2",
        "Sub",
        "FloorDiv",
        "Maximum",
        "Minimum",
        "Prod",
        "ConcatOffset",
        "BroadcastGradientArgs",
        "Reshape",
        "GatherV2",
        "ExpandDims",
        "Squeeze",
        "Range",
        "FloorMod",
        "DynamicStitch",
        "Fill",
        "Identity",
        "InvertPermutation",
        "Neg",
        "RealDiv",
        "Slice",
        "SelectV2",
        "Select",
        "Equal",
        "Tile",
        "Transpose",
        "Unpack",
        "BroadcastArgs",
    )
)
_LIMIT = 64


class NodeShapes:
    """What shape rules may ask, answered for nodes of a plan (see ShapeContext)."""

    def __init__(self, shapes: dict[Value, TensorShape], values: dict[Value, np.ndarray]) -> None:
        self.shapes, self.values = shapes, values
        self.variables: dict[Node, TensorShape] = {}
        self.handles: dict[int, Any] = {}
        self.node: Node = None  # type: ignore[assignment]

    @property
    def attrs(self) -> dict[str, Any]:
        return self.node.attrs

    @property
    def op_def(self) -> Any:
        return self.node.op_def

    def value(self, i: int) -> np.ndarray | None:
        return self.values.get(self.node.inputs[i])

    def partial(self, i: int) -> TensorShape:
        value = self.value(i)
        if value is None:
            return UNKNOWN
        if value.ndim == 0:
            return UNKNOWN
        return TensorShape.of(tuple([None if d == -1 else int(d) for d in value]))

    def elements(self, i: int) -> list[int | None] | None:
        value = self.value(i)
        if value is not None:
            return value.tolist()
        source, _ = self.node.inputs[i]
        if source.type == "Pack":
            found = [self.values.get(e) for e in source.inputs]
            return [None if v is None else int(v) for v in found]
        sizes = self.shapes.get(self.node.inputs[i], UNKNOWN).sizes
        return [None] * sizes[0] if sizes and sizes[0] is not None else None

    def handle(self, i: int) -> Any:
        source, index = self.node.inputs[i]
        if source.type == "VarHandleOp":
            return source.attrs["dtype"], self.variables.get(source, source.attrs["shape"])
        if resources.reshapes:
            return None  # some variable is not of the shape that it was made for
        if source.origin is not None and index < len(source.origin.outputs):
            return source.origin.outputs[index].handle
        return None

    def set_handle(self, i: int, dtype: Any, shape: TensorShape) -> None:
        self.handles[i] = (dtype, shape)

    def unknown(self) -> TensorShape:
        return UNKNOWN


def infer(
    nodes: list[Node], given: dict[Value, TensorShape], hoisted: dict[Node, Any]
) -> tuple[dict[Value, TensorShape], dict[Value, np.ndarray]]:
    """The shape of every value of ordered `nodes`, from the shapes of those that `given` holds; and the
    values that shapes alone decide (sizes, axes to sum over), which the code then holds as constants."""
    shapes = dict(given)
    values: dict[Value, np.ndarray] = {}
    context = NodeShapes(shapes, values)
    context.variables = _variables(nodes, hoisted)
    for node in nodes:
        count = len(node.dtypes)
        if node in hoisted:
            held = hoisted[node]
            for i in range(count):
                shapes[node, i] = node.shapes[i] if node.shapes else UNKNOWN
            if node.type != "VarHandleOp" and node in context.variables:
                shapes[node, 0] = context.variables[node]
            if isinstance(held, np.ndarray):
                shapes[node, 0] = TensorShape.of(held.shape)
                if held.size <= _LIMIT:
                    values[node, 0] = held
            continue
        if count == 0 or (node, 0) in given:
            continue
        if node.type in FORWARDING:
            _forwarded(node, shapes)
            continue
        if node.op_def.asynchronous or node.op_def.blocking or node.op_def.shape_rule is None:
            for i in range(count):
                shapes[node, i] = UNKNOWN
            continue
        if (
            node.op_def.stateful
            and node.op_def.name not in ("ReadVariableOp",)
            and not _is_shape_stable(node)
        ):
            for i in range(count):
                shapes[node, i] = UNKNOWN
            continue
        context.node = node
        try:
            found = node.op_def.infer_shapes(context, [shapes.get(e, UNKNOWN) for e in node.inputs], count)
        except ValueError:
            # The kernel reports it, with the values.
            found = [UNKNOWN] * count
        for i, shape in enumerate(found):
            shapes[node, i] = shape
        if node.type in _SHAPE_OPS:
            _shape_values(node, shapes, values)
        elif node.type in _FOLLOWED and all(e in values for e in node.inputs):
            _follow(node, values)
    return shapes, values


_REDUCTIONS = frozenset(("Sum", "Mean", "Max", "Min", "Prod"))
_SAME_SHAPE = frozenset(("Reshape", "Squeeze", "ExpandDims", "BroadcastTo", "Tile", "EnsureShape"))


def changes_nothing(node: Node, shapes: dict[Value, TensorShape], values: dict[Value, np.ndarray]) -> bool:
    """True where, with these shapes, the node's output is its first input: a reduction over no axis, a
    reshape to the same shape."""
    if len(node.dtypes) != 1 or node.dtypes[0].is_ref or not node.inputs:
        return False
    source, index = node.inputs[0]
    before, after = shapes.get((source, index), UNKNOWN), shapes.get((node, 0), UNKNOWN)
    if (
        not before.is_fully_defined()
        or before.sizes != after.sizes
        or source.dtypes[index] is not node.dtypes[0]
    ):
        return False
    if node.type in _SAME_SHAPE:
        return True
    if node.type in _REDUCTIONS:
        axes = values.get(node.inputs[1])
        return axes is not None and axes.size == 0
    return False


def _is_shape_stable(node: Node) -> bool:
    """Stateful nodes whose output shape their inputs decide: random ops, and updates that return their
    variable."""
    return bool(node.inputs) and not any(d.name in ("resource", "variant") for d in node.input_dtypes)


def _variables(nodes: list[Node], hoisted: dict[Node, Any]) -> dict[Node, TensorShape]:
    """The shapes that variables have now; unknown for those that one of the nodes may reshape."""
    found = {
        n: TensorShape.of(state.array.shape) if state.array is not None else state.shape
        for n, state in hoisted.items()
        if isinstance(state, VariableState)
    }
    for node in nodes:
        if node.type in ("Assign", "AssignVariableOp") and not node.attrs["validate_shape"]:
            variable = updated_variable(node)
            if variable is not None:
                found[variable] = UNKNOWN
    return found


def _forwarded(node: Node, shapes: dict[Value, TensorShape]) -> None:
    found = [
        shapes.get(e, UNKNOWN) for e in (node.inputs[:1] if node.type.endswith("Switch") else node.inputs)
    ]
    same = found[0] if all(f.sizes == found[0].sizes for f in found) else UNKNOWN
    for i in range(len(node.dtypes)):
        shapes[node, i] = same
    if node.type.endswith("Merge"):
        shapes[node, 1] = TensorShape.of(())


def _shape_values(node: Node, shapes: dict[Value, TensorShape], values: dict[Value, np.ndarray]) -> None:
    for i, dtype in enumerate(node.dtypes):
        shape = shapes.get(node.inputs[i], UNKNOWN)
        if not shape.is_fully_defined():
            continue
        if node.type in ("Shape", "ShapeN"):
            values[node, i] = np.array(shape.sizes, dtype.np)
        elif node.type == "Size":
            values[node, i] = np.array(shape.num_elements(), dtype.np)
        else:
            values[node, i] = np.array(shape.rank, dtype.np)


def _follow(node: Node, values: dict[Value, np.ndarray]) -> None:
    inputs = [values[e] for e in node.inputs]
    if any(v.size > _LIMIT for v in inputs):
        return
    context = KernelContext(
        node.name, node.type, node.attrs, node.input_dtypes, node.dtypes, None, np, node=node
    )
    try:
        made = run_kernel(node.op_def, context, inputs)
    except Exception:  # the step itself reports it
        return
    for i, value in enumerate(made):
        value = np.asarray(value)
        if value.size <= _LIMIT:
            values[node, i] = value
