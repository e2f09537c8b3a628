"""Binary arithmetic with broadcasting, and its gradients."""

from __future__ import annotations

from typing import Any

from graphrt.core.dtypes import COMPLEX, FLOATS, bfloat16, float32, float64, half, int8, int16, int32, int64, string, uint8
from graphrt.core.dtypes import uint16, uint32, uint64
from graphrt.core.registry import op
from graphrt.core.samples import empty, ints, normal, positive, sample
from graphrt.core.tensor import Tensor
from graphrt.ops.broadcasting import unbroadcast
from graphrt.ops.elementwise import Elementwise

_PAIRS = [sample(normal(3, 4), normal(3, 4)), sample(normal(3, 4), normal(4), why="broadcasts"),
          sample(normal(2, 1, 3), normal(4, 1)), sample(normal(), normal(5)), sample(empty(0, 3), normal(3)),
          sample(ints(4), ints(4))]

_ADD_TYPES = (bfloat16, half, float32, float64, uint8, uint16, uint32, uint64, int8, int16, int32, int64, *COMPLEX)


@op("AddV2(x: T, y: T) -> z: T", T=_ADD_TYPES)
class AddV2(Elementwise):
    """x + y."""

    expression = "x + y"

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor]:
        x, y = op.inputs
        return unbroadcast(x, y, dz, dz)

    samples = _PAIRS


@op("Sub(x: T, y: T) -> z: T", T=_ADD_TYPES)
class Sub(Elementwise):
    """x - y."""

    expression = "x - y"

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor]:
        x, y = op.inputs
        return unbroadcast(x, y, dz, -dz)

    samples = _PAIRS


@op("Mul(x: T, y: T) -> z: T", T=_ADD_TYPES)
class Mul(Elementwise):
    """x * y."""

    expression = "x * y"

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor]:
        x, y = op.inputs
        return unbroadcast(x, y, dz * y, x * dz)

    samples = _PAIRS


_ = (FLOATS, string, positive)
