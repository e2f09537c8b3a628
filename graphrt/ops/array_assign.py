"""Values put into a strided slice: of a ref variable, a resource variable, or a copy of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.resources import VariableState
from graphrt.core.samples import normal, sample, text
from graphrt.core.shapes import TensorShape
from graphrt.ops.array_nodes import dense, shape_of, zeros_of
from graphrt.ops.array_slice import MASKS, StridedIndex
from graphrt.ops.state_samples import on_ref, on_resource

_INDEX = "type in {int32,int64}"


def _put(array: Any, index: tuple[Any, ...], value: Any) -> None:
    try:
        part = array[index]
    except IndexError as error:
        raise ValueError(f"slice of {list(array.shape)}: {error}") from None
    try:
        part[...] = value
    except ValueError:
        raise ValueError(
            f"a value of shape {list(value.shape)} cannot be put into a slice of shape {list(part.shape)}"
        ) from None


class _AssignSlice:
    """What the assignments to variables share: the slice of the memory is written in place."""

    stateful = True
    host_inputs = (1, 2, 3)

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        index_of, has_output = StridedIndex(k.attrs), bool(k.output_dtypes)

        def assign(ref: VariableState, begin: Any, end: Any, strides: Any, value: Any) -> Any:
            with ref.lock:
                _put(ref.writable(), index_of(begin, end, strides), value)
            return ref if has_output else ()

        return assign


@op(
    "StridedSliceAssign(ref: Ref(T), begin: Index, end: Index, strides: Index, value: T) -> "
    "output_ref: Ref(T)",
    Index=_INDEX,
    **MASKS,
)
class StridedSliceAssign(_AssignSlice):
    """Sets the strided slice of a ref variable to `value`, which may broadcast."""

    def shape(self, s: ShapeContext, ref: TensorShape, *_: TensorShape) -> TensorShape:
        return ref

    samples = [
        on_ref(
            [[1.0, 2.0], [3.0, 4.0]],
            lambda tf, v: tf.raw_ops.StridedSliceAssign(
                ref=v, begin=[0, 1], end=[2, 2], strides=[1, 1], value=[9.0, 8.0], shrink_axis_mask=2
            ),
        ),
        on_ref(
            [1.0, 2.0, 3.0],
            lambda tf, v: tf.raw_ops.StridedSliceAssign(
                ref=v, begin=[0], end=[0], strides=[-2], value=[7.0, 6.0], begin_mask=1, end_mask=1
            ),
            why="backwards",
        ),
    ]


@op(
    "ResourceStridedSliceAssign(ref: resource, begin: Index, end: Index, strides: Index, value: T)",
    Index=_INDEX,
    **MASKS,
)
class ResourceStridedSliceAssign(_AssignSlice):
    """Sets the strided slice of a resource variable to `value`, which may broadcast."""

    samples = [
        on_resource(
            [[1.0, 2.0], [3.0, 4.0]],
            lambda tf, v: tf.raw_ops.ResourceStridedSliceAssign(
                ref=v, begin=[1], end=[2], strides=[1], value=[9.0, 8.0], shrink_axis_mask=1
            ),
        ),
        on_resource(
            [1, 2, 3],
            lambda tf, v: tf.raw_ops.ResourceStridedSliceAssign(
                ref=v, begin=[1], end=[3], strides=[1], value=[7, 6]
            ),
        ),
    ]


@op(
    "TensorStridedSliceUpdate(input: T, begin: Index, end: Index, strides: Index, value: T) -> output: T",
    Index=_INDEX,
    **MASKS,
)
class TensorStridedSliceUpdate:
    """`input` with its strided slice set to `value`, which may broadcast."""

    host_inputs = (1, 2, 3)

    def shape(self, s: ShapeContext, input: TensorShape, *_: TensorShape) -> TensorShape:
        return input

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        index_of, xp = StridedIndex(k.attrs), k.xp

        def update(input: Any, begin: Any, end: Any, strides: Any, value: Any, out: Any) -> Any:
            if out is None:
                out = xp.array(input, copy=True, order="C")
            else:
                out[...] = input
            _put(out, index_of(begin, end, strides), value)
            return out

        return update

    writes_out = True

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        _, begin, end, strides, value = op.inputs
        masks = {m: op.attrs[m] for m in MASKS}
        dy, kind = dense(dy), begin.dtype.base_dtype
        part = raw.StridedSlice(dy, begin, end, strides, **masks)
        rest = raw.TensorStridedSliceUpdate(dy, begin, end, strides, zeros_of(part), **masks)
        value_shape = shape_of(value, kind)
        axes = raw.BroadcastGradientArgs(shape_of(part, kind), value_shape)[1]
        return [rest, None, None, None, raw.Reshape(raw.Sum(part, axes, keep_dims=True), value_shape)]

    samples = [
        sample(normal(3, 4), [1, 0], [3, 4], [1, 2], normal(2, 2)),
        sample(normal(4), [1], [2], [1], normal(), shrink_axis_mask=1),
        sample(
            normal(3, 4), np.array([0]), np.array([2]), np.array([1]), normal(4), why="the value broadcasts"
        ),
        sample(text("a", "b", "c"), [0], [2], [1], text("x", "y")),
    ]
