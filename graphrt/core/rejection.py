"""Gamma and Poisson numbers, by TensorFlow's rejection methods and from the same words.

Every output has 256 blocks of its own, whatever the others take, so all outputs are tried together: a round
of the loop draws for those that are still open. Arithmetic is in float64 for every dtype, step by step as in
the kernels, so that the same tries are accepted.

Cost: about 1 us an output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core.distributions import Source, as_doubles, box_muller
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.philox import BLOCKS_PER_OUTPUT, CHUNK, Stream, words_at

_PER_BLOCK = 2  # float64 numbers


class _Tries:
    """The generators of many outputs: each one's next block, and what it drew and has not used yet."""

    def __init__(self, stream: Stream, outputs: np.ndarray) -> None:
        self.stream = stream
        self.next_block = outputs.astype(np.uint64) * np.uint64(BLOCKS_PER_OUTPUT)
        count = outputs.size
        self._uniform = np.zeros(count, np.int64), np.empty((count, _PER_BLOCK))
        self._normal = np.zeros(count, np.int64), np.empty((count, _PER_BLOCK))

    def uniform(self, rows: np.ndarray) -> np.ndarray:
        """One number in [0, 1) for each of the outputs `rows`."""
        return self._next(*self._uniform, as_doubles, rows)

    def normal(self, rows: np.ndarray) -> np.ndarray:
        """One standard normal number for each of the outputs `rows`."""
        return self._next(*self._normal, box_muller, rows)

    def _next(self, left: np.ndarray, drawn: np.ndarray, convert: Any, rows: np.ndarray) -> np.ndarray:
        empty = rows[left[rows] == 0]
        if empty.size:
            made = np.empty(empty.size * _PER_BLOCK)
            convert(words_at(self.stream, self.next_block[empty]).reshape(-1), made)
            self.next_block[empty] += np.uint64(1)
            drawn[empty] = made.reshape(-1, _PER_BLOCK)
            left[empty] = _PER_BLOCK
        left[rows] -= 1
        return drawn[rows, left[rows]]  # the last of a block first


def _draw(source: Source, samples: int, parameter: np.ndarray, dtype: Any,
          method: Callable[[_Tries, np.ndarray], np.ndarray]) -> np.ndarray:  # fmt: skip
    """[samples, *parameter.shape] of `dtype`. All samples of the first parameter are the first outputs."""
    made = np.empty((parameter.size, samples), dtype)
    if made.size:
        stream = source.reserve(made.size * BLOCKS_PER_OUTPUT)
        each = parameter.reshape(-1).astype(np.float64)
        flat, outputs = made.reshape(-1), np.arange(made.size)
        with np.errstate(all="ignore"):
            for start in range(0, made.size, CHUNK):
                chosen = outputs[start : start + CHUNK]
                flat[chosen] = method(_Tries(stream, chosen), each[chosen // samples])
    return np.ascontiguousarray(made.T).reshape(samples, *parameter.shape)


def gamma(source: Source, samples: int, alpha: np.ndarray) -> np.ndarray:
    """Gamma numbers of rate 1: [samples, *alpha.shape], floating as `alpha`, the shape parameter."""
    return _draw(source, samples, alpha, alpha.dtype, _gamma)


def _gamma(tries: _Tries, alpha: np.ndarray) -> np.ndarray:
    """Marsaglia and Tsang: the cube of a normal number, scaled; an alpha below 1 is raised by one and
    corrected. Alpha 1 is the exponential distribution."""
    result = np.empty_like(alpha)
    rows = np.flatnonzero(alpha == 1)
    result[rows] = -np.log1p(-tries.uniform(rows))
    raised = alpha < 1
    d = alpha + np.where(raised, 2.0 / 3, -1.0 / 3)
    c = 1.0 / 3 / np.sqrt(d)
    rows = np.flatnonzero(alpha != 1)
    while rows.size:
        x = tries.normal(rows)
        v = 1 + c[rows] * x
        valid = ~(v <= 0)
        tried, x, v = rows[valid], x[valid], v[valid]
        v = v * v * v
        u = tries.uniform(tried)
        squeezed = u < 1 - 0.0331 * (x * x) * (x * x)
        accepted = squeezed | (np.log(u) < 0.5 * x * x + d[tried] * (1 - v + np.log(v)))
        done = tried[accepted]
        result[done] = d[done] * v[accepted]
        low = done[raised[done]]
        result[low] *= tries.uniform(low) ** (1 / alpha[low])
        still_open = ~valid
        still_open[valid] = ~accepted
        rows = rows[still_open]
    return result


def poisson(source: Source, samples: int, rate: np.ndarray, dtype: Any) -> np.ndarray:
    """Poisson numbers of mean `rate`: [samples, *rate.shape] of `dtype`, floating or integer.

    A rate below 0 gives 0, an infinite one infinity.

    Raises:
      InvalidArgumentError: a rate is NaN (TensorFlow's kernel never ends), or infinite for an integer dtype.
    """
    bad = np.isnan(rate) if np.dtype(dtype).kind not in "iu" else ~(rate < np.inf)
    if bad.any():
        place = [int(i) for i in np.argwhere(bad)[0]]
        message = f"no {np.dtype(dtype)} can be drawn for rate {rate[tuple(place)]} at {place}"
        raise InvalidArgumentError(None, None, message)
    return _draw(source, samples, rate, dtype, _poisson)


def _poisson(tries: _Tries, rate: np.ndarray) -> np.ndarray:
    result = np.full_like(rate, np.inf)
    _poisson_by_products(tries, rate, np.flatnonzero(rate < 10), result)
    _poisson_by_transform(tries, rate, np.flatnonzero((rate >= 10) & (rate < np.inf)), result)
    return result


def _poisson_by_products(tries: _Tries, rate: np.ndarray, rows: np.ndarray, result: np.ndarray) -> None:
    """Knuth: how many uniform numbers it takes until their product is below exp(-rate)."""
    floor = np.exp(-rate)
    product, count = np.ones_like(rate), 0
    while rows.size:
        product[rows] *= tries.uniform(rows)
        done = product[rows] <= floor[rows]
        result[rows[done]] = count
        rows, count = rows[~done], count + 1


def _poisson_by_transform(tries: _Tries, rate: np.ndarray, rows: np.ndarray, result: np.ndarray) -> None:
    """Hoermann's transformed rejection, for rates of 10 and more."""
    log_rate = np.log(rate)
    b = 0.931 + 2.53 * np.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    while rows.size:
        u = tries.uniform(rows) - 0.5
        v = tries.uniform(rows)
        near = 0.5 - np.abs(u)
        a_, b_, rate_ = a[rows], b[rows], rate[rows]
        k = np.floor((2 * a_ / near + b_) * u + rate_ + 0.43)
        accepted = (near >= 0.07) & (v <= 0.9277 - 3.6224 / (b_ - 2))
        tested = np.flatnonzero(~accepted & ~((k < 0) | ((near < 0.013) & (v > near))))
        near, k_tested = near[tested], k[tested]
        log_factorial = np.fromiter(map(math.lgamma, (k_tested + 1).tolist()), np.float64, tested.size)
        s = np.log(v[tested] * inverse_alpha[rows][tested] / (a_[tested] / (near * near) + b_[tested]))
        accepted[tested] = s <= -rate_[tested] + k_tested * log_rate[rows][tested] - log_factorial
        result[rows[accepted]] = k[accepted]
        rows = rows[~accepted]
