"""Max and average pooling and their gradients, over any number of spatial dimensions.

TensorFlow's semantics: an average counts only what lies inside the input, and of equal maxima of a window the
first in row-major order is the one that won. Layouts are [batch, *spatial, channels], or [batch, channels,
*spatial] with `channels_first`.

float32 on a CPU goes to oneDNN where it is there; everything else is array code for `xp`, numpy or cupy, that
goes over the elements ("taps") of the pooling window, each of them a strided view of the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from graphrt.core import onednn_primitives
from graphrt.core.conv_kernels import accumulator, in_host_memory, onednn_did, result_array
from graphrt.core.windows import Window

Array = Any

BLOCK_BYTES = 512 << 10
"""Bytes of input that one pass over the taps covers on the CPU: they stay in the cache from tap to tap."""


def max_pool(
    x: Array, window: Window, *, channels_first: bool = False, out: Array | None = None, xp: Any = np
) -> Array:
    """The maximum of each window of each channel: the dtype's least value where it sees no input."""
    out = _output(x, window, channels_first, out, xp)
    if onednn_did(xp, onednn_primitives.max_pooling, (x,), window, out, channels_first):
        return out
    for block, y in _blocks(xp, channels_first, x, out):
        _maxima(block, window, y, xp)
    return out


def max_pool_gradient(
    x: Array,
    dy: Array,
    window: Window,
    *,
    channels_first: bool = False,
    out: Array | None = None,
    xp: Any = np,
) -> Array:
    """The gradient of max_pool(x) by x: each dy goes to the input that won its window."""
    _check_output(dy, x, window, channels_first)
    out = result_array(out, x.shape, dy.dtype, xp)
    if onednn_did(xp, onednn_primitives.max_pooling_gradient, (x, dy), window, out, channels_first):
        return out
    for block, gradient, dx in _blocks(xp, channels_first, x, dy, out):
        total = xp.zeros(dx.shape, accumulator(dx.dtype))
        for _, inside, positions, won in _winners(block, window, xp):
            total[inside] += xp.where(won, gradient[positions], gradient.dtype.type(0))
        dx[...] = total
    return out


def max_pool_gradient_gradient(
    x: Array,
    ddx: Array,
    window: Window,
    *,
    channels_first: bool = False,
    out: Array | None = None,
    xp: Any = np,
) -> Array:
    """The gradient of max_pool_gradient(x, dy) by dy: of each window, the ddx of the input that won it."""
    if ddx.shape != x.shape:
        raise ValueError(
            f"The gradient has shape {list(ddx.shape)}, the pooled input "
            f"{list(x.shape)}: they must be the same."
        )
    out = _output(x, window, channels_first, out, xp, ddx.dtype)
    for block, gradient, y in _blocks(xp, channels_first, x, ddx, out):
        y[...] = 0
        for _, inside, positions, won in _winners(block, window, xp):
            y[positions] = xp.where(won, gradient[inside], y[positions])
    return out


def max_pool_with_argmax(
    x: Array,
    window: Window,
    *,
    include_batch_in_index: bool = False,
    index_dtype: Any = np.int64,
    xp: Any = np,
) -> tuple[Array, Array]:
    """(max_pool(x), the flat index of each maximum): ((batch *) row * width + column) * channels + channel.

    x is channels-last. Without `include_batch_in_index` the index counts within its image.
    """
    batch, *spatial, channels = x.shape
    out = _output(x, window, False, None, xp)
    index = xp.zeros(out.shape, index_dtype)
    places = xp.arange(prod(x.shape[1:]), dtype=index_dtype).reshape(1, *spatial, channels)
    _maxima(x, window, out, xp)
    for _, inside, positions, won in _winners(x, window, xp, out):
        index[positions] = xp.where(won, places[inside], index[positions])
    if include_batch_in_index:
        steps = xp.arange(batch, dtype=index_dtype) * index_dtype(places.size)
        index += steps.reshape(-1, *(1 for _ in x.shape[1:]))
    return out, index


def scatter_by_argmax(
    dy: Array, argmax: Array, x_shape: Sequence[int], *, include_batch_in_index: bool = False, xp: Any = np
) -> Array:
    """The gradient of max_pool_with_argmax by its input: each dy added at its index."""
    flat = _flat_indices(argmax, x_shape, include_batch_in_index, xp)
    weights = dy.reshape(-1).astype(np.float64)
    total = xp.bincount(flat.reshape(-1), weights, minlength=prod(x_shape))
    return total.astype(dy.dtype).reshape(tuple(x_shape))


def gather_by_argmax(
    ddx: Array, argmax: Array, *, include_batch_in_index: bool = False, xp: Any = np
) -> Array:
    """The gradient of scatter_by_argmax by dy: the ddx at each index."""
    return ddx.reshape(-1)[_flat_indices(argmax, ddx.shape, include_batch_in_index, xp)]


def avg_pool(
    x: Array, window: Window, *, channels_first: bool = False, out: Array | None = None, xp: Any = np
) -> Array:
    """The average over what lies inside the input, of each window of each channel."""
    out = _output(x, window, channels_first, out, xp)
    if onednn_did(xp, onednn_primitives.average_pooling, (x,), window, out, channels_first):
        return out
    counts = _counts(window, accumulator(x.dtype), xp)
    for block, y in _blocks(xp, channels_first, x, out):
        total = xp.zeros(y.shape, counts.dtype)
        for _, inside, positions in _taps(window):
            total[positions] += block[inside]
        xp.divide(total, counts, out=total)
        y[...] = total
    return out


def avg_pool_gradient(
    dy: Array,
    window: Window,
    x_shape: Sequence[int],
    *,
    channels_first: bool = False,
    out: Array | None = None,
    xp: Any = np,
) -> Array:
    """The gradient of avg_pool(x) by x, of shape `x_shape`: dy in equal parts to the inputs of its window."""
    out = result_array(out, x_shape, dy.dtype, xp)
    _check_output(dy, out, window, channels_first)
    if onednn_did(xp, onednn_primitives.average_pooling_gradient, (dy,), window, out, channels_first):
        return out
    counts = _counts(window, accumulator(dy.dtype), xp)
    for gradient, dx in _blocks(xp, channels_first, dy, out):
        share = gradient / counts
        total = xp.zeros(dx.shape, counts.dtype)
        for _, inside, positions in _taps(window):
            total[inside] += share[positions]
        dx[...] = total
    return out


def _taps(window: Window) -> Iterator[tuple[int, tuple, tuple]]:
    return (
        (tap, (slice(None), *inside), (slice(None), *positions)) for tap, inside, positions in window.taps()
    )


def _maxima(x: Array, window: Window, y: Array, xp: Any) -> None:
    y[...] = _least(y.dtype)
    for _, inside, positions in _taps(window):
        xp.maximum(y[positions], x[inside], out=y[positions])


def _winners(
    x: Array, window: Window, xp: Any, maxima: Array | None = None
) -> Iterator[tuple[int, tuple, tuple, Array]]:
    """(tap, where it looks, window positions, at which of them this tap is the first maximum)."""
    if maxima is None:
        maxima = xp.empty((x.shape[0], *window.output, x.shape[-1]), x.dtype)
        _maxima(x, window, maxima, xp)
    undecided = xp.ones(maxima.shape, bool)
    for tap, inside, positions in _taps(window):
        won = x[inside] == maxima[positions]
        won &= undecided[positions]
        undecided[positions] ^= won
        yield tap, inside, positions, won


def _least(dtype: Any) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _counts(window: Window, dtype: np.dtype, xp: Any) -> Array:
    """How many inputs each window position sees, at least 1, to broadcast over batch and channels."""
    counts = np.ones((), np.int64)
    for size, kernel, stride, before, positions in zip(
        window.input, window.kernel, window.strides, window.pad_before, window.output, strict=True
    ):
        start = np.arange(positions) * stride - before
        counts = counts[..., None] * (np.minimum(start + kernel, size) - np.maximum(start, 0))
    return xp.asarray(np.maximum(counts, 1)[..., None].astype(dtype))


def _flat_indices(argmax: Array, x_shape: Sequence[int], include_batch_in_index: bool, xp: Any) -> Array:
    if include_batch_in_index:
        flat, size = argmax, prod(x_shape)
    else:
        size = prod(x_shape[1:])
        flat = argmax + (xp.arange(argmax.shape[0]) * size).reshape(-1, *(1 for _ in argmax.shape[1:]))
    if argmax.size and not (0 <= int(argmax.min()) and int(argmax.max()) < size):
        raise ValueError(
            f"argmax holds indices from {int(argmax.min())} to {int(argmax.max())}: "
            f"they must lie in [0, {size})."
        )
    return flat


def _output(
    x: Array, window: Window, channels_first: bool, out: Array | None, xp: Any, dtype: Any = None
) -> Array:
    return result_array(out, _pooled_shape(x, window, channels_first), dtype or x.dtype, xp)


def _pooled_shape(x: Array, window: Window, channels_first: bool) -> tuple[int, ...]:
    return (*x.shape[:2], *window.output) if channels_first else (x.shape[0], *window.output, x.shape[-1])


def _check_output(dy: Array, x: Array, window: Window, channels_first: bool) -> None:
    expected = _pooled_shape(x, window, channels_first)
    if dy.shape != expected:
        raise ValueError(
            f"The output's gradient has shape {list(dy.shape)}, but pooling "
            f"an input of shape {list(x.shape)} gives {list(expected)}."
        )


def _blocks(xp: Any, channels_first: bool, *arrays: Array) -> Iterator[list[Array]]:
    """The arrays, channels last, in runs of images of BLOCK_BYTES of the largest (on a GPU: all at once)."""
    arrays = [xp.moveaxis(array, 1, -1) if channels_first else array for array in arrays]
    batch = arrays[0].shape[0]
    image = max(max(array.nbytes for array in arrays) // max(batch, 1), 1)
    step = max(1, BLOCK_BYTES // image) if in_host_memory(xp) else max(batch, 1)
    return ([array[start : start + step] for array in arrays] for start in range(0, batch, step))
