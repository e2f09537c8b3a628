"""Complex numbers: their parts, conjugate, size and angle."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, normal, sample
from graphrt.core.shapes import TensorShape, broadcast
from graphrt.core.tensor import Tensor
from graphrt.ops.array_nodes import zeros_of
from graphrt.ops.broadcasting import unbroadcast

_REAL_OF: dict[str, Any] = {
    "T": "type in {complex64,complex128} = complex64",
    "Tout": "type in {float,double} = float",
}
_SAMPLES = [
    sample(normal(3, 4, dtype="complex64")),
    sample(normal(dtype="complex64")),
    sample(empty(0, 2, dtype="complex64")),
    sample(normal(3, dtype="complex128"), Tout="double"),
]


class _Part:
    """Base of real-valued functions of complex numbers."""

    def shape(self, s: ShapeContext, x: TensorShape) -> TensorShape:
        return x


@op(
    "Complex(real: T, imag: T) -> out: Tout",
    T="type in {float,double} = float",
    Tout="type in {complex64,complex128} = complex64",
)
class Complex:
    """real + i imag."""

    def shape(self, s: ShapeContext, real: TensorShape, imag: TensorShape) -> TensorShape:
        return broadcast(real, imag)

    def compute(self, k: KernelContext, real: Any, imag: Any, out: Any = None) -> Any:
        if out is None:
            out = k.xp.empty(np.broadcast_shapes(real.shape, imag.shape), k.dtype)
        out.real, out.imag = real, imag
        return out

    def gradient(self, op: Any, dz: Tensor) -> list[Tensor | None]:
        x, y = op.inputs
        return unbroadcast(x, y, raw.Real(dz, Tout=x.dtype.base_dtype), raw.Imag(dz, Tout=y.dtype.base_dtype))

    samples = [
        sample(normal(3, 4), normal(4)),
        sample(normal(), normal()),
        sample(empty(0), empty(0)),
        sample(normal(2, dtype="float64"), normal(2, dtype="float64"), Tout="complex128"),
    ]


@op("Real(input: T) -> output: Tout", **_REAL_OF)
class Real(_Part):
    """The real part."""

    aliases = (0,)

    def compute(self, k: KernelContext, input: Any) -> Any:
        return input.real

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.Complex(
            dy, raw.Const(value=np.array(0, dy.dtype.np), dtype=dy.dtype), Tout=op.inputs[0].dtype.base_dtype
        )

    samples = _SAMPLES


@op("Imag(input: T) -> output: Tout", **_REAL_OF)
class Imag(_Part):
    """The imaginary part."""

    aliases = (0,)

    def compute(self, k: KernelContext, input: Any) -> Any:
        return input.imag

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        # The gradient of a real output is in the direction in which x grows it: along i.
        return raw.Complex(
            raw.Const(value=np.array(0, dy.dtype.np), dtype=dy.dtype), dy, Tout=op.inputs[0].dtype.base_dtype
        )

    samples = _SAMPLES


@op("ComplexAbs(x: T) -> y: Tout", **_REAL_OF)
class ComplexAbs(_Part):
    """The size of complex numbers, sqrt(re^2 + im^2)."""

    def compute(self, k: KernelContext, x: Any, out: Any = None) -> Any:
        return k.xp.absolute(x, out)

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        x = op.inputs[0]
        kind, y = x.dtype.base_dtype, op.outputs[0]
        upper = raw.Complex(dy, zeros_of(dy), Tout=kind) * x
        return raw.DivNoNan(upper, raw.Complex(y, zeros_of(y), Tout=kind), name="div_no_nan")

    samples = [*_SAMPLES, sample(np.array([3 + 4j, 0], np.complex64), why="the gradient at 0 is 0")]


@op("Angle(input: T) -> output: Tout", **_REAL_OF)
class Angle(_Part):
    """The angle from the positive real axis, in (-pi, pi]."""

    def compute(self, k: KernelContext, input: Any, out: Any = None) -> Any:
        return k.xp.arctan2(input.imag, input.real, out)

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        x = op.inputs[0]
        kind, real = x.dtype.base_dtype, dy.dtype.base_dtype
        inverse = raw.Reciprocal(raw.Complex(raw.Imag(x, Tout=real), raw.Real(x, Tout=real), Tout=kind))
        return -raw.Complex(dy, raw.ZerosLike(dy), Tout=kind) * inverse

    samples = _SAMPLES


@op("Conj(input: T) -> output: T", T="type in {complex64,complex128,variant} = complex64")
class Conj(_Part):
    """The complex conjugate: the imaginary part with the other sign."""

    overwrites = (0,)

    def compute(self, k: KernelContext, input: Any, out: Any = None) -> Any:
        return k.xp.conjugate(input, out)

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        return raw.Conj(dy)

    samples = [
        sample(normal(3, 4, dtype="complex64")),
        sample(normal(dtype="complex128")),
        sample(empty(0, dtype="complex64")),
    ]
