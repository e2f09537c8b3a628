"""What is known of a tensor's value while the graph is built: shape rules and a few public functions ask.

`constant_value` gives a whole value or None; `constant_value_as_shape` a vector's known elements. Both look
through the ops that shapes are computed with, and run small stateless kernels on known inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core.registry import KernelContext
from graphrt.core.shapes import UNKNOWN, TensorShape, unknown
from graphrt.core.tensor import Tensor

# Evaluated on constant inputs, where inputs and outputs are this small.
_LIMIT = 1024
_EVALUATED = frozenset(
    (
        "Add",
        "AddV2",
        "Sub",
        "Mul",
        "FloorDiv",
        "RealDiv",
        "FloorMod",
        "Maximum",
        "Minimum",
        "Neg",
        "Abs",
        "Cast",
        "ConcatV2",
        "Concat",
        "Pack",
        "Range",
        "StridedSlice",
        "Slice",
        "Reshape",
        "ExpandDims",
        "Squeeze",
        "Prod",
        "Sum",
        "Max",
        "Min",
        "GatherV2",
        "Fill",
        "Tile",
        "Equal",
        "NotEqual",
        "Greater",
        "GreaterEqual",
        "Less",
        "LessEqual",
        "LogicalAnd",
        "LogicalOr",
        "LogicalNot",
        "Select",
        "SelectV2",
        "Transpose",
        "Unpack",
        "BroadcastArgs",
        "InvertPermutation",
        "ZerosLike",
        "OnesLike",
    )
)
_PASSED_THROUGH = frozenset(("Identity", "StopGradient", "PreventGradient", "Snapshot", "EnsureShape"))


def constant_value(tensor: Any, partial: bool = False) -> np.ndarray | None:
    """The value of `tensor` as an array where it is the same in every step, else None. Do not write to it."""
    if not isinstance(tensor, Tensor):
        return None
    return _value(tensor, 0)


def _value(tensor: Tensor, depth: int) -> np.ndarray | None:
    op = tensor.op
    kind = op.type
    if kind == "Const":
        return op.attrs["value"]
    if depth > 32:
        return None
    if kind == "Shape":
        return _known_shape(op.inputs[0], tensor.dtype.np)
    if kind == "ShapeN":
        return _known_shape(op.inputs[tensor.value_index], tensor.dtype.np)
    if kind == "Size":
        n = op.inputs[0].shape.num_elements()
        return None if n is None else np.asarray(n, tensor.dtype.np)
    if kind == "Rank":
        rank = op.inputs[0].shape.rank
        return None if rank is None else np.asarray(rank, np.int32)
    if kind == "ConcatOffset" or kind in _EVALUATED:
        if tensor.dtype.is_object and kind not in ("Reshape", "Identity"):
            return None
        values = []
        for t in op.inputs:
            # A shape rule may ask about an op that is just being made: its inputs are complete.
            value = _value(t, depth + 1)
            if value is None or value.size > _LIMIT:
                return None
            values.append(value)
        n = tensor.shape.num_elements() if hasattr(tensor, "_shape") else None
        if n is not None and n > _LIMIT:
            return None
        return _evaluate(op, values)[tensor.value_index]
    if kind in _PASSED_THROUGH and not op.inputs[0].dtype.is_ref:
        return _value(op.inputs[0], depth + 1)
    return None


def _known_shape(tensor: Tensor, dtype: Any) -> np.ndarray | None:
    shape = tensor.shape
    return np.array(shape.sizes, dtype) if shape.is_fully_defined() else None


def evaluate(op: Any, values: list[np.ndarray]) -> tuple[Any, ...]:
    """The outputs of a stateless operation on these inputs, by its CPU kernel."""
    return _evaluate(op, values)


def _evaluate(op: Any, values: list[Any]) -> tuple[Any, ...]:
    op_def = op.op_def
    context = KernelContext(
        op.name,
        op.type,
        op.attrs,
        op_def.types(op_def.inputs, op.attrs),
        op_def.types(op_def.outputs, op.attrs),
        None,
        np,
        None,
        None,
    )
    made = run_kernel(op_def, context, values)
    return tuple(np.asarray(m, d.np) for m, d in zip(made, context.output_dtypes))


def run_kernel(op_def: Any, context: KernelContext, values: list[Any]) -> tuple[Any, ...]:
    """The outputs of one kernel, outside of a plan."""
    call = bound_kernel(op_def, context)
    made = call(*values, None) if op_def.writes_out else call(*values)
    return made if isinstance(made, (tuple, list)) else (made,)


def bound_kernel(op_def: Any, context: KernelContext) -> Any:
    """The callable that a plan calls for a node: `bind`'s, or `compute` with its context."""
    impl = op_def.impl
    bind = getattr(impl, "bind", None)
    if bind is not None:
        return bind(context)
    from functools import partial

    return partial(impl.compute, context)


def constant_value_as_shape(tensor: Any) -> TensorShape:
    """An integer vector as a shape: its unknown elements, and those that are -1, are unknown sizes.

    Raises:
      ValueError: an element below -1.
    """
    value = constant_value(tensor)
    if value is not None:
        if value.ndim == 0:
            if value == -1:
                return UNKNOWN
            raise ValueError(f"a shape must be a vector, not the scalar {value}")
        if value.size and value.min() < -1:
            raise ValueError(f"a shape cannot have the negative size {value.min()}")
        return TensorShape.of(tuple([None if d == -1 else int(d) for d in value]))
    rank = tensor.shape.with_rank(1).sizes[0]
    op = tensor.op
    if op.type == "Shape":
        return op.inputs[0].shape
    if op.type == "ShapeN":
        return op.inputs[tensor.value_index].shape
    if op.type == "Pack":
        return TensorShape.of(tuple([_element(t) for t in op.inputs]))
    if op.type in ("ConcatV2", "Concat"):
        parts = op.inputs[:-1] if op.type == "ConcatV2" else op.inputs[1:]
        made = TensorShape.of(())
        for part in parts:
            made = made.concatenate(constant_value_as_shape(part))
        return made
    if op.type == "Cast" or op.type in _PASSED_THROUGH:
        return constant_value_as_shape(op.inputs[0]) if not op.inputs[0].dtype.is_ref else unknown(rank)
    if op.type == "StridedSlice":
        sliced = _sliced_shape(op)
        if sliced is not None:
            return sliced
    return unknown(rank)


def _element(tensor: Tensor) -> int | None:
    value = constant_value(tensor)
    if value is not None:
        return None if value < 0 else int(value)
    op = tensor.op
    if op.type == "StridedSlice" and op.attrs["shrink_axis_mask"] == 1 and op.inputs[0].shape.rank == 1:
        begin = constant_value(op.inputs[1])
        if begin is not None:
            whole = constant_value_as_shape(op.inputs[0]).sizes
            if whole is not None and -len(whole) <= int(begin[0]) < len(whole):
                return whole[int(begin[0])]
    if op.type == "Cast":
        return _element(op.inputs[0])
    return None


def _sliced_shape(op: Any) -> TensorShape | None:
    begin, end, strides = (constant_value(t) for t in op.inputs[1:])
    masks = op.attrs
    if (
        begin is None
        or end is None
        or strides is None
        or masks["ellipsis_mask"]
        or masks["new_axis_mask"]
        or masks["shrink_axis_mask"]
        or begin.size != 1
    ):
        return None
    whole = constant_value_as_shape(op.inputs[0])
    if whole.sizes is None:
        return None
    start = None if masks["begin_mask"] else int(begin[0])
    stop = None if masks["end_mask"] else int(end[0])
    return TensorShape.of(whole.sizes[start : stop : int(strides[0])])
