"""Counts: Bincount, DenseBincount, HistogramFixedWidth. None has a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, sample
from graphrt.core.shapes import UNKNOWN, TensorShape

_COUNTED = "type in {int32,int64,float,double}"


def _size(s: ShapeContext, i: int) -> int | None:
    given = s.value(i)
    if given is None:
        return None
    if given < 0:
        raise ValueError(f"size ({int(given)}) must be non-negative")
    return int(given)


def _count(values: Any, weights: Any, n: int, dtype: Any, name: str) -> Any:
    """The counts (or sums of weights) of each number in [0, n); larger ones are left out."""
    if values.size and values.min() < 0:
        raise ValueError(f"{name}: Input arr must be non-negative! It has {values.min()}")
    weighted = weights.size > 0
    if weighted and weights.size != values.size:
        raise ValueError(
            f"{name}: weights must be empty or of the values' size: {weights.size} for {values.size}"
        )
    values = values.ravel()
    inside = values < n
    if not inside.all():
        values, weights = values[inside], weights.ravel()[inside] if weighted else weights
    if not weighted:
        return np.bincount(values, minlength=n).astype(dtype)
    made = np.zeros(n, dtype)
    np.add.at(made, values, weights.ravel())
    return made


@op("Bincount(arr: int32, size: int32, weights: T) -> bins: T", T=_COUNTED)
class Bincount:
    """How often each number in [0, size) is in arr, or the sum of its weights."""

    cpu_only = True

    def shape(
        self, s: ShapeContext, arr: TensorShape, size: TensorShape, weights: TensorShape
    ) -> TensorShape:
        size.with_rank(0)
        return TensorShape.of((_size(s, 1),))

    def compute(self, k: KernelContext, arr: Any, size: Any, weights: Any) -> Any:
        if size < 0:
            raise ValueError(f"size ({int(size)}) must be non-negative")
        return _count(arr, weights, int(size), k.dtype, "Bincount")

    samples = [
        sample(ints(20), 5, np.zeros(0, np.float32), why="numbers beyond size are left out"),
        sample(ints(20), 12, normal(20)),
        sample(ints(4, 3), 10, np.zeros(0, np.int32)),
        sample(ints(6), 3, ints(6)),
        sample(ints(0), 3, np.zeros(0, np.int64)),
    ]


@op(
    "DenseBincount(input: Tidx, size: Tidx, weights: T) -> output: T",
    Tidx="type in {int32,int64}",
    T=_COUNTED,
    binary_output="bool = False",
)
class DenseBincount:
    """Bincount of a vector, or of each row of a matrix; `binary_output` says whether a number is there, not
    how often."""

    cpu_only = True

    def shape(
        self, s: ShapeContext, input: TensorShape, size: TensorShape, weights: TensorShape
    ) -> TensorShape:
        size.with_rank(0)
        input = input.with_rank_at_least(1).with_rank_at_most(2)
        if input.sizes is None:
            return UNKNOWN
        return TensorShape.of((*input.sizes[:-1], _size(s, 1)))

    def compute(self, k: KernelContext, input: Any, size: Any, weights: Any) -> Any:
        if input.ndim not in (1, 2) or size < 0:
            raise ValueError(
                "DenseBincount counts in a vector or the rows of a matrix up to a size of at least 0, not "
                "in shape "
                f"{list(input.shape)} up to {int(size)}"
            )
        if weights.size and weights.shape != input.shape:
            raise ValueError(
                f"DenseBincount: weights must be empty or of the input's shape: {list(weights.shape)} for "
                f"{list(input.shape)}"
            )
        n, binary = int(size), k.attrs["binary_output"]
        rows = input[None] if input.ndim == 1 else input
        row_weights = weights.reshape(rows.shape) if weights.size and not binary else None
        made = np.zeros((len(rows), n), k.dtype)
        for i, row in enumerate(rows):
            made[i] = _count(
                row, np.zeros(0) if row_weights is None else row_weights[i], n, k.dtype, "DenseBincount"
            )
        if binary:
            made = (made > 0).astype(k.dtype)
        return made.reshape(*input.shape[:-1], n)

    samples = [
        sample(ints(20), 5, np.zeros(0, np.float32)),
        sample(ints(4, 6), 12, normal(4, 6)),
        sample(ints(4, 6), 7, np.zeros(0, np.int32)),
        sample(ints(4, 6), 7, np.zeros(0, np.float32), binary_output=True),
        sample(ints(0), 3, np.zeros(0, np.int64)),
    ]


@op(
    "HistogramFixedWidth(values: T, value_range: T, nbins: int32) -> out: dtype",
    T=_COUNTED,
    dtype="type in {int32,int64} = int32",
)
class HistogramFixedWidth:
    """How many values fall in each of nbins equal bins of value_range; values beyond it count in the outer
    bins."""

    cpu_only = True

    def shape(
        self, s: ShapeContext, values: TensorShape, value_range: TensorShape, nbins: TensorShape
    ) -> TensorShape:
        value_range.merge_with(TensorShape.of((2,)))
        nbins.with_rank(0)
        return TensorShape.of((_size(s, 2),))

    def compute(self, k: KernelContext, values: Any, value_range: Any, nbins: Any) -> Any:
        n = int(nbins)
        if n <= 0:
            raise ValueError(f"nbins should be a positive number, but got '{n}'")
        if value_range.shape != (2,) or not value_range[0] < value_range[1]:
            raise ValueError(
                f"value_range should satisfy value_range[0] < value_range[1], but got {value_range.tolist()}"
            )
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise ValueError("Histogram values must not contain NaN")
        low, high = (float(v) for v in value_range)
        step = (high - low) / n
        bins = np.clip((values.ravel().astype(np.float64) - low) / step, 0, n - 1).astype(np.int64)
        return np.bincount(bins, minlength=n).astype(k.dtype)

    samples = [
        sample(normal(50), np.float32([-1, 1]), 5),
        sample(np.float32([-1, 0, 1.5, 2, 5, 15]), np.float32([0, 5]), 5),
        sample(ints(20), np.int32([0, 7]), 3, dtype="int64"),
        sample(empty(0), np.float32([0, 1]), 4),
    ]
