"""Segments: rows of one id are combined. Sorted ids (SegmentSum, …) or ids in any order (UnsortedSegmentSum,
…)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import NUMBERS, REAL, bfloat16, half, int32
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, sample
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.core.tensor import Tensor
from graphrt.ops.array_nodes import ones_of, rank_of, zeros_of
from graphrt.ops.broadcasting import cast_to, shape_of

_INDEX = "type in {int32,int64}"


def combine_rows(ufunc: Any, rows: Any, ids: Any, out: Any) -> Any:
    """out[i] = ufunc over the rows with id i, where there are any; out keeps the others. ids are in [0,
    len(out))."""
    if not rows.size:
        return out
    if rows.ndim == 1:
        # NumPy's fast path: numbers, not rows.
        ufunc.at(out, ids, rows)
        return out
    if ids.size > 1 and not (ids[1:] >= ids[:-1]).all():
        order = np.argsort(ids, kind="stable")
        ids, rows = ids[order], rows[order]
    is_first = np.empty(ids.size, bool)
    is_first[0] = True
    np.not_equal(ids[1:], ids[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    out[ids[starts]] = ufunc.reduceat(rows, starts, axis=0, dtype=out.dtype)
    return out


def check_sorted(ids: Any, rows: int, name: str) -> int:
    """How many segments sorted ids make.

    Raises:
      ValueError: ids are not a vector of `rows` numbers, not sorted, or negative.
    """
    if ids.ndim != 1 or ids.shape[0] != rows:
        raise ValueError(
            f"{name}: segment_ids must be a vector with an id for each of the {rows} rows, not of shape "
            f"{list(ids.shape)}"
        )
    if not rows:
        return 0
    if (ids[1:] < ids[:-1]).any():
        raise ValueError(
            f"{name}: segment ids are not increasing: tf.unsorted_segment_sum and the like take ids in any "
            "order"
        )
    if ids[0] < 0:
        raise ValueError(f"{name}: segment id {int(ids[0])} is out of range: ids are at least 0")
    return int(ids[-1]) + 1


class _Segment:
    """Base of segment ops with sorted ids; ids that are skipped give `of_nothing`."""

    cpu_only = True
    ufunc: Any = None
    start: Any = None
    of_nothing = 0
    samples = [
        sample(normal(6, 2), np.int32([0, 0, 1, 3, 3, 3]), why="an id is skipped"),
        sample(normal(4), np.int64([0, 1, 1, 2])),
        sample(empty(0, 2), np.zeros(0, np.int32)),
        sample(ints(4, 2), np.int32([0, 0, 1, 1])),
        sample(normal(3, 2, 2), np.int32([0, 0, 1])),
        sample(np.float32([2, 2, 0, 0, 3]), np.int32([0, 0, 1, 1, 1]), why="equals, zeros"),
        sample(normal(4, 2, dtype="half"), np.int32([0, 0, 1, 1]), gradient=False),
    ]

    def shape(self, s: ShapeContext, data: TensorShape, segment_ids: TensorShape) -> TensorShape:
        segment_ids.with_rank(1)
        data = data.with_rank_at_least(1)
        if data.sizes is None:
            return UNKNOWN
        TensorShape.of(data.sizes[:1]).merge_with(segment_ids)
        return TensorShape.of((None, *data.sizes[1:]))

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        ufunc, start, nothing, dtype, name = self.ufunc, self.start, self.of_nothing, k.dtype, k.type
        wide = np.dtype(np.float32) if k.output_dtypes[0] in (half, bfloat16) else dtype
        mean = self.divide_by_count

        def combine(data: Any, segment_ids: Any) -> Any:
            n = check_sorted(segment_ids, data.shape[0], name)
            made = np.full((n, *data.shape[1:]), nothing if start is None else start(wide), wide)
            combine_rows(ufunc, data.astype(wide, copy=False), segment_ids, made)
            if mean or start is not None:
                count = np.bincount(segment_ids, minlength=n).reshape(-1, *(1,) * (data.ndim - 1))
                if mean:
                    made = mean(made, np.maximum(count, 1).astype(wide))
                else:
                    made = np.where(count == 0, np.array(nothing, wide), made)
            return made.astype(dtype, copy=False)

        return combine

    divide_by_count: Any = None


@op("SegmentSum(data: T, segment_ids: Tindices) -> output: T", T=NUMBERS, Tindices=_INDEX)
class SegmentSum(_Segment):
    """The sum of the rows of each id."""

    ufunc = np.add

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        return [raw.GatherV2(dy, op.inputs[1], 0), None]


@op("SegmentMean(data: T, segment_ids: Tindices) -> output: T", T=NUMBERS, Tindices=_INDEX)
class SegmentMean(_Segment):
    """The mean of the rows of each id."""

    ufunc = np.add

    @staticmethod
    def divide_by_count(total: Any, count: Any) -> Any:
        return total // count if total.dtype.kind in "iu" else total / count

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        data, ids = op.inputs
        rank, ids_shape = rank_of(data), shape_of(ids)
        rest = ones_of(raw.ExpandDims(rank - 1, 0), int32)
        ones = ones_of(raw.ConcatV2([ids_shape, rest], 0, name="concat"), dy.dtype.base_dtype)
        return [raw.GatherV2(dy / raw.SegmentSum(ones, ids), ids, 0), None]


@op("SegmentProd(data: T, segment_ids: Tindices) -> output: T", T=NUMBERS, Tindices=_INDEX)
class SegmentProd(_Segment):
    """The product of the rows of each id."""

    ufunc = np.multiply
    of_nothing = 1

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        data, ids = op.inputs
        return [
            _product_gradient(
                data,
                op.outputs[0],
                dy,
                lambda x: raw.SegmentSum(x, ids),
                lambda x: raw.SegmentProd(x, ids),
                lambda x: raw.GatherV2(x, ids, 0),
            ),
            None,
        ]


def _product_gradient(
    data: Tensor,
    product: Tensor,
    dy: Tensor,
    total: Callable[[Tensor], Tensor],
    multiply: Callable[[Tensor], Tensor],
    pick: Callable[[Tensor], Tensor],
) -> Tensor:
    """The product of a segment's others: by division where no element is 0, the product of the rest at an
    only 0, else 0."""
    is_zero = raw.Equal(data, np.array(0, data.dtype.np))
    dy = raw.SelectV2(raw.Greater(total(raw.Cast(is_zero, DstT=int32)), 1), raw.ZerosLike(dy), dy)
    rest = raw.SelectV2(is_zero, raw.OnesLike(data), data)
    others = raw.SelectV2(is_zero, pick(multiply(rest)), pick(product) / rest)
    return pick(dy) * others


class _SegmentExtreme(_Segment):
    """Base of SegmentMax and SegmentMin: equal extremes share the gradient."""

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        data, ids = op.inputs
        zeros = zeros_of(data)
        chosen = raw.Equal(data, raw.GatherV2(op.outputs[0], ids, 0))
        count = raw.SegmentSum(cast_to(chosen, dy.dtype.base_dtype), ids)
        return [raw.SelectV2(chosen, raw.GatherV2(dy / count, ids, 0), zeros), None]


def lowest(dtype: Any) -> Any:
    """The smallest number of a NumPy dtype, -inf for floats."""
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def highest(dtype: Any) -> Any:
    """The largest number of a NumPy dtype, inf for floats."""
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


@op("SegmentMax(data: T, segment_ids: Tindices) -> output: T", T=REAL, Tindices=_INDEX)
class SegmentMax(_SegmentExtreme):
    """The largest of the rows of each id, 0 for an id that is skipped."""

    ufunc = np.maximum
    start = staticmethod(lowest)


@op("SegmentMin(data: T, segment_ids: Tindices) -> output: T", T=REAL, Tindices=_INDEX)
class SegmentMin(_SegmentExtreme):
    """The smallest of the rows of each id, 0 for an id that is skipped."""

    ufunc = np.minimum
    start = staticmethod(highest)


class _Unsorted:
    """Base of segment ops with ids in any order and shape, up to `num_segments`; rows with negative ids are
    dropped."""

    cpu_only = True
    ufunc: Any = None
    samples = [
        sample(normal(6, 2), np.int32([2, 0, 2, -1, 3, 0]), 5, why="a negative id drops its row"),
        sample(normal(4), np.int64([0, 1, 1, 0]), 2),
        sample(normal(2, 3, 2), np.int32([[0, 1, 0], [2, 2, 0]]), 3, why="ids of rank 2"),
        sample(empty(0, 2), np.zeros(0, np.int32), 3),
        sample(ints(4, 2), np.int32([1, 0, 1, 0]), 3),
        sample(np.float32([2, 2, 0, 0, 3]), np.int32([0, 0, 1, 1, 1]), 2, why="equals, zeros"),
        sample(np.float32([0, 2, 3]), np.int32([0, 0, 0]), 1),
        sample(normal(3, 2), np.int32([0, 1, 0]), np.int64(2)),
        sample(normal(4, 2, dtype="half"), np.int32([0, 0, 1, 1]), 2, gradient=False),
    ]

    def shape(
        self, s: ShapeContext, data: TensorShape, segment_ids: TensorShape, num_segments: TensorShape
    ) -> TensorShape:
        num_segments.with_rank(0)
        if data.sizes is None or segment_ids.sizes is None:
            return UNKNOWN
        rank = len(segment_ids.sizes)
        TensorShape.of(data.sizes[:rank]).merge_with(segment_ids)
        n = s.value(2)
        return TensorShape.of((None if n is None else int(n), *data.sizes[rank:]))

    def nothing(self, dtype: Any) -> Any:
        """What an id without rows gives."""
        raise NotImplementedError

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        ufunc, dtype, name = self.ufunc, k.dtype, k.type
        wide = np.dtype(np.float32) if k.output_dtypes[0] in (half, bfloat16) else dtype
        nothing = self.nothing(k.output_dtypes[0])

        def combine(data: Any, segment_ids: Any, num_segments: Any) -> Any:
            n, rank = int(num_segments), segment_ids.ndim
            if data.shape[:rank] != segment_ids.shape:
                raise ValueError(
                    f"{name}: data.shape = {list(data.shape)} does not start with segment_ids.shape = "
                    f"{list(segment_ids.shape)}"
                )
            if n < 0:
                raise ValueError(f"{name}: num_segments must be at least 0, not {n}")
            made = np.full((n, *data.shape[rank:]), nothing, wide)
            if not segment_ids.size:
                return made.astype(dtype, copy=False)
            ids = segment_ids.reshape(-1)
            rows = data.reshape(ids.size, *data.shape[rank:]).astype(wide, copy=False)
            if ids.max() >= n:
                at = int((ids >= n).argmax())
                raise ValueError(f"{name}: segment_ids[{at}] = {ids[at]} is out of range [0, {n})")
            if ids.min() < 0:
                ids, rows = ids[ids >= 0], rows[ids >= 0]
            return combine_rows(ufunc, rows, ids, made).astype(dtype, copy=False)

        return combine


def _pick(x: Tensor, ids: Tensor) -> Tensor:
    """The row of `x` at each id, zeros at negative ids."""
    rows = raw.GatherV2(x, raw.Maximum(ids, zeros_of(ids)), 0)
    there = raw.GreaterEqual(ids, 0)
    shape = shape_of(there)
    rest = ones_of(raw.Pack([rank_of(rows) - rank_of(there)], name="ones/packed"), int32)
    there = raw.Reshape(there, raw.ConcatV2([shape, rest], 0, name="concat"))
    there = raw.LogicalAnd(there, raw.Fill(shape_of(rows), True, name="ones_like"), name="and")
    return raw.SelectV2(there, rows, zeros_of(rows))


@op(
    "UnsortedSegmentSum(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> output: T",
    T=NUMBERS,
    Tindices="type in {int16,int32,int64}",
    Tnumsegments="type in {int32,int64} = int32",
)
class UnsortedSegmentSum(_Unsorted):
    """The sum of the rows of each id in [0, num_segments)."""

    ufunc = np.add

    def nothing(self, dtype: Any) -> Any:
        return 0

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        return [_pick(dy, op.inputs[1]), None, None]


@op(
    "UnsortedSegmentProd(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> output: T",
    T=NUMBERS,
    Tindices=_INDEX,
    Tnumsegments="type in {int32,int64} = int32",
)
class UnsortedSegmentProd(_Unsorted):
    """The product of the rows of each id in [0, num_segments)."""

    ufunc = np.multiply

    def nothing(self, dtype: Any) -> Any:
        return 1

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        data, ids, n = op.inputs
        made = _product_gradient(
            data,
            op.outputs[0],
            dy,
            lambda x: raw.UnsortedSegmentSum(x, ids, n),
            lambda x: raw.UnsortedSegmentProd(x, ids, n),
            lambda x: _pick(x, ids),
        )
        return [made, None, None]


class _UnsortedExtreme(_Unsorted):
    """Base of UnsortedSegmentMax and UnsortedSegmentMin: equal extremes share the gradient."""

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        data, ids, n = op.inputs
        kind = dy.dtype.base_dtype
        chosen = cast_to(raw.Equal(data, _pick(op.outputs[0], ids)), kind)
        count = raw.UnsortedSegmentSum(chosen, ids, n)
        # An id without rows has a count of 0 and no row that asks for its share.
        return [chosen * _pick(raw.DivNoNan(dy, count), ids), None, None]


@op(
    "UnsortedSegmentMax(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> output: T",
    T=REAL,
    Tindices=_INDEX,
    Tnumsegments="type in {int32,int64} = int32",
)
class UnsortedSegmentMax(_UnsortedExtreme):
    """The largest of the rows of each id in [0, num_segments), the dtype's lowest for an id without rows."""

    ufunc = np.maximum

    def nothing(self, dtype: Any) -> Any:
        return dtype.min


@op(
    "UnsortedSegmentMin(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> output: T",
    T=REAL,
    Tindices=_INDEX,
    Tnumsegments="type in {int32,int64} = int32",
)
class UnsortedSegmentMin(_UnsortedExtreme):
    """The smallest of the rows of each id in [0, num_segments), the dtype's highest for an id without
    rows."""

    ufunc = np.minimum

    def nothing(self, dtype: Any) -> Any:
        return dtype.max
