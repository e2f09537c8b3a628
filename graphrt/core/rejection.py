"""Gamma and Poisson numbers, by TensorFlow's rejection methods and from the same words.

Every output has 256 blocks of its own, whatever the others take, so all outputs are tried together: a round of
the loop draws for those that are still open. Arithmetic is in the dtype of the parameters (Poisson of half: float32),
step by step as in the kernels, so that the same tries are accepted; where NumPy's log differs by an ulp a try on
the edge may fall the other way, about once in 10**7 outputs.

Cost: 1 to 2 us an output.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphrt.core.distributions import Source, box_muller, uniforms_of_words
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.philox import BLOCKS_PER_OUTPUT, CHUNK, Stream, words_at


class _Tries:
    """The generators of many outputs: each one's next block, and what it drew and has not used yet."""

    def __init__(self, stream: Stream, outputs: np.ndarray, dtype: np.dtype) -> None:
        self.stream, self.dtype = stream, dtype
        self.next_block = outputs.astype(np.uint64) * np.uint64(BLOCKS_PER_OUTPUT)
        self.per = 2 if dtype == np.float64 else 4
        self.left: dict[Any, np.ndarray] = {}
        self.drawn: dict[Any, np.ndarray] = {}

    def uniform(self, rows: np.ndarray) -> np.ndarray:
        """One number in [0, 1) for each of the outputs `rows`."""
        return self._next(uniforms_of_words, rows)

    def normal(self, rows: np.ndarray) -> np.ndarray:
        """One standard normal number for each of the outputs `rows`."""
        return self._next(box_muller, rows)

    def _next(self, convert: Any, rows: np.ndarray) -> np.ndarray:
        if convert not in self.left:
            self.left[convert] = np.zeros(self.next_block.size, np.int64)
            self.drawn[convert] = np.empty((self.next_block.size, self.per), self.dtype)
        left, drawn = self.left[convert], self.drawn[convert]
        empty = rows[left[rows] == 0]
        if empty.size:
            words = words_at(self.stream, self.next_block[empty]).reshape(-1)
            self.next_block[empty] += np.uint64(1)
            made = np.empty(words.size * self.per // 4, np.float64 if self.per == 2 else np.float32)
            convert(words, made)
            if self.dtype == np.float16 and convert is uniforms_of_words:
                made = (words & np.uint32(0x3FF)) / np.float32(1024)
            drawn[empty] = made.reshape(-1, self.per)
            left[empty] = self.per
        left[rows] -= 1
        return drawn[rows, left[rows]]  # the last of a block first


def _outputs(source: Source, samples: int, parameters: np.ndarray) -> tuple[Stream, list[np.ndarray]]:
    """The draw's stream and the numbers of its outputs, in chunks: all samples of the first parameter come first."""
    total = samples * parameters.size
    numbers = np.arange(total)
    return source.reserve(total * BLOCKS_PER_OUTPUT), [numbers[i : i + CHUNK] for i in range(0, total, CHUNK)]


def gamma(source: Source, samples: int, alpha: np.ndarray) -> np.ndarray:
    """Gamma numbers of rate 1: [samples, *alpha.shape], half, float32 or float64 as `alpha`, the shape parameter.

    Raises:
      InvalidArgumentError: no samples or no alphas are asked for.
    """
    for count, what in ((samples, "shape"), (alpha.size, "alpha")):
        if count <= 0:
            raise InvalidArgumentError(None, None, f"Input {what} should have non-zero element count, got: {count}")
    flat, number = alpha.reshape(-1), alpha.dtype.type
    made = np.empty((flat.size, samples), alpha.dtype)
    stream, chunks = _outputs(source, samples, flat)
    with np.errstate(all="ignore"):
        for outputs in chunks:
            made.reshape(-1)[outputs] = _gamma(_Tries(stream, outputs, alpha.dtype), flat[outputs // samples], number)
    return np.ascontiguousarray(made.T).reshape(samples, *alpha.shape)


def _gamma(tries: _Tries, alpha: np.ndarray, number: Any) -> np.ndarray:
    """Marsaglia and Tsang: the cube of a normal number, scaled; an alpha below 1 is raised by one and corrected."""
    raised = alpha < number(1)
    third = number(1) / number(3)
    d = alpha + np.where(raised, number(2) / number(3), -third)
    c = third / np.sqrt(d)
    result = np.empty_like(alpha)
    rows = np.arange(alpha.size)
    while rows.size:
        x = tries.normal(rows)
        v = number(1) + c[rows] * x
        valid = ~(v <= number(0))
        tried, x, v = rows[valid], x[valid], v[valid]
        v = v * v * v
        u = tries.uniform(tried)
        squeezed = u < number(1) - number(0.0331) * (x * x) * (x * x)
        exact = np.log(u) < number(0.5) * x * x + d[tried] * (number(1) - v + np.log(v))
        accepted = squeezed | exact
        done = tried[accepted]
        result[done] = d[done] * v[accepted]
        low = done[raised[done]]
        if low.size:
            result[low] *= tries.uniform(low) ** (number(1) / alpha[low])
        open_ = np.ones(alpha.size, bool)
        open_[done] = False
        rows = rows[open_[rows]]
    return result


def poisson(source: Source, samples: int, rate: np.ndarray, dtype: Any) -> np.ndarray:
    """Poisson numbers: [samples, *rate.shape] of `dtype` (half, float32, float64, int32 or int64).

    Args:
      rate: the mean, half (computed in float32), float32, float64, int32 or int64 (computed in float64).
    Raises:
      InvalidArgumentError: there is no rate.
    """
    made = np.empty((rate.size, samples), dtype)
    if samples:
        if rate.size == 0:
            raise InvalidArgumentError(None, None, "Input rate should have non-zero element count, got: 0")
        working = np.dtype(np.float32 if rate.dtype in (np.float16, np.float32) else np.float64)
        flat = rate.reshape(-1).astype(working)
        stream, chunks = _outputs(source, samples, flat)
        with np.errstate(all="ignore"):
            for outputs in chunks:
                drawn = _poisson(_Tries(stream, outputs, working), flat[outputs // samples], working.type)
                made.reshape(-1)[outputs] = drawn
    return np.ascontiguousarray(made.T).reshape(samples, *rate.shape)


def _poisson(tries: _Tries, rate: np.ndarray, number: Any) -> np.ndarray:
    result = np.full_like(rate, np.nan)
    _poisson_by_products(tries, rate, np.flatnonzero((rate < 10) & (rate >= 0)), result, number)
    _poisson_by_transform(tries, rate, np.flatnonzero((rate >= 10) & np.isfinite(rate)), result, number)
    return result


def _poisson_by_products(tries: _Tries, rate: np.ndarray, rows: np.ndarray, result: np.ndarray, number: Any) -> None:
    """Knuth: how many uniform numbers it takes until their product is below exp(-rate)."""
    floor = np.exp(-rate)
    product, count = np.ones_like(rate), number(0)
    while rows.size:
        product[rows] *= tries.uniform(rows)
        done = product[rows] <= floor[rows]
        result[rows[done]] = count
        rows, count = rows[~done], count + number(1)


def _poisson_by_transform(tries: _Tries, rate: np.ndarray, rows: np.ndarray, result: np.ndarray, number: Any) -> None:
    """Hoermann's transformed rejection, for rates of 10 and more."""
    log_rate = np.log(rate)
    b = number(0.931) + number(2.53) * np.sqrt(rate)
    a = number(-0.059) + number(0.02483) * b
    inverse_alpha = number(1.1239) + number(1.1328) / (b - number(3.4))
    while rows.size:
        u = tries.uniform(rows) - number(0.5)
        v = tries.uniform(rows)
        shifted = number(0.5) - np.abs(u)
        a_, b_, rate_ = a[rows], b[rows], rate[rows]
        k = np.floor((number(2) * a_ / shifted + b_) * u + rate_ + number(0.43))
        squeezed = (shifted >= number(0.07)) & (v <= number(0.9277) - number(3.6224) / (b_ - number(2)))
        tested = np.flatnonzero(~squeezed & ~((k < 0) | ((shifted < number(0.013)) & (v > shifted))))
        accepted = squeezed.copy()
        if tested.size:
            log_factorial = np.fromiter(map(math.lgamma, (k[tested] + number(1)).tolist()), number, tested.size)
            s = np.log(v[tested] * inverse_alpha[rows][tested]
                       / (a_[tested] / (shifted[tested] * shifted[tested]) + b_[tested]))  # fmt: skip
            accepted[tested] = s <= -rate_[tested] + k[tested] * log_rate[rows][tested] - log_factorial
        result[rows[accepted]] = k[accepted]
        rows = rows[~accepted]
