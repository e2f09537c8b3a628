"""Trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import FLOATS
from graphrt.core.registry import op
from graphrt.core.samples import normal, positive, sample, uniform
from graphrt.core.tensor import Tensor
from graphrt.ops.broadcasting import conj, unbroadcast
from graphrt.ops.elementwise import Elementwise
from graphrt.ops.math_unary import INEXACT, smooth

_WHOLE = [*smooth(normal(3, 4)), sample(normal(3, dtype="complex64"))]
_UNIT = [*smooth(uniform(3, 4, low=-0.9, high=0.9)), sample(normal(3, dtype="complex64"))]


def _one_minus_square(op: Any, dy: Tensor, plus: bool = False) -> Tensor:
    """1 - x^2 (or 1 + x^2) of an op's input."""
    square = raw.Square(conj(op.inputs[0]))
    one = raw.Const(value=np.array(1, dy.dtype.np), dtype=dy.dtype.base_dtype)
    return raw.AddV2(one, square, name="Add") if plus else raw.Sub(one, square)


@op("Sin(x: T) -> y: T", T=INEXACT)
class Sin(Elementwise):
    """The sine."""

    expression = "sin(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Cos(conj(op.inputs[0]))

    samples = _WHOLE


@op("Cos(x: T) -> y: T", T=INEXACT)
class Cos(Elementwise):
    """The cosine."""

    expression = "cos(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return -dy * raw.Sin(conj(op.inputs[0]))

    samples = _WHOLE


@op("Tan(x: T) -> y: T", T=INEXACT)
class Tan(Elementwise):
    """The tangent."""

    expression = "tan(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Square(raw.Reciprocal(raw.Cos(conj(op.inputs[0]))))

    samples = _UNIT


@op("Asin(x: T) -> y: T", T=INEXACT)
class Asin(Elementwise):
    """The angle whose sine is x."""

    expression = "arcsin(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Reciprocal(raw.Sqrt(_one_minus_square(op, dy)))

    samples = _UNIT


@op("Acos(x: T) -> y: T", T=INEXACT)
class Acos(Elementwise):
    """The angle whose cosine is x."""

    expression = "arccos(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        slope = raw.Reciprocal(raw.Sqrt(_one_minus_square(op, dy)))
        return -dy * slope

    samples = _UNIT


@op("Atan(x: T) -> y: T", T=INEXACT)
class Atan(Elementwise):
    """The angle whose tangent is x."""

    expression = "arctan(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Reciprocal(_one_minus_square(op, dy, plus=True))

    samples = _WHOLE


@op("Atan2(y: T, x: T) -> z: T", T=FLOATS)
class Atan2(Elementwise):
    """The angle of the point (x, y)."""

    expression = "arctan2(y, x)"

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor | None]:
        y, x = op.inputs
        scaled = dz / (raw.Square(y) + raw.Square(x))
        return unbroadcast(y, x, x * scaled, -y * scaled)

    samples = [
        sample(normal(3, 4), normal(4)),
        sample(normal(2, 1), normal(3)),
        sample(normal(3).of("half"), normal(3).of("half"), gradient=False),
    ]


@op("Sinh(x: T) -> y: T", T=INEXACT)
class Sinh(Elementwise):
    """The hyperbolic sine."""

    expression = "sinh(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Cosh(conj(op.inputs[0]))

    samples = _WHOLE


@op("Cosh(x: T) -> y: T", T=INEXACT)
class Cosh(Elementwise):
    """The hyperbolic cosine."""

    expression = "cosh(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Sinh(conj(op.inputs[0]))

    samples = _WHOLE


@op("Asinh(x: T) -> y: T", T=INEXACT)
class Asinh(Elementwise):
    """The number whose hyperbolic sine is x."""

    expression = "arcsinh(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy / raw.Cosh(conj(op.outputs[0]))

    samples = _WHOLE


@op("Acosh(x: T) -> y: T", T=INEXACT)
class Acosh(Elementwise):
    """The number at or above zero whose hyperbolic cosine is x."""

    expression = "arccosh(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy / raw.Sinh(conj(op.outputs[0]))

    samples = [*smooth(uniform(3, 4, low=1.1, high=4.0)), sample(positive(3, dtype="complex64") * 3)]


@op("Atanh(x: T) -> y: T", T=INEXACT)
class Atanh(Elementwise):
    """The number whose hyperbolic tangent is x."""

    expression = "arctanh(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Reciprocal(_one_minus_square(op, dy))

    samples = _UNIT
