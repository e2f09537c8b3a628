"""The ops that gradients of unary functions are made of: f's slope from its value y, times dy. Each has a
gradient again."""

from __future__ import annotations

from typing import Any

from graphrt.core import raw
from graphrt.core.dtypes import COMPLEX, FLOATS
from graphrt.core.registry import op
from graphrt.core.samples import empty, normal, positive, sample, uniform
from graphrt.core.tensor import Tensor
from graphrt.ops.broadcasting import conj
from graphrt.ops.elementwise import Elementwise

_INEXACT = (*FLOATS, *COMPLEX)


def _samples(draw: Any) -> list[Any]:
    shape = draw.shape
    return [
        sample(draw, normal(*shape)),
        sample(draw.of("float64"), normal(*shape, dtype="float64")),
        sample(empty(0), empty(0)),
        sample(draw.of("half"), normal(*shape, dtype="half"), gradient=False, rtol=5e-3),
        sample(draw.of("bfloat16"), normal(*shape, dtype="bfloat16"), gradient=False, rtol=4e-2),
        sample(draw.of("complex64"), normal(*shape, dtype="complex64")),
    ]


@op("TanhGrad(y: T, dy: T) -> z: T", T=_INEXACT)
class TanhGrad(Elementwise):
    """dy * (1 - y * y): the gradient of y = tanh(x)."""

    expression = "dy * (1 - y * y)"

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor]:
        y, dy = map(conj, op.inputs)
        return [dz * -2.0 * dy * y, raw.TanhGrad(y, dz)]

    samples = _samples(uniform(3, 4, low=-0.9, high=0.9))


@op("SigmoidGrad(y: T, dy: T) -> z: T", T=_INEXACT)
class SigmoidGrad(Elementwise):
    """dy * y * (1 - y): the gradient of y = sigmoid(x)."""

    expression = "dy * y * (1 - y)"

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor]:
        y, dy = map(conj, op.inputs)
        through = dz * dy
        return [through - 2.0 * through * y, raw.SigmoidGrad(y, dz)]

    samples = _samples(uniform(3, 4, low=0.1, high=0.9))


@op("SqrtGrad(y: T, dy: T) -> z: T", T=_INEXACT)
class SqrtGrad(Elementwise):
    """dy / (2 y): the gradient of y = sqrt(x)."""

    expression = "dy / (conjugate(y) + conjugate(y))"

    def expression_of(self, attrs: dict[str, Any]) -> str:
        return self.expression if attrs["T"].is_complex else "dy / (y + y)"

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor]:
        ratio = dz / op.inputs[0]
        return [-conj(ratio) * op.outputs[0], 0.5 * ratio]

    samples = _samples(positive(3, 4))


@op("RsqrtGrad(y: T, dy: T) -> z: T", T=_INEXACT)
class RsqrtGrad(Elementwise):
    """-dy * y^3 / 2: the gradient of y = 1 / sqrt(x)."""

    expression = "dy * (conjugate(y) * conjugate(y) * conjugate(y)) / -2"

    def expression_of(self, attrs: dict[str, Any]) -> str:
        return self.expression if attrs["T"].is_complex else "dy * (y * y * y) / -2"

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor]:
        y, dy = op.inputs
        y_ = conj(y)
        return [-1.5 * conj(dz) * dy * raw.Square(y_), raw.RsqrtGrad(y_, dz)]

    samples = _samples(positive(3, 4))


class _ReciprocalGrad(Elementwise):
    """Base of the two names of the gradient of y = 1 / x: -dy * y * y."""

    expression = "-dy * (conjugate(y) * conjugate(y))"

    def expression_of(self, attrs: dict[str, Any]) -> str:
        return self.expression if attrs["T"].is_complex else "-dy * (y * y)"

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor]:
        y, dy = op.inputs
        y_ = conj(y)
        return [conj(dz) * -2.0 * dy * y_, raw.ReciprocalGrad(y_, dz)]

    samples = _samples(positive(3, 4))


@op("ReciprocalGrad(y: T, dy: T) -> z: T", T=_INEXACT)
class ReciprocalGrad(_ReciprocalGrad):
    """-dy * y * y: the gradient of y = 1 / x."""

    expression = _ReciprocalGrad.expression


@op("InvGrad(y: T, dy: T) -> z: T", T=_INEXACT)
class InvGrad(_ReciprocalGrad):
    """-dy * y * y: the gradient of y = 1 / x, under the older name."""

    expression = _ReciprocalGrad.expression
