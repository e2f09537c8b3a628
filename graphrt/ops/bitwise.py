"""Bits of integers: and, or, xor, not, shifts, counts. None has a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core.dtypes import INTEGERS
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import ints, sample
from graphrt.core.shapes import TensorShape
from graphrt.ops.elementwise import Elementwise

_SAMPLES = [
    sample(ints(3, 4, low=-99, high=99), ints(4, low=-99, high=99)),
    sample(ints(3, dtype="uint8"), ints(3, dtype="uint8")),
    sample(ints(dtype="int64"), ints(0, dtype="int64")),
]


@op("BitwiseAnd(x: T, y: T) -> z: T", T=INTEGERS)
class BitwiseAnd(Elementwise):
    """The bits that are set in both."""

    expression = "bitwise_and(x, y)"
    samples = _SAMPLES


@op("BitwiseOr(x: T, y: T) -> z: T", T=INTEGERS)
class BitwiseOr(Elementwise):
    """The bits that are set in either."""

    expression = "bitwise_or(x, y)"
    samples = _SAMPLES


@op("BitwiseXor(x: T, y: T) -> z: T", T=INTEGERS)
class BitwiseXor(Elementwise):
    """The bits that are set in one of the two."""

    expression = "bitwise_xor(x, y)"
    samples = _SAMPLES


@op("Invert(x: T) -> y: T", T=INTEGERS)
class Invert(Elementwise):
    """Every bit flipped."""

    expression = "invert(x)"
    samples = [sample(ints(3, 4, low=-99, high=99)), sample(ints(3, dtype="uint8")), sample(ints(0))]


class _Shift(Elementwise):
    """Base of shifts: by at least 0, and at most one less than the dtype has bits."""

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        shift, xp, most = super().bind(k), k.xp, k.output_dtypes[0].np.itemsize * 8 - 1

        def clamped(x: Any, y: Any, out: Any = None) -> Any:
            return shift(x, xp.clip(y, 0, most), out)

        return clamped

    samples = [
        sample(ints(3, 4, low=-99, high=99), ints(4, high=8)),
        sample(ints(3, dtype="uint8"), ints(3, high=8, dtype="uint8")),
        sample(
            np.array([-5, 5], np.int8),
            np.array([200 - 256, 100], np.int8),
            why="shifts beyond the bits are clamped",
        ),
    ]


@op("LeftShift(x: T, y: T) -> z: T", T=INTEGERS)
class LeftShift(_Shift):
    """x << y."""

    expression = "left_shift(x, y)"
    overwrites = (0,)


@op("RightShift(x: T, y: T) -> z: T", T=INTEGERS)
class RightShift(_Shift):
    """x >> y, keeping the sign."""

    expression = "right_shift(x, y)"
    overwrites = (0,)


@op("PopulationCount(x: T) -> y: uint8", T=INTEGERS)
class PopulationCount:
    """How many bits are set in the two's complement of x."""

    def shape(self, s: ShapeContext, x: TensorShape) -> TensorShape:
        return x

    def compute(self, k: KernelContext, x: Any) -> Any:
        # bitwise_count counts the bits of |x|.
        size = k.input_dtypes[0].np.itemsize
        return k.xp.bitwise_count(x.view(f"uint{8 * size}"))

    samples = [
        sample(ints(3, 4, low=-99, high=99)),
        sample(ints(3, dtype="uint8")),
        sample(ints(dtype="int64")),
    ]
