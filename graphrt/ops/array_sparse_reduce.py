"""Reductions of sparse tensors over axes, dense or sparse, and softmax over the last."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import NUMBERS, REAL, float32, float64, half, int32, int64
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import normal, sample
from graphrt.core.shapes import UNKNOWN, TensorShape, unknown
from graphrt.core.tensor import Tensor
from graphrt.ops.array_nodes import dense, normal_axis, size_of
from graphrt.ops.array_sparse import I64, check_sparse, flat_order
from graphrt.ops.broadcasting import cast_to

_INDICES = np.array([[0, 1], [1, 0], [1, 2]])
_SHAPE = np.array([2, 3])


def _reduced(indices: Any, values: Any, shape: Any, axes: Any, ufunc: Any) -> tuple[list[int], Any, Any]:
    """The kept axes of a reduction over `axes` (all, where there are none), the places in them that have
    entries, and for each the reduced value."""
    rank = shape.size
    gone = {normal_axis(a, rank) for a in np.asarray(axes).reshape(-1).tolist()} or set(range(rank))
    kept = [i for i in range(rank) if i not in gone]
    flat_order(indices, shape)
    places = flat_order(indices[:, kept], shape[kept]) if kept else np.zeros(len(indices), I64)
    order = np.argsort(places, kind="stable")
    found, starts = np.unique(places[order], return_index=True)
    return kept, found, ufunc.reduceat(values[order], starts) if starts.size else values[:0]


class _SparseReduction:
    """What the sparse reductions share."""

    cpu_only = True
    ufunc = ""
    to_sparse = False

    def shape(
        self,
        s: ShapeContext,
        input_indices: TensorShape,
        input_values: TensorShape,
        input_shape: TensorShape,
        reduction_axes: TensorShape,
    ) -> Any:
        if self.to_sparse:
            return [unknown(2), unknown(1), unknown(1)]
        whole, axes = s.partial(2), s.value(3)
        if whole.sizes is None or axes is None:
            return UNKNOWN
        gone = {normal_axis(a, len(whole.sizes)) for a in axes.reshape(-1).tolist()} or set(
            range(len(whole.sizes))
        )
        if s.attrs["keep_dims"]:
            return TensorShape.of(tuple([1 if i in gone else d for i, d in enumerate(whole.sizes)]))
        return TensorShape.of(tuple([d for i, d in enumerate(whole.sizes) if i not in gone]))

    def compute(
        self, k: KernelContext, input_indices: Any, input_values: Any, input_shape: Any, reduction_axes: Any
    ) -> Any:
        check_sparse(input_indices, input_values, input_shape)
        kept, found, values = _reduced(
            input_indices, input_values, input_shape, reduction_axes, getattr(np, self.ufunc)
        )
        sizes = input_shape[kept]
        whole = np.array([d if i in kept else 1 for i, d in enumerate(input_shape.tolist())], I64)
        shape = whole if k.attrs["keep_dims"] else sizes
        if self.to_sparse:
            places = (
                np.stack(np.unravel_index(found, tuple(shape.tolist())), 1)
                if shape.size
                else np.zeros((found.size, 0))
            )
            return places.astype(I64), values, shape.astype(I64)
        made = np.zeros(int(np.prod(sizes)), k.dtype)
        made[found] = values
        return made.reshape(tuple(shape.tolist()))


_REDUCED = [
    sample(_INDICES, normal(3), _SHAPE, [1]),
    sample(_INDICES, normal(3), _SHAPE, [0], keep_dims=True),
    sample(_INDICES, normal(3), _SHAPE, [0, -1]),
    sample(_INDICES, normal(3), _SHAPE, np.array([-1], np.int32)),
]
_RSP = "(input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32) -> "
_RSPARSE = _RSP + "output_indices: int64, output_values: T, output_shape: int64"


@op("SparseReduceSum" + _RSP + "output: T", keep_dims="bool = False", T=NUMBERS)
class SparseReduceSum(_SparseReduction):
    """The dense sum of a sparse tensor over axes."""

    ufunc = "add"

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        indices, _, shape, axes = op.inputs
        kept = cast_to(_kept_sizes(shape, axes), int64)
        spread = raw.Reshape(dense(dy), kept)
        return [None, raw.GatherNd(spread, raw.FloorDiv(indices, raw.FloorDiv(shape, kept))), None, None]

    samples = _REDUCED


def _kept_sizes(shape: Tensor, axes: Tensor) -> Tensor:
    """`shape` with 1 at `axes`."""
    small = cast_to(shape, int32)
    rank = size_of(small)
    axes = raw.Reshape(raw.FloorMod(cast_to(axes, int32) + rank, rank), [-1])
    return raw.DynamicStitch([raw.Range(0, rank, 1), axes], [small, raw.Fill(raw.Shape(axes), 1)])


@op("SparseReduceMax" + _RSP + "output: T", keep_dims="bool = False", T=REAL)
class SparseReduceMax(_SparseReduction):
    """The dense maximum of the entries of a sparse tensor over axes; 0 where there are none."""

    ufunc = "maximum"
    samples = _REDUCED


@op("SparseReduceSumSparse" + _RSPARSE, keep_dims="bool = False", T=NUMBERS)
class SparseReduceSumSparse(_SparseReduction):
    """The sum of a sparse tensor over axes, sparse."""

    ufunc, to_sparse = "add", True
    samples = _REDUCED


@op("SparseReduceMaxSparse" + _RSPARSE, keep_dims="bool = False", T=REAL)
class SparseReduceMaxSparse(_SparseReduction):
    """The maximum of the entries of a sparse tensor over axes, sparse."""

    ufunc, to_sparse = "maximum", True
    samples = _REDUCED


@op(
    "SparseSoftmax(sp_indices: int64, sp_values: T, sp_shape: int64) -> output: T", T=(half, float32, float64)
)
class SparseSoftmax:
    """Softmax over the entries that share all indices but the last."""

    cpu_only = True

    def shape(
        self, s: ShapeContext, sp_indices: TensorShape, sp_values: TensorShape, sp_shape: TensorShape
    ) -> TensorShape:
        return sp_values.with_rank(1)

    def compute(self, k: KernelContext, sp_indices: Any, sp_values: Any, sp_shape: Any) -> Any:
        check_sparse(sp_indices, sp_values, sp_shape)
        rows = flat_order(sp_indices, sp_shape) // max(int(sp_shape[-1]), 1)
        _, which = np.unique(rows, return_inverse=True)
        which = which.reshape(-1)
        n = int(which.max()) + 1 if which.size else 0
        largest = np.full(n, -np.inf, k.dtype)
        np.maximum.at(largest, which, sp_values)
        made = np.exp(sp_values - largest[which])
        sums = np.zeros(n, k.dtype)
        np.add.at(sums, which, made)
        return (made / sums[which]).astype(k.dtype, copy=False)

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        indices, _, shape = op.inputs
        y, dy = op.outputs[0], dense(dy)
        sums = raw.SparseReduceSum(indices, y * dy, shape, [-1], keep_dims=True)
        return [None, raw.SparseDenseCwiseAdd(indices, dy, shape, -sums) * y, None]

    samples = [
        sample(_INDICES, normal(3), _SHAPE),
        sample(np.array([[0, 0, 1], [0, 0, 2], [1, 0, 0]]), normal(3), np.array([2, 1, 3])),
    ]
