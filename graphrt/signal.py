"""tf.signal: frames of signals, their spectra, and the windows and filters that go with them.

Lengths (of frames, steps, windows) are known when the graph is built; sizes of signals need not be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt.api.array_shape import roll
from graphrt.core import raw
from graphrt.core.constant_value import constant_value
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import DType, as_dtype, complex64, float32, int32
from graphrt.core.tensor import Tensor
from graphrt.ops.array_nodes import rank_of, shape_of
from graphrt.ops.special_functions import bessel_i0e
from graphrt.spectral import (
    dct,
    fft,
    fft2d,
    fft3d,
    idct,
    ifft,
    ifft2d,
    ifft3d,
    irfft,
    irfft2d,
    irfft3d,
    rfft,
    rfft2d,
    rfft3d,
)

Window = Callable[..., Tensor]


def _length(value: Any, what: str) -> int:
    """A length as an int. Raises ValueError where it is known only in a step, or is below 1."""
    known = constant_value(value) if isinstance(value, Tensor) else value
    if known is None:
        raise ValueError(f"{what} must be known when the graph is built, and '{value.name}' is not")
    if np.ndim(known) or int(known) < 1:
        raise ValueError(f"{what} must be a positive integer, not {known}")
    return int(known)


def _window(name: str | None, default_name: str, values: np.ndarray, dtype: Any) -> Tensor:
    kind = as_dtype(dtype).base_dtype
    if not kind.is_floating:
        raise ValueError(f"dtype must be a floating point type. Found {kind!r}")
    return raw.Const(value=values.astype(kind.np), dtype=kind, name=name or default_name)


def _raised_cosine(length: Any, periodic: bool, high: float, low: float) -> np.ndarray:
    n = _length(length, "window_length")
    if n == 1:
        return np.ones(1)
    # A periodic window of even length leaves out the last sample, which is the first of the next period.
    period = n if periodic and n % 2 == 0 else n - 1
    return high - low * np.cos(2 * np.pi * np.arange(n) / period)


def hann_window(
    window_length: Any, periodic: bool = True, dtype: DType = float32, name: str | None = None
) -> Tensor:
    """The Hann window, 0.5 - 0.5 cos: `periodic` for spectra, not for filters."""
    return _window(name, "hann_window", _raised_cosine(window_length, periodic, 0.5, 0.5), dtype)


def hamming_window(
    window_length: Any, periodic: bool = True, dtype: DType = float32, name: str | None = None
) -> Tensor:
    """The Hamming window, 0.54 - 0.46 cos."""
    return _window(name, "hamming_window", _raised_cosine(window_length, periodic, 0.54, 0.46), dtype)


def _kaiser(n: int, beta: float) -> np.ndarray:
    if n == 1:
        return np.ones(1)
    half = (n - 1) / 2
    x = beta * np.sqrt(np.maximum(1 - ((np.arange(n) - half) / half) ** 2, 0))
    return np.exp(x - beta) * bessel_i0e(np, x) / bessel_i0e(np, np.array([float(beta)]))


def kaiser_window(
    window_length: Any, beta: float = 12.0, dtype: DType = float32, name: str | None = None
) -> Tensor:
    """The Kaiser window; a larger `beta` makes it narrower."""
    return _window(name, "kaiser_window", _kaiser(_length(window_length, "window_length"), beta), dtype)


def kaiser_bessel_derived_window(
    window_length: Any, beta: float = 12.0, dtype: DType = float32, name: str | None = None
) -> Tensor:
    """The window of running sums of a Kaiser window, whose squared overlaps by half add up to 1."""
    total = np.cumsum(_kaiser(_length(window_length, "window_length") // 2 + 1, beta))
    half = np.sqrt(total[:-1] / total[-1])
    return _window(name, "kaiser_bessel_derived_window", np.concatenate([half, half[::-1]]), dtype)


def vorbis_window(window_length: Any, dtype: DType = float32, name: str | None = None) -> Tensor:
    """Vorbis's window, sin(pi / 2 sin^2), whose squared overlaps by half add up to 1."""
    n = _length(window_length, "window_length")
    made = np.sin(np.pi / 2 * np.sin(np.pi / n * (np.arange(n) + 0.5)) ** 2)
    return _window(name, "vorbis_window", made, dtype)


def frame(
    signal: Any,
    frame_length: Any,
    frame_step: Any,
    pad_end: bool = False,
    pad_value: Any = 0,
    axis: int = -1,
    name: str | None = None,
) -> Tensor:
    """Frames of `frame_length`, one every `frame_step`, in place of `axis`: [..., n] becomes [..., frames,
    length].

    Args:
      signal: tensor of known rank.
      pad_end: the end is padded with `pad_value`, so that every step begins a frame; else it is cut.
    """
    with name_scope(name, "frame", [signal]):
        x = convert_to_tensor(signal, name="signal")
        length, step = _length(frame_length, "frame_length"), _length(frame_step, "frame_step")
        sizes = x.shape.with_rank_at_least(1).sizes
        if sizes is None or not -len(sizes) <= axis < len(sizes):
            raise ValueError(f"frame: axis {axis} is not one of a signal of shape {x.shape}")
        at = axis % len(sizes)
        n: Any = sizes[at] if sizes[at] is not None else raw.Shape(x)[at]
        if pad_end:
            count: Any = -(-n // step)
            missing = length + step * (count - 1) - n
            missing = raw.Maximum(missing, 0) if isinstance(missing, Tensor) else max(missing, 0)
            paddings = [[0, 0]] * at + [[0, missing]] + [[0, 0]] * (len(sizes) - at - 1)
            x = raw.PadV2(x, convert_to_tensor(paddings, dtype=int32), np.array(pad_value, x.dtype.np))
        else:
            count = 1 + (n - length) // step
            count = raw.Maximum(count, 0) if isinstance(count, Tensor) else max(count, 0)
        if isinstance(count, Tensor):
            starts = raw.ExpandDims(raw.Range(0, count, 1) * step, 1)
            places = starts + np.arange(length, dtype=np.int32)
        else:
            places = np.arange(count, dtype=np.int32)[:, None] * step + np.arange(length, dtype=np.int32)
        return raw.GatherV2(x, places, at)


def overlap_and_add(signal: Any, frame_step: Any, name: str | None = None) -> Tensor:
    """Frames [..., frames, length], laid `frame_step` apart and added up: [..., (frames - 1) * step +
    length]."""
    with name_scope(name, "overlap_and_add", [signal]):
        x = convert_to_tensor(signal, name="signal")
        step = _length(frame_step, "frame_step")
        x.shape.with_rank_at_least(2)
        shape, rank = shape_of(x), rank_of(x)
        frames, length = shape[-2], shape[-1]
        total = (frames - 1) * step + length
        places = raw.ExpandDims(raw.Range(0, frames, 1) * step, 1) + raw.Range(0, length, 1)
        # The frames' two dimensions come first, where the segments of a sum are.
        order = raw.ConcatV2([raw.Pack([rank - 2, rank - 1]), raw.Range(0, rank - 2, 1)], 0)
        summed = raw.UnsortedSegmentSum(raw.Transpose(x, order), places, raw.Maximum(total, 0))
        back = raw.ConcatV2([raw.Range(1, rank - 1, 1), [0]], 0)
        made = raw.Transpose(summed, back)
        sizes = x.shape.sizes
        if sizes is not None:
            known = None if sizes[-2] is None or sizes[-1] is None else (sizes[-2] - 1) * step + sizes[-1]
            made.set_shape([*sizes[:-2], known])
        return made


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def stft(
    signals: Any,
    frame_length: Any,
    frame_step: Any,
    fft_length: Any = None,
    window_fn: Window | None = hann_window,
    pad_end: bool = False,
    name: str | None = None,
) -> Tensor:
    """Spectra of the frames of signals: [..., n] becomes [..., frames, fft_length // 2 + 1].

    Args:
      signals: float tensor of known rank.
      fft_length: each frame is padded with zeros to it; the next power of two where None.
      window_fn: (frame_length, dtype=...) to the window that frames are multiplied by; None is none.
    """
    with name_scope(name, "stft", [signals]):
        signals = convert_to_tensor(signals, name="signals")
        length = _length(frame_length, "frame_length")
        size = _power_of_two(length) if fft_length is None else _length(fft_length, "fft_length")
        frames = frame(signals, length, frame_step, pad_end=pad_end)
        if window_fn is not None:
            frames = frames * window_fn(length, dtype=frames.dtype.base_dtype)
        return rfft(frames, [size])


def inverse_stft(
    stfts: Any,
    frame_length: Any,
    frame_step: Any,
    fft_length: Any = None,
    window_fn: Window | None = hann_window,
    name: str | None = None,
) -> Tensor:
    """Signals from spectra of frames; exact where `window_fn` is inverse_stft_window_fn(frame_step, the
    window that stft took)."""
    with name_scope(name, "inverse_stft", [stfts]):
        stfts = convert_to_tensor(stfts, name="stfts", dtype_hint=complex64)
        length = _length(frame_length, "frame_length")
        size = _power_of_two(length) if fft_length is None else _length(fft_length, "fft_length")
        frames = irfft(stfts, [size])
        if size > length:
            frames = frames[..., :length]
        elif size < length:
            rank = stfts.shape.rank
            if rank is None:
                raise ValueError("inverse_stft pads frames of spectra of known rank only")
            frames = raw.Pad(frames, np.array([[0, 0]] * (rank - 1) + [[0, length - size]], np.int32))
        if window_fn is not None:
            frames = frames * window_fn(length, dtype=stfts.dtype.real_dtype)
        return overlap_and_add(frames, frame_step)


def inverse_stft_window_fn(
    frame_step: Any, forward_window_fn: Window = hann_window, name: str | None = None
) -> Window:
    """The window function by which inverse_stft undoes a stft with `forward_window_fn`."""

    def window(frame_length: Any, dtype: Any) -> Tensor:
        with name_scope(name, "inverse_stft_window_fn"):
            length, step = _length(frame_length, "frame_length"), _length(frame_step, "frame_step")
            forward = forward_window_fn(length, dtype=dtype)
            overlaps = -(-length // step)
            squares = raw.Pad(raw.Square(forward), np.array([[0, overlaps * step - length]], np.int32))
            total = raw.Sum(raw.Reshape(squares, [overlaps, step]), [0], keep_dims=True)
            total = raw.Reshape(raw.Tile(total, [overlaps, 1]), [overlaps * step])[:length]
            return raw.DivNoNan(forward, total)

    return window


def linear_to_mel_weight_matrix(
    num_mel_bins: int = 20,
    num_spectrogram_bins: int = 129,
    sample_rate: Any = 8000,
    lower_edge_hertz: float = 125.0,
    upper_edge_hertz: float = 3800.0,
    dtype: DType = float32,
    name: str | None = None,
) -> Tensor:
    """The matrix [num_spectrogram_bins, num_mel_bins] that turns a linear spectrogram into one of the mel
    scale.

    Raises:
      ValueError: sizes or frequencies that do not fit.
    """
    rate = constant_value(sample_rate) if isinstance(sample_rate, Tensor) else sample_rate
    if rate is None:
        raise ValueError("sample_rate must be known when the graph is built")
    if num_mel_bins <= 0 or rate <= 0 or lower_edge_hertz < 0 or lower_edge_hertz >= upper_edge_hertz:
        raise ValueError(
            "linear_to_mel_weight_matrix needs num_mel_bins and sample_rate above 0 and 0 <= "
            "lower_edge_hertz < "
            f"upper_edge_hertz, not {num_mel_bins}, {rate}, {lower_edge_hertz}, {upper_edge_hertz}"
        )
    if upper_edge_hertz > rate / 2:
        raise ValueError(
            f"upper_edge_hertz must not be above half the sample rate: {upper_edge_hertz} vs. {rate / 2}"
        )

    def mel(hertz: Any) -> Any:
        return 1127.0 * np.log1p(np.asarray(hertz, np.float64) / 700.0)

    # The bin of frequency 0 has no weight.
    bins = mel(np.linspace(0.0, rate / 2, num_spectrogram_bins)[1:])[:, None]
    edges = np.linspace(mel(lower_edge_hertz), mel(upper_edge_hertz), num_mel_bins + 2)
    low, center, high = edges[:-2], edges[1:-1], edges[2:]
    made = np.maximum(0.0, np.minimum((bins - low) / (center - low), (high - bins) / (high - center)))
    return _window(
        name, "linear_to_mel_weight_matrix", np.concatenate([np.zeros((1, num_mel_bins)), made]), dtype
    )


def mfccs_from_log_mel_spectrograms(log_mel_spectrograms: Any, name: str | None = None) -> Tensor:
    """Mel-frequency cepstral coefficients: the orthonormal cosine transform (but for the first) of the last
    axis."""
    with name_scope(name, "mfccs_from_log_mel_spectrograms", [log_mel_spectrograms]):
        x = convert_to_tensor(log_mel_spectrograms)
        made = dct(x, type=2)
        n = x.shape.sizes[-1]  # type: ignore[index]
        return made * float(1 / np.sqrt(2.0 * n))


def fftshift(x: Any, axes: Any = None, name: str | None = None) -> Tensor:
    """`x` with frequency 0 moved from the front to the middle of `axes` (all, where None)."""
    with name_scope(name, "fftshift", [x]):
        return _shifted(convert_to_tensor(x), axes, forward=True)


def ifftshift(x: Any, axes: Any = None, name: str | None = None) -> Tensor:
    """`x` with frequency 0 moved back from the middle to the front of `axes`; the inverse of fftshift."""
    with name_scope(name, "ifftshift", [x]):
        return _shifted(convert_to_tensor(x), axes, forward=False)


def _shifted(x: Tensor, axes: Any, forward: bool) -> Tensor:
    if axes is None:
        if x.shape.rank is None:
            raise ValueError("fftshift of all axes needs a tensor of known rank")
        axes = range(x.shape.rank)
    picked = [int(a) for a in np.ravel(axes)]
    shape = shape_of(x)
    sizes = raw.GatherV2(shape, np.array([a % x.shape.rank for a in picked], np.int32), 0)
    half = sizes // 2
    return roll(x, half if forward else -half, np.array(picked, np.int32))


__all__ = [
    "dct",
    "fft",
    "fft2d",
    "fft3d",
    "fftshift",
    "frame",
    "hamming_window",
    "hann_window",
    "idct",
    "ifft",
    "ifft2d",
    "ifft3d",
    "ifftshift",
    "inverse_stft",
    "inverse_stft_window_fn",
    "irfft",
    "irfft2d",
    "irfft3d",
    "kaiser_bessel_derived_window",
    "kaiser_window",
    "linear_to_mel_weight_matrix",
    "mfccs_from_log_mel_spectrograms",
    "overlap_and_add",
    "rfft",
    "rfft2d",
    "rfft3d",
    "stft",
    "vorbis_window",
]
