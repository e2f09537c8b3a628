"""How Sum and Mean add up: by products with ones where those are faster and more exact than a reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core.dtypes import float32, float64
from graphrt.core.registry import KernelContext

# Rows that are added up at once by `_sum_rows`.
_ROWS = 256


def _sum_rows(xp: Any, x: Any, rows: int) -> Any:
    """The sum of `x` over its leading axes, of `rows` elements together, as a flat array.

    A product with ones adds many rows up several times faster than a reduction, and in blocks: NumPy's adds
    one row after the other, whose error grows with their number.
    """
    rest = x.size // rows
    blocks = rows // _ROWS
    x = x.reshape(rows, rest)
    parts = xp.matmul(xp.ones((1, _ROWS), x.dtype), x[: blocks * _ROWS].reshape(blocks, _ROWS, rest))
    made = xp.add.reduce(parts.reshape(blocks, rest), 0)
    if blocks * _ROWS < rows:
        made += xp.add.reduce(x[blocks * _ROWS :], 0)
    return made


# Elements of one product: above about 9,000 OpenBLAS wakes its threads, which costs more than it saves here.
_PIECE = 8192


def _sum_columns(xp: Any, x: Any, rows: int) -> Any:
    """The sum of `x` over its trailing axes, for each of `rows` leading elements, as a flat array: products
    with ones, which for short rows are several times faster than a reduction."""
    n = x.size // rows
    x, ones = x.reshape(rows, n), xp.ones(n, x.dtype)
    block = _PIECE // n
    if rows <= block:
        return xp.matmul(x, ones)
    made = xp.empty(rows, x.dtype)
    whole = rows // block * block
    xp.matmul(x[:whole].reshape(-1, block, n), ones, out=made[:whole].reshape(-1, block))
    if whole < rows:
        xp.matmul(x[whole:], ones, out=made[whole:])
    return made


def summing(k: KernelContext) -> Callable[..., Any]:
    """A function (x, axes, out) that sums in the first output's dtype; `axes` are normal."""
    xp, dtype, keep = k.xp, k.dtype, k.attrs["keep_dims"]
    reduce = xp.add.reduce
    leading = tuple(tuple(range(n)) for n in range(8))
    trailing = tuple(tuple(tuple(range(rank - n, rank)) for n in range(rank + 1)) for rank in range(8))
    if k.output_dtypes[0] not in (float32, float64) or xp is not np:
        return lambda x, axes, out: reduce(x, axes, dtype, out, keep)

    def total(x: Any, axes: tuple[int, ...], out: Any) -> Any:
        n, rank = len(axes), x.ndim
        if 0 < n < rank and rank < 8 and x.size >= 4 * _ROWS and x.flags.c_contiguous:
            shape = x.shape
            count = element_count(x, axes)
            if axes == leading[n]:
                if count >= 2 * _ROWS:
                    made = _sum_rows(xp, x, count).reshape((1,) * n + shape[n:] if keep else shape[n:])
                    return made if out is None else store(made, out)
            elif axes[0] == rank - n and count <= 4 * _ROWS and axes == trailing[rank][n]:
                made = _sum_columns(xp, x, x.size // count).reshape(
                    shape[: rank - n] + (1,) * n if keep else shape[: rank - n]
                )
                return made if out is None else store(made, out)
        return reduce(x, axes, dtype, out, keep)

    return total


def element_count(x: Any, axes: tuple[int, ...]) -> int:
    """How many elements of `x` lie along `axes` together."""
    n = 1
    for axis in axes:
        n *= x.shape[axis]
    return n


def store(made: Any, out: Any) -> Any:
    """`out`, with the values of `made`."""
    out[...] = made
    return out
