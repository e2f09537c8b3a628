"""Special functions: error functions, gamma and beta functions, zeta. Computed in float64 by
special_functions.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import FLOATS
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, positive, sample, uniform
from graphrt.core.shapes import TensorShape, broadcast
from graphrt.core.tensor import Tensor
from graphrt.ops import special_functions
from graphrt.ops.broadcasting import unbroadcast
from graphrt.ops.math_unary import smooth

_WIDE = "type in {float,double}"


class _Special:
    """Base of functions of special_functions.py; the inputs broadcast."""

    function: Any = None

    def shape(self, s: ShapeContext, *inputs: TensorShape) -> TensorShape:
        made = inputs[0]
        for other in inputs[1:]:
            made = broadcast(made, other)
        return made

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        function, dtype, xp = type(self).function, k.dtype, k.xp

        def special(*inputs: Any) -> Any:
            made = function(xp, *(xp.atleast_1d(i).astype(np.float64) for i in inputs)).astype(dtype)
            return made if any(i.ndim for i in inputs) else made.reshape(())

        return special


def _constant(value: float, like: Tensor) -> Tensor:
    return raw.Const(value=np.array(value, like.dtype.np), dtype=like.dtype.base_dtype)


@op("Erf(x: T) -> y: T", T=FLOATS)
class Erf(_Special):
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x."""

    function = special_functions.erf

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return _constant(2 / math.sqrt(math.pi), dy) * dy * raw.Exp(-raw.Square(op.inputs[0]))

    samples = [
        *smooth(uniform(3, 20, low=-4, high=4)),
        sample(np.float32([0, np.inf, -np.inf, np.nan, 9, -9]), gradient=False),
    ]


@op("Erfc(x: T) -> y: T", T=FLOATS)
class Erfc(_Special):
    """1 - erf(x), exact where erf(x) is near 1."""

    function = special_functions.erfc

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return _constant(-2 / math.sqrt(math.pi), dy) * dy * raw.Exp(-raw.Square(op.inputs[0]))

    samples = [
        *smooth(uniform(3, 20, low=-4, high=4)),
        sample(np.float32([0, np.inf, -np.inf, np.nan, 9, -9]), gradient=False),
    ]


@op("Erfinv(x: T) -> y: T", T=FLOATS)
class Erfinv(_Special):
    """The number whose erf is x."""

    function = special_functions.erfinv

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return _constant(math.sqrt(math.pi) / 2, dy) * dy * raw.Exp(raw.Square(op.outputs[0]))

    samples = [
        sample(uniform(3, 20, low=-0.99, high=0.99), rtol=1e-5),
        sample(uniform(8, dtype="float64", low=-0.9, high=0.9)),
        sample(empty(0)),
        sample(np.float32([-1.5, -1, 1, 2, np.nan]), gradient=False),
    ]


@op("Ndtri(x: T) -> y: T", T=FLOATS)
class Ndtri(_Special):
    """The number below which a standard normal falls with probability x."""

    function = special_functions.ndtri

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return _constant(math.sqrt(2 * math.pi), dy) * dy * raw.Exp(raw.Square(op.outputs[0]) / 2.0)

    samples = [
        sample(uniform(3, 20, low=0.01, high=0.99), rtol=1e-5),
        sample(uniform(8, dtype="float64", low=0.01, high=0.9)),
        sample(empty(0)),
        sample(np.float32([-1, 0, 1e-30, 1, 2]), gradient=False, rtol=1e-5),
    ]


@op("Lgamma(x: T) -> y: T", T=FLOATS)
class Lgamma(_Special):
    """log |gamma(x)|."""

    function = special_functions.lgamma

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Digamma(op.inputs[0])

    samples = [
        *smooth(uniform(3, 20, low=0.1, high=30))[:5],
        sample(uniform(20, low=-5.4, high=-0.1), rtol=1e-4),
        sample(np.float32([0, -1, -2, 1, 2, np.inf, 1e10]), gradient=False),
    ]


@op("Digamma(x: T) -> y: T", T=FLOATS)
class Digamma(_Special):
    """The derivative of lgamma."""

    function = special_functions.digamma

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Polygamma(_constant(1, dy), op.inputs[0])

    samples = [
        sample(uniform(3, 20, low=0.1, high=30), rtol=1e-5),
        sample(uniform(8, low=0.5, high=9, dtype="float64"), rtol=1e-10),
        sample(empty(0)),
        sample(uniform(dtype="float32", low=1, high=2)),
        sample(np.float32([-2.5, -1, 100]), gradient=False),
    ]


@op("Polygamma(a: T, x: T) -> z: T", T=_WIDE)
class Polygamma(_Special):
    """The a-th derivative of digamma at x."""

    function = special_functions.polygamma

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor | None]:
        a, x = op.inputs
        return unbroadcast(a, x, None, dz * raw.Polygamma(a + 1, x))

    samples = [
        sample(np.float32([0, 1, 2, 3]), uniform(3, 4, low=0.5, high=8), rtol=1e-5),
        sample(np.float32([1.5, -1]), np.float32([1, 1]), gradient=False),
        sample(np.float64([1, 2]), uniform(2, low=0.5, high=8, dtype="float64"), rtol=1e-10),
    ]


@op("Zeta(x: T, q: T) -> z: T", T=_WIDE)
class Zeta(_Special):
    """Hurwitz's zeta: the sum over k >= 0 of (q + k)^-x."""

    function = special_functions.zeta

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor | None]:
        x, q = op.inputs
        return unbroadcast(x, q, None, dz * -x * raw.Zeta(x + 1, q))

    samples = [
        sample(uniform(3, 4, low=1.5, high=9), uniform(4, low=0.5, high=20), rtol=1e-5),
        sample(np.float32([2, 2, 1, 0.5, 3]), np.float32([0, -1, 1, 1, -1.5]), gradient=False, rtol=1e-5),
        sample(
            uniform(4, low=1.5, high=9, dtype="float64"),
            uniform(4, low=0.5, high=20, dtype="float64"),
            rtol=1e-10,
        ),
    ]


_A, _X = uniform(3, 20, low=0.2, high=20), uniform(20, low=0.1, high=30)
_GAMMA = [
    sample(_A, _X, rtol=1e-5, atol=1e-5),
    sample(
        uniform(8, low=0.2, high=20, dtype="float64"),
        uniform(8, low=0.2, high=20, dtype="float64"),
        rtol=1e-9,
        atol=1e-9,
    ),
    sample(np.float32([1, 0, -1, 2]), np.float32([0, 1, 1, -1]), gradient=False),
    sample(empty(0), empty(0)),
]


def _density(a: Tensor, x: Tensor) -> Tensor:
    """The gamma distribution's density: igamma's slope along x."""
    return raw.Exp(-x + raw.Xlogy(a - 1, x) - raw.Lgamma(a))


@op("Igamma(a: T, x: T) -> z: T", T=FLOATS)
class Igamma(_Special):
    """The lower regularized incomplete gamma function P(a, x)."""

    @staticmethod
    def function(xp: Any, a: Any, x: Any) -> Any:
        return special_functions.igamma(xp, a, x)[0]

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor | None]:
        a, x = op.inputs
        return unbroadcast(a, x, dz * raw.IgammaGradA(a, x), dz * _density(a, x))

    samples = _GAMMA


@op("Igammac(a: T, x: T) -> z: T", T=FLOATS)
class Igammac(_Special):
    """The upper regularized incomplete gamma function Q(a, x) = 1 - P(a, x)."""

    function = special_functions.igammac

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor | None]:
        a, x = op.inputs
        return unbroadcast(a, x, -(dz * raw.IgammaGradA(a, x)), -(dz * _density(a, x)))

    samples = _GAMMA


@op("IgammaGradA(a: T, x: T) -> z: T", T=_WIDE)
class IgammaGradA(_Special):
    """The derivative of igamma along a."""

    @staticmethod
    def function(xp: Any, a: Any, x: Any) -> Any:
        return special_functions.igamma(xp, a, x)[1]

    samples = _GAMMA[:2]


@op("Betainc(a: T, b: T, x: T) -> z: T", T=_WIDE)
class Betainc(_Special):
    """The regularized incomplete beta function."""

    function = special_functions.betainc

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor | None]:
        a, b, x = op.inputs
        log_beta = raw.Lgamma(a) + raw.Lgamma(b) - raw.Lgamma(a + b)
        slope = raw.Exp(raw.Xlog1py(b - 1, -x) + raw.Xlogy(a - 1, x) - log_beta)
        return [None, None, raw.Reshape(slope * dz, raw.Shape(x))]

    samples = [
        sample(positive(3, 4), positive(3, 4), uniform(3, 4, low=0.05, high=0.95), rtol=1e-5),
        sample(np.float32(3), np.float32(2), uniform(20, low=0, high=1), rtol=1e-5),
        sample(np.float32([1, 0, 2]), np.float32([1, 1, 2]), np.float32([0, 0.5, 1]), gradient=False),
    ]
