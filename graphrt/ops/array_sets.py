"""Distinct values, differences and sorted search: Unique, ListDiff, Bucketize, LowerBound, UpperBound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, sample, text
from graphrt.core.shapes import UNKNOWN, TensorShape, unknown
from graphrt.ops.array_basic import INDEX_OR_INT32
from graphrt.ops.array_nodes import normal_axis


def _distinct(x: Any) -> tuple[Any, Any, Any]:
    """For a vector: where each distinct value comes first, in that order; which of them each element is;
    their counts."""
    if not x.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    if x.dtype == object:
        seen: dict[Any, int] = {}
        which = np.array([seen.setdefault(v, len(seen)) for v in x.tolist()], np.int64)
        first = np.full(len(seen), -1, np.int64)
        first[which[::-1]] = np.arange(x.size - 1, -1, -1)
        return first, which, np.bincount(which)
    _, first, which, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    order = first.argsort()
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return first[order], rank[which.reshape(-1)], counts[order]


def _distinct_slices(x: Any, axis: Any) -> tuple[Any, Any, Any]:
    """The distinct slices of `x` along `axis` (a scalar, or a vector of at most one number), which each is,
    counts."""
    if axis.size > 1:
        raise ValueError(f"axis {axis.tolist()} must be a scalar or a vector of at most one number")
    if axis.size == 0:
        if x.ndim != 1:
            raise ValueError(f"without an axis x must be a vector, not of shape {list(x.shape)}")
        at = 0
    else:
        at = normal_axis(int(axis.reshape(-1)[0]), x.ndim)
    if x.ndim == 1:
        first, which, counts = _distinct(x)
        return x[first], which, counts
    moved = np.moveaxis(x, at, 0)
    rows = moved.reshape(len(moved), -1)
    if x.dtype != object:
        # -0.0 equals 0.0; adding 0 makes their bytes equal too.
        rows = np.ascontiguousarray(rows + rows.dtype.type(0) if rows.dtype.kind in "fc" else rows)
    keys = np.empty(len(rows), dtype=object)
    keys[:] = [tuple(r.tolist()) if x.dtype == object else r.tobytes() for r in rows]
    first, which, counts = _distinct(keys)
    return np.moveaxis(moved[first], 0, at), which, counts


class _Distinct:
    """What the Unique ops share."""

    cpu_only = True
    has_counts = False

    def compute(self, k: KernelContext, x: Any, axis: Any = None) -> tuple[Any, ...]:
        if axis is None:
            if x.ndim != 1:
                raise ValueError(f"unique expects a 1D vector, not shape {list(x.shape)}")
            axis = np.zeros(0, np.int64)
        values, which, counts = _distinct_slices(x, axis)
        index = k.output_dtypes[1].np
        made = (np.ascontiguousarray(values), which.astype(index))
        return (*made, counts.astype(index)) if self.has_counts else made

    def _outputs(self, y: TensorShape, idx: TensorShape) -> list[TensorShape]:
        return [y, idx, unknown(1)] if self.has_counts else [y, idx]


class _DistinctElements(_Distinct):
    def shape(self, s: ShapeContext, x: TensorShape) -> list[TensorShape]:
        return self._outputs(unknown(1), x.with_rank(1))

    samples = [
        sample([3, 1, 3, 2, 1]),
        sample(text("b", "a", "b")),
        sample(np.array([0.5, -0.5, 0.5], np.float32), out_idx="int64"),
        sample(np.array([], np.int64)),
    ]


class _DistinctSlices(_Distinct):
    def shape(self, s: ShapeContext, x: TensorShape, axis: TensorShape) -> list[TensorShape]:
        value = s.value(1)
        if x.sizes is None or value is None:
            return self._outputs(unknown(x.rank), unknown(1))
        at = 0 if value.size == 0 else normal_axis(int(value.reshape(-1)[0]), len(x.sizes))
        return self._outputs(
            TensorShape.of((*x.sizes[:at], None, *x.sizes[at + 1 :])), TensorShape.of((x.sizes[at],))
        )

    samples = [
        sample([3, 1, 3, 2, 1], np.array([0])),
        sample([[1, 0], [1, 0], [2, 0]], [0]),
        sample([[1, 0, 1], [2, 0, 2]], [1]),
        sample([4, 4], np.array([], np.int64)),
    ]


@op("Unique(x: T) -> y: T, idx: out_idx", out_idx=INDEX_OR_INT32)
class Unique(_DistinctElements):
    """The distinct elements of a vector in the order they first come, and for each element which of them it
    is."""


@op("UniqueWithCounts(x: T) -> y: T, idx: out_idx, count: out_idx", out_idx=INDEX_OR_INT32)
class UniqueWithCounts(_DistinctElements):
    """Unique, and how often each comes."""

    has_counts = True


@op(
    "UniqueV2(x: T, axis: Taxis) -> y: T, idx: out_idx",
    Taxis="type in {int32,int64} = int64",
    out_idx=INDEX_OR_INT32,
)
class UniqueV2(_DistinctSlices):
    """The distinct slices of `x` along `axis`, and for each slice which of them it is."""


@op(
    "UniqueWithCountsV2(x: T, axis: Taxis) -> y: T, idx: out_idx, count: out_idx",
    Taxis="type in {int32,int64} = int64",
    out_idx=INDEX_OR_INT32,
)
class UniqueWithCountsV2(_DistinctSlices):
    """UniqueV2, and how often each comes."""

    has_counts = True


@op("ListDiff(x: T, y: T) -> out: T, idx: out_idx", out_idx=INDEX_OR_INT32)
class ListDiff:
    """The elements of `x` that are not in `y`, in their order, and where in `x` they are."""

    cpu_only = True

    def shape(self, s: ShapeContext, x: TensorShape, y: TensorShape) -> list[TensorShape]:
        x.with_rank(1)
        y.with_rank(1)
        return [unknown(1), unknown(1)]

    def compute(self, k: KernelContext, x: Any, y: Any) -> tuple[Any, Any]:
        for name, array in (("x", x), ("y", y)):
            if array.ndim != 1:
                raise ValueError(f"{name} should be a 1D vector, not of shape {list(array.shape)}")
        if x.dtype == object:
            known = set(y.tolist())
            left = np.array([v not in known for v in x.tolist()], bool)
        else:
            left = ~np.isin(x, y)
        places = np.nonzero(left)[0]
        return x[places], places.astype(k.output_dtypes[1].np)

    samples = [
        sample([1, 2, 3, 4, 2], [2, 4]),
        sample(text("a", "b"), text("b")),
        sample(np.array([1, 2]), np.array([], np.int64), out_idx="int64"),
    ]


@op("Bucketize(input: T) -> output: int32", T="type in {int32,int64,float,double}", boundaries="list(float)")
class Bucketize:
    """For each element the number of `boundaries`, which are sorted, that are at most it."""

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return input

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        boundaries = np.array(k.attrs["boundaries"], np.float32)
        if (boundaries[1:] < boundaries[:-1]).any():
            raise ValueError(f"Expected sorted boundaries, got {boundaries.tolist()}")
        xp = k.xp
        limits = xp.asarray(boundaries)
        return lambda input: xp.searchsorted(limits, input, side="right").astype(np.int32)

    samples = [
        sample(normal(3, 4) * 10, boundaries=[-5.0, 0.0, 5.0]),
        sample(ints(5), boundaries=[0.0, 3.0, 9.0]),
        sample(normal(2), boundaries=[]),
        sample(empty(0), boundaries=[1.0]),
    ]


class _Bound:
    """What LowerBound and UpperBound share: a search in each row."""

    cpu_only = True
    side = ""

    def shape(self, s: ShapeContext, sorted_inputs: TensorShape, values: TensorShape) -> TensorShape:
        if sorted_inputs.sizes is not None and values.sizes is not None:
            TensorShape.of(sorted_inputs.with_rank(2).sizes[:1]).merge_with(
                TensorShape.of(values.with_rank(2).sizes[:1])
            )  # type: ignore[index]
        return values if values.sizes is not None else UNKNOWN

    def compute(self, k: KernelContext, sorted_inputs: Any, values: Any, out: Any) -> Any:
        if sorted_inputs.ndim != 2 or values.ndim != 2 or len(sorted_inputs) != len(values):
            raise ValueError(
                f"sorted_inputs {list(sorted_inputs.shape)} and values {list(values.shape)} must be "
                "matrices with as many "
                "rows"
            )
        if out is None:
            out = np.empty(values.shape, k.dtype)
        for row, wanted, made in zip(sorted_inputs, values, out):
            made[...] = np.searchsorted(row, wanted, side=self.side)
        return out

    samples = [
        sample(np.array([[0, 3, 3, 9], [1, 2, 3, 4]], np.int32), np.array([[3, 9, 10], [0, 2, 6]], np.int32)),
        sample(np.array([[0.5, 1.5]], np.float32), np.array([[1.5, 0.0, 2.0]], np.float32), out_type="int64"),
        sample(np.zeros((1, 0), np.float32), np.array([[1.0]], np.float32)),
    ]


@op("LowerBound(sorted_inputs: T, values: T) -> output: out_type", out_type=INDEX_OR_INT32)
class LowerBound(_Bound):
    """For each of `values` the first place in its row of `sorted_inputs` where it could stand."""

    side = "left"


@op("UpperBound(sorted_inputs: T, values: T) -> output: out_type", out_type=INDEX_OR_INT32)
class UpperBound(_Bound):
    """For each of `values` the last place in its row of `sorted_inputs` where it could stand."""

    side = "right"
