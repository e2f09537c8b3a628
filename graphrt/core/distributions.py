"""TensorFlow's distributions over Philox words: with the same seeds, the values of its CPU kernels.

How words become outputs:
  uniform half, bfloat16, float   one word an element; 1 + its low 10, 7, 23 bits as a fraction, minus 1
  uniform double                  two words an element; 52 bits, the first word's are the high ones
  int32, uint32 / int64, uint64   one / two words (low one first), modulo the range
  normal                          Box-Muller: two words (four for double) make two elements, sine first
  truncated normal                four elements (two for double) share 256 blocks an element, and take from
                                  their start what Box-Muller gives inside (-2, 2)
  multinomial                     two words (a uniform double) a sample, searched in the row's cumulative sum
  shuffle                         one word an element, modulo what is left: Fisher and Yates, forwards

Uniform values and ints are TensorFlow's bit for bit. Normals agree to 1e-6: NumPy's float32 log and sine are
within 4 and 2 ulp, 7e-7 was the largest difference seen. A truncated normal that close to +-2 may be taken by
one and dropped by the other, once in 10**8. TensorFlow cuts the rows of a large multinomial among its threads
and seeds each part otherwise; here there is one part, as in TensorFlow with one thread.

Cost, 51,200 float32 on one core: uniform 350 us with NumPy's blocks, 60 us with compiled ones (TensorFlow 140
us), normal 620 and 320 us (450 us), truncated normal 1.2 and 1.0 ms (0.75 ms). `out` is written in place.

Every function takes a `source`: the GuardedPhilox of an op, which it moves on, or a Stream, which stays.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from graphrt.core.errors import InvalidArgumentError
from graphrt.core.philox import (
    BLOCKS_PER_OUTPUT,
    CHUNK,
    HALF,
    GuardedPhilox,
    Stream,
    compiled,
    fill_words,
    scratch,
    words_at,  # fmt: skip
)

Source = Stream | GuardedPhilox
_FLOAT_KEEP, _FLOAT_ONE = np.uint32(0x7FFFFF), np.uint32(127 << 23)
_DOUBLE_KEEP, _DOUBLE_ONE = np.uint64(2**52 - 1), np.uint64(1023 << 52)
_EPSILON = 1e-7  # keeps the logarithm of Box-Muller finite


def _draw(source: Source, shape: Sequence[int], dtype: np.dtype, out: np.ndarray | None,
          fill: Callable[[Stream, np.ndarray], None]) -> np.ndarray:  # fmt: skip
    """`out`, or a fresh array, filled by `fill` from the next place of `source`."""
    if out is None:
        out = np.empty(tuple(shape), dtype)
    elif out.dtype != dtype or out.shape != tuple(shape):
        raise ValueError(f"out is {out.dtype} {list(out.shape)}, the draw is {dtype} {list(shape)}")
    stream = source.reserve(out.size * BLOCKS_PER_OUTPUT)
    if out.size:
        if out.flags.c_contiguous:
            fill(stream, out.reshape(-1))
        else:
            flat = np.empty(out.size, out.dtype)
            fill(stream, flat)
            out[...] = flat.reshape(out.shape)
    return out


def _chunks(size: int, per_block: int) -> list[tuple[int, int, int]]:
    """(first block, first element, elements) of each chunk of `size` elements, `per_block` from a block."""
    step = CHUNK * per_block
    return [(first // per_block, first, min(step, size - first)) for first in range(0, size, step)]


def _whole_blocks(stream: Stream, flat: np.ndarray, fill: Callable[[Stream, np.ndarray], None]) -> None:
    """Fill the words `flat` (uint32), the last block cut off where `flat` ends."""
    whole = flat.size // 4 * 4
    if whole:
        fill(stream, flat[:whole])
    if whole < flat.size:
        last = np.empty(4, np.uint32)
        fill(stream.skip(whole // 4), last)
        flat[whole:] = last[: flat.size - whole]


def _fill_float_bits(stream: Stream, words: np.ndarray) -> None:
    fill_words(stream, words, keep=int(_FLOAT_KEEP), ones=int(_FLOAT_ONE))


def as_doubles(words: np.ndarray, out: np.ndarray) -> None:
    """Words [2n] (uint32, contiguous) to n float64 in [0, 1), in `out`."""
    pairs, bits = words.view(np.uint64), out.view(np.uint64)
    if sys.byteorder == "little":  # the first word of a pair is the high one
        low = scratch.take("low", pairs.size, np.uint64)
        np.right_shift(pairs, HALF, out=low)
        np.left_shift(pairs, HALF, out=bits)
        np.bitwise_or(bits, low, out=bits)
    else:
        bits[:] = pairs
    np.bitwise_and(bits, _DOUBLE_KEEP, out=bits)
    np.bitwise_or(bits, _DOUBLE_ONE, out=bits)
    np.subtract(out, 1.0, out=out)


def _uniform_float(stream: Stream, flat: np.ndarray) -> None:
    _whole_blocks(stream, flat.view(np.uint32), _fill_float_bits)
    np.subtract(flat, np.float32(1), out=flat)


def _uniform_narrow(bits: int) -> Callable[[Stream, np.ndarray], None]:
    """half and bfloat16: the low `bits` bits of a word are the fraction, so a value is one of 2**bits."""

    def fill(stream: Stream, flat: np.ndarray) -> None:
        values = (np.arange(1 << bits) / (1 << bits)).astype(flat.dtype)
        for first, start, n in _chunks(flat.size, 4):
            words = scratch.take("words", -(-n // 4) * 4, np.uint32)
            fill_words(stream.skip(first), words, keep=(1 << bits) - 1)
            flat[start : start + n] = values[words[:n]]

    return fill


def _uniform_double(stream: Stream, flat: np.ndarray) -> None:
    for first, start, n in _chunks(flat.size, 2):
        words = scratch.take("words", -(-n // 2) * 4, np.uint32)
        fill_words(stream.skip(first), words)
        as_doubles(words[: 2 * n], flat[start : start + n])


_UNIFORM = {
    np.dtype(np.float32): _uniform_float,
    np.dtype(np.float64): _uniform_double,
    np.dtype(np.float16): _uniform_narrow(10),
    np.dtype(ml_dtypes.bfloat16): _uniform_narrow(7),
}
_INTS = {np.dtype(f"{kind}{size}"): np.dtype(f"u{size}") for kind in "iu" for size in (4, 8)}


def _one_of(dtypes: dict[np.dtype, Any], dtype: np.dtype, what: str) -> Any:
    found = dtypes.get(dtype)
    if found is None:
        raise TypeError(f"{what} draws {', '.join(map(str, dtypes))}, not {dtype}")
    return found


def uniform(source: Source, shape: Sequence[int], dtype: Any = np.float32,
            out: np.ndarray | None = None) -> np.ndarray:  # fmt: skip
    """Uniform in [0, 1): half, bfloat16, float32 or float64 of `shape`, written into `out` where given."""
    dtype = np.dtype(dtype)
    return _draw(source, shape, dtype, out, _one_of(_UNIFORM, dtype, "uniform"))


def _words_as_ints(stream: Stream, flat: np.ndarray) -> None:
    """Every bit of the stream: 32-bit or 64-bit ints, low word first."""
    per = 4 // (flat.itemsize // 4)
    if sys.byteorder == "little":
        _whole_blocks(stream, flat.view(np.uint32), fill_words)
        return
    for first, start, n in _chunks(flat.size, per):
        words = scratch.take("words", -(-n // per) * 4, np.uint32)
        fill_words(stream.skip(first), words)
        if per == 2:
            words = words[::2] | words[1::2].astype(np.uint64) << HALF
        flat[start : start + n] = words[:n].view(flat.dtype)


def full_int(source: Source, shape: Sequence[int], dtype: Any,
             out: np.ndarray | None = None) -> np.ndarray:  # fmt: skip
    """int32, int64, uint32 or uint64 of `shape`, over the whole range of the type."""
    dtype = np.dtype(dtype)
    _one_of(_INTS, dtype, "full_int")
    return _draw(source, shape, dtype, out, _words_as_ints)


def uniform_int(source: Source, shape: Sequence[int], low: int, high: int, dtype: Any,
                out: np.ndarray | None = None) -> np.ndarray:  # fmt: skip
    """Ints in [low, high) of `shape`: int32, int64, uint32 or uint64. A word modulo the range, so slightly
    biased where that is no power of two.

    Raises:
      InvalidArgumentError: not low < high.
    """
    dtype, low, high = np.dtype(dtype), int(low), int(high)
    if not low < high:
        raise InvalidArgumentError(None, None, f"Need minval < maxval, got {low} >= {high}")
    unsigned = _one_of(_INTS, dtype, "uniform_int")

    def fill(stream: Stream, flat: np.ndarray) -> None:
        _words_as_ints(stream, flat)
        bits, span = flat.view(unsigned), unsigned.type(high - low)
        for start in range(0, bits.size, 4 * CHUNK):
            part = bits[start : start + 4 * CHUNK]
            quotient = scratch.take("x", part.size, unsigned)
            np.floor_divide(part, span, out=quotient)  # NumPy's remainder is ten times slower
            np.multiply(quotient, span, out=quotient)
            np.subtract(part, quotient, out=part)
            np.add(part, unsigned.type(low % (1 << 8 * dtype.itemsize)), out=part)

    return _draw(source, shape, dtype, out, fill)


def box_muller(words: np.ndarray, out: np.ndarray) -> None:
    """Normals into `out` from `words` (uint32, contiguous): float32, one a word, or float64, one for two."""
    pairs = out.size // 2
    if out.dtype == np.float32:
        radius = scratch.take("radius", pairs, np.float32)
        angle = scratch.take("angle", pairs, np.float32)
        for part, chosen in ((radius, words[0::2]), (angle, words[1::2])):
            bits = part.view(np.uint32)
            np.bitwise_and(chosen, _FLOAT_KEEP, out=bits)
            np.bitwise_or(bits, _FLOAT_ONE, out=bits)
            np.subtract(part, np.float32(1), out=part)
        np.multiply(angle, 2 * math.pi, out=angle, dtype=np.float64, casting="same_kind")  # rounded once
    else:
        radius = scratch.take("radius", pairs, np.float64)
        angle = scratch.take("angle", pairs, np.float64)
        uniforms = scratch.take("uniforms", 2 * pairs, np.float64)
        as_doubles(words, uniforms)
        radius[:] = uniforms[0::2]
        np.multiply(uniforms[1::2], 2 * math.pi, out=angle)
    number = out.dtype.type
    np.maximum(radius, number(_EPSILON), out=radius)
    np.log(radius, out=radius)
    np.multiply(radius, number(-2), out=radius)
    np.sqrt(radius, out=radius)
    wave = scratch.take("wave", pairs, out.dtype)
    for i, function in enumerate((np.sin, np.cos)):
        function(angle, out=wave)
        np.multiply(wave, radius, out=out[i::2])


def _normal(stream: Stream, flat: np.ndarray) -> None:
    per, number = (2, np.float64) if flat.dtype == np.float64 else (4, np.float32)
    for first, start, n in _chunks(flat.size, per):
        blocks = -(-n // per)
        words = scratch.take("words", 4 * blocks, np.uint32)
        fill_words(stream.skip(first), words)
        direct = flat.dtype == number and n == blocks * per
        normals = flat[start : start + n] if direct else scratch.take("normals", blocks * per, number)
        box_muller(words, normals)
        if not direct:
            flat[start : start + n] = normals[:n]


def normal(source: Source, shape: Sequence[int], dtype: Any = np.float32,
           out: np.ndarray | None = None) -> np.ndarray:  # fmt: skip
    """Normal with mean 0 and deviation 1: float32, float64, or half and bfloat16 (rounded float32)."""
    dtype = np.dtype(dtype)
    _one_of(_UNIFORM, dtype, "normal")
    return _draw(source, shape, dtype, out, _normal)


def _truncated(stream: Stream, flat: np.ndarray) -> None:
    per, number = (2, np.float64) if flat.dtype == np.float64 else (4, np.float32)
    apart = per * BLOCKS_PER_OUTPUT // 4  # a group's samples start that many blocks behind the last one's
    for first, start, n in _chunks(flat.size, per):
        groups = -(-n // per)
        words = scratch.take("words", 4 * groups, np.uint32)
        fill_words(stream.skip(first * apart), words, stride=apart)
        normals = scratch.take("normals", groups * per, number)
        box_muller(words, normals)
        table = normals.reshape(groups, per)
        short = np.flatnonzero(~_all_columns(np.abs(table) < 2))
        if short.size:
            places = (short + first).astype(np.uint64) * np.uint64(apart)
            table[short] = _refilled(stream, table[short], places)
        flat[start : start + n] = normals[:n]


def _all_columns(inside: np.ndarray) -> np.ndarray:
    """`inside.all(axis=1)`, which takes 50 times longer for so few columns."""
    every = inside[:, 0]
    for j in range(1, inside.shape[1]):
        every = every & inside[:, j]
    return every


def _refilled(stream: Stream, values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Groups [m, per] of what lies inside: of `values`, then of the blocks after `places`, in their order."""
    count, per = values.shape
    filled = np.empty(count * per, values.dtype)
    end = np.arange(count) * per  # where each group's next value goes
    limit, open_, step = end + per, np.arange(count), 0
    while True:
        inside = np.abs(values) < 2
        for j in range(per):
            rows = np.flatnonzero(inside[:, j])
            groups = open_[rows]
            room = end[groups] < limit[groups]
            rows, groups = rows[room], groups[room]
            filled[end[groups]] = values[rows, j]
            end[groups] += 1
        open_ = open_[end[open_] < limit[open_]]
        if not open_.size:
            return filled.reshape(count, per)
        step += 1
        values = np.empty((open_.size, per), filled.dtype)
        box_muller(words_at(stream, places[open_] + np.uint64(step)).reshape(-1), values.reshape(-1))


def truncated_normal(source: Source, shape: Sequence[int], dtype: Any = np.float32,
                     out: np.ndarray | None = None) -> np.ndarray:  # fmt: skip
    """Normal values inside (-2, 2), others drawn again: half, bfloat16, float32 or float64 of `shape`."""
    dtype = np.dtype(dtype)
    _one_of(_UNIFORM, dtype, "truncated_normal")
    return _draw(source, shape, dtype, out, _truncated)


def multinomial(source: Source, logits: np.ndarray, num_samples: int, output_dtype: Any = np.int64,
                out: np.ndarray | None = None) -> np.ndarray:  # fmt: skip
    """Class numbers [batch, num_samples], drawn with replacement by the unnormalised log-probabilities of
    each row.

    Args:
      logits: [batch, classes], floating; a class whose logit is not finite is not drawn.
      output_dtype: int32 or int64.
    Raises:
      InvalidArgumentError: logits is no matrix or has no class, num_samples is negative.
    """
    if logits.ndim != 2:
        raise InvalidArgumentError(None, None, f"logits should be a matrix, got shape {list(logits.shape)}")
    if num_samples < 0:
        raise InvalidArgumentError(None, None, f"num_samples should be non-negative, got {num_samples}")
    batch, classes = logits.shape
    if classes == 0:
        shape = list(logits.shape)
        raise InvalidArgumentError(None, None, f"num_classes should be positive, got logits of shape {shape}")
    if out is None:
        out = np.empty((batch, num_samples), output_dtype)
    if out.size == 0:
        return out
    stream = source.reserve(batch * (-(-num_samples // 4) * 4) * 2 * BLOCKS_PER_OUTPUT)
    points = np.empty(out.size, np.float64)
    _uniform_double(stream, points)

    finite = np.isfinite(logits)
    sums = logits.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        lowest = float(ml_dtypes.finfo(logits.dtype).min)
        sums -= np.where(finite, sums, lowest).max(axis=1, keepdims=True)
        np.exp(sums, out=sums)
    sums[~finite] = 0
    np.cumsum(sums, axis=1, out=sums)
    points = points.reshape(batch, num_samples)
    points *= sums[:, -1:]
    if num_samples <= batch:
        for j in range(num_samples):
            np.sum(sums <= points[:, j : j + 1], axis=1, out=out[:, j])
    else:
        for row in range(batch):
            out[row] = np.searchsorted(sums[row], points[row], side="right")
    return out


def permutation(source: Source, size: int) -> np.ndarray:
    """The order, int64 [size], in which RandomShuffle puts `size` rows. Fewer than two rows draw nothing."""
    order = np.arange(size)
    if size < 2:
        return order
    words = np.empty(-(-(size - 1) // 4) * 4, np.uint32)
    fill_words(source.reserve(words.size // 4), words)
    offsets = words[: size - 1] % (size - np.arange(size - 1))
    if compiled.swap is not None:
        compiled.swap(order, offsets)
        return order
    compiled.count(size // 8)  # a swap here takes as long as eight blocks
    swapped = order.tolist()
    for i, j in enumerate((offsets + order[:-1]).tolist()):
        swapped[i], swapped[j] = swapped[j], swapped[i]
    return np.array(swapped, np.int64)


def shuffle(source: Source, array: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """The rows (first axis) of `array` in random order. One row or element, or none: draws nothing."""
    rows = 1 if array.size <= 1 else array.shape[0]
    if rows <= 1:
        if out is None:
            return array.copy()
        out[...] = array
        return out
    return np.take(array, permutation(source, rows), axis=0, out=out, mode="clip")
