"""Products: MatMul, the batched kinds, SparseMatMul, Cross."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import (
    COMPLEX,
    FLOATS,
    REAL,
    bfloat16,
    half,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from graphrt.core.errors import with_hint
from graphrt.core.matrix_product import product, settle_threads
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import empty, ints, normal, sample
from graphrt.core.shapes import UNKNOWN, TensorShape, broadcast
from graphrt.core.tensor import Tensor
from graphrt.ops.broadcasting import cast_to, conj, shape_of


@op(
    "MatMul(a: T, b: T) -> product: T",
    transpose_a="bool = False",
    transpose_b="bool = False",
    T=(*FLOATS, int32, int64, uint8, uint16, uint32, uint64, *COMPLEX),
    grad_a="bool = False",
    grad_b="bool = False",
)
class MatMul:
    """The product of two matrices; float16 and bfloat16 are multiplied in float32."""

    writes_out = True

    def shape(self, s: ShapeContext, a: TensorShape, b: TensorShape) -> TensorShape:
        m, inner = _sides(a.with_rank(2), s.attrs["transpose_a"])
        inner_b, n = _sides(b.with_rank(2), s.attrs["transpose_b"])
        if inner is not None and inner_b is not None and inner != inner_b:
            raise _mismatch(a.sizes, b.sizes, s.attrs)
        return TensorShape.of((m, n))

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        transpose_a, transpose_b = k.attrs["transpose_a"], k.attrs["transpose_b"]
        multiply, attrs, dtype = k.xp.matmul, k.attrs, k.dtype
        if k.xp is np and dtype == np.float32:
            settle_threads()
            multiply = product
        narrow = k.output_dtypes[0] in (half, bfloat16)

        def matmul(a: Any, b: Any, out: Any = None) -> Any:
            if a.ndim != 2 or b.ndim != 2:
                raise ValueError(f"MatMul takes two matrices, not shapes {list(a.shape)} and {list(b.shape)}")
            x, y = a.T if transpose_a else a, b.T if transpose_b else b
            if x.shape[1] != y.shape[0]:
                raise _mismatch(a.shape, b.shape, attrs)
            if not narrow:
                return multiply(x, y, out)
            made = multiply(x.astype(np.float32), y.astype(np.float32)).astype(dtype)
            if out is None:
                return made
            out[...] = made
            return out

        return matmul

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor]:
        a, b = conj(op.inputs[0]), conj(op.inputs[1])
        matmul = raw.MatMul
        turned = op.attrs["transpose_a"], op.attrs["transpose_b"]
        if turned == (False, False):
            return [
                matmul(dy, b, transpose_b=True, grad_a=True),
                matmul(a, dy, transpose_a=True, grad_b=True),
            ]
        if turned == (False, True):
            return [matmul(dy, b, grad_a=True), matmul(dy, a, transpose_a=True, grad_b=True)]
        if turned == (True, False):
            return [matmul(b, dy, transpose_b=True, grad_a=True), matmul(a, dy, grad_b=True)]
        return [
            matmul(b, dy, transpose_a=True, transpose_b=True, grad_a=True),
            matmul(dy, a, transpose_a=True, transpose_b=True, grad_b=True),
        ]

    samples = [
        sample(normal(3, 4), normal(4, 5)),
        sample(normal(4, 3), normal(4, 5), transpose_a=True),
        sample(normal(3, 4), normal(5, 4), transpose_b=True),
        sample(normal(4, 3), normal(5, 4), transpose_a=True, transpose_b=True),
        sample(normal(3, 4, dtype="complex64"), normal(4, 2, dtype="complex64")),
        sample(empty(3, 0), empty(0, 5), why="an empty sum is zero"),
        sample(empty(0, 4), normal(4, 2)),
        sample(ints(3, 4), ints(4, 2)),
        sample(normal(3, 4, dtype="bfloat16"), normal(4, 5, dtype="bfloat16"), gradient=False),
        sample(normal(3, 4, dtype="half"), normal(4, 5, dtype="half"), gradient=False),
    ]


def _sides(shape: TensorShape, turned: bool) -> tuple[int | None, int | None]:
    rows, columns = shape.sizes  # type: ignore[misc]
    return (columns, rows) if turned else (rows, columns)


def _mismatch(a: Any, b: Any, attrs: dict[str, Any]) -> Exception:
    """The error of inner sizes that differ, with a hint where a transpose would fit."""

    def inner(turn_a: bool, turn_b: bool) -> tuple[Any, Any]:
        return a[0] if turn_a else a[1], b[1] if turn_b else b[0]

    now = attrs["transpose_a"], attrs["transpose_b"]
    x, y = inner(*now)
    flags = "".join(f", {n}=True" for n, on in zip(("transpose_a", "transpose_b"), now) if on)
    error = ValueError(f"cannot multiply {list(a)} by {list(b)}{flags}: inner sizes {x} and {y} differ")
    for turn in ((now[0], not now[1]), (not now[0], now[1])):
        x, y = inner(*turn)
        if x == y and x is not None:
            name, value = ("transpose_b", turn[1]) if turn[0] == now[0] else ("transpose_a", turn[0])
            made = [a[1] if turn[0] else a[0], b[0] if turn[1] else b[1]]
            return with_hint(error, f"{name}={value} would give {made}")
    return error


def _adjoint(xp: Any, x: Any) -> Any:
    turned = x.swapaxes(-1, -2)
    return xp.conjugate(turned) if x.dtype.kind == "c" else turned


class _Batched:
    """Base of products of batches of matrices, whose leading dimensions broadcast (V2, V3) or are equal."""

    writes_out = True
    broadcasts = True

    def shape(self, s: ShapeContext, x: TensorShape, y: TensorShape) -> TensorShape:
        x, y = x.with_rank_at_least(2), y.with_rank_at_least(2)
        if x.sizes is None or y.sizes is None:
            return UNKNOWN
        m, inner = _sides(TensorShape.of(x.sizes[-2:]), s.attrs["adj_x"])
        inner_y, n = _sides(TensorShape.of(y.sizes[-2:]), s.attrs["adj_y"])
        if inner is not None and inner_y is not None and inner != inner_y:
            raise ValueError(
                f"cannot multiply {list(x.sizes)} by {list(y.sizes)}: inner sizes {inner} and {inner_y} "
                "differ"
            )
        batch = TensorShape.of(x.sizes[:-2]), TensorShape.of(y.sizes[:-2])
        joined = broadcast(*batch) if self.broadcasts else batch[0].merge_with(batch[1])
        return joined.concatenate(TensorShape.of((m, n)))

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        xp, multiply, dtype, name = k.xp, k.xp.matmul, k.dtype, k.type
        adj_x, adj_y, broadcasts = k.attrs["adj_x"], k.attrs["adj_y"], self.broadcasts
        # What NumPy multiplies in: float32 for the narrow floats, the output's dtype otherwise.
        inner = np.dtype(np.float32) if k.output_dtypes[0] in (half, bfloat16) else dtype
        same = all(d.np == inner for d in k.input_dtypes) and inner == dtype

        def matmul(x: Any, y: Any, out: Any = None) -> Any:
            if x.ndim < 2 or y.ndim < 2 or (not broadcasts and x.shape[:-2] != y.shape[:-2]):
                raise ValueError(
                    f"{name} takes batches of matrices, not shapes {list(x.shape)} and {list(y.shape)}"
                )
            a, b = _adjoint(xp, x) if adj_x else x, _adjoint(xp, y) if adj_y else y
            if a.shape[-1] != b.shape[-2]:
                raise ValueError(
                    f"cannot multiply {list(x.shape)} by {list(y.shape)}: inner sizes {a.shape[-1]} and "
                    f"{b.shape[-2]} "
                    "differ"
                )
            if same:
                return multiply(a, b, out)
            made = multiply(a.astype(inner), b.astype(inner)).astype(dtype)
            if out is None:
                return made
            out[...] = made
            return out

        return matmul

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        x, y = op.inputs
        flags = (
            {} if op.type == "BatchMatMul" else {"grad_x": True},
            {} if op.type == "BatchMatMul" else {"grad_y": True},
        )

        def product(a: Tensor, b: Tensor, adj_a: bool, adj_b: bool, of: int) -> Tensor:
            if op.type == "BatchMatMulV3":
                # In the widest of the three dtypes; the gradient has its operand's.
                return raw.BatchMatMulV3(
                    a, b, adj_x=adj_a, adj_y=adj_b, Tout=op.inputs[of].dtype.base_dtype, **flags[of]
                )
            return getattr(raw, op.type)(a, b, adj_x=adj_a, adj_y=adj_b, name="MatMul", **flags[of])

        adj_x, adj_y = op.attrs["adj_x"], op.attrs["adj_y"]
        gx = product(y, dy, adj_y, True, 0) if adj_x else product(dy, y, False, not adj_y, 0)
        gy = product(dy, x, True, adj_x, 1) if adj_y else product(x, dy, not adj_x, False, 1)
        if not self.broadcasts:
            return [gx, gy]
        return _sum_batches(x, y, gx, gy)

    samples = [
        sample(normal(2, 3, 4), normal(2, 4, 5)),
        sample(normal(2, 4, 3), normal(2, 4, 5), adj_x=True),
        sample(normal(2, 3, 4), normal(2, 5, 4), adj_y=True),
        sample(normal(2, 4, 3), normal(2, 5, 4), adj_x=True, adj_y=True),
        sample(normal(2, 3, 4, dtype="complex64"), normal(2, 5, 4, dtype="complex64"), adj_y=True),
        sample(empty(0, 3, 4), empty(0, 4, 5)),
        sample(empty(2, 3, 0), empty(2, 0, 5)),
        sample(ints(2, 3, 4), ints(2, 4, 5)),
        sample(normal(3, 4), normal(4, 5)),
        sample(normal(2, 3, 4, dtype="bfloat16"), normal(2, 4, 5, dtype="bfloat16"), gradient=False),
    ]


def _sum_batches(x: Tensor, y: Tensor, gx: Tensor, gy: Tensor) -> list[Tensor | None]:
    """The gradients of broadcast batches, summed over the leading axes that each operand broadcast."""
    a, b = x.shape.sizes, y.shape.sizes
    if a is not None and b is not None and a[:-2] == b[:-2] and None not in a[:-2]:
        return [gx, gy]
    shapes = shape_of(x), shape_of(y)
    batches = [s[:-2] for s in shapes]
    axes = raw.BroadcastGradientArgs(*batches)
    return [raw.Reshape(raw.Sum(g, r), s) for g, r, s in zip((gx, gy), axes, shapes)]


_BROADCAST = [
    sample(normal(3, 4), normal(2, 4, 5), why="batches broadcast"),
    sample(normal(2, 1, 3, 4), normal(5, 4, 2)),
    sample(normal(2, 4, 3), normal(4, 5), adj_x=True),
]


@op(
    "BatchMatMul(x: T, y: T) -> output: T",
    T=(*FLOATS, int32, int64, *COMPLEX),
    adj_x="bool = False",
    adj_y="bool = False",
    grad_x="bool = False",
    grad_y="bool = False",
)
class BatchMatMul(_Batched):
    """Products of two batches of matrices of the same leading dimensions."""

    broadcasts = False


@op(
    "BatchMatMulV2(x: T, y: T) -> output: T",
    T=(*FLOATS, int16, int32, int64, uint8, uint16, uint32, uint64, *COMPLEX),
    adj_x="bool = False",
    adj_y="bool = False",
    grad_x="bool = False",
    grad_y="bool = False",
)
class BatchMatMulV2(_Batched):
    """Products of two batches of matrices; their leading dimensions broadcast."""

    samples = [*_Batched.samples, *_BROADCAST]


_V3_TYPES = (*FLOATS, uint8, int8, int16, int32, int64, *COMPLEX)


@op(
    "BatchMatMulV3(x: Ta, y: Tb) -> output: Tout",
    Ta=_V3_TYPES,
    Tb=_V3_TYPES,
    Tout=(*FLOATS, int16, int32, int64, *COMPLEX),
    adj_x="bool = False",
    adj_y="bool = False",
    grad_x="bool = False",
    grad_y="bool = False",
)
class BatchMatMulV3(_Batched):
    """Products of two batches of matrices, given in another dtype; their leading dimensions broadcast."""

    samples = [
        sample(normal(2, 3, 4), normal(2, 4, 5), Tout="float32", numeric=False),
        sample(
            normal(3, 4),
            normal(2, 5, 4),
            adj_y=True,
            Tout="float32",
            numeric=False,
            why="the product is narrower than the operands",
        ),
        sample(ints(2, 3, 4, dtype="int8"), ints(2, 4, 5, dtype="int8"), Tout="int32"),
    ]


@op(
    "SparseMatMul(a: Ta, b: Tb) -> product: float",
    transpose_a="bool = False",
    transpose_b="bool = False",
    a_is_sparse="bool = False",
    b_is_sparse="bool = False",
    Ta="type in {float,bfloat16} = float",
    Tb="type in {float,bfloat16} = float",
)
class SparseMatMul:
    """The float32 product of two matrices that may hold many zeros; `a_is_sparse` and `b_is_sparse` are
    hints."""

    writes_out = True

    def shape(self, s: ShapeContext, a: TensorShape, b: TensorShape) -> TensorShape:
        return MatMul.impl.shape(s, a, b)

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        transpose_a, transpose_b, attrs, multiply = (
            k.attrs["transpose_a"],
            k.attrs["transpose_b"],
            k.attrs,
            k.xp.matmul,
        )

        def matmul(a: Any, b: Any, out: Any = None) -> Any:
            x, y = a.T if transpose_a else a, b.T if transpose_b else b
            if a.ndim != 2 or b.ndim != 2 or x.shape[1] != y.shape[0]:
                raise _mismatch(a.shape, b.shape, attrs)
            return multiply(x.astype(np.float32, copy=False), y.astype(np.float32, copy=False), out)

        return matmul

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor]:
        a, b = op.inputs
        sparse = {a: op.attrs["a_is_sparse"], b: op.attrs["b_is_sparse"], dy: dy.op.type == "ReluGrad"}

        def product(x: Tensor, y: Tensor, turn_x: bool, turn_y: bool, of: Tensor) -> Tensor:
            made = raw.SparseMatMul(
                x, y, transpose_a=turn_x, transpose_b=turn_y, a_is_sparse=sparse[x], b_is_sparse=sparse[y]
            )
            return cast_to(made, of.dtype.base_dtype)

        turn_a, turn_b = op.attrs["transpose_a"], op.attrs["transpose_b"]
        ga = product(b, dy, turn_b, True, a) if turn_a else product(dy, b, False, not turn_b, a)
        gb = product(dy, a, True, turn_a, b) if turn_b else product(a, dy, not turn_a, False, b)
        return [ga, gb]

    samples = [
        sample(normal(3, 4), normal(4, 5), a_is_sparse=True),
        sample(normal(4, 3), normal(4, 5), transpose_a=True, b_is_sparse=True),
        sample(normal(3, 4), normal(5, 4), transpose_b=True),
        sample(normal(4, 3), normal(5, 4), transpose_a=True, transpose_b=True),
        sample(normal(3, 4, dtype="bfloat16"), normal(4, 5), gradient=False),
    ]


@op("Cross(a: T, b: T) -> product: T", T=REAL)
class Cross:
    """The cross product of vectors of 3, along the last axis."""

    def shape(self, s: ShapeContext, a: TensorShape, b: TensorShape) -> TensorShape:
        made = a.merge_with(b).with_rank_at_least(1)
        if made.sizes is not None and made.sizes[-1] not in (3, None):
            raise ValueError(f"vectors of 3 are crossed, not of {made.sizes[-1]}: shape {made}")
        return made

    def compute(self, k: KernelContext, a: Any, b: Any) -> Any:
        if a.shape != b.shape or a.shape[-1:] != (3,):
            raise ValueError(
                f"Cross takes two tensors of one shape [..., 3], not {list(a.shape)} and {list(b.shape)}"
            )
        made = k.xp.empty(a.shape, k.dtype)
        for i in range(3):
            j, m = (i + 1) % 3, (i + 2) % 3
            made[..., i] = a[..., j] * b[..., m] - a[..., m] * b[..., j]
        return made

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor]:
        a, b = op.inputs
        return [raw.Cross(b, dy), raw.Cross(dy, a)]

    samples = [
        sample(normal(3), normal(3)),
        sample(normal(2, 4, 3), normal(2, 4, 3)),
        sample(ints(2, 3), ints(2, 3)),
        sample(empty(0, 3), empty(0, 3)),
    ]
