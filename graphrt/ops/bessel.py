"""Rare special functions: Bessel's, Dawson's, Fresnel's integrals, Spence's and the exponential integral.

They are SciPy's (scipy.special), which graphrt does not need otherwise: it is imported when the first of
them runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import FLOATS
from graphrt.core.errors import UnimplementedError, with_hint
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import sample, uniform
from graphrt.core.shapes import TensorShape
from graphrt.core.tensor import Tensor

_BOTH = [
    sample(uniform(3, 4, low=-5, high=5), rtol=1e-4),
    sample(uniform(6, low=-5, high=5, dtype="float64"), rtol=1e-8),
]
_ABOVE_0 = [
    sample(uniform(3, 4, low=0.2, high=9), rtol=1e-4),
    sample(uniform(6, low=0.2, high=9, dtype="float64"), rtol=1e-8),
]


def _scipy_special(op_type: str) -> Any:
    try:
        import scipy.special
    except ImportError:
        raise with_hint(
            UnimplementedError(None, None, f"{op_type} is computed by SciPy, which is not installed"),
            "pip install scipy",
        ) from None
    return scipy.special


class _Scipy:
    """Base: `function` is the name in scipy.special; float64 inside."""

    function = ""
    cpu_only = True

    def shape(self, s: ShapeContext, x: TensorShape) -> TensorShape:
        return x

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        dtype, op_type = k.dtype, k.type

        def special(x: Any) -> Any:
            return np.asarray(self.values(_scipy_special(op_type), x.astype(np.float64))).astype(dtype)

        return special

    def values(self, special: Any, x: Any) -> Any:
        return getattr(special, self.function)(x)


@op("BesselI0(x: T) -> y: T", T=FLOATS)
class BesselI0(_Scipy):
    """The modified Bessel function of the first kind, order 0."""

    function = "i0"
    samples = _BOTH

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.BesselI1(op.inputs[0])


@op("BesselI0e(x: T) -> y: T", T=FLOATS)
class BesselI0e(_Scipy):
    """exp(-|x|) BesselI0(x)."""

    function = "i0e"
    samples = _BOTH

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        x = op.inputs[0]
        return dy * (raw.BesselI1e(x) - raw.Sign(x) * op.outputs[0])


def _over_x(x: Tensor, y: Tensor) -> Tensor:
    """y / x, and 1/2 at 0: I1(x) / x and J1(x) / x there."""
    at_0 = raw.Equal(x, np.zeros((), x.dtype.np))
    safe = raw.SelectV2(at_0, raw.OnesLike(x), x)
    return raw.SelectV2(at_0, np.full((), 0.5, x.dtype.np), y / safe)


@op("BesselI1(x: T) -> y: T", T=FLOATS)
class BesselI1(_Scipy):
    """The modified Bessel function of the first kind, order 1."""

    function = "i1"
    samples = _BOTH

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        x = op.inputs[0]
        return dy * (raw.BesselI0(x) - _over_x(x, op.outputs[0]))


@op("BesselI1e(x: T) -> y: T", T=FLOATS)
class BesselI1e(_Scipy):
    """exp(-|x|) BesselI1(x)."""

    function = "i1e"
    samples = _BOTH

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        x, y = op.inputs[0], op.outputs[0]
        return dy * (raw.BesselI0e(x) - raw.Sign(x) * y - _over_x(x, y))


@op("BesselJ0(x: T) -> y: T", T=FLOATS)
class BesselJ0(_Scipy):
    """The Bessel function of the first kind, order 0."""

    function = "j0"
    samples = _BOTH

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return -dy * raw.BesselJ1(op.inputs[0])


@op("BesselJ1(x: T) -> y: T", T=FLOATS)
class BesselJ1(_Scipy):
    """The Bessel function of the first kind, order 1."""

    function = "j1"
    samples = _BOTH

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        x = op.inputs[0]
        return dy * (raw.BesselJ0(x) - _over_x(x, op.outputs[0]))


@op("BesselK0(x: T) -> y: T", T=FLOATS)
class BesselK0(_Scipy):
    """The modified Bessel function of the second kind, order 0."""

    function = "k0"
    samples = _ABOVE_0

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return -dy * raw.BesselK1(op.inputs[0])


@op("BesselK0e(x: T) -> y: T", T=FLOATS)
class BesselK0e(_Scipy):
    """exp(x) BesselK0(x)."""

    function = "k0e"
    samples = _ABOVE_0

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * (op.outputs[0] - raw.BesselK1e(op.inputs[0]))


@op("BesselK1(x: T) -> y: T", T=FLOATS)
class BesselK1(_Scipy):
    """The modified Bessel function of the second kind, order 1."""

    function = "k1"
    samples = _ABOVE_0

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        x = op.inputs[0]
        return dy * (-raw.BesselK0(x) - op.outputs[0] / x)


@op("BesselK1e(x: T) -> y: T", T=FLOATS)
class BesselK1e(_Scipy):
    """exp(x) BesselK1(x)."""

    function = "k1e"
    samples = _ABOVE_0

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        x, y = op.inputs[0], op.outputs[0]
        return dy * (y * (1.0 - raw.Reciprocal(x)) - raw.BesselK0e(x))


@op("BesselY0(x: T) -> y: T", T=FLOATS)
class BesselY0(_Scipy):
    """The Bessel function of the second kind, order 0."""

    function = "y0"
    samples = _ABOVE_0

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return -dy * raw.BesselY1(op.inputs[0])


@op("BesselY1(x: T) -> y: T", T=FLOATS)
class BesselY1(_Scipy):
    """The Bessel function of the second kind, order 1."""

    function = "y1"
    samples = _ABOVE_0

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        x = op.inputs[0]
        return dy * (raw.BesselY0(x) - op.outputs[0] / x)


@op("Dawsn(x: T) -> y: T", T=FLOATS)
class Dawsn(_Scipy):
    """Dawson's integral, exp(-x^2) times the integral of exp(t^2) from 0 to x."""

    function = "dawsn"
    samples = _BOTH

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * (1.0 - 2 * op.inputs[0] * op.outputs[0])


@op("Expint(x: T) -> y: T", T=FLOATS)
class Expint(_Scipy):
    """The exponential integral Ei, of exp(t) / t up to x."""

    function = "expi"
    samples = _ABOVE_0

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        x = op.inputs[0]
        return dy * raw.Exp(x) / x


@op("FresnelCos(x: T) -> y: T", T=FLOATS)
class FresnelCos(_Scipy):
    """The integral of cos(pi t^2 / 2) from 0 to x."""

    samples = _BOTH

    def values(self, special: Any, x: Any) -> Any:
        return special.fresnel(x)[1]

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Cos(math.pi / 2 * raw.Square(op.inputs[0]))


@op("FresnelSin(x: T) -> y: T", T=FLOATS)
class FresnelSin(_Scipy):
    """The integral of sin(pi t^2 / 2) from 0 to x."""

    samples = _BOTH

    def values(self, special: Any, x: Any) -> Any:
        return special.fresnel(x)[0]

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Sin(math.pi / 2 * raw.Square(op.inputs[0]))


@op("Spence(x: T) -> y: T", T=FLOATS)
class Spence(_Scipy):
    """Spence's integral, of log(t) / (1 - t) from 1 to x."""

    function = "spence"
    samples = _ABOVE_0

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        x = op.inputs[0]
        near_1 = raw.Equal(x, np.ones((), x.dtype.np))
        safe = raw.SelectV2(near_1, raw.OnesLike(x) * 2, x)
        return dy * raw.SelectV2(near_1, np.full((), -1, x.dtype.np), raw.Log(safe) / (1 - safe))
