"""Comparisons and logic: bools from numbers, bools from bools. None has a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core.dtypes import NUMBERS, REAL
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import bools, empty, ints, normal, sample, text
from graphrt.core.shapes import UNKNOWN, TensorShape, broadcast
from graphrt.ops.elementwise import Elementwise

_NAN = np.array([np.nan, 1, -np.inf, np.inf], np.float32)
_ORDERED = [
    sample(normal(3, 4), normal(4)),
    sample(ints(3, 1), ints(2)),
    sample(normal(), normal(3)),
    sample(empty(0, 2), normal(2)),
    sample(_NAN, np.float32(1)),
    sample(normal(4, dtype="bfloat16"), normal(4, dtype="bfloat16")),
    sample(ints(5, dtype="uint8"), ints(5, dtype="uint8")),
    sample(normal(), normal()),
]


class _Comparison(Elementwise):
    """Base of comparisons: the output is bool, so no input's buffer can hold it."""

    overwrites = ()


@op("Less(x: T, y: T) -> z: bool", T=REAL)
class Less(_Comparison):
    """x < y."""

    expression = "x < y"
    overwrites = ()
    samples = _ORDERED


@op("LessEqual(x: T, y: T) -> z: bool", T=REAL)
class LessEqual(_Comparison):
    """x <= y."""

    expression = "x <= y"
    overwrites = ()
    samples = _ORDERED


@op("Greater(x: T, y: T) -> z: bool", T=REAL)
class Greater(_Comparison):
    """x > y."""

    expression = "x > y"
    overwrites = ()
    samples = _ORDERED


@op("GreaterEqual(x: T, y: T) -> z: bool", T=REAL)
class GreaterEqual(_Comparison):
    """x >= y."""

    expression = "x >= y"
    overwrites = ()
    samples = _ORDERED


class _Equality(_Comparison):
    """Equal and NotEqual: without `incompatible_shape_error`, shapes that cannot broadcast are one answer:
    unequal."""

    when_incompatible = False

    def shape(self, s: ShapeContext, x: TensorShape, y: TensorShape) -> TensorShape:
        if s.attrs["incompatible_shape_error"]:
            return broadcast(x, y)
        # What cannot broadcast at run time gives a scalar.
        if not (x.is_fully_defined() and y.is_fully_defined()):
            return UNKNOWN
        try:
            return broadcast(x, y)
        except ValueError:
            return TensorShape.of(())

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        compare = super().bind(k)
        if k.attrs["incompatible_shape_error"]:
            if not k.input_dtypes[0].is_object:
                return compare

            def of_text(x: Any, y: Any, out: Any = None) -> Any:
                made = np.asarray(compare(x, y), np.bool_)
                if out is None:
                    return made
                out[...] = made
                return out

            return of_text
        answer = self.when_incompatible

        def lenient(x: Any, y: Any, out: Any = None) -> Any:
            try:
                np.broadcast_shapes(x.shape, y.shape)
            except ValueError:
                if out is None:
                    return np.bool_(answer)
                out[...] = answer
                return out
            return compare(x, y, out)

        return lenient


_EQUALITY = [
    sample(normal(3, 4), normal(4)),
    sample(ints(3, 1, high=2), ints(2, high=2)),
    sample(bools(4), bools(4)),
    sample(text("a", "b"), text("b")),
    sample(_NAN, _NAN, why="nan is unequal to itself"),
    sample(normal(3, dtype="complex64"), normal(3, dtype="complex64")),
    sample(ints(2), ints(3), incompatible_shape_error=False, why="cannot broadcast: one answer"),
    sample(ints(2, high=2), ints(2, high=2), incompatible_shape_error=False),
    sample(empty(0, 2), normal(2)),
]


@op("Equal(x: T, y: T) -> z: bool", T="type", incompatible_shape_error="bool = True")
class Equal(_Equality):
    """x == y."""

    expression = "x == y"
    overwrites = ()
    samples = _EQUALITY


@op("NotEqual(x: T, y: T) -> z: bool", T="type", incompatible_shape_error="bool = True")
class NotEqual(_Equality):
    """x != y."""

    expression = "x != y"
    overwrites = ()
    when_incompatible = True
    samples = _EQUALITY


@op("ApproximateEqual(x: T, y: T) -> z: bool", T=NUMBERS, tolerance="float = 1e-05")
class ApproximateEqual:
    """|x - y| < tolerance, of operands of one shape."""

    def shape(self, s: ShapeContext, x: TensorShape, y: TensorShape) -> TensorShape:
        return x.merge_with(y)

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        real = k.input_dtypes[0].real_dtype.np
        tolerance = real.type(k.attrs["tolerance"])
        xp = k.xp

        def near(x: Any, y: Any) -> Any:
            if x.shape != y.shape:
                raise ValueError(
                    f"x and y must be of the same shape. x shape: {list(x.shape)}. y shape: {list(y.shape)}"
                )
            return xp.less(xp.abs(x - y), tolerance)

        return near

    samples = [
        sample(normal(3), normal(3), tolerance=0.5),
        sample(np.array([1.0, 1.000001], np.float32), np.ones(2, np.float32)),
        sample(
            normal(3, dtype="complex64"),
            normal(3, dtype="complex64"),
            tolerance=1.0,
            tensorflow=False,
            why="TensorFlow's CPU has no kernel for it",
        ),
    ]


_LOGIC = [
    sample(bools(3, 4), bools(4)),
    sample(bools(), bools(3)),
    sample(bools(0, 2), bools(2)),
    sample(bools(), bools()),
]


@op("LogicalAnd(x: bool, y: bool) -> z: bool")
class LogicalAnd(Elementwise):
    """x and y."""

    expression = "logical_and(x, y)"
    samples = _LOGIC


@op("LogicalOr(x: bool, y: bool) -> z: bool")
class LogicalOr(Elementwise):
    """x or y."""

    expression = "logical_or(x, y)"
    samples = _LOGIC


@op("LogicalNot(x: bool) -> y: bool")
class LogicalNot(Elementwise):
    """not x."""

    expression = "logical_not(x)"
    samples = [sample(bools(3, 4)), sample(bools()), sample(bools(0))]
