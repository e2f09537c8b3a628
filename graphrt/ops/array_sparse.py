"""Sparse tensors as (indices, values, shape): to dense and back in order, reshaped, joined, sliced, filled.

`indices` is [n, rank] int64; row i says where values[i] stands. Kernels that need row-major order say so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import NUMBERS
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import normal, sample, text
from graphrt.core.shapes import UNKNOWN, TensorShape, unknown
from graphrt.ops.array_nodes import dense, int_constant, size_of

I64 = np.int64
_INDICES = np.array([[0, 1], [1, 0], [1, 2]])
_SHAPE = np.array([2, 3])


def check_sparse(indices: Any, values: Any, shape: Any, name: str = "") -> None:
    """Raise InvalidArgumentError where the three do not make a sparse tensor."""
    if (
        indices.ndim != 2
        or values.ndim != 1
        or shape.ndim != 1
        or len(indices) != len(values)
        or (indices.shape[1] != shape.size)
    ):
        raise InvalidArgumentError(
            None,
            None,
            f"sparse tensor{name}: indices {list(indices.shape)} must be [n, rank], values "
            f"{list(values.shape)} [n] and the dense shape {list(shape.shape)} [rank]",
        )


def flat_order(indices: Any, shape: Any) -> Any:
    """The row-major place of each row of `indices` in a tensor of `shape`.

    Raises:
      InvalidArgumentError: one is outside.
    """
    if len(indices) and ((indices < 0) | (indices >= shape)).any():
        row = int(((indices < 0) | (indices >= shape)).any(axis=1).argmax())
        raise InvalidArgumentError(
            None,
            None,
            f"indices[{row}] = {indices[row].tolist()} is out of bounds: need 0 <= index < {shape.tolist()}",
        )
    strides = np.ones(shape.size, I64)
    if shape.size:
        strides[:-1] = np.cumprod(shape[:0:-1])[::-1]
    return indices.astype(I64) @ strides


def entries(indices: TensorShape, values: TensorShape) -> int | None:
    """The number of entries, which the shapes of indices and values both say."""
    n = indices.with_rank(2).sizes[0]  # type: ignore[index]
    return TensorShape.of((n,)).merge_with(values.with_rank(1)).sizes[0]  # type: ignore[index]


@op(
    "SparseToDense(sparse_indices: Tindices, output_shape: Tindices, sparse_values: T, default_value: "
    "T) -> dense: T",
    validate_indices="bool = True",
    Tindices="type in {int32,int64}",
)
class SparseToDense:
    """`default_value` everywhere but at `sparse_indices`, where `sparse_values` are (one for all, where it
    is a scalar)."""

    cpu_only = True
    host_inputs = (1,)

    def shape(
        self,
        s: ShapeContext,
        sparse_indices: TensorShape,
        output_shape: TensorShape,
        sparse_values: TensorShape,
        default_value: TensorShape,
    ) -> TensorShape:
        return s.partial(1)

    def compute(
        self,
        k: KernelContext,
        sparse_indices: Any,
        output_shape: Any,
        sparse_values: Any,
        default_value: Any,
        out: Any,
    ) -> Any:
        shape = output_shape.astype(I64)
        # A vector is places of one dimension; a scalar is one of them.
        places = sparse_indices.reshape(-1, 1) if sparse_indices.ndim < 2 else sparse_indices
        if places.shape[1] != shape.size:
            raise InvalidArgumentError(
                None,
                None,
                f"output_shape {shape.tolist()} must have a size for each of the "
                f"{places.shape[1]} columns of sparse_indices",
            )
        flat = flat_order(places, shape)
        if k.attrs["validate_indices"] and (flat[1:] <= flat[:-1]).any():
            row = int((flat[1:] <= flat[:-1]).argmax()) + 1
            what = "is repeated" if flat[row] == flat[row - 1] else "is out of order"
            raise InvalidArgumentError(
                None,
                None,
                f"indices[{row}] = {places[row].tolist()} {what}: sparse_reorder sorts them, "
                "validate_indices=False takes them as they are",
            )
        if out is None:
            out = k.xp.empty(tuple(shape.tolist()), k.dtype)
        out[...] = default_value
        out.reshape(-1)[flat] = sparse_values
        return out

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        dy = dense(dy)
        at_values = raw.GatherNd(dy, op.inputs[0])
        rank = dy.shape.rank
        whole = raw.Sum(
            dy, int_constant(np.arange(rank)) if rank is not None else raw.Range(0, raw.Rank(dy), 1)
        )
        return [None, None, at_values, whole - raw.Sum(at_values, [0])]

    samples = [
        sample(_INDICES, _SHAPE, normal(3), normal()),
        sample(
            [1, 4],
            [6],
            normal(2),
            np.float32(0),
            gradient=False,
            why="a vector of places has no gradient in TensorFlow",
        ),
        sample(
            _INDICES.astype(np.int32),
            _SHAPE.astype(np.int32),
            np.float32(2),
            np.float32(0),
            gradient=False,
            why="one value for all",
        ),
        sample(2, [4], 5, 0),
        sample(_INDICES[::-1].copy(), _SHAPE, normal(3), normal(), validate_indices=False),
        sample(np.zeros((0, 2), I64), _SHAPE, np.zeros(0, np.float32), normal()),
        sample(np.array([[0]]), np.array([2]), text("a"), text("z").reshape(())),
    ]


@op(
    "SparseReorder(input_indices: int64, input_values: T, input_shape: int64) -> output_indices: "
    "int64, output_values: T"
)
class SparseReorder:
    """The same sparse tensor with its entries in row-major order."""

    cpu_only = True

    def shape(
        self, s: ShapeContext, input_indices: TensorShape, input_values: TensorShape, input_shape: TensorShape
    ) -> list[TensorShape]:
        return [input_indices.with_rank(2), input_values.with_rank(1)]

    def compute(
        self, k: KernelContext, input_indices: Any, input_values: Any, input_shape: Any
    ) -> tuple[Any, Any]:
        check_sparse(input_indices, input_values, input_shape)
        order = np.argsort(flat_order(input_indices, input_shape), kind="stable")
        return input_indices[order], input_values[order]

    def gradient(self, op: Any, d_indices: Any, d_values: Any) -> list[Any]:
        n = size_of(op.inputs[1])
        places = raw.SparseReorder(op.inputs[0], raw.Range(0, n, 1), op.inputs[2])[1]
        return [None, raw.GatherV2(dense(d_values), raw.InvertPermutation(places), 0), None]

    samples = [
        sample(_INDICES[::-1].copy(), normal(3), _SHAPE),
        sample(_INDICES, text("a", "b", "c"), _SHAPE),
    ]


@op(
    "SparseReshape(input_indices: int64, input_shape: int64, new_shape: int64) -> output_indices: "
    "int64, output_shape: int64"
)
class SparseReshape:
    """The places and shape of a sparse tensor reshaped to `new_shape`, in which one size may be -1."""

    cpu_only = True
    not_differentiable = True

    def shape(
        self, s: ShapeContext, input_indices: TensorShape, input_shape: TensorShape, new_shape: TensorShape
    ) -> list[TensorShape]:
        n = input_indices.with_rank(2).sizes[0]  # type: ignore[index]
        rank = new_shape.with_rank(1).sizes[0]  # type: ignore[index]
        return [TensorShape.of((n, rank)), TensorShape.of((rank,))]

    def compute(
        self, k: KernelContext, input_indices: Any, input_shape: Any, new_shape: Any
    ) -> tuple[Any, Any]:
        whole, sizes = math.prod(input_shape.tolist()), new_shape.tolist()
        if sizes.count(-1) > 1 or any(d < -1 for d in sizes):
            raise InvalidArgumentError(
                None, None, f"new_shape {sizes}: sizes are 0 or more, and one of them may be -1"
            )
        if -1 in sizes:
            known = math.prod([d for d in sizes if d >= 0])
            if known == 0 or whole % known:
                raise InvalidArgumentError(
                    None, None, f"a sparse tensor of {whole} places cannot be reshaped to {sizes}"
                )
            sizes = [whole // known if d == -1 else d for d in sizes]
        if math.prod(sizes) != whole:
            raise InvalidArgumentError(
                None,
                None,
                f"a sparse tensor of shape {input_shape.tolist()}, {whole} places, cannot be "
                f"reshaped to {sizes}",
            )
        if not len(input_indices):
            return np.zeros((0, len(sizes)), I64), np.array(sizes, I64)
        flat = flat_order(input_indices, input_shape)
        return np.stack(np.unravel_index(flat, tuple(sizes)), 1).astype(I64), np.array(sizes, I64)

    samples = [
        sample(_INDICES, _SHAPE, np.array([3, 2])),
        sample(_INDICES, _SHAPE, np.array([-1])),
        sample(np.zeros((0, 2), I64), _SHAPE, np.array([6, 1])),
    ]


@op(
    "SparseConcat(indices: N*int64, values: N*T, shapes: N*int64) -> output_indices: int64, "
    "output_values: T, output_shape: int64",
    concat_dim="int",
    N="int >= 2",
)
class SparseConcat:
    """Sparse tensors, each in row-major order, one after the other along `concat_dim`."""

    cpu_only = True
    not_differentiable = True

    def shape(
        self,
        s: ShapeContext,
        indices: list[TensorShape],
        values: list[TensorShape],
        shapes: list[TensorShape],
    ) -> list[TensorShape]:
        counts, rank = [entries(i, v) for i, v in zip(indices, values)], UNKNOWN
        for i, shape in zip(indices, shapes):
            rank = rank.merge_with(shape.with_rank(1)).merge_with(TensorShape.of(i.with_rank(2).sizes[1:]))  # type: ignore[index]
        n = None if None in counts else sum(counts)  # type: ignore[arg-type]
        return [TensorShape.of((n, rank.sizes[0])), TensorShape.of((n,)), rank]  # type: ignore[index]

    def compute(self, k: KernelContext, *inputs: Any) -> tuple[Any, Any, Any]:
        n = len(inputs) // 3
        indices, values, shapes = inputs[:n], inputs[n : 2 * n], inputs[2 * n :]
        rank = shapes[0].size
        at = k.attrs["concat_dim"] + (rank if k.attrs["concat_dim"] < 0 else 0)
        if not 0 <= at < rank:
            raise InvalidArgumentError(
                None, None, f"concat_dim {k.attrs['concat_dim']} must be in [{-rank}, {rank})"
            )
        whole, moved = shapes[0].copy(), []
        whole[at] = 0
        for i, (rows, shape) in enumerate(zip(indices, shapes)):
            if shape.size != rank or (np.delete(shape, at) != np.delete(whole, at)).any():
                raise InvalidArgumentError(
                    None,
                    None,
                    f"shapes[{i}] {shape.tolist()} and shapes[0] {shapes[0].tolist()} must be the "
                    f"same but for dimension {at}",
                )
            rows = rows.copy()
            rows[:, at] += whole[at]
            whole[at] += shape[at]
            moved.append(rows)
        made, items = np.concatenate(moved), np.concatenate(values)
        if at:
            order = np.argsort(flat_order(made, whole), kind="stable")
            made, items = made[order], items[order]
        return made, items, whole

    samples = [
        sample([_INDICES, _INDICES], [normal(3), normal(3)], [_SHAPE, _SHAPE], concat_dim=0),
        sample(
            [_INDICES, np.array([[1, 1]])], [normal(3), normal(1)], [_SHAPE, np.array([2, 5])], concat_dim=-1
        ),
    ]


@op(
    "SparseSlice(indices: int64, values: T, shape: int64, start: int64, size: int64) -> "
    "output_indices: int64, output_values: T, "
    "output_shape: int64"
)
class SparseSlice:
    """The entries of a sparse tensor in the box of `size` from `start` on, whose shape ends with the
    tensor's."""

    cpu_only = True

    def shape(
        self,
        s: ShapeContext,
        indices: TensorShape,
        values: TensorShape,
        shape: TensorShape,
        start: TensorShape,
        size: TensorShape,
    ) -> list[TensorShape]:
        rank = shape.with_rank(1).sizes[0]  # type: ignore[index]
        return [TensorShape.of((None, rank)), unknown(1), TensorShape.of((rank,))]

    def compute(
        self, k: KernelContext, indices: Any, values: Any, shape: Any, start: Any, size: Any
    ) -> tuple[Any, Any, Any]:
        check_sparse(indices, values, shape)
        if start.shape != shape.shape or size.shape != shape.shape:
            raise InvalidArgumentError(
                None,
                None,
                f"start {start.tolist()} and size {size.tolist()} must have a number for each of the "
                f"{shape.size} dimensions",
            )
        inside = ((indices >= start) & (indices < start + size)).all(axis=1)
        return indices[inside] - start, values[inside], np.maximum(np.minimum(size, shape - start), 0)

    def gradient(self, op: Any, *grads: Any) -> list[Any]:
        made = raw.SparseSliceGrad(dense(grads[1]), op.inputs[0], op.inputs[3], op.outputs[0])
        made.set_shape(op.inputs[1].shape)
        return [None, made, None, None, None]

    samples = [
        sample(_INDICES, normal(3), _SHAPE, np.array([1, 0]), np.array([1, 2])),
        sample(_INDICES, normal(3), _SHAPE, np.array([0, 1]), np.array([5, 5])),
    ]


def _rows(indices: Any) -> list[tuple[int, ...]]:
    return [tuple(row) for row in indices.tolist()]


@op(
    "SparseSliceGrad(backprop_val_grad: T, input_indices: int64, input_start: int64, output_indices: "
    "int64) -> val_grad: T",
    T=NUMBERS,
)
class SparseSliceGrad:
    """For each input entry of a SparseSlice the gradient of the output entry that it became, or 0."""

    cpu_only = True

    def shape(
        self,
        s: ShapeContext,
        backprop_val_grad: TensorShape,
        input_indices: TensorShape,
        input_start: TensorShape,
        output_indices: TensorShape,
    ) -> TensorShape:
        return TensorShape.of((input_indices.with_rank(2).sizes[0],))  # type: ignore[index]

    def compute(
        self,
        k: KernelContext,
        backprop_val_grad: Any,
        input_indices: Any,
        input_start: Any,
        output_indices: Any,
    ) -> Any:
        places = {row: i for i, row in enumerate(_rows(output_indices + input_start))}
        made = np.zeros(len(input_indices), k.dtype)
        for i, row in enumerate(_rows(input_indices)):
            if row in places:
                made[i] = backprop_val_grad[places[row]]
        return made

    samples = [sample(normal(1), _INDICES, np.array([1, 0]), np.array([[0, 0]]))]


@op(
    "SparseFillEmptyRows(indices: int64, values: T, dense_shape: int64, default_value: T) -> "
    "output_indices: int64, "
    "output_values: T, empty_row_indicator: bool, reverse_index_map: int64"
)
class SparseFillEmptyRows:
    """A sparse matrix with `default_value` in the first column of each row that had no entry."""

    cpu_only = True

    def shape(
        self,
        s: ShapeContext,
        indices: TensorShape,
        values: TensorShape,
        dense_shape: TensorShape,
        default_value: TensorShape,
    ) -> list[TensorShape]:
        n = entries(indices, values)
        shape = s.partial(2)
        rows = None if shape.sizes is None else shape.sizes[0]
        return [
            TensorShape.of((None, indices.with_rank(2).sizes[1])),
            unknown(1),
            TensorShape.of((rows,)),  # type: ignore[index]
            TensorShape.of((n,)),
        ]

    def compute(
        self, k: KernelContext, indices: Any, values: Any, dense_shape: Any, default_value: Any
    ) -> tuple[Any, ...]:
        check_sparse(indices, values, dense_shape)
        count = int(dense_shape[0])
        rows = indices[:, 0]
        if rows.size and (rows.min() < 0 or rows.max() >= count):
            raise InvalidArgumentError(None, None, f"indices name rows outside [0, {count})")
        empty = np.bincount(rows, minlength=count)[:count] == 0
        filled = np.nonzero(empty)[0]
        added = np.zeros((filled.size, dense_shape.size), I64)
        added[:, 0] = filled
        order = np.argsort(np.concatenate([rows, filled]), kind="stable")
        defaults = np.empty(filled.size, values.dtype)
        defaults[:] = default_value
        places = np.empty(order.size, I64)
        places[order] = np.arange(order.size)
        return (
            np.concatenate([indices, added])[order],
            np.concatenate([values, defaults])[order],
            empty,
            places[: len(rows)],
        )

    def gradient(self, op: Any, *grads: Any) -> list[Any]:
        d_values, d_default = raw.SparseFillEmptyRowsGrad(op.outputs[3], dense(grads[1]))
        return [None, d_values, None, d_default]

    samples = [
        sample(np.array([[0, 1], [2, 0], [2, 2]]), normal(3), np.array([4, 3]), normal()),
        sample(np.array([[2, 0], [0, 1]]), text("a", "b"), np.array([3, 3]), text("z").reshape(())),
    ]


@op("SparseFillEmptyRowsGrad(reverse_index_map: int64, grad_values: T) -> d_values: T, d_default_value: T")
class SparseFillEmptyRowsGrad:
    """The gradients of the entries and of the default value of SparseFillEmptyRows."""

    cpu_only = True

    def shape(
        self, s: ShapeContext, reverse_index_map: TensorShape, grad_values: TensorShape
    ) -> list[TensorShape]:
        return [reverse_index_map.with_rank(1), TensorShape.of(())]

    def compute(self, k: KernelContext, reverse_index_map: Any, grad_values: Any) -> tuple[Any, Any]:
        rest = np.ones(len(grad_values), bool)
        rest[reverse_index_map] = False
        return grad_values[reverse_index_map], grad_values[rest].sum(dtype=grad_values.dtype)

    samples = [sample(np.array([0, 2]), normal(4))]


@op(
    "SparseSplit(split_dim: int64, indices: int64, values: T, shape: int64) -> output_indices: "
    "num_split*int64, "
    "output_values: num_split*T, output_shape: num_split*int64"
)
class SparseSplit:
    """A sparse tensor cut into `num_split` parts along `split_dim`; the first ones are one longer where it
    does not divide."""

    cpu_only = True

    def shape(
        self,
        s: ShapeContext,
        split_dim: TensorShape,
        indices: TensorShape,
        values: TensorShape,
        shape: TensorShape,
    ) -> list[TensorShape]:
        num, rank = s.attrs["num_split"], shape.with_rank(1).sizes[0]  # type: ignore[index]
        return [TensorShape.of((None, rank))] * num + [unknown(1)] * num + [TensorShape.of((rank,))] * num

    def compute(
        self, k: KernelContext, split_dim: Any, indices: Any, values: Any, shape: Any
    ) -> tuple[Any, ...]:
        check_sparse(indices, values, shape)
        num, at = k.attrs["num_split"], int(split_dim)
        at = at + shape.size if at < 0 else at
        if not 0 <= at < shape.size or num > shape[at]:
            raise InvalidArgumentError(
                None, None, f"{shape.tolist()} cannot be split into {num} parts along dimension {at}"
            )
        part, longer = divmod(int(shape[at]), num)
        places, items, shapes, start = [], [], [], 0
        for i in range(num):
            size = part + (i < longer)
            inside = (indices[:, at] >= start) & (indices[:, at] < start + size)
            rows, whole = indices[inside], shape.copy()
            rows[:, at] -= start
            whole[at] = size
            places.append(rows)
            items.append(values[inside])
            shapes.append(whole)
            start += size
        return (*places, *items, *shapes)

    samples = [
        sample(np.int64(1), _INDICES, normal(3), _SHAPE, num_split=2),
        sample(np.int64(0), _INDICES, normal(3), _SHAPE, num_split=2),
    ]
