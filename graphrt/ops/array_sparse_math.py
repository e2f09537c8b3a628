"""Arithmetic of sparse tensors: products with dense ones, sums, the larger and smaller of two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import NUMBERS, REAL, int64
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import normal, positive, sample
from graphrt.core.shapes import TensorShape, unknown
from graphrt.core.tensor import SparseTensor, Tensor
from graphrt.ops.array_nodes import dense, ones_of, shape_of, size_of
from graphrt.ops.array_sparse import I64, check_sparse, flat_order
from graphrt.ops.broadcasting import cast_to, conj
from graphrt.ops.operators import TRUE_DIVISION

_INDICES = np.array([[0, 1], [1, 0], [1, 2]])
_SHAPE = np.array([2, 3])


def add_rows(xp: Any, made: Any, rows: Any, values: Any) -> None:
    """made[rows[i]] += values[i], for all i: by sorted runs where there are many columns."""
    if not len(rows):
        return
    if (rows[1:] < rows[:-1]).any():
        order = xp.argsort(rows, kind="stable")
        rows, values = rows[order], values[order]
    starts = xp.concatenate([xp.zeros(1, I64), xp.nonzero(rows[1:] != rows[:-1])[0] + 1])
    made[rows[starts]] += xp.add.reduceat(values, starts, axis=0)


@op(
    "SparseTensorDenseMatMul(a_indices: Tindices, a_values: T, a_shape: int64, b: T) -> product: T",
    Tindices="type in {int32,int64} = int64",
    adjoint_a="bool = False",
    adjoint_b="bool = False",
)
class SparseTensorDenseMatMul:
    """The sparse matrix A times the dense matrix B; adjoint_a and adjoint_b take the conjugate transpose."""

    cpu_only = True

    def shape(
        self,
        s: ShapeContext,
        a_indices: TensorShape,
        a_values: TensorShape,
        a_shape: TensorShape,
        b: TensorShape,
    ) -> TensorShape:
        rows, inner = s.partial(2).with_rank(2).sizes  # type: ignore[misc]
        if s.attrs["adjoint_a"]:
            rows, inner = inner, rows
        b_rows, columns = b.with_rank(2).sizes  # type: ignore[misc]
        if s.attrs["adjoint_b"]:
            b_rows, columns = columns, b_rows
        if inner is not None and b_rows is not None and inner != b_rows:
            raise ValueError(
                f"cannot multiply a sparse matrix of {inner} columns by a matrix of {b_rows} rows"
            )
        return TensorShape.of((rows, columns))

    def compute(self, k: KernelContext, a_indices: Any, a_values: Any, a_shape: Any, b: Any, out: Any) -> Any:
        check_sparse(a_indices, a_values, a_shape, " A")
        rows, columns = a_indices[:, 0], a_indices[:, 1]
        sizes = a_shape.tolist()
        if k.attrs["adjoint_a"]:
            rows, columns, sizes, a_values = columns, rows, sizes[::-1], a_values.conj()
        if k.attrs["adjoint_b"]:
            b = b.conj().T
        if b.ndim != 2 or sizes[1] != b.shape[0]:
            raise ValueError(
                f"cannot multiply {sizes} by {list(b.shape)}: inner sizes {sizes[1]} and {b.shape[0]} differ"
            )
        flat_order(a_indices, a_shape)
        if out is None:
            out = np.empty((sizes[0], b.shape[1]), k.dtype)
        out[...] = 0
        add_rows(np, out, rows, a_values[:, None] * b[columns])
        return out

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        indices, values, shape, b = op.inputs
        dy, adjoint_a, adjoint_b = dense(dy), op.attrs["adjoint_a"], op.attrs["adjoint_b"]
        b_grad = raw.SparseTensorDenseMatMul(indices, values, shape, dy, adjoint_a=not adjoint_a)
        if adjoint_b:
            b_grad = (
                raw.ConjugateTranspose(b_grad, [1, 0])
                if b.dtype.is_complex
                else raw.Transpose(b_grad, [1, 0])
            )
        rows, columns = indices[:, 0], indices[:, 1]
        if adjoint_a:
            rows, columns = columns, rows
        # d a[i, j] = sum over n of dy[i, n] conj(b[j, n]); for the adjoint, the conjugate of that.
        parts_dy = raw.GatherV2(dy, rows, 0)
        parts_b = raw.GatherV2(raw.Transpose(b, [1, 0]) if adjoint_b else b, columns, 0)
        parts_b = parts_b if adjoint_b else conj(parts_b)
        products = parts_dy * parts_b
        grad = raw.Sum(conj(products) if adjoint_a else products, [1])
        return [None, grad, None, b_grad]

    samples = [
        sample(_INDICES, normal(3), _SHAPE, normal(3, 2)),
        sample(_INDICES, normal(3), _SHAPE, normal(2, 4), adjoint_a=True),
        sample(_INDICES, normal(3), _SHAPE, normal(2, 3), adjoint_b=True),
        sample(_INDICES, normal(3), _SHAPE, normal(4, 2), adjoint_a=True, adjoint_b=True),
        sample(_INDICES[::-1].astype(np.int32), normal(3), _SHAPE, normal(3, 2), why="places out of order"),
        sample(np.zeros((0, 2), I64), np.zeros(0, np.float32), _SHAPE, normal(3, 2)),
        sample(_INDICES, normal(3, dtype="complex64"), _SHAPE, normal(3, 2, dtype="complex64")),
    ]


def _at_places(indices: Any, shape: Any, dense_: Any) -> Any:
    """The elements of `dense_`, broadcast to `shape`, at `indices`."""
    try:
        whole = np.broadcast_to(dense_, tuple(shape.tolist()))
    except ValueError:
        raise InvalidArgumentError(
            None,
            None,
            f"the dense tensor {list(dense_.shape)} does not broadcast to the sparse one, {shape.tolist()}",
        ) from None
    flat_order(indices, shape)
    return whole[tuple(indices.T)]


class _WithDense:
    """What the SparseDenseCwise ops share."""

    cpu_only = True
    ufunc = ""

    def shape(
        self,
        s: ShapeContext,
        sp_indices: TensorShape,
        sp_values: TensorShape,
        sp_shape: TensorShape,
        dense: TensorShape,
    ) -> TensorShape:
        return TensorShape.of((sp_indices.with_rank(2).sizes[0],))  # type: ignore[index]

    def compute(self, k: KernelContext, sp_indices: Any, sp_values: Any, sp_shape: Any, dense: Any) -> Any:
        check_sparse(sp_indices, sp_values, sp_shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            return getattr(np, self.ufunc)(sp_values, _at_places(sp_indices, sp_shape, dense)).astype(
                k.dtype, copy=False
            )

    samples = [
        sample(_INDICES, normal(3), _SHAPE, positive(2, 3)),
        sample(_INDICES, normal(3), _SHAPE, positive(3)),
        sample(_INDICES, normal(3), _SHAPE, positive(2, 1)),
    ]


def _gathered(op: Any) -> tuple[Tensor, Tensor]:
    """The dense operand's element for each sparse one, and where in it that is."""
    indices, _, shape, y = op.inputs
    y_shape = cast_to(shape_of(y), int64)
    added = raw.ExpandDims(size_of(shape) - size_of(y_shape), 0)
    padded = raw.ConcatV2([ones_of(added, int64), y_shape], 0)
    places = raw.Slice(
        raw.FloorDiv(indices, raw.FloorDiv(shape, padded)), raw.ConcatV2([[0], added], 0), [-1, -1]
    )
    return raw.GatherNd(y, places), places


_SP = "(sp_indices: int64, sp_values: T, sp_shape: int64, dense: T) -> output: T"


@op("SparseDenseCwiseMul" + _SP, T=NUMBERS)
class SparseDenseCwiseMul(_WithDense):
    """The values of a sparse tensor times a dense one that broadcasts to it."""

    ufunc = "multiply"

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        dy, (picked, places), y = dense(dy), _gathered(op), op.inputs[3]
        return [
            None,
            dy * picked,
            None,
            raw.ScatterNd(places, dy * op.inputs[1], cast_to(shape_of(y), int64)),
        ]


@op("SparseDenseCwiseDiv" + _SP, T=NUMBERS)
class SparseDenseCwiseDiv(_WithDense):
    """The values of a sparse tensor divided by a dense one that broadcasts to it."""

    ufunc = "divide"

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        dy, (picked, places), y = dense(dy), _gathered(op), op.inputs[3]
        down = dy * (-op.inputs[1] / (picked * picked))
        return [None, dy / picked, None, raw.ScatterNd(places, down, cast_to(shape_of(y), int64))]


@op("SparseDenseCwiseAdd" + _SP, T=NUMBERS)
class SparseDenseCwiseAdd(_WithDense):
    """The values of a sparse tensor plus the elements at their places of a dense one that broadcasts to
    it."""

    ufunc = "add"

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        raise NotImplementedError("Gradient for SparseDenseCwiseAdd is not implemented.")

    samples = [sample(*s.inputs, gradient=False, why="it has no gradient") for s in _WithDense.samples]


@op(
    "SparseTensorDenseAdd(a_indices: Tindices, a_values: T, a_shape: Tindices, b: T) -> output: T",
    T=NUMBERS,
    Tindices="type in {int32,int64}",
)
class SparseTensorDenseAdd:
    """The dense `b` with the values of a sparse tensor of its shape added."""

    cpu_only = True

    def shape(
        self,
        s: ShapeContext,
        a_indices: TensorShape,
        a_values: TensorShape,
        a_shape: TensorShape,
        b: TensorShape,
    ) -> TensorShape:
        return b

    def compute(self, k: KernelContext, a_indices: Any, a_values: Any, a_shape: Any, b: Any, out: Any) -> Any:
        check_sparse(a_indices, a_values, a_shape)
        if tuple(a_shape.tolist()) != b.shape:
            raise InvalidArgumentError(
                None,
                None,
                f"the sparse tensor {a_shape.tolist()} and the dense one {list(b.shape)} must have one shape",
            )
        flat = flat_order(a_indices, a_shape)
        if out is None:
            out = np.array(b, copy=True, order="C")
        else:
            out[...] = b
        np.add.at(out.reshape(-1), flat, a_values)
        return out

    def gradient(self, op: Any, dy: Any) -> list[Any]:
        dy = dense(dy)
        return [None, raw.GatherNd(dy, op.inputs[0]), None, dy]

    samples = [
        sample(_INDICES, normal(3), _SHAPE, normal(2, 3)),
        sample(_INDICES.astype(np.int32), normal(3), _SHAPE.astype(np.int32), normal(2, 3)),
    ]


@op(
    "SparseAdd(a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: "
    "int64, thresh: Treal) -> "
    "sum_indices: int64, sum_values: T, sum_shape: int64",
    T=NUMBERS,
    Treal=REAL,
)
class SparseAdd:
    """The sum of two sparse tensors in row-major order, without the sums whose magnitude is below
    `thresh`."""

    cpu_only = True

    def shape(
        self, s: ShapeContext, a_indices: TensorShape, a_values: TensorShape, a_shape: TensorShape, *_: Any
    ) -> list[TensorShape]:
        rank = a_shape.with_rank(1).sizes[0]  # type: ignore[index]
        return [TensorShape.of((None, rank)), unknown(1), TensorShape.of((rank,))]

    def compute(
        self,
        k: KernelContext,
        a_indices: Any,
        a_values: Any,
        a_shape: Any,
        b_indices: Any,
        b_values: Any,
        b_shape: Any,
        thresh: Any,
    ) -> tuple[Any, Any, Any]:
        check_sparse(a_indices, a_values, a_shape, " a")
        check_sparse(b_indices, b_values, b_shape, " b")
        if a_shape.tolist() != b_shape.tolist():
            raise InvalidArgumentError(
                None,
                None,
                f"sparse tensors of shapes {a_shape.tolist()} and {b_shape.tolist()} cannot be added",
            )
        indices = np.concatenate([a_indices, b_indices])
        flat, which = np.unique(flat_order(indices, a_shape), return_inverse=True)
        values = np.zeros(flat.size, k.output_dtypes[1].np)
        np.add.at(values, which.reshape(-1), np.concatenate([a_values, b_values]))
        first = np.full(flat.size, len(indices), I64)
        np.minimum.at(first, which.reshape(-1), np.arange(len(indices)))
        # Entries that only one operand has stay, however small.
        is_sum = np.bincount(which.reshape(-1), minlength=flat.size) > 1
        kept = ~is_sum | (np.abs(values) >= thresh)
        return indices[first[kept]], values[kept], a_shape.copy()

    def gradient(self, op: Any, *grads: Any) -> list[Any]:
        a, b = raw.SparseAddGrad(dense(grads[1]), op.inputs[0], op.inputs[3], op.outputs[0])
        a.set_shape(op.inputs[1].shape)
        b.set_shape(op.inputs[4].shape)
        return [None, a, None, None, b, None, None]

    samples = [
        sample(_INDICES, normal(3), _SHAPE, np.array([[0, 0], [1, 2]]), normal(2), _SHAPE, np.float32(0)),
        sample(_INDICES, np.array([1, -2, 5]), _SHAPE, _INDICES, np.array([0, 2, 1]), _SHAPE, np.int64(2)),
    ]


@op(
    "SparseAddGrad(backprop_val_grad: T, a_indices: int64, b_indices: int64, sum_indices: int64) -> "
    "a_val_grad: T, b_val_grad: T",
    T=NUMBERS,
)
class SparseAddGrad:
    """The gradients of the entries of both operands of SparseAdd."""

    cpu_only = True
    not_differentiable = True

    def shape(
        self,
        s: ShapeContext,
        backprop_val_grad: TensorShape,
        a_indices: TensorShape,
        b_indices: TensorShape,
        sum_indices: TensorShape,
    ) -> list[TensorShape]:
        return [TensorShape.of((i.with_rank(2).sizes[0],)) for i in (a_indices, b_indices)]  # type: ignore[index]

    def compute(
        self, k: KernelContext, backprop_val_grad: Any, a_indices: Any, b_indices: Any, sum_indices: Any
    ) -> tuple[Any, Any]:
        places = {tuple(row): i for i, row in enumerate(sum_indices.tolist())}
        made = []
        for indices in (a_indices, b_indices):
            grad = np.zeros(len(indices), k.dtype)
            for i, row in enumerate(indices.tolist()):
                found = places.get(tuple(row))
                if found is not None:
                    grad[i] = backprop_val_grad[found]
            made.append(grad)
        return made[0], made[1]

    samples = [sample(normal(2), _INDICES, np.array([[0, 1]]), np.array([[0, 1], [1, 2]]))]


class _Joined:
    """What SparseSparseMaximum and SparseSparseMinimum share: an entry that only one has meets a 0."""

    cpu_only = True
    ufunc = ""

    def shape(self, s: ShapeContext, a_indices: TensorShape, *_: TensorShape) -> list[TensorShape]:
        return [TensorShape.of((None, a_indices.with_rank(2).sizes[1])), unknown(1)]  # type: ignore[index]

    def compute(
        self,
        k: KernelContext,
        a_indices: Any,
        a_values: Any,
        a_shape: Any,
        b_indices: Any,
        b_values: Any,
        b_shape: Any,
    ) -> tuple[Any, Any]:
        if a_shape.tolist() != b_shape.tolist():
            raise InvalidArgumentError(
                None, None, f"sparse tensors of shapes {a_shape.tolist()} and {b_shape.tolist()} differ"
            )
        a_flat, b_flat = flat_order(a_indices, a_shape), flat_order(b_indices, b_shape)
        flat, first = np.unique(np.concatenate([a_flat, b_flat]), return_index=True)
        sides = []
        for places, values in ((a_flat, a_values), (b_flat, b_values)):
            side = np.zeros(flat.size, k.output_dtypes[1].np)
            side[np.searchsorted(flat, places)] = values
            sides.append(side)
        return np.concatenate([a_indices, b_indices])[first], getattr(np, self.ufunc)(*sides)

    def gradient(self, op: Any, *grads: Any) -> list[Any]:
        raise NotImplementedError(f"Gradient for {op.type} is not implemented.")

    samples = [
        sample(
            _INDICES,
            normal(3),
            _SHAPE,
            np.array([[0, 0], [1, 2]]),
            normal(2),
            _SHAPE,
            gradient=False,
            why="it has no gradient",
        )
    ]


_TWO = (
    "(a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64) -> "
    "output_indices: int64, "
    "output_values: T"
)


@op("SparseSparseMaximum" + _TWO, T=REAL)
class SparseSparseMaximum(_Joined):
    """The larger of two sparse tensors, element by element."""

    ufunc = "maximum"


@op("SparseSparseMinimum" + _TWO, T=NUMBERS)
class SparseSparseMinimum(_Joined):
    """The smaller of two sparse tensors, element by element."""

    ufunc = "minimum"


def _with_dense(op: Any, default_name: str) -> Callable[[SparseTensor, Any], SparseTensor]:
    """An operator of a SparseTensor and a dense tensor that broadcasts to it."""

    def apply(sp: SparseTensor, y: Any) -> SparseTensor:
        with name_scope(None, default_name, [sp.indices, sp.values, sp.dense_shape, y]) as name:
            y = convert_to_tensor(y, dtype=sp.dtype.base_dtype, name="y")
            return SparseTensor(sp.indices, op(sp, y, name), sp.dense_shape)

    return apply


def _multiplied(sp: SparseTensor, y: Tensor, name: str) -> Tensor:
    return raw.SparseDenseCwiseMul(sp.indices, sp.values, sp.dense_shape, y, name=name)


def _divided(sp: SparseTensor, y: Tensor, name: str) -> Tensor:
    """Integers are cast to floating point first, as by Python's /."""
    kind = TRUE_DIVISION.get(y.dtype.base_dtype)
    if kind is None:
        raise TypeError(f"a SparseTensor of {y.dtype.base_dtype.name} cannot be divided")
    values, y = cast_to(sp.values, kind), cast_to(y, kind)
    return raw.SparseDenseCwiseDiv(sp.indices, values, sp.dense_shape, y, name=name)


SparseTensor.__mul__ = _with_dense(_multiplied, "mul")  # type: ignore[attr-defined]
SparseTensor.__truediv__ = _with_dense(_divided, "truediv")  # type: ignore[attr-defined]
