"""Elementwise functions of one tensor: signs, rounding, powers, exponentials. Their gradients' own ops are
in unary_grads.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import COMPLEX, FLOATS, INTEGERS, int8, int16, int32, int64
from graphrt.core.registry import KernelContext, op
from graphrt.core.samples import Later, empty, ints, normal, positive, sample, uniform
from graphrt.core.tensor import Tensor
from graphrt.ops.array_nodes import zeros_of
from graphrt.ops.broadcasting import conj
from graphrt.ops.elementwise import Elementwise

SIGNED = (int8, int16, int32, int64)
INEXACT = (*FLOATS, *COMPLEX)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)


def narrow(draw: Any) -> list[Any]:
    """Samples of `draw` in float16 and bfloat16: values only, their gradients are float32's."""
    return [sample(draw.of(d), gradient=False) for d in ("half", "bfloat16")]


def smooth(draw: Any) -> list[Any]:
    """Samples of a function that is smooth on `draw`: a matrix, a scalar, nothing, other dtypes."""
    return [
        sample(draw),
        sample(Later(lambda: np.float32(draw.array(0).ravel()[0]))),
        sample(empty(0, 2)),
        sample(draw.of("float64")),
        *narrow(draw),
    ]


@op("Neg(x: T) -> y: T", T=(*FLOATS, *SIGNED, *COMPLEX))
class Neg(Elementwise):
    """-x."""

    expression = "-x"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return -dy

    samples = [*smooth(normal(3, 4)), sample(ints(3)), sample(normal(2, dtype="complex64"))]


@op("Abs(x: T) -> y: T", T=(*FLOATS, *SIGNED))
class Abs(Elementwise):
    """|x|."""

    expression = "absolute(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Sign(op.inputs[0])

    samples = [*smooth(normal(3, 4)), sample(ints(6, low=-5, high=5)), sample(SPECIAL, gradient=False)]


@op("Sign(x: T) -> y: T", T=(*FLOATS, *SIGNED, *COMPLEX))
class Sign(Elementwise):
    """-1, 0 or 1 as x is below, at or above zero; x / |x| for complex numbers."""

    expression = "sign(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return zeros_of(op.inputs[0])

    samples = [*smooth(normal(3, 4)), sample(ints(6, low=-5, high=5)), sample(normal(3, dtype="complex64"))]


class _Rounding(Elementwise):
    """Base of steps, whose slope is zero: they pass no gradient on."""

    def gradient(self, op: Any, dy: Tensor) -> None:
        return None


_HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e9, 0.49999997], np.float32)


@op("Floor(x: T) -> y: T", T=FLOATS)
class Floor(_Rounding):
    """The integer at or below x."""

    expression = "floor(x)"
    samples = [*smooth(normal(3, 4) * 3), sample(_HALVES)]


@op("Ceil(x: T) -> y: T", T=FLOATS)
class Ceil(_Rounding):
    """The integer at or above x."""

    expression = "ceil(x)"
    samples = [*smooth(normal(3, 4) * 3), sample(_HALVES)]


@op("Rint(x: T) -> y: T", T=FLOATS)
class Rint(_Rounding):
    """The nearest integer, the even one of two."""

    expression = "rint(x)"
    samples = [
        sample(normal(3, 4) * 3),
        sample(normal()),
        sample(empty(0, 2)),
        sample(_HALVES),
        sample(normal(3, dtype="float64") * 3),
        sample(normal(3, dtype="half") * 3, tensorflow=False, why="TensorFlow's CPU has no kernel for it"),
    ]


@op("Round(x: T) -> y: T", T=(*FLOATS, *SIGNED, *COMPLEX))
class Round(_Rounding):
    """The nearest integer, the even one of two; integers stay."""

    expression = "rint(x)"

    def expression_of(self, attrs: dict[str, Any]) -> str:
        # A copy: rint would make integers floating.
        return "positive(x)" if attrs["T"].is_integer else self.expression

    samples = [
        *smooth(normal(3, 4) * 3),
        sample(_HALVES),
        sample(ints(4, low=-4), tensorflow=False, why="integers stay; TensorFlow's CPU kernel makes them 0"),
    ]


@op("Square(x: T) -> y: T", T=(*FLOATS, *INTEGERS, *COMPLEX))
class Square(Elementwise):
    """x * x."""

    expression = "square(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        x = conj(op.inputs[0])
        two = raw.Const(value=np.array(2, x.dtype.np), dtype=x.dtype.base_dtype)
        return raw.Mul(dy, raw.Mul(x, two))

    samples = [*smooth(normal(3, 4)), sample(ints(4, low=-4)), sample(normal(3, dtype="complex64"))]


@op("Sqrt(x: T) -> y: T", T=INEXACT)
class Sqrt(Elementwise):
    """The square root."""

    expression = "sqrt(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.SqrtGrad(op.outputs[0], dy)

    samples = [*smooth(positive(3, 4)), sample(normal(3, dtype="complex64")), sample(SPECIAL, gradient=False)]


@op("Rsqrt(x: T) -> y: T", T=INEXACT)
class Rsqrt(Elementwise):
    """1 / sqrt(x)."""

    expression = "1 / sqrt(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.RsqrtGrad(op.outputs[0], dy)

    samples = [
        *smooth(positive(3, 4)),
        sample(positive(3, dtype="complex64")),
        sample(np.array([0.0, np.inf, -1.0], np.float32), gradient=False),
    ]


class _Reciprocal(Elementwise):
    """Base of the two names of 1 / x."""

    expression = "reciprocal(x)"

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        invert = super().bind(k)
        if not k.output_dtypes[0].is_integer:
            return invert

        def of_integers(x: Any, out: Any = None) -> Any:
            if not k.xp.all(x):
                raise ValueError(f"{k.type} of an integer 0: 1 / 0 is not a number")
            return invert(x, out)

        return of_integers

    samples = [
        *smooth(positive(3, 4)),
        sample(positive(3, dtype="complex64")),
        sample(
            np.array([1, -1, 2, -3], np.int32), tensorflow=False, why="TensorFlow's CPU has no kernel for it"
        ),
        sample(SPECIAL, gradient=False),
    ]


@op("Reciprocal(x: T) -> y: T", T=(*FLOATS, *SIGNED, *COMPLEX))
class Reciprocal(_Reciprocal):
    """1 / x."""

    expression = "reciprocal(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.ReciprocalGrad(op.outputs[0], dy)


@op("Inv(x: T) -> y: T", T=(*FLOATS, *SIGNED, *COMPLEX))
class Inv(_Reciprocal):
    """1 / x; the older name of Reciprocal."""

    expression = "reciprocal(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.ReciprocalGrad(op.outputs[0], dy)


@op("Exp(x: T) -> y: T", T=INEXACT)
class Exp(Elementwise):
    """e to the x."""

    expression = "exp(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * conj(op.outputs[0])

    samples = [
        *smooth(normal(3, 4)),
        sample(normal(3, dtype="complex64")),
        sample(np.float32([100, -100, np.inf]), gradient=False),
    ]


@op("Expm1(x: T) -> y: T", T=INEXACT)
class Expm1(Elementwise):
    """exp(x) - 1, exact for small x."""

    expression = "expm1(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Exp(conj(op.inputs[0]))

    samples = [
        *smooth(normal(3, 4)),
        sample(np.float32([1e-8, 1e-4, -1e-8])),
        sample(normal(3, dtype="complex64")),
    ]


@op("Log(x: T) -> y: T", T=INEXACT)
class Log(Elementwise):
    """The natural logarithm."""

    expression = "log(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Reciprocal(conj(op.inputs[0]))

    samples = [*smooth(positive(3, 4)), sample(normal(3, dtype="complex64")), sample(SPECIAL, gradient=False)]


@op("Log1p(x: T) -> y: T", T=INEXACT)
class Log1p(Elementwise):
    """log(1 + x), exact for small x."""

    expression = "log1p(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Reciprocal(1 + conj(op.inputs[0]))

    samples = [
        *smooth(positive(3, 4)),
        sample(np.float32([1e-8, 1e-4, -1e-8])),
        sample(positive(3, dtype="complex64")),
    ]


@op("Sigmoid(x: T) -> y: T", T=INEXACT)
class Sigmoid(Elementwise):
    """1 / (1 + exp(-x))."""

    expression = "1 / (1 + exp(-x))"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.SigmoidGrad(conj(op.outputs[0]), dy)

    samples = [
        *smooth(normal(3, 4)),
        sample(normal(2, dtype="complex64")),
        sample(np.float32([80, -80, np.inf]), gradient=False),
    ]


@op("Tanh(x: T) -> y: T", T=INEXACT)
class Tanh(Elementwise):
    """The hyperbolic tangent."""

    expression = "tanh(x)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.TanhGrad(conj(op.outputs[0]), dy)

    samples = [
        *smooth(normal(3, 4)),
        sample(normal(2, dtype="complex64")),
        sample(np.float32([20, -20, np.inf]), gradient=False),
    ]


@op("IsNan(x: T) -> y: bool", T=FLOATS)
class IsNan(Elementwise):
    """True where x is not a number."""

    expression = "isnan(x)"
    overwrites = ()
    samples = [sample(SPECIAL), sample(normal(2, 3)), *narrow(uniform(3))]


@op("IsInf(x: T) -> y: bool", T=FLOATS)
class IsInf(Elementwise):
    """True where x is infinite."""

    expression = "isinf(x)"
    overwrites = ()
    samples = [sample(SPECIAL), sample(normal(2, 3)), *narrow(uniform(3))]


@op("IsFinite(x: T) -> y: bool", T=FLOATS)
class IsFinite(Elementwise):
    """True where x is neither infinite nor nan."""

    expression = "isfinite(x)"
    overwrites = ()
    samples = [sample(SPECIAL), sample(normal(2, 3)), *narrow(uniform(3))]
