"""tf.linalg: matrices, in the last two dimensions of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphrt.ops  # noqa: F401  (registers the ops)
from graphrt.api import array_creation
from graphrt.api.array_shape import matrix_transpose
from graphrt.api.math_elementwise import abs as abs_
from graphrt.api.math_elementwise import cast, conj, pow, real, sqrt
from graphrt.api.math_products import cross, einsum, matmul, matvec, tensordot, trace
from graphrt.api.math_reduce import reduce_max, reduce_sum, renamed
from graphrt.api.matrix_diagonals import diag as tensor_diag
from graphrt.api.matrix_diagonals import diag_part as tensor_diag_part
from graphrt.api.matrix_diagonals import matrix_band_part as band_part
from graphrt.api.matrix_diagonals import matrix_diag as diag
from graphrt.api.matrix_diagonals import matrix_diag_part as diag_part
from graphrt.api.matrix_diagonals import matrix_set_diag as set_diag
from graphrt.core import raw
from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import name_scope
from graphrt.core.dtypes import as_dtype, float32, int32
from graphrt.core.tensor import Tensor

transpose = matrix_transpose


def eye(
    num_rows: Any,
    num_columns: Any = None,
    batch_shape: Any = None,
    dtype: Any = float32,
    name: str | None = None,
) -> Tensor:
    """Matrices with ones on the main diagonal and zeros elsewhere.

    Args:
      num_rows, num_columns: ints or int tensors; as many columns as rows where None.
      batch_shape: the shape before the matrices.
    Raises:
      TypeError: sizes that are no integers.
    """
    with name_scope(name, "eye", [num_rows, num_columns]):
        columns = num_rows if num_columns is None else num_columns
        kind = as_dtype(dtype).base_dtype
        one = np.array(True if kind.is_bool else 1, kind.np)
        sizes = [num_rows, columns]
        if any(isinstance(s, Tensor) for s in (*sizes, batch_shape)):
            rows_, columns_ = (cast(convert_to_tensor(s), int32) for s in sizes)
            least = rows_ if num_columns is None else raw.Minimum(rows_, columns_)
            batch = convert_to_tensor([] if batch_shape is None else batch_shape, dtype=int32, name="shape")
            ones = raw.Fill(raw.ConcatV2([batch, raw.ExpandDims(least, 0)], 0), one)
            if num_columns is None:
                return diag(ones)
            zeros = raw.Fill(raw.ConcatV2([batch, raw.Pack([rows_, columns_])], 0), np.zeros((), kind.np))
            return set_diag(zeros, ones)
        for size in sizes:
            if not isinstance(size, (int, np.integer)) and not hasattr(size, "__index__"):
                raise TypeError(
                    "Arguments `num_rows` and `num_columns` must be positive integer values. Received: "
                    f"num_rows={num_rows}, num_columns={num_columns}"
                )
        rows, columns = (int(s) for s in sizes)
        before = [int(d) for d in (() if batch_shape is None else batch_shape)]
        ones = array_creation.ones([*before, min(rows, columns)], kind)
        if rows == columns:
            return diag(ones)
        return set_diag(array_creation.zeros([*before, rows, columns], kind), ones)


def adjoint(matrix: Any, name: str | None = None) -> Tensor:
    """Matrices transposed and conjugated."""
    with name_scope(name, "adjoint", [matrix]):
        return matrix_transpose(convert_to_tensor(matrix, name="matrix"), conjugate=True)


def inv(input: Any, adjoint: bool = False, name: str | None = None) -> Tensor:
    """The inverses of square matrices, or of their adjoints. Singular ones are an InvalidArgumentError."""
    return raw.MatrixInverse(input, adjoint=adjoint, name=name)


def det(input: Any, name: str | None = None) -> Tensor:
    """The determinants of square matrices."""
    return raw.MatrixDeterminant(input, name=name)


def slogdet(input: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """(sign, logarithm of the size) of the determinants of square matrices."""
    sign, log = raw.LogMatrixDeterminant(input, name=name)
    return sign, log


def logdet(matrix: Any, name: str | None = None) -> Tensor:
    """The logarithm of the determinants of Hermitian positive definite matrices."""
    with name_scope(name, "logdet", [matrix]):
        factor = raw.Cholesky(matrix)
        return 2.0 * reduce_sum(raw.Log(real(diag_part(factor))), axis=[-1])


def solve(matrix: Any, rhs: Any, adjoint: bool = False, name: str | None = None) -> Tensor:
    """x of matrix x = rhs, for square matrices [..., n, n] and right-hand sides [..., n, k]."""
    return raw.MatrixSolve(matrix, rhs, adjoint=adjoint, name=name)


def triangular_solve(
    matrix: Any, rhs: Any, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> Tensor:
    """x of matrix x = rhs, of the lower (or upper) triangle of matrix, or of its adjoint."""
    with name_scope(name, "triangular_solve", [matrix, rhs]):
        return raw.MatrixTriangularSolve(matrix, rhs, lower=lower, adjoint=adjoint)


def lstsq(
    matrix: Any, rhs: Any, l2_regularizer: float = 0.0, fast: bool = True, name: str | None = None
) -> Tensor:
    """x of least |matrix x - rhs|^2 + l2_regularizer |x|^2.

    Args:
      matrix: tensor [..., m, n]; rhs: [..., m, k].
      fast: by normal equations, which need matrices of full rank or an l2_regularizer; else by singular
      values, which take any,
        ignore l2_regularizer and give the smallest x.
    """
    return raw.MatrixSolveLs(
        matrix, rhs, np.float64(l2_regularizer), fast=fast, name=name or "matrix_solve_ls"
    )


def cholesky(input: Any, name: str | None = None) -> Tensor:
    """The lower triangles L of L L^H = input, for Hermitian positive definite matrices; others are an
    InvalidArgumentError."""
    return raw.Cholesky(input, name=name)


def cholesky_solve(chol: Any, rhs: Any, name: str | None = None) -> Tensor:
    """x of A x = rhs, given chol = cholesky(A)."""
    with name_scope(name, "cholesky_solve", [chol, rhs]):
        chol = convert_to_tensor(chol, name="chol")
        return raw.MatrixTriangularSolve(
            chol, raw.MatrixTriangularSolve(chol, rhs, lower=True), lower=True, adjoint=True
        )


def qr(input: Any, full_matrices: bool = False, name: str | None = None) -> tuple[Tensor, Tensor]:
    """(q, r) of input = q r: q has orthonormal columns, r is upper triangular."""
    q, r = raw.Qr(input, full_matrices=full_matrices, name=name)
    return q, r


def svd(tensor: Any, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None) -> Any:
    """(s, u, v) of tensor = u diag(s) v^H, s descending; s alone without compute_uv. Note that v is not
    transposed."""
    s, u, v = raw.Svd(tensor, compute_uv=compute_uv, full_matrices=full_matrices, name=name)
    return (real(s), u, v) if compute_uv else real(s)


def eigh(tensor: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """(e, v): the eigenvalues of Hermitian matrices, ascending, and their eigenvectors as columns. The lower
    triangle is read."""
    e, v = raw.SelfAdjointEigV2(tensor, compute_v=True, name=name)
    return e, v


def eigvalsh(tensor: Any, name: str | None = None) -> Tensor:
    """The eigenvalues of Hermitian matrices, ascending."""
    return raw.SelfAdjointEigV2(tensor, compute_v=False, name=name)[0]


def pinv(a: Any, rcond: Any = None, validate_args: bool = False, name: str | None = None) -> Tensor:
    """The Moore-Penrose inverses of matrices; singular values at or below rcond times the largest count as 0.

    Args:
      rcond: 10 times the larger size times the dtype's epsilon where None.
    """
    with name_scope(name or "pinv"):
        a = convert_to_tensor(a, name="a")
        kind = a.dtype.base_dtype
        if rcond is None:
            shape = raw.Shape(a)
            larger = reduce_max(raw.StridedSlice(shape, [-2], [0], [1], end_mask=1))
            rcond = cast(larger, kind.real_dtype) * float(10 * np.finfo(kind.real_dtype.np).eps)
        s, u, v = svd(a)
        cutoff = convert_to_tensor(rcond, dtype=s.dtype.base_dtype, name="rcond") * reduce_max(s, axis=-1)
        s = raw.SelectV2(s > raw.ExpandDims(cutoff, -1), s, np.array(np.inf, s.dtype.np))
        made = matmul(v / cast(raw.ExpandDims(s, -2), kind), u, adjoint_b=True)
        sizes = a.shape.sizes
        if sizes is not None:
            made.set_shape([*sizes[:-2], sizes[-1], sizes[-2]])
        return made


def matrix_rank(a: Any, tol: Any = None, validate_args: bool = False, name: str | None = None) -> Tensor:
    """How many singular values of each matrix are above tol (the larger size times epsilon times the
    largest, where None)."""
    with name_scope(name or "matrix_rank"):
        a = convert_to_tensor(a, dtype_hint=float32, name="a")
        s = svd(a, compute_uv=False)
        if tol is None:
            larger = reduce_max(raw.StridedSlice(raw.Shape(a), [-2], [0], [1], end_mask=1))
            eps = float(np.finfo(s.dtype.np).eps)
            tol = eps * cast(larger, s.dtype.base_dtype) * reduce_max(s, axis=-1, keepdims=True)
        return reduce_sum(cast(raw.Greater(s, tol), int32), axis=-1)


def norm(
    tensor: Any,
    ord: Any = "euclidean",
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """The norm of vectors, matrices, or a whole tensor.

    Args:
      ord: 'euclidean', 1, 2, inf or a positive number p of vectors; 'euclidean', 'fro', 1, 2, inf of
      matrices.
      axis: None: the whole tensor as a vector; an int: vectors along it; a pair: matrices.
      keepdims: leave a size of 1 where an axis was (keep_dims is the older name).
    Raises:
      ValueError: an ord or axis that is not among these.
    """
    keepdims = bool(renamed("keep_dims", keep_dims, "keepdims", keepdims))
    of_matrices = isinstance(axis, (tuple, list)) and len(axis) == 2
    axes: Any
    if of_matrices:
        axes = tuple(axis)
        if not all(isinstance(i, int) for i in axes) or axes[0] == axes[1]:
            raise ValueError(f"'axis' must be None, an integer, or a tuple of 2 unique integers, got {axes}")
        if ord not in ("euclidean", "fro", 1, 2, np.inf):
            raise ValueError(
                f"'ord' must be a supported matrix norm in ['euclidean', 'fro', 1, 2, inf], got {ord}"
            )
    else:
        if axis is not None and not isinstance(axis, int):
            raise ValueError(f"'axis' must be None, an integer, or a tuple of 2 unique integers, got {axis}")
        if ord != "euclidean" and (isinstance(ord, str) or not np.isreal(ord) or ord <= 0):
            raise ValueError(f"'ord' must be a supported vector norm, got {ord}")
        axes = None if axis is None else (axis,)
    with name_scope(name, "norm", [tensor]):
        x = convert_to_tensor(tensor)
        if of_matrices and ord == 2:
            made = _spectral_norm(x, axes)
        elif ord in ("fro", "euclidean", 2):
            made = sqrt(reduce_sum(x * conj(x), axes, keepdims=True))
        elif ord == 1:
            made = reduce_sum(abs_(x), None if axes is None else axes[0], keepdims=True)
            made = reduce_max(made, axes[-1], keepdims=True) if of_matrices else made
        elif ord == np.inf:
            made = reduce_sum(abs_(x), axes[1], keepdims=True) if of_matrices else abs_(x)
            made = reduce_max(made, None if axes is None else axes[0], keepdims=True)
        else:
            made = pow(reduce_sum(pow(abs_(x), ord), axes, keepdims=True), 1.0 / ord)
        if keepdims:
            return made
        return raw.Squeeze(made, squeeze_dims=[] if axes is None else list(axes))


def _spectral_norm(x: Tensor, axes: tuple[int, int]) -> Tensor:
    """The largest singular value of the matrices along `axes`, with sizes of 1 there."""
    rank = x.shape.rank
    if rank is None:
        raise ValueError("norm: the 2-norm of matrices needs a tensor of known rank")
    rows, columns = (a % rank for a in axes)
    order = [i for i in range(rank) if i not in (rows, columns)] + [rows, columns]
    s = svd(raw.Transpose(x, np.array(order, np.int32)), compute_uv=False)
    made = raw.ExpandDims(reduce_max(s, axis=-1, keepdims=True), -1)
    return raw.Transpose(made, np.argsort(order).astype(np.int32))


def normalize(
    tensor: Any, ord: Any = "euclidean", axis: Any = None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """(tensor divided by its norm, the norm); arguments as norm's, with the axes kept."""
    with name_scope(name, "normalize", [tensor]):
        x = convert_to_tensor(tensor)
        size = cast(norm(x, ord, axis, keepdims=True), x.dtype.base_dtype)
        return x / size, size


def global_norm(t_list: Any, name: str | None = None) -> Any:
    """The Euclidean norm of a list of tensors taken together; see tf.global_norm."""
    from graphrt import clip

    return clip.global_norm(t_list, name)


def l2_normalize(
    x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None, dim: Any = None
) -> Tensor:
    """x divided by its Euclidean norm along `axis`; see tf.nn.l2_normalize."""
    from graphrt import nn

    return nn.l2_normalize(x, axis=axis, epsilon=epsilon, name=name, dim=dim)


# The names that are in the top namespace too.
matrix_inverse, matrix_determinant, matrix_solve, matrix_triangular_solve, matrix_solve_ls = (
    inv,
    det,
    solve,
    triangular_solve,
    lstsq,
)
self_adjoint_eig, self_adjoint_eigvals = eigh, eigvalsh

__all__ = [
    "adjoint",
    "band_part",
    "cholesky",
    "cholesky_solve",
    "cross",
    "det",
    "diag",
    "diag_part",
    "eigh",
    "eigvalsh",
    "einsum",
    "eye",
    "global_norm",
    "inv",
    "l2_normalize",
    "logdet",
    "lstsq",
    "matmul",
    "matrix_rank",
    "matrix_transpose",
    "matvec",
    "norm",
    "normalize",
    "pinv",
    "qr",
    "set_diag",
    "slogdet",
    "solve",
    "svd",
    "tensor_diag",
    "tensor_diag_part",
    "tensordot",
    "trace",
    "transpose",
    "triangular_solve",
]
