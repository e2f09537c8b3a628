"""Convolution and its two gradients, plain, grouped and depthwise, over any number of spatial dimensions.

Layouts are TensorFlow's: activations [batch, *spatial, channels], or [batch, channels, *spatial] with
`channels_first`; filters [*kernel, channels / groups, outputs]; depthwise filters [*kernel, channels,
multiplier], whose output channel c * multiplier + m comes from input channel c.

float32 on a CPU goes to oneDNN (`onednn_primitives.py`) where it is there; the choice hangs on dtype and
shapes only, so that equal inputs give equal bits. Everything else is array code for `xp`, numpy or cupy:
patches by as_strided, a matrix product, blocks over the batch so that the patch matrix stays small. 16-bit
floats are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from graphrt.core import onednn_primitives
from graphrt.core.windows import Window

Array = Any

BLOCK_BYTES = 2 << 20
"""Size of a patch matrix on the CPU: it stays in the cache between its filling and its product."""
GPU_BLOCK_BYTES = 256 << 20


def conv(
    x: Array,
    w: Array,
    window: Window,
    *,
    channels_first: bool = False,
    out: Array | None = None,
    xp: Any = np,
) -> Array:
    """The convolution (cross-correlation, as in TensorFlow) of x with w.

    Args:
      window: over the spatial sizes of x, with the kernel sizes of w.
      out: a contiguous array for the result.
    Raises:
      ValueError: x's channels are not a multiple of w's, or w's outputs not of the groups.
    """
    batch, channels = _batch_and_channels(x.shape, channels_first)
    groups = _groups(channels, w.shape)
    out = result_array(out, _shape(batch, window.output, w.shape[-1], channels_first), x.dtype, xp)
    if onednn_did(xp, onednn_primitives.convolution, (x, w), window, out, channels_first):
        return out
    x, y = _channels_last(xp, channels_first, x, out)
    number = accumulator(x.dtype)
    filters = _filter_matrices(w.astype(number, copy=False), groups)
    for images, rows, patches in _patches(x, window, number, xp):
        part = y[images, rows]
        for group, matrix in enumerate(filters):
            columns = _columns(patches, channels // groups, group)
            values = xp.matmul(columns, matrix)
            part[..., _span(group, matrix.shape[1])] = values.reshape(*part.shape[:-1], -1)
    return out


def conv_input_gradient(
    dy: Array,
    w: Array,
    window: Window,
    x_shape: Sequence[int],
    *,
    channels_first: bool = False,
    out: Array | None = None,
    xp: Any = np,
) -> Array:
    """The gradient of conv(x, w) by x, of shape `x_shape`, for the gradient dy by the output.

    Raises:
      ValueError: the shapes do not belong to one convolution.
    """
    batch, channels = _batch_and_channels(x_shape, channels_first)
    groups = _groups(channels, w.shape)
    _check_output(dy, _shape(batch, window.output, w.shape[-1], channels_first))
    out = result_array(out, x_shape, dy.dtype, xp)
    if onednn_did(xp, onednn_primitives.convolution_input_gradient, (dy, w), window, out, channels_first):
        return out
    dx, dy = _channels_last(xp, channels_first, out, dy)
    number = accumulator(dx.dtype)
    total = dx if dx.dtype == number else xp.empty(dx.shape, number)
    total[...] = 0
    filters = _filter_matrices(w.astype(number, copy=False), groups)
    size = channels // groups
    for images, rows in _blocks(window, batch, channels * number.itemsize, xp):
        block = dy[images, rows]
        for group, matrix in enumerate(filters):
            gradient = block[..., _span(group, matrix.shape[1])].astype(number, copy=False)
            columns = xp.matmul(gradient.reshape(-1, matrix.shape[1]), matrix.T)
            columns = columns.reshape(*block.shape[:-1], -1, size)
            for tap, inside, positions in _taps_of_rows(window, rows):
                total[(images, *inside, _span(group, size))] += columns[(slice(None), *positions, tap)]
    if total is not dx:
        dx[...] = total
    return out


def conv_filter_gradient(
    x: Array,
    dy: Array,
    window: Window,
    w_shape: Sequence[int],
    *,
    channels_first: bool = False,
    out: Array | None = None,
    xp: Any = np,
) -> Array:
    """The gradient of conv(x, w) by w, of shape `w_shape`, for the gradient dy by the output.

    Raises:
      ValueError: the shapes do not belong to one convolution.
    """
    batch, channels = _batch_and_channels(x.shape, channels_first)
    groups = _groups(channels, w_shape)
    _check_output(dy, _shape(batch, window.output, w_shape[-1], channels_first))
    out = result_array(out, w_shape, x.dtype, xp)
    if onednn_did(xp, onednn_primitives.convolution_filter_gradient, (x, dy), window, out, channels_first):
        return out
    x, dy = _channels_last(xp, channels_first, x, dy)
    number = accumulator(x.dtype)
    outputs = w_shape[-1] // groups
    total = xp.zeros((groups, prod(w_shape[:-1]), outputs), number)
    for images, rows, patches in _patches(x, window, number, xp):
        gradient = dy[images, rows].astype(number, copy=False)
        for group in range(groups):
            columns = _columns(patches, channels // groups, group)
            total[group] += xp.matmul(columns.T, gradient[..., _span(group, outputs)].reshape(-1, outputs))
    out[...] = xp.moveaxis(total, 0, 1).reshape(w_shape)
    return out


def depthwise_conv(
    x: Array,
    w: Array,
    window: Window,
    *,
    channels_first: bool = False,
    out: Array | None = None,
    xp: Any = np,
) -> Array:
    """Each channel of x convolved with its own filters: output channel c * multiplier + m has w[..., c, m].

    Raises:
      ValueError: x and w differ in their channels.
    """
    batch, channels = _batch_and_channels(x.shape, channels_first)
    multiplier = _multiplier(channels, w.shape)
    out = result_array(out, _shape(batch, window.output, channels * multiplier, channels_first), x.dtype, xp)
    if onednn_did(xp, onednn_primitives.convolution, (x, w), window, out, channels_first, depthwise=True):
        return out
    x, y = _channels_last(xp, channels_first, x, out)
    number = accumulator(x.dtype)
    filters = w.astype(number, copy=False).reshape(-1, channels, multiplier)
    for images in _image_blocks(batch, prod(window.output) * channels * multiplier * number.itemsize, xp):
        block = x[images].astype(number, copy=False)[..., None]
        total = xp.zeros((block.shape[0], *window.output, channels, multiplier), number)
        for tap, inside, positions in window.taps():
            total[(slice(None), *positions)] += block[(slice(None), *inside)] * filters[tap]
        y[images] = total.reshape(block.shape[0], *window.output, -1)
    return out


def depthwise_conv_input_gradient(
    dy: Array,
    w: Array,
    window: Window,
    x_shape: Sequence[int],
    *,
    channels_first: bool = False,
    out: Array | None = None,
    xp: Any = np,
) -> Array:
    """The gradient of depthwise_conv(x, w) by x, of shape `x_shape`, for the gradient dy by the output."""
    batch, channels = _batch_and_channels(x_shape, channels_first)
    multiplier = _multiplier(channels, w.shape)
    _check_output(dy, _shape(batch, window.output, channels * multiplier, channels_first))
    out = result_array(out, x_shape, dy.dtype, xp)
    if onednn_did(
        xp, onednn_primitives.convolution_input_gradient, (dy, w), window, out, channels_first, depthwise=True
    ):
        return out
    dx, dy = _channels_last(xp, channels_first, out, dy)
    number = accumulator(dx.dtype)
    filters = w.astype(number, copy=False).reshape(-1, channels, multiplier)
    for images in _image_blocks(batch, prod(window.output) * channels * multiplier * number.itemsize, xp):
        gradient = _per_channel(dy[images].astype(number, copy=False), channels)
        total = xp.zeros(dx[images].shape, number)
        for tap, inside, positions in window.taps():
            total[(slice(None), *inside)] += (gradient[(slice(None), *positions)] * filters[tap]).sum(-1)
        dx[images] = total
    return out


def depthwise_conv_filter_gradient(
    x: Array,
    dy: Array,
    window: Window,
    w_shape: Sequence[int],
    *,
    channels_first: bool = False,
    out: Array | None = None,
    xp: Any = np,
) -> Array:
    """The gradient of depthwise_conv(x, w) by w, of shape `w_shape`, for the gradient dy by the output."""
    batch, channels = _batch_and_channels(x.shape, channels_first)
    multiplier = _multiplier(channels, w_shape)
    _check_output(dy, _shape(batch, window.output, channels * multiplier, channels_first))
    out = result_array(out, w_shape, x.dtype, xp)
    if onednn_did(
        xp,
        onednn_primitives.convolution_filter_gradient,
        (x, dy),
        window,
        out,
        channels_first,
        depthwise=True,
    ):
        return out
    x, dy = _channels_last(xp, channels_first, x, dy)
    number = accumulator(x.dtype)
    total = xp.zeros((prod(window.kernel), channels, multiplier), number)
    places = "nxyz"[: x.ndim - 1]
    for images in _image_blocks(batch, prod(window.output) * channels * multiplier * number.itemsize, xp):
        block = x[images].astype(number, copy=False)
        gradient = _per_channel(dy[images].astype(number, copy=False), channels)
        for tap, inside, positions in window.taps():
            seen, produced = block[(slice(None), *inside)], gradient[(slice(None), *positions)]
            total[tap] += xp.einsum(f"{places}c,{places}cm->cm", seen, produced)
    out[...] = total.reshape(w_shape)
    return out


def onednn_did(
    xp: Any,
    function: Callable[..., bool],
    arrays: Sequence[Array],
    window: Window,
    out: Array,
    channels_first: bool,
    **options: bool,
) -> bool:
    """Let a function of onednn_primitives fill `out`, where it is for it; whether it did."""
    if (
        not in_host_memory(xp)
        or out.dtype != np.float32
        or not out.size
        or not all(array.size for array in arrays)
    ):
        return False
    return function(*map(np.ascontiguousarray, arrays), window, out, channels_first=channels_first, **options)


def in_host_memory(xp: Any) -> bool:
    """Whether arrays of `xp` lie in host memory: NumPy's, and a simulated GPU's, which gives NumPy's bits."""
    return xp is np or getattr(xp, "is_simulated", False)


def result_array(out: Array | None, shape: Sequence[int], dtype: Any, xp: Any) -> Array:
    """`out`, checked, or a new array."""
    if out is None:
        return xp.empty(tuple(shape), dtype)
    if out.shape != tuple(shape) or out.dtype != dtype or not out.flags.c_contiguous:
        raise ValueError(
            f"out must be a contiguous {dtype} array of shape {tuple(shape)}, "
            f"got {out.dtype} of shape {out.shape}"
        )
    return out


def accumulator(dtype: Any) -> np.dtype:
    """The dtype to add in: float32 for 16-bit floats, else the array's own."""
    return np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else np.dtype(dtype)


def _batch_and_channels(shape: Sequence[int], channels_first: bool) -> tuple[int, int]:
    return shape[0], shape[1 if channels_first else -1]


def _shape(batch: int, spatial: Sequence[int], channels: int, channels_first: bool) -> tuple[int, ...]:
    return (batch, channels, *spatial) if channels_first else (batch, *spatial, channels)


def _groups(channels: int, w_shape: Sequence[int]) -> int:
    *_, inner, outputs = w_shape
    if inner == 0 or channels % inner or outputs % max(channels // inner, 1):
        raise ValueError(
            f"An input of {channels} channels does not go with a filter of {inner} input "
            f"and {outputs} output channels: the input channels must be a multiple "
            "of the filter's, and the outputs a multiple of their quotient."
        )
    return channels // inner


def _multiplier(channels: int, w_shape: Sequence[int]) -> int:
    if w_shape[-2] != channels:
        raise ValueError(
            f"A depthwise filter for {w_shape[-2]} channels does not go with an input of {channels}."
        )
    return w_shape[-1]


def _check_output(dy: Array, expected: tuple[int, ...]) -> None:
    if dy.shape != expected:
        raise ValueError(
            f"The output's gradient has shape {list(dy.shape)}, but the "
            f"convolution of these sizes has the output shape {list(expected)}."
        )


def _channels_last(xp: Any, channels_first: bool, *arrays: Array) -> list[Array]:
    return [xp.moveaxis(array, 1, -1) if channels_first else array for array in arrays]


def _filter_matrices(w: Array, groups: int) -> list[Array]:
    """One [kernel elements * channels, outputs] matrix for each group."""
    matrix = w.reshape(-1, w.shape[-1])
    outputs = w.shape[-1] // groups if groups else 0
    return [matrix[:, _span(group, outputs)] for group in range(groups)]


def _span(number: int, size: int) -> slice:
    return slice(number * size, (number + 1) * size)


def _columns(patches: Array, size: int, group: int) -> Array:
    """The patch matrix of a group: one row for each window position."""
    part = patches[..., _span(group, size)]
    positions = 1 + (part.ndim - 2) // 2
    return part.reshape(prod(part.shape[:positions]), prod(part.shape[positions:]))


def _per_channel(gradient: Array, channels: int) -> Array:
    return gradient.reshape(*gradient.shape[:-1], channels, gradient.shape[-1] // channels)


def _image_blocks(batch: int, image_bytes: int, xp: Any) -> Iterator[slice]:
    limit = BLOCK_BYTES if in_host_memory(xp) else GPU_BLOCK_BYTES
    step = max(1, limit // max(image_bytes, 1))
    return (slice(start, min(start + step, batch)) for start in range(0, batch, step))


def _blocks(window: Window, batch: int, pixel_bytes: int, xp: Any) -> Iterator[tuple[slice, slice]]:
    """(images, rows of the output) such that the patch matrix of each block stays within the limit."""
    limit = BLOCK_BYTES if in_host_memory(xp) else GPU_BLOCK_BYTES
    row_bytes = max(1, prod(window.output[1:]) * prod(window.kernel) * pixel_bytes)
    rows = window.output[0]
    for images in _image_blocks(batch, row_bytes * rows, xp):
        step = rows if images.stop - images.start > 1 else max(1, limit // row_bytes)
        for start in range(0, rows, max(step, 1)):
            yield images, slice(start, min(start + step, rows))


def _patches(x: Array, window: Window, number: np.dtype, xp: Any) -> Iterator[tuple[slice, slice, Array]]:
    """(images, rows, patches of shape [images, rows, *other positions, *kernel, channels]) of each block.

    The patches are a view, of x itself or of a padded copy of its images in the dtype `number`.
    """
    batch, *_, channels = x.shape
    padded = None
    filled = slice(0, 0)
    for images, rows in _blocks(window, batch, channels * number.itemsize, xp):
        if images != filled:
            source = x[images]
            if window.padded:
                if padded is None:
                    sizes = (
                        i + a + b
                        for i, a, b in zip(window.input, window.pad_before, window.pad_after, strict=True)
                    )
                    padded = xp.zeros((source.shape[0], *sizes, channels), number)
                inner = (slice(a, a + i) for a, i in zip(window.pad_before, window.input, strict=True))
                padded[(slice(0, source.shape[0]), *inner)] = source
                source = padded[: source.shape[0]]
            view = _patch_view(source.astype(number, copy=False), window, xp)
            filled = images
        yield images, rows, view[:, rows]


def _patch_view(x: Array, window: Window, xp: Any) -> Array:
    steps = x.strides[1:-1]
    shape = (x.shape[0], *window.output, *window.kernel, x.shape[-1])
    strides = (
        x.strides[0],
        *(s * n for s, n in zip(steps, window.strides)),
        *(s * n for s, n in zip(steps, window.dilations)),
        x.strides[-1],
    )
    if isinstance(x, np.ndarray):
        return np.lib.stride_tricks.as_strided(x, shape, strides, subok=True)
    return xp.lib.stride_tricks.as_strided(x, shape, strides)


def _taps_of_rows(window: Window, rows: slice) -> Iterator[tuple[int, tuple, tuple]]:
    """window.taps() for output rows `rows` only, the output positions counted from rows.start."""
    stride = window.strides[0]
    for tap, inside, positions in window.taps():
        first, last = max(positions[0].start, rows.start), min(positions[0].stop, rows.stop)
        if first < last:
            start = inside[0].start + (first - positions[0].start) * stride
            stop = start + (last - first - 1) * stride + 1
            yield (
                tap,
                (slice(start, stop, stride), *inside[1:]),
                (slice(first - rows.start, last - rows.start), *positions[1:]),
            )
