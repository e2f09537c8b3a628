"""Decompositions of matrices: Qr, Svd, SelfAdjointEigV2, Eig. Signs (and phases) of vectors are LAPACK's."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.core import raw
from graphrt.core.dtypes import COMPLEX, float32, float64
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import normal, program, sample
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.core.tensor import Tensor
from graphrt.ops.broadcasting import cast_to
from graphrt.ops.linalg import (
    LAPACK_TYPES,
    adjoint,
    check_square,
    positive_definite_array,
    product,
    square,
    turned,
    wide,
)


@op("Qr(input: T) -> q: T, r: T", full_matrices="bool = False", T=LAPACK_TYPES)
class Qr:
    """input = q r, with orthonormal columns in q and r upper triangular."""

    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape) -> list[TensorShape]:
        input = input.with_rank_at_least(2)
        if input.sizes is None:
            return [UNKNOWN, UNKNOWN]
        *batch, rows, columns = input.sizes
        least = None if rows is None or columns is None else min(rows, columns)
        inner = rows if s.attrs["full_matrices"] else least
        return [TensorShape.of((*batch, rows, inner)), TensorShape.of((*batch, inner, columns))]

    def compute(self, k: KernelContext, input: Any) -> tuple[Any, Any]:
        if input.ndim < 2:
            raise ValueError(f"Qr takes matrices, not shape {list(input.shape)}")
        made = np.linalg.qr(wide(input), "complete" if k.attrs["full_matrices"] else "reduced")
        return tuple(m.astype(k.dtype, copy=False) for m in made)  # type: ignore[return-value]

    def gradient(self, op: Any, dq: Tensor, dr: Tensor) -> Tensor:
        q, r = op.outputs
        rows, columns = (
            op.inputs[0].shape.sizes[-2:] if op.inputs[0].shape.sizes is not None else (None, None)
        )
        if rows is None or columns is None:
            raise ValueError(
                f"Qr: the gradient needs matrices whose sizes are known, not shape {op.inputs[0].shape}"
            )
        if rows > columns and op.attrs["full_matrices"]:
            raise ValueError(
                f"Qr: the gradient of full matrices of more rows than columns, [{rows}, {columns}], is not "
                "defined: use "
                "full_matrices=False"
            )
        if rows >= columns:
            return _qr_gradient(q, r, dq, dr)
        # [x, y] = q [u, v]: x as above, and y = q v.
        y = op.inputs[0][..., rows:]
        du, dv = dr[..., :rows], dr[..., rows:]
        dx = _qr_gradient(q, r[..., :rows], dq + product(y, dv, adj_b=True), du)
        return raw.ConcatV2([dx, product(q, dv)], -1)

    samples = [
        sample(normal(4, 3), rtol=1e-4),
        sample(normal(3, 3), rtol=1e-4),
        sample(normal(2, 3, 4), rtol=1e-4),
        sample(normal(4, 3), full_matrices=True, gradient=False, rtol=1e-4),
        sample(normal(3, 3, dtype="float64"), rtol=1e-9),
    ]


def _qr_gradient(q: Tensor, r: Tensor, dq: Tensor, dr: Tensor) -> Tensor:
    """The gradient of a matrix of at least as many rows as columns."""

    def by_adjoint_of_r(x: Tensor) -> Tensor:
        """x r^-H."""
        return turned(raw.MatrixTriangularSolve(r, turned(x), lower=False))

    q_dq, r_dr = product(q, dq, adj_a=True), product(r, dr, adj_b=True)
    skew = (q_dq - turned(q_dq)) + (r_dr - turned(r_dr))
    along = product(q, dr + by_adjoint_of_r(raw.MatrixBandPart(skew, -1, 0)))
    across = by_adjoint_of_r(dq - product(q, q_dq))
    made = along + across
    if not q.dtype.is_complex:
        return made
    # The phases of r's diagonal are held.
    diagonal = raw.MatrixDiagPart(r_dr - turned(q_dq))
    phase = diagonal - raw.Cast(raw.Real(diagonal, Tout=q.dtype.real_dtype), DstT=q.dtype.base_dtype)
    return made + by_adjoint_of_r(product(q, turned(raw.MatrixDiag(phase))))


@op("SelfAdjointEigV2(input: T) -> e: T, v: T", compute_v="bool = True", T=LAPACK_TYPES)
class SelfAdjointEigV2:
    """The eigenvalues of symmetric (Hermitian) matrices, ascending, and their eigenvectors as columns; the
    lower triangle is read."""

    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape) -> list[TensorShape]:
        input = square(input)
        if input.sizes is None:
            return [UNKNOWN, UNKNOWN]
        values = TensorShape.of(input.sizes[:-1])
        return [values, input if s.attrs["compute_v"] else TensorShape.of((0,))]

    def compute(self, k: KernelContext, input: Any) -> tuple[Any, Any]:
        check_square(input, "SelfAdjointEigV2")
        if not k.attrs["compute_v"]:
            return np.linalg.eigvalsh(wide(input)).astype(k.dtype), np.zeros(0, k.dtype)
        e, v = np.linalg.eigh(wide(input))
        return e.astype(k.dtype), v.astype(k.dtype)

    def gradient(self, op: Any, de: Tensor, dv: Tensor) -> Tensor:
        e = op.outputs[0]
        if op.attrs["compute_v"]:
            v = op.outputs[1]
            inner = raw.MatrixDiag(de) + _inverse_gaps(e) * product(v, dv, adj_a=True)
        else:
            v = raw.SelfAdjointEigV2(op.inputs[0], compute_v=True)[1]
            inner = raw.MatrixDiag(de)
        made = product(v, product(inner, v, adj_b=True))
        # Only the lower triangle is read: it takes the upper one's part.
        made = raw.MatrixBandPart(made + turned(made), -1, 0)
        return raw.MatrixSetDiag(made, 0.5 * raw.MatrixDiagPart(made))

    samples = [
        program(lambda tf: _eigen(tf, positive_definite_array(4, 4))),
        program(lambda tf: _eigen(tf, positive_definite_array(2, 3, 3))),
        program(
            lambda tf: [
                tf.self_adjoint_eigvals(tf.constant(positive_definite_array(2, 3, 3, dtype="float64")))
            ]
        ),
        program(lambda tf: _values_gradient(tf, positive_definite_array(3, 3)), why="the values alone"),
    ]


def _values_gradient(tf: Any, matrix: Any) -> list[Any]:
    x = tf.constant(matrix)
    e = tf.self_adjoint_eigvals(x)
    return [e, tf.gradients(tf.reduce_sum(tf.sin(e)), x)[0]]


def _eigen(tf: Any, matrix: Any) -> list[Any]:
    """Steps that compare what does not depend on the vectors' signs: the values, the matrix put together, a
    gradient."""
    x = tf.constant(matrix)
    e, v = tf.self_adjoint_eig(x)
    squares = tf.square(v)
    return [
        e,
        tf.matmul(v * tf.expand_dims(e, -2), v, transpose_b=True),
        squares,
        tf.gradients(tf.reduce_sum(squares * tf.constant(matrix)) + tf.reduce_sum(tf.sin(e)), x)[0],
    ]


def _inverse_gaps(e: Tensor) -> Tensor:
    """1 / (e_j - e_i) off the diagonal, 0 on it (and nearly 0 where two are equal)."""
    gaps = raw.ExpandDims(e, -2) - raw.ExpandDims(e, -1)
    return raw.MatrixSetDiag(_safe_reciprocal(gaps), raw.ZerosLike(e))


def _safe_reciprocal(x: Tensor) -> Tensor:
    return x * raw.Reciprocal(x * x + 1e-20)


@op(
    "Svd(input: T) -> s: T, u: T, v: T",
    compute_uv="bool = True",
    full_matrices="bool = False",
    T=LAPACK_TYPES,
)
class Svd:
    """input = u diag(s) v^H: singular values s, descending, with orthonormal columns in u and v."""

    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape) -> list[TensorShape]:
        input = input.with_rank_at_least(2)
        nothing = TensorShape.of((0,))
        if input.sizes is None:
            return [UNKNOWN] * 3 if s.attrs["compute_uv"] else [UNKNOWN, nothing, nothing]
        *batch, rows, columns = input.sizes
        least = None if rows is None or columns is None else min(rows, columns)
        values = TensorShape.of((*batch, least))
        if not s.attrs["compute_uv"]:
            return [values, nothing, nothing]
        full = s.attrs["full_matrices"]
        return [
            values,
            TensorShape.of((*batch, rows, rows if full else least)),
            TensorShape.of((*batch, columns, columns if full else least)),
        ]

    def compute(self, k: KernelContext, input: Any) -> tuple[Any, Any, Any]:
        if input.ndim < 2:
            raise ValueError(f"Svd takes matrices, not shape {list(input.shape)}")
        if not k.attrs["compute_uv"]:
            return (
                np.linalg.svd(wide(input), compute_uv=False).astype(k.dtype),
                np.zeros(0, k.dtype),
                np.zeros(0, k.dtype),
            )
        u, s, vh = np.linalg.svd(wide(input), full_matrices=k.attrs["full_matrices"])
        return s.astype(k.dtype), u.astype(k.dtype), adjoint(vh).astype(k.dtype)

    def gradient(self, op: Any, ds: Tensor, du: Tensor, dv: Tensor) -> Tensor:
        a = op.inputs[0]
        ds = cast_to(ds, a.dtype.base_dtype)
        if not op.attrs["compute_uv"]:
            _, u, v = raw.Svd(a, compute_uv=True)
            return product(u, product(raw.MatrixDiag(ds), v, adj_b=True))
        rows, columns = a.shape.sizes[-2:] if a.shape.sizes is not None else (None, None)
        if rows is None or columns is None:
            raise ValueError(f"Svd: the gradient needs matrices whose sizes are known, not shape {a.shape}")
        full = op.attrs["full_matrices"]
        if full and abs(rows - columns) > 1:
            raise ValueError(
                "Svd: the gradient of full matrices is not defined where sizes differ by more than 1, "
                f"[{rows}, {columns}]: use "
                "full_matrices=False"
            )
        s, u, v = op.outputs
        if rows > columns:
            # The adjoint is as wide as it was tall, with u and v exchanged.
            return turned(_svd_gradient(s, v, u, ds, dv, du, columns, rows, full))
        return _svd_gradient(s, u, v, ds, du, dv, rows, columns, full)

    samples = [
        program(lambda tf: _singular(tf, normal(4, 3))),
        program(lambda tf: _singular(tf, normal(3, 3))),
        program(lambda tf: _singular(tf, normal(2, 3, 5))),
        program(lambda tf: _singular_values(tf, normal(4, 3))),
        program(lambda tf: _full_singular(tf, normal(4, 3))),
    ]


def _singular(tf: Any, draw: Any) -> list[Any]:
    """Steps that compare what does not depend on the vectors' signs."""
    x = tf.constant(draw.array(0))
    s, u, v = tf.svd(x)
    weights = tf.range(1.0, 4.0)
    loss = (
        tf.reduce_sum(tf.square(u) * weights)
        + tf.reduce_sum(tf.square(v) * weights)
        + tf.reduce_sum(tf.sin(s))
    )
    return [
        s,
        tf.matmul(u * tf.expand_dims(s, -2), v, transpose_b=True),
        tf.square(u),
        tf.gradients(loss, x)[0],
    ]


def _singular_values(tf: Any, draw: Any) -> list[Any]:
    x = tf.constant(draw.array(0))
    s = tf.svd(x, compute_uv=False)
    return [s, tf.gradients(tf.reduce_sum(tf.sin(s)), x)[0]]


def _full_singular(tf: Any, draw: Any) -> list[Any]:
    s, u, v = tf.svd(tf.constant(draw.array(0)), full_matrices=True)
    return [s, tf.square(u), tf.square(v)]


def _svd_gradient(
    s: Tensor, u: Tensor, v: Tensor, ds: Tensor, du: Tensor, dv: Tensor, rows: int, columns: int, full: bool
) -> Tensor:
    """The gradient of a matrix of at most as many rows as columns."""
    s = cast_to(s, u.dtype.base_dtype)
    gaps = _inverse_gaps(raw.Square(s))
    v1, dv1 = (v[..., :rows], dv[..., :rows]) if columns > rows else (v, dv)
    s_, inverse = raw.MatrixDiag(s), raw.MatrixDiag(_safe_reciprocal(s))
    v_dv = product(v1, dv1, adj_a=True)
    from_u, from_v = gaps * product(u, du, adj_a=True), gaps * v_dv
    inner = raw.MatrixDiag(ds) + product(from_u + turned(from_u), s_) + product(s_, from_v + turned(from_v))
    made = product(u, product(inner, v1, adj_b=True))
    if columns > rows:
        # What dv asks for outside of the space that v1 spans.
        dv1_h = turned(dv1)
        outside = dv1_h - product(product(dv1_h, v1), v1, adj_b=True)
        if full:
            v2, dv2 = v[..., rows:columns], dv[..., rows:columns]
            outside = outside - product(product(v1, dv2, adj_a=True), v2, adj_b=True)
        made = made + product(product(u, inverse), outside)
    if u.dtype.is_complex:
        own = raw.MatrixDiag(raw.MatrixDiagPart(v_dv))
        made = made + 0.5 * product(u, product(product(inverse, turned(own) - own), v1, adj_b=True))
    return made


@op(
    "Eig(input: T) -> e: Tout, v: Tout", compute_v="bool = True", T=(float32, float64, *COMPLEX), Tout=COMPLEX
)
class Eig:
    """The eigenvalues of square matrices, and their eigenvectors as columns."""

    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape) -> list[TensorShape]:
        return SelfAdjointEigV2.impl.shape(s, input)

    def compute(self, k: KernelContext, input: Any) -> tuple[Any, Any]:
        check_square(input, "Eig")
        if not k.attrs["compute_v"]:
            return np.linalg.eigvals(input).astype(k.dtype), np.zeros(0, k.dtype)
        e, v = np.linalg.eig(input)
        return e.astype(k.dtype), v.astype(k.dtype)

    def gradient(self, op: Any, de: Tensor, dv: Tensor) -> Tensor:
        x = op.inputs[0]
        e = op.outputs[0]
        if op.attrs["compute_v"]:
            v = op.outputs[1]
            v_dv = product(v, dv, adj_a=True)
            own = raw.MatrixDiagPart(
                raw.Cast(raw.Real(v_dv, Tout=v.dtype.real_dtype), DstT=v.dtype.base_dtype)
            )
            lengths = product(product(v, v, adj_a=True), raw.MatrixDiag(own))
            inner = raw.MatrixDiag(de) + raw.Conj(_inverse_gaps(e)) * (v_dv - lengths)
        else:
            v = raw.Eig(x, compute_v=True, Tout=e.dtype.base_dtype)[1]
            inner = raw.MatrixDiag(de)
        made = raw.MatrixSolve(turned(v), product(inner, v, adj_b=True))
        if x.dtype.is_complex:
            return made
        return cast_to(raw.Real(made, Tout=made.dtype.real_dtype), x.dtype.base_dtype)

    samples = [
        program(lambda tf: _eigenvalues(tf, positive_definite_array(3, 3))),
        program(
            lambda tf: _eigen_gradient(tf, positive_definite_array(3, 3)),
            why="the values' gradient",
            rtol=1e-4,
        ),
    ]


def _eigenvalues(tf: Any, matrix: Any) -> list[Any]:
    """Steps that do not depend on the order of the values."""
    e, v = tf.raw_ops.Eig(input=tf.constant(matrix), Tout=tf.complex64)
    again = tf.matmul(tf.matmul(v, tf.matrix_diag(e)), tf.matrix_inverse(v))
    return [tf.reduce_sum(e), tf.reduce_prod(tf.real(e)), tf.real(again)]


def _eigen_gradient(tf: Any, matrix: Any) -> list[Any]:
    x = tf.constant(matrix)
    e, _ = tf.raw_ops.Eig(input=x, Tout=tf.complex64)
    return [tf.gradients(tf.reduce_sum(tf.sin(tf.real(e))), x)[0]]
