"""Gradients of broadcasting: BroadcastGradientArgs, and `unbroadcast`, which binary ops' gradients end in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import DType, int32
from graphrt.core.registry import ALL, KernelContext, ShapeContext, op
from graphrt.core.samples import sample
from graphrt.core.shapes import TensorShape, unknown
from graphrt.core.tensor import Tensor


@op("BroadcastGradientArgs(s0: T, s1: T) -> r0: T, r1: T", T="type in {int32,int64} = int32")
class BroadcastGradientArgs:
    """The axes over which the gradients of two operands of shapes s0 and s1 must be summed: those that each
    broadcast."""

    host_inputs = host_outputs = ALL
    cpu_only = True

    def shape(self, s: ShapeContext, s0: TensorShape, s1: TensorShape) -> list[TensorShape]:
        s0.with_rank(1)
        s1.with_rank(1)
        return [unknown(1), unknown(1)]

    def compute(self, k: KernelContext, s0: Any, s1: Any) -> tuple[Any, Any]:
        x, y = s0.tolist(), s1.tolist()
        if x == y:
            return np.zeros(0, k.dtype), np.zeros(0, k.dtype)
        rank = max(len(x), len(y))
        x, y = [1] * (rank - len(x)) + x, [1] * (rank - len(y)) + y
        x_axes, y_axes = [], []
        for axis, (a, b) in enumerate(zip(x, y)):
            if a == b:
                # Both 1: neither's sum changes anything, and TensorFlow names the axis for both.
                if a == 1:
                    x_axes.append(axis)
                    y_axes.append(axis)
            elif a == 1:
                x_axes.append(axis)
            elif b == 1:
                y_axes.append(axis)
            else:
                raise ValueError(
                    f"Incompatible shapes: {s0.tolist()} vs. {s1.tolist()}: sizes {a} and {b} differ and "
                    "neither is 1"
                )
        return np.array(x_axes, k.dtype), np.array(y_axes, k.dtype)

    samples = [
        sample(np.array([2, 3], np.int32), np.array([3], np.int32)),
        sample(np.array([2, 1, 4], np.int32), np.array([3, 1], np.int32)),
        sample(np.array([], np.int32), np.array([5, 2], np.int32)),
        sample(np.array([2, 3], np.int64), np.array([2, 3], np.int64)),
        sample(np.array([1, 1], np.int32), np.array([1], np.int32), why="ones on both sides"),
    ]


def unbroadcast(x: Tensor, y: Tensor, gx: Tensor | None, gy: Tensor | None) -> list[Tensor | None]:
    """The gradients of a broadcasting op's operands, from those of the broadcast operands.

    Args:
      x, y: the operands.
      gx, gy: gradients of the shape that x and y broadcast to; None passes through.
    Returns:
      gx and gy, summed to the shapes of x and y: by constants where the static shapes decide, else by
      BroadcastGradientArgs when the step runs.
    """
    if gx is None and gy is None:
        return [None, None]
    a, b = x.shape.sizes, y.shape.sizes
    x_shape, y_shape = shape_of(x), shape_of(y)
    axes = _static_axes(a, b)
    if axes is None:
        x_axes, y_axes = raw.BroadcastGradientArgs(x_shape, y_shape)
        return [_sum_to(gx, x_axes, x_shape), _sum_to(gy, y_axes, y_shape)]
    if gx is not None and (axes[0] or len(a) < len(b)):  # type: ignore[arg-type]
        gx = _sum_to(gx, axes[0], x_shape)
    if gy is not None and (axes[1] or len(b) < len(a)):  # type: ignore[arg-type]
        gy = _sum_to(gy, axes[1], y_shape)
    return [gx, gy]


def sum_to_shapes(
    x: Tensor, y: Tensor, slopes: Callable[[], tuple[Tensor, Tensor]], dz: Tensor
) -> list[Tensor | None]:
    """The gradients of a broadcasting op's operands from its slopes by each, summed by BroadcastGradientArgs
    in any case."""
    x_shape, y_shape = shape_of(x), shape_of(y)
    x_axes, y_axes = raw.BroadcastGradientArgs(x_shape, y_shape)
    by_x, by_y = slopes()
    return [
        raw.Reshape(raw.Sum(by_x * dz, x_axes), x_shape),
        raw.Reshape(raw.Sum(by_y * dz, y_axes), y_shape),
    ]


def none_broadcasts(x: Tensor, y: Tensor, dz: Tensor) -> bool:
    """Whether x, y and their op's output gradient have one shape, wholly known: nothing is to be summed."""
    sizes = x.shape.sizes
    return sizes is not None and sizes == y.shape.sizes == dz.shape.sizes and None not in sizes


def _static_axes(a: Any, b: Any) -> tuple[list[int], list[int]] | None:
    """The axes that each side broadcasts, or None where only run-time shapes decide."""
    if a is None or b is None:
        return None
    rank = max(len(a), len(b))
    x_axes: list[int] = []
    y_axes: list[int] = []
    for axis in range(rank):
        m = 1 if axis < rank - len(a) else a[axis - (rank - len(a))]
        n = 1 if axis < rank - len(b) else b[axis - (rank - len(b))]
        if m == 1 and n != 1:
            x_axes.append(axis)
        elif n == 1 and m != 1:
            y_axes.append(axis)
        elif m is None or n is None:
            return None
    return x_axes, y_axes


def _sum_to(gradient: Tensor | None, axes: Any, shape: Tensor) -> Tensor | None:
    if gradient is None:
        return None
    return raw.Reshape(raw.Sum(gradient, axes, keep_dims=True), shape)


def shape_of(x: Tensor, dtype: DType = int32) -> Tensor:
    """The shape of `x` as a tensor: a constant where it is known while the graph is built."""
    sizes = x.shape.sizes
    if sizes is not None and None not in sizes:
        return raw.Const(value=np.array(sizes, dtype.np), dtype=dtype, name="Shape")
    return raw.Shape(x, out_type=dtype)


def conj(x: Tensor) -> Tensor:
    """The complex conjugate; `x` itself where it is real."""
    return raw.Conj(x) if x.dtype.is_complex else x


def cast_to(x: Tensor, dtype: DType) -> Tensor:
    """`x` in `dtype`; `x` itself where it has it."""
    return x if x.dtype.base_dtype is dtype else raw.Cast(x, DstT=dtype)
