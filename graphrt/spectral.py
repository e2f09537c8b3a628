"""tf.spectral: Fourier and cosine transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import complex64, complex128, float32, float64, int32
from graphrt.core.registry import OPS
from graphrt.core.tensor import Tensor


def _complex(name: str, op_name: str, what: str) -> Callable[..., Tensor]:
    op_def = OPS[op_name]

    def function(input: Any, name: str | None = None) -> Tensor:
        return op_def(input, name=name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{what}\n\n    Args:\n      input: tensor, complex64 or complex128.\n    "
    return function


fft = _complex("fft", "FFT", "The Fourier transform of the last dimension.")
ifft = _complex("ifft", "IFFT", "The inverse Fourier transform of the last dimension.")
fft2d = _complex("fft2d", "FFT2D", "The Fourier transform of the last two dimensions.")
ifft2d = _complex("ifft2d", "IFFT2D", "The inverse Fourier transform of the last two dimensions.")
fft3d = _complex("fft3d", "FFT3D", "The Fourier transform of the last three dimensions.")
ifft3d = _complex("ifft3d", "IFFT3D", "The inverse Fourier transform of the last three dimensions.")


def _lengths(x: Tensor, rank: int, to_real: bool) -> Any:
    """The transform's length where none was given: the input's sizes, or what they are half of."""
    sizes = x.shape.sizes
    if sizes is not None and None not in sizes[-rank:]:
        made = np.array(sizes[-rank:], np.int32)
        if to_real and made.size:
            made[-1] = max(0, 2 * (int(made[-1]) - 1))
        return made
    shape = raw.StridedSlice(raw.Shape(x), [-rank], [0], [1], end_mask=1)
    if not to_real:
        return shape
    halved = np.array([*[0] * (rank - 1), 1], np.int32)
    return raw.Maximum(shape * (1 + halved) - 2 * halved, 0)


def _padded(x: Tensor, rank: int, lengths: Tensor, to_real: bool) -> Tensor:
    """`x` with zeros at the end of its last dimensions, where they are shorter than the transform."""
    from graphrt.core.constant_value import constant_value

    known, sizes = constant_value(lengths), x.shape.sizes
    if known is not None and sizes is not None and None not in sizes[-rank:]:
        needed = known.tolist()
        if to_real:
            needed[-1] = needed[-1] // 2 + 1
        missing = [max(n - s, 0) for n, s in zip(needed, sizes[-rank:])]
        if not any(missing):
            return x
        return raw.Pad(x, np.array([[0, 0]] * (len(sizes) - rank) + [[0, m] for m in missing], np.int32))
    if to_real:
        halved = np.array([*[0] * (rank - 1), 1], np.int32)
        lengths = lengths // (1 + halved) + halved
    missing_ = raw.Maximum(lengths - raw.StridedSlice(raw.Shape(x), [-rank], [0], [1], end_mask=1), 0)
    zeros = raw.Fill(raw.ExpandDims(raw.Rank(x) - rank, 0), 0)
    after = raw.ConcatV2([zeros, missing_], 0)
    return raw.Pad(x, raw.Pack([raw.ZerosLike(after), after], axis=1))


def _real(name: str, op_name: str, rank: int, to_real: bool, what: str) -> Callable[..., Tensor]:
    op_def = OPS[op_name]

    def function(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
        with name_scope(name, op_def.name.lower(), [input_tensor, fft_length]) as scope:
            x = convert_to_tensor(input_tensor, dtype_hint=complex64 if to_real else float32)
            x.shape.with_rank_at_least(rank)
            lengths = convert_to_tensor(
                _lengths(x, rank, to_real) if fft_length is None else fft_length, dtype=int32
            )
            x = _padded(x, rank, lengths, to_real)
            is_double = x.dtype.base_dtype in (float64, complex128)
            if to_real:
                return op_def(x, lengths, Treal=float64 if is_double else float32, name=scope)
            return op_def(x, lengths, Tcomplex=complex128 if is_double else complex64, name=scope)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{what}\n\n    Args:\n      input_tensor: tensor, "
        f"{'complex64 or complex128' if to_real else 'float32 or float64'}.\n"
        f"      fft_length: int vector of {rank}: the transform's length; the input is cropped or padded "
        "with zeros to it.\n    "
    )
    return function


rfft = _real(
    "rfft",
    "RFFT",
    1,
    False,
    "The Fourier transform of the last dimension of real numbers: its first half, n // 2 + 1.",
)
irfft = _real("irfft", "IRFFT", 1, True, "The inverse of rfft.")
rfft2d = _real(
    "rfft2d", "RFFT2D", 2, False, "The Fourier transform of the last two dimensions of real numbers."
)
irfft2d = _real("irfft2d", "IRFFT2D", 2, True, "The inverse of rfft2d.")
rfft3d = _real(
    "rfft3d", "RFFT3D", 3, False, "The Fourier transform of the last three dimensions of real numbers."
)
irfft3d = _real("irfft3d", "IRFFT3D", 3, True, "The inverse of rfft3d.")


def dct(
    input: Any,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    name: str | None = None,
) -> Tensor:
    """The discrete cosine transform of the last dimension.

    Args:
      input: float tensor whose last size is known.
      type: 1, 2, 3 or 4.
      n: the length: the input is cropped or padded with zeros to it.
      norm: None, or 'ortho' for the orthonormal transform (not type 1).
    Raises:
      ValueError: an argument that is not among these.
    """
    with name_scope(name, "dct", [input]):
        x = _dct_input(convert_to_tensor(input, dtype_hint=float32), type, n, axis, norm)
        return _TYPES[type](x, x.shape.sizes[-1], norm == "ortho")  # type: ignore[index]


def idct(
    input: Any,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    name: str | None = None,
) -> Tensor:
    """The inverse of dct, up to the factor 2 n without norm='ortho', as TensorFlow has it. Arguments as
    dct's."""
    if n is not None:
        raise ValueError("idct: `n` must be None: pad or crop the input")
    inverse = {1: 1, 2: 3, 3: 2, 4: 4}.get(type)
    if inverse is None:
        raise ValueError(f"Types I, II, III and IV (I)DCT are supported, not {type}")
    return dct(input, inverse, None, axis, norm, name)


def _dct_input(x: Tensor, type: int, n: int | None, axis: int, norm: str | None) -> Tensor:
    if axis != -1:
        raise ValueError(f"axis must be -1. Got: {axis}")
    if norm not in (None, "ortho"):
        raise ValueError(f"Unknown normalization. Got: {norm}: None or 'ortho'")
    if type not in (1, 2, 3, 4):
        raise ValueError(f"Types I, II, III and IV (I)DCT are supported, not {type}")
    if type == 1 and norm == "ortho":
        raise ValueError("Normalization is not supported for the Type-I DCT.")
    sizes = x.shape.with_rank_at_least(1).sizes
    if sizes is None or sizes[-1] is None:
        raise ValueError(f"dct needs an input whose last size is known, not shape {x.shape}")
    if n is not None and n != sizes[-1]:
        if n < 1:
            raise ValueError("n should be a positive integer or None")
        if n < sizes[-1]:
            x = x[..., :n]
        else:
            x = raw.Pad(x, np.array([[0, 0]] * (len(sizes) - 1) + [[0, n - sizes[-1]]], np.int32))
    if type == 1 and x.shape.sizes[-1] < 2:  # type: ignore[index,operator]
        raise ValueError("Type-I DCT requires a dimension greater than one.")
    return x


def _half_spectrum(x: Tensor, length: int, kept: int) -> Tensor:
    """The first `kept` terms of the Fourier transform of `x` padded with zeros to `length`, turned half a
    step each, doubled."""
    spectrum = rfft(x, fft_length=[length])[..., :kept]
    kind = complex128 if x.dtype.base_dtype is float64 else complex64
    turn = 2 * np.exp(-1j * np.pi * np.arange(kept) / length)
    return raw.Real(spectrum * turn.astype(kind.np), Tout=x.dtype.base_dtype)


def _dct_1(x: Tensor, n: int, ortho: bool) -> Tensor:
    mirrored = raw.ConcatV2([x, x[..., -2:0:-1]], -1)
    return raw.Real(rfft(mirrored), Tout=x.dtype.base_dtype)


def _dct_2(x: Tensor, n: int, ortho: bool) -> Tensor:
    made = _half_spectrum(x, 2 * n, n)
    return made * _weights(x, n, 0.5 / np.sqrt(n), np.sqrt(0.5 / n)) if ortho else made


def _dct_3(x: Tensor, n: int, ortho: bool) -> Tensor:
    x = x * (_weights(x, n, np.sqrt(n), np.sqrt(n / 2)) if ortho else n)
    kind = complex128 if x.dtype.base_dtype is float64 else complex64
    turn = 2 * np.exp(1j * np.pi * np.arange(n) / (2 * n))
    spectrum = raw.Complex(x, raw.ZerosLike(x), Tout=kind) * turn.astype(kind.np)
    return irfft(spectrum, fft_length=[2 * n])[..., :n]


def _dct_4(x: Tensor, n: int, ortho: bool) -> Tensor:
    made = _half_spectrum(x, 4 * n, 2 * n)[..., 1::2]
    return made * float(np.sqrt(0.5 / n)) if ortho else made


_TYPES = {1: _dct_1, 2: _dct_2, 3: _dct_3, 4: _dct_4}


def _weights(x: Tensor, n: int, first: float, others: float) -> np.ndarray:
    made = np.full(n, others, x.dtype.np)
    made[0] = first
    return made


__all__ = [
    "dct",
    "fft",
    "fft2d",
    "fft3d",
    "idct",
    "ifft",
    "ifft2d",
    "ifft3d",
    "irfft",
    "irfft2d",
    "irfft3d",
    "rfft",
    "rfft2d",
    "rfft3d",
]
