"""Segments of gathered rows: SparseSegmentSum(data, indices, ids) is SegmentSum(gather(data, indices), ids),
in one op.

A segment's sum is divided by its count (Mean) or the count's root (SqrtN). The …Grad ops give the gradient
of `data`, whole; the …GradV2 ops only the rows that were gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import REAL, bfloat16, half
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, sample
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.core.tensor import IndexedSlices, Tensor
from graphrt.ops.broadcasting import shape_of
from graphrt.ops.segments import check_sorted, combine_rows

_INDEX = "type in {int32,int64} = int32"
_FLOATS = "type in {bfloat16,half,float,double}"


def _wide(k: KernelContext) -> np.dtype:
    return np.dtype(np.float32) if k.output_dtypes[0] in (half, bfloat16) else k.dtype


def _check_indices(indices: Any, n: int, name: str) -> None:
    outside = (indices < 0) | (indices >= n)
    if outside.any():
        at = int(outside.argmax())
        raise ValueError(f"{name}: Bad: indices[{at}] == {indices[at]} out of range [0, {n})")


def _divisors(kind: str, ids: Any, n: int, dtype: Any) -> Any:
    """What each segment's sum is divided by: its count or the count's root, at least 1; None for plain
    sums."""
    if kind == "Sum":
        return None
    count = np.maximum(np.bincount(ids, minlength=n), 1).astype(dtype)
    return np.sqrt(count) if kind == "SqrtN" else count


def _column(divisors: Any, rank: int) -> Any:
    return divisors.reshape(-1, *(1,) * (rank - 1))


class _SparseSegment:
    """Base of the reductions; `kind` is Sum, Mean or SqrtN."""

    cpu_only = True
    kind = ""
    samples = [
        sample(normal(5, 2), np.int32([0, 2, 4, 1]), np.int32([0, 0, 2, 2]), why="an id is skipped"),
        sample(normal(5, 2, 3), np.int64([4, 4, 0]), np.int32([0, 1, 1])),
        sample(
            empty(3, 2),
            np.zeros(0, np.int32),
            np.zeros(0, np.int32),
            gradient=False,
            why="TensorFlow's gradient is not initialized",
        ),
        sample(normal(5, 2, dtype="float64"), np.int32([0, 2]), np.int64([0, 0])),
        sample(normal(5, 2, dtype="half"), np.int32([0, 2]), np.int32([0, 0]), gradient=False),
    ]

    def shape(
        self,
        s: ShapeContext,
        data: TensorShape,
        indices: TensorShape,
        segment_ids: TensorShape,
        *count: TensorShape,
    ) -> TensorShape:
        indices.with_rank(1).merge_with(segment_ids.with_rank(1))
        data = data.with_rank_at_least(1)
        if data.sizes is None:
            return UNKNOWN
        if count:
            given = s.value(3)
            n = None if given is None else int(given)
        else:
            n = None
        return TensorShape.of((n, *data.sizes[1:]))

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        kind, dtype, wide, name = self.kind, k.dtype, _wide(k), k.type

        def combine(data: Any, indices: Any, segment_ids: Any, num_segments: Any = None) -> Any:
            if indices.shape != segment_ids.shape:
                raise ValueError(
                    f"{name}: segment_ids and indices should have same size: {list(segment_ids.shape)} and "
                    f"{list(indices.shape)}"
                )
            n = check_sorted(segment_ids, indices.shape[0], name)
            if num_segments is not None:
                if n > num_segments:
                    raise ValueError(
                        f"{name}: segment id {n - 1} is out of range [0, {num_segments}), which "
                        "num_segments gives"
                    )
                n = int(num_segments)
            _check_indices(indices, data.shape[0], name)
            made = combine_rows(
                np.add,
                data[indices].astype(wide, copy=False),
                segment_ids,
                np.zeros((n, *data.shape[1:]), wide),
            )
            divisors = _divisors(kind, segment_ids, n, wide)
            if divisors is not None:
                made /= _column(divisors, data.ndim)
            return made.astype(dtype, copy=False)

        return combine

    def gradient(self, op: Any, dy: Tensor) -> list[Any]:
        data, indices, ids = op.inputs[:3]
        shape = shape_of(data)
        rows = shape[0]
        others = [None] * (len(op.inputs) - 1)
        if op.attrs.get("sparse_gradient"):
            values, unique = getattr(raw, f"SparseSegment{self.kind}GradV2")(dy, indices, ids, rows)
            return [IndexedSlices(values, unique, shape), *others]
        return [getattr(raw, f"SparseSegment{self.kind}Grad")(dy, indices, ids, rows), *others]


class _WithCount(_SparseSegment):
    """Base of the kinds that are told how many segments there are."""

    samples = [
        sample(*s.inputs, n, why=s.why, gradient=s.gradient)
        for s, n in zip(_SparseSegment.samples, (5, 2, 0, 1, 2))
    ]


_SPARSE = sample(
    normal(5, 2),
    np.int32([0, 2, 2, 1]),
    np.int32([0, 0, 2, 2]),
    sparse_gradient=True,
    why="rows as IndexedSlices",
)


@op(
    "SparseSegmentSum(data: T, indices: Tidx, segment_ids: Tsegmentids) -> output: T",
    T=REAL,
    Tidx=_INDEX,
    Tsegmentids=_INDEX,
    sparse_gradient="bool = False",
)
class SparseSegmentSum(_SparseSegment):
    """The sum of the gathered rows of each id."""

    kind = "Sum"
    samples = [*_SparseSegment.samples, _SPARSE, sample(ints(5, 2), np.int32([0, 2]), np.int32([0, 0]))]


@op(
    "SparseSegmentMean(data: T, indices: Tidx, segment_ids: Tsegmentids) -> output: T",
    T=_FLOATS,
    Tidx=_INDEX,
    Tsegmentids=_INDEX,
    sparse_gradient="bool = False",
)
class SparseSegmentMean(_SparseSegment):
    """The mean of the gathered rows of each id."""

    kind = "Mean"
    samples = [*_SparseSegment.samples, _SPARSE]


@op(
    "SparseSegmentSqrtN(data: T, indices: Tidx, segment_ids: Tsegmentids) -> output: T",
    T=_FLOATS,
    Tidx=_INDEX,
    Tsegmentids=_INDEX,
    sparse_gradient="bool = False",
)
class SparseSegmentSqrtN(_SparseSegment):
    """The sum of the gathered rows of each id, divided by the square root of their number."""

    kind = "SqrtN"
    samples = [*_SparseSegment.samples, _SPARSE]


@op(
    "SparseSegmentSumWithNumSegments(data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: "
    "Tnumsegments) -> output: T",
    T=REAL,
    Tidx=_INDEX,
    Tnumsegments=_INDEX,
    Tsegmentids=_INDEX,
    sparse_gradient="bool = False",
)
class SparseSegmentSumWithNumSegments(_WithCount):
    """The sum of the gathered rows of each id in [0, num_segments)."""

    kind = "Sum"


@op(
    "SparseSegmentMeanWithNumSegments(data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: "
    "Tnumsegments) -> output: T",
    T=_FLOATS,
    Tidx=_INDEX,
    Tnumsegments=_INDEX,
    Tsegmentids=_INDEX,
    sparse_gradient="bool = False",
)
class SparseSegmentMeanWithNumSegments(_WithCount):
    """The mean of the gathered rows of each id in [0, num_segments)."""

    kind = "Mean"


@op(
    "SparseSegmentSqrtNWithNumSegments(data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: "
    "Tnumsegments) -> output: T",
    T=_FLOATS,
    Tidx=_INDEX,
    Tnumsegments=_INDEX,
    Tsegmentids=_INDEX,
    sparse_gradient="bool = False",
)
class SparseSegmentSqrtNWithNumSegments(_WithCount):
    """The sum of the gathered rows of each id in [0, num_segments), divided by the square root of their
    number."""

    kind = "SqrtN"


def _spread_rows(kind: str, grad: Any, indices: Any, ids: Any, wide: Any, name: str) -> Any:
    """The gradient of each gathered row: its segment's, divided as the segment's sum was."""
    if indices.shape != ids.shape:
        raise ValueError(
            f"{name}: segment_ids and indices should have same size: {list(ids.shape)} and "
            f"{list(indices.shape)}"
        )
    if ids.size:
        _check_indices(ids, grad.shape[0], f"{name} (segment_ids)")
    rows = grad.astype(wide, copy=False)
    divisors = _divisors(kind, ids, grad.shape[0], wide)
    if divisors is not None:
        rows = rows / _column(divisors, grad.ndim)
    return rows[ids]


class _Grad:
    """Base of the gradients of `data`, whole: zeros at rows that were not gathered."""

    cpu_only = True
    kind = ""
    samples = [
        sample(normal(3, 2), np.int32([0, 2, 2, 1]), np.int32([0, 0, 2, 2]), 5),
        sample(normal(2, 2, 3), np.int64([4, 4, 0]), np.int32([0, 1, 1]), 5),
        sample(normal(1, 2, dtype="half"), np.int32([0, 2]), np.int32([0, 0]), 3),
    ]

    def shape(
        self,
        s: ShapeContext,
        grad: TensorShape,
        indices: TensorShape,
        segment_ids: TensorShape,
        output_dim0: TensorShape,
    ) -> TensorShape:
        grad = grad.with_rank_at_least(1)
        n = s.value(3)
        return (
            UNKNOWN
            if grad.sizes is None
            else TensorShape.of((None if n is None else int(n), *grad.sizes[1:]))
        )

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        kind, dtype, wide, name = self.kind, k.dtype, _wide(k), k.type

        def spread(grad: Any, indices: Any, segment_ids: Any, output_dim0: Any) -> Any:
            n = int(output_dim0)
            _check_indices(indices, n, name)
            rows = _spread_rows(kind, grad, indices, segment_ids, wide, name)
            return combine_rows(np.add, rows, indices, np.zeros((n, *grad.shape[1:]), wide)).astype(
                dtype, copy=False
            )

        return spread


@op(
    "SparseSegmentSumGrad(grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32) -> output: T",
    T=_FLOATS,
    Tidx=_INDEX,
    Tsegmentids=_INDEX,
)
class SparseSegmentSumGrad(_Grad):
    """The gradient of SparseSegmentSum's data."""

    kind = "Sum"


@op(
    "SparseSegmentMeanGrad(grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32) -> "
    "output: T",
    T=_FLOATS,
    Tidx=_INDEX,
    Tsegmentids=_INDEX,
)
class SparseSegmentMeanGrad(_Grad):
    """The gradient of SparseSegmentMean's data."""

    kind = "Mean"


@op(
    "SparseSegmentSqrtNGrad(grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32) -> "
    "output: T",
    T=_FLOATS,
    Tidx=_INDEX,
    Tsegmentids=_INDEX,
)
class SparseSegmentSqrtNGrad(_Grad):
    """The gradient of SparseSegmentSqrtN's data."""

    kind = "SqrtN"


class _GradV2:
    """Base of the gradients of `data` as its gathered rows only, and which those are, sorted."""

    cpu_only = True
    kind = ""
    samples = _Grad.samples

    def shape(
        self,
        s: ShapeContext,
        grad: TensorShape,
        indices: TensorShape,
        segment_ids: TensorShape,
        dense_output_dim0: TensorShape,
    ) -> list[TensorShape]:
        grad = grad.with_rank_at_least(1)
        return [
            UNKNOWN if grad.sizes is None else TensorShape.of((None, *grad.sizes[1:])),
            TensorShape.of((None,)),
        ]

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        kind, dtype, wide, name = self.kind, k.dtype, _wide(k), k.type

        def spread(grad: Any, indices: Any, segment_ids: Any, dense_output_dim0: Any) -> tuple[Any, Any]:
            _check_indices(indices, int(dense_output_dim0), name)
            rows = _spread_rows(kind, grad, indices, segment_ids, wide, name)
            unique, places = np.unique(indices, return_inverse=True)
            made = combine_rows(np.add, rows, places, np.zeros((unique.size, *grad.shape[1:]), wide))
            return made.astype(dtype, copy=False), unique

        return spread


@op(
    "SparseSegmentSumGradV2(grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: int32) -> "
    "output: T, "
    "sorted_unique_indices: Tidx",
    T=_FLOATS,
    Tidx=_INDEX,
    Tsegmentids=_INDEX,
)
class SparseSegmentSumGradV2(_GradV2):
    """The gradient of SparseSegmentSum's data: the gathered rows only."""

    kind = "Sum"


@op(
    "SparseSegmentMeanGradV2(grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: int32) "
    "-> output: T, "
    "sorted_unique_indices: Tidx",
    T=_FLOATS,
    Tidx=_INDEX,
    Tsegmentids=_INDEX,
)
class SparseSegmentMeanGradV2(_GradV2):
    """The gradient of SparseSegmentMean's data: the gathered rows only."""

    kind = "Mean"


@op(
    "SparseSegmentSqrtNGradV2(grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: int32) "
    "-> output: T, "
    "sorted_unique_indices: Tidx",
    T=_FLOATS,
    Tidx=_INDEX,
    Tsegmentids=_INDEX,
)
class SparseSegmentSqrtNGradV2(_GradV2):
    """The gradient of SparseSegmentSqrtN's data: the gathered rows only."""

    kind = "SqrtN"
