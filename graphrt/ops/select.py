"""Choosing by a condition: Select, SelectV2, ClipByValue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import NUMBERS
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import Later, bools, empty, ints, normal, sample, text
from graphrt.core.shapes import TensorShape, broadcast
from graphrt.core.tensor import Tensor
from graphrt.ops.array_nodes import zeros_of
from graphrt.ops.broadcasting import shape_of, unbroadcast


@op("Select(condition: bool, t: T, e: T) -> output: T", T="type")
class Select:
    """t where the condition holds, else e. They have one shape; a vector of conditions chooses among rows, a
    scalar all."""

    def shape(self, s: ShapeContext, condition: TensorShape, t: TensorShape, e: TensorShape) -> TensorShape:
        made = t.merge_with(e)
        if condition.sizes is None or made.sizes is None:
            return made
        if len(condition.sizes) == 1 and len(made.sizes) > 1:
            TensorShape.of(made.sizes[:1]).merge_with(condition)
            return made
        return made if not condition.sizes else made.merge_with(condition)

    def compute(self, k: KernelContext, condition: Any, t: Any, e: Any) -> Any:
        if t.shape != e.shape:
            raise ValueError(
                f"Select: 't' and 'e' must have the same size: {list(t.shape)} and {list(e.shape)}. "
                "tf.where_v2 broadcasts"
            )
        if condition.shape != t.shape and condition.ndim:
            if condition.ndim != 1 or not t.ndim or condition.shape[0] != t.shape[0]:
                raise ValueError(
                    f"Select: the condition has shape {list(condition.shape)}, the values {list(t.shape)}: "
                    "it takes their "
                    "shape, a vector of their first size, or a scalar"
                )
            condition = condition.reshape(-1, *(1,) * (t.ndim - 1))
        return k.xp.where(condition, t, e)

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        condition = op.inputs[0]
        zeros = zeros_of(op.inputs[1])
        return [None, raw.Select(condition, dy, zeros), raw.Select(condition, zeros, dy)]

    samples = [
        sample(bools(3, 4), normal(3, 4), normal(3, 4)),
        sample(bools(3), normal(3, 4), normal(3, 4), why="chooses rows"),
        sample(bools(), normal(3, 4), normal(3, 4)),
        sample(bools(), normal(), normal()),
        sample(bools(2), ints(2), ints(2)),
        sample(bools(2), text("a", "b"), text("c", "d")),
        sample(bools(0), empty(0), empty(0)),
    ]


@op("SelectV2(condition: bool, t: T, e: T) -> output: T", T="type")
class SelectV2:
    """t where the condition holds, else e; the three broadcast."""

    def shape(self, s: ShapeContext, condition: TensorShape, t: TensorShape, e: TensorShape) -> TensorShape:
        return broadcast(condition, broadcast(t, e))

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        return k.xp.where

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        condition, t, e = op.inputs
        zero = raw.Const(value=np.zeros((), dy.dtype.np), dtype=dy.dtype.base_dtype, name="zeros")
        whole = op.outputs[0]
        gt, ge = raw.SelectV2(condition, dy, zero), raw.SelectV2(condition, zero, dy)
        gt, ge = unbroadcast(t, whole, gt, None)[0], unbroadcast(e, whole, ge, None)[0]
        return [None, gt, ge]

    samples = [
        sample(bools(3, 4), normal(3, 4), normal(3, 4)),
        sample(bools(3, 1), normal(4), normal()),
        sample(bools(), normal(), normal()),
        sample(bools(4), normal(2, 1), normal(4)),
        sample(bools(2), ints(2), ints()),
        sample(bools(2), text("a", "b"), text("c")),
        sample(bools(0), empty(0), empty(1)),
    ]


@op("ClipByValue(t: T, clip_value_min: T, clip_value_max: T) -> output: T", T=NUMBERS)
class ClipByValue:
    """t, but no element below clip_value_min or above clip_value_max: scalars, or of a shape that broadcasts
    to t's."""

    overwrites = (0,)

    def shape(
        self, s: ShapeContext, t: TensorShape, clip_value_min: TensorShape, clip_value_max: TensorShape
    ) -> TensorShape:
        for bound in (clip_value_min, clip_value_max):
            if bound.sizes and t.sizes is not None and broadcast(t, bound).rank != t.rank:
                raise ValueError(f"a bound of shape {bound} does not broadcast to {t}")
        return t

    def compute(
        self, k: KernelContext, t: Any, clip_value_min: Any, clip_value_max: Any, out: Any = None
    ) -> Any:
        made = k.xp.maximum(t, clip_value_min, out=out)
        return k.xp.minimum(made, clip_value_max, out=out)

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        x, low, high = op.inputs
        x_shape, low_shape, high_shape = shape_of(x), shape_of(low), shape_of(high)
        zeros = raw.ZerosLike(dy)
        below, above = raw.Less(x, low), raw.Greater(x, high)
        low_axes = raw.BroadcastGradientArgs(x_shape, low_shape)[1]
        high_axes = raw.BroadcastGradientArgs(x_shape, high_shape)[1]
        gx = raw.Select(raw.LogicalOr(below, above), zeros, dy)
        g_low, g_high = raw.Select(below, dy, zeros), raw.Select(above, dy, zeros)
        return [
            gx,
            raw.Reshape(raw.Sum(g_low, low_axes), low_shape),
            raw.Reshape(raw.Sum(g_high, high_axes), high_shape),
        ]

    samples = [
        sample(normal(3, 4) * 2, np.float32(-1), np.float32(1)),
        sample(
            normal(3, 4),
            Later(lambda: -(normal(3, 4).array(1) ** 2)),
            Later(lambda: normal(3, 4).array(2) ** 2),
        ),
        sample(ints(5), np.int32(2), np.int32(6)),
        sample(empty(0), np.float32(0), np.float32(1)),
        sample(normal(), np.float32(0), np.float32(1)),
        sample(normal(4, dtype="half"), np.float16(-1), np.float16(0.5), gradient=False),
    ]
