"""Activation functions and their gradients: relu and its kin, elu, selu, softplus, softsign.

Expressions are written without a `where` in which the branch that is not taken could overflow, and as
few ufuncs as will do: min and max take the place of masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import FLOATS, REAL, float32, qint8
from graphrt.core.registry import op
from graphrt.core.samples import Sample, empty, ints, normal, sample
from graphrt.core.signature import Attr
from graphrt.core.tensor import Tensor
from graphrt.ops.elementwise import Elementwise

# Selu's fixed point: mean 0 and variance 1 map to themselves with these.
_SCALE, _SCALE_ALPHA = 1.0507009873554804934193349852946, 1.7580993408473768599402175208123
_T_FLOAT_DEFAULT = Attr("T", "type", allowed=FLOATS, default=float32)

_EDGES = np.array(
    [-np.inf, -1e30, -100.0, -20.0, -1.0, -1e-3, -0.0, 0.0, 1e-3, 1.0, 6.0, 20.0, 100.0, 1e30, np.inf],
    np.float32,
)


def _unary_samples(*more: Sample) -> list[Sample]:
    return [
        sample(normal(3, 4) * 3),
        sample(normal()),
        sample(empty(0, 2)),
        sample(normal(2, 1, 3, dtype="float64") * 5),
        sample(_EDGES, why="infinities and flat ends", gradient=False),
        sample(normal(7, dtype="half"), gradient=False),
        sample(normal(7, dtype="bfloat16"), gradient=False),
        *more,
    ]


def _grad_samples(**attrs: Any) -> list[Sample]:
    return [
        sample(normal(3, 4), normal(3, 4) * 3, **attrs),
        sample(normal(), normal(), **attrs),
        sample(empty(0, 2), empty(0, 2), **attrs),
        sample(normal(5, dtype="float64"), normal(5, dtype="float64"), **attrs),
        sample(normal(5, dtype="bfloat16"), normal(5, dtype="bfloat16"), gradient=False, **attrs),
    ]


class _Gradient(Elementwise):
    """Base of (gradients, features) -> backprops: both have one shape."""

    def shape(self, s: Any, gradients: Any, features: Any) -> Any:
        return gradients.merge_with(features)


@op("Relu(features: T) -> activations: T", T=(*REAL, qint8))
class Relu(Elementwise):
    """max(features, 0)."""

    expression = "maximum(features, 0)"
    overwrites = (0,)

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.ReluGrad(dy, op.outputs[0])

    samples = _unary_samples(
        sample(ints(9, low=-5, high=5)),
        sample(ints(4, dtype="uint8")),
        sample(np.array([np.nan, 1.0], np.float32), gradient=False, why="NaN stays"),
    )


@op("ReluGrad(gradients: T, features: T) -> backprops: T", T=REAL)
class ReluGrad(_Gradient):
    """`gradients` where features > 0, else 0; `features` may be Relu's input or its output."""

    expression = "gradients * (features > 0)"
    overwrites = (0, 1)

    def gradient(self, op: Any, ddx: Tensor) -> list[Tensor]:
        x = op.inputs[1]
        return [raw.ReluGrad(ddx, x), raw.ZerosLike(x)]

    samples = [*_grad_samples(), sample(ints(6, low=-3, high=4), ints(6, low=-3, high=4))]


@op("Relu6(features: T) -> activations: T", T=REAL)
class Relu6(Elementwise):
    """min(max(features, 0), 6)."""

    expression = "minimum(maximum(features, 0), 6)"
    overwrites = (0,)

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.Relu6Grad(dy, op.outputs[0])

    samples = _unary_samples(sample(ints(9, low=-5, high=15)))


@op("Relu6Grad(gradients: T, features: T) -> backprops: T", T=REAL)
class Relu6Grad(_Gradient):
    """`gradients` where 0 < features < 6, else 0."""

    expression = "gradients * ((features > 0) * (features < 6))"
    overwrites = (0, 1)

    def gradient(self, op: Any, ddx: Tensor) -> list[Tensor]:
        x = op.inputs[1]
        return [raw.Relu6Grad(ddx, x), raw.ZerosLike(x)]

    samples = _grad_samples()


@op("LeakyRelu(features: T) -> activations: T", alpha="float = 0.20000000298023224", T=_T_FLOAT_DEFAULT)
class LeakyRelu(Elementwise):
    """features where positive, else alpha * features."""

    def expression_of(self, attrs: dict[str, Any]) -> str:
        # For alpha up to 1 the larger of the two is the right one.
        if attrs["alpha"] <= 1:
            return f"maximum(features, {attrs['alpha']!r} * features)"
        return f"minimum(features, {attrs['alpha']!r} * features)"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.LeakyReluGrad(dy, op.inputs[0], alpha=op.attrs["alpha"])

    samples = [
        *_unary_samples(),
        sample(normal(5), alpha=0.0),
        sample(normal(5), alpha=1.5),
        sample(normal(5), alpha=-0.5),
    ]


@op(
    "LeakyReluGrad(gradients: T, features: T) -> backprops: T",
    alpha="float = 0.20000000298023224",
    T=_T_FLOAT_DEFAULT,
)
class LeakyReluGrad(_Gradient):
    """`gradients` where features > 0, else alpha * gradients."""

    def expression_of(self, attrs: dict[str, Any]) -> str:
        return f"where(features > 0, gradients, {attrs['alpha']!r} * gradients)"

    def gradient(self, op: Any, ddx: Tensor) -> list[Tensor]:
        x = op.inputs[1]
        return [raw.LeakyReluGrad(ddx, x, alpha=op.attrs["alpha"]), raw.ZerosLike(x)]

    samples = [*_grad_samples(), *_grad_samples(alpha=0.01)]


@op("Elu(features: T) -> activations: T", T=FLOATS)
class Elu(Elementwise):
    """features where positive, else exp(features) - 1."""

    expression = "maximum(features, 0) + expm1(minimum(features, 0))"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.EluGrad(dy, op.outputs[0])

    samples = _unary_samples()


@op("EluGrad(gradients: T, outputs: T) -> backprops: T", T=FLOATS)
class EluGrad(_Gradient):
    """gradients * (outputs + 1) where outputs < 0, else gradients."""

    expression = "gradients * (minimum(outputs, 0) + 1)"
    overwrites = (0, 1)

    def gradient(self, op: Any, ddx: Tensor) -> list[Tensor]:
        dy, y = op.inputs
        return [raw.EluGrad(ddx, y), raw.Select(y < 0, ddx * dy, raw.ZerosLike(y))]

    samples = _grad_samples()


@op("Selu(features: T) -> activations: T", T=FLOATS)
class Selu(Elementwise):
    """scale * features where positive, else scale * alpha * (exp(features) - 1)."""

    expression = f"{_SCALE!r} * maximum(features, 0) + {_SCALE_ALPHA!r} * expm1(minimum(features, 0))"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.SeluGrad(dy, op.outputs[0])

    samples = _unary_samples()


@op("SeluGrad(gradients: T, outputs: T) -> backprops: T", T=FLOATS)
class SeluGrad(_Gradient):
    """gradients * (outputs + scale * alpha) where outputs < 0, else gradients * scale."""

    expression = f"gradients * where(outputs < 0, outputs + {_SCALE_ALPHA!r}, {_SCALE!r})"
    overwrites = (0, 1)

    def gradient(self, op: Any, ddx: Tensor) -> list[Tensor]:
        dy, y = op.inputs
        return [raw.SeluGrad(ddx, y), raw.Select(y < 0.0, ddx * dy, raw.ZerosLike(y))]

    samples = _grad_samples()


@op("Softplus(features: T) -> activations: T", T=FLOATS)
class Softplus(Elementwise):
    """log(exp(features) + 1)."""

    expression = "maximum(features, 0) + log1p(exp(-absolute(features)))"

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return dy * raw.Sigmoid(op.inputs[0])

    samples = _unary_samples()


@op("SoftplusGrad(gradients: T, features: T) -> backprops: T", T=FLOATS)
class SoftplusGrad(_Gradient):
    """gradients / (exp(-features) + 1)."""

    expression = "gradients / (exp(-features) + 1)"
    overwrites = (0, 1)

    def gradient(self, op: Any, ddx: Tensor) -> list[Tensor]:
        dy, x = op.inputs
        with op.graph.control_dependencies([ddx]):
            return [raw.SoftplusGrad(ddx, x), ddx * dy / (raw.Exp(-x) + 2.0 + raw.Exp(x))]

    samples = _grad_samples()


@op("Softsign(features: T) -> activations: T", T=FLOATS)
class Softsign(Elementwise):
    """features / (|features| + 1)."""

    expression = "features / (absolute(features) + 1)"
    overwrites = (0,)

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.SoftsignGrad(dy, op.inputs[0])

    samples = [s for s in _unary_samples() if s.inputs[0] is not _EDGES]


@op("SoftsignGrad(gradients: T, features: T) -> backprops: T", T=FLOATS)
class SoftsignGrad(_Gradient):
    """gradients / (|features| + 1) ** 2."""

    expression = "gradients / square(absolute(features) + 1)"
    overwrites = (0, 1)
    samples = _grad_samples()
