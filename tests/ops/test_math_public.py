"""Public mathematics gives TensorFlow's values, for arguments in every form that TF1 programs use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphrt

Build = Callable[[Any], list[Any]]
_rng = np.random.default_rng(5)
A = _rng.standard_normal((3, 4)).astype(np.float32)
B = _rng.standard_normal((4, 5)).astype(np.float32)
C = _rng.standard_normal((2, 3, 4)).astype(np.float32)
INTS = _rng.integers(-9, 9, (3, 4)).astype(np.int32)
Z = (A + 1j * A[::-1]).astype(np.complex64)
S = (A[:, :3] @ A[:, :3].T + np.eye(3)).astype(np.float32)

CASES: dict[str, Build] = {
    "reductions": lambda tf: [
        tf.reduce_sum(A),
        tf.reduce_sum(A, 0),
        tf.reduce_sum(A, axis=[0, 1]),
        tf.reduce_sum(A, reduction_indices=1),
        tf.reduce_mean(A, 1, keepdims=True),
        tf.reduce_mean(A, 1, keep_dims=True),
        tf.reduce_max(A, -1),
        tf.reduce_min(INTS),
        tf.reduce_prod(A, 0),
        tf.reduce_all(A > 0, 0),
        tf.reduce_any(A > 0),
        tf.reduce_sum(3.0),
        tf.reduce_logsumexp(A),
        tf.reduce_logsumexp(A, 1, keepdims=True),
        tf.math.reduce_euclidean_norm(A, 0),
        tf.math.reduce_variance(A, 0),
        tf.math.reduce_std(A),
        tf.reduce_mean(INTS, 0),
        tf.reduce_sum(A, tf.constant([0])),
        tf.count_nonzero(INTS),
        tf.count_nonzero(INTS, 1, keepdims=True, dtype=tf.int32),
        tf.reduce_sum(A, []),
    ],
    "positions": lambda tf: [
        tf.argmax(A),
        tf.argmax(A, 1),
        tf.argmin(A, axis=-1, output_type=tf.int32),
        tf.argmax(A, dimension=1),
        tf.arg_max(A, 0),
        tf.arg_min(A, 1),
    ],
    "scans": lambda tf: [
        tf.cumsum(A),
        tf.cumsum(A, 1, exclusive=True),
        tf.cumsum(A, axis=1, reverse=True),
        tf.cumprod(A, 0, True, True),
        tf.math.cumulative_logsumexp(A, 1),
    ],
    "sums": lambda tf: [
        tf.add_n([A, A, A]),
        tf.accumulate_n([tf.constant(A), tf.constant(A)]),
        tf.add_n([tf.constant(A)]),
    ],
    "products": lambda tf: [
        tf.matmul(A, B),
        tf.matmul(A, A, transpose_b=True),
        tf.matmul(A, A, transpose_a=True),
        tf.matmul(C, C, transpose_b=True),
        tf.matmul(C, B),
        tf.matmul(Z, Z, adjoint_a=True),
        tf.matmul(Z, Z, transpose_a=True),
        tf.matmul(A, B, b_is_sparse=True),
        tf.tensordot(A, B, 1),
        tf.tensordot(C, A, [[1, 2], [0, 1]]),
        tf.tensordot(A, A, 0),
        tf.tensordot(C, B, [[-1], [0]]),
        tf.linalg.matvec(A, A[0]),
        tf.cross(A[:, :3], A[:, 1:]),
        tf.trace(C),
        tf.sparse_matmul(A, B),
        tf.tensordot(A, B, tf.constant([[1], [0]])),
    ],
    "einsum": lambda tf: [
        tf.einsum("ij,jk->ik", A, B),
        tf.einsum("ij,jk", A, B),
        tf.einsum("bij,jk->bik", C, B),
        tf.einsum("ii->", S),
        tf.einsum("...j,j->...", C, A[0]),
        tf.einsum("ij->", A),
        tf.einsum("ij,jk,kl->il", A, B, B.T),
        tf.einsum("i,j,k->ijk", A[0], A[1], A[2]),
        tf.einsum("bij, bkj -> bik", C, C),
        tf.einsum("ba", A),
        tf.einsum("...ij,...jk,kl->...il", C, C.transpose(0, 2, 1), A),
    ],
    "elementwise": lambda tf: [
        tf.add(A, 1.0),
        tf.subtract(A, A),
        tf.multiply(A, 2.0),
        tf.divide(A, 2.0),
        tf.divide(INTS, 4),
        tf.truediv(INTS, 4),
        tf.div(INTS, 4),
        tf.floordiv(INTS, 4),
        tf.floor_div(INTS, 4),
        tf.truncatediv(INTS, 4),
        tf.mod(INTS, 4),
        tf.floormod(INTS, -4),
        tf.truncatemod(INTS, 4),
        tf.pow(A, 2.0),
        tf.abs(INTS),
        tf.abs(Z),
        tf.sign(Z),
        tf.sign(INTS),
        tf.round(A * 3),
        tf.round(INTS),
        tf.rint(A * 3),
        tf.negative(A),
        tf.reciprocal(A),
        tf.square(INTS),
        tf.squared_difference(A, 1.0),
        tf.maximum(A, 0.0),
        tf.minimum(INTS, 2),
        tf.scalar_mul(3.0, tf.constant(A)),
        tf.div_no_nan(A, np.zeros_like(A)),
        tf.math.multiply_no_nan(A, 0.0),
        tf.math.reciprocal_no_nan([0.0, 2.0]),
        tf.math.xlogy(A, 2.0),
        tf.math.xlog1py(A, 2.0),
        tf.math.xdivy(A, 2.0),
        tf.math.polyval([1.0, 2.0, 3.0], A),
        tf.math.nextafter(A, 9.0),
        tf.log_sigmoid(A),
        tf.sigmoid(A),
        tf.tanh(A),
        tf.rsqrt(tf.abs(A)),
        tf.atan2(A, 2.0),
        tf.equal(INTS, 2),
        tf.not_equal(INTS, 2),
        tf.less(A, 0.0),
        tf.less_equal(INTS, 2),
        tf.greater(A, 0.0),
        tf.greater_equal(INTS, 2),
        tf.logical_and(A > 0, A < 1),
        tf.logical_or(A > 0, A < -1),
        tf.logical_not(A > 0),
        tf.logical_xor(A > 0, A > 1),
        tf.add("a", ["b", "c"]),
        tf.add(1, 2),
    ],
    "operators": lambda tf: [
        tf.constant(A) + A,
        1 - tf.constant(A),
        A * tf.constant(A),
        tf.constant(INTS) / 3,
        tf.constant(INTS) // 3,
        7 // tf.constant(3),
        tf.constant(INTS) % 3,
        2.0 ** tf.constant(A),
        tf.constant(A) @ B,
        A @ tf.constant(B),
        -tf.constant(A),
        abs(tf.constant(A)),
        tf.constant(A) < 0,
        tf.constant(A) >= A,
        ~tf.constant(True),
        tf.constant(True) & False,
        tf.constant(6) ^ 3,
        True | tf.constant(False),
        ~tf.constant(6),
        tf.constant(True) ^ True,
    ],
    "types": lambda tf: [
        tf.cast(A, tf.int32),
        tf.cast(INTS, tf.float64),
        tf.cast(A > 0, tf.float32),
        tf.cast(A, tf.bool),
        tf.cast(Z, tf.float32),
        tf.to_float(INTS),
        tf.to_int32(A),
        tf.to_int64(A),
        tf.to_double(A),
        tf.to_complex64(A),
        tf.saturate_cast([-5.0, 3.7, 300.0], tf.uint8),
        tf.saturate_cast(np.array([-5, 70000]), tf.int16),
        tf.saturate_cast([1e30, -1e30], tf.int32),
        tf.bitcast(A, tf.int32),
        tf.cast(1.9, tf.int32),
        tf.saturate_cast(np.array([1e300]), tf.float32),
    ],
    "complex": lambda tf: [
        tf.complex(A, A),
        tf.real(Z),
        tf.imag(Z),
        tf.conj(Z),
        tf.angle(Z),
        tf.real(A),
        tf.imag(A),
        tf.angle(A),
    ],
    "special": lambda tf: [
        tf.erf(A),
        tf.erfc(A),
        tf.lgamma(tf.abs(A)),
        tf.digamma(tf.abs(A)),
        tf.math.erfinv(A / 4),
        tf.math.ndtri(tf.sigmoid(A)),
        tf.math.erfcinv(tf.abs(A) / 4),
        tf.igamma(tf.abs(A), 1.0),
        tf.igammac(tf.abs(A), 1.0),
        tf.betainc(tf.abs(A), 2.0, 0.3),
        tf.polygamma(1.0, tf.abs(A)),
        tf.zeta(2.0, tf.abs(A)),
        tf.lbeta(tf.abs(A)),
        tf.math.bessel_i0(A),
        tf.math.special.dawsn(A),
    ],
    "sequences": lambda tf: [
        tf.range(5),
        tf.range(3, 18, 3),
        tf.range(3, 1, -0.5),
        tf.range(5.0),
        tf.range(4, dtype=tf.int64),
        tf.linspace(0.0, 1.0, 5),
        tf.lin_space(-1.0, 1.0, 11),
        tf.linspace([0.0, 1.0], [1.0, 3.0], 4),
        tf.linspace([0.0, 1.0], [1.0, 3.0], 3, axis=-1),
        tf.linspace(2.0, 3.0, 1),
    ],
    "segments": lambda tf: [
        tf.segment_sum(A, [0, 0, 1]),
        tf.segment_mean(A, [0, 0, 1]),
        tf.segment_max(A, [0, 0, 1]),
        tf.segment_min(A, [0, 0, 1]),
        tf.segment_prod(A, [0, 0, 1]),
        tf.unsorted_segment_sum(A, [1, 0, 1], 3),
        tf.unsorted_segment_mean(A, [1, 0, 1], 2),
        tf.unsorted_segment_sqrt_n(A, [1, 0, 1], 2),
        tf.unsorted_segment_max(A, [1, 0, 1], 2),
        tf.sparse_segment_sum(A, [0, 2], [0, 0]),
        tf.sparse_segment_mean(A, [0, 2], [0, 0], num_segments=2),
        tf.sparse_segment_sqrt_n(A, [0, 2], [0, 0]),
    ],
    "counts": lambda tf: [
        tf.bincount([1, 1, 3, 2]),
        tf.bincount([1, 1, 3], weights=[0.5, 1.0, 2.0]),
        tf.bincount([1, 1, 9], maxlength=4),
        tf.bincount([1], minlength=5),
        tf.histogram_fixed_width(A, [-1.0, 1.0], 5),
        tf.histogram_fixed_width_bins(A, [-1.0, 1.0], 5),
    ],
    "diagonals": lambda tf: [
        tf.diag(A[0]),
        tf.diag_part(S),
        tf.matrix_diag(A),
        tf.matrix_diag(A[0], k=1),
        tf.matrix_diag_part(C),
        tf.matrix_diag_part(S, k=-1),
        tf.matrix_set_diag(C, A[:2, :3]),
        tf.matrix_band_part(S, -1, 0),
        tf.eye(3),
        tf.eye(2, 3, [2], tf.int32),
        tf.eye(tf.constant(3)),
        tf.eye(tf.constant(2), tf.constant(3)),
        tf.matrix_diag_part(C, k=(-1, 1), padding_value=7.0),
    ],
    "matrices": lambda tf: [
        tf.matrix_inverse(S),
        tf.matrix_determinant(S),
        tf.matrix_solve(S, A[:, :2]),
        tf.matrix_triangular_solve(S, A[:, :2]),
        tf.cholesky(S),
        tf.cholesky_solve(tf.cholesky(S), A[:, :2]),
        tf.linalg.logdet(S),
        tf.linalg.slogdet(S)[1],
        tf.qr(A)[1],
        tf.svd(A, compute_uv=False),
        tf.self_adjoint_eigvals(S),
        tf.matrix_solve_ls(A, A[:, :2], 0.1),
        tf.linalg.pinv(A),
        tf.linalg.matrix_rank(S),
        tf.linalg.adjoint(Z),
        tf.norm(A),
        tf.norm(A, 1),
        tf.norm(A, np.inf, axis=1),
        tf.norm(A, 3, axis=0),
        tf.norm(A, "fro", axis=(0, 1), keepdims=True),
        tf.norm(A, 1, axis=[0, 1]),
        tf.norm(A, np.inf, axis=[0, 1]),
        tf.norm(Z),
        tf.linalg.norm(A, 2, axis=[-2, -1]),
        tf.linalg.normalize(A, axis=1)[0],
        tf.linalg.matmul(S, S),
    ],
    "spectra": lambda tf: [
        tf.fft(Z),
        tf.ifft2d(Z),
        tf.spectral.rfft(A),
        tf.spectral.rfft(A, [6]),
        tf.spectral.irfft(Z),
        tf.spectral.irfft(Z, [9]),
        tf.spectral.rfft2d(C),
        tf.spectral.irfft2d(Z),
        tf.spectral.dct(A),
        tf.spectral.dct(A, norm="ortho"),
        tf.spectral.dct(A, type=1),
        tf.spectral.dct(A, type=3),
        tf.spectral.dct(A, type=3, norm="ortho"),
        tf.spectral.idct(A),
        tf.spectral.idct(A, norm="ortho"),
        tf.spectral.dct(A, n=6),
        tf.spectral.dct(A, n=2),
        tf.spectral.dct(A, type=4),
        tf.spectral.dct(A, type=4, norm="ortho"),
        tf.spectral.dct(A[0]),
    ],
    "bits": lambda tf: [
        tf.bitwise.bitwise_and(INTS, 3),
        tf.bitwise.bitwise_or(INTS, 3),
        tf.bitwise.bitwise_xor(INTS, 3),
        tf.bitwise.invert(INTS),
        tf.bitwise.left_shift(INTS, 2),
        tf.bitwise.right_shift(INTS, 1),
    ],
    "monotone": lambda tf: [
        tf.math.is_nan([1.0, np.nan]),
        tf.is_inf([1.0, np.inf]),
        tf.is_finite([1.0, np.nan]),
    ],
}


def _run(module: Any, build: Build) -> tuple[list[Any], list[Any]]:
    graph = module.Graph()
    with graph.as_default():
        tensors = build(module)
        with module.Session() as session:
            return session.run(tensors), [t.shape for t in tensors]


@pytest.mark.parametrize("case", CASES)
def test_values_and_dtypes_are_tensorflows(case: str, tf: Any) -> None:
    ours, shapes = _run(graphrt, CASES[case])
    theirs, _ = _run(tf.compat.v1, CASES[case])
    for i, (mine, wanted, shape) in enumerate(zip(ours, theirs, shapes)):
        mine, wanted = np.asarray(mine), np.asarray(wanted)
        what = f"{case}, value {i}"
        assert mine.dtype == wanted.dtype, what
        assert shape.is_compatible_with(mine.shape), what
        if wanted.dtype.kind in "fc":
            np.testing.assert_allclose(mine, wanted, rtol=2e-5, atol=2e-5, err_msg=what)
        else:
            assert mine.tolist() == wanted.tolist(), what


@pytest.mark.parametrize(
    "build",
    [
        lambda tf, x, y: tf.tensordot(x, y, 1),
        lambda tf, x, y: tf.matmul(x, y),
        lambda tf, x, y: tf.einsum("ij,jk->ik", x, y),
        lambda tf, x, y: tf.reduce_sum(x, 0) + tf.reduce_mean(x),
        lambda tf, x, y: tf.reduce_prod(x, 1),
        lambda tf, x, y: tf.norm(x, axis=0),
        lambda tf, x, y: tf.reduce_logsumexp(x, 1),
        lambda tf, x, y: tf.einsum("ij,kl->il", x, y),
        lambda tf, x, y: tf.spectral.rfft(x),
        lambda tf, x, y: tf.eye(tf.shape(x)[0]) @ x,
    ],
)
def test_shapes_that_are_known_when_the_step_runs_do(build: Any, tf: Any) -> None:
    found = []
    for module in (graphrt, tf.compat.v1):
        with module.Graph().as_default():
            x, y = (
                module.placeholder(module.float32, [None, None]),
                module.placeholder(module.float32, [None, None]),
            )
            z = build(module, x, y)
            grads = [g for g in module.gradients(module.abs(z), [x, y]) if g is not None]
            with module.Session() as session:
                found.append(session.run([z, *grads], {x: A, y: B}))
    assert len(found[0]) == len(found[1])
    for mine, wanted in zip(*found):
        np.testing.assert_allclose(mine, wanted, rtol=2e-5, atol=2e-5)


def test_unary_functions_map_over_the_values_of_a_sparse_tensor() -> None:
    import graphrt as tf

    sparse = tf.SparseTensor([[0, 1], [1, 0]], [4.0, 9.0], [2, 2])
    made = [tf.sqrt(sparse), tf.square(sparse), tf.abs(sparse), tf.sign(sparse), tf.cast(sparse, tf.int32)]
    with tf.Session() as session:
        values = session.run([m.values for m in made])
    assert [v.tolist() for v in values] == [[2, 3], [16, 81], [4, 9], [1, 1], [4, 9]]


def test_indexed_slices_are_scaled_and_cast_as_they_are() -> None:
    import graphrt as tf

    slices = tf.IndexedSlices(tf.constant([1.0, 2.0]), tf.constant([3, 4]), tf.constant([9]))
    scaled, cast = tf.scalar_mul(2.0, slices), tf.cast(slices, tf.float64)
    assert scaled.indices is slices.indices and cast.dense_shape is slices.dense_shape
    with tf.Session() as session:
        assert session.run(scaled.values).tolist() == [2, 4]
        assert session.run(cast.values).dtype == np.float64


def test_equality_of_tensors_is_identity() -> None:
    import graphrt as tf

    x, y = tf.constant(1.0), tf.constant(1.0)
    assert x == x and x != y and not x == y
    assert len({x, y}) == 2
