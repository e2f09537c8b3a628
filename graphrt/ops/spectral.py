"""Fourier transforms over the last one, two or three dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import normal, sample
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.core.tensor import Tensor
from graphrt.ops.broadcasting import cast_to

_COMPLEX = "type in {complex64,complex128} = complex64"
_REAL = "type in {float,double} = float"


def _axes(rank: int) -> tuple[int, ...]:
    return tuple(range(-rank, 0))


def _size(x: Tensor, rank: int) -> Tensor:
    """How many elements a transform of the last `rank` dimensions of `x` has, as a number of its dtype."""
    shape = raw.StridedSlice(raw.Shape(x), [-rank], [0], [1], end_mask=1)
    count = raw.Prod(shape, [0])
    kind = x.dtype.base_dtype
    return raw.Cast(cast_to(count, kind.real_dtype if kind.is_complex else kind), DstT=kind)


def _check(x: Any, rank: int, name: str) -> None:
    if x.ndim < rank:
        raise ValueError(f"{name}: Input must have rank of at least {rank} but got: {list(x.shape)}")


class _Complex:
    """Base of the transforms from complex numbers to complex numbers."""

    rank = 1
    inverse = False

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return input.with_rank_at_least(self.rank)

    def compute(self, k: KernelContext, input: Any) -> Any:
        _check(input, self.rank, k.type)
        transform = k.xp.fft.ifftn if self.inverse else k.xp.fft.fftn
        return transform(input, axes=_axes(self.rank)).astype(k.dtype, copy=False)

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        other = getattr(raw, op.type[1:] if self.inverse else "I" + op.type)(dy)
        size = _size(dy, self.rank)
        return other / size if self.inverse else other * size

    samples = [
        sample(normal(4, 6, 5, dtype="complex64"), rtol=1e-4, atol=1e-4),
        sample(normal(4, 3, 5, dtype="complex128")),
    ]


class _ToComplex:
    """Base of the transforms of real numbers: of the last dimension only the first half, n // 2 + 1, is
    kept."""

    rank = 1
    host_inputs = (1,)

    def shape(self, s: ShapeContext, input: TensorShape, fft_length: TensorShape) -> TensorShape:
        fft_length.merge_with(TensorShape.of((self.rank,)))
        input = input.with_rank_at_least(self.rank)
        if input.sizes is None:
            return UNKNOWN
        sizes = s.partial(1).sizes
        last = sizes[-1]  # type: ignore[index]
        return TensorShape.of(
            (*input.sizes[: -self.rank], *sizes[:-1], None if last is None else last // 2 + 1)
        )  # type: ignore[index]

    def compute(self, k: KernelContext, input: Any, fft_length: Any) -> Any:
        _check(input, self.rank, k.type)
        sizes = tuple(fft_length.tolist())
        for have, want in zip(input.shape[-self.rank :], sizes):
            if have < want:
                raise ValueError(
                    f"{k.type}: Input dimension must have length of at least {want} but got: {have}. "
                    "tf.signal.rfft pads it"
                )
        return k.xp.fft.rfftn(input, sizes, _axes(self.rank)).astype(k.dtype, copy=False)

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        # y_k sums x_j exp(-2 pi i j k / n): dx is the real part of the inverse sum over the half that was
        # kept.
        x, fft_length = op.inputs
        missing = fft_length - raw.StridedSlice(raw.Shape(dy), [-self.rank], [0], [1], end_mask=1)
        whole = _pad_end(dy, missing)
        made = getattr(raw, "I" + op.type[1:])(whole)
        made = raw.Real(made * _size(whole, self.rank), Tout=x.dtype.base_dtype)
        cropped = raw.StridedSlice(raw.Shape(x), [-self.rank], [0], [1], end_mask=1) - fft_length
        return [_pad_end(made, cropped), None]

    samples: list[Any] = []


class _ToReal:
    """Base of the inverse transforms to real numbers, from the half that the forward transform keeps."""

    rank = 1
    host_inputs = (1,)

    def shape(self, s: ShapeContext, input: TensorShape, fft_length: TensorShape) -> TensorShape:
        fft_length.merge_with(TensorShape.of((self.rank,)))
        input = input.with_rank_at_least(self.rank)
        if input.sizes is None:
            return UNKNOWN
        return TensorShape.of((*input.sizes[: -self.rank], *s.partial(1).sizes))  # type: ignore[misc]

    def compute(self, k: KernelContext, input: Any, fft_length: Any) -> Any:
        _check(input, self.rank, k.type)
        sizes = fft_length.tolist()
        needed = (*sizes[:-1], sizes[-1] // 2 + 1 if sizes[-1] else 0)
        for have, want in zip(input.shape[-self.rank :], needed):
            if have < want:
                raise ValueError(
                    f"{k.type}: Input dimension must have length of at least {want} but got: {have}. "
                    "tf.signal.irfft pads it"
                )
        input = input[(..., *(slice(0, n) for n in needed))]
        if not all(sizes):
            return k.xp.zeros((*input.shape[: -self.rank], *sizes), k.dtype)
        return k.xp.fft.irfftn(input, sizes, _axes(self.rank)).astype(k.dtype, copy=False)

    def gradient(self, op: Any, dx: Tensor) -> list[Tensor | None]:
        # Each frequency but the first, and the middle one of an even length, stands for two.
        y, fft_length = op.inputs
        made = getattr(raw, op.type[1:])(dx, fft_length, Tcomplex=y.dtype.base_dtype)
        n = raw.StridedSlice(fft_length, [-1], [0], [1], end_mask=1, shrink_axis_mask=1)
        at = raw.Range(0, n // 2 + 1, 1)
        single = raw.LogicalOr(raw.Equal(at, 0), raw.Equal(at * 2, n))
        weights = raw.SelectV2(single, np.ones((), dx.dtype.np), np.full((), 2, dx.dtype.np))
        size = _size(dx, self.rank)
        made = made * raw.Cast(weights / size, DstT=y.dtype.base_dtype)
        kept = raw.ConcatV2(
            [raw.StridedSlice(fft_length, [0], [-1], [1], begin_mask=1), raw.Reshape(n // 2 + 1, [1])], 0
        )
        cropped = raw.StridedSlice(raw.Shape(y), [-self.rank], [0], [1], end_mask=1) - kept
        return [_pad_end(made, cropped), None]

    samples: list[Any] = []


def _pad_end(x: Tensor, after: Tensor) -> Tensor:
    """`x` with zeros after its last dimensions, as many as the vector `after` says for each."""
    zeros = raw.Fill(raw.ExpandDims(raw.Rank(x) - raw.Size(after), 0), 0)
    paddings = raw.ConcatV2([zeros, after], 0)
    return raw.Pad(x, raw.Pack([raw.ZerosLike(paddings), paddings], axis=1))


@op("FFT(input: Tcomplex) -> output: Tcomplex", Tcomplex=_COMPLEX)
class FFT(_Complex):
    """The Fourier transform of the last dimension."""


@op("IFFT(input: Tcomplex) -> output: Tcomplex", Tcomplex=_COMPLEX)
class IFFT(_Complex):
    """The inverse Fourier transform of the last dimension."""

    inverse = True


@op("FFT2D(input: Tcomplex) -> output: Tcomplex", Tcomplex=_COMPLEX)
class FFT2D(_Complex):
    """The Fourier transform of the last two dimensions."""

    rank = 2


@op("IFFT2D(input: Tcomplex) -> output: Tcomplex", Tcomplex=_COMPLEX)
class IFFT2D(_Complex):
    """The inverse Fourier transform of the last two dimensions."""

    rank, inverse = 2, True


@op("FFT3D(input: Tcomplex) -> output: Tcomplex", Tcomplex=_COMPLEX)
class FFT3D(_Complex):
    """The Fourier transform of the last three dimensions."""

    rank = 3


@op("IFFT3D(input: Tcomplex) -> output: Tcomplex", Tcomplex=_COMPLEX)
class IFFT3D(_Complex):
    """The inverse Fourier transform of the last three dimensions."""

    rank, inverse = 3, True


@op("RFFT(input: Treal, fft_length: int32) -> output: Tcomplex", Treal=_REAL, Tcomplex=_COMPLEX)
class RFFT(_ToComplex):
    """The Fourier transform of the last dimension of real numbers."""

    samples = [
        sample(normal(2, 8), [8], rtol=1e-5, atol=1e-5),
        sample(normal(2, 7), [7], rtol=1e-5, atol=1e-5),
        sample(normal(2, 9), [6], gradient=False, why="crops", rtol=1e-5, atol=1e-5),
        sample(normal(2, 8, dtype="float64"), [8], Tcomplex="complex128", gradient=False),
    ]


@op("IRFFT(input: Tcomplex, fft_length: int32) -> output: Treal", Treal=_REAL, Tcomplex=_COMPLEX)
class IRFFT(_ToReal):
    """The inverse of RFFT."""

    samples = [
        sample(normal(2, 5, dtype="complex64"), [8], rtol=1e-5, atol=1e-5),
        sample(normal(2, 4, dtype="complex64"), [7], rtol=1e-5, atol=1e-5),
        sample(normal(2, 8, dtype="complex64"), [6], gradient=False, why="crops", rtol=1e-5, atol=1e-5),
    ]


@op("RFFT2D(input: Treal, fft_length: int32) -> output: Tcomplex", Treal=_REAL, Tcomplex=_COMPLEX)
class RFFT2D(_ToComplex):
    """The Fourier transform of the last two dimensions of real numbers."""

    rank = 2
    samples = [
        sample(normal(2, 4, 6), [4, 6], rtol=1e-5, atol=1e-5),
        sample(normal(5, 7), [5, 7], rtol=1e-5, atol=1e-5),
    ]


@op("IRFFT2D(input: Tcomplex, fft_length: int32) -> output: Treal", Treal=_REAL, Tcomplex=_COMPLEX)
class IRFFT2D(_ToReal):
    """The inverse of RFFT2D."""

    rank = 2
    samples = [
        sample(normal(2, 4, 4, dtype="complex64"), [4, 6], rtol=1e-5, atol=1e-5),
        sample(normal(5, 4, dtype="complex64"), [5, 7], rtol=1e-5, atol=1e-5),
    ]


@op("RFFT3D(input: Treal, fft_length: int32) -> output: Tcomplex", Treal=_REAL, Tcomplex=_COMPLEX)
class RFFT3D(_ToComplex):
    """The Fourier transform of the last three dimensions of real numbers."""

    rank = 3
    samples = [sample(normal(2, 4, 3, 6), [4, 3, 6], gradient=False, rtol=1e-5, atol=1e-5)]


@op("IRFFT3D(input: Tcomplex, fft_length: int32) -> output: Treal", Treal=_REAL, Tcomplex=_COMPLEX)
class IRFFT3D(_ToReal):
    """The inverse of RFFT3D."""

    rank = 3
    samples = [sample(normal(2, 4, 3, 4, dtype="complex64"), [4, 3, 6], gradient=False, rtol=1e-5, atol=1e-5)]
