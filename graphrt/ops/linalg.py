"""Linear systems: inverses, determinants, solutions, Cholesky factors, of the matrices in the last two
dimensions.

LAPACK does the work, through numpy.linalg; float16 is computed in float32, bfloat16 too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import COMPLEX, bfloat16, float32, float64, half
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import Later, normal, sample
from graphrt.core.shapes import UNKNOWN, TensorShape, broadcast
from graphrt.core.tensor import Tensor
from graphrt.ops.broadcasting import cast_to, conj, shape_of

LAPACK_TYPES = (float64, float32, half, *COMPLEX)


def square(shape: TensorShape) -> TensorShape:
    """`shape`, whose last two sizes must be equal. Raises ValueError where they are not."""
    shape = shape.with_rank_at_least(2)
    if shape.sizes is not None:
        rows, columns = shape.sizes[-2:]
        if rows is not None and columns is not None and rows != columns:
            raise ValueError(f"the matrices must be square, not [{rows}, {columns}] as in shape {shape}")
    return shape


def check_square(matrix: Any, name: str) -> None:
    """Raises ValueError where the last two sizes of an array differ."""
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"{name}: Input matrix must be square, not of shape {list(matrix.shape)}")


def wide(matrix: Any) -> Any:
    """`matrix` in a dtype that LAPACK has."""
    return matrix if matrix.dtype.char in "fdFD" else matrix.astype(np.float32)


def adjoint(x: Any) -> Any:
    """An array's matrices, transposed and conjugated."""
    return x.swapaxes(-1, -2).conj() if x.dtype.kind == "c" else x.swapaxes(-1, -2)


def turned(x: Tensor) -> Tensor:
    """A tensor's matrices, transposed and conjugated."""
    rank = x.shape.rank
    if rank is not None:
        order: Any = np.array([*range(rank - 2), rank - 1, rank - 2], np.int32)
    else:
        n = raw.Rank(x)
        order = raw.ConcatV2([raw.Range(0, n - 2, 1), raw.Pack([n - 1, n - 2])], 0)
    return raw.ConjugateTranspose(x, order) if x.dtype.is_complex else raw.Transpose(x, order)


def product(a: Tensor, b: Tensor, adj_a: bool = False, adj_b: bool = False) -> Tensor:
    """a b, of matrices or batches of them."""
    if a.shape.rank == 2 and b.shape.rank == 2:
        return raw.MatMul(
            conj(a) if adj_a else a, conj(b) if adj_b else b, transpose_a=adj_a, transpose_b=adj_b
        )
    return raw.BatchMatMulV2(a, b, adj_x=adj_a, adj_y=adj_b, name="MatMul")


class Square:
    """Base of ops from square matrices to matrices of the same shape."""

    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return square(input)


def well_posed(*shape: int, dtype: Any = "float32") -> Later:
    """A sample of matrices that are far from singular: their symmetric part is positive definite."""

    def made() -> np.ndarray:
        drawn = normal(*shape, dtype=dtype).array(0)
        return (drawn / (2 * np.sqrt(shape[-1])) + np.eye(shape[-1], dtype=drawn.dtype)).astype(drawn.dtype)

    return Later(made)


def positive_definite_array(*shape: int, dtype: Any = "float32") -> np.ndarray:
    """Symmetric (Hermitian) positive definite matrices."""
    made = normal(*shape, dtype=dtype).array(0)
    return (made @ adjoint(made) / shape[-1] + np.eye(shape[-1], dtype=made.dtype)).astype(made.dtype)


def positive_definite(*shape: int, dtype: Any = "float32") -> Later:
    """A sample of symmetric (Hermitian) positive definite matrices."""
    return Later(lambda: positive_definite_array(*shape, dtype=dtype))


@op("MatrixInverse(input: T) -> output: T", adjoint="bool = False", T=LAPACK_TYPES)
class MatrixInverse(Square):
    """The inverse of square matrices, or of their adjoints."""

    def compute(self, k: KernelContext, input: Any) -> Any:
        check_square(input, "MatrixInverse")
        try:
            made = np.linalg.inv(adjoint(wide(input)) if k.attrs["adjoint"] else wide(input))
        except np.linalg.LinAlgError:
            raise ValueError("Input is not invertible.") from None
        return made.astype(k.dtype, copy=False)

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        inverse, of_adjoint = op.outputs[0], op.attrs["adjoint"]
        return -product(inverse, product(dy, inverse, of_adjoint, not of_adjoint), not of_adjoint)

    samples = [
        sample(well_posed(3, 3)),
        sample(well_posed(2, 4, 4), adjoint=True),
        sample(well_posed(3, 3, dtype="complex64")),
        sample(well_posed(3, 3, dtype="float64")),
        sample(np.zeros((0, 0), np.float32)),
    ]


@op("MatrixDeterminant(input: T) -> output: T", T=(half, float32, float64, *COMPLEX))
class MatrixDeterminant:
    """The determinants of square matrices."""

    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        input = square(input)
        return UNKNOWN if input.sizes is None else TensorShape.of(input.sizes[:-2])

    def compute(self, k: KernelContext, input: Any) -> Any:
        check_square(input, "MatrixDeterminant")
        return np.asarray(np.linalg.det(wide(input))).astype(k.dtype, copy=False)

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        inverse = raw.MatrixInverse(op.inputs[0], adjoint=True)
        return _scaled(dy * op.outputs[0], inverse)

    samples = [
        sample(well_posed(3, 3)),
        sample(well_posed(2, 4, 4)),
        sample(well_posed(3, 3, dtype="complex64"), gradient=False),
        sample(np.zeros((0, 0), np.float32), gradient=False),
    ]


def _scaled(factors: Tensor, matrices: Tensor) -> Tensor:
    """A factor for each matrix, times it."""
    shape = raw.ConcatV2([shape_of(factors), np.array([1, 1], np.int32)], 0, name="concat")
    return raw.Reshape(factors, shape) * matrices


@op("LogMatrixDeterminant(input: T) -> sign: T, log_abs_determinant: T", T=(half, float32, float64, *COMPLEX))
class LogMatrixDeterminant:
    """The sign of the determinants of square matrices, and the logarithm of their size."""

    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape) -> list[TensorShape]:
        made = MatrixDeterminant.impl.shape(s, input)
        return [made, made]

    def compute(self, k: KernelContext, input: Any) -> tuple[Any, Any]:
        check_square(input, "LogMatrixDeterminant")
        sign, log = np.linalg.slogdet(wide(input))
        return np.asarray(sign).astype(k.dtype), np.asarray(log).astype(k.dtype)

    def gradient(self, op: Any, d_sign: Tensor, d_log: Tensor) -> Tensor:
        inverse = raw.MatrixInverse(op.inputs[0], adjoint=True)
        return _scaled(d_log, inverse)

    samples = [
        sample(well_posed(3, 3)),
        sample(Later(lambda: -well_posed(2, 3, 3).compute())),
        sample(well_posed(3, 3, dtype="float64")),
        sample(np.zeros((0, 0), np.float32), gradient=False),
    ]


class _Solve:
    """Base of solutions of matrix * x = rhs."""

    cpu_only = True

    def shape(self, s: ShapeContext, matrix: TensorShape, rhs: TensorShape) -> TensorShape:
        matrix, rhs = square(matrix), rhs.with_rank_at_least(2)
        if matrix.sizes is None or rhs.sizes is None:
            return UNKNOWN
        TensorShape.of(matrix.sizes[-1:]).merge_with(TensorShape.of(rhs.sizes[-2:-1]))
        batch = self.batch(TensorShape.of(matrix.sizes[:-2]), TensorShape.of(rhs.sizes[:-2]))
        return batch.concatenate(TensorShape.of(rhs.sizes[-2:]))

    def batch(self, a: TensorShape, b: TensorShape) -> TensorShape:
        return a.merge_with(b)

    def check(self, matrix: Any, rhs: Any, name: str) -> None:
        check_square(matrix, name)
        if rhs.ndim < 2 or rhs.shape[-2] != matrix.shape[-1]:
            raise ValueError(
                f"{name}: matrices of shape {list(matrix.shape)} take right-hand sides with "
                f"{matrix.shape[-1]} rows, not of shape "
                f"{list(rhs.shape)}"
            )


@op("MatrixSolve(matrix: T, rhs: T) -> output: T", adjoint="bool = False", T=LAPACK_TYPES)
class MatrixSolve(_Solve):
    """x of matrix x = rhs, or of matrix's adjoint x = rhs."""

    def compute(self, k: KernelContext, matrix: Any, rhs: Any) -> Any:
        self.check(matrix, rhs, "MatrixSolve")
        try:
            made = np.linalg.solve(adjoint(wide(matrix)) if k.attrs["adjoint"] else wide(matrix), wide(rhs))
        except np.linalg.LinAlgError:
            raise ValueError("Input matrix is not invertible.") from None
        return made.astype(k.dtype, copy=False)

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor]:
        x, of_adjoint = op.outputs[0], op.attrs["adjoint"]
        d_rhs = raw.MatrixSolve(op.inputs[0], dy, adjoint=not of_adjoint)
        d_matrix = -product(x, d_rhs, adj_b=True) if of_adjoint else -product(d_rhs, x, adj_b=True)
        return [d_matrix, d_rhs]

    samples = [
        sample(well_posed(3, 3), normal(3, 2)),
        sample(well_posed(2, 4, 4), normal(2, 4, 3), adjoint=True),
        sample(well_posed(3, 3, dtype="complex64"), normal(3, 2, dtype="complex64")),
        sample(well_posed(3, 3), np.zeros((3, 0), np.float32)),
    ]


@op(
    "MatrixTriangularSolve(matrix: T, rhs: T) -> output: T",
    lower="bool = True",
    adjoint="bool = False",
    T=(bfloat16, *LAPACK_TYPES),
)
class MatrixTriangularSolve(_Solve):
    """x of matrix x = rhs, of the lower or upper triangle of matrix, or its adjoint; batches broadcast."""

    def batch(self, a: TensorShape, b: TensorShape) -> TensorShape:
        return broadcast(a, b)

    def compute(self, k: KernelContext, matrix: Any, rhs: Any) -> Any:
        self.check(matrix, rhs, "MatrixTriangularSolve")
        return solve_triangular(wide(matrix), wide(rhs), k.attrs["lower"], k.attrs["adjoint"]).astype(
            k.dtype, copy=False
        )

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        matrix, rhs = op.inputs
        x, lower, of_adjoint = op.outputs[0], op.attrs["lower"], op.attrs["adjoint"]
        d_rhs = raw.MatrixTriangularSolve(matrix, dy, lower=lower, adjoint=not of_adjoint)
        d_matrix = -product(x, d_rhs, adj_b=True) if of_adjoint else -product(d_rhs, x, adj_b=True)
        d_matrix = raw.MatrixBandPart(d_matrix, -1, 0) if lower else raw.MatrixBandPart(d_matrix, 0, -1)
        a, b = matrix.shape.sizes, rhs.shape.sizes
        if a is not None and b is not None and None not in (*a, *b) and a[:-2] == b[:-2]:
            return [d_matrix, d_rhs]
        shapes = shape_of(matrix), shape_of(rhs)
        axes = raw.BroadcastGradientArgs(*(raw.StridedSlice(s, [0], [-2], [1], begin_mask=1) for s in shapes))
        return [raw.Reshape(raw.Sum(d, r), s) for d, r, s in zip((d_matrix, d_rhs), axes, shapes)]

    samples = [
        sample(well_posed(3, 3), normal(3, 2)),
        sample(well_posed(2, 4, 4), normal(2, 4, 3), lower=False),
        sample(well_posed(3, 3), normal(3, 2), adjoint=True),
        sample(well_posed(3, 3), normal(2, 3, 2), lower=False, adjoint=True, why="batches broadcast"),
        sample(well_posed(3, 3, dtype="complex64"), normal(3, 2, dtype="complex64"), adjoint=True),
        sample(
            well_posed(70, 70, dtype="float64"),
            normal(70, 3, dtype="float64"),
            gradient=False,
            why="more than one block",
        ),
    ]


# Rows that are solved at once: larger blocks waste work on the zeros, smaller ones make more calls.
_BLOCK = 32


def solve_triangular(matrix: Any, rhs: Any, lower: bool = True, of_adjoint: bool = False) -> Any:
    """x of matrix x = rhs by blocked substitution, of the matrix's lower or upper triangle (or that
    triangle's adjoint)."""
    a = np.tril(matrix) if lower else np.triu(matrix)
    if of_adjoint:
        a, lower = adjoint(a), not lower
    n = a.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], rhs.shape[:-2])
    x = np.array(np.broadcast_to(rhs, (*batch, *rhs.shape[-2:])), np.result_type(a, rhs))
    starts = range(0, n, _BLOCK)
    for start in starts if lower else reversed(starts):
        block, done = (
            slice(start, min(start + _BLOCK, n)),
            slice(0, start) if lower else slice(start + _BLOCK, n),
        )
        rest = x[..., block, :]
        if done.start < done.stop:
            rest = rest - a[..., block, done] @ x[..., done, :]
        x[..., block, :] = _substitute(a[..., block, block], rest, lower)
    return x


def _substitute(a: Any, rhs: Any, lower: bool) -> Any:
    """One block, a row at a time: singular triangles give inf and nan, as substitution does."""
    n = a.shape[-1]
    x = np.array(rhs)
    for i in range(n) if lower else reversed(range(n)):
        done = slice(0, i) if lower else slice(i + 1, n)
        row = x[..., i, :] - (a[..., i, None, done] @ x[..., done, :])[..., 0, :]
        x[..., i, :] = row / a[..., i, i, None]
    return x


@op("Cholesky(input: T) -> output: T", T=(float64, float32, half, *COMPLEX))
class Cholesky(Square):
    """The lower triangles L of L L^H = input, of positive definite matrices, of which the lower triangle is
    read."""

    def compute(self, k: KernelContext, input: Any) -> Any:
        check_square(input, "Cholesky")
        try:
            return np.linalg.cholesky(wide(input)).astype(k.dtype, copy=False)
        except np.linalg.LinAlgError:
            raise ValueError(
                "Cholesky decomposition was not successful. The input might not be valid: it must be "
                "positive definite."
            ) from None

    def gradient(self, op: Any, dy: Tensor) -> Tensor:
        # dA = L^-H phi(L^H dL) L^-1, made Hermitian; phi keeps the lower triangle, with half the diagonal.
        factor = op.outputs[0]
        middle = product(factor, dy, adj_a=True)
        middle = raw.MatrixSetDiag(middle, 0.5 * raw.MatrixDiagPart(middle))
        middle = raw.MatrixBandPart(middle, -1, 0)
        left = raw.MatrixTriangularSolve(factor, middle, adjoint=True)
        made = turned(raw.MatrixTriangularSolve(factor, turned(left), adjoint=True))
        return (made + turned(made)) * 0.5

    samples = [
        *(
            sample(
                positive_definite(*shape, dtype=d), numeric=False, why="the gradient is of the symmetric part"
            )
            for shape, d in (
                ((3, 3), "float32"),
                ((2, 4, 4), "float32"),
                ((3, 3), "complex64"),
                ((3, 3), "float64"),
            )
        ),
        sample(np.zeros((0, 0), np.float32), gradient=False),
    ]


@op("CholeskyGrad(l: T, grad: T) -> output: T", T=(half, float32, float64))
class CholeskyGrad:
    """The gradient of Cholesky's input, from its output and the output's gradient."""

    cpu_only = True

    def shape(self, s: ShapeContext, factor: TensorShape, grad: TensorShape) -> TensorShape:
        return square(factor.merge_with(grad))

    def compute(self, k: KernelContext, factor: Any, grad: Any) -> Any:
        factor = wide(factor)
        middle = np.tril(adjoint(factor) @ wide(grad))
        n = np.arange(factor.shape[-1])
        middle[..., n, n] *= 0.5
        left = solve_triangular(factor, middle, True, True)
        made = adjoint(solve_triangular(factor, adjoint(left), True, True))
        return ((made + adjoint(made)) * made.dtype.type(0.5)).astype(k.dtype, copy=False)

    samples = [
        sample(Later(lambda: np.linalg.cholesky(positive_definite_array(3, 3))), normal(3, 3)),
        sample(
            Later(lambda: np.linalg.cholesky(positive_definite_array(2, 4, 4, dtype="float64"))),
            normal(2, 4, 4, dtype="float64"),
        ),
    ]


@op(
    "MatrixSolveLs(matrix: T, rhs: T, l2_regularizer: double) -> output: T",
    T=LAPACK_TYPES,
    fast="bool = True",
)
class MatrixSolveLs:
    """x of least |matrix x - rhs|^2 + l2_regularizer |x|^2: by normal equations, or (not fast) by singular
    values."""

    cpu_only = True

    def shape(
        self, s: ShapeContext, matrix: TensorShape, rhs: TensorShape, l2_regularizer: TensorShape
    ) -> TensorShape:
        l2_regularizer.with_rank(0)
        matrix, rhs = matrix.with_rank_at_least(2), rhs.with_rank_at_least(2)
        if matrix.sizes is None or rhs.sizes is None:
            return UNKNOWN
        TensorShape.of(matrix.sizes[-2:-1]).merge_with(TensorShape.of(rhs.sizes[-2:-1]))
        batch = TensorShape.of(matrix.sizes[:-2]).merge_with(TensorShape.of(rhs.sizes[:-2]))
        return batch.concatenate(TensorShape.of((matrix.sizes[-1], rhs.sizes[-1])))

    def compute(self, k: KernelContext, matrix: Any, rhs: Any, l2_regularizer: Any) -> Any:
        if matrix.ndim < 2 or rhs.ndim < 2 or matrix.shape[-2] != rhs.shape[-2]:
            raise ValueError(
                f"MatrixSolveLs: matrices of shape {list(matrix.shape)} do not fit right-hand sides of "
                f"shape {list(rhs.shape)}"
            )
        a, b = wide(matrix), wide(rhs)
        if not k.attrs["fast"]:
            return (np.linalg.pinv(a) @ b).astype(k.dtype, copy=False)
        rows, columns = a.shape[-2:]
        n = min(rows, columns)
        gram = (adjoint(a) @ a if rows >= columns else a @ adjoint(a)) + np.eye(
            n, dtype=a.dtype
        ) * a.dtype.type(l2_regularizer)
        try:
            made = (
                np.linalg.solve(gram, adjoint(a) @ b)
                if rows >= columns
                else adjoint(a) @ np.linalg.solve(gram, b)
            )
        except np.linalg.LinAlgError:
            raise ValueError(
                "MatrixSolveLs: the normal equations are singular: give an l2_regularizer above 0, or "
                "fast=False"
            ) from None
        return made.astype(k.dtype, copy=False)

    def gradient(self, op: Any, dy: Tensor) -> list[Tensor | None]:
        a, b, l2 = op.inputs
        if not op.attrs["fast"]:
            raise ValueError("MatrixSolveLs: the gradient is defined for fast=True")
        rows, columns = (
            a.shape.with_rank_at_least(2).sizes[-2:] if a.shape.sizes is not None else (None, None)
        )
        if rows is None or columns is None:
            raise ValueError(
                f"MatrixSolveLs: the gradient needs matrices whose sizes are known, not shape {a.shape}"
            )
        tall = rows >= columns
        gram = product(a, a, adj_a=True) if tall else product(a, a, adj_b=True)
        gram = raw.MatrixSetDiag(gram, raw.MatrixDiagPart(gram) + cast_to(l2, a.dtype.base_dtype))
        if tall:
            z = raw.MatrixSolve(gram, dy)
            x = op.outputs[0]
            pair = product(x, z, adj_b=True)
            return [product(b, z, adj_b=True) - product(a, pair + turned(pair)), product(a, z), None]
        d_rhs = raw.MatrixSolve(gram, product(a, dy))
        w = raw.MatrixSolve(gram, b)
        left = dy - product(a, d_rhs, adj_a=True)
        return [product(w, left, adj_b=True) - product(d_rhs, product(w, a, adj_a=True)), d_rhs, None]

    samples = [
        sample(normal(5, 3), normal(5, 2), np.float64(0.1), rtol=1e-4),
        sample(normal(2, 3, 5), normal(2, 3, 2), np.float64(0.2), rtol=1e-4),
        sample(normal(5, 3, dtype="float64"), normal(5, 2, dtype="float64"), np.float64(0.0), rtol=1e-9),
        sample(normal(5, 3), normal(5, 2), np.float64(0.0), fast=False, gradient=False, rtol=1e-4),
    ]
